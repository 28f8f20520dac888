"""Simulating many runs at once: a thread a core, no GIL held while they run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from contend._core import ContendError
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


class _Stopped(Exception):
    """Another run failed, or Ctrl-C was pressed."""


def cores() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def _measure(run: Run, expressions: set[str], stop: threading.Event) -> Measured:
    def look(*_: object) -> None:
        if stop.is_set():
            raise _Stopped

    if stop.is_set():
        raise _Stopped
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
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=cores()) as pool:
        futures = {pool.submit(_measure, run, reads, stop): run for run, reads in runs.items()}
        # Not futures.wait(): Ctrl-C within it may leave a future's lock held, and its thread waits for ever.
        ended: SimpleQueue[Future[Measured]] = SimpleQueue()
        for future in futures:
            future.add_done_callback(ended.put)
        done = 0
        try:
            while done < len(futures):
                try:
                    future = ended.get(timeout=0.2)
                except Empty:
                    pass
                else:
                    done += 1
                    error = future.exception()
                    if isinstance(error, ContendError):
                        raise StudyInvalid(f"{error}\n  in: {futures[future].command}") from error
                    if error is not None:
                        raise error
                if progress:
                    progress(done, len(futures))
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        return {run: future.result() for future, run in futures.items()}
