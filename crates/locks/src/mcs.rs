//! The MCS queue lock (Mellor-Crummey and Scott, 1991): each waiter polls a line of its own.
//!
//! State of a lock: `tail`, `0` free, otherwise 1 + the number of the last node of the queue. State of a node:
//! `(locked, next)`; the head of the queue holds the lock, and its `locked` means nothing. `next` is `0`, or 1 + the
//! number of the successor's node. With `A` the caller's node and `B` another's:
//!
//! ```text
//! lock      A = (0, 0);  tail: 0 -> A                      acquire; A holds
//!           A = (0, 0);  tail: B -> A                      queued behind B
//!                        B: (*, 0) -> (*, A)               linked: B can find its successor
//!                        wait for A: (1, *)                acquire; A holds
//! try_lock  A = (0, 0);  tail: 0 -> A                      acquire, once
//! unlock    A = (*, 0), tail = A:  tail: A -> 0            release; free
//!           A = (*, 0), tail = B:  wait for A: (*, next)   a successor has swapped the tail and not linked yet
//!           A = (*, B):  B: (0, *) -> (1, *)               release; B holds
//! ```
//!
//! **Nodes are shared by all locks of a world** ([`McsPool`]): a CPU waits for one lock at a time and holds few, so
//! four nodes a CPU serve any number of locks (1,024 run-queue locks of 1,024 CPUs would otherwise need a million). The
//! number is that of the kernel's queued spinlock. Unlike there, a node is busy until its lock is released, so it also
//! bounds how many locks a CPU may *hold* ([`NODES_PER_CPU`], asserted). Locks may be released in any order: which node
//! serves which lock is kept in a table on a line that only its CPU touches.

use crate::nodes::{Link, NODES_PER_CPU, NodeId, QueueNode};
use crate::{MakeLock, RawLock};
use alloc::sync::Arc;
use alloc::vec::Vec;
use contend_platform::{CpuId, Line, Note, Ordering, Padded, Platform};
use core::sync::atomic::AtomicU32;

/// Which lock a CPU's nodes serve: the lock's number, 0 for a node that is free.
type Serving = [u32; NODES_PER_CPU];

/// The queue nodes of all CPUs.
pub struct McsPool<P: Platform> {
    nodes: Vec<Padded<Link<P>>>,
    /// Which line each lies on: to a checker, its name.
    lines: Vec<Line>,
    /// Private to each CPU.
    serving: Vec<Padded<P::Cell<Serving>>>,
    /// Locks made so far: numbers them. Not a shared word of the algorithm: used where locks are made only.
    locks: AtomicU32,
}

impl<P: Platform> McsPool<P> {
    /// Nodes for CPUs `0..nr_cpus`.
    pub fn new(p: &P, nr_cpus: usize) -> Self {
        const { assert!(P::NUMBERED, "queue nodes belong to CPUs, which have no numbers in this world") };
        assert!(nr_cpus <= CpuId::MAX_CPUS, "{nr_cpus} CPUs: at most {} exist", CpuId::MAX_CPUS);
        let lines: Vec<Line> = (0..nr_cpus * NODES_PER_CPU).map(|_| p.line()).collect();
        McsPool {
            nodes: lines.iter().map(|&line| Padded(Link::new(p, line))).collect(),
            lines,
            serving: (0..nr_cpus).map(|_| Padded(p.cell(p.line(), [0; NODES_PER_CPU]))).collect(),
            locks: AtomicU32::new(0),
        }
    }

    /// A number for one more lock, from 1.
    pub(crate) fn number(&self) -> u32 {
        let before = self.locks.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        before.checked_add(1).expect("2^32 locks in one pool")
    }

    #[inline]
    pub(crate) fn get(&self, id: NodeId) -> &Link<P> {
        &self.nodes[id.index()]
    }

    /// A node of this CPU for `lock`, prepared for the end of a queue.
    #[inline]
    pub(crate) fn claim(&self, p: &P, lock: u32) -> NodeId {
        let cpu = p.cpu();
        // SAFETY: only the CPU itself touches its table, with interrupts off, since CPUs have numbers of their own here (checked by
        // `McsPool::new`); the closure is plain code.
        let slot = unsafe {
            p.write(&self.serving[cpu.index()], |serving: &mut Serving| {
                assert!(!serving.contains(&lock), "{cpu:?} takes an MCS lock that it holds");
                let free = serving.iter().position(|&l| l == 0);
                let slot = free.unwrap_or_else(|| panic!("{cpu:?} holds {NODES_PER_CPU} MCS locks and wants another"));
                serving[slot] = lock;
                slot
            })
        };
        let id = NodeId::of(cpu, slot);
        p.note(Note::Claimed(self.lines[id.index()]));
        self.get(id).clear(p);
        id
    }

