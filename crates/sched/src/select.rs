//! select_task_rq: where a wakee goes (mechanisms C.1), and where a new task goes.

use crate::balance::Placed;
use crate::cpuset::Affinity;
use crate::features::{WakeAffine, WakePath};
use crate::kernel::{Kernel, policy_error};
use crate::looks::Looks;
use crate::policy::Policy;
use crate::policy::cpus::Wake;
use crate::rq::{peek_curr, peek_load, peek_nr_running};
use crate::wakeup::flags;
use contend_platform::Ordering::{Acquire, Relaxed};
use contend_platform::{Account, CpuId, SchedPlatform, TaskId, Work};

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    /// curr is idle, nothing is runnable, nothing is on its way. One probe: one line read.
    pub(crate) fn idle_cpu(&self, p: &P, cpu: CpuId) -> bool {
        self.probe(p, cpu).0
    }

    /// The same, and what was read of its run queue ([`crate::rq::Rq::peek`]).
    pub(crate) fn probe(&self, p: &P, cpu: CpuId) -> (bool, u64) {
        p.charge(Work::Probe, 1);
        let rq = self.rq(cpu);
        let peek = p.load(&rq.peek, Acquire);
        if self.features.wake_path < WakePath::Ttwu33 {
            // Until 3.1 all that counted was whether the idle task is current, whatever waits to replace it.
            return (peek_curr(peek).is_none(), peek);
        }
        // available_idle_cpu: in a guest, a vCPU that lost its CPU is not there for the wakee either.
        (peek == 0 && p.load(&rq.ttwu_pending, Relaxed) == 0 && !p.preempted(cpu), peek)
    }

    /// The task's affinity. The caller is its waker, or the task itself, or holds its run queue's lock.
    pub(crate) fn affinity(&self, p: &P, task: TaskId) -> Affinity {
        // SAFETY: `set_affinity` writes with pi_lock and the run queue's lock held; the caller holds one of them, or
        // (before 3.0) owns the WAKING task.
        unsafe { p.read(&self.task(task).affinity, Affinity::clone) }
    }

    /// The load a synchronous waker takes with it when it sleeps: the mean of its queue. (Its own entity could only be
    /// read with its run queue's lock; with equal weights the mean is exact.)
    fn waker_load(&self, p: &P, this: CpuId, this_load: u64) -> u64 {
        this_load / u64::from(peek_nr_running(p.load(&self.rq(this).peek, Relaxed))).max(1)
    }

    pub(crate) fn select_task_rq(&self, p: &P, task: TaskId, prev: CpuId, flags: u64) -> CpuId {
        let before = p.enter(Account::IdleSearch);
        p.charge(Work::SelectCpu, 1);
        let affinity = self.affinity(p, task);
        let this = p.cpu();
        if let Some(prio) = self.rt_prio(p, task) {
            let cpu = self.select_rt(p, prio, prev, &affinity);
            p.enter(before);
            return cpu;
        }
        let sync = flags & flags::SYNC != 0;
        self.record_wakee(p, task);
        if L::PLACES
            && let Some(cpu) = self.placed(p, task, &affinity, Wake { prev, sync, new: false })
        {
            p.enter(before);
            return cpu;
        }
        if self.vcpu_pack && affinity.allows(this) && self.pack_has_room(p, task, this, Some(prev)) {
            p.enter(before);
            return this;
        }
        if let Some(cpu) = self.wake_cap(p, task, this, prev, &affinity) {
            p.enter(before);
            return cpu;
        }
        let target = self.wake_target(p, task, this, prev, sync, &affinity);
        let cpu = self.select_idle_sibling(p, task, prev, target, &affinity);
        // Whatever the search says, hard affinity holds (select_fallback_rq).
        let cpu = affinity.or_first(cpu, self.rqs.len());
        p.enter(before);
        cpu
    }

    /// Where the policy places a task.
    fn placed(&self, p: &P, task: TaskId, affinity: &Affinity, wake: Wake) -> Option<CpuId> {
        // SAFETY: the task is WAKING or new: its entity is the waker's.
        let t = unsafe { p.read(&self.task(task).ent, |e| e.pol.clone()) };
        let mut looks = Looks::new(self, p, affinity.clone());
        let chosen = self.policy.select_cpu(&mut looks, task, &t, wake);
        looks.count(chosen);
        let cpu = chosen?;
        self.must_be_a_cpu(cpu, "select_cpu");
        if !affinity.allows(cpu) {
            policy_error(format!("select_cpu put {task:?} on {cpu:?}, where its affinity forbids it to run"));
        }
        Some(cpu)
    }

    /// The policy's function `by` has named this CPU.
    pub(crate) fn must_be_a_cpu(&self, cpu: CpuId, by: &str) {
        if cpu.index() >= self.rqs.len() {
            policy_error(format!("{by} named {cpu:?} of {} CPUs", self.rqs.len()));
        }
    }

    /// The CPU around which to search: the waker's or the wakee's last.
    fn wake_target(&self, p: &P, task: TaskId, this: CpuId, prev: CpuId, sync: bool, affinity: &Affinity) -> CpuId {
        if this == prev || self.features.wake_affine == WakeAffine::Off || !affinity.allows(this) {
            return prev;
        }
        if self.features.wake_wide && self.is_wide(p, task) {
            return prev;
        }
        let affine = match self.features.wake_affine {
            WakeAffine::Off => false,
            WakeAffine::V3_6 => self.affine_by_load(p, task, this, prev, sync),
            WakeAffine::V5_2 => match self.affine_idle(p, this, prev, sync) {
                Some(target) => target == this,
                None => self.affine_by_average(p, task, this, prev, sync),
            },
        };
        // SAFETY: as in `affinity`.
        unsafe {
            p.write(&self.task(task).info, |i| {
                i.stats.nr_wakeups_affine_attempts += 1;
                i.stats.nr_wakeups_affine += u64::from(affine);
            });
        }
        if affine { this } else { prev }
    }

    /// wake_affine_idle (5.2 on).
    fn affine_idle(&self, p: &P, this: CpuId, prev: CpuId, sync: bool) -> Option<CpuId> {
        let prev_idle = |k: &Self| k.idle_cpu(p, prev);
        if self.topo.llc_of(this) == self.topo.llc_of(prev) && self.idle_cpu(p, this) {
            return Some(if prev_idle(self) { prev } else { this });
        }
        if sync && peek_nr_running(p.load(&self.rq(this).peek, Relaxed)) == 1 {
            return Some(this);
        }
        if self.features.wake_affine_prev_idle && prev_idle(self) {
            return Some(prev);
        }
        None
    }

    /// wake_affine_weight (5.2 on): by load averages, with the wakee's load moved over.
    fn affine_by_average(&self, p: &P, task: TaskId, this: CpuId, prev: CpuId, sync: bool) -> bool {
        let mut this_load = peek_load(p.load(&self.rq(this).load, Relaxed)) as i64;
        // SAFETY: the wakee is WAKING: its entity is the waker's.
        let h = unsafe { p.read(&self.task(task).ent, |e| e.load.get()) } as i64;
        if sync {
            this_load -= self.waker_load(p, this, this_load as u64) as i64;
        }
        let this_eff = (this_load + h) * 100;
        let prev_load = peek_load(p.load(&self.rq(prev).load, Relaxed)) as i64;
        let mut prev_eff = (prev_load - h) * self.affine_pct(this, prev) as i64;
        prev_eff += i64::from(sync);
        this_eff < prev_eff
    }

    /// wake_affine of 2.6.37 to 4.12: by the weights on the two queues.
    fn affine_by_load(&self, p: &P, task: TaskId, this: CpuId, prev: CpuId, sync: bool) -> bool {
        // SAFETY: the wakee is WAKING: its entity is the waker's.
        let weight = unsafe { p.read(&self.task(task).ent, |e| self.policy.weight(&e.pol)) };
        let mut this_load = peek_load(p.load(&self.rq(this).load, Relaxed));
        let prev_load = peek_load(p.load(&self.rq(prev).load, Relaxed));
        // Average load of a task here: also what a synchronous waker takes with it.
        let per_task = self.waker_load(p, this, this_load);
        if sync {
            this_load -= per_task;
        }
        let balanced = this_load == 0 || (this_load + weight) * 100 <= prev_load * self.affine_pct(this, prev);
        balanced || (this_load <= prev_load && this_load + prev_load <= per_task)
    }

    /// Half of the imbalance that the lowest domain holding both CPUs tolerates, over 100.
    fn affine_pct(&self, this: CpuId, prev: CpuId) -> u64 {
        let domain = self.domains.of(this).iter().find(|d| d.span.binary_search(&prev).is_ok());
        100 + (domain.map_or(125, |d| self.imbalance_pct(d)) - 100) / 2
    }

    /// record_wakee: count how often the waker wakes somebody else than last time.
    fn record_wakee(&self, p: &P, wakee: TaskId) {
        if !self.features.wake_wide {
            return;
        }
        let Some(waker) = peek_curr(p.load(&self.rq(p.cpu()).peek, Relaxed)) else { return };
        let now = p.now();
        // SAFETY: the waker is the running task of this CPU; nobody wakes it, so nobody else writes its info.
        unsafe {
            p.write(&self.task(waker).info, |i| {
                if now >= i.flip_decay_at + 1_000_000_000 {
                    i.wakee_flips /= 2;
                    i.flip_decay_at = now;
                }
                if i.last_wakee != Some(wakee) {
                    i.last_wakee = Some(wakee);
                    i.wakee_flips += 1;
                }
            });
        }
    }

    /// wake_wide: min flips >= LLC size and max >= min x LLC size.
    fn is_wide(&self, p: &P, wakee: TaskId) -> bool {
        let Some(waker) = peek_curr(p.load(&self.rq(p.cpu()).peek, Relaxed)) else { return false };
        // SAFETY: as in `record_wakee`, and the wakee is the waker's.
        let (a, b) = unsafe {
            (p.read(&self.task(waker).info, |i| i.wakee_flips), p.read(&self.task(wakee).info, |i| i.wakee_flips))
        };
        let size = self.llcs[self.topo.llc_of(p.cpu())].cpus.len() as u64;
        let (small, large) = (a.min(b), a.max(b));
        small >= size && large >= small * size
    }

    /// Where a new task goes.
    pub(crate) fn select_for_fork(&self, p: &P, task: TaskId, this: CpuId, placed: Placed) -> CpuId {
        let before = p.enter(Account::IdleSearch);
        p.charge(Work::SelectCpu, 1);
        let affinity = self.affinity(p, task);
        let mut cpu = affinity.or_first(this, self.rqs.len());
        if let Some(prio) = self.rt_prio(p, task) {
            cpu = self.select_rt(p, prio, cpu, &affinity);
            p.enter(before);
            return cpu;
        }
        if L::PLACES
            && let Some(placed) = self.placed(p, task, &affinity, Wake { prev: this, sync: false, new: true })
        {
            p.enter(before);
            return placed;
        }
        if !(self.vcpu_pack && cpu == this && self.pack_has_room(p, task, this, None)) {
            cpu = self.idlest(p, cpu, &affinity, placed);
        }
        p.enter(before);
        cpu
    }
}
