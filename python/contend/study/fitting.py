"""Deriving a study's fitted parameters again, from the unpatched rows that it declares and from nothing else.

`fit_rows` picks those rows; `derive` is given them and the workload, not the study's other rows.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from contend import _core
from contend.study.load import load, number
from contend.study.model import Metric, Parameter, Settings, Study, Workload
from contend.study.plan import Run, run_of
from contend.study.simulate import Measured, failure, simulate, value_of

if TYPE_CHECKING:
    import polars as pl

TOLERANCE = 0.01
"""A derived value may differ from the study's by this share, and the study's misfit be larger by it."""
EVALUATIONS_PER_PARAMETER = 24
GRID = 7
"""Points of one parameter that are tried besides, both ends among them."""
GRID_OF_SEVERAL = 3
"""The same for each of several: every combination."""
CLOSER = 0.01
"""A point of the grid must bring the rows closer by so much, the root mean square of the logarithms."""
STEP = 1e-3
"""The optimiser ends when it moves by less than this share of a parameter's range (in the logarithm)."""
LEAST = 1e-6
"""Misfits that differ by less are equal."""
NEIGHBOURS = 0.02
"""How far the neighbours of a study's values lie from them, as a share of a parameter's range (in the logarithm)."""
NOTHING = 1e6
"""The misfit where a row has no simulated value."""
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
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Every derived value is the study's, to 1 %, or fits no better."""
        return all(line["agrees"] for line in self.lines)

    @property
    def differing(self) -> list[str]:
        """A sentence for each parameter that does not agree."""
        return [
            f"{self.study}: {p['workload']} on {p['machine']}: {p['key']}: found {p['value']}; " + _should(p)
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
            "failures": self.failures,
        }


def _should(p: dict[str, Any]) -> str:
    if p["derived"] is None:
        return "nothing was derived: a row has no simulated value"
    fits = "no value" if p["misfit_study"] is None else f"{p['misfit_study']:.4g}"
    return f"should be {p['derived']:g}, derived from {p['rows']} rows (misfit {p['misfit']:.4g}; {fits} as found)"


class _Scale:
    """A parameter's range on 0 to 1: in the logarithm, or linearly where it begins at 0."""

    def __init__(self, p: Parameter) -> None:
        self.p = p

    def value(self, u: float) -> float:
        u = min(max(u, 0.0), 1.0)
        p = self.p
        value = p.lo * (p.hi / p.lo) ** u if p.lo > 0 else p.hi * u
        return round(value) if p.whole else value

    def place(self, value: float) -> float:
        """Where a value lies on 0 to 1."""
        p = self.p
        return math.log(value / p.lo) / math.log(p.hi / p.lo) if p.lo > 0 else value / p.hi


Rows = Sequence[tuple[Workload, FitRow]]


def _asked(rows: Rows, before: Before, parameters: Mapping[str, float]) -> list[tuple[Run, str]]:
    """For each row its run, and what is read of it."""
    study = _Unpatched(before.policy)
    return [
        (
            run_of(study, w, row.x, before.set, seed=SEED, quick=False, fitted=w.scaled(parameters)),
            _metric(w, row).expression(row.x),
        )
        for w, row in rows
    ]


def _metric(w: Workload, row: FitRow) -> Metric:
    metric = w.metric(row.metric)
    assert metric is not None
    return metric


def simulated(
    rows: Rows, before: Before, points: Sequence[Mapping[str, float]], run: Simulate
) -> list[list[float | None]]:
    """The values of the rows at each point of the parameters."""
    reads = [_asked(rows, before, parameters) for parameters in points]
    asked: dict[Run, set[str]] = {}
    for made, expression in itertools.chain(*reads):
        asked.setdefault(made, set()).add(expression)
    measured = run(asked)
    return [
        [value_of(w, _metric(w, row), measured[r], row.x) for (r, _), (w, row) in zip(read, rows, strict=True)]
        for read in reads
    ]


