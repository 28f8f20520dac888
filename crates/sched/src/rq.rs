//! Run queues: the lock, what others may peek at, and what the lock guards.

use crate::balance::newidle_ratio::NewidleRatio;
use crate::bandwidth::Locals;
use crate::domains::CAPACITY;
use crate::features::Features;
use crate::idle_search::SearchTime;
use crate::pelt::Average;
use crate::policy::{Policy, WEIGHT_IDLE};
use crate::rq_lock::{KernelLock, LockFactory};
use crate::rt::queue::RtRq;
use crate::wake_list::{CallList, RowandList};
use contend_platform::{Account, CpuId, Nanos, Platform, TaskId, Time};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bit 0 of the resched word: reschedule soon (the bit [`contend_platform::SchedPlatform::idle`] watches).
pub const NEED_RESCHED: u64 = 1;
/// Bit 1: the CPU is idle and watches bit 0, so that an interrupt is not needed.
pub const POLLING: u64 = 2;
/// Bit 2: reschedule on the next return to user mode ([`crate::features::Preempt::Lazy`]).
pub const NEED_RESCHED_LAZY: u64 = 4;
/// On its way to user mode a CPU looks at both.
pub const RESCHED_MASK: u64 = NEED_RESCHED | NEED_RESCHED_LAZY;

/// One CPU's run queue.
pub struct Rq<P: Platform, L: Policy> {
    /// Guards `data` and the entities of its tasks.
    pub lock: KernelLock<P>,
    /// `curr + 1` (0: idle) in the upper half, `nr_running` in the lower; on the line idle searches read.
    pub peek: P::Word,
    /// Load as the era measures it (weight sum, or load_avg), with what real-time tasks take of the CPU ([`peek_load`],
    /// [`peek_taken`]); same line.
    pub load: P::Word,
    /// The policy's published floor (CFS: min_vruntime), as i64 bits; same line.
    pub floor: P::Word,
    /// util_avg, packed with the time of its last update ([`Average::pack`]); same line.
    pub util: P::Word,
    /// util_est, as [`RqData::util_est`], published with `vcpu_pack` only; same line.
    pub util_est: P::Word,
    /// The load of the running task if that is too much for this CPU (`misfit_task_load`), else 0; on machines with CPUs of different
    /// capacity only. Same line.
    pub misfit: P::Word,
    /// What tasks that slept here, and were woken to other CPUs since, take out of the averages, as of when these were last published:
    /// load in the upper half, util_avg in the lower (`cfs_rq->removed`); on a line of its own.
    pub removed: P::Word,
    /// ttwu_pending: a queued wake-up is on its way; same line.
    pub ttwu_pending: P::Word,
    /// avg_idle in ns; written by its own CPU, read by it as a waker.
    pub avg_idle: P::Word,
    /// What its idle searches may still spend (`wake_avg_idle`, idle_search = 5.14), with the tick as of which; same line.
    pub search_time: P::Word,
    /// Earliest next periodic balance of any domain, in ns.
    pub next_balance: P::Word,
    /// NEED_RESCHED | POLLING | NEED_RESCHED_LAZY.
    pub resched: P::Word,
    /// Head of the list of queued wake-ups.
    pub wake_list: CallList<P>,
    /// The same in Rowand's patch.
    pub rowand_list: RowandList<P>,
    /// Directed yields that hold the lock or wait for it, of those that count ([`crate::yield_to`]); on a line of its own.
    pub yielding: P::Word,
    /// 2019 series: where the search for this target ended, + 1 (0: -1).
    pub next_cpu: P::Word,
    /// What balancing has learned of each of the CPU's domains. The CPU itself (newidle) and one that balances for it
    /// (nohz) change it without `lock`, as in Linux, where these races are benign; here the mutex makes them none. No
    /// platform operation happens while it is held, and its only simulated cost is that of the line.
    pub learned: P::Cell<Mutex<Vec<DomainLearned>>>,
    /// Wake-ups this CPU made, and those of them that stayed on it. The observer's, without simulated cost; written by
    /// this CPU only.
    pub(crate) ttwu_count: AtomicU64,
    pub(crate) ttwu_local: AtomicU64,
    /// Guarded by `lock`.
    pub data: P::Cell<RqData<L>>,
}

