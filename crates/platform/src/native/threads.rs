//! The handle of locks that any thread may take.

use super::{futex_wait, futex_wake, slice, slot, spin_until};
use crate::bare::atomic_words;
use crate::{CpuId, Line, Nanos, Ordering, Platform, Time};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, fence};
use std::time::Instant;

/// Whatever thread calls. [`Platform::cpu`] is the thread's number, at most 65,534, or [`Threads::NOBODY`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Threads;

impl Threads {
    /// The number of a thread that has none: it is being torn down, or 65,535 others live.
    pub const NOBODY: CpuId = CpuId(u16::MAX);
}

impl Platform for Threads {
    atomic_words!();

    #[inline]
    fn cpu(&self) -> CpuId {
        slot::mine().map_or(Threads::NOBODY, CpuId)
    }
    #[inline]
    fn now(&self) -> Time {
        static EPOCH: OnceLock<Instant> = OnceLock::new();
        EPOCH.get_or_init(Instant::now).elapsed().as_nanos() as Time
    }
    #[inline]
    fn wait_until<const N: usize>(
        &self,
        words: [&AtomicU64; N],
        budget: Option<Nanos>,
        done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        spin_until(words, budget, || self.now(), done)
    }
    fn halt(&self, w: &AtomicU64, expected: u64) {
        futex_wait(w, expected as u32, None);
    }
    fn kick(&self, w: &AtomicU64, _target: CpuId) {
        futex_wake(w, i32::MAX);
    }
    #[inline]
    fn yield_point(&self) {
        slice::point(|| self.now());
    }
    fn relinquish(&self) {
        std::thread::yield_now();
    }
    // Without the feature these are the trait's own, which do nothing.
    #[cfg(feature = "lock-stats")]
    #[inline]
    fn lock_clock(&self) -> Time {
        self.now()
    }
    #[cfg(feature = "lock-stats")]
    #[inline]
    fn lock_event(&self, event: crate::LockEvent, n: u64) {
        super::counters::count(event, n);
    }
}
