"""One recording, from the check of the command to the directory in its place."""

from __future__ import annotations

import contextlib
import datetime
import gzip
import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contend import _core
from contend._core import ContendError, __version__
from contend.record import child, drain, events, kernel, pages, perf, store, tracedat, tracefs
from contend.record.child import RECORDER, Child, Signals
from contend.working import Interrupted

LOOK_S = 0.1
"""Time between two looks at the buffers."""
OTHER = b"other"
"""The name of tasks whose name is nobody's business."""
CHUNK_PAGES = 4096
BRIEFLY_MS = 500
"""What the costs of the machine are worth where nobody asked for more: a dozen repetitions of every experiment."""
MEASURED_BRIEFLY = "its machine.toml was measured in a second; --probe takes more repetitions, in 5 s"
"""Said where nobody asked for more."""


@dataclass(frozen=True)
class Options:
    """What to record, and how."""

    command: list[str]
    out: Path
    recorder: str = "auto"
    """`tracefs`, `perf` or `auto`."""
    interrupts: bool = True
    syscalls: bool = False
    more: list[str] = field(default_factory=list)
    buffer_mib: float = 8
    machine: Path | None = None
    probe: bool = False
    """Measure the machine first, where no file says."""
    private: bool = False
    compress: bool = False


Progress = Callable[[str, float], None]
"""Called with what is being done and the share of it that is done."""


@dataclass
class Said:
    """What a recorder found, for recording.toml."""

    file: str
    recorder: str
    clock: str
    events: int
    lost: dict[int, int]
    recorded: list[str]
    tasks: int | None
    span_ns: int
    exit_status: int | None
    ended_by: str
    command_s: float
    recorder_cpu_s: float | None
    cpus: int


def record(options: Options, progress: Progress) -> dict[str, Any]:
    """Record; returns what recording.toml says, and `path`, `notes`.

    Raises ContendError for what is not right or not allowed, Interrupted if it was discarded. Nothing is left then.
    """
    child.check(options.command)
    if options.private and options.more:
        raise ContendError("--events: found --private too; should be one of them: such events may hold other names")
    store.check_target(options.out)
    machine = _machine(options, progress)
    notes: list[str] = []
    if options.machine is None and not options.probe:
        notes.append(MEASURED_BRIEFLY)
    sessions = kernel.sessions()
    with Signals() as signals, store.Partial(options.out) as partial, _system_errors(options.out):
        said = _tracefs_or_perf(options, partial.path, signals, progress, notes)
        if said.exit_status is None:
            notes.append("the command did not end and was left running")
        toml = _facts(options, said)
        if said.file.endswith(".dat") and options.compress:
            _gzip(partial.path / said.file)
            toml["file"] = f"{said.file}.gz"
        (partial.path / "machine.toml").write_text(machine, encoding="utf-8")
        text = store.toml(
            toml, f"Made by contend record {__version__}; `contend run {shlex.quote(options.out.name)}` replays it."
        )
        (partial.path / store.FILE).write_text(text, encoding="utf-8")
        if sessions:
            text = store.toml({"sessions": sessions}, "Tasks by the number of their session's autogroup.")
            (partial.path / store.SESSIONS).write_text(text, encoding="utf-8")
        partial.keep()
    return {**toml, "path": str(options.out), "notes": notes}


@contextlib.contextmanager
def _system_errors(out: Path) -> Iterator[None]:
    """A full disk, and whatever else the system refuses."""
    try:
        yield
    except OSError as e:
        raise ContendError(f"{e.filename or out}: {e.strerror or e}") from e


def _tracefs_or_perf(options: Options, directory: Path, signals: Signals, progress: Progress, notes: list[str]) -> Said:
    if options.recorder == "perf":
        return perf.record(options, directory, signals)
    try:
        tracing = tracefs.root()
        return _with_tracefs(options, tracing, directory, signals, progress)
    except tracefs.Unavailable as first:
        if options.recorder == "tracefs":
            raise
        try:
            perf.check(options)
        except ContendError as second:
            raise ContendError(f"nothing to record with: {first}; {second}") from None
        notes.append(f"recorded with perf, since tracefs cannot be used: {first}")
        return perf.record(options, directory, signals)


