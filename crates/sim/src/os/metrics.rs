//! What programs report: counters and latencies by name.

use crate::program::Metrics;
use contend_platform::{LockEvent, Nanos};
use std::collections::BTreeMap;

/// Samples of one name.
#[derive(Clone, Debug)]
pub struct Samples {
    /// Latencies in ns.
    pub histogram: hdrhistogram::Histogram<u64>,
}

/// An empty histogram for ns: up to about 18 minutes, three significant digits.
pub fn histogram() -> hdrhistogram::Histogram<u64> {
    hdrhistogram::Histogram::new_with_bounds(1, 1 << 40, 3).expect("the bounds are valid")
}

/// What programs reported.
#[derive(Clone, Debug, Default)]
pub struct MetricStore {
    /// Counters by name.
    pub counts: BTreeMap<&'static str, u64>,
    /// Latency samples by name.
    pub latencies: BTreeMap<&'static str, Samples>,
}

impl MetricStore {
    /// Count what happened at locks, those events that did, under their names.
    pub(crate) fn count_lock_events(&mut self, counts: [u64; LockEvent::COUNT]) {
        for (event, n) in std::iter::zip(LockEvent::ALL, counts).filter(|(_, n)| *n > 0) {
            self.count(event.name(), n);
        }
    }
}

impl Metrics for MetricStore {
    fn count(&mut self, name: &'static str, n: u64) {
        *self.counts.entry(name).or_insert(0) += n;
    }
    fn latency(&mut self, name: &'static str, ns: Nanos) {
        let samples = self.latencies.entry(name).or_insert_with(|| Samples { histogram: histogram() });
        samples.histogram.saturating_record(ns);
    }
}

/// Where programs report to during the warm-up.
pub(crate) struct Unheard;

impl Metrics for Unheard {
    fn count(&mut self, _: &'static str, _: u64) {}
    fn latency(&mut self, _: &'static str, _: Nanos) {}
}
