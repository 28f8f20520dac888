"""The report of one run."""

from __future__ import annotations

from typing import Any

from contend import explain as explaining
from contend import guests
from contend.report import guest_sections, latency, over_time
from contend.report.page import Cell, Figure, Markup, Page, facts, folded, keys, paragraph, table
from contend.report.style import ACCOUNTS, SERIES, rounded, swatch
from contend.result import Result
from contend.units import duration_us, percent, seconds, si
from contend.xen import report as xen
from contend.xen.host import pcpus

LOCKS_SHOWN = 200
WAITS_SHOWN = 50
PROGRAM_LATENCIES_SHOWN = 6


def run_page(result: Result) -> Page:
    """Everything that one result says, as a page."""
    s = result.summary
    said = explaining.explain(result)
    accounts = over_time.shown_accounts(result.ledger())
    page = Page("report of a run", f"{said['ran']['what']} on {s['machine']} under {said['ran']['under']}")
    page.lead = answer(result, said) + key_figures(s)
    page.section("ran", "What was run", *ran(result))
    page.section(
        "time",
        "Where the time went",
        ledger_table(result),
        over_time.ledger_over_time(result, accounts),
        over_time.ledger_by_cpu(result, accounts),
    )
    page.section("cpus", "CPUs over time", over_time.heat_map(result, accounts))
    if said["guests"]:
        page.section("guests", "Virtual machines", *guest_sections.machines(result))
        page.section("preemption", "Lock-holder preemption", *guest_sections.preemption(result))
    if said["xen"]:
        page.section("xen", "Domains", *guest_sections.domains(result))
    else:
        page.section("latency", "Wake-up latency", *latencies(result))
    page.section("locks", "Lock contention", *locks(result))
    if not said["xen"]:
        page.section("placement", "Wake-ups and migrations by distance", *placement(said))
    page.section("waits", "Longest waits", *waits(result))
    page.footer = footer(s)
    return page


def footer(s: dict[str, Any]) -> str:
    """What stands at the end of a page of results."""
    return (
        f"Written by contend {s['contend']} from stored results; nothing in this file is loaded from elsewhere. "
        "All times are virtual: they belong to the simulated machine."
    )


def answer(result: Result, said: dict[str, Any]) -> str:
    """The answer in a sentence or two, as HTML."""
    s = result.summary
    parts = []
    if not result.ok:
        parts.append(
            paragraph(f"The run ended as {s['outcome']}: {said['outcome_meaning']}. {s['outcome_detail']}", "lead bad")
        )
    parts.append(paragraph(explaining.loss_sentence(said), "lead"))
    if said["guests"]:
        parts.append(paragraph(said["guests"]["limit"]["text"]))
    elif said["xen"]:
        parts.append(paragraph(said["xen"]["text"]))
    else:
        parts.append(paragraph(explaining.waiting_sentence(said)))
    return "".join(parts)


def key_figures(s: dict[str, Any]) -> str:
    """The strip of figures at the top."""
    ledger = s["ledger_ns"]
    total = sum(ledger.values()) or 1
    work = sum(ledger.get(a, 0) for a in explaining.USEFUL)
    figures = [
        ("CPUs", f"{s['cpus']:,}"),
        ("virtual time", seconds(s["virtual_s"])),
        ("work", percent(work / total)),
        ("idle", percent(ledger["idle"] / total)),
        ("scheduling and waiting", percent((total - work - ledger["idle"]) / total)),
    ]
    if not xen.is_xen(s):
        figures.append(("wake-up latency, p99", duration_us(s["wakeup_latency_us"]["p99"])))
    figures.append(("dispatches", si(s["dispatches"])))
    figures += [(f"{name} a second", si(rate["per_s"])) for name, rate in list(s["metrics"]["counts"].items())[:2]]
    return keys(figures)


def set_words(s: dict[str, Any]) -> str:
    """Switches that were set, in words."""
    return ", ".join(f"{k}={v}" for k, v in s["set"].items()) or "nothing: the preset as it is"


