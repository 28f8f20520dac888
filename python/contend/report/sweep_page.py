"""The report of a sweep: maps over two keys, lines over one, scatters of random samples, and which keys matter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contend._core import ContendError
from contend.quantity import shown
from contend.report.page import Cell, Figure, Page, facts, keys, paragraph, table
from contend.report.style import MAP, SERIES, rounded
from contend.sweeping.effects import Effect, effects, extremes, metric_of

if TYPE_CHECKING:
    import polars as pl

METRICS_MAX = 12
ROWS_MAX = 1000


def sweep_page(directory: Path) -> Page:
    """A sweep's data set as a page."""
    about, rows = _load(directory)
    page = Page("report of a sweep", f"{about['name']}: {about['done']:,} of {about['points']:,} points")
    metric = metric_of(rows, about)
    found = effects(rows, about, metric["name"]) if metric else []
    page.lead = paragraph(_answer(metric, found), "lead") + keys(
        [
            ("points", f"{about['done']:,} of {about['points']:,}"),
            ("different scenarios", f"{about['scenarios']:,}"),
            *((outcome, f"{n:,}") for outcome, n in about["outcomes"].items()),
        ]
    )
    if not about["complete"]:
        page.lead += paragraph("The sweep is not complete: the same contend sweep does the rest.", "bad")
    page.section("ran", "What was run", *_ran(directory, about, rows))
    metrics = [m for m in about["metrics"] if rows[m["name"]].n_unique() > 1]
    first = [m for m in metrics if metric and m["name"] == metric["name"]]
    metrics = (first + [m for m in metrics if m not in first])[:METRICS_MAX]
    page.section("effects", "Which keys matter", *_effects(metric, found, rows, about))
    grid = [a for a in about["axes"] if a["kind"] == "grid" and rows[a["key"]].n_unique() > 1]
    # Seeds are repeats: means over them are shown, unless there is nothing else.
    shown_axes = [a for a in grid if a["key"] != "seed"] or grid
    if found:
        order = {e.key: i for i, e in enumerate(found)}
        shown_axes.sort(key=lambda a: order.get(a["key"], len(order)))
    if len(shown_axes) >= 2 and metrics:
        page.section("maps", "Maps over two keys", *_maps(rows, shown_axes, metrics))
    if shown_axes and metrics:
        page.section("lines", "Lines over one key", *(_lines(rows, a, metrics) for a in shown_axes))
    random = [a for a in about["axes"] if a["kind"] == "random" and rows[a["key"]].n_unique() > 1]
    if random and metrics:
        page.section("samples", "Random samples", *(_scatter(rows, a, shown_axes, metrics) for a in random))
    page.section("points", "All points", *_points(rows, about))
    page.footer = f"Written by contend {about['contend']}; nothing in this file is loaded from elsewhere."
    return page


def _load(directory: Path) -> tuple[dict[str, Any], pl.DataFrame]:
    import polars as pl

    from contend.sweeping.sweep import SCHEMA

    file = directory / "sweep.json"
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        schema = about["schema"]
    except OSError as e:
        raise ContendError(f"{file}: cannot be read: {e.strerror}") from e
    except (ValueError, KeyError, TypeError) as e:
        raise ContendError(f"{file}: damaged: {e}; run the sweep again: what it has is not run twice") from e
    if schema != SCHEMA:
        raise ContendError(f"{file}: found schema = {schema}; this version reads {SCHEMA}; run the sweep again")
    try:
        rows = pl.read_parquet(directory / "sweep.parquet")
    except (OSError, pl.exceptions.PolarsError) as e:
        raise ContendError(f"{directory / 'sweep.parquet'}: cannot be read: {e}; run the sweep again") from e
    missing = [
        n for n in (*(a["key"] for a in about["axes"]), *(m["name"] for m in about["metrics"])) if n not in rows.columns
    ]
    if missing:
        raise ContendError(
            f"{directory / 'sweep.parquet'}: found no column {missing[0]!r}, which sweep.json names; run "
            "the sweep again"
        )
    return about, rows


