//! Several locks at once: two run queues, and a task that may move while its run queue is being locked.
//!
//! Kernels order two run-queue locks by address. Addresses are no identities here (nothing may depend on them, so that
//! a run repeats exactly); the CPU number is the order.

use crate::RawLock;
use contend_platform::{CpuId, Ordering, Platform};

/// What the two locks of a pair belong to, and the lock itself.
pub type PairGuarded<'a, L> = (CpuId, &'a L);

/// Take both locks, the lower CPU's first; one if they are the same. Any number of CPUs may do this at once, whatever
/// the order of their arguments: a wait always is for a lock above all that are held, so waits form no cycle.
#[inline]
pub fn lock_pair<P: Platform, L: RawLock<P>>(p: &P, a: PairGuarded<'_, L>, b: PairGuarded<'_, L>) {
    if a.0 == b.0 {
        a.1.lock(p);
    } else {
        let (first, second) = if a.0 < b.0 { (a.1, b.1) } else { (b.1, a.1) };
        first.lock(p);
        second.lock(p);
    }
}

/// Release what [`lock_pair`] took.
#[inline]
pub fn unlock_pair<P: Platform, L: RawLock<P>>(p: &P, a: PairGuarded<'_, L>, b: PairGuarded<'_, L>) {
    a.1.unlock(p);
    if a.0 != b.0 {
        b.1.unlock(p);
    }
}

/// Lock the run queue of a task whose CPU, `place`, may change while one waits: `place` is written only with the locks of
/// both the old and the new CPU held, or by one who otherwise excludes the caller; so it cannot change once the lock it
/// names is held. Returns that CPU.
#[inline]
pub fn lock_mover<'a, P, L>(p: &P, place: &P::Word, lock_of: impl Fn(CpuId) -> &'a L) -> CpuId
where
    P: Platform,
    L: RawLock<P> + 'a,
{
    loop {
        // Relaxed: a guess; the lock orders the second look.
        let cpu = p.load(place, Ordering::Relaxed);
        let lock = lock_of(CpuId(cpu as u16));
        lock.lock(p);
        if p.load(place, Ordering::Relaxed) == cpu {
            return CpuId(cpu as u16);
        }
        lock.unlock(p);
    }
}
