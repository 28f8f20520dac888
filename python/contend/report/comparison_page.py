"""The report of several results side by side; the first is the baseline."""

from __future__ import annotations

from contend import explain as explaining
from contend import guests, text
from contend.report import latency, over_time, run_page
from contend.report.page import Cell, Figure, Page, facts, folded, keys, paragraph, table
from contend.report.style import SERIES, rounded
from contend.result import Result
from contend.text import change_words
from contend.units import duration_us, percent, seconds, si
from contend.xen import report as xen

OVER_TIME_MAX = 6
"""Results whose ledgers over time are drawn."""


def comparison_page(names: list[str], results: list[Result]) -> Page:
    """What differs between results, as a page."""
    base = results[0]
    labels = labels_of(names, results)
    comparisons = [explaining.compare(r, base) for r in results[1:]]
    page = Page("comparison", f"{guests.what_ran(base.summary)}: {len(results)} results side by side")
    page.lead = "".join(_answer(label, c) for label, c in zip(labels[1:], comparisons, strict=True)) + _key_figures(labels, results)
    accounts = over_time.shown_accounts(*(r.ledger() for r in results))
    page.section("ran", "What was run", *_ran(names, labels, results, comparisons))
    ledgers = [
        over_time.ledger_over_time(r, accounts, f"The ledger over time: {label}")
        for label, r in zip(labels[:OVER_TIME_MAX], results, strict=False)
    ]
    left_out = len(results) - len(ledgers)
    note = paragraph(f"{left_out} more results have reports of their own: contend report RESULT.", "note") if left_out else ""
    page.section("time", "Where the time went", _shares(labels, results, accounts), *ledgers, note)
    page.section("differences", "Differences", *(_differences(label, c) for label, c in zip(labels[1:], comparisons, strict=True)))
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
        parts.append({
            "policy": explaining.under(s), "machine": s["machine"], "workload": guests.what_ran(s), "seed": f"seed {s['seed']}",
            **{f"set.{k}": f"{k}={v}" for k, v in s["set"].items()},
        })  # fmt: skip
    every = dict.fromkeys(k for p in parts for k in p)
    differing = [k for k in every if len({p.get(k) for p in parts}) > 1]
    words = [", ".join(p[k] for k in differing if k in p) or "as the preset is" for p in parts]
    return words if len(set(words)) == len(words) else [f"{n} ({w})" if differing else n for n, w in zip(names, words, strict=True)]


def _answer(label: str, c: dict) -> str:  # type: ignore[type-arg]
    b, r = c["baseline"], c["result"]
    sentences = [f"{label}:"]
    old, new = c["virtual_s"]
    if b["outcome"] == r["outcome"] == "finished":
        sentences.append(f"the work took {seconds(new)} instead of {seconds(old)} ({change_words(old, new) or 'no change'}).")
    largest = c["largest_change"]
    if largest:
        less = "less" if largest["change"] < 0 else "more"
        sentences.append(
            f"Of what is not work, most changed in {largest['account']}: {seconds(abs(largest['change']))} {less} "
            f"({change_words(largest['baseline'], largest['result'])}), in {c['unit']}; {largest['mechanism']}."
        )
    elif len(sentences) == 1:
        sentences.append("nothing that is not work has changed.")
    return paragraph(" ".join(sentences), "lead")


def _key_figures(labels: list[str], results: list[Result]) -> str:
    figures = []
    for label, r in zip(labels, results, strict=True):
        total = sum(r.ledger().values()) or 1
        lost = sum(row["ns"] for row in explaining.losses(r))
        figures += [(f"virtual time: {label}", seconds(r.summary["virtual_s"])), (f"scheduling and waiting: {label}", percent(lost / total))]
    return keys(figures[:8])


def _ran(names: list[str], labels: list[str], results: list[Result], comparisons: list[dict]) -> list[str]:  # type: ignore[type-arg]
    columns = [("result", ""), ("stored as", ""), ("workload", ""), ("machine", ""), ("scheduler", ""), ("set", "fold"), ("seed", "n"),
               ("outcome", ""), ("virtual time", "n"), ("trace hash", ""), ("contend", "")]  # fmt: skip
    rows: list[list[Cell]] = []
    for name, label, r in zip(names, labels, results, strict=True):
        s = r.summary
        rows.append([label, name, guests.what_ran(s), f"{s['machine']} ({s['cpus']} CPUs)", explaining.under(s), run_page.set_words(s),
                     str(s["seed"]), s["outcome"], seconds(s["virtual_s"]), s["trace_hash"], s["contend"]])  # fmt: skip
    changed = []
    for label, c in zip(labels[1:], comparisons, strict=True):
        pairs = [(k, f"{a} → {b}") for k, (a, b) in c["features_changed"].items()]
        html = facts(pairs) if pairs else paragraph("No feature differs.")
        changed.append(folded(f"What was changed for {label}: {len(pairs)} features", html))
    words = "The first is the baseline. One run each: a difference may be chance; contend compare repeats runs and gives intervals."
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
        data.append({"type": "bar", "orientation": "h", "name": name, "y": short, "x": rounded(values, 5),
                     "marker": {"color": colours[0]}, "meta": {"themed": list(colours)},
                     "hovertemplate": f"{name} %{{x:.2f}} %<br>%{{y}}<extra></extra>"})  # fmt: skip
    rows: list[list[Cell]] = [
        [label, *((f"{parts[k][i]:.2f}", parts[k][i]) for k in parts)] for i, label in enumerate(labels)
    ]
    return Figure(
        "Ledgers side by side", "Shares of the time of all CPUs over the whole run.", data,
        {"barmode": "stack", "bargap": 0.35, "xaxis": {"range": [0, 100], "title": {"text": "% of CPU time"}},
         "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"}},
        table([("result", ""), *((f"{k} %", "n") for k in parts)], rows, sortable=True), height=150 + 44 * len(results),
    )  # fmt: skip


