//! The generic layer: the pCPU's loop, the SCHEDULE softirq, timers.
//!
//! It follows Xen: `schedule()` runs as a softirq with the pCPU's schedule lock held, asks the policy, sets the timer, switches,
//! and clears `is_running` of the vCPU that left when its registers are saved. It runs in simulation alone, on one OS
//! thread, so what costs nothing there is in plain cells.

use super::contract::{Adjust, Decision, DomParams, RqId, Timer, Tunables, UnitId, XenPolicy};
use super::event::{RunState, VcpuId, XenEvent};
use super::lend::Cx;
use super::mask::CpuMask;
use super::perf::Perf;
use super::pool_lock::PoolLock;
use super::units::{Book, UnitSlot, VcpuAffinity, pause};
use crate::features::SpinlockKind;
use crate::kernel::{Outside, policy_error};
use crate::rq_lock::{KernelLock, LockFactory, LockStats};
use contend_machine::Topology;
use contend_platform::Ordering::{AcqRel, Acquire, Relaxed};
use contend_platform::{Account, CpuId, Ipi, NEVER, Nanos, SchedPlatform, TaskId, Time, Trap, Work};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The SCHEDULE bit of a pCPU's softirq word.
const SCHEDULE: u64 = 1;
/// The idle pCPU watches the word (mwait): raising a softirq there needs no interrupt.
const POLLING: u64 = 2;

/// What virtual machines ask of the hypervisor, and what their machine reports to it.
pub trait Hypercalls<P: SchedPlatform, L: XenPolicy> {
    /// The vCPU, which runs on the calling pCPU, has left guest mode with a request: serve it.
    fn exit(&self, xen: &Xen<P, L>, p: &P, unit: UnitId);
    /// A timer that the machine keeps for a vCPU has come due on the calling pCPU.
    fn timer(&self, xen: &Xen<P, L>, p: &P, unit: UnitId);
    /// Before pCPU 0 runs anything: start the vCPUs that exist.
    fn start(&self, xen: &Xen<P, L>, p: &P);
    /// Something else than scheduling that the pCPU's timer was set for ([`Xen::set_alarm`]): parameters to change.
    fn alarm(&self, xen: &Xen<P, L>, p: &P);
}

/// Who hears of what happens. Costs no virtual time.
pub trait Observer {
    /// A vCPU goes from one state to another.
    fn runstate(&self, now: Time, cpu: CpuId, unit: UnitId, from: RunState, to: RunState);
    /// A vCPU wakes up that is assigned to `processor`. Called where the trace is on, before its record, which does not say that.
    fn wakes(&self, _now: Time, _cpu: CpuId, _unit: UnitId, _processor: CpuId) {}
    /// A trace record.
    fn event(&self, now: Time, cpu: CpuId, event: &XenEvent);
}

/// A domain, as the scheduler sees it.
pub struct DomainSlot<P: SchedPlatform, L: XenPolicy> {
    /// Its number.
    pub dom: u16,
    /// Its parameters now.
    pub params: Cell<DomParams>,
    /// Its cpupool.
    pub pool: usize,
    pub(super) lock: KernelLock<P>,
    pub(super) pol: P::Cell<L::Domain>,
}

/// A schedule lock, and what it guards.
pub(super) struct RqSlot<P: SchedPlatform, L: XenPolicy> {
    pub lock: KernelLock<P>,
    pub cpus: CpuMask,
    pub pol: P::Cell<L::Rq>,
}

/// A cpupool: pCPUs under one scheduler with its own state and parameters.
pub(super) struct Pool<P: SchedPlatform, L: XenPolicy> {
    pub name: String,
    pub policy: L,
    pub cpus: CpuMask,
    pub tunables: Cell<Tunables>,
    pub rqs: Vec<RqSlot<P, L>>,
    pub lock: PoolLock<P>,
    pub global: P::Cell<L::Global>,
    pub masks: Vec<Vec<P::Word>>,
}

