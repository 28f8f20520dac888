"""The picture of `contend explain --plot` and `contend compare --plot`: ledger, wake-up latency, placement."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from contend import plot_xen
from contend._core import ContendError
from contend.guests import has_guests, what_ran
from contend.result import Result
from contend.xen.report import is_xen, under

SUFFIXES = (".png", ".svg", ".pdf")


LABEL_MAX = 70


def _label(result: Result, results: Sequence[Result]) -> str:
    """What tells a result from the others; of one alone what was set."""
    s = result.summary
    others = [r.summary["set"] for r in results if r is not result]
    changed = [f"{k}={v}" for k, v in s["set"].items() if not others or any(o.get(k) != v for o in others)]
    label = " + ".join([under(s) if is_xen(s) else s["policy"], *([", ".join(changed)] if changed else [])])
    return label if len(label) <= LABEL_MAX else f"{label[:LABEL_MAX]}..."


def pyplot(file: str) -> Any:
    """matplotlib, set up so that the same result gives the same bytes; `file` must be of a kind that it can draw."""
    if Path(file).suffix not in SUFFIXES:
        raise ContendError(f"--plot: found {file!r}; should end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if not Path(file).parent.is_dir():
        raise ContendError(f"--plot: {file}: cannot be written: no such directory")
    _check_target(Path(file))
    try:
        import matplotlib as mpl
    except ImportError as e:
        raise ContendError("--plot needs matplotlib: pip install 'contend[plot]'") from e
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "contend"
    from matplotlib import pyplot as plt

    return plt


def _check_target(file: Path) -> None:
    """Refuse what is no figure that was drawn here: it would be gone."""
    if not file.exists():
        return
    if not file.is_file():
        raise ContendError(f"--plot: {file}: a directory, device or pipe of this name exists; name a file")
    try:
        drawn = b"atplotlib" in file.read_bytes() or not file.stat().st_size
    except OSError as e:
        raise ContendError(f"--plot: {file}: cannot be read: {e.strerror}") from e
    if not drawn:
        raise ContendError(
            f"--plot: {file}: a file of this name exists and is no figure of contend; name another or remove it"
        )


def save(figure: Any, file: str) -> None:
    """Write the figure and close it."""
    from matplotlib import pyplot as plt

    metadata = {"Date": None} if file.endswith(".svg") else {"CreationDate": None} if file.endswith(".pdf") else None
    # A link stays one.
    target = Path(file).resolve()
    partial = target.with_name(f".{target.name}.{os.getpid()}{target.suffix}")
    try:
        figure.savefig(partial, dpi=130, metadata=metadata)
        partial.replace(target)
    except OSError as e:
        raise ContendError(f"{file}: cannot be written: {e.strerror}") from e
    finally:
        plt.close(figure)
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def draw(results: Sequence[Result], file: str) -> None:
    """Draw one result, or a baseline and results side by side, to `file`."""
    plt = pyplot(file)
    first = results[0].summary
    guests = any(has_guests(r.summary) for r in results)
    rows = 4 if guests else 3
    figure, axes = plt.subplots(rows, 1, figsize=(10, 11 * rows / 3), layout="constrained")
    top, left, right = axes[:3]
    if guests:
        _guests(axes[3], results)
    figure.suptitle(f"{what_ran(first)} on {first['machine']} ({first['cpus']} CPUs)")
    _ledger(top, results)
    if any(is_xen(r.summary) for r in results):
        plot_xen.times(left, results)
        plot_xen.shares(right, results)
    else:
        _latency(left, results)
        _placement(right, results)
    save(figure, file)


def _ledger(ax: Any, results: Sequence[Result]) -> None:
    accounts = [a for a in results[0].ledger() if a != "idle" and any(r.ledger().get(a) for r in results)]
    height = 0.8 / len(results)
    for i, result in enumerate(results):
        ledger = result.ledger()
        total = sum(ledger.values()) or 1
        share = [100 * ledger.get(a, 0) / total for a in accounts]
        bars = ax.barh([y + i * height for y in range(len(accounts))], share, height, label=_label(result, results))
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
        ax.step(x, y, where="post", label=_label(result, results))
    # Axes of nothing cannot be logarithmic.
    if any(len(line.get_xdata()) for line in ax.lines):
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
            label=_label(result, results),
        )
    ax.set_xticks([x + 0.4 - width / 2 for x in range(len(names))], names)
    ax.set_ylabel("% of wake-ups")
    ax.set_title("How far wake-ups moved tasks")
    ax.legend()


BARS_MAX = 24
"""Bars of guests; more cannot be read."""

HOST_PARTS = {
    "tasks": ("user", "syscall"),
    "guests' tasks": ("guest_user",),
    "guests' kernels": ("guest_kernel",),
    "spinning in them": ("guest_spin",),
    "exits": ("vm_exit",),
    "pause-loop handler": ("ple",),
    "run-queue locks": ("rq_lock_wait",),
    "idle": ("idle", "halt_poll"),
}
"""The host's ledger in a few parts; the rest is one more."""

GUEST_PARTS = {
    "guest_user_pct": "guests' tasks",
    "guest_kernel_pct": "guests' kernels",
    "spin_pct": "spinning in them",
    "host_pct": "host",
    "steal_pct": "stolen",
    "halted_pct": "halted",
}
"""Where a vCPU's time goes, in the words of the host's parts where they are the same."""


def _guests(ax: Any, results: Sequence[Result]) -> None:
    """Where CPU time went: a bar for the host and one a guest, of each result."""
    from matplotlib import colormaps

    bars: list[tuple[str, list[tuple[str, float]]]] = []
    for i, result in enumerate(results):
        s = result.summary
        name = f" ({f'result {i}' if i else 'baseline'})" if len(results) > 1 else ""
        ledger = result.ledger()
        total = sum(ledger.values()) or 1
        parts = [(part, 100 * sum(ledger.get(a, 0) for a in of) / total) for part, of in HOST_PARTS.items()]
        parts.insert(-1, ("rest of the kernel", 100 - sum(share for _, share in parts)))
        bars.append((f"host{name}", parts))
        machines = s.get("guests") or []
        shown = [] if len(machines) * len(results) > BARS_MAX else machines
        if s.get("guests_total") and not shown:
            shown = [{**s["guests_total"], "name": f"{len(machines)} guests"}]
        bars += [(f"{g['name']}{name}", [(part, g[key]) for key, part in GUEST_PARTS.items()]) for g in shown]
    kinds = list(dict.fromkeys(part for _, parts in bars for part, _ in parts))
    colours = {kind: colormaps["tab20"](i % 20) for i, kind in enumerate(kinds)}
    for kind in kinds:
        widths = [dict(parts).get(kind, 0.0) for _, parts in bars]
        lefts = [sum(share for _, share in parts[: [p for p, _ in parts].index(kind)]) if kind in dict(parts) else 0.0
                 for _, parts in bars]  # fmt: skip
        ax.barh(range(len(bars)), widths, left=lefts, label=kind, color=colours[kind])
    ax.set_yticks(range(len(bars)), [name for name, _ in bars])
    ax.invert_yaxis()
    ax.set_xlim(0, 100)
    ax.set_xlabel("% of the time of CPUs (host) and of vCPUs (guests)")
    ax.set_title("Where CPU time went")
    ax.legend(ncols=5, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.25))
