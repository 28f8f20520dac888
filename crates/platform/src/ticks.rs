//! When the next tick comes, and how to let it pass.
//!
//! A scheduler that is driven by ticks takes a CPU away at a tick. A thread that does not hold a lock when the tick comes is not
//! preempted with it. No system call tells when that is; but the operating system stamps each tick on a clock that only
//! ticks advance (Linux: `CLOCK_MONOTONIC_COARSE`), and whose resolution is their distance. The stamp is not the moment of the tick,
//! but as far from it each time, up to a slow drift: the least age at which a stamp was ever seen. All CPUs are taken to tick at once, as Linux's do
//! unless it was booted with `skew_tick`.
//!
//! This is the arithmetic: the clocks are the world's.

use crate::{NEVER, Nanos, Time};
use core::sync::atomic::{AtomicU64, Ordering};

/// A tick is near if it is due in so much time: several looks of a thread that contends for a lock (one in 10 to 15 µs with the
/// load of docs/locks-native.md), of which one has to fall into it.
const AHEAD_NS: Nanos = 40_000;
/// At most this part of the time between two ticks.
const AHEAD_SHARE: u64 = 100;
/// How much earlier than expected a tick may come: those who see a stamp first come from an interrupt.
const EARLY_NS: Nanos = 10_000;
/// How long after the stamp a CPU may take its own tick. Measured on a virtual machine: 10 to 60 µs, half of them within 10.
const LATE_NS: Nanos = 10_000;
/// Where no tick came in time, the next is expected so much later. The drift measured was 0.04 µs a second.
const CREEP_NS: Nanos = 1_000;

/// What is known of the ticks.
#[derive(Debug)]
pub struct Ticks {
    /// Least age of a stamp so far; [`NEVER`]: none was seen.
    lag: AtomicU64,
}

impl Default for Ticks {
    fn default() -> Self {
        Ticks::new()
    }
}

/// How far ahead of a tick it is near, where they come every `period`.
pub(crate) fn ahead(period: Nanos) -> Nanos {
    AHEAD_NS.min(period / AHEAD_SHARE)
}

impl Ticks {
    /// Nothing known.
    pub const fn new() -> Self {
        Ticks { lag: AtomicU64::new(NEVER) }
    }

    /// How long is it until the next tick must be reckoned with? `stamp` was that of the latest tick just before the clock said `now`; one comes every
    /// `period`. Where none is known or one is late: soon enough to ask again.
    pub fn due_in(&self, period: Nanos, (stamp, now): (Time, Time)) -> Nanos {
        let age = now.saturating_sub(stamp);
        // Relaxed: an estimate.
        let lag = self.lag.fetch_min(age, Ordering::Relaxed).min(age);
        // Saturating: where ticks never come, the period is endless.
        let due = lag.saturating_add(period - EARLY_NS.min(period));
        if age < due.saturating_add(EARLY_NS) { due.saturating_sub(age) } else { period / 2 }
    }

    /// A tick is near: spin until it has come, or is late. `clocks` are the stamp and the time, as in [`Ticks::due_in`].
    pub fn pass(&self, period: Nanos, mut clocks: impl FnMut() -> (Time, Time)) {
        let (stamp, began) = clocks();
        let end = began + ahead(period) + EARLY_NS + LATE_NS;
        let mut seen = None;
        loop {
            let (latest, now) = clocks();
            if seen.is_none() && latest != stamp {
                self.lag.fetch_min(now.saturating_sub(latest), Ordering::Relaxed);
                seen = Some(now);
            }
            if now > seen.map_or(end, |seen| seen + LATE_NS) {
                break;
            }
        }
        if seen.is_none() {
            self.lag.fetch_add(CREEP_NS, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    const PERIOD: Nanos = 4_000_000;

    /// Stamp and time at `now`, where a tick at k periods is stamped `lag` before it.
    fn clocks(now: Time, lag: Nanos) -> (Time, Time) {
        (now / PERIOD * PERIOD - lag, now)
    }

    /// Ticks whose stamps are that old, learned from looks every 13 µs.
    fn learned(lag: Nanos) -> Ticks {
        let ticks = Ticks::new();
        for now in (10 * PERIOD..200 * PERIOD).step_by(13_000) {
            ticks.due_in(PERIOD, clocks(now, lag));
        }
        ticks
    }

    #[test]
    fn the_next_tick_is_known_to_some_microseconds() {
        for lag in [0, 1_800_000, 3_990_000] {
            let ticks = learned(lag);
            let tick = 300 * PERIOD;
            for before in [15_000, 40_000, PERIOD / 2, PERIOD - 1_000] {
                let due = ticks.due_in(PERIOD, clocks(tick - before, lag));
                assert!(due <= before && due + EARLY_NS >= before - 2_000, "{lag}: {due} of {before}");
            }
        }
    }

    #[test]
    fn one_that_is_late_is_due_and_one_that_stays_away_is_not() {
        let ticks = learned(0);
        let stamp = 300 * PERIOD;
        assert_eq!(ticks.due_in(PERIOD, (stamp, stamp + PERIOD - 5_000)), 0);
        assert_eq!(ticks.due_in(PERIOD, (stamp, stamp + PERIOD + 20_000)), PERIOD / 2);
    }

    #[test]
    fn where_none_come_none_is_due() {
        assert_eq!(Ticks::new().due_in(NEVER, (0, 5_000)), NEVER - EARLY_NS);
    }

    #[test]
    fn it_is_passed_when_its_stamp_is_there() {
        let ticks = learned(0);
        let tick = 300 * PERIOD;
        let now = Cell::new(tick - 30_000);
        ticks.pass(PERIOD, || {
            now.set(now.get() + 100);
            clocks(now.get(), 0)
        });
        assert!((tick + LATE_NS..tick + LATE_NS + 1_000).contains(&now.get()), "{}", now.get() - tick);
    }

    #[test]
    fn one_that_does_not_come_is_not_waited_for_and_expected_later() {
        let ticks = learned(0);
        let before = ticks.lag.load(Ordering::Relaxed);
        let began = 300 * PERIOD - 30_000;
        let now = Cell::new(began);
        ticks.pass(PERIOD, || {
            now.set(now.get() + 100);
            (299 * PERIOD, now.get())
        });
        assert!(now.get() - began < 2 * AHEAD_NS, "{}", now.get() - began);
        assert_eq!(ticks.lag.load(Ordering::Relaxed), before + CREEP_NS);
    }

    #[test]
    fn frequent_ticks_are_not_waited_for_longer_than_their_share() {
        assert_eq!((ahead(4_000_000), ahead(1_000_000)), (40_000, 10_000));
    }
}
