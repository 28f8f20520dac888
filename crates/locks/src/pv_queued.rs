//! The paravirtual queued spinlock of Linux 4.2, and the series of 2015 that changed it, part by part.
//!
//! A guest's CPUs are threads of the host, which may be off their CPU when it is their turn. So waiters do not spin for ever:
//! they halt when a budget is spent ([`crate::pv`] tells how, and why no wake-up is lost).
//!
//! State: `(tail, pending, locked)`. `tail` is 0 or 1 + the number of the last waiting node. `locked` is two bits: `L`, somebody
//! holds the lock, and `S` (slow), the head of the queue is in the hash. `S` alone: released, but not free yet.
//!
//! ```text
//! lock      0,0,0 -> 0,0,L                     acquire; nobody there
//!           0,0,L -> 0,1,L ; wait *,1,0        pending (a part of the series): acquire
//!           *,1,0 -> *,0,L                     the pending waiter takes it
//!           *,1,* -> *,0,*                     its budget is spent: it queues after all
//!           t,p,* -> me,p,*                    queued behind t: link, wait (and halt) for the hand-over
//!           t,*,L -> t,*,LS                    head, budget spent: node in the hash before; release; halt
//!           me,0,0 -> 0,0,L                    head of the queue, last of it
//!           t,0,0 -> t,0,L                     head, others behind: hand the head over
//! try_lock  0,0,0 -> 0,0,L                     acquire, once
//! unlock    *,*,L -> *,*,0                     release
//!           *,*,LS -> *,*,S -> *,*,0           node out of the hash between; release; kick the head
//! ```
//!
//! An unlock always is one exchange, as in Linux; which of its two forms it was, it reads from the value it replaced. In a
//! whole word `S` alone keeps the lock taken while the slow form is under way, as a full byte does in Linux.
//!
//! # What kicks whom
//!
//! A new holder makes its successor the head at once, so that the successor can spin on the word while the lock is held. If the
//! successor halts, then
//!
//! * **4.2** kicks it there and then: while holding the lock it pays for a visit to the hypervisor, and the woken head
//!   spins for a lock that has just been taken, mostly to halt again, now in the hash. The unlock kicks it the second time;
//! * **kick at unlock** ([`PvFeatures::kick_at_unlock`]) leaves it asleep and enters it in the hash on its behalf: one kick, outside
//!   the critical section.
//! * **Kick-ahead** ([`PvFeatures::kick_ahead`]): an unlock that kicks the head also wakes those of the next few waiters behind it
//!   that halt, so that they run when their turn comes. They are chosen before the release, when the queue cannot move,
//!   and kicked after it, outside the critical section. Silent in the series' text, decided here: it looks at a fixed number of nodes
//!   ([`PvTunables::kick_ahead`]) and not further, whether they halt or not, so that this many behind the head run, and the walk is
//!   bounded.
//! * **Wait-early** ([`PvFeatures::wait_early`]): a waiter whose predecessor halts does so at once.
//! * **Pending** ([`PvFeatures::pending`]): the first waiter uses no node. It never halts; it gives up after a budget of its own
//!   and queues (behind those who came later).
//!
//! With pending, a head that was kicked may find the lock taken by the pending waiter; it then enters the hash again. Without,
//! nobody can pass the head, and it halts in the hash once, unless it wakes for no reason.
//!
//! A full hash (threads only: [`crate::native::pv`]) makes waiters spin where they would halt, and owners kick at once.

use crate::nodes::NodeId;
use crate::pv::{HALTED, HASHED, PvNode, PvNodes, PvPool, PvTunables, RUNNING};
use crate::{MakeLock, RawLock};
use alloc::sync::Arc;
use contend_platform::{CpuId, Line, LockEvent, Note, Ordering, Platform};

/// `L`: held.
const LOCKED: u64 = 1;
/// `S`: the head is in the hash.
const SLOW: u64 = 1 << 1;
const PENDING: u64 = 1 << 8;
const TAIL_SHIFT: u32 = 16;
/// `locked`: 0 is free.
const TAKEN: u64 = LOCKED | SLOW;

