//! Contended locks of the recorded kernel (`contention_begin`, `contention_end`).
//!
//! The events give a lock's address and how it was waited for; neither its name nor who called. So a lock is its kind and its
//! place among all: the one that was waited for longest is number 1.

use std::cmp::Reverse;

use contend_trace::event::{Event, Kind, contention};
use rustc_hash::FxHashMap;

/// A lock that was contended, waited for in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedLock {
    /// Its place among the addresses, by the time that was waited for it.
    pub number: u32,
    /// Its address.
    pub address: u64,
    /// Its kind in the words of `perf lock contention`.
    pub kind: &'static str,
    /// Waits that ended within the recording.
    pub contended: u64,
    /// Time of all of them, in ns.
    pub wait_ns: u64,
    /// The longest, in ns.
    pub wait_max_ns: u64,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    contended: u64,
    wait_ns: u64,
    wait_max_ns: u64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.contended += other.contended;
        self.wait_ns += other.wait_ns;
        self.wait_max_ns = self.wait_max_ns.max(other.wait_max_ns);
    }
}

/// All waits of a recording.
#[derive(Default)]
pub struct Waits {
    /// Those that have begun: of which task, on which CPU if that is idle, for which lock; since when, and how.
    open: FxHashMap<(u32, u32, u64), (u64, u32)>,
    /// Those that have ended, by task, lock and kind.
    ended: FxHashMap<(u32, u64, &'static str), Sum>,
}

impl Waits {
    pub fn event(&mut self, e: &Event) {
        let wait = |lock| (e.pid, if e.pid == 0 { e.cpu } else { 0 }, lock);
        match e.kind {
            Kind::ContentionBegin { lock, flags } => {
                let begun = self.open.entry(wait(lock)).or_insert((e.ts, flags));
                // One wait may spin first and then sleep. Otherwise the end of the one before is lost.
                if begun.1 & contention::SPIN == 0 || begun.1 & !contention::SPIN != flags {
                    *begun = (e.ts, flags);
                }
            }
            Kind::ContentionEnd { lock, .. } => {
                let Some((since, flags)) = self.open.remove(&wait(lock)) else { return };
                let wait_ns = e.ts.saturating_sub(since);
                let sum = Sum { contended: 1, wait_ns, wait_max_ns: wait_ns };
                self.ended.entry((e.pid, lock, kind(flags))).or_default().add(sum);
            }
            _ => {}
        }
    }

    /// Those of the tasks that count, the locks that were waited for longest first.
    pub fn of(&self, counts: impl Fn(u32) -> bool) -> Vec<RecordedLock> {
        let mut locks: FxHashMap<u64, Sum> = FxHashMap::default();
        let mut kinds: FxHashMap<(u64, &'static str), Sum> = FxHashMap::default();
        for (&(_, address, kind), sum) in self.ended.iter().filter(|((pid, ..), _)| counts(*pid)) {
            locks.entry(address).or_default().add(*sum);
            kinds.entry((address, kind)).or_default().add(*sum);
        }
        let mut by_time: Vec<(u64, Sum)> = locks.into_iter().collect();
        by_time.sort_unstable_by_key(|(address, sum)| (Reverse(sum.wait_ns), *address));
        let number: FxHashMap<u64, u32> = by_time.iter().map(|(address, _)| *address).zip(1..).collect();
        let row = |((address, kind), Sum { contended, wait_ns, wait_max_ns })| RecordedLock {
            number: number[&address],
            address,
            kind,
            contended,
            wait_ns,
            wait_max_ns,
        };
        let mut all: Vec<RecordedLock> = kinds.into_iter().map(row).collect();
        all.sort_unstable_by_key(|l| (Reverse(l.wait_ns), l.number, l.kind));
        all
    }
}

/// Of an event's flags.
fn kind(flags: u32) -> &'static str {
    let has = |bit| flags & bit != 0;
    let (read, write) = (has(contention::READ), has(contention::WRITE));
    if has(contention::MUTEX) {
        "mutex"
    } else if has(contention::RT) {
        "rtmutex"
    } else if has(contention::PERCPU) {
        if write { "pcpu-sem:W" } else { "pcpu-sem:R" }
    } else {
        match (has(contention::SPIN), read, write) {
            (true, true, _) => "rwlock:R",
            (true, _, true) => "rwlock:W",
            (true, ..) => "spinlock",
            (_, true, _) => "rwsem:R",
            (_, _, true) => "rwsem:W",
            _ => "semaphore",
        }
    }
}
