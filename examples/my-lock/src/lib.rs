//! A ticket lock with a waiting array (after Dice and Kogan, 2019): all who are not next in line wait on a word of their
//! own, most of the time, in an array that all locks share.
//!
//! State of a lock: `next`, the ticket that the next comer draws, and `grant`, the ticket that holds or may hold. A word of the array is a
//! count of changes and means nothing by itself: whoever sees it change looks at `grant` again.
//!
//! ```text
//! lock      mine = next++;  grant = mine                   acquire
//!           mine - grant > 1:  seen = array[mine]          far: look once more, then wait until array[mine] != seen
//!           mine - grant = 1:  wait until grant = mine     next in line
//! unlock    grant += 1;  array[grant + 1] += 1             release; who is next now comes to poll `grant`
//! ```

use contend_locks::algorithm::{MakeLock, RawLock};
use contend_platform::{Line, Note, Ordering, Platform};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Std};

/// The waiting array, shared by all locks of a world.
pub struct Array<P: Platform> {
    /// A power of two, each on a line of its own.
    words: Vec<P::Word>,
    /// Locks made so far: where in the array each begins. Not a word of the algorithm: used where locks are made only.
    locks: AtomicU64,
}

/// The lock.
pub struct Twa<P: Platform> {
    next: P::Word,
    grant: P::Word,
    array: Arc<Array<P>>,
    offset: u64,
}

impl<P: Platform> Twa<P> {
    /// Where the holder of `ticket` waits while it is far from its turn.
    fn place(&self, ticket: u64) -> &P::Word {
        let at = self.offset.wrapping_add(ticket) as usize & (self.array.words.len() - 1);
        &self.array.words[at]
    }

    /// How many are before `mine`.
    fn before(&self, p: &P, mine: u64) -> u64 {
        // Acquire: 0 takes what the last holder released.
        mine - p.load(&self.grant, Ordering::Acquire)
    }
}

impl<P: Platform> RawLock<P> for Twa<P> {
    /// First come, first served: the checkers hold the lock to it.
    const BYPASS_MAX: Option<u32> = Some(0);

    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
        // Relaxed: a ticket orders nothing but tickets.
        let mine = p.fetch_add(&self.next, 1, Ordering::Relaxed);
        // Here, before the next access: whoever draws later is behind.
        p.note(Note::Queued);
        let mut before = self.before(p, mine);
        if before == 0 {
            return false;
        }
        waits();
        while before > 1 {
            // Acquire: if this is the change that `unlock` made for me, then `grant` is seen as it was made before it.
            let seen = p.load(self.place(mine), Ordering::Acquire);
            before = self.before(p, mine);
            if before > 1 {
                p.wait_until([self.place(mine)], None, |[now]| now != seen);
            }
        }
        p.wait_until([&self.grant], None, |[grant]| grant == mine);
        true
    }

    fn try_lock(&self, p: &P) -> bool {
        let grant = p.load(&self.grant, Ordering::Acquire);
        // Only who draws the ticket that is granted already has the lock.
        p.compare_exchange(&self.next, grant, grant + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn is_locked(&self, p: &P) -> bool {
        p.load(&self.grant, Ordering::Relaxed) != p.load(&self.next, Ordering::Relaxed)
    }

    fn unlock(&self, p: &P) {
        // Relaxed: only the holder writes it.
        let granted = p.load(&self.grant, Ordering::Relaxed) + 1;
        p.store(&self.grant, granted, Ordering::Release);
        // After the store, and with Release: see `lock_with`. Who waits for another turn at the same place looks in vain.
        p.fetch_add(self.place(granted + 1), 1, Ordering::Release);
    }
}

impl<P: Platform> MakeLock<P> for Twa<P> {
    type Pool = Array<P>;

    fn pool(p: &P, nr_cpus: usize) -> Array<P> {
        let words = (0..(4 * nr_cpus).next_power_of_two()).map(|_| p.word(p.line(), 0)).collect();
        Array { words, locks: AtomicU64::new(0) }
    }

    fn on_line(p: &P, line: Line, array: &Arc<Array<P>>) -> Self {
        // Locks begin far apart in the array: those of two that are at the same ticket shall not meet there.
        let offset = array.locks.fetch_add(1, Std::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        Twa { next: p.word(line, 0), grant: p.word(line, 0), array: Arc::clone(array), offset }
    }
}
