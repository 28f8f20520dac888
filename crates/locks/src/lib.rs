//! Lock algorithms, one a file, each written once over [`Platform`]: the same source runs on OS threads, under loom
//! and shuttle (`contend-check`), and in the simulator.
//!
//! Callers are CPUs, not threads: they run with interrupts off, so whoever holds or waits for a lock is identified by
//! its CPU number alone, and queue nodes are per CPU. A lock is released by the CPU that took it.
//!
//! | file | state | hand-over |
//! |---|---|---|
//! | [`unfair_byte`] | one bit | to anybody; all waiters poll the one word |
//! | [`ticket`] | (owner, waiters) in one word | first come, first served; all waiters poll the one word |
//! | [`queued`] | (tail, pending, locked) and a queue of nodes | first come, first served; one waiter polls the word, the others lines of their own |
//! | [`mcs`] | tail word and a queue of nodes | first come, first served; each waiter polls a line of its own |
//!
//! [`order`] holds what is built from several locks: a pair taken in one global order, and the lock that guards a
//! thing which may move to another lock meanwhile.
//!
//! Which ordering is needed where, and which test catches its absence, is measured by `contend-check` (table in
//! `docs/internals/checked-world.md`).

extern crate alloc;

pub mod adaptive;
pub mod mcs;
#[cfg(feature = "std")]
pub mod native;
pub mod nodes;
pub mod order;
pub mod queued;
pub mod ticket;
pub mod unfair_byte;

pub use adaptive::Adaptive;
pub use mcs::{Mcs, McsPool};
pub use nodes::{NODES_PER_CPU, NodeId, Nodes, Pool, QueueNode};
pub use order::{PairGuarded, lock_mover, lock_pair, unlock_pair};
pub use queued::Queued;
pub use ticket::Ticket;
pub use unfair_byte::UnfairByte;

use alloc::sync::Arc;
use contend_platform::{Line, Platform};

/// A mutual-exclusion lock of CPUs.
pub trait RawLock<P: Platform> {
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

    /// Release the lock. The calling CPU holds it.
    fn unlock(&self, p: &P);
}

/// A lock that can be made in any world.
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
