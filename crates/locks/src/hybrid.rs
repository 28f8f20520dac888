//! The hybrid paravirtual queued spinlock: Linux 4.5 and later, here as of 6.x.
//!
//! Unfair while the queue sleeps, fair while its head is awake. Who comes to a lock that is free takes it, past a queue whose
//! head halts; a head that spins forbids that by the pending bit, and so gets the lock next. What halts is in
//! [`crate::pv`], what kicks whom as in [`crate::pv_queued`] with the kick left to the unlock.
//!
//! State: `(tail, pending, locked)`, as in [`crate::pv_queued`]; `pending` says that the head spins and wants no thieves.
//!
//! ```text
//! lock      0,0,0 -> 0,0,L                     acquire; nobody there
//!           t,0,0 -> t,0,L                     steal: acquire, past a queue whose head is not spinning
//!           t,0,* ; wait *,0,0 or *,1,* or 0,*,*   who may steal waits for what comes first: the lock, or a reason to queue
//!           t,p,* -> me,p,*                    queued behind t: link, wait (and halt) for the hand-over
//!           t,0,* -> t,1,*                     head: while it spins
//!           t,1,0 -> t,0,L                     head: acquire
//!           t,1,L -> t,0,L -> t,0,LS           head, budget spent, once: node in the hash before the last step; halt
//!           t,0,0 -> t,0,S -> t,0,L            the lock got free before the last step: the head has it
//!           me,0,L -> 0,0,L                    last of the queue; otherwise hand the head over
//!           t,0,L -> t,0,LS                    the new holder, if its successor halts: node in the hash
//! try_lock  0,0,0 -> 0,0,L                     acquire, once
//! unlock    *,*,L -> *,*,0                     release
//!           *,*,LS -> *,*,S -> *,*,0           node out of the hash between; release; kick the head
//! ```
//!
//! # Weak points, kept as they are
//!
//! * A head enters the hash once. If it is kicked and the lock is stolen meanwhile, it spins from then on for as long as it takes,
//!   since no unlock would find it.
//! * A thief's wait has no bound, and no budget: nothing forbids that the head is passed for ever.
//! * A head that loses its CPU with pending set stops everybody, though the lock be free.

use crate::nodes::NodeId;
use crate::pv::{HALTED, HASHED, PvNode, PvNodes, PvPool, PvTunables, RUNNING, SPENT};
use crate::{MakeLock, RawLock};
use alloc::sync::Arc;
use contend_platform::{Line, LockEvent, Note, Ordering, Platform};

/// `L`: held.
const LOCKED: u64 = 1;
/// `S`: the head is in the hash.
const SLOW: u64 = 1 << 1;
const PENDING: u64 = 1 << 8;
const TAIL_SHIFT: u32 = 16;
/// `locked`: 0 is free.
const TAKEN: u64 = LOCKED | SLOW;

/// Its nodes: all on one line.
pub type HybridNode<P> = PvNode<P, 1>;
/// What its locks share.
pub type HybridPool<P> = PvPool<P, 1>;

/// Hybrid paravirtual queued spinlock; `N` is where its nodes are.
pub struct Hybrid<P: Platform, N = Arc<HybridPool<P>>> {
    word: P::Word,
    nodes: N,
    number: u32,
    tunables: PvTunables,
}

impl<P: Platform, N> Hybrid<P, N> {
    /// A lock from its parts: a `word` that is 0; `number` is 0 where `nodes` tells locks apart by their addresses.
    pub const fn from_parts(word: P::Word, nodes: N, number: u32, tunables: PvTunables) -> Self {
        Hybrid { word, nodes, number, tunables }
    }
}

impl<P: Platform, N: PvNodes<P, HybridNode<P>>> Hybrid<P, N> {
    fn key(&self) -> u64 {
        self.nodes.key(self.number, &self.word)
    }

    /// Take the lock without queueing, or find that this is not the time for it.
    fn steal(&self, p: &P) -> bool {
        loop {
            let go_on = |word: u64| word >> TAIL_SHIFT == 0 || word & PENDING != 0;
            let found = p.wait_until([&self.word], None, |[word]| word & (TAKEN | PENDING) == 0 || go_on(word));
            let [word] = found.expect("waits without budget");
            if word & (TAKEN | PENDING) != 0 {
                return false;
            }
            if p.compare_exchange(&self.word, word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                p.lock_event(LockEvent::PvLockStealing, 1);
                return true;
            }
        }
    }

    fn queue(&self, p: &P) {
        p.lock_event(LockEvent::LockSlowpath, 1);
        let Some(id) = self.nodes.claim(p) else {
            // Nested too deep: outside the queue, as one who tries.
            while !self.try_lock(p) {
                p.wait_until([&self.word], None, |[word]| word == 0);
            }
            return;
        };
        let node = self.nodes.get(id);
        node.clear(p);
        if self.steal(p) {
            self.nodes.release(p, id);
            return;
        }
        let mut word = p.load(&self.word, Ordering::Relaxed);
        let before = loop {
            let new = word & (TAKEN | PENDING) | id.link() << TAIL_SHIFT;
            // Release publishes my node's initial state, acquire sees the predecessor's.
            match p.compare_exchange(&self.word, word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break word >> TAIL_SHIFT,
                Err(found) => word = found,
            }
        };
        p.note(Note::Queued);
        if let Some(prev) = NodeId::from_link(before) {
            let prev = self.nodes.get(prev);
            p.store(&prev.link.next, id.link(), Ordering::Release);
            node.wait_turn(p, prev, self.tunables.spin_ns, true);
        }
        let word = self.wait_head(p, id);
        let last = word >> TAIL_SHIFT == id.link();
        if last && p.compare_exchange(&self.word, word, LOCKED, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.nodes.release(p, id);
            return;
        }
        let next = node.link.successor(p);
        self.nodes.release(p, id);
        self.new_head(p, next);
    }

