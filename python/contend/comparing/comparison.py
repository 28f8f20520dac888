"""Comparing results: runs under several seeds, differences with intervals, and where the runs part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contend import explain, given, guests
from contend._core import ContendError
from contend.comparing import work
from contend.comparing.divergence import Divergence, diverge, identity
from contend.comparing.numbers import SEEDS_DEFAULT, SEEDS_MAX
from contend.comparing.sides import Comparable, Side, read, seeds_of
from contend.comparing.statistics import CONFIDENCE, NO_SPREAD, Difference, Sample, band, band_confidence, welch
from contend.parallel import Pool, check_jobs
from contend.quantity import Quantity, asked, check_expression, quantities
from contend.result import Result
from contend.run import run
from contend.xen import report

if TYPE_CHECKING:
    import polars as pl

SCHEMA = 1
ELAPSED = ("virtual_s", "last guest finished")
RAN = ("workload", "machine", "cpus", "policy", "set", "outcome", "virtual_s", "contend")

Progress = Callable[[int, int], object]
"""Called some times a second with the runs that are done and their number."""


@dataclass(frozen=True)
class Row:
    """One quantity of the baseline and of a result; `difference` is None where a run has no such number."""

    group: str
    name: str
    unit: str
    better: int
    baseline: Sample | None
    result: Sample | None
    difference: Difference | None
    spread: bool = True

    @property
    def verdict(self) -> str | None:
        """better, worse, more, less, no difference shown; no spread: no run of a side differs. None: not compared."""
        if self.difference is None:
            return None
        return self.difference.verdict(self.better) if self.spread or not self.difference.value else NO_SPREAD

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        d = self.difference

        def of(sample: Sample | None) -> dict[str, Any] | None:
            return None if sample is None else {"mean": sample.mean, "sd": sample.sd, "values": list(sample.values)}

        return {
            "group": self.group,
            "name": self.name,
            "unit": self.unit,
            "baseline": of(self.baseline),
            "result": of(self.result),
            "difference": d and d.value,
            "interval": [d.low, d.high] if d and self.spread else None,
            "difference_pct": d and d.pct(d.value),
            "interval_pct": [d.pct(d.low), d.pct(d.high)] if d and self.spread else None,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class Runs:
    """The runs of one side: summaries by seed. Those that did not end as asked are in `failed`, and nowhere else.

    `result` is the run of the first seed with its tables.
    """

    side: Side
    ended: dict[int, dict[str, Any]]
    failed: dict[int, dict[str, Any]]
    result: Result

    @property
    def first(self) -> dict[str, Any]:
        """The summary of the run of the first seed."""
        return next(iter((self.ended or self.failed).values()))

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        s = self.first
        return {
            "name": self.side.name,
            "command": self.side.command(next(iter(self.ended or self.failed))),
            "what": guests.what_ran(s),
            "under": explain.under(s),
            **{key: s[key] for key in RAN},
            "seeds": list(self.ended),
            "own_seed": self.own_seed,
            "failed": [
                {"seed": seed, "outcome": s["outcome"], "detail": s["outcome_detail"]}
                for seed, s in self.failed.items()
            ],
            "stored_differs": self.stored_differs,
        }

    @property
    def own_seed(self) -> int | None:
        """The seed that its scenario names, where it is not among those of its runs."""
        used = {**self.ended, **self.failed}
        return None if self.side.given or self.side.seed in used else self.side.seed

    @property
    def stored_differs(self) -> bool:
        """The result as stored is not what its scenario gives today."""
        stored = self.side.stored
        again = {**self.ended, **self.failed}.get(self.side.seed)
        return bool(stored and again and identity(stored.summary) != identity(again))


@dataclass(frozen=True)
class Against:
    """A result against the baseline.

    `same_work`: all runs did the same work to its end, so totals are compared and not rates. `spread`: seeds change the
    runs; where they do not, as with most recordings, repeats say nothing of chance, and there are no verdicts.
    """

    runs: Runs
    changed: dict[str, list[str]]
    same_work: bool
    spread: bool
    rows: tuple[Row, ...]
    divergence: Divergence | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            **self.runs.to_dict(),
            "changed": self.changed,
            "same_work": self.same_work,
            "spread": self.spread,
            "metrics": [row.to_dict() for row in self.rows],
            "divergence": self.divergence and self.divergence.to_dict(),
        }


@dataclass(frozen=True)
class Comparison:
    """What `contend compare` found. `draws` of the machines' costs, or 0: then runs differ by their seeds."""

    baseline: Runs
    results: tuple[Against, ...]
    draws: int = 0

    @property
    def failures(self) -> list[tuple[Side, int, dict[str, Any]]]:
        """Runs that did not end as asked: whose, seed and summary."""
        all_runs = [self.baseline, *(a.runs for a in self.results)]
        return [(runs.side, seed, s) for runs in all_runs for seed, s in runs.failed.items()]

    def frame(self) -> pl.DataFrame:
        """A row a result and quantity: means, difference in per cent with its interval, verdict."""
        import polars as pl

        rows = []
        for against in self.results:
            for row in against.rows:
                d = row.difference
                rows.append({
                    "result": against.runs.side.name, "group": row.group, "name": row.name, "unit": row.unit,
                    "baseline_mean": row.baseline and row.baseline.mean, "result_mean": row.result and row.result.mean,
                    "difference": d and d.value, "low": d.low if d and row.spread else None,
                    "high": d.high if d and row.spread else None,
                    "difference_pct": d and d.pct(d.value), "low_pct": d.pct(d.low) if d and row.spread else None,
                    "high_pct": d.pct(d.high) if d and row.spread else None, "verdict": row.verdict,
                })  # fmt: skip
        text = ("result", "group", "name", "unit", "verdict")
        numbers = ("baseline_mean", "result_mean", "difference", "low", "high", "difference_pct", "low_pct", "high_pct")
        order = [*text[:4], *numbers, "verdict"]
        return pl.DataFrame(rows, schema={c: pl.String if c in text else pl.Float64 for c in order})

    def to_dict(self) -> dict[str, Any]:
        """The object of `--json`."""
        return {
            "schema": SCHEMA,
            "draws": self.draws,
            "confidence": band_confidence(self.draws) if self.draws else CONFIDENCE,
            "baseline": self.baseline.to_dict(),
            "results": [a.to_dict() for a in self.results],
        }