/// The parts of the series of 2015, each on or off; all off is Linux 4.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PvFeatures {
    /// Part 1: kick a halted head when the lock is released, not when the lock is taken by the one before.
    pub kick_at_unlock: bool,
    /// Part 2: an unlock that kicks the head also kicks halted waiters behind it.
    pub kick_ahead: bool,
    /// Part 3: a waiter halts at once if its predecessor does.
    pub wait_early: bool,
    /// Part 5: the first waiter waits on the word, without a node.
    pub pending: bool,
}

impl PvFeatures {
    /// Linux 4.2, before the series.
    pub const V4_2: PvFeatures =
        PvFeatures { kick_at_unlock: false, kick_ahead: false, wait_early: false, pending: false };
    /// All parts.
    pub const SERIES_2015: PvFeatures =
        PvFeatures { kick_at_unlock: true, kick_ahead: true, wait_early: true, pending: true };
    /// Part 1 alone.
    pub const KICK_AT_UNLOCK: PvFeatures = PvFeatures { kick_at_unlock: true, ..Self::V4_2 };
    /// Part 2 alone.
    pub const KICK_AHEAD: PvFeatures = PvFeatures { kick_ahead: true, ..Self::V4_2 };
    /// Part 3 alone.
    pub const WAIT_EARLY: PvFeatures = PvFeatures { wait_early: true, ..Self::V4_2 };
    /// Part 5 alone.
    pub const PENDING: PvFeatures = PvFeatures { pending: true, ..Self::V4_2 };

    /// As a number, for [`PvQueuedWith`].
    pub const fn bits(self) -> u8 {
        self.kick_at_unlock as u8
            | (self.kick_ahead as u8) << 1
            | (self.wait_early as u8) << 2
            | (self.pending as u8) << 3
    }
    /// The other way round; further bits mean nothing.
    pub const fn from_bits(bits: u8) -> Self {
        PvFeatures {
            kick_at_unlock: bits & 1 != 0,
            kick_ahead: bits & 2 != 0,
            wait_early: bits & 4 != 0,
            pending: bits & 8 != 0,
        }
    }
}

/// Its nodes: the state is on a line of its own.
pub type PvQueuedNode<P> = PvNode<P, 2>;
/// What its locks share.
pub type PvQueuedPool<P> = PvPool<P, 2, PvFeatures>;

/// Paravirtual queued spinlock; `N` is where its nodes are.
pub struct PvQueued<P: Platform, N = Arc<PvQueuedPool<P>>> {
    word: P::Word,
    nodes: N,
    number: u32,
    features: PvFeatures,
    tunables: PvTunables,
}

/// Waiters that an unlock will kick once the lock is free (and so perhaps gone: nothing of it is looked at then).
type Ahead<'a, P> = [Option<(&'a PvQueuedNode<P>, CpuId)>; PvTunables::KICK_AHEAD_MAX];

impl<P: Platform, N> PvQueued<P, N> {
    /// A lock from its parts: a `word` that is 0; `number` is 0 where `nodes` tells locks apart by their addresses.
    pub const fn from_parts(word: P::Word, nodes: N, number: u32, features: PvFeatures, tunables: PvTunables) -> Self {
        assert!(tunables.kick_ahead <= PvTunables::KICK_AHEAD_MAX);
        PvQueued { word, nodes, number, features, tunables }
    }
}

impl<P: Platform, N: PvNodes<P, PvQueuedNode<P>>> PvQueued<P, N> {
    fn key(&self) -> u64 {
        self.nodes.key(self.number, &self.word)
    }

    fn contended(&self, p: &P, found: u64) {
        if self.features.pending && found & !LOCKED == 0 && self.wait_pending(p) {
            p.lock_event(LockEvent::LockPending, 1);
        } else {
            self.queue(p);
        }
    }

