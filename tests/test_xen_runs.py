"""Runs of Xen hosts: what is stored, what is said of them, traces, and the tools that change a scenario."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import contend as package
import polars as pl
import pytest
from conftest import ROOT, Contend, tree
from contend import text
from contend.comparing import comparison, show
from contend.explain import explain
from contend.quantity import quantities
from contend.xen import hosts, report, trace

SCHEDULERS = ["credit", "credit2", "round-robin"]

TWO = """machine = "2n1l2c1t"
seed = 3
[xen]
scheduler = "credit"
[[guest]]
name = "dom0"
vcpus = 2
kernel = false
[guest.workload]
kind = "hogs"
tasks = 2
duration_ms = 300
[[guest]]
name = "vm1"
vcpus = 4
weight = 512
cpus_soft = "node:1"
set = { spinlock = "ticket" }
[guest.workload]
kind = "hackbench"
groups = 1
fds = 2
loops = 2000
[[at]]
s = 0.01
xl = "vcpu-pin dom0 1 0"
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result of two domains on four pCPUs, one with a kernel, and its trace."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "two.toml").write_text(TWO)
    package.run(folder / "two.toml", out=folder / "r", trace=folder / "r.xentrace")
    return folder


def shown(said: dict[str, Any]) -> str:
    out = text.console()
    with out.capture() as capture:
        text.explained(said, out)
    return " ".join(capture.get().split())


def test_the_summary_of_a_xen_host(two: Path) -> None:
    s = package.load(two / "r").summary
    x = s["xen"]
    assert (s["outcome"], s["workload"], s["policy"], s["algorithm"]) == ("finished", "domains", "xen-credit", "credit")
    assert (x["scheduler"], x["preset"], x["patches"], x["set"]) == ("credit", "base", [], {})
    assert [(d["id"], d["name"], d["weight"], d["vcpus"]) for d in x["domains"]] == [
        (0, "dom0", 256, 2),
        (1, "vm1", 512, 4),
    ]
    assert x["timeline"] == [{"s": 0.01, "xl": "vcpu-pin dom0 1 0"}]
    assert x["pools"] == [{"name": "Pool-0", "cpus": "0-3", "ratelimit_us": 1000, "tslice_ms": 30}]
    assert sum(s["ledger_ns"].values()) == s["cpus"] * s["virtual_ns"]
    for d in x["domains"]:
        times = sum(d[key] for key in ("run_s", "wait_s", "blocked_s", "offline_s"))
        assert times == pytest.approx(d["vcpus"] * s["virtual_s"])
        assert d["cpu_pct"] == pytest.approx(100 * d["run_s"] / s["virtual_s"])
    assert sum(d["share_pct"] for d in x["domains"]) == pytest.approx(100)
    assert set(x["perf"]) == {c["name"] for c in package.list_counters() if c["of"] == "xen"}
    assert x["perf"]["sched_run"] >= x["perf"]["sched_ctx"] > 0
    assert [g["name"] for g in s["guests"]] == ["vm1"], "dom0 has no kernel"
    assert {k["kind"] for k in s["lock_kinds"]} >= {"schedule", "prv", "domain"}
    assert s["features"]["xen.scheduler"] == "credit"
    assert "wake_path" not in s["features"]


def test_the_table_of_vcpus(two: Path) -> None:
    r = package.load(two / "r")
    vcpus = r["xen_vcpus"]
    states = ("run_ns", "wait_ns", "blocked_ns", "offline_ns")
    assert (vcpus.select(pl.sum_horizontal(*states)).to_series() == r.summary["virtual_ns"]).all()
    for d in r.summary["xen"]["domains"]:
        mine = vcpus.filter(pl.col("name") == d["name"])
        assert (mine.height, mine["dispatches"].sum()) == (d["vcpus"], d["dispatches"])
        assert int(mine["run_ns"].sum()) / 1e9 == pytest.approx(d["run_s"])
    assert vcpus.filter(pl.col("name") == "dom0")["in_soft_ns"].sum() > 0


