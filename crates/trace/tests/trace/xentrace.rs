//! Binary traces of a real Xen: every record goes through the event model and back without a change; damage is counted.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use contend_platform::CpuId;
use contend_trace::xentrace::record::{CPU_CHANGE, PADDING};
use contend_trace::xentrace::{
    Clock, Reader, Record, RunState, Summarizer, VcpuId, Writer, XenEvent, XenReadReport, XenSink, open,
};
use contend_trace::{Context, Format, Kind, TraceError};
use proptest::prelude::*;

/// Samples that are kept here, with their records and first and last time stamps.
const SAMPLES: [(&str, u64, u64, u64); 2] = [
    ("credit-mixed.bin.gz", 5394, 128_230_585_191, 141_159_887_429),
    ("credit2-mixed.bin.gz", 8218, 98_932_319_531, 111_907_016_653),
];

/// Larger samples, which are too large to be kept here: in the directory that this variable names. With their records, those
/// that fill buffers included.
const LARGE_DIR: &str = "CONTEND_XENTRACE_SAMPLES";
const LARGE: [(&str, u64); 4] = [
    ("credit-weights.bin.xz", 10_136),
    ("credit2-weights.bin.xz", 87_021),
    ("credit-softaffinity.bin.xz", 64_721),
    ("credit2-softaffinity.bin.xz", 116_881),
];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xentrace").join(name)
}

fn unpacked(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(data(name)).unwrap();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut bytes).unwrap();
    bytes
}

fn read(mut reader: Reader) -> (Vec<Record>, XenReadReport) {
    let records = (&mut reader).map(|r| r.expect("a record")).collect();
    assert!(reader.next().is_none());
    (records, reader.report())
}

fn read_bytes(bytes: &[u8]) -> (Vec<Record>, XenReadReport) {
    read(Reader::from_read("bytes", Cursor::new(bytes.to_vec())).expect("a trace"))
}

