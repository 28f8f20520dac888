//! Whole recordings: what is counted, that the three prints of one recording agree, and that damage never panics.

use std::fs;
use std::io::{Read, Write};

use crate::common::{data, read, read_file};
use contend_trace::event::contention;
use contend_trace::{
    Context, Event, Format, Kind, ReadReport, Reader, SchedSink, TaskState, TraceError, ftrace, open, perfetto,
};

fn read_text(text: &str) -> (Vec<Event>, ReadReport) {
    read(text.as_bytes().to_vec())
}

const SAMPLES: [&str; 8] = [
    "trace-cmd-plugin.txt",
    "trace-cmd-kernel.txt",
    "trace-cmd-raw.txt",
    "tracefs.txt",
    "tracefs-tgid.txt",
    "tracefs-noirq.txt",
    "trace-pipe.txt",
    "perf-script.txt",
];

#[test]
fn every_line_of_every_sample_is_understood() {
    for name in SAMPLES {
        let (events, report) = read_file(name);
        assert_eq!(report.unparsable.count, 0, "{name}: {report}");
        assert_eq!(report.events, events.len() as u64);
        assert!(report.events > 10, "{name}: {report}");
        let lines = fs::read_to_string(data(name)).unwrap().lines().count() as u64;
        assert_eq!(report.lines, lines, "{name}");
    }
}

#[test]
fn one_recording_printed_three_ways_is_one_recording() {
    let (kernel, report) = read_file("trace-cmd-kernel.txt");
    assert_eq!(report.cpus_declared, Some(4));
    assert_eq!(report.cpus, [0, 1, 2, 3]);
    let (raw, _) = read_file("trace-cmd-raw.txt");
    assert_eq!(kernel, raw);
    // The plug-in's print loses the "+" of a preempted task, and nothing else.
    let (plugin, _) = read_file("trace-cmd-plugin.txt");
    let without_plus: Vec<_> = kernel
        .into_iter()
        .map(|mut event| {
            if let Kind::Switch { prev_state, .. } = &mut event.kind
                && *prev_state == TaskState::PREEMPTED
            {
                *prev_state = TaskState::RUNNABLE;
            }
            event
        })
        .collect();
    assert_eq!(plugin, without_plus);
}

