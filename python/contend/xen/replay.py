"""`contend xen replay`: the load of a recorded trace on a simulated host."""

from __future__ import annotations

import json
from os import PathLike
from typing import Any

import click

from contend import _core
from contend.xen import host
from contend.xen.trace import HZ, cpu_hz_option


def replay(
    path: str | PathLike[str],
    *,
    scheduler: str = "credit2",
    preset: str = "upstream-today",
    machine: str | None = None,
    cpu_hz: int = HZ,
    ratelimit_us: int = 1000,
    domains: dict[int, dict[str, Any]] | None = None,
    seed: int = 1,
) -> dict[str, Any]:
    """What vCPUs did in a trace, done again under a scheduler: both, vCPU by vCPU.

    `domains`: by number, with "weight", "cap" (% of a pCPU), "hard" and "soft" (lists of pCPUs), each as needed.
    """
    given = [
        (dom, of.get("weight"), of.get("cap"), of.get("hard"), of.get("soft")) for dom, of in (domains or {}).items()
    ]
    said: dict[str, Any] = json.loads(
        _core.xen_trace_replay(path, cpu_hz, scheduler, preset, machine, ratelimit_us, given, seed)
    )
    return said


@click.command("replay")
@click.argument("file", type=click.Path())
@click.option("--scheduler", type=click.Choice(["credit", "credit2"]), default="credit2", help="Scheduler (credit2).")
@click.option("--preset", default="upstream-today", help="Switches: base, patched or upstream-today (upstream-today).")
@click.option("--machine", metavar="MACHINE", help="The host, such as 2n2c; otherwise a core for each pCPU.")
@cpu_hz_option
@host.weights_option
@click.option(
    "--cap",
    "caps",
    metavar="d1=150",
    multiple=True,
    callback=host.by_domain(host.number(0, 65535), "150"),
    help="Caps, % of a pCPU; none otherwise.",
)
@click.option(
    "--hard",
    metavar="d1=0-3",
    multiple=True,
    callback=host.by_domain(host.all_pcpus, "0-3"),
    help="pCPUs that a domain's vCPUs may use; all otherwise.",
)
@click.option(
    "--soft",
    metavar="d1=0-3",
    multiple=True,
    callback=host.by_domain(host.all_pcpus, "0-3"),
    help="pCPUs that they prefer; all otherwise.",
)
@host.ratelimit_option
@click.option("--seed", default=1, type=click.IntRange(0), help="Seed (1).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    *,
    file: str,
    scheduler: str,
    preset: str,
    machine: str | None,
    cpu_hz: int | None,
    weights: dict[int, int],
    caps: dict[int, int],
    hard: dict[int, list[int] | None],
    soft: dict[int, list[int] | None],
    ratelimit: int,
    seed: int,
    as_json: bool,
) -> int:
    """Do again, on a simulated host, what vCPUs did in a trace that xentrace recorded.

    Each vCPU runs for as long between two times that it blocks, and stays blocked for as long, as recorded; who waits
    and who moves is the scheduler's affair. Weights, caps and affinities stand in no trace: options give them.
    """
    from contend.cli import EXIT_BY_OUTCOME

    domains: dict[int, dict[str, Any]] = {}
    for key, values in (("weight", weights), ("cap", caps), ("hard", hard), ("soft", soft)):
        for dom, value in values.items():
            domains.setdefault(dom, {})[key] = value
    said = replay(
        file,
        scheduler=scheduler,
        preset=preset,
        machine=machine,
        cpu_hz=cpu_hz or HZ,
        ratelimit_us=ratelimit,
        domains=domains,
        seed=seed,
    )
    if as_json:
        click.echo(json.dumps(said, indent=2))
    else:
        _show(said)
    outcome = said["outcome"]
    if outcome not in ("finished", "horizon"):
        click.echo(f"error: {outcome}: {said['outcome_detail']}\n  trace: {file}\n  seed: {seed}", err=True)
    code: int = EXIT_BY_OUTCOME[outcome]
    return code


def _show(said: dict[str, Any]) -> None:
    from rich.markup import escape

    from contend import text
    from contend.units import seconds

    out = text.console()
    length = said["duration_ns"] or 1
    over = seconds(said["simulated_ns"] / 1e9)
    what = f"{said['scheduler']} ({said['preset']}) on {said['pcpus']} pCPUs"
    out.print(escape(f"{said['file']}: {over} again under {what}."), soft_wrap=True)

    def columns(first: str, *names: str) -> list[tuple[str, str]]:
        return [(first, "left"), *((name, "right") for name in names)]

    def ms(ns: int) -> str:
        return f"{ns / 1e6:,.2f}"

    sides = ("recorded", "simulated")
    rows = []
    for dom in sorted({v["dom"] for v in said["vcpus"]}):
        of = [v for v in said["vcpus"] if v["dom"] == dom]
        ran = [sum(v[side]["running_ns"] for v in of) for side in sides]
        waited = [sum(v[side]["runnable_ns"] for v in of) for side in sides]
        rows.append([f"d{dom}", *(ms(ns) for ns in ran), *(f"{100 * ns / length:.2f}" for ns in ran), *map(ms, waited)])
    heads = ("ran, ms", "simulated", "% of a pCPU", "simulated", "waited, ms", "simulated")
    out.print(text.table("Domains", columns("domain", *heads), rows))
    rows = []
    for v in said["vcpus"]:
        row = [v["vcpu"]]
        for key in ("running_ns", "runnable_ns"):
            row += [f"{100 * v[side][key] / length:.2f}" for side in sides]
        for key in ("dispatches", "migrations"):
            row += [f"{v[side][key]:,}" for side in sides]
        rows.append(row)
    names = ("ran, %", "simulated", "waited, %", "simulated", "runs", "simulated", "moves", "simulated")
    out.print(text.table("vCPUs", columns("vCPU", *names), rows))
    tickles = said["tickles"]
    out.print(f"Tickles: {tickles['recorded']:,} recorded, {tickles['simulated']:,} simulated.")
