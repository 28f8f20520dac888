//! What each CPU did over time, in bounded memory: its sums as they stood at the borders of equal intervals.
//!
//! Nothing is kept per interval while the run goes on. A sum (an account of the ledger, or task-nanoseconds on the run queue) is noted
//! whenever its CPU's time crosses a border, and an interval is the difference of two notes: so the intervals add up to the ledger by
//! construction. A stretch that spans borders is split at them exactly; between its borders sums grow in one line, so one note does
//! for all of them. When there would be more intervals than [`intervals_max`] allows, the width doubles, and the notes of every
//! second border are dropped, which is what merging pairs means for differences. The width depends on the length of the run
//! alone: the smallest `WIDTH_MIN * 2^k` that suffices.

use contend_platform::{Account, Nanos, Time};
use std::cell::{Cell, RefCell};

/// Width of the first intervals, in ns: 1/64 ms, so that wider ones are 1, 2, 4... ms.
const WIDTH_MIN: Nanos = 15_625;
/// Intervals of a run at most...
const INTERVALS_MAX: usize = 256;
/// ...and over all CPUs: machines of more than 256 CPUs have fewer.
const ROWS_MAX: usize = 65_536;

/// How many intervals a machine of `cpus` CPUs may have: 256 up to 256 CPUs, then 65,536 over all CPUs; even.
pub fn intervals_max(cpus: usize) -> usize {
    (ROWS_MAX / cpus.max(1)).clamp(2, INTERVALS_MAX) & !1
}

/// What CPUs did in equal intervals of virtual time; the last one ends with the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Width of an interval in ns.
    pub width: Nanos,
    /// By CPU, then interval.
    pub cpus: Vec<Vec<Interval>>,
    /// [`Interval::runnable`] is known: the kernel has a run queue a CPU.
    pub has_queues: bool,
}

/// One CPU in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Time by account, in ns. The sum is the interval's width, exactly.
    pub ledger: [Nanos; Account::COUNT],
    /// Tasks on the run queue, the running one included, summed over the interval's nanoseconds: the mean times the width.
    pub runnable: Nanos,
}

/// Notes of `N` growing sums at borders.
pub(super) struct Notes<const N: usize> {
    /// The next border to note.
    next: Cell<Time>,
    /// Apart, so that the hot path has one number more beside the sums.
    at: Box<RefCell<At<N>>>,
}

struct At<const N: usize> {
    width: Nanos,
    max: usize,
    /// Borders passed: the last one is `passed * width`.
    passed: u64,
    /// In order, without gaps.
    stretches: Vec<Stretch<N>>,
}

/// Borders that one stretch of one sum crossed.
struct Stretch<const N: usize> {
    /// The first and the last of them, as multiples of the width.
    first: u64,
    last: u64,
    /// The sum that grew, by `rate` a ns.
    grows: usize,
    rate: u64,
    /// All sums at the first.
    sums: [Nanos; N],
}

impl<const N: usize> Stretch<N> {
    fn sums_at(&self, border: u64, width: Nanos) -> [Nanos; N] {
        let mut sums = self.sums;
        sums[self.grows] += self.rate * (border - self.first) * width;
        sums
    }
}

impl<const N: usize> At<N> {
    /// Double the width: of the borders 1, 2, 3... the even ones stay.
    fn double(&mut self) {
        let width = self.width;
        self.stretches.retain_mut(|s| {
            let (first, last) = (s.first.div_ceil(2), s.last / 2);
            if first <= last {
                s.sums = s.sums_at(first * 2, width);
                (s.first, s.last) = (first, last);
            }
            first <= last
        });
        self.width *= 2;
        self.passed /= 2;
    }
}

impl<const N: usize> Notes<N> {
    pub(super) fn new(max: usize) -> Self {
        let at = At { width: WIDTH_MIN, max, passed: 0, stretches: Vec::new() };
        Notes { next: Cell::new(WIDTH_MIN), at: Box::new(RefCell::new(at)) }
    }

    /// As the engine does: add `rate` for each ns from `since` to `until` to `sums[i]`. Calls come in order of time, each from where the last one ended.
    #[cfg(test)]
    fn book(&self, sums: &[Cell<Nanos>; N], i: usize, rate: u64, since: Time, until: Time) {
        if self.crosses(until) {
            self.cross(sums, i, rate, since, until);
        }
        sums[i].set(sums[i].get() + rate * (until - since));
    }

    /// Must [`Notes::cross`] be called before time up to `until` is added to a sum?
    #[inline]
    pub(super) fn crosses(&self, until: Time) -> bool {
        until > self.next.get()
    }

    /// Note the borders before `until`, which a stretch from `since` is about to cross.
    pub(super) fn cross(&self, sums: &[Cell<Nanos>; N], grows: usize, rate: u64, since: Time, until: Time) {
        let mut at = self.at.borrow_mut();
        while until > at.width.saturating_mul(at.max as u64) {
            at.double();
        }
        let (first, last) = (at.passed + 1, (until - 1) / at.width);
        if first <= last {
            let mut sums: [Nanos; N] = std::array::from_fn(|i| sums[i].get());
            sums[grows] += rate * (first * at.width - since);
            at.stretches.push(Stretch { first, last, grows, rate, sums });
            at.passed = last;
        }
        self.next.set((at.passed + 1) * at.width);
    }

