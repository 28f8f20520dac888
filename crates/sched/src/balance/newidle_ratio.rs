//! The dice of newidle balancing (NI_RANDOM) and what it is weighed by (docs/internals/balancing.md).

/// How often newidle balancing of a domain pulls something, learned from those that the dice let be tried (NI_RANDOM).
///
/// Those left out count as well, as ones that pulled nothing; one that pulled counts for all that were left out beside it. So what is
/// learned is what trying each time would bring, and how fast does not depend on how many are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewidleRatio {
    ratio: u32,
    calls: u32,
    pulled: u32,
}

impl NewidleRatio {
    /// Calls until the ratio is taken anew; half of them are kept for the next.
    const CALLS: u32 = 1024;

    /// As if it had been `ratio` of 1,024 before.
    pub fn new(ratio: u32) -> Self {
        NewidleRatio { ratio, calls: Self::CALLS / 2, pulled: ratio / 2 }
    }

    /// Of 1,024 throws of the dice, how many let it be tried: never none, so that it can learn.
    fn chances(self) -> u32 {
        self.ratio + 2
    }

    /// Whether `dice` (0 to 1023) lets a balance be tried. One that is not is done with.
    pub fn try_it(&mut self, dice: u32) -> bool {
        let tried = dice < self.chances();
        if !tried {
            self.count(0);
        }
        tried
    }

    /// What came of one that was tried.
    pub fn learn(&mut self, pulled: bool) {
        let chances = self.chances().min(Self::CALLS);
        self.count(if pulled { (Self::CALLS + chances / 2) / chances } else { 0 });
    }

    fn count(&mut self, pulled: u32) {
        self.calls += 1;
        self.pulled += pulled;
        if self.calls >= Self::CALLS {
            self.ratio = self.pulled.min(Self::CALLS);
            self.calls /= 2;
            self.pulled /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::NewidleRatio;

    /// Balances of which one in `one_in` would pull something, with an even dice; returns how many were tried of the last `last`.
    fn tried(ratio: &mut NewidleRatio, calls: u32, one_in: u32, last: u32) -> u32 {
        let mut tried = 0;
        for call in 0..calls {
            // All throws, in a mixed order.
            if ratio.try_it(call.wrapping_mul(421) % 1024) {
                tried += u32::from(call + last >= calls);
                ratio.learn(call % one_in == 0);
            }
        }
        tried
    }

    /// Wherever it begins, after a few thousand calls about as many are tried as would pull something.
    #[test]
    fn tries_as_often_as_it_pulls() {
        for (one_in, share) in [(1, 1.0), (2, 0.5), (7, 1.0 / 7.0), (31, 1.0 / 31.0)] {
            for begin in [0, 512, 1024] {
                let mut ratio = NewidleRatio::new(begin);
                let found = f64::from(tried(&mut ratio, 60_000, one_in, 40_000)) / 40_000.0;
                assert!(found > 0.6 * share && found < 1.6 * share + 0.01, "1 in {one_in} from {begin}: {found}");
            }
        }
    }

    /// How soon it learns does not depend on how many are tried: those that are left out count.
    #[test]
    fn what_is_left_out_counts() {
        for begin in [8, 512, 1000] {
            let mut ratio = NewidleRatio::new(begin);
            (0..512 * 12).for_each(|call: u32| {
                if ratio.try_it(call.wrapping_mul(421) % 1024) {
                    ratio.learn(false);
                }
            });
            assert_eq!(ratio.ratio, 0, "nothing was ever pulled, from {begin}");
            // And still one in a few hundred is tried.
            assert!((0..1024).any(|dice| ratio.try_it(dice)));
        }
    }
}
