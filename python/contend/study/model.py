"""What a study is, as its files say it: plain values, checked by `load`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BEFORE = "before"
AFTER = "after"
CHANGE = "after-vs-before"
"""Variants of the published rows, where a study names no others: unpatched, patched, and posts that print only the
change."""

XEN = "xen"
"""In the place of a preset: the host is Xen, which takes no policy of Linux; `xen.KEY` says what it runs."""

SEEDS_MAX = 1000
"""Runs of each variant, and draws of the uncertain costs, are at most this many."""


def overlap(key: str, other: str) -> bool:
    """Are two keys the same, or one an entry of the other: machine.lines.remote.1 of machine.lines.remote?"""
    return key == other or key.startswith(f"{other}.") or other.startswith(f"{key}.")


def host_policy(policy: str) -> str | None:
    """What a run is given as its policy."""
    return None if policy == XEN else policy


def machine_of(folder: Path, machine: str) -> str:
    """What a run is given as its machine: a file's path is relative to the study's folder."""
    return str(folder / machine) if machine.endswith(".toml") else machine


Value = bool | int | float | str
Settings = dict[str, Value]


@dataclass(frozen=True)
class Row:
    """A published value."""

    study: str
    table: str
    machine: str
    workload: str
    variant: str
    x_name: str
    x: float
    metric: str
    unit: str
    better: str
    value: float | None
    lo: float | None
    hi: float | None
    stdev_pct: float | None
    note: str
    line: int

    @property
    def published(self) -> float | None:
        """The value; the middle of a range."""
        if self.value is None and self.lo is not None and self.hi is not None:
            return (self.lo + self.hi) / 2
        return self.value

    @property
    def point(self) -> tuple[object, ...]:
        """All that a row shares with that of another variant."""
        return (self.table, self.machine, self.workload, self.x, self.metric)

    @property
    def higher_is_better(self) -> bool:
        """Which direction is an improvement."""
        return self.better == "higher"

    @property
    def switch(self) -> str:
        """The name of the switch: what follows the slash in `table`, or all of it."""
        return self.table.rpartition("/")[2]


@dataclass(frozen=True)
class Metric:
    """How a published metric is read off a run.

    `read` is an expression (`contend.study.values`); `form` what is made of it: "value", "time" (of `per`, or
    `per_x` times x, at that rate, and `plus` seconds), "percentile", "normalized" (to `before`) or "reduction" (per
    cent by which it falls).
    """

    form: str
    read: str
    scale: float = 1.0
    per_x: float | None = None
    per: float | None = None
    plus: float = 0.0

    def expression(self, x: float) -> str:
        """What to read of the run at x."""
        return f"latency.{self.read}.p{x:g}" if self.form == "percentile" else self.read

    def value(self, read: float | None, x: float) -> float | None:
        """The metric from what was read."""
        if read is None:
            return None
        if self.form == "time":
            work = self.per if self.per_x is None else self.per_x * x
            assert work is not None
            return self.scale * work / read + self.plus if read > 0 else None
        return self.scale * read


@dataclass(frozen=True)
class Parameter:
    """A fitted parameter of a workload."""

    key: str
    value: float
    lo: float
    hi: float
    whole: bool


@dataclass(frozen=True)
class Assumption:
    """Something the post does not say: drawn from lo to hi for the bands."""

    key: str
    lo: float
    hi: float
    whole: bool
    why: str
    machine: str | None = None
    workload: str | None = None


@dataclass(frozen=True)
class Workload:
    """The scenario that stands for a workload on a machine."""

    name: str
    machine: str
    scenario: Path
    x: str | None
    metrics: dict[str, Metric]
    """By the CSV's metric; "" stands for all."""
    slice_ms: float
    quick_slice_ms: float
    warmup_ms: float
    quick_warmup_ms: float
    fit_x: tuple[float, ...]
    fit_metrics: tuple[str, ...]
    """Metrics of the rows in `fit_x` that count for the fit; none: all."""
    fitted: tuple[Parameter, ...]
    set: Settings
    line: int
    table: str | None = None
    """The only table whose rows it stands for; None: all that no other workload of the name has."""
    scenario_at: tuple[tuple[float, Path], ...] = ()
    """A scenario for each x, in place of `scenario`."""
    share: float = 1.0
    """Of the work, what a run does that ends by itself."""
    times: tuple[tuple[str, float], ...] = ()
    """Factors on fitted values that workloads share: how much slower this machine computes."""
    fit: str | None = None
    """Workloads of one name here are fitted together: one set of values."""
    host: str = ""
    """What a run is given as its machine; `machine` is what study.toml and the rows call it."""
    scenario_sets: tuple[tuple[Path, tuple[str, ...]], ...] = ()
    """Keys that a scenario has in its own [set]."""

    def scenario_of(self, x: float) -> Path:
        """The scenario for a row's x."""
        return dict(self.scenario_at).get(x, self.scenario)

    @property
    def scenarios(self) -> tuple[Path, ...]:
        """All of its scenarios."""
        return tuple(dict.fromkeys([self.scenario, *(p for _, p in self.scenario_at)]))

    def sets_at(self, x: float) -> tuple[str, ...]:
        """All keys that it sets at a row's x: those of the study, and the scenario's own."""
        own = dict(self.scenario_sets).get(self.scenario_of(x), ())
        return (*([] if self.x is None else [self.x]), *self.set, *self.parameters, *own)

    def span_ms(self, *, quick: bool) -> tuple[float, float]:
        """Warm-up and slice."""
        return (self.quick_warmup_ms, self.quick_slice_ms) if quick else (self.warmup_ms, self.slice_ms)

    def is_fit(self, row: Row, reference: str) -> bool:
        """Is it one of the rows that the parameters were fitted to?"""
        return row.variant == reference and row.x in self.fit_x and row.metric in (self.fit_metrics or (row.metric,))

    def metric(self, name: str) -> Metric | None:
        """The metric that the CSV calls `name`."""
        return self.metrics.get(name, self.metrics.get(""))

    @property
    def parameters(self) -> Settings:
        """The fitted values, as they are set on this machine."""
        return self.scaled({p.key: p.value for p in self.fitted})

    def scaled(self, values: Mapping[str, float]) -> Settings:
        """Fitted values with this machine's factors."""
        whole = {p.key: p.whole for p in self.fitted}
        by_factor = {k: v * dict(self.times).get(k, 1.0) for k, v in values.items()}
        return {k: round(v) if whole[k] else v for k, v in by_factor.items()}


