//! Mistakes of logic in the locks, by name: each must be caught, and the tables say by what.

use crate::lock_mutants::watched;
use contend_check::models::lock::{Exclusion, HastyAdaptive};
use contend_check::mutate::{Check, Log, Named, Place, What, logic_table};
use contend_check::{Loom, LoomRun, Mutated, Observed, Shuttle, ShuttleRun, Watch};
use contend_locks::{Hybrid, PvFeatures, PvQueuedWith, PvTicket, UnfairQueued};

/// The series of 2015; without pending two CPUs are enough for a waiter at the head.
type NoPending<P> = PvQueuedWith<P, { PvFeatures { pending: false, ..PvFeatures::SERIES_2015 }.bits() }>;

// "Kick before release" of the pv queued locks is the release of the waiter's state, on which it halts. Their lock's release
// is in two steps, and after the first no head halts: the second may come after the kick, and the waiter spins until then.

/// Two expiries: a waiter that was kicked too early can halt again.
const LOOM: fn() -> LoomRun = || LoomRun::preemptions(2).coins(2);

macro_rules! logic {
    ($($name:ident: $lock:ident, peeks $peeks:literal, $named:expr;)*) => { $(
        #[test]
        fn $name() {
            type OnLoom = $lock<Mutated<Loom>>;
            type OnShuttle = $lock<Mutated<Observed<Shuttle>>>;
            let log = Log::default();
            let logged = log.clone();
            let watch = Watch::new(None, true);
            ShuttleRun::random(500)
                .check_as(Exclusion::<OnShuttle>::new(4, 2), move |p| Mutated::logged(watch.on(p), logged.clone()))
                .expect("no mistake");
            let checks: &[Check] = &[
                ("shuttle, 3 CPUs", |m| watched::<OnShuttle>(ShuttleRun::random(2_000), 3, $peeks, m)),
                ("shuttle, 4 CPUs", |m| watched::<OnShuttle>(ShuttleRun::random(2_000), 4, $peeks, m)),
                ("shuttle with priorities, 4 CPUs", |m| watched::<OnShuttle>(ShuttleRun::pct(4_000, 4), 4, $peeks, m)),
                ("shuttle with priorities, 3 CPUs, long", |m| watched::<OnShuttle>(ShuttleRun::pct(40_000, 6), 3, $peeks, m)),
                ("shuttle, 3 CPUs, long", |m| watched::<OnShuttle>(ShuttleRun::random(60_000), 3, $peeks, m)),
                ("shuttle with priorities, 4 CPUs, long", |m| watched::<OnShuttle>(ShuttleRun::pct(60_000, 8), 4, $peeks, m)),
                ("loom, 2 CPUs", |m| {
                    LOOM().check_as(Exclusion::<OnLoom>::new(2, 2), move |p| Mutated::new(p, m.clone()))
                }),
                ("loom, 2 CPUs, four expiries", |m| {
                    let run = LoomRun::preemptions(1).coins(4);
                    run.check_as(Exclusion::<OnLoom>::new(2, 2), move |p| Mutated::new(p, m.clone()))
                }),
            ];
            let table = logic_table(&log, $named, checks);
            insta::assert_snapshot!(&table);
            assert!(!table.contains("NOT CAUGHT"));
        }
    )* };
}

const fn named(name: &'static str, at: Place, what: What) -> Named {
    Named { name, at, what }
}

macro_rules! places {
    ($($file:ident)*) => { $(
        /// The place in that file.
        pub const fn $file(text: &'static str) -> Place {
            Place { file: concat!("locks/src/", stringify!($file), ".rs"), text, nth: None }
        }
    )* };
}
mod at {
    use super::Place;
    places!(adaptive pv_ticket unfair_queued pv pv_queued hybrid hash);
}

/// One of several such lines.
const fn nth(n: usize, place: Place) -> Place {
    Place { nth: Some(n), ..place }
}

