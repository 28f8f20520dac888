//! All interleavings without a bound on preemptions (the wake-up path: with a higher one): not part of a plain run.
//! `cargo test --release -p contend-check --test check exhaustive -- --ignored --nocapture`

use contend_check::models::lock::Exclusion;
use contend_check::models::wake_list::{Kind, PushDrain};
use contend_check::models::wakeup::{Path, Place, Wakeup};
use contend_check::{Loom, LoomRun, Model};
use contend_locks::{Hybrid, Mcs, PvFeatures, PvQueuedWith, PvTicket, Ticket, UnfairByte, UnfairQueued};

fn all<M: Model<Loom>>(what: &str, model: M)
where
    M::Shared: Send + Sync + 'static,
{
    explore(what, LoomRun::default(), model);
}

fn explore<M: Model<Loom>>(what: &str, run: LoomRun, model: M)
where
    M::Shared: Send + Sync + 'static,
{
    match run.check(model) {
        Ok(explored) => println!("{what}: {} executions", explored.executions),
        Err(failure) => panic!("{what}: {failure}"),
    }
}

#[test]
#[ignore = "a minute"]
fn locks() {
    all("mcs, 2 CPUs, 2 rounds", Exclusion::<Mcs<Loom>>::new(2, 2));
    all("ticket, 2 CPUs, 2 rounds", Exclusion::<Ticket<Loom>>::new(2, 2));
    all("unfair byte, 2 CPUs, 2 rounds", Exclusion::<UnfairByte<Loom>>::new(2, 2));
    all("ticket, 3 CPUs", Exclusion::<Ticket<Loom>>::new(3, 1));
    all("unfair byte, 3 CPUs", Exclusion::<UnfairByte<Loom>>::new(3, 1));
}

/// Waiters that halt: more expired budgets than in a plain run.
#[test]
#[ignore = "a minute"]
fn halting_locks() {
    type V4_2<P> = PvQueuedWith<P, { PvFeatures::V4_2.bits() }>;
    type Series<P> = PvQueuedWith<P, { PvFeatures::SERIES_2015.bits() }>;
    let run = |preemptions, coins| LoomRun { coins, ..LoomRun::preemptions(preemptions) };
    explore("pv 4.2, 2 CPUs, 2 rounds", run(3, 2), Exclusion::<V4_2<Loom>>::new(2, 2));
    explore("pv 4.2, 3 CPUs", run(2, 2), Exclusion::<V4_2<Loom>>::new(3, 1));
    explore("pv series, 2 CPUs, 2 rounds", run(3, 2), Exclusion::<Series<Loom>>::new(2, 2));
    explore("pv series, 3 CPUs", run(2, 2), Exclusion::<Series<Loom>>::new(3, 1));
    explore("hybrid, 2 CPUs, 2 rounds", run(3, 2), Exclusion::<Hybrid<Loom>>::new(2, 2));
    explore("hybrid, 3 CPUs", run(2, 2), Exclusion::<Hybrid<Loom>>::new(3, 1));
    explore("pv ticket, 3 CPUs", run(3, 1), Exclusion::<PvTicket<Loom>>::new(3, 1));
    explore("unfair queued, 3 CPUs", run(3, 1), Exclusion::<UnfairQueued<Loom>>::new(3, 1));
}

#[test]
#[ignore = "a minute"]
fn wake_list() {
    all("call list, 2 pushers", PushDrain { kind: Kind::Call, pushers: 2, tasks: 1, drains: 2, flags: true });
}

#[test]
#[ignore = "a minute"]
fn wakeup() {
    for path in [Path::RemoteLock, Path::QueueOnCpu] {
        for place in [Place::Previous, Place::Waker] {
            let model = Wakeup::<UnfairByte<Loom>>::new(1, path, place);
            explore(&format!("1 waker, {path:?}, {place:?}"), LoomRun::preemptions(5), model);
        }
    }
}
