"""`contend reproduce` and `contend fit`."""

from __future__ import annotations

import json
from typing import Any

import click

from contend.progress import RunsProgress
from contend.study.model import SEEDS_MAX
from contend.working import EXIT_OK, working

EXIT_DIFFERS = 1


def study_names(
    _ctx: click.Context, _param: click.Parameter, begun: str
) -> list[click.shell_completion.CompletionItem]:
    """Shipped studies, and folders."""
    from click.shell_completion import CompletionItem

    from contend.study.load import names

    found = [CompletionItem(n) for n in names() if n.startswith(begun)]
    return found or [CompletionItem(begun, type="dir")]


def _seeds(_ctx: click.Context, _param: click.Parameter, given: str | None) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and 0 < int(given) <= SEEDS_MAX):
        raise click.BadParameter(f"found '{given}'; should be a whole number from 1 to {SEEDS_MAX:,}")
    return int(given)


@click.command()
@click.argument("studies", nargs=-1, metavar="[STUDY]...", shell_complete=study_names)
@click.option("--quick", is_flag=True, help="Short slices, one seed, no bands.")
@click.option("--seeds", metavar="N", callback=_seeds, help="Runs of each variant.")
@click.option("--ablate", is_flag=True, help="Also the effect of each feature of a switch alone, and of all but each.")
@click.option("--beyond", is_flag=True, help="The tables without published values, in place of the published ones.")
@click.option("--plot", metavar="FILE", help="Draw published against simulated effects (.png, .svg or .pdf).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--progress", is_flag=True, help="Show progress even where stderr is no terminal.")
def reproduce(
    *,
    studies: tuple[str, ...],
    quick: bool,
    seeds: int | None,
    ablate: bool,
    beyond: bool,
    plot: str | None,
    as_json: bool,
    progress: bool,
) -> int:
    """Simulate published studies and compare: values, effects, and a summary beside two baselines.

    STUDY is a shipped study (`contend list studies`) or a folder with study.toml; all shipped ones if left out.
    """
    from contend.study import reproduction

    if plot:
        from contend import plot as plotting

        # A file that cannot be drawn is refused before the work, not after it; and it is drawn last.
        plotting.pyplot(plot)
    with working(RunsProgress(forced=progress)) as line:
        found = reproduction.reproduce(
            studies or None, quick=quick, seeds=seeds, ablate=ablate, beyond=beyond, progress=line
        )
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        from contend import text
        from contend.study import show

        show.reproduction(found, text.console())
    if plot:
        from contend.study import picture

        picture.draw(found, plot)
        if not as_json:
            click.echo(f"Figure in {plot}.")
    return _failed(found.failures)


def _failed(failures: list[dict[str, Any]]) -> int:
    """Say which runs did not end as asked; the exit code."""
    for failure in failures:
        detail = f": {failure['detail']}" if failure["detail"] else ""
        click.echo(f"error: {failure['outcome']}{detail}\n  replay: {failure['replay']}", err=True)
    if failures:
        from contend.cli import EXIT_BY_OUTCOME

        return EXIT_BY_OUTCOME[failures[0]["outcome"]]
    return EXIT_OK


@click.command()
@click.argument("study", shell_complete=study_names)
@click.option("--check", is_flag=True, help="Exit with 1 if a derived value differs from the study's by more than 1 %, "
              "and fits better.")  # fmt: skip
@click.option("--near", is_flag=True, help="Keep the study's own values where none close to them fits better, and "
              "derive only the others: quick, and blind to a better value far away.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--progress", is_flag=True, help="Show progress even where stderr is no terminal.")
def fit(*, study: str, check: bool, near: bool, as_json: bool, progress: bool) -> int:
    """Derive STUDY's fitted parameters again, from the unpatched rows that it names and from nothing else."""
    from contend.study import fitting

    with working(RunsProgress(forced=progress)) as line:
        found = fitting.fit(study, near=near, progress=line)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        from contend import text
        from contend.study import show

        show.fitted(found, text.console())
    if found.failures:
        return _failed(found.failures)
    if check and not found.agrees:
        for differing in found.differing:
            click.echo(f"error: {differing}", err=True)
        return EXIT_DIFFERS
    return EXIT_OK
