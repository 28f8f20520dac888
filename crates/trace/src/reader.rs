//! Opens a recording, finds out what it is, streams its events.
//!
//! Memory is bounded whatever the input: one line buffer, and tables of names with a limit. A line that cannot be
//! read is counted; only a file in which no line can be read is an error.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use rustc_hash::FxHashMap;

use crate::error::TraceError;
use crate::event::{Event, Kind};
use crate::intern::Interner;
use crate::lines::{Line, Lines};
use crate::report::{Lost, OutOfOrder, ReadReport, Unparsable};
use crate::text::{Header, Style, header, payload};

/// Different names of unknown events that are counted apart.
const UNKNOWN_MAX: usize = 4096;

/// Bytes of a damaged line that are shown.
const SHOWN_MAX: usize = 120;

/// What a recording is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text of tracefs (`trace`, `trace_pipe`) or of `trace-cmd report`.
    Ftrace,
    /// Text of `perf script`.
    PerfScript,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Ftrace => "ftrace text",
            Format::PerfScript => "perf script text",
        })
    }
}

/// Opens a recording; its format is told by its content.
///
/// # Errors
/// The file cannot be read, is a recorder's binary file (the error names the command that converts it), or has
/// nothing that looks like a trace in its first 256 KiB.
pub fn open(path: impl AsRef<Path>) -> Result<Reader, TraceError> {
    let path = path.as_ref();
    match File::open(path) {
        Ok(file) => Reader::from_read(path, file),
        Err(source) => Err(TraceError::Io { path: path.into(), source }),
    }
}

/// The events of a recording, in the order of the file.
pub struct Reader {
    path: PathBuf,
    format: Format,
    lines: Lines<Box<dyn Read + Send>>,
    names: Interner,
    state: State,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("path", &self.path).field("format", &self.format).finish_non_exhaustive()
    }
}

/// What a reader has counted.
#[derive(Default)]
struct State {
    done: bool,
    line: u64,
    events: u64,
    unknown: FxHashMap<Box<[u8]>, u64>,
    unparsable: Unparsable,
    lost: Lost,
    out_of_order: OutOfOrder,
    cpus: Vec<Option<Running>>,
    unchained: u64,
    cpus_declared: Option<u32>,
    first_ts: Option<u64>,
    last_ts: Option<u64>,
}

/// Who runs on a CPU that has recorded something.
#[derive(Clone, Copy)]
enum Running {
    Unknown,
    Task(u32),
}

impl Reader {
    /// Reads from a stream; `name` stands for it in errors.
    ///
    /// # Errors
    /// As [`open`].
    pub fn from_read(name: impl AsRef<Path>, source: impl Read + Send + 'static) -> Result<Self, TraceError> {
        let path = name.as_ref().to_path_buf();
        let failed = |source| TraceError::Io { path: path.clone(), source };
        let mut source: Box<dyn Read + Send> = Box::new(source);
        let mut magic = Vec::new();
        (&mut source).take(2).read_to_end(&mut magic).map_err(failed)?;
        let gzip = magic == [0x1f, 0x8b];
        source = Box::new(io::Cursor::new(magic).chain(source));
        if gzip {
            source = Box::new(MultiGzDecoder::new(BufReader::with_capacity(64 << 10, source)));
        }
        let mut lines = Lines::new(source);
        let format = detect(lines.peek().map_err(failed)?, &path)?;
        Ok(Self { path, format, lines, names: Interner::default(), state: State::default() })
    }

    /// What the file is.
    pub fn format(&self) -> Format {
        self.format
    }

