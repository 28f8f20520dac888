//! Reads trace-cmd's own file, trace.dat, versions 6 and 7: the kernel's ring buffer as it was, page by page.
//!
//! Each CPU's pages are a stream of their own, read some at a time; the streams of all CPUs (and of all buffers, if the
//! file has those of several instances) are merged by time. The file is read here and there, so it must be seekable.
//!
//! Where things are is taken from the file's own descriptions ([`format`], [`page`]), byte order and sizes too. The context
//! of an event is that of its `common_flags` (interrupt, softirq, NMI); `common_preempt_count` says nothing more
//! about that and is not used. Names of tasks are those that the file has saved; of tasks that it has none for, those that the
//! events before told.

mod bytes;
mod format;
mod head;
mod page;
mod stream;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io;
use std::path::Path;

use crate::error::TraceError;
use crate::event::{Context, Event};
use crate::intern::Interner;
use crate::spool::ReadSeek;
use crate::tally::Tally;
use crate::who::Who;
use bytes::Order;
use format::{Field, Plan, decode};
use head::{Head, Pages};
use stream::{Next, Stream};

/// The first bytes of every trace.dat.
pub(crate) const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// Bytes read at once, of all CPUs together and of one.
const AHEAD_BYTES: usize = 16 << 20;
const AHEAD_BYTES_CPU: usize = 256 << 10;

/// Why a file cannot be read at all.
#[derive(Debug)]
pub(crate) enum Fault {
    Io(io::Error),
    Found(String),
}

impl From<io::Error> for Fault {
    fn from(e: io::Error) -> Self {
        Fault::Io(e)
    }
}

impl From<io::ErrorKind> for Fault {
    fn from(e: io::ErrorKind) -> Self {
        Fault::Io(e.into())
    }
}

impl Fault {
    pub(crate) fn at(self, path: &Path) -> TraceError {
        let path = path.to_path_buf();
        match self {
            Fault::Io(source) => TraceError::Io { path, source },
            Fault::Found(found) => TraceError::Unusable {
                path,
                found,
                expected: "a trace.dat of version 6 or 7 with a clock that counts ns and the pages of its CPUs \
                           (`trace-cmd restore` makes one of what a broken-off `trace-cmd record` left)",
            },
        }
    }
}

/// Events of a trace.dat.
pub(crate) struct Source {
    file: Box<dyn ReadSeek>,
    order: Order,
    plans: Plans,
    streams: Vec<Stream>,
    /// The next record of each stream.
    nexts: Vec<Option<Next>>,
    /// By time, then by stream: those of lower CPUs come first.
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    who: Who,
    time: Time,
}

/// What each kind of event is.
struct Plans {
    by_id: Vec<Option<Plan>>,
    id: Field,
    flags: Field,
    pid: Field,
}

/// From the clock's time to ns.
#[derive(Clone, Copy)]
struct Time {
    tsc: Option<(u32, u32)>,
    offset_ns: i64,
}

impl Time {
    #[inline]
    fn ns(self, ts: u64) -> u64 {
        let ts = match self.tsc {
            Some((multiplier, shift)) => ((u128::from(ts) * u128::from(multiplier)) >> shift.min(127)) as u64,
            None => ts,
        };
        ts.wrapping_add_signed(self.offset_ns)
    }
}

impl Source {
    pub(crate) fn new(file: Box<dyn ReadSeek>, names: &mut Interner, tally: &mut Tally) -> Result<Self, Fault> {
        let mut buffered = io::BufReader::with_capacity(64 << 10, file);
        let head = Head::read(&mut buffered)?;
        let mut file = buffered.into_inner();
        tally.cpus_declared = head.cpus;
        tally.clock.clone_from(&head.clock);
        tally.truncated = head.truncated;
        let clock = head.clock.as_deref().unwrap_or("local");
        let cycles = matches!(clock, "x86-tsc" | "ppc-tb" | "tsc2nsec");
        if matches!(clock, "counter" | "uptime") || (cycles && head.tsc.is_none()) {
            return Err(Fault::Found(format!("the clock {clock:?}")));
        }
        let time = Time { tsc: head.tsc.filter(|_| cycles), offset_ns: head.offset_ns };
        let layout = head.layout.ok_or_else(|| Fault::Found("no description of pages".into()))?;
        let plans = Plans::new(&head)?;
        let ahead = (AHEAD_BYTES / head.pages.len().max(1)).min(AHEAD_BYTES_CPU);
        let stream = |pages: &Pages| {
            let layout = layout.with_page(pages.page);
            let layout = layout.ok_or_else(|| Fault::Found(format!("pages of {} bytes", pages.page)))?;
            Ok(Stream::new(*pages, layout, head.order, head.packing, ahead))
        };
        let mut streams = head.pages.iter().filter(|p| p.size > 0).map(stream).collect::<Result<Vec<_>, Fault>>()?;
        streams.sort_by_key(Stream::cpu);
        let mut nexts = Vec::new();
        let mut heap = BinaryHeap::new();
        for (i, stream) in streams.iter_mut().enumerate() {
            let next = stream.next(&mut *file, tally)?;
            heap.extend(next.map(|next| Reverse((next.record.ts, i))));
            nexts.push(next);
        }
        let who = Who::saved(&head.cmdlines, names);
        Ok(Self { file, order: head.order, plans, streams, nexts, heap, who, time })
    }