def _with_tracefs(options: Options, tracing: Path, directory: Path, signals: Signals, progress: Progress) -> Said:
    tracefs.remove_stale(tracing)
    must, may = events.wanted(interrupts=options.interrupts, syscalls=options.syscalls, more=options.more)
    threads = kernel.kernel_threads() if options.private else set()
    with _instance(tracing, int(options.buffer_mib * 1024)) as instance:
        on = instance.enable(must, may)
        with drain.Drain(instance, directory) as streams, child.named(RECORDER):
            signals.deferred = True
            cpu_before = time.process_time()
            instance.write("tracing_on", "1")
            try:
                process = Child(options.command)
                try:
                    while not process.wait(LOOK_S):
                        streams.step()
                        if signals.discard or (signals.interrupts and process.stop()):
                            break
                finally:
                    instance.write("tracing_on", "0")
                    process.close()
                if signals.discard:
                    raise Interrupted
                cpu_s, cpus = time.process_time() - cpu_before, instance.cpus()
                stats = {cpu: instance.read(f"per_cpu/cpu{cpu}/stats") for cpu in cpus}
                lost = {cpu: _lost(instance.stats(cpu)) for cpu in cpus}
                streams.finish()
            finally:
                signals.deferred = False
        if options.private:
            threads |= kernel.kernel_threads()
        formats = [
            pages.parse_format(e, (instance.path / "events" / e.replace(":", "/") / "format").read_text()) for e in on
        ]
    found = _read(streams, formats, progress)
    inside = pages.descendants(found.forks, process.pid)
    if options.private:
        threads |= {kid for _, parent, kid in found.forks if parent == 2}
        keep = inside | threads | {os.getpid()}
        _rename(streams, formats, keep, progress)
        found.names = {pid: (at, name if pid in keep else OTHER) for pid, (at, name) in found.names.items()}
    uname = os.uname()
    with (directory / "trace.dat").open("wb") as out:
        tracedat.write(
            out,
            tracing=tracing,
            page_bytes=streams.page,
            events=on,
            comms={pid: name for pid, (_, name) in found.names.items() if pid},
            clock=tracefs.CLOCK,
            # Not the machine's name in the network.
            uname=f"{uname.sysname} {uname.release} {uname.machine}",
            stats=stats,
            cpus=streams.paths,
        )
    for _, path in streams.paths:
        path.unlink()
    if found.events == 0:
        raise ContendError("the kernel recorded no event: is tracing turned off for the whole system?")
    return Said(
        file="trace.dat",
        recorder="tracefs",
        clock=tracefs.CLOCK,
        events=found.events,
        lost=lost,
        recorded=on,
        tasks=len(inside),
        span_ns=found.last_ns - found.first_ns,
        exit_status=process.status(),
        ended_by="ctrl-c" if signals.interrupts else "command",
        command_s=process.seconds,
        recorder_cpu_s=cpu_s,
        cpus=len(cpus),
    )


@contextlib.contextmanager
def _instance(tracing: Path, buffer_kib: int) -> Iterator[tracefs.Instance]:
    instance = tracefs.Instance(tracing, buffer_kib=buffer_kib)
    try:
        yield instance
    finally:
        instance.remove()


def _lost(stats: dict[str, int]) -> int:
    return sum(stats.get(name, 0) for name in ("overrun", "commit overrun", "dropped events"))


def _chunks(path: Path, page: int) -> Iterator[bytearray]:
    with path.open("rb") as file:
        while chunk := file.read(page * CHUNK_PAGES):
            yield bytearray(chunk)


def _read(streams: drain.Drain, formats: list[pages.Format], progress: Progress) -> pages.Found:
    found = pages.Found()
    total, done = sum(p.stat().st_size for _, p in streams.paths), 0
    for _, path in streams.paths:
        for chunk in _chunks(path, streams.page):
            pages.learn(chunk, streams.page, formats, found)
            done += len(chunk)
            progress("reading what was recorded", done / total)
    return found


def _rename(streams: drain.Drain, formats: list[pages.Format], keep: set[int], progress: Progress) -> None:
    total, done = sum(p.stat().st_size for _, p in streams.paths), 0
    for _, path in streams.paths:
        with path.open("r+b") as file:
            for chunk in _chunks(path, streams.page):
                pages.rename(chunk, streams.page, formats, keep, OTHER)
                file.write(chunk)
                done += len(chunk)
                progress("leaving out names", done / total)


def _gzip(file: Path) -> None:
    with file.open("rb") as plain, gzip.GzipFile(f"{file}.gz", "wb", mtime=0) as packed:
        shutil.copyfileobj(plain, packed, 1 << 20)
    file.unlink()


def _machine(options: Options, progress: Progress) -> str:
    """The machine file."""
    file = options.machine
    if file is None:
        budget = None if options.probe else BRIEFLY_MS
        told = _core.probe(
            quick=True, budget_ms=budget, progress=lambda share: progress("measuring the machine", share)
        )
        made: dict[str, str] = json.loads(told)
        return made["toml"]
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "not UTF-8 text"
        raise ContendError(f"--machine: {file}: cannot be read: {why}") from e
    if file.suffix != ".toml":
        raise ContendError(f"--machine: found '{file}'; should be a machine file (.toml), as `contend probe` writes it")
    # Refuse now what `contend run` would refuse later.
    costs = json.loads(_core.describe("costs", str(file)))
    assert costs
    return text


def _facts(options: Options, said: Said) -> dict[str, Any]:
    about = kernel.facts()
    presets = [p["name"] for p in json.loads(_core.describe("presets"))]
    values: dict[str, Any] = {
        "schema": store.SCHEMA,
        "file": said.file,
        "policy": kernel.preset_of(about["release"], presets),
        "command": options.command,
        "ended_by": said.ended_by,
        "recorded_at": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "duration_s": round(said.command_s, 6),
        "recorder": f"contend {__version__}, {said.recorder}",
        "clock": said.clock,
        "cpus": said.cpus,
        "events": said.events,
        "span_s": round(said.span_ns / 1e9, 9),
        "lost": sum(said.lost.values()),
        "recorded": said.recorded,
        "private": options.private,
    }
    if said.recorder_cpu_s is not None:
        values["recorder_cpu_s"] = round(said.recorder_cpu_s, 3)
    if said.exit_status is not None:
        values["exit_status"] = said.exit_status
    if said.tasks is not None:
        values["tasks"] = said.tasks
    if any(said.lost.values()):
        values["lost_by_cpu"] = {f"cpu{cpu}": n for cpu, n in said.lost.items() if n}
    values["kernel"] = about
    return values
