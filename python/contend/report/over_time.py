"""Figures of the table `timeline`: the ledger over time, by CPU, and what each CPU did when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contend.report.page import Figure, table
from contend.report.style import ACCOUNTS, IDLE, MAP, OTHER, rounded, unit_of_time
from contend.units import duration_us

if TYPE_CHECKING:
    import polars as pl

    from contend.result import Result

BARS_MAX = 128
"""Bars over time; intervals are merged into them."""
COLUMNS_MAX = 16
"""Columns of the tables behind the figures over time."""
ACCOUNTS_MAX = 9
SHARE_MIN = 5e-4
"""Accounts below this share of the machine's time are part of `other`."""


def shown_accounts(*ledgers: dict[str, int]) -> list[str]:
    """The accounts that a figure of these ledgers names, in the order of the ledger; `idle` and the rest are others."""
    share: dict[str, float] = {}
    for ledger in ledgers:
        total = sum(ledger.values()) or 1
        for account, ns in ledger.items():
            share[account] = max(share.get(account, 0.0), ns / total)
    busy = sorted((a for a in share if a in ACCOUNTS and share[a] >= SHARE_MIN), key=lambda a: -share[a])
    return [a for a in share if a in busy[:ACCOUNTS_MAX]]


def parts_of(frame: pl.DataFrame, accounts: list[str]) -> dict[str, pl.Series]:
    """Shares of time in per cent, account by account: the shown ones, the others together, idle."""
    every = [c for c in frame.columns if c.endswith("_ns") and c not in ("from_ns", "to_ns", "runnable_ns")]
    total = frame.select(sum_of(every)).to_series()
    total = total.set(total == 0, 1)

    def share(columns: list[str]) -> pl.Series:
        return 100.0 * frame.select(sum_of(columns)).to_series() / total

    named = [f"{a}_ns" for a in accounts]
    rest = [c for c in every if c not in named and c != "idle_ns"]
    return {**{a: share([f"{a}_ns"]) for a in accounts}, "other": share(rest), "idle": share(["idle_ns"])}


def sum_of(columns: list[str]) -> pl.Expr:
    """The sum of columns, row by row."""
    import polars as pl

    return pl.sum_horizontal(pl.col(c) for c in columns).cast(pl.UInt64) if columns else pl.lit(0, pl.UInt64)


def _stack(parts: dict[str, pl.Series], place: dict[str, Any], hover: str) -> list[dict[str, Any]]:
    traces = []
    along = "y" if place.get("orientation") == "h" else "x"
    for account, share in parts.items():
        colours = IDLE if account == "idle" else OTHER if account == "other" else (ACCOUNTS[account],) * 2
        if account == "other" and not share.sum():
            continue
        values = rounded(share.to_list(), 4)
        traces.append(
            {
                "type": "bar",
                "name": account,
                **place,
                ("x" if along == "y" else "y"): values,
                "marker": {"color": colours[0], "line": {"width": 0}},
                "meta": {"themed": list(colours)},
                "hovertemplate": f"{account} %{{{'x' if along == 'y' else 'y'}:.2f}} %<br>{hover}<extra></extra>",
            }
        )
    return traces


