"""Tables about virtual machines on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from contend.guests import SHARES
from contend.text import LOCK_COLUMNS, lock_row, table
from contend.units import duration_us, percent, seconds, si

MACHINES_SHOWN = 16


def explained(g: dict[str, Any], out: Console) -> None:
    """Where vCPUs' time went, exits, lock-holder preemption and directed yields."""
    _machines(g, out)
    _exits(g, out)
    _locks(g["locks"], out)
    _preemption(g["lock_preemption"], out)
    # Xen yields to nobody in particular, and does not poll.
    if g["directed_yield"] is not None:
        _yields(g["directed_yield"], out)
        _polls(g["kvm"], out)


def _machines(g: dict[str, Any], out: Console) -> None:
    machines = g["machines"]
    shown = [(m["name"], m) for m in machines[:MACHINES_SHOWN]]
    if len(machines) > 1:
        shown.append((f"all {len(machines)}", g["total"]))
    rows = [
        (
            name,
            f"{m['vcpus']:,}",
            "" if m["finished_s"] is None else seconds(m["finished_s"]),
            *(f"{m[key]:.2f} %" for key in SHARES),
            f"{m['preempted']:,}",
            duration_us(m["preempted_max_us"]),
        )
        for name, m in shown
    ]
    headings = ["guest", "vCPUs", "finished", "tasks", "kernel", "spin", "host", "stolen", "halted", "preempted", "max"]
    columns = [(h, "fold" if h == "guest" else "right") for h in headings]
    out.print(table("Guests: where the time of their vCPUs went", columns, rows))
    if len(machines) > MACHINES_SHOWN:
        out.print(f"{len(machines) - MACHINES_SHOWN} more guests are in the table vcpus.\n")


def _exits(g: dict[str, Any], out: Console) -> None:
    rows = [
        (e["reason"], f"{e['count']:,}", percent(e["share"]), si(e["per_vcpu_s"]), e["meaning"])
        for e in g["exits"]
        if e["count"]
    ]
    if not rows:
        out.print("No vCPU left guest mode.\n")
        return
    columns = [
        ("exit", "left"),
        ("count", "right"),
        ("share", "right"),
        ("a second and vCPU", "right"),
        ("why", "fold"),
    ]
    out.print(table("Exits", columns, rows))


def _locks(locks: list[dict[str, Any]], out: Console) -> None:
    if not locks:
        out.print("No lock of a guest's kernel was contended.\n")
        return
    rows = [lock_row({**lock, "name": f"{lock['name']} of {lock['guest']}"}) for lock in locks]
    out.print(table("Busiest locks in guests, by time waited", LOCK_COLUMNS, rows))


def _preemption(p: dict[str, Any], out: Console) -> None:
    if not p["holder"] and not p["waiter"]:
        out.print("No vCPU lost its CPU while it held a lock of its kernel or waited for one.\n")
        return

    def row(name: str, kind: str, x: dict[str, Any]) -> tuple[str, ...]:
        return (
            name,
            kind,
            f"{x['holder']:,}",
            seconds(x["holder_s"]),
            duration_us(x["holder_max_us"]),
            f"{x['waiter']:,}",
            seconds(x["waiter_s"]),
        )

    rows = [row("all", k["kind"], k) for k in p["kinds"]]
    rows += [row(f"{lock['name']} of {lock['guest']}", lock["kind"], lock) for lock in p["locks"]]
    columns = [
        ("lock", "fold"),
        ("type", "left"),
        ("holder lost CPU", "right"),
        ("for", "right"),
        ("at most", "right"),
        ("waiter lost CPU", "right"),
        ("for", "right"),
    ]
    out.print(table("Lock-holder and lock-waiter preemption in guests", columns, rows))


def _yields(y: dict[str, Any], out: Console) -> None:
    if not y["handlers"] and not y["attempted"]:
        out.print("No pause loop of a guest lasted for ple_window: there were no directed yields.\n")
        return
    attempted = y["attempted"] or 1
    skipped = y["skipped"]
    rows = [
        ("pause-loop handlers", f"{y['handlers']:,}", ""),
        ("candidates looked at", f"{y['candidates']:,}", ""),
        *((f"  skipped: {why.replace('_', ' ')}", f"{n:,}", "") for why, n in skipped.items() if n),
        ("directed yields attempted", f"{y['attempted']:,}", ""),
        ("  succeeded", f"{y['succeeded']:,}", percent(y["succeeded"] / attempted)),
        *(
            (f"  wasted: {why.replace('_', ' ')}", f"{n:,}", percent(n / attempted))
            for why, n in y["failed"].items()
            if n
        ),
        ("  wasted without taking a lock", f"{y['failed_unlocked']:,}", percent(y["failed_unlocked"] / attempted)),
    ]
    if y["by_hypercall"]["attempted"]:
        rows.append(("attempted by hypercall", f"{y['by_hypercall']['attempted']:,}", ""))
        rows.append(("  succeeded", f"{y['by_hypercall']['succeeded']:,}", ""))
    out.print(table("Directed yields", [("", "left"), ("count", "right"), ("of attempts", "right")], rows))


def _polls(kvm: dict[str, int], out: Console) -> None:
    if kvm["halt_attempted_poll"]:
        out.print(
            f"Halts: {si(kvm['halt_attempted_poll'])} polled, {si(kvm['halt_successful_poll'])} of them were woken "
            f"meanwhile; {seconds(kvm['halt_poll_fail_ns'] / 1e9)} were polled in vain.\n"
        )
