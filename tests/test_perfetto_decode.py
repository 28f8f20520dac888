"""Traces decoded by Perfetto's own Python package: an independent reading of the field numbers.

The `perfetto` package is needed (`pip install perfetto`); without it the tests are skipped. `decode(path)` and the
`check_*` functions work on any `.pftrace`: to check a file of the tool, call `check_trace(path)`, or set
CONTEND_PFTRACE to one or more paths (separated by os.pathsep).
"""

import json
import os
import shutil
import subprocess
import zlib
from collections import defaultdict
from pathlib import Path

import pytest

pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE_TIMEOUT_S = 600

BOOTTIME = 6
SEQ_CLEARED, SEQ_NEEDED = 1, 2
SCHED = {f"sched_{e}" for e in ("switch", "waking", "wakeup", "wakeup_new", "migrate_task")} | {
    f"sched_process_{e}" for e in ("fork", "exec", "exit")
}


def decode(path):
    """The trace as a protobuf message. Unknown fields anywhere are an error: they are wrong field numbers."""
    trace = pb.Trace()
    data = Path(path).read_bytes()
    assert trace.ParseFromString(data) == len(data)
    # An unknown field is dropped by DiscardUnknownFields, and the message gets shorter.
    size = trace.ByteSize()
    trace.DiscardUnknownFields()
    assert trace.ByteSize() == size == len(data), "the trace has fields that the schema does not have"
    return trace


def ftrace_events(trace):
    """(cpu, event name, event, its message), in the order of the file."""
    for packet in trace.packet:
        if packet.HasField("ftrace_events"):
            for event in packet.ftrace_events.event:
                name = event.WhichOneof("event")
                assert name is not None, f"an ftrace event without content at {event.timestamp}"
                yield packet.ftrace_events.cpu, name, event, getattr(event, name)


def check_packets(trace):
    """What trace_processor wants of every trace."""
    first = trace.packet[0]
    assert first.first_packet_on_sequence
    assert first.sequence_flags & SEQ_CLEARED
    clocks = {clock.clock_id: clock.timestamp for clock in first.clock_snapshot.clocks}
    assert BOOTTIME in clocks
    assert first.clock_snapshot.primary_trace_clock == BOOTTIME
    assert all(packet.trusted_packet_sequence_id for packet in trace.packet)
    # Without a release from 4.14 on, prev_state is read as that of Linux 4.4.
    releases = [p.system_info.utsname.release for p in trace.packet if p.HasField("system_info")]
    assert releases and all(tuple(map(int, r.split(".")[:2])) >= (4, 14) for r in releases)


def check_sched(trace):
    """CPU by CPU: time does not fall, and who leaves is who came."""
    last_ts, running = {}, {}
    switches = 0
    for cpu, name, event, message in ftrace_events(trace):
        assert event.timestamp >= last_ts.get(cpu, 0), f"time falls on CPU {cpu}"
        last_ts[cpu] = event.timestamp
        if name == "sched_switch":
            switches += 1
            assert message.prev_comm and message.next_comm
            assert message.prev_pid == running.get(cpu, message.prev_pid), f"CPU {cpu} at {event.timestamp}"
            assert event.pid == message.prev_pid
            running[cpu] = message.next_pid
    # No task runs on two CPUs at once.
    on_cpu = [pid for pid in running.values() if pid > 0]
    assert len(on_cpu) == len(set(on_cpu))
    return switches


def check_tracks(trace):
    """Every track event is on a described track, its name is known, and slices close."""
    tracks, names, depth = {}, {}, defaultdict(int)
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            assert descriptor.uuid not in tracks
            assert not descriptor.HasField("parent_uuid") or descriptor.parent_uuid in tracks
            tracks[descriptor.uuid] = descriptor
        if packet.sequence_flags & SEQ_CLEARED:
            names.clear()
        for name in packet.interned_data.event_names:
            names[name.iid] = name.name
        if packet.HasField("track_event"):
            event = packet.track_event
            kind = pb.TrackEvent.Type.Name(event.type)
            assert packet.sequence_flags & SEQ_NEEDED
            assert event.track_uuid in tracks
            if kind == "TYPE_COUNTER":
                assert tracks[event.track_uuid].HasField("counter")
                assert event.HasField("counter_value")
            elif kind == "TYPE_SLICE_END":
                depth[event.track_uuid] -= 1
                assert depth[event.track_uuid] >= 0, "a slice ends that did not begin"
            else:
                assert names[event.name_iid]
                depth[event.track_uuid] += kind == "TYPE_SLICE_BEGIN"
    return tracks, depth


