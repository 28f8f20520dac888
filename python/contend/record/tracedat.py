"""trace-cmd's file format, version 6, as `man trace-cmd.dat.v6` describes it: little-endian.

Header, formats, names of tasks, options, then each CPU's pages as the kernel wrote them, at the beginning of a page.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

CPUSTAT, TRACECLOCK, UNAME, CPUCOUNT = 2, 4, 5, 8


def write(
    out: BinaryIO,
    *,
    tracing: Path,
    page_bytes: int,
    events: list[str],
    comms: Mapping[int, bytes],
    clock: str,
    uname: str,
    stats: Mapping[int, str],
    cpus: list[tuple[int, Path]],
) -> None:
    """Write the file. `events` as `system:name`, `comms` by pid, `cpus` the files with pages by CPU."""
    out.write(b"\x17\x08\x44tracing6\0" + bytes([0, 8]) + struct.pack("<I", page_bytes))
    for name in ("header_page", "header_event"):
        out.write(name.encode() + b"\0" + _long(_read(tracing / "events" / name)))
    own = sorted((tracing / "events/ftrace").glob("*/format"))
    out.write(struct.pack("<I", len(own)))
    for file in own:
        out.write(_long(_read(file)))
    systems: dict[str, list[str]] = {}
    for event in events:
        system, name = event.split(":")
        systems.setdefault(system, []).append(name)
    out.write(struct.pack("<I", len(systems)))
    for system, names in systems.items():
        out.write(system.encode() + b"\0" + struct.pack("<I", len(names)))
        for name in names:
            out.write(_long(_read(tracing / "events" / system / name / "format")))
    # No addresses of the kernel's functions, and nothing of trace_printk: no recorded event has either.
    out.write(struct.pack("<II", 0, 0))
    lines = b"".join(b"%d %s\n" % (pid, comm) for pid, comm in sorted(comms.items()))
    out.write(_long(lines))
    # CPUs are numbered without gaps in this format.
    count = max(cpu for cpu, _ in cpus) + 1
    out.write(struct.pack("<I", count))
    out.write(b"options  \0")
    _option(out, TRACECLOCK, f"[{clock}]\n".encode() + b"\0")
    _option(out, UNAME, uname.encode() + b"\0")
    _option(out, CPUCOUNT, struct.pack("<I", count))
    for cpu, text in sorted(stats.items()):
        _option(out, CPUSTAT, f"CPU: {cpu}\n{text}".encode() + b"\0")
    out.write(struct.pack("<H", 0))
    out.write(b"flyrecord\0")

    paths = dict(cpus)
    at = out.tell() + 16 * count
    at += -at % page_bytes
    begin = at
    for cpu in range(count):
        size = paths[cpu].stat().st_size if cpu in paths else 0
        out.write(struct.pack("<QQ", at, size))
        at += size
    out.write(bytes(begin - out.tell()))
    for cpu in sorted(paths):
        with paths[cpu].open("rb") as pages:
            shutil.copyfileobj(pages, out, 1 << 20)


def _read(file: Path) -> bytes:
    return file.read_bytes()


def _long(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def _option(out: BinaryIO, kind: int, data: bytes) -> None:
    out.write(struct.pack("<HI", kind, len(data)) + data)
