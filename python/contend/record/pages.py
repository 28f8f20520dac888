"""What is on the pages of a ring buffer: events with their times, names of tasks, who started whom.

A page begins with the time of its first event and how much of it is filled; an event with a word of 5 bits of type or
length and 27 bits of time since the one before (`events/header_page` and `header_event` in tracefs describe both).
Fields are where the kernel's own format files say.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

LOST = 1 << 31
"""In a page's commit word: events were lost before this page."""
FILLED = (1 << 20) - 1

HEAD = struct.Struct("<QQ")
WORD = struct.Struct("<I")
PID = struct.Struct("<i")

_FIELD = re.compile(r"field:(.*?)(\w+)(\[\d*\])?;\s*offset:(\d+);\s*size:(\d+);")


@dataclass(frozen=True)
class Name:
    """A name in an event, and whose: offsets in the event's data."""

    offset: int
    size: int
    located: bool
    """The field holds offset (16 bits) and length (16 bits) of the text."""
    pid: int


@dataclass(frozen=True)
class Format:
    """What is needed of one event's format file."""

    event: str
    id: int
    names: tuple[Name, ...]
    parent: int = -1
    child: int = -1


def parse_format(event: str, text: str) -> Format:
    """A format file; `event` is `system:name`."""
    fields = {}
    for kind, name, _, offset, size in _FIELD.findall(text):
        fields[name] = (int(offset), int(size), "__data_loc" in kind)
    number = re.search(r"^ID: (\d+)$", text, re.M)
    if number is None:
        raise ValueError(f"{event}: its format file has no ID")
    names = []
    for name, (offset, size, located) in fields.items():
        # comm and pid, prev_comm and prev_pid, filename and pid.
        prefix = name.removesuffix("comm") if name.endswith("comm") else "" if name == "filename" else None
        if prefix is not None and f"{prefix}pid" in fields:
            names.append(Name(offset, size, located, fields[f"{prefix}pid"][0]))
    is_fork = event == "sched:sched_process_fork"
    parent, child = (fields["parent_pid"][0], fields["child_pid"][0]) if is_fork else (-1, -1)
    return Format(event, int(number[1]), tuple(names), parent, child)


@dataclass
class Found:
    """What a walk over pages learned."""

    events: int = 0
    first_ns: int = 1 << 64
    last_ns: int = 0
    lost_pages: int = 0
    damaged: int = 0
    """Pages that do not hold what their head says."""
    names: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """By pid: time and the name, the latest."""
    forks: list[tuple[int, int, int]] = field(default_factory=list)
    """Time, parent, child."""

    def comm(self, pid: int) -> bytes:
        """The last name of a task; empty if it has none."""
        return self.names.get(pid, (0, b""))[1]


Visit = Callable[[int, int, int], None]
"""Called with the time, the id and the offset of an event's data."""


def walk(pages: bytes | bytearray | memoryview, page_bytes: int, found: Found, visit: Visit) -> None:
    """All events of whole pages."""
    word, pid_at = WORD.unpack_from, HEAD.unpack_from
    for base in range(0, len(pages) - page_bytes + 1, page_bytes):
        now, commit = pid_at(pages, base)
        if commit & LOST:
            found.lost_pages += 1
        at = base + HEAD.size
        end = at + (commit & FILLED)
        if end > base + page_bytes:
            found.damaged += 1
            continue
        seen = False
        while at + 8 <= end:
            (head,) = word(pages, at)
            kind, delta = head & 31, head >> 5
            at += 4
            if kind <= 28:
                now += delta
                size = kind << 2
                if not kind:
                    size = word(pages, at)[0] - 4
                    at += 4
                if size < 8 or at + size > end:
                    found.damaged += 1
                    break
                found.events += 1
                if not seen:
                    seen = True
                    found.first_ns = min(found.first_ns, now)
                visit(now, pages[at] | pages[at + 1] << 8, at)
                at += size
            elif kind == 29:
                if not delta:
                    break
                at += word(pages, at)[0]
            else:
                (high,) = word(pages, at)
                # 30: a long time since the last event; 31: the time itself, of which the top 5 bits stay.
                now = now + (high << 27 | delta) if kind == 30 else (now >> 59 << 59) | high << 27 | delta
                at += 4
        # Times on a page ascend.
        if seen:
            found.last_ns = max(found.last_ns, now)


def learn(pages: bytes | bytearray | memoryview, page_bytes: int, formats: Iterable[Format], found: Found) -> None:
    """Add what the pages say to `found`."""
    known = {f.id: f for f in formats}
    names, pid_at = found.names, PID.unpack_from

    def visit(now: int, event: int, at: int) -> None:
        form = known.get(event)
        if form is None:
            return
        for n in form.names:
            (pid,) = pid_at(pages, at + n.pid)
            old = names.get(pid)
            if old is None or old[0] <= now:
                start, size = _text(pages, at, n)
                names[pid] = (now, bytes(pages[start : start + size]).split(b"\0", 1)[0])
        if form.child >= 0:
            found.forks.append((now, pid_at(pages, at + form.parent)[0], pid_at(pages, at + form.child)[0]))

    walk(pages, page_bytes, found, visit)


def rename(pages: bytearray, page_bytes: int, formats: Iterable[Format], keep: set[int], name: bytes) -> None:
    """Put `name` over the names of all tasks that are not in `keep`."""
    known = {f.id: f for f in formats}
    pid_at = PID.unpack_from

    def visit(_now: int, event: int, at: int) -> None:
        form = known.get(event)
        if form is None:
            return
        for n in form.names:
            if pid_at(pages, at + n.pid)[0] not in keep:
                start, size = _text(pages, at, n)
                if size:
                    pages[start : start + size] = name[: size - 1].ljust(size, b"\0")

    walk(pages, page_bytes, Found(), visit)


def _text(pages: bytes | bytearray | memoryview, at: int, n: Name) -> tuple[int, int]:
    if not n.located:
        return at + n.offset, n.size
    (where,) = WORD.unpack_from(pages, at + n.offset)
    return at + (where & 0xFFFF), where >> 16


def descendants(forks: list[tuple[int, int, int]], root: int) -> set[int]:
    """`root` and all that it started, and they. A pid that somebody else was given as well is left out."""
    inside, outside = {root}, set()
    for _, parent, child in sorted(forks):
        if parent in inside:
            inside.add(child)
        elif child in inside and child != root:
            outside.add(child)
    return inside - outside
