"""The data set in a sweep's directory.

    results/part-*.parquet   a row a scenario, keyed by its hash: outcome, error, cost, the whole summary
    sweep.parquet            a row a point: the keys that vary, the scenario's hash, outcome and metrics
    sweep.json               axes, metrics, how far the sweep is

Parts are written while the sweep runs, each as a whole (written beside its place and renamed), and merged at the end.
`sweep.parquet` and `sweep.json` are made of them at the end, and after Ctrl-C.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

import polars as pl

from contend._core import ContendError
from contend.sweeping.work import ERROR, Row

if TYPE_CHECKING:
    from typing import Self

FLUSH_S = 2.0
FLUSH_ROWS = 512
BATCH_ROWS = 1024
"""Rows that are held at once when all are read."""

SCHEMA = {
    "key": pl.String,
    "outcome": pl.String,
    "error": pl.String,
    "contend": pl.String,
    "cpu_s": pl.Float64,
    "wall_s": pl.Float64,
    "summary": pl.String,
}
PARTIAL = ".partial"


def _why(e: OSError | pl.exceptions.PolarsError) -> str:
    """What the system said, also where polars hands it on among its own words."""
    said = (e.strerror if isinstance(e, OSError) else None) or str(e)
    system = map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS))
    return next((word for word in system if word in said), said)


class Store:
    """Rows by key, in a directory that one sweep writes at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.known: dict[str, str] = {}
        self._rows: list[Row] = []
        self._flushed = time.monotonic()
        self._lock: IO[str] | None = None
        if os.fsencode(directory).decode(errors="ignore") != str(directory):
            # What stores its tables takes no other name.
            raise ContendError(f"{directory!s}: the name is not UTF-8; name another with --out")
        if directory.exists() and not directory.is_dir():
            raise ContendError(f"{directory}: found a file; should be a directory for the sweep's data set")
        if directory.is_dir() and any(directory.iterdir()) and not (directory / "results").is_dir():
            raise ContendError(f"{directory}: found a directory that is no sweep; name another with --out")
        for part in self._parts():
            for key, outcome in self._read(part, ["key", "outcome"]).iter_rows():
                self.known[key] = outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.flush()
        finally:
            if self._lock:
                self._lock.close()

    def _parts(self) -> list[Path]:
        return sorted((self.directory / "results").glob("part-*.parquet"))

    @staticmethod
    def _read(part: Path, columns: list[str]) -> pl.DataFrame:
        try:
            return pl.read_parquet(part, columns=columns)
        except (OSError, pl.exceptions.PolarsError) as e:
            raise ContendError(f"{part}: damaged: {e}; remove it and run the sweep again") from e

    def _begin(self) -> None:
        """Make the directory and take its lock: nothing stands there before there is a row."""
        if self._lock:
            return
        try:
            (self.directory / "results").mkdir(parents=True, exist_ok=True)
            self._lock = (self.directory / ".lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise ContendError(
                f"{self.directory}: another sweep writes here; wait for it, or name another with --out"
            ) from e
        except OSError as e:
            raise ContendError(f"{self.directory}: cannot be written: {e.strerror}") from e
        for left in (self.directory / "results").glob(f"*{PARTIAL}"):
            left.unlink()

    def add(self, row: Row) -> None:
        """Keep a row; those of failures that may pass are not kept."""
        if row.outcome == ERROR:
            return
        self.known[row.key] = row.outcome
        self._rows.append(row)
        self.tick()

    def tick(self) -> None:
        """Write what has waited long enough."""
        if len(self._rows) >= FLUSH_ROWS or time.monotonic() - self._flushed > FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Write what is not written yet, as one part."""
        self._flushed = time.monotonic()
        if not self._rows:
            return
        self._begin()
        frame = pl.DataFrame([asdict(r) for r in self._rows], schema=SCHEMA)
        self._whole(self._next(), frame.write_parquet)
        self._rows.clear()

    def _next(self) -> Path:
        parts = self._parts()
        number = int(parts[-1].stem.removeprefix("part-")) + 1 if parts else 0
        return self.directory / "results" / f"part-{number:06}.parquet"

    @staticmethod
    def _whole(target: Path, write: Any) -> None:
        """Write a file so that it appears whole or not at all."""
        partial = target.with_name(target.name + PARTIAL)
        try:
            write(partial)
            with partial.open("rb") as f:
                os.fsync(f.fileno())
            partial.replace(target)
        except (OSError, pl.exceptions.PolarsError) as e:
            raise ContendError(f"{target}: cannot be written: {_why(e)}") from e
        finally:
            partial.unlink(missing_ok=True)

    def compact(self) -> None:
        """Merge the parts into one. The new one stands before the old ones go; reading takes a key once."""
        self.flush()
        parts = self._parts()
        if len(parts) > 1:
            self._begin()
            self._whole(self._next(), lambda to: pl.scan_parquet(parts, glob=False).unique("key").sink_parquet(to))
            for part in parts:
                part.unlink()

    def rows(self, keys: set[str]) -> Iterator[dict[str, Any]]:
        """The stored rows of some keys, each once, a batch in memory at a time."""
        self.flush()
        seen: set[str] = set()
        for part in self._parts():
            scan = pl.scan_parquet(part)
            height = scan.select(pl.len()).collect().item()
            for start in range(0, height, BATCH_ROWS):
                for row in scan.slice(start, BATCH_ROWS).collect().iter_rows(named=True):
                    if row["key"] in keys and row["key"] not in seen:
                        seen.add(row["key"])
                        yield row

    def finish(self, table: pl.DataFrame, about: dict[str, Any]) -> None:
        """Write `sweep.parquet` and `sweep.json`."""
        self._begin()
        self._whole(self.directory / "sweep.parquet", table.write_parquet)
        text = json.dumps(about, indent=2) + "\n"
        self._whole(self.directory / "sweep.json", lambda to: to.write_text(text, encoding="utf-8"))

    def discard(self) -> None:
        """Remove the data set: there is nothing in it."""
        self._rows.clear()
        for part in self._parts():
            part.unlink()
        if self._lock:
            (self.directory / ".lock").unlink()
            (self.directory / "results").rmdir()
            if not any(self.directory.iterdir()):
                self.directory.rmdir()
