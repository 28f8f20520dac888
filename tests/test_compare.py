"""`contend compare`: repeats, intervals, verdicts, and where two runs part."""

from __future__ import annotations

import json
import random
import shutil
import tomllib
from pathlib import Path
from typing import Any

import contend as package
import pytest
from conftest import ENDLESS, Contend
from contend.comparing import work
from contend.comparing.comparison import Against
from contend.comparing.divergence import diverge, first_difference
from contend.comparing.statistics import NONE, welch
from contend.quantity import asked

pytestmark = pytest.mark.slow

SCENARIO: dict[str, Any] = {
    "machine": "2n4c2t",
    "seed": 7,
    "workload": {"kind": "hackbench", "groups": 1, "fds": 4, "loops": 20},
}


def stored(contend: Contend, small: Path, name: str, *args: str) -> str:
    done = contend("run", small, "--out", name, "-q", *args)
    assert done.returncode == 0, done.stderr
    return name


@pytest.fixture
def two(contend: Contend, small: Path) -> tuple[str, str]:
    """Results under two wake-up paths."""
    return (
        stored(contend, small, "old", "--set", "wake_path=remote-lock"),
        stored(contend, small, "new", "--set", "wake_path=ttwu-queue-6.0"),
    )


def test_other_work_is_named_and_compared_by_rates() -> None:
    load = {"kind": "ping-pong", "round_trips": 200}
    twice = {**load, "round_trips": 400}
    host = {"machine": "4c", "workload": load}
    [against] = package.compare(host, {**host, "workload": twice}, seeds=2, divergence=False).results
    assert not against.same_work
    assert against.changed == {"workload.round_trips": ["200", "400"]}
    rows = {row.name: row for row in against.rows}
    assert rows["virtual_s"].verdict in ("more", "no spread")
    assert rows["tasks.switches"].unit == "count/s"
    [against] = package.compare(host, dict(host), seeds=2, divergence=False).results
    assert (against.same_work, against.changed) == (True, {})

    def guest(workload: dict[str, Any]) -> dict[str, Any]:
        return {"machine": "4c", "guest": [{"name": "g", "vcpus": 2, "workload": workload}]}

    [against] = package.compare(guest(load), guest(twice), seeds=2, divergence=False).results
    assert (against.same_work, against.changed) == (False, {"g.workload.round_trips": ["200", "400"]})
    hackbench = {"kind": "hackbench", "groups": 1, "fds": 2, "loops": 5}
    [against] = package.compare(guest(load), guest(hackbench), seeds=2, divergence=False).results
    assert (against.same_work, against.changed) == (False, {"guest.workload": ["ping-pong", "hackbench"]})


def against(old: dict[str, Any], new: dict[str, Any], **options: Any) -> Against:
    [found] = package.compare(old, new, seeds=2, divergence=False, **options).results
    return found


def test_guests_have_more_to_do_if_there_are_more_of_them() -> None:
    def host(**keys: Any) -> dict[str, Any]:
        load = {"kind": "ping-pong", "round_trips": 50}
        return {"machine": "4c", "guest": [{"name": "g", "vcpus": 2, "workload": load, **keys}]}

    found = against(host(copies=2), host(copies=4))
    assert (found.same_work, found.changed) == (False, {"g.copies": ["2", "4"]})
    rows = {row.name: row for row in found.rows}
    assert rows["last guest finished"].better == 0, "of other work"
    found = against(host(), host(vcpus=4))
    assert found.same_work, "the same on more CPUs, as on a larger machine"
    assert found.changed["g.vcpus"] == ["2", "4"]
    boot = {"kind": "guest-boot", "serial_ms": 1, "init_us": 100, "service_ms": 1}
    assert not against(host(workload=boot), host(workload=boot, vcpus=4)).same_work, "so much for each CPU"
    assert against(host(), host(name="h")).same_work
    both = {**host(), "guest": [*host()["guest"], *host(name="h")["guest"]]}
    behind = {**host(), "guest": [*host()["guest"], *host(name="h", background=True)["guest"]]}
    found = against(both, behind)
    assert (found.same_work, found.changed) == (False, {"h.background": ["false", "true"]})


