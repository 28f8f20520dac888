"""Scenarios with virtual machines: what is refused, what is stored, what is said of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import contend as package
import polars as pl
import pytest
from conftest import ROOT, Contend, tree
from contend import _core, guests, text
from contend.comparing.comparison import changes
from contend.explain import explain
from contend.quantity import quantities
from contend.result import Result

GUEST = "[[guest]]\nvcpus = 2\n"
LOAD = '[guest.workload]\nkind = "hackbench"\ngroups = 1\nfds = 2\nloops = 20\n'
TWO = f'machine = "2c"\nseed = 3\nhorizon_s = 2\n[[guest]]\ncopies = 2\nvcpus = 2\n{LOAD}'

WRONG = [
    ("one-bracket", "[guest]\nvcpus = 2\n", "2: guest: found a table; should be tables [[guest]], with two brackets on "
     "each side"),
    ("unknown-key", f"[[guest]]\nvcpu = 2\n{LOAD}", "3: guest.vcpu: unknown key; did you mean vcpus?"),
    ("no-vcpus", f"[[guest]]\n{LOAD}", "2: guest.vcpus: missing; write vcpus = N"),
    ("zero-vcpus", f"[[guest]]\nvcpus = 0\n{LOAD}", "3: guest.vcpus: found 0; should be a whole number from 1 to 4096"),
    ("5000-vcpus", f"[[guest]]\nvcpus = 5_000\n{LOAD}",
     "3: guest.vcpus: found 5000; should be a whole number from 1 to 4096"),
    ("half-a-vcpu", f"[[guest]]\nvcpus = 1.5\n{LOAD}",
     "3: guest.vcpus: found 1.5; should be a whole number from 1 to 4096"),
    ("too-many-vcpus-in-all", f"[[guest]]\nvcpus = 60\ncopies = 80\n{LOAD}",
     "4: guest.copies: found 4800 vCPUs in all guests so far; should be at most 4096"),
    ("name", f'[[guest]]\nname = "a/b"\nvcpus = 1\n{LOAD}',
     '3: guest.name: found "a/b"; should be 1 to 32 of the letters a to z and A to Z, digits, - _ .'),
    ("same-name", f"{GUEST}{LOAD}[[guest]]\nvcpus = 1\n{LOAD}",
     '9: guest.name: found "vm" a second time; should be a name of its own for each guest'),
    ("policy", f'{GUEST}policy = "linux-3.66"\n{LOAD}',
     '4: guest.policy: unknown policy "linux-3.66"; did you mean linux-3.6 or linux-3.0 or linux-6.6?'),
    ("topology", f'{GUEST}topology = "two"\n{LOAD}',
     '4: guest.topology: synthetic machine "two": should be numbers with n (nodes), l (LLCs per node), '
     "k (clusters per LLC), c (cores per cluster, or per LLC), t (threads per core), in this order, such as "
     "2n2l8c2t, 2n8k4c or 16c"),
    ("topology-and-vcpus", f'{GUEST}topology = "4c"\n{LOAD}',
     '4: guest.topology: found "4c", 4 CPUs, with vcpus = 2; should be of 2 CPUs, such as 1n2l1c1t; or one of the two '
     "left out"),
    ("pin", f'{GUEST}pin = "all"\n{LOAD}', '4: guest.pin: found "all"; should be "none" or "1:1"'),
    ("background", f"{GUEST}background = true\n{LOAD}",
     "2: guest.background: found true for all guests; should be false for a guest at least: the run would end as it "
     "begins"),
    ("feature", f"{GUEST}set = {{ spin = 1 }}\n{LOAD}",
     "4: `spin` = `1`: no such feature; `contend list features` lists them"),
    ("feature-of-all", f'[set]\n"guest.spinlock" = "tickt"\n{GUEST}{LOAD}',
     "3: `guest.spinlock` = `tickt`: should be "),
    ("contradiction", f"{GUEST}set = {{ sis_rotate = true }}\n{LOAD}",
     "4: `sis_rotate` = `true`: needs sis_next_cpu = true"),
    ("kvm", f"[set]\nkvm.ple_gap = -1\n{GUEST}{LOAD}",
     "3: `kvm.ple_gap` = `-1`: should be an integer from 0 to 1,000,000,000,000"),
    ("unknown-kvm", f"[set]\nkvm.ple = 1\n{GUEST}{LOAD}", "3: `kvm.ple` = `1`: no such feature; "),
    ("kvm-without-guests", '[set]\nkvm.ple_gap = 0\n[workload]\nkind = "hackbench"\n',
     "3: kvm.ple_gap: found 0; should be left out: the scenario has no table [[guest]]"),
    ("key-in-set", f"[set]\nguest.vcpus = 3\n{GUEST}{LOAD}",
     "3: set.guest.vcpus: found 3; should be written in the table [[guest]]"),
    ("no-workload", GUEST, "2: guest.workload: missing; write a table [guest.workload] below it, with kind = "),
    ("workload-key", f"{GUEST}{LOAD}grops = 1\n", "9: guest.workload.grops: unknown key; did you mean groups?"),
    ("workload-kind", f'{GUEST}[guest.workload]\nkind = "hackbnch"\n',
     '5: guest.workload.kind: found "hackbnch"; should be one of '),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_what_is_wrong_with_guests(tmp_path: Path, body: str, message: str) -> None:
    (tmp_path / "x.toml").write_text(f'machine = "2c"\n{body}')
    with pytest.raises(package.ScenarioInvalid) as e:
        package.run(tmp_path / "x.toml")
    assert str(e.value).removeprefix(f"{tmp_path}/x.toml:").startswith(message)


SET = [
    ("guest.vcpus", "0", "--set: guest.vcpus: found 0; should be a whole number from 1 to 4096"),
    ("guest.copies", "x", "--set: guest.copies: found x; should be a whole number from 1 to 4096"),
    ("guest.name", "x", "--set: guest.name: unknown key; guest.FEATURE, guest.workload.KEY, or a key of the guest but "
     "its name"),
    ("guest.workload.grops", "1", "--set: guest.workload.grops: unknown key; did you mean groups?"),
    ("guest.spinlok", "ticket", "--set: `guest.spinlok` = `ticket`: no such feature; did you mean `spinlock`?"),
    ("workload.groups", "1", "--set: workload.groups: unknown key; guest.workload.groups: nothing runs on the host of "
     "this scenario but its guests"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "message"), SET, ids=[s[0] for s in SET])
def test_what_is_wrong_with_overrides(contend: Contend, tmp_path: Path, key: str, value: str, message: str) -> None:
    (tmp_path / "x.toml").write_text(TWO)
    done = contend("run", "x.toml", "--set", f"{key}={value}")
    assert (done.returncode, done.stderr) == (2, f"error: {message}\n")


def test_overrides_need_guests(contend: Contend, small: Path) -> None:
    for key in ("guest.vcpus", "guest.spinlock", "kvm.ple_gap"):
        done = contend("run", small, "--set", f"{key}=1")
        message = f"--set: {key}: found 1; should be left out: the scenario has no table [[guest]]"
        assert (done.returncode, done.stderr) == (2, f"error: {message}\n")


def resolved(path: Path, **sets: str) -> str:
    return _core.resolve(path=path, set=[(k.replace("__", "."), v) for k, v in sets.items()])


def test_overrides_change_every_guest(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(TWO.replace("vcpus = 2", 'vcpus = 2\nset = { spinlock = "queued" }'))
    text_ = resolved(
        file, guest__vcpus="3", guest__copies="4", guest__workload__loops="7", guest__spinlock="ticket",
        kvm__directed_yield="3.6", guest__policy="linux-3.6", guest__pin="1:1",
    )  # fmt: skip
    for line in (
        "vcpus = 3",
        "copies = 4",
        "loops = 7",
        '"kvm.directed_yield" = "3.6"',
        'topology = "1n3l1c1t"',
        'pin = "1:1"',
        'policy = "linux-3.6"',
    ):
        assert line in text_, text_
    assert 'spinlock = "queued"' not in text_, "what is set for all guests is stronger than a guest's own"


def test_a_mapping_may_have_guests() -> None:
    scenario = {"machine": "2c", "guest": [{"vcpus": 2, "workload": {"kind": "hackbench"}}, {"vcpus": 0}]}
    with pytest.raises(package.ScenarioInvalid, match=r"^scenario: guest\.1\.vcpus: found 0; should be a whole number"):
        package.run(scenario)


def test_lists() -> None:
    kvm = {f["name"]: f for f in package.list_kvm()}
    assert kvm["directed_yield"]["value"] == "today"
    counters = {c["name"]: c["of"] for c in package.list_counters()}
    assert (counters["yield_to_attempted"], counters["PAUSE_INSTRUCTION"]) == ("kvm", "exits")
    assert set(guests.EXITS) == {name for name, of in counters.items() if of == "exits"}
    assert set(guests.FAILED.values()) <= set(counters)


# ---- explain, on a result made by hand -------------------------------------------------------------------------


def preemption(holder: int) -> dict[str, Any]:
    return {"holder": holder, "holder_s": 0.02 * holder, "holder_max_us": 900.0, "waiter": 2, "waiter_s": 0.001}


def by_hand(small: Path, account: str = "guest_spin", holder: int = 3, attempted: int = 1000) -> Result:
    """A result of a bare host, with guests written into its summary."""
    r = package.run(small)
    s = r.summary
    s["workload"] = "guests"
    s["ledger_ns"] = {**dict.fromkeys(s["ledger_ns"], 0), "guest_user": 400, account: 500, "idle": 100}
    shares = {
        "guest_user_pct": 40.0, "guest_kernel_pct": 10.0, "spin_pct": 25.0, "host_pct": 5.0, "steal_pct": 15.0,
        "halted_pct": 5.0,
    }  # fmt: skip
    reasons = {**dict.fromkeys(guests.EXITS, 0), "PAUSE_INSTRUCTION": 900, "HLT": 100}
    guest: dict[str, Any] = {
        **shares, "vcpus": 2, "finished_s": 0.5, "exits": reasons, "exits_count": 1000, "preempted": 7,
        "preempted_max_us": 1500.0, "lock_preemption": preemption(holder),
        "lock_preemption_kinds": [{"kind": "spinlock", **preemption(holder)}],
    }  # fmt: skip
    lock = {
        "name": "zone", "kind": "spinlock", "acquisitions": 9, "contended": 4, "wait_s": 0.001, "wait_max_us": 700.0,
        "hold_s": 0.002, "preemption": preemption(holder),
    }  # fmt: skip
    about = {"workload": "dbench", "policy": "linux-3.6", "topology": "1n2l1c1t", "pin": "none", "set": {}}
    s["guests"] = [{**about, **guest, "name": f"vm{i}", "locks": [lock]} for i in range(2)]
    s["guests_total"] = {**guest, "vcpus": 4, "finished_s": None}
    s["kvm"] = dict.fromkeys((c["name"] for c in package.list_counters() if c["of"] == "kvm"), 0)
    s["kvm"] |= {
        "yield_to_attempted": attempted, "yield_to_succeeded": attempted // 100,
        "yield_to_failed_target_running": attempted - attempted // 100, "yield_to_failed_unlocked": attempted // 2,
        "kvm_vcpu_on_spin": 300, "on_spin_candidates": 4000,
    }  # fmt: skip
    return r


def shown(said: dict[str, Any]) -> str:
    out = text.console()
    with out.capture() as capture:
        text.explained(said, out)
    return " ".join(capture.get().split())


def test_explain_names_what_limits_the_run(small: Path) -> None:
    said = explain(by_hand(small))
    assert said["guests"]["limit"]["account"] == "guest_spin"
    assert said["guests"]["exits"][0]["reason"] == "PAUSE_INSTRUCTION"
    assert said["guests"]["directed_yield"]["success_share"] == 0.01
    assert said["guests"]["lock_preemption"]["locks"][0]["name"] == "zone"
    words = shown(said)
    assert words.startswith("2 guests of 2 vCPUs (dbench) on 2n1l4c2t (16 CPUs)")
    for part in (
        "Guests worked for 40.00 % of the CPU time: 40.00 % in their tasks, 0.00 % in their kernels. Most of the "
        "rest went to guest_spin (50.00 %), then to idle (10.00 %). Guests' kernels wait for locks. Lock holders lost "
        "their CPU 3 times, for "
        "20.00 ms on average and 900.0 us at most, longest in all at zone of vm0 (60.00 ms); waiters lost theirs "
        "or yielded it 2 times",
        "Guests: where the time of their vCPUs went",
        "PAUSE_INSTRUCTION 900 90.00 %",
        "4 1.00 ms 700.0 us 250.0 us 9 2.00 ms spinlock zone of vm0",
        "directed yields attempted 1,000",
        "succeeded 10 1.00 %",
        "wasted: running 990 99.00 %",
        "wasted without taking a lock 500 50.00 %",
    ):
        assert part in words, words


@pytest.mark.parametrize(
    ("account", "why"),
    [
        ("rq_lock_wait", "Run-queue locks are what directed yields contend for. 1,000 directed yields were attempted"),
        ("ple", "Pause loops end in the handler"),
        ("vm_exit", "Each exit costs its way out and back: 1,000 of them, most PAUSE_INSTRUCTION (90.00 %"),
        ("halt_poll", "vCPUs that halt poll first"),
        (
            "idle",
            "vCPUs were halted for 5.00 % of their time and runnable without a CPU for 15.00 %: CPUs idled while",
        ),
        ("switch", "Threads take turns on the CPUs. 1,000 directed yields"),
        ("cold_cache", "That is the host's own"),
    ],
)
def test_each_limit_has_its_reason(small: Path, account: str, why: str) -> None:
    said = guests.limit(by_hand(small, account).summary)
    assert said["account"] == account
    assert why in said["text"]


def test_no_preemption_is_said_to_be_none(small: Path) -> None:
    r = by_hand(small, holder=0, attempted=0)
    for p in (
        r.summary["guests_total"]["lock_preemption"],
        *(g["locks"][0]["preemption"] for g in r.summary["guests"]),
    ):
        p.update(waiter=0, waiter_s=0.0, holder_s=0.0, holder_max_us=0.0)
    assert "this is contention, not preemption" in guests.preemption_sentence(r.summary)
    assert guests.yields_sentence(r.summary) == "No directed yield was attempted."
    assert "No vCPU lost its CPU while it held a lock" in shown(explain(r))


def test_two_results_with_guests_are_compared(small: Path) -> None:
    old, new = by_hand(small), by_hand(small, attempted=10_000)
    new.summary["guests"][1]["set"] = {"spinlock": "ticket"}
    new.summary["features"]["kvm.directed_yield"] = "theurer"
    changed = changes(new.summary, old.summary)
    assert changed["guest.spinlock"] == ["the preset's", "the preset's / ticket"]
    assert changed["kvm.directed_yield"][1] == "theurer"
    before, after = ({q.name: q for q in quantities(r.summary)} for r in (old, new))
    assert after["directed yields attempted"].value == 10_000 == 10 * (before["directed yields attempted"].value or 0)
    assert after["directed yields attempted"].rate(2.0).value == 5_000
    assert not {q.name for q in quantities(package.run(small).summary) if q.group == "guests"}


def test_runs_without_guests_say_nothing_of_them(small: Path) -> None:
    r = package.run(small)
    assert (r.summary["kvm"], r.summary["guests"], r.summary["guests_total"]) == ({}, [], None)
    assert [r[t].height for t in ("vcpus", "guest_tasks", "guest_locks")] == [0, 0, 0]
    assert explain(r)["guests"] is None
    assert sum(r.summary["ledger_pct"].values()) == pytest.approx(100)


@pytest.mark.slow
def test_the_picture_has_guests(small: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from contend.plot import draw

    draw([by_hand(small), by_hand(small)], str(tmp_path / "two.png"))
    draw([package.run(small)], str(tmp_path / "none.png"))
    assert (tmp_path / "two.png").stat().st_size > (tmp_path / "none.png").stat().st_size


# ---- runs ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result of two guests of two vCPUs on two CPUs."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "two.toml").write_text(TWO)
    package.run(folder / "two.toml", out=folder / "r")
    return folder


def test_two_guests_on_two_cpus(two: Path) -> None:
    r = package.load(two / "r")
    s = r.summary
    assert (s["outcome"], s["workload"], s["cpus"]) == ("finished", "guests", 2)
    assert [g["name"] for g in s["guests"]] == ["vm0", "vm1"]
    ends = [g["finished_s"] for g in s["guests"]]
    assert max(ends) == s["guests_total"]["finished_s"] <= s["virtual_s"]
    for g in (*s["guests"], s["guests_total"]):
        assert sum(g[key] for key in guests.SHARES) == pytest.approx(100)
        assert g["exits_count"] == sum(g["exits"].values()) > 0
    assert s["guests_total"]["steal_pct"] > 0, "four vCPUs on two CPUs"
    assert s["metrics"]["counts"]["messages"]["count"] == 2 * 2 * 2 * 20
    assert s["guests"][0]["metrics"]["counts"]["messages"]["count"] == 2 * 2 * 20
    assert {t["name"].partition("/")[0] for t in r["tasks"].to_dicts()} >= {"vm0", "vm1"}


def test_both_levels_ledgers_agree(two: Path) -> None:
    r = package.load(two / "r")
    s = r.summary
    assert sum(s["ledger_ns"].values()) == s["cpus"] * s["virtual_ns"]
    vcpus = r["vcpus"]
    assert vcpus.height == 4
    accounts = [f"{a}_ns" for a in s["ledger_ns"]]
    per_vcpu = vcpus.select(pl.sum_horizontal(*accounts, "halted_ns", "stolen_ns", "host_ns")).to_series()
    assert (per_vcpu == s["virtual_ns"]).all()
    inside = sum(int(vcpus[account].sum()) for account in accounts)
    assert inside == sum(s["ledger_ns"][mode] for mode in ("guest_user", "guest_kernel", "guest_spin"))


def test_tables_of_guests(two: Path) -> None:
    r = package.load(two / "r")
    s = r.summary
    for i, g in enumerate(s["guests"]):
        mine = {t: r[t].filter(pl.col("guest") == f"vm{i}") for t in ("vcpus", "guest_tasks", "guest_locks")}
        assert mine["guest_tasks"].height == g["tasks"]["count"] == 4
        assert mine["vcpus"]["preempted"].sum() == g["preempted"]
        for reason, n in g["exits"].items():
            assert mine["vcpus"][f"exits_{reason.lower()}"].sum() == n
        p = g["lock_preemption"]
        assert mine["guest_locks"]["holder_preempted"].sum() == p["holder"]
        assert mine["guest_locks"]["waiter_preempted"].sum() == p["waiter"]
        assert mine["guest_locks"].filter(pl.col("kind") == "rq").height == 2


def test_the_same_guests_are_the_same_bytes(two: Path, contend: Contend, tmp_path: Path) -> None:
    assert contend("run", two / "two.toml", "--out", "process", "-q").returncode == 0
    package.run(two / "r", out=tmp_path / "again")
    first = tree(two / "r")
    assert tree(tmp_path / "process") == first
    assert tree(tmp_path / "again") == first
    other = package.run(two / "r", seed=4)
    assert other.summary["trace_hash"] != package.load(two / "r").summary["trace_hash"]


def test_the_summary_is_json_with_these_keys(two: Path, contend: Contend) -> None:
    s = json.loads(contend("run", two / "two.toml", "--json").stdout)
    total = set(s["guests_total"])
    assert set(s["guests"][0]) - total == {
        "name",
        "workload",
        "policy",
        "topology",
        "pin",
        "set",
        "locks",
        "long_waits",
    }
    assert set(s["ledger_pct"]) == set(s["ledger_ns"])
    assert set(s["kvm"]) == {c["name"] for c in package.list_counters() if c["of"] == "kvm"}
    assert s["kvm"]["ipis_sent"] >= s["kvm"]["ipis_delivered"] > 0
    assert s["features"]["kvm.directed_yield"] == "today"


@pytest.mark.slow
def test_explain_of_a_run_with_guests(two: Path, contend: Contend) -> None:
    done = contend("explain", two / "r")
    assert done.returncode == 0, done.stderr
    for heading in ("2 guests of 2 vCPUs (hackbench) on", "Guests worked for", "Exits", "where the time of"):
        assert heading in done.stdout
    said = json.loads(contend("explain", two / "r", "--json").stdout)
    assert said["guests"]["limit"]["text"].endswith(".")
    same = contend("compare", two / "r", two / "r", "--seeds", "2", "--json")
    assert same.returncode == 0, same.stderr
    rows = {r["name"]: r for r in json.loads(same.stdout)["results"][0]["metrics"]}
    assert rows["vCPU time: stolen"]["verdict"] == "no difference shown"


def test_switches_of_host_and_guests_act() -> None:
    scenario = {
        "machine": "2c",
        "horizon_s": 0.05,
        "guest": [{"vcpus": 4, "copies": 2, "workload": {"kind": "dbench", "clients": 4}}],
    }
    on, off = (
        package.run(
            scenario, set={"guest.spinlock": "ticket", "kvm.ple_window_grow": 0, "kvm.directed_yield": variant}
        ).summary
        for variant in ("3.6", "ple-off")
    )
    assert on["guests_total"]["exits"]["PAUSE_INSTRUCTION"] == on["kvm"]["kvm_vcpu_on_spin"] > 0
    assert off["guests_total"]["exits"]["PAUSE_INSTRUCTION"] == off["kvm"]["kvm_vcpu_on_spin"] == 0
    assert on["guests"][0]["set"]["spinlock"] == "ticket"
    assert on["set"]["kvm.directed_yield"] == "3.6"


def test_pinned_vcpus_have_a_cpu_each() -> None:
    scenario = {"machine": "4c", "guest": [{"vcpus": 4, "pin": "1:1", "workload": {"kind": "hackbench", "loops": 20}}]}
    s = package.run(scenario).summary
    assert s["outcome"] == "finished"
    assert s["tasks"]["migrations"] == 0
    assert s["guests_total"]["steal_pct"] < 1


def test_a_host_may_have_work_beside_its_guests() -> None:
    s = package.run(
        {
            "machine": "2c",
            "workload": {"kind": "hogs", "tasks": 2},
            "guest": [{"vcpus": 2, "workload": {"kind": "hackbench", "groups": 1, "fds": 2, "loops": 20}}],
        }
    ).summary
    assert (s["outcome"], s["workload"]) == ("finished", "hogs"), "the guest ends, and the run with it"
    assert s["ledger_ns"]["user"] > s["ledger_ns"]["guest_user"] > 0
    assert guests.what_ran(s) == "hogs and 1 guest of 2 vCPUs (hackbench)"


def test_files_of_guests_are_stored_with_the_result(tmp_path: Path) -> None:
    (tmp_path / "two.json").write_text('{ "tasks": { "t": { "instance": 2, "loop": 3, "run": 1000, "sleep": 100 } } }')
    recording = ROOT / "recordings" / "hackbench-2cpu.txt.gz"
    loads = [{"kind": "rt-app", "file": str(tmp_path / "two.json")}, {"kind": "recording", "file": str(recording)}]
    guests_ = [{"name": f"g{i}", "vcpus": 2, "workload": load} for i, load in enumerate(loads)]
    r = package.run({"machine": "2c", "horizon_s": 0.05, "guest": guests_}, out=tmp_path / "a")
    assert r.ok, r.summary["outcome_detail"]
    (tmp_path / "two.json").unlink()
    package.run(tmp_path / "a", out=tmp_path / "b")
    a = tree(tmp_path / "a")
    assert a == tree(tmp_path / "b")
    assert {"inputs/two.json", "inputs/hackbench-2cpu.txt.gz"} <= set(a)


def test_a_guest_that_deadlocks_is_named(tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text(
        '{ "tasks": { "a": { "loop": 1, "lock": "m", "sleep": 1000, "run": 10, "wait": {"ref": "c", "mutex": "m"} } } }'
    )
    scenario = {
        "machine": "2c",
        "guest": [{"name": "stuck", "vcpus": 2, "workload": {"kind": "rt-app", "file": str(tmp_path / "d.json")}}],
    }
    r = package.run(scenario)
    assert r.outcome == "deadlock"
    assert "stuck: a" in r.summary["outcome_detail"]


def test_tasks_that_wait_for_ever_beside_a_timer_are_named(tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text(
        '{ "tasks": { "a": { "loop": 1, "lock": "m", "sleep": 1000, "run": 10, "wait": {"ref": "c", "mutex": "m"} },'
        ' "tick": { "loop": -1, "run": 100, "sleep": 5000 } } }'
    )
    scenario = {
        "machine": "2c",
        "horizon_s": 0.1,
        "guest": [
            {"name": "stuck", "vcpus": 2, "workload": {"kind": "rt-app", "file": str(tmp_path / "d.json")}},
            {"name": "well", "vcpus": 1, "workload": {"kind": "hogs", "tasks": 1}},
        ],
    }
    s = package.run(scenario).summary
    assert s["outcome"] == "horizon"
    (line,) = guests.long_waits(s)
    assert line.startswith("stuck: ")
    assert "a-0 (task 0) waits for a signal of c" in line
    assert "tick" not in line
    assert guests.long_waits(package.run(scenario | {"horizon_s": 0.0015}).summary) == [], "it has just gone to sleep"


def test_a_trace_changes_nothing_and_has_the_vcpus(two: Path, tmp_path: Path) -> None:
    r = package.run(two / "two.toml", trace=tmp_path / "t.txt")
    assert r.summary["trace_hash"] == package.load(two / "r").summary["trace_hash"]
    assert b"vm1/1" in (tmp_path / "t.txt").read_bytes()


def test_polling_counts_while_it_lasts() -> None:
    scenario = {
        "machine": "2n1l2c2t",
        "seed": 3,
        "guest": [
            {"name": "db", "vcpus": 6, "workload": {"kind": "dbench", "clients": 6, "dcache_ns": 300,
             "file_system": "tmpfs", "duration_ms": 100}},
            {"name": "web", "copies": 2, "vcpus": 3, "workload": {"kind": "schbench", "message_threads": 1,
             "workers": 3, "think_us": 300, "sleep_us": 1000, "duration_ms": 100}},
        ],
    }  # fmt: skip
    s = package.run(scenario).summary
    polled = s["kvm"]["halt_poll_success_ns"] + s["kvm"]["halt_poll_fail_ns"]
    # Polls that were under way at the end are in the ledger alone.
    assert 0 < polled <= s["ledger_ns"]["halt_poll"]
