//! Closing a book at the end of a run.
//!
//! When a run ends is known only then: at the last event before the last task's exit, or at the horizon. A CPU books its
//! private work when it comes to it, ahead of the last event by what it owes, so books may reach past the end: those of the
//! CPU that the last task exits on, and those of CPUs that gave way in the kernel, to go on later. What lies past the end are
//! the last stretches of a book, and each is taken back from what it was booked to.

use contend_platform::{Nanos, Time};
use std::cell::Cell;

/// More stretches than a CPU begins within what it may owe.
const KEPT: usize = 64;

/// The last stretches of a book.
pub(crate) struct Recent {
    /// When each began, and what it was booked to; a ring.
    ring: Box<[Cell<(Time, u8)>; KEPT]>,
    noted: Cell<usize>,
}

impl Recent {
    pub(crate) fn new() -> Self {
        Recent { ring: Box::new([const { Cell::new((0, 0)) }; KEPT]), noted: Cell::new(0) }
    }

    /// A stretch that began at `from` and was booked to `what` is over.
    #[inline]
    pub(crate) fn note(&self, from: Time, what: usize) {
        let n = self.noted.get();
        self.ring[n % KEPT].set((from, what as u8));
        self.noted.set(n + 1);
    }

    /// What is noted from here on is another book's.
    #[inline]
    pub(super) fn forget(&self) {
        self.noted.set(0);
    }

    pub(crate) fn latest_first(&self) -> impl Iterator<Item = (Time, u8)> + '_ {
        let n = self.noted.get();
        (1..=n.min(KEPT)).map(move |k| self.ring[(n - k) % KEPT].get())
    }
}

/// Take back from `sums`, which are booked up to `until`, what lies past `end`. What is left of it, zero if `stretches`, the latest
/// first, reach back to there.
pub(crate) fn take_back(
    sums: &mut [Nanos],
    stretches: impl Iterator<Item = (Time, u8)>,
    mut until: Time,
    end: Time,
) -> Nanos {
    for (from, what) in stretches {
        if until <= end {
            break;
        }
        sums[usize::from(what)] -= until - from.max(end);
        until = from;
    }
    until.saturating_sub(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A book of two accounts: stretches as (account, length), and what is noted of them.
    fn booked(stretches: &[(usize, Nanos)]) -> ([Nanos; 2], Recent, Time) {
        let (mut sums, recent, mut at) = ([0; 2], Recent::new(), 0);
        for (what, ns) in stretches {
            recent.note(at, *what);
            sums[*what] += ns;
            at += ns;
        }
        (sums, recent, at)
    }

    #[test]
    fn each_stretch_past_the_end_goes_back_to_where_it_was_booked() {
        let stretches = [(0, 100), (1, 30), (0, 20), (1, 7)];
        let sums_at = |end: Time| {
            let (mut sums, mut at) = ([0; 2], 0);
            for (what, ns) in stretches {
                sums[what] += ns.min(end.saturating_sub(at));
                at += ns;
            }
            sums
        };
        for end in 0..=157 {
            let (mut sums, recent, until) = booked(&stretches);
            assert_eq!(take_back(&mut sums, recent.latest_first(), until, end), 0);
            assert_eq!(sums, sums_at(end), "{end}");
        }
    }

    #[test]
    fn what_is_not_known_any_more_is_not_guessed() {
        let stretches = [(0, 1); KEPT + 10];
        let (mut sums, recent, until) = booked(&stretches);
        assert_eq!(take_back(&mut sums, recent.latest_first(), until, 5), 5);
    }
}
