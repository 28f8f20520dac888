"""What runs were given to do: is it the same work, and how does it differ?"""

from __future__ import annotations

import hashlib
import itertools
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from contend.result import Result
from contend.sweeping.spec import names_file

HOW = ("group", "nice", "pin", "sched")
"""Keys of workloads that say where and how urgently tasks run, and not what they do."""

ELSEWHERE = ("name", "policy", "topology", "pin", "set")
"""Keys of guests that `guests.changed` compares."""

OF_DOMAINS = ("vcpus", "weight", "cap", "pool")
"""Those that `xen.report.changed` compares."""

_unread = itertools.count()


def same_work(*results: Result) -> bool:
    """Did all of them do the same work to its end? Names of guests, and whether they are copies, do not matter."""
    todo = [_amounts(_work(r), r.summary["cpus"]) for r in results]
    return all(r.outcome == "finished" for r in results) and all(work == todo[0] for work in todo[1:])


def changed(result: Result, baseline: Result) -> dict[str, list[str]]:
    """How workloads, guests, groups and the length of the run differ: key to both values, baseline first.

    Where a workload is of another kind, that is said elsewhere, and says all: its keys are others.
    """
    new, old = _work(result), _work(baseline)
    found: list[tuple[str, list[str]]] = []
    for key in ("workload", "groups", "horizon_s", "warmup_s", "at"):
        found += _differing(old.get(key), new.get(key), key)
    left_out = (*ELSEWHERE, *(OF_DOMAINS if "xen" in old and "xen" in new else ()))
    befores, afters = (
        {g["name"]: {k: v for k, v in g.items() if k not in left_out} for g in w.get("guest", ())} for w in (old, new)
    )
    for name in dict.fromkeys([*befores, *afters]):
        found += _differing(befores.get(name), afters.get(name), name)
    return {key: values for key, values in found if key != "workload" and not key.endswith("workload.kind")}


@dataclass(frozen=True)
class _File:
    """A file that a workload names: it is another of the same content, whatever its name."""

    name: str = field(compare=False, repr=False)
    content: str

    @classmethod
    def of(cls, name: str, base: Path) -> _File:
        """Read it. One that cannot be read is equal to none."""
        try:
            with (base / name).open("rb") as file:
                return cls(name, hashlib.file_digest(file, "sha256").hexdigest())
        except OSError:
            return cls(name, f"not at hand {next(_unread)}")

    def __str__(self) -> str:
        return f"{self.name} ({self.content[:11]})"


_works: WeakKeyDictionary[Result, dict[str, Any]] = WeakKeyDictionary()


def _work(r: Result) -> dict[str, Any]:
    """The complete scenario, with what is in the files that it names."""
    if r not in _works:
        if r.path is None and any(line.startswith("file = ") for line in r.scenario_toml.splitlines()):
            # What its files held is only to be had by storing it; the result itself stays unstored.
            with tempfile.TemporaryDirectory(prefix="contend-compare-") as temporary:
                stored = Path(temporary, "result")
                r.write(stored)
                r.path = None
                _works[r] = _read(r.scenario_toml, stored)
        else:
            _works[r] = _read(r.scenario_toml, r.path or Path())
    return _works[r]


def _read(scenario_toml: str, base: Path) -> dict[str, Any]:
    scenario = tomllib.loads(scenario_toml)
    for holder in (scenario, *scenario.get("guest", ())):
        if "workload" in holder:
            holder["workload"] = _with_files(holder["workload"], base)
    if "horizon_ns" in scenario:
        scenario["horizon_s"] = scenario.pop("horizon_ns") / 1e9
    return scenario


def _with_files(workload: dict[str, Any], base: Path) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in workload.items():
        if key == "parts":
            out[key] = [_with_files(part, base) for part in value]
        elif names_file(key, value):
            out[key] = _File.of(value, base)
        else:
            out[key] = value
    return out


def _amounts(scenario: dict[str, Any], cpus: int) -> tuple[str, Counter[str]]:
    """What the host and its guests have to do; of a guest that is background, as much as there is time for."""
    guests: Counter[str] = Counter()
    for guest in scenario.get("guest", ()):
        guests[repr((guest["background"], _amount(guest["workload"], guest["vcpus"])))] += guest.get("copies", 1)
    return repr(_amount(scenario.get("workload", {}), cpus)), guests


def _amount(workload: dict[str, Any], cpus: int) -> dict[str, Any]:
    """A workload's keys but those of `HOW`, in order; with the CPUs where some of it is so much for each."""
    out: dict[str, Any] = {}
    for key, value in sorted(workload.items()):
        if key not in HOW:
            out[key] = [_amount(part, cpus) for part in value] if key == "parts" else value
    return out | {"cpus": cpus} if any(key.endswith("_per_cpu") for key in out) else out


def _differing(old: Any, new: Any, key: str) -> Iterator[tuple[str, list[str]]]:
    """Keys with both values. Of two kinds of workloads the kinds alone are named."""
    if isinstance(old, dict) and isinstance(new, dict):
        both = [k for k in dict.fromkeys([*old, *new]) if old.get(k) != new.get(k)]
        for k in ["kind"] if "kind" in both else both:
            yield from _differing(old.get(k), new.get(k), f"{key}.{k}")
    elif _are_tables(old) and _are_tables(new):
        for i, (a, b) in enumerate(itertools.zip_longest(old, new), 1):
            yield from _differing(a, b, f"{key}.{i}")
    elif old != new:
        yield key, [_words(old), _words(new)]


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, dict) for v in value)


def _words(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(_words, value))
    if isinstance(value, dict):
        return _words(value.get("kind") or value.get("workload") or list(value.values()))
    return str(value)
