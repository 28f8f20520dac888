//! Every switch and tunable of the scheduler, in one commented list, by its upstream name.
//!
//! A run's features are a preset (a kernel version) plus `--set key=value` on top. Values are plain: an enum's words,
//! `true`/`false`, or an integer with its unit in the key's documentation.

use crate::switches::FeatureError;
use crate::{switches, words};

words! {
    /// How a wake-up reaches the run queue of another CPU.
    WakePath {
        /// Take the lock of the CPU the task last ran on, then that of the chosen one (Linux 2.6.37).
        RemoteLock = "remote-lock",
        /// Rowand's patch of 2010 with its weaknesses.
        RowandQueue = "rowand-queue",
        /// Queue to any other CPU (Linux 3.0).
        Ttwu30 = "ttwu-queue-3.0",
        /// Queue only across last-level caches (3.3).
        Ttwu33 = "ttwu-queue-3.3",
        /// Also when the wakee still switches out on an otherwise empty CPU (5.8).
        Ttwu58 = "ttwu-queue-5.8",
        /// Also to idle CPUs of the same cache (6.0 to today).
        Ttwu60 = "ttwu-queue-6.0",
    }
}

words! {
    /// How an idle CPU is looked for near the target.
    IdleSearch {
        /// First idle CPU in numeric order, domain by domain upwards (Linux 2.6.37).
        V2_6_37 = "2.6.37",
        /// First group of which all CPUs are idle, from the target's on (3.6 to 3.8).
        V3_6 = "3.6",
        /// The same, but the wakee's last CPU first, if that is idle and in the same cache (3.9 to 4.8).
        V3_9 = "3.9",
        /// One CPU of a neighbouring core, and the other threads there (a patch of June 2012, in no release that has a preset).
        Buddy = "buddy",
        /// Idle core, then a scan bounded by SIS_PROP, then a sibling (5.2).
        V5_2 = "5.2",
        /// One combined scan bounded by SIS_PROP, of an idle time that ages (5.14 to 5.19).
        V5_14 = "5.14",
        /// One combined scan bounded by utilisation (6.0 to today).
        SisUtil = "sis-util",
        /// Always the target itself.
        None = "none",
    }
}

words! {
    /// Whether a wake-up's search for an idle CPU takes one that has nothing but SCHED_IDLE tasks.
    SchedIdleCpu {
        /// No (before 5.4).
        Off = "off",
        /// Yes (5.4 to today).
        Any = "any",
        /// For tasks that are not SCHED_IDLE themselves (a change of February 2026).
        Others = "others",
    }
}

words! {
    /// Which of waker's and wakee's CPU the search starts from.
    WakeAffine {
        /// Always the wakee's last CPU.
        Off = "off",
        /// Load comparison by run-queue weight (2.6.37 to 4.12).
        V3_6 = "3.6",
        /// wake_affine_idle, then wake_affine_weight (4.14 to today).
        V5_2 = "5.2",
    }
}

words! {
    /// Load balancing's era.
    Balance {
        /// No balancing at all.
        Off = "off",
        /// Load by weight, both locks held for the whole pull (2.6.37 to 3.18).
        V3_6 = "3.6",
        /// Load averages, detach under one lock, attach under the other (4.x to 5.4).
        V5_2 = "5.2",
        /// Groups classified by spare capacity (5.5 to today).
        V6_18 = "6.18",
    }
}

words! {
    /// What the scheduler makes of CPUs of different capacity (machines with `topology.kinds`). Without averages it is `off`.
    AsymCapacity {
        /// Nothing: all CPUs are taken for equal (before 4.10).
        Off = "off",
        /// A wakee that is too much for a small CPU goes where most is left (4.10); a misfit that runs on one is pulled to a
        /// larger one that idles (4.20 to 5.6).
        V4_20 = "4.20",
        /// Idle CPUs are looked for by whether the wakee fits them (5.7 to today); misfits as before.
        V5_7 = "5.7",
    }
}

