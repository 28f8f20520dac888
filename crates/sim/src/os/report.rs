//! What is told of tasks and objects when a run ends: counters, and who waits for what.

use super::{ObjectReport, Os, Pending};
use crate::program::{GroupId, ObjId};
use crate::world::World;
use contend_platform::{Nanos, TaskId, Time};
use contend_sched::class::Sched;
use contend_sched::kernel::Kernel;
use contend_sched::policy::Policy;
use contend_sched::task::{RunStats, WakeStats};

/// A finished or living task in the result.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskReport {
    /// Number of the task in order of creation, from 0.
    pub id: u64,
    /// Name.
    pub name: String,
    /// Class and priority at the end.
    pub sched: Sched,
    /// Group at the end.
    pub group: GroupId,
    /// Creation time in ns.
    pub started: Time,
    /// Exit time in ns, if it exited.
    pub exited: Option<Time>,
    /// Scheduler counters.
    pub run: RunStats,
    /// Wake-up counters.
    pub wake: WakeStats,
    /// What it waits for at the end of the run, if it lives and sleeps.
    pub waits_for: Option<String>,
    /// Since when it sleeps, if it is a foreground task and no timer will wake it.
    pub waits_since: Option<Time>,
}

impl<W: World> Os<W> {
    pub(super) fn report<L: Policy>(
        &self,
        kernel: &Kernel<W, L>,
        task: TaskId,
        exited: Option<Time>,
        end: Option<Time>,
    ) -> TaskReport {
        let t = kernel.task(task);
        let (mut run, wake) = (W::observe(&t.ent, |e| e.stats), W::observe(&t.info, |i| i.stats));
        // The stretch under way of a task that runs.
        if let (Some(cpu), Some(end)) = (W::observe(&t.ent, |e| e.queued_on), end) {
            let since = W::observe(&kernel.rq(cpu).data, |rd| (rd.curr == Some(task)).then_some(rd.curr_since));
            run.sum_exec += since.map_or(0, |since| end.saturating_sub(since));
        }
        // The wait under way of one that does not.
        if let (Some(since), Some(end)) = (W::observe(&t.ent, |e| e.waiting_since), end.filter(|_| exited.is_none())) {
            let waited = end.saturating_sub(since);
            run.waits += 1;
            run.wait_sum += waited;
            if waited > run.wait_max {
                (run.wait_max, run.wait_max_at) = (waited, since);
            }
        }
        let id = self.ids.borrow()[task.index()];
        let waits_for = exited.is_none().then(|| self.waits_for(task)).flatten();
        let sleeps = exited.is_none() && W::observe(&t.ent, |e| e.queued_on.is_none() || e.delayed);
        self.with(task, |o| TaskReport {
            id,
            name: o.name.clone(),
            sched: o.sched,
            group: self.groups.effective(kernel.features.autogroup, o.group),
            started: o.started,
            exited,
            run,
            wake,
            waits_for,
            waits_since: (sleeps && !o.background && !matches!(o.pending, Pending::Nothing | Pending::Sleep(_)))
                .then_some(o.slept_at),
        })
    }

    /// What a sleeping task waits for, in words.
    fn waits_for(&self, task: TaskId) -> Option<String> {
        let pending = self.with(task, |t| t.pending);
        let name = |o: ObjId| self.object(o).name.clone();
        Some(match pending {
            Pending::Nothing => {
                let spins = self.with(task, |t| t.thread.as_ref().and_then(|s| s.spins.get()))?;
                format!("a change of line {}, spinning since {} us", spins.line, spins.since / 1000)
            }
            Pending::Sleep(at) => format!("a timer at {at} ns"),
            Pending::Read(o, _) if self.is_ring(o) => format!("a packet from {}", name(o)),
            Pending::Write(o, n) => format!("room for {n} bytes in {}", name(o)),
            Pending::Read(o, n) => format!("{n} bytes from {}", name(o)),
            Pending::Lock(o) => match self.object(o).owner() {
                Some(owner) => format!("mutex {}, held by {}", name(o), self.name(owner)),
                None => format!("mutex {}, free", name(o)),
            },
            Pending::Cond(o, _) => format!("a signal of {}", name(o)),
            Pending::Barrier(o, _) => format!("barrier {} ({})", name(o), self.object(o).progress()),
            Pending::Rendezvous(o) => format!("rendezvous {} ({})", name(o), self.object(o).progress()),
            Pending::Sem(o) => format!("a post to {}", name(o)),
            Pending::Futex(o) => format!("a wake-up of {}", name(o)),
            Pending::Vcpu(wait) => wait.describe().into(),
            Pending::WordFutex => {
                let (line, held) = self.with(task, |t| t.thread.as_ref().map(|s| s.halts.get())).flatten()?;
                format!("a kick of a word on line {line} that held {held}")
            }
        })
    }

