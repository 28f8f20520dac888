"""`contend record`, end to end on this machine's kernel; and its parts where that needs no rights."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import contend as package
import pytest
from conftest import ROOT, Contend
from contend import ContendError
from contend.record import events, kernel, pages, store, tracefs

pytestmark = pytest.mark.slow

INSTANCES = Path("/sys/kernel/tracing/instances")


def _tracefs() -> str | None:
    """Why tracefs cannot be used here; None if it can."""
    if sys.platform != "linux":
        return "Linux only"
    if os.geteuid() != 0:
        return "needs root"
    if not INSTANCES.is_dir():
        return "tracefs is not mounted (mount -t tracefs nodev /sys/kernel/tracing)"
    probe = INSTANCES / f"contend-test-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as e:
        return f"no trace instance can be made here: {e.strerror}"
    return None


NO_TRACEFS = _tracefs()
with_tracefs = pytest.mark.skipif(NO_TRACEFS is not None, reason=NO_TRACEFS or "")
with_trace_cmd = pytest.mark.skipif(shutil.which("trace-cmd") is None, reason="trace-cmd is not installed")
COMMAND = ["sh", "-c", "sleep 0.05; /bin/ls / >/dev/null; exit 3"]


@pytest.fixture(autouse=True)
def one_at_a_time() -> Iterator[None]:
    """Another worker's recorder has an instance too, and removes what a killed one left."""
    with Path(__file__).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def left_over() -> list[str]:
    """Instances of recorders, but for those of other containers."""
    return [p.name for p in INSTANCES.glob(f"contend-{tracefs.namespace()}-*")]


def recording(path: Path) -> dict[str, object]:
    """What recording.toml says."""
    return tomllib.loads((path / "recording.toml").read_text())


def files_of(path: Path) -> list[str]:
    """What a recording's directory holds, besides the sessions: there may be some at one time and none at another."""
    return sorted(p.name for p in path.iterdir() if p.name != store.SESSIONS)


def report(file: Path) -> list[str]:
    """Events as trace-cmd prints them."""
    done = subprocess.run(["trace-cmd", "report", "-i", str(file)], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if not line.startswith("cpus=")]


@with_tracefs
@with_trace_cmd
def test_a_recording_holds_what_the_kernel_did(contend: Contend, tmp_path: Path) -> None:
    done = contend("record", "--out", "a.rec", "--", *COMMAND)
    assert (done.returncode, done.stderr) == (0, "")
    assert "a.rec: " in done.stdout and " of 3 tasks in " in done.stdout and "; 0 lost." in done.stdout
    assert "exit status was 3" in done.stdout and "contend run a.rec --machine" in done.stdout
    assert left_over() == []
    assert [p.name for p in tmp_path.iterdir()] == ["a.rec"]
    assert files_of(tmp_path / "a.rec") == ["machine.toml", "recording.toml", "trace.dat"]

    said = recording(tmp_path / "a.rec")
    assert said["schema"] == 1 and said["file"] == "trace.dat" and said["command"] == COMMAND
    assert (said["exit_status"], said["tasks"], said["lost"], said["clock"]) == (3, 3, 0, "mono")
    assert 0.05 <= float(str(said["duration_s"])) < 30
    lines = report(tmp_path / "a.rec/trace.dat")
    assert len(lines) == said["events"]
    # The recorder starts the command, which starts the others.
    execs = [line.split("filename=")[1].split()[0] for line in lines if "sched_process_exec" in line]
    assert [Path(name).name for name in execs if Path(name).name in ("sh", "sleep", "ls")] == ["sh", "sleep", "ls"]
    assert any("sched_process_fork" in line and line.split()[0].startswith("contend-record-") for line in lines)


