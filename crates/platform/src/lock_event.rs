//! What lock statistics count, by the names that Linux gives its counters (`lock_event_counts` in debugfs).
//!
//! The algorithms report with [`crate::Platform::lock_event`]; who counts, and whether, is the world's.

macro_rules! events {
    ($($(#[$meta:meta])* $variant:ident = $text:literal,)*) => {
        /// A countable event in the slow path of a lock.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum LockEvent { $($(#[$meta])* $variant,)* }

        impl LockEvent {
            /// Every event, in order.
            pub const ALL: &'static [LockEvent] = &[$(LockEvent::$variant,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();
            /// The counter's name.
            pub const fn name(self) -> &'static str {
                match self { $(LockEvent::$variant => $text,)* }
            }
        }
    };
}

events! {
    /// Slow paths taken.
    LockSlowpath = "lock_slowpath",
    /// Acquisitions through the pending bit.
    LockPending = "lock_pending",
    /// Second queue node of a CPU used: a slow path inside another.
    LockUseNode2 = "lock_use_node2",
    /// Third node used.
    LockUseNode3 = "lock_use_node3",
    /// Fourth node used.
    LockUseNode4 = "lock_use_node4",
    /// All nodes in use: spun on trylock.
    LockNoNode = "lock_no_node",
    /// Hash buckets looked at beyond the first, when inserting.
    PvHashHops = "pv_hash_hops",
    /// Kicks by an unlock.
    PvKickUnlock = "pv_kick_unlock",
    /// Kicks by the new owner of a lock, of its successor (Linux 4.2; it has no counter of this name).
    PvKickLock = "pv_kick_lock",
    /// Kicks that woke somebody: as many as [`LockEvent::PvLatencyWake`] was reported times.
    PvKickWake = "pv_kick_wake",
    /// Kicks of waiters behind the head (kick-ahead; Linux has no such counter).
    PvKickAhead = "pv_kick_ahead",
    /// Time from a kick to its return, in ns.
    PvLatencyKick = "pv_latency_kick",
    /// Time from a kick to the waiter's running, in ns.
    PvLatencyWake = "pv_latency_wake",
    /// Acquisitions ahead of the queue.
    PvLockStealing = "pv_lock_stealing",
    /// Returns from a halt with nothing to do.
    PvSpuriousWakeup = "pv_spurious_wakeup",
    /// Halts of a waiter that had been woken before.
    PvWaitAgain = "pv_wait_again",
    /// Halts before the end of the spin budget, because the predecessor does not run.
    PvWaitEarly = "pv_wait_early",
    /// Halts of the head of a queue.
    PvWaitHead = "pv_wait_head",
    /// Halts of other waiters.
    PvWaitNode = "pv_wait_node",
}
