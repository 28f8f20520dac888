"""What the tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

Contend = Callable[..., "subprocess.CompletedProcess[str]"]

SMALL = """\
machine = "2n4c2t"
policy = "linux-6.18"
seed = 7

[workload]
kind = "hackbench"
groups = 1
fds = 4
loops = 20
"""

ENDLESS = """\
machine = "64c"

[workload]
kind = "periodic"
tasks = 256
duration_ms = 10_000_000
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deal what takes longest out to the workers, each of which begins with an equal part of the list.

    A module marked as long stays together, since its tests share runs that each process would make again.
    """
    bundles: dict[str, list[pytest.Item]] = {}
    seconds: dict[str, int] = {}
    rest = []
    for item in items:
        if mark := item.get_closest_marker("long"):
            key = item.nodeid if mark in item.own_markers else str(item.path)
            bundles.setdefault(key, []).append(item)
            seconds[key] = mark.args[0]
        else:
            rest.append(item)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    dealt: list[list[pytest.Item]] = [[] for _ in range(workers)]
    loads = [0] * workers
    for key in sorted(bundles, key=lambda k: -seconds[k]):
        least = loads.index(min(loads))
        dealt[least] += bundles[key]
        loads[least] += seconds[key]
    part = -(-len(items) // workers)
    items.clear()
    for own in dealt:
        take = max(part - len(own), 0)
        items += own + rest[:take]
        del rest[:take]


@pytest.fixture
def contend(tmp_path: Path) -> Contend:
    """Run the command in an empty directory."""

    def run(
        *args: str | Path, env: dict[str, str] | None = None, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "contend", *map(str, args)],
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


def interrupted(*args: str, cwd: Path) -> tuple[int, bytes]:
    """Run the command, press Ctrl-C when its line of progress is there: its exit status, and what it said."""
    command = [sys.executable, "-m", "contend", *args, "--progress"]
    with subprocess.Popen(command, cwd=cwd, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.read(1) == b"\r"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    return process.returncode, stderr


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A scenario of some milliseconds."""
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    return file


def tree(directory: Path) -> dict[str, bytes]:
    """All files below a directory."""
    return {str(f.relative_to(directory)): f.read_bytes() for f in sorted(directory.rglob("*")) if f.is_file()}
