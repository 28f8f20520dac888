//! The project's own lock: an unfair lock in front of a queue, with a bound on the unfairness.
//!
//! What it takes from others: stealing while the queue's head is not there yet, and waiters that halt (the hybrid pv
//! queued lock); a halted head that may halt again any number of times, where that lock's can only once; kicks after the release
//! only, by the unlocker (the 2015 series); a bound on stealing that the head can bring forward (powerpc's
//! must-queue bit); a spinning time that is cut short behind a waiter which does not run (wait-early). New is what follows
//! a contended critical section: [`Platform::yield_point`]. A thread that gives its CPU up where it holds nothing does not
//! lose it where it holds the lock.
//!
//! # Phases
//!
//! 1. *Fast path*: one exchange.
//! 2. *Thief*: spin on the word for a few µs and take the lock when it is free, queue or no queue, as long as fewer than
//!    [`Tuning::BYPASS_MAX`] thieves have gone ahead of the queue's head. Then give the CPU up and try again
//!    ([`Tuning::YIELDS`] times). Whoever loses four races sees that thieves are many, and queues.
//! 3. *Queue*: wait on a line of one's own to become the head; halt when the budget is used up, at once if the predecessor
//!    does not run.
//! 4. *Head*: spin on the word. When the budget is used up although the head is awake, nobody may steal any more; when
//!    another is, the holder does not run: allow stealing again, and halt.
//!
//! # State
//!
//! The word is `(tail, bypasses, head, halted, contended, locked)`, and a flag `forbid`. `head` is the number of the head's node
//! while `halted` says that it is halted; `bypasses` counts acquisitions past the present head. `contended`: the holder had
//! to wait, and passes a yield point when it lets go (not always: [`Platform::yield_due`]). With `t` any tail, `b` any count, `h` either nothing or `(head, 1)`; `forbid` stays as it is where it is not named:
//!
//! ```text
//! fast      0,0,0,0,0,0 -> 0,0,0,0,0,1            acquire
//! steal     0,0,0,0,0,0 -> 0,0,0,0,1,1            acquire; no queue, and not forbid
//!           t,b,h,0,0   -> t,b+1,h,1,1            acquire; b < BYPASS_MAX, and not forbid
//! queue     t,b,h,c,l   -> me,b,h,c,l             release; then link behind t, or be the head
//! head      me,b,h,0,0  -> 0,0,0,0,1,1            acquire; last of the queue
//!           t,b,h,0,0   -> t,0,0,0,1,1            acquire; then promote the successor; forbid off, here and above
//! forbid    forbid on                             by the head, or by one who loses races for a place in the queue
//! halt      t,b,-,c,1   -> t,b,(me,1),c,1         by the head; forbid off
//!           t,b,-,c,1   -> t,b,(next,1),c,1       by the holder for a head that was halted before it
//! unlock    0,0,0,0,0,1 -> 0,0,0,0,0,0            release
//!           t,b,h,c,1   -> t,b,0,0,0,0            release; then kick the head of h; yield point if c
//! ```
//!
//! The state of a node: `WAITING`, `HALTED` (asleep behind others), `HEAD`, `HEAD_HALTED`.
//!
//! ```text
//! waiter    WAITING -> HALTED                     halt while HALTED
//! promote   WAITING -> HEAD                       release
//!           HALTED -> HEAD_HALTED                 then say so in the word: the unlock kicks it
//! head      HEAD -> HEAD_HALTED                   then say so in the word; halt while HEAD_HALTED
//! unlock    HEAD_HALTED -> HEAD                   then kick
//! ```
//!
//! A kick may come late, when its target is gone and its node serves another wait: then it is a wake-up for nothing, which
//! every halt allows for. Nodes are never freed.
//!
//! # Bounds
//!
//! While a CPU is the head, at most `BYPASS_MAX` others take the lock before it. The one that is k-th in the queue is
//! bypassed by later ones at most `k BYPASS_MAX` times. How long a thief tries before it queues is bounded by budgets, not by
//! acquisitions.

