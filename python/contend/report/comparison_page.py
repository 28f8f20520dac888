"""The report of several results side by side; the first is the baseline."""

from __future__ import annotations

from typing import Any

from contend import explain as explaining
from contend import guests
from contend.comparing import work
from contend.quantity import quantities, shown
from contend.report import latency, over_time, run_page
from contend.report.page import Cell, Figure, Page, facts, folded, keys, paragraph, table
from contend.report.style import SERIES, rounded
from contend.result import Result
from contend.units import counted, duration_us, percent, seconds
from contend.xen import report as xen

MINUS = "\N{MINUS SIGN}"
OVER_TIME_MAX = 6
"""Results whose ledgers over time are drawn."""


def comparison_page(names: list[str], results: list[Result]) -> Page:
    """What differs between results, as a page."""
    base = results[0]
    labels = labels_of(names, results)
    page = Page("comparison", f"{guests.what_ran(base.summary)}: {len(results)} results side by side")
    page.lead = "".join(
        _answer(label, base, r) for label, r in zip(labels[1:], results[1:], strict=True)
    ) + _key_figures(labels, results)
    accounts = over_time.shown_accounts(*(r.ledger() for r in results))
    page.section("ran", "What was run", *_ran(names, labels, results))
    ledgers = [
        over_time.ledger_over_time(r, accounts, f"The ledger over time: {label}")
        for label, r in zip(labels[:OVER_TIME_MAX], results, strict=False)
    ]
    left_out = len(results) - len(ledgers)
    note = (
        paragraph(f"{left_out} more results have reports of their own: contend report RESULT.", "note")
        if left_out
        else ""
    )
    page.section("time", "Where the time went", _shares(labels, results, accounts), *ledgers, note)
    page.section(
        "differences",
        "Differences",
        *(_differences(label, base, r) for label, r in zip(labels[1:], results[1:], strict=True)),
    )
    if not any(xen.is_xen(r.summary) for r in results):
        page.section("latency", "Wake-up latency", *_latencies(labels, results))
        page.section("placement", "Wake-ups by distance", *_placement(labels, results))
    page.section("locks", "Lock contention", *_locks(labels, results))
    page.footer = run_page.footer(base.summary)
    return page


def labels_of(names: list[str], results: list[Result]) -> list[str]:
    """What tells each result from the others: its policy, machine and switches where they differ, else its name."""
    parts = []
    for r in results:
        s = r.summary
        parts.append(
            {
                "policy": explaining.under(s),
                "machine": s["machine"],
                "workload": guests.what_ran(s),
                "seed": f"seed {s['seed']}",
                **{f"set.{k}": f"{k}={v}" for k, v in s["set"].items()},
            }
        )
    every = dict.fromkeys(k for p in parts for k in p)
    differing = [k for k in every if len({p.get(k) for p in parts}) > 1]
    words = [", ".join(p[k] for k in differing if k in p) or "as the preset is" for p in parts]
    return (
        words
        if len(set(words)) == len(words)
        else [f"{n} ({w})" if differing else n for n, w in zip(names, words, strict=True)]
    )


def change_words(old: float, new: float) -> str:
    """How a number changed: `+3.0 %`, `2.5x`."""
    if not old:
        return "new" if new else ""
    ratio = new / old
    return f"{ratio:,.1f}x" if ratio >= 2 else f"{100 * (ratio - 1):+.1f} %"


def _ledgers(base: Result, result: Result) -> tuple[list[tuple[str, float, float]], str]:
    """The accounts of both in CPU-seconds, or by virtual second where the runs did not do the same work to its end."""
    same = work.same_work(base, result)
    old, new = (1.0 if same else r.summary["virtual_s"] or 1.0 for r in (base, result))
    b, r = base.ledger(), result.ledger()
    rows = [(a, b.get(a, 0) / 1e9 / old, r.get(a, 0) / 1e9 / new) for a in dict.fromkeys([*b, *r])]
    return rows, "CPU-seconds" if same else "CPU-seconds a virtual second"


def _answer(label: str, base: Result, result: Result) -> str:
    sentences = [f"{label}:"]
    if work.same_work(base, result):
        old, new = base.summary["virtual_s"], result.summary["virtual_s"]
        sentences.append(f"the work took {seconds(new)} instead of {seconds(old)} ({change_words(old, new)}).")
    rows, unit = _ledgers(base, result)
    lost = [r for r in rows if r[0] not in explaining.USEFUL and r[0] != "idle" and r[1] != r[2]]
    if lost:
        account, a, b = max(lost, key=lambda r: abs(r[2] - r[1]))
        sentences.append(
            f"Of what is not work, most changed in {account}: {seconds(abs(b - a))} {'less' if b < a else 'more'} "
            f"({change_words(a, b)}), in {unit}; {explaining.mechanism(account, result.summary)}."
        )
    else:
        sentences.append("nothing that is not work has changed.")
    return paragraph(" ".join(sentences), "lead")