@with_tracefs
def test_it_is_a_scenario_with_its_machine(contend: Contend, tmp_path: Path) -> None:
    done = contend("record", "--out", "a.rec", "--", *COMMAND)
    assert done.returncode == 0, done.stderr
    costs = contend("list", "costs", "--machine", "a.rec/machine.toml", "--json")
    assert costs.returncode == 0, costs.stderr
    machine = tomllib.loads((tmp_path / "a.rec/machine.toml").read_text())
    speed = machine["cpu"]["speed"]
    assert 10 < speed["lo"] <= speed["value"] <= speed["hi"]
    assert "measured by contend probe" in machine["kernel"]["syscall"]["source"]
    # What its kernel was told at boot belongs to the machine.
    told = re.findall(r"(?<=\bsched_vcpu_pack=)\d+", Path("/proc/cmdline").read_text())
    assert machine.get("vcpu_pack", False) == (int((told or ["0"])[-1]) != 0)
    assert "measured in a second; --probe takes more repetitions" in done.stdout
    run = contend("run", "a.rec", "--out", "result", "--json")
    assert run.returncode == 0, run.stderr
    summary = json.loads(run.stdout)
    said = recording(tmp_path / "a.rec")
    assert (summary["machine"], summary["policy"]) == (machine["name"], said["policy"])
    # The result has all that it was made from.
    shutil.rmtree(tmp_path / "a.rec")
    again = json.loads(contend("run", "result", "--json").stdout)
    assert again["trace_hash"] == summary["trace_hash"]


@pytest.mark.parametrize("name", ["dbench", "hackbench", "make", "pgbench", "sysbench"])
@pytest.mark.parametrize("which", ["a", "b"])
def test_the_shipped_recordings_run(contend: Contend, name: str, which: str) -> None:
    path = ROOT / f"recordings/{name}-{which}.rec"
    run = contend("run", path, "--json")
    assert (run.returncode, json.loads(run.stdout)["outcome"]) == (0, "finished"), run.stderr


def test_a_replay_begins_with_the_recorded_success_of_newidle_balances(contend: Contend) -> None:
    """Of 316 times that a thread waited elsewhere as a CPU began to idle it was pulled 13 times. A scenario may say
    otherwise."""
    recorded = ROOT / "recordings" / "held-out" / "pythreads.rec"

    def hash_with(*more: str) -> object:
        return json.loads(contend("run", str(recorded), "--json", "-q", *more).stdout)["trace_hash"]

    own = hash_with()
    assert own == hash_with("--set", "newidle_ratio=44")
    assert own != hash_with("--set", "newidle_ratio=900")
    # What three CPUs would have learned is not recorded: a kernel's 512.
    three = hash_with("--machine", "3c")
    assert three != hash_with("--machine", "3c", "--set", "newidle_ratio=44")
    assert three == hash_with("--machine", "3c", "--set", "newidle_ratio=511")
    refused = contend("run", str(recorded), "--set", "newidle_ratio=1025")
    assert refused.returncode == 2
    assert refused.stderr == "error: --set: `newidle_ratio` = `1025`: should be 0 to 1024\n"


def test_several_recordings_are_validated_with_their_medians(contend: Contend) -> None:
    names = ["redis-a", "sqlite-a", "dbench-a"]
    paths = [ROOT / f"recordings/{name}.rec" for name in names]
    said = json.loads(contend("validate", *paths, "--json").stdout)
    assert [r["path"] for r in said["recordings"]] == [str(p) for p in paths]
    for key, median in said["medians"].items():
        errors = sorted(abs(r["compared"][key]["error_pct"]) for r in said["recordings"])
        assert median["error_pct"] == errors[1], key
        assert median["factor"] >= 1, key
    # As trace-cmd report has them: `sched_waking` on the CPU that it names.
    redis = said["recordings"][0]["all"]["recorded"]
    assert (redis["wakeups"], redis["wakeups_here"]) == (1149, 733)
    # This kernel does not record how idle CPUs go on to what an interrupt woke there.
    assert all(r["hidden_arrivals"] > 0 for r in said["recordings"])
    shown = contend("validate", *paths).stdout
    assert "median, without signs" in shown and "within a factor of" in shown
    alone = json.loads(contend("validate", paths[0], "--json").stdout)
    assert alone["compared"] == said["recordings"][0]["compared"]


