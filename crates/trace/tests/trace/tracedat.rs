//! trace.dat: what trace-cmd wrote is what trace-cmd prints; every form of the ring buffer; damage.

use std::io::{Cursor, Read};

use crate::common::dat::{Machine, PC, format};
use crate::common::{damage, data, read, read_file};
use contend_trace::{Context, Event, Format, Kind, Reader, TaskRef, TaskState, TraceError};
use flate2::read::GzDecoder;
use proptest::prelude::*;

fn gunzipped(name: &str) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(std::fs::File::open(data(name)).unwrap()).read_to_end(&mut plain).unwrap();
    plain
}

/// Linux 6.12, hackbench on 4 emulated CPUs; printed by `trace-cmd report -N -t`, which gives no contexts.
#[test]
fn what_trace_cmd_prints_is_what_is_read() {
    let (mut text, text_report) = read_file("trace-cmd-v6.txt.gz");
    for name in ["trace-cmd-v6.dat.gz", "trace-cmd-v7-zstd.dat"] {
        let (events, report) = read_file(name);
        assert_eq!(
            (report.format, report.unparsable.count, report.truncated),
            (Format::TraceDat, 0, false),
            "{report}"
        );
        assert_eq!(
            (report.unknown, report.cpus, report.cpus_declared),
            (text_report.unknown.clone(), vec![0, 1, 2, 3], Some(4))
        );
        assert_eq!((report.unchained, report.out_of_order.count), (0, 0));
        assert_eq!(report.clock.as_deref(), Some("local"));
        assert!(
            events.iter().any(|e| e.context == Context::Hardirq) && events.iter().any(|e| e.context == Context::Task)
        );
        assert_eq!(events.len(), text.len());
        for (event, printed) in events.iter().zip(&mut text) {
            (printed.context, printed.resched) = (event.context, event.resched);
            assert_eq!(event, printed);
        }
    }
}

#[test]
fn a_plain_file_is_read_in_place_and_a_stream_is_copied() {
    let from_file = read_file("trace-cmd-v7-zstd.dat");
    assert_eq!(from_file, read(std::fs::read(data("trace-cmd-v7-zstd.dat")).unwrap()));
}

/// What trace-cmd has printed since 2009 on all machines: any order, any word size.
const MACHINES: [Machine; 4] = [
    PC,
    Machine { big: true, long: 8, page: 65536 },
    Machine { big: false, long: 4, page: 4096 },
    Machine { big: true, long: 4, page: 8192 },
];

const WAKING: u16 = 300;
const EXEC: u16 = 301;

/// sched_waking with its fields in an odd order, and a string that stands behind the record.
fn formats() -> Vec<String> {
    vec![
        format(
            "sched_waking",
            WAKING,
            &[
                ("int target_cpu", 8, 4, true),
                ("pid_t pid", 12, 4, true),
                ("int prio", 16, 4, true),
                ("char comm[16]", 20, 16, false),
            ],
            "\"\"",
        ),
        format(
            "sched_process_exec",
            EXEC,
            &[("__data_loc char[] filename", 8, 4, false), ("pid_t pid", 12, 4, true), ("pid_t old_pid", 16, 4, true)],
            "\"\"",
        ),
        format("sched_stat_runtime", 302, &[], "\"\""),
    ]
}

fn waking(m: Machine, flags: u8, by: i32, pid: i32) -> Vec<u8> {
    let head = [m.word(WAKING.into(), 2), vec![flags, 7], m.u32(by as u32)].concat();
    [head, m.u32(5), m.u32(pid as u32), m.u32(-1i32 as u32), b"sleeper\0garbage!".to_vec()].concat()
}

fn exec(m: Machine, name: &[u8]) -> Vec<u8> {
    let loc = 20 | (name.len() as u32 + 1) << 16;
    let mut record =
        [m.word(EXEC.into(), 2), vec![0, 0], m.u32(9), m.u32(loc), m.u32(9), m.u32(8), name.to_vec()].concat();
    record.push(0);
    record.resize(record.len().next_multiple_of(4), 0xee);
    record
}

fn event(ts: u64, cpu: u32, pid: u32, comm: &str, context: Context, woken: u32) -> Event {
    let task = TaskRef { pid: woken, comm: "sleeper".into(), prio: -1 };
    Event { ts, cpu, pid, comm: comm.into(), context, resched: false, kind: Kind::Waking { task, target_cpu: 5 } }
}

