"""The kernel that runs here, and the preset that stands for it."""

from __future__ import annotations

import gzip
import os
import re
import time
from pathlib import Path
from typing import Any

CLOCK_MONOTONIC_COARSE = 6
CGROUPS = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
"""Where the cgroups of version 2 are."""


def facts() -> dict[str, Any]:
    """Release, preemption mode and ticks a second; what cannot be read is left out."""
    uname = os.uname()
    said: dict[str, Any] = {"system": uname.sysname, "release": uname.release, "architecture": uname.machine}
    mode = preemption()
    if mode:
        said["preempt"] = mode
    # A tick is the resolution of the coarse clock.
    hz = round(1 / time.clock_getres(CLOCK_MONOTONIC_COARSE))
    if 24 <= hz <= 10_000:
        said["hz"] = hz
    said["virtual"] = virtual()
    if autogroup := _text("/proc/sys/kernel/sched_autogroup_enabled").strip():
        said["autogroup"] = autogroup == "1"
    return said


def sessions() -> dict[int, list[int]]:
    """The threads of each session, by the number of its autogroup: of those that no cgroup has a weight for."""
    found: dict[int, list[int]] = {}
    for process in Path("/proc").iterdir():
        session = re.match(r"/autogroup-(\d+) ", _text(process / "autogroup")) if process.name.isdigit() else None
        # One that has ended, and waits for its parent, has no command line, and may have left its cgroup.
        if session and _text(process / "cmdline") and not _weighted(_text(process / "cgroup")):
            try:
                threads = [int(t.name) for t in (process / "task").iterdir()]
            except OSError:  # It has ended meanwhile.
                continue
            found.setdefault(int(session[1]), []).extend(threads)
    return {session: sorted(found[session]) for session in sorted(found)}


def _weighted(cgroups: str) -> bool:
    """Do the cgroups that a process is in (/proc/PID/cgroup) include one with a CPU weight, other than the root?"""
    for line in cgroups.splitlines():
        number, controllers, path = line.split(":", 2)
        if path == "/":
            continue
        if "cpu" in controllers.split(","):
            return True
        # Where the controller is not enabled, a cgroup's tasks are those of the one that it is in.
        above = [Path(path), *Path(path).parents][:-1]
        if number == "0" and any(Path(f"{root}{p}/cpu.weight").exists() for root in CGROUPS for p in above):
            return True
    return False


def preemption() -> str | None:
    """`none`, `voluntary`, `full` or `lazy`: what runs now, else what the command line or the configuration says."""
    if found := re.search(r"\((\w+)\)", _text("/sys/kernel/debug/sched/preempt")):
        return found[1]
    if found := re.search(r"\bpreempt=(none|voluntary|full|lazy)\b", _text("/proc/cmdline")):
        return found[1]
    config = _text(f"/boot/config-{os.uname().release}")
    if not config:
        try:
            config = gzip.decompress(Path("/proc/config.gz").read_bytes()).decode()
        except OSError:
            return None
    for key, mode in [("PREEMPT_LAZY", "lazy"), ("PREEMPT_NONE", "none"), ("PREEMPT_VOLUNTARY", "voluntary"),
                      ("PREEMPT_RT", "rt"), ("PREEMPT", "full")]:  # fmt: skip
        if f"\nCONFIG_{key}=y" in config:
            return mode
    return None


def virtual() -> bool:
    """This machine is a guest of a hypervisor, as far as it tells."""
    flags = re.search(r"^flags\s*:(.*)$", _text("/proc/cpuinfo"), re.M)
    return bool(flags and " hypervisor" in flags[1]) or bool(_text("/sys/hypervisor/type"))


def preset_of(release: str, names: list[str]) -> str:
    """The newest of the presets `linux-X.Y` that is not newer than `release`; the oldest if all are."""
    versions = {}
    for name in names:
        # Variants with a word behind are nobody's kernel.
        if re.fullmatch(r"linux-\d+(\.\d+)*", name):
            versions[name] = _version(name.removeprefix("linux-"))
    by_age = sorted(versions, key=lambda n: versions[n])
    running = _version(release)
    older = [n for n in by_age if versions[n] <= running]
    return older[-1] if older else by_age[0]


def _version(text: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(n) for n in found[0].split(".")) if found else ()


def kernel_threads() -> set[int]:
    """Numbers of the kernel's threads, which are all children of kthreadd (2)."""
    threads = {0, 2}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            # The name, in brackets, may hold anything.
            after = _text(directory / "stat").rpartition(")")[2].split()
            if len(after) > 1 and after[1] == "2":
                threads.add(int(directory.name))
    return threads


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
