"""What a result says, and why: `contend explain`.

`explain` turns a result into one object (what `--json` prints); `contend.text` shows it in sentences and tables. All
figures come from the stored result: nothing is simulated again.
"""

from __future__ import annotations

import json
from typing import Any

from contend import guests
from contend._core import ContendError, describe
from contend.result import Result
from contend.units import counted, percent, seconds, si
from contend.xen import report

SCHEMA = 1

MECHANISMS = {
    "user": "the tasks' own computing",
    "syscall": "the tasks' system calls: pipes, sockets, futexes, copying",
    "cold_cache": "caches refilled after moves between CPUs, by wake-up placement and load balancing "
    "(features wake_affine, idle_search, balance)",
    "wakeup": "the wake-up path itself, try_to_wake_up (feature wake_path)",
    "idle_search": "select_task_rq looking for an idle CPU (features idle_search, sis_*)",
    "switch": "schedule() and the context switch",
    "balance": "load balancing: newidle, periodic and nohz (features balance, newidle_balance, nohz_balance)",
    "interrupt": "interrupt entry and exit, ticks and timers; wake-ups of other CPUs by interrupt "
    "(features wake_path, idle_polling)",
    "rq_lock_wait": "waiting for run-queue locks: wake-ups, switches and balancing of several CPUs meet there "
    "(features wake_path, spinlock)",
    "spin_lock_wait": "waiting for other spinlocks: pipes, sockets, futex buckets, the workload's own",
    "on_cpu_wait": "wakers waiting until the wakee's old CPU has switched away from it (feature wake_path)",
    "user_spin_wait": "threads spinning in user mode at locks of their own, whose holder or next owner may lack a CPU",
    **guests.MECHANISMS,
    "idle": "nothing to run",
}
"""What each account of the ledger is."""

USEFUL = ("user", "syscall", *guests.WORK)
"""Accounts that are work done for the tasks."""
RUNNING = (*USEFUL, "cold_cache", "user_spin_wait", "guest_spin")
"""Accounts in which a CPU runs a task that is on its queue."""

OUTCOMES = {
    "finished": "every task exited",
    "horizon": "the run reached its end with tasks alive",
    "deadlock": "tasks live and nothing will ever happen again",
    "livelock": "events happen but no task runs",
    "stall": "a runnable task was not run for too long",
    "policy-error": "the policy decided something impossible",
    "corrupt-list": "a list of pending wake-ups was corrupted",
    "panic": "code of a policy or a program panicked",
}

OF_KINDS = ("asym_capacity", "asym_packing", "sched_cluster_hybrid")
"""Features of machines with several kinds of CPUs."""

LOCKS_SHOWN = 10
TASKS_SHOWN = 10


def mechanism(account: str, summary: dict[str, Any]) -> str:
    """What an account is, in this run."""
    if report.is_xen(summary):
        ours = report.mechanism(account, summary["xen"]["scheduler"])
        return ours or MECHANISMS.get(account, "").split(" (")[0]
    if account == "rq_lock_wait" and guests.has_guests(summary):
        return guests.RQ_LOCK_WAIT
    return MECHANISMS.get(account, "")


def meaning(summary: dict[str, Any]) -> str:
    """What the outcome means, in this run."""
    if summary["outcome"] != "finished":
        return OUTCOMES.get(summary["outcome"], "")
    what, left = "task exited", summary["tasks"]["count"] - summary["tasks"]["exited"]
    if summary["guests"] or report.is_xen(summary):
        # Tasks are then vCPUs, which stay.
        what, left = "guest finished", sum(g["finished_s"] is None for g in summary["guests"])
    if not left:
        return OUTCOMES["finished"]
    noun, verb = what.split()
    return f"every {noun} that the run waits for {verb}, {left:,} {'others' if left > 1 else 'other'} did not"


def under(summary: dict[str, Any]) -> str:
    """The policy in words."""
    return report.under(summary) if report.is_xen(summary) else str(summary["policy"])