def test_a_stored_host_gives_the_same_bytes(two: Path, tmp_path: Path) -> None:
    package.run(two / "r", out=tmp_path / "again")
    assert tree(tmp_path / "again") == tree(two / "r")


def test_explain_of_a_xen_host(two: Path, contend: Contend) -> None:
    done = contend("explain", two / "r")
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    for part in (
        "2 domains of 2 to 4 vCPUs (hogs, hackbench) on 2n1l2c1t (4 CPUs) under Xen's credit (base), seed 3: finished",
        "vCPUs ran for", "was outside their soft affinity: vm1 for", "passes of the scheduler left what ran in",
        "Domains", "Changes", "xl vcpu-pin dom0 1 0", "Locks of the scheduler", "sched_ctx",
    ):  # fmt: skip
        assert part in words, words
    assert "directed yield" not in words.lower()
    said = json.loads(contend("explain", two / "r", "--json").stdout)
    assert said["xen"]["perf"]["sched_run"] > 0
    done = contend("run", two / "two.toml")
    assert done.returncode == 0
    assert "Counters: sched_run" in done.stdout


def test_two_hosts_are_compared(two: Path, tmp_path: Path) -> None:
    package.run(two / "two.toml", set={"xen.preset": "patched", "guest.weight": 64}, out=tmp_path / "new")
    found = package.compare(two / "r", tmp_path / "new", seeds=2)
    changed = found.results[0].changed
    assert changed["xen.preset"] == ["base", "patched"]
    assert changed["vm1.weight"] == ["512", "64"]
    assert changed["xen.patches"] == ["none", "1-24"]
    assert report.patches_words([1, 2, 3, 7, 9, 10]) == "1-3,7,9-10"
    names = {r.name for r in found.results[0].rows}
    assert {"vm1: within its soft affinity", "vm1: waited", "sched_ctx"} <= names
    out = text.console()
    with out.capture() as capture:
        show.compared(found, out)
    assert "under Xen's credit (patched)" in " ".join(capture.get().split())
    assert comparison.changes(package.load(two / "r").summary, package.load(two / "r").summary) == {}
    bare = package.run({"machine": "2c", "workload": {"kind": "hogs", "duration_ms": 5}})
    assert explain(bare)["xen"] is None
    assert not [q for q in quantities(bare.summary) if q.group == "Xen"]


