"""Studies, simulated and judged: runs to rows, rows to effects, effects to a summary."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from contend import _core, given
from contend.study import beyond as beyond_tables
from contend.study import judge
from contend.study.load import load, names, number
from contend.study.model import CHANGE, SEEDS_MAX, Row, Settings, Study, Workload
from contend.study.plan import Case, Options, Pair, Plan, Run, Single, ablations, cases, singles
from contend.study.section import StudyInvalid
from contend.study.simulate import Measured, Progress, failure, simulate, value_of

if TYPE_CHECKING:
    import polars as pl

SCHEMA = 1

ROW_KEYS = [
    "study", "table", "machine", "workload", "variant", "x_name", "x", "metric", "unit", "better", "published",
    "published_lo", "published_hi", "stdev_pct", "simulated", "simulated_spread_pct", "kind", "slice_ms", "warmup_ms",
    "sliced", "share",
]  # fmt: skip
EFFECT_KEYS = [
    "study", "table", "machine", "workload", "variant", "reference", "x", "metric", "published_pct", "noise_pct",
    "simulated_pct", "spread_pct", "band_lo_pct", "band_hi_pct", "kind", "sign_ok", "size_ok", "judged", "quiet_ok",
    "undetermined",
]  # fmt: skip
SCORE_KEYS = [
    "right_sign_share", "right_size_share", "median_error_pp", "worst_error_pp", "rows_judged", "quiet_rows",
    "quiet_within_share", "median_error_all_pp", "worst_error_all_pp", "rows_all",
]  # fmt: skip


@dataclass
class Reproduction:
    """What `contend reproduce` found. `rows`, `effects`, `summary`, `ablation` and `beyond` are polars frames;
    `to_dict` is the object of `contend reproduce --json`."""

    studies: list[Study]
    options: Options
    row_list: list[dict[str, Any]] = field(default_factory=list)
    effect_list: list[dict[str, Any]] = field(default_factory=list)
    ablation_list: list[dict[str, Any]] = field(default_factory=list)
    beyond_list: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    runs: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    asked: tuple[str, ...] = ()

    @property
    def scores(self) -> dict[str, Any]:
        """The summary over all predicted rows, as an object."""
        return {
            **judge.summary(self.effect_list),
            "runs": self.runs,
            "cpu_s": self.cpu_s,
            "wall_s": self.wall_s,
            "slices": self._slices(),
        }

    def _slices(self, study: str | None = None) -> str:
        rows = [r for r in self.row_list if study in (None, r["study"])]
        sliced = [r for r in rows if r["sliced"]]
        if not sliced:
            return "all work was simulated whole"
        lengths = sorted({r["slice_ms"] for r in sliced if r["share"] == 1})
        shares = sorted({r["share"] for r in sliced if r["share"] < 1})
        what = [f"slices of {lengths[0]:g}{f' to {lengths[-1]:g}' if len(lengths) > 1 else ''} ms"] if lengths else []
        what += [f"runs of {', '.join(f'{100 * s:g}' for s in shares)} % of the work"] if shares else []
        return f"{len(sliced)} of {len(rows)} rows are {' or '.join(what)}, scaled by work done"

    def of(self, study: str) -> dict[str, Any]:
        """The summary of one study."""
        scores = judge.summary([e for e in self.effect_list if e["study"] == study])
        return {**scores, "slices": self._slices(study)}

    @property
    def rows(self) -> pl.DataFrame:
        """Published and simulated values."""
        return _frame(self.row_list, ROW_KEYS)

    @property
    def effects(self) -> pl.DataFrame:
        """Published and simulated effects."""
        return _frame(self.effect_list, EFFECT_KEYS)

    @property
    def summary(self) -> pl.DataFrame:
        """A row for the model and each baseline, over all studies (`study` is "all") and for each."""
        rows = []
        scopes = [("all", judge.summary(self.effect_list))]
        if len(self.studies) > 1:
            scopes += [(s.name, self.of(s.name)) for s in self.studies]
        for name, found in scopes:
            for predictor, scores in (("model", found), *found["baselines"].items()):
                rows.append({"study": name, "predictor": predictor, **{k: scores[k] for k in SCORE_KEYS}})
        return _frame(rows, ["study", "predictor", *SCORE_KEYS])

    @property
    def ablation(self) -> pl.DataFrame:
        """Effects of each feature alone, and of all but each."""
        return _frame(self.ablation_list, ABLATION_KEYS)

    @property
    def beyond(self) -> pl.DataFrame:
        """The tables without published values, a row a value."""
        return beyond_tables.frame(self.beyond_list)

    def to_dict(self) -> dict[str, Any]:
        """The object that `contend reproduce --json` prints."""
        found: dict[str, Any] = {
            "schema": SCHEMA,
            "contend": _core.__version__,
            "studies": [
                {
                    "name": s.name,
                    "title": s.title,
                    "source": s.source,
                    "seeds": len(self.options.seeds_of(s)),
                    "draws": self.options.draws_of(s),
                    "summary": self.of(s.name),
                }
                for s in self.studies
            ],
            "quick": self.options.quick,
            "rows": self.row_list,
            "effects": self.effect_list,
            "summary": self.scores,
        }
        if "ablate" in self.asked:
            found["ablation"] = self.ablation_list
        if "beyond" in self.asked:
            found["beyond"] = self.beyond_list
        return {**found, "failures": self.failures}

    def __repr__(self) -> str:
        s = judge.summary(self.effect_list)
        return (
            f"<contend.Reproduction of {', '.join(s.name for s in self.studies)}: {len(self.row_list)} rows, "
            f"{len(self.effect_list)} effects, {s['rows_judged']} judged>"
        )


def _frame(rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> pl.DataFrame:
    import polars as pl

    words = {
        "study", "table", "machine", "workload", "variant", "reference", "x_name", "metric", "unit", "better", "kind",
        "predictor", "note", "switch",
    }  # fmt: skip
    flags = {"sign_ok", "size_ok", "judged", "quiet_ok", "undetermined", "sliced"}
    counts = {"rows_judged", "quiet_rows", "rows_all"}

    def kind(key: str) -> Any:
        return pl.String if key in words else pl.Boolean if key in flags else pl.Int64 if key in counts else pl.Float64

    return pl.DataFrame({k: pl.Series(k, [r[k] for r in rows], dtype=kind(k), strict=False) for k in keys})


class _Readings:
    """Values of runs, through the metric of a case."""

    def __init__(self, measured: dict[Run, Measured]) -> None:
        self.measured = measured

    def value(self, case: Case, run: Run) -> float | None:
        """The metric of a run; of a normalized one or a reduction, the number it is made of."""
        metric = case.workload.metric(case.after.metric)
        assert metric is not None
        return value_of(case.workload, metric, self.measured[run], case.after.x)

    def mean(self, case: Case, runs: Sequence[Run]) -> float | None:
        """The mean over seeds; None if one is missing."""
        return _mean([self.value(case, r) for r in runs])[0]

    def effect(self, case: Case, pair: Pair) -> float | None:
        """The effect at one seed or draw."""
        return _effect(case, self.value(case, pair.before), self.value(case, pair.after))


def _mean(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """The mean over seeds, None if one is missing; the standard deviation of those that are there, in per cent."""
    known = [v for v in values if v is not None]
    mean = statistics.fmean(known) if known and len(known) == len(values) else None
    return mean, 100 * statistics.stdev(known) / abs(mean) if mean and len(known) > 1 else None


def _effect(case: Case, before: float | None, after: float | None) -> float | None:
    """Positive where it is better: where a reduction falls by more, if the post says so."""
    change = _change(case, before, after)
    return change if change is None or case.after.higher_is_better else -change


def _change(case: Case, before: float | None, after: float | None) -> float | None:
    """By how many per cent the number rises; by how many it falls where the metric is a reduction."""
    metric = case.workload.metric(case.after.metric)
    assert metric is not None
    return judge.effect_pct(before, after, higher_is_better=metric.form != "reduction" or case.after.variant != CHANGE)


def _published(before: Row | None, after: Row) -> tuple[float | None, float]:
    """The published effect and its noise."""
    if before is None:
        value = after.published
        noise = judge.NOISE_PCT if after.stdev_pct is None else after.stdev_pct
        return (value if value is None or after.higher_is_better else -value), noise
    effect = judge.effect_pct(before.published, after.published, higher_is_better=after.higher_is_better)
    return effect, judge.noise_pct(before.stdev_pct, after.stdev_pct)


def _effect_row(case: Case, readings: _Readings) -> dict[str, Any]:
    after, before = case.after, case.before
    means = [readings.mean(case, [getattr(p, side) for p in case.seeds]) for side in ("before", "after")]
    simulated = _effect(case, *means)
    by_seed = [readings.effect(case, p) for p in case.seeds]
    by_draw = [readings.effect(case, p) for p in case.draws]
    lo, hi = judge.band_pct([*by_draw, simulated]) if by_draw else (None, None)
    published, noise = _published(before, after)
    return _keyed(EFFECT_KEYS, {
        **_place(after), "variant": after.variant, "reference": case.study.reference, "published_pct": published,
        "noise_pct": noise, "simulated_pct": simulated, "spread_pct": judge.spread_pct(by_seed), "band_lo_pct": lo,
        "band_hi_pct": hi, "kind": "predicted", **judge.judgement(published, noise, simulated),
        "undetermined": judge.undetermined(lo, hi),
    })  # fmt: skip


def _place(row: Row) -> dict[str, Any]:
    return {
        "study": row.study, "table": row.table, "machine": row.machine, "workload": row.workload,
        "x": number(row.x), "metric": row.metric,
    }  # fmt: skip


def _keyed(keys: Sequence[str], values: dict[str, Any]) -> dict[str, Any]:
    return {k: values[k] for k in keys}


def _row(
    study: Study, row: Row, options: Options, simulated: float | None, spread: float | None, *, sliced: bool
) -> dict[str, Any]:
    w = study.workload_of(row)
    fit = w is not None and w.is_fit(row, study.reference)
    warmup, length = (None, None) if w is None else w.span_ms(quick=options.quick)
    return _keyed(ROW_KEYS, {
        **_place(row), "variant": row.variant, "x_name": row.x_name, "unit": row.unit, "better": row.better,
        "published": row.published, "published_lo": row.lo, "published_hi": row.hi, "stdev_pct": row.stdev_pct,
        "simulated": simulated, "simulated_spread_pct": spread, "kind": "fit" if fit else "predicted",
        "slice_ms": length, "warmup_ms": warmup,
        "sliced": sliced or (simulated is not None and w is not None and w.share < 1),
        "share": None if w is None else w.share,
    })  # fmt: skip


def _rows(
    study: Study, found: Sequence[Case], alone: Sequence[Single], readings: _Readings, options: Options
) -> list[dict[str, Any]]:
    by_single = {s.row: s for s in alone}
    by_row: dict[Row, tuple[Case, str]] = {}
    for case in found:
        by_row[case.after] = (case, "after")
        if case.before is not None:
            by_row.setdefault(case.before, (case, "before"))
    rows = []
    for row in study.rows:
        if row in by_single:
            single = by_single[row]
            measured = [readings.measured[r] for r in single.runs]
            values = [value_of(single.workload, single.metric, m, row.x) for m in measured]
            mean, spread = _mean(values)
            rows.append(_row(study, row, options, mean, spread, sliced=any(m.sliced for m in measured)))
            continue
        if row not in by_row:
            rows.append(_row(study, row, options, None, None, sliced=False))
            continue
        case, side = by_row[row]
        runs = [getattr(p, side) for p in case.seeds]
        simulated, spread = _mean([readings.value(case, r) for r in runs])
        form = case.workload.metric(row.metric)
        assert form is not None
        if form.form == "normalized":
            base = readings.mean(case, [p.before for p in case.seeds])
            simulated = simulated / base if simulated is not None and base else None
        if row.variant == CHANGE:
            pairs = [readings.mean(case, [getattr(p, s) for p in case.seeds]) for s in ("before", "after")]
            simulated = _change(case, *pairs)
            spread = None
        sliced = any(readings.measured[r].sliced for r in runs)
        rows.append(_row(study, row, options, simulated, spread, sliced=sliced))
    return rows


ABLATION_KEYS = ["study", "table", "workload", "machine", "x", "metric", "switch", "variant", "simulated_pct", "note"]


@dataclass(frozen=True)
class _Ablated:
    switch: str
    variant: str
    cases: list[Case]
    note: str


def _ablated(study: Study, options: Options, plan: Plan) -> list[_Ablated]:
    found = []
    for a in ablations(study):
        for features, note in ((a.features, ""), *a.instead):
            tried = Plan()
            switches: dict[str, Settings] = {a.switch: features}
            made = cases(study, options, tried, switches)
            if made and _accepted(made[0].seeds[0].after):
                for run, reads in tried.runs.items():
                    plan.add(run, reads)
                found.append(_Ablated(a.switch, a.variant, made, note))
                break
    return found


def _accepted(run: Run) -> bool:
    """Can a kernel have these features together?"""
    try:
        run.resolved()
    except _core.ContendError:
        return False
    return True


def _ablation_rows(ablated: Sequence[_Ablated], readings: _Readings) -> list[dict[str, Any]]:
    rows = []
    for a in ablated:
        for case in a.cases:
            means = [readings.mean(case, [getattr(p, s) for p in case.seeds]) for s in ("before", "after")]
            simulated = _effect(case, *means)
            found = {"switch": a.switch, "variant": a.variant, "simulated_pct": simulated, "note": a.note}
            rows.append(_keyed(ABLATION_KEYS, {**_place(case.after), **found}))
    return rows


def planned(study: Study, *, quick: bool = False, seeds: int | None = None) -> list[Run]:
    """The runs behind a study's rows, effects and bands."""
    plan = Plan()
    cases(study, Options(quick, seeds), plan)
    singles(study, Options(quick, seeds), plan)
    return list(plan.runs)


