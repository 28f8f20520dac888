"""The report of studies: published against simulated."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from contend.report.page import Cell, Figure, Page, facts, keys, paragraph, table
from contend.report.style import rounded
from contend.units import counted

FIT, PREDICTED, OFF = "#e69f00", "#0072b2", "#d55e00"
"""Fitted values, predicted ones, and predicted effects that are judged wrong."""


def study_page(found: dict[str, Any]) -> Page:
    """The object of `contend reproduce --json` as a page."""
    studies = found["studies"]
    single = len(studies) == 1
    page = Page(
        "report of a study" if single else "report of studies",
        studies[0]["title"] if single else f"{len(studies)} studies, published and simulated",
    )
    s = found["summary"]
    page.lead = (
        paragraph(answer(s), "lead")
        + (
            paragraph("Quick: short slices and one seed, so these are not the study's figures.", "bad")
            if found["quick"]
            else ""
        )
        + _keys(s)
    )
    for failure in found["failures"]:
        page.lead += paragraph(
            f"A run failed: {failure['outcome']} {failure['detail']}; replay: {failure['replay']}", "bad"
        )
    for study in studies:
        effects = [e for e in found["effects"] if e["study"] == study["name"]]
        rows = [r for r in found["rows"] if r["study"] == study["name"]]

        def heading(words: str, name: str = study["name"]) -> str:
            return words.capitalize() if single else f"{name}: {words}"

        page.section(
            f"{study['name']}-what",
            heading("what was run"),
            facts(
                [
                    ("study", study["name"]),
                    ("title", study["title"]),
                    ("source", study["source"]),
                    ("seeds", str(study["seeds"])),
                    ("draws of the machine's costs", str(study["draws"])),
                    ("how", study["summary"]["slices"]),
                    ("version", f"contend {found['contend']}"),
                ]
            ),
        )
        page.section(f"{study['name']}-effects", heading("effects"), *_effects(effects))
        page.section(f"{study['name']}-values", heading("values"), *_values(rows))
        page.section(f"{study['name']}-score", heading("score"), _scores(study["summary"]))
    page.section("beyond", "Beyond the published tables", *_beyond(found.get("beyond") or []))
    page.section("ablation", "Each feature alone", *_ablation(found.get("ablation") or []))
    page.footer = (
        f"Written by contend {found['contend']}; nothing in this file is loaded from elsewhere. "
        f"{counted(s['runs'], 'run')}, {s['cpu_s']:.0f} CPU-s."
    )
    return page


def answer(s: dict[str, Any]) -> str:
    """The score in a sentence."""
    if not s["rows_judged"]:
        return "No published effect is large enough to be judged."
    return (
        f"Of {s['rows_judged']} published effects that are judged, {100 * s['right_sign_share']:.0f} % are "
        "simulated with the right "
        f"sign and {100 * s['right_size_share']:.0f} % with the right size; the median error is "
        f"{s['median_error_pp']:.1f} "
        "percentage points."
    )


def _keys(s: dict[str, Any]) -> str:
    if not s["rows_judged"]:
        return ""
    quiet = s["quiet_within_share"]
    return keys(
        [
            ("effects judged", f"{s['rows_judged']:,}"),
            ("right sign", f"{100 * s['right_sign_share']:.0f} %"),
            ("right size", f"{100 * s['right_size_share']:.0f} %"),
            ("median error", f"{s['median_error_pp']:.1f} pp"),
            ("worst error", f"{s['worst_error_pp']:.1f} pp"),
            (
                "quiet rows that stay quiet",
                "none published" if quiet is None else f"{100 * quiet:.0f} % of {s['quiet_rows']}",
            ),
        ]
    )


def _place(e: dict[str, Any]) -> str:
    return f"{e['table']}, {e['workload']} on {e['machine']}, x = {e['x']:g}, {e['metric']}, {e['variant']}"


def _verdict(e: dict[str, Any]) -> str:
    if e["simulated_pct"] is None:
        return "not simulated"
    if not e["judged"]:
        found = "quiet" if e["quiet_ok"] else "quiet: too large"
    else:
        found = "right" if e["size_ok"] else "sign right" if e["sign_ok"] else "wrong sign"
    return f"{found}, undetermined" if e["undetermined"] else found


def _number(v: float | None, form: str = ".1f") -> Cell:
    return ("", -1e300) if v is None else (format(v, form), v)


def _identity(lo: float, hi: float) -> dict[str, Any]:
    return {"type": "line", "x0": lo, "y0": lo, "x1": hi, "y1": hi, "line": {"dash": "dash"}, "layer": "below"}


def _effects(effects: list[dict[str, Any]]) -> list[str | Figure]:
    if not effects:
        return []
    rows: list[list[Cell]] = [
        [
            e["table"],
            e["machine"],
            e["workload"],
            (f"{e['x']:g}", e["x"]),
            e["metric"],
            e["variant"],
            _number(e["published_pct"], "+.1f"),
            _number(e["noise_pct"]),
            _number(e["simulated_pct"], "+.1f"),
            "" if e["band_lo_pct"] is None else f"{e['band_lo_pct']:+.1f} to {e['band_hi_pct']:+.1f}",
            _verdict(e),
        ]
        for e in effects
    ]
    columns = [
        ("table", ""),
        ("machine", ""),
        ("workload", ""),
        ("x", "n"),
        ("metric", ""),
        ("variant", ""),
        ("published %", "n"),
        ("noise %", "n"),
        ("simulated %", "n"),
        ("band", ""),
        ("verdict", ""),
    ]
    numbers = table(columns, rows, sortable=True, caption="Effects")
    known = [e for e in effects if e["published_pct"] is not None and e["simulated_pct"] is not None]
    if not known:
        return [numbers]
    kinds: tuple[tuple[str, str, str, Callable[[dict[str, Any]], bool]], ...] = (
        ("judged, right size", PREDICTED, "circle", lambda e: e["judged"] and e["size_ok"]),
        ("judged, not of the right size", OFF, "diamond", lambda e: e["judged"] and not e["size_ok"]),
        ("too small to judge", "#8a8a8a", "circle-open", lambda e: not e["judged"]),
    )
    data = []
    for name, colour, symbol, of in kinds:
        group = [e for e in known if of(e)]
        if group:
            bands = [(e["simulated_pct"], e["band_lo_pct"], e["band_hi_pct"]) for e in group]
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": rounded([e["published_pct"] for e in group]),
                    "y": rounded([e["simulated_pct"] for e in group]),
                    "text": [_place(e) for e in group],
                    "marker": {"color": colour, "symbol": symbol, "size": 8},
                    "error_y": {
                        "type": "data",
                        "symmetric": False,
                        "array": [0 if hi is None else max(hi - v, 0) for v, _, hi in bands],
                        "arrayminus": [0 if lo is None else max(v - lo, 0) for v, lo, _ in bands],
                        "thickness": 1,
                        "width": 0,
                        "color": colour,
                    },
                    "hovertemplate": "published %{x:+.1f} %, simulated %{y:+.1f} %<br>%{text}<extra></extra>",
                }
            )
    values = [v for e in known for v in (e["published_pct"], e["simulated_pct"])]
    lo, hi = min(values), max(values)
    figure = Figure(
        "Published against simulated effects",
        "Per cent, positive is better; on the dashed line both agree. All effects are predicted. Bars are "
        "the band over the "
        "machine's uncertain costs, where it was drawn.",
        data,
        {
            "xaxis": {"title": {"text": "published effect, %"}},
            "yaxis": {"title": {"text": "simulated effect, %"}},
            "shapes": [_identity(lo, hi)],
            "margin": {"l": 64, "r": 12, "t": 16, "b": 48},
        },
        numbers,
        height=520,
    )
    return [figure]


def _values(rows: list[dict[str, Any]]) -> list[str | Figure]:
    """Values with the identity line, a figure a unit: values of different units have no common axis."""
    parts: list[str | Figure] = []

    def unit(r: dict[str, Any]) -> tuple[str, str]:
        return (r["metric"], r["unit"])

    for (metric, name), group in itertools.groupby(sorted(rows, key=unit), unit):
        listed = list(group)
        known = [r for r in listed if r["published"] is not None and r["simulated"] is not None]
        cells: list[list[Cell]] = [
            [
                r["table"],
                r["machine"],
                r["workload"],
                (f"{r['x']:g}", r["x"]),
                r["variant"],
                _number(r["published"], ",.5g"),
                _number(r["simulated"], ",.5g"),
                r["kind"],
            ]
            for r in listed
        ]
        columns = [
            ("table", ""),
            ("machine", ""),
            ("workload", ""),
            ("x", "n"),
            ("variant", ""),
            ("published", "n"),
            ("simulated", "n"),
            ("kind", ""),
        ]
        numbers = table(columns, cells, sortable=True, caption=f"{metric}, {name}")
        if not known:
            parts.append(numbers)
            continue
        values = [v for r in known for v in (r["published"], r["simulated"])]
        # Values over decades, as they are where x goes from 1 to 88, need a logarithmic axis; it has no room for
        # what is not positive.
        log = min(values) > 0 and max(values) / min(values) > 20
        data = [
            {
                "type": "scatter",
                "mode": "markers",
                "name": words,
                "x": rounded([r["published"] for r in some]),
                "y": rounded([r["simulated"] for r in some]),
                "marker": {"color": colour, "symbol": symbol, "size": 8},
                "text": [
                    f"{r['table']}, {r['workload']} on {r['machine']}, x = {r['x']:g}, {r['variant']}" for r in some
                ],
                "hovertemplate": "published %{x:,.5g}, simulated %{y:,.5g}<br>%{text}<extra></extra>",
            }
            for words, kind, colour, symbol in (
                ("fitted", "fit", FIT, "square"),
                ("predicted", "predicted", PREDICTED, "circle"),
            )
            if (some := [r for r in known if r["kind"] == kind])
        ]
        axis = {"type": "log" if log else "linear"}
        parts.append(
            Figure(
                f"Published against simulated {metric}",
                f"In {name}. On the dashed line both agree. Workload parameters were fitted to the "
                "squares; circles are predicted.",
                data,
                {
                    "xaxis": {**axis, "title": {"text": f"published, {name}"}},
                    "yaxis": {**axis, "title": {"text": f"simulated, {name}"}},
                    "shapes": [_identity(min(values), max(values))],
                },
                numbers,
                height=460,
            )
        )
    return parts


def _scores(s: dict[str, Any]) -> str:
    heads = [
        ("predictor", ""),
        ("right sign %", "n"),
        ("right size %", "n"),
        ("median error, pp", "n"),
        ("worst error, pp", "n"),
        ("judged", "n"),
    ]

    def percent(v: float | None) -> Cell:
        return _number(None if v is None else 100 * v, ".0f")

    rows: list[list[Cell]] = [
        [
            name,
            percent(x["right_sign_share"]),
            percent(x["right_size_share"]),
            _number(x["median_error_pp"]),
            _number(x["worst_error_pp"]),
            (f"{x['rows_judged']:,}", x["rows_judged"]),
        ]
        for name, x in (("contend", s), *s["baselines"].items())
    ]
    words = "Beside predictors that simulate nothing."
    return paragraph(words) + table(heads, rows, sortable=True, caption="Score")


def _beyond(rows: list[dict[str, Any]]) -> list[str]:
    parts = []
    for (study, name), group in itertools.groupby(rows, lambda r: (r["study"], r["name"])):
        listed = list(group)
        at, values = list(listed[0]["at"]), list(listed[0]["values"])
        cells: list[list[Cell]] = [
            [*(str(r["at"][k]) for k in at), r["variant"], *(_number(r["values"][v], ",.5g") for v in values)]
            for r in listed
        ]
        columns = [*((k, "") for k in at), ("variant", ""), *((v, "n") for v in values)]
        parts.append(table(columns, cells, sortable=True, caption=f"{study}: {listed[0]['title'] or name}"))
    return parts


def _ablation(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return []
    heads = list(rows[0])
    numeric = {
        k for k in heads if all(isinstance(r[k], int | float | None) and not isinstance(r[k], bool) for r in rows)
    }
    cells: list[list[Cell]] = [[_number(r[k], ",.5g") if k in numeric else str(r[k]) for k in heads] for r in rows]
    return [table([(k, "n" if k in numeric else "") for k in heads], cells, sortable=True, caption="Ablation")]
