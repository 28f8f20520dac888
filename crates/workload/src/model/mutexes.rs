//! Which mutexes a replay locks.
//!
//! A recorded wait for a mutex was ended by the one who happened to hold it. Replayed as a wait for that task, mutexes would be
//! handed on in the recorded order, whoever comes first; so a mutex is replayed as one: who comes locks it, and waits only if it is
//! locked then. What was done for it in the recording, sleeps, wake-ups and further attempts, is **dropped**.
//!
//! That must not bring about what the recording cannot: a task that holds one waits for no other task. A **section**, from locking to
//! unlocking, in which it does, locks another mutex or wakes somebody is replayed as waits and posts. So whoever holds a mutex gets
//! to its unlocking, and the proof that a replay cannot deadlock (`exact`) holds.
//!
//! At a barrier that is made of a condition variable the last one holds the mutex while it wakes the others, and each of those has it when
//! it goes on: such a section begins at the barrier, if it ends soon.

use rustc_hash::{FxHashMap, FxHashSet};

use super::barriers::Barriers;
use super::exact::Exact;
use super::same::Same;
use super::step::{What, Why};
use super::wake_ups::WakeUps;

/// Who comes to a barrier and unlocks a mutex after so little computing has had it since.
const SECTION_MAX_NS: u64 = 50_000;

/// What is done at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Lock this mutex, and go on at that step. At a barrier: it is locked as the task goes on from there.
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
    /// Arrivals at barriers soon after which the task locks a mutex that it waited for: at its own step, not as it goes on.
    pub relocked: FxHashSet<usize>,
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
pub(super) fn find(model: &Exact, wake_ups: &WakeUps, barriers: &Barriers) -> Mutexes {
    let mut sections = Vec::new();
    let mut relocked = FxHashSet::default();
    // The posts that are part of unlocking, with the mutex; by unlocking.
    let mut wakes: FxHashMap<usize, u32> = FxHashMap::default();
    let mut post_of: FxHashMap<usize, usize> = FxHashMap::default();
    for (i, task) in (0u32..).zip(&model.tasks) {
        let mut open: Option<Section> = None;
        // It waits for the mutex; it has just unlocked one.
        let mut waiting = false;
        let mut unlocked: Option<(usize, u32)> = None;
        // It came to a barrier, and has computed so long since.
        let mut met: Option<(usize, u64)> = None;
        for at in task.from..task.to {
            let what = model.steps[at].what();
            if barriers.dropped.contains(&at) {
                continue;
            }
            match what {
                What::Barrier(_) if barriers.arrivals.contains_key(&at) => (open, met) = (None, Some((at, 0))),
                What::Run(ns) | What::Kernel(ns, _) => {
                    met = met.map(|(at, ran)| (at, ran + ns)).filter(|(_, ran)| *ran <= SECTION_MAX_NS);
                }
                // Nothing says when it did: at the barrier.
                What::Lock(_, false) if met.is_some() => {}
                What::Lock(mutex, waited) => {
                    relocked.extend(met.take().map(|(at, _)| at));
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
                    _ => (open, met) = (None, None),
                },
                What::Post(..) => match unlocked {
                    Some((unlock, mutex)) => {
                        wakes.insert(at, mutex);
                        post_of.insert(unlock, at);
                    }
                    None => (open, met) = (None, None),
                },
                What::Spawn(_) if waiting => open = None,
                What::Unlock(mutex) => {
                    let at_barrier = met.take().map(|(lock, _)| Section {
                        task: i,
                        mutex,
                        lock,
                        has: lock + 1,
                        unlock: at,
                        waits: Vec::new(),
                    });
                    let section = open.take().or(at_barrier).filter(|s| s.mutex == mutex && !waiting);
                    sections.extend(section.map(|s| Section { unlock: at, ..s }));
                }
                What::Sleep(..) | What::Spawn(_) => met = None,
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
    for (waker, post, wait) in wake_ups.each().filter(|_| !sections.is_empty()) {
        post_for.insert(wait, post);
        waker_of.insert(wait, waker);
    }
    sections.retain(|s| s.waits.iter().all(|w| post_for.get(w).is_some_and(|p| wakes.get(p) == Some(&s.mutex))));
    let mut same: Same<(u32, u32)> = Same::default();
    for s in &sections {
        s.waits.iter().for_each(|wait| same.join((s.mutex, s.task), (s.mutex, waker_of[wait])));
        if let Some(&round) = barriers.arrivals.get(&s.lock) {
            same.join((s.mutex, s.task), (s.mutex, barriers.rounds[round].last.0));
        }
    }
    let mut mutexes = Mutexes { relocked, ..Mutexes::default() };
    let mut numbers: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    for s in &sections {
        let next = numbers.len() as u32;
        let number = *numbers.entry(same.root((s.mutex, s.task))).or_insert(next);
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
