//! The study remote-wakeup-queue-2010 in one direction (mechanisms F.2): on two CPUs, queueing wake-ups to their target makes
//! run-queue lock contention collapse and leaves the run time alone.

use crate::common::{MS, machine, preset, run_on, task};
use contend_sim::host::{Outcome, RunResult};
use contend_sim::program::{ObjectKind, Op, TaskSpec, Workload};
use rand::RngExt;

/// Pairs over two semaphores on two CPUs: each runs a little and wakes the other, which is mostly elsewhere.
fn pairs(n: usize, rounds: u32) -> Workload {
    let mut w = Workload::default();
    for i in 0..n {
        let (a, b) = (
            w.object(format!("a{i}"), ObjectKind::Semaphore { initial: 1 }),
            w.object(format!("b{i}"), ObjectKind::Semaphore { initial: 0 }),
        );
        for (side, (wait, post)) in [(a, b), (b, a)].into_iter().enumerate() {
            let (mut step, mut left) = (0, rounds);
            let t = task(&format!("p{i}.{side}"), move |cx| {
                step = (step + 1) % 3;
                match step {
                    1 if left == 0 => Op::Exit,
                    1 => Op::SemWait(wait),
                    2 => Op::Run(cx.rng.random_range(20_000..60_000)),
                    _ => {
                        left -= 1;
                        Op::SemPost(post, 1)
                    }
                }
            });
            w.task(TaskSpec { affinity: Some(crate::common::cpus(&[side])), ..t });
        }
    }
    w
}

fn measure(name: &str) -> (RunResult, u64, u64) {
    let r = run_on(machine("x86_64-2cpu"), &preset(name), pairs(6, 2000), 20_000 * MS);
    assert_eq!(r.outcome, Outcome::Finished, "{name}");
    let rq = || r.locks.iter().filter(|l| l.kind == "rq").map(|l| l.stats);
    let (contended, wait) = (rq().map(|s| s.contended).sum(), rq().map(|s| s.wait_ns).sum());
    (r, contended, wait)
}

#[test]
fn contention_collapses_and_run_time_stays() {
    let (before, contended, wait) = measure("linux-2.6.37");
    assert!(contended > 500, "there is contention to begin with: {contended}");
    for name in ["linux-2.6.37-rowand", "linux-3.0"] {
        let (after, c, w) = measure(name);
        println!(
            "{name}: contended {contended} -> {c}, wait {wait} -> {w} ns, {} -> {} ns",
            before.virtual_ns, after.virtual_ns
        );
        assert!(c * 10 < contended, "{name}: contended {contended} -> {c}");
        assert!(w * 5 < wait, "{name}: wait {wait} -> {w}");
        let change = after.virtual_ns as f64 / before.virtual_ns as f64 - 1.0;
        assert!(change.abs() < 0.05, "{name}: run time {:+.1} %", 100.0 * change);
        assert!(after.counts.ipis >= before.counts.ipis / 2, "{name}: the interrupts are the price");
    }
}
