//! Decaying averages of load and utilisation (per-entity load tracking, 3.8 and later).
//!
//! An average moves towards what is true now with a half-life of 32 periods of 1,024 us. Linux accumulates whole
//! periods and corrects for the rest; here the closed form is used: over a time d in which the input is constant,
//! `avg = input + (avg - input) * 2^(-d / 32.768 ms)`. The power is read from a table of one half-life in 1,024 steps of
//! 32 us, made by repeated integer multiplication, so that results are the same on every machine.

use contend_platform::{Nanos, Time};

/// One table step: 32.768 ms / 1,024.
const STEP_NS: Nanos = 32_000;
const STEPS: usize = 1024;
/// 2^(-1/1024) in units of 2^-32, rounded.
const FACTOR: u64 = 4_292_061_010;

static TABLE: [u32; STEPS] = {
    let mut t = [0; STEPS];
    let mut v = u32::MAX as u64;
    let mut i = 0;
    while i < STEPS {
        t[i] = v as u32;
        v = (v * FACTOR) >> 32;
        i += 1;
    }
    t
};

/// Average that has decayed for `d` ns.
fn decay(value: u64, d: Nanos) -> u64 {
    let steps = d / STEP_NS;
    let halves = steps / STEPS as u64;
    if halves >= 63 {
        return 0;
    }
    let factor = TABLE[(steps % STEPS as u64) as usize];
    ((u128::from(value) * u128::from(factor)) >> 32) as u64 >> halves
}

/// One average, in its input's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Average {
    value: u64,
    at: Time,
}

/// Bits of the value in a packed average; the time gets the other 53 (100 days).
const PACKED_BITS: u32 = 11;
/// Fractional bits kept, so that small inputs do not stick.
const FRACTION: u32 = 10;

impl Average {
    /// An average that starts at `value`.
    pub fn new(value: u64, at: Time) -> Self {
        Average { value: value << FRACTION, at }
    }
    /// Is it up to date, as far as one step of time tells?
    #[inline]
    pub fn is_fresh(&self, now: Time) -> bool {
        now.saturating_sub(self.at) < STEP_NS
    }
    /// The input was `input` since the last update.
    #[inline]
    pub fn update(&mut self, now: Time, input: u64) {
        let d = now.saturating_sub(self.at);
        if d < STEP_NS {
            return;
        }
        self.at = now - d % STEP_NS;
        let input = input << FRACTION;
        if self.value == input {
            return;
        }
        self.value = if self.value > input {
            input + decay(self.value - input, d)
        } else {
            input - decay(input - self.value, d)
        };
    }
    /// When that was.
    pub fn updated(&self) -> Time {
        self.at
    }
    /// The average as of the last update.
    pub fn get(&self) -> u64 {
        self.value >> FRACTION
    }
    /// The average (at most 2,047) and when it was updated, in one word.
    pub fn pack(&self) -> u64 {
        self.at << PACKED_BITS | self.get().min((1 << PACKED_BITS) - 1)
    }
    /// What [`Average::pack`] packed.
    pub fn unpack(word: u64) -> Self {
        Average::new(word & ((1 << PACKED_BITS) - 1), word >> PACKED_BITS)
    }
    /// Add another average (a task arrives).
    pub fn add(&mut self, value: u64) {
        self.value += value << FRACTION;
    }
    /// Remove another average (a task leaves).
    pub fn sub(&mut self, value: u64) {
        self.value = self.value.saturating_sub(value << FRACTION);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_life_is_32_periods() {
        let mut a = Average::new(1024, 0);
        a.update(1024 * 32_000, 0);
        assert!((510..=513).contains(&a.get()), "{}", a.get());
        let mut b = Average::new(0, 0);
        b.update(10 * 32_768_000, 1024);
        assert!((1022..=1024).contains(&b.get()), "{}", b.get());
    }

    #[test]
    fn many_small_updates_equal_one_large_one() {
        let mut a = Average::new(0, 0);
        let mut b = Average::new(0, 0);
        for i in 1..=1000 {
            a.update(i * 64_000, 1024);
        }
        b.update(64_000_000, 1024);
        assert!(a.get().abs_diff(b.get()) <= 2, "{} {}", a.get(), b.get());
    }
}
