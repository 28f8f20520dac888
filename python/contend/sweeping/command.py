"""`contend sweep`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contend._core import ContendError
from contend.comparing.command import jobs_number
from contend.progress import RunsProgress
from contend.working import Interrupted, working

if TYPE_CHECKING:
    from contend.sweeping.sweep import Sweep


@click.command()
@click.argument("sweep", type=click.Path(), metavar="SWEEP.toml")
@click.option("--out", metavar="DIR", help="The data set; NAME.sweep of NAME.toml unless given. What is there stays.")
@click.option("--jobs", "-j", metavar="N", callback=jobs_number, help="Cores to use; all unless given.")
@click.option("--cluster", metavar="ADDRESS", help="Run on the Dask cluster of this scheduler: tcp://HOST:PORT, or its "
              "scheduler file.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would run.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--progress", is_flag=True, help="Show progress even where stderr is no terminal.")
def sweep(
    *,
    sweep: str,
    out: str | None,
    jobs: int | None,
    cluster: str | None,
    dry_run: bool,
    as_json: bool,
    progress: bool,
) -> int:
    """Run a grid or random samples of scenarios, and store a row of each.

    Scenarios that are in the data set are not run again: after Ctrl-C the same command goes on.
    """
    from contend.sweeping import sweep as sweeping

    if jobs is not None and cluster is not None:
        raise click.BadParameter(
            "found with --cluster; should be left out: its workers say how many", param_hint="--jobs"
        )
    if dry_run:
        return _dry(sweep, out, as_json)
    with working(RunsProgress(forced=progress)) as line:
        try:
            found = sweeping.sweep(sweep, out=out, jobs=jobs, cluster=cluster, progress=line)
        except sweeping.Incomplete as e:
            if not (e.sweep.directory / "sweep.json").exists():
                raise Interrupted from None
            again = ["contend", "sweep", sweep, *(["--out", out] if out else [])]
            again += ["--cluster", cluster] if cluster else []
            kept = (
                f"{e.sweep.about['done']:,} of {e.sweep.about['points']:,} points are in {e.sweep.directory}; "
                f"`{shlex.join(again)}` goes on"
            )
            if isinstance(e.__cause__, KeyboardInterrupt):
                raise Interrupted(kept) from None
            raise ContendError(f"{e.why}\n  {kept}") from None
    if as_json:
        click.echo(json.dumps(_object(found), indent=2))
    else:
        from contend import text
        from contend.sweeping import show

        show.swept(found, text.console())
        click.echo(f"Stored in {found.directory}: sweep.parquet has a row a point.")
    return 0


def _object(found: Sweep) -> dict[str, object]:
    from contend.sweeping.effects import effects, metric_of

    metric = metric_of(found.table, found.about)
    return {
        **found.about,
        "directory": str(found.directory),
        "ran": found.ran,
        "cpu_s": found.cpu_s,
        "effects": {
            "metric": metric["name"],
            "keys": [e.to_dict() for e in effects(found.table, found.about, metric["name"])],
        } if metric else None,
    }  # fmt: skip


def _dry(what: str, out: str | None, as_json: bool) -> int:
    from contend.sweeping import spec, store, sweep
    from contend.sweeping.scenarios import Tasks

    read = spec.load(what)
    tasks = Tasks(read)
    tasks.check()
    points = list(sweep.planned(read, tasks))
    known = set(store.Store(Path(out) if out else sweep.default_directory(what)).known)
    if as_json:
        listed = [
            {"point": p.point, "key": p.key if p.task else None, "there": p.key in known, "error": p.error}
            for p in points
        ]
        click.echo(json.dumps({"schema": sweep.SCHEMA, "points": listed}, indent=2))
        return 0
    from contend import text
    from contend.sweeping import show

    show.listed(points, known, text.console())
    return 0
