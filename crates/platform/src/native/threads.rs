//! The handle of locks that any thread may take.

use super::{asymmetric_fences, futex_wait, futex_wake, slot, spin_until, yield_if_long};
use crate::bare::atomic_words;
use crate::slices::{Clocks, Relinquish, Rounds, Slice};
use crate::ticks::Ticks;
use crate::{CpuId, Line, NEVER, Nanos, Ordering, Parting, Platform, Time};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, fence};
use std::time::{Duration, Instant};

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
    fn parting_due(&self) -> bool {
        // A thread that is being torn down has nothing to lose.
        SLICE.try_with(|Member(slice)| slice.parting_due()).unwrap_or(false)
    }
    #[inline]
    fn parting(&self) -> Parting {
        SLICE.try_with(|Member(slice)| slice.parting(&TICKS, &Mine)).unwrap_or_default()
    }
    fn part(&self, how: Parting) {
        match how {
            Parting::YieldIfOver => {
                let _ = SLICE.try_with(|Member(slice)| {
                    if slice.is_over(&ROUNDS, &Mine) {
                        std::thread::yield_now();
                        slice.begin(&ROUNDS, &Mine);
                    }
                });
            }
            Parting::PassTick => TICKS.pass(Mine.tick_period(), || {
                std::hint::spin_loop();
                Mine.tick()
            }),
        }
    }
    fn relinquish(&self, turn: u32) -> bool {
        // A thread that is being torn down waits in another way.
        let how = SLICE.try_with(|Member(slice)| slice.relinquish(turn)).ok().flatten();
        match how {
            None => return false,
            Some(Relinquish::Yield) => std::thread::yield_now(),
            Some(Relinquish::Sleep(ns)) => std::thread::sleep(Duration::from_nanos(ns)),
        }
        true
    }
    fn spun(&self, since: &mut Option<Time>) {
        yield_if_long(self.now(), since);
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
static TICKS: Ticks = Ticks::new();

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
            clock::time(libc::CLOCK_THREAD_CPUTIME_ID)
        }
        #[cfg(not(target_os = "linux"))]
        0
    }
    // Miri knows no getrusage.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn preempted(&self) -> u64 {
        // SAFETY: all zeros is a valid rusage.
        let mut used: libc::rusage = unsafe { core::mem::zeroed() };
        // SAFETY: the pointer is to a live rusage.
        let error = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut used) };
        if error == 0 { used.ru_nivcsw as u64 } else { 0 }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn preempted(&self) -> u64 {
        0
    }
    #[cfg(target_os = "linux")]
    fn tick(&self) -> (Time, Time) {
        // Only ticks advance the first.
        let stamp = clock::time(libc::CLOCK_MONOTONIC_COARSE);
        (stamp, clock::time(libc::CLOCK_MONOTONIC))
    }
    #[cfg(target_os = "linux")]
    fn tick_period(&self) -> Nanos {
        static PERIOD: OnceLock<Nanos> = OnceLock::new();
        *PERIOD.get_or_init(|| match clock::resolution(libc::CLOCK_MONOTONIC_COARSE) {
            0 => NEVER,
            period => period,
        })
    }
    // No clock shows them.
    #[cfg(not(target_os = "linux"))]
    fn tick(&self) -> (Time, Time) {
        (0, 0)
    }
    #[cfg(not(target_os = "linux"))]
    fn tick_period(&self) -> Nanos {
        NEVER
    }
}

#[cfg(target_os = "linux")]
mod clock {
    use crate::Nanos;

    /// What the clock says, in ns; 0 if there is no such clock.
    pub fn time(clock: libc::clockid_t) -> Nanos {
        // SAFETY: the pointer is to a live timespec.
        filled(|t| unsafe { libc::clock_gettime(clock, t) })
    }

    /// The clock's resolution, in ns; 0 if there is no such clock.
    pub fn resolution(clock: libc::clockid_t) -> Nanos {
        // SAFETY: the pointer is to a live timespec.
        filled(|t| unsafe { libc::clock_getres(clock, t) })
    }

    /// `fill` gets a pointer to a live timespec.
    fn filled(fill: impl FnOnce(*mut libc::timespec) -> libc::c_int) -> Nanos {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        if fill(&raw mut t) == 0 { t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64 } else { 0 }
    }
}