@dataclass(frozen=True)
class Variant:
    """A policy of the tables that have no published values."""

    name: str
    policy: str
    set: Settings


@dataclass(frozen=True)
class Beyond:
    """A table without published values."""

    name: str
    title: str
    scenario: Path
    machine: str | None
    """What runs are given as their machine, unless a point names one; None: the scenario's."""
    set: Settings
    points: tuple[Settings, ...]
    """What is set at each line of the table; `machine` among it."""
    variants: tuple[Variant, ...]
    columns: tuple[str, ...]
    slice_ms: float | None
    quick_slice_ms: float | None
    warmup_ms: float
    seeds: int | None
    """How many, if not as many as the study has."""
    line: int


@dataclass(frozen=True)
class Study:
    """A published experiment and its scenarios."""

    name: str
    folder: Path
    title: str
    source: str
    seeds: int
    draws: int
    before_policy: str
    before_set: Settings
    switches: dict[str, Settings]
    workloads: tuple[Workload, ...]
    assumptions: tuple[Assumption, ...]
    beyond: tuple[Beyond, ...]
    rows: tuple[Row, ...]
    reference: str = BEFORE
    """What published.csv calls the unpatched system."""
    by_variant: bool = False
    """Switches are named by a row's variant, not by its table."""

    def workload(self, name: str, machine: str, table: str | None = None) -> Workload | None:
        """The workload of a row; one that stands for the row's table alone comes first."""
        mine = [w for w in self.workloads if (w.name, w.machine) == (name, machine) and w.table in (None, table)]
        return max(mine, key=lambda w: w.table is not None, default=None)

    def workload_of(self, row: Row) -> Workload | None:
        """The workload of a row."""
        return self.workload(row.workload, row.machine, row.table)

    @functools.cached_property
    def befores(self) -> dict[tuple[object, ...], Row]:
        """The rows of the unpatched system."""
        return {r.point: r for r in self.rows if r.variant == self.reference}

    def before(self, row: Row) -> Row | None:
        """The unpatched row that a row is compared with; None for a published change."""
        return None if row.variant == CHANGE else self.befores[row.point]

    def switch_name(self, row: Row) -> str:
        """The switch that a row is about."""
        if self.by_variant:
            return row.variant
        return row.switch if row.switch in self.switches else next(iter(self.switches))

    def after_set(self, switch: str) -> Settings:
        """All features that the patched system has set."""
        return {**self.before_set, **self.switches[switch]}
