"""Sentences and tables on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from contend import guests
from contend.explain import loss_sentence, waiting_sentence
from contend.units import duration_us, percent, plain, seconds, si
from contend.xen import report

WIDTH_PIPED = 120
RECORDED_LOCKS_SHOWN = 10


class Whole(Console):
    """A console that cuts nothing off: what is wider than a terminal goes on in its next line.

    What it prints does nothing to a terminal: see `plain`.
    """

    def print(self, *objects: Any, crop: bool = False, **how: Any) -> None:
        """As rich's."""
        super().print(*(plain(o) if isinstance(o, str) else o for o in objects), crop=crop, **how)


def console(file: IO[str] | None = None) -> Console:
    """A console: 120 columns where there is no terminal, so that piped output does not depend on the environment."""
    file = file or sys.stdout
    return Whole(file=file, width=None if file.isatty() else WIDTH_PIPED, highlight=False)


FOLD_MIN = 16
"""Prose is folded to so many columns at least."""
BETWEEN = 3
EDGES = 2


@dataclass(frozen=True)
class Columns:
    """A plain table that is printed whole whatever the width: headings wrap, then prose, then the columns that do not
    fit follow in a table of their own, each of these with the first column again.
    """

    title: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str]]
    styles: Sequence[str] = ()

    def _least(self, i: int) -> int:
        """The columns that nothing is cut in: cells whole, unless they are prose; headings by the word."""
        heading, kind = self.columns[i]
        cells = max((cell_len(line) for row in self.rows for line in row[i].split("\n")), default=0)
        word = max((cell_len(w) for w in heading.split()), default=0)
        return max(min(cells, FOLD_MIN) if kind == "fold" else cells, word)

    def _most(self, i: int) -> int:
        cells = (cell_len(line) for row in self.rows for line in row[i].split("\n"))
        return max(cell_len(self.columns[i][0]), *cells, self._least(i))

    def _parts(self, width: int) -> list[list[int]]:
        """Which columns stand in which table."""
        parts, room = [[0]], width - EDGES - self._least(0)
        for i in range(1, len(self.columns)):
            need = self._least(i) + BETWEEN
            if need > room and len(parts[-1]) > 1:
                parts.append([0])
                room = width - EDGES - self._least(0)
            parts[-1].append(i)
            room -= need
        return parts

    def _widths(self, part: Sequence[int], width: int) -> list[int]:
        """What there is beyond the least goes to headings first, then to prose."""
        widths = {i: self._least(i) for i in part}
        room = width - EDGES - BETWEEN * (len(part) - 1) - sum(widths.values())
        for fold in (False, True):
            wanting = [i for i in part if (self.columns[i][1] == "fold") == fold]
            while room > 0 and (wanting := [i for i in wanting if widths[i] < self._most(i)]):
                narrowest = min(wanting, key=lambda i: widths[i])
                widths[narrowest] += 1
                room -= 1
        return [widths[i] for i in part]

    def __rich_console__(self, out: Console, options: ConsoleOptions) -> RenderResult:
        """The tables."""
        for n, part in enumerate(self._parts(options.max_width)):
            title = f"{self.title} (continued)" if n and self.title else self.title
            t = Table(
                title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
            )
            widths = self._widths(part, options.max_width)
            for i, width in zip(part, widths, strict=True):
                heading, kind = self.columns[i]
                side: JustifyMethod = "right" if kind == "right" else "left"
                head = Text(heading, no_wrap=False, overflow="fold", justify=side)
                t.add_column(head, justify=side, width=width, no_wrap=kind != "fold", overflow="fold")
            for at, row in enumerate(self.rows):
                t.add_row(*(escape(row[i]) for i in part), style=self.styles[at] if self.styles else None)
            whole = max(options.max_width, sum(widths) + BETWEEN * (len(part) - 1) + EDGES)
            yield from out.render(
                t, options.update(width=whole, max_width=whole) if whole > options.max_width else None
            )


def table(
    title: str, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]], styles: Sequence[str] = ()
) -> Columns:
    """A plain table; a column is (heading, "left" or "right" or "fold"). `styles`: of the rows."""
    cells = [tuple(plain(cell).replace("\n", "?") for cell in row) for row in rows]
    return Columns(plain(title), columns, cells, styles)


def _set_words(ran: dict[str, Any]) -> str:
    changed = ", ".join(f"{k}={v}" for k, v in ran["set"].items())
    return f" with {changed}" if changed else ""