    /// What was met so far; complete after the last event.
    pub fn report(&self) -> ReadReport {
        let s = &self.state;
        ReadReport {
            format: self.format,
            lines: s.line,
            events: s.events,
            unknown: s.unknown.iter().map(|(n, c)| (String::from_utf8_lossy(n).into_owned(), *c)).collect(),
            unparsable: s.unparsable.clone(),
            lost: s.lost,
            out_of_order: s.out_of_order,
            unchained: s.unchained,
            cpus: s.cpus.iter().zip(0..).filter_map(|(seen, cpu)| seen.map(|_| cpu)).collect(),
            cpus_declared: s.cpus_declared,
            first_ts: s.first_ts,
            last_ts: s.last_ts,
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state.done {
            return None;
        }
        let style = self.format.style();
        loop {
            let line = match self.lines.next() {
                Ok(Some(line)) => line,
                Ok(None) => {
                    self.state.done = true;
                    return self.state.nothing_parsed(&self.path).map(Err);
                }
                Err(source) => {
                    self.state.done = true;
                    return Some(Err(TraceError::Io { path: self.path.clone(), source }));
                }
            };
            self.state.line += 1;
            let line = match line {
                Line::Whole(line) => line,
                Line::TooLong(line) => {
                    self.state.damaged(line);
                    continue;
                }
            };
            if let Some(event) = self.state.line(line, style, &mut self.names) {
                return Some(Ok(event));
            }
        }
    }
}

impl State {
    fn line(&mut self, line: &[u8], style: Style, names: &mut Interner) -> Option<Event> {
        let Some(header) = header(line, style) else {
            if !self.note(line) {
                self.damaged(line);
            }
            return None;
        };
        let Some(kind) = payload(header.event, header.fields, names) else {
            self.other(&header);
            return None;
        };
        let Some(kind) = kind else {
            self.damaged(line);
            return None;
        };
        self.events += 1;
        self.order(header.ts);
        self.chain(header.cpu, &kind);
        let comm = match header.comm {
            _ if header.pid == 0 => names.idle(header.cpu),
            // perf names a task that it does not know by its tid.
            [b':', digits @ ..] if !digits.is_empty() && digits.iter().all(|b| b.is_ascii_digit() || *b == b'-') => {
                names.get(b"<...>")
            }
            comm => names.get(comm),
        };
        Some(Event { ts: header.ts, cpu: header.cpu, pid: header.pid, comm, context: header.context, kind })
    }

    fn chain(&mut self, cpu: u32, kind: &Kind) {
        let cpu = cpu as usize;
        if self.cpus.len() <= cpu {
            self.cpus.resize(cpu + 1, None);
        }
        let running = self.cpus[cpu].get_or_insert(Running::Unknown);
        if let Kind::Switch { prev, next, .. } = kind {
            if let Running::Task(pid) = running
                && *pid != prev.pid
            {
                self.unchained += 1;
            }
            *running = Running::Task(next.pid);
        }
    }

    /// Events are missing here.
    fn gap(&mut self, events: u64) {
        self.lost.gaps += 1;
        self.lost.events += events;
        self.cpus.iter_mut().flatten().for_each(|running| *running = Running::Unknown);
    }

    fn order(&mut self, ts: u64) {
        self.first_ts = Some(self.first_ts.map_or(ts, |first| first.min(ts)));
        match self.last_ts {
            Some(last) if ts < last => {
                self.out_of_order.count += 1;
                self.out_of_order.worst_ns = self.out_of_order.worst_ns.max(last - ts);
            }
            _ => self.last_ts = Some(ts),
        }
    }

    /// An event that is none of ours.
    fn other(&mut self, header: &Header<'_>) {
        if header.event == b"PERF_RECORD_LOST" || header.event == b"PERF_RECORD_LOST_SAMPLES" {
            self.gap(last_number(header.fields).unwrap_or(0));
        } else if let Some(count) = self.unknown.get_mut(header.event) {
            *count += 1;
        } else {
            let name: &[u8] = if self.unknown.len() < UNKNOWN_MAX { header.event } else { b"(other)" };
            *self.unknown.entry(name.into()).or_default() += 1;
        }
    }

