//! Every lock from its one source in four worlds: native, loom, shuttle, the simulator.

use contend_check::models::lock::{Exclusion, Moves, PairOrder, Pairs, Recheck};
use contend_check::{Explored, Failure, Loom, LoomRun, Shuttle, ShuttleRun, run_native, run_sim};
use contend_locks::{Mcs, Queued, Ticket, UnfairByte};
use contend_machine::Machine;
use contend_platform::native::Native;
use contend_sim::world::Sim;

fn passes(what: &str, result: Result<Explored, Failure>) {
    match result {
        Ok(explored) => println!("{what}: {} executions", explored.executions),
        Err(failure) => panic!("{what}: {failure}"),
    }
}

macro_rules! four_worlds {
    ($($name:ident: $lock:ident;)*) => { $(
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
                passes("2 CPUs, one tries", LoomRun::default().check(Exclusion::<$lock<Loom>>::with_try(2, 2)));
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
}
