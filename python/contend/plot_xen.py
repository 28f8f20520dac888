"""Panels about Xen hosts: where the domains' vCPUs spent their time, and what each domain got."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contend.result import Result

BARS_MAX = 32
"""Bars of domains; more cannot be read."""

STATES = ("ran within soft affinity", "ran outside", "waited for a pCPU", "blocked", "parked or moving")


def _shares(d: dict[str, Any]) -> list[float]:
    soft = d["run_s"] * (100 if d["soft_pct"] is None else d["soft_pct"]) / 100
    times = [soft, d["run_s"] - soft, d["wait_s"], d["blocked_s"], d["offline_s"]]
    total = sum(times) or 1
    return [100 * t / total for t in times]


def _bars(results: Sequence[Result]) -> list[tuple[str, dict[str, Any]]]:
    bars = []
    for i, result in enumerate(results):
        which = f" ({'result' if i else 'baseline'})" if len(results) > 1 else ""
        domains = (result.summary.get("xen") or {"domains": []})["domains"]
        bars += [(f"{d['name']}{which}", d) for d in domains[: BARS_MAX // len(results)]]
    return bars


def times(ax: Any, results: Sequence[Result]) -> None:
    """The time of each domain's vCPUs by run state."""
    bars = _bars(results)
    shares = [_shares(d) for _, d in bars]
    lefts = [0.0] * len(bars)
    for k, state in enumerate(STATES):
        widths = [s[k] for s in shares]
        ax.barh(range(len(bars)), widths, left=lefts, label=state)
        lefts = [a + b for a, b in zip(lefts, widths, strict=True)]
    ax.set_yticks(range(len(bars)), [name for name, _ in bars])
    ax.invert_yaxis()
    ax.set_xlim(0, 100)
    ax.set_xlabel("% of the time of the domain's vCPUs")
    ax.set_title("Domains' vCPUs")
    ax.legend(ncols=len(STATES), fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.2))


def shares(ax: Any, results: Sequence[Result]) -> None:
    """What each domain got of the pCPUs."""
    bars = _bars(results)
    drawn = ax.barh(range(len(bars)), [d["cpu_pct"] for _, d in bars])
    ax.bar_label(
        drawn, [f"{d['share_pct']:.1f} % of all, weight {d['weight']}" for _, d in bars], padding=3, fontsize=7
    )
    ax.margins(x=0.25)
    ax.set_yticks(range(len(bars)), [name for name, _ in bars])
    ax.invert_yaxis()
    ax.set_xlabel("% of one pCPU")
    ax.set_title("CPU time of domains")
