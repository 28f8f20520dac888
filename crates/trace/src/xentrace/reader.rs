//! Reads a binary trace as a stream.
//!
//! Memory is bounded whatever the input: one buffer of fixed size. What is no record is counted, and reading goes on at
//! the next window; only a file that does not begin with a window is an error.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use contend_platform::CpuId;
use flate2::read::MultiGzDecoder;

use super::layout::{decode_bytes, is_known};
use super::record::{CPU_CHANGE, CPU_CHANGE_BYTES, CPU_CHANGE_HEADER, LOST, PADDING, RECORD_BYTES_MAX, Record};
use super::report::XenReadReport;
use super::{TimeOrder, XenEvent};
use crate::error::TraceError;
use crate::spool::{Unxz, XZ_MAGIC};

/// Buffer size.
const CAPACITY: usize = 256 << 10;

/// The largest window that is believed. Xen's buffers have at most 65,535 pages of 4 KiB a pCPU (general knowledge of its
/// interface, not checked), and none is read twice in one window.
const WINDOW_MAX: u32 = 256 << 20;

/// Different numbers of unknown events that are counted apart.
const UNKNOWN_MAX: usize = 4096;

/// Opens a binary trace, as `xentrace` writes it or packed with `gzip` or `xz`.
///
/// # Errors
/// The file cannot be read, or does not begin with a window.
pub fn open(path: impl AsRef<Path>) -> Result<Reader, TraceError> {
    let path = path.as_ref();
    match File::open(path) {
        Ok(file) => Reader::from_read(path, file),
        Err(source) => Err(TraceError::Io { path: path.into(), source }),
    }
}

/// Whether a file that begins like this is a binary trace.
pub(crate) fn is_xentrace(head: &[u8]) -> bool {
    head.starts_with(&CPU_CHANGE_HEADER.to_le_bytes())
}

/// The records of a binary trace, in the order of the file: pCPU by pCPU, window by window.
pub struct Reader {
    path: PathBuf,
    input: Input,
    window: Window,
    done: bool,
    /// By pCPU: the latest time stamp; `None`: no window of it was met.
    cpus: Vec<Option<u64>>,
    report: XenReadReport,
}

