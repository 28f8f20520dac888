"""Tracks of a simulation's Perfetto trace: what vCPUs do, what runs in guests, waits for locks, yields, arrows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Contend
from contend.result import Result
from contend.result import load as load_result

pytest.importorskip("perfetto")

WAITED_NS_MIN = 1000
EXITS = ["EXTERNAL_INTERRUPT", "HLT", "PAUSE_INSTRUCTION", "APIC_WRITE_ICR", "MSR_WRITE_TIMER", "PREEMPTION_TIMER"]


@dataclass
class Track:
    """Slices as (name, begin, end), marks as (name, time)."""

    name: str
    parent: str
    slices: list[tuple[str, int, int]] = field(default_factory=list)
    marks: list[tuple[str, int]] = field(default_factory=list)

    def total(self, *names: str) -> int:
        return sum(end - begin for name, begin, end in self.slices if name in names)


@dataclass
class Tracks:
    by_name: dict[tuple[str, str], Track]
    begun: dict[int, int]
    ended: dict[int, int]
    threads: int


def tracks(path: Path) -> Tracks:
    """Reads a trace whose slices nest and whose arrows join; both are asserted."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
    from test_perfetto_decode import check_trace

    trace: Any = check_trace(path)
    descriptors: dict[int, Any] = {}
    names: dict[int, str] = {}
    begun: dict[int, int] = {}
    ended: dict[int, int] = {}
    events: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            descriptors[packet.track_descriptor.uuid] = packet.track_descriptor
        names |= {name.iid: name.name for name in packet.interned_data.event_names}
        if packet.HasField("track_event"):
            event = packet.track_event
            events[event.track_uuid].append((packet.timestamp, event.type, names.get(event.name_iid, "")))
            for flows, ids in ((begun, event.flow_ids), (ended, event.terminating_flow_ids)):
                for flow in ids:
                    assert flow not in flows, "an arrow is used twice"
                    flows[flow] = packet.timestamp
    assert all(begun[flow] <= at for flow, at in ended.items()), "an arrow points back in time"
    by_name = {}
    for uuid, descriptor in descriptors.items():
        parent = descriptors[descriptor.parent_uuid].name if descriptor.HasField("parent_uuid") else ""
        track, open_slices = Track(descriptor.name, parent), []
        for ts, kind, name in sorted(events[uuid], key=lambda event: event[0]):
            if kind == pb.TrackEvent.TYPE_SLICE_BEGIN:
                open_slices.append((name, ts))
            elif kind == pb.TrackEvent.TYPE_SLICE_END:
                begin = open_slices.pop()
                track.slices.append((begin[0], begin[1], ts))
            else:
                track.marks.append((name, ts))
        assert not open_slices
        by_name[parent, track.name] = track
    return Tracks(by_name, begun, ended, sum(d.HasField("thread") for d in descriptors.values()))


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tracks, Result]:
    """Two guests on too few CPUs, whose kernels spin for one lock."""
    import subprocess
    import sys

    where = tmp_path_factory.mktemp("guests")
    command = [sys.executable, "-m", "contend", "run", str(ROOT / "scenarios/guests-2x.toml"), "--out", "r", "-q"]
    command += ["--trace", "t.pftrace", "--set", "guest.workload.duration_ms=30"]
    subprocess.run(command, cwd=where, check=True, timeout=120)
    return tracks(where / "t.pftrace"), load_result(where / "r")


def check_times(drawn: Tracks, result: Result) -> None:
    """Slices of vCPUs' tracks are the times of the result's table, to the ns."""
    end = result.summary["virtual_ns"]
    for row in result["vcpus"].to_dicts():
        track = drawn.by_name[row["guest"], f"vCPU {row['vcpu']}"]
        # What began within the run may be drawn to its end beyond it.
        track.slices = [(name, begin, min(to, end)) for name, begin, to in track.slices if begin < end]
        first = min(begin for _, begin, _ in track.slices)
        assert track.total("runnable, no CPU") == row["stolen_ns"]
        assert first + track.total("halted") == row["halted_ns"]
        assert track.total("host", *EXITS, "VMCALL") == row["host_ns"]
        assert first + sum(to - begin for _, begin, to in track.slices) == end, "no time without a name"
        for reason in EXITS:
            count = sum(name == reason for name, _, _ in track.slices)
            assert abs(count - row[f"exits_{reason.lower()}"]) <= 1, reason