#[test]
fn every_kind_of_record_is_read_on_every_machine() {
    for m in MACHINES {
        let long_name = b"/a/path/that/makes/the/record/longer/than/the/short/form/of/a/record/can/hold/so/that/its/length/is/a/word/\
            of/its/own";
        let cpu_0 = m.page(
            1 << 40,
            None,
            &[
                m.record(10, &waking(m, 0, 7, 100)),
                // More bits of time: 2^27 + 1.
                [m.head(30, 1), m.u32(1)].concat(),
                m.record(0, &waking(m, 0x08, 7, 101)),
                // A discarded record takes time and room.
                [m.head(29, 5), m.u32(12), vec![0xaa; 8]].concat(),
                m.record(0, &waking(m, 0x18, 0, 102)),
                m.record(1, &exec(m, long_name)),
                // The time itself.
                [m.head(31, 3), m.u32(1 << 20)].concat(),
                m.record(0, &waking(m, 0x10, -1, 103)),
                m.head(29, 0),
                vec![0xff; 12],
            ],
        );
        let cpu_1 = [
            m.page(0, None, &[m.record(1, &waking(m, 0x41, 8, 104))]),
            m.page(
                100,
                Some(Some(12)),
                &[m.record(0, &waking(m, 0, 8, 105)), m.record(1, &[m.word(302, 2), vec![0; 6]].concat())],
            ),
            m.page(
                200,
                Some(None),
                &[m.record(0, &waking(m, 0, 8, 106)), m.record(1, &[m.word(999, 2), vec![0; 6]].concat())],
            ),
        ]
        .concat();
        let (events, report) = read(m.file(&formats(), &[(4, b"local [mono] boot\0")], "7 waker\n", &[cpu_0, cpu_1]));
        let base = (1 << 40) + 10;
        let extended = base + (1 << 27) + 1;
        let exec = Event {
            kind: Kind::Exec { filename: std::str::from_utf8(long_name).unwrap().into(), pid: 9, old_pid: 8 },
            ..event(extended + 6, 0, 9, "<...>", Context::Task, 0)
        };
        let expected = [
            event(1, 1, 8, "<...>", Context::Nmi, 104),
            event(100, 1, 8, "<...>", Context::Task, 105),
            event(200, 1, 8, "<...>", Context::Task, 106),
            event(base, 0, 7, "waker", Context::Task, 100),
            event(extended, 0, 7, "waker", Context::Hardirq, 101),
            event(extended + 5, 0, 0, "swapper/0", Context::Hardirq, 102),
            exec,
            event((1 << 47) + 3, 0, u32::MAX, "<...>", Context::Softirq, 103),
        ];
        assert_eq!(events, expected, "{m:?}");
        assert_eq!((report.lost.gaps, report.lost.events), (2, 12));
        assert_eq!(
            report.unknown.into_iter().collect::<Vec<_>>(),
            [("(event 999)".into(), 1), ("sched_stat_runtime".into(), 1)]
        );
        assert_eq!((report.unparsable.count, report.truncated, report.clock.as_deref()), (0, false, Some("mono")));
    }
}

#[test]
fn states_are_those_of_the_kernel_that_recorded() {
    let fields = [
        ("char prev_comm[16]", 8, 16, false),
        ("pid_t prev_pid", 24, 4, true),
        ("int prev_prio", 28, 4, true),
        ("long prev_state", 32, 8, true),
        ("char next_comm[16]", 40, 16, false),
        ("pid_t next_pid", 56, 4, true),
        ("int next_prio", 60, 4, true),
    ];
    // Linux 4.4, 4.9 and 6.12.
    let old = r#"REC->prev_state & (2048-1) ? __print_flags(REC->prev_state & (2048-1), "|", { 1, "S"} , { 2, "D" }, { 4, "T" }, { 8, "t" }, { 16, "Z" }, { 32, "X" }, { 64, "x" }, { 128, "K" }, { 256, "W" }, { 512, "P" }, { 1024, "N" }) : "R", REC->prev_state & 2048 ? "+" : """#;
    let between = &old.replace("2048", "4096").replace("\"N\" }", "\"N\" }, { 2048, \"n\" }");
    let new = r#"__print_flags(REC->prev_state & 0xff, "|", { 0x00000001, "S" }, { 0x00000002, "D" }, { 0x00000004, "T" }, { 0x00000008, "t" }, { 0x00000010, "X" }, { 0x00000020, "Z" }, { 0x00000040, "P" }, { 0x00000080, "I" }) : "R""#;
    let state = |print: &str, raw: u64| {
        let comm = |name: &[u8]| [name, &vec![0; 16 - name.len()]].concat();
        let record = [
            [PC.word(1, 2), vec![0, 0], PC.u32(3), comm(b"a"), PC.u32(3), PC.u32(120)].concat(),
            [PC.word(raw, 8), comm(b"b"), PC.u32(4), PC.u32(120)].concat(),
        ];
        let page = PC.page(5, None, &[PC.record(0, &record.concat())]);
        let (events, report) = read(PC.file(&[format("sched_switch", 1, &fields, print)], &[], "", &[page]));
        assert_eq!(report.unparsable.count, 0, "{report}");
        let Kind::Switch { prev_state, .. } = events[0].kind else { panic!("{events:?}") };
        prev_state.to_string()
    };
    assert_eq!(state(old, 16), "Z");
    assert_eq!(state(old, 2048), "R+");
    assert_eq!(state(old, 2 | 128), "D|K");
    assert_eq!(state(between, 4096), "R+");
    assert_eq!(state(between, 2048), "R");
    assert_eq!(state(new, 0x100), "R+");
    assert_eq!(state(new, 0x20), TaskState::ZOMBIE.to_string());
    assert_eq!(state(new, 0x80), "I");
    // A description without a table is taken for a new kernel's.
    assert_eq!(state("\"\"", 0x80), "I");
}