def _changed(base: Result, result: Result) -> list[tuple[str, str]]:
    """What differs: workloads, and features of the host, its guests and Xen."""
    s, b = result.summary, base.summary
    features = {k: [b["features"].get(k), v] for k, v in s["features"].items() if b["features"].get(k) != v}
    features |= guests.changed(s, b) | xen.changed(s, b)
    pairs = work.changed(result, base) | xen.collapsed(features, s, b)
    return [(k, f"{a} \N{RIGHTWARDS ARROW} {z}") for k, (a, z) in pairs.items()]


def _key_figures(labels: list[str], results: list[Result]) -> str:
    figures = []
    for label, r in zip(labels, results, strict=True):
        total = sum(r.ledger().values()) or 1
        lost = sum(row["ns"] for row in explaining.losses(r))
        figures += [
            (f"virtual time: {label}", seconds(r.summary["virtual_s"])),
            (f"scheduling and waiting: {label}", percent(lost / total)),
        ]
    return keys(figures[:8])


def _ran(names: list[str], labels: list[str], results: list[Result]) -> list[str]:
    columns = [
        ("result", ""),
        ("stored as", ""),
        ("workload", ""),
        ("machine", ""),
        ("scheduler", ""),
        ("set", "fold"),
        ("seed", "n"),
        ("outcome", ""),
        ("virtual time", "n"),
        ("trace hash", ""),
        ("contend", ""),
    ]
    rows: list[list[Cell]] = []
    for name, label, r in zip(names, labels, results, strict=True):
        s = r.summary
        rows.append(
            [
                label,
                name,
                guests.what_ran(s),
                f"{s['machine']} ({s['cpus']} CPUs)",
                explaining.under(s),
                run_page.set_words(s),
                str(s["seed"]),
                s["outcome"],
                seconds(s["virtual_s"]),
                s["trace_hash"],
                s["contend"],
            ]
        )
    changed = []
    for label, r in zip(labels[1:], results[1:], strict=True):
        pairs = _changed(results[0], r)
        html = facts(pairs) if pairs else paragraph("Neither the work nor a feature differs.")
        changed.append(folded(f"What was changed for {label}: {counted(len(pairs), 'key')}", html))
    words = (
        "The first is the baseline. One run each: a difference may be chance; contend compare repeats "
        "runs and gives intervals."
    )
    return [paragraph(words), table(columns, rows, caption="Results"), *changed]


def _shares(labels: list[str], results: list[Result], accounts: list[str]) -> Figure:
    """Ledgers as stacked bars, one below the other."""
    from contend.report.style import ACCOUNTS, IDLE, OTHER

    totals = [sum(r.ledger().values()) or 1 for r in results]

    def share(of: list[str]) -> list[float]:
        return [100 * sum(r.ledger().get(a, 0) for a in of) / t for r, t in zip(results, totals, strict=True)]

    every = list(dict.fromkeys(a for r in results for a in r.ledger()))
    parts = {a: share([a]) for a in accounts}
    parts["other"] = share([a for a in every if a not in accounts and a != "idle"])
    parts["idle"] = share(["idle"])
    short = [_short(label) for label in labels]
    data = []
    for name, values in parts.items():
        colours = IDLE if name == "idle" else OTHER if name == "other" else (ACCOUNTS[name],) * 2
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": short,
                "x": rounded(values, 5),
                "marker": {"color": colours[0]},
                "meta": {"themed": list(colours)},
                "hovertemplate": f"{name} %{{x:.2f}} %<br>%{{y}}<extra></extra>",
            }
        )
    rows: list[list[Cell]] = [
        [label, *((f"{parts[k][i]:.2f}", parts[k][i]) for k in parts)] for i, label in enumerate(labels)
    ]
    return Figure(
        "Ledgers side by side",
        "Shares of the time of all CPUs over the whole run.",
        data,
        {
            "barmode": "stack",
            "bargap": 0.35,
            "xaxis": {"range": [0, 100], "title": {"text": "% of CPU time"}},
            "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
        },
        table([("result", ""), *((f"{k} %", "n") for k in parts)], rows, sortable=True),
        height=150 + 44 * len(results),
    )


def _short(label: str, most: int = 34) -> str:
    """A label that leaves room for what it names; broken in two where it is long."""
    if len(label) <= most:
        return label
    at = label.rfind(" ", 0, most)
    head, rest = (label[:at], label[at + 1 :]) if at > 0 else (label[:most], label[most:])
    return f"{head}<br>{rest if len(rest) <= most else rest[: most - 3] + '...'}"


