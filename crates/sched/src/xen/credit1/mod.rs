//! Credit1 (`sched=credit`): proportional shares by credit, with a queue for each pCPU (mechanisms E.1).
//!
//! A vCPU pays 10 credits for each ms it runs. Every 30 ms one pCPU hands out 300 credits for each pCPU of the pool, by weight, to
//! the vCPUs that are *active* (a tick found them running). Who has credit is UNDER and goes before who is OVER; a vCPU that wakes
//! with credit is BOOSTed until a tick finds it. Queues are first in, first out within a priority; a pCPU that would go idle or run an
//! OVER vCPU looks for something better in the others' queues.
//!
//! | file | holds |
//! |---|---|
//! | [`queue`] | a pCPU's queue: insertion, yields, the sort after an accounting |
//! | [`schedule`](mod@schedule) | the decision: rate limit, head or steal, the idlers |
//! | [`accounting`] | burning, ticks, the accounting every 30 ms, caps and parking |
//! | [`tickle`] | who is told of a vCPU that woke, with the bug that patch 2 fixes |
//! | [`pick`] | where a vCPU that migrates goes |
//! | [`steal`] | what a pCPU takes from others |
//!
//! `docs/xen-credit1.md` says what each switch changes, which test shows it, and what was decided where the source is silent.
//!
//! | partition | holds |
//! |---|---|
//! | `Rq`, one a pCPU | [`Queue`] |
//! | `Unit` | [`Vcpu`] |
//! | `Global` | [`Accounts`](accounting::Accounts): active domains, total weight, balance |
//! | `Domain` | its parameters |
//! | shared masks | [`IDLERS`], [`UNSORTED`], [`LOADED`] |

mod accounting;
mod pick;
mod queue;
mod schedule;
mod steal;
#[cfg(test)]
mod tests;
mod tickle;

use super::contract::{Adjust, Decision, DomParams, Lend, RqId, Timer, UnitId, XenPolicy};
use super::event::{VcpuId, XenEvent};
use super::features::XenFeatures;
use super::mask::CpuMask;
use super::perf::Perf;
use contend_machine::Topology;
use contend_platform::{CpuId, Nanos, Time};

pub use accounting::Accounts;
pub use queue::Queue;

/// Shared mask: idle pCPUs (Xen's `idlers`). Written by each pCPU for itself, and by whoever tickles it with `c1_2017`.
pub const IDLERS: usize = 0;
/// Shared mask: pCPUs that have not sorted their queue since the last accounting. Xen counts an epoch up, which each pCPU compares
/// with the one of its last sort; a bit says the same and needs no lock to be read.
pub const UNSORTED: usize = 1;
/// Shared mask, with `c1_2017` alone: pCPUs with more than one runnable vCPU (`nr_runnable` > 1).
pub const LOADED: usize = 2;

/// Priorities: the larger goes first.
pub mod pri {
    /// Woke with credit, until the next tick.
    pub const BOOST: i8 = 0;
    /// Has credit.
    pub const UNDER: i8 = -1;
    /// Has none.
    pub const OVER: i8 = -2;
    /// Nobody: the idle vCPU.
    pub const IDLE: i8 = -64;
}

/// Credits that a ms costs.
const CREDITS_PER_MS: u64 = 10;
/// Ticks in a time slice.
const TICKS_PER_SLICE: u64 = 3;

/// The tick of the calling pCPU.
const TICK: Timer = Timer { kind: 0, index: 0 };
/// The accounting, on the lowest pCPU of the pool.
const MASTER: Timer = Timer { kind: 1, index: 0 };

/// A vCPU.
#[derive(Clone, Copy, Debug)]
pub struct Vcpu {
    credit: i64,
    /// What of the time burnt has not come to a whole credit yet, in ns of 10.
    residual: u64,
    /// Burnt up to here; meaningful while it runs.
    start: Time,
    /// When it last stopped running.
    last_run: Time,
    pri: i8,
    queued: bool,
    /// It is on its domain's active list.
    active: bool,
    /// Its cap ran out.
    parked: bool,
    /// It yielded, and has not been queued since.
    yields: bool,
    /// `pick_cpu` was asked where it should go: the wake-up that follows is no wake-up.
    migrates: bool,
}

/// Which pCPUs count: first those that a vCPU prefers, then those that it may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Soft,
    Hard,
}

/// Credit1.
#[derive(Clone, Copy, Debug)]
pub struct Credit1 {
    /// Patch 1.
    cur_hard: bool,
    /// Patch 2.
    tickle_mask: bool,
    /// Patch 3.
    ratelimit_remaining: bool,
    /// Patch 7.
    yield_no_ratelimit: bool,
    /// Patch 8.
    trace_schedule: bool,
    y2017: bool,
    y2023: bool,
    smt_power_savings: bool,
    tickle_one_idle_cpu: bool,
    /// A vCPU is not moved for so many ns after it ran.
    migration_delay: Nanos,
}

impl Credit1 {
    /// Credit1 with these switches.
    pub fn new(features: &XenFeatures) -> Self {
        Credit1 {
            cur_hard: features.c1_tickle_cur_hard,
            tickle_mask: features.c1_tickle_mask,
            ratelimit_remaining: features.c1_ratelimit_remaining,
            yield_no_ratelimit: features.yield_no_ratelimit,
            trace_schedule: features.trace_schedule,
            y2017: features.c1_2017,
            y2023: features.c1_2023,
            smt_power_savings: features.smt_power_savings,
            tickle_one_idle_cpu: features.tickle_one_idle_cpu,
            migration_delay: features.vcpu_migration_delay_us * 1000,
        }
    }
}

