"""A sweep: what is to do, doing it, and the table of it."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contend import given
from contend._core import ContendError, ScenarioInvalid, __version__
from contend.parallel import Pool, check_jobs
from contend.quantity import Quantity, asked, quantities
from contend.sweeping import spec as specs
from contend.sweeping.scenarios import Point, Task, Tasks, points
from contend.sweeping.spec import Axis, Spec
from contend.sweeping.work import ERROR, INVALID, Row, execute, place

if TYPE_CHECKING:
    import polars as pl

SCHEMA = 1
SUFFIX = ".sweep"
INVALID_KEY = "invalid-"
"""Beginning of the key of a point that makes no scenario."""

Progress = Callable[[int, int, str], object]
"""Called some times a second with the scenarios that are done, their number, and the word `scenarios`."""


@dataclass(frozen=True)
class Planned:
    """A point and its task; or why there is none."""

    point: Point
    key: str
    task: Task | None
    error: str | None = None


@dataclass
class Sweep:
    """A sweep that has run, whole or in part: `table` has a row a point that is done, `about` is `sweep.json`."""

    directory: Path
    table: pl.DataFrame
    about: dict[str, Any]
    ran: int
    cpu_s: float

    def frame(self) -> pl.DataFrame:
        """The table: the keys that vary, `key`, `outcome`, `error`, `cpu_s`, and the metrics."""
        return self.table

    @property
    def complete(self) -> bool:
        """Is every point done?"""
        return bool(self.about["complete"])


class Incomplete(Exception):
    """Ctrl-C, or the cluster went away: `sweep` is what was done by then."""

    def __init__(self, sweep: Sweep, why: str | None) -> None:
        super().__init__(why)
        self.sweep = sweep
        self.why = why


def planned(spec: Spec, tasks: Tasks) -> Iterator[Planned]:
    """Every point with its task."""
    for i, point in enumerate(points(spec)):
        try:
            task = tasks.task(point)
        except ScenarioInvalid as e:
            yield Planned(point, f"{INVALID_KEY}{i}", None, str(e))
        else:
            yield Planned(point, task.key, task)


def default_directory(what: Any) -> Path:
    """NAME.sweep in the working directory."""
    if isinstance(what, Mapping):
        raise ContendError("sweep: a mapping has no name: say where the data set goes with out=")
    return Path(Path(what).stem + SUFFIX)


def sweep(
    what: str | os.PathLike[str] | Mapping[str, Any],
    *,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Run a sweep into a directory. What is in it already is not run again.

    Args:
        what: A file, or a mapping with its keys.
        out: The directory; NAME.sweep unless given.
        jobs: Cores to use; all unless given.
        cluster: In place of cores, a Dask cluster's scheduler: tcp://HOST:PORT, or its file.
        progress: Called with what is done, all, and what is counted.

    Raises:
        ContendError: Something is refused; ScenarioInvalid if the sweep's file is to blame.
        Incomplete: Ctrl-C, or the cluster went away; its `sweep` is what was done by then.
    """
    from contend.sweeping.store import Store

    check_jobs(jobs)
    target = given.optional_path("out", out)
    spec = specs.load(what)
    tasks = Tasks(spec)
    tasks.check()
    everything = list(planned(spec, tasks))
    with Store(Path(target) if target is not None else default_directory(what)) as store:
        todo = {p.key: p.task for p in everything if p.task is not None and p.key not in store.known}
        errors: dict[str, Row] = {}
        ran, cpu_s = 0, 0.0

        def done(row: Row) -> None:
            nonlocal ran, cpu_s
            ran, cpu_s = ran + 1, cpu_s + row.cpu_s
            store.add(row)
            if row.outcome == ERROR:
                errors[row.key] = row

        def tick() -> None:
            store.tick()
            if progress:
                progress(ran, len(todo), "scenarios")

        stopped: BaseException | None = None
        try:
            if cluster is None:
                _here(todo, tasks, jobs, done, tick)
            else:
                from contend.sweeping.cluster import run_all

                run_all(cluster, iter(todo.values()), tasks.inputs, done, tick)
        except (KeyboardInterrupt, ContendError) as e:
            stopped = e
            if not store.known:
                if isinstance(e, ContendError):
                    raise
                raise Incomplete(_finished(spec, everything, store, errors, ran=ran, cpu_s=cpu_s), None) from e
        if not any(outcome != INVALID for outcome in store.known.values()) and not stopped and not errors:
            first = next(store.rows({p.key for p in everything}), {"error": "no points"})
            store.discard()
            raise ScenarioInvalid(f"{spec.file}: no scenario of this sweep is possible: {first['error']}")
        store.compact()
        found = _finished(spec, everything, store, errors, ran=ran, cpu_s=cpu_s)
        store.finish(found.table, found.about)
    if stopped is not None:
        raise Incomplete(found, str(stopped) or None) from stopped
    return found


