"""What a result says of its virtual machines, and which part of it limits the run.

Pure: a summary in, objects and sentences out. A result without guests has nothing here (`None`).
"""

from __future__ import annotations

from typing import Any

from contend.quantity import LESS, NEITHER, Quantity
from contend.units import duration_us, percent, seconds, si
from contend.xen import report

LOCKS_SHOWN = 8

SHARES = {
    "guest_user_pct": "guest's tasks",
    "guest_kernel_pct": "guest's kernel",
    "spin_pct": "spinning in it",
    "host_pct": "host for the vCPU",
    "steal_pct": "stolen",
    "halted_pct": "halted",
}
"""Where a vCPU's time goes; together 100 %."""

EXITS = {
    "EXTERNAL_INTERRUPT": "an interrupt of the physical CPU",
    "HLT": "the guest halted",
    "PAUSE_INSTRUCTION": "a pause loop lasted for ple_window",
    "APIC_WRITE_ICR": "the guest sent an interrupt to a vCPU",
    "MSR_WRITE_TIMER": "the guest armed its timer",
    "PREEMPTION_TIMER": "the guest's timer came due while it ran",
    "VMCALL": "a hypercall: a pv kick or a pv yield",
}

FAILED = {
    "running": "yield_to_failed_target_running",
    "alone": "yield_to_failed_alone",
    "busy": "yield_to_failed_busy",
    "not_queued": "yield_to_failed_not_queued",
}
"""Why directed yields fail, by KVM's counters."""

MECHANISMS = {
    "guest_user": "guests' tasks: their own computing",
    "guest_kernel": "guests' kernels: system calls, scheduling, interrupts",
    "guest_spin": "guests' kernels spinning: at locks, whose holder or next owner may lack a CPU "
    "(features guest.spinlock, kvm.directed_yield, kvm.ple_gap, kvm.ple_window)",
    "vm_exit": "leaving and entering guest mode, and serving exits "
    "(features kvm.ple_gap, kvm.ple_window, kvm.pv_sched_yield)",
    "ple": "the pause-loop handler kvm_vcpu_on_spin, and yield_to but for its run-queue locks "
    "(features kvm.directed_yield, kvm.ple_gap, kvm.ple_window)",
    "halt_poll": "polling for a wake-up before a halted vCPU blocks (features kvm.halt_poll_ns, kvm.halt_poll_ns_grow)",
}
"""Accounts of the host's ledger that only guests fill."""

RQ_LOCK_WAIT = (
    "waiting for run-queue locks: a directed yield takes two of them; wake-ups, switches and balancing meet there too "
    "(features kvm.directed_yield, wake_path, spinlock)"
)
"""What `rq_lock_wait` is on a host with guests."""

WORK = ("guest_user", "guest_kernel")
"""Accounts of guest mode that are work done for the guests' tasks."""

HOST_WORK = ("user", "syscall")
"""The same of the host's own tasks; pause loops and halts of vCPUs are not among them."""


def long_waits(summary: dict[str, Any]) -> list[str]:
    """Guests of which tasks slept for most of a run that went on to its horizon: stuck, or idle."""
    if summary["outcome"] != "horizon":
        return []
    return [
        f"{g['name']}: asleep for more than half of the run, with no timer to wake them: {'; '.join(g['long_waits'])}."
        for g in summary["guests"]
        if g["long_waits"]
    ]


def has_guests(summary: dict[str, Any]) -> bool:
    """Did virtual machines run?"""
    return bool(summary.get("guests"))


def what_ran(summary: dict[str, Any]) -> str:
    """The workload in words: `hackbench`, `10 guests of 16 vCPUs (dbench)`, `2 domains of 4 vCPUs (hogs)`."""
    if report.is_xen(summary):
        return report.what_ran(summary)
    guests = summary.get("guests") or []
    words = [] if guests and summary["workload"] == "guests" else [str(summary["workload"])]
    if guests:
        sizes = sorted({g["vcpus"] for g in guests})
        kinds = ", ".join(dict.fromkeys(g["workload"] for g in guests))
        size = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        vcpus = "vCPU" if sizes == [1] else "vCPUs"
        words.append(f"{len(guests)} guest{'s' if len(guests) > 1 else ''} of {size} {vcpus} ({kinds})")
    return " and ".join(words)