    /// Take the lock as the head of the queue: the word with the lock taken.
    fn wait_head(&self, p: &P, id: NodeId) -> u64 {
        let node = self.nodes.get(id);
        // Relaxed: others change it only if they find me halted in `wait_turn`, which is over. It says if this node was hashed
        // by the one before, even if the kick has come already: the lock's word may still show that entry then.
        let mut enters_hash = p.load(&node.state, Ordering::Relaxed) == RUNNING;
        let mut woken = false;
        loop {
            p.fetch_or(&self.word, PENDING, Ordering::Relaxed);
            if p.wait_until([&self.word], Some(self.tunables.spin_ns), |[word]| word & TAKEN == 0).is_some() {
                // Nobody takes it from a pending head. Relaxed: acquired by the wait.
                let taken = LOCKED.wrapping_sub(PENDING);
                return p.fetch_add(&self.word, taken, Ordering::Relaxed).wrapping_add(taken);
            }
            p.fetch_and(&self.word, !PENDING, Ordering::Relaxed);
            if enters_hash && self.nodes.hash().insert(p, self.key(), id) {
                enters_hash = false;
                p.swap(&node.state, HALTED | HASHED, Ordering::Relaxed);
                // Release: the entry and the state, to the unlock. Acquire: the lock may be free.
                let before = p.fetch_or(&self.word, SLOW, Ordering::AcqRel);
                assert_eq!(before & SLOW, 0, "one entry a lock");
                if before & TAKEN == 0 {
                    // Free, and mine: it looks taken to all others.
                    let taken = LOCKED.wrapping_sub(SLOW);
                    let word = p.fetch_add(&self.word, taken, Ordering::Relaxed).wrapping_add(taken);
                    self.nodes.hash().remove(p, self.key());
                    p.swap(&node.state, RUNNING, Ordering::Relaxed);
                    return word;
                }
            } else if p
                .compare_exchange(&node.state, HASHED, HALTED | HASHED, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
            {
                // No unlock knows of this node (any more).
                continue;
            }
            p.lock_event(LockEvent::PvWaitHead, 1);
            if woken {
                p.lock_event(LockEvent::PvWaitAgain, 1);
            }
            node.halt(p);
            woken = true;
            p.fetch_and(&node.state, !HALTED, Ordering::Relaxed);
        }
    }

    /// The caller has just taken the lock: its successor `next` is the head now.
    fn new_head(&self, p: &P, next: NodeId) {
        let node = self.nodes.get(next);
        if node.hand_over(p, HALTED | HASHED) {
            if self.nodes.hash().insert(p, self.key(), next) {
                // Relaxed: for my own unlock.
                p.fetch_or(&self.word, SLOW, Ordering::Relaxed);
            } else {
                p.swap(&node.state, RUNNING, Ordering::Relaxed);
                node.kick(p, next.cpu(), LockEvent::PvKickLock);
            }
        }
    }

    #[cold]
    fn unlock_slow(&self, p: &P) {
        // With the release that set `S`: the entry and the state.
        p.fence(Ordering::Acquire);
        let head = self.nodes.hash().remove(p, self.key());
        let node = self.nodes.get(head);
        // If it is awake for no reason it needs no kick.
        let halted = p.swap(&node.state, SPENT, Ordering::Relaxed) & HALTED != 0;
        p.fetch_and(&self.word, !SLOW, Ordering::Release);
        if halted {
            node.kick(p, head.cpu(), LockEvent::PvKickUnlock);
        }
    }
}

impl<P: Platform, N: PvNodes<P, HybridNode<P>>> RawLock<P> for Hybrid<P, N> {
    #[inline]
    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
        if p.compare_exchange(&self.word, 0, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return false;
        }
        waits();
        self.queue(p);
        true
    }

    #[inline]
    fn try_lock(&self, p: &P) -> bool {
        // Relaxed: only a guess, which the exchange confirms.
        p.load(&self.word, Ordering::Relaxed) == 0
            && p.compare_exchange(&self.word, 0, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn is_locked(&self, p: &P) -> bool {
        p.load(&self.word, Ordering::Relaxed) & LOCKED != 0
    }

    #[inline]
    fn unlock(&self, p: &P) {
        let before = p.fetch_and(&self.word, !LOCKED, Ordering::Release);
        if before & SLOW != 0 {
            self.unlock_slow(p);
        }
    }
}

impl<P: Platform> MakeLock<P> for Hybrid<P> {
    type Pool = HybridPool<P>;

    fn pool(p: &P, nr_cpus: usize) -> Self::Pool {
        PvPool::new(p, nr_cpus, ())
    }

    fn on_line(p: &P, line: Line, pool: &Arc<Self::Pool>) -> Self {
        Hybrid::from_parts(p.word(line, 0), Arc::clone(pool), pool.number(), pool.tunables)
    }
}

// `GuardSend`: as for `pv_queued`.
mutex!(Hybrid<Threads, Global> = Hybrid::of(PvTunables::DEFAULT), GuardSend, unfair);
