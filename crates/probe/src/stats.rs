//! A median and its spread.

/// What many repetitions of one measurement say.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The median.
    pub value: f64,
    /// The 5th percentile.
    pub lo: f64,
    /// The 95th percentile.
    pub hi: f64,
    /// How many repetitions.
    pub n: usize,
}

impl Spread {
    /// Of repetitions; `None` if there are none.
    pub fn of(samples: &[f64]) -> Option<Spread> {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|s| s.is_finite()).collect();
        if sorted.is_empty() {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        let at = |q: f64| sorted[((sorted.len() - 1) as f64 * q).round() as usize];
        Some(Spread { value: at(0.5), lo: at(0.05), hi: at(0.95), n: sorted.len() })
    }

    /// Something known exactly.
    pub fn exactly(value: f64) -> Spread {
        Spread { value, lo: value, hi: value, n: usize::MAX }
    }

    /// The sum; its range supposes the worst of both.
    pub fn plus(self, o: Spread) -> Spread {
        Spread { value: self.value + o.value, lo: self.lo + o.lo, hi: self.hi + o.hi, n: self.n.min(o.n) }
    }

    /// The difference, not below zero; its range supposes the worst of both.
    pub fn less(self, o: Spread) -> Spread {
        let hi = (self.hi - o.lo).max(0.0);
        let value = (self.value - o.value).max(0.0);
        Spread { value, lo: (self.lo - o.hi).max(0.0), hi, n: self.n.min(o.n) }
    }

    /// The same, nowhere above this.
    pub fn at_most(self, most: f64) -> Spread {
        Spread { value: self.value.min(most), lo: self.lo.min(most), hi: self.hi.min(most), n: self.n }
    }

    /// A part or a multiple.
    pub fn times(self, k: f64) -> Spread {
        Spread { value: self.value * k, lo: self.lo * k, hi: self.hi * k, n: self.n }
    }
}

/// The middle one.
pub fn median(samples: &mut [f64]) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_ignores_outliers() {
        let mut samples: Vec<f64> = (1..=99).map(f64::from).collect();
        samples.push(1e9);
        let s = Spread::of(&samples).unwrap();
        assert!((s.value - 51.0).abs() < 2.0 && s.lo < 10.0 && s.hi < 99.0, "{s:?}");
        assert_eq!(s.n, 100);
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[f64::NAN]), None);
    }

    #[test]
    fn differences_are_not_negative_and_keep_their_order() {
        let a = Spread { value: 10.0, lo: 8.0, hi: 15.0, n: 5 };
        let b = Spread { value: 12.0, lo: 9.0, hi: 14.0, n: 7 };
        let d = a.less(b);
        assert_eq!((d.value, d.lo, d.hi, d.n), (0.0, 0.0, 6.0, 5));
        assert!(d.lo <= d.value && d.value <= d.hi);
    }
}
