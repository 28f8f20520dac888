//! The life and death of tasks, and what changes while they live: class, group, affinity.

use super::Kernel;
use crate::balance::Placed;
use crate::class::Sched;
use crate::cpuset::Affinity;
use crate::pelt::Average;
use crate::policy::groups::GroupId;
use crate::policy::{Dequeue, Enqueue, Policy, Put};
use crate::task::{Entity, state};
use crate::wake_protocol;
use contend_platform::Ordering::{Relaxed, Release};
use contend_platform::{Account, CpuId, SchedEvent, SchedPlatform, TaskId, Work};

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    /// Create a task; it does not run before [`Kernel::wake_up_new`].
    pub fn create(&self, p: &P, sched: Sched, affinity: Affinity, group: GroupId) -> TaskId {
        if sched.rt().is_some() {
            self.rt_shared(p);
        }
        self.tasks.create(p, &self.policy, sched, affinity, group)
    }

    /// Start a new task: place it (fork balancing), put it on a run queue.
    pub fn wake_up_new(&self, p: &P, task: TaskId) {
        self.first_wake_up(p, task, Placed::New);
    }

    /// The same of one that is there from the beginning: it has slept until now.
    pub fn wake_up_first(&self, p: &P, task: TaskId) {
        self.first_wake_up(p, task, Placed::Old);
    }

    /// The same of one that is started at the beginning of the run, by nobody that runs.
    pub fn wake_up_started(&self, p: &P, task: TaskId) {
        self.first_wake_up(p, task, Placed::Started);
    }

    fn first_wake_up(&self, p: &P, task: TaskId, placed: Placed) {
        let before = p.enter(Account::Wakeup);
        let t = self.task(task);
        self.pi_lock(p, task);
        p.store(&t.state, state::RUNNING, Relaxed);
        let this = p.cpu();
        p.store(&t.cpu, u64::from(this.0), Relaxed);
        let cpu = self.select_for_fork(p, task, this, placed);
        p.store(&t.cpu, u64::from(cpu.0), Release);
        let held = self.lock(p, cpu);
        if (self.vcpu_pack || self.capacity.differ()) && placed != Placed::Old {
            let now = p.now();
            self.with_task(p, &held, task, |rd, e| {
                rd.update_averages(now);
                e.start_util(rd.capacity, rd.util.get(), now);
            });
        }
        let now = self.activate(p, &held, task, Enqueue::New);
        p.trace(SchedEvent::Wakeup { task, target: cpu, new: true });
        self.check_preempt(p, &held, task, now);
        self.publish(p, &held);
        self.unlock_pushing(p, held);
        self.pi_unlock(p, task);
        p.enter(before);
    }

    /// The current task goes to sleep: announced before the condition it waits for is checked for the last time.
    pub fn announce_sleep(&self, p: &P, task: TaskId, value: u64) {
        wake_protocol::announce_sleep(p, self.task(task).words(), value);
    }
    /// The current task need not sleep after all.
    pub fn cancel_sleep(&self, p: &P, task: TaskId) {
        wake_protocol::cancel_sleep(p, self.task(task).words());
    }

    /// The current task is about to be gone; its world has released what it held.
    pub fn exiting(&self, p: &P, task: TaskId) {
        p.store(&self.task(task).state, state::DEAD, Release);
    }

    /// The current task executes a program. What it had in the caches is worth nothing any more, so it is placed anew, like a new task
    /// (`exec_balance`). Returns where to, if that is another CPU: the caller then returns [`SyscallEnd::MoveTo`].
    pub fn exec(&self, p: &P, task: TaskId) -> Option<CpuId> {
        let this = p.cpu();
        // A real-time task stays; and who places tasks has said where it belongs.
        if !self.features.exec_balance || L::PLACES || self.rt_prio(p, task).is_some() {
            return None;
        }
        self.pi_lock(p, task);
        let before = p.enter(Account::IdleSearch);
        p.charge(Work::SelectCpu, 1);
        let affinity = self.affinity(p, task);
        let held = self.lock_task(p, task);
        let load = self.with_task(p, &held, task, |rd, e| self.load_of(rd, e));
        self.unlock(p, held);
        let cpu = self.idlest(p, this, &affinity, Placed::Runs { on: this, load });
        p.enter(before);
        self.pi_unlock(p, task);
        (cpu != this).then_some(cpu)
    }

    /// Change the current task's class and priority.
    pub fn set_scheduler(&self, p: &P, task: TaskId, sched: Sched) {
        if sched.rt().is_some() {
            self.rt_shared(p);
        }
        let pinned = sched.rt().is_some() && !self.affinity(p, task).is_movable();
        self.change(p, task, |e| {
            e.sched = sched;
            (e.rr_ticks, e.makes_room, e.pinned) = (0, false, pinned);
            sched.apply(&self.policy, &mut e.pol);
        });
    }

    /// Move the current task to another group.
    pub fn set_group(&self, p: &P, task: TaskId, group: GroupId) {
        self.change(p, task, |e| self.policy.join(&mut e.pol, group));
    }

    /// Change what the current task is to its class: out of its hands and back, so that its sums stay true.
    fn change(&self, p: &P, task: TaskId, change: impl FnOnce(&mut Entity<L>)) {
        let mut held = self.lock_task(p, task);
        let now = p.now();
        let pelt = self.pelt;
        let limits = self.bandwidth_changes(p, &held, task);
        let (fell, level) = self.with_task(p, &held, task, |rd, e| {
            let before = rd.rt.level();
            if pelt {
                rd.update_averages(now);
            }
            self.class_put_prev(rd, task, e, Put::Preempted, now);
            self.class_dequeue(rd, task, e, Dequeue::Migrate, now);
            let others = rd.weight - self.weight_of(e);
            let was_fair = e.sched.rt().is_none();
            let load = self.load_of(rd, e);
            change(e);
            let is_fair = e.sched.rt().is_none();
            self.class_enqueue(rd, task, e, Enqueue::Migrate, now);
            if pelt && was_fair != is_fair {
                let (averages, load): (fn(&mut Average, u64), _) =
                    if is_fair { (Average::add, self.load_of(rd, e)) } else { (Average::sub, load) };
                averages(&mut rd.load, load);
                averages(&mut rd.runnable_load, load);
                averages(&mut rd.util, e.util.get());
            }
            self.class_set_next(rd, task, e, now);
            rd.set_weight(&self.policy, others + self.weight_of(e));
            (rd.rt.level() < before, rd.rt.level())
        });
        self.bandwidth_changed(p, &held, task, limits);
        self.publish(p, &held);
        if fell {
            held = self.pull_rt(p, held, level);
        }
        // Somebody who waits is higher now; or the task must not run any more, as a real-time one.
        let outranked = self.with_rq(p, &held, |rd| match rd.rt.running() {
            Some(prio) => rd.rt.throttled() || rd.rt.waits_at(prio + 1),
            None => rd.rt.waits_at(1),
        });
        self.unlock_pushing(p, held);
        if outranked {
            self.resched(p, p.cpu());
        }
    }

    /// Change where the current task may run. Returns true if it must leave its CPU: the caller then returns
    /// [`SyscallEnd::Migrate`].
    pub fn set_affinity(&self, p: &P, task: TaskId, affinity: Affinity) -> bool {
        self.pi_lock(p, task);
        let held = self.lock_task(p, task);
        let stay = affinity.allows(p.cpu());
        let pinned = !affinity.is_movable();
        // SAFETY: both locks that guard it are held.
        unsafe { p.write(&self.task(task).affinity, |a| *a = affinity) };
        if self.rt_prio(p, task).is_some() {
            self.with_task(p, &held, task, |rd, e| {
                e.pinned = pinned;
                rd.rt.set_running_pinned(pinned);
            });
            self.publish(p, &held);
        }
        self.unlock(p, held);
        self.pi_unlock(p, task);
        !stay
    }
}
