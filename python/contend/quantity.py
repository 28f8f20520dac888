"""What can be compared of a run: named numbers of its summary, each with a unit and the direction that is better.

A name is an expression of `contend.study.values` wherever the number is in the summary, so that `--metric`, the keys of
a sweep and `jq` on `contend run --json` speak of the same thing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from contend._core import ContendError
from contend.study.values import SHORT, read
from contend.units import duration_us, seconds, si

LESS, NEITHER, MORE = -1, 0, 1
EXTRA = ("wakeups.made", "wakeups.far_pct", "host_pct", "guest_pct")
"""Expressions that are computed from the summary, besides those of `SHORT`."""


@dataclass(frozen=True)
class Quantity:
    """A number of a run.

    `unit` is s, us, ns, %, /s or count. `better` is -1 where less is better, 1 where more is, 0 where neither is.
    `grows`: it grows with the time that was simulated, so runs of different lengths are compared by its rate.
    """

    group: str
    name: str
    unit: str
    value: float | None
    better: int = NEITHER
    grows: bool = False

    def rate(self, virtual_s: float) -> Quantity:
        """The same for each virtual second, if it grows with time."""
        if not self.grows:
            return self
        value = None if self.value is None else self.value / (virtual_s or 1)
        return Quantity(self.group, self.name, f"{self.unit}/s", value, self.better)

    def judged(self, is_judged: bool) -> Quantity:
        """The same; neither direction is better where it is not judged."""
        return self if is_judged else dataclasses.replace(self, better=NEITHER)


def better_of(name: str) -> int:
    """Which direction is better for an expression of the user's: 0 if that cannot be said."""
    head = name.partition(".")[0]
    if head == "rate":
        # A counter of time (run_ns) is no work.
        return NEITHER if name.endswith("_ns") else MORE
    if head in ("latency", "wakeup_latency_us", "virtual_s") or name.endswith((".wait_s", ".contended", "delay_s")):
        return LESS
    return NEITHER


OPEN = ("rate", "latency")
"""Heads of expressions of which the next part is the program's own."""


def check_expression(expression: str, where: str) -> None:
    """Refuse an expression that no run can have, with a ContendError that begins with `where`."""
    parts = [p.strip() for p in expression.split(" / ")]
    if len(parts) > 1:
        for part in parts:
            check_expression(part, where)
        return
    head, point, rest = expression.partition(".")
    known = _skeleton()
    if expression in SHORT or expression in EXTRA or head in OPEN:
        if head in OPEN and not rest:
            raise ContendError(f"{where}: found {expression!r}; should be {head}.NAME{'.p99' * (head == 'latency')}")
        return
    names: Any = known.get(head)
    if head not in known or (not point and isinstance(names, (dict, list, str))):
        near = [*known, *SHORT, *EXTRA, *OPEN] if head not in known else [f"{head}.{k}" for k in names or ()]
        raise ContendError(f"{where}: found {expression!r}, not a number of a run's summary{_near(expression, near)}")
    # Keys of these objects are the same in every run; those of others depend on what ran.
    fixed = head in ("wakeup_latency_us", "tasks", "wakeups", "engine", "ledger_ns", "ledger_pct")
    if fixed and not any(rest == k or rest.startswith(f"{k}.") for k in names):
        raise ContendError(f"{where}: found {expression!r}{_near(expression, [f'{head}.{k}' for k in names])}")