words! {
    /// Algorithm of the kernel's spinlocks. The paravirtual ones are for guests: their waiters halt.
    SpinlockKind {
        /// Ticket lock (2.6.25 to 4.1).
        Ticket = "ticket",
        /// Queued spinlock with a pending bit: waiters spin on their own line (4.2 to today).
        Queued = "queued",
        /// Test and set, whoever comes first (guests without paravirtual locks, 4.2 to today).
        UnfairByte = "unfair-byte",
        /// Paravirtual ticket lock (3.12 to 4.1).
        PvTicket = "pv-ticket",
        /// Paravirtual queued spinlock of 4.2.
        PvQueued = "pv-queued",
        /// 4.2 and part 1 of the series of 2015: a halted head is kicked when the lock is released.
        PvQueuedUnlockKick = "pv-queued-unlock-kick",
        /// 4.2 and part 2: an unlock also kicks halted waiters behind the head.
        PvQueuedKickAhead = "pv-queued-kick-ahead",
        /// 4.2 and part 3: a waiter whose predecessor halts does so at once.
        PvQueuedWaitEarly = "pv-queued-wait-early",
        /// 4.2 and part 5: the first waiter waits on the lock's word.
        PvQueuedPending = "pv-queued-pending",
        /// 4.2 and parts 1 and 2.
        PvQueued2015To2 = "pv-queued-2015-1-2",
        /// 4.2 and parts 1 to 3.
        PvQueued2015To3 = "pv-queued-2015-1-3",
        /// 4.2 and all parts of the series.
        PvQueued2015 = "pv-queued-2015",
        /// Queued lock whose waiters steal (posted with that series).
        UnfairQueued = "unfair-queued",
        /// Paravirtual queued spinlock with one attempt to steal (4.5 to today).
        Hybrid = "hybrid",
        /// Queue of nodes, without a word for the first waiter.
        Mcs = "mcs",
        /// This project's own: bounded stealing before a queue.
        Adaptive = "adaptive",
    }
}

words! {
    /// When a running task of the fair class, or of any policy, makes way for another of its kind on another CPU's word.
    Preempt {
        /// At once in user mode, by an interrupt; in a system call at its end (preempt=none).
        None = "none",
        /// When its CPU next returns to user mode, for whatever reason, at the latest after a tick: nobody interrupts it
        /// (preempt=lazy, 6.13 to today). Real-time tasks do not wait.
        Lazy = "lazy",
    }
}

words! {
    /// What keeps real-time tasks from having a CPU to themselves.
    RtThrottle {
        /// Nothing (sched_rt_runtime_us = -1, or a kernel without).
        None = "none",
        /// Real-time tasks of a CPU stop when they had rt_runtime_us of a period, whoever waits (2.6.25 to 6.11).
        Runtime = "runtime",
        /// Fair tasks that wait for rt_runtime_us behind real-time ones have the rest of the period (6.12 to today).
        FairServer = "fair-server",
    }
}

words! {
    /// Limits on what a group may use (CFS bandwidth control, `cpu.max`), by the version that brought a way.
    CfsBandwidth {
        /// None: a scenario with limits is refused.
        Off = "off",
        /// Slices from a pool, queues that stop (3.2).
        V3_2 = "3.2",
        /// What a CPU has left expires with its period (4.18 to 5.3).
        V4_18 = "4.18",
        /// It does not (5.4).
        V5_4 = "5.4",
        /// Unused quota can be saved up: burst (5.14).
        V5_14 = "5.14",
        /// CPUs queue their own tasks again, told by an interrupt (6.3).
        V6_3 = "6.3",
        /// Tasks stop one by one on their way to user mode (6.18).
        V6_18 = "6.18",
    }
}

/// Shortest `rt_period_us`: 10 ticks of 10 ms.
const RT_PERIOD_MIN_US: u64 = 100_000;