logic! {
    pv_ticket: PvTicket, peeks false, &[
        named("kick before release", at::pv_ticket("SERVE_NEXT, Ordering"), What::After(at::pv_ticket("kick(p, word"))),
        named("slow before the waiter's word", at::pv_ticket("p.swap(word, waiting_for"), What::After(at::pv_ticket("p.fetch_or(&self.state, SLOW"))),
        named("slow before the mask", at::pv_ticket("p.fetch_or(mask"), What::After(at::pv_ticket("p.fetch_or(&self.state, SLOW"))),
        named("skip the recheck", at::pv_ticket("p.fetch_or(&self.state, SLOW"), What::Stale),
        named("halt without comparing", at::pv_ticket("p.halt("), What::Blind),
        named("no kick", at::pv_ticket("kick(p, word"), What::Skip),
        named("kick before the word is changed", at::pv_ticket("p.compare_exchange(word, wanted"), What::After(at::pv_ticket("kick(p, word"))),
        named("clear slow though others wait", at::pv_ticket("state & !SLOW"), What::Blind),
    ];
    unfair_queued: UnfairQueued, peeks true, &[
        named("unlink after unlock: the tail", at::unfair_queued("id.link(), before, Ordering"), What::After(at::unfair_queued("&self.locked, 0, Ordering::Release"))),
        named("unlink after unlock: the predecessor's next", at::unfair_queued("p.store(&prev.next"), What::After(at::unfair_queued("&self.locked, 0, Ordering::Release"))),
        named("unlink after unlock: the successor's prev", at::unfair_queued("p.store(&next.prev"), What::After(at::unfair_queued("&self.locked, 0, Ordering::Release"))),
        named("unlink after unlock: the last one's next", at::unfair_queued("p.compare_exchange(&prev.next"), What::After(at::unfair_queued("&self.locked, 0, Ordering::Release"))),
        named("forget who is first", at::unfair_queued("p.store(&next.head"), What::Skip),
        named("erase a new waiter's link", at::unfair_queued("p.compare_exchange(&prev.next"), What::Blind),
        named("empty the queue though somebody came", at::unfair_queued("id.link(), before, Ordering"), What::Blind),
        named("steal without comparing", at::unfair_queued("p.compare_exchange(&self.locked, 0, 1"), What::Blind),
    ];
    adaptive: HastyAdaptive, peeks true, &[
        named("kick before the state is changed", at::adaptive("p.compare_exchange(state, state::HEAD_HALTED"), What::After(at::adaptive("kicked.kick("))),
        named("no kick", at::adaptive("kicked.kick("), What::Skip),
        named("the head says that it halts before it does", at::adaptive("p.store(&node.state, state::HEAD_HALTED"), What::After(at::adaptive("with_halted(queue & !FORBID, id)"))),
        named("drop a fence: the holder's", at::adaptive("p.light_fence()"), What::Skip),
        named("drop a fence: the head's", at::adaptive("p.heavy_fence()"), What::Skip),
        named("skip the recheck: halt though the lock is free", at::adaptive("let halts = told && p.load(&self.lock, Ordering::Relaxed) & LOCKED != 0"), What::Stale),
        named("look at the queue before the release", at::adaptive("p.store(&self.lock, free"), What::After(at::adaptive("p.load(&self.queue"))),
        named("halt without comparing: behind others", at::adaptive("node.kicked.halt(p, &node.state, state::HALTED)"), What::Blind),
        named("halt without comparing: the head", at::adaptive("node.kicked.halt(p, &node.state, state::HEAD_HALTED)"), What::Blind),
        named("a node is left halted", at::adaptive("p.swap(&node.state, state::HEAD"), What::Skip),
        named("steal without comparing", at::adaptive("p.compare_exchange(&self.lock, lock, taken,"), What::Blind),
    ];
    pv_queued: NoPending, peeks true, &[
        named("drop a fence: the waiter's", nth(0, at::pv("p.fence(Ordering::SeqCst)")), What::Skip),
        named("drop a fence: the new owner's", nth(1, at::pv("p.fence(Ordering::SeqCst)")), What::Skip),
        named("kick before release", at::pv_queued("let halted = p.swap("), What::After(at::pv("kicked.kick("))),
        named("SLOW before hash", at::hash("p.compare_exchange(&entry.key, 0"), What::After(at::pv_queued("word | SLOW"))),
        named("skip the recheck", at::pv("p.load(locked, "), What::Stale),
        named("no kick", at::pv("kicked.kick("), What::Skip),
        named("halt without comparing", at::pv("kicked.halt("), What::Blind),
    ];
    hybrid: Hybrid, peeks true, &[
        named("drop a fence: the waiter's", nth(0, at::pv("p.fence(Ordering::SeqCst)")), What::Skip),
        named("drop a fence: the new owner's", nth(1, at::pv("p.fence(Ordering::SeqCst)")), What::Skip),
        named("kick before release", at::hybrid("let halted = p.swap("), What::After(at::pv("kicked.kick("))),
        named("SLOW before hash", at::hash("p.compare_exchange(&entry.key, 0"), What::After(at::hybrid("p.fetch_or(&self.word, SLOW, Ordering::AcqRel"))),
        named("skip the recheck: the head's", at::hybrid("p.fetch_or(&self.word, SLOW, Ordering::AcqRel"), What::Stale),
        named("skip the recheck: a waiter's", at::pv("p.load(locked, "), What::Stale),
        named("no kick", at::pv("kicked.kick("), What::Skip),
        named("halt without comparing", at::pv("kicked.halt("), What::Blind),
    ];
}
