"""Welch's interval for the difference of two means, from a few runs a side.

Why not pairs by seed: a seed fixes the random choices of programs and of the scheduler, but from the first event that
differs on, which is microseconds into most runs, two variants draw their numbers at different places. Over 100 seeds
two variants' results were correlated by 0.03 in the median, 0.43 at most (docs/compare.md). Of five seeds, pairs give
narrower intervals only above 0.31, for they have half the degrees of freedom; and of a positive correlation Welch's
interval is too wide, never too narrow. Why no bootstrap: five runs have too few different resamples, and its intervals
are too narrow. Welch assumes means that are about normal, and lets the two variances differ.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from contend._core import ContendError

CONFIDENCE = 0.95
NONE = "no difference shown"
NO_SPREAD = "no spread"


@dataclass(frozen=True)
class Sample:
    """Values of one quantity in the runs of one side. `drawn`: those after the first are under drawn costs."""

    values: tuple[float, ...]
    drawn: bool = False

    @property
    def mean(self) -> float:
        """The mean."""
        return statistics.fmean(self.values)

    @property
    def shown(self) -> float:
        """The value under the machine's own costs where costs are drawn, otherwise the mean."""
        return self.values[0] if self.drawn else self.mean

    @property
    def sd(self) -> float:
        """The standard deviation."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


@dataclass(frozen=True)
class Difference:
    """Mean of a result minus mean of the baseline, and its 95 % confidence interval; or a difference and its band."""

    value: float
    low: float
    high: float
    baseline: float

    def pct(self, value: float) -> float | None:
        """In per cent of the baseline's mean; None if that is 0."""
        return 100 * value / abs(self.baseline) if self.baseline else None

    def verdict(self, better: int) -> str:
        """better, worse; more, less where neither direction is better; or that no difference is shown."""
        if self.low <= 0 <= self.high:
            return NONE
        if not better:
            return "more" if self.value > 0 else "less"
        return "better" if (self.value > 0) == (better > 0) else "worse"


def band(result: Sequence[float], baseline: Sequence[float]) -> Difference:
    """The difference of the first pair of runs, and the lowest and highest of all. A pair shares costs and seed."""
    differences = [new - old for new, old in zip(result, baseline, strict=True)]
    return Difference(differences[0], min(differences), max(differences), baseline[0])


def band_confidence(draws: int) -> float:
    """How likely another draw's difference lies within the band of so many.

    Of `draws` + 1 exchangeable values the last is then neither the lowest nor the highest.
    """
    return (draws - 1) / (draws + 1)


def welch(result: Sequence[float], baseline: Sequence[float]) -> Difference:
    """The difference of two samples of at least two values each.

    Where neither side varies (no seed changed it) there is no interval to give: low and high are the difference itself.
    """
    try:
        from scipy import stats
    except ImportError as e:
        raise ContendError("contend compare needs scipy: pip install 'contend[fit]'") from e
    new, old = Sample(tuple(result)), Sample(tuple(baseline))
    difference = new.mean - old.mean
    va, vb = new.sd**2 / len(new.values), old.sd**2 / len(old.values)
    if va + vb == 0:
        return Difference(difference, difference, difference, old.mean)
    # Welch and Satterthwaite. scipy's own interval divides by zero where one side does not vary at all.
    freedom = (va + vb) ** 2 / (va**2 / (len(new.values) - 1) + vb**2 / (len(old.values) - 1))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(va + vb)
    return Difference(difference, difference - half, difference + half, old.mean)