/// Where the reader is.
struct Window {
    cpu: CpuId,
    /// Bytes of it that are still to be read.
    left: usize,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("path", &self.path).finish_non_exhaustive()
    }
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
        (&mut source).take(6).read_to_end(&mut magic).map_err(failed)?;
        let (gzip, xz) = (magic.starts_with(&[0x1f, 0x8b]), magic == XZ_MAGIC);
        source = Box::new(io::Cursor::new(magic).chain(source));
        if gzip || xz {
            source = match gzip {
                true => Box::new(MultiGzDecoder::new(BufReader::with_capacity(64 << 10, source))),
                false => Box::new(Unxz::new(source)),
            };
        }
        let mut input = Input::new(source);
        let head = input.ahead(CPU_CHANGE_BYTES).map_err(failed)?;
        if let Err(found) = window(head) {
            let found = what_else(head).map_or(found, String::from);
            return Err(TraceError::NotXentrace { path, found });
        }
        let window = Window { cpu: CpuId(0), left: 0 };
        Ok(Self { path, input, window, done: false, cpus: Vec::new(), report: XenReadReport::default() })
    }

    /// What is read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The records in the order of their time stamps, over all pCPUs.
    pub fn in_time_order(self) -> TimeOrder {
        TimeOrder::new(self)
    }

    /// What was met so far; complete after the last record.
    pub fn report(&self) -> XenReadReport {
        let cpus = self.cpus.iter().zip(0..).filter_map(|(seen, cpu)| seen.map(|_| cpu)).collect();
        XenReadReport { bytes: self.input.offset, cpus, ..self.report.clone() }
    }

    /// Windows begun so far.
    pub(super) fn windows(&self) -> u64 {
        self.report.windows
    }

    /// The next record; `None`: the end.
    fn read(&mut self) -> io::Result<Option<Record>> {
        loop {
            let head = self.input.ahead(RECORD_BYTES_MAX)?;
            if head.is_empty() {
                self.report.missing = self.window.left as u64;
                return Ok(None);
            }
            let Some(header) = head.first_chunk().map(|word| u32::from_le_bytes(*word)) else {
                return Ok(self.cut_off());
            };
            if self.window.left == 0 || header == CPU_CHANGE_HEADER {
                if head.len() < CPU_CHANGE_BYTES {
                    return Ok(self.cut_off());
                }
                match window(head) {
                    Ok((cpu, bytes)) => self.enter(cpu, bytes),
                    Err(found) => self.pass_over(found)?,
                }
                continue;
            }
            let (id, words, timed) = (header & 0xfff_ffff, (header >> 28 & 7) as usize, header >> 31 != 0);
            let start = if timed { 12 } else { 4 };
            let len = start + 4 * words;
            if len > self.window.left || id == CPU_CHANGE {
                let left = self.window.left;
                self.pass_over(format!("a record of {len} bytes, {header:#010x}, with {left} left in its window"))?;
                continue;
            }
            let Some(bytes) = head.get(..len) else { return Ok(self.cut_off()) };
            if id == PADDING {
                self.input.consume(len);
                self.window.left -= len;
                self.report.padding += len as u64;
                continue;
            }
            let decoded = decode_bytes(id, &bytes[start..]);
            let tsc = timed.then(|| u64::from_le_bytes(*bytes[4..].first_chunk().expect("bytes of a time stamp")));
            self.input.consume(len);
            self.window.left -= len;
            let record =
                Record { cpu: self.window.cpu, tsc: self.time(tsc), timed, event: decoded.event, pad: decoded.pad };
            self.count(&record);
            return Ok(Some(record));
        }
    }

    /// A window begins.
    fn enter(&mut self, cpu: CpuId, bytes: usize) {
        if self.window.left > 0 {
            self.damaged(format!("a window begins with {} bytes left in the one before", self.window.left));
        }
        self.input.consume(CPU_CHANGE_BYTES);
        self.window = Window { cpu, left: bytes };
        self.report.windows += 1;
        let cpu = usize::from(cpu.0);
        if self.cpus.len() <= cpu {
            self.cpus.resize(cpu + 1, None);
        }
        self.cpus[cpu].get_or_insert(0);
    }

    /// The time of a record on the window's pCPU.
    fn time(&mut self, tsc: Option<u64>) -> u64 {
        let last = self.cpus[usize::from(self.window.cpu.0)].as_mut().expect("the pCPU has a window");
        let report = &mut self.report;
        let Some(tsc) = tsc else {
            report.untimed += 1;
            return *last;
        };
        if tsc < *last {
            report.backwards.count += 1;
            report.backwards.worst_ticks = report.backwards.worst_ticks.max(*last - tsc);
        }
        *last = tsc;
        report.first_tsc = Some(report.first_tsc.map_or(tsc, |first| first.min(tsc)));
        report.last_tsc = Some(report.last_tsc.map_or(tsc, |last| last.max(tsc)));
        tsc
    }

    fn count(&mut self, record: &Record) {
        self.report.records += 1;
        let XenEvent::Other { id, .. } = record.event else { return };
        if id == LOST {
            self.report.lost.gaps += 1;
            self.report.lost.events += u64::from(record.lost().unwrap_or(0));
            return;
        }
        let known = is_known(id);
        let counts = if known { &mut self.report.odd } else { &mut self.report.unknown };
        let id = if counts.len() < UNKNOWN_MAX || counts.contains_key(&id) { id } else { 0 };
        *counts.entry(id).or_default() += 1;
    }

    fn damaged(&mut self, what: String) {
        let damage = &mut self.report.damage;
        damage.count += 1;
        damage.first.get_or_insert((self.input.offset, what));
    }

    /// What stands here is no record: goes on at the next thing that may open a window.
    fn pass_over(&mut self, what: String) -> io::Result<()> {
        self.damaged(what);
        self.window.left = 0;
        let start = self.input.offset;
        self.input.consume(1);
        loop {
            let ahead = self.input.ahead(CPU_CHANGE_BYTES)?;
            let all = ahead.len();
            let (skip, found) = match memchr::memmem::find(ahead, &CPU_CHANGE_HEADER.to_le_bytes()) {
                _ if all < CPU_CHANGE_BYTES => (all, true),
                // Cut by the end of the buffer: look again from there.
                Some(at) if at > 0 && all - at < CPU_CHANGE_BYTES => (at, false),
                Some(at) if window(&ahead[at..]).is_ok() => (at, true),
                Some(at) => (at + 1, false),
                // The last three bytes may be the beginning of one.
                None => (all - 3, false),
            };
            self.input.consume(skip);
            if found {
                self.report.damage.bytes += self.input.offset - start;
                return Ok(());
            }
        }
    }

    /// The file ends within a record.
    fn cut_off(&mut self) -> Option<Record> {
        let rest = self.input.ahead_now();
        self.report.missing = (self.window.left.max(rest + 1) - rest) as u64;
        self.input.consume(rest);
        None
    }
}