    /// Takes a line that is rightly no event.
    fn note(&mut self, line: &[u8]) -> bool {
        let text = line.trim_ascii();
        if let Some(comment) = text.strip_prefix(b"#") {
            if let Some(at) = memchr::memmem::find(comment, b"#P:") {
                self.cpus_declared = first_number(&comment[at + 3..]).and_then(|n| n.try_into().ok());
            }
            if let Some(rest) = comment.trim_ascii_start().strip_prefix(b"entries-in-buffer/entries-written:")
                && let Some(slash) = memchr::memchr(b'/', rest)
                && let (Some(kept), Some(written)) = (first_number(rest), first_number(&rest[slash + 1..]))
            {
                self.lost.before_start += written.saturating_sub(kept);
            }
            return true;
        }
        if let Some(rest) = text.strip_prefix(b"cpus=") {
            self.cpus_declared = first_number(rest).and_then(|n| n.try_into().ok());
            return self.cpus_declared.is_some();
        }
        // "CPU:0 [LOST 545 EVENTS]" (kernel), "CPU:0 [545 EVENTS DROPPED]" (trace-cmd), either without a number.
        if let Some(rest) = text.strip_prefix(b"CPU:")
            && let Some(open) = memchr::memchr(b'[', rest)
            && let Some(mark) = rest[open + 1..].strip_suffix(b"]")
            && (mark.starts_with(b"LOST ") || mark.ends_with(b" DROPPED"))
        {
            self.gap(mark.split(|b| *b == b' ').find_map(first_number).unwrap_or(0));
            return true;
        }
        is_silent(line)
    }

    fn damaged(&mut self, line: &[u8]) {
        self.unparsable.count += 1;
        if self.unparsable.first.is_none() {
            self.unparsable.first = Some((self.line, shown(line)));
        }
    }

    /// The error of a file whose every line is damaged.
    fn nothing_parsed(&mut self, path: &Path) -> Option<TraceError> {
        if self.events > 0 || !self.unknown.is_empty() || self.lost.gaps > 0 {
            return None;
        }
        let (line, found) = self.unparsable.first.clone()?;
        Some(TraceError::NotATrace { path: path.into(), line, found, expected: EXPECTED })
    }
}

impl Format {
    fn style(self) -> Style {
        match self {
            Format::Ftrace => Style::Ftrace,
            Format::PerfScript => Style::Perf,
        }
    }
}

/// Lines that say nothing about events: blanks, call chains (ftrace's ` => f`, perf's tab, address, symbol),
/// trace-cmd's `CPU 3 is empty` and `version = 6`.
fn is_silent(line: &[u8]) -> bool {
    let text = line.trim_ascii();
    let mut words = text.split(|b| *b == b' ');
    text.is_empty()
        || text.starts_with(b"=> ")
        || (line[0] == b'\t' && words.next().is_some_and(|word| word.iter().all(u8::is_ascii_hexdigit)))
        || (text.starts_with(b"CPU ") && text.ends_with(b" is empty"))
        || text.starts_with(b"version = ")
}

fn first_number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).take(18).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

fn last_number(text: &[u8]) -> Option<u64> {
    first_number(text.trim_ascii_end().rsplit(|b| *b == b' ').next()?)
}

fn shown(line: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(&line[..line.len().min(SHOWN_MAX)]).into_owned();
    if line.len() > SHOWN_MAX {
        text.push_str("...");
    }
    text
}

const EXPECTED: &str = "a line of a tracefs `trace` file or of `trace-cmd report` \
    (`bash-7 [001] d..2. 5.000100: sched_waking: comm=...`), or of `perf script` \
    (`bash 7 [001] 5.000100: sched:sched_waking: comm=...`)";

const EXPECTED_LINUX: &str = "text that records Linux's scheduler; `contend xen trace` reads traces of Xen";

const EXPECTED_NORMAL: &str = "ftrace's default layout: turn the latency format off \
    (`echo 0 > options/latency-format`, `trace-cmd report` without -l)";

