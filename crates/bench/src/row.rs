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
    /// Acquisitions of all threads.
    pub acquisitions: u64,
    /// Acquisitions a second.
    pub throughput: f64,
    /// Jain's index of the threads' acquisitions: (sum x)^2 / (n sum x^2). 1: all equal; 1/n: one has all.
    pub jain: f64,
    /// Most acquisitions of a thread / fewest; infinite if a thread had none.
    pub max_min: f64,
    /// Percentiles of the time from asking to having, in ns. An acquisition that waits long is one sample; the threads that
    /// run meanwhile give many.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// 99.99th percentile.
    pub p9999_ns: u64,
    /// Longest wait, in ns.
    pub wait_max_ns: u64,
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

/// Jain's fairness index.
pub fn jain(counts: &[u64]) -> f64 {
    let sum: f64 = counts.iter().map(|&c| c as f64).sum();
    let squares: f64 = counts.iter().map(|&c| (c as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (counts.len() as f64 * squares) }
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
        waits: &Histogram<u64>,
        cpu_share: f64,
        switches: f64,
    ) -> Self {
        let acquisitions: u64 = counts.iter().sum();
        let (least, most) = (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
        Row {
            lock: lock.into(),
            threads: load.threads,
            hogs: load.hogs,
            repeat,
            seconds,
            acquisitions,
            throughput: acquisitions as f64 / seconds,
            jain: jain(counts),
            max_min: most as f64 / least as f64,
            p50_ns: waits.value_at_quantile(0.5),
            p99_ns: waits.value_at_quantile(0.99),
            p999_ns: waits.value_at_quantile(0.999),
            p9999_ns: waits.value_at_quantile(0.9999),
            wait_max_ns: waits.max(),
            cpu_share,
            switches,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::jain;

    #[test]
    fn jain_of_equals_and_of_one() {
        assert_eq!(jain(&[5, 5, 5, 5]), 1.0);
        assert_eq!(jain(&[8, 0, 0, 0]), 0.25);
    }
}