    pub(crate) fn next(&mut self, tally: &mut Tally, names: &mut Interner) -> io::Result<Option<Event>> {
        loop {
            let Some(mut top) = self.heap.peek_mut() else { return Ok(None) };
            let i = top.0.1;
            let stream = &mut self.streams[i];
            let Some(Next { record, lost }) = self.nexts[i] else { unreachable!("a stream in the heap has a record") };
            if let Some(lost) = lost {
                tally.gap(Some(stream.cpu()), lost);
            }
            let ts = self.time.ns(record.ts);
            let event = self.plans.event(stream, &record, ts, self.order, tally, names, &mut self.who);
            let next = stream.next(&mut *self.file, tally)?;
            self.nexts[i] = next;
            match next {
                Some(next) => top.0.0 = next.record.ts,
                None => drop(PeekMut::pop(top)),
            }
            if event.is_some() {
                return Ok(event);
            }
        }
    }
}

impl Plans {
    fn new(head: &Head) -> Result<Self, Fault> {
        let common = |name: &str| head.formats.iter().find_map(|format| format.field(name));
        let needed = |name: &str| common(name).ok_or_else(|| Fault::Found(format!("no description of {name}")));
        let mut by_id = Vec::new();
        for format in &head.formats {
            let id = usize::from(format.id);
            if by_id.len() <= id {
                by_id.resize_with(id + 1, || None);
            }
            by_id[id] = Some(Plan::new(format));
        }
        Ok(Plans { by_id, id: needed("common_type")?, flags: needed("common_flags")?, pid: needed("common_pid")? })
    }

    #[expect(clippy::too_many_arguments, reason = "the borrow of the streams must end first")]
    fn event(
        &self,
        stream: &Stream,
        record: &page::Record,
        ts: u64,
        order: Order,
        tally: &mut Tally,
        names: &mut Interner,
        who: &mut Who,
    ) -> Option<Event> {
        let data = stream.data(*record);
        let damaged = |tally: &mut Tally, what: String| {
            tally.damaged(stream.position(*record), || what);
            None
        };
        let common = |field: Field| field.int(data, order);
        let (Some(id), Some(flags), Some(pid)) = (common(self.id), common(self.flags), common(self.pid)) else {
            return damaged(tally, "a record that is too short".into());
        };
        match self.by_id.get(id as usize).and_then(Option::as_ref) {
            Some(Plan::Ours { what, fields, states }) => {
                let Some(kind) = decode(*what, fields, states, data, order, names) else {
                    return damaged(tally, format!("a record of {what:?} with impossible fields"));
                };
                let pid = u32::try_from(pid).ok().filter(|pid| *pid <= i32::MAX as u32).unwrap_or(u32::MAX);
                let comm = who.name(pid, stream.cpu(), &kind, names);
                let context = Context::from_common_flags(flags as u8);
                let resched = crate::event::is_due(flags as u8);
                Some(Event { ts, cpu: stream.cpu(), pid, comm, context, resched, kind })
            }
            Some(Plan::Other { name }) => {
                tally.unknown(name.as_bytes());
                None
            }
            Some(Plan::Lacks { name, field }) => {
                damaged(tally, format!("{name}, whose description has no field {field}"))
            }
            None => {
                tally.unknown(format!("(event {id})").as_bytes());
                None
            }
        }
    }
}
