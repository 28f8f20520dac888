//! Policies that say where tasks go, and from whom an idle CPU takes.

use crate::common::{MS, cpus, hog, machine, script, task};
use contend_platform::{CpuId, TaskId, Time};
use contend_sched::class::Sched;
use contend_sched::features::{Balance, Features};
use contend_sched::policy::cpus::{Cpus, Wake};
use contend_sched::policy::fifo::Fifo;
use contend_sched::policy::groups::{GroupId, Groups};
use contend_sched::policy::{Dequeue, Enqueue, Pick, Policy, Put};
use contend_sim::guest::Guests;
use contend_sim::host::{Limits, RunResult, Setup, simulate_with};
use contend_sim::program::{Op, TaskSpec, Workload};
use std::cell::RefCell;
use std::rc::Rc;

type Place = dyn Fn(&mut dyn Cpus, TaskId, Wake) -> Option<CpuId>;
type PullFrom = dyn Fn(&mut dyn Cpus, &[CpuId]) -> Option<CpuId>;

/// A policy in all but where tasks go.
pub struct Steered<L> {
    /// What decides all else.
    pub inner: L,
    /// [`Policy::select_cpu`].
    pub place: Box<Place>,
    /// [`Policy::pull_from`].
    pub pull: Box<PullFrom>,
}

impl<L: Policy> Policy for Steered<L> {
    const PLACES: bool = true;
    const PULLS: bool = true;
    type Rq = L::Rq;
    type Task = L::Task;
    fn select_cpu(&self, cpus: &mut dyn Cpus, task: TaskId, _: &L::Task, wake: Wake) -> Option<CpuId> {
        (self.place)(cpus, task, wake)
    }
    fn pull_from(&self, cpus: &mut dyn Cpus, failed: &[CpuId]) -> Option<CpuId> {
        (self.pull)(cpus, failed)
    }
    fn new_rq(&self) -> L::Rq {
        self.inner.new_rq()
    }
    fn new_task(&self, nice: i8) -> L::Task {
        self.inner.new_task(nice)
    }
    fn enqueue(&self, rq: &mut L::Rq, task: TaskId, t: &mut L::Task, why: Enqueue, now: Time) {
        self.inner.enqueue(rq, task, t, why, now);
    }
    fn dequeue(&self, rq: &mut L::Rq, task: TaskId, t: &mut L::Task, why: Dequeue, now: Time) {
        self.inner.dequeue(rq, task, t, why, now);
    }
    fn pick_next(&self, rq: &mut L::Rq, now: Time) -> Pick {
        self.inner.pick_next(rq, now)
    }
    fn set_next(&self, rq: &mut L::Rq, task: TaskId, t: &mut L::Task, now: Time) {
        self.inner.set_next(rq, task, t, now);
    }
    fn put_prev(&self, rq: &mut L::Rq, task: TaskId, t: &mut L::Task, why: Put, now: Time) -> bool {
        self.inner.put_prev(rq, task, t, why, now)
    }
    fn tick(&self, rq: &mut L::Rq, task: TaskId, t: &mut L::Task, now: Time) -> bool {
        self.inner.tick(rq, task, t, now)
    }
    fn wakeup_preempt(
        &self,
        rq: &mut L::Rq,
        curr: (TaskId, &mut L::Task),
        woken: (TaskId, &L::Task),
        now: Time,
    ) -> bool {
        self.inner.wakeup_preempt(rq, curr, woken, now)
    }
    fn time_is_up(&self, rq: &mut L::Rq, curr: (TaskId, &mut L::Task), woken: (TaskId, &L::Task), now: Time) -> bool {
        self.inner.time_is_up(rq, curr, woken, now)
    }
    fn yield_to(&self, rq: &mut L::Rq, task: TaskId, t: &L::Task) -> bool {
        self.inner.yield_to(rq, task, t)
    }
    fn revive(&self, rq: &mut L::Rq, task: TaskId, t: &mut L::Task, now: Time) {
        self.inner.revive(rq, task, t, now);
    }
    fn detach_sleeping(&self, t: &mut L::Task, rq_floor: i64) {
        self.inner.detach_sleeping(t, rq_floor);
    }
    fn floor(&self, rq: &L::Rq) -> i64 {
        self.inner.floor(rq)
    }
    fn candidates(&self, rq: &L::Rq, max: usize, into: &mut Vec<TaskId>) {
        self.inner.candidates(rq, max, into);
    }
    fn is_buddy(&self, rq: &L::Rq, task: TaskId) -> bool {
        self.inner.is_buddy(rq, task)
    }
    fn last_ran(&self, t: &L::Task) -> Time {
        self.inner.last_ran(t)
    }
    fn weight(&self, t: &L::Task) -> u64 {
        self.inner.weight(t)
    }
    fn h_load(&self, rq: &L::Rq, t: &L::Task, load: u64) -> u64 {
        self.inner.h_load(rq, t, load)
    }
    fn queue_weight(&self, rq: &L::Rq, flat: u64) -> u64 {
        self.inner.queue_weight(rq, flat)
    }
    fn set_nice(&self, t: &mut L::Task, nice: i8) {
        self.inner.set_nice(t, nice);
    }
    fn set_idle(&self, t: &mut L::Task) {
        self.inner.set_idle(t);
    }
    fn join(&self, t: &mut L::Task, group: GroupId) {
        self.inner.join(t, group);
    }
    fn park(&self, rq: &mut L::Rq, task: TaskId, t: &mut L::Task, now: Time) {
        self.inner.park(rq, task, t, now);
    }
    fn unpark(&self, rq: &mut L::Rq, task: TaskId, t: &mut L::Task, now: Time) {
        self.inner.unpark(rq, task, t, now);
    }
    fn groups(&self) -> Option<&Groups> {
        self.inner.groups()
    }
    fn group_of(&self, t: &L::Task) -> GroupId {
        self.inner.group_of(t)
    }
    fn members(&self, rq: &L::Rq, group: GroupId, into: &mut Vec<TaskId>) {
        self.inner.members(rq, group, into);
    }
    fn sum_exec(&self, t: &L::Task) -> u64 {
        self.inner.sum_exec(t)
    }
}