switches! {
    /// All switches and tunables of one run.
    Features {
        // ---- wake-up path ----
        /// How a wake-up reaches another CPU's run queue.
        wake_path: WakePath = WakePath::Ttwu60,
        /// An idle CPU watches its need-resched flag: setting it replaces the interrupt (3.16).
        idle_polling: bool = true,
        /// Algorithm of the kernel's spinlocks, run-queue locks included.
        spinlock: SpinlockKind = SpinlockKind::Queued,

        /// When a running task makes way for a woken one.
        preempt: Preempt = Preempt::None,

        // ---- where a wakee goes ----
        /// Which of waker's and wakee's CPU the idle search starts from.
        wake_affine: WakeAffine = WakeAffine::V5_2,
        /// wake_affine also prefers an idle previous CPU (between 5.8 and 5.19).
        wake_affine_prev_idle: bool = true,
        /// Do not pull wakees of a waker that wakes many different tasks (wake_wide).
        wake_wide: bool = true,
        /// Remember one more CPU the task ran on and try it first.
        recent_used_cpu: bool = true,
        /// How an idle CPU is looked for near the target.
        idle_search: IdleSearch = IdleSearch::SisUtil,
        /// Whether CPUs with nothing but SCHED_IDLE tasks count as idle for a wake-up.
        sched_idle_cpu: SchedIdleCpu = SchedIdleCpu::Any,
        /// SIS_PROP: bound the scan of 5.2 and 5.14 by average idle time over scan cost.
        sis_prop: bool = true,
        /// SIS_AVG_CPU: skip the 5.2 scan when the average idle time is below its cost.
        sis_avg_cpu: bool = false,
        /// SIS_CORE: look for an idle core first (2019 series, patches 4 and 5; true upstream).
        sis_core: bool = true,
        /// 2019 series, patch 1: bound the scan by two to four times the threads per core.
        sis_limit: bool = false,
        /// 2019 series, patch 2: a per-CPU `next_cpu` that notes where a search ended.
        sis_next_cpu: bool = false,
        /// 2019 series, patch 3: start the next search there (needs sis_next_cpu).
        sis_rotate: bool = false,
        /// 2019 series, patches 6 and 7: sibling count precomputed instead of counted from the mask.
        smt_weight_cached: bool = false,
        /// Search the target's cluster before the rest of the cache, with a last CPU elsewhere as what is left if nothing is found (6.8; needs
        /// sched_cluster; of the sis-util search, on machines with clusters).
        sis_cluster: bool = true,

        // ---- CPUs of different speed ----
        /// What the scheduler makes of CPUs of different capacity.
        asym_capacity: AsymCapacity = AsymCapacity::V5_7,
        /// An idle CPU takes tasks, running ones too, from CPUs that are to be filled after it (SD_ASYM_PACKING; on x86 machines whose file says
        /// asym_packing, 4.10).
        asym_packing: bool = true,

        // ---- balancing ----
        /// CONFIG_SCHED_CLUSTER: clusters are a level of balancing, on machines that have them (5.16).
        sched_cluster: bool = true,
        /// On x86's hybrids too (6.6; from 5.16 on clusters were no level there, so that the order of cores decides alone; needs sched_cluster).
        sched_cluster_hybrid: bool = true,
        /// Load balancing's era.
        balance: Balance = Balance::V6_18,
        /// Newidle balancing: a CPU about to idle looks for work.
        newidle_balance: bool = true,
        /// NI_RANDOM: skip newidle balancing of a domain by a dice weighted with its success (6.18).
        ni_random: bool = true,
        /// How many of 1,024 newidle balances of a domain pulled something before the run, for ni_random: 0 to 1024. 512 is what a kernel begins
        /// with; in its place replays of recordings on as many CPUs take what was recorded.
        newidle_ratio: u64 = 512,
        /// Exec balancing: a task that executes a program is placed anew, like a new one.
        exec_balance: bool = true,
        /// sched_migration_cost in ns: a task that ran this recently is cache hot.
        migration_cost_ns: u64 = 500_000,
        /// sched_nr_migrate: most tasks looked at per balance.
        nr_migrate: u64 = 32,
        /// Kick an idle CPU from the tick of a CPU with more than one task (nohz idle balancing).
        nohz_balance: bool = true,

        // ---- CFS ----
        /// sched_latency in ns, before scaling by CPUs.
        latency_ns: u64 = 6_000_000,
        /// sched_min_granularity in ns, before scaling.
        min_granularity_ns: u64 = 750_000,
        /// sched_wakeup_granularity in ns, before scaling.
        wakeup_granularity_ns: u64 = 1_000_000,
        /// Scale the three above, and base_slice, by 1 + log2(min(CPUs, 8)).
        tunable_scaling: bool = true,
        /// GENTLE_FAIR_SLEEPERS: a sleeper gains half a latency instead of a whole one.
        gentle_fair_sleepers: bool = true,
        /// START_DEBIT: a new task starts one slice behind.
        start_debit: bool = true,
        /// LAST_BUDDY: prefer to return to the task a wake-up preempted.
        last_buddy: bool = true,
        /// The woken task that preempts becomes the `next` hint (3.6 and later; not in 2.6.37).
        wakeup_next_hint: bool = true,
        /// sched_yield sets the `skip` hint (3.6 and later; in 2.6.37 it only clears hints).
        yield_skip: bool = true,
        /// WAKEUP_PREEMPTION: a wake-up may preempt the running task.
        wakeup_preemption: bool = true,

        // ---- EEVDF ----
        /// base_slice in ns, before scaling.
        base_slice_ns: u64 = 700_000,
        /// PLACE_LAG: a task keeps its lag over a sleep.
        place_lag: bool = true,
        /// RUN_TO_PARITY: the running task keeps a protected slice.
        run_to_parity: bool = true,
        /// DELAY_DEQUEUE: a sleeper with negative lag stays queued until it has none.
        delay_dequeue: bool = true,
        /// sched_yield gives the rest of the request up in virtual runtime, not only in its deadline (6.18).
        yield_forfeits: bool = true,
        /// PICK_BUDDY: the `next` hint is picked first if eligible.
        pick_buddy: bool = true,
        /// NEXT_BUDDY: a woken task that is eligible preempts and becomes the `next` hint (needs wakeup_preemption
        /// and pick_buddy).
        next_buddy: bool = false,
        /// A task may ask for a slice of its own (sched_runtime of sched_setattr, 6.12).
        custom_slice: bool = true,
        /// PREEMPT_SHORT: the running task has no protection against a woken one with a shorter slice (6.12).
        preempt_short: bool = true,
        /// RUN_TO_PARITY protects the running task for the shortest slice of all that are runnable, not for its own (6.17).
        parity_min_slice: bool = true,

        // ---- groups ----
        /// sched_autogroup_enabled: the tasks of a session are a group (CONFIG_SCHED_AUTOGROUP). Only recordings and models
        /// know of sessions.
        autogroup: bool = false,
        /// Limits on what a group may use (CFS bandwidth control, `cpu.max`), by the version that brought a way.
        cfs_bandwidth: CfsBandwidth = CfsBandwidth::V6_18,
        /// sched_cfs_bandwidth_slice_us: what a CPU draws at once of a limited group's run time, in us, 1 or more.
        cfs_bandwidth_slice_us: u64 = 5_000,

        // ---- real-time ----
        /// What keeps real-time tasks (SCHED_FIFO, SCHED_RR) from having a CPU to themselves.
        rt_throttle: RtThrottle = RtThrottle::FairServer,
        /// sched_rt_runtime_us: real-time tasks' part of each period in us; rt_period_us and more: no limit.
        rt_runtime_us: u64 = 950_000,
        /// sched_rt_period_us in us, 100,000 or more: throttling is looked at by the tick.
        rt_period_us: u64 = 1_000_000,
        /// sched_rr_timeslice_ms: slice of a SCHED_RR task in ms, counted in ticks.
        rr_timeslice_ms: u64 = 100,
        /// CPUs push waiting real-time tasks to others and pull them from others.
        rt_push_pull: bool = true,

        // ---- FIFO ----
        /// Time slice of the reference FIFO policy in ns (0: none).
        fifo_slice_ns: u64 = 0,
    }
}

