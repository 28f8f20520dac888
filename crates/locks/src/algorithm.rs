//! The layer below the mutexes: algorithms over any [`Platform`], for simulators, model checkers, kernels.
//!
//! Callers are CPUs, not threads: they run with interrupts off, so whoever holds or waits for a lock is identified by
//! its CPU number alone, and queue nodes are per CPU. A lock is released by the CPU that took it.
//!
//! A lock's operations are [`RawLock`]. [`MakeLock`] makes one in any world whose CPUs are known. Which ordering is needed
//! where, and which test catches its absence, is measured by the project's checkers (loom and shuttle).
//!
//! Besides the locks of the crate's root there are those of kernels whose CPUs a hypervisor may take away. Their waiters
//! halt, and are kicked (`pv` and `hash` hold what they share):
//!
//! | module | state | hand-over |
//! |---|---|---|
//! | `pv_ticket` | (owner, waiters, somebody halts) in one word, and for each CPU what it halts for | first come, first served. Linux 3.12 to 4.1 |
//! | `unfair_queued` | locked, tail and a queue of nodes; never halts | to whoever comes while it is free; else to the head of the queue, or to waiters that steal, rarely far from it. Posted in 2014 and 2015 |
//! | `pv_queued` | (tail, pending, locked) and a queue of nodes that halt | first come, first served. Linux 4.2, and each part of the series of 2015 |
//! | `hybrid` | the same | to whoever comes while the head of the queue sleeps; else first come, first served. Linux 4.5 to today |
//!
//! This layer serves the project's own simulator and checkers and changes with them: expect more of it to change in a new
//! 0.x version than of the mutexes.

pub use crate::order::{PairGuarded, lock_mover, lock_pair, unlock_pair};
#[cfg(feature = "alloc")]
pub use crate::{
    adaptive::Adaptive,
    hybrid::Hybrid,
    mcs::{Mcs, McsPool},
    nodes::{NODES_PER_CPU, NodeId, Nodes, Pool, QueueNode},
    pv_queued::{PvFeatures, PvQueued, PvQueuedWith},
    pv_ticket::{PvTicket, WaitPool, Waiting},
    queued::Queued,
    unfair_queued::UnfairQueued,
};
pub use crate::{ticket::Ticket, unfair_byte::UnfairByte};
pub use contend_platform::Platform;

#[cfg(feature = "alloc")]
use alloc::sync::Arc;
#[cfg(feature = "alloc")]
use contend_platform::Line;

/// A mutual-exclusion lock of CPUs.
pub trait RawLock<P: Platform> {
    /// How often CPUs that came later may overtake a waiter that has its place in line
    /// ([`Note::Queued`](contend_platform::Note::Queued)), for each CPU before it in the line and once more for itself: the
    /// k-th, from 1, at most `k * BYPASS_MAX` times. 0: first come, first served. `None`: no bound is promised.
    const BYPASS_MAX: Option<u32> = None;

    /// Take the lock; everything the last holder did is visible afterwards. Says whether it had to wait: what a lock
    /// statistic calls contended.
    #[inline]
    fn lock(&self, p: &P) -> bool {
        self.lock_with(p, || ())
    }

    /// Take the lock; `waits` is called once, when it is found taken and before the wait.
    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool;

    /// Take the lock if that is possible without waiting.
    fn try_lock(&self, p: &P) -> bool;

    /// Does anybody hold the lock? A look at its word, out of date at once. (A queue lock that is being handed to a waiter may say either.)
    fn is_locked(&self, p: &P) -> bool;

    /// Release the lock. The calling CPU holds it.
    fn unlock(&self, p: &P);
}

/// A lock that can be made in any world.
#[cfg(feature = "alloc")]
pub trait MakeLock<P: Platform>: RawLock<P> + Sized {
    /// What the locks of a world share: queue nodes, or `()`.
    type Pool;

    /// That shared part, for CPUs `0..nr_cpus`.
    fn pool(p: &P, nr_cpus: usize) -> Self::Pool;

    /// A free lock whose word lies on `line` (with the data it guards, or alone: the caller's choice).
    fn on_line(p: &P, line: Line, pool: &Arc<Self::Pool>) -> Self;

    /// A free lock on a line of its own that shares nothing with other locks.
    fn new(p: &P, nr_cpus: usize) -> Self {
        Self::on_line(p, p.line(), &Arc::new(Self::pool(p, nr_cpus)))
    }
}
