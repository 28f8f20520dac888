//! Moving tasks: those that wait (pull), and the one that runs (active balance).

use super::{Amount, Pull, Pulled, When};
use crate::capacity::fits;
use crate::features::Balance;
use crate::kernel::{Held, Kernel, must_be_runnable};
use crate::policy::{Enqueue, Policy};
use contend_platform::Ordering::Acquire;
use contend_platform::{CpuId, Ipi, SchedEvent, SchedPlatform, TaskId, Work};

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    /// Move tasks from `src` to `dst`.
    pub(super) fn pull(&self, p: &P, src: CpuId, dst: CpuId, pull: Pull) -> Pulled {
        if src == dst {
            return Pulled::default();
        }
        if self.features.balance == Balance::V3_6 {
            // Both locks for the whole pull.
            let (a, b) = self.double_lock(p, src, dst);
            let (from, to) = if a.0 == src { (&a, &b) } else { (&b, &a) };
            let (moved, pulled) = self.detach_tasks(p, from, dst, pull);
            for &task in &moved {
                self.attach_one(p, to, task);
            }
            if !moved.is_empty() {
                self.publish(p, from);
                self.publish(p, to);
            }
            self.unlock(p, b);
            self.unlock(p, a);
            return pulled;
        }
        let held = self.lock(p, src);
        let (moved, pulled) = self.detach_tasks(p, &held, dst, pull);
        if !moved.is_empty() {
            self.publish(p, &held);
        }
        self.unlock(p, held);
        self.attach(p, dst, &moved);
        pulled
    }

    /// Take tasks off a locked queue.
    fn detach_tasks(&self, p: &P, from: &Held, dst: CpuId, pull: Pull) -> (Vec<TaskId>, Pulled) {
        let Pull { what, keep_hot, failed, idle } = pull;
        // A task of more than twice what is to be moved stays; since 5.11 one counts for half as much with each failure.
        let relaxed = |load: u64| match self.features.balance {
            Balance::V6_18 => load.checked_shr(failed).unwrap_or(0),
            _ => load / 2,
        };
        let max = self.features.nr_migrate as usize;
        let mut candidates = Vec::new();
        let now = p.now();
        let (nr_running, curr, fair) = self.with_rq(p, from, |rd| {
            self.policy.candidates(&rd.pol, max, &mut candidates);
            (rd.nr_running, rd.curr, rd.curr.filter(|_| !rd.rt.runs()))
        });
        // A task woken while its CPU, looking for work, has not yet switched away from it is queued and still runs there.
        candidates.retain(|t| Some(*t) != curr);
        let mut moved = Vec::new();
        let mut hot_moved = 0;
        let mut all_pinned = nr_running > 1;
        let mut left = match what {
            Amount::Load(l) => l,
            Amount::Tasks(n) => n,
            Amount::Misfit => 1,
        };
        for task in candidates {
            // The source keeps one task.
            if left == 0 || moved.len() as u32 + 1 >= nr_running.max(1) {
                break;
            }
            p.charge(Work::BalanceTask, 1);
            self.must_exist(from.0, task, "candidates");
            if !self.affinity(p, task).allows(dst) || !self.bandwidth_lets_move(p, from, task, dst) {
                continue;
            }
            all_pinned = false;
            let pelt = self.pelt;
            let (hot, load, util, place) = self.with_task(p, from, task, |rd, e| {
                let hot = self.policy.is_buddy(&rd.pol, task)
                    || now.saturating_sub(self.policy.last_ran(&e.pol)) < self.features.migration_cost_ns;
                let own = if pelt { e.load.get() } else { self.policy.weight(&e.pol) };
                let util = e.util.get().max(e.util_est);
                (hot, self.policy.h_load(&rd.pol, &e.pol, own).max(1), util, (e.queued_on, e.delayed))
            });
            must_be_runnable(from.0, task, place.0, place.1, "candidates");
            if hot && keep_hot {
                continue;
            }
            match what {
                Amount::Load(_) if relaxed(load) > left => continue,
                Amount::Load(_) => left = left.saturating_sub(load),
                Amount::Misfit if fits(util, self.capacity.of(from.0)) => continue,
                Amount::Tasks(_) | Amount::Misfit => left -= 1,
            }
            self.deactivate(p, from, task);
            p.store(&self.task(task).cpu, u64::from(dst.0), contend_platform::Ordering::Release);
            p.trace(SchedEvent::Migrate { task, from: from.0, to: dst });
            moved.push(task);
            hot_moved += u64::from(hot);
            // A CPU about to idle takes one and is quick about it.
            if idle == When::NewIdle {
                break;
            }
        }
        // Who runs does not move, but shows that not all are pinned.
        all_pinned = all_pinned && !fair.is_some_and(|task| self.affinity(p, task).allows(dst));
        let pulled = Pulled { moved: moved.len() as u64, hot: hot_moved, all_pinned };
        (moved, pulled)
    }

    fn attach_one(&self, p: &P, to: &Held, task: TaskId) {
        let now = self.activate(p, to, task, Enqueue::Migrate);
        self.check_preempt(p, to, task, now);
    }

    /// Put detached tasks on `dst`.
    pub(crate) fn attach(&self, p: &P, dst: CpuId, tasks: &[TaskId]) {
        if tasks.is_empty() {
            return;
        }
        let held = self.lock(p, dst);
        for &task in tasks {
            self.attach_one(p, &held, task);
        }
        self.publish(p, &held);
        self.unlock(p, held);
    }

    // ---- active balance --------------------------------------------------------------------------------------

    pub(super) fn ask_active_balance(&self, p: &P, src: CpuId, dst: CpuId) {
        let held = self.lock(p, src);
        let asked = self.with_rq(p, &held, |rd| {
            let free = rd.push_to.is_none() && rd.curr.is_some() && !rd.rt.runs();
            if free {
                rd.push_to = Some(dst);
            }
            free
        });
        self.unlock(p, held);
        if asked {
            p.send_ipi(src, Ipi::ActiveBalance);
        }
    }

    /// The stopper's job on the busy CPU: have the running task put back, so that `schedule` can push it.
    pub(crate) fn push_running(&self, p: &P) {
        self.resched(p, p.cpu());
    }

    /// An active balance from `src` to `dst` has succeeded: counted in the lowest domain of `dst` that holds both.
    pub(crate) fn count_pushed(&self, p: &P, src: CpuId, dst: CpuId) {
        if let Some(i) = self.domains.of(dst).iter().position(|d| d.span.contains(&src)) {
            let held = self.lock(p, dst);
            self.with_rq(p, &held, |rd| rd.balance[i].stats[When::Idle as usize].alb_pushed += 1);
            self.unlock(p, held);
        }
    }

    /// In `schedule`, after the running task was put back: if it is to be pushed, take it off the queue. It is attached
    /// to its new CPU once the switch away from it is complete.
    pub(crate) fn take_pushed(&self, p: &P, held: &Held, task: TaskId) -> Option<(TaskId, CpuId)> {
        let to = self.with_rq(p, held, |rd| {
            let to = rd.push_to.take();
            // A real-time task has run since: it is not load balancing's.
            to.filter(|_| !rd.rt.waiting().any(|(_, t)| t == task))
        })?;
        if !self.affinity(p, task).allows(to) || p.load(&self.rq(to).peek, Acquire) != 0 {
            return None;
        }
        Some(self.take_off(p, held, task, to))
    }

    /// Take the running task, which was put back, off the queue for that of `to`.
    pub(crate) fn take_off(&self, p: &P, held: &Held, task: TaskId, to: CpuId) -> (TaskId, CpuId) {
        self.deactivate(p, held, task);
        p.store(&self.task(task).cpu, u64::from(to.0), contend_platform::Ordering::Release);
        p.trace(SchedEvent::Migrate { task, from: held.0, to });
        (task, to)
    }
}
