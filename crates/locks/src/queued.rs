//! The queued spinlock with a pending bit (Linux 4.2 to today), in whole words.
//!
//! State: `(tail, pending, locked)`; `tail` is 0 or 1 + the number of the last waiting node. A free lock is taken by one
//! exchange and no node; the first waiter waits on the word itself (pending), later ones queue on lines of their own and
//! the head of the queue waits on the word.
//!
//! ```text
//! lock      0,0,0 -> 0,0,1                     acquire; nobody there
//!           0,0,1 -> 0,1,1 ; wait *,1,0        acquire; I am pending
//!           *,1,0 -> *,0,1                     the pending waiter takes it
//!           t,p,l -> me,p,l                    queued behind t: link, wait for the hand-over
//!           me,0,0 -> 0,0,1                    head of the queue, last of it
//!           t,0,0 -> t,0,1                     head, others behind: hand the head over
//! try_lock  0,0,0 -> 0,0,1                     acquire, once
//! unlock    *,*,1 -> *,*,0                     release
//! ```
//!
//! Where the kernel stores single bytes and halves, this uses read-modify-writes of the whole word: accesses of mixed size
//! fit neither Rust's memory model nor loom. A waiter's node is free again once it holds the lock.

use crate::nodes::{Link, NodeId, Nodes, Pool};
use crate::{MakeLock, RawLock};
use alloc::sync::Arc;
use contend_platform::{Line, LockEvent, Note, Ordering, Platform};

const LOCKED: u64 = 1;
const PENDING: u64 = 1 << 8;
const TAIL_SHIFT: u32 = 16;
/// `locked` and `pending`.
const HELD: u64 = LOCKED | PENDING;

/// Queued spinlock; `N` is where its nodes are.
pub struct Queued<P: Platform, N = Arc<Pool<P, Link<P>>>> {
    state: P::Word,
    nodes: N,
}

impl<P: Platform, N: Nodes<P, Link<P>>> Queued<P, N> {
    fn contended(&self, p: &P, found: u64) {
        if found & !LOCKED == 0 {
            let old = p.fetch_or(&self.state, PENDING, Ordering::Acquire);
            if old & !LOCKED == 0 {
                p.note(Note::Queued);
                if old & LOCKED != 0 {
                    p.wait_until([&self.state], None, |[state]| state & LOCKED == 0);
                }
                // Take it: pending off, locked on, whatever the tail is by now. Relaxed: acquired above.
                p.fetch_add(&self.state, LOCKED.wrapping_sub(PENDING), Ordering::Relaxed);
                p.lock_event(LockEvent::LockPending, 1);
                return;
            }
            if old & PENDING == 0 {
                // Somebody queued in between: it is not ours to be pending.
                p.fetch_and(&self.state, !PENDING, Ordering::Relaxed);
            }
        }
        self.queue(p);
    }

    fn queue(&self, p: &P) {
        p.lock_event(LockEvent::LockSlowpath, 1);
        let Some(id) = self.nodes.claim(p) else {
            // Nested too deep: outside the queue, as one who tries.
            while !self.try_lock(p) {
                p.wait_until([&self.state], None, |[state]| state == 0);
            }
            return;
        };
        let node = self.nodes.get(id);
        node.clear(p);
        let mut state = p.load(&self.state, Ordering::Relaxed);
        let before = loop {
            let new = state & HELD | id.link() << TAIL_SHIFT;
            // Release publishes my node's initial state, acquire sees the predecessor's.
            match p.compare_exchange(&self.state, state, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break state >> TAIL_SHIFT,
                Err(found) => state = found,
            }
        };
        p.note(Note::Queued);
        if let Some(prev) = NodeId::from_link(before) {
            p.store(&self.nodes.get(prev).next, id.link(), Ordering::Release);
            p.wait_until([&node.locked], None, |[locked]| locked == 1);
        }
        // Head of the queue: only the holder and a pending waiter are before me. Acquires the last release.
        let [state] = p.wait_until([&self.state], None, |[state]| state & HELD == 0).expect("waits without budget");
        let last = state >> TAIL_SHIFT == id.link();
        if last && p.compare_exchange(&self.state, state, LOCKED, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.nodes.release(p, id);
            return;
        }
        // Somebody queued behind me, or set pending for a moment and will: once only, since erasing that pending bit and
        // letting its owner take it back later would take another's.
        p.fetch_or(&self.state, LOCKED, Ordering::Relaxed);
        let next = node.successor(p);
        self.nodes.release(p, id);
        p.store(&self.nodes.get(next).locked, 1, Ordering::Release);
    }
}

impl<P: Platform, N: Nodes<P, Link<P>>> RawLock<P> for Queued<P, N> {
    const BYPASS_MAX: Option<u32> = Some(0);

    #[inline]
    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
        match p.compare_exchange(&self.state, 0, LOCKED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => false,
            Err(found) => {
                waits();
                self.contended(p, found);
                true
            }
        }
    }

    #[inline]
    fn try_lock(&self, p: &P) -> bool {
        // Relaxed: only a guess, which the exchange confirms.
        p.load(&self.state, Ordering::Relaxed) == 0
            && p.compare_exchange(&self.state, 0, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn is_locked(&self, p: &P) -> bool {
        p.load(&self.state, Ordering::Relaxed) & LOCKED != 0
    }

    #[inline]
    fn unlock(&self, p: &P) {
        p.fetch_and(&self.state, !LOCKED, Ordering::Release);
    }
}

impl<P: Platform> MakeLock<P> for Queued<P> {
    type Pool = Pool<P, Link<P>>;

    fn pool(p: &P, nr_cpus: usize) -> Self::Pool {
        Pool::new(p, nr_cpus)
    }

    fn on_line(p: &P, line: Line, pool: &Arc<Self::Pool>) -> Self {
        Queued { state: p.word(line, 0), nodes: Arc::clone(pool) }
    }
}

// `GuardSend`: a node is released by the waiter itself before it holds, and the state names waiters only. `fair`: while
// somebody waits, the word is not 0, and newcomers queue.
mutex!(Queued<Threads, Global> = Queued { state: word(0), nodes: Global(()) }, GuardSend, fair);
