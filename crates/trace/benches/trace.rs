//! Rates of reading and writing, in events per second: `cargo bench -p contend-trace`.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;

use contend_trace::perfetto::{self, Unit};
use contend_trace::xentrace::{self, Clock};
use contend_trace::{At, Context, Event, Reader, SchedSink, Task, TaskState, ftrace};
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};

fn main() {
    divan::main();
}

/// Lines in one input.
const LINES: usize = 200_000;

/// A sample, repeated: its headers too, which are comments.
fn text(name: &str) -> &'static [u8] {
    let sample = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).expect("a sample");
    let lines = memchr::memchr_iter(b'\n', &sample).count();
    sample.repeat(LINES / lines + 1).leak()
}

fn read(text: &'static [u8]) -> Vec<Event> {
    Reader::from_read("bench", Cursor::new(text)).expect("a trace").map(|e| e.expect("an event")).collect()
}

#[divan::bench(args = ["tracefs.txt", "trace-cmd-plugin.txt", "perf-script.txt"], sample_count = 20)]
fn read_text(bencher: Bencher, name: &str) {
    let text = text(name);
    let events = read(text).len();
    bencher.counter(ItemsCount::new(events)).counter(BytesCount::new(text.len())).bench(|| {
        let reader = Reader::from_read("bench", Cursor::new(text)).expect("a trace");
        reader.map(|event| event.expect("an event").ts).fold(0, u64::max)
    });
}

/// Events of a real recording, again and again, each time later.
fn events_repeated() -> Vec<Event> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/trace-cmd-v6.dat.gz");
    let sample: Vec<_> = contend_trace::open(path).expect("a sample").map(|e| e.expect("an event")).collect();
    let span = sample.last().map_or(0, |last| last.ts) + 1;
    let again = |round: u64| sample.iter().map(move |event| Event { ts: event.ts + round * span, ..event.clone() });
    (0..LINES as u64 / sample.len() as u64).flat_map(again).collect()
}

/// A real trace.dat whose pages are given again and again: where and how long they are stands at the end of the header.
fn trace_dat() -> Vec<u8> {
    const PAGE: usize = 4096;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/trace-cmd-v6.dat.gz");
    let mut sample = Vec::new();
    flate2::read::GzDecoder::new(File::open(path).expect("a sample")).read_to_end(&mut sample).expect("a sample");
    let table = memchr::memmem::find(&sample, b"flyrecord\0").expect("a table") + 10;
    let word = |at: usize| u64::from_le_bytes(sample[at..at + 8].try_into().unwrap()) as usize;
    let cpus = (0..4).map(|cpu| (word(table + 16 * cpu), word(table + 16 * cpu + 8))).collect::<Vec<_>>();
    let mut file = sample[..table].to_vec();
    let mut at = (table + 64).next_multiple_of(PAGE);
    let start = at;
    let rounds = 200;
    for (_, size) in &cpus {
        file.extend((at as u64).to_le_bytes());
        file.extend(((size * rounds) as u64).to_le_bytes());
        at += size * rounds;
    }
    file.resize(start, 0);
    cpus.iter().for_each(|(from, size)| file.extend(sample[*from..from + size].repeat(rounds)));
    file
}

/// From a file, as most are read.
fn read_file(bencher: Bencher, name: &str, content: &[u8]) {
    let path = std::env::temp_dir().join(format!("contend-bench-{}-{name}", std::process::id()));
    std::fs::write(&path, content).expect("a temporary file");
    let events = contend_trace::open(&path).expect("a trace").count();
    bencher.counter(ItemsCount::new(events)).counter(BytesCount::new(content.len())).bench(|| {
        let reader = contend_trace::open(&path).expect("a trace");
        reader.map(|event| event.expect("an event").ts).fold(0, u64::max)
    });
    std::fs::remove_file(&path).expect("the temporary file");
}

#[divan::bench(sample_count = 20)]
fn read_trace_dat(bencher: Bencher) {
    read_file(bencher, "trace.dat", &trace_dat());
}

#[divan::bench(sample_count = 20)]
fn read_perfetto(bencher: Bencher) {
    let mut out = perfetto::Writer::new(Vec::new()).unwrap();
    events_repeated().iter().for_each(|event| out.event(event).unwrap());
    read_file(bencher, "trace.pftrace", &out.finish().unwrap());
}

