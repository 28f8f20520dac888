//! Distributions as a few quantiles: short enough to edit.

use serde::{Deserialize, Serialize};

/// The shares at which quantiles are kept, in per cent.
const AT: [f64; 9] = [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 100.0];

/// The values at 0, 10, 25, 50, 75, 90, 95, 99 and 100 %, never falling; or one value for all. Of samples the last is not the largest but
/// what gives all the mean that they have: a straight line up to a rare large value would be much more work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quantiles(Vec<f64>);

impl Quantiles {
    /// Of samples; sorts them. Without any: 0.
    pub fn of(samples: &mut [f64]) -> Self {
        samples.sort_unstable_by(f64::total_cmp);
        let (Some(&first), Some(&last)) = (samples.first(), samples.last()) else { return Quantiles(vec![0.0]) };
        let rounded = |v: f64| (v * 1000.0).round() / 1000.0;
        if first == last {
            return Quantiles(vec![rounded(first)]);
        }
        let value = |at: f64| {
            let place = at / 100.0 * (samples.len() - 1) as f64;
            let (below, part) = (place.floor() as usize, place.fract());
            let above = samples[(below + 1).min(samples.len() - 1)];
            rounded(samples[below] + part * (above - samples[below]))
        };
        let mut all = Quantiles(AT.map(value).to_vec());
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        let (share, below) = ((AT[8] - AT[7]) / 100.0, all.0[7]);
        let rest = all.mean() - share * (below + all.0[8]) / 2.0;
        all.0[8] = rounded((2.0 * (mean - rest) / share - below).clamp(below, last));
        all
    }

    /// The values.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// The largest.
    pub fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(0.0)
    }

    /// The mean over all places.
    pub fn mean(&self) -> f64 {
        match self.0[..] {
            [only] => only,
            _ => (0..AT.len() - 1).map(|i| (AT[i + 1] - AT[i]) / 100.0 * (self.0[i] + self.0[i + 1]) / 2.0).sum(),
        }
    }

    /// What would be right, if it is wrong.
    pub fn wrong(&self) -> Option<&'static str> {
        let falls = self.0.windows(2).any(|w| w[1] < w[0]);
        let bad = self.0.iter().any(|v| !v.is_finite() || *v < 0.0 || *v > 1e12);
        (falls || bad || !matches!(self.0.len(), 1 | 9))
            .then_some("one value, or nine that do not fall: those at 0, 10, 25, 50, 75, 90, 95, 99 and 100 %")
    }

    /// The value at a place, 0 to 1; straight lines between the quantiles.
    pub fn at(&self, place: f64) -> f64 {
        if self.0.len() < AT.len() {
            return self.max();
        }
        let at = place.clamp(0.0, 1.0) * 100.0;
        let i = AT.iter().skip(1).take(AT.len() - 2).filter(|&&edge| edge <= at).count();
        self.0[i] + (at - AT[i]) / (AT[i + 1] - AT[i]) * (self.0[i + 1] - self.0[i])
    }
}
