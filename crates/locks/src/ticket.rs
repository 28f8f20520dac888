//! The ticket lock: first come, first served, in one word.
//!
//! State: `(owner, count)`, 32 bits each. `owner` is the ticket being served, `count` how many CPUs hold or wait. The
//! next free ticket is `owner + count` (modulo 2^32) and needs no field of its own.
//!
//! ```text
//! lock      (o, c) -> (o, c+1)      acquire; my ticket is o+c; served at once if c == 0, else wait until owner == o+c
//! try_lock  (o, 0) -> (o, 1)        acquire, once
//! unlock    (o, c) -> (o+1, c-1)    release; serves ticket o+1 if somebody drew it
//! ```
//!
//! Kernels keep `owner` and `next` as two halves and add to one half by a smaller access; accesses of mixed size do not
//! fit Rust's memory model or loom, and adding 1 to a lower half in a whole word carries into the upper one after 2^32
//! acquisitions. With `count` instead of `next` the release is one addition, `2^32 - 1`: it carries exactly, because
//! `c >= 1`, and the overflow of `owner` falls off the top of the word.
//!
//! All waiters poll the one word: a release costs each of them a miss, so hand-over grows with their number.

use crate::RawLock;
#[cfg(feature = "alloc")]
use crate::{MakeLock, alloc::sync::Arc};
use contend_platform::{Line, Note, Ordering, Platform};

/// One more CPU holds or waits.
const ENTER: u64 = 1;
/// The next ticket is served and one CPU fewer is there: owner + 1, count - 1.
const SERVE_NEXT: u64 = (1 << 32) - 1;

#[inline]
fn owner(state: u64) -> u32 {
    (state >> 32) as u32
}
#[inline]
fn count(state: u64) -> u32 {
    state as u32
}

/// Ticket lock.
pub struct Ticket<P: Platform> {
    state: P::Word,
}

impl<P: Platform> Ticket<P> {
    /// A free lock on a line of its own.
    pub fn new(p: &P) -> Self {
        Ticket::after(p, p.line(), 0)
    }

    /// A free lock on `line` that has been taken and released `served` times (to test the wrap of the counter).
    pub fn after(p: &P, line: Line, served: u32) -> Self {
        Ticket { state: p.word(line, u64::from(served) << 32) }
    }
}

impl<P: Platform> RawLock<P> for Ticket<P> {
    const BYPASS_MAX: Option<u32> = Some(0);

    #[inline]
    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
        // Acquire: when the lock is free, this is the access that sees the last release.
        let before = p.fetch_add(&self.state, ENTER, Ordering::Acquire);
        let contended = count(before) != 0;
        if contended {
            p.note(Note::Queued);
            waits();
            let ticket = owner(before).wrapping_add(count(before));
            // Acquires the release that served the ticket.
            p.wait_until([&self.state], None, |[state]| owner(state) == ticket);
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
        let before = p.fetch_add(&self.state, SERVE_NEXT, Ordering::Release);
        assert!(count(before) != 0, "{:?} releases a ticket lock that is free", p.cpu());
    }
}

#[cfg(feature = "alloc")]
impl<P: Platform> MakeLock<P> for Ticket<P> {
    type Pool = ();

    fn pool(_p: &P, _nr_cpus: usize) {}

    fn on_line(p: &P, line: Line, _pool: &Arc<()>) -> Self {
        Ticket::after(p, line, 0)
    }
}

// `GuardSend`: the state counts, and names nobody. `fair`: a release serves the next ticket.
mutex!(Ticket<Threads> = Ticket { state: word(0) }, GuardSend, fair);
spin_mutex!(Ticket<Bare> = Ticket { state: word(0) }, GuardSend, fair);
