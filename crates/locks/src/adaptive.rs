//! The project's own lock: an unfair lock in front of a queue, with a bound on the unfairness.
//!
//! What it takes from others: stealing while the queue's head is not there yet, and waiters that halt (the hybrid pv
//! queued lock); a halted head that may halt again any number of times, where that lock's can only once; kicks after the release
//! only, by the unlocker (the 2015 series); a bound on stealing that the head can bring forward (powerpc's
//! must-queue bit); a spinning time that is cut short behind a waiter which does not run (wait-early). New is what follows
//! a contended critical section: [`Platform::parting`]. A thread that gives its CPU up where it holds nothing, or waits there
//! until the moment is over at which it may lose it, does not lose it where it holds the lock.
//!
//! # Phases
//!
//! 1. *Fast path*: one exchange.
//! 2. *Thief*: spin on the word for a few µs and take the lock when it is free, queue or no queue, as long as fewer than
//!    [`Tuning::BYPASS_MAX`] thieves have gone ahead of the queue's head. Then give the CPU up and try again,
//!    as long as [`Platform::relinquish`] does it. Whoever loses four races sees that thieves are many, and queues.
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
//! costs nothing. Where the heavy one is refused (a program that forbids itself the call after the first use of a lock), the
//! head does not halt: it spins and yields.
//!
//! # State
//!
//! Two words of one line.
//!
//! * `lock` is `(bypasses, closed, own, asks, locked)`: changed by who takes it and by who holds it, nobody else. `bypasses`
//!   counts acquisitions past the present head, as of the last release. `closed`: the lock is free, and only the head may take it. `own`: the holder was
//!   the head. `asks`: the holder had to wait, and asks what to do about its CPU when it lets go ([`Platform::parting`]; not always:
//!   [`Platform::parting_due`]); left in the free word ([`Parting::PassTick`]), it makes the next holder ask, however it came.
//! * `queue` is `(tail, head, halted, forbid)`. `head` is the number of the head's node while `halted` says that it is
//!   halted; `forbid`: the head is awake and wants to be next.
//!
//! With `n` any number of bypasses, `t` any tail, `h` either nothing or `(head, 1)`, `f` any `forbid`, `a` any `asks` of a free word:
//!
//! ```text
//!           lock                         queue
//! take      n,0,0,a,0 -> n,0,0,c,1                            acquire; n = a = 0 on the fast path; c if a
//! queue                                  t,h,f -> me,h,f      release; then link behind t, or be the head
//! head      *,*,0,a,0 -> 0,0,1,1,1                            acquire; then
//!                                        me,h,f -> -,-,0      last of the queue, or
//!                                        t,h,f -> t,-,0       promote the successor
//! forbid                                 t,h,f -> t,h,1       by the head
//! halt                                   t,h,f -> t,(me,1),0  by the head, release; heavy fence; then halt if lock is held
//!                                        t,-,f -> t,(next,1),f  by the holder for a head that was halted before it
//! unlock    n,0,o,c,1 -> 0,0,0,a,0       -,-,0                release; no queue; a only if c
//!                     -> m,0,0,a,0       t,h,0                release; m = 0 if o, else n + 1, if that is less than BYPASS_MAX
//!                     -> 0,1,0,a,0       t,h,f                release; m is as much, or f, or let go fairly
//!                                        t,h,f -> t,-,f       after a light fence, if h: acquire; then kick the head of h
//!                                                             (one of those who saw it); part if c
//! ```
//!
//! What the unlock finds in the queue before its release may be old: then another one goes before the head, and its release
//! sees it. What it finds behind the fence is what no head sleeps without.
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
//!
//! These are bounds in acquisitions, not in time: [`Standard`] allows 16,383, which are 2 ms of sections of 100 ns, but 16 s of
//! sections of 1 ms. A thread that takes the lock again at once after such a section has it again before the sleeping head is awake, so others may wait for as
//! long. Where sections are long and waits must be even, release fairly (`MutexGuard::unlock_fair`), or take another lock.
//!
//! # Nested locks
//!
//! The lock does not know what else a thread holds. Where it gives the CPU up after a contended section ([`Platform::part`]), it may do so with an outer
//! lock held, which others then wait for.

use crate::kicked::Kicked;
use crate::nodes::{NodeId, Nodes, Pool, QueueNode};
use crate::{MakeLock, RawLock};
use alloc::sync::Arc;
use contend_platform::{Line, LockEvent, Nanos, Note, Ordering, Parting, Platform};
use core::marker::PhantomData;

