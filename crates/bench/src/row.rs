//! What came of one run of one lock.

use hdrhistogram::Histogram;
use serde::Serialize;

/// One lock under one load, once.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The lock's name.
    pub lock: String,
    /// Threads on it.
    pub threads: u32,
    /// Computing threads beside them.
    pub hogs: u32,
    /// Which repetition, from 0.
    pub repeat: u32,
    /// How long it ran, in s.
    pub seconds: f64,
    /// Acquisitions of all threads: those whose waits ended within this time.
    pub acquisitions: u64,
    /// Acquisitions a second.
    pub throughput: f64,
    /// Waits under way when it ended.
    pub unfinished: u64,
    /// Jain's index of the threads' acquisitions: (sum x)^2 / (n sum x^2). 1: all equal; 1/n: one has all. `None`: there were none.
    pub jain: Option<f64>,
    /// Most acquisitions of a thread / fewest; infinite if a thread had none, NaN if all had none.
    pub max_min: f64,
    /// Percentiles of the time from asking to having, in ns. An acquisition that waits long is one sample; the threads that
    /// run meanwhile give many. `None`, here and below: there was no acquisition.
    pub p50_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile.
    pub p999_ns: Option<u64>,
    /// 99.99th percentile.
    pub p9999_ns: Option<u64>,
    /// Longest wait, in ns. One under way at the end counts with its length by then. `None`: nobody asked.
    pub wait_max_ns: Option<u64>,
    /// CPU time that the threads used on the lock's account / CPU time of the machine: 1 means that no CPU idled. NaN if
    /// not known.
    pub cpu_share: f64,
    /// Context switches of these threads a second, voluntary or not.
    pub switches: f64,
}

/// Longest wait that a histogram tells apart: 1000 s.
const WAIT_MAX_NS: u64 = 1_000_000_000_000;

/// An empty histogram of waits: 3 digits up to 1000 s.
pub fn waits() -> Histogram<u64> {
    Histogram::new_with_bounds(1, WAIT_MAX_NS, 2).expect("the bounds are in order")
}

/// What a wait is to a time that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// It ended before.
    Before,
    /// It ended within, after so long; it may have begun before.
    Ended(u64),
    /// It was under way when that time ended, since so long.
    UnderWay(u64),
}

impl Wait {
    /// A wait from `asked` to `got`; what counts is from `begin` to `end`, in any unit.
    #[inline]
    pub fn of((begin, end): (u64, u64), asked: u64, got: u64) -> Self {
        if got < begin {
            Wait::Before
        } else if got < end {
            Wait::Ended(got.saturating_sub(asked))
        } else {
            Wait::UnderWay(end.saturating_sub(asked))
        }
    }
}

/// The waits of a thread, or of several, that count.
#[derive(Clone, Debug)]
pub struct Waits {
    /// Those that ended.
    pub ended: Histogram<u64>,
    /// How many were under way at the end.
    pub unfinished: u64,
    /// The longest of those.
    pub unfinished_max: u64,
}

impl Default for Waits {
    fn default() -> Self {
        Waits { ended: waits(), unfinished: 0, unfinished_max: 0 }
    }
}

impl Waits {
    /// Count one.
    pub fn record(&mut self, wait: Wait) {
        match wait {
            Wait::Before => {}
            Wait::Ended(n) => self.ended.saturating_record(n),
            Wait::UnderWay(n) => {
                self.unfinished += 1;
                self.unfinished_max = self.unfinished_max.max(n);
            }
        }
    }
    /// Count others', whose unit is `scale` of this one's.
    pub fn add(&mut self, other: &Waits, scale: f64) {
        for v in other.ended.iter_recorded() {
            self.ended.saturating_record_n((v.value_iterated_to() as f64 * scale) as u64, v.count_at_value());
        }
        self.unfinished += other.unfinished;
        self.unfinished_max = self.unfinished_max.max((other.unfinished_max as f64 * scale) as u64);
    }
}

/// Jain's fairness index; NaN where nobody had any.
pub fn jain(counts: &[u64]) -> f64 {
    let sum: f64 = counts.iter().map(|&c| c as f64).sum();
    let squares: f64 = counts.iter().map(|&c| (c as f64).powi(2)).sum();
    sum * sum / (counts.len() as f64 * squares)
}

impl Row {
    /// From the threads' counts and waits.
    #[expect(clippy::too_many_arguments, reason = "what a run yields")]
    pub fn new(
        lock: &str,
        load: &crate::Load,
        repeat: u32,
        seconds: f64,
        counts: &[u64],
        waits: &Waits,
        cpu_share: f64,
        switches: f64,
    ) -> Self {
        let acquisitions: u64 = counts.iter().sum();
        let (least, most) = (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
        let percentile = |q| (!waits.ended.is_empty()).then(|| waits.ended.value_at_quantile(q));
        let asked = waits.unfinished > 0 || !waits.ended.is_empty();
        Row {
            lock: lock.into(),
            threads: load.threads,
            hogs: load.hogs,
            repeat,
            seconds,
            acquisitions,
            throughput: acquisitions as f64 / seconds,
            unfinished: waits.unfinished,
            jain: (acquisitions > 0).then(|| jain(counts)),
            max_min: most as f64 / least as f64,
            p50_ns: percentile(0.5),
            p99_ns: percentile(0.99),
            p999_ns: percentile(0.999),
            p9999_ns: percentile(0.9999),
            wait_max_ns: asked.then(|| waits.ended.max().max(waits.unfinished_max)),
            cpu_share,
            switches,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Row, Wait, Waits, jain};
    use crate::Load;

    #[test]
    fn jain_of_equals_and_of_one() {
        assert_eq!(jain(&[5, 5, 5, 5]), 1.0);
        assert_eq!(jain(&[8, 0, 0, 0]), 0.25);
        assert!(jain(&[0, 0]).is_nan(), "nobody had it: that is not fair");
    }

    #[test]
    fn a_wait_counts_where_it_ends() {
        let of = |asked, got| Wait::of((100, 200), asked, got);
        assert_eq!((of(10, 99), of(10, 100)), (Wait::Before, Wait::Ended(90)));
        assert_eq!(
            (of(150, 199), of(150, 200), of(20, 900)),
            (Wait::Ended(49), Wait::UnderWay(50), Wait::UnderWay(180))
        );
    }

    #[test]
    fn nothing_is_not_known_of_nothing() {
        let row = |counts: &[u64], waits: &Waits| Row::new("a", &Load::default(), 0, 1.0, counts, waits, f64::NAN, 0.0);
        let mut waits = Waits::default();
        let none = row(&[0, 0], &waits);
        assert_eq!((none.jain, none.p50_ns, none.p9999_ns, none.wait_max_ns), (None, None, None, None));
        assert!(none.max_min.is_nan());
        waits.record(Wait::UnderWay(7_000));
        let waiting = row(&[0, 0], &waits);
        assert_eq!((waiting.unfinished, waiting.p50_ns, waiting.wait_max_ns), (1, None, Some(7_000)));
        waits.record(Wait::Ended(20));
        let one = row(&[1, 0], &waits);
        assert_eq!((one.jain, one.p9999_ns, one.wait_max_ns), (Some(0.5), Some(20), Some(7_000)));
    }
}