#[test]
fn odd_names_are_read_whole() {
    let (events, _) = read_file("tracefs.txt");
    let mut names: Vec<&str> = events
        .iter()
        .filter_map(|e| if let Kind::Switch { next, .. } = &e.kind { Some(&*next.comm) } else { None })
        .filter(|n| n.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_') && !n.contains('/'))
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in [
        "(sd-pam)",
        "-dash-",
        "Web Content",
        "a=b [1] c",
        "comm=z pid=7",
        "n-12 [000]",
        "p] [120] q",
        "tmux: server",
        "x ==> y",
    ] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
}

/// Who ran before is who the last switch brought, and whom the line's head names.
#[test]
fn switches_of_a_cpu_chain() {
    for name in ["trace-cmd-kernel.txt", "tracefs.txt"] {
        let (events, _) = read_file(name);
        for event in events {
            if let Kind::Switch { prev, .. } = &event.kind {
                assert_eq!(event.pid, prev.pid, "{name}");
            }
        }
    }
}

#[test]
fn lost_events_are_counted() {
    let (_, report) = read_file("trace-pipe.txt");
    assert_eq!((report.lost.gaps, report.lost.events), (2, 2146 + 3455));
    let (_, report) = read_file("perf-script.txt");
    assert_eq!((report.format, report.lost.gaps, report.lost.events), (Format::PerfScript, 1, 84));
    let (_, report) = read_text(
        "# entries-in-buffer/entries-written: 365/59467   #P:2\nCPU:0 [19510 EVENTS DROPPED]\nCPU:1 [EVENTS DROPPED]\nCPU:1 [LOST EVENTS]\n\
         a-1 [0] 1.0: sched_stat_runtime: comm=a pid=1 runtime=5 [ns]\n",
    );
    assert_eq!((report.lost.gaps, report.lost.events, report.lost.before_start), (3, 19510, 59102));
    assert_eq!(report.cpus_declared, Some(2));
    assert_eq!(report.unknown["sched_stat_runtime"], 1);
}

#[test]
fn damage_disorder_and_strangers_are_counted() {
    let (events, report) = read_text(
        "cpus=2\r\n\
         a-1 [0] 2.0: sched_waking: comm=b pid=2 prio=120 target_cpu=001\r\n\
         \n\
         a-1 [0] 1.9: sched_waking: comm=b pid=2 prio=120 target_cpu=001\n\
         a-1 [5] 1.999999999: sched_waking: comm=b pid=2 prio=120 target_cpu=001\n\
         a-1 [0] 3.0: sched_waking: comm=b pid=2 prio=1\n\
         a-1 [0] 3.0: irq_handler: irq=1 name=x\n\
         a-1 [0] 3.0: <stack trace>\n => schedule\n => do_exit\n\
         CPU 1 is empty\n\
         a-1 [0] 3.0: sched_waking: comm=b pid=2 prio=120 target_cpu=001",
    );
    assert_eq!(events.len(), 4);
    assert_eq!((report.out_of_order.count, report.out_of_order.worst_ns), (2, 100_000_000));
    let first = (6, "a-1 [0] 3.0: sched_waking: comm=b pid=2 prio=1".to_owned());
    assert_eq!((report.unparsable.count, report.unparsable.first.clone()), (1, Some(first)));
    assert_eq!(report.unknown.len(), 2);
    assert_eq!(report.cpus, [0, 5]);
    assert_eq!((report.first_ts, report.last_ts), (Some(1_900_000_000), Some(3_000_000_000)));
    let text = report.to_string();
    assert!(text.contains("4 events on 2 CPUs over 1.100000000 s") && text.contains("damaged lines: 1"), "{text}");
}

#[test]
fn missing_switches_are_counted_unless_a_gap_explains_them() {
    let switch = |prev, next| {
        format!(
            "a-{prev} [0] 1.0: sched_switch: prev_comm=a prev_pid={prev} prev_prio=120 prev_state=S ==> next_comm=a next_pid={next} next_prio=120\n"
        )
    };
    let chained = switch(1, 2) + &switch(2, 3);
    assert_eq!(read_text(&chained).1.unchained, 0);
    let broken = switch(1, 2) + &switch(3, 4) + &switch(4, 5);
    assert_eq!(read_text(&broken).1.unchained, 1);
    let marked = switch(1, 2) + "CPU:0 [LOST 7 EVENTS]\n" + &switch(3, 4);
    assert_eq!(read_text(&marked).1.unchained, 0);
    assert_eq!(read_file("tracefs-noirq.txt").1.cpus, [1]);
}

#[test]
fn call_chains_of_perf_are_no_damage() {
    let (events, report) = read_text(
        "perf 19623 [000]  3244.165062: sched:sched_waking: comm=b pid=2 prio=120 target_cpu=001\n\
         \tffffffff821facd8 __schedule+0x618 ([kernel.kallsyms])\n\
         \t           ee137 sched_setaffinity@@GLIBC_2.3.4+0x7 (/usr/lib/libc.so.6)\n\
         \x20          ee137 sched_setaffinity@@GLIBC_2.3.4+0x7 (/usr/lib/libc.so.6)\n\n",
    );
    assert_eq!((events.len(), report.unparsable.count), (1, 0));
    // With -F +ip,+sym,+dso they follow the fields.
    let (events, report) = read_text(
        "perf 19623 [000]  3244.165062: sched:sched_waking: comm=b pid=2 prio=120 target_cpu=001 ffffffff813b4986 try_to_wake_up ([kernel.kallsyms])\n\
         perf 2 [000] 3244.2: sched:sched_switch: prev_comm=a prev_pid=2 prev_prio=120 prev_state=D ==> next_comm=b c next_pid=1 next_prio=0 ffffffff82266208 __schedule\n",
    );
    assert_eq!((events.len(), report.unparsable.count), (2, 0));
}

#[test]
fn a_line_without_end_costs_no_memory() {
    let line = "a-1 [0] 2.0: sched_waking: comm=b pid=2 prio=120 target_cpu=001\n";
    let text = format!("{line}{}\n{line}", "x".repeat(5 << 20));
    let (events, report) = read_text(&text);
    assert_eq!((events.len(), report.unparsable.count), (2, 1));
    assert!(report.unparsable.first.unwrap().1.len() < 200);
}

#[test]
fn gzip_is_read_and_its_damage_is_an_error() {
    let plain = fs::read(data("tracefs.txt")).unwrap();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&plain).unwrap();
    let gz = gz.finish().unwrap();
    let (events, _) = read(gz.clone());
    assert_eq!(events, read_file("tracefs.txt").0);

    // One that is cut off is read up to there; one that is damaged is an error.
    let (some, report) = read(gz[..gz.len() / 2].to_vec());
    assert!(report.truncated && some.len() > 10 && some[..] == events[..some.len()], "{report}");
    let mut damaged = gz;
    let middle = damaged.len() / 2;
    damaged[middle..middle + 40].fill(0xff);
    let mut reader = match Reader::from_read("x.gz", std::io::Cursor::new(damaged)) {
        Ok(reader) => reader,
        Err(e) => return assert!(matches!(e, TraceError::Io { .. })),
    };
    assert!(matches!((&mut reader).last(), Some(Err(TraceError::Io { .. }))));
}

