"""Results: a summary, and tables as polars frames."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contend import _core, given

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
    def of(cls, output: _core.Output, path: Path | None = None) -> Result:
        """From a run that has just ended; `path` is where it was stored."""
        summary = json.loads(output.summary_json)
        return cls(summary, output.table, scenario_toml=output.scenario_toml, output=output, path=path)

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
        if name not in self._frames:
            if name not in _core.TABLES:
                raise KeyError(f"no table {name!r}; there are {', '.join(_core.TABLES)}")
            self._frames[name] = self._frame(name)
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        """The tables' names."""
        return iter(self.tables)

    def __contains__(self, name: object) -> bool:
        """Whether there is such a table."""
        return name in _core.TABLES

    def _frame(self, name: str) -> pl.DataFrame:
        import polars as pl

        table = self._table(name)
        if self.path is None:
            return pl.read_ipc(table)
        if not _is_whole(table):
            raise _core.ContendError(f"{self.path / name}.arrow: damaged: not a whole Arrow file")
        try:
            return pl.read_ipc(table)
        # Of a damaged file polars also panics, and that is no Exception.
        except BaseException as e:
            if isinstance(e, (KeyboardInterrupt, SystemExit)):
                raise
            raise _core.ContendError(f"{self.path / name}.arrow: damaged: {_one_line(e)}") from e

    def to_arrow(self, name: str) -> pa.Table:
        """A table as a pyarrow table (needs the extra `contend[arrow]`)."""
        try:
            import pyarrow as pa
        except ImportError as e:
            raise _core.ContendError("to_arrow needs pyarrow: pip install 'contend[arrow]'") from e
        if name not in _core.TABLES:
            raise KeyError(f"no table {name!r}; there are {', '.join(_core.TABLES)}")
        try:
            return pa.ipc.open_file(pa.BufferReader(self._table(name))).read_all()
        except pa.ArrowException as e:
            raise _core.ContendError(f"{name}.arrow: damaged: {_one_line(e)}") from e

    def ledger(self) -> dict[str, int]:
        """Account to nanoseconds, over all CPUs; the sum is CPUs x virtual time exactly."""
        ledger: dict[str, int] = self.summary["ledger_ns"]
        return ledger

    def explain(self) -> dict[str, Any]:
        """Where the time went, and why: the object of `contend explain --json`."""
        from contend.explain import explain

        return explain(self)

    def write(self, directory: str | os.PathLike[str]) -> None:
        """Store the result; it appears whole or not at all."""
        if self._output is None:
            if self.path is None:
                raise _core.ContendError("this result came from another process: write it there")
            raise _core.ContendError(f"this result was loaded from {self.path}: copy that directory")
        self._output.write(directory)
        self.path = Path(directory)

    def to_dict(self) -> dict[str, Any]:
        """The object that `contend run --json` prints: the summary, and the time taken."""
        if self.wall_s is None:
            return dict(self.summary)
        out: dict[str, Any] = {}
        for key, value in self.summary.items():
            out[key] = value
            if key == "virtual_s":
                out["wall_s"] = self.wall_s
                out["cpu_s"] = self.cpu_s
        return out

    def __getstate__(self) -> dict[str, Any]:
        """For another process: with every table, as the directory may be out of its reach."""
        tables = {name: self._table(name) for name in self.tables}
        return {**self.__dict__, "_table": tables.__getitem__, "_output": None, "_frames": {}}

    def _repr_html_(self) -> str:
        """In a notebook: what ran, and what a report answers first."""
        from contend.report.page import paragraph
        from contend.report.run_page import answer

        return paragraph(repr(self)) + answer(self, self.explain())

    def __repr__(self) -> str:
        s = self.summary
        return (
            f"<contend.Result {s['outcome']}: {s['workload']} on {s['machine']} under {s['policy']}, "
            f"{s['virtual_s']:g} s, {s['dispatches']:,} dispatches>"
        )