fn refused(bytes: &[u8]) -> String {
    match Reader::from_read("a.bin", Cursor::new(bytes.to_vec())) {
        Err(e @ TraceError::NotXentrace { .. }) => e.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Records of a file with their pCPU, as bytes, and how many fill ends of buffers: found by their headers alone.
fn frames(mut file: &[u8]) -> (Vec<(u32, &[u8])>, u64) {
    let word = |bytes: &[u8], i: usize| u32::from_le_bytes(*bytes[4 * i..].first_chunk().unwrap());
    let (mut frames, mut padding, mut cpu) = (Vec::new(), 0, None);
    while !file.is_empty() {
        let header = word(file, 0);
        let len = 4 + 4 * (header >> 28 & 7) as usize + 8 * (header >> 31) as usize;
        match header & 0xfff_ffff {
            CPU_CHANGE => cpu = Some(word(file, 1)),
            PADDING => padding += 1,
            _ => frames.push((cpu.unwrap(), &file[..len])),
        }
        file = &file[len..];
    }
    (frames, padding)
}

fn check_round_trip(name: &str, file: &[u8]) {
    let (records, report) = read_bytes(file);
    let (frames, padding) = frames(file);
    assert_eq!(report.padding > 0, padding > 0);
    assert_eq!(records.len(), frames.len(), "{name}: {report}");
    for (i, (record, (cpu, bytes))) in records.iter().zip(&frames).enumerate() {
        let mut back = Vec::new();
        record.push_bytes(&mut back);
        assert_eq!(u32::from(record.cpu.0), *cpu, "{name}: record {i}");
        assert_eq!(back, *bytes, "{name}: record {i}: {record:?}");
        assert!(!matches!(record.event, XenEvent::Other { .. }), "{name}: record {i}: {record:?}");
    }
    assert_eq!(report.records, records.len() as u64);
    assert_eq!(report.bytes, file.len() as u64);
    let clean = XenReadReport {
        bytes: report.bytes,
        windows: report.windows,
        records: report.records,
        padding: report.padding,
        cpus: vec![0, 1, 2, 3],
        first_tsc: report.first_tsc,
        last_tsc: report.last_tsc,
        ..XenReadReport::default()
    };
    assert_eq!(report, clean, "{name}: {report}");
}

/// What a writer makes of the records in the order of time has the same records.
fn check_rewritten(name: &str, file: &[u8]) {
    let order = |bytes: &[u8]| {
        let mut order = Reader::from_read(name, Cursor::new(bytes.to_vec())).unwrap().in_time_order();
        let records: Vec<_> = (&mut order).map(|r| r.unwrap()).collect();
        assert_eq!(order.late(), 0, "{name}");
        assert!(records.is_sorted_by_key(|r| r.tsc), "{name}");
        records
    };
    let records = order(file);
    assert_eq!(records.len(), frames(file).0.len(), "{name}");
    let mut out = Writer::new(Vec::new(), Clock::default());
    records.iter().for_each(|record| out.record(record).unwrap());
    assert_eq!(order(&out.finish().unwrap()), records, "{name}");
}

#[test]
fn every_record_survives() {
    for (name, records, first, last) in SAMPLES {
        let file = unpacked(name);
        check_round_trip(name, &file);
        check_rewritten(name, &file);
        let (_, report) = read(open(data(name)).unwrap());
        assert_eq!((report.records, report.first_tsc, report.last_tsc), (records, Some(first), Some(last)), "{name}");
    }
}

#[test]
fn every_record_of_the_large_samples_survives() {
    let Some(dir) = std::env::var_os(LARGE_DIR) else {
        eprintln!("SKIPPED: {LARGE_DIR} does not name the directory of the large samples");
        return;
    };
    for (name, records) in LARGE {
        let packed = std::fs::read(Path::new(&dir).join(name)).unwrap();
        let mut file = Vec::new();
        std::io::Read::read_to_end(&mut lzma_rust2::XzReader::new(&packed[..], true), &mut file).unwrap();
        let (frames, padding) = frames(&file);
        assert_eq!(frames.len() as u64 + padding, records, "{name}");
        check_round_trip(name, &file);
        check_rewritten(name, &file);
        assert_eq!(read(open(Path::new(&dir).join(name)).unwrap()).1.records, frames.len() as u64, "{name}");
    }
}

/// A window.
fn window(cpu: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = [0x2001_f003, cpu, bytes.len() as u32].iter().flat_map(|w: &u32| w.to_le_bytes()).collect();
    out.extend_from_slice(bytes);
    out
}

/// A record.
fn record(id: u32, tsc: Option<u64>, words: &[u32]) -> Vec<u8> {
    let mut out = (id | (words.len() as u32) << 28 | u32::from(tsc.is_some()) << 31).to_le_bytes().to_vec();
    out.extend(tsc.into_iter().flat_map(u64::to_le_bytes));
    out.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    out
}

fn wake(tsc: u64, vcpu: u32) -> Vec<u8> {
    record(0x2_8004, Some(tsc), &[1, vcpu])
}

fn times(records: &[Record]) -> Vec<u64> {
    records.iter().map(|r| r.tsc).collect()
}

#[test]
fn other_files_are_refused() {
    assert_eq!(
        refused(b""),
        "a.bin: found an empty file; expected a binary trace of xentrace (a word 0x2001f003, a pCPU, a size)"
    );
    assert!(refused(b"# tracer: nop\n#\n").contains("found ftrace text"));
    assert!(refused(b"hello, world\n and so on").contains("found text"));
    assert!(refused(b"PERFILE2\0\0\0\0\0\0\0\0").contains("found a perf recording"));
    assert!(refused(&[3, 0xf0, 1]).contains("found 3 bytes"));
    assert!(refused(&[0; 64]).contains("found 0x00000000"));
    assert!(refused(&window(70_000, &[])).contains("found a window of pCPU 70000, of 4096 at most"));
    for size in [3u32, 0xffff_fffc, 7] {
        let mut file = window(0, &[0; 16]);
        file[8..12].copy_from_slice(&size.to_le_bytes());
        assert!(refused(&file).contains(&format!("found a window of {size} bytes")), "{size}");
    }
    // And text is told from a binary trace.
    let text = contend_trace::open(data("README.md")).unwrap_err();
    assert!(matches!(text, TraceError::NotATrace { .. }));
}

#[test]
fn a_cut_file_gives_what_is_whole() {
    let file = window(2, &[wake(5, 0), wake(6, 1), record(0x2_2006, None, &[3])].concat());
    let (whole, _) = read_bytes(&file);
    assert_eq!(times(&whole), [5, 6, 6]);
    for end in 12..file.len() {
        let (records, report) = read_bytes(&file[..end]);
        assert_eq!(records[..], whole[..records.len()], "{end}");
        assert_eq!(records.len(), [32, 52, 60].iter().filter(|at| **at <= end).count(), "{end}");
        assert_eq!(report.missing, (file.len() - end) as u64, "{end}");
        assert_eq!(report.damage.count, 0, "{end}");
    }
    // Within the record that opens a window.
    let two = [window(0, &wake(1, 0)), window(1, &wake(2, 0))].concat();
    for end in 33..44 {
        let (records, report) = read_bytes(&two[..end]);
        assert_eq!((records.len(), report.missing > 0), (1, true), "{end}");
    }
}

#[test]
fn damage_costs_one_window() {
    let good = || window(1, &wake(9, 1));
    // A record longer than its window.
    let long = window(0, &[wake(1, 0), 0xf002_8004u32.to_le_bytes().to_vec()].concat());
    // A size that is too small, too large, impossible; bytes in between; a pCPU that is none.
    let mut small = window(0, &[wake(1, 0), wake(2, 0)].concat());
    small[8] = 20;
    let mut large = window(0, &[wake(1, 0)].concat());
    large[8] = 60;
    let mut odd = window(0, &wake(1, 0));
    odd[8] = 21;
    let between = [window(0, &wake(1, 0)), vec![0xaa; 7]].concat();
    let nowhere = window(4096, &wake(1, 0));
    let begins = || window(3, &wake(1, 7));
    for (name, bad, kept) in [
        ("long", long, 1),
        ("small", small, 1),
        ("large", large, 1),
        ("odd", odd, 0),
        ("between", between, 1),
        ("nowhere", nowhere, 0),
    ] {
        let (records, report) = read_bytes(&[begins(), bad, good()].concat());
        assert_eq!(report.damage.count, 1, "{name}: {report}");
        let (offset, what) = report.damage.first.as_ref().unwrap();
        assert!(*offset >= 32 && !what.is_empty(), "{name}: {report}");
        let seen: Vec<_> = records.iter().map(|r| r.cpu.0).collect();
        let expected = [&[3][..], &[0].repeat(kept), &[1]].concat();
        assert_eq!(seen, expected, "{name}: {report}");
        assert_eq!(report.missing, 0, "{name}: {report}");
    }
}

#[test]
fn oddities_are_counted() {
    let file = window(
        0,
        &[
            record(0x2_2006, None, &[1]),
            wake(10, 0),
            wake(4, 0),
            record(0x1_f002, None, &[1, 2, 3]),
            record(0x1_f001, Some(11), &[17, 0x1_0002, 12, 0]),
            record(0x2_8004, Some(20), &[1]),
            record(0x2_8004, Some(20), &[0x1_0000, 0]),
            record(0x8_1001, Some(21), &[]),
        ]
        .concat(),
    );
    let (records, report) = read_bytes(&file);
    assert_eq!(times(&records), [0, 10, 4, 11, 20, 20, 21]);
    assert_eq!(records[3].lost(), Some(17));
    assert_eq!((report.lost.gaps, report.lost.events), (1, 17));
    assert_eq!((report.untimed, report.padding), (1, 16));
    assert_eq!((report.backwards.count, report.backwards.worst_ticks), (1, 6));
    assert_eq!(report.odd, [(0x2_8004, 2)].into());
    assert_eq!(report.unknown, [(0x8_1001, 1)].into());
    let text = report.to_string();
    for part in
        ["other events: 0x81001 1", "another layout: 0x28004 2", "lost: 17 records in 1 gaps", "worst by 6 ticks"]
    {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn many_unknown_numbers_take_little_room() {
    let records: Vec<u8> = (0..6000).flat_map(|i| record(0x40_0000 + i, Some(1), &[])).collect();
    let (_, report) = read_bytes(&window(0, &records));
    assert_eq!(report.unknown.values().sum::<u64>(), 6000);
    assert_eq!((report.unknown.len(), report.unknown[&0]), (4097, 1904));
}

#[test]
fn order_of_time_goes_over_rounds() {
    let rounds = [
        window(0, &[wake(1, 0), wake(6, 1)].concat()),
        window(1, &[wake(2, 2), wake(8, 3)].concat()),
        window(0, &[wake(7, 4), wake(20, 5)].concat()),
        window(2, &wake(3, 6)),
        window(0, &wake(21, 7)),
    ];
    let mut order = Reader::from_read("rounds", Cursor::new(rounds.concat())).unwrap().in_time_order();
    let seen: Vec<_> = (&mut order).map(|r| r.unwrap().tsc).collect();
    assert_eq!(seen, [1, 2, 3, 6, 7, 8, 20, 21]);
    assert_eq!(order.late(), 0);
}

#[test]
fn events_of_one_ns_keep_their_order() {
    let vcpu = |n| VcpuId::new(1, n);
    let mut out = Writer::new(Vec::new(), Clock::new(2_600_000_000).unwrap());
    for n in 0..200u16 {
        out.event(1_000, CpuId(n % 7), &XenEvent::Wake { vcpu: vcpu(n) }).unwrap();
    }
    // An event that is earlier than what another pCPU has reported keeps its time.
    out.event(2_000, CpuId(0), &XenEvent::Wake { vcpu: vcpu(200) }).unwrap();
    out.event(1_500, CpuId(6), &XenEvent::Wake { vcpu: vcpu(201) }).unwrap();
    out.event(2_000, CpuId(1), &XenEvent::Wake { vcpu: vcpu(202) }).unwrap();
    let file = out.finish().unwrap();
    let records: Vec<_> =
        Reader::from_read("bytes", Cursor::new(file)).unwrap().in_time_order().map(|r| r.unwrap()).collect();
    let order: Vec<u16> = (0..200).chain([201, 200, 202]).collect();
    let seen: Vec<u16> = records
        .iter()
        .map(|r| if let XenEvent::Wake { vcpu } = r.event { vcpu.vcpu } else { unreachable!() })
        .collect();
    assert_eq!(seen, order);
    assert_eq!(times(&records)[..3], [2_600, 2_601, 2_602]);
    assert_eq!(times(&records)[200..], [3_900, 5_200, 5_201]);
}

#[test]
fn a_writer_is_a_sink_that_reports_its_failure_at_the_end() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut out = Writer::new(Full, Clock::default());
    let sink: &mut dyn XenSink = &mut out;
    for now in 0..10_000 {
        sink.event(now, CpuId(0), &XenEvent::Credit2UpdateLoad);
    }
    assert_eq!(out.finish().map(|_| ()).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
}

/// As tasks, vCPUs run, wake up and are switched to as the summary of the records says, and every switch follows from the one before.
#[test]
fn vcpus_are_tasks() {
    for (name, records, first, last) in SAMPLES {
        let clock = Clock::new(2_599_998_000).expect("a frequency");
        let mut summary = Summarizer::new(clock);
        let mut order = open(data(name)).expect("a trace").in_time_order();
        assert_eq!((&mut order).map(|r| summary.add(&r.expect("a record"))).count() as u64, records);
        let summary = summary.finish();

        let mut reader = contend_trace::open(data(name)).expect("a trace");
        assert_eq!(reader.format(), Format::Xentrace);
        reader.set_xen_clock(clock);
        // By name: time it ran, switches to it, wake-ups.
        let mut ran: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
        let mut began: BTreeMap<u32, u64> = BTreeMap::new();
        for event in &mut reader {
            let event = event.expect("an event");
            match event.kind {
                Kind::Switch { prev, next, .. } => {
                    assert!((prev.pid == 0) != (next.pid == 0), "{name}: to or from the idle task");
                    if next.pid != 0 {
                        ran.entry(next.comm.to_string()).or_default().1 += 1;
                        began.insert(next.pid, event.ts);
                    } else if let Some(since) = began.remove(&prev.pid) {
                        ran.entry(prev.comm.to_string()).or_default().0 += event.ts - since;
                    }
                }
                Kind::Waking { task, .. } => {
                    assert_eq!(event.context, Context::Hardirq);
                    ran.entry(task.comm.to_string()).or_default().2 += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        let report = reader.report();
        assert_eq!((report.unchained, report.truncated, report.unparsable.count), (0, false, 0), "{name}");
        assert_eq!(report.cpus, [0, 1, 2, 3]);
        assert!(report.last_ts.unwrap() <= clock.ns(last - first));
        let vcpus: Vec<_> = summary.vcpus.iter().filter(|v| !v.vcpu.is_idle()).collect();
        assert_eq!(vcpus.len(), ran.len());
        for v in vcpus {
            let (ns, dispatches, wakeups) = ran[&v.vcpu.to_string()];
            assert_eq!((dispatches, wakeups), (v.dispatches, v.wakeups), "{name} {}", v.vcpu);
            // The first run began before the trace, the last may end after it.
            assert!(v.state_ns[0].abs_diff(ns) < clock.ns(last - first) / 50, "{name} {}: {ns}", v.vcpu);
        }
    }
}

#[test]
fn clocks_convert() {
    let clock = Clock::new(2_600_000_000).unwrap();
    assert_eq!((clock.ticks(1_000), clock.ns(2_600)), (2_600, 1_000));
    assert_eq!(clock.ticks(u64::MAX), u64::MAX);
    assert_eq!((Clock::new(0), Clock::new(u64::MAX)), (None, None));
    assert_eq!(Clock::default().ns(u64::MAX), 7_686_143_364_045_646_506);
}

/// Changes to a file.
#[derive(Clone, Debug)]
enum Change {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Drop(prop::sample::Index, usize),
    Put(prop::sample::Index, Vec<u8>),
    Word(prop::sample::Index, u32),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<prop::sample::Index>;
    let words = prop_oneof![
        Just(0x2001_f003u32),
        Just(0xa001_f003),
        Just(0xc001_f001),
        Just(0x7001_f002),
        Just(0xfff2_8004),
        Just(u32::MAX),
        any::<u32>()
    ];
    prop_oneof![
        (at(), 0u8..8).prop_map(|(i, b)| Change::Flip(i, b)),
        at().prop_map(Change::Cut),
        (at(), 1usize..100).prop_map(|(i, n)| Change::Drop(i, n)),
        (at(), prop::collection::vec(any::<u8>(), 1..60)).prop_map(|(i, b)| Change::Put(i, b)),
        (at(), words).prop_map(|(i, w)| Change::Word(i, w)),
    ]
}

fn changed(mut file: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        if file.len() < 8 {
            break;
        }
        match change {
            Change::Flip(i, bit) => {
                let at = i.index(file.len());
                file[at] ^= 1 << bit;
            }
            Change::Cut(i) => file.truncate(i.index(file.len()).max(4)),
            Change::Drop(i, n) => {
                let at = i.index(file.len());
                file.drain(at..(at + n).min(file.len()));
            }
            Change::Put(i, bytes) => {
                let at = i.index(file.len());
                file.splice(at..at, bytes.iter().copied());
            }
            Change::Word(i, word) => {
                let at = i.index(file.len() / 4) * 4;
                file[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
        }
    }
    file
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a file holds, reading ends, accounts for every byte, and what is read can be written and read again.
    #[test]
    fn damaged_samples_are_read(
        sample in 0..SAMPLES.len(),
        bytes in 12usize..60_000,
        changes in prop::collection::vec(change(), 0..8),
    ) {
        let file = unpacked(SAMPLES[sample].0);
        let file = changed(file[..bytes].to_vec(), &changes);
        let Ok(mut reader) = Reader::from_read("changed", Cursor::new(file.clone())) else { return Ok(()) };
        let records: Vec<_> = (&mut reader).map(|r| r.unwrap()).collect();
        let report = reader.report();
        prop_assert_eq!(report.bytes, file.len() as u64);
        prop_assert_eq!(report.records, records.len() as u64);
        let bytes: usize = records.iter().map(|r| { let mut b = Vec::new(); r.push_bytes(&mut b); b.len() }).sum();
        let framed = bytes as u64 + 12 * report.windows + report.padding + report.damage.bytes;
        prop_assert!(framed <= report.bytes, "{} of {}", framed, report.bytes);
        if report.missing == 0 && report.damage.count == 0 {
            prop_assert_eq!(framed, report.bytes);
        }
        let mut out = Writer::new(Vec::new(), Clock::default());
        records.iter().for_each(|r| out.record(r).unwrap());
        let again = Reader::from_read("again", Cursor::new(out.finish().unwrap()));
        if !records.is_empty() {
            prop_assert_eq!(again.unwrap().count(), records.len());
        }
        let mut ordered = Reader::from_read("order", Cursor::new(file)).unwrap().in_time_order();
        prop_assert_eq!(ordered.by_ref().count() + ordered.strays() as usize, records.len());
    }

    /// Garbage of any kind behind a good beginning.
    #[test]
    fn garbage_is_read(garbage in prop::collection::vec(any::<u32>(), 0..2000)) {
        let file: Vec<u8> = window(0, &wake(1, 0)).into_iter().chain(garbage.iter().flat_map(|w| w.to_le_bytes())).collect();
        let (records, report) = read_bytes(&file);
        prop_assert!(!records.is_empty());
        prop_assert_eq!(report.bytes, file.len() as u64);
    }
}

#[test]
fn what_looks_like_windows_everywhere_ends_quickly() {
    let file = [window(0, &wake(1, 0)), 0x2001_f003u32.to_le_bytes().repeat(1 << 20)].concat();
    let (records, report) = read_bytes(&file);
    assert_eq!((records.len(), report.bytes), (1, file.len() as u64));
    let windows = [window(0, &wake(1, 0)), window(1, &[0xff; 4]).repeat(200_000)].concat();
    let (_, report) = read_bytes(&windows);
    assert_eq!(report.bytes, windows.len() as u64);
}

#[test]
fn packed_files_that_are_cut_are_errors() {
    let packed = std::fs::read(data(SAMPLES[0].0)).unwrap();
    let mut reader = Reader::from_read("cut.gz", Cursor::new(packed[..packed.len() / 2].to_vec())).unwrap();
    let last = reader.by_ref().last().unwrap();
    assert!(matches!(last, Err(TraceError::Io { .. })));
    assert!(reader.next().is_none());
    let xz = b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4\x46\x02\0".to_vec();
    let cut = Reader::from_read("cut.xz", Cursor::new(xz.clone())).unwrap_err().to_string();
    assert_eq!(cut, "cut.xz: cannot be read: the xz stream is cut off");
    let bad = [xz, vec![0xff; 100]].concat();
    for said in [
        Reader::from_read("bad.xz", Cursor::new(bad.clone())).unwrap_err().to_string(),
        contend_trace::Reader::from_read("bad.xz", Cursor::new(bad)).unwrap_err().to_string(),
    ] {
        assert!(said.starts_with("bad.xz: cannot be read: damaged xz stream: "), "{said}");
    }
}

const D1V0: VcpuId = VcpuId { dom: 1, vcpu: 0 };

/// A trace of these changes of state: ms, pCPU, vCPU.
fn made(changes: &[(u64, u16, VcpuId, RunState, RunState)]) -> Vec<u8> {
    let mut out = Writer::new(Vec::new(), Clock::default());
    for &(ms, cpu, vcpu, old, new) in changes {
        let event = XenEvent::Runstate { vcpu, old, new };
        out.record(&Record { cpu: CpuId(cpu), tsc: 1 + ms * 2_400_000, timed: true, event, pad: 0 }).unwrap();
    }
    out.finish().unwrap()
}

/// What is said of the tasks in it: ms, and `wakes`, `runs` or `stops`, with the name.
fn as_tasks(file: Vec<u8>) -> (Vec<(u64, String)>, contend_trace::ReadReport) {
    let mut reader = contend_trace::Reader::from_read("made", Cursor::new(file)).unwrap();
    let mut said = Vec::new();
    for event in &mut reader {
        let event = event.unwrap();
        let what = match event.kind {
            Kind::Waking { task, .. } => format!("{} wakes", task.comm),
            Kind::Switch { prev, next, .. } if prev.pid == 0 => format!("{} runs", next.comm),
            Kind::Switch { prev, .. } => format!("{} stops", prev.comm),
            other => panic!("{other:?}"),
        };
        said.push((event.ts / 1_000_000, what));
    }
    (said, reader.report())
}

#[test]
fn a_block_ends_also_where_the_vcpu_may_not_run_yet() {
    use RunState::{Blocked, Offline, Runnable, Running};
    let (said, _) = as_tasks(made(&[
        (0, 0, D1V0, Runnable, Running),
        (10, 0, D1V0, Running, Blocked),
        (20, 0, D1V0, Blocked, Offline),
        (110, 0, D1V0, Offline, Runnable),
        (110, 0, D1V0, Runnable, Running),
    ]));
    let said: Vec<_> = said.iter().map(|(ms, what)| (*ms, what.as_str())).collect();
    assert_eq!(said, [(0, "d1v0 runs"), (10, "d1v0 stops"), (20, "d1v0 wakes"), (110, "d1v0 runs")]);
}

#[test]
fn vcpus_of_all_domains_are_tasks_of_their_own() {
    let far = VcpuId { dom: 32_769, vcpu: 0 };
    let (said, report) = as_tasks(made(&[
        (0, 0, D1V0, RunState::Runnable, RunState::Running),
        (0, 1, far, RunState::Runnable, RunState::Running),
    ]));
    assert_eq!(said.len(), 2);
    assert_eq!(report.unchained, 0);
}

#[test]
fn a_time_stamp_that_cannot_be_is_left_out() {
    use RunState::{Blocked, Runnable, Running};
    let day = 24 * 3600 * 1000;
    let changes = |ms| {
        made(&[
            (0, 0, D1V0, Runnable, Running),
            (ms, 0, D1V0, Running, Blocked),
            (20, 0, D1V0, Blocked, Runnable),
            (21, 0, D1V0, Runnable, Running),
        ])
    };
    let (said, report) = as_tasks(changes(100 * day));
    assert_eq!((said.last().unwrap().0, report.strays, report.last_ts), (21, 1, Some(21_000_000)));
    assert!(report.to_string().contains("hours away from all others: 1"), "{report}");
    // A pause of days is one, if what comes after it does.
    let (said, report) = as_tasks(made(&[
        (0, 0, D1V0, Runnable, Running),
        (2 * day, 0, D1V0, Running, Blocked),
        (2 * day + 5, 0, D1V0, Blocked, Runnable),
    ]));
    assert_eq!((said.last().unwrap().0, report.strays), (2 * day + 5, 0));
}
