//! The mechanism: a kernel's state, its run queues' locks, and the way onto a run queue and off it.
//!
//! Everything here and below runs on the CPU it is about, with interrupts off, in any world.

mod entry;
mod schedule;
mod tasks;

pub(crate) use schedule::must_be_runnable;

use crate::balance::newidle_ratio::NewidleRatio;
use crate::bandwidth::{Bandwidth, Locals};
use crate::capacity::{Capacities, Told};
use crate::cpuset::CpuMask;
use crate::domains::Domains;
use crate::features::{Balance, Features, IdleSearch};
use crate::pelt::Average;
use crate::policy::{Dequeue, Enqueue, Policy};
use crate::rq::{DomainLearned, NEED_RESCHED, NEED_RESCHED_LAZY, POLLING, Rq, RqData, load_value};
use crate::rq_lock::LockFactory;
use crate::rt::push_pull::Shared;
use crate::task::{Entity, Task, Tasks, state};
use contend_machine::Topology;
use contend_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use contend_platform::{CpuId, Ipi, Nanos, SchedPlatform, TaskId, Time, Work};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// avg_idle never exceeds this: twice the initial max_idle_balance_cost (mechanisms A.3).
pub const AVG_IDLE_CAP_NS: Nanos = 1_000_000;

/// What a system call did to the task that made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyscallEnd {
    /// It goes on.
    Continue,
    /// It has set its state and waits for a wake-up (which may have come already).
    Block,
    /// `sched_yield`.
    Yield,
    /// It may not stay on this CPU: switch away from it, then place it anew.
    Migrate,
    /// It goes on there, as [`Kernel::exec`] says: switch away from it, then put it on that CPU's queue.
    MoveTo(CpuId),
    /// It is gone.
    Exit,
}

/// The system calls of the world that the kernel runs in.
pub trait Syscalls<P: SchedPlatform, L: Policy> {
    /// The current task trapped: serve it. Runs on the task's CPU with interrupts off.
    fn syscall(&self, kernel: &Kernel<P, L>, p: &P, task: TaskId) -> SyscallEnd;
    /// A sleep timer of the task expired on this CPU; the default wakes it.
    fn timer(&self, kernel: &Kernel<P, L>, p: &P, task: TaskId) {
        kernel.try_to_wake_up(p, task, state::NORMAL, 0);
    }
    /// A call-function interrupt came: do what else than waking tasks this CPU was asked for.
    #[inline]
    fn call_function(&self, kernel: &Kernel<P, L>, p: &P) {
        let _ = (kernel, p);
    }
    /// Shall this CPU leave [`Kernel::cpu_loop`]? Asked wherever interrupts are on.
    #[inline]
    fn stopped(&self, p: &P) -> bool {
        let _ = p;
        false
    }
}

/// A decision that the mechanism refuses; thrown with `resume_unwind` (no hook, no message) and reported as the run's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError(pub String);

/// What happened to a wake list that cannot happen to a correct one; thrown like [`PolicyError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorruptList(pub String);

/// State shared by the CPUs of a last-level cache.
pub struct Llc<P: contend_platform::Platform> {
    /// Its CPUs, ascending.
    pub cpus: Box<[CpuId]>,
    /// has_idle_cores.
    pub has_idle_cores: P::Word,
    /// avg_scan_cost in ns (5.2).
    pub avg_scan_cost: P::Word,
    /// nr_idle_scan (6.0).
    pub nr_idle_scan: P::Word,
}

/// Where a CPU is between two visits to the kernel. Nothing of the kernel is on its stack meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outside {
    /// It waits, in [`SchedPlatform::idle`].
    Idle,
    /// In user code of this task ([`SchedPlatform::run_user`]).
    User(TaskId),
}

