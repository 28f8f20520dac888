//! The contract of Xen's scheduling policies: what a policy decides, and what the mechanism lends it.
//!
//! Linux's contract ([`crate::policy`]) lends one run queue at a time and asks simple questions. Xen's schedulers do more
//! themselves: they choose pCPUs, tickle, steal under try-locks of other queues, keep a global state under a lock of its own
//! and run timers. So here a policy is called with a lender ([`Lend`]) and asks it for what it needs. A policy is still
//! plain code over plain state: it knows no atomics, no world, no I/O.
//!
//! State is partitioned by lock domain:
//!
//! | partition | guarded by | lent by |
//! |---|---|---|
//! | [`XenPolicy::Rq`], one per schedule lock (Credit1: a pCPU; Credit2: a runqueue of pCPUs) | that lock | [`Lend::with_rq`] |
//! | [`XenPolicy::Unit`], one per vCPU | the schedule lock of the pCPU it is assigned to | [`Lend::with_unit`] |
//! | [`XenPolicy::Global`], one per cpupool | the pool's lock (Xen's `prv->lock`) | [`Lend::with_global`] |
//! | [`XenPolicy::Domain`], one per domain | a leaf lock of the domain's, taken for the call | [`Lend::with_domain`] |
//! | shared masks ([`XenPolicy::MASKS`] of them) | nothing: atomic bits on lines of their own | [`Lend::mask`] |
//!
//! A partition whose lock the calling pCPU does not hold is not lent: that is a policy error, which ends the run. A schedule lock
//! can be tried at any time ([`Lend::try_lock`], counted); it can be waited for only where no other is held. The global lock comes
//! before schedule locks; with a schedule lock held it can only be tried for reading.
//!
//! Which lock is held at a call:
//!
//! | call | held |
//! |---|---|
//! | `schedule`, `wake`, `sleep`, `yield_unit`, `context_saved` | the schedule lock of the pCPU the vCPU is assigned to (`schedule`: of the calling pCPU) |
//! | `pick_cpu` | the same |
//! | `migrate` | those of the old and of the new pCPU |
//! | `insert`, `remove` | that of the vCPU's pCPU |
//! | `timer`, `adjust`, `init_cpu` | none |
//!
//! What a decision costs: the mechanism charges the fixed part (machine file: `kernel.pick`, `enqueue`, `dequeue`), lines cost what
//! they cost when lent, and a policy reports the rest with [`Lend::charge`]: `Work::Probe` for each pCPU looked at,
//! `Work::BalanceTask` for each vCPU of a list walked over, `Work::BalanceQueue` for each runqueue or pCPU searched.

use super::event::{VcpuId, XenEvent};
use super::mask::CpuMask;
use super::perf::Perf;
use contend_machine::Topology;
use contend_platform::{Account, CpuId, Nanos, TaskId, Time, Work};

/// A vCPU, by its number among all of the host's. The engine knows it as a task of this number.
pub type UnitId = TaskId;

/// A schedule lock and what it guards, by number in its cpupool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RqId(pub u16);

impl RqId {
    /// As an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A domain's scheduling parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DomParams {
    /// Share of CPU time relative to other domains', 1 to 65535 (default 256).
    pub weight: u16,
    /// Most CPU time in per cent of one pCPU; 0: no cap.
    pub cap: u16,
}

impl Default for DomParams {
    fn default() -> Self {
        DomParams { weight: 256, cap: 0 }
    }
}

/// A change of parameters while the system runs (`xl sched-credit`, `xl sched-credit2`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Adjust {
    /// Of one domain, by its number.
    Domain {
        /// Domain.
        dom: u16,
        /// New parameters.
        params: DomParams,
    },
    /// Of the cpupool: [`Tunables`] have changed already.
    Pool,
}

/// Parameters of a cpupool that can change while it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tunables {
    /// Shortest time between context switches, in ns; 0: no limit. (`ratelimit_us`: 0, or 100 to 500,000.)
    pub ratelimit: Nanos,
    /// Credit1's time slice, in ns (`tslice_ms`: 1 to 1,000).
    pub tslice: Nanos,
}

/// A timer of the policy's, on the pCPU that set it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Timer {
    /// What for: the policy's own numbering.
    pub kind: u8,
    /// Of which pCPU, domain ...: the policy's own numbering.
    pub index: u32,
}

/// What runs next on a pCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The vCPU; `None`: idle.
    pub next: Option<UnitId>,
    /// `schedule` is called again after this long, in ns; `None`: no timer.
    pub slice: Option<Nanos>,
}

