//! What the paravirtual queued spinlocks ([`crate::pv_queued`], [`crate::hybrid`]) share: nodes that know whether their CPU
//! sleeps, budgets, the waits of those who are not at the head.
//!
//! A waiter whose spin budget is spent **halts**: it gives its CPU to whoever can use it, best of all to the holder of the lock,
//! and must be **kicked** later. Both cost a visit to the hypervisor (threads: a system call).
//!
//! # State of a node
//!
//! `(locked, next, state)`. `locked` and `next` are those of every queue lock. `state` is bits: `H`, halted or about to be, and
//! `X` (hashed), somebody has seen to it that the unlock will find this node, namely by [`LockHash`]. `H` is in the low half of
//! the word and `X` in the high one: a halt compares the low half. (`hybrid` has a third, also there: what was `X` once.)
//!
//! ```text
//! wait      0 -> H ; full fence ; not locked: halt ; H -> 0, HX -> X       a waiter behind the head
//! hand over locked = 1 ; full fence ; H -> 0 and kick, or H -> HX          the new owner, for its successor
//! head      0 -> HX or X -> HX ; halt ; HX -> X, H -> 0                    the head: never H alone
//! unlock    HX -> 0, X -> 0 ; release ; kick if it was H                   finds the node by the hash
//! ahead     H -> 0 ; release ; kick                                        a waiter behind the head
//! ```
//!
//! Why no wake-up is lost. A waiter behind the head and its predecessor each write one word and look at the other's, with full
//! fences between: either the predecessor sees `H`, or the waiter sees `locked`. A head halts only with `X` set, and `X` says
//! that the lock's word shows, or will show before its holder unlocks, that there is an entry in the hash; so that unlock clears
//! the state and then kicks. Who halts compares the state once more while it falls asleep, so a kick cannot come too early.
//!
//! Why no node is written late. Others write to a node while they hold the lock its owner waits for, hence before that owner
//! can go on to use it elsewhere. Only kicks come after the release; one that comes too late wakes somebody for nothing.
//!
//! Linux halts the head on the lock's byte and finds out by it whether it is hashed. Here every halt is on the node's state, so
//! that one word serves all kicks (threads sleep on words, not on CPUs), and the state is exact where Linux's is a hint.
//! The cost is the same: the unlock writes to the line from which Linux's reads the number of the CPU.
//!
//! # Lines
//!
//! Linux had `state` on a line of its own until 2018, since four nodes of a CPU fill a line; then nodes grew and it came to the
//! other fields (from memory, not checked). `LINES` says which, 2 or 1, for the simulator; OS threads always have one line.

use crate::hash::LockHash;
use crate::kicked::Kicked;
use crate::nodes::{Link, NodeId, Nodes, Pool, QueueNode};
use alloc::sync::Arc;
use contend_platform::{CpuId, Line, LockEvent, Nanos, Note, Ordering, Platform};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The CPU runs.
pub(crate) const RUNNING: u64 = 0;
/// It halts, or is about to.
pub(crate) const HALTED: u64 = 1;
/// The unlock will find the node.
pub(crate) const HASHED: u64 = 1 << 32;
/// It has found the node before, in this wait.
pub(crate) const SPENT: u64 = 1 << 33;

/// What one look of a spinning waiter lasts, in ns. Kernels budget in looks; here budgets are times. A look is a load that
/// hits, a branch and a pause; a pause takes about 10 cycles on Intel CPUs before Skylake and up to 140 on it (Intel's
/// optimization manual, "Pause latency in Skylake"). 13 cycles at 2.4 GHz, as on the machines of 2015.
pub const NS_PER_LOOK: Nanos = 5;

/// Budgets of the paravirtual locks. They are the same for every variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PvTunables {
    /// How long a waiter spins before it halts, in ns. Linux's `SPIN_THRESHOLD`: 2^15 looks.
    pub spin_ns: Nanos,
    /// How long a pending waiter spins before it queues after all, in ns: 2^10 looks (the 2015 series; from memory, not
    /// checked).
    pub pending_ns: Nanos,
    /// Of how many waiters behind the head an unlock looks whether they halt, and kicks those that do. At most
    /// [`PvTunables::KICK_AHEAD_MAX`].
    pub kick_ahead: usize,
}

impl PvTunables {
    /// The most that a lock can kick ahead.
    pub const KICK_AHEAD_MAX: usize = 4;
    /// For many CPUs.
    pub const DEFAULT: PvTunables =
        PvTunables { spin_ns: NS_PER_LOOK << 15, pending_ns: NS_PER_LOOK << 10, kick_ahead: Self::KICK_AHEAD_MAX };

    /// For a guest of `nr_cpus`: a quarter of them are kicked ahead, four at most. (Rounded up, so that small guests have it too.)
    pub const fn of(nr_cpus: usize) -> Self {
        let quarter = nr_cpus.div_ceil(4);
        let kick_ahead = if quarter < Self::KICK_AHEAD_MAX { quarter } else { Self::KICK_AHEAD_MAX };
        PvTunables { kick_ahead, ..Self::DEFAULT }
    }
}

/// A node; `LINES` as in the module's text.
pub struct PvNode<P: Platform, const LINES: usize> {
    pub(crate) link: Link<P>,
    /// [`RUNNING`], or [`HALTED`] and [`HASHED`], or [`SPENT`].
    pub(crate) state: P::Word,
    kicked: Kicked,
}

