"""Limits of groups, from the scenario to what is printed of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import ROOT, Contend

HOGS = """
machine = "2c"
policy = "linux-6.18"
horizon_s = 1
[groups]
"/web" = { weight = 200, max = "50000 100000", burst = 10000 }
"/x.max" = 300
[workload]
kind = "mix"
[[workload.parts]]
kind = "hogs"
tasks = 3
duration_ms = 5000
group = "/web"
[[workload.parts]]
kind = "hogs"
tasks = 1
duration_ms = 5000
group = "/x.max"
"""


@pytest.fixture
def hogs(tmp_path: Path) -> Path:
    file = tmp_path / "hogs.toml"
    file.write_text(HOGS)
    return file


def web(text: str) -> dict[str, object]:
    groups: dict[str, dict[str, object]] = {g["name"]: g for g in json.loads(text)["groups"]}
    return groups["/web"]


def test_a_limit_is_kept_shown_and_stored(contend: Contend, hogs: Path, tmp_path: Path) -> None:
    first = contend("run", hogs, "--out", tmp_path / "a", "--json")
    bandwidth = web(first.stdout)["bandwidth"]
    assert isinstance(bandwidth, dict)
    assert (bandwidth["quota_us"], bandwidth["period_us"], bandwidth["burst_us"]) == (50000, 100000, 10000)
    assert bandwidth["nr_throttled"] == bandwidth["nr_periods"] >= 9
    assert 0.5 < float(str(web(first.stdout)["runtime_s"])) < 0.63
    stored = json.loads(first.stdout)["set"]
    assert stored["groups./web.max"] == "50000 100000"
    assert stored["groups./web.burst"] == "10000"
    # What was stored makes the same again.
    again = contend("run", tmp_path / "a" / "scenario.toml", "--json")
    assert json.loads(again.stdout)["trace_hash"] == json.loads(first.stdout)["trace_hash"]
    assert web(again.stdout) == web(first.stdout)
    explained = contend("explain", tmp_path / "a").stdout
    assert "50000 100000" in explained
    assert "nr_throttled" in explained


def test_a_limit_is_set_on_the_command_line(contend: Contend, hogs: Path) -> None:
    def had(*options: str) -> float:
        return float(str(web(contend("run", hogs, "--json", *options).stdout)["runtime_s"]))

    assert had("--set", "groups./web.max=20000 100000", "--set", "groups./web.burst=0") < 0.25
    assert had("--set", "groups./web.max=max", "--set", "groups./web.burst=0") > 1.0
    # A group whose name ends as a key does.
    contend("run", hogs, "--json", "--set", "groups./x.max.weight=200")


def test_a_group_that_nobody_is_in_is_said(contend: Contend, hogs: Path) -> None:
    said = contend("run", hogs, "--set", "groups./wbe.weight=200").stderr
    assert "groups./wbe does nothing: no task was in it" in said
    assert "groups./web does nothing" not in said


def test_comparisons_tell_who_is_throttled(contend: Contend, hogs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(HOGS.replace("50000 100000", "150000 100000"))
    out = contend("compare", hogs, other, "--seeds", "2", "--json").stdout
    assert "groups./web.bandwidth.throttled_s" in out


def test_the_shipped_scenario_is_throttled_in_the_era_that_lost_time(contend: Contend) -> None:
    file = ROOT / "scenarios" / "cpu-max.toml"

    def throttled(*options: str) -> int:
        bandwidth = web(contend("run", file, "--horizon", "2", "--json", *options).stdout)["bandwidth"]
        assert isinstance(bandwidth, dict)
        return int(bandwidth["nr_throttled"])

    assert throttled() == 0
    assert throttled("--set", "cfs_bandwidth=4.18") > 10
    assert throttled("--policy", "linux-5.2") > 10
