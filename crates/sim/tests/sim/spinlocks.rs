//! Every algorithm of the kernel's spinlocks: run queues and a contended lock of the kernel under each.

use crate::common::{MS, machine, preset, run_with, script};
use contend_sched::features::Features;
use contend_sim::host::Outcome;
use contend_sim::program::{ObjectKind, Op, Workload};
use fixedbitset::FixedBitSet;

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

/// How long the lock was held in all if each of two tasks, on these CPUs, takes it `rounds` times in turn.
fn held(cpus: [u16; 2], rounds: usize, lines: u32) -> u64 {
    let linux = preset("linux-3.6");
    let mut w = Workload::default();
    let lock = w.object("section", ObjectKind::SpinLock);
    let (a, b) =
        (w.object("a", ObjectKind::Semaphore { initial: 1 }), w.object("b", ObjectKind::Semaphore { initial: 0 }));
    for (cpu, (mine, other)) in cpus.into_iter().zip([(a, b), (b, a)]) {
        let round = || [Op::SemWait(mine), Op::KernelLock { lock, hold: 1_000, lines }, Op::SemPost(other, 1)];
        let mut t = script("t", std::iter::repeat_with(round).take(rounds).flatten().collect());
        let mut only = FixedBitSet::with_capacity(4);
        only.insert(usize::from(cpu));
        t.affinity = Some(only);
        w.task(t);
    }
    let r = run_with(machine("2n1l2c1t"), linux.policy, linux.features.clone(), w, 1_000 * MS, None);
    assert_eq!(r.outcome, Outcome::Finished);
    r.locks.iter().find(|l| l.name == "section").expect("the object's lock").stats.hold_ns
}

/// What a lock guards comes from the CPU that held it last, line by line.
#[test]
fn a_section_s_lines_cost_what_their_way_costs() {
    const ROUNDS: usize = 50;
    const LINES: u32 = 10;
    let m = machine("2n1l2c1t");
    let more = |cpus| held(cpus, ROUNDS, LINES) - held(cpus, ROUNDS, 0);
    let sections = 2 * ROUNDS as u64;
    for (cpus, cost) in [([0, 1], m.costs.lines.llc.value), ([0, 2], m.costs.lines.remote[0].value)] {
        let all = sections * u64::from(LINES) * cost;
        let found = more(cpus);
        // The first section of all finds them where the run began.
        assert!(found <= all && found >= all - 2 * u64::from(LINES) * cost, "{cpus:?}: {found} of {all}");
    }
    assert_eq!(more([0, 0]), 0, "a CPU's own lines are there");
}

/// A CPU that waits for a lock of the kernel does nothing else: after ten seconds that is an error of what runs there.
#[test]
fn a_lock_that_is_not_released_is_a_hard_lockup() {
    let linux = preset("linux-3.6");
    let run = |hold: u64| {
        let mut w = Workload::default();
        let lock = w.object("section", ObjectKind::SpinLock);
        for _ in 0..2 {
            w.task(script("t", vec![Op::kernel_lock(lock, hold)]));
        }
        run_with(machine("1n1l2c1t"), linux.policy, linux.features.clone(), w, 60_000 * MS, None).outcome
    };
    assert_eq!(run(9_000 * MS), Outcome::Finished);
    let Outcome::Stall(why) = run(19_000 * MS) else { panic!("nobody noticed") };
    assert!(why.contains("has waited for a spinlock of the kernel since 0 ms"), "{why}");
}
