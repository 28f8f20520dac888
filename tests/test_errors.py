"""Each message, exactly: file, line, key, what was found, what would be right."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contend as package
import pytest
from conftest import ROOT, Contend

WORKLOAD = '[workload]\nkind = "hackbench"\n'
KINDS = (
    "should be a scenario (.toml), an rt-app file (.json), or a recording: trace.dat, a Perfetto trace, "
    "a binary trace of Xen, or text of `trace-cmd report`, tracefs or `perf script` (.gz and .xz too)"
)

SCENARIOS = [
    (
        "unknown-key",
        f'machine = "4c"\npolcy = "linux"\n{WORKLOAD}',
        "x.toml:2: polcy: unknown key; did you mean policy?",
    ),
    (
        "key-of-the-workload",
        f'machine = "4c"\nseed = 2\nloops = 3\n{WORKLOAD}',
        "x.toml:3: loops: unknown key; it is a key of [workload]: write it below a line [workload]",
    ),
    (
        "key-of-set",
        f'machine = "4c"\nidle_search = "3.6"\n{WORKLOAD}',
        "x.toml:2: idle_search: unknown key; it is a key of [set]: write it below a line [set]",
    ),
    (
        "key-of-the-guests",
        f'machine = "4c"\nvcpus = 2\n[[guest]]\n{WORKLOAD}',
        "x.toml:2: vcpus: unknown key; it is a key of [[guest]]: write it below a line [[guest]]",
    ),
    ("truncated", 'machine = "intel-2s\n', 'x.toml:1: not valid TOML: invalid basic string, expected `"`'),
    (
        "no-machine",
        WORKLOAD,
        'x.toml: machine: missing; write machine = "...", or give --machine; `contend list machines` lists them',
    ),
    (
        "no-workload",
        'machine = "4c"\n',
        'x.toml: workload: missing; write a table [workload] with kind = "..."; `contend list workloads` lists them',
    ),
    (
        "no-cpus",
        f'machine = "0c"\n{WORKLOAD}',
        'x.toml:1: machine: synthetic machine "0c": found 0c; should be 1 to 4096',
    ),
    (
        "unknown-machine",
        f'machine = "intel-2s-44c"\n{WORKLOAD}',
        'x.toml:1: machine: unknown machine "intel-2s-44c": did you mean intel-2s-44c-88t? `contend list machines` '
        "lists all; a path ends in .toml; a synthetic machine is written like 2n2l8c2t",
    ),
    (
        "unknown-policy",
        f'machine = "4c"\npolicy = "linux-6.81"\n{WORKLOAD}',
        'x.toml:2: policy: unknown policy "linux-6.81"; did you mean linux-6.0 or linux-6.18 or linux-6.6?',
    ),
    (
        "unknown-feature",
        f'machine = "4c"\n[set]\nwake_pth = "remote-lock"\n{WORKLOAD}',
        "x.toml:3: `wake_pth` = `remote-lock`: no such feature; did you mean `wake_path`?",
    ),
    (
        "group-max",
        f'machine = "4c"\n[groups]\n"/a" = {{ max = "10 100000" }}\n{WORKLOAD}',
        'x.toml:3: groups./a.max: found "10 100000"; should be text as in cpu.max: "QUOTA PERIOD" in us, such as '
        '"200000 100000" for 2 CPUs (quota 1000 to 10^9, period 1000 to 1000000, 100000 if left out), or "max"',
    ),
    (
        "group-burst",
        f'machine = "4c"\n[groups]\n"/a" = {{ max = "2000", burst = 2001 }}\n{WORKLOAD}',
        "x.toml:3: groups./a.burst: found 2001; should be at most 2000, the quota of /a",
    ),
    (
        "group-burst-alone",
        f'machine = "4c"\n[groups]\n"/a" = {{ burst = 2001 }}\n{WORKLOAD}',
        "x.toml:3: groups./a.burst: found 2001; should be with max: /a has no quota to save up",
    ),
    (
        "group-key",
        f'machine = "4c"\n[groups]\n"/a" = {{ quota = 1 }}\n{WORKLOAD}',
        "x.toml:3: groups./a.quota: unknown key; keys of a group are weight, max, burst",
    ),
    (
        "group-max-before-3.2",
        f'machine = "4c"\npolicy = "linux-2.6.37"\n[groups]\n"/a" = {{ max = "2000" }}\n{WORKLOAD}',
        "x.toml:4: groups./a.max: found a limit under cfs_bandwidth = off; should be left out, or a policy from "
        "linux-3.6 on: kernels before 3.2 have no cpu.max",
    ),
    (
        "group-burst-before-5.14",
        f'machine = "4c"\npolicy = "linux-5.2"\n[groups]\n"/a" = {{ max = "2000", burst = 1 }}\n{WORKLOAD}',
        "x.toml:4: groups./a.burst: found a burst under cfs_bandwidth = 4.18; should be left out, or a policy from "
        "linux-6.0 on: it came with 5.14",
    ),
    (
        "group-weight",
        f'machine = "4c"\n[groups]\n"/a" = 10001\n{WORKLOAD}',
        "x.toml:3: groups./a: found 10001; should be a weight from 1 to 10000, as cpu.weight has; 100 is the default",
    ),
    (
        "group-path",
        f'machine = "4c"\n[groups]\na = 1\n{WORKLOAD}',
        'x.toml:3: groups.a: found "a"; should be a path such as /web or /web/api, at most 16 deep, as below '
        "/sys/fs/cgroup",
    ),
    (
        "group-of-fifo",
        f'machine = "4c"\npolicy = "fifo"\n[groups]\n"/a" = 1\n{WORKLOAD}',
        "x.toml:4: groups./a: found groups under the policy fifo; should be left out, or a fair policy such as "
        "linux-6.18",
    ),
    (
        "group-of-a-part",
        'machine = "4c"\n[workload]\nkind = "mix"\nparts = [{ kind = "hogs", group = "a" }]\n',
        'x.toml:4: workload.parts.0.group: found "a"; should be a path such as /web or /web/api, at most 16 deep, as '
        "below /sys/fs/cgroup",
    ),
    (
        "feature-value",
        f'machine = "4c"\n[set]\nsis_core = 3\n{WORKLOAD}',
        "x.toml:3: `sis_core` = `3`: should be true or false",
    ),
    (
        "contradiction",
        f'machine = "4c"\n[set]\nsis_rotate = true\n{WORKLOAD}',
        "x.toml:3: `sis_rotate` = `true`: needs sis_next_cpu = true",
    ),
    (
        "machine-cost",
        f'machine = "4c"\n[set]\nmachine.lines.lcc = 3\n{WORKLOAD}',
        "x.toml:3: machine.lines.lcc: unknown key; did you mean lines.llc or lines.hit?",
    ),
    (
        "two-horizons",
        f'machine = "4c"\nhorizon_s = 1\nhorizon_ns = 5\n{WORKLOAD}',
        "x.toml:3: horizon_ns: found 5; should be left out: horizon_s is given too",
    ),
    (
        "warmup",
        f'machine = "4c"\nhorizon_s = 1\nwarmup_s = 2\n{WORKLOAD}',
        "x.toml: warmup_s: found 2 s with a horizon of 1 s; should be before the horizon",
    ),
    (
        "negative-horizon",
        f'machine = "4c"\nhorizon_s = -1\n{WORKLOAD}',
        "x.toml:2: horizon_s: found -1; should be a number of seconds above 0, at most 1,000,000",
    ),
    (
        "seed",
        f'machine = "4c"\nseed = "a"\n{WORKLOAD}',
        'x.toml:2: seed: found "a"; should be a whole number from 0 to 9223372036854775807',
    ),
    (
        "workload-in-set",
        f'machine = "4c"\n[set]\nworkload.groups = 3\n{WORKLOAD}',
        "x.toml:3: set.workload.groups: found 3; should be written in the table [workload]",
    ),
    (
        "workload-key",
        f'machine = "4c"\n{WORKLOAD}grops = 3\n',
        "x.toml:4: workload.grops: unknown key; did you mean groups?",
    ),
    (
        "a-thousand-million-tasks",
        'machine = "4c"\n[workload]\nkind = "periodic"\ntasks = 1_000_000_000\n',
        "x.toml:4: workload.tasks: found 1000000000; should be a whole number from 1 to 1,000,000",
    ),
    (
        "missing-input",
        'machine = "4c"\n[workload]\nkind = "rt-app"\nfile = "gone.json"\n',
        "x.toml:4: workload.file: gone.json: cannot be read: No such file or directory",
    ),
]


def check(contend: Contend, message: str, *args: str | Path) -> None:
    done = contend("run", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {message}\n"


@pytest.mark.parametrize(("text", "message"), [s[1:] for s in SCENARIOS], ids=[s[0] for s in SCENARIOS])
def test_scenario(contend: Contend, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    check(contend, message, "x.toml")


def test_files_of_other_kinds(contend: Contend, tmp_path: Path) -> None:
    check(contend, "nope.toml: cannot be read: No such file or directory", "nope.toml")
    (tmp_path / "empty").touch()
    check(
        contend,
        "empty: the file is empty; name a scenario (.toml), an rt-app file (.json) or a recording",
        "empty",
    )
    noise = random.Random(1).randbytes(5000)
    (tmp_path / "noise").write_bytes(b"\x80\x00" + noise)
    check(contend, f"noise: binary data; {KINDS}", "noise")
    (tmp_path / "noise.toml").write_bytes(b"\n\x80" + noise)
    check(contend, "noise.toml:2: not valid TOML: not UTF-8 text", "noise.toml")
    (tmp_path / "prose").write_text("It was a dark and stormy night.\n")
    check(contend, f'prose: line 1 is "It was a dark and stormy night."; {KINDS}', "prose")
    (tmp_path / "ticks").write_text("  sh-7 [000] 128712345678901: sched_switch: prev_comm=sh prev_pid=7\n")
    done = contend("run", "ticks")
    assert (done.returncode, done.stdout) == (2, "")
    assert "should be a time in seconds: record with a clock that counts ns (`echo mono > trace_clock`" in done.stderr
    (tmp_path / "huge.toml").write_bytes(b"#" * ((1 << 20) + 1))
    check(contend, "huge.toml: larger than 1048576 bytes, the most a scenario may have", "huge.toml")
    (tmp_path / "m.toml").write_text((ROOT / "machines" / "x86_64-2cpu.toml").read_text())
    check(
        contend,
        "m.toml: a machine file; name it in a scenario's key machine, or give it to --machine",
        "m.toml",
    )
    check(
        contend,
        f"{tmp_path}: a directory, and neither a result (scenario.toml) nor a recording (recording.toml); name a "
        "scenario (.toml), an rt-app file (.json), a recording or a result's directory",
        tmp_path,
    )


def test_recorders_binary_forms_say_how_to_convert(contend: Contend, tmp_path: Path) -> None:
    (tmp_path / "p.data").write_bytes(b"PERFILE2" + b"\0" * 100)
    done = contend("run", "p.data")
    assert done.returncode == 2
    assert "perf script" in done.stderr


def test_a_damaged_trace_dat_says_where(contend: Contend, tmp_path: Path) -> None:
    (tmp_path / "t.dat").write_bytes(b"\x17\x08\x44tracing6\0" + b"\0" * 100)
    done = contend("run", "t.dat")
    assert done.returncode == 2
    assert 'where "header_page\\0" should stand at byte' in done.stderr
    assert "trace.dat of version 6 or 7" in done.stderr


def test_truncated_gzip(contend: Contend, tmp_path: Path) -> None:
    line = "bash-7 [001] d..2. 5.000100: sched_waking: comm=x pid=9 prio=120 target_cpu=000\n"
    data = gzip.compress("".join(f"{i}{line}" for i in range(9999)).encode())
    (tmp_path / "t.gz").write_bytes(data[: len(data) // 2])
    done = contend("run", "t.gz")
    assert done.returncode == 2
    assert done.stderr.startswith("error: t.gz: ")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run"], "SCENARIO is missing (`contend run --help` says more)"),
        (["run", "s", "--sed", "3"], "no such option: --sed; did you mean --seed? (`contend run --help` lists them)"),
        (["run", "s", "--set", "foo"], "--set: found 'foo'; should be KEY=VALUE, such as wake_path=remote-lock"),
        (["run", "s", "--seed", "-1"], "--seed: found '-1'; should be a whole number from 0 to 9223372036854775807"),
        (["run", "s", "--horizon", "x"], "--horizon: found 'x'; should be a number of seconds, such as 20 or 0.5"),
        (["explain", "gone"], "gone: no such directory; `contend run SCENARIO --out gone` makes a result"),
        (
            ["explain", "."],
            ".: not a result (a directory with summary.json, scenario.toml and .arrow files, as `contend run --out` "
            "writes)",
        ),
    ],
)
def test_command_line(contend: Contend, args: list[str], message: str) -> None:
    done = contend(*args)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--machine", "4x"], '--machine: unknown machine "4x": `contend list machines` lists all; a path ends in '
         ".toml; a synthetic machine is written like 2n2l8c2t"),
        (["--machine", "9999c"], '--machine: synthetic machine "9999c": found 9999c; should be 1 to 4096'),
        (["--policy", "linux-6.19"], '--policy: unknown policy "linux-6.19"; did you mean linux-6.18 or linux-6.0 or '
         "linux-6.6?"),
        (["--horizon", "0"], "--horizon: found 0; should be a number of seconds above 0, at most 1,000,000"),
        (["--set", "sis_crore=1"], "--set: `sis_crore` = `1`: no such feature; did you mean `sis_core`?"),
        (["--set", "machine.lines.llc=x"], '--set: machine.lines.llc: found "x"; should be a whole number, 0 or more'),
        (["--set", "workload.grops=1"], "--set: workload.grops: unknown key; did you mean groups?"),
        (["--trace", "/gone/x"], "/gone/x: cannot be written: No such file or directory"),
        (["--out", "small.toml"], "small.toml: cannot be written: a file of this name exists; name a directory for the "
         "result"),
    ],
)  # fmt: skip
def test_overrides(contend: Contend, small: Path, args: list[str], message: str) -> None:
    check(contend, message, small, *args)


def test_damaged_results(contend: Contend, small: Path, tmp_path: Path) -> None:
    assert contend("run", small, "--out", "r", "-q").returncode == 0
    good = (tmp_path / "r" / "summary.json").read_text()
    (tmp_path / "r" / "summary.json").write_text(good.replace('"schema": 1', '"schema": 99'))
    assert contend("explain", "r").stderr == (
        "error: r/summary.json: found schema = 99; this version reads 1; run the scenario again: contend run "
        "r/scenario.toml\n"
    )
    (tmp_path / "r" / "summary.json").write_text(good[:100])
    assert contend("explain", "r").stderr.startswith("error: r/summary.json: damaged: ")
    (tmp_path / "r" / "summary.json").write_text(good)
    (tmp_path / "r" / "tasks.arrow").unlink()
    assert contend("explain", "r").stderr == "error: r/tasks.arrow: cannot be read: No such file or directory\n"


def test_too_many_groups(contend: Contend, tmp_path: Path) -> None:
    weights = "\n".join(f'"/g{i}" = 100' for i in range(4096))
    (tmp_path / "x.toml").write_text(f'machine = "512c"\n{WORKLOAD}[groups]\n{weights}\n')
    check(contend, "x.toml: groups: found 4096 groups on 512 CPUs; should be at most 2048", "x.toml")
    (tmp_path / "x.toml").write_text(f'machine = "2c"\n{WORKLOAD}[groups]\n{weights}\n"/more" = 1\n')
    check(contend, 'x.toml:4101: groups./more: found "/more"; should be at most 4096 groups', "x.toml")


SMALL_RUN = {"machine": "2c", "workload": {"kind": "hackbench", "groups": 1, "loops": 1}}


@pytest.mark.parametrize(
    ("scenario", "given", "message"),
    [
        (5, {}, "scenario: found 5; should be a path, as text or a pathlib.Path, or a mapping"),
        (SMALL_RUN, {"set": "sis_core=true"}, "set: found 'sis_core=true'; should be a mapping, such as "
         '{"wake_path": "remote-lock"}'),
        (SMALL_RUN, {"set": {"sis_core": None}}, "set: sis_core: found None; should be text, a number, true or false, "
         "or a list of numbers"),
        (SMALL_RUN, {"seed": "a"}, "seed: found 'a'; should be a whole number from 0 to 9223372036854775807"),
        (SMALL_RUN, {"seed": 1.0}, "seed: found 1.0; should be a whole number from 0 to 9223372036854775807"),
        (SMALL_RUN, {"seed": True}, "seed: found True; should be a whole number from 0 to 9223372036854775807"),
        (SMALL_RUN, {"seed": -1}, "--seed: found -1; should be a whole number from 0 to 9223372036854775807"),
        (SMALL_RUN, {"policy": 5}, "policy: found 5; should be text: a preset, such as linux-6.18"),
        (SMALL_RUN, {"horizon_s": "1"}, "horizon_s: found '1'; should be a number of seconds"),
        (SMALL_RUN, {"out": 5}, "out: found 5; should be a path, as text or a pathlib.Path"),
        ({**SMALL_RUN, "workload": {"kind": "mix", "parts": [{"tasks": None}]}}, {},
         "scenario: workload.parts.0.tasks: found None; should be left out, or a value"),
        ({**SMALL_RUN, "policy": "\ud800"}, {}, "scenario: policy: found '\\ud800'; should be UTF-8"),
        (SMALL_RUN, {"set": {"wake_path": "\ud800"}}, "set: wake_path: found '\\ud800'; should be UTF-8"),
        ({**SMALL_RUN, "machine": "2c"}, {"policy": "\udcff"}, "policy: found '\\xff'; should be UTF-8"),
        ("", {}, "scenario: found ''; should be a path, as text or a pathlib.Path, or a mapping"),
        ({**SMALL_RUN, "seed": {1}}, {}, "scenario: seed: found {1}; should be text, a number, a list or a mapping"),
    ],
)  # fmt: skip
def test_python_s_types(scenario: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(package.ContendError) as refused:
        package.run(scenario, **given)
    assert str(refused.value) == message


@pytest.mark.parametrize("call", [package.load, package.model, package.validate, package.fit, package.sweep])
def test_no_path(call: Callable[[Any], object]) -> None:
    with pytest.raises(package.ContendError, match=r"found 5; should be .*a path, as text or a pathlib\.Path"):
        call(5)


def test_a_mapping_within_itself() -> None:
    scenario: dict[str, Any] = {**SMALL_RUN}
    scenario["workload"] = scenario
    with pytest.raises(package.ContendError, match="found a mapping within itself"):
        package.run(scenario)
