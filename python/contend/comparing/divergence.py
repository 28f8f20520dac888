"""The first scheduling event in which two deterministic runs differ.

Both runs are made again with a trace as text, up to a horizon that grows from a thousandth of the run: a run that ends
earlier begins alike, so the files stay small where the runs part soon, as they mostly do.
"""

from __future__ import annotations

import re
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contend.run import list_presets, run
from contend.xen.report import is_xen

FIRST_SHARE = 1000
GROWTH = 8
BYTES_MAX = 1 << 30
"""Traces are not made longer than about this."""
BEFORE = 3
"""Events shown before the one that differs."""

_EVENT = re.compile(r"\s*(.+)-(\d+)\s+\[(\d+)\]\s+\S+\s+([\d.]+): (.*)")
_PID = re.compile(r"\b((?:\w+_)?pid)=\d+")


@dataclass(frozen=True)
class Event:
    """A scheduling event of a trace."""

    time_s: float
    cpu: int
    task: str
    text: str

    @classmethod
    def of(cls, line: str | None) -> Event | None:
        """From a line of ftrace's text; None at the end of a trace."""
        if line is None:
            return None
        found = _EVENT.match(line)
        if found is None:
            raise AssertionError(f"a line of our own trace: {line!r}")
        return cls(float(found[4]), int(found[3]), found[1], found[5])


@dataclass(frozen=True)
class Divergence:
    """Where two runs part: `baseline` and `result` are the first events that differ (None: the run had ended).

    `same`: both are one run. `same_dispatches`: both dispatch the same tasks at the same times on the same CPUs;
    between dispatches the runs may differ. `compared_s`: so much virtual time was looked at; `events`: so many events
    were equal. `why`: why nothing was compared, or in what runs of the same dispatches differ.
    """

    same: bool = False
    same_dispatches: bool = False
    why: str | None = None
    seed: int | None = None
    compared_s: float = 0.0
    events: int = 0
    before: tuple[Event, ...] = ()
    baseline: Event | None = None
    result: Event | None = None

    @property
    def found(self) -> bool:
        """Has an event been found that differs?"""
        return self.baseline is not None or self.result is not None

    @property
    def time_s(self) -> float:
        """When the runs part, in virtual seconds."""
        return min(e.time_s for e in (self.baseline, self.result) if e is not None)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "time_s": self.time_s if self.found else None}


IDENTITY = ("trace_hash", "cpus", "virtual_ns", "events", "ledger_ns")
"""Where these are equal it is the same run; the trace hash alone is of dispatches."""


def identity(summary: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells a run from another."""
    return tuple(tuple(v.items()) if isinstance(v := summary[key], dict) else v for key in IDENTITY)


def _lines(file: Path) -> Iterator[str]:
    with file.open(encoding="utf-8", errors="replace") as text:
        yield from (line for line in text if not line.startswith("#"))


def _plain(line: str | None) -> str | None:
    """A line without numbers of tasks: tasks are the same if their names are."""
    if line is None:
        return None
    e = _EVENT.match(line)
    return line if e is None else " ".join((e[1], e[3], e[4], _PID.sub(r"\1", e[5])))


def first_difference(baseline: Path, result: Path) -> tuple[int, list[str], str | None, str | None]:
    """How many events are equal, the last of them, and the two that differ (both None: the traces are equal)."""
    old, new = _lines(baseline), _lines(result)
    before: deque[str] = deque(maxlen=BEFORE)
    equal = 0
    while True:
        a, b = next(old, None), next(new, None)
        if a is None and b is None:
            return equal, list(before), None, None
        if a != b and _plain(a) != _plain(b):
            return equal, list(before), a, b
        before.append(a or "")
        equal += 1


def diverge(
    baseline: str | Mapping[str, Any],
    result: str | Mapping[str, Any],
    summaries: tuple[dict[str, Any], dict[str, Any]],
    seed: int,
) -> Divergence:
    """Find the first event that differs between two scenarios under one seed, given the summaries of both runs."""
    old, new = summaries
    if old["trace_hash"] == new["trace_hash"] and old["cpus"] == new["cpus"]:
        differing = [key for key in IDENTITY if old[key] != new[key]]
        why = f"{' and '.join(differing)} differ" if differing else None
        return Divergence(not differing, True, why, seed, old["virtual_s"])
    if old["cpus"] != new["cpus"]:
        return Divergence(why=f"the machines have {old['cpus']} and {new['cpus']} CPUs", seed=seed)
    presets = {preset["name"] for preset in list_presets()}
    own = [str(s["policy"]) for s in summaries if not is_xen(s) and s["policy"] not in presets]
    if own:
        why = f"{own[0]} is a program's own policy, and only that program makes its runs again"
        return Divergence(why=why, seed=seed)
    end = max(old["virtual_s"], new["virtual_s"])
    horizon = min(old["virtual_s"], new["virtual_s"]) / FIRST_SHARE
    with tempfile.TemporaryDirectory(prefix="contend-compare-") as temporary, ThreadPoolExecutor(2) as pool:
        files = [Path(temporary, f"{name}.txt") for name in ("baseline", "result")]
        while True:
            last = horizon >= end
            # What counts as warm-up changes no schedule, but must lie before the horizon.
            limit = {} if last else {"horizon_s": max(horizon, 1e-6), "warmup_s": 0.0}
            for made in [
                pool.submit(run, what, seed=seed, trace=file, **limit)
                for what, file in zip((baseline, result), files, strict=True)
            ]:
                made.result()
            equal, before, a, b = first_difference(*files)
            if a is not None or b is not None:
                lines = tuple(e for e in map(Event.of, before) if e)
                return Divergence(False, False, None, seed, horizon, equal, lines, Event.of(a), Event.of(b))
            if last:
                return Divergence(why="no scheduling event differs", seed=seed, compared_s=end, events=equal)
            if max(f.stat().st_size for f in files) * GROWTH > BYTES_MAX:
                why = "traces as long as the rest would need were not made"
                return Divergence(why=why, seed=seed, compared_s=horizon, events=equal)
            horizon *= GROWTH