def _answer(metric: dict[str, Any] | None, found: list[Effect]) -> str:
    if metric is None:
        return "No metric differs between the points."
    if not found:
        return f"{metric['name']} differs, but there are too few points to say what it hangs on."
    e = found[0]
    if e.share is None:
        hangs = f"With one run a value nothing tells {e.key} from chance; {metric['name']}"
    else:
        hangs = f"{metric['name']} hangs most on {e.key}, which alone explains {e.explains} of its variance: it"
    return (
        f"{hangs} is lowest at {e.lowest[0]} "
        f"({shown(e.lowest[1], metric['unit'])} on average) and highest at {e.highest[0]} "
        f"({shown(e.highest[1], metric['unit'])})."
    )


def _ran(directory: Path, about: dict[str, Any], rows: pl.DataFrame) -> list[str]:
    words = [
        ("sweep", about["name"]),
        ("scenario", about["scenario"] or "in the sweep's file"),
        ("stored as", directory.name),
        (
            "samples",
            "" if about["samples"] is None else f"{about['samples']:,} at each point of the grid, seed {about['seed']}",
        ),
        ("versions", f"contend {about['contend']}, sweep schema {about['schema']}"),
    ]
    cells: list[list[Cell]] = [
        [
            a["key"],
            a["kind"],
            ", ".join(map(str, a["values"]))
            if "values" in a
            else "; ".join(f"{k} {' to '.join(map(str, v))}" for k, v in a["distribution"].items()),
        ]
        for a in about["axes"]
    ]
    wrong = rows.filter(rows["error"].is_not_null()).unique("error", keep="first", maintain_order=True).head(10)
    errors: list[list[Cell]] = [[str(r["point"]), r["outcome"], r["error"]] for r in wrong.iter_rows(named=True)]
    parts = [facts(words), table([("key", ""), ("kind", ""), ("values", "fold")], cells, caption="Keys that vary")]
    if errors:
        parts.append(
            table(
                [("point", "n"), ("outcome", ""), ("message", "fold")],
                errors,
                caption="Points without a result: the first of each message",
            )
        )
    return parts


def _effects(
    metric: dict[str, Any] | None, found: list[Effect], rows: pl.DataFrame, about: dict[str, Any]
) -> list[str | Figure]:
    if metric is None or not found:
        return []
    unit = metric["unit"]
    cells: list[list[Cell]] = [
        [
            e.key,
            (e.explains, e.share or 0.0),
            e.lowest[0],
            (shown(e.lowest[1], unit), e.lowest[1]),
            e.highest[0],
            (shown(e.highest[1], unit), e.highest[1]),
        ]
        for e in found
    ]
    heads = [("key", ""), ("explains", "n"), ("lowest at", ""), ("mean", "n"), ("highest at", ""), ("mean", "n")]
    words = []
    for which, (at, mean, runs) in zip(("Lowest", "Highest"), extremes(rows, about, metric["name"]), strict=False):
        over = f", mean of {runs} runs" if runs > 1 else ""
        words.append(
            paragraph(
                f"{which} {metric['name']}: {shown(mean, unit)}{over}, at "
                f"{', '.join(f'{k} = {v}' for k, v in at.items())}."
            )
        )
    note = (
        "The share of the variance that the key's values explain alone; keys that act only together show little here."
    )
    return [
        paragraph(note, "soft"),
        table(heads, cells, sortable=True, caption=f"What {metric['name']} hangs on"),
        *words,
    ]


def _means(rows: pl.DataFrame, by: list[str], metric: str) -> pl.DataFrame:
    import polars as pl

    known = rows.filter(pl.col(metric).is_not_null())
    return (
        known.group_by(by)
        .agg(
            pl.col(metric).mean().alias("mean"),
            pl.col(metric).min().alias("lo"),
            pl.col(metric).max().alias("hi"),
            pl.len().alias("runs"),
        )
        .sort(by)
    )


def _title(m: dict[str, Any]) -> str:
    return m["name"] if m["unit"] == "count" else f"{m['name']}, {m['unit']}"


def _order(axis: dict[str, Any], seen: list[Any]) -> list[Any]:
    """The values of an axis that there are, numbers by size, words as the sweep names them."""
    if axis["type"] in ("integer", "number"):
        return sorted(set(seen))
    return [v for v in axis.get("values", []) if v in seen] or sorted(set(seen), key=str)


