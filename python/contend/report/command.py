"""`contend report`."""

from __future__ import annotations

from pathlib import Path

import click

from contend._core import ContendError
from contend.progress import RunsProgress
from contend.study.command import study_names
from contend.working import working


@click.command()
@click.argument("results", nargs=-1, required=True, metavar="RESULT...", shell_complete=study_names)
@click.option(
    "--out",
    metavar="FILE",
    default="report.html",
    show_default=True,
    type=click.Path(),
    help="The file to write (.html).",
)
@click.option("--open", "show", is_flag=True, help="Open it in the browser.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: kind, file, bytes.")
@click.option("--progress", is_flag=True, help="Show progress of a study's runs even where stderr is no terminal.")
def report(*, results: tuple[str, ...], out: str, show: bool, as_json: bool, progress: bool) -> int:
    """Write one HTML file about RESULT, which needs no network.

    RESULT is a result's directory (several: side by side, the first is the baseline), a sweep's directory, a file of
    `contend reproduce --json`, or a study (its name or folder), which is simulated quickly first.
    """
    from contend.report import page
    from contend.report.kinds import page_of
    from contend.result import reading

    target = Path(out)
    check_target(target)
    with working(RunsProgress(forced=progress)) as line, reading(*results):
        made = page_of(results, progress=line)
        html = made.html()
        page.write(html, target)
    size = target.stat().st_size
    if as_json:
        import json

        click.echo(
            json.dumps({"kind": made.kind, "file": str(target), "bytes": size, "figures": made.figures}, indent=2)
        )
    else:
        click.echo(f"Report in {target} ({size / 1e6:.1f} MB).")
    if show:
        import webbrowser

        if not webbrowser.open(target.resolve().as_uri()):
            raise ContendError(f"--open: found no browser; the report is in {target}")
    return 0


def check_target(out: Path) -> None:
    """Refuse a file that cannot be written before the work, not after it."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ContendError(f"--out: found '{out}'; should be a file that ends in .html")
    if out.is_dir():
        raise ContendError(f"--out: {out}: a directory of this name exists; name a file")
    if out.exists() and b'content="contend ' not in _beginning(out):
        raise ContendError(
            f"--out: {out}: a file of this name exists and is no report of contend; name another or remove it"
        )
    if not out.parent.is_dir():
        raise ContendError(f"--out: {out}: cannot be written: no such directory: {out.parent}")


def _beginning(file: Path) -> bytes:
    try:
        with file.open("rb") as f:
            return f.read(2048)
    except OSError as e:
        raise ContendError(f"--out: {file}: cannot be read: {e.strerror}") from e
