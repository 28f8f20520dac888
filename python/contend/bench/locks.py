"""The lock benchmark: N threads in a loop of lock, critical section, unlock, think.

Natively on OS threads, all locks and repetitions interleaved; on the threads of a simulated machine; and on its bare
CPUs. Simulations run side by side.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from contend import _core
from contend._core import ContendError

Progress = Callable[[int, int, str], object]
Row = dict[str, Any]
Job = tuple[int, int, str]
"""Repetition, threads, lock."""

SECONDS_NATIVE = 1.0
SECONDS_SIMULATED = 0.3
WARMUP = 0.3
"""Until the operating system, simulated or not, has spread threads that it has just started evenly over the CPUs."""
SECONDS_BARE = 0.05
"""Virtual seconds: enough for 512 CPUs of a ticket lock to have had it more than once."""


@dataclass(frozen=True)
class Load:
    """What the threads do; `threads` is given apart."""

    critical_ns: int = 100
    think_ns: tuple[int, int] = (250, 750)
    hogs: int = 0
    seconds: float | None = None
    seed: int = 1

    def to_json(self, threads: int, seconds: float, seed: int, warmup: float = 0.0) -> str:
        """As the compiled part reads it. Bare CPUs have no warm-up: counting begins when each has had the lock once."""
        return json.dumps(
            {
                "threads": threads,
                "hogs": self.hogs,
                "critical_ns": self.critical_ns,
                "think_ns": self.think_ns,
                "warmup_ns": round(warmup * 1e9),
                "duration_ns": round((self.seconds or seconds) * 1e9),
                "seed": seed,
            }
        )


def known(world: str) -> list[dict[str, str]]:
    """The locks of a world (`native`, `simulated`, `bare`), each with `name` and `doc`, in the order of tables."""
    found: list[dict[str, str]] = json.loads(_core.bench_locks())[world]
    return found


def chosen(locks: Sequence[str] | None, world: str) -> list[str]:
    """The locks that are asked for, or all."""
    names = [lock["name"] for lock in known(world)]
    if not locks:
        return names
    for lock in locks:
        if lock not in names:
            raise ContendError(f"--locks: no lock named '{lock}'; there are {', '.join(names)}")
    return list(locks)


def native(
    locks: Sequence[str] | None = None,
    threads: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    *,
    load: Load | None = None,
    repeat: int = 3,
    progress: Progress | None = None,
) -> list[Row]:
    """Measure on this machine's threads; every repetition runs all locks with all numbers of threads.

    The locks of a repetition and a number of threads in an order drawn for these: what ran before must not favour one.
    """
    load, names = load or Load(), chosen(locks, "native")
    rows: list[Row] = []
    for r in range(repeat):
        for n in threads:
            for lock in random.Random(f"{r} {n}").sample(names, len(names)):
                if progress:
                    progress(len(rows), repeat * len(threads) * len(names), "runs")
                text = load.to_json(n, SECONDS_NATIVE, load.seed, WARMUP)
                rows.append(_measure(lock, text, r))
    rows.sort(key=lambda row: (row["repeat"], list(threads).index(row["threads"]), names.index(row["lock"])))
    return rows


def _measure(lock: str, load: str, repeat: int) -> Row:
    """Measure on a thread of its own, which Ctrl-C leaves behind: a run is not to be waited for, the process ends."""
    done: Future[Row] = Future()

    def run() -> None:
        try:
            done.set_result(json.loads(_core.bench_native(lock, load, repeat)))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result()


def simulated(
    machine: str,
    policy: str = "linux-6.18",
    locks: Sequence[str] | None = None,
    threads: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    *,
    load: Load | None = None,
    repeat: int = 1,
    progress: Progress | None = None,
) -> list[Row]:
    """Simulate threads under a policy's scheduler on `machine`: the prediction for what `native` measures there."""
    load, names = load or Load(), chosen(locks, "simulated")

    def one(job: Job) -> Row:
        r, n, lock = job
        text = load.to_json(n, SECONDS_SIMULATED, load.seed, WARMUP)
        row: Row = json.loads(_core.bench_simulated(lock, machine, policy, text, r))
        return {**row, "machine": machine}

    return _side_by_side([(r, n, lock) for r in range(repeat) for n in threads for lock in names], one, progress)


def bare(
    machine: str,
    locks: Sequence[str] | None = None,
    threads: Sequence[int] = (2, 4, 8, 16, 32, 64),
    *,
    load: Load | None = None,
    repeat: int = 1,
    progress: Progress | None = None,
) -> list[Row]:
    """Simulate on bare CPUs of `machine`: as many as `threads`. Each repetition has a seed of its own."""
    load, names = load or Load(), chosen(locks, "bare")

    def one(job: Job) -> Row:
        r, n, lock = job
        row: Row = json.loads(_core.bench_bare(lock, machine, load.to_json(n, SECONDS_BARE, load.seed + r)))
        return {**row, "repeat": r}

    return _side_by_side([(r, n, lock) for r in range(repeat) for n in threads for lock in names], one, progress)


def _side_by_side(jobs: Sequence[Job], one: Callable[[Job], Row], progress: Progress | None) -> list[Row]:
    rows: list[Row] = []
    pool = ThreadPoolExecutor(max_workers=os.cpu_count())
    try:
        for row in pool.map(one, jobs):
            rows.append(row)
            if progress:
                progress(len(rows), len(jobs), "runs")
    finally:
        # After Ctrl-C what has begun ends, and nothing else begins.
        pool.shutdown(cancel_futures=True)
    return rows


def medians(rows: Sequence[Row]) -> list[Row]:
    """One row for each lock and number of threads: the median of each number over the repetitions.

    And the extremes of the throughput (`throughput_lo`, `throughput_hi`).

    A number that is not there (infinite, or not known) in half of the repetitions or more is not there.
    """
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["lock"], count(row)), []).append(row)
    merged = []
    for group in groups.values():
        row = dict(group[0])
        for key, value in group[0].items():
            if isinstance(value, str) or key in ("threads", "cpus", "hogs", "repeat"):
                continue
            there = [r[key] for r in group if r[key] is not None]
            row[key] = statistics.median(there) if 2 * len(there) > len(group) else None
        row["repeats"] = len(group)
        del row["repeat"]
        row["throughput_lo"] = min(r["throughput"] for r in group)
        row["throughput_hi"] = max(r["throughput"] for r in group)
        merged.append(row)
    return merged


def count(row: Row) -> int:
    """Threads, or CPUs, on the lock."""
    n: int = row["threads"] if "threads" in row else row["cpus"]
    return n
