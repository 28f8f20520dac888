//! What the Perfetto writer writes, decoded with `prost`'s own decoder.

use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;

use contend_trace::perfetto::proto::{self, FtraceEvent, Trace, TracePacket};
use contend_trace::perfetto::{Flow, Unit, Writer};
use contend_trace::{At, Context, SchedSink, Task, TaskState};
use prost::Message;

fn at(ts: u64, cpu: u32) -> At<'static> {
    At { ts, cpu, pid: 7, comm: "waker", context: Context::Task }
}

const TASK: Task<'static> = Task { pid: 9, comm: "tmux: server", prio: -1 };

fn packets(build: impl FnOnce(&mut Writer<Vec<u8>>) -> io::Result<()>) -> Vec<TracePacket> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    build(&mut writer).unwrap();
    let packets = Trace::decode(&writer.finish().unwrap()[..]).unwrap().packet;
    assert!(packets.iter().all(|p| p.trusted_packet_sequence_id == Some(1)));
    packets
}

fn events(packets: &[TracePacket]) -> Vec<(u32, FtraceEvent)> {
    let bundles = packets.iter().filter_map(|p| p.ftrace_events.as_ref());
    bundles.flat_map(|b| b.event.iter().map(|e| (b.cpu.unwrap(), e.clone()))).collect()
}

/// Nothing that was written may be unknown to the decoder: encoded again it must be as long.
#[test]
fn nothing_undeclared_is_written() {
    let mut writer = Writer::new(Vec::new()).unwrap();
    fill(&mut writer).unwrap();
    let bytes = writer.finish().unwrap();
    assert_eq!(Trace::decode(&bytes[..]).unwrap().encoded_len(), bytes.len());
}

fn fill(w: &mut Writer<Vec<u8>>) -> io::Result<()> {
    w.process(7, 1, "vm0")?;
    w.thread(9, 7, "vcpu1")?;
    w.switch(at(10, 0), TASK, TaskState::SLEEPING, TASK)?;
    w.waking(at(11, 0), TASK, 3)?;
    w.wakeup(at(12, 300), TASK, 300)?;
    w.wakeup_new(at(13, 0), TASK, 3)?;
    w.migrate(at(14, 0), TASK, 1, 2)?;
    w.fork(at(15, 0), (1, "init"), (2, "child"))?;
    w.exec(at(16, 0), "/bin/true", 2, 3)?;
    w.exit(at(u64::MAX, 0), TASK)?;
    let top = w.slice_track("locks", None)?;
    let track = w.slice_track("rq 0", Some(top))?;
    let count = w.counter_track("nr_running", Unit::Named("tasks"), None)?;
    w.begin(track, 20, "wait")?;
    w.instant_with(track, 21, "kick", Flow::From(u64::MAX))?;
    w.begin_with(track, 21, "kicked", Flow::To(u64::MAX))?;
    w.end(track, 21)?;
    w.end(track, 22)?;
    w.counter(count, 23, -5)
}

#[test]
fn every_event_has_every_field() {
    let packets = packets(fill);
    let mut events = events(&packets);
    assert_eq!(events.pop().unwrap().0, 300);
    let events: Vec<_> = events.into_iter().map(|(_, e)| e).collect();
    let comm = || Some("tmux: server".to_owned());
    let base = |ts| FtraceEvent { timestamp: Some(ts), pid: Some(7), common_flags: Some(0), ..Default::default() };
    let wake = proto::SchedWakeup { comm: comm(), pid: Some(9), prio: Some(-1), success: Some(1), target_cpu: Some(3) };
    let expected = [
        FtraceEvent {
            sched_switch: Some(proto::SchedSwitch {
                prev_comm: comm(),
                prev_pid: Some(9),
                prev_prio: Some(-1),
                prev_state: Some(1),
                next_comm: comm(),
                next_pid: Some(9),
                next_prio: Some(-1),
            }),
            ..base(10)
        },
        FtraceEvent { sched_waking: Some(wake.clone()), ..base(11) },
        FtraceEvent { sched_wakeup_new: Some(wake), ..base(13) },
        FtraceEvent {
            sched_migrate_task: Some(proto::SchedMigrateTask {
                comm: comm(),
                pid: Some(9),
                prio: Some(-1),
                orig_cpu: Some(1),
                dest_cpu: Some(2),
            }),
            ..base(14)
        },
        FtraceEvent {
            sched_process_fork: Some(proto::SchedProcessFork {
                parent_comm: Some("init".into()),
                parent_pid: Some(1),
                child_comm: Some("child".into()),
                child_pid: Some(2),
            }),
            ..base(15)
        },
        FtraceEvent {
            sched_process_exec: Some(proto::SchedProcessExec {
                filename: Some("/bin/true".into()),
                pid: Some(2),
                old_pid: Some(3),
            }),
            ..base(16)
        },
        FtraceEvent {
            sched_process_exit: Some(proto::SchedProcessExit { comm: comm(), pid: Some(9), prio: Some(-1) }),
            ..base(u64::MAX)
        },
    ];
    assert_eq!(events, expected);

    let tree = packets.iter().find_map(|p| p.process_tree.as_ref()).unwrap();
    assert_eq!((tree.processes[0].pid, &tree.processes[0].cmdline[0][..]), (Some(7), "vm0"));
    assert_eq!((tree.threads[0].tid, tree.threads[0].tgid), (Some(9), Some(7)));
    assert!(packets[0].clock_snapshot.is_some() && packets[0].sequence_flags == Some(1));
}

