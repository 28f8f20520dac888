//! Performance counters, by Xen's names (mechanisms E.4).

macro_rules! perf {
    ($($(#[doc = $doc:literal])* $variant:ident = $text:literal,)*) => {
        /// What a policy counts.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Perf { $($(#[doc = $doc])* $variant,)* }

        impl Perf {
            /// Every counter, in order.
            pub const ALL: &'static [Perf] = &[$(Perf::$variant,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();
            /// The name in reports.
            pub fn name(self) -> &'static str {
                match self { $(Perf::$variant => $text,)* }
            }
            /// What it means.
            pub fn describe(self) -> &'static str {
                match self { $(Perf::$variant => concat!($($doc),*).trim_ascii(),)* }
            }
        }
    };
}

perf! {
    /// Runs of the SCHEDULE softirq.
    SchedRun = "sched_run",
    /// Of these, that switched to another vCPU.
    SchedCtx = "sched_ctx",
    /// Raised SCHEDULE softirqs of other pCPUs that took an interrupt.
    TickleIpi = "tickle_ipi",
    /// Wake-ups of a vCPU that ran.
    WakeRunning = "vcpu_wake_running",
    /// Wake-ups of a vCPU that was queued.
    WakeOnRunq = "vcpu_wake_onrunq",
    /// Wake-ups that queued the vCPU.
    WakeRunnable = "vcpu_wake_runnable",
    /// Wake-ups of a vCPU that was not runnable even so.
    WakeNotRunnable = "vcpu_wake_not_runnable",
    /// Sleeps.
    VcpuSleep = "vcpu_sleep",
    /// Yields.
    VcpuYield = "vcpu_yield",
    /// Checks of the policy's books by the accounting.
    VcpuCheck = "vcpu_check",
    /// Times that nobody was tickled for a vCPU that woke, or in Credit2 lost its pCPU while runnable.
    TickledNo = "tickled_no_cpu",
    /// Times that an idle pCPU was, for such a one.
    TickledIdle = "tickled_idle_cpu",
    /// Times that a busy pCPU was, for such a one.
    TickledBusy = "tickled_busy_cpu",
    /// Those that left a queued vCPU to the pCPU that was tickled for it.
    DeferredToTickled = "deferred_to_tickled_cpu",
    /// A vCPU's tickled pCPU was overwritten by another.
    TickledOverwritten = "tickled_cpu_overwritten",
    /// A vCPU was taken by another pCPU than the one tickled for it.
    TickledOverridden = "tickled_cpu_overridden",
    /// vCPUs that moved between pCPUs of one runqueue, or were stolen.
    Migrated = "migrated",
    /// Running vCPUs that were flagged to migrate.
    MigrateRunning = "migrate_running",
    /// Queued vCPUs that were moved.
    MigrateOnRunq = "migrate_on_runq",
    /// Vcpus stolen from another pCPU's queue.
    MigrateQueued = "migrate_queued",
    /// Running vCPUs sent to an idle pCPU, to make room.
    MigrateKickedAway = "migrate_kicked_away",
    /// vCPUs left where they were for migration resistance.
    MigrateResisted = "migrate_resisted",
    /// Migrations honoured that the balancer asked for.
    MigrateRequested = "migrate_requested",
    /// Migrations requested of a vCPU in no queue.
    MigrateNoRunq = "migrate_no_runq",
    /// Try-locks of another pCPU's queue that failed, in stealing.
    StealTrylockFailed = "steal_trylock_failed",
    /// Pcpus searched for work that were idle by then.
    StealPeerIdle = "steal_peer_idle",
    /// Searches for work by idle pCPUs.
    LoadBalanceIdle = "load_balance_idle",
    /// Searches for work by pCPUs whose own best was OVER.
    LoadBalanceOver = "load_balance_over",
    /// Searches for work by other pCPUs.
    LoadBalanceOther = "load_balance_other",
    /// Credit2: load balancing runs.
    LoadBalance = "acct_load_balance",
    /// Credit1: accountings.
    AcctRun = "acct_run",
    /// Of these, without active domains.
    AcctNoWork = "acct_no_work",
    /// Credit1: domains looked at whose vCPUs were reordered.
    AcctReorder = "acct_reorder",
    /// Credit1: smallest credit was clipped.
    AcctMinCredit = "acct_min_credit",
    /// Credit1: vCPUs that joined the active list.
    AcctVcpuActive = "acct_vcpu_active",
    /// Credit1: vCPUs that left it.
    AcctVcpuIdle = "acct_vcpu_idle",
    /// vCPUs parked for their cap.
    VcpuPark = "vcpu_park",
    /// vCPUs unparked.
    VcpuUnpark = "vcpu_unpark",
    /// Burns of no credit: the clock did not advance.
    BurnCreditsT2c = "burn_credits_t2c",
    /// Credit2: resets.
    CreditReset = "credit_reset",
    /// Credit2: slices cut to the minimum.
    RuntimeMin = "runtime_min_timer",
    /// Credit2: slices cut to the maximum.
    RuntimeMax = "runtime_max_timer",
    /// Credit2: `pick_cpu` without the locks it needs.
    PickResource = "pick_resource",
    /// Credit2: upon wake-up the vCPU was being switched away from, and is queued when that is done.
    DelayedAdd = "delayed_add",
    /// Context switches that the rate limit put off.
    Ratelimited = "ratelimited",
}