def _here(
    todo: Mapping[str, Task | None],
    tasks: Tasks,
    jobs: int | None,
    done: Callable[[Row], None],
    tick: Callable[[], None],
) -> None:
    """On this machine's cores, in threads: a simulation holds no GIL."""
    with tempfile.TemporaryDirectory(prefix="contend-sweep-") as temporary:
        root = Path(temporary)
        place(tasks.inputs, root)

        def one(task: Task, look: Callable[..., object]) -> Row:
            return execute(task, root, look)

        def collect(task: Task, future: Future[Row]) -> None:
            done(future.result())

        Pool(one, jobs).each((t for t in todo.values() if t), collect, tick)


def _finished(
    spec: Spec, everything: list[Planned], store: Any, errors: dict[str, Row], *, ran: int, cpu_s: float
) -> Sweep:
    """The table of what is done, and what `sweep.json` says."""
    import polars as pl

    results: dict[str, dict[str, Any]] = {}
    metrics: dict[str, Quantity] = {}
    for row in store.rows({p.key for p in everything}):
        values: dict[str, float | None] = {}
        if row["summary"] is not None and row["outcome"] in ("finished", "horizon"):
            summary = json.loads(row["summary"])
            read = [asked(summary, m) for m in spec.metrics] if spec.metrics else quantities(summary)
            for q in read:
                values[q.name] = q.value
                if q.name not in metrics or (not q.better and metrics[q.name].better):
                    metrics[q.name] = q
        results[row["key"]] = {**{k: row[k] for k in ("outcome", "error", "cpu_s")}, **values}
    for key, e in errors.items():
        results[key] = {"outcome": e.outcome, "error": e.error, "cpu_s": 0.0}
    rows = []
    for i, p in enumerate(everything):
        result = results.get(p.key)
        if p.task is None:
            result = {"outcome": INVALID, "error": p.error, "cpu_s": 0.0}
        if result is not None:
            shown = {a.key: _cell(a, p.point[a.key]) for a in spec.axes}
            rows.append({"point": i, **shown, "key": p.key if p.task else None, **result})
    unset = [name for name in metrics if spec.metrics is None and not any(r.get(name) for r in rows)]
    for name in unset:
        del metrics[name]
    schema: dict[str, Any] = {"point": pl.Int64, **{a.key: _type(a) for a in spec.axes}}
    schema |= {"key": pl.String, "outcome": pl.String, "error": pl.String, "cpu_s": pl.Float64}
    schema |= dict.fromkeys(metrics, pl.Float64)
    table = pl.DataFrame([{c: r.get(c) for c in schema} for r in rows], schema=schema)
    about = {
        "schema": SCHEMA,
        "contend": __version__,
        "name": Path(spec.file).stem,
        "scenario": Path(spec.scenario).name if isinstance(spec.scenario, str) else None,
        "axes": [_about(a) for a in spec.axes],
        "samples": spec.samples if spec.random else None,
        "seed": spec.seed if spec.random else None,
        "metrics": [{"name": q.name, "unit": q.unit, "better": q.better} for q in metrics.values()],
        "points": len(everything),
        "done": len(rows),
        "scenarios": len({p.key for p in everything if p.task}),
        "outcomes": dict(sorted(Counter(r["outcome"] for r in rows).items())),
        "complete": len(rows) == len(everything) and not errors,
    }
    return Sweep(store.directory, table, about, ran, cpu_s)


def _kind(axis: Axis) -> str:
    """bool, integer, number or text: what a key's column holds. Tables and mixtures are text."""
    kind, of = axis.distribution or ("choice", axis.values)
    if kind != "choice":
        return "integer" if kind == "integers" else "number"
    types = {type(v) for v in of}
    for word, allowed in (("bool", {bool}), ("integer", {int}), ("number", {int, float})):
        if types <= allowed:
            return word
    return "text"


def _about(axis: Axis) -> dict[str, Any]:
    """An axis as `sweep.json` has it."""
    said: dict[str, Any] = {"key": axis.key, "kind": "random" if axis.distribution else "grid", "type": _kind(axis)}
    if axis.distribution is None:
        return {**said, "values": [_cell(axis, v) for v in axis.values]}
    kind, of = axis.distribution
    return {**said, "distribution": {kind: [_cell(axis, v) for v in of]}}


def _type(axis: Axis) -> Any:
    import polars as pl

    return {"bool": pl.Boolean, "integer": pl.Int64, "number": pl.Float64, "text": pl.String}[_kind(axis)]


def _cell(axis: Axis, value: Any) -> Any:
    if _kind(axis) != "text":
        return value
    if isinstance(value, str):
        # Files have absolute names by now; a table names no place.
        return Path(value).name if Path(value).is_absolute() else value
    return json.dumps(value)
