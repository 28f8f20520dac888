//! What the model must show of the study remote-wakeup-queue-2010 (mechanisms F.2), with the workloads of
//! `studies/remote-wakeup-queue-2010`. One test an invariant; what the model misses is pinned, with the suspected cause.
//!
//! `crates/sim/tests/sim/rowand.rs` has the weaknesses of the patch, and the fall of interrupts with the batch on one list.

use crate::common::{free, run_on, spec};
use contend_machine::Machine;
use contend_platform::Account;
use contend_sched::features::Preset;
use contend_sim::guest::Guests;
use contend_sim::host::{Limits, RunResult, Setup, simulate};

const BEFORE: &str = "linux-2.6.37";
const AFTER: &str = "linux-2.6.37-rowand";

/// Contended acquisitions of run-queue locks, and the time waited in them.
fn contention(r: &RunResult) -> (u64, u64) {
    let rq = || r.locks.iter().filter(|l| l.kind == "rq").map(|l| l.stats);
    (rq().map(|s| s.contended).sum(), rq().map(|s| s.wait_ns).sum())
}

/// Wake-ups that were made, whoever made them.
fn wakeups(r: &RunResult) -> u64 {
    r.observed.wakeups_from_waker.iter().sum()
}

fn fall(before: u64, after: u64) -> f64 {
    100.0 * (1.0 - after as f64 / before as f64)
}

/// The study's workload: pairs across two CPUs.
fn pairs(preset: &str, work_ns: u64, seed: u64) -> RunResult {
    let trips = (100_000_000 / (work_ns + 10_000)).to_string();
    let sets = [
        ("pairs", "4"),
        ("pin", "near"),
        ("jitter_pct", "25"),
        ("work_ns", &work_ns.to_string()),
        ("round_trips", &trips),
    ];
    run_on(Machine::load("x86_64-2cpu").expect("a machine"), preset, &spec("ping-pong", &sets), seed)
}

#[test]
fn contention_collapses_on_two_cpus_at_every_rate() {
    for work in [1_000, 3_000, 10_000, 30_000, 100_000, 300_000] {
        let (before, after) = (pairs(BEFORE, work, 1), pairs(AFTER, work, 1));
        let ((contended, wait), (c, w)) = (contention(&before), contention(&after));
        println!("{work} ns: contended {contended} -> {c}, wait {wait} -> {w} ns");
        assert!(fall(contended, c) >= 85.0, "{work} ns: contended {contended} -> {c}");
        assert!(fall(wait, w) >= 80.0, "{work} ns: waited {wait} -> {w} ns");
    }
}

/// "In the noise" holds from 10 us of work between wake-ups. Below, an interrupt for each wake-up of a busy CPU costs more than
/// the lock did: the post's weakness d, which two CPUs with nothing but wake-ups show at its worst.
#[test]
fn run_time_on_two_cpus_stays_within_5_per_cent() {
    let change = |work| {
        let (before, after) = (pairs(BEFORE, work, 1), pairs(AFTER, work, 1));
        100.0 * (after.virtual_ns as f64 / before.virtual_ns as f64 - 1.0)
    };
    for work in [10_000, 30_000, 100_000, 300_000] {
        let c = change(work);
        assert!(c.abs() <= 5.0, "{work} ns: {c:+.1} %");
    }
    let c = change(1_000);
    assert!((5.0..15.0).contains(&c), "pinned miss: {c:+.1} % at 1 us of work");
}

fn sembench(machine: &str, preset: &str, sets: &[(&str, &str)]) -> RunResult {
    run_on(Machine::load(machine).expect("a machine"), preset, &spec("sembench", sets), 1)
}

/// Upstream's form on 2,048 threads: +22.2, +32.5 and +26.2 % in three postings (README of the study), each on a machine that is
/// not named. Within a factor of two of the middle one.
#[test]
fn many_cpus_gain_throughput() {
    let burns = |preset| sembench("westmere-ex-4s-40c-80t", preset, &[("duration_ms", "50")]).metrics.counts["burns"];
    let (before, after) = (burns(BEFORE), burns("linux-3.0"));
    let gain = 100.0 * (after as f64 / before as f64 - 1.0);
    println!("{before} -> {after}: {gain:+.1} %");
    assert!((13.1..52.4).contains(&gain), "{gain:+.1} %");
}

/// One waker on a CPU, its sleepers on the other.
fn batches(preset: &str, batch: &str) -> RunResult {
    let sets = [("threads", batch), ("batch", batch), ("burn_ns", "1000"), ("pin", "true"), ("duration_ms", "50")];
    sembench("x86_64-2cpu", preset, &sets)
}

