"""What the model must show of the study idle-cpu-search-2019 (mechanisms F.4), with the study's own scenarios, fitted
values, slices and switches: one test an invariant. What the model misses is an expected failure, with the suspected
cause.

The search itself, CPU by CPU, is in `crates/sim/tests/sim/idle_search.rs`.
"""

from __future__ import annotations

import functools
import math
import statistics

import pytest
from contend.study import judge, load, plan, simulate

pytestmark = [pytest.mark.slow, pytest.mark.long(20)]

STUDY = load.load("idle-cpu-search-2019")
X86, SPARC = "intel-2s-44c-88t", "sparc-2s-16c-128t"
UPERF, TBENCH, SCHBENCH = "uperf-pingpong-8k", "tbench", "schbench-44-tasks"
BEFORE = ""
V3, NO_CORE, NO_PROP = "sis-core", "no-sis-core", "no-sis-core-no-sis-prop"
"""The study's switches."""


def seeds(x: float) -> range:
    """With few tasks placements last, and runs differ by some per cent; with many by 0.3 %."""
    return range(1, 9 if x < 32 else 3 if x < 64 else 2)


PERCENTILE_SEEDS = range(1, 25)
"""Percentiles differ by 8 % from run to run."""


SEARCHES_A_WAKEUP = "wakeups.idle_searches / wakeups.made"
PROBES_A_WAKEUP = "wakeups.probes / wakeups.made"
COUNTS = (SEARCHES_A_WAKEUP, PROBES_A_WAKEUP, "probes_per_search", "ledger_pct.idle_search")
PERCENTILES = (50, 75, 90, 95, 99, 99.5, 99.9)


@functools.cache
def mean(workload: str, x: float, switch: str, machine: str = X86) -> dict[str, float]:
    """The rows' metric (as "metric") and counts, each the mean over the seeds."""
    w = STUDY.workload(workload, machine)
    assert w is not None
    (metric,) = w.metrics.values()
    at_x = metric.expression(x)
    features = STUDY.after_set(switch) if switch else STUDY.before_set
    runs = {plan.run_of(STUDY, w, x, features, seed=s, quick=False): {at_x, *COUNTS} for s in seeds(x)}
    measured = simulate.simulate(runs).values()
    assert all(m.ok for m in measured)
    found = {e: statistics.fmean(m.values[e] or 0 for m in measured) for e in COUNTS}
    value = metric.value(statistics.fmean(m.values[at_x] or 0 for m in measured), x)
    assert value is not None
    return {"metric": value, **found}


def effect(workload: str, x: float, switch: str) -> float:
    """In per cent of the unpatched value, positive where the patched system is better."""
    before, after = (mean(workload, x, s)["metric"] for s in (BEFORE, switch))
    found = judge.effect_pct(before, after, higher_is_better=workload != SCHBENCH)
    assert found is not None
    return found


@functools.cache
def wakeups_us(switch: str) -> dict[float, list[float]]:
    """schbench's percentiles, each with a value a seed."""
    w = STUDY.workload(SCHBENCH, X86)
    assert w is not None
    (metric,) = w.metrics.values()
    features = STUDY.after_set(switch) if switch else STUDY.before_set
    reads = {p: metric.expression(p) for p in PERCENTILES}
    runs = {plan.run_of(STUDY, w, 0, features, seed=s, quick=False): set(reads.values()) for s in PERCENTILE_SEEDS}
    measured = simulate.simulate(runs).values()
    return {p: [m.values[e] or 0 for m in measured] for p, e in reads.items()}


def wakeup_us(switch: str) -> dict[float, float]:
    """The means over the seeds."""
    return {p: statistics.fmean(values) for p, values in wakeups_us(switch).items()}


# ---- lightly loaded -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workload", "xs"),
    [(UPERF, (8, 16)), (TBENCH, (1, 2, 4, 8)), ("sysbench-oltp", (8, 16)), ("oracle-oltp", (20, 40, 60))],
)
def test_v3_stays_within_2_per_cent_when_lightly_loaded(workload: str, xs: tuple[float, ...]) -> None:
    effects = {x: effect(workload, x, V3) for x in xs}
    assert all(abs(e) <= 2 for e in effects.values()), effects


# ---- as many running tasks as cores ---------------------------------------------------------------------------------


def test_uperf_gains_most_near_as_many_running_tasks_as_cores() -> None:
    effects = {x: effect(UPERF, x, NO_CORE) for x in (16, 32, 48, 64, 128)}
    assert max(effects, key=lambda x: effects[x]) in (48, 64), effects
    assert max(effects.values()) > 2 * effects[128], effects


