"""Deriving a study's fitted parameters again, from the unpatched rows that it declares and from nothing else.

`fit_rows` picks those rows; `derive` is given them and the workload, not the study's other rows.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from contend import _core
from contend.study.load import load, number
from contend.study.model import Parameter, Settings, Study, Workload
from contend.study.plan import Run, run_of
from contend.study.simulate import Measured, simulate, value_of

if TYPE_CHECKING:
    import polars as pl

TOLERANCE = 0.01
"""A derived value may differ from the study's by this share."""
EVALUATIONS_PER_PARAMETER = 24
STEP = 1e-3
"""The optimiser ends when it moves by less than this share of a parameter's range (in the logarithm)."""
SEED = 1

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class FitRow:
    """An unpatched published value: all that a fit sees of the CSV."""

    x: float
    metric: str
    value: float


class Simulate(Protocol):
    """What `derive` runs scenarios with."""

    def __call__(self, runs: dict[Run, set[str]]) -> dict[Run, Measured]:
        """Simulate."""


def fit_rows(study: Study, w: Workload) -> tuple[FitRow, ...]:
    """The unpatched rows in `fit_x`; one that several tables repeat counts once."""
    mine = (r for r in study.rows if w.is_fit(r, study.reference) and study.workload_of(r) == w)
    rows = [FitRow(r.x, r.metric, r.published) for r in mine if r.published is not None]
    return tuple(dict.fromkeys(rows))


def groups(study: Study) -> list[tuple[Workload, ...]]:
    """The workloads that have fitted parameters: those of a [[fit]] together, the others each alone."""
    fitted = [w for w in study.workloads if w.fitted]
    names = dict.fromkeys(w.fit or f"[{i}]" for i, w in enumerate(fitted))
    return [tuple(w for i, w in enumerate(fitted) if (w.fit or f"[{i}]") == name) for name in names]


@dataclass(frozen=True)
class Before:
    """The unpatched system."""

    policy: str
    set: Settings


@dataclass
class Fit:
    """What `contend fit` found: a line a parameter (`parameters` is the frame), and whether all agree."""

    study: str
    lines: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    runs: int

    @property
    def agrees(self) -> bool:
        """Every derived value is the study's, to 1 %."""
        return all(line["agrees"] for line in self.lines)

    @property
    def differing(self) -> list[str]:
        """A sentence for each parameter that does not agree."""
        return [
            f"{self.study}: {p['workload']} on {p['machine']}: {p['key']}: found {p['value']}; "
            f"should be {p['derived']:g}, derived from {p['rows']} rows"
            for p in self.lines
            if not p["agrees"]
        ]

    @property
    def parameters(self) -> pl.DataFrame:
        """A row a parameter."""
        import polars as pl

        return pl.DataFrame(self.lines)

    def to_dict(self) -> dict[str, Any]:
        """The object of `contend fit --json`."""
        return {
            "schema": 1,
            "contend": _core.__version__,
            "study": self.study,
            "agrees": self.agrees,
            "parameters": self.lines,
            "rows": self.rows,
            "runs": self.runs,
        }


class _Scale:
    """A parameter's range on 0 to 1: in the logarithm, or linearly where it begins at 0."""

    def __init__(self, p: Parameter) -> None:
        self.p = p

    def value(self, u: float) -> float:
        u = min(max(u, 0.0), 1.0)
        p = self.p
        value = p.lo * (p.hi / p.lo) ** u if p.lo > 0 else p.hi * u
        return round(value) if p.whole else value


