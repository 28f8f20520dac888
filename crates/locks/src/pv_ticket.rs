//! The paravirtual ticket lock (Linux 3.12 to 4.1): a ticket lock whose waiters halt when they have spun for long, and are
//! kicked by number when they are served.
//!
//! State: `(owner, count, slow)`; `owner` and `count` as in [`crate::ticket`], `slow` says that some waiter halts or is about to.
//! Beside it, for each CPU, a word `(lock, want)` in which a halting waiter says what it waits for, and a mask of the CPUs that
//! do: these serve all locks of a world ([`Waiting`]). With `L` the lock's number and `t` the caller's ticket:
//!
//! ```text
//! lock      (o, c, s) -> (o, c+1, s)      acquire; my ticket t is o+c; served at once if c == 0
//!           spin until owner == t; when the budget is spent:
//!             my word = (L, t);  mask |= me
//!             (o, c, *) -> (o, c, 1)      release; o == t: served in the meantime, nobody will kick
//!             halt while my word == (*, t), then spin again
//!           (t, 1, 1) -> (t, 1, 0)        served, and nobody behind me: a free lock is never slow
//! try_lock  (o, 0, 0) -> (o, 1, 0)        acquire, once
//! unlock    (o, c, s) -> (o+1, c-1, s)    release; s: find the CPU in the mask whose word is (L, o+1),
//!                                         its word: (L, o+1) -> (0, o+2), kick it
//! ```
//!
//! **No wake-up is lost.** `owner` and `slow` are in one word, and both the waiter's announcement and the unlock are
//! read-modify-writes of it, so one comes first. Announcement first: the unlock finds `slow`, and with it (release, acquire)
//! the mask and the waiter's word. Unlock first: the announcement returns the new owner. The kernel has `(lock, want)` in two
//! words, erases `lock` around a change of `want`, and orders the three stores by barriers; one word needs none.
//!
//! **A halt compares a value**, so the kicker changes the word before it kicks; both halves, since a halt looks at the lower
//! only. It does so by an exchange that compares: the waiter may have gone on to another lock. A kick that comes too late for one
//! wait ends the next early, which is allowed. A wait may be interrupted by code that waits for another lock and uses the same
//! word: the inner wait leaves it as served for the outer, whose halt returns, and which announces itself again.
//!
//! **Cost.** An unlock of a slow lock looks at the word of every CPU in the mask, whatever lock that one waits for. First come,
//! first served is what it costs most: if the next in line has lost its CPU, all wait (study pv-qspinlock-2015).
//!
//! **Threads** park on their own word too, a futex: a wake-up is for one thread, not for all of a lock. The words are in a
//! table of the process that grows (`native::Parked`). A thread without a number spins.
//!
//! **Panics** if waiters of more than 2^32 - 1 different locks of one world (threads: one process) have halted: locks are numbered then.

use crate::kicked::kick;
use crate::pv::PvTunables;
use crate::{MakeLock, RawLock};
use alloc::sync::Arc;
use alloc::vec::Vec;
use contend_platform::{CpuId, Line, LockEvent, Nanos, Note, Ordering, Padded, Platform};
use core::sync::atomic::AtomicU32;
#[cfg(feature = "std")]
use {crate::native::Parked, contend_platform::native::Threads, core::sync::atomic::AtomicU64};

/// Some waiter halts or is about to.
const SLOW: u64 = 1;
/// One more CPU holds or waits: count + 1.
const ENTER: u64 = 2;
/// Owner + 1, count - 1; carries exactly (see [`crate::ticket`]).
const SERVE_NEXT: u64 = (1 << 32) - ENTER;

#[inline]
fn owner(state: u64) -> u32 {
    (state >> 32) as u32
}
#[inline]
fn count(state: u64) -> u32 {
    state as u32 >> 1
}

/// A waiter's word: it halts until `lock` serves `ticket`.
fn waiting_for(lock: u32, ticket: u32) -> u64 {
    u64::from(lock) << 32 | u64::from(ticket)
}
/// A waiter's word once the waiter is served: no lock, and another lower half.
fn served(ticket: u32) -> u64 {
    waiting_for(0, ticket.wrapping_add(1))
}

/// Where waiters say what they halt for.
pub trait Waiting<P: Platform> {
    /// The word of a CPU; `None`: it has none, and does not halt.
    fn word(&self, cpu: CpuId) -> Option<&P::Word>;
    /// Part `i` of the mask of CPUs that have announced themselves, CPUs `64 * i` up; `None` past the last that has a word.
    fn mask(&self, i: usize) -> Option<&P::Word>;
    /// A number for one more lock, from 1.
    fn number(&self) -> u32;
}

