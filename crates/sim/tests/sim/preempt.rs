//! When a running task makes way for a woken one (`preempt`).

use crate::common::{MS, cpus, hog, machine, preset, run_with, script};
use contend_sched::class::Sched;
use contend_sched::features::{Features, Preempt, WakePath};
use contend_sim::host::RunResult;
use contend_sim::program::{ObjectKind, Op, TaskSpec, Workload};

/// On CPU 0 of `on` a hog, and a sleeper that a task on CPU `waker` wakes every 7.1 ms.
fn run(on: &str, preempt: Preempt, waker: usize, sched: Sched) -> RunResult {
    let mut w = Workload::default();
    let sem = w.object("sem", ObjectKind::Semaphore { initial: 0 });
    let at = |cpu: usize, spec: TaskSpec| TaskSpec { affinity: Some(cpus(&[cpu])), ..spec };
    let sleeper = (0..20).flat_map(|_| [Op::SemWait(sem), Op::Run(20_000)]).collect();
    let wakes = (0..20).flat_map(|_| [Op::Sleep(7_100_000), Op::SemPost(sem, 1)]).collect();
    w.task(TaskSpec { sched: Some(sched), ..at(0, script("sleeper", sleeper)) });
    w.task(at(waker, script("waker", wakes)));
    w.task(TaskSpec { background: true, ..at(0, hog("hog", 10_000 * MS)) });
    // CFS: a sleeper of that kind always preempts.
    let p = preset("linux-6.0");
    assert_eq!(p.features.wake_path, WakePath::Ttwu60);
    run_with(machine(on), p.policy, Features { preempt, nohz_balance: false, ..p.features }, w, 10_000 * MS, None)
}

/// How long the sleeper waited for its CPU, in the mean and at most, in ns.
fn waits(r: &RunResult) -> (u64, u64) {
    let s = &r.tasks[0].run;
    assert_eq!(r.outcome.name(), "finished");
    (s.wait_sum / s.waits, s.wait_max)
}

#[test]
fn a_lazy_preemption_waits_for_the_tick() {
    let tick = 1_000_000_000 / u64::from(machine("2c").hz);
    let fair = Sched::normal(0);
    let (at_once, _) = waits(&run("2c", Preempt::None, 1, fair));
    let (mean, most) = waits(&run("2c", Preempt::Lazy, 1, fair));
    assert!(at_once < 20_000, "{at_once}");
    assert!((tick / 4..tick * 3 / 4).contains(&mean), "anywhere between two ticks: {mean}");
    assert!((tick * 3 / 4..tick + 50_000).contains(&most), "{most}");
}

#[test]
fn a_lazy_preemption_needs_no_interrupt() {
    let ipis = |preempt| run("2c", preempt, 1, Sched::normal(0)).counts.ipis;
    assert!(ipis(Preempt::None) == ipis(Preempt::Lazy) + 20, "{} {}", ipis(Preempt::None), ipis(Preempt::Lazy));
}

#[test]
fn nothing_is_late_where_the_cpu_returns_to_user_mode_anyway() {
    let fair = Sched::normal(0);
    // The waker runs there, or the wake-up comes as an interrupt: from another cache it is queued.
    for (on, waker) in [("2c", 0), ("2l1c", 1)] {
        let (mean, _) = waits(&run(on, Preempt::Lazy, waker, fair));
        assert!(mean < 20_000, "{on} {waker}: {mean}");
    }
    // A real-time task does not wait, nor does one for an idle CPU.
    let (mean, _) = waits(&run("2c", Preempt::Lazy, 1, Sched::Fifo(1)));
    assert!(mean < 20_000, "{mean}");
}
