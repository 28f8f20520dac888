"""Tables without published values: what the model says elsewhere."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contend.study.model import Beyond, Settings, Study, Value, Variant, machine_of
from contend.study.plan import Options, Plan, Run, sets
from contend.study.section import StudyInvalid

if TYPE_CHECKING:
    import polars as pl

    from contend.study.simulate import Measured


@dataclass(frozen=True)
class Line:
    """A line of a table: a point and a variant, with a run for each seed."""

    at: dict[str, Value]
    variant: Variant
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class BeyondTable:
    """A table and its runs."""

    study: Study
    beyond: Beyond
    lines: tuple[Line, ...]

    def rows(self, measured: dict[Run, Measured]) -> list[dict[str, Any]]:
        """An object for each line: the mean of each column over the seeds, and its standard deviation in per cent."""
        self._check(measured)
        out = []
        for line in self.lines:
            values: dict[str, float | None] = {}
            spreads: dict[str, float | None] = {}
            for column in self.beyond.columns:
                read = [measured[r].values[column] for r in line.runs]
                known = [v for v in read if v is not None]
                mean = statistics.fmean(known) if known else None
                values[column] = mean
                spreads[column] = 100 * statistics.stdev(known) / abs(mean) if mean and len(known) > 1 else None
            out.append(
                {
                    "study": self.study.name,
                    "name": self.beyond.name,
                    "title": self.beyond.title,
                    "at": line.at,
                    "variant": line.variant.name,
                    "policy": line.variant.policy,
                    "values": values,
                    "spread_pct": spreads,
                    "outcomes": [measured[r].outcome for r in line.runs],
                }
            )
        return out

    def _check(self, measured: dict[Run, Measured]) -> None:
        """A program's column that no run has is a mistake in study.toml."""
        ended = [m for line in self.lines for m in map(measured.__getitem__, line.runs) if m.ok]
        for column in self.beyond.columns:
            if ended and column.startswith(("rate.", "latency.")) and all(m.values[column] is None for m in ended):
                at = f"{self.study.folder / 'study.toml'}:{self.beyond.line}: columns"
                raise StudyInvalid(
                    f"{at}: found {column}, which no run of {self.beyond.name} reports; should be what the workload "
                    "counts (docs/workloads.md), and the slice long enough for it"
                )


def table(study: Study, beyond: Beyond, options: Options, plan: Plan) -> BeyondTable:
    """Every point under every variant."""
    length_ms = beyond.quick_slice_ms if options.quick else beyond.slice_ms
    horizon_s = None if length_ms is None else (beyond.warmup_ms + length_ms) / 1e3
    lines = []
    for at in beyond.points:
        for variant in beyond.variants:
            settings: Settings = {**beyond.set, **{k: v for k, v in at.items() if k != "machine"}, **variant.set}
            machine = machine_of(study.folder, str(at["machine"])) if "machine" in at else beyond.machine
            runs = tuple(
                plan.add(
                    Run(
                        beyond.scenario, machine, variant.policy, sets(settings), seed, horizon_s,
                        beyond.warmup_ms / 1e3,
                    ),
                    beyond.columns,
                )
                for seed in options.seeds_of(study, beyond.seeds)
            )  # fmt: skip
            lines.append(Line(at, variant, runs))
    return BeyondTable(study, beyond, tuple(lines))


def frame(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """A row a value."""
    import polars as pl

    flat = [
        (r["study"], r["name"], " ".join(f"{k}={v}" for k, v in r["at"].items()), r["variant"], column, value,
         r["spread_pct"][column])
        for r in rows
        for column, value in r["values"].items()
    ]  # fmt: skip
    schema = {
        "study": pl.String, "name": pl.String, "at": pl.String, "variant": pl.String, "column": pl.String,
        "value": pl.Float64, "spread_pct": pl.Float64,
    }  # fmt: skip
    return pl.DataFrame(flat, schema=schema, orient="row")
