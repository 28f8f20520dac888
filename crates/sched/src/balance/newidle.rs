//! A CPU that is about to idle looks elsewhere first, as long as that is likely to take less than it idles.

use super::{Amount, Pull, When, decay_cost};
use crate::cpuset::Affinity;
use crate::features::Balance;
use crate::kernel::{Held, Kernel, policy_error};
use crate::looks::Looks;
use crate::policy::Policy;
use crate::rq::{NEED_RESCHED, peek_nr_running};
use contend_platform::Ordering::Relaxed;
use contend_platform::{Account, CpuId, Nanos, SchedPlatform};

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    /// schedule() found nothing on this CPU: look elsewhere, without the own lock. Returns with it held again.
    pub(crate) fn newidle_balance(&self, p: &P, held: Held) -> Held {
        let before = p.enter(Account::Balance);
        let held = self.newidle_pull(p, held);
        p.enter(before);
        held
    }

    /// The same, from whom the policy says.
    pub(crate) fn pull_by_policy(&self, p: &P, held: Held) -> Held {
        let before = p.enter(Account::Balance);
        let cpu = held.0;
        self.publish(p, &held);
        self.unlock(p, held);
        let mut failed = Vec::new();
        let mut looks = Looks::new(self, p, Affinity::ALL);
        while let Some(from) = self.policy.pull_from(&mut looks, &failed) {
            self.must_be_a_cpu(from, "pull_from");
            if from == cpu || failed.contains(&from) {
                let why = if from == cpu { "itself" } else { "again" };
                policy_error(format!("pull_from on {cpu:?} named {from:?} {why}"));
            }
            let what = Amount::Tasks(1);
            let pulled = self.pull(p, from, cpu, Pull { what, keep_hot: false, failed: 0, idle: When::NewIdle });
            if pulled.moved > 0 || self.work_has_come(p, cpu) {
                break;
            }
            failed.push(from);
        }
        let held = self.lock(p, cpu);
        p.enter(before);
        held
    }

    /// There is something to run on `cpu` after all.
    fn work_has_come(&self, p: &P, cpu: CpuId) -> bool {
        let rq = self.rq(cpu);
        peek_nr_running(p.load(&rq.peek, Relaxed)) > 0 || p.load(&rq.resched, Relaxed) & NEED_RESCHED != 0
    }

    fn newidle_pull(&self, p: &P, held: Held) -> Held {
        let era = self.features.balance;
        let cpu = held.0;
        let avg_idle = p.load(&self.rq(cpu).avg_idle, Relaxed);
        let domains = self.domains.of(cpu);
        // What was due by the intervals of a busy CPU is due by those of an idle one.
        let next = self.with_rq(p, &held, |rd| {
            let due = std::iter::zip(&rd.balance, domains).map(|(b, d)| {
                let params = self.level_params(d);
                b.last_balance + b.interval.clamp(params.min_interval, params.max_interval).max(self.tick_ns)
            });
            due.min()
        });
        if let Some(next) = next {
            if next < p.load(&self.rq(cpu).next_balance, Relaxed) {
                p.store(&self.rq(cpu).next_balance, next, Relaxed);
            }
        }
        let first_cost = self.with_learned(p, cpu, |d| d.first().map_or(0, |d| d.max_newidle_lb_cost));
        let too_short = match era {
            Balance::V6_18 => avg_idle < first_cost,
            _ => avg_idle < self.features.migration_cost_ns,
        };
        let overloaded = era == Balance::V3_6 || p.load(&self.overloaded, Relaxed) != 0;
        if too_short || !overloaded || domains.is_empty() {
            return held;
        }
        if era == Balance::V6_18 && p.load(&self.rq(cpu).ttwu_pending, Relaxed) != 0 {
            return held;
        }
        // The task that left is counted no more: not by this balance, which reads its own queue as others do, and not by
        // wakers.
        self.publish(p, &held);
        self.unlock(p, held);
        let began = p.now();
        let mut spent = 0;
        for (i, domain) in domains.iter().enumerate() {
            let max_cost = self.newidle_gate(p, cpu, i, avg_idle, spent);
            let Some(skip) = max_cost else { break };
            if skip {
                continue;
            }
            let t0 = p.now();
            let pulled = self.load_balance(p, cpu, i, domain, When::NewIdle);
            let took = p.now() - t0;
            spent += took;
            self.newidle_learn(p, cpu, i, took, pulled > 0);
            if pulled > 0 || self.work_has_come(p, cpu) {
                break;
            }
        }
        let held = self.lock(p, cpu);
        let total = p.now() - began;
        self.with_rq(p, &held, |rd| rd.max_idle_balance_cost = rd.max_idle_balance_cost.max(total.min(500_000)));
        held
    }

    /// Whether to balance a domain now: `None` ends the walk, `Some(true)` skips the domain.
    fn newidle_gate(&self, p: &P, cpu: CpuId, i: usize, avg_idle: Nanos, spent: Nanos) -> Option<bool> {
        let era = self.features.balance;
        if era == Balance::V3_6 {
            return Some(false);
        }
        let now = p.now();
        // A dice without state: the low bits of the clock, mixed.
        let dice = (now.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as u32;
        self.with_learned(p, cpu, |d| {
            let d = &mut d[i];
            decay_cost(d, now);
            let afford = avg_idle >= spent + d.max_newidle_lb_cost;
            afford.then(|| self.features.ni_random && !d.newidle.try_it(dice))
        })
    }

    fn newidle_learn(&self, p: &P, cpu: CpuId, i: usize, took: Nanos, success: bool) {
        let now = p.now();
        self.with_learned(p, cpu, |d| {
            let d = &mut d[i];
            if took > d.max_newidle_lb_cost {
                d.max_newidle_lb_cost = took;
                d.cost_decay_at = now;
            }
            d.newidle.learn(success);
        });
    }
}

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
