//! The mechanism: the CPU loop, `schedule()`, the tick, and the life and death of tasks.
//!
//! Everything here runs on the CPU it is about, with interrupts off, in any world. `schedule()` follows the kernel's
//! protocol: the run-queue lock is held over the switch, `on_cpu` of the task that left is cleared when the next one has
//! taken over, and only then is the lock released.

use crate::bandwidth::{Bandwidth, Locals};
use crate::class::Sched;
use crate::cpuset::{Affinity, CpuMask};
use crate::domains::Domains;
use crate::features::{Balance, Features, IdleSearch};
use crate::pelt::Average;
use crate::policy::groups::GroupId;
use crate::policy::{Dequeue, Enqueue, Pick, Policy, Put};
use crate::rq::{NEED_RESCHED, POLLING, Rq, RqData, load_value, peek_curr};
use crate::rq_lock::LockFactory;
use crate::rt::push_pull::Shared;
use crate::task::{Entity, Task, Tasks, state};
use crate::wake_protocol;
use contend_machine::Topology;
use contend_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use contend_platform::{Account, CpuId, Ipi, Nanos, SchedEvent, SchedPlatform, TaskId, Time, Trap, Work};
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

/// Why `schedule` is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    Preempt,
    Block,
    Yield,
    Exit,
    Idle,
}

/// The kernel of one machine.
pub struct Kernel<P: SchedPlatform, L: Policy> {
    /// Switches.
    pub features: Features,
    /// The policy's parameters.
    pub policy: L,
    /// The machine's shape.
    pub topo: Topology,
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
    /// Wake-ups pack tasks on the waking CPU ([`crate::vcpu_pack`]): with averages only.
    pub(crate) vcpu_pack: bool,
    /// Tick period in ns.
    pub tick_ns: Nanos,
}