/// The kernel of one machine.
pub struct Kernel<P: SchedPlatform, L: Policy> {
    /// Switches.
    pub features: Features,
    /// The policy's parameters.
    pub policy: L,
    /// The machine's shape.
    pub topo: Topology,
    /// What each CPU is worth.
    pub(crate) capacity: Capacities,
    /// Its scheduling domains.
    pub domains: Domains,
    /// Run queues by CPU.
    pub rqs: Vec<Rq<P, L>>,
    /// Tasks.
    pub tasks: Tasks<P, L>,
    /// Last-level caches.
    pub llcs: Vec<Llc<P>>,
    /// What groups may use of all CPUs together.
    pub bandwidth: Bandwidth<P>,
    /// Makes kernel locks of the run's kind, for the world's system calls too.
    pub locks: LockFactory<P>,
    /// Idle CPUs whose tick is stopped, without simulated cost.
    pub(crate) nohz_idle: CpuMask,
    /// The root domain's overload flag: some run queue has had more than one task.
    pub(crate) overloaded: P::Word,
    /// When the nohz balancer may be kicked next. An observer's word without simulated cost.
    pub(crate) nohz_next: AtomicU64,
    /// What CPUs know of one another's real-time tasks; nothing before there is one.
    pub(crate) rt: OnceLock<Shared<P>>,
    /// Do averages matter in this era?
    pub(crate) pelt: bool,
    /// Wake-ups look for an idle CPU in the target's cluster first.
    pub(crate) clusters_first: bool,
    /// Wake-ups pack tasks on the waking CPU ([`crate::vcpu_pack`]): with averages only.
    pub(crate) vcpu_pack: bool,
    busy_freq_pct: u64,
    /// Of what was before the run: how far each CPU's balancing is.
    pub(crate) seed: u64,
    /// Tick period in ns.
    pub tick_ns: Nanos,
}

