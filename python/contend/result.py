"""Results: a summary, and tables as polars frames."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contend import _core

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl
    import pyarrow as pa


class Result:
    """One run: `summary` (the object of `contend run --json`), and tables by name (`result["tasks"]`).

    `wall_s` and `cpu_s` are the time the run took; None for a result that was loaded, because stored results hold
    nothing that differs from run to run.
    """

    def __init__(
        self,
        summary: dict[str, Any],
        table: Callable[[str], bytes],
        *,
        scenario_toml: str,
        output: _core.Output | None = None,
        path: Path | None = None,
    ) -> None:
        self.summary = summary
        self.scenario_toml = scenario_toml
        self.path = path
        self.wall_s = output.wall_s if output else None
        self.cpu_s = output.cpu_s if output else None
        self._table = table
        self._output = output
        self._frames: dict[str, pl.DataFrame] = {}

    @classmethod
    def of(cls, output: _core.Output) -> Result:
        """From a run that has just ended."""
        summary = json.loads(output.summary_json)
        return cls(summary, output.table, scenario_toml=output.scenario_toml, output=output)

    @property
    def outcome(self) -> str:
        """How the run ended: finished, horizon, deadlock, livelock, stall, policy-error, corrupt-list or panic."""
        return str(self.summary["outcome"])

    @property
    def ok(self) -> bool:
        """The simulation did what it was asked to: every task exited, or the horizon was reached."""
        return self.outcome in ("finished", "horizon")

    @property
    def tables(self) -> list[str]:
        """The tables' names."""
        return list(_core.TABLES)

    def __getitem__(self, name: str) -> pl.DataFrame:
        """A table as a polars frame."""
        import polars as pl

        if name not in self._frames:
            if name not in _core.TABLES:
                raise KeyError(f"no table {name!r}; there are {', '.join(_core.TABLES)}")
            self._frames[name] = pl.read_ipc(self._table(name))
        return self._frames[name]

    def to_arrow(self, name: str) -> pa.Table:
        """A table as a pyarrow table (needs the extra `contend[arrow]`)."""
        try:
            import pyarrow as pa
        except ImportError as e:
            raise _core.ContendError("to_arrow needs pyarrow: pip install 'contend[arrow]'") from e
        if name not in _core.TABLES:
            raise KeyError(f"no table {name!r}; there are {', '.join(_core.TABLES)}")
        return pa.ipc.open_file(pa.BufferReader(self._table(name))).read_all()

    def ledger(self) -> dict[str, int]:
        """Account to nanoseconds, over all CPUs; the sum is CPUs x virtual time exactly."""
        ledger: dict[str, int] = self.summary["ledger_ns"]
        return ledger

    def write(self, directory: str | os.PathLike[str]) -> None:
        """Store the result; it appears whole or not at all."""
        if self._output is None:
            raise _core.ContendError(f"this result was loaded from {self.path}: copy that directory")
        self._output.write(directory)
        self.path = Path(directory)

    def to_dict(self) -> dict[str, Any]:
        """The object that `contend run --json` prints: the summary, and the time taken."""
        if self._output is None:
            return dict(self.summary)
        out: dict[str, Any] = {}
        for key, value in self.summary.items():
            out[key] = value
            if key == "virtual_s":
                out["wall_s"] = self.wall_s
                out["cpu_s"] = self.cpu_s
        return out

    def __repr__(self) -> str:
        s = self.summary
        return (
            f"<contend.Result {s['outcome']}: {s['workload']} on {s['machine']} under {s['policy']}, "
            f"{s['virtual_s']:g} s, {s['dispatches']:,} dispatches>"
        )


def load(path: str | os.PathLike[str]) -> Result:
    """Read a stored result.

    Args:
        path: Its directory.

    Raises:
        ContendError: It is none, or of a version that this package does not read.
    """
    directory = Path(path)
    if directory.name == "summary.json" and directory.is_file():
        directory = directory.parent
    if not directory.exists():
        raise _core.ContendError(f"{path}: no such directory; `contend run SCENARIO --out {path}` makes a result")
    try:
        text = (directory / "summary.json").read_text(encoding="utf-8")
        scenario = (directory / "scenario.toml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise _core.ContendError(
            f"{path}: not a result (a directory with summary.json, scenario.toml and .arrow files, as "
            "`contend run --out` writes)"
        ) from e
    try:
        summary = json.loads(text)
        schema = summary["schema"]
    except (ValueError, KeyError, TypeError) as e:
        raise _core.ContendError(f"{directory / 'summary.json'}: damaged: {e}") from e
    if schema != _core.SCHEMA:
        raise _core.ContendError(
            f"{directory / 'summary.json'}: found schema = {schema}; this version reads {_core.SCHEMA}; "
            f"run the scenario again: contend run {directory / 'scenario.toml'}"
        )

    def table(name: str) -> bytes:
        file = directory / f"{name}.arrow"
        try:
            return file.read_bytes()
        except OSError as e:
            raise _core.ContendError(f"{file}: cannot be read: {e.strerror}") from e

    return Result(summary, table, scenario_toml=scenario, path=directory)
