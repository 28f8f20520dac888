"""`contend xen audit`: Credit2's decisions in a real trace, asked of Credit2 as it is here."""

from __future__ import annotations

import json
from os import PathLike
from typing import Any

import click

from contend import _core
from contend.working import EXIT_OK
from contend.xen import host
from contend.xen.trace import HZ, cpu_hz_option


def audit(
    path: str | PathLike[str],
    *,
    cpu_hz: int = HZ,
    weights: dict[int, int] | None = None,
    soft: dict[int, list[int]] | None = None,
    ratelimit_us: int = 1000,
    machine: str | None = None,
) -> dict[str, Any]:
    """How many decisions there are by kind, of how many the inputs are known, and how many ours makes alike.

    `weights` (256 otherwise) and `soft` (all pCPUs otherwise) are by domain, and facts of the recorded host, as
    `ratelimit_us` and `machine` (as many cores as the trace has pCPUs otherwise) are.
    """
    said: dict[str, Any] = json.loads(
        _core.xen_trace_audit(
            path, cpu_hz, list((weights or {}).items()), list((soft or {}).items()), ratelimit_us, machine
        )
    )
    return said


@click.command("audit")
@click.argument("file", type=click.Path())
@cpu_hz_option
@host.weights_option
@click.option(
    "--soft",
    metavar="d1=0-3",
    multiple=True,
    callback=host.by_domain(host.pcpus, "0-3"),
    help="pCPUs that a domain's vCPUs prefer; all otherwise.",
)
@host.ratelimit_option
@click.option("--machine", metavar="MACHINE", help="The pCPUs, such as 2n2c or 1n4c2t; each a core otherwise.")
@click.option("--cases", default=5, type=click.IntRange(0), help="Disagreements printed of each kind (5).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; 100 cases a kind at most.")
def command(
    *,
    file: str,
    cpu_hz: int | None,
    weights: dict[int, int],
    soft: dict[int, list[int]],
    ratelimit: int,
    machine: str | None,
    cases: int,
    as_json: bool,
) -> int:
    """Ask Credit2 what a recorded host's Credit2 decided, where the trace tells the inputs.

    docs/xen-decisions.md says which decisions there are and when their inputs count as known.
    """
    said = audit(file, cpu_hz=cpu_hz or HZ, weights=weights, soft=soft, ratelimit_us=ratelimit, machine=machine)
    if as_json:
        click.echo(json.dumps(said, indent=2))
    else:
        _show(said, cases)
    return EXIT_OK


def _share(part: int, of: int) -> str:
    return f"{100 * part / of:.2f}" if of else ""


def _show(said: dict[str, Any], cases: int) -> None:
    from rich.markup import escape

    from contend import text

    out = text.console()
    heads = ("kind", "decisions", "inputs known", "%", "ours alike", "%")
    columns = [(head, "left" if i == 0 else "right") for i, head in enumerate(heads)]
    rows = []
    for k in [*said["kinds"], said["all"]]:
        known, agree = (_share(k["known"], k["decisions"]), _share(k["agree"], k["known"]))
        rows.append([k["kind"], f"{k['decisions']:,}", f"{k['known']:,}", known, f"{k['agree']:,}", agree])
    out.print(text.table("Decisions", columns, rows))
    unknown = sorted(said["all"]["unknown"], key=lambda u: -u["decisions"])
    if unknown:
        rows = [[u["why"], f"{u['decisions']:,}"] for u in unknown]
        out.print(text.table("Inputs not known", [("since", "left"), ("decisions", "right")], rows))
    if said["damaged"]:
        out.print(f"{said['damaged']:,} records left out: no scheduler has such numbers.")
    shown: dict[str, int] = {}
    for case in said["disagreements"]:
        shown[case["kind"]] = shown.get(case["kind"], 0) + 1
        if shown[case["kind"]] <= cases:
            at = f"{case['kind']} at {case['ns'] / 1e9:.9f} s, pCPU {case['cpu']}"
            out.print(escape(f"{at}: {case['record']}\n  {case['what']}"), soft_wrap=True)
