//! halt and kick are system calls on words: FUTEX_WAIT with a compared value, and FUTEX_WAKE.

use crate::common::MS;
use crate::threads::{alike, booked, finished, run};
use contend_platform::{Account, CpuId, Ordering, Platform};
use contend_sim::thread::{Thread, ThreadSpec};
use std::rc::Rc;

#[test]
fn a_halt_on_another_value_returns() {
    let r = run("1c", MS * 10, |outside| {
        let w = Rc::new(outside.word(outside.line(), 7));
        alike(1, move |t| {
            let start = t.time();
            t.halt(&w, 6);
            let cost = t.time() - start;
            assert!((200..20_000).contains(&cost), "a system call, and no sleep: {cost} ns");
            // The low 32 bits count.
            t.store(&w, 1 << 32 | 5, Ordering::Release);
            t.halt(&w, 6);
        })
    });
    finished(&r);
    assert!(booked(&r, Account::Syscall) > 400);
}

#[test]
fn a_kick_wakes_all_who_sleep_on_the_word_and_nobody_else() {
    let r = run("4c", 100 * MS, |outside| {
        let line = outside.line();
        let (a, b) = (Rc::new(outside.word(line, 0)), Rc::new(outside.word(line, 0)));
        let mut specs: Vec<ThreadSpec> = Vec::new();
        for i in 0..6 {
            let w = Rc::clone(if i < 4 { &a } else { &b });
            specs.push(ThreadSpec::new(format!("sleeper{i}"), i, move |t: &Thread| {
                t.halt(&w, 0);
                assert_ne!(t.load(&w, Ordering::Acquire), 0, "woken by a kick of another word");
                assert_eq!(t.time() > 30 * MS, i >= 4);
            }));
        }
        specs.push(ThreadSpec::new("kicker", 6, move |t: &Thread| {
            t.sleep(20 * MS);
            t.store(&a, 1, Ordering::Release);
            t.kick(&a, CpuId(0));
            t.sleep(20 * MS);
            t.store(&b, 1, Ordering::Release);
            t.kick(&b, CpuId(0));
        }));
        specs
    });
    finished(&r);
    assert!(booked(&r, Account::Idle) > 3 * 39 * MS, "sleepers cost nothing");
}

#[test]
fn a_kick_of_nobody_takes_no_lock() {
    let r = run("1c", MS * 10, |outside| {
        let w = Rc::new(outside.word(outside.line(), 0));
        alike(1, move |t| (0..10).for_each(|_| t.kick(&w, CpuId(0))))
    });
    finished(&r);
    let bucket = r.locks.iter().find(|l| l.kind == "futex").expect("a bucket was used");
    assert_eq!(bucket.stats.acquisitions, 0);
}

/// Two threads hand a word back and forth, each halting until it is its turn; the kick races with the halt in every way
/// that the delays make.
#[test]
fn no_wakeup_is_lost() {
    for (on, delay) in [("1c", 0), ("2c", 0), ("2c", 37), ("2c", 300), ("2c", 1100), ("2n1l1c1t", 450)] {
        let rounds = 3000;
        let r = run(on, 10_000 * MS, move |outside| {
            let w = Rc::new(outside.word(outside.line(), 0));
            alike(2, move |t| {
                let me = u64::from(t.cpu().0);
                for i in 0..rounds {
                    loop {
                        let v = t.load(&w, Ordering::Acquire);
                        if v % 2 == me {
                            break;
                        }
                        t.compute(delay * (i % 7) / 3);
                        t.halt(&w, v);
                    }
                    t.compute(delay * (i % 5));
                    t.fetch_add(&w, 1, Ordering::AcqRel);
                    t.kick(&w, CpuId(1 - me as u16));
                }
                if me == 1 {
                    assert_eq!(t.load(&w, Ordering::Acquire), 2 * rounds);
                }
            })
        });
        finished(&r);
    }
}
