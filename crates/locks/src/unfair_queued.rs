//! The queued unfair lock (posted in 2014 and 2015 as the guest kernels' replacement of the unfair byte lock; not merged).
//!
//! Anybody who comes takes a free lock, whatever the queue is. Those who fail queue, and steal from inside the queue: rarely
//! far from its head, more often near it. A thief unlinks itself from the middle of the queue. So one waiter polls the lock,
//! the others look at it now and then, and a waiter that has lost its CPU holds up nobody. It never halts: whether a CPU
//! runs is its hypervisor's business.
//!
//! State of a lock: `(tail, locked)`, two words of one line; `tail` is 0 or the number of the last waiting node. State of a
//! node: `(head, next, prev, mask)`; `next` and `prev` are its neighbours, and it is the first of the queue when `head` is 1 or
//! `prev` 0. With `A` the caller's node:
//!
//! ```text
//! lock      (*, 0) -> (*, 1)                acquire: before queueing, whoever waits
//!           (0, *) -> (A, *)                first of the queue
//!           (B, *) -> (A, *)                A.prev = B;  B.next: 0 -> A
//!           A not first: every so often
//!             (*, 0) -> (*, 1)              acquire: stolen; leave
//!           A first: whenever it is free
//!             (*, 0) -> (*, 1)              acquire; leave
//! leave     (A, 1) -> (B, 1)                A was the last:  B.next: A -> 0, unless another has linked itself there
//!           (A, 1) -> (0, 1)                A was the only one
//!           A.next = C:                     A was first: C.head = 1; otherwise B.next = C, C.prev = B
//! try_lock  (*, 0) -> (*, 1)                acquire, once
//! unlock    (*, 1) -> (*, 0)                release
//! ```
//!
//! *How often* follows the mask `m`: a try after `m + 1` looks. The head's is 3, everybody else's twice the predecessor's
//! plus 1, at most 1023: 7 behind the head, then 15, 31 and so on; it is computed anew after each try that failed, since a
//! waiter moves up when others leave. `m + 1` looks that find nothing are one wait with a budget of `(m + 1) * NS_PER_LOOK`.
//!
//! **Leaving is done with the lock held**, by a thief as by the head, so removals follow one another. What `leave` relies on:
//!
//! * `head`, `prev` and, once linked, `next` of a waiting node change in `leave` only, by the holder of the lock (`next` also by
//!   one who queues behind it, from 0). So the holder finds its own as the last holder left them.
//! * A node becomes first by finding no queue, or by the holder's leaving, which sets its `head` before the release.
//! * Who queues behind the last node takes its number out of `tail` once. If the leaving node was the last, `tail` names it
//!   and nobody has its number; otherwise somebody has, links itself, and `leave` waits for that.
//!
//! **A node is not changed by others after its owner has released it.** Others write `A.next` after taking `A` out of `tail`, and
//! the owner waits for that; as holder that leaves, with `A` as predecessor or successor, when `A` is in the queue, and it
//! cannot leave that before the holder has released; and not later, because a node that has left is nobody's `next`, `prev` or
//! `tail`: its neighbours have forgotten it before `leave` returns. But a successor may have *read* `prev` before, and look at the
//! mask of a node that has left, or serves another wait by now. All it can find is a mask, between 3 and 1023: it tries
//! a little earlier or later. Nodes are never freed.

use crate::nodes::{NodeId, Nodes, Pool, QueueNode};
use crate::pv::NS_PER_LOOK;
use crate::{MakeLock, RawLock};
use alloc::sync::Arc;
use contend_platform::{Line, LockEvent, Note, Ordering, Platform};
#[cfg(feature = "std")]
use {
    crate::native::Global,
    crate::native::nodes::{GlobalNode, Table},
    contend_platform::native::Threads,
    core::sync::atomic::AtomicU64,
};

/// The mask of a head, which does not use it.
const HEAD_MASK: u64 = 3;
/// The largest mask.
const MASK_MAX: u64 = 1023;

/// A place in the queue.
pub struct Node<P: Platform> {
    /// 1: it has become the first of the queue. (One that found no queue is so by having no `prev`.)
    head: P::Word,
    /// [`NodeId::link`] of the successor; 0: none, or not linked yet.
    next: P::Word,
    /// [`NodeId::link`] of the predecessor; 0: none.
    prev: P::Word,
    /// How often to try; for the successor to look at.
    mask: P::Word,
}

impl<P: Platform> QueueNode<P> for Node<P> {
    fn new(p: &P, line: Line) -> Self {
        Node { head: p.word(line, 0), next: p.word(line, 0), prev: p.word(line, 0), mask: p.word(line, MASK_MAX) }
    }
}

/// Queued unfair lock; `N` is where its nodes are.
pub struct UnfairQueued<P: Platform, N = Arc<Pool<P, Node<P>>>> {
    locked: P::Word,
    tail: P::Word,
    nodes: N,
}