def test_run_times_change_with_the_machines_speed(contend: Contend, tmp_path: Path) -> None:
    path = ROOT / "recordings/sqlite-a.rec"

    def user_ns(*args: object) -> tuple[int, list[dict[str, object]]]:
        said = json.loads(contend("run", *args, "--json").stdout)
        return said["ledger_ns"]["user"], said["rescaled"]

    here, same = user_ns(path)
    assert same == [], "on the machine that it was recorded on"
    third, said = user_ns(path, "--set", "machine.cpu.speed=325")
    assert abs(third / here - 3) < 1e-3
    assert [(r["recorded_speed"], r["speed"], r["run_times_x"]) for r in said] == [(975, 325, 3.0)]
    again, _ = user_ns(path, "--set", "machine.cpu.speed=325", "--set", "workload.speed=3")
    assert again == pytest.approx(here, rel=1e-3)
    slower, said = user_ns(path, "--machine", "intel-2s-44c-88t")
    assert slower / here == pytest.approx(975 / 500, rel=1e-3) == pytest.approx(said[0]["run_times_x"])
    assert "run times x1.95" in contend("run", path, "--machine", "intel-2s-44c-88t").stdout
    unknown, said = user_ns(path, "--machine", "8c")
    assert unknown == pytest.approx(here, rel=1e-3)
    assert said[0]["said"] == "trace.dat.gz: run times as recorded: this machine has no cpu.speed"
    # How fast a machine is against itself is certain; against another it is not.
    for args, varies in [(["run", path], False), (["run", path, "--machine", "intel-2s-44c-88t"], True)]:
        out = tmp_path / str(varies)
        assert contend(*args, "--out", out).returncode == 0
        drawn = package.compare(out, out, vary_machine=2, metrics=["virtual_s"]).baseline.side.costs
        assert ("machine.cpu.speed" in drawn[2]) is varies
    # Two machines' speeds are uncertain by themselves, and so is the recorded one's.
    for machine in ("intel-2s-44c-88t", "haswell-ex-4s-32c"):
        assert contend("run", path, "--machine", machine, "--out", tmp_path / machine).returncode == 0
    found = package.compare(tmp_path / "intel-2s-44c-88t", tmp_path / "haswell-ex-4s-32c", vary_machine=6)
    sides = [found.baseline.side.costs, found.results[0].runs.side.costs]
    speeds = [[costs[seed]["machine.cpu.speed"] for seed in sorted(costs)] for costs in sides]
    ranks = [[sorted(s).index(v) for v in s] for s in speeds]
    assert ranks[0] != ranks[1], speeds
    declared = {c["name"]: c for c in package.list_costs("intel-2s-44c-88t")}["cpu.speed"]
    assert max(speeds[0]) > declared["hi"]


def test_a_validation_elsewhere_has_the_run_times_of_there(contend: Contend) -> None:
    path = ROOT / "recordings/sqlite-a.rec"
    said = contend("validate", path, "--machine", "intel-2s-44c-88t").stdout
    assert "run times x1.95" in said


def test_results_of_before_are_explained(contend: Contend, tmp_path: Path) -> None:
    assert contend("run", ROOT / "recordings/sqlite-a.rec", "--out", "old").returncode == 0
    summary = tmp_path / "old/summary.json"
    told = json.loads(summary.read_text())
    del told["rescaled"]
    summary.write_text(json.dumps(told))
    for args in (["explain", "old"], ["report", "old", "--out", "old.html"]):
        done = contend(*args)
        assert (done.returncode, done.stderr) == (0, ""), args


