//! Every lock from its one source in four worlds: native, loom, shuttle, the simulator.

use contend_check::models::lock::{Exclusion, HastyAdaptive, Moves, PairOrder, Pairs, Recheck};
use contend_check::models::pv::{Hashing, Hasty, PvHashFull};
use contend_check::{Explored, Failure, Loom, LoomRun, Shuttle, ShuttleRun, run_native, run_sim};
use contend_locks::{Hybrid, Mcs, PvFeatures, PvQueuedWith, PvTicket, Queued, Ticket, UnfairByte, UnfairQueued};
use contend_machine::Machine;
use contend_platform::native::Native;
use contend_sim::world::Sim;

fn passes(what: &str, result: Result<Explored, Failure>) {
    match result {
        Ok(explored) => println!("{what}: {} executions", explored.executions),
        Err(failure) => panic!("{what}: {failure}"),
    }
}

type Pv4_2<P> = PvQueuedWith<P, { PvFeatures::V4_2.bits() }>;
type PvKickAtUnlock<P> = PvQueuedWith<P, { PvFeatures::KICK_AT_UNLOCK.bits() }>;
type PvKickAhead<P> = PvQueuedWith<P, { PvFeatures::KICK_AHEAD.bits() }>;
type PvWaitEarly<P> = PvQueuedWith<P, { PvFeatures::WAIT_EARLY.bits() }>;
type PvPending<P> = PvQueuedWith<P, { PvFeatures::PENDING.bits() }>;
type PvHashIsFull<P> = PvHashFull<P, { PvFeatures::SERIES_2015.bits() }>;
type PvSeries2015<P> = PvQueuedWith<P, { PvFeatures::SERIES_2015.bits() }>;

macro_rules! four_worlds {
    ($($name:ident: $lock:ident $(, $preemptions:literal preemptions)?;)*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn native() {
                run_native(&Exclusion::<$lock<Native>>::new(2, 5_000));
                run_native(&Exclusion::<$lock<Native>>::with_try(2, 5_000));
                run_native(&Exclusion::<$lock<Native>>::new(6, 200));
            }
            #[test]
            fn simulated() {
                for cpus in [2, 8, 64] {
                    for machine in ["64c", "4n4c4t"] {
                        let machine = || Machine::load(machine).unwrap();
                        run_sim(machine(), &Exclusion::<$lock<Sim>>::new(cpus, 100));
                        run_sim(machine(), &Exclusion::<$lock<Sim>>::with_try(cpus, 100));
                    }
                }
            }
            #[test]
            fn loom_2() {
                passes("2 CPUs, 1 round", LoomRun::default().check(Exclusion::<$lock<Loom>>::new(2, 1)));
                passes("2 CPUs, 2 rounds", LoomRun::preemptions(3).check(Exclusion::<$lock<Loom>>::new(2, 2)));
            }
            #[test]
            fn loom_2_try() {
                let bounds: &[usize] = &[$($preemptions)?];
                let run = bounds.first().map_or(LoomRun::default(), |&n| LoomRun::preemptions(n));
                passes("2 CPUs, one tries", run.check(Exclusion::<$lock<Loom>>::with_try(2, 2)));
            }
            #[test]
            fn loom_3() {
                passes("3 CPUs", LoomRun::preemptions(3).check(Exclusion::<$lock<Loom>>::new(3, 1)));
            }
            #[test]
            fn shuttle_random() {
                passes("4 CPUs", ShuttleRun::random(2_000).check(Exclusion::<$lock<Shuttle>>::new(4, 3)));
                passes("8 CPUs", ShuttleRun::random(500).check(Exclusion::<$lock<Shuttle>>::with_try(8, 2)));
            }
            #[test]
            fn shuttle_pct() {
                passes("4 CPUs", ShuttleRun::pct(2_000, 3).check(Exclusion::<$lock<Shuttle>>::new(4, 3)));
                passes("8 CPUs", ShuttleRun::pct(500, 4).check(Exclusion::<$lock<Shuttle>>::with_try(8, 2)));
            }
            #[test]
            fn pairs() {
                passes("loom", LoomRun::preemptions(2).check(Pairs::<$lock<Loom>>::new(2, PairOrder::ByCpu)));
                passes("shuttle", ShuttleRun::random(1_000).check(Pairs::<$lock<Shuttle>>::new(5, PairOrder::ByCpu)));
                passes("pct", ShuttleRun::pct(1_000, 4).check(Pairs::<$lock<Shuttle>>::new(5, PairOrder::ByCpu)));
            }
            #[test]
            fn moves() {
                passes("loom", LoomRun::preemptions(2).check(Moves::<$lock<Loom>>::new(2, Recheck::Yes)));
                passes("shuttle", ShuttleRun::random(1_000).check(Moves::<$lock<Shuttle>>::new(4, Recheck::Yes)));
            }
        }
    )* };
}

