//! Every ordering and every wait of the locks is there for a reason: mutants, and what catches each. The tables are
//! snapshots.

use contend_check::models::lock::{Exclusion, HastyAdaptive, Moves, PairOrder, Pairs, Recheck};
use contend_check::mutate::{Check, Log, Mutant, table};
use contend_check::{Explored, Failure, FailureKind, Loom, LoomRun, Mutated, Observed, Shuttle, ShuttleRun, Watch};
use contend_locks::{MakeLock, Mcs, PvTicket, Queued, Ticket, UnfairByte, UnfairQueued};
use std::sync::Arc;

/// A mutant of a lock on that many CPUs, under a watch; `peeks` as for [`Watch::new`].
pub(crate) fn watched<L>(run: ShuttleRun, cpus: usize, peeks: bool, m: Option<Arc<Mutant>>) -> Result<Explored, Failure>
where
    L: MakeLock<Mutated<Observed<Shuttle>>> + Send + Sync + 'static,
{
    let watch = Watch::new(L::BYPASS_MAX, peeks);
    let model = watch.over(Exclusion::<L>::new(cpus, 3));
    run.check_as(model, move |p| Mutated::new(watch.on(p), m.clone()))
}

macro_rules! mutants {
    ($($name:ident: $lock:ident, $file:literal, loom $loom:expr, peeks $peeks:literal;)*) => { $(
        #[test]
        fn $name() {
            type OnLoom = $lock<Mutated<Loom>>;
            type OnShuttle = $lock<Mutated<Observed<Shuttle>>>;
            let log = Log::default();
            for model in [Exclusion::<OnShuttle>::new(3, 2), Exclusion::with_try(3, 2)] {
                let (log, watch) = (log.clone(), Watch::new(None, true));
                ShuttleRun::random(200)
                    .check_as(model, move |p| Mutated::logged(watch.on(p), log.clone()))
                    .expect("no mistake");
            }
            let checks: &[Check] = &[
                ("loom, 2 CPUs", |m| {
                    $loom.check_as(Exclusion::<OnLoom>::new(2, 2), move |p| Mutated::new(p, m.clone()))
                }),
                ("loom, 2 CPUs, one tries", |m| {
                    $loom
                        .check_as(Exclusion::<OnLoom>::with_try(2, 2), move |p| Mutated::new(p, m.clone()))
                }),
                ("loom, 2 CPUs, two expiries", |m| {
                    let twice = LoomRun { coins: 2 * $loom.coins, ..$loom };
                    twice.check_as(Exclusion::<OnLoom>::new(2, 2), move |p| Mutated::new(p, m.clone()))
                }),
                ("loom, 3 CPUs", |m| {
                    LoomRun { preemptions: Some(1), ..$loom }.check_as(Exclusion::<OnLoom>::new(3, 1), move |p| Mutated::new(p, m.clone()))
                }),
                ("shuttle, 4 CPUs", |m| watched::<OnShuttle>(ShuttleRun::random(500), 4, $peeks, m)),
                ("shuttle with priorities, 4 CPUs", |m| watched::<OnShuttle>(ShuttleRun::pct(1_000, 4), 4, $peeks, m)),
            ];
            insta::assert_snapshot!(table($file, &log, checks));
        }
    )* };
}

mutants! {
    unfair_byte: UnfairByte, "locks/src/unfair_byte.rs", loom LoomRun::preemptions(2), peeks false;
    ticket: Ticket, "locks/src/ticket.rs", loom LoomRun::preemptions(2), peeks false;
    queued: Queued, "locks/src/queued.rs", loom LoomRun::preemptions(2), peeks false;
    mcs: Mcs, "locks/src/mcs.rs", loom LoomRun::preemptions(2), peeks false;
    pv_ticket: PvTicket, "locks/src/pv_ticket.rs", loom LoomRun::preemptions(2).coins(1), peeks false;
    adaptive: HastyAdaptive, "locks/src/adaptive.rs", loom LoomRun::preemptions(1).coins(2), peeks true;
    unfair_queued: UnfairQueued, "locks/src/unfair_queued.rs", loom LoomRun::preemptions(1).coins(1), peeks true;
}

/// Taking two locks in the order of the arguments closes a cycle of waits.
#[test]
fn pairs_as_given_deadlock() {
    let failure = LoomRun::preemptions(2).check(Pairs::<Ticket<Loom>>::new(2, PairOrder::AsGiven)).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock, "{failure}");
    let failure = ShuttleRun::pct(1_000, 4).check(Pairs::<Mcs<Shuttle>>::new(5, PairOrder::AsGiven)).unwrap_err();
    assert_eq!(failure.kind, FailureKind::NoProgress, "{failure}");
}

/// The lock of the run queue that a task was on a moment ago guards nothing.
#[test]
fn moves_without_recheck() {
    let failure = LoomRun::preemptions(2).check(Moves::<Ticket<Loom>>::new(2, Recheck::No)).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Assertion, "{failure}");
    let failure = ShuttleRun::random(1_000).check(Moves::<UnfairByte<Shuttle>>::new(4, Recheck::No)).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Assertion, "{failure}");
}