def test_damage_is_said_where_a_recording_is_run(contend: Contend, tmp_path: Path) -> None:
    whole = gzip.decompress((ROOT / "recordings/hackbench-2cpu.txt.gz").read_bytes())
    (tmp_path / "cut.txt").write_bytes(whole[: len(whole) // 2] + b"\n%% no event at all\n")
    done = contend("run", "cut.txt", "--machine", "2c")
    assert done.returncode == 0, done.stderr
    assert "damaged lines: " in done.stdout


def test_real_time_tasks_are_replayed_as_such(contend: Contend, tmp_path: Path) -> None:
    def switch(us: int, prev: str, state: str, to: str) -> str:
        (a, pa, prio), (b, pb, to_prio) = prev.split(":"), to.split(":")
        return (f"  {a}-{pa} [000] d..2. 1.{us:06}: sched_switch: prev_comm={a} prev_pid={pa} prev_prio={prio} "
                f"prev_state={state} ==> next_comm={b} next_pid={pb} next_prio={to_prio}\n")  # fmt: skip

    lines = ["# tracer: nop\n", "# entries-in-buffer/entries-written: 3/3   #P:1\n"]
    lines += [switch(0, "swapper/0:0:120", "R", "rt:10:49"), switch(500, "rt:10:49", "R", "fair:11:120")]
    lines += [switch(900, "fair:11:120", "S", "swapper/0:0:120")]
    (tmp_path / "rt.txt").write_text("".join(lines))
    done = contend("run", "rt.txt", "--machine", "1c", "--set", "workload.all=true", "--out", "o")
    assert done.returncode == 0, done.stderr
    tasks = package.load(tmp_path / "o")["tasks"]
    assert dict(zip(tasks["name"], tasks["sched"], strict=True)) == {"rt-10": "fifo:50", "fair-11": "normal"}
    assert contend("model", "rt.txt", "--all", "--out", "rt.toml").returncode == 0
    assert 'sched = "fifo:50"' in (tmp_path / "rt.toml").read_text()
    assert contend("model", "rt.txt", "--all", "--out", "rt.json").returncode == 0
    told = json.loads((tmp_path / "rt.json").read_text())["tasks"]["rt"]
    assert (told["policy"], told["priority"]) == ("SCHED_FIFO", 50)
    assert contend("run", "rt.json", "--machine", "1c").returncode == 0
    text = (tmp_path / "rt.toml").read_text().replace("fifo:50", "fifo:0")
    (tmp_path / "rt.toml").write_text(text)
    wrong = contend("run", "rt.toml", "--machine", "1c")
    assert (wrong.returncode, 'role "rt": sched: found "fifo:0"; should be normal' in wrong.stderr) == (2, True)


def test_a_shipped_recording_with_sessions_has_groups(contend: Contend) -> None:
    path = ROOT / "recordings/pgbench-c.rec"
    groups = json.loads(contend("run", path, "--json").stdout)["groups"]
    # Each process of the server began a session.
    assert sum(g["runtime_share"] > 0.1 for g in groups) == 5, groups
    assert all(g["name"].startswith("/autogroup-") and g["weight"] == 100 for g in groups)
    assert json.loads(contend("run", path, "--set", "autogroup=false", "--json").stdout)["groups"] == []
    # The model in a file, exact, knows them too.
    assert contend("model", path, "--out", "m.arrow").returncode == 0
    again = json.loads(contend("run", "m.arrow", "--set", "autogroup=true", "--json").stdout)["groups"]
    assert [g["name"] for g in again] == [g["name"] for g in groups]


@with_tracefs
def test_sessions_are_recorded(contend: Contend, tmp_path: Path) -> None:
    if os.getpid() not in [pid for pids in kernel.sessions().values() for pid in pids]:
        pytest.skip("this kernel has no autogroup, or cgroups weigh what runs here")
    code = "import os; p = os.fork(); p or os.setsid(); sum(range(3_000_000)); p and os.wait()"
    assert contend("record", "--out", "s.rec", "--", sys.executable, "-c", code).returncode == 0
    known = tomllib.loads((tmp_path / "s.rec/sessions.toml").read_text())["sessions"]
    assert os.getpid() in [pid for pids in known.values() for pid in pids]
    groups = json.loads(contend("run", "s.rec", "--set", "autogroup=true", "--json").stdout)["groups"]
    assert sum(g["tasks"] > 0 for g in groups) == 2, groups


def test_cgroups_with_a_weight_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "CGROUPS", [str(tmp_path)])
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/cpu.weight").write_text("100\n")
    told = {
        "0::/": False,
        "0::/a": True,
        "0::/a/b": True,
        "0::/b": False,
        "9:name=systemd:/x\n1:cpu,cpuacct:/\n0::/": False,
        "1:cpu,cpuacct:/x\n0::/": True,
        "4:cpuset:/x\n0::/": False,
    }
    assert {text: kernel._weighted(text) for text in told} == told


@with_tracefs
@with_trace_cmd
def test_private_leaves_out_names_of_others(contend: Contend, tmp_path: Path) -> None:
    name = "SecretTask"
    (tmp_path / name).symlink_to("/bin/sleep")
    # It wakes, forks nothing, and is none of the command's.
    with subprocess.Popen(["sh", "-c", f"while :; do ./{name} 0.01; done"], cwd=tmp_path) as other:
        try:
            for option, seen in [([], True), (["--private"], False)]:
                done = contend("record", *option, "--out", "p.rec", "--", "sleep", "0.3")
                assert done.returncode == 0, done.stderr
                assert (name.encode() in (tmp_path / "p.rec/trace.dat").read_bytes()) == seen
        finally:
            other.kill()
    lines = report(tmp_path / "p.rec/trace.dat")
    assert any("sleep-" in line for line in lines) and any(line.split()[0].startswith("other-") for line in lines)
    both = contend("record", "--private", "--events", "irq:softirq_raise", "--", "true")
    assert both.returncode == 2 and "--events: found --private too" in both.stderr


def begun(directory: Path, script: str) -> subprocess.Popen[str]:
    """A recorder of an endless command that has begun; it leads a process group, as in a terminal."""
    command = ["sh", "-c", f"{script} : > began; while :; do sleep 0.05; done"]
    process = subprocess.Popen(
        [sys.executable, "-m", "contend", "record", "--out", "c.rec", "--", *command],
        cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)  # fmt: skip
    until = time.monotonic() + 60
    while not (directory / "began").exists():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    (directory / "began").unlink()
    return process


@with_tracefs
def test_ctrl_c_ends_the_recording_and_keeps_it(tmp_path: Path) -> None:
    process = begun(tmp_path, "")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "Ended by Ctrl-C; what was recorded until then is kept." in out
    said = recording(tmp_path / "c.rec")
    assert (said["ended_by"], said["exit_status"]) == ("ctrl-c", 130)
    assert left_over() == []


@with_tracefs
@pytest.mark.parametrize(("kind", "times"), [(signal.SIGINT, 2), (signal.SIGTERM, 1)])
def test_a_second_ctrl_c_and_sigterm_discard(tmp_path: Path, kind: signal.Signals, times: int) -> None:
    process = begun(tmp_path, "trap '' INT;")
    for _ in range(times):
        os.kill(process.pid, kind)
        time.sleep(0.3)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "interrupted: nothing was written\n")
    assert list(tmp_path.iterdir()) == [] and left_over() == []


