"""The sweep's file: a scenario, the keys that vary, and what is read off each run."""

from __future__ import annotations

import math
import os
import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contend import given
from contend._core import ScenarioInvalid
from contend.quantity import check_expression

POINTS_MAX = 200_000
KEYS = ("scenario", "grid", "random", "metrics")
HEADS = (
    "machine",
    "policy",
    "seed",
    "horizon_s",
    "warmup_s",
    "stall_s",
    "set",
    "groups",
    "workload",
    "guest",
    "xen",
    "kvm",
    "at",
)
"""First parts of the keys that may vary."""
NOTHING, NO_AXIS, NO_KEYS, TWICE, TABLE, BOTH, KEY_TWICE = PLAIN = (
    "nothing",
    "nothing that varies",
    "no keys",
    "a value twice",
    "a table",
    "a key of [grid] and of [random]",
    "a key twice",
)
"""What is found, in words; other text is quoted."""
DISTRIBUTIONS = ("uniform", "log_uniform", "integers", "log_integers", "choice")


@dataclass(frozen=True)
class Axis:
    """A key that varies: over `values` (a grid), or drawn from `distribution`, which is (kind, arguments)."""

    key: str
    values: tuple[Any, ...] = ()
    distribution: tuple[str, tuple[Any, ...]] | None = None

    def draw(self, seed: int, samples: int) -> list[Any]:
        """Its random values. Each key has a stream of its own, so that other keys and more samples change no value."""
        assert self.distribution is not None
        stream = random.Random(f"{seed}/{self.key}")
        kind, of = self.distribution
        draws: dict[str, Callable[[], Any]] = {
            "uniform": lambda: _rounded(stream.uniform(*of)),
            "log_uniform": lambda: _rounded(math.exp(stream.uniform(math.log(of[0]), math.log(of[1])))),
            "integers": lambda: stream.randint(*of),
            "log_integers": lambda: round(math.exp(stream.uniform(math.log(of[0]), math.log(of[1])))),
            "choice": lambda: stream.choice(of),
        }
        return [draws[kind]() for _ in range(samples)]


def _rounded(value: float) -> float:
    """Six digits: what is drawn can be typed."""
    return float(f"{value:.6g}")


@dataclass(frozen=True)
class Spec:
    """A sweep as it was asked for. Paths in it are absolute."""

    file: str
    scenario: str | dict[str, Any]
    grid: tuple[Axis, ...]
    random: tuple[Axis, ...] = ()
    samples: int = 0
    seed: int = 1
    metrics: tuple[str, ...] | None = None
    lines: dict[str, int] = field(default_factory=dict)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All keys that vary."""
        return (*self.grid, *self.random)

    def where(self, key: str) -> str:
        """A key's place, for messages."""
        line = self.lines.get(key)
        return f"{self.file}{f':{line}' if line else ''}: {key}"

    def __len__(self) -> int:
        return math.prod(len(a.values) for a in self.grid) * (self.samples if self.random else 1)


def load(what: str | os.PathLike[str] | Mapping[str, Any]) -> Spec:
    """Read a sweep: a file, or a mapping with its keys. Raises ScenarioInvalid."""
    if isinstance(what, Mapping):
        return _Reader("sweep", Path(), "").spec(dict(what))
    path = Path(given.path("sweep", what, f"{given.PATH}, or a mapping"))
    name = str(path)
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except OSError as e:
        raise ScenarioInvalid(f"{name}: cannot be read: {(e.strerror or str(e)).lower()}") from e
    except UnicodeDecodeError as e:
        raise ScenarioInvalid(f"{name}: not UTF-8 text") from e
    except tomllib.TOMLDecodeError as e:
        raise ScenarioInvalid(f"{name}: not valid TOML: {e}") from e
    return _Reader(name, path.parent, text).spec(data)