def ran(result: Result) -> list[str]:
    """Scenario and versions."""
    s = result.summary
    latency_free = xen.is_xen(s)
    rows = [
        ("workload", guests.what_ran(s)),
        ("machine", f"{s['machine']}, {s['cpus']} CPUs"),
        ("scheduler", f"{explaining.under(s)} ({s['algorithm']})" if not latency_free else explaining.under(s)),
        ("set", set_words(s)),
        ("seed", str(s["seed"])),
        ("outcome", f"{s['outcome']}: {explaining.meaning(s)}"),
        ("virtual time", f"{s['virtual_s']:.9g} s"),
        ("dispatches", f"{s['dispatches']:,}"),
        ("trace hash", s["trace_hash"]),
        ("recordings", "; ".join([*s["recordings"], *(r["said"] for r in s.get("rescaled", []))])),
        ("versions", f"contend {s['contend']}, result schema {s['schema']}"),
    ]
    if guests.has_guests(s):
        kernels = [
            [g["policy"], g["topology"], g["pin"], *(f"{k}={v}" for k, v in g["set"].items())] for g in s["guests"]
        ]
        rows.insert(3, ("guests' kernels", "; ".join(dict.fromkeys(", ".join(map(str, k)) for k in kernels))))
    if latency_free:
        x = s["xen"]
        rows.insert(
            3,
            (
                "Xen",
                f"{x['scheduler']}, preset {x['preset']}, {len(x['patches'])} of 24 patches on; pools "
                + "; ".join(f"{p['name']}: {len(pcpus(p['cpus']))} pCPUs" for p in x["pools"]),
            ),
        )
    scenario = folded(
        "The scenario that makes this result again",
        f"<pre tabindex='0'><code>{_escaped(result.scenario_toml)}</code></pre>",
    )
    return [facts(rows), scenario]


def _escaped(words: str) -> str:
    from html import escape

    return escape(words)


def ledger_table(result: Result) -> str:
    """The ledger, with the colours of the figures."""
    shown = over_time.shown_accounts(result.ledger())
    rows: list[list[Cell | Markup]] = []
    for r in explaining.ledger_rows(result):
        if not r["ns"]:
            continue
        colour = (
            "var(--idle)"
            if r["account"] == "idle"
            else ACCOUNTS[r["account"]]
            if r["account"] in shown
            else "transparent"
        )
        name = Markup(f"{swatch(colour)}{_escaped(r['account'])}")
        rows.append([name, (seconds(r["seconds"]), r["seconds"]), (percent(r["share"]), r["share"]), r["mechanism"]])
    columns = [("account", ""), ("CPU time", "n"), ("share", "n"), ("what it is", "fold")]
    return table(columns, rows, sortable=True, caption="Ledger")


def latencies(result: Result) -> list[str | Figure]:
    """Wake-up latency, and what programs measured themselves."""
    s = result.summary
    first = latency.distribution(
        result, "wakeup", "From being put on a run queue by a wake-up to running", s["wakeup_latency_us"]
    )
    parts: list[str | Figure] = [first or paragraph("No task was woken.")]
    own = list(s["metrics"]["latencies_us"].items())
    for name, percentiles in own[:PROGRAM_LATENCIES_SHOWN]:
        figure = latency.distribution(result, name, f"{name}, as the programs measured it", percentiles)
        if figure:
            parts.append(figure)
    if len(own) > PROGRAM_LATENCIES_SHOWN:
        parts.append(paragraph(f"{len(own) - PROGRAM_LATENCIES_SHOWN} more are in the table latency.", "note"))
    return parts


WAIT_COLUMNS = [("contended", "n"), ("total wait", "n"), ("max wait", "n"), ("avg wait", "n")]
RECORDED_LOCK_COLUMNS = [*WAIT_COLUMNS, ("type", ""), ("lock", "n")]
LOCK_COLUMNS = [
    *WAIT_COLUMNS,
    ("type", ""),
    ("name", "fold"),
    ("acquired", "n"),
    ("held", "n"),
]


def waits_row(contended: int, wait_us: float, wait_max_us: float) -> list[Cell]:
    """What was waited for a lock, in the columns of `perf lock contention`."""
    average = wait_us / contended if contended else 0.0
    return [(f"{contended:,}", contended), *((duration_us(us), us) for us in (wait_us, wait_max_us, average))]


def lock_row(lock: dict[str, Any]) -> list[Cell]:
    """A lock's waits, then how often it was taken and for how long."""
    return [
        *waits_row(lock["contended"], lock["wait_ns"] / 1e3, lock["wait_max_ns"] / 1e3),
        lock["kind"],
        lock["name"],
        (f"{lock['acquisitions']:,}", lock["acquisitions"]),
        (duration_us(lock["hold_ns"] / 1e3), lock["hold_ns"]),
    ]


def locks(result: Result) -> list[str]:
    """The tables of locks: those of the simulated kernel, and of the recording's where there is one."""
    recorded = result.summary["recorded_locks"]
    if not recorded:
        return simulated_locks(result)
    rows = [
        [
            *waits_row(lock["contended"], lock["wait_s"] * 1e6, lock["wait_max_us"]),
            lock["kind"],
            (f"{lock['lock']}", lock["lock"]),
        ]
        for lock in recorded[:LOCKS_SHOWN]
    ]
    words = (
        "What the replayed tasks waited for when they were recorded: the events have a lock's type and address, not "
        "its name; lock 1 is the address that was waited for longest. Spinning is left out of the replay, sleeping for "
        "a lock is a wake-up by whoever released it."
    )
    caption = "Contended locks of the recorded kernel"
    return [
        *simulated_locks(result), paragraph(words),
        table(RECORDED_LOCK_COLUMNS, rows, sortable=True, caption=caption, tall=True),
    ]  # fmt: skip