@with_tracefs
def test_what_a_killed_recorder_left_is_removed(contend: Contend, tmp_path: Path) -> None:
    process = begun(tmp_path, "")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert left_over() == [f"contend-{tracefs.namespace()}-{process.pid}"]
    probe = INSTANCES / f"contend-probe-{tracefs.namespace()}-{process.pid}"
    probe.mkdir()
    # A process of another container, which may well be alive: its number says nothing here.
    elsewhere = INSTANCES / f"contend-1-{process.pid}"
    elsewhere.mkdir()
    try:
        assert contend("record", "--out", "next.rec", "--", "true").returncode == 0
        assert left_over() == [] and not probe.exists() and elsewhere.exists()
    finally:
        elsewhere.rmdir()
    # And what it had begun to write, by the next recording of that name.
    assert len(list(tmp_path.glob(".c.rec.*"))) == 1
    assert contend("record", "--out", "c.rec", "--", "true").returncode == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.rec", "next.rec"]


@with_tracefs
def test_a_full_disk_leaves_nothing(contend: Contend, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], check=False)
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        done = contend(
            "record",
            "--out",
            "small/a.rec",
            "--",
            "sh",
            "-c",
            "i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i + 1)); done",
        )
        assert (done.returncode, left_over(), list(small.iterdir())) == (2, [], [])
        assert "No space left on device" in done.stderr and done.stderr.count("\n") == 1
    finally:
        subprocess.run(["umount", str(small)], check=True)


