//! The handle of locks that any thread may take.

use super::{asymmetric_fences, futex_wait, futex_wake, slot, spin_until};
use crate::bare::atomic_words;
use crate::slices::{Clocks, Rounds, Slice};
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
        SLICE.try_with(|Member(slice)| slice.passes()).unwrap_or(false)
    }
    #[inline]
    fn yield_near(&self) -> bool {
        SLICE.try_with(|Member(slice)| slice.waits(tick::near)).unwrap_or(false)
    }
    fn yield_point(&self) {
        let _ = SLICE.try_with(|Member(slice)| {
            if slice.is_over(&ROUNDS, &Mine) {
                std::thread::yield_now();
                slice.begin(&ROUNDS, &Mine);
            } else if slice.has_to_wait() {
                tick::pass();
            }
        });
    }
    fn relinquish(&self) -> bool {
        // A thread that is being torn down sleeps.
        let yields = SLICE.try_with(|Member(slice)| slice.is_ours()).unwrap_or(false);
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
struct Member(Slice);

impl Drop for Member {
    fn drop(&mut self) {
        ROUNDS.leave(&self.0);
    }
}

thread_local! {
    static SLICE: Member = const { Member(Slice::new()) };
}

/// The calling thread's clocks.
struct Mine;

impl Clocks for Mine {
    fn cpus(&self) -> u64 {
        static CPUS: OnceLock<u64> = OnceLock::new();
        *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u64))
    }
    #[inline]
    fn now(&self) -> Time {
        Threads.now()
    }
    fn used(&self) -> Nanos {
        #[cfg(target_os = "linux")]
        {
            clock::ask(libc::clock_gettime, libc::CLOCK_THREAD_CPUTIME_ID)
        }
        #[cfg(not(target_os = "linux"))]
        0
    }
    fn preempted(&self) -> u64 {
        #[cfg(target_os = "linux")]
        {
            // SAFETY: all zeros is a valid rusage.
            let mut used: libc::rusage = unsafe { core::mem::zeroed() };
            // SAFETY: the pointer is to a live rusage.
            let error = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut used) };
            if error == 0 { used.ru_nivcsw as u64 } else { 0 }
        }
        #[cfg(not(target_os = "linux"))]
        0
    }
}

#[cfg(target_os = "linux")]
mod clock {
    use crate::Nanos;

    /// One of the calls that fill in a time of a clock.
    type Call = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

    /// The answer in ns; 0 if there is no such clock.
    pub fn ask(call: Call, clock: libc::clockid_t) -> Nanos {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `call` is one of libc's two calls of this signature that are used here (`clock_gettime`, `clock_getres`), which
        // write a timespec; the pointer is to a live one.
        let error = unsafe { call(clock, &raw mut t) };
        if error == 0 { t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64 } else { 0 }
    }
}

/// The ticks of the operating system, where it has a clock that shows them.
#[cfg(target_os = "linux")]
mod tick {
    use super::clock::ask;
    use crate::ticks::Ticks;
    use crate::{Nanos, Time};
    use std::sync::OnceLock;

    static TICKS: Ticks = Ticks::new();

    /// The stamp of the latest tick, and the time.
    fn clocks() -> (Time, Time) {
        let stamp = ask(libc::clock_gettime, libc::CLOCK_MONOTONIC_COARSE);
        (stamp, ask(libc::clock_gettime, libc::CLOCK_MONOTONIC))
    }

    fn period() -> Nanos {
        static PERIOD: OnceLock<Nanos> = OnceLock::new();
        *PERIOD.get_or_init(|| ask(libc::clock_getres, libc::CLOCK_MONOTONIC_COARSE))
    }

    pub fn near() -> bool {
        let (stamp, now) = clocks();
        period() > 0 && TICKS.near(stamp, now, period())
    }

    #[cold]
    pub fn pass() {
        TICKS.pass(period(), || {
            std::hint::spin_loop();
            clocks()
        });
    }
}

#[cfg(not(target_os = "linux"))]
mod tick {
    pub fn near() -> bool {
        false
    }
    pub fn pass() {}
}
