"""A sweep in sentences and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape

from contend.quantity import shown
from contend.sweeping.effects import effects, extremes, metric_of
from contend.sweeping.sweep import Planned, Sweep
from contend.text import table

if TYPE_CHECKING:
    from rich.console import Console

LISTED = 20


def _point(keys: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in keys.items())


def swept(s: Sweep, out: Console) -> None:
    """What `contend sweep` prints."""
    about = s.about
    ends = ", ".join(f"{n:,} {outcome}" for outcome, n in about["outcomes"].items())
    out.print(
        f"{about['done']:,} of {about['points']:,} points are done ({ends}), {about['scenarios']:,} different "
        f"scenarios; {s.ran:,} ran now, in {s.cpu_s:.2f} CPU-s."
    )
    wrong = s.table.filter(s.table["error"].is_not_null())
    for row in wrong.unique("error", keep="first", maintain_order=True).head(3).iter_rows(named=True):
        at = _point({a["key"]: row[a["key"]] for a in about["axes"]})
        out.print(escape(f"  {row['outcome']} at {at}: {row['error']}"))
    none = [m["name"] for m in about["metrics"] if s.table[m["name"]].null_count() == s.table.height]
    if none and s.table.height:
        out.print(escape(f"No run has {', '.join(none)}."))
    metric = metric_of(s.table, about)
    if metric is None:
        out.print("No metric differs between the points.")
        return
    name, unit = metric["name"], metric["unit"]
    found = effects(s.table, about, name)
    if found:
        columns = [("key", "left"), ("explains", "right"), ("lowest at", "left"), ("mean", "right"),
                   ("highest at", "left"), ("mean", "right")]  # fmt: skip
        rows = [
            (e.key, e.explains, e.lowest[0], shown(e.lowest[1], unit), e.highest[0], shown(e.highest[1], unit))
            for e in found
        ]
        out.print(table(f"What {name} hangs on: share of its variance by each key alone", columns, rows))
    ends_of = extremes(s.table, about, name)
    words = ["lowest", "highest"] if not metric["better"] else ["best", "worst"][:: -1 if metric["better"] > 0 else 1]
    pairs = list(zip(words, ends_of, strict=False))
    for word, (keys, mean, runs) in sorted(pairs, key=lambda p: p[0]):
        over = f", mean of {runs} runs" if runs > 1 else ""
        out.print(f"{word.capitalize()} {name}: {shown(mean, unit)}{over}, at {escape(_point(keys))}.")


def listed(points: list[Planned], known: set[str], out: Console) -> None:
    """What `contend sweep --dry-run` prints."""
    keys = {p.key for p in points if p.task}
    there = sum(1 for k in keys if k in known)
    invalid = [p for p in points if p.task is None]
    out.print(
        f"{len(points):,} points, {len(keys):,} different scenarios: {there:,} are there, {len(keys) - there:,} to "
        f"run; {len(invalid):,} points are not possible."
    )
    columns = [*((key, "left") for key in points[0].point), ("scenario", "left")]
    rows = [(*(str(v) for v in p.point.values()), p.key[:12] if p.task else "not possible") for p in points[:LISTED]]
    out.print(table("", columns, rows))
    if len(points) > LISTED:
        out.print(f"and {len(points) - LISTED:,} more; --json lists all.")
    if invalid:
        out.print(f"Not possible: {escape(_point(invalid[0].point))}: {escape(invalid[0].error or '')}")