def derive(
    rows: Sequence[tuple[Workload, FitRow]], before: Before, run: Simulate
) -> tuple[dict[str, float], list[float | None], int]:
    """The parameters that bring the simulated values closest to the rows of their workloads; the values there;
    the runs it took.

    Minimises the sum of squared logarithms of simulated over published, from the middle of each range: Brent's bounded
    method for one parameter, Nelder and Mead's for several. Deterministic, with a bounded number of evaluations.
    """
    try:
        from scipy import optimize
    except ImportError as e:
        raise _core.ContendError("contend fit needs scipy: pip install 'contend[fit]'") from e
    scales = [_Scale(p) for p in rows[0][0].fitted]
    study = _Unpatched(before.policy)
    runs = 0

    @functools.cache
    def simulated(values: tuple[float, ...]) -> tuple[float | None, ...]:
        nonlocal runs
        parameters = {s.p.key: v for s, v in zip(scales, values, strict=True)}
        reads = {}
        asked: dict[Run, set[str]] = {}
        for i, (w, row) in enumerate(rows):
            metric = w.metric(row.metric)
            assert metric is not None
            made = run_of(study, w, row.x, before.set, seed=SEED, quick=False, fitted=w.scaled(parameters))
            reads[i] = (made, metric)
            asked.setdefault(made, set()).add(metric.expression(row.x))
        measured = run(asked)
        runs += len(asked)
        return tuple(value_of(w, m, measured[r], row.x) for (r, m), (w, row) in zip(reads.values(), rows, strict=True))

    def at(u: Sequence[float]) -> tuple[float, ...]:
        return tuple(s.value(v) for s, v in zip(scales, u, strict=True))

    def loss(u: Sequence[float]) -> float:
        found = simulated(at(u))
        if any(v is None or v <= 0 for v in found):
            return 1e6
        return sum(math.log(v / row.value) ** 2 for v, (_, row) in zip(found, rows, strict=True) if v is not None)

    evaluations = EVALUATIONS_PER_PARAMETER * len(scales)
    if len(scales) == 1:
        brent = {"xatol": STEP, "maxiter": evaluations}
        best = optimize.minimize_scalar(lambda u: loss([u]), bounds=(0, 1), method="bounded", options=brent)
        found = at([float(best.x)])
    else:
        start = [0.5] * len(scales)
        simplex = [start, *([*start[:i], 0.75, *start[i + 1 :]] for i in range(len(scales)))]
        nelder = {"xatol": STEP, "fatol": 1e-6, "maxfev": evaluations, "initial_simplex": simplex}
        best = optimize.minimize(
            lambda u: loss(list(u)), start, method="Nelder-Mead", bounds=[(0, 1)] * len(scales), options=nelder
        )
        found = at([float(u) for u in best.x])
    keys = [s.p.key for s in scales]
    return dict(zip(keys, found, strict=True)), list(simulated(found)), runs


@dataclass(frozen=True)
class _Unpatched:
    """All that `run_of` may know of a study while it is fitted."""

    before_policy: str


def fit(study: str | os.PathLike[str], *, progress: Progress | None = None) -> Fit:
    """Derive every fitted parameter of a study again, from the unpatched rows that it names.

    Args:
        study: A name, or the path of a folder with study.toml.
        progress: Called some times a second.

    Raises:
        ContendError: Something is refused; StudyInvalid if the study's files are to blame.
        KeyboardInterrupt: Ctrl-C.
    """
    loaded = load(study)
    fitted = groups(loaded)
    total = sum(EVALUATIONS_PER_PARAMETER * len(g[0].fitted) * len(fit_rows(loaded, w)) for g in fitted for w in g)
    done = 0

    def run(runs: dict[Run, set[str]]) -> dict[Run, Measured]:
        nonlocal done
        measured = simulate(
            runs, lambda some, _all: progress(done + some, max(total, done + some)) if progress else None
        )
        done += len(runs)
        return measured

    lines, rows = [], []
    before = Before(loaded.before_policy, loaded.before_set)
    for group in fitted:
        published = [(w, row) for w in group for row in fit_rows(loaded, w)]
        values, simulated, _ = derive(published, before, run)
        for p in group[0].fitted:
            value = values[p.key]
            lines.append(
                {
                    "workload": ", ".join(dict.fromkeys(w.name for w in group)),
                    "machine": ", ".join(dict.fromkeys(w.machine for w in group)),
                    "key": p.key,
                    "value": number(p.value),
                    "derived": value,
                    "lo": number(p.lo),
                    "hi": number(p.hi),
                    "rows": len(published),
                    "agrees": abs(value - p.value) <= TOLERANCE * max(abs(p.value), abs(value)),
                }
            )
        rows += [
            {
                "workload": w.name, "machine": w.machine, "x": number(r.x), "metric": r.metric, "published": r.value,
                "simulated": s,
            }
            for (w, r), s in zip(published, simulated, strict=True)
        ]  # fmt: skip
    return Fit(loaded.name, lines, rows, done)
