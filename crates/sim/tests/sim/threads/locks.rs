//! The generic locks on threads that lose their CPU.

use crate::common::{MS, machine, preset};
use crate::threads::{alike, run_within};
use contend_locks::algorithm::{Adaptive, Hybrid, MakeLock, Mcs, PvFeatures, PvQueuedWith, Queued, Ticket, UnfairByte};
use contend_platform::{LockEvent, Nanos, Platform};
use contend_sim::crew::Crew;
use contend_sim::host::{Limits, Outcome};
use contend_sim::thread::Thread;

/// A thread's record: acquisitions and the longest wait.
#[derive(Default)]
struct Record {
    taken: u64,
    wait_max: Nanos,
}

struct Shared<K> {
    lock: K,
    /// Changed in two steps, which another holder would see.
    guarded: <Thread as Platform>::Cell<(u64, u64)>,
}

/// Acquisitions a second of `threads` on `on`: critical section 100 ns, 500 ns outside, for 400 ms.
fn rate<K: MakeLock<Thread> + 'static>(threads: usize, on: &str) -> (f64, Vec<Record>) {
    let p = preset("linux-6.18");
    let crew = Crew { threads, horizon: 10_000 * MS, ..Crew::new(machine(on), p.policy, p.features) };
    let until = 400 * MS;
    let (r, records) = crew
        .run(
            move |outside| Shared::<K> {
                lock: MakeLock::new(outside, threads),
                guarded: outside.cell(outside.line(), (0, 0)),
            },
            move |t, shared, mine: &mut Record| {
                while t.time() < until {
                    let asked = t.time();
                    shared.lock.lock(t);
                    mine.wait_max = mine.wait_max.max(t.time() - asked);
                    // SAFETY: the lock is held.
                    let before = unsafe {
                        t.write(&shared.guarded, |g| {
                            assert_eq!(g.0, g.1, "two threads are inside");
                            g.0 += 1;
                            g.0
                        })
                    };
                    t.compute(100);
                    // SAFETY: the lock is held.
                    unsafe {
                        t.write(&shared.guarded, |g| {
                            assert_eq!(g.0, before, "two threads are inside");
                            g.1 += 1;
                        });
                    }
                    shared.lock.unlock(t);
                    mine.taken += 1;
                    t.compute(500);
                }
            },
        )
        .expect("stacks");
    assert_eq!(r.outcome, Outcome::Finished, "{}", r.outcome.detail());
    let taken: u64 = records.iter().map(|r| r.taken).sum();
    (taken as f64 * 1e9 / r.virtual_ns as f64, records)
}

/// All CPUs have a thread each: nobody is preempted for long.
fn fast<K: MakeLock<Thread> + 'static>() -> f64 {
    let (rate, _) = rate::<K>(2, "2c");
    assert!(rate > 1e6, "{rate} a second");
    rate
}

#[test]
fn first_come_first_served_collapses_when_threads_outnumber_cpus() {
    // The next in line has lost its CPU more often than not, and all others spin until it is back.
    for (two, eight) in [
        (fast::<Ticket<Thread>>(), rate::<Ticket<Thread>>(8, "2c").0),
        (fast::<Mcs<Thread>>(), rate::<Mcs<Thread>>(8, "2c").0),
        (fast::<Queued<Thread>>(), rate::<Queued<Thread>>(8, "2c").0),
    ] {
        assert!(eight * 20.0 < two, "{two} a second with 2 threads, {eight} with 8");
    }
}

#[test]
fn an_unfair_lock_does_not() {
    let two = fast::<UnfairByte<Thread>>();
    let (eight, records) = rate::<UnfairByte<Thread>>(8, "2c");
    assert!(eight * 10.0 > two, "{two} a second with 2 threads, {eight} with 8");
    assert!(records.iter().any(|r| r.wait_max > MS), "somebody waited for a slice");
}

#[test]
fn one_thread_sees_no_contention() {
    let (alone, records) = rate::<Ticket<Thread>>(1, "2c");
    assert!((1.2e6..1.67e6).contains(&alone), "{alone} a second");
    assert!(records[0].wait_max < 20_000);
}

/// Mutual exclusion is checked inside; a wake-up that is lost leaves a thread halted for ever, which `rate` reports.
#[test]
fn locks_that_halt_exclude_and_lose_no_wakeup() {
    for (threads, on) in [(2, "1c"), (3, "2c"), (8, "2c"), (8, "2n1l2c1t")] {
        rate::<Adaptive<Thread>>(threads, on);
        rate::<Hybrid<Thread>>(threads, on);
        rate::<PvQueuedWith<Thread, { PvFeatures::V4_2.bits() }>>(threads, on);
        rate::<PvQueuedWith<Thread, { PvFeatures::SERIES_2015.bits() }>>(threads, on);
    }
}

#[test]
fn a_lock_that_adapts_keeps_its_throughput_and_is_fairer() {
    let (two, _) = rate::<Adaptive<Thread>>(2, "2c");
    let (eight, records) = rate::<Adaptive<Thread>>(8, "2c");
    let (_, unfair) = rate::<UnfairByte<Thread>>(8, "2c");
    assert!(eight * 1.1 > two, "{two} a second with 2 threads, {eight} with 8");
    let longest = |all: &[Record]| all.iter().map(|r| r.wait_max).max();
    assert!(longest(&records) < longest(&unfair));
}

#[test]
fn lock_events_are_counted() {
    let p = preset("linux-6.18");
    let crew = Crew { threads: 4, ..Crew::new(machine("2c"), p.policy, p.features) };
    let code = |t: &Thread, (): &(), _: &mut ()| {
        t.lock_event(LockEvent::LockSlowpath, 1);
        t.lock_event(LockEvent::PvLatencyKick, 500);
    };
    let (r, _) = crew.run(|_| (), code).expect("stacks");
    let counts: Vec<_> = r.metrics.counts.iter().map(|(name, n)| (*name, *n)).collect();
    assert_eq!(counts, [("lock_slowpath", 4), ("pv_latency_kick", 2000)]);
}

#[test]
fn lock_events_of_the_warm_up_do_not_count() {
    let code = |t: &Thread| {
        t.lock_event(LockEvent::LockSlowpath, 1);
        t.compute(2 * MS);
        t.lock_event(LockEvent::LockSlowpath, 10);
    };
    let events = |warmup| {
        let r = run_within("4c", Limits { warmup, ..Limits::default() }, vec![], move |_| alike(4, code));
        r.metrics.counts.get("lock_slowpath").copied()
    };
    assert_eq!([0, MS, 3 * MS].map(events), [Some(44), Some(40), None]);
}
