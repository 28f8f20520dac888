//! Credit2's state, by lock, and its constants (mechanisms E.2).

use super::cap::Budget;
use super::load::Load;
use crate::xen::contract::{RqId, UnitId};
use crate::xen::features::{Credit2Runqueue, XenFeatures};
use crate::xen::mask::CpuMask;
use contend_machine::Topology;
use contend_platform::{CpuId, Nanos, Time};

/// What a reset gives, in credits: 10 ms at the largest weight.
pub const CREDIT_INIT: i32 = 10_000_000;
/// How much more than [`CREDIT_INIT`] a vCPU may have after a reset.
pub const CARRYOVER_MAX: i32 = 500_000;
/// Most credit that a reset leaves.
pub const CREDIT_MAX: i32 = CREDIT_INIT + CARRYOVER_MAX;
/// Shortest time until the next decision, in ns.
pub const MIN_TIMER: Nanos = 500_000;
/// Credit for a vCPU that changes its pCPU within its runqueue.
pub const MIGRATE_COMPENSATION: i32 = 50_000;
/// Patch 24: a vCPU that lacks no more than this of the rate limit may be preempted, in ns: the softirq takes a while.
pub const RATELIMIT_TOLERANCE: Nanos = 50_000;

/// The switches and tunables that Credit2 heeds.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "fields are named for what they are; comments say more where there is more")]
pub struct Conf {
    /// Changes after 2016.
    pub today: bool,
    /// Patches 4 to 7.
    pub migrate_softirq: bool,
    pub tickled_cpu: bool,
    pub yields: bool,
    pub yield_no_ratelimit: bool,
    /// Patches 8 and 10.
    pub trace_schedule: bool,
    pub trace_signed: bool,
    /// Patches 17 to 24.
    pub tickle_soft: bool,
    pub pick_soft: bool,
    pub balance_soft: bool,
    pub kick_soft: bool,
    pub early_out: bool,
    pub tickle_micro: bool,
    pub tickle_ratelimited: bool,
    /// Longest time until the next decision, in ns (patch 22).
    pub max_timer: Nanos,
    pub smt_power_savings: bool,
    pub runqueue: Credit2Runqueue,
    /// 0: no limit.
    pub max_cpus: usize,
    /// Migration resistance in credits.
    pub resist: i32,
    /// Shifts of load averages.
    pub load: super::load::Shifts,
    /// Balancing thresholds: differences in loads of one vCPU, as powers of two.
    pub balance_under: u32,
    pub balance_over_minus: u32,
    /// Period of caps, in ns.
    pub cap_period: Nanos,
}

impl Conf {
    /// From all switches. They have been checked ([`XenFeatures::check`]).
    pub fn new(f: &XenFeatures) -> Self {
        Conf {
            today: f.c2_today,
            migrate_softirq: f.c2_migrate_softirq,
            tickled_cpu: f.c2_tickled_cpu,
            yields: f.c2_yield,
            yield_no_ratelimit: f.yield_no_ratelimit,
            trace_schedule: f.trace_schedule,
            trace_signed: f.trace_signed_credit,
            tickle_soft: f.c2_tickle_soft,
            pick_soft: f.c2_pick_soft,
            balance_soft: f.c2_balance_soft,
            kick_soft: f.c2_kick_soft,
            early_out: f.c2_candidate_early_out,
            tickle_micro: f.c2_tickle_micro,
            tickle_ratelimited: f.c2_tickle_ratelimited,
            max_timer: if f.c2_max_timer_10ms { 10_000_000 } else { 2_000_000 },
            smt_power_savings: f.smt_power_savings,
            runqueue: f.credit2_runqueue,
            max_cpus: f.credit2_max_cpus_runqueue as usize,
            resist: (f.credit2_migrate_resist_us * 1000).min(CREDIT_INIT as u64) as i32,
            load: super::load::Shifts {
                window: f.credit2_load_window_shift as u32 - super::load::UNIT_SHIFT,
                precision: f.credit2_load_precision_shift as u32,
            },
            balance_under: f.credit2_balance_under as u32,
            balance_over_minus: f.credit2_balance_over_minus as u32,
            cap_period: f.credit2_cap_period_ms * 1_000_000,
        }
    }

    /// What an idle pCPU's vCPU counts as having: less than anybody.
    pub fn idle_credit(&self) -> i32 {
        if self.today { -CREDIT_INIT - 1 } else { -(1 << 30) }
    }
    /// The least credit of a vCPU. The base knows no floor; there the one of the idle vCPU is kept to, so that it stays the least.
    pub fn credit_floor(&self) -> i32 {
        self.idle_credit() + 1
    }
    /// A credit as records of burns and tickle checks show it (patch 10).
    pub fn shown(&self, credit: i32) -> i32 {
        if self.trace_signed { credit } else { credit.max(0) }
    }
}

/// A vCPU that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are named for what they are; comments say more where there is more")]
pub struct Entry {
    pub unit: UnitId,
    /// Its credit: the same as in [`Unit::credit`].
    pub credit: i32,
    /// The pCPU tickled for it (patch 5).
    pub tickled: Option<CpuId>,
}

