"""`contend bench locks`, end to end."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from conftest import Contend, interrupted
from contend import ContendError
from contend.bench import locks as benching
from contend.bench import show

pytestmark = pytest.mark.slow

BARE = ["bench", "locks", "--simulate", "--bare"]


def test_bare_cpus_give_the_same_rows_again(contend: Contend) -> None:
    args = [*BARE, "--machine", "2n8c", "--threads", "1,4,16", "--locks", "ticket,mcs", "--seconds", "0.005", "--json"]
    first, second = contend(*args), contend(*args)
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    said: dict[str, Any] = json.loads(first.stdout)
    assert (said["world"], said["machine"], said["think_ns"]) == ("bare", "2n1l8c1t", [250, 750])
    rows = said["rows"]
    assert [(r["lock"], r["cpus"]) for r in rows] == [(lock, n) for n in (1, 4, 16) for lock in ("ticket", "mcs")]
    assert rows[0]["far_share"] is None
    assert rows[-1]["far_share"] == pytest.approx(1, abs=0.05)
    assert rows[-1]["throughput"] > rows[-2]["throughput"]
    other = json.loads(contend(*args, "--seed", "2").stdout)["rows"]
    assert other != rows


def test_a_table_of_medians(contend: Contend) -> None:
    done = contend(*BARE, "-m", "4c", "--threads", "2,4", "--locks", "mcs", "--repeat", "3", "--seconds", "0.002")
    assert done.returncode == 0, done.stderr
    assert "One lock on bare CPUs of 1n1l4c1t (simulated)" in done.stdout
    assert "medians of 3 repetitions" in done.stdout
    assert done.stdout.count("mcs") == 2
    assert done.stderr == ""


def test_simulated_threads_are_rows_as_of_native_ones(contend: Contend) -> None:
    args = ["--simulate", "--machine", "2c", "--threads", "2,4", "--locks", "ticket,adaptive", "--seconds", "0.005"]
    done = contend("bench", "locks", *args, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout == contend("bench", "locks", *args, "--json").stdout
    said = json.loads(done.stdout)
    assert (said["world"], said["machine"], said["policy"]) == ("simulated", "2c", "linux-6.18")
    assert [(r["lock"], r["threads"]) for r in said["rows"]] == [
        (lock, n) for n in (2, 4) for lock in ("ticket", "adaptive")
    ]
    assert "threads of 2c (simulated)" in contend("bench", "locks", *args).stdout


def test_native_threads(contend: Contend, tmp_path: Path) -> None:
    args = ["bench", "locks", "--locks", "std,parking_lot", "--threads", "1,2", "--seconds", "0.05", "--repeat", "2"]
    rows = json.loads(contend(*args, "--json").stdout)["rows"]
    # Interleaved: no lock has a minute of its own.
    assert [(r["repeat"], r["threads"], r["lock"]) for r in rows] == [
        (r, n, lock) for r in (0, 1) for n in (1, 2) for lock in ("std", "parking_lot")
    ]
    assert all(r["acquisitions"] > 0 for r in rows)
    figure = tmp_path / "locks.svg"
    done = contend(*args, "--plot", figure)
    assert done.returncode == 0, done.stderr
    assert "on this machine's threads" in done.stdout
    assert figure.read_text().startswith("<?xml")


def test_pictures_are_the_same_again(contend: Contend, tmp_path: Path) -> None:
    args = [*BARE, "--machine", "2n4c", "--threads", "2,8", "--locks", "queued", "--seconds", "0.002", "--plot"]
    for name in ("a.svg", "b.svg"):
        assert contend(*args, tmp_path / name).returncode == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_the_prediction_is_the_measurements_kind(contend: Contend) -> None:
    """64 threads on 2 CPUs, as docs/locks-native.md has them measured: after the same warm-up, which spreads them."""
    args = ["--simulate", "-m", "epyc-2vcpu", "--threads", "64", "--locks", "adaptive,ticket", "--json"]
    longest = []
    for seed in ("1", "2", "3"):
        adaptive, ticket = json.loads(contend("bench", "locks", *args, "--seed", seed).stdout)["rows"]
        assert adaptive["throughput"] > 2.5e6 and adaptive["jain"] > 0.99
        assert 0.005e6 < ticket["throughput"] < 0.03e6
        longest.append(adaptive["wait_max_ns"])
    # Seldom a waiter is left behind: with seed 1 one waits 14 ms, with the next three none more than 4.
    assert statistics.median(longest) < 12e6 and max(longest) < 20e6


def test_ctrl_c_does_not_wait_for_the_run(tmp_path: Path) -> None:
    status, stderr = interrupted("bench", "locks", "--locks", "std", "--seconds", "100", cwd=tmp_path)
    assert status == 130
    assert b"interrupted: nothing was written" in stderr


def test_what_is_wrong_is_said(contend: Contend) -> None:
    for args, message in [
        (["--simulate", "--bare", "--policy", "cfs"], "--policy: bare CPUs have no scheduler"),
        (["--simulate", "--policy", "x"], 'policy: found "x"; `contend list presets` lists all'),
        (["--policy", "cfs"], "--policy: this machine is measured; add --simulate"),
        (["--bare"], "--bare: this machine is measured; add --simulate"),
        (["--machine", "4c"], "--machine: this machine is measured; add --simulate"),
        (["--threads", "2,x"], "--threads: found 'x'; should be a whole number from 1 to 1,024"),
        (["--threads", "0"], "--threads: found '0'; should be a whole number from 1 to 1,024"),
        (["--threads", "9" * 5000], f"--threads: found '{'9' * 40}'; should be a whole number from 1 to 1,024"),
        (["--locks", ","], "--locks: found ','; should be names of locks with commas between, such as adaptive,std"),
        (["--think-ns", "9,3"], "--think-ns: found '9,3'; should be the shortest and the longest, such as 250,750"),
        (["--seconds", "1e9"], "--seconds: found '1e9'; should be a number of seconds from 0.001 to 100"),
        (["--repeat", "0"], "--repeat: found '0'; should be a whole number from 1 to 1,000"),
        (["--plot", "x.txt"], "--plot: found 'x.txt'; should end in .png, .svg or .pdf"),
    ]:  # fmt: skip
        done = contend("bench", "locks", *args)
        assert (done.returncode, done.stderr) == (2, f"error: {message}\n"), args
    done = contend("bench", "locks", "--locks", "nope")
    assert done.returncode == 2
    assert done.stderr.startswith("error: --locks: no lock named 'nope'; there are std, ")
    done = contend(*BARE, "--machine", "4c", "--threads", "8", "--locks", "mcs")
    assert done.stderr == "error: threads = 8: 1n1l4c1t has 4 CPUs, and each thread is one\n"
    done = contend(*BARE, "--machine", "4c", "--threads", "2", "--locks", "mcs", "--hogs", "1")
    assert done.stderr == "error: hogs = 1: bare CPUs run nothing beside the lock's loop; should be 0\n"


def test_medians_leave_out_what_is_not_known() -> None:
    rows = [
        {"lock": "a", "threads": 2, "hogs": 0, "repeat": i, "throughput": t, "max_min": m}
        for i, (t, m) in enumerate([(1.0, None), (5.0, 3.0), (3.0, None)])
    ]
    assert benching.medians(rows) == [
        {"lock": "a", "threads": 2, "hogs": 0, "throughput": 3.0, "max_min": None, "repeats": 3,
         "throughput_lo": 1.0, "throughput_hi": 5.0}
    ]  # fmt: skip


def test_what_nobody_got_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    waits = dict.fromkeys(("p50_ns", "p99_ns", "p999_ns", "p9999_ns", "jain", "max_min", "cpu_share"))
    row = {"lock": "a", "threads": 2, "seconds": 1.0, "acquisitions": 0, "throughput": 0.0, "wait_max_ns": 2e9, **waits}
    said = {"world": "native", "machine": None, "repeat": 1, "think_ns": [250, 750], "hogs": 0, "critical_ns": 100}
    show.table([row], said)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " a " in line]
    assert line.split() == ["2", "a", "0.000", *["-"] * 6, "2,000", "ms"]


def test_from_python() -> None:
    (row,) = benching.bare("4c", ["mcs"], [4], load=benching.Load(seconds=0.001))
    assert row["lock"] == "mcs"
    with pytest.raises(ContendError, match="no lock named 'x'"):
        benching.bare("4c", ["x"])