def _short(label: str, most: int = 34) -> str:
    """A label that leaves room for what it names; broken in two where it is long."""
    if len(label) <= most:
        return label
    at = label.rfind(" ", 0, most)
    head, rest = (label[:at], label[at + 1 :]) if at > 0 else (label[:most], label[most:])
    return f"{head}<br>{rest if len(rest) <= most else rest[: most - 3] + '...'}"


def _differences(label: str, c: dict) -> str:  # type: ignore[type-arg]
    rows: list[list[Cell]] = [
        [x["account"], (seconds(x["baseline"]), x["baseline"]), (seconds(x["result"]), x["result"]),
         (f"{'+' if x['change'] > 0 else chr(8722)}{seconds(abs(x['change']))}", x["change"]),
         change_words(x["baseline"], x["result"]), x["mechanism"]]
        for x in sorted(c["ledger"], key=lambda x: -abs(x["change"]))
        if x["baseline"] or x["result"]
    ]  # fmt: skip
    columns = [("account", ""), ("baseline", "n"), ("result", "n"), ("difference", "n"), ("change", ""), ("what it is", "fold")]
    rest: list[list[Cell]] = [
        ["interrupts between CPUs", *map(si, c["ipis"]), change_words(*c["ipis"])],
        ["moves of tasks between CPUs", *map(si, c["migrations"]), change_words(*c["migrations"])],
        *([f"{name} a virtual second", si(a["per_s"]), si(b["per_s"]), change_words(a["per_s"], b["per_s"])]
          for name, (a, b) in c["metrics"].items()),
        *([f"{x['name']}, {x['unit']}", *("" if v is None else f"{v:,.6g}" for v in (x["baseline"], x["result"])),
           change_words(x["baseline"], x["result"]) if x["baseline"] and x["result"] else ""]
          for x in [*(c["guests"] or []), *(c["xen"] or [])] if x["baseline"] or x["result"]),
    ]  # fmt: skip
    return table(columns, rows, sortable=True, caption=f"{label}: ledger, {c['unit']}") + table(
        [("", ""), ("baseline", "n"), ("result", "n"), ("change", "")], rest, caption=f"{label}: counts"
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
    data, rows = [], []
    for i, (label, r) in enumerate(zip(labels, results, strict=True)):
        counts = r.summary["wakeups"]["from_previous"]
        total = sum(counts.values())
        shares = [100 * counts.get(d, 0) / (total or 1) for d in distances]
        data.append({"type": "bar", "name": label, "x": distances, "y": rounded(shares), "marker": {"color": SERIES[i % len(SERIES)]},
                     "hovertemplate": f"%{{x}}: %{{y:.2f}} %<br>{label}<extra></extra>"})  # fmt: skip
        rows.append([label, (f"{total:,}", total), *((f"{s:.2f}", s) for s in shares)])
    if not any(r[1][1] for r in rows):
        return [paragraph("No task was woken.")]
    return [Figure(
        "How far wake-ups moved tasks", "From the CPU a task ran on before to the chosen one; shares of all wake-ups.", data,
        {"barmode": "group", "yaxis": {"title": {"text": "% of wake-ups"}, "fixedrange": True}},
        table([("result", ""), ("wake-ups", "n"), *((f"{d} %", "n") for d in distances)], rows, sortable=True), height=300,
    )]  # fmt: skip


def _locks(labels: list[str], results: list[Result]) -> list[str]:
    rows: list[list[Cell]] = []
    for label, r in zip(labels, results, strict=True):
        for k in r.summary["lock_kinds"]:
            if k["contended"]:
                average = 1e6 * k["wait_s"] / k["contended"]
                rows.append([label, k["kind"], (f"{k['contended']:,}", k["contended"]), (seconds(k["wait_s"]), k["wait_s"]),
                             (duration_us(average), average), (f"{k['acquisitions']:,}", k["acquisitions"]), (seconds(k["hold_s"]), k["hold_s"])])  # fmt: skip
    if not rows:
        return [paragraph("No lock was contended.")]
    columns = [("result", ""), ("type", ""), ("contended", "n"), ("total wait", "n"), ("avg wait", "n"), ("acquired", "n"), ("held", "n")]
    return [table(columns, rows, sortable=True, caption="Locks by kind")]


def sentence(r: Result) -> str:
    """What ran, in one sentence."""
    return text.outcome_sentence(r.summary)