def unread(summary: dict[str, Any]) -> list[str]:
    """What was set and does nothing, in words: nobody reads it here, or no task is concerned."""
    said, sets = [], summary["set"]
    if report.is_xen(summary):
        ours = summary["xen"]["scheduler"]
        for key in sets:
            only = report.only(key)
            if only and only != ours:
                said.append(f"{key} does nothing under {ours}: only {only} reads it")
    else:
        said += [f"{key} does nothing under {why}" for key, why in _unread(summary["policy"], sets)]
        if summary.get("cpu_kinds") == []:
            alike = "does nothing: all CPUs of this machine are alike"
            said += [f"{key} {alike}" for key in OF_KINDS if key in sets]
        if sets.get("kvm.directed_yield") == "ple-off":
            off = "does nothing under kvm.directed_yield = ple-off: there are no pause-loop exits"
            said += [f"{key} {off}" for key in sets if key.startswith("kvm.ple_")]
    for group in summary["groups"]:
        key = f"groups.{group['name']}"
        if not group["tasks"] and any(k == key or k.startswith(f"{key}.") for k in sets):
            said.append(f"{key} does nothing: no task was in it")
    guests_of: dict[str, list[str]] = {}
    for guest in summary["guests"]:
        for key, why in _unread(guest["policy"], guest["set"]):
            guests_of.setdefault(f"{key} does nothing in {{}} under {why}", []).append(guest["name"])
    for sentence, names in guests_of.items():
        said.append(sentence.format(f"guest {names[0]}" if len(names) == 1 else f"{len(names)} guests"))
    return said


def _unread(policy: str, sets: dict[str, str]) -> list[tuple[str, str]]:
    """The features that were set and that a policy does not read, and why."""
    if not sets:
        return []
    ours = _algorithm(policy)
    if ours is None:
        return []
    features = {f["name"]: f for f in json.loads(describe("features", policy))}
    return [
        (key, f"{policy}: only {features[key]['only']} reads it, and this is {ours}")
        for key in sets
        if key in features and not features[key]["read"]
    ]


def _algorithm(policy: str) -> str | None:
    """What a preset's policy is: cfs, eevdf. None: the policy is a program's own."""
    presets: list[dict[str, str]] = json.loads(describe("presets"))
    return next((p["policy"] for p in presets if p["name"] == policy), None)


def ledger_rows(result: Result) -> list[dict[str, Any]]:
    """The ledger, largest account first."""
    ledger = result.ledger()
    total = sum(ledger.values()) or 1
    s = result.summary
    rows = [
        {"account": a, "ns": ns, "seconds": ns / 1e9, "share": ns / total, "mechanism": mechanism(a, s)}
        for a, ns in ledger.items()
    ]
    return sorted(rows, key=lambda r: -r["ns"])


def losses(result: Result) -> list[dict[str, Any]]:
    """The accounts that are neither work for the tasks nor idleness, largest first."""
    return [r for r in ledger_rows(result) if r["account"] not in USEFUL and r["account"] != "idle"]


def _placement(counts: dict[str, int]) -> list[dict[str, Any]]:
    total = sum(counts.values()) or 1
    return [{"distance": d, "wakeups": n, "share": n / total} for d, n in counts.items()]


def _tasks(result: Result) -> list[dict[str, Any]]:
    frame = result["tasks"].sort(["max_delay_ns", "task"], descending=[True, False]).head(TASKS_SHOWN)
    columns = ["task", "name", "runtime_ns", "switches", "avg_delay_ns", "max_delay_ns", "max_delay_start_ns"]
    return frame.select(columns).to_dicts()


def _beside_idle_s(result: Result) -> float | None:
    """How long tasks can have waited for a CPU while another idled, in s; None: the result has no timeline.

    In each interval of the timeline they did no longer than CPUs idle, nor than tasks are queued without running.
    Tasks that a limit threw out are not queued.
    """
    import polars as pl

    if result.summary["cpus"] == 1:
        return 0.0
    try:
        timeline = result["timeline"]
    except ContendError:
        return None
    running = pl.sum_horizontal(pl.col(f"{account}_ns").cast(pl.Int64) for account in RUNNING)
    queued = (pl.col("runnable_ns").cast(pl.Int64) - running).clip(lower_bound=0)
    both = timeline.group_by("from_ns").agg(queued.sum().alias("queued"), pl.col("idle_ns").sum().alias("idle"))
    return float(both.select(pl.min_horizontal("queued", "idle").sum()).item() or 0) / 1e9


