//! What a reader met besides events.

use std::collections::BTreeMap;
use std::fmt;

use crate::event::Nanos;
use crate::reader::Format;

/// Counts of everything in a recording: nothing is dropped silently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadReport {
    /// What the file is.
    pub format: Format,
    /// Lines read, comments and blanks included; 0 in binary formats.
    pub lines: u64,
    /// Events returned.
    pub events: u64,
    /// Whole events of other kinds, by name. From the 4,096th different name on they count as `(other)`.
    pub unknown: BTreeMap<String, u64>,
    /// Lines, or records of binary formats, that are no event, no comment and no mark of lost events: damage.
    pub unparsable: Unparsable,
    /// Events that the recorder says it lost.
    pub lost: Lost,
    /// Events whose time is before that of an event above them in the file. They are returned as they stand.
    pub out_of_order: OutOfOrder,
    /// Records left out, since no other record of their CPU is within hours of their time stamps.
    pub strays: u64,
    /// Switches away from a task that the CPU's switch before did not bring, with no gap marked between them: events
    /// are missing and the recorder does not say so.
    pub unchained: u64,
    /// The file ends before it should: within a line of a compressed text, within a CPU's pages, within a packet. What
    /// it holds up to there was returned.
    pub truncated: bool,
    /// The trace clock, where the file says it.
    pub clock: Option<String>,
    /// CPUs that recorded an event, ascending.
    pub cpus: Vec<u32>,
    /// Number of CPUs that the file's header names (`#P:8`, `cpus=8`).
    pub cpus_declared: Option<u32>,
    /// Earliest time of a returned event.
    pub first_ts: Option<Nanos>,
    /// Latest time of a returned event.
    pub last_ts: Option<Nanos>,
}

/// Damaged lines or records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unparsable {
    /// How many.
    pub count: u64,
    /// Of the first: in a text its line (from 1) and what stands there (shortened); in a binary format the byte where it
    /// stands (in the uncompressed packet or chunk, if it is in one) and what is wrong.
    pub first: Option<(u64, String)>,
}

/// Events that a recorder could not keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Marks in the file: gaps in the recording.
    pub gaps: u64,
    /// Events that the marks count. A mark may say no number: then this is a lower bound.
    pub events: u64,
    /// Events overwritten before the recording's first (`entries-in-buffer/entries-written`): no gap, a later start.
    pub before_start: u64,
}

/// Events out of time order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutOfOrder {
    /// How many.
    pub count: u64,
    /// How far the worst is behind the latest time above it, in ns.
    pub worst_ns: Nanos,
}

impl fmt::Display for ReadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} events on {} CPUs", self.format, self.events, self.cpus.len())?;
        if let (Some(first), Some(last)) = (self.first_ts, self.last_ts) {
            let ns = last - first;
            write!(f, " over {}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000)?;
        }
        if let Some(declared) = self.cpus_declared
            && declared as usize != self.cpus.len()
        {
            write!(f, "\n  CPUs of the machine: {declared}")?;
        }
        if !self.unknown.is_empty() {
            write!(f, "\n  other events:")?;
            for (name, count) in &self.unknown {
                write!(f, " {name} {count}")?;
            }
        }
        write!(f, "{}", Damage(self))?;
        if self.unchained > 0 {
            write!(f, "\n  switches that do not follow from the one before on their CPU: {}", self.unchained)?;
        }
        Ok(())
    }
}

/// What of a recording is missing or damaged, a line each, each on a new line; nothing if nothing is.
pub struct Damage<'a>(pub &'a ReadReport);

impl fmt::Display for Damage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReadReport { lost, out_of_order, strays, unparsable, format, truncated, .. } = self.0;
        if lost.gaps > 0 {
            write!(f, "\n  lost: {} events in {} gaps", lost.events, lost.gaps)?;
        }
        if lost.before_start > 0 {
            write!(f, "\n  overwritten before the first event: {}", lost.before_start)?;
        }
        if out_of_order.count > 0 {
            write!(f, "\n  out of order: {}, worst by {} ns", out_of_order.count, out_of_order.worst_ns)?;
        }
        if *strays > 0 {
            write!(f, "\n  left out, their time stamps hours away from all others: {strays}")?;
        }
        match &unparsable.first {
            Some((line, text)) if format.is_text() => {
                write!(f, "\n  damaged lines: {}, first line {line}: {text:?}", unparsable.count)?;
            }
            Some((byte, what)) => {
                write!(f, "\n  damaged records: {}, first at byte {byte}: {what}", unparsable.count)?;
            }
            None => {}
        }
        if *truncated {
            write!(f, "\n  truncated: the file ends before it should")?;
        }
        Ok(())
    }
}
