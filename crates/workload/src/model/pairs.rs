//! Which post ends which wait, and where it must not come before that.
//!
//! A recording shows wake-ups, not messages: a client that finds a reply before it sleeps was woken by nobody, and the order between
//! it and the server is in no event. Were it free in a replay, clients would send requests whose forerunners are not yet
//! answered; servers would find their wake-ups there and hardly sleep. Three kinds of pairs are told apart by how often they wake each
//! other:
//!
//! * **one way** (a pipe's writer and its reader), at least ten times: a **stream**. The writer goes ahead as it likes. A post that comes
//!   while its reader is awake waits for that to sleep, while the writer is awake (below);
//! * **each other**, at least ten times and three times back, the rarer direction at least a tenth as often: a post is **owed** until
//!   the sleeper has begun the wait that it ended. The waker goes on meanwhile;
//! * **request and reply**: so, most (60 %) of the sleeper's waits are for this waker, and of the waker's waits for the sleeper hardly
//!   any (a quarter at most; in fitted roles 60 %) follow another without a request in between. Every request is a wake-up then, since
//!   the server sleeps for it; of the replies only those that found the client asleep are. So a server that begins to wait has
//!   replied. Where the recording has a request, the client sends its next one to a server that has replied: the recorded one if it
//!   has, else any other of its **kind** (name without the number at its end, and parent); it sleeps while none has. Its recorded
//!   waits for servers, and their posts, say nothing more and are **dropped**.
//!
//! The order of requests may change, their number does not. A client that stops for anything but a server of a kind, a
//! recorded wait, first **makes good**: no server may then have had fewer requests than it had at that point of the recording. What one
//! lacks it gets, owed if it is not ready, and the client leaves out as many of its later ones to that kind. Without that a server might
//! lack the request that another stood in for, and the client wait for what only that server's work brings about.
//!
//! So the proof that a replay cannot deadlock (`exact`) holds: a post that stands before a client's stop has been made or is owed, whoever
//! stood in; and of a client that no server of a kind is ready for, one of these has had no more requests than in the recording,
//! so that it is stuck before a wait that stands before the client's request.
//!
//! **Streams.** A message that finds its reader awake wakes nobody, and is in no event. Of those that did, some would have found it asleep in
//! a replay, which cannot know; of those that found it asleep, some find it awake. Were the latter remembered, as a semaphore does, the
//! reader would lose sleeps and never gain any; a little disorder becomes a reader that hardly sleeps. So a post for a reader that is
//! awake is made when it sleeps again, by whichever writer is the first that gets to it: which one it is for is not asked. Before a writer
//! sleeps or ends, it makes what is left: that is there, and lets the reader pass a wait.
//!
//! **One ahead.** Who owes a post, of a stream or of an exchange, to a task that is awake, waits before the next one to it until that stops: pipes
//! and queues are full at some time, and recorded posts each found their task asleep. See `Player::hold_back` for why this ends.
//!
//! Which wait each post ended: `wake_ups`.

use rustc_hash::{FxHashMap, FxHashSet};

use super::exact::Exact;
use super::wake_ups::WakeUps;

/// Posts are owed between tasks of which the rarer direction of wake-ups has at least this part of the other's.
const MUTUAL_MIN: f64 = 0.1;
/// A server's waits are for its client at least in this part.
const SERVES_MIN: f64 = 0.6;
/// Of a client's waits for its server at most this part follow another without a request in between, for either use of what is found.
///
/// In a replay: requests that find the server awake are in no event. It plays those that are as all there are, so there may be few others.
pub(super) const REPLAYED: f64 = 0.25;
/// In roles, whose servers take what is there before they wait. Beyond that they are no requests: two tasks that take turns have some 80 %.
pub(super) const IN_ROLES: f64 = 0.6;
/// A handshake at the start and one at the exit are no exchange: so many wake-ups in the one direction, and in the rarer one.
const OFTEN_MIN: usize = 10;
const BACK_MIN: usize = 3;

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
    /// The first of the client's servers that it can stand in for, and they for it.
    pub kind: usize,
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
    /// Posts that go one way, and the waits that they ended.
    pub streams: FxHashSet<usize>,
}

