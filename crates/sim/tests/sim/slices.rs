//! Slices of a task's own: what a kernel did (Linux 6.18.44, HZ 250, two CPUs, all tasks pinned to one;
//! docs/internals/eevdf-slices.md) beside what the policy does.

use crate::common::{MS, hog, machine, preset, run_with, task};
use contend_sched::class::{Sched, Share};
use contend_sched::features::Features;
use contend_sim::host::RunResult;
use contend_sim::program::{Op, TaskSpec, Workload};
use rand::RngExt;
use std::sync::{Arc, Mutex};

/// In us; 0: none of its own.
fn sliced(slice_us: u32, spec: TaskSpec) -> TaskSpec {
    TaskSpec { sched: Some(Sched::Normal(Share { nice: 0, slice_us })), ..spec }
}

/// One CPU with the tick and the base slice of that kernel.
fn run(name: &str, change: impl FnOnce(&mut Features), w: Workload, horizon: u64) -> RunResult {
    let mut m = machine("1c");
    m.hz = 250;
    let p = preset(name);
    let mut f = Features { base_slice_ns: 1_400_000, ..p.features };
    change(&mut f);
    run_with(m, p.policy, f, w, horizon, None)
}

/// Switches of tasks with these slices that compute for 5 s.
fn switches(name: &str, slices: &[u32], change: impl FnOnce(&mut Features)) -> u64 {
    let mut w = Workload::default();
    for us in slices {
        w.task(sliced(*us, hog("hog", 60_000 * MS)));
    }
    run(name, change, w, 5000 * MS).dispatches
}

/// A running task is protected for the shortest slice of all, not for its own.
#[test]
fn tasks_that_compute_take_turns_as_on_the_real_kernel() {
    for (slices, real) in [
        (&[0, 0][..], 1255),
        (&[20_000, 0], 1250),
        (&[20_000, 20_000], 258),
        (&[20_000, 300], 1255),
        (&[50_000, 8_000], 474),
        (&[0, 0, 50_000], 1251),
    ] {
        let here = switches("linux-6.18", slices, |_| {});
        assert!((real * 4 / 5..real * 6 / 5).contains(&here), "{slices:?}: {here}, real {real}");
    }
    let own = switches("linux-6.18", &[20_000, 0], |f| f.parity_min_slice = false);
    assert!(own < 300, "before 6.17 it has its own: {own}");
}

/// Mean wait in us of a task that computes `run` after sleeps of `sleep` to one and a half times that, and the share of waits
/// longer than half a millisecond.
fn waits(
    name: &str,
    (hogs, hog_us): (usize, u32),
    (sleep, runs): (u64, u64),
    slice_us: u32,
    change: impl FnOnce(&mut Features),
) -> (u64, f64) {
    const TIMES: usize = 1500;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut w = Workload::default();
    for _ in 0..hogs {
        w.task(TaskSpec { background: true, ..sliced(hog_us, hog("hog", 60_000 * MS)) });
    }
    let (out, mut due, mut step) = (Arc::clone(&seen), 0, 0);
    w.task(sliced(
        slice_us,
        task("sleeper", move |cx| {
            step += 1;
            if step % 2 == 1 {
                let ns = sleep * 1000 + cx.rng.random_range(0..sleep * 500);
                due = cx.now + ns;
                return Op::Sleep(ns);
            }
            let mut seen = out.lock().unwrap();
            seen.push((cx.now - due) / 1000);
            if seen.len() == TIMES { Op::Exit } else { Op::Run(runs * 1000) }
        }),
    ));
    assert_eq!(run(name, change, w, 60_000 * MS).outcome.name(), "finished");
    let seen = seen.lock().unwrap();
    let late = seen.iter().filter(|us| **us > 500).count();
    (seen.iter().sum::<u64>() / TIMES as u64, 100.0 * late as f64 / TIMES as f64)
}

#[test]
fn a_short_slice_shortens_waits_as_on_the_real_kernel() {
    // Mean in us and share of late ones in per cent, and how far off the simulation may be.
    for (hogs, times, slice, real, off) in [
        ((2, 0), (1000, 300), 0, (608, 14.5), 1.25),
        ((2, 0), (1000, 300), 100, (310, 8.0), 1.25),
        ((2, 0), (1000, 300), 10_000, (622, 12.1), 1.25),
        ((2, 20_000), (1000, 300), 300, (66, 1.5), 1.3),
        ((2, 20_000), (1000, 300), 0, (228, 3.5), 1.25),
        ((3, 0), (3000, 50), 0, (193, 5.3), 1.6),
        ((3, 0), (3000, 50), 10_000, (183, 4.3), 1.25),
        ((3, 100_000), (3000, 50), 100, (23, 0.5), 1.3),
    ] {
        let here = waits("linux-6.18", hogs, times, slice, |_| {});
        let near = |a: f64, b: f64| (b / off..b * off).contains(&a);
        assert!(
            near(here.0 as f64, f64::from(real.0)) && near(here.1, real.1),
            "{hogs:?} {times:?} {slice}: {here:?}, real {real:?}"
        );
    }
}

/// As kernels of 6.12 to 6.16 would have it, whose protection is as long as the running task's slice.
#[test]
fn without_preempt_short_the_running_task_stays_protected() {
    let mean = |preempt_short| {
        let change = |f: &mut Features| (f.preempt_short, f.parity_min_slice) = (preempt_short, false);
        waits("linux-6.18", (2, 20_000), (1000, 300), 300, change).0
    };
    assert!(mean(false) > 10 * mean(true), "{} {}", mean(false), mean(true));
}

#[test]
fn kernels_before_6_12_and_other_policies_ignore_slices() {
    for name in ["linux-5.2", "linux-6.6", "fifo"] {
        let hash = |slices: &[u32]| switches(name, slices, |_| {});
        assert_eq!(hash(&[0, 0]), hash(&[20_000, 300]), "{name}");
    }
    let off = |slices: &[u32]| switches("linux-6.18", slices, |f| f.custom_slice = false);
    assert_eq!(off(&[0, 0]), off(&[20_000, 20_000]));
}