#[test]
fn explaining_events_are_read() {
    type Fields = &'static [(&'static str, usize, usize, bool)];
    let cases: [(&str, Fields, Vec<u8>, Kind); 9] = [
        ("irq_handler_exit", &[("int irq", 8, 4, true)], PC.u32(36), Kind::Irq { irq: 36, entry: false }),
        ("softirq_entry", &[("unsigned int vec", 8, 4, false)], PC.u32(9), Kind::Softirq { vec: 9, entry: true }),
        (
            "hrtimer_expire_entry",
            &[("void * hrtimer", 8, 8, false)],
            PC.word(1, 8),
            Kind::Timer { hrtimer: true, entry: true },
        ),
        ("sys_enter", &[("long id", 8, 8, true)], PC.word(202, 8), Kind::Syscall { nr: 202, entry: true }),
        (
            "sys_enter_futex",
            &[
                ("int __syscall_nr", 8, 4, true),
                ("u32 * uaddr", 16, 8, false),
                ("int op", 24, 8, false),
                ("u32 val", 32, 8, false),
            ],
            [PC.u32(202), PC.u32(0), PC.word(0x7f00_0000_0010, 8), PC.word(129, 8), PC.word(1, 8)].concat(),
            Kind::Futex { uaddr: 0x7f00_0000_0010, op: 129, val: 1 },
        ),
        ("sys_exit_read", &[("int __syscall_nr", 8, 4, true)], PC.u32(0), Kind::Syscall { nr: 0, entry: false }),
        (
            "contention_begin",
            &[("void * lock_addr", 8, 8, false), ("unsigned int flags", 16, 4, false)],
            [PC.word(0xffff_ffff_8300_0000, 8), PC.u32(2)].concat(),
            Kind::ContentionBegin { lock: 0xffff_ffff_8300_0000, flags: 2 },
        ),
        (
            "kvm_exit",
            &[
                ("unsigned int exit_reason", 8, 4, false),
                ("u32 isa", 12, 4, false),
                ("unsigned int vcpu_id", 16, 4, false),
            ],
            [PC.u32(0x8000_000c), PC.u32(1), PC.u32(3)].concat(),
            Kind::KvmExit { vcpu: 3, reason: 12 },
        ),
        // Arm's name no vCPU.
        ("kvm_entry", &[("unsigned long vcpu_pc", 8, 8, false)], PC.word(7, 8), Kind::KvmEntry { vcpu: u32::MAX }),
    ];
    for (name, fields, data, kind) in cases {
        let record = [PC.word(77, 2), vec![0, 0], PC.u32(3), data].concat();
        let page = PC.page(5, None, &[PC.record(0, &record)]);
        let (events, _) = read(PC.file(&[format(name, 77, fields, "\"\"")], &[], "", &[page]));
        assert_eq!(events[0].kind, kind, "{name}");
    }
}

#[test]
fn damage_in_a_page_costs_that_page() {
    let good = |ts| PC.page(ts, None, &[PC.record(0, &waking(PC, 0, 7, 1))]);
    let cut_record = PC.page(20, None, &[PC.record(0, &waking(PC, 0, 7, 2)), PC.head(28, 0)]);
    let mut bad_commit = good(30);
    bad_commit[8..10].copy_from_slice(&[0xff, 0xff]);
    let short = PC.page(40, None, &[PC.record(0, &[0; 4]), PC.record(1, &waking(PC, 0, 7, 3))]);
    let pages = [good(10), cut_record, bad_commit, short, good(50)].concat();
    let (events, report) = read(PC.file(&formats(), &[], "", &[pages]));
    assert_eq!(events.iter().map(|e| e.ts).collect::<Vec<_>>(), [10, 20, 41, 50]);
    // Two pages behind each other are one gap.
    assert_eq!((report.unparsable.count, report.lost.gaps), (3, 1), "{report}");
    let (at, what) = report.unparsable.first.clone().unwrap();
    assert!(at > 4096 && what.contains("CPU 0"), "{at} {what}");
    assert!(report.to_string().contains("damaged records: 3, first at byte"), "{report}");
}

