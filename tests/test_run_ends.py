"""The end of a run: all books close at the same time, and an error of contend itself is told as one."""

from __future__ import annotations

from typing import Any

import contend as package
import pytest
from contend import _core
from contend.cli import cli


def guest(name: str, vcpus: int, workload: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "vcpus": vcpus, "workload": workload, **more}


def hackbench(name: str, vcpus: int, **more: Any) -> dict[str, Any]:
    return guest(name, vcpus, {"kind": "hackbench", "groups": 1, "loops": 20}, **more)


def dbench(name: str, vcpus: int, **more: Any) -> dict[str, Any]:
    return guest(name, vcpus, {"kind": "dbench", "clients": vcpus, "duration_ms": 60}, **more)


def schbench(name: str, vcpus: int) -> dict[str, Any]:
    load = {"kind": "schbench", "workers": vcpus, "message_threads": 1, "think_us": 500, "sleep_us": 1000}
    return guest(name, vcpus, {**load, "duration_ms": 60})


def hogs(name: str, vcpus: int, ms: int, **more: Any) -> dict[str, Any]:
    return guest(name, vcpus, {"kind": "hogs", "tasks": vcpus, "duration_ms": ms}, **more)


def xen(machine: str, seed: int, *guests: dict[str, Any], preset: str = "upstream-today") -> dict[str, Any]:
    host = {"scheduler": "credit2", "preset": preset}
    return {"machine": machine, "seed": seed, "xen": host, "guest": list(guests)}


ENDS = {
    # A vCPU interrupts one that has not been started.
    "before-the-start": xen("1n1l8c1t", 7, hackbench("g0", 8), dbench("g1", 8)),
    # vCPUs change states after the last event.
    "finish": xen("2n1l4c2t", 9, hackbench("g0", 2), schbench("g1", 8)),
    "duration": xen("2n2l2c1t", 2, schbench("g0", 8), hogs("g1", 8, 60), dbench("g2", 4)),
    "caps": xen(
        "1n1l4c1t",
        31,
        hogs("g0", 3, 600, weight=128, cap=257),
        hogs("g1", 1, 600, cap=5),
        hogs("g2", 6, 600),
        hogs("g3", 6, 600, kernel=False, weight=64, cpus_soft="1"),
    ),
    "kvm": {
        "machine": "1n1l8c1t",
        "policy": "linux-6.18",
        "seed": 76,
        "horizon_s": 0.3,
        "guest": [
            guest("g0", 6, {"kind": "dbench", "clients": 6, "dcache_ns": 300, "duration_ms": 40}, copies=2,
                  set={"spinlock": "unfair-byte"}, policy="linux-2.6.37"),
            guest("g1", 6, {"kind": "hackbench", "groups": 1, "fds": 5, "loops": 20}, policy="linux-5.2", pin="1:1"),
            guest("g2", 8, {"kind": "dbench", "clients": 8, "dcache_ns": 300, "duration_ms": 40}, policy="linux-5.2",
                  set={"spinlock": "pv-queued-unlock-kick"}),
        ],
    },
}  # fmt: skip


@pytest.mark.parametrize("scenario", ENDS.values(), ids=ENDS.keys())
def test_all_books_close_at_the_end(scenario: dict[str, Any]) -> None:
    result = package.run(scenario)
    s = result.summary
    assert result.ok, s["outcome_detail"]
    assert sum(s["ledger_ns"].values()) == s["cpus"] * s["virtual_ns"]
    if "xen" in scenario:
        states = ["run_ns", "wait_ns", "blocked_ns", "offline_ns"]
        assert set(result["xen_vcpus"].select(states).sum_horizontal()) == {s["virtual_ns"]}


def test_an_error_of_contend_has_a_sentence_and_a_replay_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class PanicException(BaseException):
        """As PyO3 raises it."""

    def panics(**_: object) -> None:
        raise PanicException("the books do not balance")

    monkeypatch.setattr(_core, "run", panics)
    sentence = "panic: an error of contend, please report it: the books do not balance"
    with pytest.raises(_core.ContendError, match=sentence):
        package.run({})
    assert cli.main(["run", "a.toml", "--seed", "3"], standalone_mode=False) == 5
    assert capsys.readouterr().err == f"error: {sentence}\n  scenario: a.toml\n  replay: contend run a.toml --seed 3\n"