def reproduce(
    studies: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    quick: bool = False,
    seeds: int | None = None,
    ablate: bool = False,
    beyond: bool = False,
    progress: Progress | None = None,
) -> Reproduction:
    """Simulate studies and compare with what was published.

    Args:
        studies: A name, a path of a folder with study.toml, or several; all shipped ones if left out.
        quick: Short slices, one seed and no bands.
        seeds: Runs of each variant, in place of the study's number.
        ablate: Also the effect of each feature alone, and of all but each.
        beyond: The tables without published values instead.
        progress: Called some times a second.

    Raises:
        ContendError: Something is refused; StudyInvalid if a study's files are to blame.
        KeyboardInterrupt: Ctrl-C.
    """
    given.whole("seeds", seeds)
    if seeds is not None and not 1 <= seeds <= SEEDS_MAX:
        raise _core.ContendError(f"--seeds: found {seeds}; should be a whole number from 1 to {SEEDS_MAX:,}")
    if studies is None:
        studies = names()
        if not studies:
            raise _core.ContendError("no study ships with this package: name a folder with study.toml")
    elif isinstance(studies, (str, os.PathLike)) or not isinstance(studies, Sequence):
        studies = [studies]
    began = time.monotonic()
    options = Options(quick, seeds)
    loaded = list({s.folder.resolve(): s for s in map(load, studies)}.values())
    for i, study in enumerate(loaded):
        for other in loaded[:i]:
            if study.name == other.name:
                raise StudyInvalid(f"{study.folder}: found name = '{study.name}', which {other.folder} has too")
    plan = Plan()
    asked = (*(["ablate"] if ablate else []), *(["beyond"] if beyond else []))
    tables = [beyond_tables.table(s, b, options, plan) for s in loaded for b in s.beyond] if beyond else []
    found = [] if beyond else [(s, cases(s, options, plan), singles(s, options, plan)) for s in loaded]
    ablated = [a for s in loaded for a in _ablated(s, options, plan)] if ablate else []
    measured = _simulate(plan, found, progress)
    readings = _Readings(measured)
    result = Reproduction(loaded, options, asked=asked)
    for study, study_cases, alone in found:
        result.row_list += _rows(study, study_cases, alone, readings, options)
        effects = {c.after: _effect_row(c, readings) for c in study_cases} | _unmodelled(study)
        result.effect_list += [effects[row] for row in study.rows if row in effects]
    result.ablation_list = _ablation_rows(ablated, readings)
    result.beyond_list = [row for t in tables for row in t.rows(measured)]
    result.failures = [failure(run, m) for run, m in measured.items() if not m.ok]
    result.runs = len(measured)
    result.cpu_s = sum(m.cpu_s for m in measured.values())
    result.wall_s = time.monotonic() - began
    return result