/// A pCPU.
pub(super) struct Pcpu<P: SchedPlatform> {
    pub softirq: P::Word,
    /// What it runs; written under its schedule lock.
    pub curr: Cell<Option<UnitId>>,
    /// Since when its idle vCPU has run, or been runnable; known while traces are written.
    pub idle_since: Cell<Time>,
    pub pool: usize,
    pub rq: RqId,
    /// Timers of the policy, unsorted: there are few.
    pub timers: RefCell<Vec<(Timer, Time)>>,
    /// When `schedule` runs again.
    pub s_timer: Cell<Time>,
    pub alarm: Cell<Time>,
    /// What the hardware's timer is set to.
    programmed: Cell<Time>,
}

/// A lock in reports: name, kind, counts.
pub type LockRow = (String, &'static str, LockStats);

/// A cpupool to be.
pub struct PoolSpec<L> {
    /// Name (`Pool-0`).
    pub name: String,
    /// Its scheduler.
    pub policy: L,
    /// Its pCPUs; pools do not overlap.
    pub cpus: CpuMask,
    /// Its parameters.
    pub tunables: Tunables,
}

/// A domain to be.
pub struct DomainSpec {
    /// Its number.
    pub dom: u16,
    /// Its parameters.
    pub params: DomParams,
    /// Its cpupool, by number.
    pub pool: usize,
    /// Affinities of its vCPUs.
    pub vcpus: Vec<VcpuAffinity>,
}

/// The hypervisor's scheduler over one machine.
pub struct Xen<P: SchedPlatform, L: XenPolicy> {
    /// The machine.
    pub topo: Topology,
    pub(super) pools: Vec<Pool<P, L>>,
    pub(super) pcpus: Vec<Pcpu<P>>,
    /// vCPUs of all domains.
    pub units: Vec<UnitSlot<P, L>>,
    /// Domains.
    pub domains: Vec<DomainSlot<P, L>>,
    pub(super) observer: Option<Rc<dyn Observer>>,
    pub(super) tracing: bool,
    pub(super) counts: Vec<Cell<u64>>,
    pub(super) trylocks: Cell<[u64; 2]>,
    /// A partition is lent: see [`Cx`].
    pub(super) lent: Cell<bool>,
}

impl<P: SchedPlatform, L: XenPolicy> Xen<P, L> {
    /// A host with all vCPUs down ([`Xen::start_unit`]).
    ///
    /// # Panics
    /// If pools overlap or leave a pCPU out, or a vCPU's hard affinity misses its pool: whoever reads specifications checks
    /// them.
    pub fn new(p: &P, topo: &Topology, pools: Vec<PoolSpec<L>>, domains: Vec<DomainSpec>) -> Self {
        let n = topo.nr_cpus();
        let locks = LockFactory::new(p, n, SpinlockKind::Ticket);
        let mut pool_of = vec![usize::MAX; n];
        let mut rq_of = vec![RqId(0); n];
        let mut made = Vec::with_capacity(pools.len());
        for (i, spec) in pools.into_iter().enumerate() {
            let partition = spec.policy.partition(topo, &spec.cpus);
            let mut rq_cpus: Vec<CpuMask> = Vec::new();
            for cpu in spec.cpus.iter() {
                assert_eq!(pool_of[cpu.index()], usize::MAX, "a pCPU is in one cpupool");
                pool_of[cpu.index()] = i;
                let rq = partition[cpu.index()];
                rq_of[cpu.index()] = rq;
                rq_cpus.resize(rq_cpus.len().max(rq.index() + 1), CpuMask::NONE);
                rq_cpus[rq.index()].insert(cpu);
            }
            let rqs = rq_cpus.into_iter().enumerate().map(|(r, cpus)| {
                let rq = RqId(r as u16);
                let line = p.line();
                RqSlot {
                    lock: locks.create(p, line, Account::RqLock),
                    pol: p.cell(p.line(), spec.policy.new_rq(topo, rq, &cpus)),
                    cpus,
                }
            });
            let words = n.div_ceil(64);
            let mask = |_| {
                // Eight words of 64 pCPUs share a line.
                let line = p.line();
                (0..words).map(|_| p.word(line, 0)).collect()
            };
            made.push(Pool {
                rqs: rqs.collect(),
                lock: PoolLock::new(p, &locks),
                global: p.cell(p.line(), spec.policy.new_global(topo, &spec.cpus)),
                masks: (0..L::MASKS).map(mask).collect(),
                tunables: Cell::new(spec.tunables),
                name: spec.name,
                cpus: spec.cpus,
                policy: spec.policy,
            });
        }
        assert!(pool_of.iter().all(|p| *p != usize::MAX), "every pCPU is in a cpupool");
        let pcpus = (0..n).map(|c| Pcpu {
            softirq: p.word(p.line(), 0),
            curr: Cell::new(None),
            idle_since: Cell::new(0),
            pool: pool_of[c],
            rq: rq_of[c],
            timers: RefCell::default(),
            s_timer: Cell::new(NEVER),
            alarm: Cell::new(NEVER),
            programmed: Cell::new(NEVER),
        });
        let mut units = Vec::new();
        let mut slots = Vec::new();
        // Dealt out one after the other over the pCPUs that each may run on, as by a toolstack: see `docs/internals/xen.md`.
        let mut dealt: Vec<CpuId> = vec![CpuId(n as u16 - 1); made.len()];
        for (index, spec) in domains.into_iter().enumerate() {
            let pool = &made[spec.pool];
            let line = p.line();
            slots.push(DomainSlot {
                dom: spec.dom,
                params: Cell::new(spec.params),
                pool: spec.pool,
                lock: locks.create(p, line, Account::SpinLock),
                pol: p.cell(line, pool.policy.new_domain(spec.dom, spec.params)),
            });
            for (v, affinity) in spec.vcpus.into_iter().enumerate() {
                let info = VcpuId { dom: spec.dom, vcpu: v as u16 };
                let unit = TaskId(units.len() as u32);
                let line = p.line();
                let processor =
                    (affinity.hard & pool.cpus).cycle(dealt[spec.pool]).expect("hard affinity meets the pool");
                dealt[spec.pool] = processor;
                let slot = UnitSlot {
                    info,
                    domain: index,
                    pool: spec.pool,
                    processor: Cell::new(processor),
                    flags: p.word(line, pause::DOWN),
                    running: p.word(line, 0),
                    affinity: Cell::new(affinity),
                    soft_useful: Cell::new(false),
                    pol: p.cell(p.line(), pool.policy.new_unit(unit, info, spec.params)),
                    book: RefCell::new(Book::new()),
                };
                slot.set_affinity(affinity, &pool.cpus);
                units.push(slot);
            }
        }
        Xen {
            topo: topo.clone(),
            pools: made,
            pcpus: pcpus.collect(),
            units,
            domains: slots,
            observer: None,
            tracing: false,
            counts: (0..Perf::COUNT).map(|_| Cell::new(0)).collect(),
            trylocks: Cell::new([0; 2]),
            lent: Cell::new(false),
        }
    }

    /// Somebody watches; `tracing`: trace records too.
    pub fn observe(&mut self, observer: Rc<dyn Observer>, tracing: bool) {
        self.observer = Some(observer);
        self.tracing = tracing;
    }

    /// A vCPU.
    #[inline]
    pub fn unit(&self, unit: UnitId) -> &UnitSlot<P, L> {
        &self.units[unit.index()]
    }
    /// What `cpu` runs, without simulated cost.
    pub fn curr(&self, cpu: CpuId) -> Option<UnitId> {
        self.pcpus[cpu.index()].curr.get()
    }
    /// Counters, by [`Perf`].
    pub fn counts(&self) -> [u64; Perf::COUNT] {
        std::array::from_fn(|i| self.counts[i].get())
    }
    /// Try-locks of schedule locks, and those that failed.
    pub fn trylocks(&self) -> [u64; 2] {
        self.trylocks.get()
    }
    pub(super) fn count(&self, what: Perf) {
        let c = &self.counts[what as usize];
        c.set(c.get() + 1);
    }
    /// Schedule locks (`schedule/POOL/N`), pool locks (`prv/POOL`), domains' locks (`domain/N`).
    pub fn lock_rows(&self) -> Vec<LockRow> {
        let mut rows = Vec::new();
        for pool in &self.pools {
            for (i, rq) in pool.rqs.iter().enumerate() {
                rows.push((format!("schedule/{}/{i}", pool.name), "schedule", rq.lock.stats()));
            }
            rows.push((format!("prv/{}", pool.name), "prv", pool.lock.stats().0));
        }
        for domain in &self.domains {
            rows.push((format!("domain/{}", domain.dom), "domain", domain.lock.stats()));
        }
        rows
    }

    pub(super) fn cx<'a>(&'a self, p: &'a P) -> Cx<'a, P, L> {
        Cx::new(self, p, self.pcpus[p.cpu().index()].pool)
    }
    pub(super) fn trace(&self, p: &P, event: impl FnOnce() -> XenEvent) {
        if self.tracing
            && let Some(observer) = &self.observer
        {
            observer.event(p.now(), p.cpu(), &event());
        }
    }

    // ---- a pCPU's life -----------------------------------------------------------------------------------------------

    /// The calling pCPU comes up.
    pub fn cpu_up<H: Hypercalls<P, L>>(&self, p: &P, sys: &H) -> Outside {
        p.stop_tick(true);
        self.boot_cpu(p);
        if p.cpu() == CpuId(0) {
            sys.start(self, p);
        }
        self.leave(p)
    }

    /// The vCPU that the calling pCPU ran has entered the hypervisor: what there is to do, until the pCPU leaves it again.
    pub fn trapped<H: Hypercalls<P, L>>(&self, p: &P, sys: &H, unit: UnitId, trap: Trap) -> Outside {
        match trap {
            Trap::Interrupt => self.interrupts(p, sys),
            Trap::Syscall => sys.exit(self, p, unit),
        }
        self.softirq(p)
    }

    /// The calling pCPU was idle, and there may be a softirq: as [`Xen::trapped`].
    pub fn idle_ended<H: Hypercalls<P, L>>(&self, p: &P, sys: &H) -> Outside {
        if p.idle_polls() {
            p.fetch_and(self.idle_word(p.cpu()), !POLLING, AcqRel);
        }
        self.interrupts(p, sys);
        self.softirq(p)
    }

    /// The word that an idle pCPU watches.
    #[inline]
    pub fn idle_word(&self, cpu: CpuId) -> &P::Word {
        &self.pcpus[cpu.index()].softirq
    }

    /// Serve the SCHEDULE softirq if it is raised, and leave the hypervisor.
    fn softirq(&self, p: &P) -> Outside {
        if p.load(self.idle_word(p.cpu()), Relaxed) & SCHEDULE != 0 {
            self.schedule(p);
        }
        self.leave(p)
    }

    /// The calling pCPU is about to leave the hypervisor, for its vCPU or to idle.
    fn leave(&self, p: &P) -> Outside {
        match self.pcpus[p.cpu().index()].curr.get() {
            Some(unit) => Outside::User(unit),
            None => {
                if p.idle_polls() {
                    p.fetch_or(self.idle_word(p.cpu()), POLLING, AcqRel);
                }
                Outside::Idle
            }
        }
    }

    /// The calling pCPU comes up, idle.
    pub(super) fn boot_cpu(&self, p: &P) {
        self.pools[self.pcpus[p.cpu().index()].pool].policy.init_cpu(&self.cx(p));
        self.program_timer(p);
        // A first decision, so that the policy knows the pCPU as idle.
        self.schedule(p);
    }

    /// Serve pending interrupts.
    fn interrupts<H: Hypercalls<P, L>>(&self, p: &P, sys: &H) {
        let before = p.enter(Account::Interrupt);
        while p.interrupt_pending() {
            let found = p.take_interrupts();
            if found.deadline {
                self.timers(p, sys);
            }
            if found.timers {
                while let Some(unit) = p.take_timer() {
                    p.charge(Work::Timer, 1);
                    sys.timer(self, p, unit);
                }
            }
            p.leave_interrupts();
        }
        p.enter(before);
    }

    /// The pCPU's hardware timer came due.
    pub(super) fn timers<H: Hypercalls<P, L>>(&self, p: &P, sys: &H) {
        let cpu = p.cpu();
        let pcpu = &self.pcpus[cpu.index()];
        pcpu.programmed.set(NEVER);
        p.charge(Work::Timer, 1);
        let now = p.now();
        if pcpu.s_timer.get() <= now {
            pcpu.s_timer.set(NEVER);
            self.raise(p, cpu);
        }
        if pcpu.alarm.get() <= now {
            pcpu.alarm.set(NEVER);
            sys.alarm(self, p);
        }
        loop {
            let due = pcpu.timers.borrow().iter().position(|(_, at)| *at <= now);
            let Some(due) = due else { break };
            let (timer, _) = pcpu.timers.borrow_mut().swap_remove(due);
            let before = p.enter(Account::Balance);
            self.pools[pcpu.pool].policy.timer(&self.cx(p), timer);
            p.enter(before);
        }
        self.program_timer(p);
    }

    /// Set the hardware's timer to the earliest of the calling pCPU's.
    pub(super) fn program_timer(&self, p: &P) {
        let pcpu = &self.pcpus[p.cpu().index()];
        let first = pcpu.timers.borrow().iter().map(|(_, at)| *at).min().unwrap_or(NEVER);
        let first = first.min(pcpu.s_timer.get()).min(pcpu.alarm.get());
        if pcpu.programmed.replace(first) != first {
            p.charge(Work::TimerProgram, 1);
            p.program_timer(first);
        }
    }

    /// Call [`Hypercalls::alarm`] on the calling pCPU at `at`.
    pub fn set_alarm(&self, p: &P, at: Time) {
        self.pcpus[p.cpu().index()].alarm.set(at);
        self.program_timer(p);
    }

    /// Raise the SCHEDULE softirq of `cpu`.
    pub fn raise(&self, p: &P, cpu: CpuId) {
        let softirq = &self.pcpus[cpu.index()].softirq;
        if cpu == p.cpu() {
            // Its own, in the hypervisor: POLLING is not set.
            return p.store(softirq, SCHEDULE, Relaxed);
        }
        let old = p.fetch_or(softirq, SCHEDULE, AcqRel);
        if old & (SCHEDULE | POLLING) == 0 {
            self.count(Perf::TickleIpi);
            p.send_ipi(cpu, Ipi::Reschedule);
        }
    }

    // ---- the SCHEDULE softirq ------------------------------------------------------------------------------------

    pub(super) fn schedule(&self, p: &P) {
        let before = p.enter(Account::Switch);
        let cpu = p.cpu();
        let pcpu = &self.pcpus[cpu.index()];
        let pool = &self.pools[pcpu.pool];
        // A plain store: POLLING is not set here, and who raises SCHEDULE now is served by what follows.
        p.store(&pcpu.softirq, 0, Relaxed);
        self.count(Perf::SchedRun);
        let cx = self.cx(p);
        cx.take(pcpu.rq);
        p.charge(Work::ClockRead, 1);
        p.charge(Work::Pick, 1);
        let prev = pcpu.curr.get();
        let Decision { next, slice } = pool.policy.schedule(&cx, prev);
        let now = p.now();
        if let Some(unit) = next {
            self.verify(p, cpu, unit, prev);
        }
        pcpu.s_timer.set(slice.map_or(NEVER, |ns| now.saturating_add(ns)));
        self.program_timer(p);
        pcpu.curr.set(next);
        if prev == next {
            self.trace_cont(p, next, now, slice);
            cx.release(pcpu.rq);
            p.enter(before);
            return;
        }
        self.count(Perf::SchedCtx);
        self.trace_switch(p, prev, next, now, slice);
        if let Some(unit) = prev {
            let flags = p.load(&self.unit(unit).flags, Relaxed);
            let to = match flags {
                0 => RunState::Runnable,
                f if f & pause::BLOCKED != 0 => RunState::Blocked,
                _ => RunState::Offline,
            };
            self.unit(unit).book.borrow_mut().preempted += u64::from(to == RunState::Runnable);
            self.set_runstate(p, unit, to);
        }
        if next.is_none() {
            let (vcpu, old, new) = (VcpuId::idle(cpu), RunState::Runnable, RunState::Running);
            self.trace(p, || XenEvent::Runstate { vcpu, old, new });
            pcpu.idle_since.set(p.now());
        }
        if let Some(unit) = next {
            self.set_runstate(p, unit, RunState::Running);
            let mut book = self.unit(unit).book.borrow_mut();
            book.dispatches += 1;
            book.moves += u64::from(book.last.is_some_and(|l| l != cpu));
            book.last = Some(cpu);
            drop(book);
            p.store(&self.unit(unit).running, 1, Relaxed);
        }
        cx.release(pcpu.rq);
        p.switch_to(prev, next);
        if let Some(unit) = prev {
            self.context_saved(p, unit);
        }
        p.enter(before);
    }

    /// The registers of a vCPU that this pCPU has switched away from are saved.
    fn context_saved(&self, p: &P, unit: UnitId) {
        let u = self.unit(unit);
        p.store(&u.running, 0, Relaxed);
        if L::CONTEXT_SAVED {
            let cx = self.cx(p);
            let rq = cx.take_unit(unit);
            self.pools[u.pool].policy.context_saved(&cx, unit);
            cx.release(rq);
        }
        if p.load(&u.flags, Relaxed) & pause::MIGRATING != 0 {
            self.migrate_now(p, unit);
        }
    }

    /// The policy's decision can be: the vCPU is the pCPU's, runnable, nobody else runs it, and it may run here.
    fn verify(&self, p: &P, cpu: CpuId, unit: UnitId, prev: Option<UnitId>) {
        let Some(u) = self.units.get(unit.index()) else {
            policy_error(format!("schedule on {cpu:?} named {unit:?}, which does not exist"));
        };
        let name = || format!("d{}v{}", u.info.dom, u.info.vcpu);
        if u.processor.get() != cpu {
            policy_error(format!("schedule on {cpu:?} named {}, which is assigned to {:?}", name(), u.processor.get()));
        }
        // Others may pause it until now; its `sleep` will then tickle this pCPU. The policy itself may have set it on its way to
        // another pCPU (Credit2's balancer runs inside `schedule`).
        if p.load(&u.flags, Relaxed) & (pause::BLOCKED | pause::DOWN) != 0 {
            policy_error(format!("schedule on {cpu:?} named {}, which is not runnable", name()));
        }
        if prev != Some(unit) && p.load(&u.running, Acquire) != 0 {
            policy_error(format!("schedule on {cpu:?} named {}, which runs elsewhere", name()));
        }
        if !u.affinity.get().hard.contains(cpu) {
            policy_error(format!(
                "schedule on {cpu:?} named {}, whose hard affinity is {:?}",
                name(),
                u.affinity.get().hard
            ));
        }
    }

    pub(super) fn set_runstate(&self, p: &P, unit: UnitId, to: RunState) {
        let now = p.now();
        let u = self.unit(unit);
        let mut book = u.book.borrow_mut();
        let from = book.state;
        if from == to {
            return;
        }
        book.remember();
        let spent = now - book.since;
        book.times[from as usize] += spent;
        match from {
            RunState::Running if book.last.is_some_and(|c| u.affinity.get().soft.contains(c)) => book.in_soft += spent,
            RunState::Runnable => book.wait_max = book.wait_max.max(spent),
            _ => {}
        }
        (book.state, book.since) = (to, now);
        drop(book);
        self.trace(p, || XenEvent::Runstate { vcpu: u.info, old: from, new: to });
        if let Some(observer) = &self.observer {
            observer.runstate(now, p.cpu(), unit, from, to);
        }
    }

    /// Who runs, for traces.
    fn who(&self, cpu: CpuId, unit: Option<UnitId>) -> VcpuId {
        unit.map_or(VcpuId::idle(cpu), |u| self.unit(u).info)
    }
    /// Since when a vCPU has been in its state, `None` being the idle vCPU of `cpu`; for traces.
    fn since(&self, cpu: CpuId, unit: Option<UnitId>) -> Time {
        unit.map_or(self.pcpus[cpu.index()].idle_since.get(), |u| self.unit(u).book.borrow().since)
    }
    fn trace_cont(&self, p: &P, unit: Option<UnitId>, now: Time, slice: Option<Nanos>) {
        if !self.tracing {
            return;
        }
        let cpu = p.cpu();
        let (vcpu, slice_ns) = (self.who(cpu, unit), slice.map(|s| s as u32));
        let ran_ns = (now - self.since(cpu, unit)) as u32;
        self.trace(p, || XenEvent::SwitchInfCont { vcpu, ran_ns, slice_ns });
        self.trace(p, || XenEvent::RunstateContinue { vcpu });
    }
    fn trace_switch(&self, p: &P, prev: Option<UnitId>, next: Option<UnitId>, now: Time, slice: Option<Nanos>) {
        if !self.tracing {
            return;
        }
        let cpu = p.cpu();
        let since = |unit: Option<UnitId>| self.since(cpu, unit);
        let (from, to) = (self.who(cpu, prev), self.who(cpu, next));
        let ran_ns = (now - since(prev)) as u32;
        self.trace(p, || XenEvent::SwitchInfPrev { vcpu: from, ran_ns });
        let waited_ns = (now - since(next)) as u32;
        self.trace(p, || XenEvent::SwitchInfNext { vcpu: to, waited_ns, slice_ns: slice.map(|s| s as u32) });
        self.trace(p, || XenEvent::Switch { prev: from, next: to });
        if prev.is_none() {
            self.trace(p, || XenEvent::Runstate { vcpu: from, old: RunState::Running, new: RunState::Runnable });
            self.pcpus[cpu.index()].idle_since.set(p.now());
        }
    }

    /// Parameters of a cpupool.
    pub fn tunables(&self, pool: usize) -> Tunables {
        self.pools[pool].tunables.get()
    }
    /// Change the parameters of a cpupool; called on one of its pCPUs.
    pub fn set_tunables(&self, p: &P, pool: usize, to: Tunables) {
        self.pools[pool].tunables.set(to);
        self.pools[pool].policy.adjust(&self.cx_of(p, pool), Adjust::Pool);
    }
    /// Change the parameters of a domain, by its index in [`Xen::domains`].
    pub fn set_params(&self, p: &P, domain: usize, params: DomParams) {
        let d = &self.domains[domain];
        d.params.set(params);
        self.pools[d.pool].policy.adjust(&self.cx_of(p, d.pool), Adjust::Domain { dom: d.dom, params });
    }
    /// A lender for a pool that the calling pCPU may not be one of: dom0 changes the parameters of all.
    fn cx_of<'a>(&'a self, p: &'a P, pool: usize) -> Cx<'a, P, L> {
        Cx::new(self, p, pool)
    }
}
