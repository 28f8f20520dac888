//! The real world: OS threads play CPUs, words are atomics, a halt is a futex wait.
//!
//! Two handles for two uses. [`Native`] is made for a known number of threads that play CPUs `0..n` (tests, the native
//! scheduler). [`Threads`] is for locks that any thread may take without a handle of its own: a thread's number is given
//! to it at its first use and freed when it ends.

use crate::bare::{SharedCell, atomic_words};
use crate::{CpuId, Line, Nanos, Ordering, Platform, Time};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, fence};
use std::time::Instant;

mod asymmetric;
#[cfg(feature = "lock-stats")]
mod counters;
mod park;
mod slot;
mod threads;

#[cfg(feature = "lock-stats")]
pub use counters::lock_events;
pub use park::{futex_wait, futex_wake};
pub use threads::Threads;

/// The fences of both handles.
macro_rules! asymmetric_fences {
    () => {
        #[inline]
        fn light_fence(&self) {
            $crate::native::asymmetric::light();
        }
        fn heavy_fence(&self) -> bool {
            $crate::native::asymmetric::heavy()
        }
    };
}
use asymmetric_fences;

/// One OS thread's handle. Create one per thread, with distinct CPU numbers. It may go to another thread, and not be shared.
#[derive(Debug)]
pub struct Native {
    cpu: CpuId,
    epoch: Instant,
    not_sync: PhantomData<Cell<()>>,
}

impl Native {
    /// A handle for `cpu`, whose clock counts from `epoch` (give every thread the same one).
    ///
    /// # Safety
    /// What belongs to a CPU (its counts of queue nodes) is not atomic. So no two handles with the same number are used at the
    /// same time with anything that both reach: what one did there happens before what the other does.
    pub unsafe fn new(cpu: CpuId, epoch: Instant) -> Self {
        Native { cpu, epoch, not_sync: PhantomData }
    }
}

/// Data guarded by a protocol outside the type system.
pub type NativeCell<T> = SharedCell<T>;

/// Spin-loop hints between two looks at the clock while a budgeted wait spins.
const SPINS_PER_CLOCK_READ: u32 = 64;
/// Spins before an unbudgeted wait begins to yield the CPU: with more threads than CPUs the writer may need it.
const SPINS_BEFORE_YIELD: u32 = 1 << 12;
/// The same for a wait in pieces, about as long (measured on epyc-2vcpu: 23.4 ns a spin).
const SPIN_NS_BEFORE_YIELD: Nanos = 96_000;

impl Platform for Native {
    atomic_words!();
    asymmetric_fences!();

    #[inline]
    fn cpu(&self) -> CpuId {
        self.cpu
    }
    #[inline]
    fn now(&self) -> Time {
        self.epoch.elapsed().as_nanos() as Time
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
    fn spun(&self, since: &mut Option<Time>) {
        yield_if_long(self.now(), since);
    }
}

/// [`Platform::spun`] of both handles.
fn yield_if_long(now: Time, since: &mut Option<Time>) {
    if now.saturating_sub(*since.get_or_insert(now)) >= SPIN_NS_BEFORE_YIELD {
        std::thread::yield_now();
    }
}

/// [`Platform::wait_until`] of both handles.
#[inline]
fn spin_until<const N: usize>(
    words: [&AtomicU64; N],
    budget: Option<Nanos>,
    now: impl Fn() -> Time,
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
                let now = now();
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
