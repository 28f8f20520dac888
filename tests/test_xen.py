"""Scenarios of Xen hosts: what is refused, what is stored, what is said of them."""

from __future__ import annotations

from pathlib import Path

import contend as package
import pytest
from conftest import Contend
from contend import _core

LOAD = '[guest.workload]\nkind = "hogs"\n'
GUEST = f'[[guest]]\nname = "vm1"\nvcpus = 1\nkernel = false\n{LOAD}'
"""Five lines and the workload's kind."""


def xen(body: str = "", table: str = "", at: str = "", sets: str = "", guest: str = GUEST) -> str:
    """A host of 4 pCPUs: [xen] is line 2; without parts of their own, [[guest]] is line 3."""
    return f"[xen]\n{table}{sets}{guest}{body}{at}"


def timeline(command: str, preset: str = "upstream-today", scheduler: str = "credit2", patches: str = "") -> str:
    start = f'patches = "{patches}"' if patches else f'preset = "{preset}"'
    head = f'scheduler = "{scheduler}"\n{start}\n'
    return xen(table=head, at=f'[[at]]\ns = 1\nxl = "{command}"\n')


def command(command: str, why: str, **host: str) -> tuple[str, str]:
    """A scenario with an xl command, and what is said of it."""
    return timeline(command, **host), f"13: at.xl: `xl {command}`: {why}"