def _waiting(result: Result) -> dict[str, Any]:
    """How long tasks were runnable without a CPU, and at most how much of it while a CPU idled (None: unknown)."""
    delay_s: float = result.summary["tasks"]["delay_s"]
    beside_idle_s = _beside_idle_s(result)
    return {
        "delay_s": delay_s,
        "beside_idle_s_max": None if beside_idle_s is None else min(delay_s, beside_idle_s),
        "throttled": guests.throttled(result.summary),
    }


def waiting_sentence(e: dict[str, Any]) -> str:
    """How long tasks waited for CPUs, and whether beside idle ones."""
    tasks, waiting = e["tasks"], e["waiting"]
    most = waiting["beside_idle_s_max"]
    if not waiting["delay_s"] or most is None:
        beside = ""
    elif most == 0:
        beside = ", none of it while a CPU idled"
    elif most < waiting["delay_s"]:
        beside = f", at most {seconds(most)} of it while a CPU idled"
    else:
        beside = ", beside idle CPUs or at other times"
    thrown_out = " (limits of groups threw some out)" if waiting["throttled"] else ""
    were, they = ("was", "it") if tasks["count"] == 1 else ("were", "they")
    return (
        f"{counted(tasks['count'], 'task')} {were} runnable without a CPU for {seconds(waiting['delay_s'])} in all"
        f"{thrown_out}{beside}; {they} moved {si(tasks['migrations'])} times between CPUs."
    )


def loss_sentence(e: dict[str, Any]) -> str:
    """The largest loss and what it belongs to."""
    loss = e["largest_loss"]
    if not loss:
        return "No time was lost to scheduling or waiting."
    return (
        f"The largest loss is {loss['account']}: {seconds(loss['seconds'])} of CPU time, {percent(loss['share'])} of "
        f"the machine and {percent(loss['share_of_busy'])} of what was not idle. It belongs to {loss['mechanism']}."
    )


def explain(result: Result) -> dict[str, Any]:
    """Everything that `contend explain` says of one result."""
    s = result.summary
    lost = losses(result)
    busy = sum(ns for account, ns in result.ledger().items() if account != "idle")
    largest = lost[0] if lost and lost[0]["ns"] > 0 else None
    return {
        "schema": SCHEMA,
        "ran": {
            "what": guests.what_ran(s),
            "under": under(s),
            **{
                key: s[key]
                for key in ("workload", "machine", "cpus", "policy", "algorithm", "set", "seed", "virtual_s")
            },
        },
        "outcome": s["outcome"],
        "outcome_meaning": meaning(s),
        "outcome_detail": s["outcome_detail"],
        "warnings": unread(s),
        "recordings": s["recordings"],
        "rescaled": s.get("rescaled", []),
        "recorded_locks": s["recorded_locks"],
        "ledger": ledger_rows(result),
        "largest_loss": largest and {**largest, "share_of_busy": largest["ns"] / (busy or 1)},
        "guests": guests.explain(s),
        "xen": report.explain(s),
        "lock_kinds": s["lock_kinds"],
        "locks": s["locks"][:LOCKS_SHOWN],
        "wakeups": {
            "from_waker": _placement(s["wakeups"]["from_waker"]),
            "from_previous": _placement(s["wakeups"]["from_previous"]),
            "idle_searches": s["wakeups"]["idle_searches"],
            "idle_searches_found": s["wakeups"]["idle_searches_found"],
            "probes": s["wakeups"]["probes"],
        },
        "wakeup_latency_us": s["wakeup_latency_us"],
        "metrics": s["metrics"],
        "tasks": s["tasks"],
        "waiting": None if report.is_xen(s) else _waiting(result),
        "groups": s.get("groups", []),
        "cpu_kinds": s.get("cpu_kinds", []),
        "longest_waits": _tasks(result),
    }
