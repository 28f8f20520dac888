//! The simulated benchmark: rows that make sense, shapes that are known, and the same twice.

use contend_bench::simulated::{NAMES, On, run};
use contend_bench::{Load, Row, contenders};
use contend_machine::Machine;
use contend_sched::features::Preset;

fn row(lock: &str, load: &Load, on: &str) -> Row {
    let machine = Machine::load(on).expect("the machine exists");
    let preset = Preset::find("linux-6.18").expect("it ships");
    run(lock, load, 0, &On { machine: &machine, preset: &preset }).unwrap_or_else(|e| panic!("{e}"))
}

fn load(threads: u32) -> Load {
    Load { threads, warmup_ns: 20_000_000, duration_ns: 150_000_000, ..Load::default() }
}

#[test]
fn our_contenders_can_be_simulated() {
    for name in contenders::NAMES.iter().filter(|n| contenders::is_ours(n)) {
        assert!(NAMES.contains(name), "{name}");
    }
}

#[test]
fn one_thread_is_as_fast_as_its_work() {
    for lock in NAMES {
        let r = row(lock, &load(1), "2c");
        // 100 ns inside, 500 outside on average, two clock reads, a few hits.
        assert!((1.3e6..1.65e6).contains(&r.throughput), "{lock}: {}", r.throughput);
        // The end may find it on its way into the lock, where it is not for long.
        assert!(r.jain == Some(1.0) && r.unfinished <= 1, "{lock}: {:?}, {}", r.jain, r.unfinished);
        assert!(r.wait_max_ns.is_some_and(|ns| ns < 20_000), "{lock}: {:?}", r.wait_max_ns);
        let p9999 = r.p9999_ns.expect("waits");
        assert!(p9999 < 20_000, "{lock}: only interrupts delay: {p9999}");
        assert!((0.48..0.51).contains(&r.cpu_share), "{lock}: {}", r.cpu_share);
    }
}

#[test]
fn with_a_cpu_for_each_thread_all_are_fast_and_queues_fair() {
    for lock in NAMES {
        let r = row(lock, &load(4), "4c");
        // A waiter of the queued unfair lock looks at the lock only now and then.
        let least = if *lock == "unfair-queued" { 1.0e6 } else { 1.5e6 };
        assert!(r.throughput > least, "{lock}: {}", r.throughput);
        if ["ticket", "mcs", "queued"].contains(lock) {
            assert!(r.jain > Some(0.999), "{lock}: {:?}", r.jain);
        }
    }
}

#[test]
fn oversubscribed_queues_collapse_and_the_unfair_lock_starves() {
    let fair = row("ticket", &load(8), "2c");
    let unfair = row("unfair-byte", &load(8), "2c");
    assert!(unfair.throughput > 10.0 * fair.throughput, "{} against {}", unfair.throughput, fair.throughput);
    assert!(unfair.wait_max_ns > Some(10_000_000), "{:?}", unfair.wait_max_ns);
}

/// A thread that gets nothing all the time is one that waits.
#[test]
fn who_still_waits_at_the_end_is_counted() {
    let load = Load { critical_ns: 1_000_000, ..load(2) };
    let r = row("adaptive", &load, "2c");
    assert!(r.unfinished > 0 && r.wait_max_ns > Some(100_000_000), "{r:?}");
}

#[test]
fn hogs_take_cpus_away() {
    let (alone, beside) = (row("unfair-byte", &load(2), "2c"), row("unfair-byte", &Load { hogs: 2, ..load(2) }, "2c"));
    let share = beside.cpu_share / alone.cpu_share;
    assert!((0.4..0.6).contains(&share), "{share}");
}

#[test]
fn the_same_seed_gives_the_same_row() {
    for lock in ["mcs", "unfair-byte"] {
        let [a, b] = [(); 2].map(|()| format!("{:?}", row(lock, &load(5), "2c")));
        assert_eq!(a, b);
        assert_ne!(a, format!("{:?}", row(lock, &Load { seed: 2, ..load(5) }, "2c")));
    }
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    let machine = Machine::load("2c").expect("the machine exists");
    let preset = Preset::find("linux-6.18").expect("it ships");
    let on = On { machine: &machine, preset: &preset };
    let error = run("std", &load(2), 0, &on).expect_err("it is not ours").to_string();
    assert!(error.contains("no lock named \"std\"") && error.contains("ticket"), "{error}");
    let error = run("ticket", &load(0), 0, &on).expect_err("no threads").to_string();
    assert_eq!(error, "threads = 0: must lie between 1 and 1024");
}