/// A source that fails after its text.
struct Fails(&'static [u8]);

impl Read for Fails {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(buf)? {
            0 => Err(std::io::Error::other("the disk is on fire")),
            n => Ok(n),
        }
    }
}

#[test]
fn an_io_error_ends_the_iteration() {
    static TEXT: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| "a-1 [0] 2.0: sched_waking: comm=b pid=2 prio=120 target_cpu=001\n".repeat(10_000));
    let mut reader = Reader::from_read("x", Fails(TEXT.as_bytes())).unwrap();
    let results: Vec<_> = (&mut reader).collect();
    assert!(matches!(results.last(), Some(Err(TraceError::Io { .. }))));
    assert_eq!(results.len(), 10_001);
    assert!(reader.next().is_none());
}

#[track_caller]
fn refused(content: &[u8]) -> String {
    Reader::from_read("dir/it", std::io::Cursor::new(content.to_vec())).expect_err("not a trace").to_string()
}

#[test]
fn other_files_are_refused_with_what_to_do() {
    let text = refused(b"PERFILE2\x68\0\0");
    assert!(text.contains("perf script --ns -i dir/it > dir/it.txt"), "{text}");
    let text = refused(b"\n# hello\nnot a trace at all\n");
    assert!(text.starts_with("dir/it:3: found \"not a trace at all\"; expected a line of"), "{text}");
    // What begins as a Perfetto trace does, with an empty line.
    for other in [&b"\n\n\x01\x02hello"[..], b"\n\x05\x07hello, hello"] {
        let text = refused(other);
        assert!(text.starts_with("dir/it:"), "{text}");
    }
    let text = refused(b"");
    assert!(text.contains("dir/it:1: found \"an empty file\""), "{text}");
    let text = refused(
        b"# tracer: nop\n#\n# nop latency trace v1.1.5 on 6.18.44\n#     \\   /        ||||||  \\    |    /       \n\
          bash-5913      1d..2. 16363us : sched_stat_runtime: comm=bash pid=5913 runtime=367018 [ns]\n",
    );
    assert!(text.starts_with("dir/it:5:") && text.contains("latency-format"), "{text}");
    let text = refused(
        b"# tracer: nop\n            bash-5913    [001] d..2. 8768643937883: sched_waking: comm=b pid=2 prio=120\n",
    );
    assert!(text.starts_with("dir/it:2:") && text.contains("trace_clock"), "{text}");
    assert!(matches!(open("/nonexistent"), Err(TraceError::Io { .. })));
}

#[test]
fn an_empty_recording_is_one() {
    for text in ["# tracer: nop\n#\n# entries-in-buffer/entries-written: 0/0   #P:2\n", "cpus=4\n"] {
        let (events, report) = read_text(text);
        assert_eq!((events.len(), report.unparsable.count), (0, 0));
    }
}

#[test]
fn written_text_is_read_back_the_same() {
    for name in SAMPLES {
        let (mut events, _) = read_file(name);
        // Whether a switch is due is not passed on.
        events.iter_mut().for_each(|e| e.resched = false);
        let mut out = ftrace::TextWriter::new(Vec::new(), 4);
        for event in &events {
            out.event(event).unwrap();
        }
        let text = String::from_utf8(out.finish().unwrap()).unwrap();
        let (again, report) = read_text(&text);
        assert_eq!((report.unparsable.count, report.cpus_declared), (0, Some(4)), "{text}");
        assert_eq!(again, events, "{name}");
    }
}

/// Every kind, in every context: what has no place in a format is not read back as something else.
#[test]
fn what_explains_scheduling_is_written_and_read_back() {
    let kinds = explaining();
    let mut out = ftrace::TextWriter::new(Vec::new(), 1);
    let mut events = Vec::new();
    for (i, kind) in kinds.into_iter().enumerate() {
        let context = CONTEXTS[i % CONTEXTS.len()];
        let event = Event { ts: i as u64, cpu: 0, pid: 9, comm: "task".into(), context, resched: false, kind };
        out.event(&event).unwrap();
        events.push(event);
    }
    let (again, report) = read_text(&String::from_utf8(out.finish().unwrap()).unwrap());
    assert_eq!(report.unparsable.count, 0, "{report}");
    assert_eq!(again, events);
}

const CONTEXTS: [Context; 5] = [Context::Unknown, Context::Task, Context::Softirq, Context::Hardirq, Context::Nmi];

