//! Where tasks go that have nothing in any cache: new ones, and those that execute a program.

use crate::common::{MS, Stage, cpus, machine, preset, run_on, script, stage, task};
use contend_sched::class::Sched;
use contend_sched::cpuset::Affinity;
use contend_sched::features::Preset;
use contend_sim::host::Outcome;
use contend_sim::program::{GroupId, Op, TaskSpec, Workload};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// On which CPU of two a task goes on that executes a program on CPU 0, beside others that compute on CPUs of their own with these nice
/// values.
fn after_exec(preset: &Preset, sched: Sched, beside: &[(usize, i8)]) -> usize {
    after_exec_on("2c", 0, preset, sched, beside)
}

/// The same on a machine, from a CPU.
fn after_exec_on(on: &str, from: usize, preset: &Preset, sched: Sched, beside: &[(usize, i8)]) -> usize {
    let mut w = Workload { horizon: Some(200 * MS), ..Workload::default() };
    for &(cpu, nice) in beside {
        let hog = script("hog", vec![Op::Run(1000 * MS)]);
        w.task(TaskSpec { affinity: Some(cpus(&[cpu])), sched: Some(Sched::normal(nice)), background: true, ..hog });
    }
    let went = Arc::new(AtomicUsize::new(usize::MAX));
    let seen = Arc::clone(&went);
    let mut step = 0;
    let t = task("shell", move |cx| {
        step += 1;
        match step {
            1 => Op::Run(30 * MS),
            2 => Op::SetAffinity(None),
            3 => Op::Exec,
            4 => {
                seen.store(cx.cpu.index(), Ordering::Relaxed);
                Op::Run(MS)
            }
            _ => Op::Exit,
        }
    });
    w.task(TaskSpec { affinity: Some(cpus(&[from])), sched: Some(sched), ..t });
    let r = run_on(machine(on), preset, w, 200 * MS);
    assert_eq!(r.outcome, Outcome::Finished, "{}", r.outcome.detail());
    went.load(Ordering::Relaxed)
}

fn ordinary(name: &str, beside: &[(usize, i8)]) -> usize {
    after_exec(&preset(name), Sched::default(), beside)
}

#[test]
fn a_program_that_is_executed_leaves_a_cpu_that_it_shares() {
    for name in ["linux-2.6.37", "linux-3.6", "linux-5.2", "linux-6.0", "linux-6.18"] {
        assert_eq!(ordinary(name, &[(0, 0)]), 1, "{name}: CPU 1 idles");
        assert_eq!(ordinary(name, &[]), 0, "{name}: itself does not count");
        assert_eq!(ordinary(name, &[(1, 0)]), 0, "{name}: the other CPU is busy");
        assert_eq!(ordinary(name, &[(0, 0), (1, 0)]), 0, "{name}: no difference");
    }
    let mut off = preset("linux-6.18");
    off.features.exec_balance = false;
    assert_eq!(after_exec(&off, Sched::default(), &[(0, 0)]), 0);
    assert_eq!(ordinary("fifo", &[]), 0);
}

/// From 5.5 on the load decides among CPUs that are all busy, before that their number of tasks.
#[test]
fn loads_count_among_busy_cpus() {
    let one_is_nicer = [(0, 0), (1, 15)];
    assert_eq!(ordinary("linux-6.18", &one_is_nicer), 1);
    assert_eq!(ordinary("linux-6.0", &one_is_nicer), 1);
    assert_eq!(ordinary("linux-5.2", &one_is_nicer), 0);
}

/// Nodes that are equally good are asked from the own one on, round the machine.
#[test]
fn of_equal_groups_the_next_one_is_taken() {
    for name in ["linux-2.6.37", "linux-3.6", "linux-5.2", "linux-6.0", "linux-6.18"] {
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            let cpu = after_exec_on("3n1l1c1t", from, &preset(name), Sched::default(), &[(from, 0)]);
            assert_eq!(cpu, to, "{name}, from {from}");
        }
    }
}

#[test]
fn a_real_time_task_stays() {
    assert_eq!(after_exec(&preset("linux-6.18"), Sched::Fifo(1), &[(0, 0)]), 0);
}

/// Where a child of CPU 0 goes while so many of each node's CPUs, from the first on, are busy.
fn child(on: &str, name: &str, busy: &'static [usize], check: impl Fn(usize) + Clone + 'static) {
    stage(on, preset(name).features, false, move |s: &Stage| {
        busy.iter().for_each(|&cpu| s.busy(cpu, 1));
        let t = s.kernel.create(&s.p, Sched::default(), Affinity::ALL, GroupId::ROOT);
        s.kernel.wake_up_new(&s.p, t);
        check(s.kernel.task_cpu(&s.p, t).index());
    });
}

/// The node with more idle CPUs; its own if that has as many, and, in later kernels, if little runs there and the difference is small.
#[test]
fn children_go_to_the_idler_node() {
    child("2n1l16c1t", "linux-5.2", &[0], |cpu| assert!((16..32).contains(&cpu), "{cpu}"));
    child("2n1l16c1t", "linux-6.18", &[0], |cpu| assert!((1..16).contains(&cpu), "{cpu}"));
    for name in ["linux-5.2", "linux-6.18"] {
        child("2n1l16c1t", name, &[0, 1, 2], |cpu| assert!((16..32).contains(&cpu), "{cpu}"));
        child("2n1l16c1t", name, &[0, 1, 16, 17], |cpu| assert!((1..16).contains(&cpu), "{cpu}"));
    }
}

/// The cluster with more idle CPUs, in kernels that know of clusters.
#[test]
fn children_go_to_the_idler_cluster() {
    child("1n1l4k4c", "linux-6.18", &[0, 4, 5], |cpu| assert!((8..16).contains(&cpu), "{cpu}"));
    child("1n1l4k4c", "linux-5.8", &[0, 4, 5], |cpu| assert_eq!(cpu, 1));
}

/// An idle core rather than the sibling of a busy thread.
#[test]
fn children_go_to_idle_cores() {
    for name in ["linux-3.6", "linux-5.2", "linux-6.18"] {
        // Threads 0 and 4 are of core 0, 1 and 5 of core 1.
        child("1n1l4c2t", name, &[0, 1, 5], |cpu| assert!([2, 3, 6, 7].contains(&cpu), "{cpu}"));
    }
}
