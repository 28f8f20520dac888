"""The command that is recorded."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from contend._core import ContendError
from contend.working import Interrupted

RECORDER = "contend-record"
"""The name of the recorder's task. What a task of this name executes is what was to be recorded
(`is_recorder` in crates/workload/src/recording)."""
GRACE_S = 2.0
"""So long a command may take to end after Ctrl-C, before it is told again."""


def check(command: list[str]) -> None:
    """Raises ContendError if there is no such command."""
    name = command[0]
    if shutil.which(name) is None:
        there = "/" in name and Path(name).exists()
        what = "not executable" if there else "no such command"
        raise ContendError(f"{name}: {what}; should be a program and its arguments, after --")


class Signals:
    """Ctrl-C as in perf: the command gets it too; the first ends the recording, the second discards it.

    SIGTERM and SIGHUP discard. While `deferred`, signals are only counted; otherwise all of them raise Interrupted.
    """

    KINDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.interrupts = 0
        self.terminated = False
        self.deferred = False

    def __enter__(self) -> Signals:
        self.before = {kind: signal.signal(kind, self._on) for kind in self.KINDS}
        return self

    def __exit__(self, *_: object) -> None:
        for kind, handler in self.before.items():
            signal.signal(kind, handler)

    def _on(self, kind: int, _frame: FrameType | None) -> None:
        if not self.deferred:
            raise Interrupted
        if kind == signal.SIGINT:
            self.interrupts += 1
        else:
            self.terminated = True

    @property
    def discard(self) -> bool:
        """The recording is not wanted any more."""
        return self.terminated or self.interrupts > 1


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """The calling thread bears another name meanwhile."""
    file = Path("/proc/thread-self/comm")
    before = file.read_text().rstrip("\n")
    file.write_text(name)
    try:
        yield
    finally:
        file.write_text(before)


class Child:
    """The running command. Its parent's name is RECORDER when it is started."""

    def __init__(self, command: list[str]) -> None:
        try:
            self.process = subprocess.Popen(command)
        except OSError as e:
            raise ContendError(f"{command[0]}: cannot be executed: {e.strerror}") from e
        self.began = time.monotonic()
        self.ended: float | None = None
        self.told: float | None = None
        self.left_running = False
        self.fd = os.pidfd_open(self.process.pid)
        self.waiting = select.poll()
        self.waiting.register(self.fd, select.POLLIN)

    @property
    def pid(self) -> int:
        """Its number."""
        return self.process.pid

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return (self.ended or time.monotonic()) - self.began

    def wait(self, seconds: float) -> bool:
        """Wait so long for its end; returns whether it has ended."""
        if self.ended is None and self.waiting.poll(seconds * 1000):
            self.process.wait()
            self.ended = time.monotonic()
        return self.ended is not None

    def stop(self) -> bool:
        """After Ctrl-C: time to end by itself, then a signal, then as much time; returns whether waiting is over."""
        now = time.monotonic()
        if self.told is None:
            self.told = now + GRACE_S
        elif self.told and now > self.told + GRACE_S:
            return True
        elif self.told and now > self.told and self.process.poll() is None:
            self.process.terminate()
        return False

    def status(self) -> int | None:
        """Its exit status as a shell says it (128 and the signal's number); None if it was left running."""
        code = None if self.left_running else self.process.poll()
        return code if code is None or code >= 0 else 128 - code

    def close(self) -> None:
        """Let go; a command that still runs is told to end."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_S)
        os.close(self.fd)
        if self.process.returncode is None:
            # Not ours to wait for any more: Popen would complain that nobody did.
            self.left_running = True
            self.process.returncode = 0
