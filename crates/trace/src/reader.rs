//! Opens a recording, finds out what it is, streams its events.
//!
//! A format is a source of events behind one [`Reader`], which counts. Memory is bounded whatever the input: buffers of
//! fixed size, a page a CPU or a window of events, and tables of names with a limit. What cannot be read is counted;
//! only a file in which nothing can be read is an error.

use std::fmt;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::detect::{EXPECTED, detect};
use crate::error::TraceError;
use crate::event::Event;
use crate::intern::Interner;
use crate::lines::CAPACITY;
use crate::report::ReadReport;
use crate::spool::{Gunzip, ReadSeek, Unxz, XZ_MAGIC, spool};
use crate::strays::Strays;
use crate::tally::Tally;
use crate::text::{self, Style};
use crate::xentrace::{self, Clock};
use crate::{perfetto, tracedat};

/// What a recording is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text of tracefs (`trace`, `trace_pipe`) or of `trace-cmd report`.
    Ftrace,
    /// Text of `perf script`.
    PerfScript,
    /// trace-cmd's own file, `trace.dat`.
    TraceDat,
    /// A Perfetto trace with ftrace events.
    Perfetto,
    /// A binary trace of Xen: its vCPUs are the tasks.
    Xentrace,
}

impl Format {
    /// Whether it is read by line; positions in binary formats are bytes.
    pub fn is_text(self) -> bool {
        matches!(self, Format::Ftrace | Format::PerfScript)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Ftrace => "ftrace text",
            Format::PerfScript => "perf script text",
            Format::TraceDat => "trace.dat",
            Format::Perfetto => "Perfetto trace",
            Format::Xentrace => "binary trace of Xen",
        })
    }
}

/// Opens a recording; its format is told by its content.
///
/// # Errors
/// The file cannot be read, is a recorder's binary file that is not read here (the error names the command that
/// converts it), has a damaged header, or has nothing that looks like a trace in its first 256 KiB.
pub fn open(path: impl AsRef<Path>) -> Result<Reader, TraceError> {
    let path = path.as_ref();
    let failed = |source| TraceError::Io { path: path.into(), source };
    let mut file = File::open(path).map_err(failed)?;
    let mut magic = Vec::new();
    (&mut file).take(tracedat::MAGIC.len() as u64).read_to_end(&mut magic).map_err(failed)?;
    // A file is seekable as it is, unless it is a pipe.
    if magic == tracedat::MAGIC && file.rewind().is_ok() {
        return Reader::trace_dat(path.into(), Box::new(file), None);
    }
    Reader::from_read(path, Cursor::new(magic).chain(file))
}

/// The events of a recording: of a text in the order of the file, of the other formats in the order of time.
pub struct Reader {
    path: PathBuf,
    format: Format,
    source: Source,
    names: Interner,
    tally: Tally,
    strays: Strays,
    /// A compressed file was found to end too early.
    cut: Option<Arc<AtomicBool>>,
    done: bool,
}

/// A format's events.
enum Source {
    Text(text::Source),
    TraceDat(tracedat::Source),
    Perfetto(perfetto::Source),
    Xentrace(xentrace::tasks::Source),
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("path", &self.path).field("format", &self.format).finish_non_exhaustive()
    }
}

impl Reader {
    /// Reads from a stream; `name` stands for it in errors.
    ///
    /// A trace.dat is read here and there: a stream of one is copied first, up to 64 MiB into memory, a longer one
    /// into an unnamed temporary file, at most 64 GiB.
    ///
    /// # Errors
    /// As [`open`].
    pub fn from_read(name: impl AsRef<Path>, source: impl Read + Send + 'static) -> Result<Self, TraceError> {
        let path = name.as_ref().to_path_buf();
        let failed = |source| TraceError::Io { path: path.clone(), source };
        let mut source: Box<dyn Read + Send> = Box::new(source);
        let mut head = Vec::new();
        (&mut source).take(XZ_MAGIC.len() as u64).read_to_end(&mut head).map_err(failed)?;
        let (gzip, xz) = (head.starts_with(&[0x1f, 0x8b]), head == XZ_MAGIC);
        source = Box::new(Cursor::new(head).chain(source));
        let mut cut = None;
        if gzip {
            let (plain, flag) = Gunzip::new(source);
            source = Box::new(plain);
            cut = Some(flag);
        } else if xz {
            source = Box::new(Unxz::new(source));
        }
        let mut head = Vec::new();
        (&mut source).take(CAPACITY as u64).read_to_end(&mut head).map_err(failed)?;
        let format = detect(&head, &path)?;
        source = Box::new(Cursor::new(head).chain(source));
        let source = match format {
            Format::Ftrace => Source::Text(text::Source::new(source, Style::Ftrace)),
            Format::PerfScript => Source::Text(text::Source::new(source, Style::Perf)),
            Format::Perfetto => Source::Perfetto(perfetto::Source::new(source)),
            Format::Xentrace => {
                let records = xentrace::Reader::from_read(&path, source)?;
                Source::Xentrace(xentrace::tasks::Source::new(records.in_time_order()))
            }
            Format::TraceDat => {
                let file = spool(source).map_err(failed)?;
                return Self::trace_dat(path, Box::new(file), cut);
            }
        };
        Ok(Self::new(path, format, source, Tally::default(), cut))
    }