SHAPE: dict[str, Any] = {
    **dict.fromkeys(
        ("contend", "outcome", "outcome_detail", "machine", "policy", "algorithm", "workload", "trace_hash"), str
    ),
    **dict.fromkeys(("seed", "cpus", "virtual_ns", "dispatches", "events"), int),
    "virtual_s": float,
    "set": dict,
    "ledger_ns": {"idle": int},
    "guests": list,
    "lock_kinds": list,
    "locks": list,
    "wakeup_latency_us": {"count": int, "p50": float, "p99": float, "max": float},
    "wakeups": {
        "from_waker": dict,
        "from_previous": dict,
        "idle_searches": int,
        "idle_searches_found": int,
        "probes": int,
    },
    "tasks": {"count": int, "exited": int, "runtime_s": float, "delay_s": float, "switches": int, "migrations": int},
    "metrics": {"counts": dict, "latencies_us": dict},
    "recordings": list,
    "recorded_locks": list,
}
"""What every summary has."""

NAMED = {str: "a text", int: "a whole number", float: "a number", dict: "an object", list: "an array"}


MAGIC = b"ARROW1"


def _is_whole(table: bytes) -> bool:
    """Whether an Arrow file has its beginning and its end: polars says of others that it panicked."""
    end = len(table) - len(MAGIC) - 4
    if not (table.startswith(MAGIC) and table.endswith(MAGIC) and end > len(MAGIC)):
        return False
    return 0 < int.from_bytes(table[end : end + 4], "little") < end - len(MAGIC)


def _one_line(e: BaseException) -> str:
    return " ".join(str(e).split())[:200] or type(e).__name__


def _check(file: Path, found: Any, shape: Any, key: str = "") -> None:
    """Refuse what has not the shape of a summary."""
    inside: dict[str, Any] = shape if isinstance(shape, dict) else {}
    kind: type = dict if inside else shape
    right: tuple[type, ...] = (int, float) if kind is float else (kind,)
    if not isinstance(found, right) or isinstance(found, bool):
        shown = json.dumps(found)
        shown = shown if len(shown) <= 40 else f"{shown[:40]}..."
        raise _core.ContendError(f"{file}: damaged: {key or 'it'}: found {shown}; should be {NAMED[kind]}")
    held: Any = found
    for name, inner in inside.items():
        of = f"{key}.{name}" if key else name
        if name not in held:
            raise _core.ContendError(f"{file}: damaged: {of} is missing")
        _check(file, held[name], inner, of)


@contextmanager
def reading(*files: str | os.PathLike[str]) -> Iterator[None]:
    """Work with what stored files say: what is missing in them, or of another type, is damage and no bug."""
    from polars.exceptions import PolarsError

    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, PolarsError) as e:
        why = f"{e.args[0]} is missing" if isinstance(e, KeyError) and e.args else _one_line(e)
        raise _core.ContendError(f"{', '.join(os.fspath(f) for f in files)}: damaged: {why}") from e


def load(path: str | os.PathLike[str]) -> Result:
    """Read a stored result.

    Args:
        path: Its directory.

    Raises:
        ContendError: It is none, or of a version that this package does not read.
    """
    directory = Path(given.path("path", path))
    if directory.name == "summary.json" and directory.is_file():
        directory = directory.parent
    if not directory.exists():
        raise _core.ContendError(
            f"{path}: no such directory; `contend run SCENARIO --out {shlex.quote(str(path))}` makes a result"
        )
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
        if not isinstance(summary, dict):
            raise ValueError("it holds no object")
        schema = summary["schema"]
    except (ValueError, KeyError, TypeError) as e:
        raise _core.ContendError(f"{directory / 'summary.json'}: damaged: {e}") from e
    if schema != _core.SCHEMA:
        raise _core.ContendError(
            f"{directory / 'summary.json'}: found schema = {schema}; this version reads {_core.SCHEMA}; "
            f"run the scenario again: contend run {shlex.quote(str(directory / 'scenario.toml'))}"
        )

    _check(directory / "summary.json", summary, SHAPE)

    def table(name: str) -> bytes:
        file = directory / f"{name}.arrow"
        try:
            return file.read_bytes()
        except OSError as e:
            raise _core.ContendError(f"{file}: cannot be read: {e.strerror}") from e

    return Result(summary, table, scenario_toml=scenario, path=directory)
