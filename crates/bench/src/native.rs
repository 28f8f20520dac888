//! The loop on OS threads.
//!
//! No thread is pinned to a CPU: some locks count the CPUs that they may use when they are first contended, and spin only if there are several.
//!
//! A wait is timed with the processor's clock around `lock` (two reads an acquisition, the same for every lock). Work is a
//! chain of multiplications whose speed is measured once: CPU time, not wall time. The critical section also writes two
//! lines of shared data.

use crate::contenders::{self, Contender, Visitor};
use crate::row::{Row, Wait, Waits};
use crate::{Load, LoadError};
use quanta::Clock;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::mem::offset_of;
use std::pin::Pin;
use std::sync::{Barrier, OnceLock};
use std::time::Instant;

/// Run lock `name` under `load` once.
///
/// # Errors
/// The load makes no sense, or there is no such lock.
pub fn run(name: &str, load: &Load, repeat: u32) -> Result<Row, LoadError> {
    load.check()?;
    contenders::dispatch(name, Run { name, load, repeat })
        .ok_or_else(|| LoadError::Lock(name.into(), contenders::NAMES.join(", ")))
}

/// Run a lock that is not in the list once.
///
/// # Errors
/// The load makes no sense.
pub fn run_type<C: Contender>(name: &str, load: &Load, repeat: u32) -> Result<Row, LoadError> {
    load.check()?;
    Ok(Run { name, load, repeat }.visit::<C>())
}

struct Run<'a> {
    name: &'a str,
    load: &'a Load,
    repeat: u32,
}

/// What the lock guards, beside it as in most programs: a small lock is in the first of the two lines that a critical section
/// writes, so that who has got it has got half of the data. In this order: the compiler's own would put the lock behind the data.
#[derive(Default)]
#[repr(C, align(128))]
struct Guarded<C> {
    lock: C,
    data: UnsafeCell<[u64; 16]>,
}

// SAFETY: `data` is touched with the lock held only.
unsafe impl<C: Sync> Sync for Guarded<C> {}

impl<C> Guarded<C> {
    const BESIDE: () = assert!(
        offset_of!(Self, lock) == 0 && offset_of!(Self, data) == size_of::<C>().next_multiple_of(align_of::<u64>())
    );

    /// In its place, which it does not leave any more.
    fn pinned() -> Pin<Box<Self>>
    where
        C: Default,
    {
        let () = Self::BESIDE;
        Box::pin(Guarded::default())
    }

    /// The lock.
    fn lock(self: Pin<&Self>) -> Pin<&C> {
        // SAFETY: the lock is a part of the whole, which is pinned with it: nothing takes or moves it out of there.
        unsafe { self.map_unchecked(|whole| &whole.lock) }
    }

    /// The data.
    ///
    /// # Safety
    /// The lock is held, or nobody else is there; the caller has no other reference to the data.
    #[expect(clippy::mut_from_ref, reason = "the lock makes it exclusive")]
    unsafe fn data(&self) -> &mut [u64; 16] {
        // SAFETY: passed on from the caller.
        unsafe { &mut *self.data.get() }
    }
}

/// Work that takes `1 / rounds_per_ns()` ns a round. One piece of code for all locks: where a loop lies in memory makes it some percent
/// faster or slower.
#[inline(never)]
fn work(rounds: u64) {
    let mut x = rounds | 1;
    for _ in 0..rounds {
        x = black_box(x.wrapping_mul(0x2545_f491_4f6c_dd1d));
    }
}

/// Measured once a process: the fastest of several tries, so that a busy machine does not count.
fn rounds_per_ns() -> f64 {
    static MEASURED: OnceLock<f64> = OnceLock::new();
    const ROUNDS: u64 = 200_000;
    *MEASURED.get_or_init(|| {
        let once = || {
            let start = Instant::now();
            work(ROUNDS);
            start.elapsed().as_secs_f64() * 1e9
        };
        ROUNDS as f64 / (0..20).map(|_| once()).fold(f64::INFINITY, f64::min)
    })
}

struct Thread {
    rng: Pcg64Mcg,
    /// Rounds of work, shortest and longest.
    think: (u64, u64),
    count: u64,
    /// In ticks of the clock.
    waits: Waits,
    /// By the beginning of what counts.
    used_before: Option<Used>,
    used: Used,
}

impl Thread {
    fn new(load: &Load, number: u32, think: (u64, u64)) -> Self {
        Thread {
            rng: Pcg64Mcg::seed_from_u64(load.seed << 32 | u64::from(number)),
            think,
            count: 0,
            waits: Waits::default(),
            used_before: None,
            used: Used::default(),
        }
    }