/// What the lock guards.
pub struct RqData<L: Policy> {
    /// The policy's partition.
    pub pol: L::Rq,
    /// Real-time tasks, above it.
    pub rt: RtRq,
    /// Runnable tasks of all classes, the running one included, delayed ones not.
    pub nr_running: u32,
    /// All tasks that are held or run here.
    pub nr_queued: u32,
    /// The running task, until the switch away from it.
    pub curr: Option<TaskId>,
    /// `curr` while its class holds it as running: between `set_next` and `put_prev`.
    pub running: Option<TaskId>,
    /// Sum of weights of runnable fair tasks.
    pub weight: u64,
    /// What of it competes here ([`Policy::queue_weight`]).
    pub competing: u64,
    /// load_avg: what the tasks that belong here have asked for, sleepers included.
    pub load: Average,
    /// runnable_load_avg (3.8 to 5.6): the loads of those that are runnable now.
    pub runnable_load: Average,
    /// What this CPU is worth, in 1/1024 of the fastest.
    pub capacity: u64,
    /// util_avg, 0 to `capacity`.
    pub util: Average,
    /// The share of its time in which the CPU ran fair tasks, whoever they were, and whether it did when last published; only where
    /// util_avg is scaled.
    pub busy: (Average, bool),
    /// The sum of util_est of the fair tasks that are runnable here.
    pub util_est: u64,
    /// When the CPU last became idle (0: it is not).
    pub idle_stamp: Time,
    /// The last switch of `curr`.
    pub curr_since: Time,
    /// Periodic balancing.
    pub balance: Vec<DomainBalance>,
    /// Cost of the most expensive newidle balance seen, all domains, in ns (max_idle_balance_cost).
    pub max_idle_balance_cost: Nanos,
    /// What limited groups have left here, and who is stopped.
    pub bandwidth: Locals,
    /// Since when the running task is too much for this CPU, if it is.
    pub misfit_since: Option<Time>,
    /// An active balance has been asked for: where to push `curr`.
    pub push_to: Option<CpuId>,
    /// Counters.
    pub stats: RqStats,
}

/// A CPU's balancing state in one of its domains.
#[derive(Clone, Debug)]
pub struct DomainBalance {
    /// Last periodic balance; none in this run yet.
    pub last_balance: Option<Time>,
    /// Current interval in ns, within the bounds of the level where it is used.
    pub interval: Nanos,
    /// Counters of /proc/schedstat, by idle type: not idle, idle, newidle.
    pub stats: [BalanceStats; 3],
}

impl DomainBalance {
    /// Of a machine that has been up and idle: balanced, and again, until the interval was at its longest.
    fn at_start() -> Self {
        DomainBalance { last_balance: None, interval: Nanos::MAX, stats: Default::default() }
    }
}

/// What a CPU's balancing has learned of one of its domains.
#[derive(Clone, Debug)]
pub struct DomainLearned {
    /// Failures of periodic balances since the last that pulled something.
    pub nr_balance_failed: u32,
    /// Longest newidle balance, decaying.
    pub max_newidle_lb_cost: Nanos,
    /// When it last decayed.
    pub cost_decay_at: Time,
    /// NI_RANDOM: how many of 1,024 newidle balances would have pulled something, as far as tried.
    pub newidle: NewidleRatio,
}

impl DomainLearned {
    /// Nothing yet but a ratio.
    pub fn new(newidle: NewidleRatio) -> Self {
        DomainLearned { nr_balance_failed: 0, max_newidle_lb_cost: 0, cost_decay_at: 0, newidle }
    }
}

/// /proc/schedstat's domain fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "upstream's names, documented in mechanisms A.5")]
pub struct BalanceStats {
    pub lb_count: u64,
    pub lb_balanced: u64,
    pub lb_failed: u64,
    pub lb_imbalance: u64,
    pub lb_gained: u64,
    pub lb_hot_gained: u64,
    pub lb_nobusyq: u64,
    pub lb_nobusyg: u64,
    pub alb_count: u64,
    pub alb_pushed: u64,
}

