"""What a report is of: told by what is given."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contend import result as results
from contend._core import ContendError
from contend.report.page import Page
from contend.result import Result

if TYPE_CHECKING:
    from contend.study.simulate import Progress

SHOULD = "a result's directory, a sweep's directory, a file of `contend reproduce --json`, or a study (name or folder)"


def report(*of: Result | str | os.PathLike[str], progress: Progress | None = None) -> str:
    """The HTML of a report: of one result, of several side by side (the first is the baseline), of a study or a sweep.

    Args:
        *of: Results, or paths; a study (a shipped one's name, or a folder) is simulated first, quickly.
        progress: Of a study's runs.

    Raises:
        ContendError: Something else is given.
    """
    return page_of(of, progress=progress).html()


def page_of(of: Sequence[Result | str | os.PathLike[str]], *, progress: Progress | None = None) -> Page:
    """The page, before it becomes HTML."""
    if not of:
        raise ContendError(f"nothing to report; should be {SHOULD}")
    if len(of) == 1 and not isinstance(of[0], Result):
        single = _study(of[0], progress) or _sweep(of[0])
        if single:
            return single
    loaded = [(str(i + 1), r) if isinstance(r, Result) else (os.fspath(r), _result(r)) for i, r in enumerate(of)]
    for name, r in loaded:
        _complete(name, r)
    if len(loaded) == 1:
        from contend.report.run_page import run_page

        return run_page(loaded[0][1])
    from contend.report.comparison_page import comparison_page

    return comparison_page([name for name, _ in loaded], [r for _, r in loaded])


def _result(path: str | os.PathLike[str]) -> Result:
    place = Path(path)
    if place.is_file() and place.name != "summary.json":
        raise ContendError(f"{path}: found a file; should be {SHOULD}; a study or sweep is reported alone")
    if (place / "sweep.json").is_file():
        raise ContendError(f"{path}: found a sweep beside others; a sweep is reported alone")
    if not place.exists():
        raise ContendError(f"{path}: no such file or directory; should be {SHOULD}")
    return results.load(path)


def _complete(name: str, r: Result) -> None:
    """Results of versions before the table `timeline` have nothing over time."""
    try:
        r["timeline"]
    except ContendError as e:
        raise ContendError(
            f"{name}: has no table timeline: an earlier version of contend made it, or it is damaged; "
            f"run it again: {shlex.join(['contend', 'run', name, '--out', name])}"
        ) from e


def _study(given: str | os.PathLike[str], progress: Progress | None) -> Page | None:
    from contend.report.study_page import study_page

    path = Path(given)
    if path.is_file() and path.name != "summary.json":
        return study_page(_reproduction(path))
    from contend.study.load import names

    if not (path / "study.toml").is_file() and (path.exists() or os.fspath(given) not in names()):
        return None
    from contend.study.reproduction import reproduce

    return study_page(reproduce(os.fspath(given), quick=True, progress=progress).to_dict())


def _reproduction(path: Path) -> dict[str, Any]:
    from contend.study.reproduction import SCHEMA

    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ContendError(f"{path}: cannot be read: {e.strerror}") from e
    except (ValueError, UnicodeDecodeError) as e:
        raise ContendError(f"{path}: found no JSON ({e}); should be {SHOULD}") from e
    if not isinstance(found, dict) or not {"schema", "studies", "rows", "effects", "summary"} <= found.keys():
        raise ContendError(f"{path}: found other JSON; should be the object that `contend reproduce --json` prints")
    if found["schema"] != SCHEMA:
        raise ContendError(f"{path}: found schema = {found['schema']}; this version reads {SCHEMA}; reproduce again")
    return found


def _sweep(given: str | os.PathLike[str]) -> Page | None:
    if not (Path(given) / "sweep.json").is_file():
        return None
    from contend.report.sweep_page import sweep_page

    return sweep_page(Path(given))