def outcome_sentence(summary: dict[str, Any]) -> str:
    """One sentence about what ran and how it ended."""
    from contend.explain import meaning, under

    what = summary.get("what") or guests.what_ran(summary)
    return (
        f"{what} on {summary['machine']} ({summary['cpus']} CPUs) under {summary.get('under') or under(summary)}"
        f"{_set_words(summary)}, seed {summary['seed']}: {summary['outcome']} "
        f"({summary.get('outcome_meaning') or meaning(summary)}) "
        f"after {seconds(summary['virtual_s'])} of virtual time."
    )


def run_report(summary: dict[str, Any], out: Console) -> None:
    """What `contend run` prints."""
    from contend.explain import USEFUL

    out.print(escape(outcome_sentence(summary)))
    for line in [*summary["recordings"], *(r["said"] for r in summary.get("rescaled", []))]:
        out.print(escape(line))
    ledger = summary["ledger_ns"]
    total = sum(ledger.values()) or 1
    work = sum(ledger.get(a, 0) for a in USEFUL)
    xen = report.is_xen(summary)
    works = "user, syscall, guest_user, guest_kernel" if guests.has_guests(summary) else "user, syscall"
    idle = ledger["idle"]
    lost = {a: ns for a, ns in ledger.items() if a not in USEFUL and a != "idle"}
    largest = max(lost, key=lambda a: lost[a])
    out.print(
        f"CPUs: {percent(work / total)} work ({works}), {percent(idle / total)} idle, "
        f"{percent(sum(lost.values()) / total)} scheduling and waiting; of that most in {largest} "
        f"({percent(lost[largest] / total)})."
    )
    if guests.has_guests(summary):
        out.print(_guests_line(summary))
        for line in guests.long_waits(summary):
            out.print(escape(line))
    if xen:
        from contend import text_xen

        text_xen.ran(summary, out)
    else:
        latency = summary["wakeup_latency_us"]
        out.print(
            f"Wake-ups and new tasks: {si(latency['count'])}, latency p50 {duration_us(latency['p50'])}, "
            f"p99 {duration_us(latency['p99'])}, max {duration_us(latency['max'])}. "
            f"Run-queue locks: {_rq(summary)}."
        )
    for name, rate in summary["metrics"]["counts"].items():
        out.print(f"{escape(name)}: {si(rate['count'])}, {si(rate['per_s'])} a virtual second.")
    for name, p in summary["metrics"]["latencies_us"].items():
        out.print(
            f"{escape(name)}: p50 {duration_us(p['p50'])}, p99 {duration_us(p['p99'])}, "
            f"p99.9 {duration_us(p['p99.9'])}, max {duration_us(p['max'])}."
        )
    if summary.get("wall_s") is not None:
        cpu = summary["cpu_s"] or 1e-9
        out.print(
            f"{si(summary['dispatches'])} dispatches in {summary['cpu_s']:.2f} CPU-s = "
            f"{si(summary['dispatches'] / cpu)}/s; {summary['wall_s']:.2f} s of wall time; "
            f"trace hash {summary['trace_hash']}."
        )


def _guests_line(summary: dict[str, Any]) -> str:
    total, machines = summary["guests_total"], summary["guests"]
    done = [g["finished_s"] for g in machines if g["finished_s"] is not None]
    ended = f"{len(done)} of {len(machines)} finished" + (f", the last after {seconds(max(done))}" if done else "")
    most = guests.exits(summary)[0]
    return (
        f"vCPUs: {total['guest_user_pct']:.2f} % tasks, {total['guest_kernel_pct']:.2f} % kernel, "
        f"{total['spin_pct']:.2f} % spinning in it, {total['host_pct']:.2f} % host, {total['steal_pct']:.2f} % stolen, "
        f"{total['halted_pct']:.2f} % halted. {si(total['exits_count'])} exits, most {most['reason']} "
        f"({percent(most['share'])}). {ended}."
    )


def _rq(summary: dict[str, Any]) -> str:
    for kind in summary["lock_kinds"]:
        if kind["kind"] == "rq":
            taken = kind["acquisitions"]
            share = kind["contended"] / taken if taken else 0.0
            return f"{si(taken)} taken, {percent(share)} contended, {seconds(kind['wait_s'])} waited"
    return "none taken"


