"""What a result says of a Xen host: who got the pCPUs, who waited, where vCPUs ran, and what the scheduler did for it.

Pure: a summary in, objects and sentences out. A result of another host has nothing here (`None`).
"""

from __future__ import annotations

import re
from typing import Any

from contend.quantity import LESS, MORE, NEITHER, Quantity
from contend.units import duration_us, percent, seconds, si

LOCKS = {
    "schedule": "schedule locks (Credit1: one a pCPU; Credit2: one a runqueue)",
    "prv": "the cpupool's lock: accounting, active domains, runqueues' loads",
    "domain": "domains' locks: caps and budgets",
}
"""Locks of Xen's schedulers, by kind."""

MECHANISMS = {
    "user": "computing in vCPUs without a kernel",
    "cold_cache": "caches refilled after vCPUs moved (switches xen.c2_pick_soft, xen.c2_balance_soft, "
    "xen.credit2_migrate_resist_us, xen.vcpu_migration_delay_us)",
    "wakeup": "vcpu_wake: queueing a vCPU that woke, and tickling a pCPU for it "
    "(switches xen.c1_tickle_mask, xen.c2_tickle_soft, xen.c2_tickled_cpu, xen.c2_tickle_micro)",
    "switch": "schedule() and the context switch (switches xen.ratelimit_us, xen.tslice_ms, xen.c2_max_timer_10ms)",
    "balance": "moving vCPUs: stealing, load balancing, vcpu_migrate (switches xen.c2_balance_soft, xen.c1_2017)",
    "interrupt": "interrupts, softirqs and timers: tickles of other pCPUs, guests' timers",
    "rq_lock_wait": "waiting for schedule locks: wake-ups, passes of the scheduler and balancing of several pCPUs meet "
    "there (switches xen.credit2_runqueue, xen.credit2_max_cpus_runqueue)",
    "spin_lock_wait": "waiting for cpupools' and domains' locks: accounting, parameters",
    "on_cpu_wait": "waiting until a vCPU's old pCPU has saved its registers",
    "guest_spin": "guests' kernels spinning: at locks, whose holder or next owner may lack a pCPU "
    "(features guest.spinlock, xen.ple_gap, xen.ple_window)",
    "vm_exit": "leaving and entering guest mode, and serving exits (switches xen.ple_gap, xen.ple_window)",
}
"""What accounts of the ledger are on a Xen host, where they are not what they are elsewhere."""

_CREDIT = ("xen.c1_", "xen.tslice_ms", "xen.vcpu_migration_delay_us")
_CREDIT2 = ("xen.c2_", "xen.credit2_")
_OTHERS = {"credit": _CREDIT2, "credit2": _CREDIT, "round-robin": (*_CREDIT, *_CREDIT2, "xen.ratelimit_us")}
_SWITCHES = re.compile(r" \((switches|features) ([^)]*)\)")


def mechanism(account: str, scheduler: str) -> str | None:
    """What an account is on a host under this scheduler, with the switches that mean something there."""
    text = MECHANISMS.get(account)
    if text is None:
        return None
    others = _OTHERS.get(scheduler, ())

    def those_of_this(found: re.Match[str]) -> str:
        kept = [name for name in found[2].split(", ") if not name.startswith(others)]
        return f" ({found[1]} {', '.join(kept)})" if kept else ""

    return _SWITCHES.sub(those_of_this, text)


COUNTERS_SHOWN = 48


def is_xen(summary: dict[str, Any]) -> bool:
    """Was the host Xen's?"""
    return bool(summary.get("xen"))


def what_ran(summary: dict[str, Any]) -> str:
    """`2 domains of 4 vCPUs (hogs)`."""
    domains = summary["xen"]["domains"]
    sizes = sorted({d["vcpus"] for d in domains})
    size = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    kinds = ", ".join(dict.fromkeys(d["workload"] for d in domains))
    vcpus = "vCPU" if sizes == [1] else "vCPUs"
    return f"{len(domains)} domain{'s' if len(domains) > 1 else ''} of {size} {vcpus} ({kinds})"