impl<P: Platform, N: Nodes<P, Node<P>>> UnfairQueued<P, N> {
    fn queue(&self, p: &P) {
        let Some(id) = self.nodes.claim(p) else {
            // Nested too deep: outside the queue, as one who tries.
            while !self.try_lock(p) {
                p.wait_until([&self.locked], None, |[locked]| locked == 0);
            }
            return;
        };
        let node = self.nodes.get(id);
        // Relaxed: published by the exchange of the tail.
        p.store_many([&node.head, &node.next, &node.prev, &node.mask], [0, 0, 0, MASK_MAX]);
        // Release publishes my node's initial state, acquire sees the predecessor's.
        let before = p.swap(&self.tail, id.link(), Ordering::AcqRel);
        p.note(Note::Queued);
        p.lock_event(LockEvent::LockSlowpath, 1);
        let stolen = match NodeId::from_link(before) {
            None => false,
            Some(prev) => {
                p.store(&node.prev, before, Ordering::Relaxed);
                // Release: whoever leaves writes to my `prev` once it sees the link, and must not be overtaken by mine. An
                // exchange: the last of the queue may be leaving, and empty it.
                p.swap(&self.nodes.get(prev).next, id.link(), Ordering::Release);
                self.steal(p, node)
            }
        };
        if !stolen {
            p.store(&node.mask, HEAD_MASK, Ordering::Relaxed);
            while !self.try_lock(p) {
                p.wait_until([&self.locked], None, |[locked]| locked == 0);
            }
        }
        self.leave(p, id);
        self.nodes.release(p, id);
    }

    /// Wait to become head, trying now and then. True: the lock was taken.
    fn steal(&self, p: &P, node: &Node<P>) -> bool {
        let mut since = None;
        loop {
            // Relaxed: a hint, and perhaps of a node that has gone on.
            let prev = NodeId::from_link(p.load(&node.prev, Ordering::Relaxed)).expect("linked before");
            let ahead = p.load(&self.nodes.get(prev).mask, Ordering::Relaxed);
            let mask = (2 * ahead + 1).min(MASK_MAX);
            p.store(&node.mask, mask, Ordering::Relaxed);
            if p.wait_until([&node.head], Some((mask + 1) * NS_PER_LOOK), |[head]| head == 1).is_some() {
                return false;
            }
            if self.try_lock(p) {
                p.lock_event(LockEvent::PvLockStealing, 1);
                return true;
            }
            p.spun(&mut since);
        }
    }

    /// Take my node out of the queue. The caller holds the lock, which orders everything here after the last to leave.
    fn leave(&self, p: &P, id: NodeId) {
        let node = self.nodes.get(id);
        let head = p.load(&node.head, Ordering::Relaxed) == 1;
        let before = if head { 0 } else { p.load(&node.prev, Ordering::Relaxed) };
        let prev = NodeId::from_link(before).map(|prev| self.nodes.get(prev));
        // Relaxed: whoever takes the predecessor out of the tail acquires the exchange that put it there.
        if p.load(&self.tail, Ordering::Relaxed) == id.link()
            && p.compare_exchange(&self.tail, id.link(), before, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            if let Some(prev) = prev {
                // Fails if somebody has queued behind it and linked itself.
                let _ = p.compare_exchange(&prev.next, id.link(), 0, Ordering::Relaxed, Ordering::Relaxed);
            }
            return;
        }
        let [link] = p.wait_until([&node.next], None, |[next]| next != 0).expect("waits without budget");
        let next = self.nodes.get(NodeId::from_link(link).expect("waited for one"));
        match prev {
            None => p.store(&next.head, 1, Ordering::Relaxed),
            Some(prev) => {
                p.store(&prev.next, link, Ordering::Relaxed);
                p.store(&next.prev, before, Ordering::Relaxed);
            }
        }
    }
}

impl<P: Platform, N: Nodes<P, Node<P>>> RawLock<P> for UnfairQueued<P, N> {
    #[inline]
    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
        let contended = !self.try_lock(p);
        if contended {
            waits();
            self.queue(p);
        }
        contended
    }

    #[inline]
    fn try_lock(&self, p: &P) -> bool {
        // Relaxed: only a guess, which the exchange confirms.
        p.load(&self.locked, Ordering::Relaxed) == 0
            && p.compare_exchange(&self.locked, 0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn is_locked(&self, p: &P) -> bool {
        p.load(&self.locked, Ordering::Relaxed) != 0
    }

    #[inline]
    fn unlock(&self, p: &P) {
        p.store(&self.locked, 0, Ordering::Release);
    }
}

impl<P: Platform> MakeLock<P> for UnfairQueued<P> {
    type Pool = Pool<P, Node<P>>;

    fn pool(p: &P, nr_cpus: usize) -> Self::Pool {
        Pool::new(p, nr_cpus)
    }

    fn on_line(p: &P, line: Line, pool: &Arc<Self::Pool>) -> Self {
        UnfairQueued { locked: p.word(line, 0), tail: p.word(line, 0), nodes: Arc::clone(pool) }
    }
}

#[cfg(feature = "std")]
impl GlobalNode for Node<Threads> {
    fn table() -> &'static Table<Self> {
        static TABLE: Table<Node<Threads>> = Table::new();
        &TABLE
    }
}

#[cfg(feature = "std")]
impl UnfairQueued<Threads, Global> {
    /// A free lock.
    pub const fn of_threads() -> Self {
        UnfairQueued { locked: AtomicU64::new(0), tail: AtomicU64::new(0), nodes: Global(()) }
    }
}

// `GuardSend`: a waiter has left the queue before it holds, and the state names waiters only.
mutex!(UnfairQueued<Threads, Global> = UnfairQueued::of_threads(), GuardSend, unfair);
