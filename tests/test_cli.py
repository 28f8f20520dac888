"""The command line, end to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ENDLESS, ROOT, Contend, tree

KEYS = {
    "schema": int,
    "outcome": str,
    "outcome_detail": str,
    "virtual_s": float,
    "wall_s": float,
    "cpu_s": float,
    "cpus": int,
    "dispatches": int,
    "events": int,
    "trace_hash": str,
    "ledger_ns": dict,
    "virtual_ns": int,
    "locks": list,
    "wakeup_latency_us": dict,
    "replay": str,
    "seed": int,
    "machine": str,
    "policy": str,
}
PERCENTILES = ["count", "mean", "p50", "p75", "p90", "p95", "p99", "p99.5", "p99.9", "max"]


def summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def test_run_prints_one_json_object(contend: Contend, small: Path) -> None:
    s = summary(contend("run", small, "--json"))
    for key, kind in KEYS.items():
        assert type(s[key]) is kind, key
    assert s["schema"] == 1
    assert (s["outcome"], s["cpus"], s["machine"], s["seed"]) == ("finished", 16, "2n1l4c2t", 7)
    assert sum(s["ledger_ns"].values()) == s["cpus"] * s["virtual_ns"]
    assert all(type(ns) is int for ns in s["ledger_ns"].values())
    assert s["virtual_ns"] == round(s["virtual_s"] * 1e9)
    assert list(s["wakeup_latency_us"]) == PERCENTILES
    assert {"name", "acquisitions", "contended", "wait_s", "hold_s"} <= set(s["locks"][0])
    assert any(lock["name"].startswith("rq/") for lock in s["locks"])
    assert len(s["trace_hash"]) == 16
    assert s["dispatches"] > 0
    assert s["replay"] == f"contend run {small} --seed 7"


def test_run_says_what_happened(contend: Contend, small: Path) -> None:
    done = contend("run", small)
    assert done.returncode == 0
    assert "hackbench on 2n1l4c2t (16 CPUs) under linux-6.18, seed 7: finished (every task exited)" in done.stdout
    assert done.stderr == ""
    assert contend("run", small, "--quiet").stdout == ""


def test_options_override_the_scenario(contend: Contend, small: Path) -> None:
    options = ["--machine", "4c", "--policy", "linux-3.6", "--seed", "9", "--set", "wake_path=remote-lock"]
    options += ["--set", "workload.loops=3", "--set", "machine.lines.llc=77", "--horizon", "5"]
    s = summary(contend("run", small, *options, "--out", "r", "--json"))
    assert (s["machine"], s["policy"], s["seed"], s["cpus"]) == ("1n1l4c1t", "linux-3.6", 9, 4)
    assert s["set"] == {"wake_path": "remote-lock", "machine.lines.llc": "77"}
    assert s["features"]["wake_path"] == "remote-lock"
    words = ["--machine 4c", "--policy linux-3.6", "--seed 9", "--set wake_path=remote-lock", "--horizon 5"]
    assert all(w in s["replay"] for w in words)


def test_the_replay_command_replays(contend: Contend, small: Path) -> None:
    first = summary(contend("run", small, "--seed", "11", "--set", "workload.loops=7", "--json"))
    again = summary(contend(*first["replay"].split()[1:], "--json"))
    assert again["trace_hash"] == first["trace_hash"]


def test_machine_file_beside_the_scenario(contend: Contend, tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "host.toml").write_text((ROOT / "machines" / "x86_64-2cpu.toml").read_text())
    (deep / "s.toml").write_text('machine = "host.toml"\n[workload]\nkind = "ping-pong"\nround_trips = 10\n')
    assert summary(contend("run", deep / "s.toml", "--json"))["cpus"] == 2
    assert summary(contend("run", deep / "s.toml", "--machine", "a/b/host.toml", "--json"))["cpus"] == 2


def test_rtapp_file_is_a_scenario(contend: Contend, tmp_path: Path) -> None:
    file = tmp_path / "two.json"
    file.write_text('{ /* two tasks */ "tasks": { "t": { "instance": 2, "loop": 10, "run": 1000, "sleep": 1000 } } }')
    s = summary(contend("run", file, "--json"))
    assert (s["outcome"], s["machine"], s["workload"], s["policy"]) == ("finished", "1n1l8c1t", "rt-app", "linux-6.18")
    assert s["tasks"]["count"] == 2


@pytest.mark.parametrize("what", ["machines", "workloads", "policies", "features", "presets"])
def test_list(contend: Contend, what: str) -> None:
    items = json.loads(contend("list", what, "--json").stdout)
    assert items
    assert all(i["name"] and i["doc"] for i in items)
    words = contend("list", what)
    assert words.returncode == 0
    for item in items:
        assert item["name"] in words.stdout


def test_list_features_of_a_preset(contend: Contend) -> None:
    values = {
        policy: {f["name"]: f["value"] for f in json.loads(contend("list", "features", "-p", policy, "--json").stdout)}
        for policy in ("linux-2.6.37", "linux-6.18")
    }
    assert values["linux-2.6.37"]["wake_path"] == "remote-lock"
    assert values["linux-6.18"]["wake_path"] == "ttwu-queue-6.0"


@pytest.mark.parametrize("words", [["machines", "--policy", "nonsense"], ["features", "--machine", "4c"]])
def test_list_refuses_what_it_does_not_read(contend: Contend, words: list[str]) -> None:
    done = contend("list", *words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {words[1]}: found with `list {words[0]}`; should be left out: ")


def test_the_package_lists_what_it_loads_late() -> None:
    import contend as package

    assert set(package.__all__) <= set(dir(package))


def test_explain(contend: Contend, small: Path) -> None:
    assert contend("run", small, "--out", "r", "--quiet").returncode == 0
    said = json.loads(contend("explain", "r", "--json").stdout)
    assert said["outcome"] == "finished"
    assert sum(row["share"] for row in said["ledger"]) == pytest.approx(1)
    assert said["largest_loss"]["account"] not in ("user", "syscall", "idle")
    assert said["largest_loss"]["mechanism"]
    assert [w["max_delay_ns"] for w in said["longest_waits"]] == sorted(
        (w["max_delay_ns"] for w in said["longest_waits"]), reverse=True
    )
    words = contend("explain", "r").stdout
    for heading in ("The largest loss is", "Ledger", "Where wake-ups went", "Wake-up latency", "longest waits"):
        assert heading in words


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_explain_draws(contend: Contend, small: Path, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    assert contend("run", small, "--out", "r", "-q").returncode == 0
    done = contend("explain", "r", "--plot", f"f.{suffix}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"f.{suffix}").stat().st_size > 5000


@pytest.mark.parametrize("name", ["t.pftrace", "t.txt"])
def test_trace(contend: Contend, small: Path, tmp_path: Path, name: str) -> None:
    plain = summary(contend("run", small, "--json"))
    traced = summary(contend("run", small, "--json", "--trace", name))
    assert traced["trace_hash"] == plain["trace_hash"], "a trace changes nothing"
    text = (tmp_path / name).read_bytes()
    if name.endswith(".txt"):
        assert text.startswith(b"# tracer: nop")
        assert text.count(b"sched_switch:") >= plain["dispatches"]
    else:
        pytest.importorskip("perfetto")
        from test_perfetto_decode import check_trace

        check_trace(tmp_path / name)
    assert summary(contend("run", name, "--json"))["workload"] == "recording", "what is written can be read"


DEADLOCK = (
    '{ "tasks": { "a": { "loop": 1, "lock": "m", "sleep": 1000, "run": 10, "wait": {"ref": "c", "mutex": "m"} } } }'
)


def test_a_deadlock_has_its_code_and_replay_command(contend: Contend, tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text(DEADLOCK)
    done = contend("run", "d.json", "--policy", "linux-5.2")
    assert done.returncode == 3, done.stderr
    first, scenario, seed, replay = done.stderr.splitlines()
    assert first.startswith("error: deadlock: a")
    assert "waits for a signal of c" in first
    assert (scenario, seed) == ("  scenario: d.json", "  seed: 1")
    assert replay == "  replay: contend run d.json --policy linux-5.2 --seed 1"
    again = contend(*replay.split()[2:])
    assert (again.returncode, again.stderr) == (3, done.stderr)


def test_a_stall_has_its_code(contend: Contend, tmp_path: Path) -> None:
    # Long enough for the engine to look: it does so every 200,000 events.
    text = (
        'machine = "64c"\npolicy = "fifo"\nstall_s = 0.1\n[workload]\nkind = "hogs"\ntasks = 65\nduration_ms = 60_000\n'
    )
    (tmp_path / "s.toml").write_text(text)
    done = contend("run", "s.toml")
    assert done.returncode == 4, done.stderr
    assert done.stderr.startswith("error: stall: ")
    assert "  replay: contend run s.toml --seed 1" in done.stderr


def test_version_help_and_completion(contend: Contend) -> None:
    assert contend("--version").stdout == "contend 0.1.0\n"
    assert "Exit codes: 0 finished" in contend("run", "--help").stdout
    for shell in ("bash", "zsh", "fish"):
        assert "_CONTEND_COMPLETE" in contend("completion", shell).stdout


def test_completion_knows_names(contend: Contend) -> None:
    words = {
        "COMP_WORDS": "contend run s.toml --policy linux-5",
        "COMP_CWORD": "4",
        "_CONTEND_COMPLETE": "bash_complete",
    }
    assert contend(env=words).stdout.split() == ["plain,linux-5.2", "plain,linux-5.8", "plain,linux-5.15"]


def test_completion_knows_keys(contend: Contend) -> None:
    def completed(begun: str) -> list[str]:
        words = {"COMP_WORDS": f"contend run s.toml --set {begun}", "COMP_CWORD": "4"}
        return contend(env={**words, "_CONTEND_COMPLETE": "bash_complete"}).stdout.split()

    assert completed("wake_p") == ["plain,wake_path="]
    assert completed("kvm.ple_window_g") == ["plain,kvm.ple_window_grow="]
    assert "plain,machine.lines.core=" in completed("machine.lines")
    assert "plain,workload.groups=" in completed("w")


@pytest.mark.parametrize("words", [[], ["xen"], ["bench"]])
def test_a_command_alone_shows_what_there_is(contend: Contend, words: list[str]) -> None:
    done = contend(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: contend ")
    assert done.stderr.rstrip().splitlines()[-1].startswith("  ")


def test_start_is_quick(contend: Contend) -> None:
    began = time.monotonic()
    contend("--version")
    assert time.monotonic() - began < 2


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    words = f"{sys.executable} -m contend list workloads --json"
    done = subprocess.run(
        ["bash", "-c", f"{words} | head -c 1"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""


def test_progress_on_request(contend: Contend, tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(ENDLESS)
    done = contend("run", "e.toml", "--horizon", "10", "--progress", "-q")
    assert done.returncode == 0
    assert "of 10 virtual s" in done.stderr
    assert "s left" in done.stderr
    assert contend("run", "e.toml", "--horizon", "0.01", "-q").stderr == ""


def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(ENDLESS)
    before = tree(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-m", "contend", "run", "e.toml", "--out", "r", "--trace", "t.pftrace"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob(".t.pftrace.partial*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.3)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert time.monotonic() - began < 3
    assert process.returncode == 130
    assert error == "interrupted: nothing was written\n"
    assert tree(tmp_path) == before


def test_ctrl_c_says_how_to_end_a_run_that_goes_on_for_ever(tmp_path: Path) -> None:
    task = {"loop": -1, "run": 1000, "timer": {"ref": "t", "period": 10_000}}
    (tmp_path / "e.json").write_text(json.dumps({"tasks": {"t": task}}))
    command = [sys.executable, "-m", "contend", "run", "e.json", "--machine", "2c", "--progress"]
    for more, last in (
        ((), "the run goes on until its tasks end: `--horizon 10` ends it after 10 virtual seconds\n"),
        (("--horizon", "1e5"), "interrupted: nothing was written\n"),
    ):
        process = subprocess.Popen([*command, *more], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        assert process.stderr.read(40)  # It shows where it stands.
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[1].endswith(last)
        assert process.returncode == 130


def test_a_result_is_replaced_whole_and_nothing_else_is(contend: Contend, small: Path, tmp_path: Path) -> None:
    assert contend("run", small, "--out", "r", "-q").returncode == 0
    first = tree(tmp_path / "r")
    assert contend("run", small, "--out", "r", "-q", "--seed", "8").returncode == 0
    assert tree(tmp_path / "r") != first
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("x")
    done = contend("run", small, "--out", "mine")
    assert done.returncode == 2
    assert done.stderr == (
        "error: mine: cannot be written: the directory exists and is no result; name another or remove it\n"
    )
    assert (tmp_path / "mine" / "precious").read_text() == "x"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "r", "small.toml"]


def test_the_documented_presets_are_the_real_ones() -> None:
    import contend as package

    rows = {}
    for line in (ROOT / "docs" / "presets.md").read_text().splitlines():
        cells = [c.strip() for c in line.strip("| ").split(" | ")]
        if line.startswith("| ") and len(cells) >= 7:
            rows[cells[0]] = cells[1:7]
    columns = rows.pop("preset")
    presets = {p["name"]: {**p["features"], "policy": p["policy"]} for p in package.list_presets()}
    assert rows == {name: [p[c] for c in columns] for name, p in presets.items()}


@pytest.mark.parametrize("words", [["list", "machines"], ["list", "machines", "--json"], ["list", "studies"]])
def test_a_reader_that_went_away(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "contend", *words], stdout=write, stderr=subprocess.PIPE, check=False, timeout=60
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_explain_says_how_much_waiting_was_beside_idle_cpus(tmp_path: Path) -> None:
    import contend as package
    from contend.explain import explain, waiting_sentence

    def said(machine: str, tasks: dict[str, Any]) -> tuple[dict[str, Any], str]:
        file = tmp_path / "load.json"
        file.write_text(json.dumps({"tasks": tasks}))
        run = package.run({"machine": machine, "workload": {"kind": "rt-app", "file": str(file)}})
        whole = explain(run)
        return whole["waiting"], waiting_sentence(whole)

    def hog(name: str, **more: Any) -> dict[str, Any]:
        return {name: {"loop": 1, "run": 100_000, **more}}

    # First two tasks for one CPU, then nothing to do.
    waiting, words = said("1c", {**hog("a"), **hog("b"), "late": {"loop": 1, "delay": 390_000, "run": 10}})
    assert waiting["beside_idle_s_max"] == 0
    assert "none of it while a CPU idled" in words
    waiting, words = said("2c", hog("a"))
    assert words.startswith("1 task was runnable without a CPU for ")
    assert "; it moved 0 times" in words
    # The same two, both on CPU 0 of four: what waits does so beside the others.
    waiting, words = said("4c", {**hog("a", cpus=[0]), **hog("b", cpus=[0])})
    assert waiting["delay_s"] == pytest.approx(0.2, rel=0.1)
    assert waiting["beside_idle_s_max"] == waiting["delay_s"]
    assert "beside idle CPUs or at other times" in words
    # Four for two CPUs, then nothing: two CPUs idle for most of the run, and nobody waited then.
    tasks = {k: v for name in "abcd" for k, v in hog(name).items()}
    waiting, words = said("2c", {**tasks, "late": {"loop": 1, "delay": 390_000, "run": 10}})
    assert waiting["delay_s"] == pytest.approx(0.4, rel=0.1)
    assert 0 < waiting["beside_idle_s_max"] < 0.02
    assert "at most " in words


@pytest.mark.slow
def test_explain_names_limits_of_groups(contend: Contend) -> None:
    assert contend("run", ROOT / "scenarios/cpu-max.toml", "--policy", "linux-5.2", "--out", "r").returncode == 0
    assert "(limits of groups threw some out)" in contend("explain", "r").stdout.replace("\n", " ")