def _differences(label: str, base: Result, result: Result) -> str:
    ledger, unit = _ledgers(base, result)
    rows: list[list[Cell]] = [
        [
            account,
            (seconds(a), a),
            (seconds(b), b),
            (f"{'+' if b > a else MINUS}{seconds(abs(b - a))}", b - a),
            change_words(a, b),
            explaining.mechanism(account, result.summary),
        ]
        for account, a, b in sorted(ledger, key=lambda r: -abs(r[2] - r[1]))
        if a or b
    ]
    columns = [
        ("account", ""),
        ("baseline", "n"),
        ("result", "n"),
        ("difference", "n"),
        ("change", ""),
        ("what it is", "fold"),
    ]
    same = work.same_work(base, result)
    old, new = (
        {q.name: q for q in (q if same else q.rate(r.summary["virtual_s"]) for q in quantities(r.summary))}
        for r in (base, result)
    )
    figures: list[list[Cell]] = []
    for name in dict.fromkeys([*old, *new]):
        a, b = (side[name].value if name in side else None for side in (old, new))
        one = old.get(name) or new[name]
        if one.group != "ledger" and (a or b):
            words = "" if a is None or b is None else change_words(a, b)
            figures.append([one.group, name, shown(a, one.unit), shown(b, one.unit), words])
    heads = [("", ""), ("figure", ""), ("baseline", "n"), ("result", "n"), ("change", "")]
    return table(columns, rows, sortable=True, caption=f"{label}: ledger, {unit}") + table(
        heads, figures, caption=f"{label}: figures", tall=True
    )


def _latencies(labels: list[str], results: list[Result]) -> list[str | Figure]:
    first = latency.overlaid(results, labels, "wakeup", "From being put on a run queue by a wake-up to running")
    parts: list[str | Figure] = [first or paragraph("No task was woken.")]
    common = set.intersection(*(set(r.summary["metrics"]["latencies_us"]) for r in results))
    for name in sorted(common)[: run_page.PROGRAM_LATENCIES_SHOWN]:
        figure = latency.overlaid(results, labels, name, f"{name}, as the programs measured it")
        if figure:
            parts.append(figure)
    return parts


def _placement(labels: list[str], results: list[Result]) -> list[str | Figure]:
    distances = list(dict.fromkeys(d for r in results for d in r.summary["wakeups"]["from_previous"]))
    data: list[dict[str, Any]] = []
    rows: list[list[Cell]] = []
    made = 0
    for i, (label, r) in enumerate(zip(labels, results, strict=True)):
        counts = r.summary["wakeups"]["from_previous"]
        total = sum(counts.values())
        made += total
        shares = [100 * counts.get(d, 0) / (total or 1) for d in distances]
        data.append(
            {
                "type": "bar",
                "name": label,
                "x": distances,
                "y": rounded(shares),
                "marker": {"color": SERIES[i % len(SERIES)]},
                "hovertemplate": f"%{{x}}: %{{y:.2f}} %<br>{label}<extra></extra>",
            }
        )
        rows.append([label, (f"{total:,}", total), *((f"{s:.2f}", s) for s in shares)])
    if not made:
        return [paragraph("No task was woken.")]
    return [
        Figure(
            "How far wake-ups moved tasks",
            "From the CPU a task ran on before to the chosen one; shares of all wake-ups.",
            data,
            {"barmode": "group", "yaxis": {"title": {"text": "% of wake-ups"}, "fixedrange": True}},
            table([("result", ""), ("wake-ups", "n"), *((f"{d} %", "n") for d in distances)], rows, sortable=True),
            height=300,
        )
    ]


def _locks(labels: list[str], results: list[Result]) -> list[str]:
    rows: list[list[Cell]] = []
    for label, r in zip(labels, results, strict=True):
        for k in r.summary["lock_kinds"]:
            if k["contended"]:
                average = 1e6 * k["wait_s"] / k["contended"]
                rows.append(
                    [
                        label,
                        k["kind"],
                        (f"{k['contended']:,}", k["contended"]),
                        (seconds(k["wait_s"]), k["wait_s"]),
                        (duration_us(average), average),
                        (f"{k['acquisitions']:,}", k["acquisitions"]),
                        (seconds(k["hold_s"]), k["hold_s"]),
                    ]
                )
    if not rows:
        return [paragraph("No lock was contended.")]
    columns = [
        ("result", ""),
        ("type", ""),
        ("contended", "n"),
        ("total wait", "n"),
        ("avg wait", "n"),
        ("acquired", "n"),
        ("held", "n"),
    ]
    return [table(columns, rows, sortable=True, caption="Locks by kind")]