use crate::nodes::{NodeId, Nodes, Pool, QueueNode};
use crate::{MakeLock, RawLock};
use alloc::sync::Arc;
use contend_platform::{Line, LockEvent, Nanos, Note, Ordering, Platform};
use core::marker::PhantomData;

const LOCKED: u64 = 1;
/// The holder, which had to wait, passes a yield point when it lets go.
const PASSES: u64 = 1 << 1;
/// The head of the queue, whose number is in the word, is halted.
const HALTED: u64 = 1 << 2;
/// Nobody steals. Set by the head of the queue, or by one who is about to join it; so there will be a head that takes it back.
const FORBID: u64 = 1 << 3;
const HEAD_SHIFT: u32 = 8;
const HEAD_MASK: u64 = 0xff_ffff << HEAD_SHIFT;
const BYPASS_SHIFT: u32 = 32;
const BYPASS_ONE: u64 = 1 << BYPASS_SHIFT;
const BYPASS_MASK: u64 = 0x3fff << BYPASS_SHIFT;
const TAIL_SHIFT: u32 = 46;
const TAIL_MASK: u64 = !0 << TAIL_SHIFT;

/// States of a node.
mod state {
    /// Behind others, awake.
    pub const WAITING: u64 = 0;
    /// Behind others, asleep or about to be.
    pub const HALTED: u64 = 1;
    /// First of the queue, awake or being woken.
    pub const HEAD: u64 = 2;
    /// First of the queue, asleep or about to be.
    pub const HEAD_HALTED: u64 = 3;
}

/// Races for a free lock that a thief loses before it queues.
const LOST_MAX: u32 = 4;

/// How long to try what. The defaults were chosen by `contend bench locks` (docs/locks-native.md).
pub trait Tuning: 'static {
    /// A thief's first spin, in ns: many critical sections, far less than a time slice.
    const SPIN_NS: Nanos;
    /// Its spins after giving the CPU up, in ns.
    const RESPIN_NS: Nanos;
    /// Times a thief gives its CPU up before it queues.
    const YIELDS: u32;
    /// A waiter's spin in the queue, in ns; of the head: until it forbids stealing, and from then until it halts.
    const QUEUE_SPIN_NS: Nanos;
    /// Acquisitions past one head, at most. 1 to 16,383.
    const BYPASS_MAX: u32;
}

/// The tuning of the native lock.
#[derive(Debug)]
pub enum Standard {}

impl Tuning for Standard {
    const SPIN_NS: Nanos = 5_000;
    const RESPIN_NS: Nanos = 1_000;
    const YIELDS: u32 = 4;
    const QUEUE_SPIN_NS: Nanos = 5_000;
    const BYPASS_MAX: u32 = 16_383;
}

/// A place in the queue.
pub struct Node<P: Platform> {
    /// One of [`state`].
    state: P::Word,
    /// [`NodeId::link`] of the successor; 0: none, or not linked yet.
    next: P::Word,
}

impl<P: Platform> QueueNode<P> for Node<P> {
    fn new(p: &P, line: Line) -> Self {
        Node { state: p.word(line, state::WAITING), next: p.word(line, 0) }
    }
}

/// The adaptive lock. `N` is where its nodes are, `T` how long it tries what.
pub struct Adaptive<P: Platform, N = Arc<Pool<P, Node<P>>>, T = Standard> {
    word: P::Word,
    nodes: N,
    tuning: PhantomData<fn() -> T>,
}

#[inline]
fn tail(word: u64) -> Option<NodeId> {
    NodeId::from_link(word >> TAIL_SHIFT)
}

/// The head that an unlock has to kick.
#[inline]
fn halted_head(word: u64) -> Option<NodeId> {
    NodeId::from_link((word & HEAD_MASK) >> HEAD_SHIFT).filter(|_| word & HALTED != 0)
}