def changes(s: dict[str, Any], b: dict[str, Any]) -> dict[str, list[str]]:
    """How a result's scenario differs from the baseline's, by their summaries: key to both values, baseline first."""
    features = {
        key: [str(b["features"].get(key)), str(value)]
        for key, value in s["features"].items()
        if b["features"].get(key) != value
    }
    features = report.collapsed(features | guests.changed(s, b) | report.changed(s, b), s, b)
    ran = {key: [str(b[key]), str(s[key])] for key in ("machine", "workload", "policy") if b[key] != s[key]}
    costs = {
        key: [str(x["set"].get(key, "the machine's")) for x in (b, s)]
        for key in {**b["set"], **s["set"]}
        if key.startswith("machine.") and b["set"].get(key) != s["set"].get(key)
    }
    return ran | features | costs


def _sample(found: list[dict[str, Quantity]], name: str, drawn: bool) -> Sample | None:
    values = [q[name].value if name in q else None for q in found]
    numbers = [v for v in values if v is not None]
    return Sample(tuple(numbers), drawn) if len(numbers) == len(values) else None


def _spread(*sides: Runs) -> bool:
    return any(len({identity(s) for s in runs.ended.values()}) > 1 for runs in sides)


def _rows(result: Runs, baseline: Runs, metrics: Sequence[str] | None) -> tuple[bool, tuple[Row, ...]]:
    drawn = bool(baseline.side.costs)
    # Seeds alone are no pairs; costs are.
    paired = [seed for seed in baseline.ended if seed in result.ended]
    olds, news = ([runs.ended[s] for s in (paired if drawn else runs.ended)] for runs in (baseline, result))
    same_work = all(s["outcome"] == "finished" for s in [*olds, *news])
    same_work = same_work and work.same_work(baseline.result, result.result)
    if min(len(olds), len(news)) < 2:
        return same_work, ()

    def of(summary: dict[str, Any]) -> dict[str, Quantity]:
        found = quantities(summary)
        groups = {q.group for q in found}
        if metrics is not None:
            named = {q.name: q for q in found}
            found = [
                q
                for m in metrics
                for q in ([x for x in found if x.group == m] if m in groups else [named.get(m) or asked(summary, m)])
            ]
        # More time for other work is neither better nor worse.
        return {q.name: q if same_work else q.rate(summary["virtual_s"]).judged(q.name not in ELAPSED) for q in found}

    spread = _spread(baseline, result)
    old, new = [of(s) for s in olds], [of(s) for s in news]
    rows = []
    for name, q in {**old[0], **new[0]}.items():
        a, b = _sample(old, name, drawn), _sample(new, name, drawn)
        if metrics is None and not any(s and any(s.values) for s in (a, b)):
            continue
        difference = (band if drawn else welch)(b.values, a.values) if a and b else None
        # What no seed changed says nothing of what another might.
        varies = drawn or any(s and s.sd for s in (a, b))
        rows.append(Row(q.group, name, q.unit, q.better, a, b, difference, spread and varies))
    return same_work, tuple(rows)


