//! How long computing takes, alone and with others.

use crate::common::MS;
use crate::threads::{alike, booked, finished, run};
use contend_platform::{Account, Ordering, Platform, Work};
use contend_sim::thread::ThreadSpec;

#[test]
fn threads_share_cpus() {
    // Threads, machine, ms at the least: the CPUs' fair share, or a thread's own length.
    for (n, on, ms) in [(1, "1c", 40), (3, "1c", 120), (2, "2c", 40), (4, "2c", 80), (5, "2c", 100), (16, "4c", 160)] {
        let r = run(on, 10_000 * MS, move |_| alike(n, |t| t.compute(40 * MS)));
        finished(&r);
        assert_eq!(booked(&r, Account::User), u64::from(n) * 40 * MS, "{n} on {on}: exactly what was asked for");
        let over = r.virtual_ns as f64 / (ms * MS) as f64;
        assert!((1.0..1.12).contains(&over), "{n} on {on}: {} ns", r.virtual_ns);
    }
}

#[test]
fn small_pieces_add_up() {
    let r = run("1c", 10_000 * MS, |_| alike(1, |t| (0..100_000).for_each(|_| t.charge(Work::Ns, 77))));
    finished(&r);
    assert_eq!(booked(&r, Account::User), 7_700_000);
}

#[test]
fn a_busy_sibling_slows_a_thread_down() {
    let alone = run("1n1l1c2t", 1000 * MS, |_| alike(1, |t| t.compute(20 * MS)));
    let both = run("1n1l1c2t", 1000 * MS, |_| alike(2, |t| t.compute(20 * MS)));
    let pct = crate::threads::machine("1n1l1c2t").costs.cpu.smt_speed_pct[1].value;
    let stretch = booked(&both, Account::User) as f64 / (2 * booked(&alone, Account::User)) as f64;
    assert!((stretch - 100.0 / pct as f64).abs() < 0.01, "{stretch} at {pct} %");
}

#[test]
fn a_clock_costs_and_a_record_does_not() {
    let r = run("1c", 10 * MS, |_| {
        alike(1, |t| {
            let start = t.time();
            let first = t.now();
            assert!(first > start);
            assert_eq!(t.time(), first);
            t.sleep(MS);
            assert!((MS..2 * MS).contains(&(t.time() - first)));
        })
    });
    finished(&r);
}

#[test]
fn a_miss_costs_a_transfer_and_a_hit_next_to_nothing() {
    let r = run("2c", 10 * MS, |outside| {
        let w = std::rc::Rc::new(outside.word(outside.line(), 0));
        let other = std::rc::Rc::clone(&w);
        let llc = crate::threads::machine("2c").costs.lines.llc.value;
        let on = |cpu: usize, spec: ThreadSpec| ThreadSpec { affinity: Some(crate::common::cpus(&[cpu])), ..spec };
        let writer = move |t: &contend_sim::thread::Thread| t.store(&other, 1, Ordering::Release);
        let reader = move |t: &contend_sim::thread::Thread| {
            t.sleep(MS);
            let cost = || {
                let start = t.time();
                t.load(&w, Ordering::Acquire);
                t.time() - start
            };
            assert_eq!(cost(), llc);
            assert!(cost() <= 2);
        };
        vec![on(0, ThreadSpec::new("writer", 0, writer)), on(1, ThreadSpec::new("reader", 1, reader))]
    });
    finished(&r);
}

#[test]
fn a_budget_is_wall_time() {
    let r = run("2c", 100 * MS, |outside| {
        let w = std::rc::Rc::new(outside.word(outside.line(), 0));
        alike(2, move |t| {
            for budget in [0, 1, 500, 30_000, 5 * MS] {
                let start = t.time();
                assert_eq!(t.wait_until([&w], Some(budget), |[v]| v == 1), None);
                let waited = t.time() - start;
                assert!((budget..budget + 20_000).contains(&waited), "{waited} of {budget}");
            }
            let start = t.time();
            assert_eq!(t.wait_until([&w], Some(0), |[v]| v == 0), Some([0]), "what is there needs no budget");
            assert!(t.time() - start < 100);
        })
    });
    finished(&r);
    assert!(booked(&r, Account::UserSpin) > 10 * MS);
}

#[test]
fn a_thread_can_ask_for_its_cpu_time() {
    let r = run("1c", 1000 * MS, |_| {
        alike(2, |t| {
            let before = t.cpu_time();
            t.compute(20 * MS);
            t.sleep(5 * MS);
            t.compute(MS);
            let used = t.cpu_time() - before;
            // Interrupts that come meanwhile count.
            assert!((21 * MS..22 * MS).contains(&used), "{used}");
        })
    });
    finished(&r);
    assert!(r.virtual_ns >= 42 * MS);
}
