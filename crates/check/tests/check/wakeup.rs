//! Sleeping and waking: no wake-up is lost, the task is on one queue at most and on one CPU at a time.

use contend_check::models::wakeup::{Path, Place, Wakeup};
use contend_check::{Explored, Failure, Loom, LoomRun, Shuttle, ShuttleRun, run_native};
use contend_locks::{Mcs, Ticket, UnfairByte};
use contend_platform::native::Native;

const PATHS: [Path; 3] = [Path::RemoteLock, Path::Queue, Path::QueueOnCpu];
const PLACES: [Place; 2] = [Place::Previous, Place::Waker];

fn passes(what: &str, result: Result<Explored, Failure>) {
    match result {
        Ok(explored) => println!("{what}: {} executions", explored.executions),
        Err(failure) => panic!("{what}: {failure}"),
    }
}

fn everywhere(check: impl Fn(Path, Place)) {
    for path in PATHS {
        for place in PLACES {
            check(path, place);
        }
    }
}

#[test]
fn loom_1_waker() {
    everywhere(|path, place| {
        let what = format!("1 waker, {path:?}, {place:?}");
        passes(&what, LoomRun::preemptions(3).check(Wakeup::<UnfairByte<Loom>>::new(1, path, place)));
    });
}

#[test]
fn loom_1_waker_polling() {
    everywhere(|path, place| {
        let what = format!("1 waker, {path:?}, {place:?}");
        passes(&what, LoomRun::preemptions(3).check(Wakeup::<UnfairByte<Loom>>::polling(1, path, place)));
    });
}

#[test]
fn loom_1_waker_delayed_dequeue() {
    everywhere(|path, place| {
        let what = format!("1 waker, {path:?}, {place:?}");
        passes(&what, LoomRun::preemptions(3).check(Wakeup::<UnfairByte<Loom>>::delayed(1, path, place)));
    });
}

#[test]
fn loom_2_wakers_delayed_dequeue() {
    everywhere(|path, place| {
        let what = format!("2 wakers, {path:?}, {place:?}");
        passes(&what, LoomRun::preemptions(1).check(Wakeup::<UnfairByte<Loom>>::delayed(2, path, place)));
    });
}

#[test]
fn loom_2_wakers() {
    everywhere(|path, place| {
        let what = format!("2 wakers, {path:?}, {place:?}");
        passes(&what, LoomRun::preemptions(2).check(Wakeup::<UnfairByte<Loom>>::new(2, path, place)));
    });
}

#[test]
fn shuttle() {
    everywhere(|path, place| {
        passes("random", ShuttleRun::random(1_000).check(Wakeup::<UnfairByte<Shuttle>>::new(3, path, place)));
        passes("random, polling", ShuttleRun::random(500).check(Wakeup::<Mcs<Shuttle>>::polling(4, path, place)));
        passes("delayed", ShuttleRun::random(1_000).check(Wakeup::<UnfairByte<Shuttle>>::delayed(3, path, place)));
        passes("delayed, pct", ShuttleRun::pct(500, 4).check(Wakeup::<Mcs<Shuttle>>::delayed(5, path, place)));
        passes("pct", ShuttleRun::pct(1_000, 4).check(Wakeup::<Ticket<Shuttle>>::new(4, path, place)));
        passes("pct, polling", ShuttleRun::pct(500, 4).check(Wakeup::<Mcs<Shuttle>>::polling(6, path, place)));
    });
}

#[test]
fn native() {
    everywhere(|path, place| {
        for _ in 0..50 {
            run_native(&Wakeup::<Mcs<Native>>::new(3, path, place));
            run_native(&Wakeup::<Ticket<Native>>::polling(2, path, place));
            run_native(&Wakeup::<UnfairByte<Native>>::delayed(3, path, place));
        }
    });
}
