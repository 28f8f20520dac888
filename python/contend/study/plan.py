"""Which runs a study needs. Pure: nothing is simulated here, and no published value is looked at.

Equal runs are one run: `before` of two tables is simulated once.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from contend import _core, hypercube
from contend.given import text_of
from contend.run import list_costs
from contend.study.load import number
from contend.study.model import Metric, Row, Settings, Study, Workload, host_policy, overlap

Sets = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Run:
    """A simulation: all that determines it."""

    scenario: Path
    machine: str | None
    policy: str
    set: Sets
    seed: int
    horizon_s: float | None
    warmup_s: float | None

    @property
    def command(self) -> str:
        """The command that runs the same."""
        words = ["contend", "run", str(self.scenario), *(["--machine", self.machine] if self.machine else [])]
        words += ["--policy", policy] if (policy := host_policy(self.policy)) else []
        for key, value in self.set:
            words += ["--set", f"{key}={value}"]
        words += ["--seed", str(self.seed)]
        if self.horizon_s is not None:
            words += ["--horizon", f"{self.horizon_s:.9g}"]
        if self.warmup_s:
            words += ["--warmup", f"{self.warmup_s:.9g}"]
        return shlex.join(words)

    def resolved(self) -> str:
        """The complete scenario, as TOML."""
        return _core.resolve(
            path=self.scenario,
            machine=self.machine,
            policy=host_policy(self.policy),
            set=list(self.set),
            seed=self.seed,
            horizon_s=self.horizon_s,
            warmup_s=self.warmup_s,
        )


def sets(*settings: Settings) -> Sets:
    """Settings as `Run` holds them; the last of two for one key counts."""
    merged: Settings = {}
    for s in settings:
        merged |= s
    return tuple(sorted((k, text_of(v)) for k, v in merged.items()))


@dataclass(frozen=True)
class Options:
    """What is asked for."""

    quick: bool = False
    seeds: int | None = None

    def seeds_of(self, study: Study, own: int | None = None) -> list[int]:
        """The seeds, of a table that may have a number of its own."""
        return list(range(1, 1 + (self.seeds or (1 if self.quick else own or study.seeds))))

    def draws_of(self, study: Study) -> int:
        """How many draws of the uncertain costs."""
        return 0 if self.quick else study.draws


@dataclass(frozen=True)
class Pair:
    """The runs behind an effect at one seed or draw."""

    before: Run
    after: Run


@dataclass(frozen=True)
class Case:
    """A published pair, or a published change: the rows, and the runs that stand for them."""

    study: Study
    workload: Workload
    before: Row | None
    after: Row
    seeds: tuple[Pair, ...]
    draws: tuple[Pair, ...]

    @property
    def expression(self) -> str:
        """What is read of each run."""
        metric = self.workload.metric(self.after.metric)
        assert metric is not None
        return metric.expression(self.after.x)


@dataclass
class Plan:
    """All runs, each with the expressions that are read of it."""

    runs: dict[Run, set[str]] = field(default_factory=dict)

    def add(self, run: Run, expressions: Iterable[str]) -> Run:
        """Ask for expressions of a run."""
        self.runs.setdefault(run, set()).update(expressions)
        return run


class Unpatched(Protocol):
    """What a run needs to know of its study."""

    @property
    def before_policy(self) -> str:
        """The preset that every run starts from."""


def run_of(
    study: Unpatched,
    w: Workload,
    x: float,
    features: Settings,
    *,
    seed: int,
    quick: bool,
    drawn: Settings | None = None,
    fitted: Settings | None = None,
) -> Run:
    """One run of a workload."""
    at_x: Settings = {w.x: number(x)} if w.x is not None else {}
    parameters = w.parameters if fitted is None else fitted
    warmup_ms, length_ms = w.span_ms(quick=quick)
    return Run(
        scenario=w.scenario_of(x),
        machine=w.host,
        policy=study.before_policy,
        set=sets(w.set, parameters, at_x, features, drawn or {}),
        seed=seed,
        horizon_s=(warmup_ms + length_ms) / 1e3,
        warmup_s=warmup_ms / 1e3,
    )


def cases(study: Study, options: Options, plan: Plan, switches: dict[str, Settings] | None = None) -> list[Case]:
    """The cases of a study; their runs are added to the plan.

    `switches` replaces what the patched system has set (`--ablate`).
    """
    found = []
    for row in study.rows:
        w = study.workload_of(row)
        if row.variant == study.reference or w is None:
            continue
        name = study.switch_name(row)
        if switches is not None and name not in switches:
            continue
        features = study.after_set(name) if switches is None else {**study.before_set, **switches[name]}
        metric = w.metric(row.metric)
        assert metric is not None
        reads = [metric.expression(row.x)]

        def pair(
            seed: int, drawn: Settings | None, *, w: Workload = w, row: Row = row, features: Settings = features,
            reads: list[str] = reads,
        ) -> Pair:  # fmt: skip
            made = [
                run_of(study, w, row.x, f, seed=seed, quick=options.quick, drawn=drawn)
                for f in (study.before_set, features)
            ]
            return Pair(plan.add(made[0], reads), plan.add(made[1], reads))

        seeds = options.seeds_of(study)
        drawn = [] if switches is not None else draws(study, w, row.x, options.draws_of(study))
        found.append(
            Case(
                study, w, study.before(row), row,
                tuple(pair(s, None) for s in seeds), tuple(pair(seeds[0], d) for d in drawn),
            )
        )  # fmt: skip
    return found


@dataclass(frozen=True)
class Single:
    """A row of the unpatched system that nothing is compared with, and its runs, one a seed."""

    workload: Workload
    row: Row
    runs: tuple[Run, ...]

    @property
    def metric(self) -> Metric:
        """How it is read."""
        metric = self.workload.metric(self.row.metric)
        assert metric is not None
        return metric


def singles(study: Study, options: Options, plan: Plan) -> list[Single]:
    """The rows that no case has; their runs are added to the plan (most are in it)."""
    compared = {study.before(r) for r in study.rows if r.variant != study.reference}
    found = []
    for row in study.rows:
        w = study.workload_of(row)
        if row.variant != study.reference or row in compared or w is None:
            continue
        metric = w.metric(row.metric)
        assert metric is not None
        runs = (run_of(study, w, row.x, study.before_set, seed=s, quick=options.quick) for s in options.seeds_of(study))
        found.append(Single(w, row, tuple(plan.add(r, [metric.expression(row.x)]) for r in runs)))
    return found


def draws(study: Study, w: Workload, x: float, count: int) -> list[Settings]:
    """Joint draws of all that is uncertain about a workload's machine and about the workload.

    The same for all workloads of a machine, but for costs that one sets: those are known.
    """
    assumed = [a for a in study.assumptions if a.machine in (None, w.machine) and a.workload in (None, w.name)]
    known = (*w.sets_at(x), *(a.key for a in assumed))
    uncertain = hypercube.uncertain(list_costs(w.host))
    ranges = {key: range_ for key, range_ in uncertain.items() if not any(overlap(key, k) for k in known)}
    for a in assumed:
        ranges[a.key] = (a.lo, a.hi, a.whole)
    return [dict(drawn) for drawn in hypercube.draw(ranges, count, f"{study.name} {w.machine}")]


@dataclass(frozen=True)
class Ablation:
    """A part of a switch. Where the kernel refuses it, because a feature needs another, the first of `instead` that it
    accepts stands for it; each has a note that says how it differs."""

    switch: str
    variant: str
    features: Settings
    instead: tuple[tuple[Settings, str], ...]


def ablations(study: Study) -> list[Ablation]:
    """Each feature of a switch alone, and all but each, of the switches that have several."""
    found = []
    for name, features in study.switches.items():
        if len(features) < 2:
            continue
        for key, value in features.items():
            others = {k: v for k, v in features.items() if k != key}
            more = tuple(({key: value, k: v}, f"with {k}, which it needs") for k, v in others.items())
            less = tuple(
                ({k: v for k, v in others.items() if k != other}, f"nor {other}, which needs it") for other in others
            )
            found.append(Ablation(name, f"only {key}", {key: value}, more))
            found.append(Ablation(name, f"without {key}", others, less))
    return found
