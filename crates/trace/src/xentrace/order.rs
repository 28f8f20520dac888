//! Records in the order of their time stamps.
//!
//! `xentrace` reads the pCPUs' buffers round after round. A record that stands in round k was written after its pCPU's
//! buffer was read in round k - 1, so after everything in round k - 2 was written. So once round k has been read, all
//! records up to the latest time stamp of round k - 1 are known, and two rounds are all that must be held. Where rounds
//! begin is not in the file: at a window of a pCPU that is not above the one before (two windows of one pCPU in
//! succession make a round too many, which does no harm).
//!
//! pCPUs whose TSCs differ, damage and lost records may break this: then records come late, and are counted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;

use super::{Reader, Record, XenReadReport};
use crate::error::TraceError;

/// A time stamp so many ticks after the one before of its pCPU (hours) is believed only if the next one there is not before it.
const STRAY_TICKS: u64 = 1 << 44;

/// Records that are held at most, 64 bytes each.
const HELD_MAX: usize = 2 << 20;

/// Records over all pCPUs in the order of their time stamps; equal ones by pCPU, and those of one pCPU as in the file.
pub struct TimeOrder {
    reader: Reader,
    queues: Vec<VecDeque<Record>>,
    /// Time stamp and pCPU of the first in each queue.
    heads: BinaryHeap<Reverse<(u64, u16)>>,
    held: usize,
    error: Option<TraceError>,
    at_end: bool,
    round: Round,
    last: u64,
    late: u64,
    /// By pCPU: the latest time stamp that was believed, and a record that may be a stray.
    suspects: Vec<(Option<u64>, Option<Record>)>,
    strays: u64,
}

/// How far rounds have been read.
#[derive(Default)]
struct Round {
    windows: u64,
    cpu: u16,
    /// Latest time stamp so far, and up to the end of the last round.
    latest: u64,
    before: u64,
    /// All records up to here have been read.
    complete: u64,
}

impl fmt::Debug for TimeOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeOrder").field("reader", &self.reader).finish_non_exhaustive()
    }
}

impl TimeOrder {
    pub(super) fn new(reader: Reader) -> Self {
        Self {
            reader,
            queues: Vec::new(),
            heads: BinaryHeap::new(),
            held: 0,
            error: None,
            at_end: false,
            round: Round::default(),
            last: 0,
            late: 0,
            suspects: Vec::new(),
            strays: 0,
        }
    }

    /// What was met so far; complete after the last record.
    pub fn report(&self) -> XenReadReport {
        self.reader.report()
    }

    /// Records returned after a later one.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Records left out, since no other record of their pCPU is anywhere near their time stamps: damage.
    pub fn strays(&self) -> u64 {
        self.strays + self.suspects.iter().filter(|(_, s)| self.at_end && s.is_some()).count() as u64
    }

    fn take(&mut self, record: Record) {
        let cpu = usize::from(record.cpu.0);
        if self.suspects.len() <= cpu {
            self.suspects.resize_with(cpu + 1, Default::default);
        }
        if let Some(suspect) = self.suspects[cpu].1.take() {
            if record.tsc < suspect.tsc {
                self.strays += 1;
            } else {
                self.suspects[cpu].0 = Some(suspect.tsc);
                self.keep(suspect);
            }
        }
        let (believed, suspect) = &mut self.suspects[cpu];
        if believed.is_some_and(|last| record.tsc.saturating_sub(last) > STRAY_TICKS) {
            *suspect = Some(record);
            return;
        }
        *believed = (*believed).max(Some(record.tsc));
        self.keep(record);
    }

    fn keep(&mut self, record: Record) {
        let round = &mut self.round;
        if self.reader.windows() != round.windows {
            if record.cpu.0 <= round.cpu {
                round.complete = round.before;
                round.before = round.latest;
            }
            round.windows = self.reader.windows();
            round.cpu = record.cpu.0;
        }
        round.latest = round.latest.max(record.tsc);
        let cpu = usize::from(record.cpu.0);
        if self.queues.len() <= cpu {
            self.queues.resize_with(cpu + 1, VecDeque::new);
        }
        if self.queues[cpu].is_empty() {
            self.heads.push(Reverse((record.tsc, record.cpu.0)));
        }
        self.queues[cpu].push_back(record);
        self.held += 1;
    }

    fn give(&mut self) -> Option<Record> {
        let Reverse((tsc, cpu)) = self.heads.pop()?;
        let queue = &mut self.queues[usize::from(cpu)];
        let record = queue.pop_front().expect("a head is the first of a queue");
        if let Some(next) = queue.front() {
            self.heads.push(Reverse((next.tsc, cpu)));
        }
        self.held -= 1;
        self.late += u64::from(tsc < self.last);
        self.last = self.last.max(tsc);
        Some(record)
    }
}

impl Iterator for TimeOrder {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let due = self.heads.peek().is_some_and(|Reverse((tsc, _))| *tsc <= self.round.complete);
            if self.at_end || due || self.held >= HELD_MAX {
                return self.give().map(Ok).or_else(|| self.error.take().map(Err));
            }
            match self.reader.next() {
                Some(Ok(record)) => self.take(record),
                Some(Err(error)) => {
                    self.error = Some(error);
                    self.at_end = true;
                }
                None => self.at_end = true,
            }
        }
    }
}
