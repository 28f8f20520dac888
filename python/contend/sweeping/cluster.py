"""Running tasks on a Dask cluster.

Workers need contend (the same build) and nothing else: no shared files. What scenarios read travels once to each
worker, those that join later included, as a plugin that Dask's scheduler keeps. A task that was on a worker that died
runs again elsewhere; Dask gives up on one whose workers died four times, and so do we: its row says so.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from contend._core import ContendError
from contend.sweeping.scenarios import Task, build
from contend.sweeping.work import ERROR, Row, execute, failed, place

try:
    from distributed import Client, WorkerPlugin, as_completed, get_worker
    from distributed.scheduler import KilledWorker
except ImportError as e:
    raise ContendError("--cluster needs Dask: pip install 'contend[cluster]'") from e

CONNECT_S = 10
LOOK_S = 0.02
AHEAD = 1000
"""Tasks that the scheduler is given before the first ends: enough that clusters that grow by need do."""


class Inputs(WorkerPlugin):
    """Puts the sweep's files on a worker, and refuses a worker with another contend."""

    def __init__(self, name: str, files: dict[str, bytes], wanted: str) -> None:
        self.name = name
        self.files = files
        self.wanted = wanted
        self.root: Path | None = None

    def setup(self, worker: Any) -> None:
        """Called once on each worker."""
        if build() != self.wanted:
            raise ContendError(f"worker {worker.address}: found contend {build()}; should be {self.wanted}, as here")
        self.root = Path(tempfile.mkdtemp(prefix="contend-sweep-"))
        place(self.files, self.root)

    def teardown(self, worker: Any) -> None:
        """Called when the worker or the sweep ends."""
        if self.root:
            shutil.rmtree(self.root, ignore_errors=True)


def _remote(task: Task, plugin: str) -> Row:
    """Runs on a worker."""
    inputs = get_worker().plugins[plugin]
    assert isinstance(inputs, Inputs)
    assert inputs.root is not None
    return execute(task, inputs.root)


def connect(address: str) -> Any:
    """A client of the scheduler at an address (tcp://HOST:PORT), or in a scheduler's file."""
    scheme, _, rest = address.rpartition("://")
    host, _, port = rest.rpartition(":")
    known = scheme in ("", "tcp", "tls", "ws", "wss", "ucx")
    if not Path(address).is_file() and known and not (host and port.isascii() and port.isdigit()):
        raise ContendError(f"--cluster: found '{address}'; should be tcp://HOST:PORT or a scheduler's file")
    where = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
    try:
        return Client(**where, timeout=CONNECT_S, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TimeoutError) as e:
        raise ContendError(
            f"--cluster: {address}: no Dask scheduler answers; should be tcp://HOST:PORT or a scheduler's file ({e})"
        ) from e


def _check_workers(client: Any) -> None:
    def has_contend() -> str | None:
        # Sent as code, so that a worker without contend can run it.
        try:
            import contend
        except ImportError:
            return "none"
        return contend.__version__

    found = client.run(has_contend)
    for worker, version in found.items():
        if version == "none":
            raise ContendError(f"--cluster: worker {worker} has no contend: install it there, the same version as here")


def run_all(
    address: str,
    tasks: Iterator[Task],
    inputs: Mapping[str, Path],
    done: Callable[[Row], object],
    tick: Callable[[], object],
) -> None:
    """Run the tasks; call `done` with each row, and `tick` some times a second.

    Raises ContendError if the cluster refuses or goes away, and KeyboardInterrupt; then running tasks are cancelled.
    """
    # What goes wrong is said once, by us.
    for name in ("distributed", "distributed.client", "distributed.core", "distributed.comm"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with connect(address) as client:
        _check_workers(client)
        name = f"contend-inputs-{client.id}"
        plugin = Inputs(name, {digest: path.read_bytes() for digest, path in inputs.items()}, build())
        try:
            client.register_plugin(plugin)
            _feed(client, tasks, name, done, tick)
        except (OSError, TimeoutError) as e:
            raise ContendError(f"--cluster: {address}: lost: {e}") from e
        finally:
            if client.status == "running":
                client.unregister_worker_plugin(name)


def _feed(
    client: Any, tasks: Iterator[Task], plugin: str, done: Callable[[Row], object], tick: Callable[[], object]
) -> None:
    pending: dict[Any, Task] = {}
    completed = as_completed(loop=client.loop)  # type: ignore[no-untyped-call]

    def submit(number: int) -> None:
        for task in itertools.islice(tasks, number):
            future = client.submit(_remote, task, plugin, key=f"{plugin}-{task.key}", pure=True)
            pending[future] = task
            completed.add(future)  # type: ignore[no-untyped-call]

    try:
        submit(AHEAD)
        while pending:
            tick()
            if not completed.has_ready():  # type: ignore[no-untyped-call]
                time.sleep(LOOK_S)
                continue
            future = next(completed)
            done(_row(future, pending.pop(future)))
            submit(1)
    except BaseException:
        client.cancel(list(pending))
        raise


def _row(future: Any, task: Task) -> Row:
    """What a finished task gave. One whose worker has died since runs again elsewhere: this waits for it."""
    try:
        row: Row = future.result()
    except KilledWorker as e:
        return failed(task, ERROR, f"its workers died: {e}")
    except CancelledError as e:
        raise ContendError("--cluster: the scheduler went away, or cancelled the sweep's tasks") from e
    return row
