//! When a thread should give its CPU up by itself, so that it is not taken away in the middle of a critical section.
//!
//! A thread that is preempted while it holds a lock makes everybody wait for a whole round of the scheduler. A thread that
//! calls `sched_yield` where it holds nothing makes nobody wait, if it does so before its time slice is over. No system
//! call tells how much of a slice is left; but a thread that passes here now and then sees when it was away: more time has
//! gone by than it has used. So each thread knows when its present slice began.
//!
//! How long a slice may last: with n threads taking turns on c CPUs a round takes n/c slices, and whoever loses its CPU at
//! a bad moment waits a round. The slice is chosen so that a round takes [`ROUND_NS`]. n is counted: a number that all
//! threads of the process increase at the beginning of a slice grows by about n between two slices of one thread. Threads
//! that do not pass here (other programs, tasks that only compute) are not counted: a shorter slice of ours would not bring
//! the round to an end sooner.

use crate::{NEVER, Nanos, Time};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long a round of all threads should take: half of the longest wait that is aimed at (12 ms). A waiter may lose one
/// round when the holder is preempted in spite of all, and another when its own turn comes late.
const ROUND_NS: Nanos = 6_000_000;
/// Slices that would be longer are left to the operating system, whose own are hardly longer: with few threads a round
/// is short enough without, and a yield gives part of a slice away to whoever else wants the CPU.
const SLICE_NS_MAX: Nanos = 2_000_000;
/// Shorter slices are not worth their context switches (estimate: 1 to 2 µs each).
const SLICE_NS_MIN: Nanos = 50_000;
/// Of so many passages one looks at the clock.
const PASSAGES_PER_LOOK: u32 = 4;
/// A thread that did not look at the clock for this long asks whether it was away.
const GAP_NS: Nanos = 40_000;
/// It was if this much more time has gone by than it has used. Interrupts take less.
const AWAY_NS: Nanos = 20_000;

/// Slices begun by all threads.
static SLICES: AtomicU64 = AtomicU64::new(0);
/// Slices of all threads from one of a thread to its next, smoothed over the latest ones, in 1/16. Updates may get lost.
static ROUND_X16: AtomicU64 = AtomicU64::new(0);
/// Threads that have come here and live.
static THREADS: AtomicU64 = AtomicU64::new(0);

struct Slice {
    passages: Cell<u32>,
    /// The last look at the clock.
    seen: Cell<Time>,
    began: Cell<Time>,
    /// CPU time that the thread had used by then.
    used: Cell<Nanos>,
    /// How long it may last; [`NEVER`]: as long as the operating system lets it.
    length: Cell<Nanos>,
    /// [`SLICES`] when it began; 0: the thread's first is to come.
    number: Cell<u64>,
}

thread_local! {
    static SLICE: Slice = const {
        Slice {
            passages: Cell::new(0),
            seen: Cell::new(0),
            began: Cell::new(0),
            used: Cell::new(0),
            length: Cell::new(NEVER),
            number: Cell::new(0),
        }
    };
}

impl Drop for Slice {
    fn drop(&mut self) {
        if self.number.get() > 0 {
            THREADS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn cpus() -> u64 {
    static CPUS: OnceLock<u64> = OnceLock::new();
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u64))
}

/// CPU time of the calling thread; 0 where it cannot be asked for, so that every gap counts as an absence.
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

impl Slice {
    fn begin(&self, now: Time, used: Nanos) {
        let number = SLICES.fetch_add(1, Ordering::Relaxed) + 1;
        let last = self.number.replace(number);
        if last == 0 {
            // One more thread: do not wait for a whole round with slices that are too long to find out.
            let threads = THREADS.fetch_add(1, Ordering::Relaxed) + 1;
            ROUND_X16.fetch_max(16 * threads, Ordering::Relaxed);
        }
        // The length comes from others' rounds: a thread whose own was short must not be given a longer slice for it.
        let round_x16 = ROUND_X16.load(Ordering::Relaxed);
        let length = ROUND_NS * cpus() * 16 / round_x16.max(16);
        self.length.set(if length > SLICE_NS_MAX { NEVER } else { length.max(SLICE_NS_MIN) });
        if last > 0 {
            ROUND_X16.store(round_x16 - round_x16 / 16 + (number - last), Ordering::Relaxed);
        }
        self.began.set(now);
        self.used.set(used);
        self.seen.set(now);
    }

    /// Has the thread been off its CPU since its slice began?
    fn away(&self, now: Time, used: Nanos) -> bool {
        now.saturating_sub(self.began.get()) > used.saturating_sub(self.used.get()) + AWAY_NS
    }

    #[cold]
    fn after_gap(&self, now: Time) {
        let used = used();
        if self.number.get() == 0 || self.away(now, used) {
            self.begin(now, used);
        }
    }

    #[cold]
    fn end(&self, clock: impl Fn() -> Time) {
        std::thread::yield_now();
        self.begin(clock(), used());
    }
}

/// The calling thread holds no lock: yield if its slice is over.
#[inline]
pub(super) fn point(clock: impl Fn() -> Time) {
    // A thread that is being torn down has nothing to lose.
    let _ = SLICE.try_with(|slice| {
        let passages = slice.passages.get().wrapping_add(1);
        slice.passages.set(passages);
        if !passages.is_multiple_of(PASSAGES_PER_LOOK) {
            return;
        }
        let now = clock();
        if now.saturating_sub(slice.seen.get()) > GAP_NS {
            slice.after_gap(now);
        }
        slice.seen.set(now);
        if now.saturating_sub(slice.began.get()) > slice.length.get() {
            slice.end(clock);
        }
    });
}
