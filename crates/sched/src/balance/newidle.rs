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
            let due = std::iter::zip(&rd.balance, domains).enumerate().map(|(i, (b, d))| {
                let params = self.level_params(d);
                let interval = b.interval.clamp(params.min_interval, params.max_interval).max(self.tick_ns);
                self.next_due(cpu, i, b, interval, &params)
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
