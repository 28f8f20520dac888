"""Empties the ring buffers of an instance into one file a CPU, while events come.

Full pages are spliced, without a copy through this process. What is left on pages that are not full is read at the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from contend.record.tracefs import Instance

PIPE_BYTES = 1 << 20


class Drain:
    """The streams of all CPUs; a context manager that closes them (an instance with open files cannot go)."""

    def __init__(self, instance: Instance, directory: Path) -> None:
        self.page = os.sysconf("SC_PAGE_SIZE")
        self.files = contextlib.ExitStack()
        self.streams: list[tuple[int, int, int]] = []
        self.paths: list[tuple[int, Path]] = []
        try:
            self.source, self.sink = os.pipe()
            self.files.callback(os.close, self.source)
            self.files.callback(os.close, self.sink)
            # As large as allowed; any size works.
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.sink, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            self.room = fcntl.fcntl(self.sink, fcntl.F_GETPIPE_SZ)
            for cpu in instance.cpus():
                path = directory / f"cpu{cpu}.raw"
                raw = self._open(instance.path / f"per_cpu/cpu{cpu}/trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK)
                out = self._open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                self.streams.append((cpu, raw, out))
                self.paths.append((cpu, path))
        except BaseException:
            self.files.close()
            raise

    def _open(self, path: Path, flags: int) -> int:
        fd = os.open(path, flags, 0o600)
        self.files.callback(os.close, fd)
        return fd

    def __enter__(self) -> Drain:
        return self

    def __exit__(self, *_: object) -> None:
        self.files.close()

    def step(self) -> int:
        """Move all full pages; returns bytes."""
        moved = 0
        for _, raw, out in self.streams:
            while True:
                try:
                    got = os.splice(raw, self.sink, self.room, flags=os.SPLICE_F_NONBLOCK)
                except BlockingIOError:
                    break
                if got == 0:
                    break
                moved += got
                while got:
                    got -= os.splice(self.source, out, got)
        return moved

    def finish(self) -> int:
        """After the last event: move what is left; returns bytes."""
        moved = self.step()
        for _, raw, out in self.streams:
            while True:
                try:
                    page = os.read(raw, self.page)
                except BlockingIOError:
                    break
                if not page:
                    break
                moved += os.write(out, page)
        return moved
