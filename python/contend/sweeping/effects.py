"""Which keys matter: main effects of a sweep's keys on one metric."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contend.units import percent

if TYPE_CHECKING:
    import polars as pl

LEVELS_MAX = 12
BINS = 5
SAMPLES_A_BIN = 3
ONE_RUN = "one run a value"


@dataclass(frozen=True)
class Effect:
    """What a key does to a metric: the share of its variance that the key's levels explain, and the extreme levels."""

    key: str
    share: float | None
    """None where each level has one run: nothing tells the key from chance."""
    lowest: tuple[str, float]
    highest: tuple[str, float]

    @property
    def explains(self) -> str:
        """The share in per cent, or why there is none."""
        return ONE_RUN if self.share is None else percent(self.share)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "key": self.key,
            "share": self.share,
            "lowest": {"level": self.lowest[0], "mean": self.lowest[1]},
            "highest": {"level": self.highest[0], "mean": self.highest[1]},
        }


def metric_of(table: pl.DataFrame, about: dict[str, Any]) -> dict[str, Any] | None:
    """The metric that effects are about: the first that varies, of those that have a better direction if one has."""
    varying = [m for m in about["metrics"] if len({v for v in table[m["name"]] if v is not None}) > 1]
    return next((m for m in varying if m["better"]), next(iter(varying), None))


def levels(values: list[Any], most: int = LEVELS_MAX, bins: int = BINS) -> list[str]:
    """The level of each value: itself, or one of some bins of equal size where a number has more values than `most`.

    A bin is named by the smallest and the largest value in it.
    """
    distinct = sorted(set(values), key=lambda v: (isinstance(v, str), v))
    if len(distinct) <= most or any(isinstance(v, str) for v in distinct):
        return [str(v) for v in values]
    order = sorted(values)
    edges = [order[len(order) * i // bins] for i in range(bins)]
    held = [max(i for i in range(bins) if edges[i] <= v) for v in values]
    inside = {i: [v for v, at in zip(values, held, strict=True) if at == i] for i in set(held)}
    names = {i: f"{min(of):g}" if min(of) == max(of) else f"{min(of):g} to {max(of):g}" for i, of in inside.items()}
    return [names[i] for i in held]


def effects(table: pl.DataFrame, about: dict[str, Any], metric: str) -> list[Effect]:
    """The keys by the share of the variance of a metric that each explains alone, largest first.

    The share is epsilon squared: eta squared less what as many levels of nothing would explain. A random key has one
    value a sample, at however many points of the grid that is run: its levels are compared by means of samples, and
    explain a part of the variance between samples.
    """
    rows = table.filter(table[metric].is_not_null())
    y = rows[metric].to_list()
    if len(y) < 3 or squares(y) == 0:
        return []
    drawn = [a["key"] for a in about["axes"] if a["kind"] == "random"]
    samples, between = rows, 1.0
    if drawn:
        import polars as pl

        samples = rows.group_by(drawn, maintain_order=True).agg(pl.col(metric).mean(), pl.len().alias("_runs"))
        mean = statistics.fmean(y)
        between = sum(n * (v - mean) ** 2 for v, n in zip(samples[metric], samples["_runs"], strict=True)) / squares(y)
    out = []
    for axis in about["axes"]:
        key = axis["key"]
        if key in drawn:
            few = max(2, min(BINS, len(samples) // SAMPLES_A_BIN))
            effect = effect_of(key, levels(samples[key].to_list(), few, few), samples[metric].to_list(), between)
        else:
            effect = effect_of(key, levels(rows[key].to_list()), y, 1.0)
        if effect:
            out.append(effect)
    return sorted(out, key=lambda e: 1.0 if e.share is None else -e.share)


def squares(y: list[float]) -> float:
    """The sum of squared distances from the mean."""
    mean = statistics.fmean(y)
    return sum((v - mean) ** 2 for v in y)


def effect_of(key: str, named: list[str], y: list[float], of: float) -> Effect | None:
    """What a key with these levels explains of the variance of `y`, which is a share `of` all; none with one level."""
    groups: dict[str, list[float]] = {}
    for level, v in zip(named, y, strict=True):
        groups.setdefault(level, []).append(v)
    if len(groups) < 2:
        return None
    means = {level: statistics.fmean(v) for level, v in groups.items()}
    total, spare = squares(y), len(y) - len(groups)
    within = sum(squares(v) for v in groups.values())
    share: float | None = 0.0
    if total > 0:
        share = max(0.0, 1 - within / total * (len(y) - 1) / spare) * of if spare > 0 else None
    low, high = min(means, key=lambda k: means[k]), max(means, key=lambda k: means[k])
    return Effect(key, share, (low, means[low]), (high, means[high]))


def extremes(table: pl.DataFrame, about: dict[str, Any], metric: str) -> list[tuple[dict[str, Any], float, int]]:
    """The combinations of keys with the lowest and the highest mean of a metric over seeds: keys, mean, runs."""
    import polars as pl

    keys = [a["key"] for a in about["axes"] if a["key"] != "seed"]
    rows = table.filter(pl.col(metric).is_not_null())
    if not keys or rows.is_empty():
        return []
    means = rows.group_by(keys).agg(pl.col(metric).mean().alias("_mean"), pl.len().alias("_runs"))
    means = means.sort(["_mean", *keys])
    found = [means.row(0, named=True), means.row(-1, named=True)]
    return [({k: r[k] for k in keys}, r["_mean"], r["_runs"]) for r in found]
