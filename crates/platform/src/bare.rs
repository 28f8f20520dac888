//! Hardware threads without an operating system: words are atomics, every wait spins, nobody has a name.
//!
//! For algorithms that need neither queue nodes nor halting: pools of nodes are refused. [`Bare`] has no CPU numbers and no clock:
//! [`Platform::cpu`] is always 0, budgets are counted in looks, and a halt is a pause.

use crate::{CpuId, Line, Nanos, Ordering, Platform, Time};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, fence};

/// The handle; any number of them are the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bare;

/// Data guarded by a protocol outside the type system.
#[derive(Debug)]
pub struct SharedCell<T>(UnsafeCell<T>);

// SAFETY: access goes through `Platform::read` and `write`, whose contracts demand exclusion by the guarding protocol;
// the value itself may move between threads.
unsafe impl<T: Send> Sync for SharedCell<T> {}

impl<T> SharedCell<T> {
    /// Data to guard.
    pub const fn new(value: T) -> Self {
        SharedCell(UnsafeCell::new(value))
    }
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.get()
    }
}

/// The part of [`Platform`] that is the same in every world whose words are the machine's own atomics.
macro_rules! atomic_words {
    () => {
        type Word = core::sync::atomic::AtomicU64;
        type Cell<T> = $crate::bare::SharedCell<T>;

        fn line(&self) -> Line {
            Line(0)
        }
        fn word(&self, _line: Line, init: u64) -> AtomicU64 {
            AtomicU64::new(init)
        }
        fn cell<T>(&self, _line: Line, init: T) -> $crate::bare::SharedCell<T> {
            $crate::bare::SharedCell::new(init)
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
        unsafe fn read<T, R>(&self, c: &$crate::bare::SharedCell<T>, f: impl FnOnce(&T) -> R) -> R {
            // SAFETY: the caller's protocol excludes writers (contract of `Platform::read`).
            f(unsafe { &*c.as_ptr() })
        }
        #[inline]
        unsafe fn write<T, R>(&self, c: &$crate::bare::SharedCell<T>, f: impl FnOnce(&mut T) -> R) -> R {
            // SAFETY: the caller's protocol excludes every other access (contract of `Platform::write`).
            f(unsafe { &mut *c.as_ptr() })
        }
    };
}
#[cfg(feature = "std")]
pub(crate) use atomic_words;

/// What one look is taken to last: a pause instruction takes tens of cycles (estimate).
const NS_PER_LOOK: Nanos = 20;

impl Platform for Bare {
    atomic_words!();
    const NUMBERED: bool = false;

    #[inline]
    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
    #[inline]
    fn now(&self) -> Time {
        0
    }
    #[inline]
    fn wait_until<const N: usize>(
        &self,
        words: [&AtomicU64; N],
        budget: Option<Nanos>,
        mut done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        let mut left = budget.map(|ns| ns / NS_PER_LOOK);
        loop {
            let values = words.map(|w| w.load(Ordering::Acquire));
            if done(values) {
                return Some(values);
            }
            if let Some(left) = &mut left {
                *left = left.checked_sub(1)?;
            }
            core::hint::spin_loop();
        }
    }
    fn halt(&self, _w: &AtomicU64, _expected: u64) {
        core::hint::spin_loop();
    }
    fn kick(&self, _w: &AtomicU64, _target: CpuId) {}
}
