"""`contend probe`: a machine file of the machine at hand."""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from contend import _core, given
from contend._core import ContendError
from contend.progress import ShareProgress
from contend.working import EXIT_OK, working

NEVER_NS = 1_000_000_000
"""A residency that says "never"."""


def probe(
    *, quick: bool = False, name: str | None = None, progress: Callable[[float], object] | None = None
) -> dict[str, Any]:
    """Measure the machine at hand.

    Args:
        quick: Fewer repetitions.
        name: Of the machine.
        progress: Called with the share that is done.

    Returns:
        `name`, `description`, `hz`, `counts` (CPUs, cores, last-level caches, nodes), `clusters`, `rows` (every
            cost with value, lo, hi, unit, how, source), `checks`, `notes`, and `toml`, the machine file.

    Raises:
        ContendError: It cannot be measured.
    """
    if not isinstance(quick, bool):
        given.refuse("quick", quick, "True or False")
    report: dict[str, Any] = json.loads(
        _core.probe(quick=quick, name=given.text("name", name, "text"), progress=progress)
    )
    return report


def check_target(file: Path, *, force: bool) -> None:
    """Refuse early what could not be written, or loaded, later."""
    if file.suffix != ".toml":
        raise ContendError(f"--out: found '{file}'; should end in .toml, by which --machine knows a machine file")
    if not file.parent.is_dir():
        raise ContendError(f"{file}: cannot be written: no such directory")
    if file.is_dir():
        raise ContendError(f"{file}: cannot be written: it is a directory")
    if file.exists() and not force:
        raise ContendError(f"{file}: exists already; --force replaces it, --out names another")


def write(file: Path, text: str, *, force: bool) -> None:
    """Write a file whole or not at all; without `force` never over another."""
    check_target(file, force=force)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                out.write(text)
            umask = os.umask(0)
            os.umask(umask)
            Path(temporary).chmod(0o666 & ~umask)
            if force:
                Path(temporary).replace(file)
            else:
                # Fails if somebody made the file meanwhile.
                os.link(temporary, file)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except FileExistsError:
        raise ContendError(f"{file}: exists already; --force replaces it, --out names another") from None
    except OSError as e:
        raise ContendError(f"{file}: cannot be written: {e.strerror}") from e


@click.command("probe")
@click.option("--out", metavar="FILE", type=click.Path(), help="The machine file (.toml); NAME.toml if left out.")
@click.option("--name", metavar="NAME", help="The machine's name; made from the processor's if left out.")
@click.option("--quick", is_flag=True, help="Fewer repetitions: under 5 s instead of some 20.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; write a file only with --out.")
@click.option("--progress", is_flag=True, help="Show progress even where stderr is no terminal.")
def command(*, out: str | None, name: str | None, quick: bool, force: bool, as_json: bool, progress: bool) -> int:
    """Measure this machine (Linux) and write a machine file of it, for `--machine FILE`.

    Needs no privileges; as root it reads the kernel's own events, too, for one cost. Let nothing else run
    meanwhile: a cost is the median of many repetitions, its range their 5th to 95th percentile.
    """
    if out is not None:
        check_target(Path(out), force=force)
    elif name is not None and not as_json:
        check_target(_file_of(name), force=force)
    with working(ShareProgress("measuring", forced=progress)) as line:
        report = probe(quick=quick, name=name, progress=line)
        file = Path(out) if out is not None else None if as_json else _file_of(report["name"])
        if file is not None:
            write(file, report["toml"], force=force)
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return EXIT_OK
    _show(report)
    click.echo(f"Machine file in {file}; `contend run SCENARIO --machine {shlex.quote(str(file))}` uses it.")
    return EXIT_OK


def _file_of(name: str) -> Path:
    if "/" in name or name.startswith("."):
        raise ContendError(f"--name: found '{name}'; the file needs a name of its own: --out FILE")
    return Path(f"{name}.toml")


def shape(made: dict[str, Any]) -> str:
    """What a machine file holds, in a line."""
    cpus, cores, llcs, nodes = made["counts"]
    clusters = f"{made['clusters']} clusters, " if made["clusters"] else ""
    groups = f"{cores} cores, {clusters}{llcs} last-level caches, {nodes} nodes"
    return f"{cpus} CPUs, {groups}; {made['hz']} ticks a second."


def _show(report: dict[str, Any]) -> None:
    from rich.markup import escape

    from contend import text

    out = text.console()
    out.print(escape(f"{report['name']}: {report['description']}"))
    out.print(shape(report))
    columns = [("cost", "left"), ("value", "right"), ("range", "right"), ("", "left"), ("how", "left"),
               ("of what", "fold")]  # fmt: skip
    rows = [
        [r["cost"], "never", "", "", r["how"], _brief(r)]
        if r["cost"].endswith("_residency") and r["value"] >= NEVER_NS
        else [r["cost"], f"{r['value']:,}", f"{r['lo']:,} .. {r['hi']:,}", r["unit"], r["how"], _brief(r)]
        for r in report["rows"]
    ]
    out.print(text.table("", columns, rows))
    columns = [("also measured", "fold"), ("ns", "right"), ("range", "right"), ("times", "right")]
    rows = [
        [c["what"], f"{c['value']:,.0f}", f"{c['lo']:,.0f} .. {c['hi']:,.0f}", f"{c['n']:,}"] for c in report["checks"]
    ]
    out.print(text.table("", columns, rows))
    for note in report["notes"]:
        out.print(escape(f"Note: {note}."))


def _brief(row: dict[str, Any]) -> str:
    """What was measured, without how a sum was split: the file has that."""
    if row["how"] == "estimate":
        return "not measured"
    source: str = row["source"]
    for prefix in ("measured by contend probe: ", "derived by contend probe: ", "declared by the kernel: "):
        source = source.removeprefix(prefix)
    return re.split(r" \(\d|; |, less| less | and what ", source)[0]