def simulated_locks(result: Result) -> list[str]:
    """The table of the simulated kernel's locks."""
    import polars as pl

    used = result["locks"].filter(pl.col("contended") > 0).sort(["wait_ns", "name"], descending=[True, False])
    if not len(used):
        return [paragraph("No lock was contended.")]
    rows = [lock_row(r) for r in used.head(LOCKS_SHOWN).iter_rows(named=True)]
    more = len(used) - len(rows)
    whose = "the host's" if guests.has_guests(result.summary) else "the kernel's"
    words = (
        f"{len(used):,} of {whose} locks were contended. The columns are those of perf lock contention, then how often "
        f"each was taken and held for how long.{f' {more:,} more are in the table locks.' if more else ''}"
    )
    return [paragraph(words), table(LOCK_COLUMNS, rows, sortable=True, caption="Contended locks", tall=True)]


def placement(said: dict[str, Any]) -> list[str | Figure]:
    """How far wake-ups went."""
    w = said["wakeups"]
    total = sum(r["wakeups"] for r in w["from_waker"])
    if not total:
        return [paragraph("No task was woken.")]
    search = ""
    if w["idle_searches"]:
        search = (
            f" {si(w['idle_searches'])} searches for an idle CPU looked at "
            f"{w['probes'] / w['idle_searches']:.1f} run queues "
            f"each and found one in {percent(w['idle_searches_found'] / w['idle_searches'])}."
        )
    moved = said["tasks"]["migrations"]
    names = [r["distance"] for r in w["from_waker"]]
    kinds = (("from the CPU it ran on before", "from_previous"), ("from the waker's CPU", "from_waker"))
    data = [
        {
            "type": "bar",
            "name": words,
            "x": names,
            "y": rounded([100 * r["share"] for r in w[key]]),
            "marker": {"color": SERIES[i]},
            "hovertemplate": f"%{{x}} {words}: %{{y:.2f}} %<extra></extra>",
        }
        for i, (words, key) in enumerate(kinds)
    ]
    rows: list[list[Cell]] = [
        [
            b["distance"],
            (f"{b['wakeups']:,}", b["wakeups"]),
            (percent(b["share"]), b["share"]),
            (f"{a['wakeups']:,}", a["wakeups"]),
            (percent(a["share"]), a["share"]),
        ]
        for a, b in zip(w["from_waker"], w["from_previous"], strict=True)
    ]
    columns = [("distance", ""), ("from before", "n"), ("share", "n"), ("from the waker", "n"), ("share", "n")]
    figure = Figure(
        "How far wake-ups put tasks",
        "Shares of all wake-ups by the distance of the chosen CPU.",
        data,
        {
            "barmode": "group",
            "yaxis": {"title": {"text": "% of wake-ups"}, "fixedrange": True},
            "xaxis": {"fixedrange": True},
        },
        table(columns, rows, sortable=True),
        height=300,
    )
    return [paragraph(f"{si(total)} wake-ups; tasks moved {si(moved)} times between CPUs.{search}"), figure]


def waits(result: Result) -> list[str]:
    """Tasks that waited longest for a CPU."""
    import polars as pl

    frame = result["tasks"].filter(pl.col("max_delay_ns") > 0)
    frame = frame.sort(["max_delay_ns", "task"], descending=[True, False]).head(WAITS_SHOWN)
    what = "vCPU" if xen.is_xen(result.summary) else "task"
    if not len(frame):
        return [paragraph(f"No {what} waited for a CPU.")]
    rows: list[list[Cell]] = [
        [
            f"{t['name']}:{t['task']}",
            *((duration_us(t[k] / 1e3), t[k]) for k in ("max_delay_ns", "avg_delay_ns", "delay_ns")),
            (f"{t['max_delay_start_ns'] / 1e9:.6f}", t["max_delay_start_ns"]),
            (duration_us(t["runtime_ns"] / 1e3), t["runtime_ns"]),
            (f"{t['switches']:,}", t["switches"]),
            (f"{t['nr_migrations']:,}", t["nr_migrations"]),
        ]
        for t in frame.iter_rows(named=True)
    ]
    columns = [
        (what, "fold"),
        ("max wait", "n"),
        ("avg wait", "n"),
        ("all waits", "n"),
        ("longest began, s", "n"),
        ("ran", "n"),
        ("switches", "n"),
        ("migrations", "n"),
    ]
    words = f"Runnable and without a CPU; the {len(rows)} with the longest single wait."
    return [paragraph(words), table(columns, rows, sortable=True, caption="Longest waits", tall=True)]
