"""`contend machine import`: a machine file from what a machine says about itself, without measuring."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click

from contend import _core
from contend.probing import check_target, shape, write
from contend.working import EXIT_OK


@click.group("machine")
def machine() -> None:
    """Machine files of other machines."""


@machine.command("import")
@click.option("--sysfs", metavar="DIR", type=click.Path(), help="A copy of a machine's /sys/devices/system, or /sys.")
@click.option("--lstopo", metavar="FILE", type=click.Path(), help="hwloc's XML of a machine: lstopo --of xml FILE.")
@click.option("--slit", metavar="FILE", type=click.Path(),
              help="Distances of nodes: the output of numactl --hardware, or rows of numbers.")  # fmt: skip
@click.option("--name", metavar="NAME", help="The machine's name; made from the processor's if left out.")
@click.option("--out", metavar="FILE", required=True, type=click.Path(), help="The machine file (.toml).")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    *,
    sysfs: str | None,
    lstopo: str | None,
    slit: str | None,
    name: str | None,
    out: str,
    force: bool,
    as_json: bool,
) -> int:
    """Write a machine file from what a machine says about itself.

    Topology and node distances are imported: of this machine (Linux), of a copied sysfs tree, or of hwloc's XML.
    Costs are those of machines/defaults.toml; `contend probe`, on the machine itself, measures them.
    """
    file = Path(out)
    check_target(file, force=force)
    made: dict[str, Any] = json.loads(_core.machine_import(sysfs=sysfs, lstopo=lstopo, slit=slit, name=name))
    write(file, made["toml"], force=force)
    if as_json:
        click.echo(json.dumps({**made, "file": out}, indent=2))
        return EXIT_OK
    click.echo(f"{made['name']}: {made['description']}")
    click.echo(shape(made))
    for note in made["notes"]:
        click.echo(f"Note: {note}.")
    click.echo(f"Machine file in {file}; `contend run SCENARIO --machine {shlex.quote(str(file))}` uses it.")
    return EXIT_OK
