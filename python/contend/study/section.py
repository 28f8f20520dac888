"""Reading TOML tables so that what is wrong is named with file, line, key, and what would be right.

`tomllib` tells no lines; `line_of` finds that of a key in the text.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from contend._core import ContendError

Kind = type | tuple[type, ...]
T = TypeVar("T")

WORDS: dict[Kind, str] = {
    str: "a text",
    int: "a whole number",
    (int, float): "a number",
    dict: "a table",
    list: "a list",
}


class StudyInvalid(ContendError):
    """A study's files are not right."""


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
PLAIN = "text without control characters"


def close(word: str, known: Iterable[str], otherwise: str) -> str:
    """A name that was probably meant, or all names."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]}?" if near else otherwise


def line_of(text: str, path: Sequence[str | int], key: str | None = None) -> int:
    """The line of a table (`path`: names, and indices in arrays of tables), or of a key in it; 0 if it is not found."""
    names = [p for p in path if isinstance(p, str)]
    wanted = next((p for p in path if isinstance(p, int)), 0)
    seen = {"array": -1, "line": 0}
    inside = not names
    for number, line in enumerate(text.splitlines(), 1):
        head = re.match(r"\s*(\[{1,2})\s*([^\]]+?)\s*\]", line)
        if head:
            here = [part.strip().strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.]+", head[2])]
            if head[1] == "[[" and here == names[:1]:
                seen["array"] += 1
            inside = here == names and seen["array"] in (wanted, -1)
            if inside:
                seen["line"] = number
                if key is None:
                    return number
            continue
        if inside and key is not None and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return number
        # An inline table: `name = { key = ... }` in the table above it.
        if names and re.match(rf"\s*[\"']?{re.escape(names[-1])}[\"']?\s*=", line) and seen["array"] in (wanted, -1):
            return number
    return seen["line"]


class Section:
    """A table: keys are taken out one by one; `done` refuses what is left."""

    def __init__(self, file: Path, text: str, table: dict[str, Any], path: tuple[str | int, ...] = ()) -> None:
        self.file = file
        self.text = text
        self.table = dict(table)
        self.path = path
        self.known: list[str] = []

    def at(self, key: str | None = None) -> str:
        """File, line and key, for a message."""
        line = line_of(self.text, self.path, key)
        where = ""
        for part in (*self.path, *([key] if key else [])):
            where += f"[{part}]" if isinstance(part, int) else f"{'.' if where else ''}{part}"
        return f"{self.file}{f':{line}' if line else ''}: {where}"

    def wrong(self, key: str | None, found: object, right: str) -> StudyInvalid:
        """An error that names a value."""
        shown = repr(found) if not isinstance(found, bool) else str(found).lower()
        return StudyInvalid(f"{self.at(key)}: found {shown}; should be {right}")

    def take(self, key: str, kind: Kind, default: Any = ..., right: str | None = None) -> Any:
        """The value of a key."""
        self.known.append(key)
        right = right or WORDS.get(kind, "right")
        if key not in self.table:
            if default is ...:
                raise StudyInvalid(f"{self.at(key)}: missing; should be {right}")
            return default
        value = self.table.pop(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind in (int, (int, float))):
            raise self.wrong(key, value, right)
        return value

    def number(
        self, key: str, default: Any = ..., *, above: float | None = None, least: float | None = None,
        most: float = math.inf,
    ) -> Any:  # fmt: skip
        """A finite number."""
        right = "a number"
        if above is not None:
            right += f" above {above:g}"
        if least is not None:
            right += f" of at least {least:g}"
        if most < math.inf:
            right += f", at most {most:,.0f}"
        value = self.take(key, (int, float), default, right)
        if value is None:
            return None
        low = (above is not None and value <= above) or (least is not None and value < least)
        if low or not math.isfinite(value) or value > most:
            raise self.wrong(key, value, right)
        return value

    def whole(self, key: str, default: Any = ..., *, least: int, most: int) -> int:
        """A whole number."""
        right = f"a whole number from {least:,} to {most:,}"
        value = self.take(key, int, default, right)
        if not least <= value <= most:
            raise self.wrong(key, value, right)
        return int(value)

    def sub(self, key: str, *, needed: bool = False) -> Section | None:
        """A table in this one."""
        table = self.take(key, dict, ... if needed else None)
        return None if table is None else Section(self.file, self.text, table, (*self.path, key))

    def subs(self, key: str) -> list[Section]:
        """An array of tables in this one."""
        tables = self.take(key, list, [], f"tables [[{key}]]")
        for table in tables:
            if not isinstance(table, dict):
                raise self.wrong(key, table, f"a table [[{key}]]")
        return [Section(self.file, self.text, t, (*self.path, key, i)) for i, t in enumerate(tables)]

    def done(self) -> None:
        """Nothing may be left."""
        for key in self.table:
            right = close(key, self.known, f"keys here are {', '.join(self.known)}")
            raise StudyInvalid(f"{self.at(key)}: unknown key; {right}")