def test_unpatched_uperf_grows_slowest_from_48_to_64_threads() -> None:
    rate = {x: mean(UPERF, x, BEFORE)["metric"] for x in (32, 48, 64, 128)}
    a_thread = {(a, b): (rate[b] - rate[a]) / (b - a) for a, b in ((32, 48), (48, 64), (64, 128))}
    assert a_thread[48, 64] < 0.8 * min(a_thread[32, 48], a_thread[64, 128]), a_thread


def test_unpatched_uperf_flattens_from_48_to_64_threads() -> None:
    """Published: 151.19, 190.20, 190.42 Gbit/s with 32, 48, 64 threads."""
    rate = {x: mean(UPERF, x, BEFORE)["metric"] for x in (32, 48, 64)}
    growth = {x: rate[x] / rate[y] - 1 for x, y in ((48, 32), (64, 48))}
    assert growth[48] > 0.15, rate
    assert growth[64] < 0.4 * growth[48], rate


def test_idle_cores_come_and_go_near_64_threads() -> None:
    """With few threads the wakee's CPU is idle, and with many no core ever is: in between wake-ups search for an idle
    core, and the failed searches read all of the cache."""
    probes = {x: mean(UPERF, x, BEFORE)[PROBES_A_WAKEUP] for x in (16, 32, 64, 128)}
    assert probes[64] > 10 * probes[32] > 0, probes
    assert probes[64] > 1.25 * probes[128], probes
    # It is the search for cores that reads so much: the limits alone leave it as it is.
    assert mean(UPERF, 64, V3)[PROBES_A_WAKEUP] > 0.8 * probes[64]
    assert mean(UPERF, 64, NO_CORE)[PROBES_A_WAKEUP] < 0.25 * probes[64]


@pytest.mark.parametrize("workload", [UPERF, TBENCH])
def test_no_sis_core_helps_throughput_at_64(workload: str) -> None:
    assert effect(workload, 64, NO_CORE) > 4
    assert effect(workload, 64, NO_CORE) > 2 * effect(workload, 64, V3)


# ---- latency --------------------------------------------------------------------------------------------------------


def test_no_sis_core_hurts_schbenchs_p99() -> None:
    assert wakeup_us(NO_CORE)[99] > 2 * wakeup_us(BEFORE)[99]


@pytest.mark.xfail(reason="1 to 1.5 % of wake-ups find no idle CPU at once in the model, 0.5 to 1 % in the post")
def test_with_sis_core_p99_stays() -> None:
    """Published: from 513 +- 105 % to 208 us. The load is an assumption: with requests of 40 ms in place of 30 the
    share is near 1 %, and p99 on either side of it from seed to seed."""
    assert wakeup_us(V3)[99] < 1.5 * wakeup_us(BEFORE)[99]


def test_an_unlimited_search_restores_p99() -> None:
    assert wakeup_us(NO_PROP)[99] < 1.1 * wakeup_us(BEFORE)[99]


@pytest.mark.parametrize(
    "switch",
    [
        pytest.param(V3, marks=pytest.mark.xfail(reason="p50 is 6 % better, +5 +- 6 in the study's eight seeds")),
        NO_CORE,
        NO_PROP,
    ],
)
def test_p50_to_p95_barely_move(switch: str) -> None:
    """By 3.5 per cent and a standard error."""
    before, after = wakeups_us(BEFORE), wakeups_us(switch)
    for p in (50, 75, 90, 95):
        means = [statistics.fmean(v[p]) for v in (before, after)]
        errors = [
            statistics.stdev(v[p]) / m / math.sqrt(len(v[p])) for v, m in zip((before, after), means, strict=True)
        ]
        change = 100 * (means[1] / means[0] - 1)
        assert abs(change) <= 3.5 + 100 * math.hypot(*errors), f"p{p}: {change:+.1f} %"


@pytest.mark.parametrize("switch", [V3, NO_CORE])
def test_the_limits_worsen_p99_5(switch: str) -> None:
    assert wakeup_us(switch)[99.5] > 1.5 * wakeup_us(BEFORE)[99.5]


# ---- limits ---------------------------------------------------------------------------------------------------------


def test_a_limited_search_reads_1_to_3_cpus_on_smt2() -> None:
    for x in (8, 16, 32, 48, 64, 128):
        assert 1 <= mean(UPERF, x, NO_CORE)["probes_per_search"] <= 3, x
    # Nothing is idle: every search fails, after 3.
    assert mean(UPERF, 128, NO_CORE)["probes_per_search"] > 2.9


def test_a_limited_search_reads_7_to_15_cpus_on_smt8() -> None:
    """With 32 groups nearly all searches fail, at the upper limit; the unpatched one reads on."""
    limited = mean("hackbench-process", 32, NO_CORE, SPARC)["probes_per_search"]
    assert 14 < limited <= 15
    assert mean("hackbench-process", 32, BEFORE, SPARC)["probes_per_search"] > 2 * limited