/// Of `lock`: held.
const LOCKED: u64 = 1;
/// Of `lock`: the holder, which had to wait, asks what to do about its CPU when it lets go. Of a free one: so does the next.
const ASKS: u64 = 1 << 1;
/// Of `lock`: the holder was the head of the queue.
const OWN: u64 = 1 << 2;
/// Of `lock`: free, but for nobody but the head. There is one until it has had the lock.
const CLOSED: u64 = 1 << 3;
/// Of `lock`: one acquisition past the head.
const BYPASS_ONE: u64 = 1 << 4;
/// Of `queue`: its head, whose number is there, is halted.
const HALTED: u64 = 1;
/// Of `queue`: its head is awake and wants nobody to go before it.
const FORBID: u64 = 1 << 1;
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
    const QUEUE_SPIN_NS: Nanos = 5_000;
    const BYPASS_MAX: u32 = 16_383;
}

/// A place in the queue.
pub struct Node<P: Platform> {
    /// One of [`state`].
    state: P::Word,
    /// [`NodeId::link`] of the successor; 0: none, or not linked yet.
    next: P::Word,
    kicked: Kicked,
}

impl<P: Platform> QueueNode<P> for Node<P> {
    fn new(p: &P, line: Line) -> Self {
        Node { state: p.word(line, state::WAITING), next: p.word(line, 0), kicked: Kicked::default() }
    }
}

/// The adaptive lock. `N` is where its nodes are, `T` how long it tries what.
pub struct Adaptive<P: Platform, N = Arc<Pool<P, Node<P>>>, T = Standard> {
    lock: P::Word,
    queue: P::Word,
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
    fn open(lock: u64) -> bool {
        lock & (LOCKED | CLOSED) == 0
    }

    /// What the lock's holder leaves for the next.
    #[inline]
    fn free(held: u64, queue: u64) -> u64 {
        if queue & TAIL_MASK == 0 {
            return 0;
        }
        let bypasses = if held & OWN != 0 { 0 } else { held / BYPASS_ONE + 1 };
        if queue & FORBID != 0 || bypasses >= T::BYPASS_MAX.into() { CLOSED } else { bypasses * BYPASS_ONE }
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
        let (mut budget, mut lost, mut turn) = (T::SPIN_NS, 0, 0);
        let held = if p.parting_due() { LOCKED | ASKS } else { LOCKED };
        loop {
            while let Some([lock]) = p.wait_until([&self.lock], Some(budget), |[lock]| Self::open(lock)) {
                let taken = lock | held;
                if p.compare_exchange(&self.lock, lock, taken, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return true;
                }
                lost += 1;
                if lost == LOST_MAX {
                    return false;
                }
            }
            if !p.relinquish(turn) {
                return false;
            }
            turn += 1;
            budget = T::RESPIN_NS;
        }
    }