def _near(word: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else "; docs/results.md lists them"


@functools.cache
def _skeleton() -> dict[str, Any]:
    """The summary of a run of nothing."""
    from contend.run import run

    nothing = {"machine": "1c", "horizon_s": 1e-6, "workload": {"kind": "periodic", "tasks": 1}}
    return run(nothing).summary


def asked(summary: dict[str, Any], expression: str) -> Quantity:
    """An expression of the user's; one of `quantities` by its name."""
    known = next((q for q in quantities(summary) if q.name == expression), None)
    if known is not None:
        return known
    head = expression.partition(".")[0]
    samples = expression.endswith(".count")
    unit = "us" if head in ("latency", "wakeup_latency_us") and not samples else "/s" if head == "rate" else ""
    unit = unit or ("s" if expression.endswith("_s") else "%" if expression.endswith("_pct") else "count")
    return Quantity(
        "metric", expression, unit, read(summary, expression), better_of(expression), grows=_grows(expression)
    )


LASTING = (
    "schema", "seed", "cpus", "vcpus", "id", "locks_used", "locks", "tasks", "weight", "cap", "lock", "finished_s",
    "runtime_share", "per_s", "speed", "recorded_speed", "run_times_x",
)  # fmt: skip
"""Last parts of expressions that are no counters and no sums, besides those that end in one of `UNITS`."""

UNITS = ("_pct", "_us", "_ms")
"""Shares, settings, and the longest of times: sums are in s or ns."""


def _grows(expression: str) -> bool:
    """Does it grow with the time that was simulated? Counters and sums do; the length itself is no such sum."""
    return expression not in ("virtual_s", "virtual_ns") and _power(expression) == 1


def _power(expression: str) -> int:
    """The power of time by which it grows: 1 of counters and sums, 0 of the rest, by difference of quotients."""
    if expression in SHORT:
        return _power(SHORT[expression][0])
    above, quotient, below = expression.partition(" / ")
    if quotient:
        return _power(above.strip()) - _power(below.strip())
    parts = expression.split(".")
    head, last = parts[0], parts[-1]
    if head in ("rate", "set", "features", "rescaled", "ledger_pct"):
        return 0
    # Of latencies only the number of samples; a percentile's name may hold a point.
    if head in ("latency", "wakeup_latency_us") or "latencies_us" in parts:
        return int(last == "count")
    # How many tasks there were.
    if last in ("count", "exited") and parts[-2:-1] == ["tasks"]:
        return 0
    return int(last not in LASTING and not last.endswith(UNITS))


def quantities(summary: dict[str, Any]) -> list[Quantity]:
    """What `contend compare` compares, in the order in which it is shown."""
    from contend import guests
    from contend.explain import USEFUL
    from contend.xen import report

    out: list[Quantity] = []

    def add(group: str, name: str, unit: str, better: int = NEITHER) -> None:
        out.append(Quantity(group, name, unit, read(summary, name), better, _grows(name)))

    # A run that was cut off took as long as it was told to.
    add("run", "virtual_s", "s", LESS if summary["outcome"] == "finished" else NEITHER)
    for counter in summary["metrics"]["counts"]:
        add("programs", f"rate.{counter}", "/s", better_of(f"rate.{counter}"))
    for latency in summary["metrics"]["latencies_us"]:
        for which in ("p50", "p99", "max"):
            add("programs", f"latency.{latency}.{which}", "us", LESS)
    if not report.is_xen(summary):
        for which in ("mean", "p50", "p99", "p99.9", "max"):
            add("wake-ups", f"wakeup_latency_us.{which}", "us", LESS)
        add("wake-ups", "wakeups.far_pct", "%")
    for name in ("tasks.switches", "tasks.preempted", "tasks.migrations", "engine.ipis"):
        add("scheduling", name, "count")
    add("scheduling", "tasks.delay_s", "s", LESS)
    for g in summary.get("groups", []):
        share = 100 * g["runtime_share"]
        out.append(Quantity("groups", f"groups.{g['name']}.runtime_share", "%", share))
        add("groups", f"groups.{g['name']}.delay_s", "s", LESS)
        if g.get("bandwidth"):
            add("groups", f"groups.{g['name']}.bandwidth.nr_throttled", "count", LESS)
            add("groups", f"groups.{g['name']}.bandwidth.throttled_s", "s", LESS)
    for kind in summary["lock_kinds"]:
        add("locks", f"lock_kinds.{kind['kind']}.contended", "count", LESS)
        add("locks", f"lock_kinds.{kind['kind']}.wait_s", "s", LESS)
    for account in summary["ledger_ns"]:
        loss = account not in USEFUL and account != "idle"
        add("ledger", f"ledger_ns.{account}", "ns", LESS if loss else NEITHER)
    return out + guests.quantities(summary) + report.quantities(summary)


def shown(value: float | None, unit: str) -> str:
    """A value in words."""
    if value is None:
        return "none"
    unit, per, _ = unit.partition("/s")
    sign, size = ("-" if value < 0 else ""), abs(value)
    words: Callable[[float], str] = {
        "s": seconds, "us": duration_us, "ns": lambda v: seconds(v / 1e9), "%": lambda v: f"{v:.2f} %",
    }.get(unit, si)  # fmt: skip
    return f"{sign}{words(size)}{'/s' if per else ''}"
