"""A trace instance of our own in tracefs: nobody else's tracing is disturbed, and none disturbs ours.

An instance is a directory that is made with mkdir and goes with rmdir. It needs no function tracer, so it works where
that is locked down.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from contend._core import ContendError

ROOTS = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
PREFIX = "contend-"
CLOCK = "mono"


class Unavailable(ContendError):
    """tracefs cannot be used here; the message says why and what to type."""


def root() -> Path:
    """Where tracefs is mounted, with the right to make instances; raises Unavailable."""
    for candidate in ROOTS:
        try:
            if (candidate / "instances").is_dir():
                # Who may not write here is told by the mkdir; who may not even look, below.
                return candidate
            list(candidate.iterdir())
        except PermissionError:
            raise Unavailable(f"{candidate}: permission denied; run it with sudo") from None
        except OSError:
            continue
    if "tracefs" not in _file_systems():
        raise Unavailable("this kernel has no tracefs (CONFIG_TRACING)")
    sudo = "" if os.geteuid() == 0 else "sudo "
    raise Unavailable(f"tracefs is not mounted; `{sudo}mount -t tracefs nodev {ROOTS[0]}` mounts it")


def _file_systems() -> str:
    try:
        return Path("/proc/filesystems").read_text()
    except OSError:
        return ""


def namespace() -> int:
    """That of this process's PID, by inode: containers share the kernel, and so tracefs, but not what a PID means."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def remove_stale(tracing: Path) -> list[str]:
    """Remove the instances of recorders and probes of this container that were killed; returns their names."""
    gone = []
    for instance in sorted((tracing / "instances").glob(f"{PREFIX}*")):
        owner = instance.name.removeprefix(PREFIX).removeprefix("probe-")
        pid = owner.removeprefix(f"{namespace()}-")
        if pid != owner and pid.isdigit() and not Path("/proc", pid).exists():
            # Another contend may remove it at this moment.
            with contextlib.suppress(OSError):
                (instance / "tracing_on").write_text("0")
                instance.rmdir()
                gone.append(instance.name)
    return gone


class Instance:
    """The instance. Raises Unavailable if it cannot be made, and leaves nothing then."""

    def __init__(self, tracing: Path, *, buffer_kib: int) -> None:
        self.tracing = tracing
        self.path = tracing / "instances" / f"{PREFIX}{namespace()}-{os.getpid()}"
        try:
            self.path.mkdir()
        except OSError as e:
            raise Unavailable(_refused(self.path, e)) from e
        try:
            self.write("tracing_on", "0")
            self.write("trace_clock", CLOCK)
            self._buffer(buffer_kib)
            # Not only on overflow: the oldest events are kept, and what does not fit is counted.
            self.write("options/overwrite", "0")
        except BaseException:
            self.remove()
            raise

    def _buffer(self, kib: int) -> None:
        try:
            self.write("buffer_size_kb", str(kib))
        except OSError as e:
            if e.errno != errno.ENOMEM:
                raise
            right = "less (the kernel has no memory for so much on each CPU)"
            raise ContendError(f"--buffer: found {kib / 1024:g} MiB; should be {right}") from None

    def write(self, name: str, text: str) -> None:
        """Write a control file."""
        (self.path / name).write_text(text)

    def read(self, name: str) -> str:
        """Read a control file."""
        return (self.path / name).read_text(errors="replace")

    def cpus(self) -> list[int]:
        """CPUs that have a buffer, ascending."""
        return sorted(int(d.name.removeprefix("cpu")) for d in (self.path / "per_cpu").glob("cpu[0-9]*"))

    def enable(self, must: list[str], may: list[str]) -> list[str]:
        """Turn events on; returns those that are on. Raises ContendError if one that must be is not there."""
        on = []
        for event in must + may:
            system, name = event.split(":")
            switch = self.path / "events" / system / name / "enable"
            if not switch.exists():
                if event in must:
                    raise ContendError(
                        f"{event}: this kernel has no such event; {self.tracing}/available_events lists all"
                    )
                continue
            switch.write_text("1")
            on.append(event)
        return on

    def stats(self, cpu: int) -> dict[str, int]:
        """Counters of one CPU's buffer: `entries`, `overrun`, `dropped events`, `read events` and others."""
        counts = {}
        for line in self.read(f"per_cpu/cpu{cpu}/stats").splitlines():
            name, _, value = line.partition(":")
            with contextlib.suppress(ValueError):
                counts[name.strip()] = int(value)
        return counts

    def remove(self) -> None:
        """Stop and remove it. Files of it must be closed."""
        with contextlib.suppress(FileNotFoundError):
            self.write("tracing_on", "0")
            self.write("events/enable", "0")
            self.path.rmdir()


def _refused(path: Path, e: OSError) -> str:
    if e.errno in (errno.EACCES, errno.EPERM) and os.geteuid() != 0:
        return f"{path.parent}: permission denied; run it with sudo"
    if e.errno == errno.EROFS:
        return f"{path.parent}: mounted read-only; `mount -o remount,rw {path.parent.parent}` changes that"
    if e.errno in (errno.EACCES, errno.EPERM):
        return f"{path.parent}: refused even for root (a locked-down kernel or a container)"
    return f"{path.parent}: no instance can be made: {e.strerror}"
