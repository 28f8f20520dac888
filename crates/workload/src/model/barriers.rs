//! Which barriers a replay waits at.
//!
//! A recorded wait at a barrier was ended by whoever came last. Replayed as waits for that task, all would wait for the one that came last
//! in the recording and for nobody else; so a barrier is replayed as one. In each **round** those meet that met in the recording: who
//! comes waits, and the last one, whoever that is, wakes the others in the order in which they came. Recorded waits and posts are
//! **dropped**.
//!
//! What is marked may be something else in which one task lets others go on: the owner of a queue, a writer that lets readers in. A
//! barrier is what has had twenty rounds, to half of which the same tasks came, and where none came last in more than nine of ten. Not all
//! come to each: who comes while the last one wakes the others goes through without a call.
//!
//! A replay does not deadlock by that (`exact`): take the rest of a round for a step that stands where the last of the recording woke the
//! others. All who are to come did so before, so if one has not, it is stuck in a step before.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::exact::Exact;
use super::same::Same;
use super::step::What;
use super::wake_ups::WakeUps;

/// Rounds of a barrier.
const ROUNDS_MIN: usize = 20;
/// To one in so many of its rounds the same tasks come.
const SAME: usize = 2;
/// In one of so many another comes last than the one that does most often.
const OTHERS: usize = 10;

/// The barriers of a replay.
#[derive(Default)]
pub(super) struct Barriers {
    /// To which round a task comes, by step.
    pub arrivals: FxHashMap<usize, usize>,
    pub rounds: Vec<Meeting>,
    /// Waits and posts that are not played.
    pub dropped: FxHashSet<usize>,
}

impl Barriers {
    /// How many come to most rounds; 0 if there are none.
    pub fn parties(&self) -> usize {
        most_often(self.rounds.iter().map(|r| r.parties)).map_or(0, |(parties, _)| parties)
    }
}

/// A round that is replayed.
pub(super) struct Meeting {
    /// How many come.
    pub parties: usize,
    /// Who came last in the recording, and at which step.
    pub last: (u32, usize),
}

/// Those that met once.
struct Round {
    barrier: u32,
    /// Who came last.
    last: u32,
    /// Who came, and at which step, the last one first.
    arrivals: Vec<(u32, usize)>,
    /// Waits and posts.
    dropped: Vec<usize>,
}

/// Find them.
pub(super) fn find(model: &Exact, wake_ups: &WakeUps) -> Barriers {
    let rounds = rounds(model, wake_ups);
    let mut same: Same<(u32, u32)> = Same::default();
    for r in &rounds {
        r.arrivals.iter().for_each(|&(task, _)| same.join((r.barrier, r.last), (r.barrier, task)));
    }
    let mut all: FxHashMap<(u32, u32), Vec<&Round>> = FxHashMap::default();
    for r in &rounds {
        all.entry(same.root((r.barrier, r.last))).or_default().push(r);
    }
    all.retain(|_, rounds| is_barrier(rounds));
    let mut barriers = Barriers::default();
    for r in rounds.iter().filter(|r| all.contains_key(&same.root((r.barrier, r.last)))) {
        let number = barriers.rounds.len();
        barriers.rounds.push(Meeting { parties: r.arrivals.len(), last: r.arrivals[0] });
        barriers.arrivals.extend(r.arrivals.iter().map(|&(_, at)| (at, number)));
        barriers.dropped.extend(&r.dropped);
    }
    barriers
}

fn is_barrier(rounds: &[&Round]) -> bool {
    let times = |most: Option<(_, usize)>| most.map_or(0, |(_, times)| times);
    let last = times(most_often(rounds.iter().map(|r| vec![r.last])));
    let same = times(most_often(rounds.iter().map(|r| {
        let mut tasks: Vec<u32> = r.arrivals.iter().map(|a| a.0).collect();
        tasks.sort_unstable();
        tasks
    })));
    let n = rounds.len();
    n >= ROUNDS_MIN && same * SAME >= n && (n - last) * OTHERS >= n
}

/// The most frequent one, of several the least, and how often it is there.
fn most_often<K: Ord>(all: impl Iterator<Item = K>) -> Option<(K, usize)> {
    let mut often: BTreeMap<K, usize> = BTreeMap::new();
    all.for_each(|k| *often.entry(k).or_default() += 1);
    often.into_iter().rev().max_by_key(|(_, times)| *times)
}

/// All that may be rounds of one, in the order of tasks and steps of who came last.
fn rounds(model: &Exact, wake_ups: &WakeUps) -> Vec<Round> {
    // Marked waits: whose, at which word, and where the mark is.
    let mut marked: FxHashMap<usize, (u32, u32, usize)> = FxHashMap::default();
    // Marked posts follow each other.
    let mut calls: Vec<(u32, u32, usize, Vec<usize>)> = Vec::new();
    for (i, task) in (0u32..).zip(&model.tasks) {
        let mut mark = None;
        for at in task.from..task.to {
            match model.steps[at].what() {
                What::Barrier(barrier) => mark = Some((barrier, at, false)),
                What::Sleep(..) => {
                    if let Some((barrier, on, false)) = mark.take() {
                        marked.insert(at, (i, barrier, on));
                    }
                }
                What::Post(..) => {
                    if let Some((barrier, on, posts)) = &mut mark {
                        if !std::mem::replace(posts, true) {
                            calls.push((i, *barrier, *on, Vec::new()));
                        }
                        calls.last_mut().expect("one begins with its first post").3.push(at);
                    }
                }
                What::Nop | What::Run(_) | What::Kernel(..) | What::Extra(_) => {}
                _ => mark = None,
            }
        }
    }
    // A recording without barriers needs no more.
    let wait_of: FxHashMap<usize, usize> =
        wake_ups.each().filter(|_| !calls.is_empty()).map(|(_, post, wait)| (post, wait)).collect();
    let mut rounds = Vec::new();
    for (last, barrier, at, posts) in calls {
        let mut r = Round { barrier, last, arrivals: vec![(last, at)], dropped: Vec::new() };
        for post in posts {
            if let Some(&wait) = wait_of.get(&post)
                && let Some(&(task, word, on)) = marked.get(&wait)
                && word == barrier
                // A damaged file may say that one comes twice.
                && r.arrivals.iter().all(|a| a.0 != task)
            {
                r.arrivals.push((task, on));
                r.dropped.extend([wait, post]);
            }
        }
        if r.arrivals.len() > 1 {
            rounds.push(r);
        }
    }
    rounds
}
