"""What Python code gives: of wrong types a ContendError says what would be right."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, NoReturn, SupportsFloat, SupportsIndex

from contend._core import ContendError, ScenarioInvalid

SetValue = bool | int | float | str

SEED_MAX = (1 << 63) - 1
PATH = "a path, as text or a pathlib.Path"
MACHINE = "text: a machine's name, its file, or a shape such as 2n2l8c2t"
POLICY = "text: a preset, such as linux-6.18"


def refuse(name: str, value: object, right: str) -> NoReturn:
    """Say what was found and what would be right."""
    raise ContendError(f"{name}: found {value!r}; should be {right}")


def path(name: str, value: object, right: str = PATH) -> str:
    """A path."""
    if not isinstance(value, (str, os.PathLike)) or not isinstance(found := os.fspath(value), str):
        refuse(name, value, right)
    if not found:
        refuse(name, found, right)
    return found


def optional_path(name: str, value: object) -> str | None:
    """A path, or None."""
    return None if value is None else path(name, value)


def text(name: str, value: object, right: str) -> str | None:
    """Text, or None."""
    if value is not None and not isinstance(value, str):
        refuse(name, value, right)
    if value is not None:
        _utf8(name, value)
    return value


def whole(name: str, value: object, right: str = "a whole number") -> int | None:
    """A whole number, or None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, SupportsIndex)):
        refuse(name, value, right)
    return value if value is None else int(value)


def seed(value: object) -> int | None:
    """A seed, or None."""
    right = f"a whole number from 0 to {SEED_MAX}"
    found = whole("seed", value, right)
    if found is not None and not 0 <= found <= SEED_MAX:
        raise ScenarioInvalid(f"--seed: found {found}; should be {right}")
    return found


def number(name: str, value: object) -> float | None:
    """A number of seconds, or None."""
    if value is not None and (isinstance(value, (str, bool)) or not isinstance(value, SupportsFloat)):
        refuse(name, value, "a number of seconds")
    return value if value is None else float(value)


def undecoded(text: str) -> str:
    """Text that is no UTF-8, as the bytes of the command line; half a character that no bytes can be, as it is."""
    try:
        return repr(os.fsencode(text))[1:]
    except UnicodeEncodeError:
        return repr(text)


def _utf8(name: str, value: str) -> None:
    """Refuse what no file can hold."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ContendError(f"{name}: found {undecoded(value)}; should be UTF-8") from None


def text_of(value: SetValue | Sequence[int]) -> str:
    """A value as `--set` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float, Real)):
        return str(value)
    return ",".join(str(v) for v in value)


def sets(given: object) -> list[tuple[str, str]]:
    """`set`, as the compiled part takes it."""
    if given is None:
        return []
    if not isinstance(given, Mapping):
        refuse("set", given, 'a mapping, such as {"wake_path": "remote-lock"}')
    for key, value in given.items():
        if not isinstance(key, str):
            refuse("set", key, "text as a key, such as wake_path or workload.tasks")
        if not isinstance(value, (str, Real, Iterable)) or isinstance(value, (bytes, Mapping)):
            refuse(f"set: {key}", value, "text, a number, true or false, or a list of numbers")
        _utf8("set", key)
        if isinstance(value, str):
            _utf8(f"set: {key}", value)
    return [(key, text_of(value)) for key, value in given.items()]


def scenario_json(scenario: Mapping[str, Any]) -> str:
    """A mapping with a scenario's keys, as JSON."""
    try:
        _check("", scenario)
    except RecursionError:
        raise ScenarioInvalid("scenario: found a mapping within itself; should be a tree, as a file is") from None
    return json.dumps(scenario)


def scenario(what: object, name: str = "scenario") -> dict[str, str]:
    """A scenario's path, or a mapping, as the compiled part takes them."""
    if isinstance(what, Mapping):
        return {"json": scenario_json(what)}
    return {"path": path(name, what, f"{PATH}, or a mapping")}


def _check(key: str, value: object) -> None:
    """Refuse what TOML has no value for, and say under which key."""
    if isinstance(value, Mapping):
        for k, v in value.items():
            _check(f"{key}.{k}" if key else f"{k}", v)
    elif isinstance(value, (list, tuple)):
        for i, v in enumerate(value):
            _check(f"{key}.{i}", v)
    elif isinstance(value, str):
        _utf8(f"scenario: {key}", value)
    elif value is None:
        raise ScenarioInvalid(f"scenario: {key}: found None; should be left out, or a value")
    elif not isinstance(value, (int, float)) or (isinstance(value, float) and not math.isfinite(value)):
        raise ScenarioInvalid(f"scenario: {key}: found {value!r}; should be text, a number, a list or a mapping")