def _maps(rows: pl.DataFrame, axes: list[dict[str, Any]], metrics: list[dict[str, Any]]) -> list[str | Figure]:
    """A map over the two grid keys that matter most, of each metric; and over each further pair with the first."""
    parts: list[str | Figure] = []
    for across in axes[1:4]:
        down = axes[0]
        xs, ys = (_order(a, rows[a["key"]].to_list()) for a in (across, down))
        data, cells = [], []
        for i, m in enumerate(metrics):
            means = {
                (r[down["key"]], r[across["key"]]): r
                for r in _means(rows, [down["key"], across["key"]], m["name"]).iter_rows(named=True)
            }
            z = [[means[(y, x)]["mean"] if (y, x) in means else None for x in xs] for y in ys]
            text = [[shown(v, m["unit"]) if v is not None else "" for v in line] for line in z]
            data.append(
                {
                    "type": "heatmap",
                    "x": list(map(str, xs)),
                    "y": list(map(str, ys)),
                    "z": z,
                    "text": text,
                    "texttemplate": "%{text}" if len(xs) <= 12 else "",
                    "colorscale": MAP,
                    "reversescale": m["better"] < 0,
                    "visible": i == 0,
                    "xgap": 1,
                    "ygap": 1,
                    "colorbar": {"title": {"text": m["unit"], "side": "top"}, "thickness": 12, "len": 1, "x": 1.01},
                    "hovertemplate": (
                        f"{down['key']} %{{y}}, {across['key']} %{{x}}<br>{m['name']} %{{text}}<extra></extra>"
                    ),
                }
            )
            cells += [
                [
                    m["name"],
                    str(y),
                    str(x),
                    (shown(r["mean"], m["unit"]), r["mean"]),
                    (shown(r["lo"], m["unit"]), r["lo"]),
                    (shown(r["hi"], m["unit"]), r["hi"]),
                    (f"{r['runs']:,}", r["runs"]),
                ]
                for (y, x), r in means.items()
            ]
        heads = [
            ("metric", ""),
            (down["key"], ""),
            (across["key"], ""),
            ("mean", "n"),
            ("lowest", "n"),
            ("highest", "n"),
            ("runs", "n"),
        ]
        parts.append(
            Figure(
                f"{down['key']} against {across['key']}",
                "Means over everything else; bright is better where a metric has a better direction.",
                data,
                {
                    "xaxis": {
                        "title": {"text": across["key"]},
                        "type": "category",
                        "showgrid": False,
                        "automargin": True,
                    },
                    "yaxis": {
                        "title": {"text": down["key"]},
                        "type": "category",
                        "showgrid": False,
                        "automargin": True,
                    },
                },
                table(heads, cells, sortable=True),
                height=170 + 42 * max(len(ys), 3),
                choices=[(_title(m), [i]) for i, m in enumerate(metrics)],
                choice_label="Metric",
            )
        )
    return parts


def _lines(rows: pl.DataFrame, axis: dict[str, Any], metrics: list[dict[str, Any]]) -> Figure:
    """Means of each metric over one key, with the range over everything else."""
    data, cells, choices = [], [], []
    number = axis["type"] in ("integer", "number")
    for i, m in enumerate(metrics):
        means = {r[axis["key"]]: r for r in _means(rows, [axis["key"]], m["name"]).iter_rows(named=True)}
        xs = _order(axis, list(means))
        y = [means[x]["mean"] for x in xs]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if number else "markers",
                "x": xs if number else list(map(str, xs)),
                "y": rounded(y),
                "name": m["name"],
                "visible": i == 0,
                "showlegend": False,
                "line": {"color": SERIES[0]},
                "marker": {"color": SERIES[0], "size": 9},
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [means[x]["hi"] - means[x]["mean"] for x in xs],
                    "arrayminus": [means[x]["mean"] - means[x]["lo"] for x in xs],
                    "thickness": 1,
                    "width": 3,
                    "color": SERIES[0],
                },
                "hovertemplate": f"{axis['key']} %{{x}}<br>{m['name']} %{{y:.5g}} {m['unit']}<extra></extra>",
            }
        )
        choices.append((_title(m), [i]))
        cells += [
            [
                m["name"],
                str(x),
                *((shown(means[x][k], m["unit"]), means[x][k]) for k in ("mean", "lo", "hi")),
                (f"{means[x]['runs']:,}", means[x]["runs"]),
            ]
            for x in xs
        ]
    heads = [("metric", ""), (axis["key"], ""), ("mean", "n"), ("lowest", "n"), ("highest", "n"), ("runs", "n")]
    return Figure(
        f"Over {axis['key']}",
        "Means; bars go from the lowest to the highest value over all other keys.",
        data,
        {
            "xaxis": {"title": {"text": axis["key"]}, "type": "linear" if number else "category", "automargin": True},
            "yaxis": {"rangemode": "tozero"},
        },
        table(heads, cells, sortable=True),
        height=320,
        choices=choices,
        choice_label="Metric",
    )


