//! Which mutexes a replay locks.
//!
//! A recorded wait for a mutex was ended by the one who happened to hold it. Replayed as a wait for that task, mutexes would be
//! handed on in the recorded order, whoever comes first; so a mutex is replayed as one: who comes locks it, and waits only if it is
//! locked then. What was done for it in the recording, sleeps, wake-ups and further attempts, is **dropped**.
//!
//! That must not bring about what the recording cannot: a task that holds one waits for no other task. A **section**, from locking to
//! unlocking, in which it does, locks another mutex or wakes somebody is replayed as waits and posts. So whoever holds a mutex gets
//! to its unlocking, and the proof that a replay cannot deadlock (`exact`) holds.

use rustc_hash::{FxHashMap, FxHashSet};

use super::exact::Exact;
use super::step::{What, Why};
use super::wake_ups::WakeUps;

/// What is done at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Lock this mutex, and go on at that step.
    Lock(u32, usize),
    /// Unlock this one; the post at that step is part of it.
    Unlock(u32, Option<usize>),
}

/// The mutexes of a replay.
#[derive(Default)]
pub(super) struct Mutexes {
    /// How many.
    pub number: u32,
    /// By step.
    pub acts: FxHashMap<usize, Act>,
    /// Waits and posts that are not played.
    pub dropped: FxHashSet<usize>,
}

/// From locking to unlocking.
struct Section {
    task: u32,
    mutex: u32,
    lock: usize,
    /// Where the task goes on once it has the mutex.
    has: usize,
    unlock: usize,
    /// Its waits for the mutex.
    waits: Vec<usize>,
}

/// Find them.
pub(super) fn find(model: &Exact, wake_ups: &WakeUps) -> Mutexes {
    let mut sections = Vec::new();
    // The posts that are part of unlocking, with the mutex; by unlocking.
    let mut wakes: FxHashMap<usize, u32> = FxHashMap::default();
    let mut post_of: FxHashMap<usize, usize> = FxHashMap::default();
    for (i, task) in (0u32..).zip(&model.tasks) {
        let mut open: Option<Section> = None;
        // It waits for the mutex; it has just unlocked one.
        let mut waiting = false;
        let mut unlocked: Option<(usize, u32)> = None;
        for at in task.from..task.to {
            let what = model.steps[at].what();
            match what {
                What::Lock(mutex, waited) => {
                    // Not within another's.
                    let section = Section { task: i, mutex, lock: at, has: at + 1, unlock: at, waits: Vec::new() };
                    open = open.is_none().then_some(section);
                    waiting = waited;
                }
                What::Locked => {
                    waiting = false;
                    if let Some(section) = &mut open {
                        section.has = at + 1;
                    }
                }
                What::Sleep(_, Why::Task) => match &mut open {
                    Some(section) if waiting => section.waits.push(at),
                    _ => open = None,
                },
                What::Post(..) => match unlocked {
                    Some((unlock, mutex)) => {
                        wakes.insert(at, mutex);
                        post_of.insert(unlock, at);
                    }
                    None => open = None,
                },
                What::Spawn(_) if waiting => open = None,
                What::Unlock(mutex) => {
                    let section = open.take().filter(|s| s.mutex == mutex && !waiting);
                    sections.extend(section.map(|s| Section { unlock: at, ..s }));
                }
                _ => {}
            }
            unlocked = match what {
                What::Unlock(mutex) => Some((at, mutex)),
                What::Run(_) | What::Nop => unlocked,
                _ => None,
            };
        }
    }
    let mut post_for: FxHashMap<usize, usize> = FxHashMap::default();
    let mut waker_of: FxHashMap<usize, u32> = FxHashMap::default();
    // A recording without mutexes needs no more.
    for (&(waker, sleeper), waits) in wake_ups.waits.iter().filter(|_| !sections.is_empty()) {
        for (&wait, &post) in std::iter::zip(waits, wake_ups.posts_of(waker, sleeper)) {
            post_for.insert(wait, post);
            waker_of.insert(wait, waker);
        }
    }
    sections.retain(|s| s.waits.iter().all(|w| post_for.get(w).is_some_and(|p| wakes.get(p) == Some(&s.mutex))));
    // Private mutexes of two processes may stand at the same address: those are one whose tasks wake each other there.
    let mut same: FxHashMap<(u32, u32), (u32, u32)> = FxHashMap::default();
    for s in &sections {
        for wait in &s.waits {
            let (a, b) = (root(&same, (s.mutex, s.task)), root(&same, (s.mutex, waker_of[wait])));
            if a != b {
                same.insert(a.max(b), a.min(b));
            }
        }
    }
    let mut mutexes = Mutexes::default();
    let mut numbers: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    for s in &sections {
        let next = numbers.len() as u32;
        let number = *numbers.entry(root(&same, (s.mutex, s.task))).or_insert(next);
        mutexes.dropped.extend(s.waits.iter().flat_map(|w| [*w, post_for[w]]));
        mutexes.acts.insert(s.lock, Act::Lock(number, s.has));
        mutexes.acts.insert(s.unlock, Act::Unlock(number, post_of.get(&s.unlock).copied()));
    }
    mutexes.number = numbers.len() as u32;
    for act in mutexes.acts.values_mut() {
        if let Act::Unlock(_, post) = act {
            *post = post.filter(|p| mutexes.dropped.contains(p));
        }
    }
    mutexes
}

fn root(same: &FxHashMap<(u32, u32), (u32, u32)>, mut of: (u32, u32)) -> (u32, u32) {
    while let Some(&next) = same.get(&of) {
        of = next;
    }
    of
}