/// The words of CPUs `0..n`.
pub struct WaitPool<P: Platform> {
    words: Vec<Padded<P::Word>>,
    /// Eight to a line, 512 CPUs.
    masks: Vec<P::Word>,
    /// How long waiters spin before they halt, in ns, with the locks made from now on.
    pub spin_ns: Nanos,
    /// Locks made so far. Not a shared word of the algorithm: used where locks are made only.
    locks: AtomicU32,
}

/// Count one more lock.
pub(crate) fn next_number(locks: &AtomicU32) -> u32 {
    let before = locks.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    before.checked_add(1).expect("2^32 locks")
}

impl<P: Platform> WaitPool<P> {
    /// Words for CPUs `0..nr_cpus`, with the budget that all paravirtual locks have.
    pub fn new(p: &P, nr_cpus: usize) -> Self {
        const { assert!(P::NUMBERED, "waiters' words belong to CPUs, which have no numbers in this world") };
        assert!(nr_cpus <= CpuId::MAX_CPUS, "{nr_cpus} CPUs: at most {} exist", CpuId::MAX_CPUS);
        let lines: Vec<Line> = (0..nr_cpus.div_ceil(512)).map(|_| p.line()).collect();
        WaitPool {
            words: (0..nr_cpus).map(|_| Padded(p.word(p.line(), 0))).collect(),
            masks: (0..nr_cpus.div_ceil(64)).map(|i| p.word(lines[i / 8], 0)).collect(),
            spin_ns: PvTunables::DEFAULT.spin_ns,
            locks: AtomicU32::new(0),
        }
    }
}

impl<P: Platform> Waiting<P> for Arc<WaitPool<P>> {
    #[inline]
    fn word(&self, cpu: CpuId) -> Option<&P::Word> {
        Some(&self.words[cpu.index()])
    }
    #[inline]
    fn mask(&self, i: usize) -> Option<&P::Word> {
        self.masks.get(i)
    }
    fn number(&self) -> u32 {
        next_number(&self.locks)
    }
}

/// Paravirtual ticket lock; `W` is where its waiters' words are.
pub struct PvTicket<P: Platform, W = Arc<WaitPool<P>>> {
    state: P::Word,
    waiting: W,
    /// The lock's number in `waiting`; 0: it gets one when a waiter halts for the first time.
    number: AtomicU32,
    spin_ns: Nanos,
}

impl<P: Platform, W: Waiting<P>> PvTicket<P, W> {
    /// A free lock on `line` whose waiters halt after `spin_ns`.
    pub fn with_spin(p: &P, line: Line, waiting: W, spin_ns: Nanos) -> Self {
        PvTicket::after(p, line, waiting, spin_ns, 0)
    }

    /// A free lock that has been taken and released `served` times (to test the wrap of the counter).
    pub fn after(p: &P, line: Line, waiting: W, spin_ns: Nanos, served: u32) -> Self {
        let number = AtomicU32::new(waiting.number());
        PvTicket { state: p.word(line, u64::from(served) << 32), waiting, number, spin_ns }
    }

    /// What waiters call the lock: a number, since addresses are no identities here.
    fn number(&self) -> u32 {
        use core::sync::atomic::Ordering::Relaxed;
        // Relaxed: an unlocker looks only after it has acquired a waiter's announcement, which came after this.
        match self.number.load(Relaxed) {
            0 => {
                let mine = self.waiting.number();
                self.number.compare_exchange(0, mine, Relaxed, Relaxed).map_or_else(|found| found, |_| mine)
            }
            number => number,
        }
    }

    fn wait(&self, p: &P, ticket: u32) {
        let me = p.cpu();
        let Some(word) = self.waiting.word(me) else {
            let state = p.wait_until([&self.state], None, |[state]| owner(state) == ticket);
            return self.served_last(p, state.expect("waits without budget")[0]);
        };
        let mask = self.waiting.mask(me.index() / 64).expect("the CPU has a word");
        let bit = 1 << (me.index() % 64);
        // What the word held before: of a wait that this one interrupts, or of the last.
        let mut outer = None;
        let mut halts = 0;
        let state = loop {
            let mut looks = 0;
            let spun = p.wait_until([&self.state], Some(self.spin_ns), |[state]| {
                looks += 1;
                owner(state) == ticket
            });
            if halts > 0 && looks > 1 {
                p.lock_event(LockEvent::PvSpuriousWakeup, 1);
            }
            if let Some([state]) = spun {
                break state;
            }
            // Relaxed, both: the announcement publishes them. An exchange, since a late kick may be about to change it.
            let before = p.swap(word, waiting_for(self.number(), ticket), Ordering::Relaxed);
            outer.get_or_insert(before);
            p.fetch_or(mask, bit, Ordering::Relaxed);
            let found = p.fetch_or(&self.state, SLOW, Ordering::AcqRel) | SLOW;
            if owner(found) == ticket {
                break found;
            }
            let next = owner(found).wrapping_add(1) == ticket;
            p.lock_event(if next { LockEvent::PvWaitHead } else { LockEvent::PvWaitNode }, 1);
            if halts > 0 {
                p.lock_event(LockEvent::PvWaitAgain, 1);
            }
            halts += 1;
            p.halt(word, u64::from(ticket));
        };
        if let Some(outer) = outer {
            // Whoever was interrupted here must not halt: its bit goes.
            p.swap(word, served(outer as u32), Ordering::Relaxed);
            p.fetch_and(mask, !bit, Ordering::Relaxed);
        }
        self.served_last(p, state);
    }

