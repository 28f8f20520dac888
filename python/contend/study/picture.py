"""The picture of `contend reproduce --plot`: published against simulated effects, or the tables beyond them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from contend import plot
from contend.study.judge import bound_pct

if TYPE_CHECKING:
    from contend.study.reproduction import Reproduction

COLUMNS = 3


def draw(r: Reproduction, file: str) -> None:
    """A panel a table: published effects with their noise, simulated ones with their spread and band; or for tables
    without published values the first column, against the first variant."""
    plt = plot.pyplot(file)
    drawn = [e for e in r.effect_list if e["simulated_pct"] is not None]
    panels: list[Callable[[Any], None]] = [
        partial(_panel, place=place, effects=list(group))
        for place, group in itertools.groupby(drawn, lambda e: (e["table"], e["machine"], e["metric"]))
    ]
    panels += [
        partial(_beyond, name=name, rows=list(group))
        for (_, name), group in itertools.groupby(r.beyond_list, lambda b: (b["study"], b["name"]))
    ]
    columns = min(COLUMNS, max(len(panels), 1))
    lines = max(1, -(-len(panels) // columns))
    size = (4.6 * columns, 0.6 + 2.9 * lines)
    figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
    figure.suptitle(", ".join(s.name for s in r.studies))
    for ax in axes.flat[len(panels) :]:
        ax.set_visible(False)
    for ax, panel in zip(axes.flat, panels, strict=False):
        panel(ax)
    if panels:
        axes.flat[0].legend(fontsize=7)
    plot.save(figure, file)


def _beyond(ax: Any, name: str, rows: Sequence[dict[str, Any]]) -> None:
    column = next(iter(rows[0]["values"]))
    places = list(dict.fromkeys(" ".join(str(v) for v in r["at"].values()) for r in rows))
    variants = list(dict.fromkeys(r["variant"] for r in rows))
    values = {(" ".join(str(v) for v in r["at"].values()), r["variant"]): r["values"][column] for r in rows}
    for variant in variants[1:] or variants:
        change = []
        for place in places:
            base, value = values[place, variants[0]], values[place, variant]
            change.append(100 * (value / base - 1) if base and value is not None else float("nan"))
        ax.plot(range(len(places)), change, "o-", ms=4, lw=1, label=variant)
    ax.axhline(0, color="0.6", lw=0.8)
    ax.set_xticks(range(len(places)), places, fontsize=7, rotation=20)
    ax.tick_params(axis="y", labelsize=7)
    ax.set_ylabel(f"{column}, % more than {variants[0]}", fontsize=7)
    ax.set_title(name, fontsize=7)
    ax.legend(fontsize=6)


def _panel(ax: Any, place: tuple[str, str, str], effects: Sequence[dict[str, Any]]) -> None:
    at = range(len(effects))
    bounds = [bound_pct(e["noise_pct"]) for e in effects]
    ax.fill_between(at, [-b for b in bounds], bounds, color="0.92", step="mid", label="within noise")
    published = [e["published_pct"] for e in effects]
    simulated = [e["simulated_pct"] for e in effects]
    for i, e in zip(at, effects, strict=True):
        if e["band_lo_pct"] is not None:
            label = "band" if i == 0 else None
            ax.plot([i + 0.12] * 2, [e["band_lo_pct"], e["band_hi_pct"]], color="C1", alpha=0.35, lw=6, label=label)
    noise = [e["noise_pct"] for e in effects]
    spread = [e["spread_pct"] or 0 for e in effects]
    ax.errorbar([i - 0.12 for i in at], published, noise, fmt="o", color="C0", ms=4, lw=1, label="published")
    ax.errorbar([i + 0.12 for i in at], simulated, spread, fmt="s", color="C1", ms=4, lw=1, label="simulated")
    ax.axhline(0, color="0.6", lw=0.8)
    ax.set_xticks(list(at), [f"{e['x']:g}" for e in effects], fontsize=7)
    ax.tick_params(axis="y", labelsize=7)
    ax.set_ylabel("effect, %", fontsize=7)
    # One row that is off by hundreds of per cent would hide the others.
    if max(abs(v) for v in (*published, *simulated)) > 50:
        ax.set_yscale("symlog", linthresh=10)
    ax.set_title(f"{place[0]}\n{place[1]}, {place[2]}", fontsize=7)