impl<P: Platform, const LINES: usize> QueueNode<P> for PvNode<P, LINES> {
    fn new(p: &P, line: Line) -> Self {
        const { assert!(LINES == 1 || LINES == 2) };
        let state_line = if LINES == 1 { line } else { p.line() };
        p.note(Note::Joined { line: state_line, to: line });
        PvNode { link: Link::new(p, line), state: p.word(state_line, RUNNING), kicked: Kicked::default() }
    }
}

impl<P: Platform, const LINES: usize> PvNode<P, LINES> {
    /// Prepare a claimed node for the end of a queue.
    pub(crate) fn clear(&self, p: &P) {
        self.link.clear(p);
        // Only `hybrid` leaves something else. Linux writes it always: a line that a successor has peeked at is fetched here.
        p.store(&self.state, RUNNING, Ordering::Relaxed);
    }

    /// Give the CPU up until the state is no longer halted. May return for no reason.
    pub(crate) fn halt(&self, p: &P) {
        self.kicked.halt(p, &self.state, HALTED);
    }

    /// Wake `cpu`, the node's owner. The caller has cleared the state.
    pub(crate) fn kick(&self, p: &P, cpu: CpuId, why: LockEvent) {
        self.kicked.kick(p, &self.state, cpu, why);
    }

    /// Wait behind `prev` until it has handed over. Between two halts spin for `spin_ns`, but if `early`, only while `prev` does
    /// not halt: before it runs again there is nothing to wait for. (Linux 4.5 and later look every 256th time, about 1.3 us;
    /// here the wait is for either change.)
    pub(crate) fn wait_turn(&self, p: &P, prev: &Self, spin_ns: Nanos, early: bool) {
        let locked = &self.link.locked;
        loop {
            let found = if early {
                p.wait_until([locked, &prev.state], Some(spin_ns), |[locked, prev]| locked == 1 || prev & HALTED != 0)
            } else {
                p.wait_until([locked], Some(spin_ns), |[locked]| locked == 1).map(|[locked]| [locked, RUNNING])
            };
            if let Some([1, _]) = found {
                return;
            }
            p.swap(&self.state, HALTED, Ordering::Relaxed);
            // Against the one in `hand_over`.
            p.fence(Ordering::SeqCst);
            // Relaxed: if it is 1 the wait above acquires it.
            let halts = p.load(locked, Ordering::Relaxed) == 0;
            if halts {
                p.lock_event(LockEvent::PvWaitNode, 1);
                if found.is_some() {
                    p.lock_event(LockEvent::PvWaitEarly, 1);
                }
                self.halt(p);
            }
            let before = p.fetch_and(&self.state, !HALTED, Ordering::Relaxed);
            if halts && before == HALTED {
                p.lock_event(LockEvent::PvSpuriousWakeup, 1);
            }
        }
    }

    /// Make this node, the caller's successor, the head. If its CPU halts, its state is `found` from now on, and the answer true.
    #[must_use]
    pub(crate) fn hand_over(&self, p: &P, found: u64) -> bool {
        p.store(&self.link.locked, 1, Ordering::Release);
        // Against the one in `wait_turn`.
        p.fence(Ordering::SeqCst);
        p.compare_exchange(&self.state, HALTED, found, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Where a paravirtual lock gets its nodes from, and where it notes which to kick.
pub trait PvNodes<P: Platform, N>: Nodes<P, N> {
    /// The hash of all locks that share these nodes.
    fn hash(&self) -> &LockHash<P>;
    /// What the hash calls a lock: not 0, and no other lock's. `number` is the lock's in its pool.
    fn key(&self, number: u32, word: &P::Word) -> u64;
}

/// The nodes of CPUs `0..n`, their hash, and how the locks made with them behave. `S` is what else a kind of lock wants to know.
pub struct PvPool<P: Platform, const LINES: usize, S = ()> {
    nodes: Arc<Pool<P, PvNode<P, LINES>>>,
    hash: LockHash<P>,
    /// Of the locks made from now on.
    pub tunables: PvTunables,
    /// Of the locks made from now on.
    pub settings: S,
    /// Locks made so far: numbers them. Not a shared word of the algorithm: used where locks are made only.
    locks: AtomicU32,
}

impl<P: Platform, const LINES: usize, S> PvPool<P, LINES, S> {
    /// Nodes for CPUs `0..nr_cpus`, with the usual budgets.
    pub fn new(p: &P, nr_cpus: usize, settings: S) -> Self {
        PvPool {
            nodes: Arc::new(Pool::new(p, nr_cpus)),
            hash: LockHash::new(p, nr_cpus),
            tunables: PvTunables::of(nr_cpus),
            settings,
            locks: AtomicU32::new(0),
        }
    }

    /// A number for one more lock, from 1.
    pub(crate) fn number(&self) -> u32 {
        self.locks.fetch_add(1, Relaxed).checked_add(1).expect("2^32 locks in one pool")
    }
}

impl<P: Platform, const LINES: usize, S> Nodes<P, PvNode<P, LINES>> for Arc<PvPool<P, LINES, S>> {
    #[inline]
    fn get(&self, id: NodeId) -> &PvNode<P, LINES> {
        self.nodes.get(id)
    }
    #[inline]
    fn claim(&self, p: &P) -> Option<NodeId> {
        self.nodes.claim(p)
    }
    #[inline]
    fn release(&self, p: &P, id: NodeId) {
        self.nodes.release(p, id);
    }
}

impl<P: Platform, const LINES: usize, S> PvNodes<P, PvNode<P, LINES>> for Arc<PvPool<P, LINES, S>> {
    #[inline]
    fn hash(&self) -> &LockHash<P> {
        &self.hash
    }
    #[inline]
    fn key(&self, number: u32, _word: &P::Word) -> u64 {
        u64::from(number)
    }
}