    fn trace_dat(path: PathBuf, file: Box<dyn ReadSeek>, cut: Option<Arc<AtomicBool>>) -> Result<Self, TraceError> {
        let (mut names, mut tally) = (Interner::default(), Tally::default());
        let source = tracedat::Source::new(file, &mut names, &mut tally).map_err(|e| e.at(&path))?;
        let mut reader = Self::new(path, Format::TraceDat, Source::TraceDat(source), tally, cut);
        reader.names = names;
        Ok(reader)
    }

    fn new(path: PathBuf, format: Format, source: Source, tally: Tally, cut: Option<Arc<AtomicBool>>) -> Self {
        Self { path, format, source, names: Interner::default(), tally, strays: Strays::default(), cut, done: false }
    }

    /// Says how fast the time stamps of a binary trace of Xen count: their frequency stands in no such trace, and is taken for
    /// [`Clock::DEFAULT_HZ`] otherwise. Of no effect on other formats. To be called before the first event is read.
    pub fn set_xen_clock(&mut self, clock: Clock) {
        if let Source::Xentrace(trace) = &mut self.source {
            trace.set_clock(clock);
        }
    }

    /// What the file is.
    pub fn format(&self) -> Format {
        self.format
    }

    /// What was met so far; complete after the last event.
    pub fn report(&self) -> ReadReport {
        let t = &self.tally;
        ReadReport {
            format: self.format,
            lines: t.lines,
            events: t.events,
            unknown: t.unknown.iter().map(|(n, c)| (String::from_utf8_lossy(n).into_owned(), *c)).collect(),
            unparsable: t.unparsable.clone(),
            lost: t.lost,
            out_of_order: t.out_of_order,
            strays: t.strays + self.strays.count,
            unchained: t.unchained,
            truncated: t.truncated || self.cut.as_ref().is_some_and(|cut| cut.load(Ordering::Relaxed)),
            clock: t.clock.clone(),
            cpus: t.cpus(),
            cpus_declared: t.cpus_declared,
            first_ts: t.first_ts,
            last_ts: t.last_ts,
        }
    }

    fn read(&mut self) -> io::Result<Option<Event>> {
        let Self { source, tally, names, strays, .. } = self;
        // Who ran is told as an event is read, that a gap which follows comes after it.
        let chained = |event: Option<Event>, tally: &mut Tally| {
            event.iter().for_each(|e| tally.chain(e.cpu, &e.kind));
            event
        };
        match source {
            Source::Text(text) => strays.next(|| Ok(chained(text.next(tally, names)?, tally))),
            Source::TraceDat(file) => Ok(chained(file.next(tally, names)?, tally)),
            Source::Perfetto(trace) => Ok(chained(trace.next(tally, names)?, tally)),
            Source::Xentrace(trace) => Ok(chained(trace.next(tally, names)?, tally)),
        }
    }

    /// The error of a text whose every line is damaged.
    fn nothing_parsed(&self) -> Option<TraceError> {
        let t = &self.tally;
        if !self.format.is_text() || t.events > 0 || !t.unknown.is_empty() || t.lost.gaps > 0 {
            return None;
        }
        let (line, found) = t.unparsable.first.clone()?;
        Some(TraceError::NotATrace { path: self.path.clone(), line, found, expected: EXPECTED })
    }
}

impl Iterator for Reader {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        match self.read() {
            Ok(Some(event)) => {
                self.tally.event(&event);
                Some(Ok(event))
            }
            Ok(None) => {
                self.done = true;
                self.nothing_parsed().map(Err)
            }
            Err(source) => {
                self.done = true;
                Some(Err(TraceError::Io { path: self.path.clone(), source }))
            }
        }
    }
}