    /// The node of this CPU that serves `lock`.
    #[inline]
    fn serving(&self, p: &P, lock: u32) -> NodeId {
        let cpu = p.cpu();
        // SAFETY: as in `claim`. (A write, so that `release` need not fetch the line.)
        let slot = unsafe {
            p.write(&self.serving[cpu.index()], |serving: &mut Serving| serving.iter().position(|&l| l == lock))
        };
        NodeId::of(cpu, slot.unwrap_or_else(|| panic!("{cpu:?} releases an MCS lock that it does not hold")))
    }

    /// That node is free again: nobody will touch it.
    #[inline]
    pub(crate) fn release(&self, p: &P, id: NodeId) {
        p.note(Note::Released(self.lines[id.index()]));
        // SAFETY: as in `claim`; the line has been fetched by `claim` or `serving`.
        unsafe {
            p.rewrite(&self.serving[id.cpu().index()], |serving: &mut Serving| {
                serving[id.index() % NODES_PER_CPU] = 0;
            });
        }
    }
}

/// MCS lock.
pub struct Mcs<P: Platform> {
    tail: P::Word,
    pool: Arc<McsPool<P>>,
    /// The lock's number in `pool`, from 1.
    number: u32,
}

impl<P: Platform> Mcs<P> {
    /// A free lock on a line of its own, with the nodes of `pool`.
    pub fn new(p: &P, pool: Arc<McsPool<P>>) -> Self {
        Mcs::on_line(p, p.line(), &pool)
    }
}

impl<P: Platform> RawLock<P> for Mcs<P> {
    const BYPASS_MAX: Option<u32> = Some(0);

    #[inline]
    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
        let id = self.pool.claim(p, self.number);
        // Release publishes my node's initial state, acquire sees that of the predecessor, or the last unlock.
        let before = p.swap(&self.tail, id.link(), Ordering::AcqRel);
        let contended = before != 0;
        if let Some(prev) = NodeId::from_link(before) {
            p.note(Note::Queued);
            waits();
            let prev = self.pool.get(prev);
            // Release: the holder stores to my `locked` once it sees the link, and must not be overtaken by its 0.
            p.store(&prev.next, id.link(), Ordering::Release);
            // Acquires the hand-over.
            p.wait_until([&self.pool.get(id).locked], None, |[locked]| locked == 1);
        }
        contended
    }

    #[inline]
    fn try_lock(&self, p: &P) -> bool {
        // Relaxed: only a guess, which the exchange confirms.
        if p.load(&self.tail, Ordering::Relaxed) != 0 {
            return false;
        }
        let id = self.pool.claim(p, self.number);
        let free = p.compare_exchange(&self.tail, 0, id.link(), Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !free {
            self.pool.release(p, id);
        }
        free
    }

    #[inline]
    fn is_locked(&self, p: &P) -> bool {
        // Somebody holds while there is a queue.
        p.load(&self.tail, Ordering::Relaxed) != 0
    }

    #[inline]
    fn unlock(&self, p: &P) {
        let id = self.pool.serving(p, self.number);
        let node = self.pool.get(id);
        // Acquire, with the successor's release: my store to its `locked` comes after its own.
        let next = match NodeId::from_link(p.load(&node.next, Ordering::Acquire)) {
            Some(next) => Some(next),
            None if p.compare_exchange(&self.tail, id.link(), 0, Ordering::Release, Ordering::Relaxed).is_ok() => None,
            None => Some(node.successor(p)),
        };
        self.pool.release(p, id);
        if let Some(next) = next {
            p.store(&self.pool.get(next).locked, 1, Ordering::Release);
        }
    }
}

impl<P: Platform> MakeLock<P> for Mcs<P> {
    type Pool = McsPool<P>;

    fn pool(p: &P, nr_cpus: usize) -> McsPool<P> {
        McsPool::new(p, nr_cpus)
    }

    fn on_line(p: &P, line: Line, pool: &Arc<McsPool<P>>) -> Self {
        Mcs { tail: p.word(line, 0), pool: Arc::clone(pool), number: pool.number() }
    }
}
