"""Sections about virtual machines and domains."""

from __future__ import annotations

from typing import Any

from contend import guests
from contend.report.page import Cell, Figure, paragraph, table
from contend.report.style import ACCOUNTS, IDLE
from contend.result import Result
from contend.units import duration_us, percent, seconds, si
from contend.xen import report as xen

BARS_MAX = 64
LOCKS_SHOWN = 100
COLOURS = {
    "guest_user_pct": ACCOUNTS["user"],
    "guest_kernel_pct": ACCOUNTS["syscall"],
    "spin_pct": ACCOUNTS["rq_lock_wait"],
    "host_pct": ACCOUNTS["interrupt"],
    "steal_pct": ACCOUNTS["cold_cache"],
}


def machines(result: Result) -> list[str | Figure]:
    """Where the time of vCPUs went, and exits."""
    s = result.summary
    shown = s["guests"][:BARS_MAX]
    names = [g["name"] for g in shown]
    data = [
        {
            "type": "bar",
            "name": words,
            "x": names,
            "y": [round(g[key], 3) for g in shown],
            "marker": {"color": COLOURS.get(key, IDLE[0])},
            "meta": {"themed": [COLOURS[key]] * 2 if key in COLOURS else list(IDLE)},
            "hovertemplate": f"{words} %{{y:.2f}} %<br>%{{x}}<extra></extra>",
        }
        for key, words in guests.SHARES.items()
    ]
    rows: list[list[Cell]] = [
        [
            g["name"],
            g["workload"],
            (f"{g['vcpus']:,}", g["vcpus"]),
            (
                "" if g["finished_s"] is None else seconds(g["finished_s"]),
                -1.0 if g["finished_s"] is None else g["finished_s"],
            ),
            *((f"{g[k]:.2f}", g[k]) for k in guests.SHARES),
            (f"{g['preempted']:,}", g["preempted"]),
            (duration_us(g["preempted_max_us"]), g["preempted_max_us"]),
            (f"{g['exits_count']:,}", g["exits_count"]),
        ]
        for g in s["guests"]
    ]
    columns = [
        ("guest", ""),
        ("workload", ""),
        ("vCPUs", "n"),
        ("finished", "n"),
        *((f"{w} %", "n") for w in guests.SHARES.values()),
        ("preempted", "n"),
        ("longest", "n"),
        ("exits", "n"),
    ]
    more = f" The first {BARS_MAX} of {len(s['guests'])}." if len(s["guests"]) > BARS_MAX else ""
    figure = Figure(
        "Where the time of vCPUs went",
        f"Shares of the time of each guest's vCPUs; stolen is runnable without a CPU.{more}",
        data,
        {
            "barmode": "stack",
            "xaxis": {"type": "category"},
            "yaxis": {"title": {"text": "% of vCPU time"}, "range": [0, 100], "fixedrange": True},
        },
        table(columns, rows, sortable=True),
        height=320,
    )
    exits = [
        [
            e["reason"],
            (f"{e['count']:,}", e["count"]),
            (percent(e["share"]), e["share"]),
            (si(e["per_vcpu_s"]), e["per_vcpu_s"]),
            e["meaning"],
        ]
        for e in guests.exits(s)
        if e["count"]
    ]
    heads = [("exit", ""), ("count", "n"), ("share", "n"), ("a second and vCPU", "n"), ("why", "fold")]
    words = "" if xen.is_xen(s) else paragraph(guests.yields_sentence(s))
    return [figure, table(heads, exits, sortable=True, caption="Exits") if exits else "", words]


def preemption(result: Result) -> list[str]:
    """What the loss of CPUs did to holders and waiters of the guests' locks."""
    import polars as pl

    words = paragraph(guests.preemption_sentence(result.summary))
    lost = result["guest_locks"].filter((pl.col("holder_preempted") > 0) | (pl.col("waiter_preempted") > 0))
    lost = lost.sort(
        ["holder_preempted_ns", "waiter_preempted_ns", "guest", "name"], descending=[True, True, False, False]
    )
    contended = (
        result["guest_locks"]
        .filter(pl.col("contended") > 0)
        .sort(["wait_ns", "guest", "name"], descending=[True, False, False])
    )

    def time(ns: int) -> Cell:
        return (duration_us(ns / 1e3), ns)

    rows = [
        [
            r["name"],
            r["guest"],
            r["kind"],
            (f"{r['holder_preempted']:,}", r["holder_preempted"]),
            time(r["holder_preempted_ns"]),
            time(r["holder_preempted_max_ns"]),
            (f"{r['waiter_preempted']:,}", r["waiter_preempted"]),
            time(r["waiter_preempted_ns"]),
        ]
        for r in lost.head(LOCKS_SHOWN).iter_rows(named=True)
    ]
    columns = [
        ("lock", ""),
        ("guest", ""),
        ("type", ""),
        ("holder lost CPU", "n"),
        ("for", "n"),
        ("at most", "n"),
        ("waiter lost CPU", "n"),
        ("for", "n"),
    ]
    parts = [words]
    if rows:
        parts.append(
            table(columns, rows, sortable=True, caption="Locks whose holders or waiters lost their CPU", tall=True)
        )
    from contend.report.run_page import LOCK_COLUMNS, lock_row

    inside = [
        [*lock_row({**r, "name": f"{r['name']} of {r['guest']}"})]
        for r in contended.head(LOCKS_SHOWN).iter_rows(named=True)
    ]
    if inside:
        parts.append(table(LOCK_COLUMNS, inside, sortable=True, caption="Contended locks in guests", tall=True))
    return parts


def domains(result: Result) -> list[str]:
    """Who got the pCPUs of a Xen host, and who waited."""
    x: dict[str, Any] = result.summary["xen"]
    rows = [
        [
            (str(d["id"]), d["id"]),
            d["name"],
            d["workload"],
            d["pool"],
            (f"{d['vcpus']:,}", d["vcpus"]),
            (str(d["weight"]), d["weight"]),
            ("" if not d["cap"] else str(d["cap"]), d["cap"] or 0),
            (f"{d['cpu_pct']:.2f}", d["cpu_pct"]),
            (f"{d['share_pct']:.2f}", d["share_pct"]),
            *((seconds(d[k]), d[k]) for k in ("run_s", "wait_s", "blocked_s")),
            (duration_us(d["wait_max_us"]), d["wait_max_us"]),
            ("" if d["soft_pct"] is None else f"{d['soft_pct']:.2f}", -1.0 if d["soft_pct"] is None else d["soft_pct"]),
            (f"{d['preempted']:,}", d["preempted"]),
            (f"{d['moves']:,}", d["moves"]),
        ]
        for d in x["domains"]
    ]
    columns = [
        ("id", "n"),
        ("domain", ""),
        ("workload", ""),
        ("pool", ""),
        ("vCPUs", "n"),
        ("weight", "n"),
        ("cap", "n"),
        ("% of a pCPU", "n"),
        ("share %", "n"),
        ("ran", "n"),
        ("waited", "n"),
        ("blocked", "n"),
        ("longest wait", "n"),
        ("in soft affinity %", "n"),
        ("preempted", "n"),
        ("moves", "n"),
    ]
    return [table(columns, rows, sortable=True, caption="Domains")]
