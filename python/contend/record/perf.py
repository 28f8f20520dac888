"""Recording with perf, where tracefs may not be written: system-wide tracepoints, as the text of `perf script`."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from contend._core import ContendError
from contend.record import events
from contend.record.child import Child, Signals
from contend.working import Interrupted

if TYPE_CHECKING:
    from contend.record.recorder import Options, Said

LOOK_S = 0.1
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_LOST = re.compile(rb"PERF_RECORD_LOST lost (\d+)")
_EVENT = re.compile(rb"^.{16,}?\s(\d+)\s+\[\d+\]\s+(\d+)\.(\d{9}):\s+\w+:\w+:", re.M)


def check(options: Options) -> None:
    """Raises ContendError, with what to type, if perf cannot record here."""
    if shutil.which("perf") is None:
        raise ContendError("perf is not installed (Debian: linux-perf, Ubuntu: linux-tools-common)")
    if options.private:
        raise ContendError("--private needs tracefs: names in perf's recordings cannot be changed")
    allowed = os.geteuid() == 0
    try:
        level = int(PARANOID.read_text())
    except (OSError, ValueError):
        raise ContendError("this kernel has no perf events (CONFIG_PERF_EVENTS)") from None
    if not allowed and level >= 0:
        raise ContendError(
            f"perf may not record all CPUs ({PARANOID} is {level}); "
            "`sudo sysctl kernel.perf_event_paranoid=-1` allows it, or run it with sudo"
        )


def record(options: Options, directory: Path, signals: Signals) -> Said:
    """Record into `directory`."""
    from contend.record.recorder import Said

    check(options)
    known = _known()
    must, may = events.wanted(interrupts=options.interrupts, syscalls=options.syscalls, more=options.more)
    missing = [e for e in must if e not in known]
    if missing:
        raise ContendError(f"{missing[0]}: perf knows no such event here (`perf list tracepoint` lists all)")
    on = must + [e for e in may if e in known]
    data, text = directory / "perf.data", directory / "trace.txt.gz"
    pages = max(1, 1 << (int(options.buffer_mib * 256) - 1).bit_length())
    signals.deferred = True
    try:
        command = ["perf", "record", "--quiet", "--all-cpus", "--clockid", "CLOCK_MONOTONIC",
                   "--mmap-pages", str(pages),
                   "--event", ",".join(on), "--output", str(data), "--", *options.command]  # fmt: skip
        process = Child(command)
        try:
            while not process.wait(LOOK_S):
                if signals.discard or (signals.interrupts and process.stop()):
                    break
        finally:
            process.close()
        if signals.discard:
            raise Interrupted
    finally:
        signals.deferred = False
    if not data.is_file() or data.stat().st_size == 0:
        raise ContendError("perf recorded nothing: its own message stands above")
    count, lost, first, last = _script(data, text)
    data.unlink()
    if count == 0:
        raise ContendError("perf recorded no event")
    return Said(
        file=text.name,
        recorder="perf",
        clock="mono",
        events=count,
        lost={0: lost} if lost else {},
        recorded=on,
        tasks=None,
        span_ns=last - first,
        # perf's status is the command's only if it ended by itself.
        exit_status=process.status(),
        ended_by="ctrl-c" if signals.interrupts else "command",
        # perf takes a second or two of its own around the command; its events begin and end with that.
        command_s=(last - first) / 1e9,
        # perf's and the command's are one in what the kernel accounts.
        recorder_cpu_s=None,
        cpus=os.cpu_count() or 1,
    )


def _known() -> set[str]:
    done = subprocess.run(["perf", "list", "--raw-dump", "tracepoint"], capture_output=True, text=True, check=False)
    return set(done.stdout.split())


def _script(data: Path, out: Path) -> tuple[int, int, int, int]:
    """perf.data as text, packed; returns events, lost ones, the first and the last time in ns."""
    command = ["perf", "script", "--ns", "--show-lost-events", "--fields", "comm,tid,cpu,time,event,trace",
               "--input", str(data)]  # fmt: skip
    count, lost, first, last = 0, 0, 1 << 64, 0
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
        gzip.GzipFile(out, "wb", compresslevel=6, mtime=0) as packed,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            packed.write(line)
            if found := _LOST.search(line):
                lost += int(found[1])
            elif found := _EVENT.match(line):
                now = int(found[2]) * 1_000_000_000 + int(found[3])
                count, first, last = count + 1, min(first, now), max(last, now)
    return count, lost, first, last
