//! The handle of locks that any thread may take.

use super::{asymmetric_fences, futex_wait, futex_wake, slot, spin_until};
use crate::bare::atomic_words;
use crate::slices::{Rounds, Slice};
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
    asymmetric_fences!();

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
    fn yield_due(&self) -> bool {
        // A thread that is being torn down has nothing to lose.
        SLICE.try_with(|Mine(slice)| slice.passes()).unwrap_or(false)
    }
    fn yield_point(&self) {
        let _ = SLICE.try_with(|Mine(slice)| {
            if slice.is_over(&ROUNDS, cpus, self.now(), used) {
                std::thread::yield_now();
                slice.begin(&ROUNDS, cpus(), self.now(), used());
            }
        });
    }
    fn relinquish(&self) -> bool {
        // A thread that is being torn down sleeps.
        let yields = SLICE.try_with(|Mine(slice)| slice.is_ours()).unwrap_or(false);
        if yields {
            std::thread::yield_now();
        }
        yields
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

static ROUNDS: Rounds = Rounds::new();

/// A thread's slice; the thread leaves the rounds when it ends.
struct Mine(Slice);

impl Drop for Mine {
    fn drop(&mut self) {
        ROUNDS.leave(&self.0);
    }
}

thread_local! {
    static SLICE: Mine = const { Mine(Slice::new()) };
}

/// CPUs that the process may use.
fn cpus() -> u64 {
    static CPUS: OnceLock<u64> = OnceLock::new();
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u64))
}

/// CPU time of the calling thread; 0 where it cannot be asked for.
fn used() -> Nanos {
    #[cfg(target_os = "linux")]
    {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a live timespec.
        let error = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
        if error == 0 { now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 } else { 0 }
    }
    #[cfg(not(target_os = "linux"))]
    0
}
