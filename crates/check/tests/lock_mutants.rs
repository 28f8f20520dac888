//! Every ordering and every wait of the locks is there for a reason: mutants, and what catches each. The tables are
//! snapshots.

use contend_check::models::lock::{Exclusion, Moves, PairOrder, Pairs, Recheck};
use contend_check::mutate::{Check, Log, table};
use contend_check::{FailureKind, Loom, LoomRun, Mutated, Shuttle, ShuttleRun};
use contend_locks::{Mcs, Queued, Ticket, UnfairByte};

macro_rules! mutants {
    ($($name:ident: $lock:ident, $file:literal;)*) => { $(
        #[test]
        fn $name() {
            type OnLoom = $lock<Mutated<Loom>>;
            type OnShuttle = $lock<Mutated<Shuttle>>;
            let log = Log::default();
            for model in [Exclusion::<OnShuttle>::new(3, 2), Exclusion::with_try(3, 2)] {
                let log = log.clone();
                ShuttleRun::random(200).check_as(model, move |p| Mutated::logged(p, log.clone())).expect("no mistake");
            }
            let checks: &[Check] = &[
                ("loom, 2 CPUs", |m| {
                    LoomRun::preemptions(2).check_as(Exclusion::<OnLoom>::new(2, 2), move |p| Mutated::new(p, m.clone()))
                }),
                ("loom, 2 CPUs, one tries", |m| {
                    LoomRun::preemptions(2)
                        .check_as(Exclusion::<OnLoom>::with_try(2, 2), move |p| Mutated::new(p, m.clone()))
                }),
                ("loom, 3 CPUs", |m| {
                    LoomRun::preemptions(2).check_as(Exclusion::<OnLoom>::new(3, 1), move |p| Mutated::new(p, m.clone()))
                }),
                ("shuttle, 4 CPUs", |m| {
                    ShuttleRun::random(500)
                        .check_as(Exclusion::<OnShuttle>::new(4, 2), move |p| Mutated::new(p, m.clone()))
                }),
            ];
            insta::assert_snapshot!(table($file, &log, checks));
        }
    )* };
}

mutants! {
    unfair_byte: UnfairByte, "locks/src/unfair_byte.rs";
    ticket: Ticket, "locks/src/ticket.rs";
    queued: Queued, "locks/src/queued.rs";
    mcs: Mcs, "locks/src/mcs.rs";
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