/// /proc/schedstat's CPU fields and what contend adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "upstream's names, documented in mechanisms A.5")]
pub struct RqStats {
    pub yld_count: u64,
    pub sched_count: u64,
    pub sched_goidle: u64,
    pub ttwu_count: u64,
    pub ttwu_local: u64,
    pub rq_cpu_time: Nanos,
    pub run_delay: Nanos,
    pub pcount: u64,
    pub misfit_time: Nanos,
}

impl<L: Policy> RqData<L> {
    /// Runnable tasks of the policy.
    pub fn nr_fair(&self) -> u32 {
        self.nr_running - self.rt.nr_queued() - u32::from(self.rt.runs())
    }
    /// [`RtRq::throttle`].
    #[inline]
    pub(crate) fn throttle(&mut self, features: &Features, now: Time) -> bool {
        let fair = self.nr_fair();
        self.rt.throttle(features, fair, now)
    }
    /// The value of [`Rq::peek`].
    pub fn peek_value(&self) -> u64 {
        let nr = self.nr_running - self.rt.nr_throttled();
        // No other class weighs as little as SCHED_IDLE: the weights tell whether somebody else is runnable.
        let fair = self.nr_fair();
        let sched_idle = nr > 0 && nr == fair && self.weight == u64::from(fair) * WEIGHT_IDLE;
        (self.curr.map_or(0, |t| u64::from(t.0) + 1) << 32) | u64::from(sched_idle) << 31 | u64::from(nr)
    }
    /// The weight of runnable tasks is `weight` from now on.
    pub fn set_weight(&mut self, policy: &L, weight: u64) {
        self.weight = weight;
        self.competing = policy.queue_weight(&self.pol, weight);
    }
    /// Bring the averages up to date; call before anything they depend on changes.
    #[inline]
    pub fn update_averages(&mut self, now: Time) {
        if self.load.is_fresh(now) && self.util.is_fresh(now) {
            return;
        }
        self.load.update(now, self.competing);
        self.runnable_load.update(now, self.competing);
        self.util.update(now, if self.runs_fair() { self.capacity } else { 0 });
    }
    fn runs_fair(&self) -> bool {
        self.curr.is_some() && !self.rt.runs()
    }
    /// util_avg as others see it from now on: running time counts by frequency, `pct` of the highest while the machine is busy
    /// (architectures that tell theirs since 5.1, x86 since 5.7).
    pub(crate) fn scaled_util(&mut self, now: Time, pct: u64) -> Average {
        let runs = self.runs_fair();
        let (busy, ran) = &mut self.busy;
        busy.update(now, if *ran { CAPACITY } else { 0 });
        *ran = runs;
        Average::new(scaled_util(self.util.get(), busy.get(), pct), self.util.updated())
    }
    /// Take out what [`Rq::removed`] held, which was so much `then` and has decayed with the rest.
    pub(crate) fn remove(&mut self, removed: u64, then: Time) {
        let part = |removed: u64, of: &Average| {
            let mut part = Average::new(removed, then);
            part.update(of.updated(), 0);
            part.get()
        };
        self.load.sub(part(removed >> 32, &self.load));
        self.util.sub(part(removed & u64::from(u32::MAX), &self.util));
    }
}

/// The clock of the averages runs slower on a CPU that runs at `pct` of the highest frequency, and catches up while it is idle: running
/// counts `pct` of its time, as long as there are idle times. Without any for some half-lives, the average comes to full as any other.
fn scaled_util(util: u64, busy: u64, pct: u64) -> u64 {
    /// Five half-lives after the last idle time.
    const NEVER_IDLE: u64 = CAPACITY - CAPACITY / 32;
    if busy >= NEVER_IDLE { util } else { util * pct / 100 }
}

/// nr_running from a peeked word.
#[inline]
pub fn peek_nr_running(peek: u64) -> u32 {
    peek as u32 & (u32::MAX >> 1)
}

/// From a peeked word: there are runnable tasks, all of them `SCHED_IDLE`.
#[inline]
pub fn peek_sched_idle(peek: u64) -> bool {
    peek as u32 >> 31 != 0
}

/// Bits of the load in [`Rq::load`].
const LOAD_BITS: u32 = 52;