/// `word`, saying that `id` is the head and halted.
#[inline]
fn with_halted(word: u64, id: NodeId) -> u64 {
    word & !HEAD_MASK | HALTED | id.link() << HEAD_SHIFT
}

impl<P: Platform, N: Nodes<P, Node<P>>, T: Tuning> Adaptive<P, N, T> {
    /// May one who is not the head take the lock?
    #[inline]
    fn open(word: u64) -> bool {
        let bypasses = (word & BYPASS_MASK) >> BYPASS_SHIFT;
        word & (LOCKED | FORBID) == 0 && (word & TAIL_MASK == 0 || bypasses < u64::from(T::BYPASS_MAX))
    }
    /// The word after it did.
    #[inline]
    fn stolen(word: u64) -> u64 {
        LOCKED | if word & TAIL_MASK == 0 { 0 } else { word + BYPASS_ONE }
    }

    #[cold]
    fn contended(&self, p: &P) {
        p.lock_event(LockEvent::LockSlowpath, 1);
        if !self.steal(p) {
            self.queue(p);
        }
    }

    /// Phase 2; true: the lock is ours.
    fn steal(&self, p: &P) -> bool {
        let (mut budget, mut lost) = (T::SPIN_NS, 0);
        let yields = if p.yield_due() { PASSES } else { 0 };
        for round in 0..=T::YIELDS {
            while let Some([word]) = p.wait_until([&self.word], Some(budget), |[word]| Self::open(word)) {
                let stolen = Self::stolen(word) | yields;
                if p.compare_exchange(&self.word, word, stolen, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    if word & TAIL_MASK != 0 {
                        p.lock_event(LockEvent::PvLockStealing, 1);
                    }
                    return true;
                }
                lost += 1;
                if lost == LOST_MAX {
                    return false;
                }
            }
            if round < T::YIELDS {
                p.relinquish();
                budget = T::RESPIN_NS;
            }
        }
        false
    }

    /// Phases 3 and 4.
    fn queue(&self, p: &P) {
        let Some(id) = self.nodes.claim(p) else {
            // Nested too deep: outside the queue, as one who tries.
            while !self.try_lock(p) {
                p.wait_until([&self.word], None, |[word]| Self::open(word));
            }
            return;
        };
        let node = self.nodes.get(id);
        // Relaxed: nobody else knows the node as one of this queue; it is published by the exchange of the tail. A late
        // kick may still write to the state, but only over HEAD_HALTED.
        p.store(&node.state, state::WAITING, Ordering::Relaxed);
        p.store(&node.next, 0, Ordering::Relaxed);
        let before = self.join(p, id);
        p.note(Note::Queued);
        if let Some(prev) = tail(before) {
            p.store(&self.nodes.get(prev).next, id.link(), Ordering::Release);
            self.wait_to_be_head(p, node, prev);
        }
        self.lock_as_head(p, node, id);
        // A kick that is still on its way must not find a halted head in a node that is free again.
        if p.load(&node.state, Ordering::Relaxed) == state::HEAD_HALTED {
            p.swap(&node.state, state::HEAD, Ordering::Relaxed);
        }
        self.nodes.release(p, id);
    }

    /// Become the tail; returns the word before.
    fn join(&self, p: &P, id: NodeId) -> u64 {
        let (mut word, mut lost) = (self.look(p), 0);
        loop {
            let new = word & !TAIL_MASK | id.link() << TAIL_SHIFT;
            // Release publishes the node, acquire sees the predecessor's.
            match p.compare_exchange(&self.word, word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return word,
                Err(found) => word = found,
            }
            lost += 1;
            if lost == LOST_MAX {
                // Far from those who take the lock one could lose for ever: stop them. Relaxed: no more than that.
                word = p.fetch_or(&self.word, FORBID, Ordering::Relaxed) | FORBID;
            }
        }
    }