def test_files_are_told_apart_by_what_is_in_them(tmp_path: Path) -> None:
    def host(file: str, loops: int) -> dict[str, Any]:
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"tasks": {"a": {"loop": loops, "run": 900, "sleep": 1000}}}))
        return {"machine": "2c", "workload": {"kind": "rt-app", "file": str(path)}}

    few, many, same = host("a/x.json", 5), host("b/x.json", 10), host("c/y.json", 5)
    found = against(few, many)
    assert (found.same_work, list(found.changed)) == (False, ["workload.file"])
    assert len(set(found.changed["workload.file"])) == 2
    found = against(few, same)
    assert (found.same_work, found.changed) == (True, {})
    for name, what in (("few", few), ("many", many), ("same", same)):
        package.run(what, out=tmp_path / "r" / name)
    stored = [package.load(tmp_path / "r" / name) for name in ("few", "many", "same")]
    assert not work.same_work(stored[0], stored[1])
    assert work.same_work(stored[0], stored[2], package.run(few))


GROWING = [
    "dispatches", "events", "tasks.runtime_s", "kvm.halt_wait_ns", "metrics.counts.x.count", "wakeup_latency_us.count",
    "guests.g.exits.HLT", "guests_total.ledger_ns.user", "xen.domains.d.offline_s", "xen.trylocks", "rq.contended",
    "rq.wait_ms", "groups./a.b.bandwidth.nr_periods", "tasks.switches / tasks.count",
]  # fmt: skip
LASTING = [
    "virtual_s", "virtual_ns", "cpus", "rate.x", "latency.x.p99.9", "wakeup_latency_us.p99.9", "ledger_pct.idle",
    "locks.l.wait_max_us", "guests_total.finished_s", "guests_total.steal_pct", "groups.g.runtime_share", "tasks.count",
    "xen.domains.d.weight", "dispatches / virtual_s", "wakeups_per_s", "rq.contended_pct", "probes_per_search",
]  # fmt: skip


def test_counters_and_sums_grow_and_the_rest_does_not() -> None:
    summary = package.run(SCENARIO).summary
    assert {e: asked(summary, e).grows for e in [*GROWING, *LASTING]} == {
        **dict.fromkeys(GROWING, True),
        **dict.fromkeys(LASTING, False),
    }


def test_what_grows_with_time_is_a_rate() -> None:
    def host(ms: int) -> dict[str, Any]:
        return {"machine": "2c", "workload": {"kind": "periodic", "tasks": 4, "duration_ms": ms}}

    metrics = ["engine.interrupts", "dispatches", "tasks.runtime_s", "tasks.count", "wakeups.far_pct"]
    [against] = package.compare(host(100), host(200), seeds=2, metrics=metrics, divergence=False).results
    units = {row.name: row.unit for row in against.rows}
    assert units == {
        "engine.interrupts": "count/s", "dispatches": "count/s", "tasks.runtime_s": "s/s", "tasks.count": "count",
        "wakeups.far_pct": "%",
    }  # fmt: skip
    xen = {
        "machine": "2c",
        "xen": {"scheduler": "credit2"},
        "guest": [{"name": "d", "vcpus": 3, "kernel": False, "workload": {"kind": "hogs", "tasks": 3}}],
    }
    short, long = ({**xen, "horizon_s": s} for s in (0.1, 0.2))
    [against] = package.compare(short, long, seeds=2, divergence=False).results
    assert {row.name: row.unit for row in against.rows}["d: waited"] == "s/s"