WRONG = {
    "not-a-table": ("xen = 1\n" + GUEST, "2: xen: found 1; should be a table [xen] with scheduler = "),
    "unknown-key": (xen(table="sheduler = 1\n"), "3: xen.sheduler: unknown key; did you mean scheduler?"),
    "scheduler": (xen(table='scheduler = "credit3"\n'), '3: xen.scheduler: found "credit3"; should be "credit", '
                  '"credit2" or "round-robin"'),
    "preset": (xen(table='preset = "linux"\n'), '3: xen.preset: found "linux"; should be "base", "patched" or '),
    "patches": (xen(table='patches = "0-3"\n'), '3: xen.patches: found "0-3"; should be "none", "all", or numbers '),
    "prerequisite": (xen(table='patches = "17"\n'), "3: `xen.c2_tickle_soft` = `true`: patch 17 needs patch 16: "),
    "prerequisite-set": (xen(sets="[set]\nxen.c2_pick_soft = true\n"),
                         "4: `xen.c2_pick_soft` = `true`: patch 18 needs patch 16: "),
    "switch": (xen(sets="[set]\nxen.c2_yeld = true\n"), "4: `xen.c2_yeld` = `true`: no such feature; did you mean "),
    "ratelimit": (xen(sets="[set]\nxen.ratelimit_us = 99\n"),
                  "4: `xen.ratelimit_us` = `99`: should be 0 (off), or from 100 to 500000 us"),
    "ratelimit-and-slice": (xen(table='scheduler = "credit"\n', sets="[set]\nxen.ratelimit_us = 50_000\n"),
                            "5: `xen.ratelimit_us` = `50000`: should be no longer than the time slice, tslice_ms = 30"),
    "policy": ('policy = "linux-6.18"\n' + xen(), '2: policy: found "linux-6.18"; should be left out: the host is Xen'),
    "feature": (xen(sets='[set]\nwake_path = "remote-lock"\n'),
                "4: wake_path: found remote-lock; should be left out: a feature of Linux as the host"),
    "kvm": (xen(sets="[set]\nkvm.ple_gap = 0\n"), "4: kvm.ple_gap: found 0; should be left out: a feature of Linux as"),
    "host-workload": (xen(body='[workload]\nkind = "hogs"\n'), " workload: found hogs; should be left out: Xen runs "
                      "nothing but domains"),
    "no-guests": (xen(guest=""), " guest: missing; write tables [[guest]]: a Xen host runs domains"),
    "weight-0": (xen(guest=GUEST.replace("kernel", "weight = 0\nkernel")),
                 "6: guest.weight: found 0; should be a whole number from 1 to 65535; 256 is usual"),
    "cap": (xen(guest=GUEST.replace("kernel", "cap = 50\nkernel")),
            "6: guest.cap: found 50; should be 0: Credit2 has no caps before xen.c2_today (preset upstream-today)"),
    "cap-of-too-many": (xen(table='scheduler = "credit"\n', guest=GUEST.replace("kernel", "cap = 101\nkernel")),
                        "7: guest.cap: found 101; should be at most 100, 100 for each of its vCPUs"),
    "pin": (xen(guest=GUEST.replace("kernel", 'pin = "1:1"\nkernel')),
            '6: guest.pin: found "1:1"; should be left out: on a Xen host cpus says where vCPUs run'),
    "cpus": (xen(guest=GUEST.replace("kernel", 'cpus = "0-4"\nkernel')),
             '6: guest.cpus: found "0-4"; should be pCPUs such as "0-7", "0,2,^1", "node:1" or "all", and the last '
             "pCPU of this machine is 3"),
    "cpus-list": (xen(guest=GUEST.replace("kernel", 'cpus = ["0", "1"]\nkernel')),
                  "6: guest.cpus: found a list of 2; should be a list of 1, one for each vCPU, or one text for all"),
    "cpus-number": (xen(guest=GUEST.replace("kernel", "cpus = 3.5\nkernel")), "6: guest.cpus: found 3.5; should be "),
    "soft-outside": (xen(guest=GUEST.replace("kernel", 'cpus = "0-1"\ncpus_soft = "2"\nkernel')),
                     '7: guest.cpus_soft: found "2"; should be a set that its hard affinity meets: that is 0-1'),
    "unknown-pool": (xen(guest=GUEST.replace("kernel", 'pool = "Pool-1"\nkernel')),
                     '6: guest.pool: found "Pool-1"; should be '),
    "memory-node": (xen(guest=GUEST.replace("kernel", "memory_node = 1\nmemory_stall_pct = 5\nkernel")),
                    "6: guest.memory_node: found 1; should be a node of this machine, from 0 to 0"),
    "memory-stall": (xen(guest=GUEST.replace("kernel", "memory_stall_pct = 91\nkernel")),
                     "6: guest.memory_stall_pct: found 91; should be a whole number from 0 to 90"),
    "stall-of-no-node": (xen(guest=GUEST.replace("kernel", "memory_stall_pct = 9\nkernel")),
                         "6: guest.memory_stall_pct: found 9 without memory_node; should be with memory_node"),
    "no-stall": (xen(guest=GUEST.replace("kernel", "memory_node = 0\nkernel")),
                 "3: guest.memory_stall_pct: missing; write memory_stall_pct = N: how much of its computing waits"),
    "memory-without-kernel": (xen(guest=GUEST.replace("kernel", "memory_node = 0\nmemory_stall_pct = 5\nkernel")),
                              "6: guest.memory_node: found 0; should be left out: kernel = false, and tasks without"),
    "kernel": (xen(guest=GUEST.replace("false", "1")), "6: guest.kernel: found 1; should be true or false"),
    "policy-without-kernel": (xen(guest=GUEST.replace("kernel", 'policy = "linux-3.6"\nkernel')),
                              "6: guest.policy: found linux-3.6; should be left out: kernel = false"),
    "tasks-and-vcpus": (xen(guest=GUEST.replace("vcpus = 1", "vcpus = 2")),
                        "3: guest.workload: found 1 tasks with kernel = false; should be 2 tasks, one for each vCPU"),
    "needs-a-kernel": (xen(guest=GUEST.replace('"hogs"', '"ping-pong"').replace("vcpus = 1", "vcpus = 2")),
                       '3: guest.workload: found ping-pong ("'),
    "pools-overlap": (xen(table='[[xen.pool]]\ncpus = "0-2"\n[[xen.pool]]\nname = "b"\ncpus = "2-3"\n'),
                      '7: xen.pool.cpus: found "2-3", of which 2 are in a cpupool above; should be pCPUs of no other'),
    "pcpu-in-no-pool": (xen(table='[[xen.pool]]\ncpus = "0-2"\n'),
                        "4: xen.pool.cpus: found cpupools without pCPUs 3; should be each pCPU in a cpupool"),
    "pool-name": (xen(table='[[xen.pool]]\nname = "1"\n'), '4: xen.pool.name: found "1"; should be 1 to 32 of the '),
    "pool-ratelimit": (xen(table="[[xen.pool]]\nratelimit_us = 5\n"),
                       "4: xen.pool.ratelimit_us: found 5; should be 0 (off), or from 100 to 500000 us"),
    "pool-tslice-of-credit2": (xen(table="[[xen.pool]]\ntslice_ms = 5\n"),
                               "4: xen.pool.tslice_ms: found 5; should be left out: only Credit1 has a time slice"),
    "which-pool": (xen(table='[[xen.pool]]\ncpus = "0-2"\n[[xen.pool]]\nname = "b"\ncpus = "3"\n'),
                   '8: guest.pool: missing; write pool = "...", one of Pool-0, b'),
    "cpus-outside-pool": (
        xen(table='[[xen.pool]]\ncpus = "0-2"\n[[xen.pool]]\nname = "b"\ncpus = "3"\n',
            guest=GUEST.replace("kernel", 'pool = "b"\ncpus = "0-2"\nkernel')),
        '12: guest.cpus: found "0-2"; should be a set with a pCPU of its cpupool: b has 3',
    ),
    "two-domains-0": (xen(guest=GUEST.replace("vm1", "dom0") + GUEST.replace("vm1", "Domain-0")),
                      '9: guest.name: found "Domain-0"; should be one domain 0: '),
    "at-one-bracket": (xen(at='[at]\ns = 1\nxl = "x"\n'), "9: at: found a table; should be tables [[at]], with two "),
    "at-unknown-key": (xen(at='[[at]]\ns = 1\nxml = "x"\n'), "11: at.xml: unknown key; did you mean xl?"),
    "at-no-time": (xen(at='[[at]]\nxl = "x"\n'), "9: at.s: missing; write s = SECONDS, when it happens"),
    "at-no-command": (xen(at="[[at]]\ns = 1\n"), "9: at.xl: missing; write xl = "),
    "at-never": (xen(at='[[at]]\ns = 0\nxl = "x"\n'), "10: at.s: found 0; should be a number of seconds above 0"),
    "xl-unknown": command("domain-list", "should be sched-credit, sched-credit2 or vcpu-pin, with their options"),
    "xl-domain": command("sched-credit2 -d vm2 -w 9", "there is no domain vm2; did you mean vm1?"),
    "xl-number": command("sched-credit2 -d 0 -w 9", "there is no domain 0; there are vm1 (1)"),
    "xl-scheduler": command("sched-credit -d vm1 -w 9", "the scheduler of this host is credit2; should be sched-"),
    "xl-weight": command("sched-credit2 -d vm1 -w 65536", "-w 65536: should be a weight from 1 to 65535"),
    "xl-cap": command("sched-credit2 -d vm1 -c 50", "-c 50: should be 0: Credit2 has no caps before xen.c2_today",
                      preset="patched"),
    "xl-cap-of-too-many": command("sched-credit2 -d vm1 -c 101", "-c 101: should be at most 100, 100 for each"),
    "xl-slice": command("sched-credit -s -t 1001", "-t 1001: should be a time slice from 1 to 1000 ms",
                        scheduler="credit"),
    "xl-ratelimit": command("sched-credit2 -s -r 99", "-r 99: should be 0 (no limit), or a rate limit from 100 to "),
    "xl-ratelimit-and-slice": command("sched-credit -s -t 1 -r 2000", "a rate limit of 2000 us is longer than the time "
                                      "slice of 1 ms", scheduler="credit"),
    "xl-s-missing": command("sched-credit2 -r 500", "-t and -r are parameters of a cpupool: -s must stand with them"),
    "xl-offline": command("sched-credit2 -s -r 500", "the tools of this preset cannot set it online: patch 12 "
                          "`libxc_ratelimit`", preset="base"),
    "xl-offline-14": command("sched-credit2 -s -r 500", "the tools of this preset cannot set it online: patch 14 "
                             "`libxl_ratelimit`", patches="12-13"),
    "xl-offline-15": command("sched-credit2 -s -r 500", "the tools of this preset cannot set it online: patch 15 "
                             "`xl_ratelimit`", patches="12-14"),
    "prerequisite-off": (xen(table='preset = "patched"\n', sets="[set]\nxen.affinity_helpers = false\n"),
                         "5: `xen.c2_tickle_soft` = `true`: patch 17 needs patch 16: set affinity_helpers too"),
    "xl-pool": command("sched-credit2 -s -r 500 -p Pool-1", "there is no cpupool Pool-1; there are Pool-0"),
    "xl-lists": command("sched-credit2 -d vm1", "-d without -w or -c lists, and changes nothing"),
    "xl-pin": command("vcpu-pin vm1", "should be vcpu-pin DOMAIN VCPU HARD [SOFT]"),
    "xl-pin-vcpu": command("vcpu-pin vm1 1 0-3", "there is no vCPU 1; vm1 has vCPUs 0 to 0"),
    "xl-pin-set": command("vcpu-pin vm1 all 0-9", '0-9: should be pCPUs such as "0-7"'),
    "xl-pin-soft": command("vcpu-pin vm1 0 0-1 2-3", "2-3 should be a set that its hard affinity meets: that is 0-1"),
    "xl-pin-nothing": command("vcpu-pin vm1 0 - -", "changes nothing"),
    "weight-without-xen": (GUEST.replace("kernel", "weight = 9\nkernel"),
                           "5: guest.weight: found it; should be left out, or the host made a Xen host by a table "),
    "switch-without-xen": (f"[set]\nxen.c2_yield = true\n{GUEST}", "3: xen.c2_yield: found true; should be left out, "),
    "at-without-xen": ('[[guest]]\nvcpus = 1\n[guest.workload]\nkind = "hogs"\n[[at]]\ns = 1\nxl = "vcpu-pin vm 0 0"\n',
                       '8: at.xl: found "vcpu-pin vm 0 0"; should be left out, or '),
}  # fmt: skip