def under(summary: dict[str, Any]) -> str:
    """The scheduler in words: `Xen's credit2 (base)`."""
    x = summary["xen"]
    return f"Xen's {x['scheduler']} ({x['preset']})"


def outside(x: dict[str, Any]) -> dict[str, Any]:
    """How much of the time on pCPUs was outside soft affinity, in all and by domain."""
    run = sum(d["run_s"] for d in x["domains"])
    lost = {d["name"]: d["run_s"] * (1 - d["soft_pct"] / 100) for d in x["domains"] if d["soft_pct"] is not None}
    total = sum(lost.values())
    return {"seconds": total, "share": total / run if run else 0.0,
            "domains": {name: s for name, s in lost.items() if s > 0}}  # fmt: skip


def passes(x: dict[str, Any]) -> dict[str, Any]:
    """Passes of the scheduler, and how many of them changed what runs."""
    runs, switched = x["perf"]["sched_run"], x["perf"]["sched_ctx"]
    return {"runs": runs, "switched": switched, "in_vain": runs - switched,
            "in_vain_share": (runs - switched) / runs if runs else 0.0}  # fmt: skip


def locks(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Each kind of the scheduler's locks."""
    rows = []
    for row in summary["lock_kinds"]:
        if row["kind"] in LOCKS:
            taken = row["acquisitions"]
            rows.append({**row, "contended_share": row["contended"] / taken if taken else 0.0,
                         "meaning": LOCKS[row["kind"]]})  # fmt: skip
    return rows


def explain(summary: dict[str, Any]) -> dict[str, Any] | None:
    """Everything that `contend explain` says of a Xen host."""
    if not is_xen(summary):
        return None
    x = summary["xen"]
    idle = summary["ledger_ns"]["idle"] / 1e9
    waited = max(x["domains"], key=lambda d: d["wait_max_us"])
    perf = x["perf"]
    said = {
        "scheduler": x["scheduler"],
        "preset": x["preset"],
        "patches": x["patches"],
        "pools": x["pools"],
        "timeline": x["timeline"],
        "not_reached": x.get("not_reached", []),
        "domains": x["domains"],
        "outside_soft_affinity": outside(x),
        "waits": {
            "wait_s": sum(d["wait_s"] for d in x["domains"]),
            "idle_s": idle,
            "wait_max_us": waited["wait_max_us"],
            "wait_max_domain": waited["name"],
        },
        "passes": passes(x),
        "tickles": {
            "idle": perf["tickled_idle_cpu"],
            "busy": perf["tickled_busy_cpu"],
            "nobody": perf["tickled_no_cpu"],
            "interrupts": perf["tickle_ipi"],
        },
        "locks": locks(summary),
        "trylocks": x["trylocks"],
        "trylocks_failed": x["trylocks_failed"],
        "perf": {name: n for name, n in perf.items() if n},
    }
    said["text"] = " ".join(sentences(said))
    return said


def sentences(said: dict[str, Any]) -> list[str]:
    """What stands out, most telling first."""
    w, out, p, t = said["waits"], said["outside_soft_affinity"], said["passes"], said["tickles"]
    run = sum(d["run_s"] for d in said["domains"])
    lines = [
        f"vCPUs ran for {seconds(run)} and waited for a pCPU for {seconds(w['wait_s'])}, "
        f"{duration_us(w['wait_max_us'])} at most (in {w['wait_max_domain']}), while pCPUs idled for "
        f"{seconds(w['idle_s'])}."
    ]
    if out["seconds"]:
        worst = sorted(out["domains"].items(), key=lambda d: -d[1])[:3]
        by = ", ".join(f"{name} for {seconds(s)}" for name, s in worst)
        lines.append(f"Of the time that they ran, {percent(out['share'])} was outside their soft affinity: {by}.")
    if t["idle"] or t["busy"] or t["nobody"]:
        lines.append(
            "For vCPUs that woke, or lost their pCPU while runnable (Credit2 looks again for these), an idle pCPU was "
            f"tickled {si(t['idle'])} times, a busy one {si(t['busy'])} times, none {si(t['nobody'])} times."
        )
    if p["runs"]:
        lines.append(
            f"{si(p['runs'])} passes of the scheduler left what ran in {percent(p['in_vain_share'])}: yields "
            "to nobody, tickles in vain, slices that ended with nobody waiting, rate limits."
        )
    contended = sorted((k for k in said["locks"] if k["wait_s"]), key=lambda k: -k["wait_s"])
    if contended:
        k = contended[0]
        lines.append(
            f"Longest waited for were {k['meaning']}: {percent(k['contended_share'])} of {si(k['acquisitions'])} "
            f"contended, {seconds(k['wait_s'])} in all."
        )
    if said["trylocks_failed"]:
        lines.append(
            f"{percent(said['trylocks_failed'] / said['trylocks'])} of {si(said['trylocks'])} try-locks of other "
            "queues failed."
        )
    return lines


def quantities(summary: dict[str, Any]) -> list[Quantity]:
    """What is compared of a Xen host; none of another."""
    if not is_xen(summary):
        return []
    x = summary["xen"]
    out: list[Quantity] = []

    def add(name: str, unit: str, value: float | None, better: int = NEITHER, *, summed: bool = False) -> None:
        out.append(Quantity("Xen", name, unit, value, better, grows=summed or unit == "count"))

    for d in x["domains"]:
        add(f"{d['name']}: of one pCPU", "%", d["cpu_pct"])
        add(f"{d['name']}: share of all domains' time", "%", d["share_pct"])
        add(f"{d['name']}: waited", "s", d["wait_s"], LESS, summed=True)
        add(f"{d['name']}: longest wait", "s", d["wait_max_us"] / 1e6, LESS)
        add(f"{d['name']}: within its soft affinity", "%", d["soft_pct"], MORE)
        add(f"{d['name']}: moves between pCPUs", "count", d["moves"])
    add("time outside soft affinity", "s", outside(x)["seconds"], LESS, summed=True)
    add("passes of the scheduler", "count", passes(x)["runs"])
    add("of these, in vain", "count", passes(x)["in_vain"])
    add("try-locks that failed", "count", x["trylocks_failed"])
    for counter, count in x["perf"].items():
        add(counter, "count", count)
    return out


def patches_words(patches: list[int]) -> str:
    """Numbers of patches as `xen.patches` takes them: `none`, `1-7,16`."""
    ranges: list[list[int]] = []
    for n in patches:
        if ranges and ranges[-1][1] == n - 1:
            ranges[-1][1] = n
        else:
            ranges.append([n, n])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges) or "none"