def test_a_vcpus_time_is_what_the_result_says(guests: tuple[Tracks, Result]) -> None:
    drawn, result = guests
    assert len(result["vcpus"]) == 16
    check_times(drawn, result)


def test_guests_tasks_run_on_their_cpus(guests: tuple[Tracks, Result]) -> None:
    drawn, result = guests
    for row in result["vcpus"].to_dicts():
        track = drawn.by_name[row["guest"], f"vCPU {row['vcpu']} runs"]
        locks = set(result["guest_locks"]["name"])
        tasks = set(result["guest_tasks"]["name"])
        assert {name for name, _, _ in track.slices} <= locks | tasks
        assert any(name in tasks for name, _, _ in track.slices)


def test_waits_for_a_guests_locks_are_drawn(guests: tuple[Tracks, Result]) -> None:
    drawn, result = guests
    for guest in ("vm0", "vm1"):
        waits: dict[str, list[int]] = defaultdict(list)
        locks = {row["name"]: row for row in result["guest_locks"].to_dicts() if row["guest"] == guest}
        for (parent, _), track in drawn.by_name.items():
            for name, begin, to in track.slices:
                if parent == guest and name in locks:
                    waits[name].append(to - begin)
        assert waits, "nobody waited"
        for name, lengths in waits.items():
            assert min(lengths) >= WAITED_NS_MIN
            assert max(lengths) == locks[name]["wait_max_ns"]
            assert sum(lengths) <= locks[name]["wait_ns"]
            assert len(lengths) <= locks[name]["contended"]


def test_directed_yields_are_drawn(guests: tuple[Tracks, Result]) -> None:
    drawn, result = guests
    marks = [name for track in drawn.by_name.values() for name, _ in track.marks if name.startswith("yield_to")]
    kvm = result.summary["kvm"]
    # One a CPU may be under way as the run ends.
    assert 0 <= kvm["yield_to_attempted"] - len(marks) <= 8
    assert sum(":" not in mark for mark in marks) == kvm["yield_to_succeeded"] > 0


def test_arrows_join_wakers_and_sleepers(guests: tuple[Tracks, Result]) -> None:
    drawn, _ = guests
    assert len(drawn.ended) > 100
    # Whoever has not run yet when the run ends.
    assert len(drawn.begun) - len(drawn.ended) < 100


def test_waits_of_the_hosts_kernel(contend: Contend, tmp_path: Path) -> None:
    run = ("run", "s.toml", "--out", "r", "-q", "--trace", "t.pftrace")
    (tmp_path / "s.toml").write_text(
        'machine = "2n8c"\nseed = 1\n[workload]\nkind = "hackbench"\ngroups = 4\nfds = 8\nloops = 10\n'
    )
    done = contend(*run)
    assert done.returncode == 0, done.stderr
    drawn, result = tracks(tmp_path / "t.pftrace"), load_result(tmp_path / "r")
    locks = {row["name"]: row for row in result["locks"].to_dicts()}
    waits = [s for (parent, _), track in drawn.by_name.items() if parent == "lock waits" for s in track.slices]
    assert waits
    for name, begin, to in waits:
        assert WAITED_NS_MIN <= to - begin <= locks[name]["wait_max_ns"]
    assert drawn.threads > 10
    assert len(drawn.ended) > 100


def test_guests_of_a_xen_host(contend: Contend, tmp_path: Path) -> None:
    load = '[guest.workload]\nkind = "hackbench"\ngroups = 1\nfds = 2\nloops = 20\n'
    (tmp_path / "x.toml").write_text(
        'machine = "2c"\nseed = 3\nhorizon_s = 0.05\n[xen]\nscheduler = "credit2"\n'
        f'[[guest]]\nname = "a"\nvcpus = 2\n{load}[[guest]]\nname = "b"\nvcpus = 2\n{load}'
    )
    done = contend("run", "x.toml", "--out", "r", "-q", "--trace", "t.pftrace")
    assert done.returncode == 0, done.stderr
    drawn, result = tracks(tmp_path / "t.pftrace"), load_result(tmp_path / "r")
    assert len(result["vcpus"]) == 4
    check_times(drawn, result)
    assert any(track.slices for (parent, name), track in drawn.by_name.items() if parent == "a" and "runs" in name)
