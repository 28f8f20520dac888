//! Perfetto traces in: what our writer writes; compact bundles as Perfetto's own recorder writes them; damage.

use std::io::Write;

use crate::common::{damage, read, read_file};
use contend_trace::perfetto::Writer;
use contend_trace::perfetto::proto::{CompactSched, FtraceEvent, FtraceEventBundle, ProcessTree, SchedWakeup, Thread};
use contend_trace::perfetto::proto::{SystemInfo, Trace, TracePacket};
use contend_trace::{Context, Event, Format, Kind, SchedSink, TaskRef, TaskState};
use proptest::prelude::*;
use prost::Message;

fn written(events: &[Event]) -> Vec<u8> {
    let mut out = Writer::new(Vec::new()).unwrap();
    events.iter().for_each(|event| out.event(event).unwrap());
    out.finish().unwrap()
}

fn sample() -> Vec<Event> {
    read_file("trace-cmd-v6.dat.gz").0
}

/// All but the names of who recorded: those are learned from the events before.
#[test]
fn a_recording_passed_on_is_read_back() {
    let events = sample();
    let (again, report) = read(written(&events));
    assert_eq!(
        (report.format, report.unparsable.count, report.out_of_order.count),
        (Format::Perfetto, 0, 0),
        "{report}"
    );
    assert_eq!((report.unchained, report.cpus), (0, vec![0, 1, 2, 3]));
    assert_eq!(again.len(), events.len());
    let mut unnamed = 0;
    for (mut again, event) in again.into_iter().zip(events) {
        unnamed += usize::from(&*again.comm == "<...>");
        again.comm = event.comm.clone();
        // Whether a switch is due is not passed on.
        again.resched = event.resched;
        assert_eq!(again, event);
    }
    assert!(unnamed < 50, "{unnamed}");
}

fn task(pid: u32, comm: &str) -> TaskRef {
    TaskRef { pid, comm: comm.into(), prio: 120 }
}

/// A CPU that is busy and one that hardly ever is: bundles of the second come long after.
#[test]
fn bundles_of_cpus_are_brought_into_order() {
    let mut events = Vec::new();
    for i in 0..300_000u64 {
        let cpu = u32::from(i % 70_000 == 1);
        let (prev, next) = if i % 2 == 0 { (1, 2) } else { (2, 1) };
        let kind = if cpu == 0 {
            let (prev, next) = (task(prev, "a"), task(next, "b"));
            Kind::Switch { prev, prev_state: TaskState::SLEEPING, next }
        } else {
            Kind::Irq { irq: 3, entry: true }
        };
        events.push(Event { ts: i, cpu, pid: prev, comm: "".into(), context: Context::Task, resched: false, kind });
    }
    let (again, report) = read(written(&events));
    assert_eq!((again.len(), report.out_of_order.count), (events.len(), 0), "{report}");
    assert!(again.iter().zip(0..).all(|(event, ts)| event.ts == ts));
}

#[test]
fn what_explains_scheduling_is_read_back() {
    let kinds = [
        Kind::Irq { irq: 36, entry: true },
        Kind::Softirq { vec: 9, entry: false },
        Kind::Timer { hrtimer: true, entry: true },
        Kind::Timer { hrtimer: false, entry: false },
        Kind::Syscall { nr: -1, entry: true },
        Kind::Syscall { nr: 202, entry: false },
        Kind::ContentionBegin { lock: u64::MAX - 9, flags: 33 },
        Kind::ContentionEnd { lock: 7, ret: -110 },
        Kind::KvmEntry { vcpu: 3 },
        Kind::KvmExit { vcpu: u32::MAX, reason: 12 },
    ];
    let contexts = [Context::Unknown, Context::Task, Context::Softirq, Context::Hardirq, Context::Nmi];
    let event = |(i, kind): (usize, &Kind)| {
        let context = contexts[i % contexts.len()];
        Event { ts: i as u64, cpu: 2, pid: 0, comm: "swapper/2".into(), context, resched: false, kind: kind.clone() }
    };
    let events: Vec<_> = kinds.iter().enumerate().map(event).collect();
    assert_eq!(read(written(&events)).0, events);
}

fn bundle(cpu: u32, bundle: FtraceEventBundle) -> TracePacket {
    let bundle = FtraceEventBundle { cpu: Some(cpu), ..bundle };
    TracePacket { ftrace_events: Some(bundle), ..Default::default() }
}

