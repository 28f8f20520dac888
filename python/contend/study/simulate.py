"""Simulating many runs at once: a thread a core, no GIL held while they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from contend._core import ContendError
from contend.parallel import Pool
from contend.run import run as simulate_one
from contend.study.model import Metric, Workload, host_policy
from contend.study.plan import Run
from contend.study.section import StudyInvalid
from contend.study.values import read

Progress = Callable[[int, int], object]
"""Called some times a second with the runs that are done and their number."""


@dataclass(frozen=True)
class Measured:
    """What was read off a run."""

    outcome: str
    detail: str
    values: dict[str, float | None]
    cpu_s: float

    @property
    def ok(self) -> bool:
        """Did it end as asked?"""
        return self.outcome in ("finished", "horizon")

    @property
    def sliced(self) -> bool:
        """Did it end at the horizon, with work left?"""
        return self.outcome == "horizon"


def value_of(w: Workload, metric: Metric, m: Measured, x: float) -> float | None:
    """The metric of a run. One that does a share of the work and ended before it was done has none."""
    return None if w.share < 1 and m.sliced else metric.value(m.values[metric.expression(x)], x)


def failure(run: Run, m: Measured) -> dict[str, Any]:
    """A run that did not end as asked, as JSON has it."""
    return {"outcome": m.outcome, "detail": m.detail, "replay": run.command}


def _measure(run: Run, expressions: set[str], look: Callable[..., object]) -> Measured:
    result = simulate_one(
        run.scenario,
        machine=run.machine,
        policy=host_policy(run.policy),
        set=dict(run.set),
        seed=run.seed,
        horizon_s=run.horizon_s,
        warmup_s=run.warmup_s,
        progress=look,
    )
    values = {e: read(result.summary, e) if result.ok else None for e in expressions}
    detail = str(result.summary["outcome_detail"])
    return Measured(result.outcome, detail, values, result.cpu_s or 0.0)


def simulate(runs: Mapping[Run, set[str]], progress: Progress | None = None) -> dict[Run, Measured]:
    """Simulate the runs and read the expressions off each.

    Ctrl-C stops all of them (KeyboardInterrupt); so does a run that is refused (ContendError).
    """
    measured: dict[Run, Measured] = {}

    def done(run: Run, future: Future[Measured]) -> None:
        try:
            measured[run] = future.result()
        except ContendError as e:
            raise StudyInvalid(f"{e}\n  in: {run.command}") from e

    def tick() -> None:
        if progress:
            progress(len(measured), len(runs))

    pool: Pool[Run, Measured] = Pool(lambda run, look: _measure(run, runs[run], look))
    pool.each(runs, done, tick)
    return {run: measured[run] for run in runs}
