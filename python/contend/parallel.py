"""Work on all cores: simulations hold no GIL, so threads do."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from contend._core import ContendError

T = TypeVar("T")
R = TypeVar("R")

LOOK_S = 0.2
"""Time between two looks at what is done, and for Ctrl-C."""


class Stopped(Exception):
    """A simulation was told to end because another one failed or Ctrl-C was pressed."""


def cores() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def check_jobs(jobs: int | None) -> None:
    """Refuse what is no number of cores."""
    if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1):
        raise ContendError(f"--jobs: found {jobs!r}; should be a whole number, 1 or more")


def _taken(ended: SimpleQueue[T]) -> Iterator[T]:
    """What has come, after a wait for the first; nothing if none comes for a while."""
    try:
        yield ended.get(timeout=LOOK_S)
        while True:
            yield ended.get_nowait()
    except Empty:
        return


class Pool(Generic[T, R]):
    """Threads that do `work` to items.

    `work(item, look)` hands `look` to `contend.run` as its progress, so that it ends soon when the pool is left early.
    """

    def __init__(self, work: Callable[[T, Callable[..., object]], R], jobs: int | None = None) -> None:
        self.jobs = jobs or cores()
        self._work = work
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(max_workers=self.jobs)

    def _look(self, *_: object) -> None:
        if self._stop.is_set():
            raise Stopped

    def _one(self, item: T) -> R:
        self._look()
        return self._work(item, self._look)

    def each(
        self, items: Iterable[T], done: Callable[[T, Future[R]], object], tick: Callable[[], object] = lambda: None
    ) -> None:
        """Do all items; call `done` with each, in the order in which they end, and `tick` some times a second.

        Few items are taken ahead: an iterator of many takes no memory. Whatever `done` or `tick` raises, Ctrl-C
        included, ends the others first.
        """
        todo = iter(items)
        running: dict[Future[R], T] = {}
        # Not futures.wait(): Ctrl-C within it may leave a future's lock held, and its thread waits for ever.
        ended: SimpleQueue[Future[R]] = SimpleQueue()
        more = True
        try:
            while more or running:
                while more and len(running) < 4 * self.jobs:
                    try:
                        item = next(todo)
                    except StopIteration:
                        more = False
                        break
                    future = self._pool.submit(self._one, item)
                    running[future] = item
                    future.add_done_callback(ended.put)
                if running:
                    for future in _taken(ended):
                        done(running.pop(future), future)
                tick()
        except BaseException:
            self._stop.set()
            raise
        finally:
            self._pool.shutdown(wait=True, cancel_futures=True)