#[divan::bench(sample_count = 20)]
fn write_perfetto(bencher: Bencher) {
    let events = read(text("trace-cmd-kernel.txt"));
    bencher.counter(ItemsCount::new(events.len())).bench(|| {
        let mut out = perfetto::Writer::new(io::sink()).unwrap();
        events.iter().for_each(|event| out.event(event).unwrap());
        out.finish().unwrap()
    });
}

#[divan::bench(sample_count = 20)]
fn write_ftrace_text(bencher: Bencher) {
    let events = read(text("trace-cmd-kernel.txt"));
    bencher.counter(ItemsCount::new(events.len())).bench(|| {
        let mut out = ftrace::TextWriter::new(io::sink(), 4);
        events.iter().for_each(|event| out.event(event).unwrap());
        out.finish().unwrap()
    });
}

/// What a simulation does: switches of many CPUs in turn.
#[divan::bench(args = [8, 128, 1024], sample_count = 20)]
fn write_perfetto_switches(bencher: Bencher, cpus: u32) {
    const EVENTS: u32 = 500_000;
    bencher.counter(ItemsCount::new(EVENTS)).bench(|| {
        let mut out = perfetto::Writer::new(io::sink()).unwrap();
        for i in 0..EVENTS {
            let prev = Task { pid: 1000 + i, comm: "hackbench", prio: 120 };
            let next = Task { pid: 1001 + i, comm: "vm3: vcpu17", prio: 120 };
            let at =
                At { ts: u64::from(i) * 1000, cpu: i % cpus, pid: prev.pid, comm: prev.comm, context: Context::Task };
            out.switch(at, prev, TaskState::SLEEPING, next).unwrap();
        }
        out.finish().unwrap()
    });
}

#[divan::bench(sample_count = 20)]
fn write_perfetto_counters(bencher: Bencher) {
    const EVENTS: u32 = 500_000;
    bencher.counter(ItemsCount::new(EVENTS)).bench(|| {
        let mut out = perfetto::Writer::new(io::sink()).unwrap();
        let track = out.counter_track("nr_running", Unit::Count, None).unwrap();
        (0..EVENTS).for_each(|i| out.counter(track, u64::from(i) * 1000, i64::from(i % 100)).unwrap());
        out.finish().unwrap()
    });
}

/// A binary trace of Xen, repeated: its time stamps go back to the start each time.
fn xen_sample() -> &'static [u8] {
    let file = File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xentrace/credit2-mixed.bin.gz"));
    let mut sample = Vec::new();
    flate2::read::GzDecoder::new(file.expect("a sample")).read_to_end(&mut sample).expect("a sample");
    sample.repeat(40).leak()
}

fn xen_records(file: &'static [u8]) -> xentrace::Reader {
    xentrace::Reader::from_read("bench", Cursor::new(file)).expect("a trace")
}

#[divan::bench(sample_count = 20)]
fn read_xentrace(bencher: Bencher) {
    let file = xen_sample();
    let count = xen_records(file).count();
    bencher
        .counter(ItemsCount::new(count))
        .counter(BytesCount::new(file.len()))
        .bench(|| xen_records(file).map(|r| r.expect("a record").tsc).fold(0, u64::max));
}

#[divan::bench(sample_count = 20)]
fn read_xentrace_in_time_order(bencher: Bencher) {
    let file = xen_sample();
    let count = xen_records(file).count();
    bencher
        .counter(ItemsCount::new(count))
        .bench(|| xen_records(file).in_time_order().map(|r| r.expect("a record").tsc).fold(0, u64::max));
}

#[divan::bench(sample_count = 20)]
fn write_xentrace(bencher: Bencher) {
    let records: Vec<_> = xen_records(xen_sample()).map(|r| r.expect("a record")).collect();
    bencher.counter(ItemsCount::new(records.len())).bench(|| {
        let mut out = xentrace::Writer::new(io::sink(), Clock::default());
        records.iter().for_each(|r| out.event(r.tsc, r.cpu, &r.event).unwrap());
        out.finish().unwrap()
    });
}

#[divan::bench(sample_count = 20)]
fn sum_xentrace_up(bencher: Bencher) {
    let records: Vec<_> = xen_records(xen_sample()).map(|r| r.expect("a record")).collect();
    bencher.counter(ItemsCount::new(records.len())).bench(|| {
        let mut all = xentrace::Summarizer::new(Clock::default());
        records.iter().for_each(|record| all.add(record));
        all.finish().duration_ns
    });
}