/// FIFO without balancing on so many CPUs, but for what the two say.
fn run(
    cpus: &str,
    w: Workload,
    place: impl Fn(&mut dyn Cpus, TaskId, Wake) -> Option<CpuId> + 'static,
    pull: impl Fn(&mut dyn Cpus, &[CpuId]) -> Option<CpuId> + 'static,
) -> RunResult {
    let features = Features { balance: Balance::Off, ..Features::default() };
    let policy = Steered { inner: Fifo::new(&features), place: Box::new(place), pull: Box::new(pull) };
    let limits = Limits { horizon: 10_000 * MS, ..Limits::default() };
    let setup = Setup { machine: machine(cpus), features, workload: w, seed: 1, limits, guests: Guests::default() };
    simulate_with(policy, setup, None, &mut |_| true).expect("stacks")
}

fn ends(r: &RunResult, name: &str, detail: &str) {
    assert_eq!((r.outcome.name(), r.outcome.detail().as_str()), (name, detail));
}

#[test]
fn tasks_go_where_the_policy_says_and_it_hears_why() {
    let heard = Rc::new(RefCell::new(Vec::new()));
    let hears = Rc::clone(&heard);
    let mut w = Workload::default();
    w.task(script("a", vec![Op::Run(MS), Op::Sleep(MS), Op::Run(MS)]));
    w.task(TaskSpec { sched: Some(Sched::Fifo(1)), ..hog("rt", MS) });
    let place = move |cpus: &mut dyn Cpus, task: TaskId, wake: Wake| {
        hears.borrow_mut().push((task, cpus.this(), wake));
        Some(CpuId(if wake.new { 2 } else { 3 }))
    };
    let r = run("4c", w, place, |_, _| None);
    ends(&r, "finished", "");
    let wake = |prev, new| Wake { prev: CpuId(prev), sync: false, new };
    // Not of the real-time task. The timer is CPU 2's, where it fell asleep.
    assert_eq!(*heard.borrow(), [(TaskId(0), CpuId(0), wake(0, true)), (TaskId(0), CpuId(2), wake(2, false))]);
    let ran: Vec<_> = r.cpus.iter().map(|c| c.stats.rq_cpu_time / MS).collect();
    assert_eq!(ran[2..], [1, 1], "{ran:?}");
    assert_eq!(r.observed.probes, 0, "it looked nowhere");
}

#[test]
fn a_look_at_a_cpu_costs_and_counts_as_a_probe() {
    let went = |looks: bool| {
        let mut w = Workload::default();
        w.task(script("sleeper", (0..20).flat_map(|_| [Op::Run(MS), Op::Sleep(MS)]).collect()));
        let place = move |cpus: &mut dyn Cpus, _: TaskId, wake: Wake| {
            let busy = looks && (0..4).map(CpuId).any(|cpu| cpus.nr_running(cpu) > 1 || !cpus.is_idle(cpu));
            Some(if busy { CpuId(0) } else { wake.prev })
        };
        run("4c", w, place, |_, _| None)
    };
    let (blind, looked) = (went(false), went(true));
    // The start of the task and 20 wake-ups: all is idle.
    assert_eq!(blind.observed.probes, 0);
    assert_eq!(looked.observed.idle_searches, looked.observed.idle_searches_found);
    assert_eq!(looked.observed.probes, 8 * looked.observed.idle_searches);
    assert_eq!(looked.observed.idle_searches, 21);
    assert!(looked.virtual_ns > blind.virtual_ns, "{} {}", looked.virtual_ns, blind.virtual_ns);
}