#[test]
fn interrupts_never_exceed_wake_ups_and_fall_with_the_batch() {
    for preset in [AFTER, "linux-3.0"] {
        let mut ratios = Vec::new();
        for batch in ["1", "2", "4", "16", "64"] {
            let r = batches(preset, batch);
            // Each start of a task interrupts once.
            let most = wakeups(&r) + r.tasks.len() as u64;
            assert!(r.counts.ipis <= most, "{} interrupts for {most}", r.counts.ipis);
            ratios.push(r.counts.ipis as f64 / wakeups(&r) as f64);
        }
        println!("{preset}: {ratios:.2?}");
        assert!(ratios[0] > 0.95 && ratios[1] < 0.75 && ratios[2] < 0.5, "{preset}: {ratios:.2?}");
        if preset == AFTER {
            assert!(ratios.is_sorted_by(|a, b| a > b), "{ratios:.2?}");
        } else {
            // Pinned miss: flat from 4 on. The target takes in a queued task faster than the waker chooses a CPU for the next,
            // so that the list is empty again.
            assert!(ratios[2..].iter().all(|r| (0.35..0.55).contains(r)), "{ratios:.2?}");
        }
    }
}

/// Under one cache, 3.3 takes the lock again and interrupts only to preempt or to end idleness.
#[test]
fn from_3_0_to_3_3_interrupts_within_a_cache_fall() {
    let (v3_0, v3_3) = (pairs("linux-3.0", 10_000, 1), pairs("linux-3.6", 10_000, 1));
    assert!(wakeups(&v3_0).abs_diff(wakeups(&v3_3)) * 100 < wakeups(&v3_0));
    assert!(v3_3.counts.ipis * 2 < v3_0.counts.ipis, "{} -> {}", v3_0.counts.ipis, v3_3.counts.ipis);
}

/// "This patch does not address the run queue lock contention that may occur if try_to_wake_up() chooses to move the waking
/// process": what remains is that, and goes where wakees stay.
#[test]
fn contention_remains_where_placement_moves_the_task() {
    let run = |preset: &str, stay: bool| {
        let sets = [("wakers", "2"), ("threads", "16"), ("batch", "8"), ("duration_ms", "40")];
        let p = Preset::find(preset).expect("a preset");
        let mut features = p.features;
        if stay {
            features.set("idle_search", "none").expect("a value");
            features.set("wake_affine", "off").expect("a value");
        }
        let machine = Machine::load("4c").expect("a machine");
        let workload = spec("sembench", &sets).build(4, &|_| unreachable!()).expect("it fits");
        let setup =
            Setup { machine, features, workload, seed: 1, limits: Limits::default(), guests: Guests::default() };
        simulate(p.policy, setup, None, &mut |_| true).expect("stacks")
    };
    let moved = |r: &RunResult| r.tasks.iter().map(|t| t.wake.nr_wakeups_migrate).sum::<u64>();
    let (before, free, stay) = (run(BEFORE, false), run(AFTER, false), run(AFTER, true));
    assert_eq!(moved(&stay), 0);
    let (all, remains, least) = (contention(&before).0, contention(&free).0, contention(&stay).0);
    println!("{all} -> {remains} with {} wakees moved, {least} with none", moved(&free));
    assert!(remains < all / 2 && remains < 2 * moved(&free), "{all} -> {remains}");
    assert!(least * 20 < remains, "{remains} with wakees moved, {least} with none");
}

/// hackbench on two CPUs: what the patch leaves are the starts of its tasks, whose parent locks the other CPU's queue.
#[test]
fn starts_of_tasks_still_contend() {
    let hackbench = |loops: &str| {
        let sets = [("groups", "4"), ("loops", loops)];
        contention(&run_on(Machine::load("x86_64-2cpu").expect("a machine"), AFTER, &spec("hackbench", &sets), 1)).0
    };
    let (few, many) = (hackbench("1"), hackbench("100"));
    println!("{few} in 1 loop, {many} in 100");
    assert!(few > 160 && many < few + few / 20, "{few} in 1 loop, {many} in 100");
}

/// A wake-up's private work is charged once, however many CPUs handle it.
#[test]
fn a_queued_wake_up_does_its_work_once() {
    let mut m = free("x86_64-2cpu");
    m.set("kernel.ttwu", "1000").expect("a cost");
    let sets = [("pairs", "2"), ("pin", "near"), ("work_ns", "5000"), ("round_trips", "200")];
    for preset in [BEFORE, AFTER, "linux-3.0", "linux-3.6", "linux-6.18"] {
        let r = run_on(m.clone(), preset, &spec("ping-pong", &sets), 1);
        let at = Account::ALL.iter().position(|a| a.name() == "wakeup").expect("an account");
        // Starts of tasks are not wake-ups; two for each round trip, and no waker that finds the task awake.
        let (spent, made) = (r.ledger()[at], wakeups(&r));
        assert!((1000 * made..=1000 * (made + 8)).contains(&spent), "{preset}: {spent} ns for {made} wake-ups");
    }
}
