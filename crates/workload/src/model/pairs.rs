//! Which post ends which wait, and where a waker cannot be ahead of the sleeper.
//!
//! A recording shows wake-ups, not messages: a client that reads a reply before it sleeps was woken by nobody, and the order between it and
//! the server is in no event. Were it free in a replay, clients would send requests whose forerunners are not yet
//! answered; servers would find their wake-ups there and hardly sleep. So where two tasks wake **each other** (a tenth as often one
//! way as the other, at least), a post is held until the sleeper has begun the wait that it ended in the recording. One
//! way only (a pipe's writer and its reader) the writer goes ahead as it likes.
//!
//! The k-th wait of a task for another is ended by the other's k-th post to it: wake-ups that ended no sleep are not in the
//! model.

use rustc_hash::FxHashMap;

use super::exact::Exact;
use super::step::What;

/// Posts are held between tasks of which the rarer direction of wake-ups has at least this part of the other's.
const MUTUAL_MIN: f64 = 0.1;

/// For each post that is held, by its step: the sleeper, and the step that is its wait.
pub(super) type Held = FxHashMap<usize, (u32, usize)>;

/// Find the posts that are held.
pub(super) fn held(model: &Exact) -> Held {
    // (waker, sleeper) to the waits, in order.
    let mut waits: FxHashMap<(u32, u32), Vec<usize>> = FxHashMap::default();
    for (sleeper, task) in (0u32..).zip(&model.tasks) {
        for at in task.from..task.to {
            if let What::By(waker) = model.steps[at].what() {
                waits.entry((waker, sleeper)).or_default().push(at - 1);
            }
        }
    }
    let count = |waker, sleeper| waits.get(&(waker, sleeper)).map_or(0, Vec::len) as f64;
    let mutual = |a, b| count(a, b).min(count(b, a)) >= MUTUAL_MIN * count(a, b).max(count(b, a));
    let mut posts: FxHashMap<(u32, u32), usize> = FxHashMap::default();
    let mut held = Held::default();
    for (waker, task) in (0u32..).zip(&model.tasks) {
        for at in task.from..task.to {
            let What::Post(sleeper) = model.steps[at].what() else { continue };
            let k = posts.entry((waker, sleeper)).or_default();
            let wait = waits.get(&(waker, sleeper)).and_then(|w| w.get(*k));
            *k += 1;
            if let Some(&wait) = wait.filter(|_| mutual(waker, sleeper)) {
                held.insert(at, (sleeper, wait));
            }
        }
    }
    held
}
