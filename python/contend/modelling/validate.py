"""`contend validate`, and `contend.validate`: is a replay true to its recording?"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import click

from contend import _core, given
from contend.blame import naming
from contend.given import SetValue
from contend.progress import RunProgress
from contend.run import Progress
from contend.units import duration_us, plain, seconds
from contend.working import working

TASKS_SHOWN = 8

MEASURES = [
    ("switches_per_s", "switches/s"),
    ("still_runnable_share", "of them still runnable"),
    ("migrations_per_s", "to another CPU/s"),
    ("wakeups_here_share", "woken where they slept"),
    ("busy", "CPUs busy"),
    ("wakeup_p50_us", "wake-up latency p50"),
    ("wakeup_p99_us", "wake-up latency p99"),
    ("run_p50_us", "run p50"),
    ("run_p90_us", "run p90"),
]
"""What is compared: key, and in words."""


def _measures(side: Mapping[str, Any]) -> dict[str, float]:
    s = side["seconds"] or 1.0
    return {
        "switches_per_s": side["switches_per_s"],
        "still_runnable_share": side["preempted"] / max(side["switches"], 1),
        "migrations_per_s": side["migrations"] / s,
        "wakeups_here_share": side["wakeups_here"] / max(side["wakeups"], 1),
        "busy": side["run_s"] / s,
        "wakeup_p50_us": side["wakeup_latency_us"]["p50"],
        "wakeup_p99_us": side["wakeup_latency_us"]["p99"],
        "run_p50_us": side["run_us"]["p50"],
        "run_p90_us": side["run_us"]["p90"],
    }


def _error_pct(recorded: float, simulated: float) -> float | None:
    return 100.0 * (simulated - recorded) / recorded if recorded > 0 else None


def _compared(pair: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    recorded, simulated = _measures(pair["recorded"]), _measures(pair["simulated"])
    return {
        key: {
            "recorded": recorded[key],
            "simulated": simulated[key],
            "error_pct": _error_pct(recorded[key], simulated[key]),
        }
        for key, _ in MEASURES
    }


def validate(
    recording: str | os.PathLike[str],
    *,
    machine: str | None = None,
    policy: str | None = None,
    set: Mapping[str, SetValue | Sequence[int]] | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Replay a recording where it was made, and compare what both sides' scheduler events say.

    The machine and the policy are the recording's own unless others are given. All that ran is replayed, the system's
    tasks too, and the command's tasks are compared. `compared` has each measure over all of them, `tasks` by name.

    `outcome` says how the replay ended, `outcome_detail` who waits for whom where it did not go to its end.

    Raises ScenarioInvalid if it is no recording, KeyboardInterrupt on Ctrl-C.
    """
    with naming(recording):
        text = _core.validate(
            path=given.path("recording", recording),
            machine=given.text("machine", machine, given.MACHINE),
            policy=given.text("policy", policy, given.POLICY),
            set=given.sets(set),
            seed=given.seed(seed),
            progress=progress,
        )
    said: dict[str, Any] = json.loads(text)
    said["compared"] = _compared(said["all"])
    said["tasks"] = [{"name": name, **pair, "compared": _compared(pair)} for name, pair in said["tasks"]]
    return said


def _value(key: str, value: float) -> str:
    if key.endswith("_us"):
        return duration_us(value) if value else "none"
    if key.endswith("_share"):
        return f"{100 * value:.1f} %"
    return f"{value:,.2f}" if key == "busy" else f"{value:,.0f}"


def _error(error: float | None) -> str:
    return "" if error is None else f"{error:+.0f} %"


def show(said: Mapping[str, Any], out: Any) -> None:
    """Print both sides."""
    from rich.markup import escape

    from contend import text

    out.print(escape(said["report"]))
    replayed = said["all"]["simulated"]["seconds"]
    out.print(
        f"Replayed on {said['machine']} under {said['policy']}: {seconds(replayed)}, recorded "
        f"{seconds(said['all']['recorded']['seconds'])} ({said['outcome']})."
    )
    if said["hidden_arrivals"]:
        out.print(
            f"The kernel did not record when {said['hidden_arrivals']:,} times one of these tasks came to an idle CPU: "
            "as many of its arrivals are left out of the replay's latencies and runs, too."
        )
    columns = [("measure", "left"), ("recorded", "right"), ("replayed", "right"), ("error", "right")]
    rows = [
        [words, _value(key, c["recorded"]), _value(key, c["simulated"]), _error(c["error_pct"])]
        for key, words in MEASURES
        for c in [said["compared"][key]]
    ]
    out.print(text.table("", columns, rows))
    columns = [("task", "left"), ("switches/s", "right"), ("error", "right"), ("wake-up p50", "right"),
               ("error", "right"), ("wake-up p99", "right"), ("error", "right"), ("run p50", "right"),
               ("error", "right")]  # fmt: skip
    rows = []
    for task in said["tasks"][:TASKS_SHOWN]:
        row = [task["name"]]
        for key in ("switches_per_s", "wakeup_p50_us", "wakeup_p99_us", "run_p50_us"):
            c = task["compared"][key]
            row += [_value(key, c["recorded"]), _error(c["error_pct"])]
        rows.append(row)
    if len(said["tasks"]) > 1:
        out.print(text.table("As recorded, by name, and how far off the replay is", columns, rows))
    text.recorded_locks(said["recorded_locks"], out)


