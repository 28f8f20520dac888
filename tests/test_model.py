"""Models and validation: recordings of the repository through `contend model`, `contend validate` and `contend run`."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path

import contend as package
import polars as pl
import pytest
from click.testing import CliRunner
from conftest import ROOT, Contend
from contend.explain import explain
from contend.modelling import validate as validating

MAKE = ROOT / "recordings" / "make-a.rec"
PGBENCH = ROOT / "recordings" / "pgbench-a.rec"
HACKBENCH = ROOT / "recordings" / "hackbench-2cpu.txt.gz"


def test_a_build_is_seen_as_jobs() -> None:
    said = package.model(MAKE)
    assert said["form"] == "exact"
    (jobs,) = said["jobs"]
    assert jobs["dispatcher"] == "make"
    assert jobs["limit"] == 2  # make -j2
    assert jobs["for_slots"] + jobs["after_one"] + jobs["after_all"] == jobs["jobs"] >= 10
    assert jobs["after_all"] >= 1  # the archive or the link
    assert any("make ran at most 2" in limit for limit in said["limits"])
    assert {s["why"] for s in said["sleeps"]} >= {"task", "io"}


def test_more_jobs_use_more_cpus() -> None:
    # Two slots on two CPUs, two on 88, 88 on 88: the recording's limit is the limit until it is moved.
    def length(**keys: int) -> float:
        result = package.run(
            MAKE, machine="intel-2s-44c-88t", policy="linux-6.18", set={f"workload.{k}": v for k, v in keys.items()}
        )
        assert result.outcome == "finished"
        return float(result.summary["virtual_s"])

    recorded, two, wide = length(), length(jobs=2), length(jobs=88)
    assert two == pytest.approx(recorded, rel=0.25)
    assert wide < 0.6 * two
    (jobs,) = package.model(MAKE)["jobs"]
    assert wide > jobs["longest_s"] * 0.9, "no job is faster than its CPU time"


def test_both_forms_run(tmp_path: Path) -> None:
    for form in ("toml", "arrow"):
        out = tmp_path / f"make.{form}"
        package.model(MAKE, out=out)
        result = package.run(out, machine="4c")
        assert result.outcome == "finished"
        assert result.summary["workload"] == "model"
        # The same work, exactly or about.
        recorded = package.run(MAKE, machine="4c")
        ratio = result.ledger()["user"] / recorded.ledger()["user"]
        assert ratio == pytest.approx(1.0, rel=1e-9 if form == "arrow" else 0.5), form
        timeouts = result.summary["metrics"]["counts"].get("model_timeouts", {"count": 0})["count"]
        assert timeouts <= 0.05 * result.summary["tasks"]["switches"]
        wide = package.run(out, machine="16c", set={"workload.jobs": 16, "workload.copies": 2, "workload.speed": 2})
        assert wide.outcome == "finished"
        assert wide.summary["virtual_s"] < result.summary["virtual_s"]


def test_a_fitted_model_keeps_requests_and_replies(tmp_path: Path) -> None:
    out = tmp_path / "pg.toml"
    said = package.model(PGBENCH, out=out)
    roles = {r["name"]: r for r in said["roles"]}
    (server,) = [name for name, r in roles.items() if r["serves"]]
    asking = [e for r in roles.values() for e in r["ends"] if e["by"] == "ask"]
    assert len(asking) == 2, "both of pgbench's threads"
    assert all((e["role"], e["share"] > 0.5, e["open"] >= 1) == (server, True, True) for e in asking)
    machine = str(PGBENCH / "machine.toml")
    exact, fitted = (package.run(what, machine=machine, policy="linux-6.18") for what in (PGBENCH, out))
    assert fitted.outcome == "finished"
    assert fitted.summary["metrics"]["counts"]["model_timeouts"]["count"] < 0.01 * fitted.summary["tasks"]["switches"]
    assert fitted.ledger()["user"] == pytest.approx(exact.ledger()["user"], rel=0.1)
    assert fitted.summary["virtual_s"] == pytest.approx(exact.summary["virtual_s"], rel=0.4)
    waited = ["every task that the run waits for exited, 6 others did not", "every task exited"]
    assert [explain(result)["outcome_meaning"] for result in (fitted, exact)] == waited


def test_an_exact_model_is_the_replay(tmp_path: Path) -> None:
    out = tmp_path / "pg.arrow"
    package.model(PGBENCH, out=out)
    machine = str(PGBENCH / "machine.toml")
    replay = package.run(PGBENCH, machine=machine, policy="linux-6.18")
    model = package.run(out, machine=machine, policy="linux-6.18")
    assert model.summary["trace_hash"] == replay.summary["trace_hash"]


def test_an_exact_model_can_be_edited(tmp_path: Path) -> None:
    out = tmp_path / "make.arrow"
    package.model(MAKE, out=out)
    steps = pl.read_ipc(out)
    assert steps.columns == ["task", "step", "ns", "why", "peer"]
    assert set(steps["step"].unique()) == {"run", "kernel", "sleep", "post", "spawn", "exec", "yield"}


def test_a_fitted_model_reads_back_the_same(tmp_path: Path) -> None:
    out, again = tmp_path / "a.toml", tmp_path / "b.toml"
    package.model(PGBENCH, out=out)
    package.model(out, out=again)
    assert out.read_bytes() == again.read_bytes()


def test_models_in_a_guest(tmp_path: Path) -> None:
    package.model(MAKE, out=tmp_path / "make.toml")
    scenario = tmp_path / "vm.toml"
    scenario.write_text(
        'machine = "8c"\n[[guest]]\nvcpus = 8\n[guest.workload]\nkind = "model"\nfile = "make.toml"\njobs = 8\n'
    )
    result = package.run(scenario)
    assert result.outcome == "finished"
    assert result.summary["guests"][0]["finished_s"] > 0


def test_rt_app_files_run(tmp_path: Path) -> None:
    out = tmp_path / "make.json"
    package.model(MAKE, out=out)
    result = package.run(out, machine="4c", horizon_s=20)
    assert result.ok
    assert any(t.startswith("make") for t in result["tasks"]["name"])


def test_validation_compares_both_sides() -> None:
    said = package.validate(PGBENCH)
    assert said["outcome"] == "finished"
    assert said["policy"] == "linux-6.18"
    for key, c in said["compared"].items():
        assert c["recorded"] > 0, key
        assert c["simulated"] > 0, key
    assert {t["name"] for t in said["tasks"]} >= {"other", "pgbench"}  # the server was not the command's: --private
    # Not how good it is, but that it is no nonsense: within a factor of three.
    for key in ("switches_per_s", "wakeup_p50_us", "wakeup_p99_us", "run_p50_us", "busy"):
        c = said["compared"][key]
        assert 1 / 3 < c["simulated"] / c["recorded"] < 3, (key, c)


def test_who_gave_way_is_not_called_preempted(contend: Contend) -> None:
    said = contend("validate", ROOT / "recordings" / "sysbench-a.rec").stdout
    assert "of which preemptions 8883, yields 13721;" in said  # of 33,155
    assert re.search(r"of them still runnable +68\.2 %", said), said


def test_held_out_recordings_are_replayed_as_truly_as_promised() -> None:
    """The goals of docs/recordings.md. Made after what replays them: to be looked at when that changes, not fitted."""
    recordings = sorted((ROOT / "recordings" / "held-out").glob("*.rec"))
    assert len(recordings) == 30
    said = [package.validate(recording) for recording in recordings]
    assert {one["outcome"] for one in said} == {"finished"}
    middle = validating.medians(said)
    goals = {"switches_per_s": ("error_pct", 15), "wakeup_p50_us": ("error_pct", 25), "wakeup_p99_us": ("factor", 2)}
    for key, (measure, goal) in goals.items():
        error = middle[key][measure]
        assert error is not None, key
        assert error <= goal, (key, error)
    for one in said:
        recorded, replayed = (one["all"][side]["seconds"] for side in ("recorded", "simulated"))
        assert 0.6 * recorded < replayed < 1.6 * recorded, one["recording"]


@pytest.mark.parametrize("name", ["pthread", "openmp", "condition"])
def test_recorded_barriers_keep_their_rounds(name: str, tmp_path: Path) -> None:
    said = package.validate(ROOT / "recordings" / "barriers" / f"{name}.rec")
    assert said["outcome"] == "finished"
    # With waits for who came last in the recording the first two were 44 and 27 % off.
    recorded, replayed = said["all"]["recorded"], said["all"]["simulated"]
    assert abs(replayed["switches_per_s"] / recorded["switches_per_s"] - 1) < 0.25
    assert abs(replayed["wakeup_latency_us"]["p50"] / recorded["wakeup_latency_us"]["p50"] - 1) < 0.26
    fitted = tmp_path / "m.toml"
    package.model(ROOT / "recordings" / "barriers" / f"{name}.rec", out=fitted)
    ends = [end for role in tomllib.loads(fitted.read_text())["role"] for end in role.get("ends", [])]
    parties = {"pthread": 4, "openmp": 6, "condition": 5}[name]
    assert {end["parties"] for end in ends if end["by"] == "barrier"} == {parties}


def test_validation_says_who_waits_for_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {**package.validate(HACKBENCH, machine="2c"), "outcome": "deadlock", "outcome_detail": "a waits for b"}
    monkeypatch.setattr(validating, "validate", lambda *_, **__: said)
    for args in ([str(HACKBENCH)], [str(HACKBENCH), "--json"], [str(HACKBENCH), str(HACKBENCH)]):
        done = CliRunner().invoke(validating.command, args, standalone_mode=False)
        assert done.return_value == 3
        assert f"error: {HACKBENCH}: deadlock: a waits for b" in done.stderr


def test_a_task_that_was_never_woken_has_no_latency(contend: Contend) -> None:
    said = contend("validate", str(ROOT / "recordings" / "held-out" / "make.rec")).stdout
    lines = {line.split()[0]: line for line in said.splitlines() if line.startswith(" ") and line.split()}
    assert lines["as"].split().count("none") == 2, said
    assert not re.search(r"\b0\.0 us", lines["as"]), said


def test_errors_name_the_recording_s_file(contend: Contend, tmp_path: Path) -> None:
    recording = tmp_path / "x.rec"
    shutil.copytree(ROOT / "recordings" / "pgbench-c.rec", recording)
    (recording / "sessions.toml").write_text("[sessions]\nx y z\n")
    damaged = "error: x.rec/sessions.toml:2: not valid TOML: key with no value, expected `=`\n"
    for args in (["run"], ["model"], ["validate"], ["validate", MAKE]):
        assert contend(*args, "x.rec").stderr == damaged, args
    (tmp_path / "s.toml").write_text('machine = "2c"\n[workload]\nkind = "recording"\nfile = "x.rec"\n')
    assert "x.rec/sessions.toml:2: not valid TOML: key with no value" in contend("run", "s.toml").stderr
    (recording / "trace.dat.gz").unlink()
    for args in (["run"], ["model"], ["validate"]):
        gone = "error: x.rec/trace.dat.gz: cannot be read: No such file or directory\n"
        assert contend(*args, "x.rec").stderr == gone, args


@pytest.mark.parametrize("recording", ["make-a.rec", "make-b.rec"])
def test_fewer_jobs_than_recorded(recording: str) -> None:
    path = ROOT / "recordings" / recording
    result = package.run(path, set={"workload.jobs": 1})
    assert result.outcome == "finished", result.summary["outcome_detail"]
    assert result.summary["virtual_s"] > package.run(path).summary["virtual_s"]


def test_locks_of_the_recorded_kernel(contend: Contend, tmp_path: Path) -> None:
    locks = package.model(PGBENCH)["recorded_locks"]
    assert {"spinlock", "mutex"} & {lock["kind"] for lock in locks}
    assert [lock["wait_s"] for lock in locks] == sorted((lock["wait_s"] for lock in locks), reverse=True)
    assert locks[0]["lock"] == 1
    assert locks[0]["address"].startswith("0x")
    assert all(0 < lock["wait_max_us"] <= lock["wait_s"] * 1e6 * 1.000001 for lock in locks)
    everybody = package.model(PGBENCH, all=True)["recorded_locks"]
    assert sum(lock["contended"] for lock in everybody) > sum(lock["contended"] for lock in locks)
    assert package.validate(PGBENCH)["recorded_locks"] == locks
    result = package.run(PGBENCH, out=tmp_path / "result")
    assert result.summary["recorded_locks"] == locks
    assert not package.run({"machine": "2c", "workload": {"kind": "ping-pong"}}).summary["recorded_locks"]
    words = "Contended locks of the recorded kernel"
    for command in (("model", PGBENCH), ("validate", PGBENCH), ("explain", tmp_path / "result")):
        said = contend(*command).stdout
        assert words in said
        assert "total wait" in said
    done = contend("report", tmp_path / "result", "--out", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert words in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schema = 1\nform = 'fitted'\n", "missing field `source`"),
        ("schema = 9\nform = 'fitted'\nrole = []\n[source]\nrecording = 'x'\ncpus = 2\nspan_ns = 1\n", "schema = 9"),
        (
            "schema = 1\nform = 'fitted'\n[source]\nrecording = 'x'\ncpus = 2\nspan_ns = 1\n"
            "[[role]]\nname = 'a'\ntasks = 1\nturns = [1, 2]\nrun_us = [5]\n",
            "one value, or nine",
        ),
        (
            "schema = 1\nform = 'fitted'\n[source]\nrecording = 'x'\ncpus = 2\nspan_ns = 1\n"
            "[[role]]\nname = 'a'\ntasks = 1\nturns = [1]\nrun_us = [5]\nstarts = [{ role = 'a', per_life = 2 }]\n",
            "start themselves",
        ),
        (
            "schema = 1\nform = 'fitted'\n[source]\nrecording = 'x'\ncpus = 2\nspan_ns = 1\n"
            "[[role]]\nname = 'a'\ntasks = 1\nturns = [3]\nrun_us = [5]\n"
            "ends = [{ by = 'tsk', share = 1.0, us = [1] }]\n",
            "one of task, timer, io",
        ),
        (
            "schema = 1\nform = 'fitted'\n[source]\nrecording = 'x'\ncpus = 2\nspan_ns = 1\n"
            "[[role]]\nname = 'a'\ntasks = 1\nturns = [3]\nrun_us = [5]\n"
            "ends = [{ by = 'ask', role = 'a', share = 1.0, us = [1] }]\n",
            'role "a": ends.open: found 0; should be 1 or more',
        ),
        (
            "schema = 1\nform = 'fitted'\n[source]\nrecording = 'x'\ncpus = 2\nspan_ns = 1\n"
            "[[role]]\nname = 'a'\ntasks = 1\nturns = [3]\nrun_us = [5]\n"
            "[[role]]\nname = 'b'\ntasks = 1\nserves = true\nturns = [3]\nrun_us = [5]\n",
            'role "b": serves: found true; should be left out: no role asks it',
        ),
        (
            "schema = 1\nform = 'fitted'\n[source]\nrecording = 'x'\ncpus = 2\nspan_ns = 1\n"
            "[[role]]\nname = 'a'\ntasks = 2\nturns = [3]\nrun_us = [5]\n"
            "ends = [{ by = 'barrier', share = 1.0, us = [1] }]\n",
            'role "a": ends.parties: found 0; should be 2 or more',
        ),
        (
            "schema = 1\nform = 'fitted'\n[source]\nrecording = 'x'\ncpus = 2\nspan_ns = 1\n"
            "[[role]]\nname = 'a'\ntasks = 2\nturns = [3]\nrun_us = [5]\n"
            "ends = [{ by = 'barrier', share = 1.0, parties = 3, us = [1] }]\n",
            "role.ends.parties: found 3; should be at most 2",
        ),
    ],
)
def test_wrong_models_say_what_would_be_right(contend: Contend, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    done = contend("run", file)
    assert done.returncode == 2
    assert said in done.stderr, done.stderr
    assert "wrong.toml" in done.stderr


def test_damaged_columns_are_refused(contend: Contend, tmp_path: Path) -> None:
    out = tmp_path / "make.arrow"
    package.model(MAKE, out=out)
    whole = out.read_bytes()
    for cut in (6, 100, len(whole) // 2, len(whole) - 3):
        out.write_bytes(whole[:cut])
        done = contend("run", out)
        assert done.returncode == 2, cut
        assert "make.arrow" in done.stderr
    # A table of somebody else's.
    pl.DataFrame({"task": [1]}).write_ipc(out)
    done = contend("run", out)
    assert (done.returncode, "contend_model" in done.stderr) == (2, True)


def test_the_command_line(contend: Contend, tmp_path: Path) -> None:
    out = tmp_path / "hb.toml"
    done = contend("model", HACKBENCH, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "hackbench" in done.stdout
    assert f"contend run {out}" in done.stdout
    done = contend("model", HACKBENCH, "--out", tmp_path / "x.csv")
    assert done.returncode == 2
    assert ".toml (fitted), .arrow (exact) or .json (rt-app)" in done.stderr
    assert not (tmp_path / "x.csv").exists()
    done = contend("run", HACKBENCH, "--machine", "8c", "--jobs", "8")
    assert done.returncode == 2
    assert "make -j and xargs -P" in done.stderr
    done = contend("run", HACKBENCH, "--machine", "8c", "--copies", "2", "--speed", "4", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["tasks"]["count"] == 2 * 81
    done = contend("validate", ROOT / "scenarios" / "hackbench-88.toml")
    assert done.returncode == 2
    assert "a recording" in done.stderr