#[test]
fn track_events_and_their_names() {
    let packets = packets(fill);
    let descriptors: Vec<_> = packets.iter().filter_map(|p| p.track_descriptor.as_ref()).collect();
    assert_eq!(
        descriptors.iter().map(|d| (d.uuid, d.parent_uuid)).collect::<Vec<_>>(),
        [(Some(1), None), (Some(2), Some(1)), (Some(3), None)]
    );
    assert_eq!(descriptors[2].counter.as_ref().unwrap().unit_name.as_deref(), Some("tasks"));
    let events: Vec<_> = packets.iter().filter(|p| p.track_event.is_some()).collect();
    assert!(events.iter().all(|p| p.sequence_flags == Some(2)));
    let fields: Vec<_> = events
        .iter()
        .map(|p| {
            p.track_event.clone().map(|e| (p.timestamp, e.r#type, e.track_uuid, e.name_iid, e.counter_value)).unwrap()
        })
        .collect();
    assert_eq!(
        fields,
        [
            (Some(20), Some(1), Some(2), Some(1), None),
            (Some(21), Some(3), Some(2), Some(2), None),
            (Some(21), Some(1), Some(2), Some(3), None),
            (Some(21), Some(2), Some(2), None, None),
            (Some(22), Some(2), Some(2), None, None),
            (Some(23), Some(4), Some(3), None, Some(-5)),
        ]
    );
    let names: Vec<_> = events.iter().map(|p| p.interned_data.as_ref().map(|d| d.event_names[0].clone())).collect();
    assert_eq!(names[0].as_ref().unwrap().name.as_deref(), Some("wait"));
    assert_eq!(names[1].as_ref().unwrap().iid, Some(2));
    assert_eq!(names[2].as_ref().unwrap().iid, Some(3));
    assert!(names[3..].iter().all(Option::is_none));
}

/// The table of names may fill up: then numbering begins anew, and says so.
#[test]
fn names_are_bounded() {
    const MANY: u64 = (1 << 16) + 10;
    let packets = packets(|w| {
        let track = w.slice_track("t", None)?;
        (0..MANY).try_for_each(|i| w.instant(track, i, &format!("name {i}")))
    });
    let mut table = std::collections::HashMap::new();
    let mut restarts = 0;
    let mut seen = 0;
    for packet in packets.iter().filter(|p| p.track_event.is_some()) {
        if packet.sequence_flags.unwrap() & 1 != 0 {
            table.clear();
            restarts += 1;
        }
        for name in packet.interned_data.iter().flat_map(|d| &d.event_names) {
            table.insert(name.iid, name.name.clone().unwrap());
        }
        assert_eq!(table[&packet.track_event.as_ref().unwrap().name_iid], format!("name {seen}"));
        seen += 1;
    }
    assert_eq!((seen, restarts), (MANY, 1));
}

#[test]
fn arrows_join_two_events() {
    let packets = packets(fill);
    let flows = |f: fn(&proto::TrackEvent) -> &Vec<u64>| -> Vec<u64> {
        packets.iter().filter_map(|p| p.track_event.as_ref()).flat_map(|e| f(e).clone()).collect()
    };
    assert_eq!((flows(|e| &e.flow_ids), flows(|e| &e.terminating_flow_ids)), (vec![u64::MAX], vec![u64::MAX]));
}

/// Counts what it is given, and in which pieces.
#[derive(Clone, Default)]
struct Counting(Rc<Cell<(usize, usize)>>);

impl Write for Counting {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let (total, largest) = self.0.get();
        self.0.set((total + buf.len(), largest.max(buf.len())));
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// 4,096 CPUs, a million events: written as it goes, in small pieces.
#[test]
fn memory_is_bounded_with_many_cpus() {
    let sink = Counting::default();
    let mut writer = Writer::new(sink.clone()).unwrap();
    let (mut given, mut behind_max) = (0, 0);
    for ts in 0..1_000_000u64 {
        writer.switch(at(ts, (ts % 4096) as u32), TASK, TaskState::RUNNABLE, TASK).unwrap();
        given += 60;
        behind_max = behind_max.max(given - sink.0.get().0.min(given));
    }
    writer.finish().unwrap();
    let (total, largest) = sink.0.get();
    assert!(total > given, "{total} bytes of {given}");
    assert!(behind_max < 6 << 20 && largest < 1 << 20, "{behind_max} bytes held, pieces of {largest}");
}

#[test]
fn a_bundle_is_in_time_order_and_of_one_cpu() {
    let packets = packets(|w| {
        for (ts, cpu) in [(5, 0), (6, 1), (7, 0), (3, 0), (4, 0), (4, 1)] {
            w.waking(at(ts, cpu), TASK, 0)?;
        }
        Ok(())
    });
    let bundles: Vec<_> = packets
        .iter()
        .filter_map(|p| p.ftrace_events.as_ref())
        .map(|b| (b.cpu.unwrap(), b.event.iter().map(|e| e.timestamp.unwrap()).collect::<Vec<_>>()))
        .collect();
    assert_eq!(bundles, [(0, vec![5, 7]), (1, vec![6]), (0, vec![3, 4]), (1, vec![4])]);
}

#[test]
fn equal_calls_give_equal_bytes() {
    let write = || {
        let mut writer = Writer::new(Vec::new()).unwrap();
        fill(&mut writer).unwrap();
        writer.finish().unwrap()
    };
    assert_eq!(write(), write());
}

#[test]
fn the_sinks_error_is_told() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let error = Writer::new(Full).unwrap().finish().err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}
