//! The real world: OS threads play CPUs, words are atomics, a halt is a futex wait.

use crate::{CpuId, Line, Nanos, Ordering, Platform, Time};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, fence};
use std::time::{Duration, Instant};

/// One OS thread's handle. Create one per thread, with distinct CPU numbers.
#[derive(Clone, Debug)]
pub struct Native {
    cpu: CpuId,
    epoch: Instant,
}

impl Native {
    /// A handle for `cpu`, whose clock counts from `epoch` (give every thread the same one).
    pub fn new(cpu: CpuId, epoch: Instant) -> Self {
        Native { cpu, epoch }
    }
}

/// Data guarded by a protocol outside the type system.
#[derive(Debug)]
pub struct NativeCell<T>(UnsafeCell<T>);

// SAFETY: access goes through `Platform::read` and `write`, whose contracts demand exclusion by the guarding protocol;
// the value itself may move between threads.
unsafe impl<T: Send> Sync for NativeCell<T> {}

/// Spin-loop hints between two looks at the clock while a budgeted wait spins.
const SPINS_PER_CLOCK_READ: u32 = 64;
/// Spins before an unbudgeted wait begins to yield the CPU: with more threads than CPUs the writer may need it.
const SPINS_BEFORE_YIELD: u32 = 1 << 12;

impl Platform for Native {
    type Word = AtomicU64;
    type Cell<T> = NativeCell<T>;

    fn line(&self) -> Line {
        Line(0)
    }
    fn word(&self, _line: Line, init: u64) -> AtomicU64 {
        AtomicU64::new(init)
    }
    fn cell<T>(&self, _line: Line, init: T) -> NativeCell<T> {
        NativeCell(UnsafeCell::new(init))
    }
    #[inline]
    fn cpu(&self) -> CpuId {
        self.cpu
    }
    #[inline]
    fn now(&self) -> Time {
        self.epoch.elapsed().as_nanos() as Time
    }
    #[inline]
    fn load(&self, w: &AtomicU64, order: Ordering) -> u64 {
        w.load(order)
    }
    #[inline]
    fn store(&self, w: &AtomicU64, value: u64, order: Ordering) {
        w.store(value, order);
    }
    #[inline]
    fn swap(&self, w: &AtomicU64, value: u64, order: Ordering) -> u64 {
        w.swap(value, order)
    }
    #[inline]
    fn compare_exchange(
        &self,
        w: &AtomicU64,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        w.compare_exchange(current, new, success, failure)
    }
    #[inline]
    fn fetch_add(&self, w: &AtomicU64, n: u64, order: Ordering) -> u64 {
        w.fetch_add(n, order)
    }
    #[inline]
    fn fetch_or(&self, w: &AtomicU64, bits: u64, order: Ordering) -> u64 {
        w.fetch_or(bits, order)
    }
    #[inline]
    fn fetch_and(&self, w: &AtomicU64, bits: u64, order: Ordering) -> u64 {
        w.fetch_and(bits, order)
    }
    #[inline]
    fn fence(&self, order: Ordering) {
        fence(order);
    }

    #[inline]
    fn wait_until<const N: usize>(
        &self,
        words: [&AtomicU64; N],
        budget: Option<Nanos>,
        mut done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        let mut spins = 0u32;
        let mut deadline = None;
        loop {
            let values = words.map(|w| w.load(Ordering::Acquire));
            if done(values) {
                return Some(values);
            }
            spins = spins.saturating_add(1);
            if let Some(budget) = budget {
                if spins.is_multiple_of(SPINS_PER_CLOCK_READ) {
                    let now = self.now();
                    if now >= *deadline.get_or_insert(now + budget) {
                        return None;
                    }
                }
                std::hint::spin_loop();
            } else if spins > SPINS_BEFORE_YIELD {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn halt(&self, w: &AtomicU64, expected: u64) {
        futex_wait(w, expected as u32, None);
    }
    fn kick(&self, w: &AtomicU64, _target: CpuId) {
        futex_wake(w, i32::MAX);
    }

    #[inline]
    unsafe fn read<T, R>(&self, c: &NativeCell<T>, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: the caller's protocol excludes writers (contract of `Platform::read`).
        f(unsafe { &*c.0.get() })
    }
    #[inline]
    unsafe fn write<T, R>(&self, c: &NativeCell<T>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the caller's protocol excludes every other access (contract of `Platform::write`).
        f(unsafe { &mut *c.0.get() })
    }
}

/// Sleep while the low half of `w` equals `expected`, until woken or until `timeout`; may return early.
pub fn futex_wait(w: &AtomicU64, expected: u32, timeout: Option<Duration>) {
    #[cfg(target_os = "linux")]
    {
        let ts = timeout.map(|t| libc::timespec {
            tv_sec: t.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(t.subsec_nanos() as i32),
        });
        let ts = ts.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the address is that of the low 32 bits of a live atomic (see `low_half`), `ts` is null or points to a
        // live timespec; the call keeps neither.
        unsafe {
            libc::syscall(libc::SYS_futex, low_half(w), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, expected, ts);
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (w, expected);
        std::thread::sleep(timeout.unwrap_or(Duration::from_micros(50)).min(Duration::from_micros(50)));
    }
}

/// Wake up to `count` threads that sleep in [`futex_wait`] on `w`.
pub fn futex_wake(w: &AtomicU64, count: i32) {
    #[cfg(target_os = "linux")]
    // SAFETY: as in `futex_wait`.
    unsafe {
        libc::syscall(libc::SYS_futex, low_half(w), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, count);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (w, count);
}

/// The futex word: the half of the atomic that holds its low 32 bits.
#[cfg(target_os = "linux")]
fn low_half(w: &AtomicU64) -> *const u32 {
    let base = w.as_ptr().cast::<u32>().cast_const();
    if cfg!(target_endian = "big") { base.wrapping_add(1) } else { base }
}