def directed_yield(summary: dict[str, Any]) -> dict[str, Any]:
    """What became of directed yields, and of the search for targets."""
    kvm = summary["kvm"]
    attempted = kvm["yield_to_attempted"]
    return {
        "handlers": kvm["kvm_vcpu_on_spin"],
        "candidates": kvm["on_spin_candidates"],
        "skipped": {
            "halted": kvm["on_spin_skipped_halted"],
            "in_guest": kvm["on_spin_skipped_in_guest"],
            "filtered": kvm["on_spin_skipped_filtered"],
        },
        "attempted": attempted,
        "succeeded": kvm["yield_to_succeeded"],
        "failed": {why: kvm[counter] for why, counter in FAILED.items()},
        "failed_unlocked": kvm["yield_to_failed_unlocked"],
        "success_share": kvm["yield_to_succeeded"] / attempted if attempted else None,
        "by_hypercall": {
            "attempted": kvm["directed_yield_attempted"],
            "succeeded": kvm["directed_yield_successful"],
        },
    }


def lock_preemption(summary: dict[str, Any]) -> dict[str, Any]:
    """How often the holders and waiters of guests' locks lost their CPU, for how long, and at which locks."""
    total = summary["guests_total"]
    lost = [
        {"guest": g["name"], "name": lock["name"], "kind": lock["kind"], **lock["preemption"]}
        for g in summary["guests"]
        for lock in g["locks"]
        if lock["preemption"]["holder"] or lock["preemption"]["waiter"]
    ]
    lost.sort(key=lambda lock: (-lock["holder_s"], -lock["waiter_s"], lock["guest"], lock["name"]))
    return {
        **total["lock_preemption"],
        "kinds": total["lock_preemption_kinds"],
        "locks": lost[:LOCKS_SHOWN],
    }


