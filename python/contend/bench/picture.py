"""The picture of `contend bench locks --plot`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from contend.bench.locks import Row, count
from contend.bench.show import sentence
from contend.plot import pyplot, save

MARKERS = "osv^D<>pP*Xhd"


def us(ns: float | None) -> float | None:
    """A time on a logarithmic axis; None where there is none."""
    return None if ns is None else max(ns, 1) / 1e3


def draw(rows: Sequence[Row], said: dict[str, Any], file: str) -> None:
    """Draw a curve for each lock over the number of threads: throughput, hand-over or longest wait, fairness."""
    plt = pyplot(file)
    bare = said["world"] == "bare"
    figure, axes = plt.subplots(2, 2, figsize=(11, 8.5), layout="constrained")
    figure.suptitle(sentence(rows, said), fontsize=10)
    panels: list[tuple[str, Callable[[Row], float | None], bool]] = [
        ("acquisitions a second, millions", lambda r: r["throughput"] / 1e6, True),
        ("longest wait, us", lambda r: us(r["wait_max_ns"]), True),
    ]
    if bare:
        panels += [
            ("hand-over, median, ns", lambda r: r["handover_p50_ns"] or None, True),
            ("share of the far nodes (1: fair)", lambda r: r["far_share"], False),
        ]
    else:
        panels += [
            ("99.9th percentile of the wait, us", lambda r: us(r["p999_ns"]), True),
            ("Jain's fairness index (1: all equal)", lambda r: r["jain"], False),
        ]
    locks = list(dict.fromkeys(row["lock"] for row in rows))
    for ax, (title, of, logarithmic) in zip(axes.flat, panels, strict=True):
        for i, lock in enumerate(locks):
            points = sorted((count(r), of(r)) for r in rows if r["lock"] == lock and of(r) is not None)
            if points:
                x, y = zip(*points, strict=True)
                ax.plot(
                    x, y, marker=MARKERS[i % len(MARKERS)], markersize=4, linewidth=1.2, color=f"C{i % 10}", label=lock
                )
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:.0f}")
        if logarithmic:
            ax.set_yscale("log")
        else:
            ax.set_ylim(0, 1.05)
        ax.set_xlabel("CPUs" if bare else "threads")
        ax.set_title(title, fontsize=10)
        ax.grid(alpha=0.3)
    axes.flat[0].legend(fontsize=8)
    save(figure, file)
