//! Which post ends which wait, and where it must not come before that.
//!
//! A recording shows wake-ups, not messages: a client that finds a reply before it sleeps was woken by nobody, and the order between
//! it and the server is in no event. Were it free in a replay, clients would send requests whose forerunners are not yet
//! answered; servers would find their wake-ups there and hardly sleep. Three kinds of pairs are told apart by how often they wake each
//! other:
//!
//! * **one way** (a pipe's writer and its reader): nothing is held. The writer goes ahead as it likes;
//! * **each other**, the rarer direction at least a tenth as often: a post is **owed** until the sleeper has begun the wait that it
//!   ended. The waker goes on meanwhile;
//! * **request and reply**: so, and most (60 %) of the sleeper's waits are for this waker. Every request is a wake-up then, since
//!   the server sleeps for it; of the replies only those that found the client asleep are. So a server that begins to wait has
//!   replied. Where the recording has a request, the client sends its next one to a server that has replied: the recorded one if it
//!   has, else any other; it sleeps while none has. Its recorded waits for servers, and their posts, say nothing more
//!   and are **dropped**.
//!
//! The order of requests may change, their number does not; a client never waits while a server that it has still to talk to
//! is ready. So the proof that a replay cannot deadlock (`exact`) holds: among a client's open requests take the one that came first in
//! the recording.
//!
//! The k-th wait of a task for another is ended by the other's k-th post to it: wake-ups that ended no sleep are not in the
//! model.

use rustc_hash::{FxHashMap, FxHashSet};

use super::exact::Exact;
use super::step::What;

/// Posts are owed between tasks of which the rarer direction of wake-ups has at least this part of the other's.
const MUTUAL_MIN: f64 = 0.1;
/// A server's waits are for its client at least in this part.
const SERVES_MIN: f64 = 0.6;

/// A post that must not come before the wait that it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub sleeper: u32,
    /// The step that is the wait.
    pub wait: usize,
    /// It is a request: the server's number among the client's.
    pub server: Option<usize>,
}

/// A server of one client.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    pub task: u32,
    /// Its waits for the client's requests, in order.
    pub waits: Vec<usize>,
}

/// What a replay holds back and leaves out, by step.
#[derive(Default)]
pub(super) struct Pairs {
    pub held: FxHashMap<usize, Held>,
    /// By client.
    pub servers: FxHashMap<u32, Vec<Server>>,
    pub dropped: FxHashSet<usize>,
}

/// Find them.
pub(super) fn find(model: &Exact) -> Pairs {
    // (waker, sleeper) to the waits and the posts, in order; all waits of each sleeper.
    let mut waits: FxHashMap<(u32, u32), Vec<usize>> = FxHashMap::default();
    let mut posts: FxHashMap<(u32, u32), Vec<usize>> = FxHashMap::default();
    let mut all = vec![0usize; model.tasks.len()];
    for (i, task) in (0u32..).zip(&model.tasks) {
        for at in task.from..task.to {
            match model.steps[at].what() {
                What::By(waker) => {
                    waits.entry((waker, i)).or_default().push(at - 1);
                    all[i as usize] += 1;
                }
                What::Post(sleeper, _) => posts.entry((i, sleeper)).or_default().push(at),
                _ => {}
            }
        }
    }
    let count = |waker, sleeper| waits.get(&(waker, sleeper)).map_or(0, Vec::len);
    let mut pairs = Pairs::default();
    // In an order that does not depend on hashes: servers are numbered.
    let mut sorted: Vec<_> = waits.iter().collect();
    sorted.sort_unstable_by_key(|(pair, _)| **pair);
    for (&(waker, sleeper), waits_for) in sorted {
        let (n, back) = (count(waker, sleeper), count(sleeper, waker));
        if (n.min(back) as f64) < MUTUAL_MIN * n.max(back) as f64 {
            continue;
        }
        let serves = |n: usize, server: u32| n as f64 >= SERVES_MIN * all[server as usize] as f64;
        // If both could be servers, the one that is woken more often is; between equals the one that was there first.
        let (this, other) = (serves(n, sleeper), serves(back, waker));
        let ahead = n > back || (n == back && sleeper < waker);
        let request = this && (!other || ahead);
        let reply = other && !request;
        let own = posts.get(&(waker, sleeper)).map_or(&[][..], |p| p);
        if reply {
            pairs.dropped.extend(waits_for.iter().chain(own));
        } else {
            let server = request.then(|| {
                let servers = pairs.servers.entry(waker).or_default();
                servers.push(Server { task: sleeper, waits: waits_for.clone() });
                servers.len() - 1
            });
            let held = std::iter::zip(own, waits_for).map(|(&at, &wait)| (at, Held { sleeper, wait, server }));
            pairs.held.extend(held);
        }
    }
    pairs
}
