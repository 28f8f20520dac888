"""Determinism, stored results, and the Python interface."""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import contend as package
import polars as pl
import pytest
from conftest import ENDLESS, ROOT, SMALL, Contend, tree

SCENARIO = {"machine": "2n4c2t", "seed": 7, "workload": {"kind": "hackbench", "groups": 1, "fds": 4, "loops": 20}}


def test_two_runs_and_two_processes_give_the_same_bytes(contend: Contend, small: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert contend("run", small, "--out", name, "-q").returncode == 0
    package.run(small, out=tmp_path / "c")
    package.run(small).write(tmp_path / "d")
    a, b, c, d = (tree(tmp_path / name) for name in "abcd")
    assert a == b == c == d
    assert set(a) == {"summary.json", "scenario.toml", "machine.toml"} | {
        f"{t}.arrow" for t in package.load(tmp_path / "a").tables
    }


def test_threads_side_by_side_give_the_same_result(small: Path) -> None:
    alone = package.run(small)
    with ThreadPoolExecutor(4) as pool:
        many = list(pool.map(lambda _: package.run(small), range(8)))
    assert {r.summary["trace_hash"] for r in many} == {alone.summary["trace_hash"]}
    assert all(r.summary == alone.summary for r in many)


def test_groups_have_what_they_weigh(tmp_path: Path) -> None:
    scenario = ROOT / "scenarios/groups.toml"
    result = package.run(scenario, out=tmp_path / "r")
    assert result.path == tmp_path / "r"
    assert "tasks" in result and "none" not in result and list(result) == result.tables
    web, batch = result.summary["groups"]
    assert [web["name"], web["weight"], web["tasks"]] == ["/web", 300, 3]
    assert web["runtime_share"] == pytest.approx(0.75, abs=0.01)
    assert batch["runtime_share"] == pytest.approx(0.25, abs=0.01)
    tasks = result["tasks"].group_by("group").agg(pl.len()).sort("group")
    assert tasks.rows() == [("/batch", 5), ("/web", 3)]
    # Stored whole: another weight is another run, the same one the same.
    assert package.run(tmp_path / "r").summary == result.summary
    heavy = package.run(tmp_path / "r", set={"groups./web": "900"}).summary["groups"][0]
    assert heavy["runtime_share"] == pytest.approx(0.9, abs=0.01)


def test_what_a_group_had_is_a_number_to_compare_by(contend: Contend, tmp_path: Path) -> None:
    part = {"kind": "hogs", "tasks": 1, "duration_ms": 100}
    parts = [{**part, "group": "/a.slice/b"}, part]
    scenario = {"machine": "1c", "workload": {"kind": "mix", "parts": parts}}
    for weight in ("100", "300"):
        package.run(scenario, set={"groups./a.slice": weight}, out=tmp_path / weight)
    said = contend("compare", "100", "300", "--seeds", "2", "--json").stdout
    assert (
        "groups./a.slice.runtime_share" in said
        and "groups./a.slice" in said
        and "groups./a.slice/b.runtime_share" in said
    )
    from contend.study.values import read

    shares = [read(package.load(tmp_path / w).summary, "groups./a.slice.runtime_share") for w in ("100", "300")]
    assert shares == [pytest.approx(0.5, abs=0.05), pytest.approx(0.75, abs=0.05)]


def test_virtual_machines_share_by_the_weights_of_their_groups() -> None:
    hog = {"kind": "hogs", "tasks": 1, "duration_ms": 4000}
    scenario = {
        "machine": "1c",
        "horizon_s": 3,
        "groups": {"/vms/vm0": 300},
        "guest": [{"name": "vm", "vcpus": 1, "background": True, "copies": 2, "group": "/vms", "workload": hog}],
        "workload": hog,
    }
    groups = {g["name"]: g["runtime_share"] for g in package.run(scenario).summary["groups"]}
    # The host's hog and /vms are equals.
    assert groups == {
        "/vms": pytest.approx(0.5, abs=0.02),
        "/vms/vm0": pytest.approx(0.375, abs=0.02),
        "/vms/vm1": pytest.approx(0.125, abs=0.02),
    }


def test_waits_for_a_spinlock_count_until_the_run_ends() -> None:
    loop = {"kind": "lock-loop", "lock": "spinlock", "tasks": 4, "outside_ns": 0, "duration_ms": 100}
    summary = package.run({"machine": "4c", "workload": {**loop, "critical_ns": 1_000_000_000}}).summary
    (lock,) = (lock for lock in summary["locks"] if lock["kind"] == "spinlock")
    assert (lock["acquisitions"], lock["contended"]) == (1, 3)
    assert lock["wait_s"] == pytest.approx(summary["ledger_ns"]["spin_lock_wait"] / 1e9, rel=1e-3)
    assert lock["wait_max_us"] > 99_000
    assert lock["hold_s"] > 0.099


def test_another_seed_is_another_run(tmp_path: Path) -> None:
    random_load = {"machine": "4c", "workload": {"kind": "mmc", "jobs": 50}}
    hashes = {package.run(random_load, seed=seed).summary["trace_hash"] for seed in range(4)}
    assert len(hashes) == 4


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"policy": "cfs", "set": {"wake_path": "remote-lock", "machine.lines.llc": 70, "sis_core": False}},
        {"machine": "intel-2s-44c-88t", "horizon_s": 0.0012345},
    ],
)
def test_a_stored_scenario_makes_the_same_bytes(small: Path, tmp_path: Path, options: dict[str, object]) -> None:
    package.run(small, out=tmp_path / "a", **options)  # type: ignore[arg-type]
    package.run(tmp_path / "a" / "scenario.toml", out=tmp_path / "b")
    package.run(tmp_path / "b", out=tmp_path / "c")
    assert tree(tmp_path / "a") == tree(tmp_path / "b") == tree(tmp_path / "c")