@with_tracefs
@pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")
def test_perf_stands_in(contend: Contend, tmp_path: Path) -> None:
    done = contend("record", "--with", "perf", "--out", "p.rec", "--json", "--", "sh", "-c", "/bin/ls / > /dev/null")
    assert done.returncode == 0, done.stderr
    said = recording(tmp_path / "p.rec")
    assert said["file"] == "trace.txt.gz" and int(str(said["events"])) > 10 and said["exit_status"] == 0
    assert files_of(tmp_path / "p.rec") == ["machine.toml", "recording.toml", "trace.txt.gz"]
    run = contend("run", "p.rec", "--json")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["policy"] == said["policy"]


def test_wrong_input_is_named_and_nothing_is_written(contend: Contend, tmp_path: Path) -> None:
    (tmp_path / "no.rec").mkdir()
    (tmp_path / "m.txt").write_text("")
    (tmp_path / "text").write_text("")
    before = sorted(tmp_path.iterdir())
    for args, message in [
        (["--", "no-such"], "no-such: no such command; should be a program and its arguments, after --"),
        (["--", "./text"], "./text: not executable; should be a program and its arguments, after --"),
        (["--out", "x", "--", "true"], "--out: found 'x'; should end in .rec"),
        (["--out", "no.rec", "--", "true"], "no.rec: exists, and is no recording; --out names another"),
        (["--out", "a/b.rec", "--", "true"], "a/b.rec: cannot be written: no such directory as a"),
        (["--buffer", "0", "--", "true"], "--buffer: found 0; should be 0.0625 to 4096 MiB"),
        (["--events", "x", "--", "true"], "--events: found 'x'; should be SYSTEM:EVENT, such as irq:softirq_raise"),
        (["--machine", "no.toml", "--", "true"], "--machine: no.toml: cannot be read: No such file or directory"),
        (["--machine", "m.txt", "--", "true"],
         "--machine: found 'm.txt'; should be a machine file (.toml), as `contend probe` writes it"),
        (["--probe", "--machine", "m.toml", "--", "true"],
         "--probe: found --machine too; should be one of them: a file, or to measure now"),
        ([], "COMMAND is missing (`contend record --help` says more)"),
    ]:  # fmt: skip
        done = contend("record", *args)
        assert (done.returncode, done.stderr) == (2, f"error: {message}\n")
    assert sorted(tmp_path.iterdir()) == before


@with_tracefs
def test_the_machine_is_measured_first_if_asked_for(contend: Contend, tmp_path: Path) -> None:
    done = contend("record", "--out", "a.rec", "--probe", "--", "true")
    assert done.returncode == 0, done.stderr
    assert "measured in a second" not in done.stdout
    costs = tomllib.loads((tmp_path / "a.rec/machine.toml").read_text())["kernel"]
    assert "measured by contend probe" in costs["syscall"]["source"]


@with_tracefs
def test_an_event_that_is_not_there(contend: Contend, tmp_path: Path) -> None:
    done = contend("record", "--events", "sched:sched_nothing", "--", "true")
    assert done.returncode == 2
    assert done.stderr.startswith("error: sched:sched_nothing: this kernel has no such event; ")
    assert list(tmp_path.iterdir()) == [] and left_over() == []


FORMAT = """name: sched_process_fork
ID: 9
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:__data_loc char[] parent_comm;\toffset:8;\tsize:4;\tsigned:0;
\tfield:pid_t parent_pid;\toffset:12;\tsize:4;\tsigned:1;
\tfield:char child_comm[16];\toffset:16;\tsize:16;\tsigned:0;
\tfield:pid_t child_pid;\toffset:32;\tsize:4;\tsigned:1;
"""


