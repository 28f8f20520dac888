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
//! 1. *Fast path*: one exchange, and a look at the queue.
//! 2. *Thief*: spin on the word for a few µs and take the lock when it is free, queue or no queue, as long as fewer than
//!    [`Tuning::BYPASS_MAX`] thieves have gone ahead of the queue's head. Then give the CPU up and try again
//!    ([`Tuning::YIELDS`] times). Whoever loses four races sees that thieves are many, and queues.
//! 3. *Queue*: wait on a line of one's own to become the head; halt when the budget is used up, at once if the predecessor
//!    does not run.
//! 4. *Head*: spin on the word. When the budget is used up although the head is awake, nobody may steal any more; when
//!    another is, the holder does not run: allow stealing again, and halt.
//!
//! # Letting go with a store
//!
//! Who lets go must learn of a head that has halted, and a head that is about to halt must see that the lock was let go: each
//! writes one word and reads the other's, and at least one must see the other's write (Dekker). With a fence on both sides,
//! or one word for both, every release pays for a wait that hardly ever is. So the lock and the queue are two words, the
//! release is a plain store followed by a load behind a [`Platform::light_fence`], and the head that halts pays
//! for both with a [`Platform::heavy_fence`]: where the world has an asymmetric pair (`membarrier` on Linux), the light one
//! costs nothing.
//!
//! # State
//!
//! Three words of one line.
//!
//! * `lock` is `(contended, locked)`: changed by who takes it and by who holds it, nobody else. `contended`: the holder had to
//!   wait, and passes a yield point when it lets go (not always: [`Platform::yield_due`]).
//! * `queue` is `(tail, head, halted, turn, forbid)`. `head` is the number of the head's node while `halted` says that it is
//!   halted. Nobody steals while one of `turn` and `forbid` is on: the head is next, for certain or while it is awake. They are on only where there is a head.
//! * `bypasses` counts acquisitions past the present head; it is the holder's.
//!
//! With `t` any tail, `h` either nothing or `(head, 1)`, `n` and `f` any `turn` and `forbid`:
//!
//! ```text
//!           lock       queue
//! take      0 -> c,1                                 acquire; then by what the queue is:
//!                      -,-,0,0                       no queue: done
//!                      t,h,0,0                       a bypass: count it; the BYPASS_MAXth: turn on
//!                      t,h,n,f                       one of them on: give it back (unlock)
//! queue                t,h,n,f -> me,h,n,f           release; then link behind t, or be the head
//! head      0 -> 1,1                                 acquire; then bypasses = 0, and
//!                      me,h,n,f -> -,-,0,0           last of the queue, or
//!                      t,h,n,f -> t,-,0,0            promote the successor
//! forbid               t,h,n,f -> t,h,n,1            by the head
//! halt                 t,h,n,f -> t,(me,1),n,0       by the head, release; heavy fence; then halt unless lock = 0
//!                      t,-,n,f -> t,(next,1),n,f     by the holder for a head that was halted before it
//! unlock    c,1 -> 0                                 release; light fence; then, if h:
//!                      t,h,n,f -> t,-,n,f            acquire; by one of those who saw it; then kick the head of h;
//!                                                    yield point if c
//! fair                 t,h,n,f -> t,h,1,f            by the holder; then unlock
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
//! While a CPU is the head, at most `BYPASS_MAX` others take the lock before it (and others who did not know of it may have it
//! for the few steps in which they look at the queue and give it back). The one that is k-th in the queue is
//! bypassed by later ones at most `k BYPASS_MAX` times. How long a thief tries before it queues is bounded by budgets, not by
//! acquisitions.

use crate::nodes::{NodeId, Nodes, Pool, QueueNode};
use crate::{MakeLock, RawLock};
use alloc::sync::Arc;
use contend_platform::{Line, LockEvent, Nanos, Note, Ordering, Platform};
use core::marker::PhantomData;

/// Of `lock`: held.
const LOCKED: u64 = 1;
/// Of `lock`: the holder, which had to wait, passes a yield point when it lets go.
const PASSES: u64 = 1 << 1;
/// Of `queue`: its head, whose number is there, is halted.
const HALTED: u64 = 1;
/// Of `queue`: nobody steals as long as its head is awake.
const FORBID: u64 = 1 << 1;
/// Of `queue`: nobody steals before its head has had the lock.
const TURN: u64 = 1 << 2;
const HEAD_SHIFT: u32 = 8;
const HEAD_MASK: u64 = 0xff_ffff << HEAD_SHIFT;
const TAIL_SHIFT: u32 = 40;
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
    /// Acquisitions past one head, at most. 1 or more.
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
    lock: P::Word,
    queue: P::Word,
    bypasses: P::Word,
    nodes: N,
    tuning: PhantomData<fn() -> T>,
}

