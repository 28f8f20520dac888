//! The lock from its one source in four worlds. What each finds is in the guide.

use contend_check::models::lock::Exclusion;
use contend_check::{Loom, LoomRun, Observed, Shuttle, ShuttleRun, Watch, run_native, run_sim};
use contend_machine::Machine;
use contend_platform::native::Native;
use contend_sim::world::Sim;
use my_lock::Twa;

#[test]
fn on_os_threads() {
    run_native(&Exclusion::<Twa<Native>>::new(2, 5_000));
    run_native(&Exclusion::<Twa<Native>>::with_try(3, 1_000));
}

#[test]
fn on_simulated_cpus() {
    run_sim(Machine::load("4n4c4t").unwrap(), &Exclusion::<Twa<Sim>>::new(64, 100));
}

/// Every interleaving, and every value that a load may see, within a bound on preemptions.
#[test]
fn under_loom() {
    LoomRun::preemptions(3).check(Exclusion::<Twa<Loom>>::new(2, 2)).unwrap();
    LoomRun::preemptions(2).check(Exclusion::<Twa<Loom>>::with_try(2, 2)).unwrap();
    // Who is third in line waits in the array.
    LoomRun::preemptions(2).check(Exclusion::<Twa<Loom>>::new(3, 1)).unwrap();
}

/// Random interleavings of more CPUs, watched: nobody is overtaken.
#[test]
fn under_shuttle() {
    ShuttleRun::random(1_000).check(Exclusion::<Twa<Shuttle>>::with_try(5, 3)).unwrap();
    let watch = Watch::new(Some(0), false);
    let watched = watch.over(Exclusion::<Twa<Observed<Shuttle>>>::new(5, 3));
    ShuttleRun::pct(1_000, 3).check_as(watched, move |p| watch.on(p)).unwrap();
}
