"""Colours and axes that the figures share."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

ACCOUNTS = {
    "user": "#0072b2",
    "guest_user": "#332288",
    "syscall": "#56b4e9",
    "guest_kernel": "#88ccee",
    "cold_cache": "#cc79a7",
    "wakeup": "#009e73",
    "idle_search": "#44aa99",
    "switch": "#f0e442",
    "balance": "#999933",
    "interrupt": "#e69f00",
    "rq_lock_wait": "#d55e00",
    "spin_lock_wait": "#882255",
    "on_cpu_wait": "#aa4499",
    "user_spin_wait": "#cc6677",
    "guest_spin": "#b3202a",
    "vm_exit": "#ddcc77",
    "ple": "#117733",
    "halt_poll": "#8a8a8a",
}
"""A colour an account, from the palettes of Okabe and Ito and of Paul Tol, which the colour-blind tell apart."""

IDLE = ("#ecece6", "#2a3036")
"""Idle CPUs, in light and in dark."""
OTHER = ("#bdbdb5", "#5f6870")

SERIES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#999933"]
"""Okabe and Ito's, for results side by side."""

MAP = "Cividis"


def swatch(colour: str) -> str:
    """A small square of a colour, as HTML."""
    return f'<span class="swatch" style="background:{escape(colour, quote=True)}"></span>'


def unit_of_time(ns: float) -> tuple[str, float]:
    """The unit in which a time axis up to `ns` is read best, and its length in ns."""
    for name, length in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= 2 * length or name == "µs":
            return name, length
    raise AssertionError


def rounded(values: Sequence[float], digits: int = 5) -> list[float]:
    """Numbers with as many digits as a figure can show."""
    return [float(f"{v:.{digits}g}") for v in values]