def explained(e: dict[str, Any], out: Console) -> None:
    """What `contend explain` prints."""
    ran = e["ran"]
    out.print(escape(outcome_sentence({**ran, "outcome": e["outcome"], "outcome_meaning": e["outcome_meaning"]})))
    if e["outcome_detail"]:
        out.print(escape(e["outcome_detail"]))
    for line in [*e["recordings"], *(r["said"] for r in e["rescaled"]), *(f"Note: {w}." for w in e["warnings"])]:
        out.print(escape(line))
    out.print(escape(loss_sentence(e)))
    if e["guests"]:
        out.print(escape(e["guests"]["limit"]["text"]))
    if e["xen"]:
        out.print(escape(e["xen"]["text"]))
    else:
        out.print(waiting_sentence(e))
    rows = [(r["account"], seconds(r["seconds"]), percent(r["share"]), r["mechanism"]) for r in e["ledger"] if r["ns"]]
    columns = [("account", "left"), ("CPU time", "right"), ("share", "right"), ("what it is", "fold")]
    out.print(table("Ledger", columns, rows))
    if e["xen"]:
        from contend.text_xen import explained as explained_xen

        explained_xen(e["xen"], out)
    if e["guests"]:
        from contend.text_guests import explained as explained_guests

        explained_guests(e["guests"], out)
    _locks(e, out)
    recorded_locks(e["recorded_locks"], out)
    if not e["xen"]:
        _wakeups(e, out)
    _cpu_kinds(e["cpu_kinds"], out)
    _groups(e["groups"], out)
    waits = [
        (
            f"{t['name']}:{t['task']}",
            f"{t['runtime_ns'] / 1e6:,.3f}",
            f"{t['switches']:,}",
            f"{t['avg_delay_ns'] / 1e6:,.3f}",
            f"{t['max_delay_ns'] / 1e6:,.3f}",
            f"{t['max_delay_start_ns'] / 1e9:,.6f}",
        )
        for t in e["longest_waits"]
        if t["max_delay_ns"]
    ]
    if waits and e["xen"]:
        columns = [
            ("vCPU", "fold"),
            ("run ms", "right"),
            ("runs", "right"),
            ("avg wait ms", "right"),
            ("max wait ms", "right"),
        ]
        out.print(table("vCPUs with the longest waits", columns, [w[:5] for w in waits]))
    elif waits:
        columns = [
            ("task", "fold"),
            ("runtime ms", "right"),
            ("switches", "right"),
            ("avg delay ms", "right"),
            ("max delay ms", "right"),
            ("max delay start s", "right"),
        ]
        out.print(table("Tasks with the longest waits", columns, waits))


def waits_row(lock: Mapping[str, Any]) -> tuple[str, ...]:
    """What was waited for a lock, in the columns of `perf lock contention`."""
    return (
        f"{lock['contended']:,}",
        duration_us(lock["wait_s"] * 1e6),
        duration_us(lock["wait_max_us"]),
        duration_us(lock["wait_s"] * 1e6 / lock["contended"]) if lock["contended"] else "",
    )


WAIT_COLUMNS = [("contended", "right"), ("total wait", "right"), ("max wait", "right"), ("avg wait", "right")]


def lock_row(lock: dict[str, Any]) -> tuple[str, ...]:
    """A lock in the columns of `perf lock contention`, and how often it was taken and for how long."""
    return (
        *waits_row(lock),
        f"{lock['acquisitions']:,}",
        duration_us(lock["hold_s"] * 1e6),
        lock["kind"],
        lock["name"],
    )


LOCK_COLUMNS = [
    *WAIT_COLUMNS,
    ("acquired", "right"),
    ("held", "right"),
    ("type", "left"),
    ("lock", "fold"),
]


def recorded_locks(locks: Sequence[Mapping[str, Any]], out: Console) -> None:
    """The contended locks of a recording's kernel; nothing if there are none."""
    if not locks:
        return
    columns = [*WAIT_COLUMNS, ("type", "left"), ("lock", "right")]
    rows = [(*waits_row(lock), lock["kind"], f"{lock['lock']}") for lock in locks[:RECORDED_LOCKS_SHOWN]]
    out.print(table("Contended locks of the recorded kernel, by time waited", columns, rows))
    if len(locks) > len(rows):
        out.print(f"{len(locks) - len(rows)} more; --json has all.")