/// Find them, among the wake-ups that are played; `unasked_max` is [`REPLAYED`] or [`IN_ROLES`].
pub(super) fn find(model: &Exact, wake_ups: &WakeUps, unasked_max: f64) -> Pairs {
    // All waits of each sleeper.
    let mut all = vec![0usize; model.tasks.len()];
    for ((_, sleeper), waits) in &wake_ups.waits {
        all[*sleeper as usize] += waits.len();
    }
    let count = |waker, sleeper| wake_ups.waits.get(&(waker, sleeper)).map_or(0, Vec::len);
    let parents = model.parents();
    let kind = |i: u32| {
        let name = model.tasks[i as usize].name.trim_end_matches(|c: char| c.is_ascii_digit());
        (name, parents[i as usize])
    };
    let mut pairs = Pairs::default();
    // In an order that does not depend on hashes: servers are numbered.
    let mut sorted: Vec<_> = wake_ups.waits.iter().collect();
    sorted.sort_unstable_by_key(|(pair, _)| **pair);
    for (&(waker, sleeper), waits_for) in sorted {
        let (n, back) = (count(waker, sleeper), count(sleeper, waker));
        let own = wake_ups.posts_of(waker, sleeper);
        let (rare, often) = (n.min(back), n.max(back));
        if often < OFTEN_MIN || rare < BACK_MIN || (rare as f64) < MUTUAL_MIN * often as f64 {
            if n >= OFTEN_MIN {
                pairs.streams.extend(waits_for.iter().chain(own));
            }
            continue;
        }
        let serves = |client, server: u32| {
            let (n, replies) = (count(client, server), count(server, client));
            n >= OFTEN_MIN
                && n as f64 >= SERVES_MIN * all[server as usize] as f64
                && unasked(wake_ups, client, server) as f64 <= unasked_max * replies as f64
        };
        // If both could be servers, the one that is woken more often is; between equals the one that was there first.
        let (this, other) = (serves(waker, sleeper), serves(sleeper, waker));
        let ahead = n > back || (n == back && sleeper < waker);
        let request = this && (!other || ahead);
        let reply = other && !request;
        if reply {
            pairs.dropped.extend(waits_for.iter().chain(own));
        } else {
            let server = request.then(|| {
                let servers = pairs.servers.entry(waker).or_default();
                let kind = servers.iter().position(|s| kind(s.task) == kind(sleeper)).unwrap_or(servers.len());
                let waits = waits_for[..own.len().min(waits_for.len())].to_vec();
                servers.push(Server { task: sleeper, kind, waits });
                servers.len() - 1
            });
            let held = std::iter::zip(own, waits_for).map(|(&at, &wait)| (at, Held { sleeper, wait, server }));
            pairs.held.extend(held);
        }
    }
    pairs
}

/// How many of `client`'s waits for `server` follow another without a post to it in between: what came then was no reply to one.
fn unasked(wake_ups: &WakeUps, client: u32, server: u32) -> usize {
    let posts = wake_ups.posts_of(client, server);
    let before = |wait: &usize| posts.partition_point(|post| post < wait);
    let waits = wake_ups.waits.get(&(server, client)).map_or(&[][..], Vec::as_slice);
    waits.windows(2).filter(|two| before(&two[0]) == before(&two[1])).count()
}

#[cfg(test)]
mod tests {
    use contend_sim::program::Sched;

    use super::*;
    use crate::model::Task;
    use crate::model::step::{Step, What, Why};

    /// Tasks that take these steps.
    fn model(names: &[&str], tasks: impl IntoIterator<Item = Vec<What>>) -> Exact {
        let mut model = Exact::default();
        for (i, (name, steps)) in names.iter().zip(tasks).enumerate() {
            let from = model.steps.len();
            model.steps.extend(steps.into_iter().map(Step::new));
            let (pid, to) = (i as u32 + 1, model.steps.len());
            let (name, sched) = ((*name).into(), Sched::default());
            model.tasks.push(Task { name, pid, sched, session: None, from, to, initial: true, exited: true });
        }
        model
    }

    /// A client that asks each of these in turn, so often.
    fn found(servers: &[&str], rounds: usize) -> Option<Vec<usize>> {
        let by = |task| [What::Sleep(1_000, Why::Task), What::By(task)];
        let mut steps = vec![Vec::new(); servers.len() + 1];
        for server in (0..rounds).flat_map(|_| 1..=servers.len() as u32) {
            steps[0].push(What::Post(server, false));
            steps[0].extend(by(server));
            steps[server as usize].extend(by(0));
            steps[server as usize].push(What::Post(0, false));
        }
        let names: Vec<&str> = std::iter::once("client").chain(servers.iter().copied()).collect();
        let model = model(&names, steps);
        find(&model, &WakeUps::of(&model), REPLAYED).servers.get(&0).map(|s| s.iter().map(|s| s.kind).collect())
    }

    #[test]
    fn few_exchanges_are_no_service() {
        assert_eq!(found(&["postgres", "postgres"], 2), None);
        assert_eq!(found(&["postgres", "postgres"], OFTEN_MIN - 1), None);
        assert_eq!(found(&["postgres", "postgres"], OFTEN_MIN), Some(vec![0, 0]));
    }

    /// Two tasks of which each wakes the other so often in a row.
    fn taking_turns(in_a_row: usize) -> Pairs {
        let by = |task| [What::Sleep(1_000, Why::Task), What::By(task)];
        let mut steps = [Vec::new(), Vec::new()];
        for (a, b) in (0..40).flat_map(|round| std::iter::repeat_n((round % 2, 1 - round % 2), in_a_row)) {
            steps[a].push(What::Post(b as u32, false));
            steps[b].extend(by(a as u32));
        }
        let model = model(&["turn", "turn"], steps);
        find(&model, &WakeUps::of(&model), REPLAYED)
    }

    #[test]
    fn what_comes_without_a_request_is_no_reply() {
        let asks = taking_turns(1);
        assert_eq!((asks.servers.len(), asks.dropped.is_empty()), (1, false));
        // Nothing of this is dropped: each of these wake-ups was one.
        let turns = taking_turns(4);
        assert_eq!((turns.servers.len(), turns.dropped.len(), turns.held.len()), (0, 0, 160));
    }

    #[test]
    fn servers_stand_in_for_their_kind() {
        assert_eq!(found(&["worker-1", "logger", "worker-12", "logger"], 20), Some(vec![0, 1, 0, 1]));
    }
}
