"""What the study cluster-wakeup-2023 says, in shorter slices."""

import dataclasses
import functools
import statistics

import pytest
from contend.study import load, plan, simulate

STUDY = load.load("cluster-wakeup-2023")
MACHINE = "kunpeng-920-2s-128c"
RATES = {"tbench-1-node": "rate.bytes", "tbench-2-nodes": "rate.bytes", "tcp-rr-1-node": "rate.transactions"}
CASES = [("tbench-1-node", 1), ("tbench-1-node", 16), ("tbench-1-node", 32), ("tbench-2-nodes", 64)]
CASES += [("tcp-rr-1-node", 1), ("tcp-rr-1-node", 16), ("tcp-rr-1-node", 128)]
SEEDS = range(1, 7)
"""Slices of 5 ms of a full node differ by 5 % from seed to seed."""


@functools.cache
def measured() -> dict[tuple[str, int, bool], float]:
    """Rate by workload, clients, and whether clusters are searched first: means of six seeds."""
    runs = {}
    for name, clients in CASES:
        w = STUDY.workload(name, MACHINE)
        assert w is not None
        for patched in (False, True):
            for seed in SEEDS:
                run = plan.run_of(STUDY, w, clients, STUDY.before_set, seed=seed, quick=True)
                changed = plan.sets(dict(run.set), {"sis_cluster": True} if patched else {})
                runs[name, clients, patched, seed] = dataclasses.replace(run, set=changed)
    found = simulate.simulate({run: {RATES[key[0]]} for key, run in runs.items()})
    assert all(m.ok for m in found.values()), found
    return {
        (name, clients, patched): statistics.fmean(
            found[runs[name, clients, patched, seed]].values[RATES[name]] or 0 for seed in SEEDS
        )
        for name, clients in CASES
        for patched in (False, True)
    }


def gain(workload: str, clients: int) -> float:
    """Of the patch."""
    return measured()[workload, clients, True] / measured()[workload, clients, False] - 1


@pytest.mark.parametrize("workload", ["tbench-1-node", "tcp-rr-1-node"])
def test_a_pair_gains_what_it_loses_between_clusters(workload: str) -> None:
    """Published: +13.8 and +18.4 %."""
    assert 0.1 < gain(workload, 1) < 0.3


@pytest.mark.parametrize("workload", ["tbench-1-node", "tcp-rr-1-node"])
def test_so_do_pairs_that_fill_half_a_node(workload: str) -> None:
    """Published: +11.5 and +15.8 %."""
    assert 0.06 < gain(workload, 16) < 0.25


@pytest.mark.parametrize(("workload", "clients"), [("tbench-1-node", 32), ("tcp-rr-1-node", 128)])
def test_a_full_node_gains_nothing(workload: str, clients: int) -> None:
    """Published: +0.7 and +0.1 %."""
    assert abs(gain(workload, clients)) < 0.03


@pytest.mark.xfail(
    strict=True,
    reason="all are forked onto one node, which 25 ms do not even out; evened out, pairs share CPUs in both kernels",
)
def test_two_full_nodes_gain() -> None:
    """Published: +25.7 %."""
    assert gain("tbench-2-nodes", 64) > 0.1
