//! Threads lose their CPU in the middle of things and go on where they were.

use crate::common::{MS, cpus, hog, machine, preset, script};
use crate::threads::{alike, booked, finished, run, run_beside};
use contend_locks::{MakeLock, RawLock, Ticket};
use contend_platform::{Account, CpuId, Ordering, Platform};
use contend_sim::crew::Crew;
use contend_sim::program::{Op, TaskSpec};
use contend_sim::thread::{Thread, ThreadSpec};
use std::cell::Cell;
use std::rc::Rc;

#[test]
fn a_holder_and_a_spinner_take_turns_on_one_cpu() {
    let r = run("1c", 1000 * MS, |outside| {
        let lock = Rc::new(<Ticket<Thread> as MakeLock<Thread>>::new(outside, 2));
        let inside = Rc::new(Cell::new(false));
        alike(2, move |t| {
            lock.lock(t);
            assert!(!inside.replace(true));
            // Longer than a slice: the holder is preempted while the other spins.
            let start = t.time();
            t.compute(20 * MS);
            let held = t.time() - start;
            // Only the first has somebody spin beside it.
            let (least, most) = if t.cpu().0 == 0 { (30, 60) } else { (20, 22) };
            assert!((least * MS..most * MS).contains(&held), "thread {}: {held}", t.cpu());
            assert!(inside.replace(false));
            lock.unlock(t);
        })
    });
    finished(&r);
    assert_eq!(booked(&r, Account::User) / MS, 40);
    assert!(booked(&r, Account::UserSpin) > 10 * MS, "{:?}", r.ledger());
    assert!(r.tasks.iter().all(|t| t.run.preempted > 0));
}

#[test]
fn a_preempted_spinner_sees_what_changed_meanwhile() {
    // The spinner shares CPU 0 with a hog; the word changes while the hog runs, often.
    let r =
        run_beside("2c", 1000 * MS, vec![TaskSpec { affinity: Some(cpus(&[0])), ..hog("hog", 200 * MS) }], |outside| {
            let w = Rc::new(outside.word(outside.line(), 0));
            let other = Rc::clone(&w);
            let spinner = move |t: &Thread| {
                for i in 1..=100 {
                    t.wait_until([&w], None, |[v]| v >= i);
                }
            };
            let writer = move |t: &Thread| {
                for i in 1..=100 {
                    t.compute(MS);
                    t.store(&other, i, Ordering::Release);
                }
            };
            vec![
                ThreadSpec { affinity: Some(cpus(&[0])), ..ThreadSpec::new("spinner", 0, spinner) },
                ThreadSpec { affinity: Some(cpus(&[1])), ..ThreadSpec::new("writer", 1, writer) },
            ]
        });
    finished(&r);
    let spinner = r.tasks.iter().find(|t| t.name == "spinner").expect("it ran");
    assert!(spinner.run.preempted > 5, "{:?}", spinner.run);
    assert!(spinner.exited.is_some_and(|at| at < 120 * MS), "{:?}", spinner.exited);
}

#[test]
fn computing_goes_on_elsewhere() {
    // Three on two CPUs: balancing moves one of them now and then.
    let p = preset("linux-6.18");
    let crew = Crew { threads: 3, ..Crew::new(machine("2c"), p.policy, p.features) };
    let code = |t: &Thread, (): &(), seen: &mut Vec<CpuId>| {
        for _ in 0..200 {
            t.compute(MS / 2);
            seen.push(t.on_cpu());
        }
    };
    let (r, mut seen) = crew.run(|_| (), code).expect("stacks");
    finished(&r);
    assert_eq!(booked(&r, Account::User), 300 * MS);
    seen.iter_mut().for_each(Vec::dedup);
    assert!(seen.iter().any(|on| on.len() > 1), "{seen:?}");
}

#[test]
fn a_wakeup_preempts_at_once() {
    // A task that sleeps most of the time wakes beside a computing thread on the only CPU.
    let ops = (0..50).flat_map(|_| [Op::Sleep(2 * MS), Op::Run(10_000)]).collect();
    let r = run_beside("1c", 1000 * MS, vec![script("light", ops)], |_| alike(1, |t| t.compute(150 * MS)));
    finished(&r);
    let light = r.tasks.iter().find(|t| t.name == "light").expect("it ran");
    // When it wakes first nothing is owed to it, and it waits for a tick.
    assert!(light.run.wait_sum < 5 * MS, "waited {} ns for a thread that computes", light.run.wait_sum);
    assert_eq!(booked(&r, Account::User), 150 * MS + 500_000);
}

#[test]
fn yields_alternate() {
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let own = std::sync::Arc::clone(&order);
    let r = run("1c", 1000 * MS, move |_| {
        alike(2, move |t| {
            for _ in 0..5 {
                own.lock().expect("no panic").push(t.cpu().0);
                t.sched_yield();
            }
        })
    });
    finished(&r);
    let order = order.lock().expect("no panic").clone();
    assert!(order.windows(2).filter(|w| w[0] != w[1]).count() >= 7, "{order:?}");
}

#[test]
fn a_wait_that_yields_lets_the_holder_run() {
    let time = |yield_after| {
        let r = run("1c", 1000 * MS, move |outside| {
            let lock = Rc::new(<Ticket<Thread> as MakeLock<Thread>>::new(outside, 2));
            let code = move |t: &Thread| {
                for _ in 0..3 {
                    lock.lock(t);
                    t.compute(4 * MS);
                    lock.unlock(t);
                    t.compute(MS / 10);
                }
            };
            let specs = alike(2, code);
            specs.into_iter().map(|s| ThreadSpec { yield_after, ..s }).collect()
        });
        finished(&r);
        r.virtual_ns
    };
    let (spinning, yielding) = (time(u64::MAX), time(100_000));
    assert!(yielding * 5 < spinning * 4, "{yielding} against {spinning}");
}

#[test]
fn partings_shorten_the_slices_of_many() {
    let switches = |points: bool| {
        let p = preset("linux-6.18");
        let crew = Crew { threads: 32, horizon: 200 * MS, ..Crew::new(machine("2c"), p.policy, p.features) };
        let code = move |t: &Thread, (): &(), _: &mut ()| loop {
            t.compute(2000);
            if points {
                t.part(t.parting());
            }
        };
        let (r, _) = crew.run(|_| (), code).expect("stacks");
        r.tasks.iter().map(|t| t.run.switches).sum::<u64>()
    };
    let (without, with) = (switches(false), switches(true));
    assert!(with > 4 * without, "{with} switches against {without}");
}
