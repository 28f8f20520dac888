//! Paravirtual queued spinlocks of threads.
//!
//! Their hash is one for the process, by the address of the lock. It is needed here too: parking the head on the lock's word would make
//! the kernel's table of futexes the hash, but a waiter that halts behind the head sleeps on its own node's word, and if its kick is
//! left to the unlock ([`PvFeatures::kick_at_unlock`],
//! [`crate::hybrid`]), the unlock must find that node.
//!
//! It has room for [`HEADS_MAX`] heads of queues that sleep at once. When it is full, further heads spin instead.

use super::Global;
use super::nodes::{GlobalNode, Table};
use crate::hash::LockHash;
use crate::hybrid::Hybrid;
use crate::nodes::NODES_PER_CPU;
use crate::pv::{PvNode, PvNodes, PvTunables};
use crate::pv_queued::{PvFeatures, PvQueued};
use contend_platform::native::Threads;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// Entries of the process's hash: 64 KiB of lines, of which only those in use are touched after their making (a choice).
pub const HEADS_MAX: usize = 4096;

macro_rules! nodes {
    ($($lines:literal)*) => { $(
        impl GlobalNode for PvNode<Threads, $lines> {
            fn table() -> &'static Table<Self> {
                static TABLE: Table<PvNode<Threads, $lines>> = Table::new();
                &TABLE
            }
        }
    )* };
}
nodes!(1 2);

impl<const LINES: usize> PvNodes<Threads, PvNode<Threads, LINES>> for Global
where
    PvNode<Threads, LINES>: GlobalNode,
{
    fn hash(&self) -> &LockHash<Threads> {
        static HASH: OnceLock<LockHash<Threads>> = OnceLock::new();
        HASH.get_or_init(|| LockHash::new(&Threads, HEADS_MAX / NODES_PER_CPU))
    }
    #[inline]
    fn key(&self, _number: u32, word: &AtomicU64) -> u64 {
        std::ptr::from_ref(word).addr() as u64
    }
}

impl PvQueued<Threads, Global> {
    /// A free lock.
    pub const fn of(features: PvFeatures, tunables: PvTunables) -> Self {
        PvQueued::from_parts(AtomicU64::new(0), Global(()), 0, features, tunables)
    }
}

impl Hybrid<Threads, Global> {
    /// A free lock.
    pub const fn of(tunables: PvTunables) -> Self {
        Hybrid::from_parts(AtomicU64::new(0), Global(()), 0, tunables)
    }
}