/// A runqueue: pCPUs with one lock and one list.
#[derive(Debug)]
pub struct Rq {
    /// Its pCPUs.
    pub cpus: CpuMask,
    /// Of these: idle.
    pub idle: CpuMask,
    /// Tickled, and have not scheduled since.
    pub tickled: CpuMask,
    /// All threads of their core are idle and not tickled.
    pub smt_idle: CpuMask,
    /// Waiting vCPUs: credit descending, first come first among equals.
    pub list: Vec<Entry>,
    /// vCPUs assigned, whatever they do, in the order in which they came.
    pub assigned: Vec<UnitId>,
    /// The largest weight of these; 1 without any.
    pub max_weight: u16,
    /// Load and its two averages.
    pub load: Load,
    /// The average that balancing sees: moves with assignments.
    pub b_avgload: i64,
    /// When each pCPU was last given to another vCPU, from the lowest pCPU on. Like `curr` it has no line of its own.
    since: Vec<Time>,
    /// The lowest pCPU.
    first: CpuId,
    /// Where the last vCPU was put, when only the runqueue mattered.
    pub pick_bias: CpuId,
}

impl Rq {
    /// Without vCPUs, all pCPUs idle.
    pub fn new(cpus: &CpuMask) -> Self {
        let first = cpus.first().unwrap_or(CpuId(0));
        Rq {
            cpus: *cpus,
            idle: *cpus,
            tickled: CpuMask::NONE,
            smt_idle: *cpus,
            list: Vec::new(),
            assigned: Vec::new(),
            max_weight: 1,
            load: Load::default(),
            b_avgload: 0,
            since: vec![0; cpus.iter().last().map_or(0, |last| last.index() + 1 - first.index())],
            first,
            pick_bias: first,
        }
    }

    /// When the vCPU that runs on `cpu` was given it.
    pub fn since(&mut self, cpu: CpuId) -> &mut Time {
        &mut self.since[cpu.index() - self.first.index()]
    }

    /// The threads of its core that the runqueue has.
    fn siblings<'a>(cpus: &'a CpuMask, topo: &'a Topology, cpu: CpuId) -> impl Iterator<Item = CpuId> + Clone + 'a {
        topo.core_cpus(topo.core_of(cpu)).iter().copied().filter(|c| cpus.contains(*c))
    }
    /// Are all threads of the core idle and not tickled now? Then they are `smt_idle`.
    fn core_may_idle(&mut self, topo: &Topology, cpu: CpuId) {
        let core = Self::siblings(&self.cpus, topo, cpu);
        if core.clone().all(|c| self.idle.contains(c) && !self.tickled.contains(c)) {
            core.for_each(|c| self.smt_idle.insert(c));
        }
    }
    fn core_is_busy(&mut self, topo: &Topology, cpu: CpuId) {
        Self::siblings(&self.cpus, topo, cpu).for_each(|c| self.smt_idle.remove(c));
    }
    /// `cpu` is told to schedule.
    pub fn tickle(&mut self, topo: &Topology, cpu: CpuId) {
        self.tickled.insert(cpu);
        self.core_is_busy(topo, cpu);
    }
    /// `cpu` schedules.
    pub fn untickle(&mut self, topo: &Topology, cpu: CpuId) {
        if self.tickled.contains(cpu) {
            self.tickled.remove(cpu);
            self.core_may_idle(topo, cpu);
        }
    }
    /// `cpu` idles from now on, or does not.
    pub fn set_idle(&mut self, topo: &Topology, cpu: CpuId, idle: bool) {
        if idle == self.idle.contains(cpu) {
            return;
        }
        if idle {
            self.idle.insert(cpu);
            self.core_may_idle(topo, cpu);
        } else {
            self.idle.remove(cpu);
            self.core_is_busy(topo, cpu);
        }
    }

    /// Queue a vCPU behind all that have as much credit; returns its place.
    pub fn queue(&mut self, unit: UnitId, credit: i32) -> usize {
        let at = self.list.iter().position(|e| e.credit < credit).unwrap_or(self.list.len());
        self.list.insert(at, Entry { unit, credit, tickled: None });
        at
    }
    /// Take a vCPU out of the list.
    pub fn unqueue(&mut self, unit: UnitId) -> Entry {
        let at = self.list.iter().position(|e| e.unit == unit).expect("a queued vCPU is in the list");
        self.list.remove(at)
    }
}

/// A vCPU.
#[derive(Debug)]
#[expect(missing_docs, reason = "fields are named for what they are; comments say more where there is more")]
pub struct Unit {
    pub weight: u16,
    pub credit: i32,
    /// What a burn left below one credit, in ns times weight.
    pub residual: u64,
    /// Its running is paid for up to here.
    pub start_time: Time,
    /// It belongs to a runqueue: that of the pCPU it is assigned to.
    pub assigned: bool,
    /// In its runqueue's list.
    pub queued: bool,
    /// From being chosen until its registers are saved.
    pub scheduled: bool,
    /// To be queued as soon as its registers are saved.
    pub delayed_add: bool,
    /// It yielded (patch 6).
    pub yielded: bool,
    /// The balancer wants it in that runqueue, behind that pCPU in turn.
    pub migrate_to: Option<(RqId, CpuId)>,
    /// Its own load: 0 or 1.
    pub load: Load,
    /// Under a cap: what is left of its quota.
    pub budget: Budget,
}