/// A scheduling policy of Xen's.
pub trait XenPolicy: Sized + 'static {
    /// State guarded by one schedule lock.
    type Rq: 'static;
    /// State of a vCPU.
    type Unit: 'static;
    /// State of a cpupool.
    type Global: 'static;
    /// State of a domain.
    type Domain: 'static;
    /// Shared masks of pCPUs.
    const MASKS: usize;
    /// Does it want [`XenPolicy::context_saved`], which takes the schedule lock once more for each switch?
    const CONTEXT_SAVED: bool = true;

    /// Which schedule lock serves each pCPU of a pool: numbers from 0 without gaps, by pCPU (any number for those that are not
    /// in `cpus`).
    fn partition(&self, topo: &Topology, cpus: &CpuMask) -> Vec<RqId>;
    /// State of a schedule lock that serves `cpus`. All of them are idle.
    fn new_rq(&self, topo: &Topology, rq: RqId, cpus: &CpuMask) -> Self::Rq;
    /// State of a cpupool of `cpus`.
    fn new_global(&self, topo: &Topology, cpus: &CpuMask) -> Self::Global;
    /// State of a new domain.
    fn new_domain(&self, dom: u16, params: DomParams) -> Self::Domain;
    /// State of a new vCPU, blocked.
    fn new_unit(&self, unit: UnitId, info: VcpuId, params: DomParams) -> Self::Unit;

    /// The calling pCPU starts, idle: start its timers.
    fn init_cpu<C: Lend<Self>>(&self, cx: &C) {
        let _ = cx;
    }
    /// The vCPU joins the system, blocked, on the pCPU that `pick_cpu` chose.
    fn insert<C: Lend<Self>>(&self, cx: &C, unit: UnitId);
    /// It leaves, blocked for good.
    fn remove<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        let _ = (cx, unit);
    }

    /// What shall the calling pCPU run? `curr` ran until now, and may or may not be runnable still.
    fn schedule<C: Lend<Self>>(&self, cx: &C, curr: Option<UnitId>) -> Decision;
    /// The vCPU is runnable again: queue it, tickle whoever should run it. It may be running or queued already.
    fn wake<C: Lend<Self>>(&self, cx: &C, unit: UnitId);
    /// The vCPU is not runnable any more (blocked by another pCPU, paused, about to be migrated): if it is queued, take it out;
    /// if it runs, tickle its pCPU.
    fn sleep<C: Lend<Self>>(&self, cx: &C, unit: UnitId);
    /// The vCPU, which runs on the calling pCPU, yields; `schedule` follows.
    fn yield_unit<C: Lend<Self>>(&self, cx: &C, unit: UnitId);
    /// The registers of the vCPU, which has stopped running, are saved: from now on others may run it.
    fn context_saved<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        let _ = (cx, unit);
    }
    /// Which pCPU shall the vCPU be assigned to? Within its hard affinity.
    fn pick_cpu<C: Lend<Self>>(&self, cx: &C, unit: UnitId) -> CpuId;
    /// The vCPU, which neither runs nor is queued, moves to `to`: keep the books, and call [`Lend::set_processor`].
    fn migrate<C: Lend<Self>>(&self, cx: &C, unit: UnitId, to: CpuId) {
        cx.set_processor(unit, to);
    }
    /// A timer is due on the calling pCPU.
    fn timer<C: Lend<Self>>(&self, cx: &C, timer: Timer) {
        let _ = (cx, timer);
    }
    /// Parameters change.
    fn adjust<C: Lend<Self>>(&self, cx: &C, change: Adjust) {
        let _ = (cx, change);
    }
    /// The affinities of the vCPU have changed; if it must leave its pCPU the mechanism sees to that.
    fn affinity_changed<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        let _ = (cx, unit);
    }
}

/// What the mechanism lends a policy during a call. `&self` throughout: a policy holds no borrow of any partition but inside the
/// closures, in which it calls nothing of the lender's.
pub trait Lend<L: XenPolicy> {
    // ---- the calling pCPU ----------------------------------------------------------------------------------------

    /// Virtual time.
    fn now(&self) -> Time;
    /// The calling pCPU.
    fn cpu(&self) -> CpuId;
    /// The machine.
    fn topo(&self) -> &Topology;
    /// pCPUs of the cpupool.
    fn cpus(&self) -> &CpuMask;
    /// Parameters of the cpupool.
    fn tunables(&self) -> Tunables;
    /// Report work (see the module's text).
    fn charge(&self, work: Work, n: u64);
    /// Book the pCPU's time to `account` from now on; returns the account before.
    fn enter(&self, account: Account) -> Account;

    // ---- vCPUs, as the mechanism knows them ------------------------------------------------------------------------

