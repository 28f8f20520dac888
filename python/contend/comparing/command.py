"""`contend compare`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import click

from contend.comparing.numbers import SEEDS_DEFAULT, SEEDS_MAX
from contend.progress import RunsProgress
from contend.units import plain
from contend.working import working


def _seeds(_ctx: click.Context, _param: click.Parameter, given: str | None) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and 2 <= int(given) <= SEEDS_MAX):
        raise click.BadParameter(
            f"found '{given}'; should be a whole number from 2 to {SEEDS_MAX:,}: one run shows no spread"
        )
    return int(given)


def jobs_number(_ctx: click.Context, _param: click.Parameter, given: str | None) -> int | None:
    """A number of cores."""
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and 1 <= int(given) <= 4096):
        raise click.BadParameter(f"found '{given}'; should be a whole number from 1 to 4,096")
    return int(given)


@click.command()
@click.argument("baseline", type=click.Path())
@click.argument("results", nargs=-1, required=True, type=click.Path(), metavar="RESULT...")
@click.option("--seeds", metavar="N", callback=_seeds, help=f"Runs of each, one a seed.  [default: {SEEDS_DEFAULT}]")
@click.option(
    "--vary-machine",
    metavar="N",
    callback=_seeds,
    help="In place of seeds: N runs of each under "
    "costs of the machine that are drawn from their ranges. For recordings, which no seed changes.",
)
@click.option("--metric", "metrics", metavar="NAME", multiple=True, help="Compare this (a name or a group of the "
              "table, or an expression as in docs/sweeps.md) and nothing else. May be repeated.")  # fmt: skip
@click.option("--no-divergence", is_flag=True, help="Do not look for the first scheduling event that differs.")
@click.option("--plot", metavar="FILE", help="Draw ledgers, latencies and placement (.png, .svg or .pdf).")
@click.option("--jobs", "-j", metavar="N", callback=jobs_number, help="Cores to use; all unless given.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--progress", is_flag=True, help="Show progress even where stderr is no terminal.")
def compare(
    *,
    baseline: str,
    results: tuple[str, ...],
    seeds: int | None,
    vary_machine: int | None,
    metrics: tuple[str, ...],
    no_divergence: bool,
    plot: str | None,
    jobs: int | None,
    as_json: bool,
    progress: bool,
) -> int:
    """How each RESULT differs from BASELINE, with confidence from repeats.

    Each is a stored result or a scenario, which is run under N seeds, or a directory of several results: repeats that
    differ in the seed, which are taken as they are.
    """
    if seeds and vary_machine:
        raise click.UsageError("--seeds and --vary-machine: should be one of them")
    from contend.comparing import comparison
    from contend.result import reading

    if plot:
        from contend import plot as plotting

        # A file that cannot be drawn is refused before the work, not after it.
        plotting.pyplot(plot)
    stored = [given for given in (baseline, *results) if Path(given).is_dir()]
    with working(RunsProgress(forced=progress)) as line, reading(*stored) if stored else nullcontext():
        found = comparison.compare(
            baseline,
            *results,
            seeds=seeds,
            vary_machine=vary_machine or 0,
            metrics=metrics or None,
            divergence=not no_divergence,
            jobs=jobs,
            progress=line,
        )
    if plot:
        plotting.draw([r.result for r in (found.baseline, *(a.runs for a in found.results))], plot)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        from contend import text
        from contend.comparing import show

        show.compared(found, text.console())
        if plot:
            click.echo(f"Figure in {plot}.")
    for side, seed, s in found.failures:
        replay = side.command(seed)
        click.echo(plain(f"error: {s['outcome']}: {s['outcome_detail']}\n  replay: {replay}"), err=True)
    if found.failures:
        from contend.cli import EXIT_BY_OUTCOME

        return EXIT_BY_OUTCOME[found.failures[0][2]["outcome"]]
    return 0