@pytest.mark.slow
def test_pictures(two: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from contend.plot import draw

    xen, idle = package.load(two / "r"), package.run({"machine": "2c", "workload": {"kind": "hogs", "duration_ms": 5}})
    for name, results in (("one", [xen]), ("two", [xen, xen]), ("nothing", [idle])):
        draw(results, str(tmp_path / f"{name}.png"))
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_scheduler_and_preset_runs(scheduler: str) -> None:
    scenario = {
        "machine": "4c",
        "xen": {"scheduler": scheduler},
        "guest": [
            {"name": "a", "vcpus": 4, "kernel": False, "workload": {"kind": "hogs", "tasks": 4, "duration_ms": 100}},
            {"name": "b", "vcpus": 4, "workload": {"kind": "hackbench", "groups": 1, "fds": 2, "loops": 5}},
        ],
    }
    for preset in ("base", "patched", "upstream-today"):
        r = package.run(scenario, set={"xen.preset": preset}, horizon_s=0.5)
        assert r.ok, r.summary["outcome_detail"]
        assert all(d["run_s"] > 0 for d in r.summary["xen"]["domains"])
        assert all(d["soft_pct"] == 100 for d in r.summary["xen"]["domains"]), "everywhere is within everywhere"


SHARES = """machine = "4c"
[xen]
scheduler = "SCHEDULER"
[set]
xen.credit2_runqueue = "socket"
[[guest]]
name = "vm"
copies = 2
vcpus = 4
kernel = false
[guest.workload]
kind = "hogs"
tasks = 4
duration_ms = 8000
[[at]]
s = 2
xl = "COMMAND"
"""


@pytest.mark.parametrize("scheduler", ["credit", "credit2"])
def test_a_change_at_two_seconds_is_seen(tmp_path: Path, scheduler: str) -> None:
    """Equal weights before; after it, when the credit of before is gone, 2 : 1."""
    command = f"{hosts.COMMANDS[scheduler]} -d vm1 -w 512"
    (tmp_path / "x.toml").write_text(SHARES.replace("SCHEDULER", scheduler).replace("COMMAND", command))
    ends = [1.0, 1.999, 4.0, 8.0]
    runs = [package.run(tmp_path / "x.toml", horizon_s=end).summary["xen"]["domains"] for end in ends]
    assert [[d["weight"] for d in domains] for domains in runs] == [[256, 256], [256, 256], [256, 512], [256, 512]]

    def share(from_: int, to: int) -> float:
        got = [b["run_s"] - a["run_s"] for a, b in zip(runs[from_], runs[to], strict=True)]
        return float(got[1] / sum(got))

    assert share(0, 1) == pytest.approx(0.5, abs=0.01)
    assert share(2, 3) == pytest.approx(2 / 3, abs=0.01)


@pytest.mark.parametrize(("scheduler", "preset"), [("credit", "base"), ("credit2", "upstream-today")])
def test_a_cap_that_changes(tmp_path: Path, scheduler: str, preset: str) -> None:
    """Half a pCPU for two seconds, then one."""
    command = f"{hosts.COMMANDS[scheduler]} -d vm -c 100"
    text_ = SHARES.replace("SCHEDULER", scheduler).replace("COMMAND", command).replace("copies = 2", "cap = 50")
    (tmp_path / "x.toml").write_text(text_)
    vm = package.run(tmp_path / "x.toml", set={"xen.preset": preset}, horizon_s=4).summary["xen"]["domains"][0]
    assert (vm["cap"], vm["vcpus"]) == (100, 4)
    # Credit1 rounds each vCPU's credit up, 37.5 to 38.
    assert vm["cpu_pct"] == pytest.approx(75, abs=2)
    assert vm["offline_s"] > 8, "parked"


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_pinned_vcpu_stays_where_it_was_put(tmp_path: Path, scheduler: str) -> None:
    text_ = SHARES.replace("SCHEDULER", scheduler).replace("copies = 2\n", 'cpus = ["0", "1", "2", "3"]\n')
    (tmp_path / "x.toml").write_text(text_.replace("s = 2\n", "s = 0.02\n").replace("COMMAND", "vcpu-pin vm 3 0"))
    r = package.run(tmp_path / "x.toml", horizon_s=0.5)
    vcpus = r["xen_vcpus"]
    assert vcpus["moves"].to_list() == [0, 0, 0, 1]
    run = vcpus["run_ns"].to_list()
    assert run[0] + run[3] == pytest.approx(0.52e9, abs=0.01e9), "both on pCPU 0, but for 20 ms"


def test_weights_of_the_shipped_scenario() -> None:
    for scheduler in ("credit", "credit2"):
        r = package.run(ROOT / "scenarios" / "xen-weights.toml", set={"xen.scheduler": scheduler}, horizon_s=10)
        shares = {d["name"]: d["share_pct"] for d in r.summary["xen"]["domains"]}
        assert shares["heavy"] == pytest.approx(66.67, abs=1), scheduler


# ---- traces ----------------------------------------------------------------------------------------------------------


def test_a_trace_of_xens_records(two: Path) -> None:
    said = trace.summary(two / "r.xentrace")
    s = package.load(two / "r").summary
    ran = {v["vcpu"]: v["running_ns"] for v in said["vcpus"] if not v["idle"]}
    assert set(ran) == {"d0v0", "d0v1", "d1v0", "d1v1", "d1v2", "d1v3"}
    # The trace ends with its last record, the run a little later.
    assert sum(ran.values()) / 1e9 == pytest.approx(sum(d["run_s"] for d in s["xen"]["domains"]), abs=0.002)


def test_traces_of_switches(two: Path, tmp_path: Path) -> None:
    package.run(two / "two.toml", trace=tmp_path / "t.txt", horizon_s=0.01)
    assert "sched_switch: prev_comm=" in (tmp_path / "t.txt").read_text()
    assert "d1v0" in (tmp_path / "t.txt").read_text()


def test_only_xen_hosts_make_xens_records(small: Path, tmp_path: Path) -> None:
    with pytest.raises(
        package.ScenarioInvalid, match=r"--trace: found .*t\.bin.; should be a name that does not end in"
    ):
        package.run(small, trace=tmp_path / "t.bin")
    assert not (tmp_path / "t.bin").exists()


# ---- tools -----------------------------------------------------------------------------------------------------------


def lines(contend: Contend, *args: object) -> list[str]:
    done = contend("xen", *args)
    assert done.returncode == 0, done.stderr
    return list(done.stdout.splitlines())


def test_parameters_are_listed_as_xl_lists_them(contend: Contend, two: Path) -> None:
    pool = "Cpupool Pool-0: tslice=30ms ratelimit=1000us migration-delay=0us"
    head = "Name                                ID Weight  Cap"
    dom0 = "Domain-0                             0    256    0".replace("Domain-0", "dom0    ")
    vm1 = "vm1                                  1    512    0"
    file = two / "two.toml"
    assert lines(contend, "sched-credit", file) == [pool, head, dom0, vm1]
    assert lines(contend, "sched-credit", file, "-d", "1") == [head, vm1]
    assert lines(contend, "sched-credit", file, "-s") == [pool]
    assert lines(contend, "sched-credit", two / "r", "-p", "Pool-0") == [pool, head, dom0, vm1]
    assert lines(contend, "vcpu-list", file, "dom0") == [
        "Name                                ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)",
        "dom0                                 0     0    -   ---       0.0  all / all",
        "dom0                                 0     1    -   ---       0.0  all / all",
    ]
    assert lines(contend, "vcpu-list", file, "dom0", "--at", 0.01)[2].endswith("0 / all")
    assert lines(contend, "vcpu-list", two / "r", "vm1")[1].endswith("all / 2-3")


def test_changes_are_appended(contend: Contend, tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text(TWO.rstrip("\n"))
    dry = contend("xen", "sched-credit", file, "-d", "vm1", "-w", "1000", "--at", "2", "--dry-run")
    assert dry.stdout == '[[at]]\ns = 2\nxl = "sched-credit -d vm1 -w 1000"\n'
    assert file.read_text() == TWO.rstrip("\n")
    assert lines(contend, "sched-credit", file, "-d", "vm1", "-w", "1000", "-c", "50", "--at", "2")
    assert lines(contend, "sched-credit", file, "-s", "-t", "5", "-r", "500", "--at", "1.5")
    assert file.read_text().endswith('\n\n[[at]]\ns = 1.5\nxl = "sched-credit -s -t 5 -r 500"\n')
    assert "1.5 s" not in file.read_text()
    assert lines(contend, "sched-credit", file, "-d", "vm1", "--at", "1.9")[1].split() == ["vm1", "1", "512", "0"]
    assert lines(contend, "sched-credit", file, "-d", "vm1", "--at", "2")[1].split() == ["vm1", "1", "1000", "50"]
    assert lines(contend, "sched-credit", file, "-s", "--at", "2")[0].startswith(
        "Cpupool Pool-0: tslice=5ms ratelimit=500us"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["two.toml"], "nothing else is left"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["sched-credit2", "-d", "vm1", "-w", "9", "--at", "1"], "the scheduler of this host is credit: `contend xen "
         "sched-credit`"),
        (["sched-credit", "-d", "vm1", "-w", "0", "--at", "1"], "-w 0: should be a weight from 1 to 65535"),
        (["sched-credit", "-d", "vm2", "-w", "9", "--at", "1"], "there is no domain vm2; did you mean vm1?"),
        (["sched-credit", "-d", "vm2"], "there is no domain vm2; there are dom0 (0), vm1 (1)"),
        (["sched-credit", "-w", "9", "--at", "1"], "-w and -c need a domain: -d DOMAIN"),
        (["sched-credit", "-d", "vm1", "-w", "9"], "--at is missing: the virtual second at which the change happens"),
        (["sched-credit", "-d", "vm1", "-w", "9", "--at", "0"], "found '0'; should be virtual seconds above 0"),
        (["sched-credit", "-s", "-r", "99", "--at", "1"], "-r 99: should be 0 (no limit), or a rate limit from 100"),
        (["sched-credit", "-r", "500", "--at", "1"], "-s must stand with them"),
        (["sched-credit", "-p", "x"], "there is no cpupool x; there are Pool-0"),
        (["vcpu-list", "vm7"], "there is no domain vm7"),
    ],
)  # fmt: skip
def test_what_the_tools_refuse(contend: Contend, tmp_path: Path, args: list[str], message: str) -> None:
    file = tmp_path / "two.toml"
    file.write_text(TWO)
    done = contend("xen", args[0], file, *args[1:])
    assert done.returncode == 2
    assert message in done.stderr
    assert file.read_text() == TWO