const EXPECTED_CLOCK: &str = "a time in seconds: record with a clock that counts ns \
    (`echo mono > trace_clock`, not `counter`, `uptime` or `x86-tsc`)";

fn detect(head: &[u8], path: &Path) -> Result<Format, TraceError> {
    let file = path.display();
    let binary = |found, command| Err(TraceError::Binary { path: path.into(), found, command });
    if head.starts_with(b"\x17\x08\x44tracing") {
        return binary("a trace-cmd recording (trace.dat)", format!("trace-cmd report -t -i {file} > {file}.txt"));
    }
    if head.starts_with(b"PERFILE2") || head.starts_with(b"2ELIFREP") {
        return binary("a perf recording (perf.data)", format!("perf script --ns -i {file} > {file}.txt"));
    }
    if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return binary("a zstd-compressed file", format!("zstd -d {file}"));
    }
    if head.starts_with(b"\xfd7zXZ\0") {
        return binary("an xz-compressed file", format!("xz -d {file}"));
    }
    if head.first() == Some(&0x0a) && head[1..].iter().take(64).any(|b| *b < 9) {
        let command = "Perfetto traces are written, not read: give the ftrace text that the trace was made of";
        return binary("what may be a Perfetto trace", command.into());
    }
    let bad = |line: usize, found: String, expected| {
        Err(TraceError::NotATrace { path: path.into(), line: line as u64, found, expected })
    };
    if head.is_empty() {
        return bad(1, "an empty file".into(), EXPECTED);
    }
    if crate::xentrace::is_xentrace(head) {
        return bad(1, "a binary trace of Xen (xentrace)".into(), EXPECTED_LINUX);
    }

    let mut ftrace = false;
    let mut latency = false;
    let mut first = None;
    let mut either = None;
    for (i, line) in head.split(|b| *b == b'\n').enumerate() {
        match (header(line, Style::Ftrace), header(line, Style::Perf)) {
            (Some(_), None) => return Ok(Format::Ftrace),
            (None, Some(_)) => return Ok(Format::PerfScript),
            // perf's tid -1, or a name that ends in a blank before ftrace's dash: another line tells, or the name of
            // the event, which perf alone gives with its system.
            (Some(_), Some(h)) => {
                either = either.or(Some(if has_system(line, &h) { Format::PerfScript } else { Format::Ftrace }))
            }
            (None, None) => {}
        }
        ftrace |= line.starts_with(b"# tracer:") || line.starts_with(b"cpus=");
        latency |= line.starts_with(b"#") && memchr::memmem::find(line, b" latency trace v").is_some();
        if first.is_none() && !line.starts_with(b"#") && !line.starts_with(b"cpus=") && !is_silent(line) {
            first = Some((i + 1, line));
        }
    }
    if let Some(format) = either {
        return Ok(format);
    }
    match first {
        // An empty recording.
        None if ftrace => Ok(Format::Ftrace),
        None => bad(1, shown(head.split(|b| *b == b'\n').next().unwrap_or(head)), EXPECTED),
        Some((i, line)) if latency => bad(i, shown(line), EXPECTED_NORMAL),
        Some((i, line)) if has_ticks(line) => bad(i, shown(line), EXPECTED_CLOCK),
        Some((i, line)) => bad(i, shown(line), EXPECTED),
    }
}

/// Whether the event is given as `sched:sched_switch`.
fn has_system(line: &[u8], header: &Header<'_>) -> bool {
    let at = header.event.as_ptr() as usize - line.as_ptr() as usize;
    at > 0 && line[at - 1] == b':'
}

/// Whether the line would be a trace line if its whole-numbered time were one in seconds.
fn has_ticks(line: &[u8]) -> bool {
    let Some(colon) = memchr::memmem::find(line, b": ") else { return false };
    let digits = line[..colon].iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let fixed = [&line[..colon - digits], b"0.0", &line[colon..]].concat();
    digits > 0 && (header(&fixed, Style::Ftrace).is_some() || header(&fixed, Style::Perf).is_some())
}
