"""Which file an error is of: the compiled part knows the files of a recording's directory by their names alone."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contend._core import ContendError

_TOML = re.compile(r": TOML parse error at line (\d+), column \d+;.*?\^+; ")


@contextmanager
def naming(recording: object) -> Iterator[None]:
    """Errors of a file in a recording's directory name both, and the line where it is no TOML."""
    try:
        yield
    except ContendError as e:
        said = _TOML.sub(r":\1: not valid TOML: ", str(e), count=1)
        if isinstance(recording, (str, os.PathLike)) and said.partition(":")[0] in _files(Path(recording)):
            said = str(Path(recording) / said)
        if said == str(e):
            raise
        raise type(e)(said) from None


def _files(directory: Path) -> set[str]:
    try:
        events = tomllib.loads((directory / "recording.toml").read_text(encoding="utf-8")).get("file")
    except (OSError, ValueError):
        return set()
    return {str(events), "sessions.toml", "machine.toml"}