    /// Width so far: it suffices for all that has been booked.
    pub(super) fn width(&self) -> Nanos {
        self.at.borrow().width
    }

    /// Sums at the borders before `end`, `width` apart, which is at least [`Notes::width`] and a power of two times that.
    pub(super) fn notes(&self, width: Nanos, end: Time) -> Vec<[Nanos; N]> {
        let mut at = self.at.borrow_mut();
        while at.width < width {
            at.double();
        }
        debug_assert_eq!(at.width, width);
        let all = at.stretches.iter().flat_map(|s| (s.first..=s.last).map(|border| s.sums_at(border, width)));
        all.take((end.saturating_sub(1) / width) as usize).collect()
    }
}

/// The length of a run queue over time. All CPUs' are dense in memory: wake-ups change those of other CPUs.
pub(super) struct QueueLength {
    length: Cell<u32>,
    since: Cell<Time>,
    /// The sum of the length over all ns so far.
    sum: [Cell<Nanos>; 1],
    pub(super) notes: Notes<1>,
}

impl QueueLength {
    pub(super) fn new(max: usize) -> Self {
        QueueLength { length: Cell::new(0), since: Cell::new(0), sum: [Cell::new(0)], notes: Notes::new(max) }
    }

    /// The length is `n` from `now` on.
    #[inline]
    pub(super) fn set(&self, n: u32, now: Time) {
        let length = self.length.replace(n);
        if length != n {
            self.book(length, now);
        }
    }

    #[inline]
    fn book(&self, length: u32, now: Time) {
        if self.notes.crosses(now) {
            self.cross(length, now);
        }
        let since = self.since.replace(now);
        self.sum[0].set(self.sum[0].get() + u64::from(length) * (now - since));
    }

    #[cold]
    #[inline(never)]
    fn cross(&self, length: u32, now: Time) {
        self.notes.cross(&self.sum, 0, u64::from(length), self.since.get(), now);
    }

    /// Book up to `end` and return the sum.
    pub(super) fn close(&self, end: Time) -> Nanos {
        self.book(self.length.get(), end);
        self.sum[0].get()
    }
}

/// Amounts between notes: `notes`, then `last`, which is what stands at the end.
pub(super) fn differences<const N: usize>(notes: &[[Nanos; N]], last: [Nanos; N]) -> Vec<[Nanos; N]> {
    let mut before = [0; N];
    let all = notes.iter().copied().chain(std::iter::once(last));
    all.map(|sums| {
        let amounts = std::array::from_fn(|i| sums[i] - before[i]);
        before = sums;
        amounts
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums() -> [Cell<Nanos>; 2] {
        [Cell::new(0), Cell::new(0)]
    }

    #[test]
    fn a_stretch_is_split_at_each_border_it_spans() {
        const W: Nanos = WIDTH_MIN;
        let (notes, sums) = (Notes::<2>::new(8), sums());
        notes.book(&sums, 0, 1, 0, 500);
        notes.book(&sums, 1, 1, 500, 3 * W + 250);
        let at = notes.notes(notes.width(), 3 * W + 250);
        assert_eq!(at, [[500, W - 500], [500, 2 * W - 500], [500, 3 * W - 500]]);
        assert_eq!(differences(&at, [500, 3 * W - 250]), [[500, W - 500], [0, W], [0, W], [0, 250]]);
    }

    #[test]
    fn a_stretch_that_ends_on_a_border_leaves_it_to_the_next() {
        const W: Nanos = WIDTH_MIN;
        let (notes, sums) = (Notes::<2>::new(8), sums());
        notes.book(&sums, 0, 1, 0, 2 * W);
        assert_eq!(notes.notes(W, 2 * W), [[W, 0]], "the end is no border");
        notes.book(&sums, 1, 1, 2 * W, 2 * W + 1);
        assert_eq!(notes.notes(W, 2 * W + 1), [[W, 0], [2 * W, 0]]);
    }

    #[test]
    fn doubling_is_the_same_as_having_begun_wider() {
        // The same bookings, once with room for all and once with little: pairs of the former are the latter.
        let (few, many, a, b) = (Notes::<2>::new(4), Notes::<2>::new(40_000), sums(), sums());
        let mut since = 0;
        for (i, step) in (1..400u64).map(|k| k * k * 7 % 60_013).enumerate() {
            few.book(&a, i % 2, 3, since, since + step);
            many.book(&b, i % 2, 3, since, since + step);
            since += step;
        }
        let width = few.width();
        assert!(width > many.width() && since <= width * 4 && since > width * 2, "{since} in intervals of {width}");
        assert_eq!(few.notes(width, since), many.notes(width, since));
    }

    #[test]
    fn one_long_stretch_needs_no_more_memory_or_time_than_the_bound() {
        let (notes, sums) = (Notes::<2>::new(4), sums());
        notes.book(&sums, 1, 1, 0, 1 << 60);
        assert!(notes.at.borrow().stretches.len() <= 4);
        assert_eq!(sums[1].get(), 1 << 60);
    }

    #[test]
    fn bound_on_rows() {
        assert_eq!([1, 256, 257, 1_024, 4_096].map(intervals_max), [256, 256, 254, 64, 16]);
    }
}
