"""A comparison in sentences and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from contend.comparing.comparison import Against, Comparison, Row, Runs
from contend.comparing.divergence import Divergence, Event
from contend.comparing.statistics import CONFIDENCE, NO_SPREAD, NONE, band_confidence
from contend.explain import USEFUL, mechanism
from contend.quantity import shown
from contend.text import outcome_sentence, table
from contend.units import seconds

if TYPE_CHECKING:
    from rich.console import Console

GROUP = "group"
COLOURS = {"better": "green", "worse": "red", NONE: "dim", NO_SPREAD: "dim", GROUP: "bold"}


def _pct(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:+,.{1 if abs(value) < 1000 else 0}f} %"


def _interval(row: Row) -> str:
    d = row.difference
    if d is None or not row.spread:
        return ""
    low, high = d.pct(d.low), d.pct(d.high)
    if low is None:
        return f"{shown(d.low, row.unit)} to {shown(d.high, row.unit)}"
    return f"{_pct(low)} to {_pct(high)}"


def _runs(word: str, runs: Runs, out: Console) -> None:
    if runs.side.costs:
        seeds = f"Under the machine's own costs, and {len(runs.side.costs)} draws of them"
    else:
        seeds = f"Seeds {', '.join(map(str, runs.ended))}" if len(runs.ended) <= 8 else f"{len(runs.ended)} seeds"
    out.print(f"{word} {escape(runs.side.name)}: {escape(outcome_sentence(runs.first))} {seeds}.")
    if runs.side.given:
        out.print("  These runs are stored ones.")
    if runs.stored_differs:
        out.print(f"  [bold]{escape(runs.side.name)} as stored is another run[/bold] than its scenario gives with this "
                  "contend: what is compared is the scenario.")  # fmt: skip
    if runs.failed:
        ends = ", ".join(f"seed {seed}: {s['outcome']}" for seed, s in runs.failed.items())
        out.print(f"  [bold]{len(runs.failed)} of {len(runs.ended) + len(runs.failed)} runs failed[/bold] ({ends}) and "
                  "are left out.")  # fmt: skip


def _event(event: Event | None) -> str:
    return "has ended" if event is None else f"{event.time_s:.9f} s  CPU {event.cpu:<4} {event.task}: {event.text}"


def _parted(d: Divergence, out: Console) -> None:
    if d.same:
        out.print(
            f"Under seed {d.seed} both are the same run: all dispatches are equal in time, CPU and task, and so are "
            "the events and the ledger."
        )
    elif d.same_dispatches:
        out.print(
            f"Under seed {d.seed} all dispatches are equal in time, CPU and task, but it is not the same run: {d.why}."
        )
    elif not d.found:
        looked = f" in the first {seconds(d.compared_s)} ({d.events:,} events)" if d.compared_s else ""
        out.print(f"Where the runs part was not found{looked}: {d.why}.")
    else:
        out.print(f"Under seed {d.seed} the runs part after {d.events:,} equal events, at {seconds(d.time_s)}:")
        for event in d.before:
            out.print(f"             {escape(_event(event))}", soft_wrap=True)
        out.print(f"  [bold]baseline[/bold]   {escape(_event(d.baseline))}", soft_wrap=True)
        out.print(f"  [bold]result[/bold]     {escape(_event(d.result))}", soft_wrap=True)


def _change(row: Row) -> str:
    """A difference with its interval and verdict."""
    d = row.difference
    assert d is not None
    change = _pct(d.pct(d.value)) or shown(d.value, row.unit)
    return f"{change} ({_interval(row)}): {row.verdict}" if row.spread else f"{change}: {row.verdict}"


def _answer(a: Against, out: Console) -> None:
    """The sentences before the table."""
    if not a.spread:
        what = "draw" if a.runs.side.costs else "seed"
        out.print(
            f"[bold]No {what} changes these runs[/bold]: the differences are those of one course of events, and "
            "repeats say nothing of chance."
        )
    time = next((r for r in a.rows if r.name == "virtual_s"), None)
    if a.same_work and time and time.difference and time.baseline and time.result:
        out.print(
            f"The work took {seconds(time.result.shown)} instead of {seconds(time.baseline.shown)}, {_change(time)}."
        )
    ledger = [r for r in a.rows if r.group == "ledger" and r.difference]
    lost = [r for r in ledger if r.name.removeprefix("ledger_ns.") not in (*USEFUL, "idle")]
    moved = [r for r in lost if r.verdict != NONE]
    if moved:
        most = max(moved, key=lambda r: abs(r.difference.value) if r.difference else 0)
        account = most.name.removeprefix("ledger_ns.")
        words = escape(mechanism(account, a.runs.first))
        by = shown(most.difference.value, most.unit) if most.difference else ""
        out.print(f"Of what is not work, most changed in [bold]{account}[/bold], {words}: by {by}, {_change(most)}.")
    elif lost:
        out.print("Of what is not work, no account of the ledger is shown to differ.")


def _against(a: Against, number: int, out: Console) -> None:
    _runs(f"result {number}:" if number else "result  ", a.runs, out)
    if a.runs.own_seed is not None:
        seeds = "the baseline's seed" if a.runs.side.costs else "the baseline's seeds"
        out.print(f"  Its own seed, {a.runs.own_seed}, was not used: both sides run under {seeds}.")
    if a.changed:
        changed = ", ".join(f"{k} {old} -> {new}" for k, (old, new) in a.changed.items())
        out.print(f"Changed: {escape(changed)}.")
    if not a.rows:
        out.print("Nothing is compared: that needs two runs of each that end as asked.")
        return
    _answer(a, out)
    if a.divergence:
        _parted(a.divergence, out)
    spread = f"band of {len(a.runs.side.costs)} draws" if a.runs.side.costs else "95 % interval"
    columns = [("", "left"), ("baseline", "right"), ("result", "right"), ("difference", "right"),
               (spread, "right"), ("", "left")]  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for group in dict.fromkeys(r.group for r in a.rows):
        rows.append((f"{group[0].upper()}{group[1:]}", "", "", "", "", GROUP))
        for r in (r for r in a.rows if r.group == group):
            d = r.difference
            old, new = (shown(s.shown, r.unit) if s else "not in every run" for s in (r.baseline, r.result))
            change = "" if d is None else _pct(d.pct(d.value)) or shown(d.value, r.unit)
            rows.append((f"  {r.name}", old, new, change, _interval(r), r.verdict or ""))
    words = {GROUP: "", NONE: "not shown"}
    styles = [COLOURS.get(row[-1], "") for row in rows]
    out.print(table("", columns, [(*row[:-1], words.get(row[-1], row[-1])) for row in rows], styles))


def compared(c: Comparison, out: Console) -> None:
    """What `contend compare` prints."""
    _runs("baseline", c.baseline, out)
    for i, against in enumerate(c.results, 1):
        _against(against, i if len(c.results) > 1 else 0, out)
    compared_rows = [r for a in c.results for r in a.rows if r.difference]
    if compared_rows:
        rates = "" if all(a.same_work for a in c.results) else "rates, as the runs did not do the same work; "
        if c.draws:
            out.print(
                f"Values are those under the machine's own costs; {rates}bands are the lowest and highest difference "
                f"of the {c.draws + 1} pairs of runs. Each alone holds what another draw would give with "
                f"{100 * band_confidence(c.draws):.0f} %. They say what hangs on the machine's costs, not what another "
                "recording would give."
            )
            return
        tested = sum(r.spread for r in compared_rows)
        intervals = f"intervals are Welch's. {_chance(tested)}" if tested else "no intervals, as no number varies."
        out.print(f"Means of the runs; {rates}{intervals}")


def _chance(tested: int) -> str:
    """What chance alone would show."""
    if tested == 1:
        return f"The interval holds with {100 * CONFIDENCE:.0f} %."
    each = f"Each alone holds with {100 * CONFIDENCE:.0f} %:"
    about = round(tested * (1 - CONFIDENCE))
    if about > 1:
        return f"{each} of {tested} numbers about {about} would seem to differ by chance."
    # Sure to be no more: numbers of one run hang together.
    any_ = min(1 - CONFIDENCE**tested, 1.0)
    return (
        f"{each} that any of {tested} numbers seems to differ by chance has a probability of up to {100 * any_:.0f} %."
    )