/// Two bundles of CPU 1, between which events were lost. Times in each column are differences.
fn compact() -> Vec<TracePacket> {
    let names = || vec!["idle?".to_owned(), "make".to_owned(), "cc1".to_owned()];
    let wakeup =
        SchedWakeup { comm: Some("make".into()), pid: Some(10), prio: Some(100), target_cpu: Some(1), success: None };
    let thread = Thread { tid: Some(33), name: Some("daemon".into()), tgid: Some(33) };
    vec![
        TracePacket {
            process_tree: Some(ProcessTree { threads: vec![thread], ..Default::default() }),
            system_info: Some(SystemInfo { num_cpus: Some(8), ..Default::default() }),
            ..Default::default()
        },
        bundle(
            1,
            FtraceEventBundle {
                event: vec![
                    FtraceEvent {
                        timestamp: Some(1015),
                        pid: Some(10),
                        sched_wakeup: Some(wakeup),
                        ..Default::default()
                    },
                    FtraceEvent {
                        timestamp: Some(1025),
                        pid: Some(33),
                        sys_exit: Some(Default::default()),
                        ..Default::default()
                    },
                ],
                compact_sched: Some(CompactSched {
                    intern_table: names(),
                    switch_timestamp: vec![1010, 10],
                    switch_prev_state: vec![1, 0x100],
                    switch_next_pid: vec![10, 11],
                    switch_next_prio: vec![120, 110],
                    switch_next_comm_index: vec![1, 2],
                    waking_timestamp: vec![1005, 8, 9],
                    waking_pid: vec![10, 11, 12],
                    waking_target_cpu: vec![1, 0, 3],
                    waking_prio: vec![120, 110, 120],
                    waking_comm_index: vec![1, 2, 0],
                    waking_common_flags: vec![0x08, 0, 0x10],
                }),
                ftrace_clock: Some(0),
                ..Default::default()
            },
        ),
        bundle(
            1,
            FtraceEventBundle {
                lost_events: Some(true),
                compact_sched: Some(CompactSched {
                    intern_table: vec!["make".into()],
                    switch_timestamp: vec![2000],
                    switch_prev_state: vec![1],
                    switch_next_pid: vec![10],
                    switch_next_prio: vec![120],
                    switch_next_comm_index: vec![0],
                    ..Default::default()
                }),
                ..Default::default()
            },
        ),
    ]
}

fn packed(packet: Vec<TracePacket>) -> Vec<u8> {
    Trace { packet }.encode_to_vec()
}

#[test]
fn compact_bundles_become_whole_events() {
    let (events, report) = read(packed(compact()));
    let unknown = || task(u32::MAX, "<...>");
    let (make, cc1) = (|| task(10, "make"), || TaskRef { prio: 110, ..task(11, "cc1") });
    let event = |ts, (pid, comm): (u32, &str), context, kind| Event {
        ts,
        cpu: 1,
        pid,
        comm: comm.into(),
        context,
        resched: false,
        kind,
    };
    let switch = |prev, prev_state, next| Kind::Switch { prev, prev_state, next };
    let (nobody, by_make, by_cc1) = ((u32::MAX, "<...>"), (10, "make"), (11, "cc1"));
    let expected = [
        event(1005, nobody, Context::Hardirq, Kind::Waking { task: make(), target_cpu: 1 }),
        event(1010, nobody, Context::Unknown, switch(unknown(), TaskState::SLEEPING, make())),
        event(1013, by_make, Context::Task, Kind::Waking { task: cc1(), target_cpu: 0 }),
        event(1015, by_make, Context::Unknown, Kind::Wakeup { task: TaskRef { prio: 100, ..make() }, target_cpu: 1 }),
        event(1020, by_make, Context::Unknown, switch(make(), TaskState::PREEMPTED, cc1())),
        event(1022, by_cc1, Context::Softirq, Kind::Waking { task: task(12, "idle?"), target_cpu: 3 }),
        event(1025, (33, "daemon"), Context::Unknown, Kind::Syscall { nr: 0, entry: false }),
        event(2000, nobody, Context::Unknown, switch(unknown(), TaskState::SLEEPING, make())),
    ];
    assert_eq!(events, expected);
    assert_eq!((report.lost.gaps, report.unchained, report.unparsable.count), (1, 0, 0), "{report}");
    assert_eq!((report.clock.as_deref(), report.cpus_declared), (Some("boot"), Some(8)));
}

#[test]
fn compressed_packets_are_read() {
    let plain = read(packed(compact()));
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(&packed(compact())).unwrap();
    let compressed_packets = Some(zlib.finish().unwrap());
    let file = packed(vec![TracePacket { compressed_packets, ..Default::default() }]);
    assert_eq!(read(file), plain);

    let damaged = TracePacket { compressed_packets: Some(vec![1, 2, 3]), ..Default::default() };
    let mut file = packed(vec![damaged]);
    file.extend(packed(compact()));
    let (events, report) = read(file);
    assert_eq!((events.len(), report.unparsable.count), (8, 1), "{report}");
}

#[test]
fn damage_is_counted() {
    let broken = CompactSched { switch_timestamp: vec![1, 2], switch_next_pid: vec![1], ..Default::default() };
    let unnamed = CompactSched {
        waking_comm_index: vec![4],
        ..compact()[1].ftrace_events.clone().unwrap().compact_sched.unwrap()
    };
    for damaged in [broken, unnamed] {
        let damaged = bundle(0, FtraceEventBundle { compact_sched: Some(damaged), ..Default::default() });
        let (events, report) = read(packed([vec![damaged], compact()].concat()));
        assert_eq!((events.len(), report.unparsable.count), (8, 1), "{report}");
    }
    let far = bundle(70_000, FtraceEventBundle::default());
    assert_eq!(read(packed([vec![far], compact()].concat())).1.unparsable.count, 1);
    // An event of a kind that is not ours, and none at all.
    let strange = FtraceEventBundle { event: vec![FtraceEvent::default()], ..Default::default() };
    assert_eq!(read(packed([compact(), vec![bundle(0, strange)]].concat())).1.unknown["(no event)"], 1);
}

#[test]
fn a_cut_file_is_read_as_far_as_it_goes() {
    let whole = packed(compact());
    let (events, report) = read(whole[..whole.len() - 3].to_vec());
    assert_eq!((events.len(), report.truncated), (7, true), "{report}");
    assert!(!read(whole).1.truncated);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damage_never_panics(which in 0..2usize, damage in damage()) {
        static FILES: std::sync::LazyLock<[Vec<u8>; 2]> =
            std::sync::LazyLock::new(|| [written(&sample()), packed(compact())]);
        damage.survives(FILES[which].clone())?;
    }
}