    /// After a critical section: count it, if it counts, and think. One piece of code, whatever the lock: so that no lock is compiled into it.
    #[inline(never)]
    fn between(&mut self, wait: Wait) {
        self.waits.record(wait);
        if matches!(wait, Wait::Ended(_)) {
            self.used_before.get_or_insert_with(Used::by_this_thread);
            self.count += 1;
        }
        work(self.rng.random_range(self.think.0..=self.think.1));
    }
}

/// The critical section: two lines of the shared data are written.
#[inline(never)]
fn inside(data: &mut [u64; 16], rounds: u64) {
    data[0] += 1;
    work(rounds);
    data[8] = data[0];
}

/// What a thread has used since it began.
#[derive(Clone, Copy, Default)]
struct Used {
    cpu_s: f64,
    switches: u64,
}

impl std::ops::Sub for Used {
    type Output = Used;
    fn sub(self, other: Used) -> Used {
        Used { cpu_s: self.cpu_s - other.cpu_s, switches: self.switches - other.switches }
    }
}

impl Visitor for Run<'_> {
    type Out = Row;

    fn visit<C: Contender>(self) -> Row {
        let Run { name, load, repeat } = self;
        let rounds = |ns: u64| (ns as f64 * rounds_per_ns()).round() as u64;
        let critical = rounds(load.critical_ns);
        let think = (rounds(load.think_ns.0), rounds(load.think_ns.1));
        let guarded = Guarded::<C>::pinned();
        let guarded = guarded.as_ref();
        let clock = Clock::new();
        // Begin and end of what counts, in ticks. Each thread keeps to them by itself: the main thread is one of many that
        // want a CPU and may be late.
        let ticks_per_ns = ticks_per_ns(&clock);
        let window = OnceLock::new();
        let barrier = Barrier::new((load.threads + load.hogs) as usize);
        let start = || {
            barrier.wait();
            *window.get_or_init(|| {
                let begin = clock.raw() + (load.warmup_ns as f64 * ticks_per_ns) as u64;
                (begin, begin + (load.duration_ns as f64 * ticks_per_ns) as u64)
            })
        };
        let body = |i: u32| {
            let mut mine = Thread::new(load, i, think);
            let (begin, end) = start();
            loop {
                let asked = clock.raw();
                if asked >= end {
                    break;
                }
                let wait = guarded.lock().with(|| {
                    let wait = clock.raw().saturating_sub(asked);
                    // Who has waited past the end only passes the lock on.
                    let rounds = if asked + wait < end { critical } else { 0 };
                    // SAFETY: the lock is held.
                    inside(unsafe { guarded.data() }, rounds);
                    wait
                });
                mine.between(Wait::of((begin, end), asked, asked + wait));
            }
            mine.used = mine.used_before.map_or_else(Used::default, |before| Used::by_this_thread() - before);
            mine
        };
        let hog = || {
            let (_, end) = start();
            while clock.raw() < end {
                work(1000);
            }
        };
        let threads: Vec<Thread> = std::thread::scope(|scope| {
            let (body, hog) = (&body, &hog);
            let threads: Vec<_> = (0..load.threads).map(|i| scope.spawn(move || body(i))).collect();
            (0..load.hogs).for_each(|_| drop(scope.spawn(hog)));
            threads.into_iter().map(|t| t.join().expect("benchmark threads do not panic")).collect()
        });
        // SAFETY: the threads are gone.
        let inside = unsafe { guarded.data()[0] };
        let counts: Vec<u64> = threads.iter().map(|t| t.count).collect();
        assert!(inside >= counts.iter().sum::<u64>(), "{name} let two threads in");
        let mut all = Waits::default();
        threads.iter().for_each(|t| all.add(&t.waits, 1.0 / ticks_per_ns));
        let seconds = load.duration_ns as f64 * 1e-9;
        let cpu_share = threads.iter().map(|t| t.used.cpu_s).sum::<f64>() / seconds / cpus();
        let switches = threads.iter().map(|t| t.used.switches).sum::<u64>() as f64 / seconds;
        Row::new(name, load, repeat, seconds, &counts, &all, cpu_share, switches)
    }
}

/// Speed of the clock.
fn ticks_per_ns(clock: &Clock) -> f64 {
    const TICKS: u64 = 1 << 40;
    TICKS as f64 / clock.delta_as_nanos(0, TICKS) as f64
}

impl Used {
    fn by_this_thread() -> Self {
        // SAFETY: all zeros is a valid rusage.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        #[cfg(target_os = "linux")]
        // SAFETY: the pointer is to a live rusage.
        unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, &raw mut used);
        }
        let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
        Used {
            cpu_s: seconds(used.ru_utime) + seconds(used.ru_stime),
            switches: (used.ru_nvcsw + used.ru_nivcsw) as u64,
        }
    }
}

/// CPUs that this process may use.
fn cpus() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64)
}
