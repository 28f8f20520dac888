//! The adaptive lock with its budgets cut down, so that every phase is near: loom, shuttle, the simulator.

use contend_check::models::lock::{Exclusion, HastyAdaptive as Lock};
use contend_check::{Explored, Failure, Loom, LoomRun, Shuttle, ShuttleRun, run_native, run_sim};
use contend_locks::Adaptive;
use contend_machine::Machine;
use contend_platform::native::Native;
use contend_sim::world::Sim;

fn passes(what: &str, result: Result<Explored, Failure>) {
    match result {
        Ok(explored) => println!("{what}: {} executions", explored.executions),
        Err(failure) => panic!("{what}: {failure}"),
    }
}

/// Budgets that expire: thief, queue, head, halt.
#[test]
fn loom_2() {
    for coins in 0..=2 {
        let run = LoomRun { coins, ..LoomRun::preemptions(2) };
        passes(&format!("2 CPUs, {coins} coins"), run.check(Exclusion::<Lock<Loom>>::new(2, 2)));
    }
}

#[test]
fn loom_2_try() {
    let run = LoomRun { coins: 2, ..LoomRun::preemptions(2) };
    passes("2 CPUs, one tries", run.check(Exclusion::<Lock<Loom>>::with_try(2, 2)));
}

#[test]
fn loom_3() {
    let run = LoomRun { coins: 2, ..LoomRun::preemptions(1) };
    passes("3 CPUs", run.check(Exclusion::<Lock<Loom>>::new(3, 1)));
}

#[test]
fn shuttle() {
    passes("4 CPUs", ShuttleRun::random(3_000).check(Exclusion::<Lock<Shuttle>>::new(4, 3)));
    passes("4 CPUs", ShuttleRun::pct(3_000, 4).check(Exclusion::<Lock<Shuttle>>::new(4, 3)));
    passes("8 CPUs", ShuttleRun::random(1_000).check(Exclusion::<Lock<Shuttle>>::with_try(8, 2)));
}

#[test]
fn native() {
    for cpus in [2, 6, 20] {
        run_native(&Exclusion::<Lock<Native>>::new(cpus, 3_000));
        run_native(&Exclusion::<Lock<Native>>::with_try(cpus, 3_000));
    }
}

#[test]
fn simulated() {
    for cpus in [2, 8, 64] {
        for machine in ["64c", "4n4c4t"] {
            let machine = || Machine::load(machine).unwrap();
            run_sim(machine(), &Exclusion::<Lock<Sim>>::new(cpus, 100));
            run_sim(machine(), &Exclusion::<Lock<Sim>>::with_try(cpus, 100));
            run_sim(machine(), &Exclusion::<Adaptive<Sim>>::new(cpus, 100));
        }
    }
}