    /// Who it is.
    fn info(&self, unit: UnitId) -> VcpuId;
    /// The pCPU it is assigned to.
    fn processor(&self, unit: UnitId) -> CpuId;
    /// Assign it to another pCPU; the schedule locks of both are held (one, if it serves both).
    fn set_processor(&self, unit: UnitId, to: CpuId);
    /// Is nothing in its way (blocked, paused, parked, about to migrate)?
    fn runnable(&self, unit: UnitId) -> bool;
    /// Is it running, or being switched away from?
    fn running(&self, unit: UnitId) -> bool;
    /// Where it may run, within the pool. Never empty.
    fn hard(&self, unit: UnitId) -> CpuMask;
    /// Where it would rather run.
    fn soft(&self, unit: UnitId) -> CpuMask;
    /// Is a step with soft affinity of any use? (Mechanisms E: the pool is not within it, hard is not within it, and both meet.)
    fn soft_useful(&self, unit: UnitId) -> bool;
    /// What `cpu` runs (`None`: idle). The schedule lock that serves it is held.
    fn curr(&self, cpu: CpuId) -> Option<UnitId>;

    // ---- partitions ------------------------------------------------------------------------------------------------

    /// The schedule lock that serves `cpu`.
    fn rq_of(&self, cpu: CpuId) -> RqId;
    /// How many schedule locks the pool has.
    fn nr_rqs(&self) -> usize;
    /// pCPUs that a schedule lock serves.
    fn rq_cpus(&self, rq: RqId) -> &CpuMask;
    /// The state under a schedule lock that is held.
    fn with_rq<R>(&self, rq: RqId, f: impl FnOnce(&mut L::Rq) -> R) -> R;
    /// The state of a vCPU whose schedule lock is held.
    fn with_unit<R>(&self, unit: UnitId, f: impl FnOnce(&mut L::Unit) -> R) -> R;
    /// Both at once.
    fn with_both<R>(&self, rq: RqId, unit: UnitId, f: impl FnOnce(&mut L::Rq, &mut L::Unit) -> R) -> R;
    /// Try a schedule lock. Counted.
    fn try_lock(&self, rq: RqId) -> bool;
    /// Wait for a schedule lock; none may be held.
    fn lock(&self, rq: RqId);
    /// Wait for the schedule lock of a vCPU, whichever that is by then; none may be held.
    fn lock_unit(&self, unit: UnitId) -> RqId;
    /// Release a schedule lock that this policy took.
    fn unlock(&self, rq: RqId);
    /// Wait for the pool's lock, to write; no schedule lock may be held.
    fn lock_global(&self);
    /// Release it.
    fn unlock_global(&self);
    /// Try to share the pool's lock with other readers; schedule locks may be held. Counted.
    fn try_read_global(&self) -> bool;
    /// Release it.
    fn unlock_read_global(&self);
    /// The state of the pool, whose lock is held (for reading: do not change it).
    fn with_global<R>(&self, f: impl FnOnce(&mut L::Global) -> R) -> R;
    /// The state of a domain, by its number, under its own leaf lock.
    fn with_domain<R>(&self, dom: u16, f: impl FnOnce(&mut L::Domain) -> R) -> R;

    // ---- shared masks ----------------------------------------------------------------------------------------------

    /// A shared mask as it is now.
    fn mask(&self, mask: usize) -> CpuMask;
    /// Set (true) or clear a pCPU's bit of it.
    fn mask_put(&self, mask: usize, cpu: CpuId, set: bool);

    // ---- effects -----------------------------------------------------------------------------------------------------

    /// Raise the SCHEDULE softirq of `cpu`: `schedule` will be called there. Is an IPI, unless it is the calling pCPU, or pending.
    fn tickle(&self, cpu: CpuId);
    /// `_VPF_migrating`: the vCPU, whose schedule lock is held, is not runnable until `schedule` has taken it off its pCPU; then the
    /// mechanism asks `pick_cpu` anew and wakes it. The flag alone: tickle its pCPU where it runs on another.
    fn set_migrating(&self, unit: UnitId);
    /// `_VPF_parked`, the flag alone; the vCPU's schedule lock is held.
    fn set_parked(&self, unit: UnitId, parked: bool);
    /// A vCPU parked while it waited for a pCPU waits no longer; its schedule lock is held.
    fn stops_waiting(&self, unit: UnitId);
    /// Park a vCPU (out of credit under a cap): not runnable until unparked; calls `sleep`. No schedule lock is held.
    fn park(&self, unit: UnitId);
    /// Unpark it; calls `wake`. No schedule lock is held.
    fn unpark(&self, unit: UnitId);
    /// Call [`XenPolicy::timer`] on the calling pCPU at `at`; replaces an earlier setting of the same timer there.
    fn set_timer(&self, timer: Timer, at: Time);
    /// Stop a timer of the calling pCPU.
    fn stop_timer(&self, timer: Timer);

    // ---- reports -----------------------------------------------------------------------------------------------------

    /// A trace record, made only where a trace is on.
    fn trace(&self, event: impl FnOnce() -> XenEvent);
    /// Count an event.
    fn count(&self, what: Perf);
}