def test_what_programs_report_in_the_warm_up_does_not_count(tmp_path: Path) -> None:
    load = {"kind": "ping-pong", "round_trips": 10**9}
    whole = package.run({"machine": "2c", "horizon_s": 0.02, "workload": load}, out=tmp_path / "whole")
    late = package.run({"machine": "2c", "horizon_s": 0.02, "warmup_s": 0.015, "workload": load}, out=tmp_path / "late")
    all_, counted = (r.summary["metrics"]["counts"]["round_trips"] for r in (whole, late))
    assert late.summary["trace_hash"] == whole.summary["trace_hash"]
    assert 0.2 < counted["count"] / all_["count"] < 0.3
    assert counted["per_s"] == pytest.approx(counted["count"] / 0.005)
    assert package.run(tmp_path / "late").summary["metrics"] == late.summary["metrics"]


def test_inputs_are_stored_with_the_result(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "two.json"
    file.write_text('{ "tasks": { "t": { "instance": 2, "loop": 3, "run": 1000, "sleep": 100 } } }')
    package.run(file, out=tmp_path / "a")
    text = file.read_text()
    file.unlink()
    assert (tmp_path / "a" / "inputs" / "two.json").read_text() == text
    package.run(tmp_path / "a", out=tmp_path / "b")
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_a_recording_is_stored_with_the_result(tmp_path: Path) -> None:
    scenario = ROOT / "scenarios" / "recorded-hackbench-88.toml"
    package.run(scenario, set={"workload.copies": 2}, out=tmp_path / "a")
    package.run(tmp_path / "a", out=tmp_path / "b")
    a = tree(tmp_path / "a")
    assert a == tree(tmp_path / "b")
    assert a["inputs/hackbench-2cpu.txt.gz"] == (ROOT / "recordings" / "hackbench-2cpu.txt.gz").read_bytes()


SHIPPED = [f for f in sorted((ROOT / "scenarios").glob("*.toml")) if not f.stem.startswith("sweep-")]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda f: f.stem)
def test_shipped_scenarios_run(file: Path) -> None:
    r = package.run(file, horizon_s=0.02)
    assert r.ok, r.summary["outcome_detail"]


def test_a_mapping_is_a_scenario(small: Path) -> None:
    assert package.run(SCENARIO).summary == package.run(small).summary
    with pytest.raises(package.ScenarioInvalid, match=r"^scenario: polcy: unknown key; did you mean policy\?$"):
        package.run({**SCENARIO, "polcy": "x"})
    with pytest.raises(package.ContendError, match="whole number from 0"):
        package.run(SCENARIO, seed=-1)


def test_tables(small: Path) -> None:
    r = package.run(small)
    s = r.summary
    assert isinstance(r["tasks"], pl.DataFrame)
    assert r["tasks"].height == s["tasks"]["count"] == 8
    assert r["cpus"].height == s["cpus"] == 16
    assert r["ledger"]["ns"].sum() == s["cpus"] * s["virtual_ns"]
    accounts = [c for c in r["cpus"].columns if c.endswith("_ns")]
    per_cpu = r["cpus"].select(pl.sum_horizontal(accounts)).to_series()
    assert (per_cpu == s["virtual_ns"]).all()
    assert r["cpus"].select("llc", "node", "core").unique("node").height == 2
    assert set(r["domains"]["idle"].unique()) == {"not_idle", "idle", "newly_idle"}
    wakeups = r["latency"].filter(pl.col("name") == "wakeup")["count"].sum()
    assert wakeups == s["wakeup_latency_us"]["count"]
    assert r["locks"].filter(pl.col("kind") == "rq").height == 16
    assert float(r["tasks"]["runtime_ns"].sum()) / 1e9 == pytest.approx(s["tasks"]["runtime_s"])
    for name in r.tables:
        assert r.to_arrow(name).num_rows == r[name].height
    with pytest.raises(KeyError, match="there are tasks, cpus"):
        r["task"]