def test_a_change_that_is_refused_names_no_line_of_its_own(contend: Contend, tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text(TWO)
    done = contend("xen", "sched-credit", file, "-d", "vm1", "-w", "0", "--at", "1")
    assert done.stderr.startswith(f"error: {file}: `xl sched-credit -d vm1 -w 0`: -w 0: should be")
    file.write_text('at = [{s = 1, xl = "sched-credit -d vm1 -w 9"}]\n' + TWO.partition("[[at]]")[0])
    done = contend("xen", "sched-credit", file, "-d", "vm1", "-w", "8", "--at", "1")
    assert (done.returncode, done.stderr) == (
        2,
        f"error: {file}: at: found an inline array; should be tables [[at]] for a change to be appended\n",
    )


def test_the_tools_need_a_xen_host(contend: Contend, small: Path, two: Path) -> None:
    done = contend("xen", "sched-credit", small)
    assert done.returncode == 2
    assert "the host is not Xen's" in done.stderr
    done = contend("xen", "sched-credit", two / "r", "-d", "vm1", "-w", "9", "--at", "1")
    assert "should be a scenario's file (.toml) for a change" in done.stderr


def test_a_change_after_the_end_is_not_made(contend: Contend, tmp_path: Path) -> None:
    late = """[[at]]
s = 0.005
xl = "vcpu-pin dom0 0 2-3"
[[at]]
s = 50
xl = "sched-credit -d vm1 -w 300"
"""
    (tmp_path / "late.toml").write_text(TWO + late)
    result = package.run(tmp_path / "late.toml", out=tmp_path / "r")
    made, left = (result.summary["xen"][key] for key in ("timeline", "not_reached"))
    assert [t["s"] for t in made] == [0.005, 0.01] and [t["s"] for t in left] == [50]
    assert "Not reached: the run ended before xl sched-credit -d vm1 -w 300 (at 50 s)." in shown(explain(result))
    # A result's vCPUs are listed as they were when they had run for that long.
    listed = lines(contend, "vcpu-list", tmp_path / "r", "dom0")
    assert [line.split()[-3:] for line in listed[1:]] == [["2-3", "/", "all"], ["0", "/", "all"]]
    assert lines(contend, "vcpu-list", tmp_path / "r", "dom0", "--at", "0.001")[1].endswith("all / all")


@pytest.mark.parametrize(
    ("scheduler", "other"), [("credit", "xen.c2_"), ("credit2", "xen.c1_"), ("round-robin", "xen.c")]
)
def test_a_scheduler_is_told_its_own_switches(scheduler: str, other: str) -> None:
    told = [report.mechanism(account, scheduler) or "" for account in report.MECHANISMS]
    assert not [text for text in told if other in text or " ()" in text]
    assert any("xen.tslice_ms" in text for text in told) == (scheduler == "credit")
    assert any("xen.ratelimit_us" in text for text in told) == (scheduler != "round-robin")
