"""Studies on the terminal."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from contend import text
from contend.units import counted

if TYPE_CHECKING:
    from contend.study.fitting import Fit
    from contend.study.reproduction import Reproduction

NONE = "-"


def value(v: float | None) -> str:
    """Four significant digits."""
    if v is None:
        return NONE
    return f"{v:,.0f}" if abs(v) >= 10_000 else f"{v:.4g}"


def points(v: float | None) -> str:
    """An effect in per cent."""
    if v is None:
        return NONE
    v = round(v, 1) + 0.0  # no -0.0
    return f"{v:+,.0f}" if abs(v) >= 1000 else f"{v:+.1f}"


def _pm(effect: float | None, spread: float | None) -> str:
    return points(effect) if spread is None else f"{points(effect)} ± {spread:.1f}"


def _verdict(e: dict[str, Any]) -> str:
    if e["simulated_pct"] is None:
        return "not simulated"
    if not e["judged"]:
        found = "quiet" if e["quiet_ok"] else "quiet: TOO LARGE"
    elif e["size_ok"]:
        found = "right"
    elif not round(e["simulated_pct"], 1):
        found = "NO EFFECT"
    else:
        found = "sign right" if e["sign_ok"] else "WRONG SIGN"
    return f"{found}, undetermined" if e["undetermined"] else found


def reproduction(r: Reproduction, out: Console) -> None:
    """All tables, then the summary."""
    for study in r.studies:
        out.print(f"[bold]{escape(study.name)}[/bold]: {escape(study.title)}")
        out.print(escape(study.source))
        effects = [e for e in r.effect_list if e["study"] == study.name]
        rows = {
            (o["table"], o["machine"], o["workload"], o["x"], o["metric"], o["variant"]): o
            for o in r.row_list
            if o["study"] == study.name
        }
        for (name, machine), group in itertools.groupby(effects, lambda e: (e["table"], e["machine"])):
            _table(f"{name} on {machine}", list(group), rows, out)
        _alone([o for o in r.row_list if o["study"] == study.name], effects, out)
        if effects:
            summary(f"Summary of {study.name}", r.of(study.name), out)
    _ablation(r, out)
    if r.beyond_list:
        beyond(r.beyond_list, out)
    if r.effect_list and len(r.studies) > 1:
        summary("Summary of all", r.scores, out)
    if "ablate" in r.asked and not r.ablation_list:
        out.print("Nothing to ablate: no switch has more than one feature.")
    if "beyond" in r.asked and not r.beyond_list:
        out.print("No tables beyond the published ones.")
    out.print(f"{counted(r.runs, 'run')}, {r.cpu_s:.0f} CPU-s, {r.wall_s:.0f} s.")


def _table(title: str, effects: Sequence[dict[str, Any]], rows: dict[Any, dict[str, Any]], out: Console) -> None:
    lines = []
    x_name = ""
    units = set()
    fit = sliced = False
    several = len({e["metric"] for e in effects}) > 1
    variants = len({e["variant"] for e in effects}) > 1
    for e in effects:
        key = (e["table"], e["machine"], e["workload"], e["x"], e["metric"])
        before, after = rows.get((*key, e["reference"])), rows[(*key, e["variant"])]
        x_name = after["x_name"]
        units.add(after["unit"])
        sliced |= after["sliced"]
        mark = ""
        if before is not None and before["kind"] == "fit":
            fit, mark = True, " fit"
        lo, hi = e["band_lo_pct"], e["band_hi_pct"]
        lines.append(
            [
                *([e["metric"]] if several else []),
                *([e["variant"]] if variants else []),
                f"{e['x']:g}",
                value(before["published"] if before else None),
                value(before["simulated"] if before else None) + mark,
                value(after["published"] if before else None),
                value(after["simulated"] if before else None),
                f"{points(e['published_pct'])} ± {e['noise_pct']:.1f}",
                _pm(e["simulated_pct"], e["spread_pct"]),
                NONE if lo is None else f"{points(lo)} to {points(hi)}",
                _verdict(e),
            ]
        )
    columns = [
        *([("metric", "fold")] if several else []),
        *([("variant", "fold")] if variants else []),
        (_names_below(x_name), "right"), (effects[0]["reference"], "right"), ("sim.", "right"),
        ("" if variants else effects[0]["variant"] if before else "after", "right"), ("sim.", "right"),
        ("effect %", "right"), ("sim. %", "right"), ("band", "right"), ("verdict", "fold"),
    ]  # fmt: skip
    out.print(text.table(escape(f"{title} ({', '.join(sorted(units))})"), columns, lines))
    notes = []
    if fit:
        notes.append("fit: workload parameters were fitted to these unpatched values; every effect is predicted")
    if sliced:
        place = (effects[0]["table"], effects[0]["machine"])
        scaled = [r for k, r in rows.items() if k[:2] == place and r["sliced"]]
        lengths = sorted({r["slice_ms"] for r in scaled if r["share"] == 1})
        shares = sorted({r["share"] for r in scaled if r["share"] < 1})
        if lengths:
            notes.append(f"slices of {', '.join(f'{n:g}' for n in lengths)} ms, scaled by work done")
        if shares:
            notes.append(f"runs of {', '.join(f'{100 * s:g}' for s in shares)} % of the work, scaled")
    if notes:
        out.print(escape("; ".join(notes) + "."))
        out.print()


def _alone(rows: Sequence[dict[str, Any]], effects: Sequence[dict[str, Any]], out: Console) -> None:
    """Values of the unpatched system that nothing is compared with."""

    def place(o: dict[str, Any]) -> tuple[Any, ...]:
        return (o["table"], o["machine"], o["workload"], o["x"], o["metric"])

    compared = {place(e) for e in effects}
    alone = [o for o in rows if place(o) not in compared]
    if not alone:
        return
    lines = []
    for o in alone:
        ratio = o["simulated"] / o["published"] if o["simulated"] is not None and o["published"] else None
        mark = " fit" if o["kind"] == "fit" else ""
        lines.append(
            [
                o["table"], o["machine"], o["variant"], f"{o['x']:g}", o["metric"], o["unit"], value(o["published"]),
                value(o["simulated"]) + mark, NONE if ratio is None else f"x {ratio:.2f}",
            ]
        )  # fmt: skip
    columns = [
        *((name, "fold") for name in ("table", "machine", "variant")), ("x", "right"), ("metric", "fold"),
        ("unit", "left"), ("published", "right"), ("sim.", "right"), ("ratio", "right"),
    ]  # fmt: skip
    out.print(text.table("Values that no other variant has", columns, lines))


def _share(v: float | None) -> str:
    return NONE if v is None else f"{100 * v:.0f} %"


def _beaten(s: dict[str, Any]) -> str:
    """Whether the model beats the baselines, and where it is only as good as one."""
    if not s["beats_baselines"]:
        return "DOES NOT BEAT both baselines on sign, size and median error over the judged rows"
    shares = {"sign": "right_sign_share", "size": "right_size_share"}
    tied = [name for name, key in shares.items() if any(b[key] == s[key] for b in s["baselines"].values())]
    if not tied:
        return "beats both baselines on sign, size and median error over the judged rows"
    better = " and ".join([*(name for name in shares if name not in tied), "median error"])
    ties = f"on {' and '.join(tied)} all are right, as a baseline's are"
    return f"beats both baselines on {better} over the judged rows; {ties}"


def summary(title: str, s: dict[str, Any], out: Console) -> None:
    """The model beside the baselines."""
    lines = []
    for name, scores in (("model", s), ("0 %", s["baselines"]["zero"]), ("+1 %", s["baselines"]["plus_one"])):
        lines.append(
            [
                name,
                _share(scores["right_sign_share"]),
                _share(scores["right_size_share"]),
                value(scores["median_error_pp"]),
                value(scores["worst_error_pp"]),
                _share(scores["quiet_within_share"]),
                value(scores["median_error_all_pp"]),
                value(scores["worst_error_all_pp"]),
            ]
        )
    columns = [("predicts", "left")] + [
        (name, "right")
        for name in ("sign", "size", "median error", "worst", "quiet within", "median, all rows", "worst, all rows")
    ]
    counts = f"{counted(s['rows_judged'], 'judged row')}, {counted(s['quiet_rows'], 'quiet row')}"
    title = f"{title}: {counts} (errors in points)"
    out.print(text.table(escape(title), columns, lines))
    worst = s["worst"]
    if worst:
        out.print(
            escape(
                f"Worst judged row: {worst['table']} on {worst['machine']}, x = {worst['x']:g}, {worst['metric']}: "
                f"published {points(worst['published_pct'])} %, simulated {points(worst['simulated_pct'])} %."
            )
        )
    if s["beats_baselines"] is not None:
        out.print(f"The model {_beaten(s)}.")
    if s["rows_undetermined"]:
        out.print(f"Undetermined, with a band that holds both signs: {counted(s['rows_undetermined'], 'effect')}.")
    if s["rows_not_simulated"]:
        out.print(f"Not simulated: {counted(s['rows_not_simulated'], 'effect')}.")
    out.print(escape(f"{s['slices'][0].upper()}{s['slices'][1:]}."))
    out.print()


def _ablation(r: Reproduction, out: Console) -> None:
    # A table of [switch.NAME] has one switch, one of [variant.NAME] has several.
    several = {s.name for s in r.studies if s.by_variant}

    def key(a: dict[str, Any], system: str) -> tuple[str, ...]:
        of = system if a["study"] in several else ""
        return (a["study"], a["table"], a["machine"], a["metric"], a["workload"], of)

    full = {(*key(e, e["variant"]), e["x"]): e["simulated_pct"] for e in r.effect_list}
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for a in r.ablation_list:
        groups.setdefault(key(a, a["switch"]), []).append(a)
    for place, rows in groups.items():
        xs = sorted({a["x"] for a in rows})
        cells = {(a["variant"], a["x"]): a for a in rows}
        variants = list(dict.fromkeys(a["variant"] for a in rows))
        all_of_it = [points(full.get((*place, x))) for x in xs]
        lines = [["all of it", *all_of_it]] if set(all_of_it) != {NONE} else []
        for v in variants:
            note = cells[v, xs[0]]["note"]
            name = f"{v}, {note}" if note else v
            lines.append([name, *(points(cells[v, x]["simulated_pct"]) for x in xs)])
        columns = [("effect of, %", "fold"), *((f"{x:g}", "right") for x in xs)]
        title = ", ".join([f"Ablation: {place[1]} on {place[2]}", place[3], *([place[5]] if place[5] else [])])
        out.print(text.table(escape(title), columns, lines))


def _names_below(x_name: str) -> str:
    """`load (0 idle, 1 busy)`, in a line each."""
    name, _, places = x_name.partition(" (")
    return "\n".join([name, *places.removesuffix(")").split(", ")]) if places else name


HEADING = 14
"""Width of a line of a column's heading, where its words allow it."""


