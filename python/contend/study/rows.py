"""The published rows of a study: CSV to checked `Row`s."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from contend.study.model import AFTER, BEFORE, CHANGE, Row, Study
from contend.study.section import CONTROL, PLAIN, StudyInvalid, close

COLUMNS = [
    "study", "table", "machine", "workload", "variant", "x_name", "x", "metric", "unit", "better", "value", "value_lo",
    "value_hi", "stdev_pct", "note",
]  # fmt: skip
ROWS_MAX = 100_000
LEAST, MOST = 1e-12, 1e15
"""Published values lie between these: effects of others overflow."""


def text_of_file(file: Path) -> str:
    """Its text; StudyInvalid if there is none."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise StudyInvalid(f"{file}: cannot be read: no such file") from None
    except UnicodeDecodeError:
        raise StudyInvalid(f"{file}: not UTF-8 text") from None
    except OSError as e:
        raise StudyInvalid(f"{file}: cannot be read: {e.strerror}") from None


def read_rows(
    file: Path, study: str, variants: Sequence[str] = (BEFORE, AFTER, CHANGE), places: Sequence[str] = ()
) -> tuple[Row, ...]:
    """The published rows. `places` are names of x: they stand for 0, 1, ... and are shown with `x_name`."""
    text = text_of_file(file)
    for number, line in enumerate(text.split("\n"), 1):
        if odd := CONTROL.search(line.removesuffix("\r")):
            raise StudyInvalid(f"{file}:{number}: found {odd[0]!r}; should be {PLAIN}")
    reader = csv.reader(text.splitlines())
    header = next(reader, [])
    if header != COLUMNS:
        new = next((c for c in header if c not in COLUMNS), None)
        absent = [c for c in COLUMNS if c not in header]
        found = f"unknown column {new}" if new else f"no column {absent[0]}" if absent else "columns in another order"
        raise StudyInvalid(f"{file}:1: {found}; the columns are {','.join(COLUMNS)}")
    rows = []
    for cells in _cells(reader, file):
        at = f"{file}:{reader.line_num}"
        if not cells:
            continue
        if len(cells) != len(COLUMNS):
            raise StudyInvalid(f"{at}: found {len(cells)} cells; should be {len(COLUMNS)}")
        cell = dict(zip(COLUMNS, cells, strict=True))
        if places:
            if cell["x"] not in places:
                raise StudyInvalid(f"{at}: x: found '{cell['x']}'; should be {' or '.join(places)}")
            cell["x"] = str(places.index(cell["x"]))
            cell["x_name"] += f" ({', '.join(f'{i} {name}' for i, name in enumerate(places))})"
        rows.append(_row(cell, at, reader.line_num, study, variants))
        if len(rows) > ROWS_MAX:
            raise StudyInvalid(f"{at}: a study has at most {ROWS_MAX:,} rows")
    if not rows:
        raise StudyInvalid(f"{file}: no rows")
    return tuple(rows)


def _cells(reader: Any, file: Path) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as e:
        raise StudyInvalid(f"{file}:{reader.line_num}: {e}; should be CSV") from None


def _row(cell: dict[str, str], at: str, line: int, study: str, variants: Sequence[str]) -> Row:
    def wrong(key: str, right: str) -> StudyInvalid:
        return StudyInvalid(f"{at}: {key}: found '{cell[key]}'; should be {right}")

    def value(key: str, *, needed: bool = False) -> float | None:
        if not cell[key] and not needed:
            return None
        try:
            found = float(cell[key])
        except ValueError:
            raise wrong(key, "a number") from None
        if not math.isfinite(found):
            raise wrong(key, "a number")
        if found and not LEAST <= abs(found) <= MOST:
            raise wrong(key, f"0, or a number from {LEAST:g} to {MOST:g}")
        return found

    if cell["study"] != study:
        raise wrong("study", f"{study}, as study.toml says")
    for key in ("table", "machine", "workload", "metric"):
        if not cell[key]:
            raise wrong(key, "a name")
    if cell["variant"] not in variants:
        raise wrong("variant", f"{', '.join(variants[:-1])} or {variants[-1]}")
    # What no patched row is compared with needs no direction.
    if cell["better"] not in ("lower", "higher") and (cell["better"] or cell["variant"] != variants[0]):
        raise wrong("better", "lower or higher")
    x = value("x", needed=True)
    assert x is not None
    row = Row(
        cell["study"], cell["table"], cell["machine"], cell["workload"], cell["variant"], cell["x_name"], x,
        cell["metric"], cell["unit"], cell["better"], value("value"), value("value_lo"), value("value_hi"),
        value("stdev_pct"), cell["note"], line,
    )  # fmt: skip
    if row.published is None:
        raise wrong("value", "a number, or value_lo and value_hi")
    if row.lo is not None and row.hi is not None and row.lo > row.hi:
        raise wrong("value_hi", f"at least value_lo ({row.lo:g})")
    if row.value is not None and not (
        (row.lo is None or row.lo <= row.value) and (row.hi is None or row.value <= row.hi)
    ):
        raise wrong("value", f"from value_lo to value_hi ({cell['value_lo']} to {cell['value_hi']})")
    if row.stdev_pct is not None and row.stdev_pct < 0:
        raise wrong("stdev_pct", "at least 0")
    if row.variant == variants[0] and row.published <= 0:
        raise wrong("value", "above 0: effects and ratios divide by it")
    if row.variant != CHANGE and row.published < 0:
        raise wrong("value", "at least 0")
    return row


def check_rows(study: Study, rows: tuple[Row, ...], file: Path, toml: Path) -> None:
    seen: dict[tuple[object, ...], Row] = {}
    for row in rows:
        key = (*row.point, row.variant)
        if key in seen:
            raise StudyInvalid(f"{file}:{row.line}: the same row as line {seen[key].line}; should be there once")
        seen[key] = row
        # A study of one switch need not name it in its tables.
        named = len(study.switches) > 1 or "/" in row.table
        if not study.by_variant and row.switch not in study.switches and named:
            right = close(row.switch, study.switches, f"should be {' or '.join(study.switches)}")
            raise StudyInvalid(
                f"{file}:{row.line}: table: found '{row.table}': {toml} has no [switch.{row.switch}]; {right}"
            )
        w = study.workload_of(row)
        if w is not None and w.metric(row.metric) is None:
            right = f"`metrics` has {', '.join(w.metrics)}"
            raise StudyInvalid(f"{file}:{row.line}: metric: found '{row.metric}'; {toml}:{w.line}: {right}")
    for row in rows:
        if row.variant in (study.reference, CHANGE):
            continue
        before = seen.get((*row.point, study.reference))
        if before is None:
            raise StudyInvalid(f"{file}:{row.line}: no row of `{study.reference}` to compare with")
        for name in ("x_name", "unit", "better"):
            found, right = getattr(row, name), getattr(before, name)
            if found != right:
                at = f"{file}:{row.line}: {name}"
                raise StudyInvalid(f"{at}: found '{found}'; should be '{right}', as in line {before.line}")