def test_two_results(contend: Contend, two: tuple[str, str], tmp_path: Path) -> None:
    done = contend("compare", *two, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    result = said["results"][0]
    assert said["baseline"]["seeds"] == result["seeds"] == [7, 8, 9, 10, 11]
    assert result["changed"] == {"wake_path": ["remote-lock", "ttwu-queue-6.0"]}
    rows = {row["name"]: row for row in result["metrics"]}
    time = rows["virtual_s"]
    own = [package.run(tmp_path / two[0], seed=s).summary["virtual_s"] for s in range(7, 12)]
    assert time["baseline"]["values"] == own
    assert time["interval"][0] < time["difference"] < time["interval"][1]
    assert rows["ledger_ns.rq_lock_wait"]["verdict"] == "better"
    assert rows["ledger_ns.rq_lock_wait"]["interval_pct"][1] < 0
    words = contend("compare", *two).stdout
    for part in ("Changed: wake_path remote-lock -> ttwu-queue-6.0.", "The work took", "the runs part after", "95 %"):
        assert part in words


def test_a_result_and_itself(contend: Contend, two: tuple[str, str]) -> None:
    said = json.loads(contend("compare", two[0], two[0], "--json").stdout)["results"][0]
    assert said["divergence"]["same"]
    assert {row["verdict"] for row in said["metrics"]} == {NONE}
    assert "both are the same run" in contend("compare", two[0], two[0]).stdout


def test_the_same_dispatches_need_not_be_the_same_run(contend: Contend, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'machine = "4c"\n[set]\nspinlock = "ticket"\n[workload]\nkind = "lock-loop"\nlock = "spinlock"\ntasks = 4\n'
        "critical_ns = 1000\npin = true\nduration_ms = 5\n"
    )
    assert contend("run", "s.toml", "--set", "workload.critical_ns=3000", "--out", "r", "-q").returncode == 0
    found = json.loads(contend("compare", "s.toml", "r", "--seeds", "2", "--json").stdout)["results"][0]["divergence"]
    assert (found["same"], found["same_dispatches"]) == (False, True)
    assert found["why"] == "events and ledger_ns differ"
    said = " ".join(contend("compare", "s.toml", "r", "--seeds", "2").stdout.split())
    assert "equal in time, CPU and task, but it is not the same run: events and ledger_ns differ." in said


def test_results_of_a_programs_own_policy(contend: Contend, small: Path, tmp_path: Path) -> None:
    for side in ("theirs", "mine"):
        for seed in (1, 2):
            assert contend("run", small, "--seed", seed, "--out", f"{side}/{seed}", "-q").returncode == 0
    # As `contend::run_with` stores them (crates/contend/tests/own_policy.rs).
    for of in (tmp_path / "mine").iterdir():
        summary = json.loads((of / "summary.json").read_text())
        summary["policy"] = summary["algorithm"] = "mine"
        summary["set"] = {"balance": "off"}
        summary["trace_hash"] = "0" * 16
        (of / "summary.json").write_text(json.dumps(summary))
        scenario = (of / "scenario.toml").read_text()
        (of / "scenario.toml").write_text(scenario.replace("seed =", 'own_policy = "mine"\nseed =', 1))
    said = contend("explain", "mine/1")
    assert "under mine" in said.stdout.replace("\n", " ")
    assert contend("report", "mine/1", "--out", "m.html").returncode == 0
    compared = contend("compare", "theirs", "mine")
    assert compared.returncode == 0, compared.stderr
    printed = " ".join(compared.stdout.split())
    assert "linux-6.18 -> mine" in printed
    assert "mine is a program's own policy, and only that program makes its runs again" in printed
    for words in (["run", "mine/1/scenario.toml"], ["compare", "theirs/1", "mine/1"]):
        refused = contend(*words)
        assert refused.returncode == 2, refused.stdout
        assert 'own_policy: found "mine"; should be left out, or run by the program' in refused.stderr


def test_what_no_seed_changes_has_no_verdict(contend: Contend, tmp_path: Path) -> None:
    # Seeds draw when CPUs balance, so one CPU it is.
    base = {"machine": "1c", "horizon_s": 0.05, "workload": {"kind": "rt-app", "file": str(tmp_path / "a.json")}}
    (tmp_path / "a.json").write_text('{ "tasks": { "a": { "loop": 20, "run": 900, "sleep": 1000, "instance": 5 } } }')
    found = package.compare(base, {**base, "set": {"base_slice_ns": 5_000_000}}, seeds=3)
    result = found.results[0]
    assert not result.spread
    rows = {row.name: row for row in result.rows}
    assert rows["tasks.delay_s"].verdict == "no spread"
    assert rows["tasks.delay_s"].to_dict()["interval"] is None
    assert set(found.frame()["low"]) == {None}
    for policy in ("linux-6.6", "linux-6.18"):
        scenario = f'machine = "1c"\npolicy = "{policy}"\n[workload]\nkind = "rt-app"\nfile = "a.json"\n'
        (tmp_path / f"{policy}.toml").write_text(scenario)
    text = contend("compare", "linux-6.6.toml", "linux-6.18.toml", "--seeds", "2").stdout
    assert "No seed changes these runs" in text
    assert "no intervals, as no number varies" in text
    assert "by chance" not in text


def test_a_number_that_no_seed_changes_has_no_verdict_beside_others_that_vary() -> None:
    base = {"machine": "1n1l4c2t", "workload": {"kind": "hackbench", "groups": 2, "fds": 5, "loops": 20}}
    found = package.compare(base, {**base, "machine": "1n1l2c2t"}, seeds=3, metrics=["cpus", "virtual_s"])
    fixed, varying = found.results[0].rows
    assert (fixed.verdict, fixed.to_dict()["interval"]) == ("no spread", None)
    assert varying.verdict == "worse"
    with pytest.raises(package.ContendError, match="metrics: found 3; should be text"):
        package.compare(base, base, metrics=[3])  # type: ignore[list-item]
    with pytest.raises(package.ContendError, match="seeds and vary_machine: should be one of them"):
        package.compare(base, base, seeds=7, vary_machine=3)


def test_costs_of_the_machine_vary(contend: Contend, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{ "tasks": { "a": { "loop": 20, "run": 900, "sleep": 1000, "instance": 5 } } }')
    (tmp_path / "s.toml").write_text(
        'machine = "2c"\n[workload]\nkind = "rt-app"\nfile = "a.json"\n[set]\n"machine.cpu.context_switch" = 500\n'
    )
    old = str(tmp_path / "s.toml")
    new = {**tomllib.loads(Path(old).read_text()), "set": {"wake_path": "remote-lock"}}
    new["workload"]["file"] = str(tmp_path / "a.json")
    found = package.compare(old, new, vary_machine=4, metrics=["virtual_s", "wakeup_latency_us.mean"])
    drawn, others = found.baseline.side.costs, found.results[0].runs.side.costs
    assert list(drawn) == [2, 3, 4, 5], "the first run is under the machine's own costs"
    ranges = {f"machine.{c['name']}": c for c in package.list_costs("2c") if c["lo"] < c["hi"]}
    fixed = "machine.cpu.context_switch"
    assert ranges.keys() == others[2].keys() == {*drawn[2], fixed}, "what a scenario sets is certain"
    assert all(ranges[k]["lo"] <= v <= ranges[k]["hi"] for costs in others.values() for k, v in costs.items())
    assert all(drawn[s][k] == others[s][k] for s in drawn for k in drawn[s]), "both sides share them"
    row = {r.name: r for r in found.results[0].rows}["wakeup_latency_us.mean"]
    assert row.baseline
    assert row.result
    assert row.difference
    own = [package.run(old, seed=s, set=drawn.get(s)).summary["wakeup_latency_us"]["mean"] for s in range(1, 6)]
    assert list(row.baseline.values) == own
    assert len(set(own)) > 1
    pairs = [b - a for a, b in zip(row.baseline.values, row.result.values, strict=True)]
    assert (row.difference.value, row.difference.low, row.difference.high) == (pairs[0], min(pairs), max(pairs))
    assert found.to_dict()["confidence"] == 0.6
    replay = found.baseline.side.command(3)
    assert replay
    assert f"--set machine.kernel.syscall={drawn[3]['machine.kernel.syscall']}" in replay
    done = contend("compare", old, old, "--vary-machine", "2")
    assert "Under the machine's own costs, and 2 draws of them" in done.stdout
    assert "the 3 pairs of runs" in done.stdout


def test_costs_that_cannot_vary(contend: Contend, small: Path) -> None:
    both = contend("compare", small, small, "--seeds", "3", "--vary-machine", "3")
    assert both.returncode == 2
    assert "--seeds and --vary-machine: should be one of them" in both.stderr
    stored(contend, small, "a/1", "--seed", "1")
    stored(contend, small, "a/2", "--seed", "2")
    assert "a is a directory of results, which are taken as they are" in contend(
        "compare", "a", small, "--vary-machine", "3"
    ).stderr  # fmt: skip


def test_repeats_are_taken_as_they_are(contend: Contend, small: Path, tmp_path: Path) -> None:
    for name, path in (("a", "remote-lock"), ("b", "ttwu-queue-6.0")):
        for seed in ("3", "5", "9"):
            stored(contend, small, f"{name}/{seed}", "--seed", seed, "--set", f"wake_path={path}")
    found = package.compare(tmp_path / "a", tmp_path / "b", metrics=["virtual_s", "ledger"])
    assert list(found.baseline.ended) == [3, 5, 9]
    assert found.results[0].divergence is not None
    assert found.results[0].divergence.seed == 3
    assert {row.group for row in found.results[0].rows} == {"run", "ledger"}
    frame = found.frame()
    assert frame.height == len(found.results[0].rows)
    row = frame.row(0, named=True)
    assert row["low_pct"] <= row["difference_pct"] <= row["high_pct"]
    # The other side runs under the baseline's seeds or its own; a scenario is run anew.
    mixed = package.compare(tmp_path / "a", small, seeds=2, divergence=False)
    assert list(mixed.results[0].runs.ended) == [3, 4]
    # What is not a repeat is refused.
    stored(contend, small, "a/other", "--seed", "11")
    done = contend("compare", "a", "b")
    assert done.returncode == 2
    assert "a/other/scenario.toml: differs from a/3/scenario.toml in more than the seed" in done.stderr
    shutil.rmtree(tmp_path / "a/other")
    shutil.copytree(tmp_path / "a/3", tmp_path / "a/3-again")
    assert "seed = 3 is in a/3 too" in contend("compare", "a", "b").stderr


def test_where_runs_part() -> None:
    changed = {**SCENARIO, "set": {"wake_path": "remote-lock"}}
    old, new = package.run(SCENARIO).summary, package.run(changed).summary
    found = diverge(SCENARIO, changed, (old, new), 7)
    assert found.found
    assert found.baseline is not None
    assert found.result is not None
    assert (found.baseline.time_s, found.baseline.text) != (found.result.time_s, found.result.text)
    assert found.events > 0
    assert found.before[-1].time_s <= found.time_s
    assert found.compared_s < old["virtual_s"], "a short trace was enough"
    assert diverge(SCENARIO, SCENARIO, (old, old), 7).same
    other = {**SCENARIO, "machine": "4c"}
    assert "16 and 4 CPUs" in str(diverge(SCENARIO, other, (old, package.run(other).summary), 7).why)


def test_a_short_trace_is_the_beginning_of_a_long_one(tmp_path: Path) -> None:
    package.run(SCENARIO, trace=tmp_path / "whole.txt")
    package.run(SCENARIO, trace=tmp_path / "part.txt", horizon_s=1e-4)
    whole, part = (
        [line for line in (tmp_path / f"{name}.txt").read_text().splitlines() if not line.startswith("#")]
        for name in ("whole", "part")
    )
    assert 0 < len(part) < len(whole)
    assert whole[: len(part)] == part
    equal, _, a, b = first_difference(tmp_path / "whole.txt", tmp_path / "part.txt")
    assert (equal, b) == (len(part), None)
    assert a is not None


def test_task_numbers_do_not_part_runs(tmp_path: Path) -> None:
    line = "   <idle>-0 [000] d..2.     0.000001099: sched_wakeup_new: comm=a pid={} prio=120 target_cpu=000\n"
    (tmp_path / "a").write_text("# tracer: nop\n" + line.format(1))
    (tmp_path / "b").write_text("# tracer: nop\n#\n" + line.format(31))
    assert first_difference(tmp_path / "a", tmp_path / "b") == (1, [line.format(1)], None, None)
    (tmp_path / "b").write_text(line.format(31).replace("[000]", "[001]"))
    assert first_difference(tmp_path / "a", tmp_path / "b")[0] == 0


def test_welch_is_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    a, b = [5.1, 4.9, 5.6, 5.2], [4.0, 4.4, 3.1, 4.2, 4.8]
    interval = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    mine = welch(a, b)
    assert (mine.low, mine.high) == pytest.approx((interval.low, interval.high))
    assert (mine.verdict(1), mine.verdict(-1), mine.verdict(0)) == ("better", "worse", "more")
    assert welch([1.0, 1.0], [1.0, 1.0]).verdict(1) == NONE
    assert welch([2.0, 2.0], [1.0, 1.0]).verdict(-1) == "worse"
    assert welch([1.0, 2.0], [0.0, 0.0]).pct(1.0) is None


def test_intervals_cover_as_they_say() -> None:
    random.seed(1)
    draws = [welch([random.gauss(3, 2) for _ in range(5)], [random.gauss(2, 1) for _ in range(5)]) for _ in range(2000)]
    covered = sum(d.low <= 1 <= d.high for d in draws) / len(draws)
    assert 0.935 < covered < 0.97


def test_runs_that_fail_are_named(contend: Contend, tmp_path: Path) -> None:
    deadlock = '{ "tasks": { "a": { "loop": 1, "lock": "m", "run": 10, "wait": {"ref": "c", "mutex": "m"} } } }'
    (tmp_path / "d.json").write_text(deadlock)
    done = contend("compare", "d.json", "d.json", "--seeds", "2")
    assert done.returncode == 3
    assert "2 of 2 runs failed" in done.stdout
    assert "replay: contend run d.json --seed 1" in done.stderr


def test_three_results_and_a_picture(contend: Contend, two: tuple[str, str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = contend("compare", *two, two[0], "--seeds", "2", "--plot", "c.png", "--metric", "virtual_s")
    assert done.returncode == 0, done.stderr
    assert "result 2: old" in done.stdout
    assert (tmp_path / "c.png").stat().st_size > 5000


WRONG = [
    (["old"], "RESULT... is missing"),
    (["old", "nowhere"], "nowhere: cannot be read: No such file or directory"),
    (["old", "empty"], "empty: found a directory without results"),
    (["old", "new", "--seeds", "1"], "found '1'; should be a whole number from 2 to 10,000"),
    (["old", "new", "--jobs", "0"], "found '0'; should be a whole number from 1 to 4,096"),
    (["old", "new", "--metric", "virtual_x.y"], "--metric: found 'virtual_x.y', not a number of a run's summary"),
    (["old", "new", "--metric", "tasks.swiches"], "did you mean tasks.switches?"),
    (["old", "new", "--metric", "rate.nothing"], "no run has 'rate.nothing'"),
    (["old", "new", "--plot", "x.gif"], "should end in .png, .svg or .pdf"),
]


@pytest.mark.parametrize(("args", "message"), WRONG, ids=[m for _, m in WRONG])
def test_wrong_input(contend: Contend, two: tuple[str, str], tmp_path: Path, args: list[str], message: str) -> None:
    (tmp_path / "empty").mkdir()
    done = contend("compare", *args)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_ctrl_c(tmp_path: Path) -> None:
    import signal
    import subprocess
    import sys
    import time

    (tmp_path / "e.toml").write_text(ENDLESS)
    process = subprocess.Popen(
        [sys.executable, "-m", "contend", "compare", "e.toml", "e.toml"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "interrupted: nothing was written\n")


def test_arguments_that_are_wrong(tmp_path: Path, small: Path) -> None:
    for jobs in (-1, 0, 1.5):
        with pytest.raises(package.ContendError, match=r"--jobs: found .*; should be a whole number, 1 or more"):
            package.compare(small, small, jobs=jobs)  # type: ignore[arg-type]
    with pytest.raises(package.ContendError, match="--metric: no run has 'nope'"):
        package.compare(small, small, seeds=2, metrics="nope", divergence=False)


def test_one_metric_and_the_direction_of_elapsed_time(small: Path) -> None:
    (against,) = package.compare(small, small, seeds=2, metrics="rate.run_ns", divergence=False).results
    assert [(r.name, r.better) for r in against.rows] == [("rate.run_ns", 0)]
    (against,) = package.compare(small, small, seeds=2, metrics="rate.messages", divergence=False).results
    assert [(r.name, r.better) for r in against.rows] == [("rate.messages", 1)]