fn explaining() -> Vec<Kind> {
    let mut kinds = vec![
        Kind::ContentionBegin { lock: 0xffff_ffff_8123_4567, flags: 0 },
        Kind::ContentionBegin { lock: 1, flags: contention::SPIN | contention::WRITE | contention::MUTEX },
        Kind::ContentionBegin { lock: 1, flags: contention::PERCPU | 0x40 },
        Kind::ContentionEnd { lock: u64::MAX, ret: -110 },
        Kind::ContentionEnd { lock: 0, ret: 0 },
        Kind::Futex { uaddr: 0x55c6_4968_dd88, op: 129, val: 1 },
        Kind::KvmEntry { vcpu: 3 },
        Kind::KvmExit { vcpu: 3, reason: 0x8000_0001 },
        Kind::KvmExit { vcpu: u32::MAX, reason: 12 },
        Kind::KvmExit { vcpu: 0, reason: u32::MAX },
    ];
    for entry in [true, false] {
        kinds.extend([0, 1, 36].map(|irq| Kind::Irq { irq, entry }));
        kinds.extend([1, 9, 77].map(|vec| Kind::Softirq { vec, entry }));
        kinds.extend([true, false].map(|hrtimer| Kind::Timer { hrtimer, entry }));
        kinds.extend([-1, 0, 1 << 40].map(|nr| Kind::Syscall { nr, entry }));
    }
    kinds
}

#[test]
fn written_text_survives_line_ends_in_names_and_extreme_numbers() {
    use contend_trace::{At, Task};
    let mut out = ftrace::TextWriter::new(Vec::new(), 1);
    let at = At { ts: u64::MAX, cpu: 65535, pid: u32::MAX, comm: "a\nb", context: Context::Hardirq };
    let task = Task { pid: i32::MAX as u32, comm: "c\r\0", prio: i32::MIN };
    out.waking(at, task, 4095).unwrap();
    let text = String::from_utf8(out.finish().unwrap()).unwrap();
    assert!(text.contains("a?b--1      [65535] d.h2. 18446744073.709551615: sched_waking: comm=c??"), "{text}");
    let line = text.lines().last().unwrap().replace("--1 ", "-1 ");
    let (events, _) = read_text(&line);
    assert_eq!(events[0].ts, u64::MAX);
    assert!(matches!(&events[0].kind, Kind::Waking { task, .. } if task.prio == i32::MIN));
}

/// xorshift64*: mutations are the same in every run.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

/// Random damage of real samples: bytes flipped, cut, doubled, moved, digits and brackets put in. Nothing may panic,
/// every line is accounted for, and what is read can be written.
#[test]
fn mutated_samples_never_panic() {
    const PIECES: [&[u8]; 14] = [
        b"[",
        b"]",
        b" ==> ",
        b"-",
        b":",
        b"99999999999999999999999",
        b"\n",
        b" pid=",
        b"\0",
        b"\xff",
        b" [000] ",
        b"=",
        b"(",
        b".",
    ];
    let mut rng = Rng(0x5eed);
    for name in SAMPLES {
        let original = fs::read(data(name)).unwrap();
        for round in 0..300 {
            let mut text = original.clone();
            for _ in 0..1 + rng.below(60) {
                let at = rng.below(text.len());
                match rng.below(5) {
                    0 => text[at] = rng.below(256) as u8,
                    1 => drop(text.drain(at..(at + rng.below(40)).min(text.len()))),
                    2 => drop(text.splice(at..at, PIECES[rng.below(PIECES.len())].iter().copied())),
                    3 => {
                        let copy = text[at..(at + rng.below(200)).min(text.len())].to_vec();
                        let to = rng.below(text.len());
                        drop(text.splice(to..to, copy));
                    }
                    _ => text[at] ^= 1 << rng.below(8),
                }
            }
            if round % 10 == 0 {
                text.truncate(rng.below(text.len()));
            }
            let lines =
                memchr::memchr_iter(b'\n', &text).count() as u64 + u64::from(text.last().is_some_and(|b| *b != b'\n'));
            let Ok(mut reader) = Reader::from_read("mutated", std::io::Cursor::new(text)) else { continue };
            let mut perfetto = perfetto::Writer::new(std::io::sink()).unwrap();
            let mut ftrace = ftrace::TextWriter::new(std::io::sink(), 4);
            let mut events = 0;
            for event in (&mut reader).flatten() {
                events += 1;
                perfetto.event(&event).unwrap();
                ftrace.event(&event).unwrap();
            }
            perfetto.finish().unwrap();
            ftrace.finish().unwrap();
            let report = reader.report();
            assert_eq!((report.lines, report.events), (lines, events), "{name} round {round}");
            assert!(events + report.unparsable.count + report.unknown.values().sum::<u64>() <= lines);
        }
    }
}