    fn wait_to_be_head(&self, p: &P, node: &Node<P>, prev: NodeId) {
        let is_head = |[state]: [u64; 1]| matches!(state, state::HEAD | state::HEAD_HALTED);
        let mut halted = false;
        loop {
            let early =
                p.preempted(prev.cpu()) || p.load(&self.nodes.get(prev).state, Ordering::Relaxed) == state::HALTED;
            if early {
                p.lock_event(LockEvent::PvWaitEarly, 1);
            }
            let budget = if early { 0 } else { T::QUEUE_SPIN_NS };
            if p.wait_until([&node.state], Some(budget), is_head).is_some() {
                return;
            }
            let asleep =
                p.compare_exchange(&node.state, state::WAITING, state::HALTED, Ordering::Relaxed, Ordering::Acquire);
            if matches!(asleep, Ok(_) | Err(state::HALTED)) {
                p.lock_event(if halted { LockEvent::PvWaitAgain } else { LockEvent::PvWaitNode }, 1);
                halted = true;
                p.halt(&node.state, state::HALTED);
            }
        }
    }

    fn lock_as_head(&self, p: &P, node: &Node<P>, id: NodeId) {
        let mut forbids = false;
        loop {
            let free = p.wait_until([&self.word], Some(T::QUEUE_SPIN_NS), |[word]| word & LOCKED == 0);
            if let Some([word]) = free {
                let last = tail(word) == Some(id);
                let taken = LOCKED | PASSES | if last { 0 } else { word & TAIL_MASK };
                if p.compare_exchange(&self.word, word, taken, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    if !last {
                        self.promote(p, node);
                    }
                    return;
                }
                continue;
            }
            if !forbids {
                // Awake, and the lock goes to others: no more of that. Relaxed: no more than that.
                p.fetch_or(&self.word, FORBID, Ordering::Relaxed);
            } else {
                // The holder does not let go. Others may steal again while this CPU sleeps.
                self.halt_as_head(p, node, id);
            }
            forbids = !forbids;
        }
    }

    /// Halt until an unlock kicks, unless the lock is free.
    fn halt_as_head(&self, p: &P, node: &Node<P>, id: NodeId) {
        // Relaxed: published by the exchange of the word.
        p.store(&node.state, state::HEAD_HALTED, Ordering::Relaxed);
        let before = self.change(p, Ordering::Release, |word| {
            let word = word & !FORBID;
            if word & LOCKED == 0 { word } else { with_halted(word, id) }
        });
        if before & LOCKED != 0 {
            p.lock_event(LockEvent::PvWaitHead, 1);
            p.halt(&node.state, state::HEAD_HALTED);
        }
    }

    /// The holder, head until now, makes its successor the head.
    fn promote(&self, p: &P, node: &Node<P>) {
        // The successor has swapped the tail and has linked itself, or is about to.
        let [next] = p.wait_until([&node.next], None, |[next]| next != 0).expect("waits without budget");
        let next = NodeId::from_link(next).expect("waited for one");
        let successor = &self.nodes.get(next).state;
        // Release: whoever becomes head sees what the heads before it did.
        let awake = p.compare_exchange(successor, state::WAITING, state::HEAD, Ordering::Release, Ordering::Relaxed);
        if awake.is_err() {
            p.store(successor, state::HEAD_HALTED, Ordering::Release);
            self.change(p, Ordering::Release, |word| with_halted(word, next));
        }
    }

    /// A guess at the word. Relaxed: an exchange confirms it.
    #[inline]
    fn look(&self, p: &P) -> u64 {
        p.load(&self.word, Ordering::Relaxed)
    }
    /// Replace the word by `new` of it; returns the word before.
    #[inline]
    #[track_caller]
    fn change(&self, p: &P, order: Ordering, new: impl Fn(u64) -> u64) -> u64 {
        self.change_from(p, self.look(p), order, new)
    }
    /// The same; `word` is what it was a moment ago.
    #[inline]
    #[track_caller]
    fn change_from(&self, p: &P, mut word: u64, order: Ordering, new: impl Fn(u64) -> u64) -> u64 {
        loop {
            match p.compare_exchange(&self.word, word, new(word), order, Ordering::Relaxed) {
                Ok(_) => return word,
                Err(found) => word = found,
            }
        }
    }