def _scatter(
    rows: pl.DataFrame, axis: dict[str, Any], grid: list[dict[str, Any]], metrics: list[dict[str, Any]]
) -> Figure:
    """Every point over a random key, coloured by the grid key that matters most."""
    import polars as pl

    by = grid[0]["key"] if grid else None
    levels = _order(grid[0], rows[by].to_list()) if by else [None]
    if len(levels) > len(SERIES):
        by, levels = None, [None]
    data: list[dict[str, Any]] = []
    choices = []
    words = axis["type"] not in ("integer", "number")
    for m in metrics:
        at = []
        for k, level in enumerate(levels):
            some = rows.filter(pl.col(m["name"]).is_not_null())
            some = some if by is None else some.filter(pl.col(by) == level)
            at.append(len(data))
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": [str(v) for v in some[axis["key"]]] if words else rounded(some[axis["key"]].to_list(), 6),
                    "y": rounded(some[m["name"]].to_list()),
                    "name": "" if by is None else f"{by} = {level}",
                    "showlegend": by is not None,
                    "visible": m is metrics[0],
                    "marker": {"color": SERIES[k], "size": 7, "opacity": 0.75},
                    "hovertemplate": (
                        f"{axis['key']} %{{x}}<br>{m['name']} %{{y:.5g}} "
                        f"{m['unit']}<extra>{'' if by is None else level}</extra>"
                    ),
                }
            )
        choices.append((_title(m), at))
    distribution = next(iter(axis.get("distribution", {})), "")
    return Figure(
        f"Samples of {axis['key']}",
        "A point is a run." + (f" Colours tell {by} apart." if by else ""),
        data,
        {
            "xaxis": {
                "title": {"text": axis["key"]},
                "type": "category" if words else "log" if distribution in ("log_uniform", "log_integers") else "linear",
            },
            "yaxis": {"rangemode": "tozero"},
        },
        paragraph("The runs are in the table of all points, at the end."),
        height=360,
        choices=choices,
        choice_label="Metric",
    )


def _points(rows: pl.DataFrame, about: dict[str, Any]) -> list[str]:
    axes, metrics = about["axes"], about["metrics"][:METRICS_MAX]
    kinds = {a["key"]: "n" if a["type"] in ("integer", "number") else "" for a in axes}

    def value(r: dict[str, Any], key: str, kind: str) -> Cell:
        v = r[key]
        return (f"{v:g}" if isinstance(v, float) else str(v), v) if kind and v is not None else str(v)

    cells: list[list[Cell]] = [
        [
            (str(r["point"]), r["point"]),
            *(value(r, k, kind) for k, kind in kinds.items()),
            r["outcome"],
            *(
                ("", -1e300) if r[m["name"]] is None else (shown(r[m["name"]], m["unit"]), r[m["name"]])
                for m in metrics
            ),
        ]
        for r in rows.head(ROWS_MAX).iter_rows(named=True)
    ]
    heads = [("point", "n"), *kinds.items(), ("outcome", ""), *((m["name"], "n") for m in metrics)]
    more = (
        paragraph(f"The first {ROWS_MAX:,} of {len(rows):,}; all are in sweep.parquet.", "soft")
        if len(rows) > ROWS_MAX
        else ""
    )
    return [more, table(heads, cells, sortable=True, caption="Points", tall=True)]