four_worlds! {
    unfair_byte: UnfairByte;
    ticket: Ticket;
    mcs: Mcs;
    queued: Queued;
    pv_4_2: Pv4_2;
    pv_kick_at_unlock: PvKickAtUnlock;
    pv_kick_ahead: PvKickAhead;
    pv_wait_early: PvWaitEarly;
    pv_pending: PvPending;
    pv_series_2015: PvSeries2015;
    hybrid: Hybrid, 5 preemptions;
    pv_ticket: PvTicket;
    unfair_queued: UnfairQueued;
    adaptive: HastyAdaptive, 3 preemptions;
}

/// Locks whose waiters halt: spin budgets that expire or not, at any look. In two rounds so many preemptions and expiries.
macro_rules! halting {
    ($($name:ident: $lock:ident, $preemptions:literal $expiries:literal;)*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn loom_2_halts() {
                let run = |preemptions, coins| LoomRun { coins, ..LoomRun::preemptions(preemptions) };
                passes("2 CPUs, 1 round", run(3, 3).check(Exclusion::<$lock<Loom>>::new(2, 1)));
                passes("2 CPUs, 2 rounds", run($preemptions, $expiries).check(Exclusion::<$lock<Loom>>::new(2, 2)));
                passes("one tries", run(2, 3).check(Exclusion::<$lock<Loom>>::with_try(2, 2)));
            }
            #[test]
            fn loom_3_halts() {
                let run = |preemptions, coins| LoomRun { coins, ..LoomRun::preemptions(preemptions) };
                passes("3 CPUs, 1 expiry", run(2, 1).check(Exclusion::<$lock<Loom>>::new(3, 1)));
                passes("3 CPUs, 2 expiries", run(1, 2).check(Exclusion::<$lock<Loom>>::new(3, 1)));
            }
            #[test]
            fn halts_elsewhere() {
                passes("shuttle", ShuttleRun::random(1_000).check(Exclusion::<$lock<Shuttle>>::new(4, 3)));
                passes("pct", ShuttleRun::pct(2_000, 4).check(Exclusion::<$lock<Shuttle>>::new(4, 3)));
                for cpus in [2, 6, 16] {
                    run_native(&Exclusion::<Hasty<$lock<Native>>>::new(cpus, 200));
                    run_sim(Machine::load("4n4c4t").unwrap(), &Exclusion::<Hasty<$lock<Sim>>>::new(cpus, 200));
                }
            }
        }
    )* };
}

mod halts {
    use super::*;
    halting! {
        pv_4_2: Pv4_2, 2 2;
        pv_kick_at_unlock: PvKickAtUnlock, 2 2;
        pv_kick_ahead: PvKickAhead, 2 2;
        pv_wait_early: PvWaitEarly, 2 1;
        pv_pending: PvPending, 2 2;
        pv_series_2015: PvSeries2015, 2 2;
        hybrid: Hybrid, 3 2;
        pv_hash_full: PvHashIsFull, 2 2;
        pv_ticket: PvTicket, 2 2;
    }
}

#[test]
fn hash() {
    passes("2 CPUs", LoomRun::preemptions(3).check(Hashing { cpus: 2, rounds: 2 }));
    passes("3 CPUs", LoomRun::preemptions(2).check(Hashing { cpus: 3, rounds: 1 }));
    passes("4 CPUs", ShuttleRun::random(1_000).check(Hashing { cpus: 4, rounds: 3 }));
    run_native(&Hashing { cpus: 4, rounds: 5_000 });
}

/// Waiters that steal when a budget expires.
#[test]
fn unfair_queued_steals() {
    type Lock<P> = UnfairQueued<P>;
    let run = |preemptions, coins| LoomRun::preemptions(preemptions).coins(coins);
    passes("2 CPUs, 1 round", run(3, 3).check(Exclusion::<Lock<Loom>>::new(2, 1)));
    passes("2 CPUs, 2 rounds", run(2, 1).check(Exclusion::<Lock<Loom>>::new(2, 2)));
    passes("one tries", run(2, 1).check(Exclusion::<Lock<Loom>>::with_try(2, 2)));
    passes("3 CPUs", run(1, 1).check(Exclusion::<Lock<Loom>>::new(3, 1)));
    passes("8 CPUs", ShuttleRun::pct(1_000, 4).check(Exclusion::<Lock<Shuttle>>::new(8, 3)));
}