    #[cold]
    fn unlock_contended(&self, p: &P, word: u64, keep: impl Fn(u64) -> u64) {
        // Acquire: the state of the head that the word names.
        let before =
            self.change_from(p, word, Ordering::AcqRel, |word| keep(word & !(LOCKED | PASSES | HALTED | HEAD_MASK)));
        if let Some(head) = halted_head(before) {
            let state = &self.nodes.get(head).state;
            // Fails if the head has woken for no reason: then it needs no kick.
            if p.compare_exchange(state, state::HEAD_HALTED, state::HEAD, Ordering::Release, Ordering::Relaxed).is_ok()
            {
                p.lock_event(LockEvent::PvKickUnlock, 1);
                p.kick(state, head.cpu());
            }
        }
        if before & PASSES != 0 {
            p.yield_point();
        }
    }

    /// Release the lock; if there is a queue, its head is next, whoever else asks.
    pub fn unlock_fair(&self, p: &P) {
        self.unlock_contended(p, self.look(p), |word| if word & TAIL_MASK == 0 { word } else { word | FORBID });
    }
}

impl<P: Platform, N: Nodes<P, Node<P>>, T: Tuning> RawLock<P> for Adaptive<P, N, T> {
    const BYPASS_MAX: Option<u32> = Some(T::BYPASS_MAX);

    #[inline]
    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
        let free = p.compare_exchange(&self.word, 0, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !free {
            waits();
            self.contended(p);
        }
        !free
    }

    #[inline]
    fn try_lock(&self, p: &P) -> bool {
        let word = self.look(p);
        Self::open(word)
            && p.compare_exchange(&self.word, word, Self::stolen(word), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn unlock(&self, p: &P) {
        if let Err(word) = p.compare_exchange(&self.word, LOCKED, 0, Ordering::Release, Ordering::Relaxed) {
            self.unlock_contended(p, word, |word| word);
        }
    }
}

impl<P: Platform, T: Tuning> MakeLock<P> for Adaptive<P, Arc<Pool<P, Node<P>>>, T> {
    type Pool = Pool<P, Node<P>>;

    fn pool(p: &P, nr_cpus: usize) -> Self::Pool {
        Pool::new(p, nr_cpus)
    }

    fn on_line(p: &P, line: Line, pool: &Arc<Self::Pool>) -> Self {
        Adaptive { word: p.word(line, 0), nodes: Arc::clone(pool), tuning: PhantomData }
    }
}

#[cfg(feature = "std")]
mod native {
    use super::{Adaptive, Node, Tuning};
    use crate::native::Global;
    use crate::native::nodes::{GlobalNode, Table};
    use contend_platform::native::Threads;
    use core::marker::PhantomData;
    use core::sync::atomic::AtomicU64;

    impl GlobalNode for Node<Threads> {
        fn table() -> &'static Table<Self> {
            static TABLE: Table<Node<Threads>> = Table::new();
            &TABLE
        }
    }

    impl<T: Tuning> Adaptive<Threads, Global, T> {
        /// A free lock of threads.
        pub const fn new() -> Self {
            Adaptive { word: AtomicU64::new(0), nodes: Global, tuning: PhantomData }
        }
    }

    impl<T: Tuning> Default for Adaptive<Threads, Global, T> {
        fn default() -> Self {
            Adaptive::new()
        }
    }
}

// `GuardSend`: the word names the head and the last of the queue; nothing says who holds.
mutex!(Adaptive<Threads, Global> = Adaptive::new(), GuardSend, unlock_fair);