#[test]
fn a_description_that_lacks_a_field_is_damage_of_each_of_its_events() {
    let lacking = format("sched_waking", WAKING, &[("pid_t pid", 12, 4, true)], "\"\"");
    let page = PC.page(10, None, &[PC.record(0, &waking(PC, 0, 7, 1)), PC.record(0, &waking(PC, 0, 7, 1))]);
    let (events, report) = read(PC.file(&[lacking], &[], "", &[page]));
    assert_eq!((events.len(), report.unparsable.count), (0, 2));
    assert!(report.unparsable.first.unwrap().1.contains("no field comm"));
}

#[test]
fn a_cut_file_is_read_as_far_as_it_goes() {
    let whole = gunzipped("trace-cmd-v6.dat.gz");
    let (all, _) = read(whole.clone());
    let (some, report) = read(whole[..whole.len() - 5000].to_vec());
    assert!(report.truncated && report.to_string().contains("truncated"), "{report}");
    assert!(some.len() > 600 && some.len() < all.len(), "{}", some.len());
    // Whoever is still there is the same.
    assert!(some.iter().all(|event| all.contains(event)));

    let gz = std::fs::read(data("trace-cmd-v6.dat.gz")).unwrap();
    let (some, report) = read(gz[..gz.len() - 900].to_vec());
    assert!(report.truncated && !some.is_empty() && some.len() < all.len(), "{report}");
    // Version 7 says at its end where everything is.
    let packed = std::fs::read(data("trace-cmd-v7-zstd.dat")).unwrap();
    let error = Reader::from_read("it", Cursor::new(packed[..packed.len() - 1000].to_vec())).unwrap_err();
    assert!(error.to_string().contains("the end of the file"), "{error}");
}

#[test]
fn times_of_counted_cycles_become_ns() {
    let page = PC.page(3000, None, &[PC.record(0, &waking(PC, 0, 7, 1))]);
    // Multiplier 3, shift 1 (so 1.5 ns a cycle), an offset that is not used; and 5 ns later by that of the recording.
    let tsc = [PC.u32(3), PC.u32(1), PC.word(1000, 8)].concat();
    let options: [(u16, &[u8]); 3] = [(4, b"[x86-tsc]\0"), (14, &tsc), (7, b"5\0")];
    let (events, _) = read(PC.file(&formats(), &options, "", std::slice::from_ref(&page)));
    assert_eq!(events[0].ts, 4505);
    for clock in [&b"[x86-tsc]\0"[..], b"[counter]\0", b"[uptime]\0"] {
        let file = PC.file(&formats(), &[(4, clock)], "", std::slice::from_ref(&page));
        let error = Reader::from_read("dir/it", Cursor::new(file)).unwrap_err().to_string();
        assert!(error.starts_with("dir/it: found the clock") && error.contains("counts ns"), "{error}");
    }
}

/// A buffer of an instance, whose place an option says, behind the first; and that place beyond the end of the file.
#[test]
fn buffers_of_instances_are_read_as_far_as_they_are_there() {
    let page = |ts| PC.page(ts, None, &[PC.record(0, &waking(PC, 0, 7, 1))]);
    let at = 1u64 << 16;
    let option = [PC.word(at, 8), b"instance\0".to_vec()].concat();
    let mut file = PC.file(&formats(), &[(3, &option)], "", &[page(10)]);
    let (events, report) = read(file.clone());
    assert_eq!((events.len(), report.truncated), (1, true), "{report}");
    file.resize(at as usize, 0);
    file.extend(b"flyrecord\0");
    file.extend([PC.word(2 * at, 8), PC.word(4096, 8)].concat());
    file.resize(2 * at as usize, 0);
    file.extend(page(5));
    let (events, report) = read(file);
    assert_eq!((events.iter().map(|e| e.ts).collect::<Vec<_>>(), report.truncated), (vec![5, 10], false));
}

#[test]
fn a_header_that_ends_or_makes_no_sense_is_an_error() {
    let whole = PC.file(&formats(), &[], "", &[]);
    for len in [10, 12, 13, 30, 200, 700] {
        let error = Reader::from_read("it", Cursor::new(whole[..len].to_vec())).unwrap_err();
        assert!(matches!(&error, TraceError::Unusable { found, .. } if found.contains("byte")), "{len}: {error}");
    }
    let mut other = whole;
    other[10] = b'8';
    let error = Reader::from_read("it", Cursor::new(other)).unwrap_err().to_string();
    assert!(error.contains("version \"8\""), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damage_never_panics(which in 0..2usize, damage in damage()) {
        static FILES: std::sync::LazyLock<[Vec<u8>; 2]> = std::sync::LazyLock::new(|| {
            [gunzipped("trace-cmd-v6.dat.gz"), std::fs::read(data("trace-cmd-v7-zstd.dat")).unwrap()]
        });
        damage.survives(FILES[which].clone())?;
    }
}
