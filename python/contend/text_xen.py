"""Tables about Xen hosts on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape

from contend.text import table
from contend.units import duration_us, percent, seconds, si
from contend.xen import report

DOMAINS_SHOWN = 24
NOTHING_S = 1e-3
"""Until it starts a vCPU is offline, some microseconds."""


def ran(summary: dict[str, Any], out: Console) -> None:
    """What `contend run` prints of a Xen host, after the sentence about what ran."""
    x = summary["xen"]
    domains(x, out)
    w = report.explain(summary)
    assert w is not None
    for line in report.sentences(w):
        out.print(escape(line))
    _counters(w["perf"], out)


def domains(x: dict[str, Any], out: Console) -> None:
    """The domains with what they got, in the columns of `xl top` where it has them."""
    headings = ["domain", "vCPUs", "weight", "cap", "CPU(%)", "share", "waited", "longest", "blocked", "parked",
                "in soft", "runs", "moves"]  # fmt: skip
    rows = [
        (
            d["name"],
            f"{d['vcpus']:,}",
            str(d["weight"]),
            str(d["cap"]),
            f"{d['cpu_pct']:.1f}",
            f"{d['share_pct']:.2f} %",
            seconds(d["wait_s"]),
            duration_us(d["wait_max_us"]),
            seconds(d["blocked_s"]),
            seconds(d["offline_s"]) if d["offline_s"] >= NOTHING_S * d["vcpus"] else "",
            "" if d["soft_pct"] is None else f"{d['soft_pct']:.2f} %",
            si(d["dispatches"]),
            si(d["moves"]),
        )
        for d in x["domains"][:DOMAINS_SHOWN]
    ]
    # Columns that say nothing here.
    quiet = {"cap": "0", "in soft": "100.00 %", "parked": ""}
    kept = [i for i, h in enumerate(headings) if h not in quiet or any(r[i] != quiet[h] for r in rows)]
    columns = [(headings[i], "right" if i else "left") for i in kept]
    out.print(table("Domains", columns, [[r[i] for i in kept] for r in rows]))
    if len(x["domains"]) > DOMAINS_SHOWN:
        out.print(f"{len(x['domains']) - DOMAINS_SHOWN} more domains are in the table xen_vcpus.\n")


def _counters(perf: dict[str, int], out: Console) -> None:
    if perf:
        out.print(f"Counters: {', '.join(f'{name} {si(n)}' for name, n in perf.items())}.")


def explained(x: dict[str, Any], out: Console) -> None:
    """Domains, timeline, locks of the scheduler, counters."""
    domains(x, out)
    if x["timeline"]:
        rows = [(f"{t['s']:g} s", f"xl {t['xl']}") for t in x["timeline"]]
        out.print(table("Changes", [("at", "right"), ("command", "fold")], rows))
    if x["not_reached"]:
        left = "; ".join(f"xl {t['xl']} (at {t['s']:g} s)" for t in x["not_reached"])
        out.print(escape(f"Not reached: the run ended before {left}."), soft_wrap=True)
    locks = [
        (
            k["kind"],
            f"{k['locks']:,}",
            f"{k['acquisitions']:,}",
            percent(k["contended_share"]),
            seconds(k["wait_s"]),
            seconds(k["hold_s"]),
            k["meaning"],
        )
        for k in x["locks"]
        if k["acquisitions"]
    ]
    columns = [("locks", "left"), ("how many", "right"), ("acquired", "right"), ("contended", "right"),
               ("waited", "right"), ("held", "right"), ("what they are", "fold")]  # fmt: skip
    out.print(table("Locks of the scheduler", columns, locks))
    meanings = _meanings()
    counts = [(name, f"{n:,}", meanings.get(name, "")) for name, n in x["perf"].items()]
    out.print(table("Counters", [("counter", "left"), ("count", "right"), ("what it counts", "fold")], counts))


def _meanings() -> dict[str, str]:
    from contend.run import list_counters

    return {c["name"]: c["doc"] for c in list_counters() if c["of"] == "xen"}
