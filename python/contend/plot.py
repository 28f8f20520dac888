"""The picture of `contend explain --plot`: ledger, wake-up latency, placement."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contend._core import ContendError
from contend.result import Result

SUFFIXES = (".png", ".svg", ".pdf")


def _label(result: Result) -> str:
    s = result.summary
    changed = ", ".join(f"{k}={v}" for k, v in s["set"].items())
    return f"{s['policy']}{' + ' + changed if changed else ''}"


def pyplot(file: str) -> Any:
    """matplotlib, set up so that the same result gives the same bytes; `file` must be of a kind that it can draw."""
    if Path(file).suffix not in SUFFIXES:
        raise ContendError(f"--plot: found {file!r}; should end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if not Path(file).parent.is_dir():
        raise ContendError(f"--plot: {file}: cannot be written: no such directory")
    try:
        import matplotlib as mpl
    except ImportError as e:
        raise ContendError("--plot needs matplotlib: pip install 'contend[plot]'") from e
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "contend"
    from matplotlib import pyplot as plt

    return plt


def save(figure: Any, file: str) -> None:
    """Write the figure and close it."""
    from matplotlib import pyplot as plt

    metadata = {"Date": None} if file.endswith(".svg") else {"CreationDate": None} if file.endswith(".pdf") else None
    try:
        figure.savefig(file, dpi=130, metadata=metadata)
    except OSError as e:
        raise ContendError(f"{file}: cannot be written: {e.strerror}") from e
    finally:
        plt.close(figure)


def draw(results: Sequence[Result], file: str) -> None:
    """Draw one result, or a baseline and a result side by side, to `file`."""
    plt = pyplot(file)
    first = results[0].summary
    figure, (top, left, right) = plt.subplots(3, 1, figsize=(10, 11), layout="constrained")
    figure.suptitle(f"{first['workload']} on {first['machine']} ({first['cpus']} CPUs)")
    _ledger(top, results)
    _latency(left, results)
    _placement(right, results)
    save(figure, file)


def _ledger(ax: Any, results: Sequence[Result]) -> None:
    accounts = [a for a in results[0].ledger() if a != "idle"]
    height = 0.8 / len(results)
    for i, result in enumerate(results):
        ledger = result.ledger()
        total = sum(ledger.values()) or 1
        share = [100 * ledger[a] / total for a in accounts]
        bars = ax.barh([y + i * height for y in range(len(accounts))], share, height, label=_label(result))
        ax.bar_label(bars, [f"{s:.2f}" if s else "" for s in share], padding=3, fontsize=7)
    ax.set_yticks([y + 0.4 - height / 2 for y in range(len(accounts))], accounts)
    ax.invert_yaxis()
    ax.set_xlabel("% of CPU time (the rest is idle)")
    ax.set_title("Ledger")
    ax.legend(loc="lower right")


def _latency(ax: Any, results: Sequence[Result]) -> None:
    for result in results:
        frame = result["latency"]
        rows = [r for r in frame.iter_rows(named=True) if r["name"] == "wakeup"]
        total = sum(r["count"] for r in rows) or 1
        x, y, seen = [], [], 0
        for r in rows:
            seen += r["count"]
            x.append(max(r["to_ns"], 1) / 1e3)
            y.append(max(1 - seen / total, 0.1 / total))
        ax.step(x, y, where="post", label=_label(result))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("wake-up latency, us")
    ax.set_ylabel("share of wake-ups that took longer")
    ax.set_title("From a run queue to running")
    ax.grid(alpha=0.3)
    if ax.lines:
        ax.legend()


def _placement(ax: Any, results: Sequence[Result]) -> None:
    names = list(results[0].summary["wakeups"]["from_previous"])
    width = 0.8 / len(results)
    for i, result in enumerate(results):
        counts = result.summary["wakeups"]["from_previous"]
        total = sum(counts.values()) or 1
        ax.bar(
            [x + i * width for x in range(len(names))],
            [100 * counts.get(n, 0) / total for n in names],
            width,
            label=_label(result),
        )
    ax.set_xticks([x + 0.4 - width / 2 for x in range(len(names))], names)
    ax.set_ylabel("% of wake-ups")
    ax.set_title("How far wake-ups moved tasks")
    ax.legend()