    /// Take the lock by the pending bit, or find that this is not for us.
    fn wait_pending(&self, p: &P) -> bool {
        let old = p.fetch_or(&self.word, PENDING, Ordering::Acquire);
        if old & !LOCKED != 0 {
            if old & PENDING == 0 {
                // Somebody queued in between: it is not ours to be pending.
                p.fetch_and(&self.word, !PENDING, Ordering::Relaxed);
            }
            return false;
        }
        p.note(Note::Queued);
        // `S` too must go: the last holder may be about to take the head out of the hash.
        let budget = Some(self.tunables.pending_ns);
        if old & LOCKED != 0 && p.wait_until([&self.word], budget, |[word]| word & TAKEN == 0).is_none() {
            p.fetch_and(&self.word, !PENDING, Ordering::Relaxed);
            p.note(Note::Left);
            return false;
        }
        // Pending off, locked on, whatever the tail is by now. Relaxed: acquired above.
        p.fetch_add(&self.word, LOCKED.wrapping_sub(PENDING), Ordering::Relaxed);
        true
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
            node.wait_turn(p, prev, self.tunables.spin_ns, self.features.wait_early);
        }
        let word = self.wait_head(p, id);
        let last = word >> TAIL_SHIFT == id.link();
        if last && p.compare_exchange(&self.word, word, LOCKED, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.nodes.release(p, id);
            return;
        }
        // Somebody queued behind me, or set pending for a moment and will: once only, as in `queued`.
        p.fetch_or(&self.word, LOCKED, Ordering::Relaxed);
        let next = node.link.successor(p);
        self.nodes.release(p, id);
        self.new_head(p, next);
    }

    /// Wait at the head of the queue until the lock is free and nobody is pending: the word found.
    fn wait_head(&self, p: &P, id: NodeId) -> u64 {
        let node = self.nodes.get(id);
        let mut woken = false;
        loop {
            let budget = Some(self.tunables.spin_ns);
            // Acquires the last release.
            if let Some([word]) = p.wait_until([&self.word], budget, |[word]| word & (TAKEN | PENDING) == 0) {
                return word;
            }
            // Relaxed: who sets `X` is me, here or asleep in `wait_turn`; if it has been cleared since, the exchange fails.
            let sleeps = if p.load(&node.state, Ordering::Relaxed) & HASHED != 0 {
                p.compare_exchange(&node.state, HASHED, HALTED | HASHED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            } else {
                self.enter_hash(p, id)
            };
            if sleeps {
                p.lock_event(LockEvent::PvWaitHead, 1);
                if woken {
                    p.lock_event(LockEvent::PvWaitAgain, 1);
                }
                node.halt(p);
                woken = true;
                p.fetch_and(&node.state, !HALTED, Ordering::Relaxed);
            }
        }
    }

    /// Have the unlock kick node `id`, the head: false if there is nothing to wait for, since the lock is not held.
    fn enter_hash(&self, p: &P, id: NodeId) -> bool {
        let mut word = p.load(&self.word, Ordering::Relaxed);
        if word & TAKEN != LOCKED || !self.nodes.hash().insert(p, self.key(), id) {
            return false;
        }
        let state = &self.nodes.get(id).state;
        p.swap(state, HALTED | HASHED, Ordering::Relaxed);
        while word & TAKEN == LOCKED {
            // Release: the entry and the state, to the unlock.
            match p.compare_exchange(&self.word, word, word | SLOW, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(found) => word = found,
            }
        }
        self.nodes.hash().remove(p, self.key());
        p.swap(state, RUNNING, Ordering::Relaxed);
        false
    }

    /// The caller has just taken the lock: its successor `next` is the head now.
    fn new_head(&self, p: &P, next: NodeId) {
        let node = self.nodes.get(next);
        if !self.features.kick_at_unlock {
            if node.hand_over(p, RUNNING) {
                node.kick(p, next.cpu(), LockEvent::PvKickLock);
            }
        } else if node.hand_over(p, HALTED | HASHED) {
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
        let halted = p.swap(&node.state, RUNNING, Ordering::Relaxed) & HALTED != 0;
        let ahead = if self.features.kick_ahead { self.wake_ahead(p, head) } else { Ahead::default() };
        p.fetch_and(&self.word, !SLOW, Ordering::Release);
        if halted {
            node.kick(p, head.cpu(), LockEvent::PvKickUnlock);
        }
        for (node, cpu) in ahead.into_iter().flatten() {
            node.kick(p, cpu, LockEvent::PvKickAhead);
        }
    }

    /// Choose who is to be kicked besides, behind `head`: they are running from now on.
    fn wake_ahead(&self, p: &P, head: NodeId) -> Ahead<'_, P> {
        let mut ahead = Ahead::default();
        let mut node = self.nodes.get(head);
        for chosen in ahead.iter_mut().take(self.tunables.kick_ahead) {
            // Acquire: the state that the waiter began with.
            let Some(next) = NodeId::from_link(p.load(&node.link.next, Ordering::Acquire)) else { break };
            node = self.nodes.get(next);
            // Relaxed: who sleeps does so since long; who is not seen to sleep spins, or is behind one who does.
            if p.load(&node.state, Ordering::Relaxed) == HALTED
                && p.compare_exchange(&node.state, HALTED, RUNNING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            {
                *chosen = Some((node, next.cpu()));
            }
        }
        ahead
    }
}

impl<P: Platform, N: PvNodes<P, PvQueuedNode<P>>> RawLock<P> for PvQueued<P, N> {
    const BYPASS_MAX: Option<u32> = Some(0);

    #[inline]
    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
        match p.compare_exchange(&self.word, 0, LOCKED, Ordering::Acquire, Ordering::Relaxed) {
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

impl<P: Platform> MakeLock<P> for PvQueued<P> {
    type Pool = PvQueuedPool<P>;

    /// Of Linux 4.2; set [`PvPool::settings`] and [`PvPool::tunables`] for others.
    fn pool(p: &P, nr_cpus: usize) -> Self::Pool {
        PvPool::new(p, nr_cpus, PvFeatures::V4_2)
    }

    fn on_line(p: &P, line: Line, pool: &Arc<Self::Pool>) -> Self {
        PvQueued::from_parts(p.word(line, 0), Arc::clone(pool), pool.number(), pool.settings, pool.tunables)
    }
}

/// [`PvQueued`] with its features ([`PvFeatures::bits`]) in its type, for those who make locks by type.
pub struct PvQueuedWith<P: Platform, const FEATURES: u8>(PvQueued<P>);

impl<P: Platform, const FEATURES: u8> RawLock<P> for PvQueuedWith<P, FEATURES> {
    const BYPASS_MAX: Option<u32> = <PvQueued<P> as RawLock<P>>::BYPASS_MAX;

    #[inline]
    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
        self.0.lock_with(p, waits)
    }
    #[inline]
    fn try_lock(&self, p: &P) -> bool {
        self.0.try_lock(p)
    }
    #[inline]
    fn is_locked(&self, p: &P) -> bool {
        self.0.is_locked(p)
    }
    #[inline]
    fn unlock(&self, p: &P) {
        self.0.unlock(p);
    }
}

impl<P: Platform, const FEATURES: u8> MakeLock<P> for PvQueuedWith<P, FEATURES> {
    type Pool = PvQueuedPool<P>;

    fn pool(p: &P, nr_cpus: usize) -> Self::Pool {
        PvPool::new(p, nr_cpus, PvFeatures::from_bits(FEATURES))
    }

    fn on_line(p: &P, line: Line, pool: &Arc<Self::Pool>) -> Self {
        PvQueuedWith(PvQueued::on_line(p, line, pool))
    }
}

// `GuardSend`: the unlock finds the head by the lock, and nothing says who holds. (What the holder itself entered in the hash,
// it sees, or who got the guard from it.) `fair`: while somebody waits, the word is not 0, and newcomers wait too.
mutex!(PvQueued<Threads, Global> = PvQueued::of(PvFeatures::SERIES_2015, PvTunables::DEFAULT), GuardSend, fair);
