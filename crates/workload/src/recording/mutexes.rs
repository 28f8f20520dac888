//! Mutexes of user space, from the calls of `futex` for them.
//!
//! A C library's mutex is a word of three values: free, locked, locked and somebody waits (2). Who finds it locked makes it 2 and
//! sleeps while it is (`FUTEX_WAIT`, 2); who unlocks it and finds 2 there wakes one (`FUTEX_WAKE`, 1), who tries again and may find it
//! locked by a third. So of a mutex that somebody waits for these are recorded:
//!
//! * **waiting**: from the first `FUTEX_WAIT` to the end of the last before another call. The task has the mutex then;
//! * **unlocking**: who had to wait leaves 2 behind, so its unlocking is a `FUTEX_WAKE`, whether or not somebody sleeps.
//!
//! (Rust's mutexes do the same, with `FUTEX_WAIT_BITSET`. What has other values, too, is no mutex but counts something.)
//!
//! A lock that was free is taken without a call. It was taken after the last holder let it go and before the first that then found it
//! locked. It is put as late as that allows: where its holder last left a CPU before, or where it was then. A mutex that nobody
//! waits for is in no recording.

use contend_trace::event::futex;
use rustc_hash::{FxHashMap, FxHashSet};

use super::chains::Chain;
use crate::model::step::{Step, What};

/// The value of a mutex that somebody waits for.
const WAITED_FOR: u32 = 2;

/// What a call of futex is to a mutex.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// It is locked.
    Wait(u32),
    /// It is unlocked.
    Unlock(u32),
}

/// One mutex.
#[derive(Clone, Copy, Default)]
struct Mutex {
    number: u32,
    /// When it was last unlocked, and when it was first found locked since.
    unlocked: u64,
    found: Option<u64>,
}

/// A task and its mutexes.
#[derive(Default)]
pub struct Holder {
    /// The call of futex that it is in.
    pub call: Option<Call>,
    /// The mutex that it waits for or has waited for, the step that is the lock, and the step after which it has it.
    waits: Option<(u32, usize, Option<usize>)>,
    /// Steps that may become a lock, and when they were.
    marks: Vec<(u64, usize)>,
    /// It has called futex for a mutex.
    pub uses: bool,
}

/// All mutexes.
#[derive(Default)]
pub struct Mutexes {
    /// By the word's address.
    words: FxHashMap<u64, Mutex>,
    /// Words that were taken for mutexes, and are none.
    others: FxHashSet<u64>,
}

impl Mutexes {
    /// What this call is, if it is one of a mutex.
    pub fn call(&mut self, uaddr: u64, op: u32, val: u32) -> Option<Call> {
        let next = self.words.len() as u32;
        match (futex::command(op), val) {
            _ if self.others.contains(&uaddr) => None,
            (futex::WAIT | futex::WAIT_BITSET, WAITED_FOR) => {
                Some(Call::Wait(self.words.entry(uaddr).or_insert(Mutex { number: next, ..Mutex::default() }).number))
            }
            (futex::WAIT | futex::WAIT_BITSET, _) => {
                self.others.insert(uaddr);
                None
            }
            (futex::WAKE, 1) => self.words.get(&uaddr).map(|m| Call::Unlock(m.number)),
            _ => None,
        }
    }

    /// Steps for mutexes that turned out to be none are nothing.
    pub fn finish(self, tasks: &mut [Chain]) {
        let others: FxHashSet<u32> = self.others.iter().filter_map(|word| Some(self.words.get(word)?.number)).collect();
        for step in tasks.iter_mut().flat_map(|t| &mut t.steps).filter(|_| !others.is_empty()) {
            if let What::Lock(number, _) | What::Unlock(number) = step.what()
                && others.contains(&number)
            {
                *step = Step::new(What::Nop);
            }
        }
    }

    /// Task `t` finds the mutex locked and is about to wait. What it ran has been written down.
    pub fn wait(&mut self, uaddr: u64, t: &mut Chain, ts: u64) {
        let Some(m) = self.words.get_mut(&uaddr) else { return };
        m.found.get_or_insert(ts);
        t.mutexes.uses = true;
        t.mutexes.call = Some(Call::Wait(m.number));
        match &mut t.mutexes.waits {
            // Somebody else was faster.
            Some((number, _, got)) if *number == m.number => *got = None,
            waits => {
                // One that it has while it waits for another is not told apart.
                if let Some((_, at, _)) = waits.replace((m.number, t.steps.len(), None)) {
                    t.steps[at] = Step::new(What::Nop);
                }
                t.steps.push(Step::new(What::Nop));
            }
        }
    }

    /// Task `t` unlocks the mutex. What it ran has been written down.
    pub fn unlock(&mut self, uaddr: u64, t: &mut Chain, ts: u64) {
        let Some(m) = self.words.get_mut(&uaddr) else { return };
        t.mutexes.uses = true;
        t.mutexes.call = Some(Call::Unlock(m.number));
        let marks = std::mem::take(&mut t.mutexes.marks);
        match t.mutexes.waits {
            Some((number, at, Some(got))) if number == m.number => {
                t.steps[at] = Step::new(What::Lock(m.number, true));
                t.steps[got] = Step::new(What::Locked);
                t.mutexes.waits = None;
            }
            _ => {
                let free = |&&(at, _): &&(u64, usize)| at > m.unlocked && m.found.is_none_or(|found| at <= found);
                if let Some(&(_, at)) = marks.iter().rev().find(free) {
                    t.steps[at] = Step::new(What::Lock(m.number, false));
                }
            }
        }
        t.steps.push(Step::new(What::Unlock(m.number)));
        (m.unlocked, m.found) = (ts, None);
    }
}

impl Chain {
    /// A call of futex for a mutex ends. What was run has been written down.
    pub fn futex_ends(&mut self) {
        if let (Some(Call::Wait(_)), Some((.., got))) = (self.mutexes.call.take(), &mut self.mutexes.waits) {
            *got = Some(self.steps.len());
            self.steps.push(Step::new(What::Nop));
        }
    }

    /// A place at which it may have locked a mutex.
    pub fn mark(&mut self, ts: u64) {
        if self.mutexes.uses && self.mutexes.call.is_none() {
            self.flush(ts);
            self.mutexes.marks.push((ts, self.steps.len()));
            self.steps.push(Step::new(What::Nop));
        }
    }
}
