//! Every algorithm of the kernel's spinlocks: run queues and a contended lock of the kernel under each.

use crate::common::{MS, machine, preset, run_with, script};
use contend_sched::features::Features;
use contend_sim::host::Outcome;
use contend_sim::program::{ObjectKind, Op, Workload};

/// The values of the feature, as users see them.
fn kinds() -> Vec<String> {
    let list = Features::default().list();
    let spinlock = list.iter().find(|f| f.key == "spinlock").expect("the feature exists");
    let (_, kinds) = spinlock.values.split_once("one of ").expect("a list of words");
    kinds.split(", ").map(str::to_string).collect()
}

#[test]
fn every_kind_keeps_run_queues_and_the_kernel_s_own_locks() {
    const TASKS: u64 = 24;
    const ROUNDS: usize = 60;
    let run = |kind: &str| {
        let linux = preset("linux-3.6");
        let mut features = linux.features.clone();
        features.set("spinlock", kind).expect(kind);
        let mut w = Workload::default();
        let lock = w.object("section", ObjectKind::SpinLock);
        for i in 0..TASKS {
            let round = || [Op::kernel_lock(lock, 1_000), Op::Run(500), Op::Yield, Op::Sleep(1_000 * (1 + i % 5))];
            // At the end a section for which the others halt.
            let ops = std::iter::repeat_with(round).take(ROUNDS).flatten().chain([Op::kernel_lock(lock, 300_000)]);
            w.task(script("t", ops.collect()));
        }
        run_with(machine("2n1l4c1t"), linux.policy, features, w, 10_000 * MS, None)
    };
    let kinds = kinds();
    assert_eq!(kinds.len(), 16);
    let mut waits = Vec::new();
    for kind in &kinds {
        let r = run(kind);
        assert_eq!(r.outcome, Outcome::Finished, "{kind}");
        let section = r.locks.iter().find(|l| l.name == "section").expect("the object's lock");
        assert_eq!(section.stats.acquisitions, TASKS * (ROUNDS as u64 + 1), "{kind}");
        assert!(section.stats.contended > 0, "{kind}");
        assert!(section.stats.wait_ns_max > 300_000, "{kind}: nobody waited through a long section");
        assert!(r.locks.iter().any(|l| l.kind == "rq" && l.stats.contended > 0), "{kind}");
        assert_eq!(r.trace_hash, run(kind).trace_hash, "{kind}");
        waits.push(section.stats.wait_ns);
    }
    // They are different locks, but for those whose parts need a halted waiter behind another.
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() >= 10, "{waits:?}");
}