def _simulate(
    sides: Sequence[Side], seeds: dict[int, Sequence[int]], jobs: int | None, progress: Progress | None
) -> list[Runs]:
    found = {(i, seed): result for i, side in enumerate(sides) for seed, result in side.given.items()}
    summaries = {key: result.summary for key, result in found.items()}
    todo = [(i, seed) for i, side in enumerate(sides) if not side.given for seed in seeds[i]]

    def simulate(job: tuple[int, int], look: Callable[..., object]) -> Result:
        side, seed = sides[job[0]], job[1]
        return run(side.scenario, seed=seed, set=side.costs.get(seed), progress=look)

    def collect(job: tuple[int, int], future: Future[Result]) -> None:
        result = future.result()
        summaries[job] = result.summary
        # Tables are large; one run of each side keeps them.
        if job[1] == seeds[job[0]][0]:
            found[job] = result

    pool = Pool(simulate, jobs)
    given = len(summaries)
    pool.each(todo, collect, lambda: progress(len(summaries) - given, len(todo)) if progress else None)
    out = []
    for i, side in enumerate(sides):
        mine = {seed: summaries[i, seed] for seed in seeds[i]}
        ended = {seed: s for seed, s in mine.items() if s["outcome"] in ("finished", "horizon")}
        failed = {seed: s for seed, s in mine.items() if seed not in ended}
        out.append(Runs(side, ended, failed, found[i, seeds[i][0]]))
    return out


def _runs(seeds: int | None, vary_machine: int) -> int:
    """How many runs of each side."""
    given.whole("seeds", seeds)
    given.whole("vary_machine", vary_machine)
    if seeds is not None and vary_machine:
        raise ContendError("seeds and vary_machine: should be one of them")
    if vary_machine and not 2 <= vary_machine <= SEEDS_MAX:
        raise ContendError(f"--vary-machine: found {vary_machine}; should be 2 to {SEEDS_MAX:,}")
    seeds = SEEDS_DEFAULT if seeds is None else seeds
    if not 2 <= seeds <= SEEDS_MAX:
        raise ContendError(f"--seeds: found {seeds}; should be 2 to {SEEDS_MAX:,}: one run shows no spread")
    return vary_machine + 1 if vary_machine else seeds


def compare(
    baseline: Comparable,
    *results: Comparable,
    seeds: int | None = None,
    vary_machine: int = 0,
    metrics: str | Sequence[str] | None = None,
    divergence: bool = True,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare results with a baseline.

    Each side is a stored result or a scenario, which is run under several seeds, or a directory of several results:
    repeats, which are taken as they are.

    Args:
        baseline: What the others are compared with.
        *results: At least one.
        seeds: Runs of each, from the baseline's own seed on; at least 2, and 5 if left out.
        vary_machine: In place of seeds: a run of each under its machine's own costs, and so many more under draws of
            those costs that have a range, the same for all sides. Differences then have a band, lowest to highest.
        metrics: Names or groups of what `contend compare` shows, or expressions as in a sweep, or one of these; all
            quantities that are not 0 everywhere if left out.
        divergence: Look for the first scheduling event that differs.
        jobs: Cores to use; all if left out.
        progress: Called some times a second.

    Raises:
        ContendError: Something is refused.
        KeyboardInterrupt: Ctrl-C.
    """
    if not results:
        raise ContendError("compare: found one result; should be a baseline and at least one other")
    each = _runs(seeds, vary_machine)
    check_jobs(jobs)
    metrics = [metrics] if isinstance(metrics, str) else metrics
    for m in metrics or ():
        if not isinstance(m, str):
            given.refuse("metrics", m, "text: the name of a metric")
        if "." in m and " " not in m:
            check_expression(m, "--metric")
    sides = [read(what, i) for i, what in enumerate((baseline, *results), 1)]
    all_seeds = seeds_of(sides, each)
    if vary_machine:
        for i, side in enumerate(sides):
            side.vary(all_seeds[i])
    base, *others = _simulate(sides, all_seeds, jobs, progress)
    against = []
    for runs in others:
        same_work, rows = _rows(runs, base, metrics)
        parted = None
        common = [s for s in all_seeds[0] if s in base.ended and s in runs.ended]
        if divergence and common and common[0] not in base.side.costs:
            both = (base.ended[common[0]], runs.ended[common[0]])
            parted = diverge(base.side.scenario, runs.side.scenario, both, common[0])
        changed = changes(runs.first, base.first) | work.changed(runs.result, base.result)
        against.append(Against(runs, changed, same_work, _spread(base, runs), rows, parted))
    for m in metrics or ():
        rows = tuple(r for a in against for r in a.rows if m in (r.name, r.group))
        if any(a.rows for a in against) and not any(r.baseline or r.result for r in rows):
            raise ContendError(f"--metric: no run has {m!r}; `contend compare --json` names what there is")
    return Comparison(base, tuple(against), vary_machine)
