"""`contend model`, and `contend.model`: what a recording holds, written as a model."""

from __future__ import annotations

import json
import os
import shlex
from typing import Any

import click

from contend import _core, given
from contend.blame import naming
from contend.units import counted, duration_us, percent, seconds, si
from contend.working import EXIT_OK
from contend.xen.trace import cpu_hz_option

ROLES_MAX = 20


def model(
    recording: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    command: str = "",
    all: bool = False,
    cpu_hz: int | None = None,
) -> dict[str, Any]:
    """Turn a recording into a model, and say what it holds.

    recording: a directory of `contend record`, a trace of any format of docs/traces.md, or an exact model.
    out: the model's file. `.toml` is the fitted form (roles with distributions, to edit), `.arrow` the exact one (a row
    a step), `.json` the roles' CPU profiles as a file of rt-app. command, all: whose tasks, as in docs/recordings.md.
    cpu_hz: frequency of the time stamps of a binary Xen trace (docs/xentrace.md).

    Raises ScenarioInvalid if there is nothing to make a model of, ContendError if `out` cannot be written.
    """
    with naming(recording):
        text = _core.model(
            given.path("recording", recording),
            command=given.text("command", command, "a command's name, as text") or "",
            all=all,
            cpu_hz=given.whole("cpu_hz", cpu_hz),
            out=given.optional_path("out", out),
        )
    said: dict[str, Any] = json.loads(text)
    return said


@click.command("model")
@click.argument("recording", type=click.Path())
@click.option("--out", metavar="FILE", help="Write the model: .toml fitted, .arrow exact, .json for rt-app.")
@click.option("--command", "command_", metavar="NAME", default="", help="Model what this command started.")
@click.option("--all", "all_", is_flag=True, help="Model all tasks, the system's too.")
@cpu_hz_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(*, recording: str, out: str | None, command_: str, all_: bool, cpu_hz: int | None, as_json: bool) -> int:
    """Turn RECORDING (or an exact model) into a model, and say what it holds.

    A model runs on any machine: `contend run FILE --machine M`, `--copies N` of it side by side, `--speed X` times as
    fast, `--jobs N` at once where the recording shows jobs.
    """
    said = model(recording, out=out, command=command_, all=all_, cpu_hz=cpu_hz)
    if as_json:
        click.echo(json.dumps(said, indent=2))
        return EXIT_OK
    from contend import text

    show(said, text.console())
    if out:
        elsewhere = ["--machine", "intel-2s-44c-88t"]
        then = ["rt-app", out] if out.endswith(".json") else ["contend", "run", out, *elsewhere]
        click.echo(f"Model in {out}; `{shlex.join(then)}` runs it.")
    return EXIT_OK


def _ends(role: dict[str, Any]) -> str:
    shares = sorted(role["ends"], key=lambda e: -e["share"])
    named = [f"{'asking ' if e['by'] == 'ask' else ''}{e['role'] or e['by']} {percent(e['share'])}" for e in shares[:3]]
    return ", ".join(named) + (", ..." if len(shares) > 3 else "")


def _starts(role: dict[str, Any]) -> str:
    return ", ".join(f"{s['per_life']:g} {s['role']}{_limit(s['at_once'])}" for s in role["starts"])


def _limit(at_once: int) -> str:
    return {0: "", 1: " (in turn)"}.get(at_once, f" (at most {at_once} at once)")


def show(said: dict[str, Any], out: Any) -> None:
    """Print what a model holds."""
    from rich.markup import escape

    from contend import text

    if said["report"]:
        out.print(escape(said["report"]))
    if said["form"] == "exact":
        out.print(
            f"{counted(said['tasks'], 'task')}, {si(said['steps'])} steps; {seconds(said['run_s'])} of CPU time over "
            f"{seconds(said['span_s'])}: {said['busy_cpus']:.2f} CPUs on average."
        )
        columns = [("sleeps ended by", "left"), ("number", "right"), ("mean", "right"), ("in all", "right")]
        rows = [
            [s["why"], f"{s['count']:,}", duration_us(s["s"] / s["count"] * 1e6), seconds(s["s"])]
            for s in said["sleeps"]
        ]
        out.print(text.table("", columns, rows))
    columns = [("role", "left"), ("tasks", "right"), ("turns", "right"), ("run a turn", "right"), ("ended by", "fold"),
               ("starts", "fold")]  # fmt: skip
    busiest = sorted(said["roles"], key=lambda r: -r["run_us"] * r["turns"])
    rows = [
        [r["name"], f"{r['tasks']:,}", f"{r['turns']:,.1f}", duration_us(r["run_us"]), _ends(r), _starts(r)]
        for r in busiest[:ROLES_MAX]
    ]
    out.print(text.table("", columns, rows))
    if len(busiest) > ROLES_MAX:
        out.print(f"{len(busiest) - ROLES_MAX} more roles; --json has all.")
    text.recorded_locks(said["recorded_locks"], out)
    for limit in said.get("limits", []):
        out.print(escape(limit))