#[inline]
fn tail(queue: u64) -> Option<NodeId> {
    NodeId::from_link(queue >> TAIL_SHIFT)
}

/// The head that an unlock has to kick.
#[inline]
fn halted_head(queue: u64) -> Option<NodeId> {
    NodeId::from_link((queue & HEAD_MASK) >> HEAD_SHIFT).filter(|_| queue & HALTED != 0)
}

/// `queue`, saying that `id` is the head and halted.
#[inline]
fn with_halted(queue: u64, id: NodeId) -> u64 {
    queue & !HEAD_MASK | HALTED | id.link() << HEAD_SHIFT
}

impl<P: Platform, N: Nodes<P, Node<P>>, T: Tuning> Adaptive<P, N, T> {
    /// May one who is not the head take the lock?
    #[inline]
    fn open([lock, queue]: [u64; 2]) -> bool {
        lock == 0 && queue & (FORBID | TURN) == 0
    }

    /// Take the lock for one who is not the head. False: it was taken, or it is the head's turn.
    #[inline]
    fn take(&self, p: &P, held: u64) -> bool {
        p.compare_exchange(&self.lock, 0, held, Ordering::Acquire, Ordering::Relaxed).is_ok()
            && (self.look(p) == 0 || self.bypass(p))
    }

    /// The lock is ours, and there is a queue: count that, or give the lock back.
    #[inline(never)]
    fn bypass(&self, p: &P) -> bool {
        let queue = self.look(p);
        if queue & (FORBID | TURN) != 0 {
            self.unlock(p);
            return false;
        }
        if queue & TAIL_MASK != 0 {
            // The holder's word, and the tail stays for as long as it holds.
            let bypasses = p.load(&self.bypasses, Ordering::Relaxed) + 1;
            p.store(&self.bypasses, bypasses, Ordering::Relaxed);
            if bypasses >= T::BYPASS_MAX.into() {
                // Relaxed: whoever takes the lock after this CPU let it go sees it.
                p.fetch_or(&self.queue, TURN, Ordering::Relaxed);
            }
            p.lock_event(LockEvent::PvLockStealing, 1);
        }
        true
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
        let held = if p.yield_due() { LOCKED | PASSES } else { LOCKED };
        for round in 0..=T::YIELDS {
            while p.wait_until([&self.lock, &self.queue], Some(budget), Self::open).is_some() {
                if self.take(p, held) {
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
            while !self.take(p, LOCKED) {
                p.wait_until([&self.lock, &self.queue], None, Self::open);
            }
            return;
        };
        let node = self.nodes.get(id);
        // Relaxed: nobody else knows the node as one of this queue; it is published by the exchange of the tail. A late
        // kick may still write to the state, but only over HEAD_HALTED.
        p.store(&node.state, state::WAITING, Ordering::Relaxed);
        p.store(&node.next, 0, Ordering::Relaxed);
        // Release publishes the node, acquire sees the predecessor's.
        let before = self.change(p, Ordering::AcqRel, |queue| queue & !TAIL_MASK | id.link() << TAIL_SHIFT);
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
            let free = p.wait_until([&self.lock], Some(T::QUEUE_SPIN_NS), |[lock]| lock == 0);
            if free.is_some() {
                let held = LOCKED | PASSES;
                if p.compare_exchange(&self.lock, 0, held, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return self.leave(p, node, id);
                }
                continue;
            }
            if !forbids {
                // Awake, and the lock goes to others: no more of that. Relaxed: no more than that.
                p.fetch_or(&self.queue, FORBID, Ordering::Relaxed);
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
        self.change(p, Ordering::Release, |queue| with_halted(queue & !FORBID, id));
        // Whose release is not seen below sees the word in the queue.
        p.heavy_fence();
        if p.load(&self.lock, Ordering::Relaxed) != 0 {
            p.lock_event(LockEvent::PvWaitHead, 1);
            p.halt(&node.state, state::HEAD_HALTED);
        }
    }

    /// The holder, head until now, leaves the queue; its successor is the head.
    fn leave(&self, p: &P, node: &Node<P>, id: NodeId) {
        p.store(&self.bypasses, 0, Ordering::Relaxed);
        let last = |queue| tail(queue) == Some(id);
        // Relaxed: the successor links itself, and is told by its node.
        let before = self.change(p, Ordering::Relaxed, |queue| if last(queue) { 0 } else { queue & TAIL_MASK });
        if !last(before) {
            self.promote(p, node);
        }
    }

    /// The holder makes its successor the head.
    fn promote(&self, p: &P, node: &Node<P>) {
        // The successor has swapped the tail and has linked itself, or is about to.
        let [next] = p.wait_until([&node.next], None, |[next]| next != 0).expect("waits without budget");
        let next = NodeId::from_link(next).expect("waited for one");
        let successor = &self.nodes.get(next).state;
        // Release: whoever becomes head sees what the heads before it did.
        let awake = p.compare_exchange(successor, state::WAITING, state::HEAD, Ordering::Release, Ordering::Relaxed);
        if awake.is_err() {
            p.store(successor, state::HEAD_HALTED, Ordering::Release);
            self.change(p, Ordering::Release, |queue| with_halted(queue, next));
        }
    }

    /// The queue's word. Relaxed: an exchange confirms it, or the lock's word orders it.
    #[inline]
    fn look(&self, p: &P) -> u64 {
        p.load(&self.queue, Ordering::Relaxed)
    }
    /// Replace the queue's word by `new` of it; returns the word before.
    #[inline]
    #[track_caller]
    fn change(&self, p: &P, order: Ordering, new: impl Fn(u64) -> u64) -> u64 {
        let mut queue = self.look(p);
        loop {
            match p.compare_exchange(&self.queue, queue, new(queue), order, Ordering::Relaxed) {
                Ok(_) => return queue,
                Err(found) => queue = found,
            }
        }
    }

    /// What follows a release, of the lock's word `held`, that found `queue`.
    #[cold]
    fn released(&self, p: &P, held: u64, queue: u64) {
        if queue & HALTED != 0 {
            // Of several who saw it, the one that takes it out kicks. Acquire: the state of the head that is named.
            let named = p.fetch_and(&self.queue, !(HALTED | HEAD_MASK), Ordering::Acquire);
            if let Some(head) = halted_head(named) {
                self.kick(p, head);
            }
        }
        if held & PASSES != 0 {
            p.yield_point();
        }
    }

    fn kick(&self, p: &P, head: NodeId) {
        let state = &self.nodes.get(head).state;
        // Fails if the head has woken for no reason: then it needs no kick.
        if p.compare_exchange(state, state::HEAD_HALTED, state::HEAD, Ordering::Release, Ordering::Relaxed).is_ok() {
            p.lock_event(LockEvent::PvKickUnlock, 1);
            p.kick(state, head.cpu());
        }
    }

    /// Release the lock; if there is a queue, its head is next, whoever else asks.
    pub fn unlock_fair(&self, p: &P) {
        if self.look(p) & TAIL_MASK != 0 {
            // Relaxed: whoever takes the lock after this CPU let it go sees it.
            p.fetch_or(&self.queue, TURN, Ordering::Relaxed);
        }
        self.unlock(p);
    }
}

impl<P: Platform, N: Nodes<P, Node<P>>, T: Tuning> RawLock<P> for Adaptive<P, N, T> {
    const BYPASS_MAX: Option<u32> = Some(T::BYPASS_MAX);

    #[inline]
    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
        let free = self.take(p, LOCKED);
        if !free {
            waits();
            self.contended(p);
        }
        !free
    }

    #[inline]
    fn try_lock(&self, p: &P) -> bool {
        p.load(&self.lock, Ordering::Relaxed) == 0 && self.take(p, LOCKED)
    }

    /// It looks at the lock again after others may have it: nobody may free the lock before it returns. (A reference says so.)
    #[inline]
    fn unlock(&self, p: &P) {
        let held = p.load(&self.lock, Ordering::Relaxed);
        p.store(&self.lock, 0, Ordering::Release);
        p.light_fence();
        let queue = self.look(p);
        if queue & HALTED | held & PASSES != 0 {
            self.released(p, held, queue);
        }
    }
}

impl<P: Platform, T: Tuning> MakeLock<P> for Adaptive<P, Arc<Pool<P, Node<P>>>, T> {
    type Pool = Pool<P, Node<P>>;

    fn pool(p: &P, nr_cpus: usize) -> Self::Pool {
        Pool::new(p, nr_cpus)
    }

    fn on_line(p: &P, line: Line, pool: &Arc<Self::Pool>) -> Self {
        let [lock, queue, bypasses] = [(); 3].map(|()| p.word(line, 0));
        Adaptive { lock, queue, bypasses, nodes: Arc::clone(pool), tuning: PhantomData }
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
            let [lock, queue, bypasses] = [const { AtomicU64::new(0) }; 3];
            Adaptive { lock, queue, bypasses, nodes: Global, tuning: PhantomData }
        }
    }

    impl<T: Tuning> Default for Adaptive<Threads, Global, T> {
        fn default() -> Self {
            Adaptive::new()
        }
    }
}

// `GuardSend`: the words name the head and the last of the queue; nothing says who holds.
mutex!(Adaptive<Threads, Global> = Adaptive::new(), GuardSend, unlock_fair);
