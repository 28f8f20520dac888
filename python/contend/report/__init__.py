"""Reports: one self-contained HTML file for a run, a comparison, a study or a sweep (`contend report`).

>>> import contend
>>> from contend.report import report
>>> run = contend.run({"machine": "4c", "horizon_s": 0.1, "workload": {"kind": "periodic", "tasks": 8}})
>>> report(run)[:15]
'<!doctype html>'
"""

from __future__ import annotations

from typing import Any

__all__ = ["report"]


def __getattr__(name: str) -> Any:
    """The command line imports this package at its start: what makes pages is imported when it is used."""
    if name != "report":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from contend.report.kinds import report

    return report
