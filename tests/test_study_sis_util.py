"""What the study sis-util-2022 says, in shorter slices."""

import dataclasses
import functools

import pytest
from contend.study import load, plan, simulate

STUDY = load.load("sis-util-2022")
INTEL = "intel-2s-56c-112t"
KEYS = ["rate.transactions", "wakeups.from_waker.cpu", "wakeup_latency_us.count"]


@functools.cache
def measured(instances: int, search: str) -> dict[str, float]:
    """netperf under a search: rate, and the share of wake-ups that stay on the waker's CPU."""
    w = STUDY.workload("netperf-tcp-rr", INTEL)
    assert w is not None
    run = plan.run_of(STUDY, w, instances, STUDY.before_set, seed=1, quick=True)
    run = dataclasses.replace(run, set=plan.sets(dict(run.set), {"idle_search": search}), horizon_s=0.1, warmup_s=0.08)
    found = simulate.simulate({run: set(KEYS)})[run]
    assert found.ok, found
    values = {key: found.values[key] or 0.0 for key in KEYS}
    return {"rate": values[KEYS[0]], "local": values[KEYS[1]] / values[KEYS[2]]}


def test_few_pairs_do_not_care() -> None:
    """Published: -0.2 and 0.0 %."""
    for instances in (28, 56):
        assert measured(instances, "sis-util")["rate"] == pytest.approx(measured(instances, "5.14")["rate"], rel=0.03)


def test_pairs_that_find_idle_cpus_go_round_and_those_that_do_not_share_one() -> None:
    """Published, from counters of 224 instances: 3.3 M transactions a second under SIS_PROP, where almost every search
    finds a CPU, and 8.6 M under SIS_UTIL, where none does. Here it is 112 and 224 instances."""
    apart, together = measured(112, "5.14"), measured(224, "5.14")
    assert apart["local"] < 0.05
    assert together["local"] > 0.5
    assert 2.6e6 < apart["rate"] < 4.1e6
    assert together["rate"] > 1.4 * apart["rate"]


@pytest.mark.xfail(strict=True, reason="here 140 pairs are enough for a state that the real machine comes to with 196")
def test_crowds_stay_apart_under_sis_prop() -> None:
    assert measured(224, "5.14")["local"] < 0.05


def test_nothing_is_fitted() -> None:
    assert not any(w.parameters for w in STUDY.workloads)