def check_trace(path):
    """All checks that hold for any trace of ours; returns it decoded."""
    trace = decode(path)
    check_packets(trace)
    check_sched(trace)
    check_tracks(trace)
    return trace


def run_example(name, path):
    """What crates/trace/examples/NAME.rs prints for a path. Built as `cargo test --workspace` builds it, which has been before."""
    if not shutil.which("cargo"):
        pytest.skip("cargo is needed to build the example")
    build = ["cargo", "build", "--quiet", "--locked", "--profile", "test", "--workspace", "--example", name]
    said = subprocess.run(
        [*build, "--message-format", "json"], cwd=ROOT, check=True, timeout=EXAMPLE_TIMEOUT_S, capture_output=True, text=True
    )
    built = [json.loads(line) for line in said.stdout.splitlines()]
    (program,) = [m["executable"] for m in built if m.get("executable") and m["target"]["name"] == name]
    return subprocess.run([program, path], check=True, timeout=60, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """The trace of crates/trace/examples/write_sample.rs."""
    path = tmp_path_factory.mktemp("perfetto") / "sample.pftrace"
    run_example("write_sample", path)
    return path


def test_sample_holds_for_any_trace(sample):
    trace = check_trace(sample)
    _, depth = check_tracks(trace)
    assert set(depth.values()) == {0}
    assert check_sched(trace) == 6


def test_sample_events_field_by_field(sample):
    """Reads each kind once, by the names of Perfetto's schema."""
    events = defaultdict(list)
    for cpu, name, event, message in ftrace_events(decode(sample)):
        fields = {field.name: value for field, value in message.ListFields()}
        events[name].append((event.timestamp, cpu, event.pid, fields))
    assert events["sched_switch"][2] == (41_000, 0, 200, {
        "prev_comm": "make", "prev_pid": 200, "prev_prio": 120, "prev_state": 32,
        "next_comm": "vm0: vcpu1", "next_pid": 101, "next_prio": 120,
    })
    assert events["sched_switch"][1][3]["prev_state"] == 256
    wake = {"prio": 120, "success": 1}
    assert events["sched_waking"][1] == (12_000, 0, 101, wake | {"comm": "vm0: vcpu2", "pid": 102, "target_cpu": 1})
    assert events["sched_wakeup"][1] == (13_000, 1, 0, wake | {"comm": "vm0: vcpu2", "pid": 102, "target_cpu": 1})
    assert [e[3]["comm"] for e in events["sched_wakeup_new"]] == ["make"]
    assert events["sched_migrate_task"] == [(50_000, 0, 101, {
        "comm": "vm0: vcpu2", "pid": 102, "prio": 120, "orig_cpu": 1, "dest_cpu": 0,
    })]
    assert events["sched_process_fork"][0][3] == {
        "parent_comm": "init", "parent_pid": 1, "child_comm": "init", "child_pid": 200,
    }
    assert events["sched_process_exec"][0][3] == {"filename": "/usr/bin/make", "pid": 200, "old_pid": 200}
    assert events["sched_process_exit"][0][3] == {"comm": "make", "pid": 200, "prio": 120}
    for number, (name, content) in enumerate([
        ("irq_handler_entry", {"irq": 36}), ("irq_handler_exit", {"irq": 36}),
        ("softirq_entry", {"vec": 1}), ("softirq_exit", {"vec": 1}),
        ("hrtimer_expire_entry", {}), ("hrtimer_expire_exit", {}),
        ("timer_expire_entry", {}), ("timer_expire_exit", {}),
        ("sys_enter", {"id": 202}), ("sys_exit", {"id": 202}),
    ]):
        assert events[name] == [((70 + number) * 1000, 0, 0, content)]
    generic = {
        fields["event_name"]: {field.name: field.uint_value for field in fields["field"]}
        for *_, fields in events["generic"]
    }
    assert generic == {
        "contention_begin": {"lock_addr": 0xFFFF_8000_0000_0040, "flags": 1},
        "contention_end": {"lock_addr": 0xFFFF_8000_0000_0040, "ret": 0},
        "kvm_entry": {"vcpu_id": 1},
        "kvm_exit": {"vcpu_id": 1, "exit_reason": 12},
    }
    assert len(events) == 19
    flags = {e.common_flags for _, name, e, _ in ftrace_events(decode(sample)) if name not in SCHED}
    assert flags == {0x08}


def test_sample_processes_and_threads(sample):
    processes, threads = {}, {}
    for packet in decode(sample).packet:
        processes |= {p.pid: (p.ppid, list(p.cmdline)) for p in packet.process_tree.processes}
        threads |= {t.tid: (t.tgid, t.name) for t in packet.process_tree.threads}
    assert processes == {100: (1, ["vm0"]), 200: (1, ["make"])}
    assert threads == {101: (100, "vm0: vcpu1"), 102: (100, "vm0: vcpu2")}


def test_sample_counters_and_slices(sample):
    trace = decode(sample)
    tracks, _ = check_tracks(trace)
    by_name = {t.name: t for t in tracks.values() if t.name}
    assert by_name["rq lock 0"].parent_uuid == by_name["locks"].uuid
    running = by_name["nr_running"]
    assert running.counter.unit == pb.CounterDescriptor.UNIT_COUNT
    values = [
        (p.timestamp, p.track_event.counter_value)
        for p in trace.packet
        if p.HasField("track_event") and p.track_event.track_uuid == running.uuid
    ]
    assert values == [(0, 0), (3_000, 1), (14_000, 2), (15_000, 3), (41_000, 2), (61_000, 0)]
    track_events = [(p.timestamp, p.track_event) for p in trace.packet if p.HasField("track_event")]
    flows = {(ts, *event.flow_ids, *event.terminating_flow_ids) for ts, event in track_events}
    assert {(22_000, 7), (23_000, 7)} <= flows
    (thread,) = [t.thread for t in tracks.values() if t.HasField("thread")]
    assert (thread.pid, thread.tid, thread.thread_name) == (100, 102, "vm0: vcpu2")


def test_compact_bundles_of_perfetto_are_read(tmp_path):
    """Compact scheduling, which Perfetto records by default and we only read, written by Perfetto's own schema."""
    trace = pb.Trace()
    bundle = trace.packet.add().ftrace_events
    bundle.cpu, bundle.lost_events, bundle.ftrace_clock = 3, True, pb.FTRACE_CLOCK_MONO_RAW
    compact = bundle.compact_sched
    compact.intern_table.extend(["swapper/3", "make"])
    compact.switch_timestamp.extend([1_000_000_000, 500])
    compact.switch_prev_state.extend([0, 1])
    compact.switch_next_pid.extend([10, 0])
    compact.switch_next_prio.extend([120, 120])
    compact.switch_next_comm_index.extend([1, 0])
    compact.waking_timestamp.extend([999_999_000])
    compact.waking_pid.extend([10])
    compact.waking_target_cpu.extend([3])
    compact.waking_prio.extend([120])
    compact.waking_comm_index.extend([1])
    compact.waking_common_flags.extend([0x08])
    inner = trace.SerializeToString()
    outer = pb.Trace()
    outer.packet.add().system_info.num_cpus = 4
    outer.packet.add().compressed_packets = zlib.compress(inner)
    path = tmp_path / "compact.pftrace"
    path.write_bytes(outer.SerializeToString())
    out = run_example("convert", path)
    assert "Perfetto trace: 3 events on 1 CPUs over 0.000001500 s" in out
    assert "CPUs of the machine: 4" in out and "lost: 0 events in 1 gaps" in out and "damaged" not in out


def given_traces():
    return [path for path in os.environ.get("CONTEND_PFTRACE", "").split(os.pathsep) if path]


@pytest.mark.parametrize("path", given_traces())
def test_given_trace(path):
    trace = check_trace(path)
    assert check_sched(trace) > 0, "no sched_switch"


def test_decode_notices_a_wrong_field_number(tmp_path):
    """The check itself can fail: a packet with a field 999."""
    path = tmp_path / "wrong.pftrace"
    packet = bytes([0xB8, 0x3E, 0x01])  # field 999, varint 1
    path.write_bytes(bytes([0x0A, len(packet)]) + packet)
    with pytest.raises(AssertionError, match="schema"):
        decode(path)
