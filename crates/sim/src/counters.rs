//! Counters by the values of an enum, without simulated cost.

use contend_platform::{LockEvent, Time};
use std::cell::Cell;

/// A counter for each value of an enum.
#[derive(Debug)]
pub(crate) struct Counters<const N: usize>([Cell<u64>; N]);

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Counters(std::array::from_fn(|_| Cell::new(0)))
    }
}

impl<const N: usize> Counters<N> {
    /// Add `n` to counter `what`.
    pub fn add(&self, what: usize, n: u64) {
        self.0[what].set(self.0[what].get() + n);
    }
    /// All of them.
    pub fn get(&self) -> [u64; N] {
        std::array::from_fn(|i| self.0[i].get())
    }
}

/// What happened at locks after the warm-up, by [`LockEvent`].
#[derive(Debug, Default)]
pub(crate) struct LockEvents {
    /// The end of the warm-up.
    pub warmup: Cell<Time>,
    counts: Counters<{ LockEvent::COUNT }>,
}

impl LockEvents {
    /// It happened `n` times, at `now`.
    pub fn add(&self, now: Time, event: LockEvent, n: u64) {
        if now >= self.warmup.get() {
            self.counts.add(event as usize, n);
        }
    }
    /// All of them.
    pub fn get(&self) -> [u64; LockEvent::COUNT] {
        self.counts.get()
    }
}