/// pCPUs of a step for a vCPU; `None`: the step is of no use.
fn step_mask<C: Lend<Credit1>>(cx: &C, unit: UnitId, step: Step) -> Option<CpuMask> {
    let hard = cx.hard(unit);
    match step {
        Step::Hard => Some(hard),
        Step::Soft => cx.soft_useful(unit).then(|| {
            let both = cx.soft(unit) & hard;
            if both.is_empty() { hard } else { both }
        }),
    }
}

/// When the calling pCPU ticks next. pCPUs come up one after the other: their ticks are spread evenly over a period.
fn next_tick<C: Lend<Credit1>>(cx: &C) -> Time {
    let tick = cx.tunables().tslice / TICKS_PER_SLICE;
    let phase = tick * cx.rq_of(cx.cpu()).index() as u64 / cx.nr_rqs() as u64;
    let periods = (cx.now() + tick - phase) / tick;
    periods * tick + phase
}

impl XenPolicy for Credit1 {
    type Rq = Queue;
    type Unit = Vcpu;
    type Global = Accounts;
    type Domain = DomParams;
    const MASKS: usize = 3;
    const CONTEXT_SAVED: bool = false;

    /// Each pCPU has a lock of its own.
    fn partition(&self, topo: &Topology, cpus: &CpuMask) -> Vec<RqId> {
        let mut of = vec![RqId(0); topo.nr_cpus()];
        cpus.iter().enumerate().for_each(|(i, c)| of[c.index()] = RqId(i as u16));
        of
    }
    fn new_rq(&self, topo: &Topology, _: RqId, cpus: &CpuMask) -> Queue {
        Queue::new(topo, cpus.first().expect("a schedule lock serves a pCPU"))
    }
    fn new_global(&self, _: &Topology, _: &CpuMask) -> Accounts {
        Accounts::default()
    }
    fn new_domain(&self, _: u16, params: DomParams) -> DomParams {
        params
    }
    fn new_unit(&self, _: UnitId, _: VcpuId, _: DomParams) -> Vcpu {
        Vcpu {
            credit: 0,
            residual: 0,
            start: 0,
            last_run: 0,
            pri: pri::UNDER,
            queued: false,
            active: false,
            parked: false,
            yields: false,
            migrates: false,
        }
    }

    fn init_cpu<C: Lend<Self>>(&self, cx: &C) {
        let cpu = cx.cpu();
        cx.mask_put(IDLERS, cpu, true);
        cx.set_timer(TICK, next_tick(cx));
        if cx.cpus().first() == Some(cpu) {
            cx.set_timer(MASTER, cx.now() + cx.tunables().tslice);
        }
    }

    /// The first wake-up is one.
    fn insert<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        cx.with_unit(unit, |u| u.migrates = false);
    }

    fn schedule<C: Lend<Self>>(&self, cx: &C, curr: Option<UnitId>) -> Decision {
        self.decide(cx, curr)
    }

    fn wake<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        let cpu = cx.processor(unit);
        if cx.curr(cpu) == Some(unit) {
            return cx.count(Perf::WakeRunning);
        }
        let queued = cx.with_unit(unit, |u| u.queued);
        if queued {
            return cx.count(Perf::WakeOnRunq);
        }
        cx.count(Perf::WakeRunnable);
        let boosted = cx.with_unit(unit, |u| {
            let migrates = std::mem::take(&mut u.migrates);
            let boosted = !migrates && u.pri == pri::UNDER && !u.parked;
            if boosted {
                u.pri = pri::BOOST;
            }
            boosted
        });
        if boosted {
            cx.trace(|| XenEvent::Credit1Boost { vcpu: cx.info(unit) });
        }
        let rq = cx.rq_of(cpu);
        self.enqueue(cx, rq, unit);
        self.note_load(cx, cpu, cx.curr(cpu).is_some());
        self.tickle(cx, unit);
    }

    fn sleep<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        cx.count(Perf::VcpuSleep);
        let cpu = cx.processor(unit);
        if cx.curr(cpu) == Some(unit) {
            cx.tickle(cpu);
        } else if self.dequeue(cx, cx.rq_of(cpu), unit) {
            self.note_load(cx, cpu, cx.curr(cpu).is_some());
        }
    }

    fn yield_unit<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        cx.count(Perf::VcpuYield);
        cx.with_unit(unit, |u| u.yields = true);
    }

    fn pick_cpu<C: Lend<Self>>(&self, cx: &C, unit: UnitId) -> CpuId {
        cx.with_unit(unit, |u| u.migrates = true);
        self.pick(cx, unit)
    }

    fn timer<C: Lend<Self>>(&self, cx: &C, timer: Timer) {
        if timer == MASTER {
            self.account(cx);
            cx.set_timer(MASTER, cx.now() + cx.tunables().tslice);
        } else {
            self.tick(cx);
            cx.set_timer(TICK, next_tick(cx));
        }
    }

    fn adjust<C: Lend<Self>>(&self, cx: &C, change: Adjust) {
        match change {
            // Slices and limits are read when they are needed.
            Adjust::Pool => {}
            Adjust::Domain { dom, params } => {
                cx.lock_global();
                cx.with_domain(dom, |d| *d = params);
                cx.with_global(|g| g.adjust(dom, params));
                cx.unlock_global();
            }
        }
    }
}
