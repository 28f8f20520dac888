//! How runs with threads end: what is reported, and that everything is freed.

use crate::common::{MS, preset};
use crate::threads::{alike, run, run_beside};
use contend_locks::{MakeLock, RawLock, Ticket};
use contend_platform::{CpuId, Ordering, Platform};
use contend_sim::guest::Guests;
use contend_sim::host::{Limits, Outcome, Setup, simulate};
use contend_sim::program::{Op, Workload};
use contend_sim::thread::{Thread, ThreadSpec};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts how many of it there are.
struct Counted(Arc<AtomicU64>);

impl Counted {
    fn new(count: &Arc<AtomicU64>) -> Self {
        count.fetch_add(1, Relaxed);
        Counted(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[test]
fn halted_threads_are_a_deadlock() {
    let r = run("2c", 60_000 * MS, |outside| {
        let w = Rc::new(outside.word(outside.line(), 3));
        alike(2, move |t| t.halt(&w, 3))
    });
    let Outcome::Deadlock(who) = &r.outcome else { panic!("{:?}", r.outcome) };
    assert_eq!(who.len(), 2);
    assert!(who[0].starts_with("t0 (task 0) waits for a kick of a word on line "), "{who:?}");
    assert!(who[0].ends_with(" that held 3"), "{who:?}");
}

#[test]
fn spinning_threads_are_a_deadlock_though_ticks_go_on() {
    // More threads than CPUs: the scheduler switches between them for ever.
    let r = run("2c", 600_000 * MS, |outside| {
        let lock = Rc::new(<Ticket<Thread> as MakeLock<Thread>>::new(outside, 8));
        let gate = Rc::new(outside.word(outside.line(), 0));
        alike(3, move |t| {
            lock.lock(t);
            t.halt(&gate, 0);
        })
    });
    let Outcome::Deadlock(who) = &r.outcome else { panic!("{:?}", r.outcome) };
    assert!(who.iter().any(|w| w.contains("a kick of a word")), "{who:?}");
    assert_eq!(who.iter().filter(|w| w.contains("spinning since")).count(), 2, "{who:?}");
    assert!(r.virtual_ns < 60_000 * MS);
}

#[test]
fn threads_that_wait_beside_one_that_works_are_not() {
    let r = run("2c", 100_000 * MS, |outside| {
        let w = Rc::new(outside.word(outside.line(), 0));
        alike(3, move |t| {
            if t.cpu().0 == 0 {
                t.compute(40_000 * MS);
                t.store(&w, 1, Ordering::Release);
            } else if t.cpu().0 == 1 {
                t.wait_until([&w], None, |[v]| v == 1);
            } else {
                t.sleep(50_000 * MS);
            }
        })
    });
    assert_eq!(r.outcome, Outcome::Finished);
}

#[test]
fn a_panic_is_the_outcome_and_everything_is_freed() {
    let count = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&count);
    let r = run("2c", 1000 * MS, move |outside| {
        let (w, own) = (Rc::new(outside.word(outside.line(), 0)), Rc::new(own));
        alike(5, move |t| {
            let _mine = Counted::new(&own);
            match t.cpu().0 {
                0 => t.halt(&w, 0),
                1 => drop(t.wait_until([&w], None, |[v]| v == 1)),
                2 => t.sleep(500 * MS),
                3 => t.compute(500 * MS),
                _ => {
                    t.compute(5 * MS);
                    panic!("the {}th thread has had enough", t.cpu().0 + 1);
                }
            }
        })
    });
    assert_eq!(r.outcome, Outcome::Panic("the 5th thread has had enough".into()));
    assert_eq!(count.load(Relaxed), 0, "values on the stacks");
    assert_eq!(Arc::strong_count(&count), 1, "and what the closures captured");
}

/// Uses its thread when dropped, as a lock's guard does.
struct Guard<'a> {
    thread: &'a Thread,
    lock: &'a Ticket<Thread>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.thread.compute(5 * MS);
        self.lock.unlock(self.thread);
        self.thread.sched_yield();
        let w = self.thread.word(self.thread.line(), 0);
        assert_eq!(self.thread.wait_until([&w], Some(100), |[v]| v == 1), None);
        self.thread.wait_until([&w], None, |[v]| v == 1);
        self.thread.halt(&w, 0);
        self.thread.kick(&w, CpuId(0));
        self.thread.call(Op::Sleep(MS));
    }
}

#[test]
fn destructors_may_use_the_platform_when_the_run_is_over() {
    for panics in [false, true] {
        let count = Arc::new(AtomicU64::new(0));
        let own = Arc::clone(&count);
        let r = run("2c", 20 * MS, move |outside| {
            let lock = Rc::new(<Ticket<Thread> as MakeLock<Thread>>::new(outside, 8));
            let own = Rc::new(own);
            alike(4, move |t| {
                let _mine = Counted::new(&own);
                lock.lock(t);
                let _guard = Guard { thread: t, lock: &lock };
                if panics {
                    t.compute(MS);
                    panic!("in a critical section");
                }
                t.compute(1000 * MS);
            })
        });
        let outcome = if panics { Outcome::Panic("in a critical section".into()) } else { Outcome::Horizon };
        assert_eq!(r.outcome, outcome);
        assert_eq!((count.load(Relaxed), Arc::strong_count(&count)), (0, 1));
    }
}

#[test]
fn a_caller_who_stops_the_run_frees_everything() {
    let count = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&count);
    let make = move |_: &Thread| {
        let own = Rc::new(own);
        alike(9, move |t| {
            let _mine = Counted::new(&own);
            loop {
                t.compute(10_000);
                t.sleep(1000);
            }
        })
    };
    let p = preset("linux-6.18");
    let workload = Workload { threads: Some(Box::new(make)), ..Workload::default() };
    let limits = Limits::default();
    let setup = Setup {
        machine: crate::threads::machine("4c"),
        features: p.features,
        workload,
        seed: 1,
        limits,
        guests: Guests::default(),
    };
    let mut looks = 0;
    let r = simulate(p.policy, setup, None, &mut |_| {
        looks += 1;
        looks < 2
    });
    assert_eq!(r.expect("stacks").outcome, Outcome::Interrupted);
    assert_eq!((count.load(Relaxed), Arc::strong_count(&count)), (0, 1));
}

#[test]
fn a_background_thread_does_not_keep_the_run_alive() {
    let r = run_beside("1c", 1000 * MS, vec![crate::common::hog("hog", 3 * MS)], |_| {
        let endless = |t: &Thread| loop {
            t.compute(MS);
        };
        vec![ThreadSpec { background: true, ..ThreadSpec::new("endless", 0, endless) }]
    });
    assert_eq!(r.outcome, Outcome::Finished);
    assert!(r.virtual_ns < 20 * MS);
}

#[test]
fn an_exit_is_a_return() {
    let r = run("1c", MS, |_| alike(1, |t| t.call(Op::Exit)));
    assert_eq!(r.outcome, Outcome::Panic("a thread exits by returning from its code".into()));
}