impl Features {
    /// The scaling factor of the tunables on a machine of `cpus` CPUs (mechanisms A.1): 1 to 4.
    pub fn scale(&self, cpus: usize) -> u64 {
        if self.tunable_scaling { 1 + u64::from(cpus.min(8).ilog2()) } else { 1 }
    }

    /// The only policy that reads a feature; `None`: all do.
    pub fn read_by(key: &str) -> Option<PolicyKind> {
        match key {
            "latency_ns"
            | "min_granularity_ns"
            | "wakeup_granularity_ns"
            | "gentle_fair_sleepers"
            | "start_debit"
            | "last_buddy"
            | "wakeup_next_hint"
            | "yield_skip" => Some(PolicyKind::Cfs),
            "base_slice_ns" | "place_lag" | "run_to_parity" | "delay_dequeue" | "pick_buddy" | "next_buddy"
            | "custom_slice" | "preempt_short" | "parity_min_slice" => Some(PolicyKind::Eevdf),
            "fifo_slice_ns" => Some(PolicyKind::Fifo),
            _ => None,
        }
    }

    /// Check combinations.
    ///
    /// # Errors
    /// A switch whose prerequisite is off.
    pub fn validate(&self) -> Result<(), FeatureError> {
        let need = |key: &str, what: &str| FeatureError {
            key: key.into(),
            value: "true".into(),
            expected: format!("needs {what}"),
        };
        if self.sis_rotate && !self.sis_next_cpu {
            return Err(need("sis_rotate", "sis_next_cpu = true"));
        }
        if self.next_buddy && !(self.wakeup_preemption && self.pick_buddy) {
            return Err(need("next_buddy", "wakeup_preemption = true and pick_buddy = true"));
        }
        for (key, value, least) in [
            ("rt_period_us", self.rt_period_us, RT_PERIOD_MIN_US),
            ("cfs_bandwidth_slice_us", self.cfs_bandwidth_slice_us, 1),
        ] {
            if value < least {
                let expected = format!("should be {least} or more");
                return Err(FeatureError { key: key.into(), value: value.to_string(), expected });
            }
        }
        if self.newidle_ratio > 1024 {
            let (value, expected) = (self.newidle_ratio.to_string(), "should be 0 to 1024".into());
            return Err(FeatureError { key: "newidle_ratio".into(), value, expected });
        }
        let v5_2 = self.idle_search == IdleSearch::V5_2;
        for (on, key) in
            [(self.sis_limit, "sis_limit"), (self.sis_next_cpu, "sis_next_cpu"), (self.sis_avg_cpu, "sis_avg_cpu")]
        {
            if on && !v5_2 {
                return Err(need(key, "idle_search = 5.2"));
            }
        }
        Ok(())
    }
}