#[test]
fn an_idle_cpu_takes_from_whom_the_policy_says() {
    let asked = Rc::new(RefCell::new(Vec::new()));
    let hears = Rc::clone(&asked);
    let mut w = Workload::default();
    // Three on CPU 0, one of them pinned there, and a short one on CPU 1.
    w.task(TaskSpec { affinity: Some(cpus(&[0])), ..hog("pinned", 10 * MS) });
    (0..2).for_each(|_| w.task(hog("free", 10 * MS)));
    w.task(hog("short", MS));
    let place = |_: &mut dyn Cpus, task: TaskId, _: Wake| Some(CpuId(u16::from(task == TaskId(3))));
    let pull = move |cpus: &mut dyn Cpus, failed: &[CpuId]| {
        hears.borrow_mut().push((cpus.this(), failed.to_vec()));
        // CPU 2 has nothing; then CPU 0.
        [CpuId(2), CpuId(0)].into_iter().find(|cpu| *cpu != cpus.this() && !failed.contains(cpu))
    };
    let r = run("3c", w, place, pull);
    ends(&r, "finished", "");
    assert_eq!(asked.borrow()[..2], [(CpuId(1), vec![]), (CpuId(1), vec![CpuId(2)])]);
    // Two on CPU 0 for 20 ms, one on CPU 1.
    assert!((20 * MS..21 * MS).contains(&r.virtual_ns), "{}", r.virtual_ns);
    assert_eq!(r.tasks[0].run.nr_migrations, 0);
    let moved: u64 = r.tasks.iter().map(|t| t.run.nr_migrations).sum();
    assert_eq!(moved, 1);
    let idle = run("3c", Workload::default(), |_, _, _| None, |_, _| panic!("nothing ever ran"));
    ends(&idle, "finished", "");
}

#[test]
fn none_is_what_the_mechanism_does() {
    let mut w = Workload::default();
    (0..8).for_each(|i| w.task(script(&format!("t{i}"), vec![Op::Run(5 * MS), Op::Sleep(MS), Op::Run(5 * MS)])));
    let r = run("8c", w, |_, _, _| None, |_, _| None);
    ends(&r, "finished", "");
    assert!(r.virtual_ns < 12 * MS, "each has a CPU for itself: {}", r.virtual_ns);
}

#[test]
fn wrong_answers_end_the_run_with_words() {
    let two = || {
        let mut w = Workload::default();
        w.task(TaskSpec {
            affinity: Some(cpus(&[0])),
            ..task("a", |cx| if cx.now > MS { Op::Exit } else { Op::Run(MS) })
        });
        w.task(script("b", vec![Op::Run(5 * MS), Op::Sleep(MS), Op::Run(MS)]));
        w
    };
    let nowhere = |_: &mut dyn Cpus, _: &[CpuId]| None;
    let placed = |to: u16| run("2c", two(), move |_, _, _| Some(CpuId(to)), nowhere);
    ends(&placed(7), "policy-error", "select_cpu named cpu7 of 2 CPUs");
    ends(&placed(1), "policy-error", "select_cpu put task0 on cpu1, where its affinity forbids it to run");
    let looks = run("2c", two(), |cpus, _, _| cpus.is_idle(CpuId(9)).then_some(CpuId(0)), nowhere);
    ends(&looks, "policy-error", "is_idle named cpu9 of 2 CPUs");
    let counts = run("2c", two(), |cpus, _, _| (cpus.nr_running(CpuId(2)) > 0).then_some(CpuId(0)), nowhere);
    ends(&counts, "policy-error", "nr_running named cpu2 of 2 CPUs");
    let pulled = |from: u16| run("2c", two(), |_, _, _| Some(CpuId(0)), move |_, _| Some(CpuId(from)));
    ends(&pulled(0), "policy-error", "pull_from on cpu0 named cpu0 itself");
    ends(&pulled(1), "policy-error", "pull_from on cpu0 named cpu1 again");
    ends(&pulled(3), "policy-error", "pull_from named cpu3 of 2 CPUs");
}