    fn name(&self, task: TaskId) -> String {
        let id = self.ids.borrow()[task.index()];
        match &self.tasks.borrow()[task.index()] {
            Some(t) => format!("{} (task {id})", t.name),
            None => format!("task {id}"),
        }
    }

    /// Name and number of a task, for traces.
    pub fn identify(&self, task: TaskId, f: impl FnOnce(u64, &str, Sched)) {
        let id = self.ids.borrow().get(task.index()).copied().unwrap_or(0);
        match self.tasks.borrow().get(task.index()) {
            Some(Some(t)) => f(id, &t.name, t.sched),
            _ => f(id, "?", Sched::default()),
        }
    }

    /// Reports of all tasks as of `end`, in order of creation.
    pub fn reports<L: Policy>(&self, kernel: &Kernel<W, L>, end: Time) -> Vec<TaskReport> {
        let mut all = self.finished.borrow().clone();
        // The run ends with the last event before its last task exits: private work lies between.
        all.iter_mut().filter_map(|t| t.exited.as_mut()).for_each(|at| *at = end.min(*at));
        let n = self.tasks.borrow().len();
        for i in 0..n {
            if self.tasks.borrow()[i].as_ref().is_some_and(|t| t.alive) {
                all.push(self.report(kernel, TaskId(i as u32), None, Some(end)));
            }
        }
        all.sort_by_key(|t| t.id);
        all
    }

    /// Living tasks, the first of them, and what they wait for.
    pub(crate) fn who_waits<L: Policy>(&self, kernel: &Kernel<W, L>, end: Time) -> Vec<String> {
        name_waiters(&self.reports(kernel, end), |t| t.exited.is_none())
    }

    /// Objects with locks that were used. Waits for mutexes that are under way count with their length by `end`.
    pub fn object_reports(&self, end: Time) -> Vec<ObjectReport> {
        let mut waiting: Vec<Vec<Nanos>> = vec![Vec::new(); self.objects.len()];
        for task in self.tasks.borrow().iter().flatten() {
            if let (true, Pending::Lock(o)) = (task.alive, task.pending) {
                waiting[o.0 as usize].push(end.saturating_sub(task.asked));
            }
        }
        let objects = std::iter::zip(&self.objects, &waiting);
        let mut all: Vec<_> = objects.flat_map(|(object, waiting)| object.reports(waiting, end)).collect();
        all.extend(self.buckets.reports(end));
        all
    }
}

/// Those of `tasks`, in the foreground, that sleep since before `since` for what no timer gives, the first of them, and what that is.
pub(crate) fn long_waits(tasks: &[TaskReport], since: Time) -> Vec<String> {
    name_waiters(tasks, |t| t.waits_since.is_some_and(|at| at < since))
}

fn name_waiters(tasks: &[TaskReport], which: impl Fn(&TaskReport) -> bool) -> Vec<String> {
    const NAMED: usize = 20;
    let waiting = tasks.iter().filter(|t| which(t));
    let line = |t: &TaskReport| {
        let what = t.waits_for.as_deref().unwrap_or("nothing it was told about");
        format!("{} (task {}) waits for {what}", t.name, t.id)
    };
    let mut who: Vec<String> = waiting.clone().take(NAMED).map(line).collect();
    let n = waiting.count();
    if n > NAMED {
        who.push(format!("and {} more", n - NAMED));
    }
    who
}