@pytest.mark.parametrize(("body", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_xen_hosts(tmp_path: Path, body: str, message: str) -> None:
    (tmp_path / "x.toml").write_text(f'machine = "4c"\n{body}')
    with pytest.raises(package.ScenarioInvalid) as e:
        package.run(tmp_path / "x.toml")
    assert str(e.value).removeprefix(f"{tmp_path}/x.toml:").startswith(message)


def test_a_host_has_at_most_512_pcpus(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(xen())
    with pytest.raises(package.ScenarioInvalid) as e:
        package.run(tmp_path / "x.toml", machine="4n4l64c1t")
    assert str(e.value).startswith(
        '--machine: machine: found "4n4l64c1t", 1024 CPUs; should be a machine of at most 512'
    )


def test_overrides(contend: Contend, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('machine = "4c"\n' + xen())
    for key, value, message in [
        ("xen.patches", "17", "--set: `xen.c2_tickle_soft` = `true`: patch 17 needs patch 16: "),
        ("xen.scheduler", "rtds", '--set: xen.scheduler: found "rtds"; should be "credit", '),
        ("guest.weight", "0", "--set: guest.weight: found 0; should be a whole number from 1 to 65535"),
        ("guest.cpus", "9", '--set: guest.cpus: found "9"; should be pCPUs '),
    ]:
        done = contend("run", "x.toml", "--set", f"{key}={value}")
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: {message}"), done.stderr
    done = contend("run", "x.toml", "--policy", "linux-6.18")
    assert done.stderr.startswith('error: --policy: found "linux-6.18"; should be left out: the host is Xen')


def test_overrides_change_host_and_domains(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('machine = "4c"\n' + xen())
    sets = {
        "xen.scheduler": "credit", "xen.preset": "patched", "xen.tslice_ms": "5", "guest.weight": "64",
        "guest.cpus": "1-2", "guest.cap": "70",
    }  # fmt: skip
    stored = _core.resolve(path=tmp_path / "x.toml", set=list(sets.items()))
    for line in (
        'scheduler = "credit"', 'preset = "patched"', '"xen.tslice_ms" = 5', "weight = 64", "cap = 70", 'cpus = "1-2"',
    ):  # fmt: skip
        assert line in stored, stored
    assert "policy" not in stored


def test_lists(contend: Contend) -> None:
    switches = package.list_xen("patched")
    assert [s["name"] for s in switches if s["patch"] == 2] == ["c1_tickle_mask"]
    assert all(s["value"] == "true" for s in switches if s["patch"])
    assert {c["name"] for c in package.list_counters() if c["of"] == "xen"} >= {
        "tickled_idle_cpu",
        "migrate_kicked_away",
    }
    done = contend("list", "xen")
    assert done.returncode == 0
    assert "c2_max_timer_10ms" in done.stdout