    /// The caller was served and found `state`: when nobody is behind it, nobody halts.
    fn served_last(&self, p: &P, state: u64) {
        if state & SLOW != 0 && count(state) == 1 {
            // Relaxed, and no matter if it fails: then somebody has come, who will do it.
            let _ = p.compare_exchange(&self.state, state, state & !SLOW, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Wake the waiter with this ticket, which is served, if it halts.
    fn kick(&self, p: &P, ticket: u32) {
        let wanted = waiting_for(self.number(), ticket);
        for (i, mask) in (0..).map_while(|i| Some((i, self.waiting.mask(i)?))) {
            // Relaxed, here and below: acquired with the slow bit.
            let mut bits = p.load(mask, Ordering::Relaxed);
            while bits != 0 {
                let cpu = CpuId((i * 64) as u16 + bits.trailing_zeros() as u16);
                bits &= bits - 1;
                let Some(word) = self.waiting.word(cpu) else { continue };
                if p.load(word, Ordering::Relaxed) == wanted {
                    // It may have seen by itself that it is served, and be anywhere by now.
                    if p.compare_exchange(word, wanted, served(ticket), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                        kick(p, word, cpu, LockEvent::PvKickUnlock);
                    }
                    return;
                }
            }
        }
    }
}

impl<P: Platform, W: Waiting<P>> RawLock<P> for PvTicket<P, W> {
    const BYPASS_MAX: Option<u32> = Some(0);

    #[inline]
    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
        // Acquire: when the lock is free, this is the access that sees the last release.
        let before = p.fetch_add(&self.state, ENTER, Ordering::Acquire);
        let contended = count(before) != 0;
        if contended {
            p.note(Note::Queued);
            p.lock_event(LockEvent::LockSlowpath, 1);
            waits();
            self.wait(p, owner(before).wrapping_add(count(before)));
        }
        contended
    }

    #[inline]
    fn try_lock(&self, p: &P) -> bool {
        // Relaxed: only a guess, which the exchange confirms.
        let before = p.load(&self.state, Ordering::Relaxed);
        count(before) == 0
            && p.compare_exchange(&self.state, before, before + ENTER, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn is_locked(&self, p: &P) -> bool {
        count(p.load(&self.state, Ordering::Relaxed)) != 0
    }

    #[inline]
    fn unlock(&self, p: &P) {
        // Acquire: what a waiter wrote before it announced itself.
        let before = p.fetch_add(&self.state, SERVE_NEXT, Ordering::AcqRel);
        assert!(count(before) != 0, "{:?} releases a ticket lock that is free", p.cpu());
        if before & SLOW != 0 {
            assert!(count(before) > 1, "slow, and nobody waits");
            self.kick(p, owner(before).wrapping_add(1));
        }
    }
}

impl<P: Platform> MakeLock<P> for PvTicket<P> {
    type Pool = WaitPool<P>;

    fn pool(p: &P, nr_cpus: usize) -> WaitPool<P> {
        WaitPool::new(p, nr_cpus)
    }

    fn on_line(p: &P, line: Line, pool: &Arc<WaitPool<P>>) -> Self {
        PvTicket::with_spin(p, line, Arc::clone(pool), pool.spin_ns)
    }
}

#[cfg(feature = "std")]
impl PvTicket<Threads, Parked> {
    /// A free lock.
    pub const fn of(spin_ns: Nanos) -> Self {
        PvTicket { state: AtomicU64::new(0), waiting: Parked(()), number: AtomicU32::new(0), spin_ns }
    }
}

// `GuardSend`: the state counts, and names nobody; who kicks is not asked. `fair`: a release serves the next ticket.
mutex!(PvTicket<Threads, Parked> = PvTicket::of(PvTunables::DEFAULT.spin_ns), GuardSend, fair);
