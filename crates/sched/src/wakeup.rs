//! try_to_wake_up, in its forms from 2010 to today (mechanisms B).
//!
//! The protocol of 3.0 and later: `pi_lock` makes one waker at a time own a sleeping task; a task whose `on_rq` is 0 and
//! whose state has been set to WAKING can be touched by nobody else; it may be placed without any run-queue lock once
//! `on_cpu` is 0, that is, once its old CPU has finished switching away from it. Then either the waker takes the lock of
//! the chosen run queue, or it queues the task to that CPU, which takes its own lock once for the batch.
//! `contend-check` checks this protocol and the two wake lists under loom and shuttle.

use crate::features::{Balance, IdleSearch, Preempt, WakePath};
use crate::idle_search::{SearchTime, moved_by_an_eighth};
use crate::kernel::{CorruptList, Held, Kernel};
use crate::pelt::Average;
use crate::policy::{Enqueue, Policy};
use crate::rq::{NEED_RESCHED, POLLING, peek_nr_running};
use crate::task::state;
use crate::wake_protocol::{self, Claim};
use contend_platform::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use contend_platform::{Account, CpuId, Ipi, SchedEvent, SchedPlatform, TaskId, Time, Work};

/// Wake-up flags.
pub mod flags {
    /// The waker is about to sleep.
    pub const SYNC: u64 = 1;
    /// The task is new.
    pub const FORK: u64 = 2;
    /// Rowand's patch: the task counted in the load average.
    pub const LOAD: u64 = 4;
    /// The wakee was placed on another CPU than before.
    pub const MIGRATED: u64 = 8;
}

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    pub(crate) fn pi_lock(&self, p: &P, task: TaskId) {
        let lock = &self.task(task).pi_lock;
        while p.compare_exchange(lock, 0, 1, Acquire, Relaxed).is_err() {
            let before = p.enter(Account::SpinLock);
            p.wait_until([lock], None, |[v]| v == 0);
            p.enter(before);
        }
    }
    pub(crate) fn pi_unlock(&self, p: &P, task: TaskId) {
        p.store(&self.task(task).pi_lock, 0, Release);
    }

    /// Wake `task` if its state is in `mask`. Returns whether this call woke it; what that means for a wake-up that was
    /// merely queued depends on the path (Rowand's loses the answer).
    pub fn try_to_wake_up(&self, p: &P, task: TaskId, mask: u64, flags: u64) -> bool {
        let before = p.enter(Account::Wakeup);
        let woken = match self.features.wake_path {
            WakePath::RemoteLock => self.ttwu_remote_lock(p, task, mask, flags),
            WakePath::RowandQueue => self.ttwu_rowand(p, task, mask, flags),
            _ => self.ttwu(p, task, mask, flags),
        };
        p.enter(before);
        woken
    }

    // ---- 3.0 to today ----------------------------------------------------------------------------------------

    fn ttwu(&self, p: &P, task: TaskId, mask: u64, flags: u64) -> bool {
        p.charge(Work::Ttwu, 1);
        let t = self.task(task);
        let this = p.cpu();
        let words = t.words();
        self.pi_lock(p, task);
        let mut claim = wake_protocol::claim(p, words, mask);
        if claim == Claim::NotAsleep {
            self.pi_unlock(p, task);
            return false;
        }
        p.trace(SchedEvent::Waking { task, target: self.task_cpu(p, task) });
        if claim == Claim::Queued {
            match self.ttwu_runnable(p, task) {
                None => {
                    let cpu = self.task_cpu(p, task);
                    self.count_wakeup(p, task, cpu, cpu, flags);
                    self.pi_unlock(p, task);
                    return true;
                }
                Some(reclaimed) => claim = reclaimed,
            }
        }
        let prev = self.task_cpu(p, task);
        if claim == (Claim::Claimed { on_cpu: true }) {
            let early = matches!(self.features.wake_path, WakePath::Ttwu58 | WakePath::Ttwu60);
            if early && self.queue_ok(p, task, prev, true) {
                self.count_wakeup(p, task, prev, prev, flags);
                self.queue(p, task, prev, 0);
                self.pi_unlock(p, task);
                return true;
            }
            let before = p.enter(Account::OnCpu);
            wake_protocol::wait_off_cpu(p, words);
            p.enter(before);
        }
        let cpu = self.select_task_rq(p, task, prev, flags);
        let mut moved = 0;
        if cpu != prev {
            moved = flags::MIGRATED;
            self.detach(p, task, prev);
            p.store(&t.cpu, u64::from(cpu.0), Release);
            p.trace(SchedEvent::Migrate { task, from: prev, to: cpu });
        }
        self.count_wakeup(p, task, prev, cpu, flags);
        if cpu != this && self.queue_ok(p, task, cpu, false) {
            self.queue(p, task, cpu, moved);
        } else {
            let held = self.lock(p, cpu);
            self.ttwu_activate(p, &held, task, moved != 0);
            self.unlock_pushing(p, held);
        }
        self.pi_unlock(p, task);
        true
    }

    /// The task is still on a run queue: it never got to sleep, or its dequeue is delayed. `None` if that is still so
    /// with the lock held; then it is runnable again.
    fn ttwu_runnable(&self, p: &P, task: TaskId) -> Option<Claim> {
        let t = self.task(task);
        let held = self.lock_task(p, task);
        let reclaimed = wake_protocol::reclaim_queued(p, t.words());
        if reclaimed.is_some() {
            self.unlock(p, held);
            return reclaimed;
        }
        self.wake_queued(p, &held, task);
        self.unlock(p, held);
        None
    }

    /// Wake a task that is on a locked run queue and whose state is RUNNING again. Returns whether it slept there, its
    /// dequeue delayed.
    fn wake_queued(&self, p: &P, held: &Held, task: TaskId) -> bool {
        let now = p.now();
        let pelt = self.pelt;
        let revived = self.with_task(p, held, task, |rd, e| {
            if !e.delayed {
                return false;
            }
            if pelt {
                rd.update_averages(now);
                e.load.update(now, 0);
                e.util.update(now, 0);
            }
            e.delayed = false;
            self.policy.revive(&mut rd.pol, task, &mut e.pol, now);
            rd.nr_running += 1;
            rd.est_in(e);
            rd.set_weight(&self.policy, rd.weight + self.policy.weight(&e.pol));
            rd.runnable_load.add(self.policy.h_load(&rd.pol, &e.pol, e.load.get()));
            e.waiting_since = Some(now);
            e.woken = true;
            true
        });
        if revived {
            let nr_running = self.with_rq(p, held, |rd| rd.nr_running);
            p.queue_length(held.0, nr_running);
            self.note_overload(p, nr_running);
        }
        if revived {
            self.bandwidth_came(p, held, task);
        }
        p.trace(SchedEvent::Wakeup { task, target: held.0, new: false });
        if revived || p.load(&self.task(task).on_cpu, Relaxed) == 0 {
            self.check_preempt(p, held, task, now);
        }
        if revived {
            self.publish(p, held);
        }
        revived
    }

    /// May the wake-up be queued to `cpu`? (mechanisms B.3; `on_cpu`: asked for a wakee that still switches out there)
    fn queue_ok(&self, p: &P, task: TaskId, cpu: CpuId, on_cpu: bool) -> bool {
        let this = p.cpu();
        let far = self.topo.llc_of(this) != self.topo.llc_of(cpu);
        let allowed = || self.affinity(p, task).allows(cpu);
        let nr_running = || peek_nr_running(p.load(&self.rq(cpu).peek, Acquire));
        match self.features.wake_path {
            WakePath::Ttwu30 => cpu != this,
            WakePath::Ttwu33 => far,
            WakePath::Ttwu58 => far || (on_cpu && nr_running() <= 1),
            WakePath::Ttwu60 => allowed() && (far || (cpu != this && nr_running() == 0)),
            WakePath::RemoteLock | WakePath::RowandQueue => false,
        }
    }

    /// Queue a wake-up to `cpu`, which will activate the task itself.
    fn queue(&self, p: &P, task: TaskId, cpu: CpuId, flags: u64) {
        let rq = self.rq(cpu);
        p.store(&self.task(task).wake_flags, flags, Relaxed);
        p.store(&rq.ttwu_pending, 1, Relaxed);
        if rq.wake_list.push(p, &|t| &self.tasks.get(t).wake_entry, task) {
            // A polling idle CPU looks by itself once its flag is set.
            if self.features.idle_polling && p.load(&rq.resched, Relaxed) & POLLING != 0 {
                let old = p.fetch_or(&rq.resched, NEED_RESCHED, AcqRel);
                if old & POLLING != 0 {
                    return;
                }
            }
            p.send_ipi(cpu, Ipi::CallFunction);
        }
    }

    /// Activate everything that is queued to this CPU: its own lock, once.
    pub(crate) fn drain_wake_list(&self, p: &P) {
        let before = p.enter(Account::Wakeup);
        let cpu = p.cpu();
        let rq = self.rq(cpu);
        let mut held = None;
        let mut first = true;
        rq.wake_list.drain(p, &|t| &self.tasks.get(t).wake_entry, |task| {
            let held = held.get_or_insert_with(|| {
                let held = self.lock(p, cpu);
                p.charge(Work::ClockRead, 1);
                held
            });
            let t = self.task(task);
            // Queued here while it switched out here: that switch is over, since this CPU runs this code.
            assert_eq!(p.load(&t.on_cpu, Acquire), 0, "{task:?} was queued to {cpu:?} and still runs elsewhere");
            let moved = p.load(&t.wake_flags, Relaxed) & flags::MIGRATED != 0;
            self.ttwu_activate(p, held, task, moved);
            if first {
                p.store(&rq.ttwu_pending, 0, Relaxed);
                first = false;
            }
        });
        if let Some(held) = held {
            self.unlock_pushing(p, held);
        }
        p.enter(before);
    }

    /// The end of every wake-up: on the queue, preemption check, state, idle accounting.
    fn ttwu_activate(&self, p: &P, held: &Held, task: TaskId, moved: bool) {
        let cpu = held.0;
        let now = self.activate(p, held, task, Enqueue::Wakeup { moved });
        p.store(&self.task(task).state, state::RUNNING, Relaxed);
        p.trace(SchedEvent::Wakeup { task, target: cpu, new: false });
        self.check_preempt(p, held, task, now);
        self.update_avg_idle(p, held);
        self.publish(p, held);
    }

    /// A wake-up ended an idle period: fold its length into avg_idle (mechanisms A.3).
    fn update_avg_idle(&self, p: &P, held: &Held) {
        let now = p.now();
        let (stamp, cap) = self.with_rq(p, held, |rd| {
            let stamp = std::mem::take(&mut rd.idle_stamp);
            (stamp, 2 * rd.max_idle_balance_cost)
        });
        if stamp == 0 {
            return;
        }
        let word = &self.rq(held.0).avg_idle;
        let delta = now - stamp;
        let average = moved_by_an_eighth(p.load(word, Relaxed), delta);
        let new = if self.features.balance == Balance::V3_6 {
            // The cap is twice the tunable; a longer period jumps there at once.
            let cap = 2 * self.features.migration_cost_ns;
            if delta > cap { cap } else { average }
        } else {
            average.min(cap)
        };
        p.store(word, new, Relaxed);
        if self.features.idle_search == IdleSearch::V5_14 {
            p.store(&self.rq(held.0).search_time, SearchTime::after_idle(new, now / self.tick_ns).pack(), Relaxed);
        }
    }

    /// Should the task just queued preempt what runs there?
    pub(crate) fn check_preempt(&self, p: &P, held: &Held, task: TaskId, now: Time) {
        let cpu = held.0;
        if self.is_parked(p, held, task) {
            return;
        }
        let (curr, running) = self.with_rq(p, held, |rd| (rd.curr, rd.running));
        // By its class: a lazy preemption is one among fair tasks.
        let mut urgent = true;
        let preempt = match running {
            // Idle: yes. On its way from one task to the next: it will choose in a moment anyway.
            None => curr.is_none(),
            Some(curr) if curr == task => false,
            Some(curr) => {
                // Nothing to decide when it is to be rescheduled anyway.
                if p.load(&self.rq(cpu).resched, Relaxed) & NEED_RESCHED != 0 {
                    return;
                }
                let (woken, sched) = self.with_task(p, held, task, |_, e| (e.pol.clone(), e.sched));
                let preempt = self.with_task(p, held, curr, |rd, e| {
                    let by_class = Self::class_preempts(rd, sched, e.sched);
                    let (rq, curr, woken) = (&mut rd.pol, (curr, &mut e.pol), (task, &woken));
                    match by_class {
                        None => self.policy.wakeup_preempt(rq, curr, woken, now),
                        Some(false) if sched.rt().is_none() && e.sched.rt().is_none() => {
                            self.policy.time_is_up(rq, curr, woken, now)
                        }
                        Some(preempts) => preempts,
                    }
                });
                urgent = sched.rt().is_some();
                preempt || urgent && self.equal_makes_room(p, held, task, curr)
            }
        };
        if preempt && (urgent || self.features.preempt == Preempt::None) {
            self.resched(p, cpu);
        } else if preempt {
            self.resched_lazy(p, cpu);
        }
    }

    /// A sleeping task leaves its old run queue's frame of reference, without that queue's lock.
    fn detach(&self, p: &P, task: TaskId, prev: CpuId) {
        let floor = p.load(&self.rq(prev).floor, Relaxed) as i64;
        let pelt = self.pelt;
        // The old queue's averages are as of then.
        let then = if pelt { Average::unpack(p.load(&self.rq(prev).util, Relaxed)).updated() } else { 0 };
        let now = p.now();
        // SAFETY: the task is WAKING and off every queue: only its waker touches the entity.
        let removed = unsafe {
            p.write(&self.task(task).ent, |e| {
                let fair = e.sched.rt().is_none();
                if fair {
                    self.policy.detach_sleeping(&mut e.pol, floor);
                }
                e.stats.nr_migrations += 1;
                if !pelt {
                    return 0;
                }
                let slept = e.load.get();
                e.load.update(then, 0);
                e.util.update(then, 0);
                let share = (e.slept_load * e.load.get() / slept.max(1)) << 32 | e.util.get();
                e.load.update(now, 0);
                e.util.update(now, 0);
                if fair { share } else { 0 }
            })
        };
        if removed != 0 {
            p.fetch_add(&self.rq(prev).removed, removed, Relaxed);
        }
    }

    fn count_wakeup(&self, p: &P, task: TaskId, prev: CpuId, cpu: CpuId, flags: u64) {
        let this = p.cpu();
        // SAFETY: pi_lock is held, or (before 3.0) the waker owns the WAKING task.
        unsafe {
            p.write(&self.task(task).info, |i| {
                let s = &mut i.stats;
                s.nr_wakeups += 1;
                s.nr_wakeups_sync += flags & flags::SYNC;
                s.nr_wakeups_migrate += u64::from(prev != cpu);
                s.nr_wakeups_local += u64::from(this == cpu);
                s.nr_wakeups_remote += u64::from(this != cpu);
            });
        }
        let rq = self.rq(this);
        rq.ttwu_count.fetch_add(1, Relaxed);
        rq.ttwu_local.fetch_add(u64::from(this == cpu), Relaxed);
        p.wakeup_placed(prev, cpu);
    }

    // ---- 2.6.37 ----------------------------------------------------------------------------------------------

    fn ttwu_remote_lock(&self, p: &P, task: TaskId, mask: u64, flags: u64) -> bool {
        p.charge(Work::Ttwu, 1);
        // With the fence in `announce_sleep`, as in `claim`. 2.6.37 has a write barrier and a lock here, which is as much on
        // x86; elsewhere the load of the state could overtake what the caller changed.
        p.fence(SeqCst);
        let held = self.lock_task(p, task);
        if p.load(&self.task(task).state, Relaxed) & mask == 0 {
            self.unlock(p, held);
            return false;
        }
        p.trace(SchedEvent::Waking { task, target: held.0 });
        self.ttwu_locked(p, held, task, flags)
    }

    /// From here on 2.6.37 and Rowand's patch are the same: the lock of the task's run queue is held.
    fn ttwu_locked(&self, p: &P, held: Held, task: TaskId, flags: u64) -> bool {
        let t = self.task(task);
        if p.load(&t.on_rq, Acquire) != 0 {
            p.store(&t.state, state::RUNNING, Release);
            // Reported as "not woken", unless it did sleep (a delayed dequeue, which 2.6.37 did not have).
            let slept = self.wake_queued(p, &held, task);
            self.unlock(p, held);
            return slept;
        }
        let prev = held.0;
        let mut held = held;
        let mut moved = false;
        if p.load(&t.on_cpu, Acquire) == 0 {
            p.store(&t.state, state::WAKING, Relaxed);
            // With the old CPU's lock held, scan included.
            let cpu = self.select_task_rq(p, task, prev, flags);
            if cpu != prev {
                moved = true;
                self.detach(p, task, prev);
                p.store(&t.cpu, u64::from(cpu.0), Release);
                p.trace(SchedEvent::Migrate { task, from: prev, to: cpu });
                self.unlock(p, held);
                held = self.lock(p, cpu);
            }
        }
        self.count_wakeup(p, task, prev, held.0, flags);
        self.ttwu_activate(p, &held, task, moved);
        self.unlock_pushing(p, held);
        true
    }

    // ---- Rowand's patch, December 2010 -------------------------------------------------------------------------

    fn ttwu_rowand(&self, p: &P, task: TaskId, mask: u64, flags: u64) -> bool {
        let t = self.task(task);
        let load = loop {
            let s = p.load(&t.state, Acquire);
            if s & mask == 0 {
                p.charge(Work::Ttwu, 1);
                return false;
            }
            let load = if s & state::UNINTERRUPTIBLE != 0 { flags::LOAD } else { 0 };
            if p.compare_exchange(&t.state, s, state::WAKING, AcqRel, Relaxed).is_ok() {
                break if mask == state::WAKING { flags & flags::LOAD } else { load };
            }
        };
        let cpu = self.task_cpu(p, task);
        if mask != state::WAKING {
            p.trace(SchedEvent::Waking { task, target: cpu });
        }
        if cpu != p.cpu() {
            p.store(&t.wake_flags, (flags & flags::SYNC) | load, Relaxed);
            if self.rq(cpu).rowand_list.push(p, &|t| &self.tasks.get(t).wake_entry, task) {
                p.send_ipi(cpu, Ipi::Reschedule);
            }
            // The caller sees "not woken".
            return false;
        }
        // A wake-up's private work, once: what comes before a push is the words' own cost.
        p.charge(Work::Ttwu, 1);
        let held = self.lock_task(p, task);
        self.ttwu_locked(p, held, task, flags)
    }

    /// The reschedule interrupt: in Rowand's patch it also wakes what is queued.
    pub(crate) fn reschedule_interrupt(&self, p: &P) {
        if self.features.wake_path != WakePath::RowandQueue {
            return;
        }
        let cpu = p.cpu();
        let drained = self.rq(cpu).rowand_list.drain(p, &|t| &self.tasks.get(t).wake_entry, |task| {
            let flags = p.load(&self.task(task).wake_flags, Relaxed);
            self.try_to_wake_up(p, task, state::WAKING, flags);
        });
        if drained.endless {
            std::panic::resume_unwind(Box::new(CorruptList(format!(
                "the wake list of {cpu:?} is a cycle: a task was pushed while it was still queued (rowand-queue, weakness b)"
            ))));
        }
    }
}
