//! Counters by the values of an enum, without simulated cost.

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
