"""A recording's directory: made beside its place, put there whole or not at all."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contend._core import ContendError

FILE = "recording.toml"
SESSIONS = "sessions.toml"
SCHEMA = 1


def default_name(command: list[str]) -> Path:
    """`make.rec` for /usr/bin/make."""
    name = re.sub(r"[^\w.+-]", "_", Path(command[0]).name).lstrip(".") or "command"
    return Path(f"{name}.rec")


def check_target(out: Path) -> None:
    """Refuse early what could not be put there later: anything that is not a recording stays."""
    if not out.name.endswith(".rec"):
        raise ContendError(f"--out: found '{out}'; should end in .rec")
    if not out.parent.is_dir():
        raise ContendError(f"{out}: cannot be written: no such directory as {out.parent}")
    if (out.exists() or out.is_symlink()) and not (out / FILE).is_file():
        raise ContendError(f"{out}: exists, and is no recording; --out names another")
    if not os.access(out.parent, os.W_OK):
        raise ContendError(f"{out}: cannot be written: permission denied")


class Partial:
    """The directory while it is being filled; a context manager that removes it unless `keep` put it in place."""

    def __init__(self, out: Path) -> None:
        self.out = out
        try:
            self._remove_stale()
            self.path = Path(tempfile.mkdtemp(prefix=f".{out.name}.{os.getpid()}.", dir=out.parent))
        except OSError as e:
            raise ContendError(f"{out}: cannot be written: {e.strerror}") from e

    def _remove_stale(self) -> None:
        """What a recorder that was killed left of the same recording."""
        for path in self.out.parent.glob(f".{glob.escape(self.out.name)}.*.*"):
            pid = path.name.removeprefix(f".{self.out.name}.").partition(".")[0]
            if pid.isdigit() and not Path("/proc", pid).exists():
                shutil.rmtree(path, ignore_errors=True)

    def __enter__(self) -> Partial:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def keep(self) -> None:
        """Put it in its place; an older recording there goes."""
        umask = os.umask(0)
        os.umask(umask)
        self.path.chmod(0o777 & ~umask)
        for file in self.path.iterdir():
            file.chmod(0o666 & ~umask)
        try:
            check_target(self.out)
            if not self.out.exists():
                self.path.rename(self.out)
                return
            old = Path(tempfile.mkdtemp(prefix=f".{self.out.name}.{os.getpid()}.", dir=self.out.parent))
            try:
                self.out.rename(old / "old")
                self.path.rename(self.out)
            finally:
                shutil.rmtree(old, ignore_errors=True)
        except OSError as e:
            raise ContendError(f"{self.out}: cannot be written: {e.strerror}") from e


def toml(values: Mapping[str, Any], comment: str) -> str:
    """Plain values as TOML; tables come last."""
    lines = [f"# {comment}"]
    tables = [key for key, value in values.items() if isinstance(value, Mapping)]
    lines += [f"{key} = {_value(value)}" for key, value in values.items() if key not in tables]
    for table in tables:
        lines += ["", f"[{table}]", *(f"{key} = {_value(value)}" for key, value in values[table].items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, str):
        # JSON's strings are TOML's, but for DEL and for bytes that were no text.
        text = value.encode("utf-8", "backslashreplace").decode()
        return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
    return json.dumps(value)