def locks(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """The locks of the guests' kernels that were waited for longest."""
    used = [{"guest": g["name"], **lock} for g in summary["guests"] for lock in g["locks"] if lock["contended"]]
    used.sort(key=lambda lock: -lock["wait_s"])
    return used[:LOCKS_SHOWN]


def exits(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Exits by reason, most frequent first."""
    total = summary["guests_total"]
    vcpu_s = total["vcpus"] * summary["virtual_s"]
    rows = [
        {
            "reason": reason,
            "count": n,
            "share": n / (total["exits_count"] or 1),
            "per_vcpu_s": n / vcpu_s if vcpu_s else 0.0,
            "meaning": EXITS.get(reason, ""),
        }
        for reason, n in total["exits"].items()
    ]
    return sorted(rows, key=lambda r: -r["count"])


def explain(summary: dict[str, Any]) -> dict[str, Any] | None:
    """Everything that `contend explain` says of a run's guests."""
    if not has_guests(summary):
        return None
    total = summary["guests_total"]
    keys = ["vcpus", "finished_s", *SHARES, "exits_count", "preempted", "preempted_max_us"]
    return {
        "limit": limit(summary),
        "total": {key: total[key] for key in keys},
        "machines": [{key: g[key] for key in ["name", "workload", *keys]} for g in summary["guests"]],
        "exits": exits(summary),
        "locks": locks(summary),
        "lock_preemption": lock_preemption(summary),
        "directed_yield": None if report.is_xen(summary) else directed_yield(summary),
        "kvm": summary["kvm"],
    }


def limit(summary: dict[str, Any]) -> dict[str, Any]:
    """What takes most of the host's CPU time besides the guests' work, and why."""
    ledger: dict[str, int] = summary["ledger_ns"]
    all_ns = sum(ledger.values()) or 1
    others = sorted((a for a in ledger if a not in WORK and a not in HOST_WORK), key=lambda a: -ledger[a])
    account = others[0]
    share = {a: ns / all_ns for a, ns in ledger.items()}
    then = [f"{a} ({percent(share[a])})" for a in others[1:3] if share[a] >= 0.01]
    own = sum(share[a] for a in HOST_WORK)
    of_whom = "domains without a kernel" if report.is_xen(summary) else "the host's own tasks"
    text = (
        f"Guests worked for {percent(sum(share[a] for a in WORK))} of the CPU time: {percent(share['guest_user'])} in "
        f"their tasks, {percent(share['guest_kernel'])} in their kernels"
        f"{f'; {of_whom} for {percent(own)}' if own >= 0.0001 else ''}. Most of the rest went to {account} "
        f"({percent(share[account])}){', then to ' + ' and '.join(then) if then else ''}. {_why(summary, account)}"
    )
    return {"account": account, "share": share[account], "guest_user_share": share["guest_user"],
            "guest_kernel_share": share["guest_kernel"], "text": text}  # fmt: skip


def _why(summary: dict[str, Any], account: str) -> str:
    total, kvm = summary["guests_total"], summary["kvm"]
    if report.is_xen(summary) and account in report.MECHANISMS and account != "guest_spin":
        return f"That is {report.MECHANISMS[account].split(' (')[0]}."
    most = exits(summary)[0]
    why = {
        "idle": f"vCPUs were halted for {total['halted_pct']:.2f} % of their time and runnable without a CPU for "
        f"{total['steal_pct']:.2f} %: {_beside(summary)}",
        "rq_lock_wait": f"Run-queue locks are what directed yields contend for. {yields_sentence(summary)}",
        "ple": f"Pause loops end in the handler, which looks for a vCPU to yield to. {yields_sentence(summary)}",
        "guest_spin": f"Guests' kernels wait for locks. {preemption_sentence(summary)}",
        "vm_exit": f"Each exit costs its way out and back: {si(total['exits_count'])} of them, most {most['reason']} "
        f"({percent(most['share'])}: {most['meaning']}; {si(most['per_vcpu_s'])} a second and vCPU).",
        "halt_poll": f"vCPUs that halt poll first: {si(kvm['halt_attempted_poll'])} halts polled, "
        f"{si(kvm['halt_successful_poll'])} were woken meanwhile, "
        f"{seconds(kvm['halt_poll_fail_ns'] / 1e9)} were polled in vain.",
        "switch": f"Threads take turns on the CPUs. {yields_sentence(summary)}",
    }
    return why.get(account, "That is the host's own; its table says more.")


def throttled(summary: dict[str, Any]) -> bool:
    """Whether limits of groups (`cpu.max`) threw anybody out."""
    return any(g["bandwidth"] and g["bandwidth"]["nr_throttled"] for g in summary.get("groups", []))


def _beside(summary: dict[str, Any]) -> str:
    """Why CPUs idled, as far as totals tell: whether it was beside vCPUs that wanted one, they do not."""
    if summary["guests_total"]["steal_pct"] < 5:
        return "the guests had too little to run, or waited for one another."
    domains = summary["xen"]["domains"] if report.is_xen(summary) else []
    if sum(d["offline_s"] for d in domains) > sum(d["wait_s"] for d in domains):
        return "most of that they were parked, by their caps."
    if throttled(summary):
        return "limits of groups (`cpu.max`) threw some out, and CPUs idled, whether or not at the same time."
    if summary["cpus"] == 1:
        return "at different times, as there is one CPU."
    return "CPUs idled while vCPUs wanted one, or at other times: the table `timeline` has both."


def yields_sentence(summary: dict[str, Any]) -> str:
    """What directed yields brought."""
    y = directed_yield(summary)
    if not y["attempted"]:
        return "No directed yield was attempted."
    failed = [
        f"{percent(y['failed'][why] / y['attempted'])} {words}"
        for why, words in (
            ("running", "because the target ran or slept"),
            ("alone", "because neither CPU had a second task"),
            ("busy", "because a run queue was locked or in a directed yield"),
            ("not_queued", "because the target was not queued"),
        )
        if y["failed"][why]
    ]
    unlocked = f", {percent(y['failed_unlocked'] / y['attempted'])} without a lock" if y["failed_unlocked"] else ""
    return (
        f"{si(y['attempted'])} directed yields were attempted by {si(y['handlers'])} pause-loop handlers; "
        f"{si(y['succeeded'])} succeeded ({percent(y['succeeded'] / y['attempted'])})"
        f"{'; failed: ' + ', '.join(failed) if failed else ''}{unlocked}."
    )


def preemption_sentence(summary: dict[str, Any]) -> str:
    """What lock-holder and lock-waiter preemption did."""
    p = lock_preemption(summary)
    if not p["holder"] and not p["waiter"]:
        return "No vCPU lost its CPU while it held a lock or waited for one: this is contention, not preemption."
    holders = "No lock holder lost its CPU"
    if p["holder"]:
        holders = (
            f"Lock holders lost their CPU {si(p['holder'])} times, for "
            f"{duration_us(p['holder_s'] * 1e6 / p['holder'])} on average and {duration_us(p['holder_max_us'])} at most"
        )
        if p["locks"] and p["locks"][0]["holder"]:
            worst = p["locks"][0]
            holders += f", longest in all at {worst['name']} of {worst['guest']} ({seconds(worst['holder_s'])})"
    waiters = ""
    if p["waiter"]:
        # A directed yield gives the CPU away: to the waiter's guest that is the same.
        lost = "lost theirs or yielded it" if (summary.get("kvm") or {}).get("yield_to_succeeded") else "lost theirs"
        waiters = (
            f"; waiters {lost} {si(p['waiter'])} times, for {duration_us(p['waiter_s'] * 1e6 / p['waiter'])} on average"
        )
    return f"{holders}{waiters}."


def _preset_or(guests: list[dict[str, Any]], key: str) -> str:
    values = dict.fromkeys(str(g["set"].get(key, "the preset's")) for g in guests)
    return " / ".join(values)


def changed(summary: dict[str, Any], baseline: dict[str, Any]) -> dict[str, list[str]]:
    """How the guests' kernels differ."""
    new, old = summary.get("guests") or [], baseline.get("guests") or []
    if not new or not old:
        return {}
    out: dict[str, list[str]] = {}
    for key in ("policy", "topology", "pin", "workload"):
        values = [" / ".join(dict.fromkeys(str(g[key]) for g in guests)) for guests in (old, new)]
        if values[0] != values[1]:
            out[f"guest.{key}"] = values
    for key in sorted({key for g in [*new, *old] for key in g["set"]}):
        values = [_preset_or(old, key), _preset_or(new, key)]
        if values[0] != values[1]:
            out[f"guest.{key}"] = values
    return out


def quantities(summary: dict[str, Any]) -> list[Quantity]:
    """What is compared of the guests; none without."""
    if not has_guests(summary):
        return []
    total = summary["guests_total"]
    out: list[Quantity] = []

    def add(name: str, unit: str, value: float | None, better: int = NEITHER, *, summed: bool = False) -> None:
        out.append(Quantity("guests", name, unit, value, better, grows=summed or unit == "count"))

    add("last guest finished", "s", total["finished_s"], LESS)
    for key, words in SHARES.items():
        add(f"vCPU time: {words}", "%", total[key], LESS if key in ("spin_pct", "host_pct", "steal_pct") else NEITHER)
    for reason, count in total["exits"].items():
        add(f"exits: {reason}", "count", count)
    if not report.is_xen(summary):
        y = directed_yield(summary)
        add("pause-loop handlers", "count", y["handlers"])
        add("directed yields attempted", "count", y["attempted"])
        add("directed yields succeeded", "count", y["succeeded"])
        for why in FAILED:
            add(f"directed yields failed: {why.replace('_', ' ')}", "count", y["failed"][why])
        add("of these, without a lock", "count", y["failed_unlocked"])
    p = total["lock_preemption"]
    add("lock holders that lost their CPU", "count", p["holder"], LESS)
    add("time that they lost", "s", p["holder_s"], LESS, summed=True)
    add("longest such time", "s", p["holder_max_us"] / 1e6, LESS)
    add("lock waiters that lost their CPU", "count", p["waiter"], LESS)
    return out