def _locks(e: dict[str, Any], out: Console) -> None:
    rows = [lock_row(lock) for lock in e["locks"] if lock["contended"]]
    if not rows:
        out.print("No lock was contended.\n")
        return
    title = "Busiest locks of the host, by time waited" if e["guests"] else "Busiest locks, by time waited"
    out.print(table(title, LOCK_COLUMNS, rows))


def _cpu_kinds(kinds: Sequence[Mapping[str, Any]], out: Console) -> None:
    """The kinds of CPUs; nothing on a machine whose CPUs are all alike."""
    if not kinds:
        return
    columns = [
        ("CPUs", "fold"),
        ("capacity", "right"),
        ("busy", "right"),
        ("ran tasks for", "right"),
        ("of all running", "right"),
        ("too much for them", "right"),
    ]
    rows = [
        (
            f"{escape(k['name'])} ({k['cpus']})",
            f"{k['capacity']:,}",
            percent(k["busy_share"]),
            seconds(k["runtime_s"]),
            percent(k["runtime_share"]),
            seconds(k["misfit_s"]),
        )
        for k in kinds
    ]
    out.print(table("Kinds of CPUs; the last column: time with a task that uses over 80 % (misfit)", columns, rows))


def _groups(groups: Sequence[Mapping[str, Any]], out: Console) -> None:
    """The groups of tasks; nothing if there are none."""
    if not groups:
        return
    columns = [
        ("group", "fold"),
        ("weight", "right"),
        ("tasks", "right"),
        ("CPU time", "right"),
        ("of all tasks'", "right"),
        ("runnable, not running", "right"),
    ]
    rows = [
        (
            escape(g["name"]),
            f"{g['weight']:,}",
            f"{g['tasks']:,}",
            seconds(g["runtime_s"]),
            percent(g["runtime_share"]),
            seconds(g["delay_s"]),
        )
        for g in groups
    ]
    out.print(table("Groups of tasks, those within them included", columns, rows))
    limited = [(g["name"], g["bandwidth"]) for g in groups if g.get("bandwidth")]
    if not limited:
        return
    limits = [
        ("group", "fold"),
        ("cpu.max, us", "right"),
        ("burst, us", "right"),
        ("nr_periods", "right"),
        ("nr_throttled", "right"),
        ("of periods", "right"),
        ("time throttled, all CPUs", "right"),
    ]
    stats = [
        (
            escape(name),
            f"{b['quota_us']} {b['period_us']}",
            f"{b['burst_us']}",
            f"{b['nr_periods']:,}",
            f"{b['nr_throttled']:,}",
            percent(b["nr_throttled"] / max(1, b["nr_periods"])),
            seconds(b["throttled_s"]),
        )
        for name, b in limited
    ]
    out.print(table("Limits of groups (cpu.max), and what cpu.stat shows of them", limits, stats))


def _wakeups(e: dict[str, Any], out: Console) -> None:
    w = e["wakeups"]
    total = sum(r["wakeups"] for r in w["from_waker"])
    latency = e["wakeup_latency_us"]
    if not total:
        started = f"; {si(latency['count'])} new tasks came to run" if latency["count"] else ""
        out.print(f"No task was woken{started}.\n")
        if started:
            _latency(latency, out)
        return
    waker, previous = w["from_waker"], w["from_previous"]
    stayed = previous[0]["share"]
    far = sum(r["share"] for r in previous[3:])
    search = ""
    if w["idle_searches"]:
        search = (
            f" {si(w['idle_searches'])} searches for an idle CPU looked at {w['probes'] / w['idle_searches']:.1f} "
            f"run queues each and found one in {percent(w['idle_searches_found'] / w['idle_searches'])}."
        )
    out.print(
        f"{si(total)} wake-ups: {percent(stayed)} went to the CPU where the task had run before, {percent(far)} left "
        f"its cache.{search}"
    )
    rows = [
        (a["distance"], si(a["wakeups"]), percent(a["share"]), si(b["wakeups"]), percent(b["share"]))
        for a, b in zip(waker, previous, strict=True)
    ]
    columns = [
        ("distance", "left"),
        ("from the waker", "right"),
        ("share", "right"),
        ("moved from before", "right"),
        ("share", "right"),
    ]
    out.print(table("Where wake-ups went", columns, rows))
    _latency(latency, out)


def _latency(p: Mapping[str, float], out: Console) -> None:
    keys = [k for k in p if k != "count"]
    title = "Wake-up latency (on a run queue until running), new tasks included"
    out.print(table(title, [(k, "right") for k in keys], [[duration_us(p[k]) for k in keys]]))
