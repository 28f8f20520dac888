"""What the model must show of the study pv-qspinlock-2015, with the study's own scenarios, fitted value and switches,
on its quick slices. What the model misses is an expected failure, with the suspected cause.
"""

from __future__ import annotations

import functools
import itertools
import statistics

import pytest
from contend.study import load, plan, simulate

pytestmark = [pytest.mark.slow, pytest.mark.long(4)]

STUDY = load.load("pv-qspinlock-2015")
WESTMERE, HASWELL = "westmere-ex-8s-32c", "haswell-ex-4s-32c"
TICKET, PV, PATCHED = "pvticketlock", "pvqspinlock", "patched-pvqspinlock"
BYTE, QUEUED = "unfair-byte-lock", "unfair-queued-lock"
LOCKS = (TICKET, PV, PATCHED, BYTE, QUEUED)
SEEDS = (1, 2)

PUBLISHED = {(r.table, r.machine, r.variant, int(r.x)): r.value for r in STUDY.rows}

FAIR_LOCKS_TOO_FAST = (
    "overcommitted guests under fair locks lose half their speed on Haswell-EX here, nine tenths there: how fast its "
    "CPUs leave idle states is an estimate, and the build may ask for its locks less often than the real one did"
)


@functools.cache
def seconds(machine: str, variant: str, vcpus: int, table: str = "unpinned", quick: bool = True) -> float:
    """The build's time, the mean over the seeds."""
    w = STUDY.workload("kernel-build-in-guest", machine, table)
    assert w is not None
    (metric,) = w.metrics.values()
    at_x = metric.expression(vcpus)
    features = STUDY.before_set if variant == TICKET else STUDY.after_set(variant)
    runs = {plan.run_of(STUDY, w, vcpus, features, seed=s, quick=quick): {at_x} for s in SEEDS}
    measured = simulate.simulate(runs).values()
    assert all(m.ok for m in measured)
    value = metric.value(statistics.fmean(m.values[at_x] or 0 for m in measured), vcpus)
    assert value is not None
    return value


def published(machine: str, variant: str, vcpus: int) -> float:
    value = PUBLISHED["unpinned", machine, variant, vcpus]
    assert value is not None
    return value


@pytest.mark.parametrize("vcpus", [48, 60])
@pytest.mark.parametrize("machine", [WESTMERE, HASWELL])
def test_unfair_locks_are_fastest_where_vcpus_outnumber_cpus(machine: str, vcpus: int) -> None:
    slowest_unfair = max(seconds(machine, lock, vcpus) for lock in (BYTE, QUEUED))
    assert slowest_unfair < 0.9 * min(seconds(machine, lock, vcpus) for lock in (TICKET, PV, PATCHED))


def test_the_series_helps_the_queued_pv_lock() -> None:
    """By a third in these slices and in the study's whole ones; published: 55 %."""
    assert seconds(HASWELL, PATCHED, 60) < 0.8 * seconds(HASWELL, PV, 60)


@pytest.mark.parametrize(
    ("machine", "vcpus"),
    [
        (WESTMERE, 48),
        (WESTMERE, 60),
        (HASWELL, 48),
        (HASWELL, 60),
    ],
)
def test_the_series_does_not_hurt(machine: str, vcpus: int) -> None:
    assert seconds(machine, PATCHED, vcpus) < 1.03 * seconds(machine, PV, vcpus)


@pytest.mark.xfail(
    strict=False,
    reason="the two unfair locks are within 2 % of one another: no lock is wanted enough to tell them apart",
)
@pytest.mark.parametrize("vcpus", [48, 60])
@pytest.mark.parametrize("machine", [WESTMERE, HASWELL])
def test_the_order_of_all_five(machine: str, vcpus: int) -> None:
    times = [seconds(machine, lock, vcpus) for lock in (QUEUED, BYTE, PATCHED, PV)]
    assert all(a < b for a, b in itertools.pairwise(times))
    assert times[-1] <= 1.03 * seconds(machine, TICKET, vcpus)


@pytest.mark.parametrize("machine", [WESTMERE, HASWELL])
def test_pv_ticket_collapses(machine: str) -> None:
    """In the direction of the published; how far is the next test."""
    assert seconds(machine, TICKET, 48) > 1.8 * seconds(machine, TICKET, 32)


@pytest.mark.parametrize(
    ("machine", "vcpus"),
    [
        (WESTMERE, 48),
        (WESTMERE, 60),
        pytest.param(HASWELL, 48, marks=pytest.mark.xfail(strict=True, reason=FAIR_LOCKS_TOO_FAST)),
    ],
)
def test_pv_ticket_collapses_as_far_as_published(machine: str, vcpus: int) -> None:
    """In the study's whole slices: a convoy's rate changes over seconds."""
    found = seconds(machine, TICKET, vcpus, quick=False) / seconds(machine, TICKET, 32, quick=False)
    real = published(machine, TICKET, vcpus) / published(machine, TICKET, 32)
    assert real / 1.5 <= found <= real * 1.5


@pytest.mark.xfail(strict=True, reason=FAIR_LOCKS_TOO_FAST)
def test_every_ratio_to_pv_ticket() -> None:
    off = []
    for machine, lock, vcpus in itertools.product((WESTMERE, HASWELL), LOCKS[1:], (32, 48, 60)):
        found = seconds(machine, lock, vcpus) / seconds(machine, TICKET, vcpus)
        real = published(machine, lock, vcpus) / published(machine, TICKET, vcpus)
        off.append(max(found / real, real / found))
    assert statistics.median(off) <= 1.25
    assert max(off) <= 1.5


def test_pinned_one_to_one_no_lock_matters() -> None:
    times = [seconds(WESTMERE, lock, 32, "pinned") for lock in LOCKS]
    assert max(times) < 1.03 * min(times)