impl Iterator for Reader {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        match self.read() {
            Ok(Some(record)) => Some(Ok(record)),
            Ok(None) => {
                self.done = true;
                None
            }
            Err(source) => {
                self.done = true;
                Some(Err(TraceError::Io { path: self.path.clone(), source }))
            }
        }
    }
}

/// Reads a record that opens a window: its pCPU and size. Otherwise: what there is.
fn window(head: &[u8]) -> Result<(CpuId, usize), String> {
    let word = |at: usize| head.get(4 * at..).and_then(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b));
    let (Some(header), Some(cpu), Some(bytes)) = (word(0), word(1), word(2)) else {
        return Err(format!("{} bytes", head.len()));
    };
    if header != CPU_CHANGE_HEADER {
        return Err(format!("{header:#010x}"));
    }
    if cpu as usize >= CpuId::MAX_CPUS {
        return Err(format!("a window of pCPU {cpu}, of {} at most", CpuId::MAX_CPUS));
    }
    if !bytes.is_multiple_of(4) || bytes > WINDOW_MAX {
        return Err(format!("a window of {bytes} bytes, which must be a multiple of 4 up to {WINDOW_MAX}"));
    }
    Ok((CpuId(cpu as u16), bytes as usize))
}

/// What a file that is no binary trace is, where its first bytes say so.
fn what_else(head: &[u8]) -> Option<&'static str> {
    let magic: [(&[u8], &str); 6] = [
        (b"\x17\x08\x44tracing", "a trace-cmd recording (trace.dat)"),
        (b"PERFILE2", "a perf recording (perf.data)"),
        (b"\x7fELF", "a program"),
        (b"\x28\xb5\x2f\xfd", "a zstd-compressed file"),
        (b"PK\x03\x04", "a zip file"),
        (b"# tracer:", "ftrace text"),
    ];
    if head.is_empty() {
        return Some("an empty file");
    }
    let text = || head.iter().take(512).all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace());
    magic.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, what)| *what).or(text().then_some("text"))
}

/// Bytes of a stream in a buffer of fixed size.
struct Input {
    source: Box<dyn Read + Send>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    at_eof: bool,
    /// Of `start` in the stream.
    offset: u64,
}

impl Input {
    fn new(source: Box<dyn Read + Send>) -> Self {
        Self { source, buffer: vec![0; CAPACITY].into(), start: 0, end: 0, at_eof: false, offset: 0 }
    }

    /// At least `bytes` of what comes next; less only before the end.
    fn ahead(&mut self, bytes: usize) -> io::Result<&[u8]> {
        while self.end - self.start < bytes && !self.at_eof {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.at_eof = true,
                Ok(n) => self.end += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Bytes that are there without reading.
    fn ahead_now(&self) -> usize {
        self.end - self.start
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
        assert!(self.start <= self.end, "consumed what was not read");
    }
}