    /// Phases 3 and 4.
    fn queue(&self, p: &P) {
        let Some(id) = self.nodes.claim(p) else {
            // Nested too deep: outside the queue, as one who tries.
            while !self.try_lock(p) {
                p.wait_until([&self.lock], None, |[lock]| Self::open(lock));
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
            let budget = if early { 0 } else { T::QUEUE_SPIN_NS };
            if p.wait_until([&node.state], Some(budget), is_head).is_some() {
                return;
            }
            let asleep =
                p.compare_exchange(&node.state, state::WAITING, state::HALTED, Ordering::Relaxed, Ordering::Acquire);
            if matches!(asleep, Ok(_) | Err(state::HALTED)) {
                p.lock_event(LockEvent::PvWaitNode, 1);
                p.lock_event(LockEvent::PvWaitEarly, u64::from(early));
                // Behind others nobody is woken but to be the head.
                p.lock_event(LockEvent::PvSpuriousWakeup, u64::from(halted));
                halted = true;
                node.kicked.halt(p, &node.state, state::HALTED);
            }
        }
    }

    fn lock_as_head(&self, p: &P, node: &Node<P>, id: NodeId) {
        let mut forbids = false;
        let mut halts = 0;
        loop {
            let free = p.wait_until([&self.lock], Some(T::QUEUE_SPIN_NS), |[lock]| lock & LOCKED == 0);
            if let Some([lock]) = free {
                let held = LOCKED | ASKS | OWN;
                if p.compare_exchange(&self.lock, lock, held, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return self.leave(p, node, id);
                }
                continue;
            }
            if !forbids {
                // Awake, and the lock goes to others: no more of that. Relaxed: no more than that.
                p.fetch_or(&self.queue, FORBID, Ordering::Relaxed);
            } else {
                // The holder does not let go. Others may steal again while this CPU sleeps.
                if self.halt_as_head(p, node, id) {
                    p.lock_event(LockEvent::PvWaitAgain, u64::from(halts > 0));
                    halts += 1;
                }
            }
            forbids = !forbids;
        }
    }

    /// Halt until an unlock kicks, unless the lock is free; has it halted?
    fn halt_as_head(&self, p: &P, node: &Node<P>, id: NodeId) -> bool {
        // Relaxed: published by the exchange of the word.
        p.store(&node.state, state::HEAD_HALTED, Ordering::Relaxed);
        self.change(p, Ordering::Release, |queue| with_halted(queue & !FORBID, id));
        // Whose release is not seen below sees the word in the queue. Without that the head stays awake: it has let others run,
        // and looks again.
        let told = p.heavy_fence();
        let halts = told && p.load(&self.lock, Ordering::Relaxed) & LOCKED != 0;
        if halts {
            p.lock_event(LockEvent::PvWaitHead, 1);
            node.kicked.halt(p, &node.state, state::HEAD_HALTED);
        }
        halts
    }

    /// The holder, head until now, leaves the queue; its successor is the head.
    fn leave(&self, p: &P, node: &Node<P>, id: NodeId) {
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

    /// The queue's word. Relaxed: an exchange confirms it, or it may be old.
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

    /// Let go of the lock: the free word is `free`; wake a head that has halted.
    ///
    /// It looks at the queue again after others may have the lock: nobody may free it before this returns. (A reference says so.)
    #[inline]
    fn release(&self, p: &P, free: u64) {
        p.store(&self.lock, free, Ordering::Release);
        p.light_fence();
        if self.look(p) & HALTED != 0 {
            self.kick_halted(p);
        }
    }

    /// Let go of the lock, held as `held`, for whom `free` says.
    fn let_go(&self, p: &P, held: u64, free: u64) {
        if held & ASKS == 0 {
            return self.release(p, free);
        }
        let parting = p.parting();
        // Without us the next may have nobody to wait for, and would not ask.
        self.release(p, if parting == Parting::PassTick { free | ASKS } else { free });
        p.part(parting);
    }

    /// Release past a queue, or as one that had to wait.
    #[inline(never)]
    fn unlock_contended(&self, p: &P, held: u64, queue: u64) {
        // Past a queue, or while one began.
        if queue & TAIL_MASK != 0 && held & OWN == 0 {
            p.lock_event(LockEvent::PvLockStealing, 1);
        }
        self.let_go(p, held, Self::free(held, queue));
    }

    #[cold]
    fn kick_halted(&self, p: &P) {
        // Of several who saw it, the one that takes it out kicks. Acquire: the state of the head that is named.
        let named = p.fetch_and(&self.queue, !(HALTED | HEAD_MASK), Ordering::Acquire);
        if let Some(head) = halted_head(named) {
            self.kick(p, head);
        }
    }

    fn kick(&self, p: &P, head: NodeId) {
        let node = self.nodes.get(head);
        let state = &node.state;
        // Fails if the head has woken for no reason: then it needs no kick.
        if p.compare_exchange(state, state::HEAD_HALTED, state::HEAD, Ordering::Release, Ordering::Relaxed).is_ok() {
            node.kicked.kick(p, state, head.cpu(), LockEvent::PvKickUnlock);
        }
    }

    /// Release the lock; if there is a queue, its head is next, whoever else asks.
    pub fn unlock_fair(&self, p: &P) {
        let held = p.load(&self.lock, Ordering::Relaxed);
        self.let_go(p, held, if self.look(p) & TAIL_MASK == 0 { 0 } else { CLOSED });
    }
}

impl<P: Platform, N: Nodes<P, Node<P>>, T: Tuning> RawLock<P> for Adaptive<P, N, T> {
    const BYPASS_MAX: Option<u32> = Some(T::BYPASS_MAX);

    #[inline]
    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
        let free = p.compare_exchange(&self.lock, 0, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !free {
            waits();
            self.contended(p);
        }
        !free
    }

    #[inline]
    fn try_lock(&self, p: &P) -> bool {
        let lock = p.load(&self.lock, Ordering::Relaxed);
        Self::open(lock)
            && p.compare_exchange(&self.lock, lock, lock | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn is_locked(&self, p: &P) -> bool {
        p.load(&self.lock, Ordering::Relaxed) & LOCKED != 0
    }

    #[inline]
    fn unlock(&self, p: &P) {
        // The holder's own word: nobody else changes it.
        let held = p.load(&self.lock, Ordering::Relaxed);
        let queue = self.look(p);
        // One test for both.
        if (held ^ LOCKED) | queue == 0 { self.release(p, 0) } else { self.unlock_contended(p, held, queue) }
    }
}

impl<P: Platform, T: Tuning> MakeLock<P> for Adaptive<P, Arc<Pool<P, Node<P>>>, T> {
    type Pool = Pool<P, Node<P>>;

    fn pool(p: &P, nr_cpus: usize) -> Self::Pool {
        Pool::new(p, nr_cpus)
    }

    fn on_line(p: &P, line: Line, pool: &Arc<Self::Pool>) -> Self {
        Adaptive { lock: p.word(line, 0), queue: p.word(line, 0), nodes: Arc::clone(pool), tuning: PhantomData }
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
            Adaptive { lock: AtomicU64::new(0), queue: AtomicU64::new(0), nodes: Global(()), tuning: PhantomData }
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
