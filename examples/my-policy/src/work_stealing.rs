//! Work stealing: a CPU runs its own tasks newest first, and one with none takes the oldest of another.
//!
//! Beside the decisions on one run queue, this policy says where a woken task goes (`PLACES`) and from whom a CPU takes that
//! has nothing to run (`PULLS`). For each it may look at other CPUs; every look costs what a kernel's search pays.

use contend_platform::{CpuId, TaskId, Time};
use contend_sched::policy::cpus::{Cpus, Wake};
use contend_sched::policy::{Dequeue, Enqueue, Pick, Policy, Put};
use std::collections::VecDeque;

/// A policy without parameters.
pub struct WorkStealing;

/// Time run, in ns, and accounted up to when.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    sum: u64,
    since: Time,
}

impl Ran {
    fn account(&mut self, now: Time) {
        self.sum += now - self.since;
        self.since = now;
    }
}

/// The CPUs of the caller's cache, and then all others.
fn near_first(cpus: &dyn Cpus) -> Vec<CpuId> {
    let (topology, this) = (cpus.topology(), cpus.this());
    let near = topology.llc_cpus(topology.llc_of(this));
    let far = (0..topology.nr_cpus()).map(|cpu| CpuId(cpu as u16)).filter(|cpu| !near.contains(cpu));
    near.iter().copied().chain(far).collect()
}

impl Policy for WorkStealing {
    const PLACES: bool = true;
    const PULLS: bool = true;
    type Rq = VecDeque<TaskId>;
    type Task = Ran;

    /// Where it was, if that CPU idles; else on an idle one, near the waker first; else with the waker, for others to take.
    fn select_cpu(&self, cpus: &mut dyn Cpus, _: TaskId, _: &Ran, wake: Wake) -> Option<CpuId> {
        if cpus.allows(wake.prev) && cpus.is_idle(wake.prev) {
            return Some(wake.prev);
        }
        let this = cpus.this();
        let idle = near_first(&*cpus).into_iter().find(|cpu| cpus.allows(*cpu) && cpus.is_idle(*cpu));
        idle.or(cpus.allows(this).then_some(this))
    }
    /// The first with a task to spare.
    fn pull_from(&self, cpus: &mut dyn Cpus, failed: &[CpuId]) -> Option<CpuId> {
        let this = cpus.this();
        let mut others = near_first(&*cpus).into_iter().filter(|cpu| *cpu != this && !failed.contains(cpu));
        others.find(|cpu| cpus.nr_running(*cpu) > 1)
    }

    fn new_rq(&self) -> VecDeque<TaskId> {
        VecDeque::new()
    }
    fn new_task(&self, _: i8) -> Ran {
        Ran::default()
    }
    fn enqueue(&self, rq: &mut VecDeque<TaskId>, task: TaskId, _: &mut Ran, _: Enqueue, _: Time) {
        rq.push_back(task);
    }
    fn dequeue(&self, rq: &mut VecDeque<TaskId>, task: TaskId, _: &mut Ran, _: Dequeue, _: Time) {
        rq.retain(|t| *t != task);
    }
    fn pick_next(&self, rq: &mut VecDeque<TaskId>, _: Time) -> Pick {
        rq.back().map_or(Pick::Nothing, |t| Pick::Task(*t))
    }
    fn set_next(&self, rq: &mut VecDeque<TaskId>, task: TaskId, t: &mut Ran, now: Time) {
        rq.retain(|q| *q != task);
        t.since = now;
    }
    fn put_prev(&self, rq: &mut VecDeque<TaskId>, task: TaskId, t: &mut Ran, why: Put, now: Time) -> bool {
        t.account(now);
        match why {
            Put::Preempted => rq.push_back(task),
            Put::Yielded => rq.push_front(task),
            Put::Sleep | Put::Exit => {}
        }
        false
    }
    fn tick(&self, _: &mut VecDeque<TaskId>, _: TaskId, t: &mut Ran, now: Time) -> bool {
        t.account(now);
        false
    }
    fn wakeup_preempt(&self, _: &mut VecDeque<TaskId>, _: (TaskId, &mut Ran), _: (TaskId, &Ran), _: Time) -> bool {
        false
    }
    fn candidates(&self, rq: &VecDeque<TaskId>, max: usize, into: &mut Vec<TaskId>) {
        into.extend(rq.iter().take(max));
    }
    fn last_ran(&self, t: &Ran) -> Time {
        t.since
    }
    fn sum_exec(&self, t: &Ran) -> u64 {
        t.sum
    }
}
