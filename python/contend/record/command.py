"""`contend record`."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from contend._core import ContendError
from contend.progress import ShareProgress
from contend.units import counted
from contend.working import EXIT_OK

BUFFER_MIB = 8.0
ELSEWHERE = "intel-2s-44c-88t"
"""A machine to try first."""


@click.command("record", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--out", metavar="NAME.rec", help="The recording's directory; of the command's name if left out.")
@click.option("--with", "recorder", type=click.Choice(["auto", "tracefs", "perf"]), default="auto", show_default=True,
              help="What to record with; auto: perf where tracefs cannot be used.")  # fmt: skip
@click.option("--machine", metavar="FILE", type=click.Path(),
              help="A machine file of this machine, as of `contend probe`; else it is measured briefly.")  # fmt: skip
@click.option("--probe", is_flag=True, help="Measure this machine first, under 5 s: `contend probe --quick`.")
@click.option("--private", is_flag=True, help="Leave out the names of tasks that the command did not start.")
@click.option("--no-irq", is_flag=True, help="No interrupts, softirqs, timers: fewer events, sleeps without a cause.")
@click.option("--syscalls", is_flag=True, help="Record system calls, too.")
@click.option("--events", metavar="LIST", help="Record these, too: SYSTEM:EVENT,...")
@click.option("--buffer", metavar="MIB", type=float, default=BUFFER_MIB, show_default=True,
              help="Buffer of each CPU, in MiB.")  # fmt: skip
@click.option("--gzip", "compress", is_flag=True, help="Pack the events: smaller to keep, slower to read.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--progress", is_flag=True, help="Show progress even where stderr is no terminal.")
def command(
    *,
    command: tuple[str, ...],
    out: str | None,
    recorder: str,
    machine: str | None,
    probe: bool,
    private: bool,
    no_irq: bool,
    syscalls: bool,
    events: str | None,
    buffer: float,
    compress: bool,
    as_json: bool,
    progress: bool,
) -> int:
    """Run COMMAND and record what the kernel's scheduler does meanwhile (Linux, as root).

    Writes a directory NAME.rec with the events of all CPUs, a machine file of this machine, and what was recorded:
    `contend run NAME.rec` replays it. Put -- before COMMAND. Ctrl-C ends command and recording and keeps it; twice,
    it is discarded.
    """
    from contend.record import events as known
    from contend.record import store
    from contend.record.recorder import Options, record

    if sys.platform != "linux":
        raise ContendError("contend record works on Linux only; traces made there can be read everywhere")
    if not 0.0625 <= buffer <= 4096:
        raise ContendError(f"--buffer: found {buffer:g}; should be 0.0625 to 4096 MiB")
    if probe and machine:
        raise ContendError("--probe: found --machine too; should be one of them: a file, or to measure now")
    options = Options(
        command=list(command),
        out=Path(out) if out else store.default_name(list(command)),
        recorder=recorder,
        interrupts=not no_irq,
        syscalls=syscalls,
        more=known.parse(events) if events else [],
        buffer_mib=buffer,
        machine=Path(machine) if machine else None,
        probe=probe,
        private=private,
        compress=compress,
    )
    line = ShareProgress("", forced=progress) if progress or sys.stderr.isatty() else None

    def show(what: str, share: float) -> None:
        if line:
            line.what = what
            line(share)

    try:
        said = record(options, show)
    finally:
        if line:
            line.clear()
    if as_json:
        click.echo(json.dumps(said, indent=2))
    else:
        _show(said)
    return EXIT_OK


def _show(said: dict[str, Any]) -> None:
    tasks = f" of {counted(said['tasks'], 'task')}" if "tasks" in said else ""
    click.echo(
        f"{said['path']}: {said['events']:,} events{tasks} in {said['duration_s']:.3f} s on {said['cpus']} CPUs; "
        f"{said['lost']:,} lost."
    )
    if "recorder_cpu_s" in said and said["duration_s"] >= 1:
        share = 100 * said["recorder_cpu_s"] / said["duration_s"]
        click.echo(f"The recorder itself took {share:.1f} % of one CPU.")
    if said["lost"]:
        click.echo("Lost events make a replay wrong: record again with a larger --buffer, or with --no-irq.")
    if said["ended_by"] == "ctrl-c":
        click.echo("Ended by Ctrl-C; what was recorded until then is kept.")
    elif said.get("exit_status"):
        click.echo(f"The command's exit status was {said['exit_status']}; recorded all the same.")
    for note in said["notes"]:
        click.echo(f"Note: {note}.")
    click.echo(f"Next: contend run {shlex.quote(str(said['path']))} --machine {ELSEWHERE} --out result")
    click.echo("      contend report result")
