"""Figures of the table `latency`: distributions on a logarithmic axis, with percentiles."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from contend.report.page import Cell, Figure, table
from contend.report.style import SERIES, rounded
from contend.units import duration_us

if TYPE_CHECKING:
    from contend.result import Result

BINS = 16
"""Classes a decade."""
MARKED = ("p50", "p90", "p99", "p99.9", "max")
PERCENTILES = ("mean", "p50", "p75", "p90", "p95", "p99", "p99.5", "p99.9", "max")


def _buckets(result: Result, name: str) -> list[tuple[int, int, int]]:
    frame = result["latency"].filter(result["latency"]["name"] == name)
    return list(frame.select("from_ns", "to_ns", "count").iter_rows())


def _classes(buckets: list[tuple[int, int, int]]) -> tuple[list[float], list[float]]:
    """Edges of classes in us, and the share of each in per cent."""
    counts: dict[int, int] = {}
    for from_, to, count in buckets:
        at = math.floor(BINS * math.log10(max(math.sqrt(max(from_, 1) * max(to, 1)), 1)))
        counts[at] = counts.get(at, 0) + count
    total = sum(counts.values()) or 1
    lo, hi = min(counts), max(counts)
    edges = [10 ** (i / BINS) / 1e3 for i in range(lo, hi + 2)]
    return edges, [100 * counts.get(i, 0) / total for i in range(lo, hi + 1)]


def _steps(edges: list[float], shares: list[float]) -> tuple[list[float], list[float]]:
    """Corners of a histogram: filled steps keep their width on a logarithmic axis, bars do not."""
    x, y = [edges[0]], [0.0]
    for i, share in enumerate(shares):
        x += [edges[i], edges[i + 1]]
        y += [share, share]
    return [*x, edges[-1]], [*y, 0.0]


def _time_axis(title: str) -> dict[str, Any]:
    at = [10.0**k for k in range(-3, 8)]
    return {
        "type": "log",
        "title": {"text": title},
        "tickvals": at,
        "ticktext": [_tick(v) for v in at],
        "minor": {"ticks": "outside"},
    }


def _tick(us: float) -> str:
    return (
        f"{us * 1e3:g} ns"
        if us < 1
        else f"{us:g} µs"
        if us < 1e3
        else f"{us / 1e3:g} ms"
        if us < 1e6
        else f"{us / 1e6:g} s"
    )


def distribution(result: Result, name: str, title: str, percentiles: dict[str, float]) -> Figure | None:
    """One distribution with its percentiles marked; None if nothing was measured."""
    buckets = _buckets(result, name)
    if not buckets:
        return None
    edges, shares = _classes(buckets)
    x, y = _steps(edges, shares)
    shapes, words = [], []
    for i, p in enumerate(k for k in MARKED if percentiles[k] > 0):
        shapes.append(
            {
                "type": "line",
                "x0": percentiles[p],
                "x1": percentiles[p],
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"dash": "dot"},
            }
        )
        words.append(
            {
                "x": math.log10(percentiles[p]),
                "yref": "paper",
                "y": 1 - 0.085 * i,
                "text": f"{p} {duration_us(percentiles[p])}",
                "showarrow": False,
                "xanchor": "left",
                "yanchor": "top",
                "xshift": 3,
            }
        )
    rows = [(k, duration_us(percentiles[k])) for k in PERCENTILES]
    return Figure(
        title,
        f"{percentiles['count']:,} samples in {BINS} classes a decade; dotted lines are percentiles.",
        [
            {
                "type": "scatter",
                "mode": "lines",
                "x": rounded(x),
                "y": rounded(y, 4),
                "fill": "tozeroy",
                "name": name,
                "line": {"color": SERIES[0], "width": 1},
                "showlegend": False,
                "hovertemplate": "%{x:.4g} µs: %{y:.2f} %<extra></extra>",
            }
        ],
        {
            "xaxis": _time_axis(""),
            "yaxis": {"title": {"text": "% of samples"}, "rangemode": "tozero", "fixedrange": True},
            "shapes": shapes,
            "annotations": words,
        },
        table([("percentile", ""), ("latency", "n")], rows),
        height=320,
    )


def overlaid(results: list[Result], labels: list[str], name: str, title: str) -> Figure | None:
    """The share of samples that took longer, of several results in one figure."""
    data: list[dict[str, Any]] = []
    rows: list[list[Cell]] = []
    for i, (result, label) in enumerate(zip(results, labels, strict=True)):
        buckets = _buckets(result, name)
        total = sum(count for _, _, count in buckets)
        if not total:
            continue
        x, y, left = [max(buckets[0][0], 1) / 1e3], [100.0], total
        for _, to, count in buckets:
            left -= count
            x.append(max(to, 1) / 1e3)
            y.append(100 * left / total)
        # The last one has nothing above it, which a logarithmic axis cannot show.
        y[-1] = 100 * 0.5 / total
        step = max(len(x) // 1500, 1)
        keep = sorted({*range(0, len(x), step), len(x) - 1})
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": label,
                "x": rounded([x[k] for k in keep]),
                "y": rounded([y[k] for k in keep], 4),
                "line": {
                    "shape": "hv",
                    "color": SERIES[i % len(SERIES)],
                    "width": 2,
                    "dash": ("solid", "dash", "dot", "dashdot")[i // len(SERIES) % 4],
                },
                "hovertemplate": f"{label}: %{{y:.3g}} % took longer than %{{x:.4g}} µs<extra></extra>",
            }
        )
        own = (
            result.summary["wakeup_latency_us"] if name == "wakeup" else result.summary["metrics"]["latencies_us"][name]
        )
        rows.append([label, *((duration_us(own[k]), float(own[k])) for k in PERCENTILES)])
    if not data:
        return None
    return Figure(
        title,
        "The share of samples that took longer than the time on the horizontal axis; both axes are logarithmic.",
        data,
        {"xaxis": _time_axis(""), "yaxis": {"type": "log", "title": {"text": "% that took longer"}}},
        table([("result", ""), *((k, "n") for k in PERCENTILES)], rows, sortable=True),
        height=380,
    )
