//! Mistakes of logic in the locks, by name: each must be caught, and the tables say by what.

use contend_check::models::lock::Exclusion;
use contend_check::mutate::{Check, Log, Mutant, Named, What, logic_table};
use contend_check::{Explored, Failure, Loom, LoomRun, Mutated, Observed, Shuttle, ShuttleRun, Watch};
use contend_locks::{PvTicket, RawLock, UnfairQueued};
use std::sync::Arc;

/// Two expiries: a waiter that was kicked too early can halt again.
const LOOM: fn() -> LoomRun = || LoomRun::preemptions(2).coins(2);

macro_rules! logic {
    ($($name:ident: $lock:ident, $file:literal, peeks $peeks:literal, $named:expr;)*) => { $(
        #[test]
        fn $name() {
            type OnLoom = $lock<Mutated<Loom>>;
            type OnShuttle = $lock<Mutated<Observed<Shuttle>>>;
            fn watched(run: ShuttleRun, cpus: usize, mutant: Option<Arc<Mutant>>) -> Result<Explored, Failure> {
                let watch = Watch::new(<OnShuttle as RawLock<Mutated<Observed<Shuttle>>>>::BYPASS_MAX, $peeks);
                let model = watch.over(Exclusion::<OnShuttle>::new(cpus, 3));
                run.check_as(model, move |p| Mutated::new(watch.on(p), mutant.clone()))
            }
            let log = Log::default();
            let logged = log.clone();
            let watch = Watch::new(None, true);
            ShuttleRun::random(500)
                .check_as(Exclusion::<OnShuttle>::new(4, 2), move |p| Mutated::logged(watch.on(p), logged.clone()))
                .expect("no mistake");
            let checks: &[Check] = &[
                ("shuttle, 3 CPUs", |m| watched(ShuttleRun::random(2_000), 3, m)),
                ("shuttle, 4 CPUs", |m| watched(ShuttleRun::random(2_000), 4, m)),
                ("shuttle with priorities, 4 CPUs", |m| watched(ShuttleRun::pct(4_000, 4), 4, m)),
                ("loom, 2 CPUs", |m| {
                    LOOM().check_as(Exclusion::<OnLoom>::new(2, 2), move |p| Mutated::new(p, m.clone()))
                }),
            ];
            let table = logic_table($file, &log, $named, checks);
            insta::assert_snapshot!(&table);
            assert!(!table.contains("NOT CAUGHT"));
        }
    )* };
}

const fn named(name: &'static str, at: &'static str, what: What) -> Named {
    Named { name, at, what }
}

logic! {
    pv_ticket: PvTicket, "locks/src/pv_ticket.rs", peeks false, &[
        named("kick before release", "SERVE_NEXT, Ordering", What::After("p.kick(")),
        named("slow before the waiter's word", "p.swap(word, waiting_for", What::After("p.fetch_or(&self.state, SLOW")),
        named("slow before the mask", "p.fetch_or(mask", What::After("p.fetch_or(&self.state, SLOW")),
        named("skip the recheck", "p.fetch_or(&self.state, SLOW", What::Stale),
        named("halt without comparing", "p.halt(", What::Blind),
        named("no kick", "p.kick(", What::Skip),
        named("kick before the word is changed", "p.compare_exchange(word, wanted", What::After("p.kick(")),
        named("clear slow though others wait", "state & !SLOW", What::Blind),
    ];
    unfair_queued: UnfairQueued, "locks/src/unfair_queued.rs", peeks true, &[
        named("unlink after unlock: the tail", "id.link(), before, Ordering", What::After("&self.locked, 0, Ordering::Release")),
        named("unlink after unlock: the predecessor's next", "p.store(&prev.next", What::After("&self.locked, 0, Ordering::Release")),
        named("unlink after unlock: the successor's prev", "p.store(&next.prev", What::After("&self.locked, 0, Ordering::Release")),
        named("unlink after unlock: the last one's next", "p.compare_exchange(&prev.next", What::After("&self.locked, 0, Ordering::Release")),
        named("forget who is first", "p.store(&next.head", What::Skip),
        named("erase a new waiter's link", "p.compare_exchange(&prev.next", What::Blind),
        named("empty the queue though somebody came", "id.link(), before, Ordering", What::Blind),
        named("steal without comparing", "p.compare_exchange(&self.locked, 0, 1", What::Blind),
    ];
}