/// A lock held for the length of a value; a token only, released by [`Kernel::unlock`].
#[must_use]
pub(crate) struct Held(pub(crate) CpuId);

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    /// A kernel with empty run queues.
    pub fn new(p: &P, topo: Topology, features: Features, policy: L, tick_ns: Nanos) -> Self {
        let n = topo.nr_cpus();
        let domains = Domains::new(&topo);
        let locks = LockFactory::new(p, n, features.spinlock);
        let rqs: Vec<Rq<P, L>> =
            (0..n).map(|c| Rq::new(p, &locks, &policy, domains.of(CpuId(c as u16)).len())).collect();
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
        let pelt =
            matches!(features.balance, Balance::V5_2 | Balance::V6_18) || features.idle_search == IdleSearch::SisUtil;
        Kernel {
            policy,
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
            vcpu_pack: false,
            features,
            topo,
            tick_ns,
        }
    }

    /// The kernel of a guest that packs its tasks. An era without averages cannot, and stays as it is.
    pub fn pack_vcpus(&mut self, pack: bool) {
        self.vcpu_pack = pack && self.pelt;
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
            let load = match self.features.balance {
                _ if by_weight => rd.competing,
                Balance::V5_2 => rd.runnable_load.get(),
                _ => rd.load.get(),
            };
            (
                rd.peek_value(),
                load_value(load, rd.rt.taken()),
                self.policy.floor(&rd.pol),
                rd.util.pack(),
                rd.rt.stale(),
            )
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

    /// Ask `cpu` to reschedule: set its flag and, unless it watches the flag, interrupt it.
    pub(crate) fn resched(&self, p: &P, cpu: CpuId) {
        let old = p.fetch_or(&self.rq(cpu).resched, NEED_RESCHED, AcqRel);
        if old & NEED_RESCHED == 0 && cpu != p.cpu() && old & POLLING == 0 {
            p.send_ipi(cpu, Ipi::Reschedule);
        }
    }

    // ---- the CPU loop ----------------------------------------------------------------------------------------

    /// What a CPU does, until [`Syscalls::stopped`].
    pub fn cpu_loop<S: Syscalls<P, L>>(&self, p: &P, sys: &S) {
        let mut outside = self.cpu_up(p);
        while !sys.stopped(p) {
            outside = match outside {
                Outside::Idle => {
                    p.idle(&self.rq(p.cpu()).resched);
                    self.idle_ended(p, sys)
                }
                Outside::User(task) => {
                    let trap = p.run_user(task);
                    self.trapped(p, sys, task, trap)
                }
            };
        }
    }

    /// The calling CPU comes up, idle.
    pub fn cpu_up(&self, p: &P) -> Outside {
        self.idle_entered(p, false);
        self.leave(p, None)
    }

    /// The task that the calling CPU ran has entered the kernel: what there is to do, until the CPU leaves it again.
    pub fn trapped<S: Syscalls<P, L>>(&self, p: &P, sys: &S, task: TaskId, trap: Trap) -> Outside {
        let mut moving = None;
        let why = match trap {
            Trap::Interrupt => {
                self.interrupts(p, sys);
                None
            }
            Trap::Syscall => match sys.syscall(self, p, task) {
                SyscallEnd::Continue => None,
                SyscallEnd::Block => Some(Why::Block),
                SyscallEnd::Migrate => {
                    self.announce_sleep(p, task, state::UNINTERRUPTIBLE);
                    moving = Some(task);
                    Some(Why::Block)
                }
                SyscallEnd::Yield => Some(Why::Yield),
                SyscallEnd::Exit => Some(Why::Exit),
            },
        };
        let why = match why {
            Some(why) => why,
            None if p.load(&self.rq(p.cpu()).resched, Relaxed) & NEED_RESCHED != 0 => Why::Preempt,
            None => return Outside::User(task),
        };
        let next = self.schedule(p, why);
        if let Some(task) = moving {
            // What the stopper thread does in Linux: place the task where it may run.
            self.try_to_wake_up(p, task, state::UNINTERRUPTIBLE, 0);
        }
        self.leave(p, next)
    }

    /// The calling CPU was idle, and no longer waits: as [`Kernel::trapped`].
    pub fn idle_ended<S: Syscalls<P, L>>(&self, p: &P, sys: &S) -> Outside {
        let rq = self.rq(p.cpu());
        let polls = self.idle_polls(p);
        if polls {
            p.fetch_and(&rq.resched, !POLLING, AcqRel);
        }
        self.interrupts(p, sys);
        // A poller was told by its flag, not by an interrupt, that wake-ups are queued.
        if polls && !rq.wake_list.is_empty(p) {
            self.drain_wake_list(p);
        }
        if p.load(&rq.resched, Acquire) & NEED_RESCHED == 0 {
            return self.leave(p, None);
        }
        p.leave_idle();
        let next = self.schedule(p, Why::Idle);
        self.leave(p, next)
    }

    /// The calling CPU is about to leave the kernel, for `next` or to idle.
    fn leave(&self, p: &P, next: Option<TaskId>) -> Outside {
        match next {
            Some(task) => Outside::User(task),
            None => {
                if self.idle_polls(p) {
                    p.fetch_or(&self.rq(p.cpu()).resched, POLLING, AcqRel);
                }
                Outside::Idle
            }
        }
    }

    fn idle_polls(&self, p: &P) -> bool {
        self.features.idle_polling && p.idle_polls()
    }

    /// Serve pending interrupts.
    fn interrupts<S: Syscalls<P, L>>(&self, p: &P, sys: &S) {
        let before = p.enter(Account::Interrupt);
        p.trace(SchedEvent::Interrupt { begin: true });
        while p.interrupt_pending() {
            let found = p.take_interrupts();
            if found.ipis & Ipi::CallFunction.bit() != 0 {
                self.drain_wake_list(p);
                self.bandwidth_interrupt(p);
                sys.call_function(self, p);
            }
            if found.ipis & Ipi::Reschedule.bit() != 0 {
                self.reschedule_interrupt(p);
            }
            if found.timers {
                while let Some(task) = p.take_timer() {
                    p.charge(Work::Timer, 1);
                    if !self.bandwidth_timer(p, task) {
                        sys.timer(self, p, task);
                    }
                }
            }
            if found.tick {
                self.tick(p);
            }
            if found.ipis & Ipi::NohzBalance.bit() != 0 {
                self.nohz_idle_balance(p);
            }
            if found.ipis & Ipi::ActiveBalance.bit() != 0 {
                self.push_running(p);
            }
            p.leave_interrupts();
        }
        p.trace(SchedEvent::Interrupt { begin: false });
        p.enter(before);
    }

    /// scheduler_tick.
    fn tick(&self, p: &P) {
        let cpu = p.cpu();
        p.charge(Work::Tick, 1);
        let held = self.lock(p, cpu);
        let now = p.now();
        let curr = self.with_rq(p, &held, |rd| rd.curr);
        let mut resched = false;
        if let Some(task) = curr {
            let pelt = self.pelt;
            resched = self.with_task(p, &held, task, |rd, e| {
                if pelt {
                    rd.update_averages(now);
                    e.util.update(now, 1024);
                    e.load.update(now, self.weight_of(e));
                }
                self.class_tick(rd, task, e, now)
            });
            resched |= self.bandwidth_tick(p, &held, task);
        }
        resched |= self.with_rq(p, &held, |rd| rd.throttle(&self.features, now));
        if curr.is_some() {
            self.publish(p, &held);
        }
        let crowded = self.with_rq(p, &held, |rd| rd.nr_running >= 2);
        let due = now >= p.load(&self.rq(cpu).next_balance, Relaxed);
        self.unlock(p, held);
        if resched {
            self.resched(p, cpu);
        }
        if self.features.balance == Balance::Off {
            return;
        }
        if due {
            self.periodic_balance(p, cpu, curr.is_none());
        }
        if curr.is_some() && self.features.nohz_balance {
            self.kick_nohz_balancer(p, crowded);
        }
    }

    // ---- schedule() ------------------------------------------------------------------------------------------

    /// Choose what runs next and switch to it; returns it (`None`: idle).
    fn schedule(&self, p: &P, why: Why) -> Option<TaskId> {
        let before = p.enter(Account::Switch);
        let cpu = p.cpu();
        let rq = self.rq(cpu);
        let mut held = self.lock(p, cpu);
        p.charge(Work::ClockRead, 1);
        let (prev, left) = self.with_rq(p, &held, |rd| {
            rd.stats.sched_count += 1;
            (rd.curr, rd.rt.left_alone())
        });
        if let Some(left) = left.filter(|_| matches!(why, Why::Block | Why::Exit)) {
            held = self.pull_rt(p, held, left);
        }
        let mut pushed = None;
        if let Some(task) = prev {
            let stays = self.put_prev(p, &held, task, why);
            let parked = self.bandwidth_stopped(p, &held, task, stays);
            if stays && !parked && why == Why::Preempt {
                pushed = self.take_pushed(p, &held, task);
            }
        }
        if p.load(&rq.resched, Relaxed) & NEED_RESCHED != 0 {
            p.fetch_and(&rq.resched, !NEED_RESCHED, AcqRel);
        }
        let mut next = self.pick(p, &held);
        if next.is_none() {
            held = self.newidle(p, held);
            next = self.pick(p, &held);
        }
        let now = p.now();
        if let Some(task) = next {
            self.set_next(p, &held, task, prev, now);
        } else {
            let was_idle = prev.is_none();
            self.with_rq(p, &held, |rd| {
                rd.update_averages(now);
                rd.curr = None;
                rd.stats.sched_goidle += 1;
                if !was_idle || rd.idle_stamp == 0 {
                    rd.idle_stamp = now;
                }
            });
        }
        self.publish(p, &held);
        if next != prev {
            let prev_state = self.leaving_state(p, prev, why);
            p.trace(SchedEvent::Switch { prev, prev_state, next });
            if let Some(task) = next {
                wake_protocol::enter_cpu(p, self.task(task).words());
            }
            p.switch_to(prev, next);
            // finish_task_switch: from here another CPU may run the task that left.
            if let Some(task) = prev {
                wake_protocol::leave_cpu(p, self.task(task).words());
            }
            if prev.is_none() {
                p.stop_tick(false);
                self.nohz_idle.set(cpu, false);
            }
        } else if next.is_some() {
            p.switch_to(prev, next);
        }
        let (rt_used, throttled) = self.with_rq(p, &held, |rd| (rd.rt.is_used(), rd.rt.nr_throttled() > 0));
        self.unlock_pushing(p, held);
        if let Some((task, to)) = pushed {
            self.attach(p, to, &[task]);
            self.count_pushed(p, cpu, to);
        }
        if next.is_none() && prev.is_some() {
            self.idle_entered(p, throttled);
        } else if next.is_none() && rt_used {
            // A throttled task has come meanwhile, or has gone elsewhere.
            p.stop_tick(!throttled);
        }
        if why == Why::Exit
            && let Some(task) = prev
        {
            self.tasks.free(task);
        }
        p.enter(before);
        next
    }

    /// prev_state of a sched_switch event.
    fn leaving_state(&self, p: &P, prev: Option<TaskId>, why: Why) -> u64 {
        match (prev, why) {
            (Some(_), Why::Exit) => state::DEAD,
            (Some(task), Why::Block) => p.load(&self.task(task).state, Relaxed) & state::NORMAL,
            _ => 0,
        }
    }

    /// Take the running task off; returns whether it stays on the queue.
    fn put_prev(&self, p: &P, held: &Held, task: TaskId, why: Why) -> bool {
        let t = self.task(task);
        let put = match why {
            Why::Exit => Put::Exit,
            Why::Yield => Put::Yielded,
            // A wake-up may have come between setting the state and here: then the task never sleeps.
            Why::Block if p.load(&t.state, Acquire) != state::RUNNING => Put::Sleep,
            Why::Block | Why::Preempt | Why::Idle => Put::Preempted,
        };
        p.charge(Work::Dequeue, u64::from(put == Put::Sleep || put == Put::Exit));
        self.bandwidth_charge(p, held, task);
        let now = p.now();
        let pelt = self.pelt;
        let (stays, nr_running) = self.with_task(p, held, task, |rd, e| {
            if pelt {
                rd.update_averages(now);
                e.util.update(now, 1024);
                e.load.update(now, self.weight_of(e));
            }
            let ran = now - rd.curr_since;
            rd.curr_since = now;
            rd.stats.rq_cpu_time += ran;
            e.stats.sum_exec += ran;
            rd.running = None;
            let load = self.load_of(rd, e);
            let delayed = self.class_put_prev(rd, task, e, put, now);
            match put {
                Put::Preempted | Put::Yielded => {
                    e.waiting_since = Some(now);
                    e.woken = false;
                    if put == Put::Yielded {
                        rd.stats.yld_count += 1;
                    } else {
                        e.stats.preempted += 1;
                    }
                    return (true, rd.nr_running);
                }
                Put::Exit if pelt && e.sched.rt().is_none() => {
                    rd.load.sub(load);
                    rd.util.sub(e.util.get());
                }
                Put::Sleep | Put::Exit => e.slept_load = load,
            }
            rd.runnable_load.sub(load);
            rd.est_out(e);
            e.est_update();
            rd.nr_running -= 1;
            rd.set_weight(&self.policy, rd.weight - self.weight_of(e));
            if delayed {
                e.delayed = true;
            } else {
                e.queued_on = None;
                rd.nr_queued -= 1;
            }
            (delayed, rd.nr_running)
        });
        p.queue_length(held.0, nr_running);
        if matches!(put, Put::Sleep | Put::Exit) {
            self.bandwidth_left(p, held, task);
        }
        if !stays {
            wake_protocol::leave_queue(p, t.words());
        }
        stays
    }

    /// Ask the policy, verify its answer.
    fn pick(&self, p: &P, held: &Held) -> Option<TaskId> {
        loop {
            p.charge(Work::Pick, 1);
            let now = p.now();
            let picked = self.with_rq(p, held, |rd| {
                rd.throttle(&self.features, now);
                rd.rt.next().map_or_else(|| self.policy.pick_next(&mut rd.pol, now), Pick::Task)
            });
            match picked {
                Pick::Nothing => {
                    let queued = self.with_rq(p, held, |rd| rd.nr_fair());
                    if queued != 0 {
                        policy_error(format!(
                            "pick_next found nothing on {:?} where {queued} tasks are runnable",
                            held.0
                        ));
                    }
                    return None;
                }
                Pick::Task(task) => {
                    self.verify(p, held, task);
                    if self.bandwidth_parks(p, held, task) {
                        continue;
                    }
                    return Some(task);
                }
                Pick::Finished(task) => {
                    self.with_task(p, held, task, |rd, e| {
                        self.policy.dequeue(&mut rd.pol, task, &mut e.pol, Dequeue::Sleep, now);
                        e.delayed = false;
                        e.queued_on = None;
                        rd.nr_queued -= 1;
                    });
                    wake_protocol::leave_queue(p, self.task(task).words());
                }
            }
        }
    }

    /// No task on two CPUs, none on a forbidden one.
    fn verify(&self, p: &P, held: &Held, task: TaskId) {
        let cpu = held.0;
        if !self.tasks.exists(task) {
            policy_error(format!("pick_next on {cpu:?} named {task:?}, which does not exist"));
        }
        let (queued_on, delayed) = self.with_task(p, held, task, |_, e| (e.queued_on, e.delayed));
        if queued_on != Some(cpu) || delayed {
            policy_error(format!(
                "pick_next on {cpu:?} named {task:?}, which is not runnable there (queued on {queued_on:?}, asleep: {delayed})"
            ));
        }
    }

    fn set_next(&self, p: &P, held: &Held, task: TaskId, prev: Option<TaskId>, now: Time) {
        let pelt = self.pelt;
        let latency = self.with_task(p, held, task, |rd, e| {
            if pelt {
                rd.update_averages(now);
                e.util.update(now, 0);
                e.load.update(now, self.weight_of(e));
            }
            self.class_set_next(rd, task, e, now);
            rd.curr = Some(task);
            rd.running = Some(task);
            rd.curr_since = now;
            self.bandwidth_begins(rd, now);
            rd.idle_stamp = 0;
            let mut latency = None;
            if let Some(since) = e.waiting_since.take() {
                let waited = now - since;
                if e.woken {
                    latency = Some(waited);
                }
                if prev != Some(task) {
                    rd.stats.run_delay += waited;
                    rd.stats.pcount += 1;
                    e.stats.waits += 1;
                    e.stats.wait_sum += waited;
                    if waited > e.stats.wait_max {
                        e.stats.wait_max = waited;
                        e.stats.wait_max_at = since;
                    }
                } else {
                    // Put back and picked again in one go: it never waited, and was not switched away from.
                    e.stats.preempted -= u64::from(!e.woken && e.stats.preempted > 0);
                }
            }
            if prev != Some(task) {
                e.stats.switches += 1;
            }
            latency
        });
        if let Some(ns) = latency {
            p.wakeup_latency(ns);
        }
    }

    /// Nothing to run: look for work elsewhere. Returns with the lock held again.
    fn newidle(&self, p: &P, held: Held) -> Held {
        let now = p.now();
        let cpu = held.0;
        self.with_rq(p, &held, |rd| {
            if rd.idle_stamp == 0 {
                rd.idle_stamp = now;
            }
        });
        // A spurious idle-to-idle schedule does not balance again.
        let fresh = peek_curr(p.load(&self.rq(cpu).peek, Relaxed)).is_some();
        if !fresh || !self.features.newidle_balance || self.features.balance == Balance::Off {
            return held;
        }
        self.newidle_balance(p, held)
    }

    /// This CPU has become idle.
    fn idle_entered(&self, p: &P, throttled: bool) {
        // Throttled tasks wait for a tick.
        p.stop_tick(!throttled);
        self.nohz_idle.set(p.cpu(), true);
        self.update_idle_core(p);
    }

    // ---- tasks -----------------------------------------------------------------------------------------------

    /// Create a task; it does not run before [`Kernel::wake_up_new`].
    pub fn create(&self, p: &P, sched: Sched, affinity: Affinity, group: GroupId) -> TaskId {
        if sched.rt().is_some() {
            self.rt_shared(p);
        }
        self.tasks.create(p, &self.policy, sched, affinity, group)
    }

    /// Start a new task: place it (fork balancing), put it on a run queue.
    pub fn wake_up_new(&self, p: &P, task: TaskId) {
        self.first_wake_up(p, task, true);
    }

    /// The same of one that is there from the beginning: it has slept until now.
    pub fn wake_up_first(&self, p: &P, task: TaskId) {
        self.first_wake_up(p, task, false);
    }

    fn first_wake_up(&self, p: &P, task: TaskId, forked: bool) {
        let before = p.enter(Account::Wakeup);
        let t = self.task(task);
        self.pi_lock(p, task);
        p.store(&t.state, state::RUNNING, Relaxed);
        let this = p.cpu();
        p.store(&t.cpu, u64::from(this.0), Relaxed);
        let cpu = self.select_for_fork(p, task, this);
        p.store(&t.cpu, u64::from(cpu.0), Release);
        let held = self.lock(p, cpu);
        if self.vcpu_pack && forked {
            let now = p.now();
            self.with_task(p, &held, task, |rd, e| {
                rd.update_averages(now);
                e.start_util(rd.util.get(), now);
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

/// End the run: the policy decided something that cannot be.
pub fn policy_error(what: String) -> ! {
    std::panic::resume_unwind(Box::new(PolicyError(what)))
}