/// The value of [`Rq::load`]: a load, and the part of the CPU (0 to 1024) that real-time tasks take.
#[inline]
pub(crate) fn load_value(load: u64, taken: u64) -> u64 {
    taken << LOAD_BITS | load.min((1 << LOAD_BITS) - 1)
}

/// The load from a peeked word.
#[inline]
pub fn peek_load(word: u64) -> u64 {
    word & ((1 << LOAD_BITS) - 1)
}

/// What real-time tasks take of the CPU, 0 to 1024, from a peeked word.
#[inline]
pub fn peek_taken(word: u64) -> u64 {
    word >> LOAD_BITS
}

/// The running task from a peeked word.
#[inline]
pub fn peek_curr(peek: u64) -> Option<TaskId> {
    ((peek >> 32) as u32).checked_sub(1).map(TaskId)
}

impl<P: Platform, L: Policy> Rq<P, L> {
    /// /proc/schedstat's CPU fields at `end`, given what the lock guards. The running task's stretch counts so far.
    pub fn stats(&self, data: &RqData<L>, end: Time) -> RqStats {
        let runs = data.curr.map_or(0, |_| end.saturating_sub(data.curr_since));
        RqStats {
            ttwu_count: self.ttwu_count.load(Relaxed),
            ttwu_local: self.ttwu_local.load(Relaxed),
            rq_cpu_time: data.stats.rq_cpu_time + runs,
            misfit_time: data.stats.misfit_time + data.misfit_since.map_or(0, |since| end.saturating_sub(since)),
            ..data.stats
        }
    }

    /// An empty run queue of a CPU of this capacity, with what is known of each domain.
    pub fn new(p: &P, factory: &LockFactory<P>, policy: &L, capacity: u64, learned: Vec<DomainLearned>) -> Self {
        let domains = learned.len();
        let hot = p.line();
        let own = p.line();
        let resched = p.line();
        let data = p.line();
        Rq {
            lock: factory.create(p, p.line(), Account::RqLock),
            peek: p.word(hot, 0),
            load: p.word(hot, 0),
            floor: p.word(hot, 0),
            util: p.word(hot, 0),
            util_est: p.word(hot, 0),
            misfit: p.word(hot, 0),
            ttwu_pending: p.word(hot, 0),
            avg_idle: p.word(own, crate::kernel::AVG_IDLE_CAP_NS),
            search_time: p.word(own, SearchTime::AT_START.pack()),
            next_balance: p.word(own, 0),
            resched: p.word(resched, 0),
            wake_list: CallList::new(p, p.line()),
            rowand_list: RowandList::new(p, p.line()),
            next_cpu: p.word(p.line(), 0),
            yielding: p.word(p.line(), 0),
            removed: p.word(p.line(), 0),
            ttwu_count: AtomicU64::new(0),
            ttwu_local: AtomicU64::new(0),
            learned: p.cell(data, Mutex::new(learned)),
            data: p.cell(
                data,
                RqData {
                    pol: policy.new_rq(),
                    rt: RtRq::default(),
                    nr_running: 0,
                    nr_queued: 0,
                    curr: None,
                    running: None,
                    weight: 0,
                    competing: 0,
                    load: Average::default(),
                    runnable_load: Average::default(),
                    capacity,
                    util: Average::default(),
                    busy: (Average::default(), false),
                    util_est: 0,
                    idle_stamp: 0,
                    curr_since: 0,
                    balance: vec![DomainBalance::at_start(); domains],
                    max_idle_balance_cost: 500_000,
                    bandwidth: Locals::default(),
                    misfit_since: None,
                    push_to: None,
                    stats: RqStats::default(),
                },
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::scaled_util;

    #[test]
    fn utilisation_counts_by_frequency_unless_a_cpu_never_idles() {
        let scaled = |util, busy| scaled_util(util, busy, 86);
        assert_eq!((scaled(0, 0), scaled(512, 512), scaled(921, 921)), (0, 440, 792));
        assert_eq!(scaled(1024, 1010), 1024, "no idle time to catch up in");
        assert_eq!(scaled(1400, 921), 1204, "with a task that is not taken out yet");
    }
}