/// A lock held for the length of a value; a token only, released by [`Kernel::unlock`].
#[must_use]
pub(crate) struct Held(pub(crate) CpuId);

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    /// A kernel with empty run queues, and what it is told of CPUs that are not all alike.
    pub fn new(p: &P, topo: Topology, told: Told<'_>, features: Features, policy: L, tick_ns: Nanos) -> Self {
        let n = topo.nr_cpus();
        let pelt =
            matches!(features.balance, Balance::V5_2 | Balance::V6_18) || features.idle_search == IdleSearch::SisUtil;
        let capacity = Capacities::new(n, told, &features, pelt);
        let hybrid = matches!(told, Told::Priority(_));
        let clusters = features.sched_cluster && (features.sched_cluster_hybrid || !hybrid);
        let domains = Domains::new(&topo, &capacity, clusters);
        let locks = LockFactory::new(p, n, features.spinlock);
        let learned = DomainLearned::new(NewidleRatio::new(features.newidle_ratio as u32));
        let rq = |cpu| {
            let learned = vec![learned.clone(); domains.of(cpu).len()];
            Rq::new(p, &locks, &policy, capacity.of(cpu), learned)
        };
        let rqs: Vec<Rq<P, L>> = (0..n).map(|c| rq(CpuId(c as u16))).collect();
        let bandwidth = Bandwidth::new(p, &locks, policy.groups(), n);
        for rq in rqs.iter().filter(|_| !bandwidth.is_empty()) {
            // SAFETY: nobody else has them yet.
            unsafe { p.write(&rq.data, |rd| rd.bandwidth = Locals::new(bandwidth.len())) };
        }
        let llcs = (0..topo.nr_llcs())
            .map(|l| Llc {
                cpus: topo.llc_cpus(l).into(),
                has_idle_cores: p.word(p.line(), 1),
                avg_scan_cost: p.word(p.line(), 0),
                nr_idle_scan: p.word(p.line(), topo.llc_cpus(l).len() as u64),
            })
            .collect();
        Kernel {
            policy,
            capacity,
            domains,
            rqs,
            tasks: Tasks::default(),
            llcs,
            bandwidth,
            locks,
            nohz_idle: CpuMask::new(n),
            overloaded: p.word(p.line(), 0),
            nohz_next: AtomicU64::new(0),
            rt: OnceLock::new(),
            pelt,
            clusters_first: topo.has_clusters() && clusters && features.sis_cluster,
            vcpu_pack: false,
            busy_freq_pct: 100,
            seed: 0,
            features,
            topo,
            tick_ns,
        }
    }

    /// The kernel of a guest that packs its tasks. An era without averages cannot, and stays as it is.
    pub fn pack_vcpus(&mut self, pack: bool) {
        self.vcpu_pack = pack && self.pelt;
    }

    /// The frequency of a busy machine, in percent of the one that util_avg is scaled by. 100: nothing is scaled.
    pub fn scale_util(&mut self, busy_freq_pct: u64) {
        self.busy_freq_pct = busy_freq_pct;
    }

    /// Draw what was before the run (how far each CPU's balancing is) by `seed` instead of by 0.
    pub fn been_up(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// The run queue of `cpu`.
    #[inline]
    pub fn rq(&self, cpu: CpuId) -> &Rq<P, L> {
        &self.rqs[cpu.index()]
    }
    /// A task.
    #[inline]
    pub fn task(&self, task: TaskId) -> &Task<P, L> {
        self.tasks.get(task)
    }
    /// The CPU a task is on or was on last.
    #[inline]
    pub fn task_cpu(&self, p: &P, task: TaskId) -> CpuId {
        CpuId(p.load(&self.task(task).cpu, Acquire) as u16)
    }

    // ---- locking -------------------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn lock(&self, p: &P, cpu: CpuId) -> Held {
        self.rq(cpu).lock.lock(p);
        // SAFETY: the lock that guards the data has just been taken. This fetches its line for the critical section.
        unsafe { p.write(&self.rq(cpu).data, |_| ()) };
        Held(cpu)
    }
    #[inline]
    pub(crate) fn unlock(&self, p: &P, held: Held) {
        self.rq(held.0).lock.unlock(p);
    }
    /// double_rq_lock: the lower CPU number first.
    pub(crate) fn double_lock(&self, p: &P, a: CpuId, b: CpuId) -> (Held, Held) {
        assert_ne!(a, b);
        if a < b {
            let ha = self.lock(p, a);
            (ha, self.lock(p, b))
        } else {
            let hb = self.lock(p, b);
            (self.lock(p, a), hb)
        }
    }
    /// Lock the run queue a task is on, whichever that is by then.
    pub(crate) fn lock_task(&self, p: &P, task: TaskId) -> Held {
        loop {
            let cpu = self.task_cpu(p, task);
            let held = self.lock(p, cpu);
            if self.task_cpu(p, task) == cpu {
                return held;
            }
            self.unlock(p, held);
        }
    }

    /// The data of a run queue whose lock is held.
    #[inline]
    pub(crate) fn with_rq<R>(&self, p: &P, held: &Held, f: impl FnOnce(&mut RqData<L>) -> R) -> R {
        // SAFETY: `held` proves that the lock that guards the cell is held, and `lock` fetched it; `f` has no platform.
        unsafe { p.rewrite(&self.rq(held.0).data, f) }
    }
    /// The data of a locked run queue and of one of its tasks.
    #[inline]
    pub(crate) fn with_task<R>(
        &self,
        p: &P,
        held: &Held,
        task: TaskId,
        f: impl FnOnce(&mut RqData<L>, &mut Entity<L>) -> R,
    ) -> R {
        // SAFETY: as in `with_rq`; the entity of a task is guarded by the lock of its run queue. The closures nest without
        // a platform operation between them: `rewrite` performs none inside `write`'s closure.
        unsafe { p.write(&self.task(task).ent, |e| p.rewrite(&self.rq(held.0).data, |rd| f(rd, e))) }
    }

    /// Publish what others may peek at; call before the lock is released if anything of it changed.
    #[inline]
    pub(crate) fn publish(&self, p: &P, held: &Held) {
        let by_weight = !self.pelt;
        self.remove_averages(p, held);
        let (peek, load, floor, util, stale) = self.with_rq(p, held, |rd| {
            // Groups weigh anew without a task that came or went.
            rd.set_weight(&self.policy, rd.weight);
            let util = match self.busy_freq_pct {
                100 => rd.util,
                pct => rd.scaled_util(p.now(), pct),
            };
            let load = match self.features.balance {
                _ if by_weight => rd.competing,
                Balance::V5_2 => rd.runnable_load.get(),
                _ => rd.load.get(),
            };
            (rd.peek_value(), load_value(load, rd.rt.taken()), self.policy.floor(&rd.pol), util.pack(), rd.rt.stale())
        });
        let rq = self.rq(held.0);
        p.store_many([&rq.peek, &rq.load, &rq.floor, &rq.util], [peek, load, floor as u64, util]);
        self.est_publish(p, held);
        if stale {
            self.rt_publish(p, held);
        }
    }

    /// Tasks that slept here were woken to other CPUs, and took their share of the averages with them: as of when these were last
    /// published.
    #[inline]
    fn remove_averages(&self, p: &P, held: &Held) {
        let rq = self.rq(held.0);
        if self.pelt && p.load(&rq.removed, Relaxed) != 0 {
            let removed = p.swap(&rq.removed, 0, Relaxed);
            let then = Average::unpack(p.load(&rq.util, Relaxed)).updated();
            self.with_rq(p, held, |rd| rd.remove(removed, then));
        }
    }

    // ---- enqueue and dequeue ---------------------------------------------------------------------------------

    /// Put a task on a locked run queue. Returns when: whether it preempts is judged as of then (the queue's clock stands still meanwhile).
    pub(crate) fn activate(&self, p: &P, held: &Held, task: TaskId, why: Enqueue) -> Time {
        p.charge(Work::Enqueue, 1);
        let now = p.now();
        let pelt = self.pelt;
        let nr_running = self.with_task(p, held, task, |rd, e| {
            if pelt {
                rd.update_averages(now);
                e.load.update(now, 0);
                e.util.update(now, 0);
            }
            rd.est_in(e);
            self.class_enqueue(rd, task, e, why, now);
            if pelt && e.sched.rt().is_none() {
                let load = self.load_of(rd, e);
                if !matches!(why, Enqueue::Wakeup { moved: false }) {
                    rd.load.add(load);
                    rd.util.add(e.util.get());
                }
                rd.runnable_load.add(load);
            }
            e.queued_on = Some(held.0);
            rd.nr_running += 1;
            rd.nr_queued += 1;
            rd.set_weight(&self.policy, rd.weight + self.weight_of(e));
            if why != Enqueue::Migrate {
                e.waiting_since = Some(now);
                e.woken = true;
            }
            rd.nr_running
        });
        p.queue_length(held.0, nr_running);
        let t = self.task(task);
        p.store(&t.on_rq, 1, Release);
        self.note_overload(p, nr_running);
        self.bandwidth_came(p, held, task);
        now
    }

    /// A run queue has come to hold so many runnable tasks: from two on, there is something to balance.
    #[inline]
    pub(crate) fn note_overload(&self, p: &P, nr_running: u32) {
        if nr_running == 2 && p.load(&self.overloaded, Relaxed) == 0 {
            p.store(&self.overloaded, 1, Relaxed);
        }
    }

    /// Take a queued task off a locked run queue, for another one.
    pub(crate) fn deactivate(&self, p: &P, held: &Held, task: TaskId) {
        p.charge(Work::Dequeue, 1);
        let now = p.now();
        let pelt = self.pelt;
        p.store(&self.task(task).on_rq, 2, Release);
        let nr_running = self.with_task(p, held, task, |rd, e| {
            if pelt {
                rd.update_averages(now);
                e.load.update(now, self.weight_of(e));
                e.util.update(now, 0);
                if e.sched.rt().is_none() {
                    let load = self.load_of(rd, e);
                    rd.load.sub(load);
                    rd.runnable_load.sub(load);
                    rd.util.sub(e.util.get());
                }
            }
            rd.est_out(e);
            self.class_dequeue(rd, task, e, Dequeue::Migrate, now);
            e.queued_on = None;
            rd.nr_running -= 1;
            rd.nr_queued -= 1;
            rd.set_weight(&self.policy, rd.weight - self.weight_of(e));
            e.stats.nr_migrations += 1;
            rd.nr_running
        });
        p.queue_length(held.0, nr_running);
        self.bandwidth_left(p, held, task);
    }

    /// Ask `cpu`, which runs a task in user mode or in a system call, to reschedule when it returns to user mode: no interrupt.
    pub(crate) fn resched_lazy(&self, p: &P, cpu: CpuId) {
        p.fetch_or(&self.rq(cpu).resched, NEED_RESCHED_LAZY, AcqRel);
    }

    /// Ask `cpu` to reschedule: set its flag and, unless it watches the flag, interrupt it.
    pub(crate) fn resched(&self, p: &P, cpu: CpuId) {
        let old = p.fetch_or(&self.rq(cpu).resched, NEED_RESCHED, AcqRel);
        if old & NEED_RESCHED == 0 && cpu != p.cpu() && old & POLLING == 0 {
            p.send_ipi(cpu, Ipi::Reschedule);
        }
    }
}

/// End the run: the policy decided something that cannot be.
pub fn policy_error(what: String) -> ! {
    std::panic::resume_unwind(Box::new(PolicyError(what)))
}
