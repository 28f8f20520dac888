"""Running one task, on this machine or on a cluster's worker."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contend._core import ContendError, ScenarioInvalid, __version__
from contend.run import run
from contend.sweeping.scenarios import Task, renamed

INVALID = "invalid"
"""Outcome of a scenario that cannot be run: the same each time."""
ERROR = "error"
"""Outcome of a run that the system refused, or whose workers died: it is tried again when the sweep is."""


@dataclass(frozen=True)
class Row:
    """What is kept of a run. `summary` is JSON; null if there was no run."""

    key: str
    outcome: str
    error: str | None
    contend: str
    cpu_s: float
    wall_s: float
    summary: str | None


def failed(task: Task, outcome: str, error: object) -> Row:
    """The row of a task that was not run to a result."""
    return Row(task.key, outcome, str(error), __version__, 0.0, 0.0, None)


def place(inputs: Mapping[str, Path | bytes], root: Path) -> None:
    """Put inputs where tasks find them: each under its digest."""
    for digest, source in inputs.items():
        target = root / digest
        if target.exists():
            continue
        if isinstance(source, bytes):
            target.write_bytes(source)
        else:
            shutil.copyfile(source, target)


def _linked(task: Task, root: Path) -> dict[str, str]:
    """The task's files by name: links with the names that results report."""
    out = {}
    for name, digest in task.files:
        link = root / "named" / digest[:16] / Path(name).name
        link.parent.mkdir(parents=True, exist_ok=True)
        # Another thread may have made it.
        with contextlib.suppress(FileExistsError):
            link.symlink_to(root / digest)
        out[name] = str(link)
    return out


def execute(task: Task, root: Path, look: Callable[..., object] | None = None) -> Row:
    """Run a task whose inputs are in `root`."""
    files = _linked(task, root)
    data: dict[str, Any] = json.loads(task.scenario)
    data["machine"] = files["machine.toml"] if task.machine is None else task.machine
    for owner in [data, *data.get("guest", [])]:
        if "workload" in owner:
            owner["workload"] = renamed(owner["workload"], lambda name: files[name])
    try:
        result = run(data, progress=look)
    except ScenarioInvalid as e:
        return failed(task, INVALID, _without(e, root))
    except ContendError as e:
        return failed(task, ERROR, _without(e, root))
    detail = str(result.summary["outcome_detail"]) or None
    summary = json.dumps(result.summary)
    return Row(task.key, result.outcome, detail, __version__, result.cpu_s or 0.0, result.wall_s or 0.0, summary)


def _without(error: ContendError, root: Path) -> str:
    """A message without the name of a temporary directory."""
    return str(error).replace(f"{root}/named/", "")
