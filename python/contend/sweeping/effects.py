"""Which keys matter: main effects of a sweep's keys on one metric."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

LEVELS_MAX = 12
BINS = 5


@dataclass(frozen=True)
class Effect:
    """What a key does to a metric: the share of its variance that the key's levels explain, and the extreme levels."""

    key: str
    share: float
    lowest: tuple[str, float]
    highest: tuple[str, float]

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


def levels(values: list[Any]) -> list[str]:
    """The level of each value: itself, or one of five bins of equal size where a number has many values."""
    distinct = sorted(set(values), key=lambda v: (isinstance(v, str), v))
    if len(distinct) <= LEVELS_MAX or any(isinstance(v, str) for v in distinct):
        return [str(v) for v in values]
    order = sorted(values)
    edges = [order[len(order) * i // BINS] for i in range(BINS)]
    tops = [*edges[1:], order[-1]]
    out = []
    for v in values:
        i = max(i for i in range(BINS) if edges[i] <= v)
        out.append(f"{edges[i]:g} to {tops[i]:g}")
    return out


def effects(table: pl.DataFrame, about: dict[str, Any], metric: str) -> list[Effect]:
    """The keys by the share of the variance of a metric that each explains alone, largest first.

    The share is epsilon squared: eta squared less what as many levels of nothing would explain.
    """
    rows = table.filter(table[metric].is_not_null())
    y = rows[metric].to_list()
    if len(y) < 3:
        return []
    mean = statistics.fmean(y)
    total = sum((v - mean) ** 2 for v in y)
    out = []
    for axis in about["axes"]:
        named = levels(rows[axis["key"]].to_list())
        groups: dict[str, list[float]] = {}
        for level, v in zip(named, y, strict=True):
            groups.setdefault(level, []).append(v)
        if len(groups) < 2:
            continue
        means = {level: statistics.fmean(of) for level, of in groups.items()}
        between = sum(len(of) * (means[level] - mean) ** 2 for level, of in groups.items())
        spare = len(y) - len(groups)
        share = 0.0
        if total > 0 and spare > 0:
            share = max(0.0, 1 - (1 - between / total) * (len(y) - 1) / spare)
        low, high = min(means, key=lambda k: means[k]), max(means, key=lambda k: means[k])
        out.append(Effect(axis["key"], share, (low, means[low]), (high, means[high])))
    return sorted(out, key=lambda e: -e.share)


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