/// A named feature set: a kernel version, or one with a patch series on top.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Name, as in `--policy`.
    pub name: &'static str,
    /// One line about it.
    pub doc: &'static str,
    /// The policy it runs.
    pub policy: PolicyKind,
    /// Its features.
    pub features: Features,
}

words! {
    /// The fair policies (and the reference one) that ship.
    PolicyKind {
        /// Reference first-in first-out policy.
        Fifo = "fifo",
        /// Completely fair scheduler (2.6.23 to 6.5).
        Cfs = "cfs",
        /// Earliest eligible virtual deadline first (6.6 to today).
        Eevdf = "eevdf",
    }
}

impl PolicyKind {
    /// Are groups with weights and limits scheduled by it? Other policies see the tasks alone.
    pub fn has_groups(self) -> bool {
        match self {
            PolicyKind::Fifo => false,
            PolicyKind::Cfs | PolicyKind::Eevdf => true,
        }
    }

    /// The word for it.
    pub fn name(self) -> String {
        crate::switches::Value::show(&self)
    }
}

impl Preset {
    /// All presets, oldest first. What each era switches is in `docs/presets.md`.
    pub fn all() -> Vec<Preset> {
        let base = Features::default();
        let v2_6_37 = Features {
            wake_path: WakePath::RemoteLock,
            idle_polling: false,
            spinlock: SpinlockKind::Ticket,
            wake_affine: WakeAffine::V3_6,
            wake_affine_prev_idle: false,
            wake_wide: false,
            recent_used_cpu: false,
            idle_search: IdleSearch::V2_6_37,
            sched_idle_cpu: SchedIdleCpu::Off,
            sis_cluster: false,
            asym_capacity: AsymCapacity::Off,
            asym_packing: false,
            sched_cluster: false,
            sched_cluster_hybrid: false,
            balance: Balance::V3_6,
            ni_random: false,
            wakeup_next_hint: false,
            yield_skip: false,
            cfs_bandwidth: CfsBandwidth::Off,
            rt_throttle: RtThrottle::Runtime,
            ..base.clone()
        };
        let v3_0 = Features { wake_path: WakePath::Ttwu30, ..v2_6_37.clone() };
        let v3_6 = Features {
            wake_path: WakePath::Ttwu33,
            idle_search: IdleSearch::V3_6,
            wakeup_next_hint: true,
            yield_skip: true,
            cfs_bandwidth: CfsBandwidth::V3_2,
            ..v2_6_37.clone()
        };
        let v4_1 = Features {
            idle_polling: true,
            wake_wide: true,
            idle_search: IdleSearch::V3_9,
            balance: Balance::V5_2,
            ..v3_6.clone()
        };
        let v5_2 = Features {
            spinlock: SpinlockKind::Queued,
            wake_affine: WakeAffine::V5_2,
            recent_used_cpu: true,
            idle_search: IdleSearch::V5_2,
            asym_capacity: AsymCapacity::V4_20,
            asym_packing: true,
            cfs_bandwidth: CfsBandwidth::V4_18,
            ..v4_1.clone()
        };
        let v3_2019 =
            Features { sis_limit: true, sis_next_cpu: true, sis_rotate: true, smt_weight_cached: true, ..v5_2.clone() };
        let v5_8 = Features {
            wake_path: WakePath::Ttwu58,
            sched_idle_cpu: SchedIdleCpu::Any,
            asym_capacity: AsymCapacity::V5_7,
            balance: Balance::V6_18,
            cfs_bandwidth: CfsBandwidth::V5_4,
            ..v5_2.clone()
        };
        let v5_15 = Features {
            idle_search: IdleSearch::V5_14,
            wake_affine_prev_idle: true,
            cfs_bandwidth: CfsBandwidth::V5_14,
            ..v5_8.clone()
        };
        let v6_0 = Features {
            wake_path: WakePath::Ttwu60,
            idle_search: IdleSearch::SisUtil,
            sched_cluster: true,
            ..v5_15.clone()
        };
        let preset = |name, doc, policy, features: Features| Preset { name, doc, policy, features };
        vec![
            preset("linux-2.6.37", "remote run-queue locks, numeric idle search", PolicyKind::Cfs, v2_6_37.clone()),
            preset(
                "linux-2.6.37-rowand",
                "2.6.37 with Rowand's wake queue (December 2010)",
                PolicyKind::Cfs,
                Features { wake_path: WakePath::RowandQueue, ..v2_6_37.clone() },
            ),
            preset("linux-3.0", "wake-ups queued to the target CPU", PolicyKind::Cfs, v3_0),
            preset("linux-3.6", "queued across caches, idle groups", PolicyKind::Cfs, v3_6),
            preset("linux-4.1", "an idle last CPU before any search", PolicyKind::Cfs, v4_1),
            preset("linux-5.2", "idle cores, SIS_PROP", PolicyKind::Cfs, v5_2),
            preset("2019-v3", "5.2 with the idle-search series v3, SIS_CORE on", PolicyKind::Cfs, v3_2019.clone()),
            preset(
                "2019-v3-no-sis-core",
                "5.2 with the series, SIS_CORE off",
                PolicyKind::Cfs,
                Features { sis_core: false, ..v3_2019 },
            ),
            preset("linux-5.8", "queued while the wakee switches out", PolicyKind::Cfs, v5_8),
            preset("linux-5.15", "one scan for idle cores and CPUs, SIS_PROP", PolicyKind::Cfs, v5_15),
            preset("linux-6.0", "SIS_UTIL, queued to idle CPUs", PolicyKind::Cfs, v6_0.clone()),
            preset(
                "linux-6.6",
                "EEVDF",
                PolicyKind::Eevdf,
                Features {
                    sched_cluster_hybrid: true,
                    delay_dequeue: false,
                    ni_random: false,
                    cfs_bandwidth: CfsBandwidth::V6_3,
                    base_slice_ns: 750_000,
                    yield_forfeits: false,
                    custom_slice: false,
                    preempt_short: false,
                    parity_min_slice: false,
                    ..v6_0
                },
            ),
            preset("linux-6.18", "EEVDF with delayed dequeue, today's wake-up path", PolicyKind::Eevdf, base.clone()),
            preset(
                "fifo",
                "reference FIFO policy over today's mechanism",
                PolicyKind::Fifo,
                Features { balance: Balance::V6_18, ..base },
            ),
        ]
    }

