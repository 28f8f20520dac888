"""The benchmark's tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from contend import text
from contend.bench.locks import Row, count
from contend.units import seconds as seconds_words


def table(rows: Sequence[Row], said: dict[str, Any]) -> None:
    """Print one table: a line for each number of threads and lock."""
    out = text.console()
    out.print(escape(sentence(rows, said)), soft_wrap=True)
    bare = said["world"] == "bare"
    columns = [("CPUs" if bare else "threads", "right"), ("lock", "left"), ("M/s", "right")]
    spread = said["repeat"] > 1 and not bare
    if spread:
        columns += [("spread", "right")]
    columns += [(name, "right") for name in ("Jain", "max/min")]
    if bare:
        columns += [(name, "right") for name in ("far", "hand-over", "moves", "all once", "wait p50")]
    else:
        columns += [(name, "right") for name in ("wait p50", "p99")]
    columns += [(name, "right") for name in (("longest",) if bare else ("p99.9", "p99.99", "longest", "CPU"))]
    lines = []
    last = None
    for row in sorted(rows, key=count):
        n = count(row)
        line = [f"{n:,}" if n != last else "", row["lock"], f"{row['throughput'] / 1e6:.3f}"]
        last = n
        if spread:
            line += [f"{50 * (row['throughput_hi'] - row['throughput_lo']) / (row['throughput'] or 1):.1f} %"]
        line += ["-" if row["jain"] is None else f"{row['jain']:.3f}", most_by_least(row)]
        if bare:
            line += ["" if row["far_share"] is None else f"{row['far_share']:.2f}"]
            line += [ns(row["handover_p50_ns"]), f"{row['transfers']:.1f}", ns(row["all_once_ns"]), ns(row["p50_ns"])]
        else:
            line += [ns(row["p50_ns"]), ns(row["p99_ns"])]
            line += [ns(row["p999_ns"]), ns(row["p9999_ns"])]
        line += [ns(row["wait_max_ns"])]
        if not bare:
            line += ["" if row["cpu_share"] is None else f"{100 * row['cpu_share']:.0f} %"]
        lines.append(line)
    out.print(text.table("", columns, lines))


def sentence(rows: Sequence[Row], said: dict[str, Any]) -> str:
    """What was run."""
    where = {
        "native": "this machine's threads",
        "simulated": f"threads of {said['machine']} (simulated)",
        "bare": f"bare CPUs of {said['machine']} (simulated)",
    }[said["world"]]
    lo, hi = said["think_ns"]
    hogs = f", {said['hogs']} hogs beside" if said["hogs"] else ""
    times = f"; medians of {said['repeat']} repetitions" if said["repeat"] > 1 else ""
    seconds = rows[0]["seconds"] if rows else 0
    return (
        f"One lock on {where}: {said['critical_ns']:,} ns with it, {lo:,} to {hi:,} ns without{hogs}, "
        f"{seconds_words(seconds)} each{times}."
    )


def most_by_least(row: Row) -> str:
    """Acquisitions of the thread that had most by those of the one that had fewest."""
    if row["max_min"] is not None:
        return f"{row['max_min']:,.2f}"
    return "inf" if row["acquisitions"] else "-"


def ns(value: float | None) -> str:
    """Nanoseconds, readable in a narrow column; `-` where there are none."""
    if value is None:
        return "-"
    if value < 10_000:
        return f"{value:,.0f} ns"
    return f"{value / 1e3:,.0f} us" if value < 1e7 else f"{value / 1e6:,.0f} ms"
