"""`contend xen trace`, end to end; and what Xen's own xenalyze makes of the files that are written."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import contend as package
import pytest
from conftest import ROOT, Contend
from contend import ContendError
from contend._core import XenTraceDump
from contend.xen import trace

DATA = ROOT / "crates" / "trace" / "tests" / "data" / "xentrace"
SAMPLES = ["credit-mixed", "credit2-mixed"]
HZ = 2_600_000_000
LARGE = os.environ.get("CONTEND_XENTRACE_SAMPLES")
"""A directory of larger samples (NAME.bin.xz), which are too large to be kept here."""


def sample(name: str) -> Path:
    """A binary trace of a real Xen."""
    return DATA / f"{name}.bin.gz"


def xenalyze() -> str | None:
    """Xen's own reader, if this machine has it (Debian: xen-utils-4.17)."""
    return shutil.which("xenalyze") or shutil.which("xenalyze", path="/usr/lib/xen-4.17/bin:/usr/sbin")


def dumped(tool: str, file: Path) -> list[str]:
    """Every record as xenalyze prints it, and its notes.

    Not: the pCPUs' column, and when it finds which pCPU. Both depend on whose window comes first in the file.
    """
    done = subprocess.run(
        [tool, "--cpu-hz=2.6G", "--dump-all", str(file)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "Using VMX hardware-assisted virtualization."
    found = (
        r"\w+: (Activating pcpu|read returned|through first)",
        "deactivate_pcpu",
        r"Creating vcpu \d+ for dom 32768",
    )
    finding = re.compile("|".join(found))
    lines = [line for line in done.stdout.splitlines() if not finding.match(line)]
    return [re.sub(r"^(\]?\s*[\d.]*) [-.|x ]+ (d\S+ )", r"\1 \2", line) for line in lines]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_summary(contend: Contend, name: str) -> None:
    done = contend("xen", "trace", sample(name), "--cpu-hz", "2.6G")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    said = json.loads(contend("xen", "trace", sample(name), "--cpu-hz", "2600M", "--json").stdout)
    assert f"{said['reading']['records']:,} records of 4 pCPUs and 6 vCPUs over 4.9" in done.stdout
    assert "time stamps at 2.6 GHz." in done.stdout
    assert "note:" not in done.stdout
    for part in ("d2v1", "tickled idle", "runstate_change", "Domains"):
        assert part in done.stdout
    assert said == trace.summary(sample(name), HZ)
    length = said["duration_ns"]
    for v in said["vcpus"]:
        assert sum(v[f"{s}_ns"] for s in ("running", "runnable", "blocked", "offline")) == pytest.approx(length, abs=4)
        assert sum(v["running_on_ns"].values()) == pytest.approx(v["running_ns"], abs=4)
        assert v["run_us"]["count"] == sum(count for _, count in v["run_us"]["buckets"])
    assert sum(said["events"].values()) == said["reading"]["records"]


def test_a_known_figure() -> None:
    # xenalyze -s of this file: d0v1 ran 0.75 s and woke 58 times, the first time not counted.
    said = trace.summary(sample("credit2-mixed"), HZ)
    (v,) = [v for v in said["vcpus"] if v["vcpu"] == "d0v1"]
    assert v["running_ns"] / 1e9 == pytest.approx(0.7527, abs=0.0002)
    assert (v["wakeups"], v["dispatches"], v["preemptions"]) == (59, 59, 0)
    assert {p["pcpu"]: p["tickled_idle"] for p in said["pcpus"]} == {0: 65, 1: 47, 2: 74, 3: 57}


def test_an_assumed_frequency_is_said(contend: Contend) -> None:
    done = contend("xen", "trace", sample("credit-mixed"))
    assert "time stamps at 2.4 GHz (assumed; --cpu-hz)." in done.stdout


def test_one_vcpu(contend: Contend) -> None:
    done = contend("xen", "trace", sample("credit2-mixed"), "--cpu-hz", "2.6G", "--vcpu", "d0v1")
    assert done.returncode == 0, done.stderr
    for part in ("Where it ran", "Length of runs", "From wake-up to running", "#####"):
        assert part in done.stdout
    one = json.loads(contend("xen", "trace", sample("credit2-mixed"), "--vcpu", "d0v1", "--json").stdout)
    assert one["vcpu"] == "d0v1"
    none = contend("xen", "trace", sample("credit2-mixed"), "--vcpu", "d9v1")
    assert none.returncode == 2
    assert none.stderr.startswith("error: --vcpu: found 'd9v1'; the trace has d0v0, d0v1, d1v0")


def test_every_record(contend: Contend) -> None:
    done = contend("xen", "trace", sample("credit2-mixed"), "--cpu-hz", "2.6G", "--dump")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 8218
    assert lines[1] == "   0.000020652    3 csched2:schedule cpu 3, rq# 0, busy, not tickled"
    objects = contend("xen", "trace", sample("credit2-mixed"), "--cpu-hz", "2.6G", "--dump", "--json").stdout
    records = [json.loads(line) for line in objects.splitlines()]
    assert records == list(trace.records(sample("credit2-mixed"), HZ))
    assert records[2] == {
        "ns": 22635,
        "tsc": 98932378383,
        "on": 3,
        "event": "csched2:burn_credits",
        "vcpu": "d0v0",
        "credit": 5320189,
        "budget": None,
        "delta": 2772845,
    }
    assert [r["ns"] for r in records] == sorted(r["ns"] for r in records)


def test_packed_or_not_is_the_same(tmp_path: Path) -> None:
    raw = gzip.decompress(sample("credit-mixed").read_bytes())
    (tmp_path / "a.bin").write_bytes(raw)
    (tmp_path / "a.bin.xz").write_bytes(lzma.compress(raw))
    met = [trace.summary(f, HZ) | {"file": ""} for f in (sample("credit-mixed"), *sorted(tmp_path.iterdir()))]
    assert met[0] == met[1] == met[2]
    packed, plain = (package.run(tmp_path / f, horizon_s=0.05) for f in ("a.bin.xz", "a.bin"))
    assert packed.summary["trace_hash"] == plain.summary["trace_hash"]


def test_damage_is_said(contend: Contend, tmp_path: Path) -> None:
    raw = bytearray(gzip.decompress(sample("credit-mixed").read_bytes()))
    (size,) = struct.unpack_from("<I", raw, 8)
    struct.pack_into("<I", raw, 8, size - 4)
    (tmp_path / "bad.bin").write_bytes(raw[:50_000])
    done = contend("xen", "trace", tmp_path / "bad.bin")
    assert done.returncode == 0
    assert "note: damaged places: 1, " in done.stdout
    assert re.search(
        r"first at offset \d+: a record of \d+ bytes, 0x[0-9a-f]{8}, with \d+ left in its window", done.stdout
    )
    assert "note: cut off: the last window lacks " in done.stdout
    dump = contend("xen", "trace", tmp_path / "bad.bin", "--dump")
    assert (dump.returncode, dump.stderr.count("note: ")) == (0, 2)


def test_lost_records_and_unknown_events_are_said(contend: Contend, tmp_path: Path) -> None:
    body = struct.pack("<IQ4I", 0xC001F001, 5, 17, 1, 6, 0) + struct.pack("<IQI", 0x90081001, 6, 9)
    (tmp_path / "lost.bin").write_bytes(struct.pack("<3I", 0x2001F003, 0, len(body)) + body)
    done = contend("xen", "trace", tmp_path / "lost.bin")
    assert "note: lost: 17 records in 1 gaps" in done.stdout
    assert "note: other events: 0x81001 1" in done.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nothing.bin"], "error: nothing.bin: cannot be read: No such file or directory"),
        ([str(ROOT / "README.md")], "README.md: found text; expected a binary trace of xentrace"),
        ([str(sample("credit-mixed")), "--cpu-hz", "fast"], "error: --cpu-hz: found 'fast'; should be a frequency"),
        ([str(sample("credit-mixed")), "--cpu-hz", "-1"], "error: --cpu-hz: found '-1'; should be a frequency"),
        ([str(sample("credit-mixed")), "--cpu-hz", "1k"], "error: --cpu-hz: found 1000; should be from 1000000 to"),
        ([str(sample("credit-mixed")), "--dump", "--write", "x"], "error: --dump and --write cannot be used together"),
        (
            [str(sample("credit-mixed")), "--write", "no/such/dir/x"],
            "error: no/such/dir/x: cannot be written: No such file or directory",
        ),
        ([], "error: FILE is missing"),
    ],
)
def test_wrong_input(contend: Contend, args: list[str], message: str) -> None:
    done = contend("xen", "trace", *args)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_a_trace_is_not_written_over_itself(contend: Contend, tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(gzip.decompress(sample("credit-mixed").read_bytes()))
    done = contend("xen", "trace", file, "--write", "a.bin")
    assert (done.returncode, file.stat().st_size) == (2, 112096)
    assert "is the trace itself" in done.stderr


@pytest.mark.parametrize("name", ["credit-mixed", "credit2-mixed"])
def test_a_recording_of_xen_is_a_workload(contend: Contend, tmp_path: Path, name: str) -> None:
    file, hz = sample(name), 2_599_998_000
    recorded = {v["vcpu"]: v["running_ns"] for v in trace.summary(file, hz)["vcpus"] if not v["idle"]}
    clock = ("--set", f"workload.cpu_hz={hz}")
    done = contend("run", file, *clock, "--machine", "2c", "--json", "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    # Every vCPU computes as long as it ran, on Linux's host here; of runs that the trace cuts off it knows less.
    ran = {row["name"].rsplit("-", 1)[0]: row["runtime_ns"] for row in package.load(tmp_path / "r")["tasks"].to_dicts()}
    assert ran.keys() == recorded.keys()
    assert sum(ran.values()) == pytest.approx(sum(recorded.values()), rel=0.05)
    # What a kernel of Linux would have learned is not in it.
    assert "newidle_ratio" not in contend("run", file, *clock, "--machine", "2c").stdout
    # The same of its model, and of one of its vCPUs.
    assert contend("model", tmp_path / "r", "--out", tmp_path / "m.arrow").returncode == 0
    again = json.loads(contend("run", tmp_path / "m.arrow", "--machine", "2c", "--json").stdout)
    assert again["trace_hash"] == json.loads(done.stdout)["trace_hash"]
    one = json.loads(contend("run", file, *clock, "--set", "workload.command=d1v0", "--json").stdout)
    assert one["tasks"]["count"] == 1
    # Of a domain without a kernel, on a simulated Xen host.
    parts = ", ".join(f'{{ kind = "recording", file = "{file}", command = "d1v{i}", cpu_hz = {hz} }}' for i in (0, 1))
    (tmp_path / "x.toml").write_text(
        'machine = "4c"\n[xen]\nscheduler = "credit2"\npreset = "upstream-today"\n'
        f'[[guest]]\nname = "d1"\nvcpus = 2\nkernel = false\n[guest.workload]\nkind = "mix"\nparts = [{parts}]\n'
    )
    domain = json.loads(contend("run", "x.toml", "--json").stdout)["xen"]["domains"][0]
    assert domain["run_s"] * 1e9 == pytest.approx(ran["d1v0"] + ran["d1v1"], rel=0.01)
    refused = contend("validate", file)
    assert refused.returncode == 2
    assert "`contend xen replay` compares a trace with its replay on Xen" in refused.stderr
    # Twice the frequency, half the time.
    slow = json.loads(contend("run", file, "--machine", "2c", "--set", f"workload.cpu_hz={hz // 2}", "--json").stdout)
    assert slow["ledger_ns"]["user"] / json.loads(done.stdout)["ledger_ns"]["user"] == pytest.approx(2, rel=1e-3)


def test_errors_are_contends(tmp_path: Path) -> None:
    with pytest.raises(ContendError, match="No such file"):
        trace.summary(tmp_path / "none.bin")


def files(tmp_path: Path) -> list[tuple[str, Path]]:
    """The samples, unpacked."""
    found = [(name, gzip.decompress(sample(name).read_bytes())) for name in SAMPLES]
    if LARGE:
        found += [(f.name, lzma.decompress(f.read_bytes())) for f in sorted(Path(LARGE).glob("*.bin.xz"))]
    for name, raw in found:
        (tmp_path / f"{name}.raw").write_bytes(raw)
    return [(name, tmp_path / f"{name}.raw") for name, _ in found]


def test_xenalyze_reads_what_is_written(tmp_path: Path) -> None:
    tool = xenalyze()
    if tool is None:
        pytest.skip("SKIPPED: xenalyze is not on this machine (Debian: apt-get install xen-utils-4.17)")
    for name, raw in files(tmp_path):
        out = tmp_path / f"{name}.again"
        met = trace.rewrite(raw, out)
        assert met["records"] > 5000
        original, again = dumped(tool, raw), dumped(tool, out)
        assert len(original) > met["records"], name
        assert again == original, name


def summed(tool: str, file: Path) -> dict[str, dict[str, tuple[int, float]]]:
    """Of each vCPU: how many stays in a state, and ns in all, as xenalyze's summary says."""
    done = subprocess.run(
        [tool, "--cpu-hz=2.6G", "-s", str(file)], capture_output=True, text=True, timeout=120, check=True
    )
    vcpus: dict[str, dict[str, tuple[int, float]]] = {}
    dom = stays = None
    for line in done.stdout.splitlines():
        if found := re.match(r"\|-- Domain (\d+) --\|", line):
            dom, stays = found[1], None
        elif found := re.match(r"-- v(\d+) --", line):
            stays = vcpus.setdefault(f"d{dom}v{found[1]}", {})
        elif stays is not None and (found := re.match(r"\s+(\w+):\s+(\d+)\s+[\d.]+s (\d+) ", line)):
            stays[found[1]] = (int(found[2]), int(found[2]) * int(found[3]) / 2.6)
    return vcpus


def test_our_summary_says_what_xenalyzes_says(tmp_path: Path) -> None:
    tool = xenalyze()
    if tool is None:
        pytest.skip("SKIPPED: xenalyze is not on this machine (Debian: apt-get install xen-utils-4.17)")
    for name, raw in files(tmp_path):
        theirs, said = summed(tool, raw), trace.summary(raw, HZ)
        states: dict[str, list[dict[str, Any]]] = {}
        for r in trace.records(raw, HZ):
            if r["event"].startswith("runstate_"):
                states.setdefault(r["vcpu"], []).append(r)
        for v in (v for v in said["vcpus"] if not v["idle"]):
            stays, changes = theirs[v["vcpu"]], states[v["vcpu"]]
            where = f"{name} {v['vcpu']}: {stays}"
            runs = [r["ns"] for r in changes if r.get("new", "running") == "running"]
            # It counts from the first dispatch on, and not the last stay.
            left_out = runs[0] + said["duration_ns"] - changes[-1]["ns"]
            for state in ("running", "runnable", "blocked", "offline"):
                more = v[f"{state}_ns"] - stays.get(state, (0, 0.0))[1]
                assert -20_000 < more < left_out + 20_000, where
            assert v["dispatches"] + v["continued"] - stays["running"][0] in (0, 1), where
            assert v["wake_to_run_us"]["count"] - stays.get("wake", (0, 0.0))[0] in (0, 1), where


def test_our_dump_says_what_xenalyze_says(tmp_path: Path) -> None:
    tool = xenalyze()
    if tool is None:
        pytest.skip("SKIPPED: xenalyze is not on this machine (Debian: apt-get install xen-utils-4.17)")
    for name, raw in files(tmp_path):
        events = [
            re.sub(r"^\s*[\d.]* d\S+ ", "", line) for line in dumped(tool, raw) if re.match(r"\s+[\d.]* ?d", line)
        ]
        # It prints durations without leading zeros after the point: 290021 ns are 290.21us.
        events = [re.sub(r"(\d+)\.(\d+)us", lambda m: f"{m[1]}.{int(m[2]):03}us", event) for event in events]
        dump = XenTraceDump(raw, HZ)
        ours = []
        while part := dump.part():
            ours += [line[20:] for line in part.splitlines()]
        assert ours == events, name