    /// The preset of this name; `cfs` and `eevdf` stand for the newest preset of each, `linux` for the newest of all.
    pub fn find(name: &str) -> Option<Preset> {
        let name = match name {
            "cfs" => "linux-6.0",
            "eevdf" | "linux" => "linux-6.18",
            n => n,
        };
        Preset::all().into_iter().find(|p| p.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_round_trips_through_text() {
        for preset in Preset::all() {
            let mut f = Features::default();
            for info in preset.features.list() {
                f.set(info.key, &info.value).expect(info.key);
                assert!(!info.doc.is_empty(), "{} has no documentation", info.key);
            }
            assert_eq!(f, preset.features, "{}", preset.name);
            f.validate().expect(preset.name);
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let mut f = Features::default();
        let e = |r: Result<(), FeatureError>| r.expect_err("must fail").to_string();
        assert_eq!(e(f.set("sis_crore", "true")), "`sis_crore` = `true`: no such feature; did you mean `sis_core`?");
        assert_eq!(e(f.set("zzz", "1")), "`zzz` = `1`: no such feature; `contend list features` lists them");
        assert_eq!(e(f.set("sis_core", "yes")), "`sis_core` = `yes`: should be true or false");
        assert_eq!(
            e(f.set("wake_path", "queue")),
            "`wake_path` = `queue`: should be one of remote-lock, rowand-queue, ttwu-queue-3.0, ttwu-queue-3.3, \
             ttwu-queue-5.8, ttwu-queue-6.0"
        );
        f.sis_rotate = true;
        assert_eq!(e(f.validate()), "`sis_rotate` = `true`: needs sis_next_cpu = true");
        let f = Features { next_buddy: true, pick_buddy: false, ..Features::default() };
        let wrong = "`next_buddy` = `true`: needs wakeup_preemption = true and pick_buddy = true";
        assert_eq!(e(f.validate()), wrong);
    }
}
