//! Counts what a recording holds, whatever its format.

use rustc_hash::FxHashMap;

use crate::event::{Event, Kind};
use crate::report::{Lost, OutOfOrder, Unparsable};

/// Different names of unknown events that are counted apart.
const UNKNOWN_MAX: usize = 4096;

/// What a reader has counted. Sources tell of what is no event; the reader, of events.
#[derive(Default)]
pub(crate) struct Tally {
    pub lines: u64,
    pub events: u64,
    pub unknown: FxHashMap<Box<[u8]>, u64>,
    pub unparsable: Unparsable,
    pub lost: Lost,
    pub out_of_order: OutOfOrder,
    pub strays: u64,
    pub unchained: u64,
    pub cpus_declared: Option<u32>,
    pub clock: Option<String>,
    pub truncated: bool,
    pub first_ts: Option<u64>,
    pub last_ts: Option<u64>,
    cpus: Vec<Option<Running>>,
}

/// Who runs on a CPU that has recorded something.
#[derive(Clone, Copy)]
enum Running {
    Unknown,
    Task(u32),
}

impl Tally {
    /// An event is returned.
    pub(crate) fn event(&mut self, event: &Event) {
        self.events += 1;
        self.order(event.ts);
    }

    /// CPUs that recorded an event, ascending.
    pub(crate) fn cpus(&self) -> Vec<u32> {
        self.cpus.iter().zip(0..).filter_map(|(seen, cpu)| seen.map(|_| cpu)).collect()
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

    /// An event is read: who runs on its CPU?
    pub(crate) fn chain(&mut self, cpu: u32, kind: &Kind) {
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

    /// Events are missing here, on one CPU or nobody knows where.
    pub(crate) fn gap(&mut self, cpu: Option<u32>, events: u64) {
        self.lost.gaps += 1;
        self.lost.events = self.lost.events.saturating_add(events);
        match cpu {
            Some(cpu) => self.cpus.get_mut(cpu as usize).into_iter().flatten().for_each(|r| *r = Running::Unknown),
            None => self.cpus.iter_mut().flatten().for_each(|running| *running = Running::Unknown),
        }
    }

    /// A whole event that is none of ours.
    pub(crate) fn unknown(&mut self, name: &[u8]) {
        if let Some(count) = self.unknown.get_mut(name) {
            *count += 1;
        } else {
            let name: &[u8] = if self.unknown.len() < UNKNOWN_MAX { name } else { b"(other)" };
            *self.unknown.entry(name.into()).or_default() += 1;
        }
    }

    /// Something that cannot be read, at this line or byte.
    pub(crate) fn damaged(&mut self, at: u64, what: impl FnOnce() -> String) {
        self.unparsable.count += 1;
        if self.unparsable.first.is_none() {
            self.unparsable.first = Some((at, what()));
        }
    }
}
