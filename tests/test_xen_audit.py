"""`contend xen audit` and `contend xen replay` on a real trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from contend import run
from contend._core import ContendError
from contend.xen.audit import audit
from contend.xen.command import xen
from contend.xen.replay import replay

TRACES = Path(__file__).parents[1] / "crates/trace/tests/data/xentrace"
CREDIT2 = TRACES / "credit2-mixed.bin.gz"
HZ = 2_599_998_000


def test_a_light_load_is_decided_alike() -> None:
    said = audit(CREDIT2, cpu_hz=HZ, machine="4c")
    all_kinds = said["all"]
    assert all_kinds["known"] > 0.91 * all_kinds["decisions"]
    assert all_kinds["agree"] > 0.998 * all_kinds["known"]
    exact = {"burn", "masks", "candidate", "reset", "reset amount", "slice", "insert", "score", "tickle"}
    assert {k["kind"] for k in said["kinds"] if k["known"] == k["agree"]} >= exact
    assert len(said["disagreements"]) == all_kinds["known"] - all_kinds["agree"]


def test_the_table_has_every_kind() -> None:
    result = CliRunner().invoke(xen, ["audit", str(CREDIT2), "--cpu-hz", "2599.998M", "--cases", "1"])
    assert result.exit_code == 0, result.output
    for word in ("candidate", "slice", "Inputs not known", "vcpu load at"):
        assert word in result.output
    result = CliRunner().invoke(
        xen, ["audit", str(CREDIT2), "--weights", "d0=512,d1=256", "--soft", "d1=0-1,3", "--json"]
    )
    assert json.loads(result.output)["all"]["agree"] < json.loads(result.output)["all"]["known"]


@pytest.mark.parametrize("options", [["--weights", "d1=0"], ["--weights", "1=2"], ["--soft", "d1=3-1"]])
def test_options_that_cannot_be_are_refused(options: list[str]) -> None:
    result = CliRunner().invoke(xen, ["audit", str(CREDIT2), *options])
    assert result.exit_code == 2 and "found" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--weights", "d9=3"], "found no vCPU of d9, whose weight is given; it has d0, d1, d2"),
        (["--soft", "d9=0-1"], "found no vCPU of d9, whose soft affinity is given"),
        (["--soft", "d1=4"], "found pCPU 4 in the soft affinity of d1; the host has 4"),
        (["--soft", "d1=600"], "--soft: found pCPU 600 for d1"),
        (["--ratelimit", "50"], "--ratelimit: found 50; should be 0 (off), or from 100 to 500000 us"),
    ],
)
def test_what_cannot_be_of_the_recorded_host_is_refused(options: list[str], message: str) -> None:
    result = CliRunner().invoke(xen, ["audit", str(CREDIT2), *options])
    assert message in str(result.exception)


def test_a_trace_of_credit_is_refused() -> None:
    with pytest.raises(
        ContendError, match="no record of Credit2's scheduler; expected a trace of a host under Credit2"
    ):
        audit(TRACES / "credit-mixed.bin.gz")


def test_a_machine_that_is_too_small_is_refused() -> None:
    with pytest.raises(ContendError, match=r"found 4 pCPUs; expected no more than the machine given has, 1$"):
        audit(CREDIT2, machine="1c")


def test_decisions_of_a_simulated_host_are_its_own(tmp_path: Path) -> None:
    scenario = {
        "machine": "1n1l4c1t",
        "seed": 5,
        "xen": {"scheduler": "credit2", "preset": "upstream-today"},
        "guest": [
            {"name": "mix", "copies": 2, "vcpus": 4, "kernel": False,
             "workload": {"kind": "periodic", "tasks": 4, "duration_ms": 500}}
        ],
    }  # fmt: skip
    run(scenario, trace=tmp_path / "own.xentrace")
    # Idle vCPUs' times are what a pCPU's load is known from.
    said = audit(tmp_path / "own.xentrace", cpu_hz=1_000_000_000, machine="4c")["all"]
    assert said["known"] > 0.95 * said["decisions"] and said["agree"] > 0.995 * said["known"]


@pytest.mark.parametrize("scheduler", ["credit", "credit2"])
def test_an_idle_host_stays_one(scheduler: str) -> None:
    said = replay(CREDIT2, scheduler=scheduler, cpu_hz=HZ)
    assert said["simulated_ns"] == said["duration_ns"]
    for v in said["vcpus"]:
        ran, again = (v[side]["running_ns"] for side in ("recorded", "simulated"))
        # Who has not blocked at the end does its turns again: it waits for less than under emulation.
        assert again == pytest.approx(ran, rel=0.5 if v["dom"] == 0 else 0.05, abs=3e6), v


def test_a_replay_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = {**replay(CREDIT2, cpu_hz=HZ), "outcome": "panic", "outcome_detail": "a test"}
    monkeypatch.setattr("contend.xen.replay.replay", lambda *_, **__: failed)
    result = CliRunner().invoke(xen, ["replay", str(CREDIT2)], standalone_mode=False)
    assert result.return_value == 5 and "error: panic: a test" in result.stderr


def test_weights_of_a_replay_count() -> None:
    result = CliRunner().invoke(
        xen, ["replay", str(CREDIT2), "--cpu-hz", "2.6G", "--weights", "d1=512", "--cap", "d0=50"]
    )
    assert result.exit_code == 0, result.output
    assert "Tickles" in result.output
    with pytest.raises(ContendError, match="pCPU 9"):
        replay(CREDIT2, domains={1: {"hard": [9]}})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cap", "d1=100", "--preset", "base"], "cap: found d1=100; should be 0: Credit2 has no caps before"),
        (["--cap", "d1=900"], "cap: found d1=900; should be at most 200, 100 for each of its vCPUs"),
        (["--weights", "d9=512"], "weights: found d9; the trace has d0, d1, d2"),
        (["--hard", "d9=0"], "hard: found d9; the trace has"),
        (["--soft", "d9=0"], "soft: found d9; the trace has"),
        (["--hard", "d1=99"], "--hard: found pCPU 99 for d1; the machine has 4"),
        (
            ["--hard", "d1=0-1", "--soft", "d1=2"],
            "--soft: found d1=2; should be a set that its hard affinity meets: that is 0-1",
        ),
        (["--ratelimit", "50"], "--ratelimit: found 50; should be 0 (off), or from 100 to 500000 us"),
        (["--scheduler", "credit", "--ratelimit", "50000"], "ratelimit: found 50000; should be no longer than Credit1"),
    ],
)
def test_what_cannot_hold_in_a_replay_is_refused(options: list[str], message: str) -> None:
    result = CliRunner().invoke(xen, ["replay", str(CREDIT2), *options])
    assert message in str(result.exception)