def medians(all_said: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Of several recordings: the median of each measure's error without its sign, in per cent, and as a factor.

    A measure that was nothing on one side has no factor there; one that nobody recorded has no median.
    """
    found: dict[str, dict[str, float | None]] = {}
    for key, _ in MEASURES:
        pairs = [said["compared"][key] for said in all_said]
        errors = [abs(c["error_pct"]) for c in pairs if c["error_pct"] is not None]
        factors = [_factor(c) for c in pairs if c["recorded"] > 0 and c["simulated"] > 0]
        found[key] = {
            "error_pct": statistics.median(errors) if errors else None,
            "factor": statistics.median(factors) if factors else None,
        }
    return found


def _factor(c: Mapping[str, float]) -> float:
    return max(c["recorded"] / c["simulated"], c["simulated"] / c["recorded"])


def show_several(names: Sequence[str], all_said: Sequence[Mapping[str, Any]], out: Any) -> None:
    """Print how far off each replay is, and the medians."""
    from contend import text

    keys = ["switches_per_s", "wakeup_p50_us", "wakeup_p99_us", "run_p50_us", "busy"]
    words = dict(MEASURES)
    columns = [("recording", "fold"), *((words[key], "right") for key in keys), ("length", "right")]
    rows = []
    for name, said in zip(names, all_said, strict=True):
        compared = said["compared"]
        recorded, simulated = (said["all"][side]["seconds"] for side in ("recorded", "simulated"))
        rows.append(
            [name, *(_error(compared[key]["error_pct"]) for key in keys), _error(_error_pct(recorded, simulated))]
        )
    middle = medians(all_said)
    errors = [middle[key]["error_pct"] for key in keys]
    rows.append(["median, without signs", *("" if e is None else f"{e:.0f} %" for e in errors), ""])
    out.print(text.table("How far off the replays are", columns, rows))
    factor = middle["wakeup_p99_us"]["factor"]
    if factor is not None:
        out.print(f"Half of the 99th percentiles of wake-up latency are right within a factor of {factor:.2f}.")


@click.command("validate")
@click.argument("recordings", metavar="RECORDING...", type=click.Path(), nargs=-1, required=True)
@click.option("--machine", "-m", metavar="M", help="Another machine than the recorded one: its file, or a name.")
@click.option("--policy", "-p", metavar="P", help="Another preset than that of the recorded kernel.")
@click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="As for `contend run`. May be repeated.")
@click.option("--seed", metavar="N", help="Seed of all random choices.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--progress", is_flag=True, help="Show progress even where stderr is no terminal.")
def command(
    *,
    recordings: tuple[str, ...],
    machine: str | None,
    policy: str | None,
    sets: tuple[str, ...],
    seed: str | None,
    as_json: bool,
    progress: bool,
) -> int:
    """Replay RECORDING on its own machine under its own kernel's policy, and print how well it matches.

    Of several, print how far off each replay is, and the medians.

    Of a trace without a machine, give the machine that it was made on with --machine; `contend probe` makes its file.

    Exit codes as those of `contend run`: 3 if a replay ended in a deadlock or the like, which is said on stderr.
    """
    from contend.cli import EXIT_BY_OUTCOME, key_value, seed_number

    with working(RunProgress(forced=progress)) as line:
        all_said = [
            validate(
                recording,
                machine=machine,
                policy=policy,
                set=dict(key_value(text) for text in sets),
                seed=seed_number(seed),
                progress=line,
            )
            for recording in recordings
        ]
    names = [os.path.normpath(recording) for recording in recordings]
    code = max(EXIT_BY_OUTCOME[said["outcome"]] for said in all_said)
    if as_json:
        several = {
            "recordings": [{"path": name, **said} for name, said in zip(names, all_said, strict=True)],
            "medians": medians(all_said),
        }
        click.echo(json.dumps(all_said[0] if len(all_said) == 1 else several, indent=2))
    else:
        from contend import text

        if len(all_said) == 1:
            show(all_said[0], text.console())
        else:
            show_several(names, all_said, text.console())
    for name, said in zip(names, all_said, strict=True):
        if EXIT_BY_OUTCOME[said["outcome"]]:
            click.echo(plain(f"error: {name}: {said['outcome']}: {said['outcome_detail']}"), err=True)
    return code