Found = tuple[Study, list[Case], list[Single]]


def _simulate(plan: Plan, found: Sequence[Found], progress: Progress | None) -> dict[Run, Measured]:
    """Simulate all runs. A metric that no run has is a mistake in study.toml, not a result: the first run of each
    workload tells before the rest is run, and where that does not have it, all of the first seed."""
    measured: dict[Run, Measured] = {}

    def more(runs: Iterable[Run]) -> None:
        done = len(measured)
        todo = {r: plan.runs[r] for r in runs if r not in measured}
        look = (lambda some, _all: progress(done + some, len(plan.runs))) if progress else None
        measured.update(simulate(todo, look))

    read = [(study, w, *of) for study, made, alone in found for w in study.workloads for of in _reads(w, made, alone)]
    more(runs[0] for _, _, _, runs in read)
    absent = [of for of in read if measured[of[3][0]].values[of[2]] is None]
    more(run for _, _, _, runs in absent for run in runs)
    for study, w, expression, runs in absent:
        ended = [measured[r] for r in runs if measured[r].ok]
        if ended and all(m.values[expression] is None for m in ended):
            raise StudyInvalid(
                f"{study.folder / 'study.toml'}:{w.line}: metric: found {expression}, which no run of {w.name} on "
                f"{w.machine} reports; should be what the workload counts (docs/workloads.md), and the slice long "
                "enough for it"
            )
    more(plan.runs)
    return {run: measured[run] for run in plan.runs}


