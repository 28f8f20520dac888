//! The unfair byte lock: test, then test-and-set. What a guest kernel uses where its hypervisor offers no kick.
//!
//! State: the word is `0` free, `1` held.
//!
//! ```text
//! lock      0 -> 1   acquire; while 1, wait on the word
//! try_lock  0 -> 1   acquire, once
//! unlock    1 -> 0   release
//! ```
//!
//! No queue and no fairness: whoever reaches the line first wins, and a waiter may be bypassed for ever. A release
//! costs every waiter a miss. Strong where the next waiter may not be running (an overcommitted guest), weak elsewhere.

use crate::RawLock;
#[cfg(feature = "alloc")]
use crate::{MakeLock, alloc::sync::Arc};
use contend_platform::{Line, Ordering, Platform};

/// Unfair byte lock; elsewhere called test-and-test-and-set.
pub struct UnfairByte<P: Platform> {
    held: P::Word,
}

impl<P: Platform> UnfairByte<P> {
    /// A free lock on `line`.
    pub fn on(p: &P, line: Line) -> Self {
        UnfairByte { held: p.word(line, 0) }
    }
}

impl<P: Platform> RawLock<P> for UnfairByte<P> {
    #[inline]
    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
        let mut waits = Some(waits);
        while !self.try_lock(p) {
            if let Some(waits) = waits.take() {
                waits();
            }
            p.wait_until([&self.held], None, |[held]| held == 0);
        }
        waits.is_none()
    }

    #[inline]
    fn try_lock(&self, p: &P) -> bool {
        // Acquire: the release of the holder before.
        p.compare_exchange(&self.held, 0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn is_locked(&self, p: &P) -> bool {
        p.load(&self.held, Ordering::Relaxed) != 0
    }

    #[inline]
    fn unlock(&self, p: &P) {
        p.store(&self.held, 0, Ordering::Release);
    }
}

#[cfg(feature = "alloc")]
impl<P: Platform> MakeLock<P> for UnfairByte<P> {
    type Pool = ();

    fn pool(_p: &P, _nr_cpus: usize) {}

    fn on_line(p: &P, line: Line, _pool: &Arc<()>) -> Self {
        UnfairByte::on(p, line)
    }
}

// `GuardSend`: the state is a bit, which names nobody.
mutex!(UnfairByte<Threads> = UnfairByte { held: word(0) }, GuardSend, unfair);
spin_mutex!(UnfairByte<Bare> = UnfairByte { held: word(0) }, GuardSend, unfair);