def _heading(name: str) -> str:
    """An expression or a key in several lines, broken after points, underscores and spaces."""
    lines = [""]
    for part in re.findall(r"[^._ ]+[._ ]*", name):
        if lines[-1] and len(lines[-1] + part.rstrip()) > HEADING:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def beyond(rows: Sequence[dict[str, Any]], out: Console) -> None:
    """Tables without published values. What is wider than the console is several tables: it would be cut."""
    for (study, name), group in itertools.groupby(rows, lambda r: (r["study"], r["name"])):
        lines = []
        listed = list(group)
        keys = list(listed[0]["at"])
        columns = list(listed[0]["values"])
        first: dict[str, float | None] = {}
        for row in listed:
            base = first.setdefault(str(row["at"]), row["values"][columns[0]])
            head = row["values"][columns[0]]
            change = 100 * (head - base) / abs(base) if head is not None and base else None
            lines.append(
                [
                    *(str(row["at"][k]) for k in keys),
                    row["variant"],
                    *(value(row["values"][c]) for c in columns),
                    points(change),
                ]
            )
        heads = [_heading(h) for h in (*keys, "variant", *columns, f"{columns[0]}, % of first")]
        title = listed[0]["title"]
        title = f"{study}: {name}{f': {title}' if title else ''}"
        fixed = len(keys) + 1
        for part in _parts(heads, lines, fixed, out.width):
            shown = [*range(fixed), *part]
            kinds = [(heads[i], "left" if i < fixed else "right") for i in shown]
            out.print(text.table(escape(title), kinds, [[line[i] for i in shown] for line in lines]))
            title = ""