def _reads(w: Workload, found: Sequence[Case], alone: Sequence[Single]) -> list[tuple[str, list[Run]]]:
    """What is read of a workload, and of which runs of the first seed."""
    reads: dict[str, list[Run]] = {}
    for c in found:
        if c.workload is w:
            reads.setdefault(c.expression, []).extend([c.seeds[0].before, c.seeds[0].after])
    for s in alone:
        if s.workload is w:
            reads.setdefault(s.metric.expression(s.row.x), []).append(s.runs[0])
    return list(reads.items())


def _unmodelled(study: Study) -> dict[Row, dict[str, Any]]:
    """Effects that were published and that no workload of the study stands for: printed, with nothing simulated. By the
    row of the patched system."""
    found = {}
    for row in study.rows:
        if row.variant == study.reference or study.workload_of(row) is not None:
            continue
        published, noise = _published(study.before(row), row)
        found[row] = _keyed(EFFECT_KEYS, {
            **_place(row), "variant": row.variant, "reference": study.reference, "published_pct": published,
            "noise_pct": noise, "simulated_pct": None, "spread_pct": None, "band_lo_pct": None, "band_hi_pct": None,
            "kind": "predicted", **judge.judgement(published, noise, None), "undetermined": None,
        })  # fmt: skip
    return found
