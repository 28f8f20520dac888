"""What commands share while they work: a line of progress, Ctrl-C, and the exit code where all went well."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from contend.progress import Line

EXIT_OK = 0

AnyLine = TypeVar("AnyLine", bound=Line)


class Interrupted(Exception):
    """Ctrl-C, or a signal, while something was done."""


@contextmanager
def working(line: AnyLine, *, quiet: bool = False) -> Iterator[AnyLine | None]:
    """Shows `line` while the work lasts: on a terminal unless `quiet`, elsewhere if forced. Ctrl-C is Interrupted."""
    shown = line if line.forced or (sys.stderr.isatty() and not quiet) else None
    try:
        yield shown
    except KeyboardInterrupt:
        raise Interrupted from None
    finally:
        line.clear()