def _parts(heads: Sequence[str], lines: Sequence[Sequence[str]], fixed: int, width: int) -> list[list[int]]:
    """The columns after the first `fixed`, in as many tables as fit; the fixed ones stand in each."""
    gap = 3
    widths = [max(len(w) for w in (*h.split("\n"), *(line[i] for line in lines))) + gap for i, h in enumerate(heads)]
    parts: list[list[int]] = [[]]
    left = width - sum(widths[:fixed])
    for i in range(fixed, len(heads)):
        if parts[-1] and sum(widths[j] for j in (*parts[-1], i)) > left:
            parts.append([])
        parts[-1].append(i)
    return parts


def fitted(f: Fit, out: Console) -> None:
    """What `contend fit` prints."""
    if not f.lines:
        out.print(escape(f"{f.study}: nothing is fitted."))
        return
    rows = [
        [
            line["workload"], line["machine"], line["key"], value(line["value"]), value(line["derived"]),
            f"{value(line['lo'])} to {value(line['hi'])}", str(line["rows"]), "yes" if line["agrees"] else "NO",
        ]
        for line in f.lines
    ]  # fmt: skip
    columns = [
        ("workload", "fold"), ("machine", "left"), ("parameter", "left"), ("study", "right"), ("derived", "right"),
        ("range", "right"), ("rows", "right"), ("agrees", "left"),
    ]  # fmt: skip
    out.print(text.table(escape(f"{f.study}: parameters derived from the unpatched rows in fit_x"), columns, rows))
    misfits = {(p["workload"], p["machine"]): (p["misfit"], p["misfit_study"]) for p in f.lines}
    for (workload, machine), (derived, study) in misfits.items():
        of = f"{workload} on {machine}" if len(misfits) > 1 else "Misfit"
        out.print(escape(f"{of}: {value(derived)} as derived, {value(study)} with the study's values."))
    rows = [
        [r["workload"], r["machine"], f"{r['x']:g}", r["metric"], value(r["published"]), value(r["simulated"])]
        for r in f.rows
    ]
    columns = [
        ("workload", "fold"), ("machine", "left"), ("x", "right"), ("metric", "left"), ("published", "right"),
        ("simulated", "right"),
    ]  # fmt: skip
    out.print(text.table("The rows, with the derived values", columns, rows))
    confirmed = sum(p["confirmed"] for p in f.lines)
    near = f" {counted(confirmed, 'value')} confirmed by what lies around, not derived (--near)." if confirmed else ""
    out.print(f"{counted(f.runs, 'run')}.{near}")