def page(*parts: bytes) -> bytearray:
    """A page that begins at 1,000 ns."""
    data = b"".join(parts)
    return bytearray((struct.pack("<QQ", 1000, len(data)) + data).ljust(4096, b"\0"))


def fork(delta: int, parent: int, child: int) -> bytes:
    """An event of FORMAT, its parent's name behind the fields."""
    data = struct.pack("<HHiIi16si", 9, 0, 1, 36 | 4 << 16, parent, b"kid", child) + b"abc\0"
    return struct.pack("<I", delta << 5 | len(data) // 4) + data


def test_pages_are_read_and_renamed() -> None:
    form = pages.parse_format("sched:sched_process_fork", FORMAT)
    extend = struct.pack("<II", 5 << 5 | 30, 1)
    padding = struct.pack("<II8x", 1 << 5 | 29, 12)
    data = page(fork(7, 5, 6), extend, fork(1, 6, 7), padding, fork(0, 8, 9), struct.pack("<I", 29))
    found = pages.Found()
    pages.learn(data, 4096, [form], found)
    after = 1007 + (1 << 27) + 5 + 1
    assert (found.events, found.first_ns, found.last_ns, found.damaged) == (3, 1007, after, 0)
    assert found.forks == [(1007, 5, 6), (after, 6, 7), (after, 8, 9)]
    assert found.comm(6) == b"abc" and found.comm(9) == b"kid" and found.comm(1) == b""
    assert pages.descendants(found.forks, 6) == {6, 7}
    pages.rename(data, 4096, [form], {6, 7}, b"other")
    again = pages.Found()
    pages.learn(data, 4096, [form], again)
    # As much of it as the place holds.
    assert [again.comm(pid) for pid in (5, 6, 7, 8, 9)] == [b"oth", b"abc", b"kid", b"oth", b"other"]


def test_damaged_pages_are_counted() -> None:
    form = pages.parse_format("sched:sched_process_fork", FORMAT)
    for broken in [
        bytearray(struct.pack("<QQ", 0, 5000).ljust(4096, b"\0")),
        page(struct.pack("<I", 28), b"x" * 20),
        page(struct.pack("<II", 0, 2), b"x" * 20),
    ]:
        found = pages.Found()
        pages.learn(broken, 4096, [form], found)
        assert (found.events, found.damaged) == (0, 1)


def test_a_pid_that_was_given_twice_is_nobodys_descendant() -> None:
    assert pages.descendants([(1, 1, 2), (2, 2, 3), (3, 3, 4), (4, 9, 4)], 2) == {2, 3}


def test_the_preset_is_the_newest_that_is_not_newer() -> None:
    names = ["linux-2.6.37", "linux-2.6.37-rowand", "linux-5.8", "linux-6.6", "linux-6.18"]
    for release, preset in [("6.18.44-x", "linux-6.18"), ("6.12.0", "linux-6.6"), ("5.8", "linux-5.8"),
                            ("7.1-rc1", "linux-6.18"), ("2.6.32", "linux-2.6.37"), ("?", "linux-2.6.37")]:  # fmt: skip
        assert kernel.preset_of(release, names) == preset


def test_toml_holds_any_word() -> None:
    words = ['"', "\\", "\n\t\x01\x7f", "ä", "\udcff"]
    text = store.toml({"a": words, "b": 1.5, "c": True, "t": {"d": 2}}, "made here")
    read = tomllib.loads(text)
    assert read["a"][:4] == words[:4] and read["b"] == 1.5 and read["c"] is True and read["t"] == {"d": 2}


def test_events_by_name() -> None:
    assert events.parse("a:b, c/d") == ["a:b", "c:d"]
    with pytest.raises(ContendError, match="found ''"):
        events.parse("a:b,")
    must, may = events.wanted(interrupts=False, syscalls=True, more=["kvm:kvm_exit"])
    assert not any(e.startswith("syscalls:") for e in must + may), "all calls are recorded"
    assert "raw_syscalls:sys_enter" in must and "kvm:kvm_exit" in must and "kvm:kvm_exit" not in may
    assert not any(e.startswith("irq:") for e in must + may)