def test_a_loaded_result_is_the_same(small: Path, tmp_path: Path) -> None:
    r = package.run(small, out=tmp_path / "r")
    stored = package.load(tmp_path / "r")
    assert stored.summary == r.summary
    assert stored.scenario_toml == r.scenario_toml
    assert all(stored[t].equals(r[t]) for t in r.tables)
    assert "wall_s" not in stored.to_dict()
    assert "wall_s" in r.to_dict()
    assert repr(stored).startswith("<contend.Result finished: hackbench on 2n1l4c2t under linux-6.18")


def test_a_notebook_shows_the_answer(small: Path, tmp_path: Path) -> None:
    run = package.run(small)
    html = run._repr_html_()
    assert html.startswith("<p>&lt;contend.Result finished: hackbench on ")
    assert "The largest loss is " in html
    assert "were runnable without a CPU for " in html
    run.write(tmp_path / "r")
    assert run.explain()["largest_loss"]["account"] in html


def test_results_pass_between_processes(small: Path, tmp_path: Path) -> None:
    run = package.run(small, out=tmp_path / "r")
    for sent in (run, package.load(tmp_path / "r")):
        got = pickle.loads(pickle.dumps(sent))
        assert got.to_dict() == sent.to_dict()
        assert (got.scenario_toml, got.path) == (sent.scenario_toml, sent.path)
        for name in sent.tables:
            assert got[name].equals(sent[name])
    got = pickle.loads(pickle.dumps(package.run(small)))
    assert got.cpu_s > 0
    with pytest.raises(package.ContendError, match="came from another process"):
        got.write(tmp_path / "elsewhere")
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(package.run, small).result().summary == run.summary


def test_the_gil_is_free_while_a_simulation_runs(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(ENDLESS)
    done = threading.Event()
    stop = threading.Event()

    class StopRun(Exception):
        pass

    def progress(*_: object) -> None:
        if stop.is_set():
            raise StopRun

    def simulate() -> None:
        with pytest.raises(StopRun):
            package.run(tmp_path / "e.toml", progress=progress)
        done.set()

    thread = threading.Thread(target=simulate)
    thread.start()
    # A held GIL would let this thread through a few times a second at most.
    longest = 0.0
    for _ in range(200):
        began = time.monotonic()
        time.sleep(0.001)
        longest = max(longest, time.monotonic() - began)
    stop.set()
    thread.join(60)
    assert done.is_set()
    assert longest < 0.5


def test_progress_reports(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(ENDLESS)
    seen: list[tuple[int, int | None, int, int]] = []
    package.run(tmp_path / "e.toml", horizon_s=8, progress=lambda *a: seen.append(a))
    assert seen
    assert all(horizon == 8_000_000_000 and alive == 256 for _, horizon, alive, _ in seen)
    assert [now for now, *_ in seen] == sorted(now for now, *_ in seen)


def test_an_exception_in_progress_stops_the_run(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(ENDLESS)

    def progress(*_: object) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        package.run(tmp_path / "e.toml", progress=progress, out=tmp_path / "r")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["e.toml"]


def test_lists() -> None:
    assert {"intel-2s-44c-88t", "xen-16pcpu-2node"} <= {m["name"] for m in package.list_machines()}
    assert {"hackbench", "rt-app", "recording"} <= {w["name"] for w in package.list_workloads()}
    assert {"cfs", "eevdf", "fifo"} == {p["name"] for p in package.list_policies()}
    assert "linux-6.18" in {p["name"] for p in package.list_presets()}
    assert {"wake_path", "idle_search"} <= {f["name"] for f in package.list_features("linux-3.6")}


@pytest.mark.parametrize("policy", [p["name"] for p in package.list_presets()])
def test_every_preset_runs_and_its_ledger_adds_up(policy: str, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SMALL)
    s = package.run(tmp_path / "s.toml", policy=policy).summary
    if policy == "linux-2.6.37-rowand":
        assert s["outcome"] in ("finished", "corrupt-list", "deadlock"), "the patch's weaknesses are outcomes"
    else:
        assert s["outcome"] == "finished", s["outcome_detail"]
    assert sum(s["ledger_ns"].values()) == s["cpus"] * s["virtual_ns"]
