"""Numbers with their units, readable."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Text for a terminal: control characters, which tasks' names may hold, are replaced; ends of lines stay."""
    return _CONTROL.sub("?", text)


def si(value: float) -> str:
    """A count with a unit prefix: 1.23 M."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= limit:
            return f"{value / limit * (10 if unit == ' k' else 1):.{1 if unit == ' k' else 2}f}{unit}"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.1f}"


def counted(n: int, what: str) -> str:
    """A number of things: 1 task, 1,024 tasks."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def duration_us(us: float) -> str:
    """Microseconds, readable."""
    if us >= 1e6:
        return f"{us / 1e6:.2f} s"
    if us >= 1e3:
        return f"{us / 1e3:.2f} ms"
    return f"{us:.1f} us"


def percent(share: float) -> str:
    """A share of one."""
    value = 100 * share
    if 0 < value < 0.01:
        return "<0.01 %"
    return f"{value:.2f} %"


def seconds(s: float) -> str:
    """Seconds with the precision that their size deserves."""
    if s == 0:
        return "0 s"
    if s < 1e-3:
        return f"{s * 1e6:.1f} us"
    if s < 1:
        return f"{s * 1e3:.2f} ms"
    return f"{s:.3f} s"
