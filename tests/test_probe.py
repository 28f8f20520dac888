"""`contend probe`, end to end, on whatever machine this is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import contend as package
import pytest
from conftest import Contend, interrupted

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="probes Linux machines only")


def probed(contend: Contend, *args: str | Path) -> subprocess.CompletedProcess[str]:
    done = contend("probe", "--quick", *args)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done


@pytest.mark.slow
def test_a_probe_writes_a_machine_that_runs(contend: Contend, small: Path, tmp_path: Path) -> None:
    file = tmp_path / "here.toml"
    done = probed(contend, "--name", "my host", "--out", file)
    assert done.stdout.startswith("my host: ")
    assert "kernel.syscall" in done.stdout
    assert f"Machine file in {file}" in done.stdout
    assert [f.name for f in tmp_path.iterdir() if f.name.startswith(".")] == []
    run = contend("run", small, "--machine", file, "--json")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["machine"] == "my host"
    costs = contend("list", "costs", "--machine", file, "--json")
    assert any("measured by contend probe" in c["doc"] for c in json.loads(costs.stdout))

    before = file.read_bytes()
    again = contend("probe", "--quick", "--out", file)
    assert again.returncode == 2
    assert again.stderr == f"error: {file}: exists already; --force replaces it, --out names another\n"
    assert file.read_bytes() == before
    probed(contend, "--out", file, "--force")
    assert file.read_bytes() != before


@pytest.mark.slow
def test_json_writes_no_file(contend: Contend, tmp_path: Path) -> None:
    report: dict[str, Any] = json.loads(probed(contend, "--json").stdout)
    assert list(report) == ["name", "description", "hz", "counts", "clusters", "rows", "checks", "notes", "toml"]
    assert list(report["rows"][0]) == ["cost", "value", "lo", "hi", "unit", "how", "source"]
    assert {r["how"] for r in report["rows"]} <= {"measured", "derived", "declared", "estimate"}
    assert 24 <= report["hz"] <= 10_000
    assert list(tmp_path.iterdir()) == []
    assert 'defaults = ["' in report["toml"]


def test_what_cannot_be_written_is_refused_before_the_work(contend: Contend, tmp_path: Path) -> None:
    (tmp_path / "d.toml").mkdir()
    for args, message in [
        (["--out", "host"], "--out: found 'host'; should end in .toml, by which --machine knows a machine file"),
        (["--out", "no/host.toml"], "no/host.toml: cannot be written: no such directory"),
        (["--out", "d.toml"], "d.toml: cannot be written: it is a directory"),
        (["--name", "../x"], "--name: found '../x'; the file needs a name of its own: --out FILE"),
        (["--name", "", "--json"], 'name: found ""; should be 1 to 64 characters'),
    ]:
        began = time.monotonic()
        done = contend("probe", *args)
        assert (done.returncode, done.stderr) == (2, f"error: {message}\n")
        assert time.monotonic() - began < 10


@pytest.mark.slow
def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    status, stderr = interrupted("probe", "--out", "host.toml", cwd=tmp_path)
    assert status == 130
    assert b"interrupted: nothing was written" in stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_error_in_progress_ends_the_probe() -> None:
    def fail(_share: float) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        package.probe(quick=True, progress=fail)


@pytest.mark.slow
def test_one_cpu_says_what_it_cannot_measure(contend: Contend) -> None:
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        report = json.loads(probed(contend, "--json").stdout)
    finally:
        os.sched_setaffinity(0, cpus)
    assert any("one CPU" in n for n in report["notes"])
    how = {r["cost"]: r["how"] for r in report["rows"]}
    assert (how["kernel.syscall"], how["lines.llc"], how["interrupts.idle_exit"]) == (
        "measured",
        "estimate",
        "estimate",
    )