def misfit(rows: Rows, found: Sequence[float | None]) -> float | None:
    """The sum of squared logarithms of simulated over published; None if a row has no simulated value."""
    if any(v is None or v <= 0 for v in found):
        return None
    return sum(math.log(v / row.value) ** 2 for v, (_, row) in zip(found, rows, strict=True) if v is not None)


def derive(rows: Rows, before: Before, run: Simulate) -> tuple[dict[str, float], list[float | None], int]:
    """The parameters that bring the simulated values closest to the rows of their workloads; the values there;
    the runs it took.

    Minimises `misfit` from the middle of each range: Brent's bounded method for one parameter, Nelder and Mead's for
    several. Where a point of a coarse grid, which has both ends of each range, is clearly closer than what that found,
    the search begins again there, between its neighbours. Deterministic, with a bounded number of evaluations.
    """
    try:
        from scipy import optimize
    except ImportError as e:
        raise _core.ContendError("contend fit needs scipy: pip install 'contend[fit]'") from e
    scales = [_Scale(p) for p in rows[0][0].fitted]
    keys = [s.p.key for s in scales]
    tried: dict[tuple[float, ...], tuple[float, list[float | None]]] = {}
    made = 0

    def counted(runs: dict[Run, set[str]]) -> dict[Run, Measured]:
        nonlocal made
        made += len(runs)
        return run(runs)

    def at(u: Sequence[float]) -> tuple[float, ...]:
        return tuple(s.value(v) for s, v in zip(scales, u, strict=True))

    def try_all(points: Sequence[Sequence[float]]) -> None:
        """Simulate what has not been, all at once."""
        new = [values for values in dict.fromkeys(map(at, points)) if values not in tried]
        if not new:
            return
        named = [dict(zip(keys, values, strict=True)) for values in new]
        for values, found in zip(new, simulated(rows, before, named, counted), strict=True):
            fit = misfit(rows, found)
            tried[values] = (NOTHING if fit is None else fit, found)

    def loss(u: Sequence[float]) -> float:
        try_all([u])
        return tried[at(u)][0]

    evaluations = EVALUATIONS_PER_PARAMETER * len(scales)

    def search(start: list[float], step: float) -> None:
        """From a point, one parameter no further than a step."""
        if len(scales) == 1:
            bounds = (max(start[0] - step, 0), min(start[0] + step, 1))
            brent = {"xatol": STEP, "maxiter": evaluations}
            optimize.minimize_scalar(lambda u: loss([float(u)]), bounds=bounds, method="bounded", options=brent)
            return
        # From an upper end inwards: scipy would clip what lies outside.
        far = [u + step / 2 if u < 1 else u - step / 2 for u in start]
        simplex = [start, *([*start[:i], far[i], *start[i + 1 :]] for i in range(len(start)))]
        nelder = {"xatol": STEP, "fatol": LEAST, "maxfev": evaluations, "initial_simplex": simplex}
        optimize.minimize(
            lambda u: loss(list(u)), start, method="Nelder-Mead", bounds=[(0, 1)] * len(scales), options=nelder
        )

    def best() -> tuple[float, ...]:
        return min(tried, key=lambda values: tried[values][0])

    search([0.5] * len(scales), 0.5)
    found = best()
    grid, step = _grid(len(scales), evaluations // 2)
    try_all(grid)
    start = min(grid, key=loss)
    if _distance(tried[found][0], rows) - _distance(loss(start), rows) > CLOSER:
        search(start, step)
        found = best()
    return dict(zip(keys, found, strict=True)), tried[found][1], made


def _distance(loss: float, rows: Rows) -> float:
    return math.sqrt(loss / len(rows))


def confirm(rows: Rows, before: Before, run: Simulate) -> list[float | None] | None:
    """The values of the rows with the study's own parameters, if these bring them as close as what lies around: each
    parameter a little less and a little more. None if something there is closer, or a row has no simulated value.
    """
    scales = [_Scale(p) for p in rows[0][0].fitted]
    own = {s.p.key: s.p.value for s in scales}
    around = [{**own, s.p.key: s.value(s.place(s.p.value) + by)} for s in scales for by in (-NEIGHBOURS, NEIGHBOURS)]
    found = simulated(rows, before, [own, *around], run)
    fits, *theirs = [misfit(rows, values) for values in found]
    if fits is None or any(t is not None and fits > t * (1 + TOLERANCE) + LEAST for t in theirs):
        return None
    return found[0]


def _grid(parameters: int, most: int) -> tuple[list[list[float]], float]:
    """Points on 0 to 1, and how far they lie apart: every combination, or where those are too many, the diagonal."""
    n = GRID if parameters == 1 else GRID_OF_SEVERAL
    levels = [i / (n - 1) for i in range(n)]
    if n**parameters > most:
        return [[u] * parameters for u in levels], 1 / (n - 1)
    return [list(u) for u in itertools.product(levels, repeat=parameters)], 1 / (n - 1)


@dataclass(frozen=True)
class _Unpatched:
    """All that `run_of` may know of a study while it is fitted."""

    before_policy: str


def fit(study: str | os.PathLike[str], *, near: bool = False, progress: Progress | None = None) -> Fit:
    """Derive every fitted parameter of a study again, from the unpatched rows that it names.

    Args:
        study: A name, or the path of a folder with study.toml.
        near: Take the study's own values where none around brings the rows closer, and derive the others: a small part
            of the time, and blind to a better value far from them.
        progress: Called some times a second.

    Raises:
        ContendError: Something is refused; StudyInvalid if the study's files are to blame.
        KeyboardInterrupt: Ctrl-C.
    """
    loaded = load(study)
    fitted = groups(loaded)
    total = sum(EVALUATIONS_PER_PARAMETER * len(g[0].fitted) * len(fit_rows(loaded, w)) for g in fitted for w in g)
    done = 0
    seen: dict[Run, Measured] = {}

    def run(runs: dict[Run, set[str]]) -> dict[Run, Measured]:
        nonlocal done
        measured = simulate(
            runs, lambda some, _all: progress(done + some, max(total, done + some)) if progress else None
        )
        done += len(runs)
        seen.update(measured)
        return measured

    lines, rows, failures = [], [], []
    before = Before(loaded.before_policy, loaded.before_set)
    for group in fitted:
        published = [(w, row) for w in group for row in fit_rows(loaded, w)]
        of_study = {p.key: p.value for p in group[0].fitted}
        values, confirmed = of_study, confirm(published, before, run) if near else None
        if confirmed is not None:
            found = confirmed
        else:
            values, found, _ = derive(published, before, run)
        fits = misfit(published, found)
        same = all(_near(values[k], v) for k, v in of_study.items())
        theirs = fits if same else misfit(published, simulated(published, before, [of_study], run)[0])
        ended = [seen[r] for r, _ in _asked(published, before, values)]
        for p in group[0].fitted:
            value = values[p.key]
            no_worse = fits is not None and theirs is not None and theirs <= fits * (1 + TOLERANCE) + LEAST
            lines.append(
                {
                    "workload": ", ".join(dict.fromkeys(w.name for w in group)),
                    "machine": ", ".join(dict.fromkeys(w.machine for w in group)),
                    "key": p.key,
                    "value": number(p.value),
                    "derived": None if fits is None else value,
                    "confirmed": confirmed is not None,
                    "lo": number(p.lo),
                    "hi": number(p.hi),
                    "misfit": fits,
                    "misfit_study": theirs,
                    "rows": sum(m.ok for m in ended),
                    "agrees": fits is not None and (no_worse or _near(value, p.value)),
                }
            )
        rows += [
            {
                "workload": w.name, "machine": w.machine, "x": number(r.x), "metric": r.metric, "published": r.value,
                "simulated": s,
            }
            for (w, r), s in zip(published, found, strict=True)
        ]  # fmt: skip
        asked = dict.fromkeys(r for r, _ in _asked(published, before, values))
        failures += [failure(r, seen[r]) for r in asked if not seen[r].ok]
    return Fit(loaded.name, lines, rows, done, failures)


def _near(value: float, other: float) -> bool:
    return abs(value - other) <= TOLERANCE * max(abs(value), abs(other))