def merged(timeline: pl.DataFrame, most: int) -> pl.DataFrame:
    """All CPUs together, in at most `most` intervals: neighbours are added."""
    import polars as pl

    sums = [c for c in timeline.columns if c not in ("cpu", "from_ns", "to_ns")]
    starts = timeline["from_ns"].unique().sort()
    factor = -(-len(starts) // most)
    first, last = starts.to_list()[:2], timeline["to_ns"].to_list()[-1]
    width = (first[1] - first[0]) * factor if len(first) > 1 else max(last, 1)
    by = timeline.group_by((pl.col("from_ns") // width).alias("at"))
    frame = by.agg(pl.col("from_ns").min(), pl.col("to_ns").max(), *(pl.col(c).sum() for c in sums))
    return frame.sort("at").drop("at")


def ledger_over_time(result: Result, accounts: list[str], title: str = "The ledger over time") -> Figure:
    """Stacked bars: what the CPUs together did in each interval."""
    frame = merged(result["timeline"], BARS_MAX)
    unit, length = unit_of_time(result.summary["virtual_ns"])
    from_, to = ([v / length for v in frame[c].to_list()] for c in ("from_ns", "to_ns"))
    place = {"x": rounded(from_, 7), "width": rounded([b - a for a, b in zip(from_, to, strict=True)], 7), "offset": 0}
    parts = parts_of(frame, accounts)
    coarse = merged(result["timeline"], COLUMNS_MAX)
    numbers = parts_of(coarse, accounts)
    rows = [
        (f"{a / length:.4g} to {b / length:.4g}", *(f"{numbers[k][i]:.2f}" for k in numbers))
        for i, (a, b) in enumerate(coarse.select("from_ns", "to_ns").iter_rows())
    ]
    columns = [(unit, ""), *((f"{k} %", "n") for k in numbers)]
    width = frame["to_ns"][0] - frame["from_ns"][0]
    return Figure(
        title,
        f"Shares of the time of all {result.summary['cpus']} CPUs; a bar is {duration_us(width / 1e3)} of "
        "virtual time.",
        _stack(parts, place, f"%{{x:.5g}} {unit}"),
        {
            "barmode": "stack",
            "bargap": 0,
            "xaxis": {"title": {"text": f"virtual time, {unit}"}},
            "yaxis": {"title": {"text": "% of CPU time"}, "range": [0, 100], "fixedrange": True},
        },
        table(columns, rows),
        height=380,
    )


def ledger_by_cpu(result: Result, accounts: list[str]) -> Figure:
    """Stacked bars: what each CPU did over the whole run."""
    cpus = result["cpus"].sort(["node", "llc", "core", "cpu"])
    ledger = cpus.select("cpu", *(f"{a}_ns" for a in result.ledger()))
    parts = parts_of(ledger.drop("cpu"), accounts)
    names = [str(c) for c in ledger["cpu"]]
    rows = [
        ((names[i], float(names[i])), *((f"{parts[k][i]:.2f}", float(parts[k][i])) for k in parts))
        for i in range(len(names))
    ]
    columns = [("CPU", "n"), *((f"{k} %", "n") for k in parts)]
    return Figure(
        "The ledger of each CPU",
        "Over the whole run, in the order of nodes, caches and cores: threads of a core are neighbours.",
        _stack(parts, {"x": names}, "CPU %{x}"),
        {
            "barmode": "stack",
            "bargap": 0.08 if len(names) <= 128 else 0,
            "xaxis": {"title": {"text": "CPU"}, "type": "category"},
            "yaxis": {"title": {"text": "% of CPU time"}, "range": [0, 100], "fixedrange": True},
        },
        table(columns, rows, sortable=True),
        height=340,
    )


def heat_map(result: Result, accounts: list[str]) -> Figure:
    """CPUs over time: busy share, mean run-queue length, or an account."""
    import polars as pl

    timeline = result["timeline"]
    order = result["cpus"].sort(["node", "llc", "core", "cpu"])
    unit, length = unit_of_time(result.summary["virtual_ns"])
    span = pl.col("to_ns") - pl.col("from_ns")
    span = pl.when(span == 0).then(1).otherwise(span)
    kinds: list[tuple[str, str, pl.Expr, float | None]] = [
        ("busy share", "%", 100 * (1 - pl.col("idle_ns") / span), 100.0)
    ]
    if timeline["runnable_ns"].null_count() == 0:
        kinds.append(("tasks on the run queue (mean)", "tasks", pl.col("runnable_ns") / span, None))
    kinds += [(f"{a}, share", "%", 100 * pl.col(f"{a}_ns") / span, None) for a in accounts]
    values = timeline.select("cpu", "from_ns", "to_ns", *(e.round(2).alias(name) for name, _, e, _ in kinds))
    groups = {int(k[0]): g for k, g in values.partition_by("cpu", as_dict=True).items()}
    cpus = order["cpu"].to_list()
    one = groups[cpus[0]]
    # A cell lies where its interval does: the edges of the cells, so that the short last one is short here, too.
    edges = [v / length for v in [*one["from_ns"].to_list(), one["to_ns"][-1]]]
    labels = [str(c) for c in cpus]
    data = []
    for i, (name, what, _, top) in enumerate(kinds):
        z = [groups[c][name].to_list() for c in cpus]
        data.append(
            {
                "type": "heatmap",
                "x": rounded(edges, 7),
                "y": labels,
                "z": z,
                "visible": i == 0,
                "colorscale": MAP,
                "zmin": 0,
                "zmax": top or max((max(row) for row in z), default=1) or 1,
                "name": name,
                "colorbar": {"title": {"text": what, "side": "top"}, "thickness": 12, "len": 1, "x": 1.01},
                "hovertemplate": f"CPU %{{y}}, from %{{x:.5g}} {unit}<br>{name} %{{z}} {what}<extra></extra>",
            }
        )
    nodes = order["node"].to_list()
    borders = [i for i in range(1, len(nodes)) if nodes[i] != nodes[i - 1]]
    shapes = [
        {
            "type": "line",
            "xref": "paper",
            "x0": -0.02,
            "x1": 1,
            "y0": i - 0.5,
            "y1": i - 0.5,
            "line": {"color": "#ffffff", "width": 1},
        }
        for i in borders
    ]
    grouped = f" White lines part the {len(borders) + 1} nodes." if borders else ""
    return Figure(
        "CPUs over time",
        f"A cell is one CPU in {duration_us((one['to_ns'][0] - one['from_ns'][0]) / 1e3)} of virtual time; "
        f"neighbours share cores and caches.{grouped} The table has the busy share in at most {COLUMNS_MAX} intervals.",
        data,
        {
            "xaxis": {
                "title": {"text": f"virtual time, {unit}"},
                "showgrid": False,
                "range": [rounded(edges, 7)[0], rounded(edges, 7)[-1]],
            },
            "yaxis": {"title": {"text": "CPU"}, "type": "category", "autorange": "reversed", "showgrid": False},
            "shapes": shapes,
        },
        _busy_numbers(timeline, cpus, unit, length),
        height=max(240, min(760, 120 + 12 * len(cpus))),
        choices=[(name, [i]) for i, (name, *_) in enumerate(kinds)],
        choice_label="Colour shows",
    )


def _busy_numbers(timeline: pl.DataFrame, cpus: list[int], unit: str, length: float) -> str:
    frames = {int(k[0]): merged(g, COLUMNS_MAX) for k, g in timeline.partition_by("cpu", as_dict=True).items()}
    first = frames[cpus[0]]
    columns = [("CPU", "n"), *((f"from {v / length:.4g} {unit}", "n") for v in first["from_ns"])]

    def busy(f: pl.DataFrame) -> list[tuple[str, float]]:
        shares = [100 * (1 - i / max(b - a, 1)) for a, b, i in f.select("from_ns", "to_ns", "idle_ns").iter_rows()]
        return [(f"{s:.1f}", s) for s in shares]

    rows = [[(str(c), float(c)), *busy(frames[c])] for c in cpus]
    return table(columns, rows, sortable=True, caption="Busy share, %")
