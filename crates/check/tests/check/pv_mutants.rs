//! Mutants of the paravirtual queued spinlocks: of what they share, of the two locks, of the hash. As in `lock_mutants`, with
//! budgets that expire.

use contend_check::models::lock::Exclusion;
use contend_check::models::pv::Hashing;
use contend_check::mutate::{Check, Log, table};
use contend_check::{LoomRun, Mutated, ShuttleRun};
use contend_locks::{Hybrid, MakeLock, PvFeatures, PvQueuedWith};

type V4_2<P> = PvQueuedWith<P, { PvFeatures::V4_2.bits() }>;
type Series2015<P> = PvQueuedWith<P, { PvFeatures::SERIES_2015.bits() }>;
/// The series without pending: two CPUs are enough for a waiter at the head.
type NoPending<P> = PvQueuedWith<P, { PvFeatures { pending: false, ..PvFeatures::SERIES_2015 }.bits() }>;

/// Log the sites that a lock passes.
fn log<L: MakeLock<Mutated<contend_check::Shuttle>> + Send + Sync + 'static>(log: &Log) {
    for model in [Exclusion::<L>::new(4, 2), Exclusion::with_try(4, 2)] {
        let log = log.clone();
        ShuttleRun::random(500).check_as(model, move |p| Mutated::logged(p, log.clone())).expect("no mistake");
    }
}

macro_rules! loom {
    ($what:literal, $lock:ident, $cpus:literal, $rounds:literal, $preemptions:literal, $coins:literal) => {
        ($what, |m| {
            LoomRun { coins: $coins, ..LoomRun::preemptions($preemptions) }
                .check_as(Exclusion::<$lock<_>>::new($cpus, $rounds), move |p| Mutated::new(p, m.clone()))
        })
    };
}
macro_rules! tries {
    ($what:literal, $lock:ident) => {
        ($what, |m| {
            LoomRun { coins: 1, ..LoomRun::preemptions(2) }
                .check_as(Exclusion::<$lock<_>>::with_try(2, 2), move |p| Mutated::new(p, m.clone()))
        })
    };
}
macro_rules! shuttle {
    ($what:literal, $lock:ident, $cpus:literal) => {
        ($what, |m| {
            ShuttleRun::random(500).check_as(Exclusion::<$lock<_>>::new($cpus, 2), move |p| Mutated::new(p, m.clone()))
        })
    };
}

const PV_CHECKS: &[Check] = &[
    loom!("loom, 4.2, 2 CPUs, 1 round", V4_2, 2, 1, 2, 2),
    loom!("loom, series, 2 CPUs, 1 round", Series2015, 2, 1, 2, 2),
    tries!("loom, 4.2, one tries", V4_2),
    loom!("loom, 4.2, 2 CPUs, 2 rounds", V4_2, 2, 2, 2, 1),
    loom!("loom, without pending, 2 CPUs, 2 rounds", NoPending, 2, 2, 2, 1),
    shuttle!("shuttle, 4.2, 4 CPUs", V4_2, 4),
    shuttle!("shuttle, series, 4 CPUs", Series2015, 4),
];
const HYBRID_CHECKS: &[Check] = &[
    loom!("loom, 2 CPUs, 1 round", Hybrid, 2, 1, 2, 2),
    tries!("loom, one tries", Hybrid),
    loom!("loom, 2 CPUs, 2 rounds", Hybrid, 2, 2, 2, 2),
    shuttle!("shuttle, 4 CPUs", Hybrid, 4),
    loom!("loom, 3 CPUs", Hybrid, 3, 1, 2, 1),
];

fn pv_log() -> Log {
    let found = Log::default();
    log::<V4_2<_>>(&found);
    log::<Series2015<_>>(&found);
    found
}

#[test]
fn pv_queued() {
    insta::assert_snapshot!(table("locks/src/pv_queued.rs", &pv_log(), PV_CHECKS));
}

#[test]
fn shared() {
    insta::assert_snapshot!(table("locks/src/pv.rs", &pv_log(), PV_CHECKS));
}

#[test]
fn hash() {
    const CHECKS: &[Check] = &[
        ("loom, hash alone, 2 CPUs", |m| {
            LoomRun::preemptions(2).check_as(Hashing { cpus: 2, rounds: 2 }, move |p| Mutated::new(p, m.clone()))
        }),
        loom!("loom, 4.2, 2 CPUs, 1 round", V4_2, 2, 1, 2, 2),
    ];
    insta::assert_snapshot!(table("locks/src/hash.rs", &pv_log(), CHECKS));
}

#[test]
fn hybrid() {
    let found = Log::default();
    log::<Hybrid<_>>(&found);
    insta::assert_snapshot!(table("locks/src/hybrid.rs", &found, HYBRID_CHECKS));
}