def collapsed(
    features: dict[str, list[str]], summary: dict[str, Any], baseline: dict[str, Any]
) -> dict[str, list[str]]:
    """Changed features with the patches that changed as one."""
    if not is_xen(summary) or not is_xen(baseline):
        return features
    from contend.run import list_xen

    patches = {f"xen.{s['name']}" for s in list_xen() if s["patch"]}
    if not patches & set(features):
        return features
    rest = {key: value for key, value in features.items() if key not in patches}
    return {"xen.patches": [patches_words(s["xen"]["patches"]) for s in (baseline, summary)], **rest}


def changed(summary: dict[str, Any], baseline: dict[str, Any]) -> dict[str, list[str]]:
    """How the domains of two Xen hosts differ in what they were given."""
    if not is_xen(summary) or not is_xen(baseline):
        return {}
    out: dict[str, list[str]] = {}
    new, old = ({d["name"]: d for d in s["xen"]["domains"]} for s in (summary, baseline))
    for name in [n for n in new if n in old]:
        for key in ("vcpus", "weight", "cap", "pool", "workload"):
            if new[name][key] != old[name][key]:
                out[f"{name}.{key}"] = [str(old[name][key]), str(new[name][key])]
    return out


def only(key: str) -> str | None:
    """The scheduler that alone reads a switch of a Xen host; None: all do, or it is none."""
    prefixes = {"xen.c1_": "credit", "xen.tslice_ms": "credit", "xen.c2_": "credit2", "xen.credit2_": "credit2"}
    return next((scheduler for prefix, scheduler in prefixes.items() if key.startswith(prefix)), None)
