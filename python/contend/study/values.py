"""Reading numbers off the summary of a run.

An expression is

    rate.NAME             a program's counter per virtual second (after the warm-up)
    latency.NAME.pN       a percentile of a program's latency, in us; also .mean, .max
    ledger_pct.ACCOUNT    share of an account in all CPU time, in per cent
    probes_per_search     run queues looked at in a search for an idle CPU
    searches_per_wakeup   searches for an idle CPU over wake-ups
    ipis_per_wakeup       interrupts between CPUs over wake-ups
    wakeups_per_s         wake-ups per virtual second
    rq.contended          acquisitions of run-queue locks that found the lock taken; also rq.contended_pct (their share)
                          and rq.wait_ms (the time that they waited)
    wakeups.far_pct       wake-ups that left the last-level cache of the CPU where the task ran before, in per cent
    host_pct              share of the host's kernel in the CPU time that was not idle, in per cent: all but the work of
                          the host's own tasks, and guest mode; also guest_pct, that of guest mode
    PATH                  any number of the summary, such as engine.ipis; in a list of objects a part of the path
                          selects by name or kind: lock_kinds.rq.contended
    A / B                 the quotient of two of these

None stands for what the run does not have: a counter that never counted, a quotient of nothing.
"""

from __future__ import annotations

from typing import Any

SHORT: dict[str, tuple[str, float]] = {
    "probes_per_search": ("wakeups.probes / wakeups.idle_searches", 1),
    "searches_per_wakeup": ("wakeups.idle_searches / wakeups.made", 1),
    "ipis_per_wakeup": ("engine.ipis / wakeups.made", 1),
    "wakeups_per_s": ("wakeups.made / virtual_s", 1),
    "rq.contended": ("lock_kinds.rq.contended", 1),
    "rq.contended_pct": ("lock_kinds.rq.contended / lock_kinds.rq.acquisitions", 100),
    "rq.wait_ms": ("lock_kinds.rq.wait_s", 1000),
}
"""Names for expressions, with a factor."""


def read(summary: dict[str, Any], expression: str) -> float | None:
    """The value of an expression."""
    if expression in SHORT:
        long, factor = SHORT[expression]
        value = read(summary, long)
        return None if value is None else factor * value
    above, quotient, below = expression.partition(" / ")
    if quotient:
        a, b = read(summary, above.strip()), read(summary, below.strip())
        return a / b if a is not None and b else None
    if expression == "wakeups.made":
        return float(sum(summary["wakeups"]["from_waker"].values()))
    if expression == "wakeups.far_pct":
        counts = list(summary["wakeups"]["from_previous"].values())
        return 100 * sum(counts[3:]) / sum(counts) if sum(counts) else None
    head, _, rest = expression.partition(".")
    found: float | None
    match head:
        case "host_pct" | "guest_pct":
            found = _mode(summary["ledger_ns"], head)
        case "ledger_pct":
            ledger = summary["ledger_ns"]
            found = 100 * ledger[rest] / sum(ledger.values()) if rest in ledger else None
        case "rate":
            found = _at(summary["metrics"]["counts"], [rest, "per_s"])
        case "latency":
            name, _, which = rest.partition(".")
            samples = summary["metrics"]["latencies_us"].get(name)
            found = samples.get(which) if samples and samples["count"] else None
        case _:
            found = _at(summary, expression.split("."))
    return found


GUEST = ("guest_user", "guest_kernel", "guest_spin")
TASKS = ("user", "user_spin_wait")
"""Accounts of guest mode, and of user mode on the host."""


def _mode(ledger: dict[str, int], which: str) -> float | None:
    busy = sum(ledger.values()) - ledger["idle"]
    guest = sum(ledger.get(a, 0) for a in GUEST)
    own = sum(ledger.get(a, 0) for a in TASKS)
    if not busy:
        return None
    return 100 * (guest if which == "guest_pct" else busy - guest - own) / busy


def _named(items: list[Any], name: str) -> Any:
    return next((v for v in items if name in (v.get("name"), v.get("kind"))), None)


def _at(value: Any, path: list[str]) -> float | None:
    while path:
        part, *rest = path
        if isinstance(value, dict):
            # A key may hold a point: p99.5.
            if ".".join(path) in value:
                value = value[".".join(path)]
                break
            value = value.get(part)
        elif isinstance(value, list):
            # So may a name: /user.slice.
            name = next((n for n in range(len(path), 0, -1) if _named(value, ".".join(path[:n]))), 1)
            value, rest = _named(value, ".".join(path[:name])), path[name:]
        else:
            return None
        path = rest
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
