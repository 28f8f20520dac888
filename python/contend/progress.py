"""One line on stderr, rewritten in place: how far, how fast, how long still."""

from __future__ import annotations

import sys
import time

from contend.units import counted

AFTER_S = 2.0
"""Work that takes longer shows where it stands."""
EVERY_S = 0.25


class Line:
    """The line itself. `forced`: show it from the start."""

    def __init__(self, *, forced: bool = False) -> None:
        self.began = time.monotonic()
        self.forced = forced
        self.width = 0
        self.shown = 0.0

    def due(self) -> float | None:
        """The seconds since the beginning if it is time to show the line again."""
        clock = time.monotonic()
        taken = clock - self.began
        if (taken < AFTER_S and not self.forced) or clock - self.shown < EVERY_S:
            return None
        self.shown = clock
        return taken

    def write(self, line: str) -> None:
        """Replace what it says."""
        sys.stderr.write("\r" + line.ljust(self.width))
        sys.stderr.flush()
        self.width = len(line)

    def clear(self) -> None:
        """Remove the line."""
        if self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            sys.stderr.flush()
            self.width = 0


class RunProgress(Line):
    """Progress of one run; `contend.run` calls it."""

    endless = False
    """It ends with its tasks alone."""

    def __call__(self, now_ns: int, horizon_ns: int | None, alive: int, dispatches: int) -> None:
        """Show it, from the second second on and four times a second."""
        self.endless = horizon_ns is None
        taken = self.due()
        if taken is None:
            return
        virtual = now_ns / 1e9
        rate = virtual / taken if taken else 0.0
        parts = []
        if horizon_ns:
            parts.append(f"{100 * now_ns / horizon_ns:3.0f} %  {virtual:.3f} of {horizon_ns / 1e9:g} virtual s")
        else:
            parts.append(f"{virtual:.3f} virtual s, {counted(alive, 'task')} alive")
        parts.append(f"{rate:.3g} virtual s/s")
        parts.append(f"{dispatches / taken / 1e6:.2f} M dispatches/s" if taken else "")
        if horizon_ns and rate > 0:
            parts.append(f"{max(0.0, (horizon_ns / 1e9 - virtual) / rate):.0f} s left")
        self.write("  ".join(parts))


class RunsProgress(Line):
    """Progress of many runs: `done` of `total`."""

    def __call__(self, done: int, total: int, what: str = "runs") -> None:
        """Show it, from the second second on and four times a second."""
        taken = self.due()
        if taken is None:
            return
        rate = done / taken if taken else 0.0
        left = f"  {(total - done) / rate:.0f} s left" if done else ""
        self.write(f"{100 * done / max(total, 1):3.0f} %  {done:,} of {total:,} {what}  {rate:.2f} runs/s{left}")


class ShareProgress(Line):
    """Progress of work whose share is known: `done` from 0 to 1."""

    def __init__(self, what: str, *, forced: bool = False) -> None:
        super().__init__(forced=forced)
        self.what = what

    def __call__(self, done: float) -> None:
        """Show it, from the second second on and four times a second."""
        taken = self.due()
        if taken is None:
            return
        left = f"  {taken / done - taken:.0f} s left" if done > 0 else ""
        self.write(f"{100 * done:3.0f} %  {self.what}{left}")
