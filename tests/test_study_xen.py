"""What the model must show of the study xen-credit-soft-affinity-2016 (mechanisms F.3), with the study's own scenarios,
fitted value and variants, on its slices. What the model misses is an expected failure, with the suspected cause.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics

import pytest
from contend.study import load, plan, simulate
from contend.study.model import Settings as Sets

pytestmark = [pytest.mark.slow, pytest.mark.long(25)]

STUDY = load.load("xen-credit-soft-affinity-2016")
MACHINE = "xen-16pcpu-2node"
BUILD, IPERF = "xen-build-in-vm", "iperf-vm-to-host"
IDLE, LOADED = 0.0, 1.0
SEEDS = (1, 2, 3)

NO_SOFT: Sets = {"guest.cpus_soft": "all"}
NO_DISTANCE: Sets = {
    "machine.memory.remote": 97,
    "machine.lines.remote": 90,
    "machine.cache.refill_remote_per_kib": 220,
    "machine.interrupts.ipi_deliver_remote": 600,
}
"""The other node is as near as the own one's other caches would be."""


NOBODY_IDLES = (
    "the base's bug tickles the wrong one of several idle pCPUs, and with 12 busy vCPUs beside the build none is "
    "ever idle here: Credit1 shares the host fairly before and after"
)
EVERYBODY_SHARES = (
    "under load all pCPUs are busy, and Credit2 shares them fairly with the patches and without: 22 busy vCPUs dealt "
    "out over 16 pCPUs leave it nothing to gain but the build's distance, 2 %"
)
DISTANCE_TOO_CHEAP = (
    "running half its time off its node costs the build 4 %, not 13: a quarter of its time waits for memory, 1.4 "
    "times as long; the link's bandwidth and what is lost of a last-level cache are not modelled"
)
A_TIE = "with the patches, and under load without them too, both share fairly: the two differ by no more than noise"
COPIES_ARE_ALL = (
    "copying is most of what a packet costs here, and from the other node it costs three times as much: iperf "
    "depends on where its four tasks run as the real one did not"
)


@functools.cache
def _value(table: str, workload: str, x: float, variant: str, more: tuple[tuple[str, str | int], ...]) -> float:
    w = STUDY.workload(workload, MACHINE, table)
    assert w is not None
    (metric,) = w.metrics.values()
    w = dataclasses.replace(w, set={**w.set, **dict(more)})
    expression = metric.expression(x)
    features = STUDY.before_set if variant == "before" else STUDY.after_set(variant)
    runs = {plan.run_of(STUDY, w, x, features, seed=s, quick=False): {expression} for s in SEEDS}
    measured = simulate.simulate(runs).values()
    assert all(m.ok for m in measured)
    value = metric.value(statistics.fmean(m.values[expression] or 0 for m in measured), x)
    assert value is not None
    return value


def value(table: str, workload: str, x: float, variant: str, more: Sets | None = None) -> float:
    """Seconds of the build or Gbit/s of iperf, the mean over the seeds."""
    return _value(table, workload, x, variant, tuple((more or {}).items()))


def change_pct(table: str, x: float, more: Sets | None = None) -> float:
    """By how much the patches change the build's time."""
    before, after = (value(table, BUILD, x, v, more) for v in ("before", "after"))
    return 100 * (after - before) / before


def iperf_pct(table: str, x: float) -> float:
    """By how much the patches change iperf's rate."""
    before, after = (value(table, IPERF, x, v) for v in ("before", "after"))
    return 100 * (after - before) / before


def crossing(x: float, variant: str) -> float:
    """Credit2's time over Credit1's."""
    return value("credit2", BUILD, x, variant) / value("credit1", BUILD, x, variant)


def test_credit1_idle_is_left_alone() -> None:
    """Published: -0.6 %."""
    assert abs(change_pct("credit1", IDLE)) < 3


@pytest.mark.xfail(strict=True, reason=NOBODY_IDLES)
def test_credit1_loaded_gains() -> None:
    """Published: -17 %."""
    assert -25 < change_pct("credit1", LOADED) < -8


@pytest.mark.xfail(strict=False, reason=DISTANCE_TOO_CHEAP)
def test_credit2_idle_gains() -> None:
    """Published: -13 %."""
    assert -20 < change_pct("credit2", IDLE) < -6


@pytest.mark.xfail(strict=False, reason=EVERYBODY_SHARES)
def test_credit2_loaded_gains() -> None:
    """Published: -10 %. One seed of the unpatched Credit2 keeps to a bad placement: that can look like a gain."""
    assert -16 < change_pct("credit2", LOADED) < -4


def test_credit1_wins_idle_before() -> None:
    """Published: Credit2 takes 1.11 times as long."""
    assert crossing(IDLE, "before") > 1


@pytest.mark.xfail(strict=False, reason=A_TIE)
def test_credit2_wins_loaded_before() -> None:
    """Published: 0.84."""
    assert crossing(LOADED, "before") < 1


@pytest.mark.xfail(strict=False, reason=A_TIE)
def test_credit2_wins_idle_after() -> None:
    """Published: 0.97."""
    assert crossing(IDLE, "after") < 1


@pytest.mark.xfail(strict=False, reason=A_TIE)
def test_credit2_wins_loaded_after() -> None:
    """Published: 0.92."""
    assert crossing(LOADED, "after") < 1


def test_without_soft_affinity_credit2_gains_nothing() -> None:
    assert abs(change_pct("credit2", IDLE, NO_SOFT)) < 3


def test_without_distance_credit2_gains_nothing() -> None:
    assert abs(change_pct("credit2", IDLE, NO_DISTANCE)) < 3


@pytest.mark.parametrize("x", [IDLE, LOADED])
def test_credit1s_iperf_hardly_changes(x: float) -> None:
    """Published: +0.5 and -5.4 %."""
    assert abs(iperf_pct("credit1", x)) < 15


@pytest.mark.xfail(strict=False, reason=COPIES_ARE_ALL)
@pytest.mark.parametrize("x", [IDLE, LOADED])
def test_credit2s_iperf_hardly_changes(x: float) -> None:
    """Published: +4.2 and +5.6 %, by one who says that they were not always consistent."""
    assert 0 < iperf_pct("credit2", x) < 15