class _Reader:
    def __init__(self, file: str, base: Path, text: str) -> None:
        self.file = file
        self.base = base
        self.text = text.splitlines()
        self.lines: dict[str, int] = {}
        self.table = ""

    def line(self, key: str) -> int | None:
        """The line that begins with a key, in the table that is being read if it is there; tomllib keeps none."""
        last = re.escape(key.rpartition(".")[2])
        whole = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=|\s*\[+\s*{re.escape(key)}\s*\]")
        tail = re.compile(rf"\s*(?:[\w.\"'-]+\.)?[\"']?{last}[\"']?\s*=")
        table, inside = "", []
        for line in self.text:
            head = re.match(r"\s*\[+\s*([\w-]+)", line)
            table = head[1] if head else table
            inside.append(table == self.table or re.match(rf"\s*{self.table}\s*[.=]", line))
        for within in (True, False):
            for pattern in (whole, tail):
                for i, line in enumerate(self.text, 1):
                    if pattern.match(line) and (not within or inside[i - 1]):
                        return i
        return None

    def wrong(self, key: str, found: object, right: str) -> ScenarioInvalid:
        line = self.line(key)
        shown = f'"{found}"' if isinstance(found, str) and found not in PLAIN else found
        return ScenarioInvalid(f"{self.file}{f':{line}' if line else ''}: {key}: found {shown}; should be {right}")

    def unknown(self, key: str, right: str) -> ScenarioInvalid:
        line = self.line(key)
        return ScenarioInvalid(f"{self.file}{f':{line}' if line else ''}: {key}: unknown key; {right}")

    def spec(self, data: dict[str, Any]) -> Spec:
        for key in data:
            if key not in KEYS:
                raise self.unknown(key, f"keys of a sweep are {', '.join(KEYS)}")
        for table in ("grid", "random"):
            if not isinstance(data.get(table, {}), dict):
                raise self.wrong(table, data[table], f"a table [{table}]")
        scenario = self.scenario(data.get("scenario"))
        self.table = "grid"
        grid = tuple(self.grid(key, value) for key, value in self.flat(data.get("grid", {}), ()))
        self.table = "random"
        axes, samples, seed = self.random(dict(data.get("random", {})))
        self.table = ""
        if not grid and not axes:
            raise self.wrong("grid", NO_AXIS, "a table [grid] or [random] with a key and its values")
        both = {a.key for a in grid} & {a.key for a in axes}
        if both:
            raise self.wrong(min(both), BOTH, "in one of them")
        metrics = self.metrics(data.get("metrics"))
        spec = Spec(self.file, scenario, grid, axes, samples, seed, metrics, self.lines)
        if len(spec) > POINTS_MAX:
            raise self.wrong("grid", len(spec), f"a sweep of at most {POINTS_MAX:,} points")
        return spec

    def scenario(self, scenario: Any) -> str | dict[str, Any]:
        if isinstance(scenario, dict) and scenario:
            return absolute(scenario, self.base)
        if isinstance(scenario, str) and scenario:
            return str((self.base / scenario).absolute())
        found = NOTHING if scenario is None else scenario
        raise self.wrong("scenario", found, 'scenario = "FILE", or a table [scenario] with the keys of one')

    def metrics(self, metrics: Any) -> tuple[str, ...] | None:
        if metrics is None:
            return None
        if not isinstance(metrics, list) or not metrics or not all(isinstance(m, str) for m in metrics):
            raise self.wrong("metrics", metrics, 'a list of names, such as ["virtual_s", "wakeup_latency_us.p99"]')
        line = self.line("metrics")
        for m in metrics:
            check_expression(m, f"{self.file}{f':{line}' if line else ''}: metrics")
        return tuple(metrics)

    def random(self, drawn: dict[str, Any]) -> tuple[tuple[Axis, ...], int, int]:
        """Keys, number of samples, seed."""
        samples, seed = drawn.pop("samples", None), drawn.pop("seed", 1)
        if not _whole(seed, 0):
            shown = TABLE if isinstance(seed, dict) else seed
            raise self.wrong("seed", shown, "a whole number, the seed of the draws; the scenario's varies in [grid]")
        axes = tuple(self.drawn(key, value) for key, value in self.flat(drawn, DISTRIBUTIONS))
        if axes and not _whole(samples, 1):
            raise self.wrong("samples", NOTHING if samples is None else samples, "a whole number, 1 or more")
        if samples is not None and not axes:
            right = 'keys with distributions, such as "workload.groups" = { integers = [1, 9] }'
            raise self.wrong("random", NO_KEYS, right)
        return axes, samples or 0, seed

    def flat(self, table: dict[str, Any], ends: tuple[str, ...], path: str = "") -> list[tuple[str, Any]]:
        """Keys with dots, whether they were quoted or not."""
        out: list[tuple[str, Any]] = []
        for key, value in table.items():
            full = f"{path}.{key}" if path else key
            inner = isinstance(value, dict) and value and not ({"from", "to", *ends} & set(value))
            out += self.flat(value, ends, full) if inner else [(full, value)]
        for key, _ in out:
            head = key.partition(".")[0]
            if head not in HEADS:
                raise self.unknown(key, f"keys that vary begin with {', '.join(HEADS)}")
            line = self.line(key)
            if line:
                self.lines[key] = line
        key, times = Counter(key for key, _ in out).most_common(1)[0] if out else ("", 0)
        if times > 1:
            raise self.wrong(key, KEY_TWICE, "in it once, with dots in quotes or without")
        return out

    def levels(self, key: str, values: list[Any]) -> tuple[Any, ...]:
        """A list of values; files among them are named relative to the sweep's file."""
        values = [self.path(key, v) for v in values]
        if any(values.count(v) > 1 for v in values):
            raise self.wrong(key, TWICE, "each value once")
        return tuple(values)

    def path(self, key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return absolute({key: value}, self.base)[key]
        if isinstance(value, str) and (key.endswith(".file") or (key == "machine" and value.endswith(".toml"))):
            return str((self.base / value).absolute())
        return value

    def grid(self, key: str, value: Any) -> Axis:
        right = "a list of values, or { from = 1, to = 10, step = 1 }"
        if isinstance(value, dict):
            first: Any
            last: Any
            step: Any
            first, last, step = (value.get(k, d) for k, d in (("from", None), ("to", None), ("step", 1)))
            wrong: Any = set(value) - {"from", "to", "step"}
            wrong = wrong or not (_whole(first, None) and _whole(last, None) and _whole(step, 1))
            if wrong or first > last:
                raise self.wrong(key, value, right)
            if (last - first) // step >= POINTS_MAX:
                raise self.wrong(key, value, f"at most {POINTS_MAX:,} values")
            return Axis(key, tuple(range(first, last + 1, step)))
        value = _listed(value)
        if not isinstance(value, list) or not value:
            raise self.wrong(key, value, right)
        return Axis(key, self.levels(key, value))

    def drawn(self, key: str, value: Any) -> Axis:
        right = (
            "a distribution: { uniform = [1.0, 2.0] }, { log_uniform = [1, 1000] }, { integers = [1, 9] }, "
            "{ log_integers = [1, 1000] } or { choice = [...] }"
        )
        if not isinstance(value, dict) or len(value) != 1:
            raise self.wrong(key, value, right)
        kind, of = next(iter(value.items()))
        of = _listed(of)
        if kind not in DISTRIBUTIONS or not isinstance(of, list) or not of:
            raise self.wrong(key, value, right)
        if kind == "choice":
            return Axis(key, distribution=(kind, self.levels(key, of)))
        number = (int,) if kind.endswith("integers") else (int, float)
        logarithmic = kind.startswith("log_")
        good = len(of) == 2 and all(isinstance(v, number) and not isinstance(v, bool) for v in of) and of[0] <= of[1]
        if not good or not all(math.isfinite(v) for v in of) or (logarithmic and of[0] <= 0):
            raise self.wrong(key, value, f"{{ {kind} = [LOW, HIGH] }}{' above 0' if logarithmic else ''}")
        return Axis(key, distribution=(kind, tuple(of)))


def _listed(value: Any) -> Any:
    """What Python code may give for a list: a tuple, a range, an array of numpy or a column of polars."""
    if isinstance(value, (tuple, range)):
        return list(value)
    to_list = getattr(value, "tolist", None) or getattr(value, "to_list", None)
    return to_list() if to_list else value


def _whole(value: Any, least: int | None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)


def names_file(key: str, value: Any) -> bool:
    """Is this value of a workload's key the name of a file?"""
    if not isinstance(value, str) or not value:
        return False
    # A recording's machine may be one that ships.
    return key in ("file", "sessions") or (key == "recorded_on" and value.endswith(".toml"))


def absolute(scenario: dict[str, Any], base: Path) -> dict[str, Any]:
    """A scenario whose files have absolute names: its machine file, and every file of a workload."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: str((base / v).absolute()) if names_file(k, v) else walk(v) for k, v in value.items()}
        return [walk(v) for v in value] if isinstance(value, list) else value

    out = {k: walk(v) if k in ("workload", "guest") else v for k, v in scenario.items()}
    machine = out.get("machine")
    if isinstance(machine, str) and machine.endswith(".toml"):
        out["machine"] = str((base / machine).absolute())
    return out
