//! From kick to wake-up: what the counters say of a waiter that halts.

use contend_platform::{CpuId, LockEvent, Platform};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// When the waiter of a node was kicked last. The observer's, not a word of the algorithm: where nobody counts it is there, but is
/// neither read nor written.
#[derive(Debug, Default)]
pub(crate) struct Kicked {
    at: AtomicU64,
}

impl Kicked {
    /// Give the CPU up until `state` is no longer `halted`. May return for no reason.
    #[inline]
    #[track_caller]
    pub(crate) fn halt<P: Platform>(&self, p: &P, state: &P::Word, halted: u64) {
        // 0 where nobody counts, and the compiler knows it.
        let counts = p.lock_clock() != 0;
        if counts {
            self.at.store(0, Relaxed);
        }
        p.halt(state, halted);
        if counts {
            let kicked = self.at.load(Relaxed);
            if kicked != 0 {
                p.lock_event(LockEvent::PvKickWake, 1);
                p.lock_event(LockEvent::PvLatencyWake, p.lock_clock().saturating_sub(kicked));
            }
        }
    }

    /// Wake `cpu`, whose waiter halts on `state`. The caller has changed the state.
    #[inline]
    #[track_caller]
    pub(crate) fn kick<P: Platform>(&self, p: &P, state: &P::Word, cpu: CpuId, why: LockEvent) {
        let now = p.lock_clock();
        if now != 0 {
            self.at.store(now, Relaxed);
        }
        kick(p, state, cpu, why);
    }
}

/// Wake `cpu`, whose waiter halts on `state`, and count how long that takes.
#[inline]
#[track_caller]
pub(crate) fn kick<P: Platform>(p: &P, state: &P::Word, cpu: CpuId, why: LockEvent) {
    let start = p.lock_clock();
    p.kick(state, cpu);
    p.lock_event(why, 1);
    p.lock_event(LockEvent::PvLatencyKick, p.lock_clock().saturating_sub(start));
}
