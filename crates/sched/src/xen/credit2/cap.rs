//! Caps (`c2_today`, since Xen 4.10; mechanisms E.3): a domain may run for `cap` per cent of a period in each period.
//!
//! The domain's pool holds what is left of the period, its vCPUs take quotas from it and give back what they do not use. A vCPU
//! that finds the pool empty is parked; a timer fills the pool up once a period and unparks: as many as there are quotas for, whose
//! last one was longest ago first. What was overdrawn is carried over, what was not used is not.

use super::Credit2;
use crate::xen::contract::{DomParams, Lend, Timer, UnitId};
use crate::xen::perf::Perf;
use contend_platform::{Nanos, Time};

/// Least that a vCPU takes from the pool, in ns.
const QUOTA_MIN: i64 = 500_000;

/// Timer: a domain's pool is to be filled up. `index`: the domain.
const REPLENISH: u8 = 0;
/// Timer, due at once: parked vCPUs of a domain can go on with what others gave back.
const UNPARK: u8 = 1;

/// A vCPU's share of its domain's budget.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Budget(Option<i64>);

impl Budget {
    /// None yet of a cap, or no cap.
    pub fn new(capped: bool) -> Self {
        Budget(capped.then_some(0))
    }
    /// What is left in ns, negative if overdrawn; `None`: no cap.
    pub fn left(self) -> Option<i64> {
        self.0
    }
    /// Leave nothing; returns what there was, 0 without a cap.
    pub fn take(&mut self) -> i64 {
        self.0.as_mut().map_or(0, std::mem::take)
    }
    /// Under a cap: so much more.
    fn grant(&mut self, quota: i64) {
        if let Some(left) = &mut self.0 {
            *left += quota;
        }
    }
    /// It has run for so long.
    pub fn spend(&mut self, ran: Nanos) {
        if let Some(left) = &mut self.0 {
            *left -= ran as i64;
        }
    }
}

/// A domain.
#[derive(Debug)]
pub struct Domain {
    /// Its parameters; without `c2_today` the cap is not heeded.
    pub params: DomParams,
    /// Its vCPUs, whose last quota was longest ago first.
    pub units: Vec<UnitId>,
    /// Left of the period, in ns.
    pub budget: i64,
    /// What a period gives, in ns; 0: no cap.
    pub total: i64,
    /// vCPUs that wait for budget.
    pub parked: Vec<UnitId>,
    /// When the next period begins; `None`: no timer runs.
    pub next: Option<Time>,
}

impl Domain {
    /// Without vCPUs, its pool full.
    pub fn new(params: DomParams, total: i64) -> Self {
        Domain { params, units: Vec::new(), budget: total, total, parked: Vec::new(), next: None }
    }
    /// What a vCPU takes: its even share, so that all may run at once.
    fn quota(&self) -> i64 {
        (self.total / self.units.len().max(1) as i64).max(QUOTA_MIN)
    }
    /// Settle what a vCPU has left, or overdrew, and take a new quota. `None`: the pool is empty.
    pub fn take(&mut self, unit: UnitId, left: i64) -> Option<i64> {
        self.budget += left;
        if self.budget <= 0 {
            return None;
        }
        let quota = self.quota().min(self.budget);
        self.budget -= quota;
        if let Some(at) = self.units.iter().position(|u| *u == unit) {
            self.units[at..].rotate_left(1);
        }
        Some(quota)
    }
    /// Those parked who can go on, each with its quota; all without one if there is no cap.
    pub fn unpark(&mut self) -> Vec<(UnitId, i64)> {
        let (mut free, capped) = (Vec::new(), self.total > 0);
        for unit in self.units.clone() {
            let Some(at) = self.parked.iter().position(|u| *u == unit) else { continue };
            let Some(quota) = (if capped { self.take(unit, 0) } else { Some(0) }) else { break };
            self.parked.remove(at);
            free.push((unit, quota));
        }
        free
    }
    /// `periods` have begun: nothing is saved up, debts are kept.
    pub fn replenish(&mut self, periods: i64) {
        self.budget = self.budget.saturating_add(self.total.saturating_mul(periods)).min(self.total);
    }
}

impl Credit2 {
    /// What a period gives to a domain with these parameters.
    pub(super) fn total(&self, params: DomParams) -> i64 {
        if self.conf.today { self.conf.cap_period as i64 * i64::from(params.cap) / 100 } else { 0 }
    }

    /// Has the vCPU anything to run with? If its quota is used up it takes another; if it cannot, it is parked (the flag).
    pub(super) fn has_budget<C: Lend<Self>>(&self, cx: &C, unit: UnitId) -> bool {
        let left = cx.with_unit(unit, |u| u.budget.left());
        self.tops_up(cx, unit, left)
    }

    /// The same, where it is known what is left.
    pub(super) fn tops_up<C: Lend<Self>>(&self, cx: &C, unit: UnitId, left: Option<i64>) -> bool {
        let Some(left) = left.filter(|l| *l <= 0) else { return true };
        // First the flag: who fills the pool up at this moment clears the flags of those whom it finds parked.
        cx.set_parked(unit, true);
        let quota = cx.with_domain(cx.info(unit).dom, |d| {
            let quota = d.take(unit, left);
            if quota.is_none() {
                d.parked.push(unit);
            }
            quota
        });
        cx.with_unit(unit, |u| u.budget = Budget(Some(quota.unwrap_or(0))));
        if quota.is_some() {
            cx.set_parked(unit, false);
        } else {
            cx.count(Perf::VcpuPark);
        }
        quota.is_some()
    }

    /// A vCPU stops running: the rest of its quota is its domain's again.
    pub(super) fn give_back<C: Lend<Self>>(&self, cx: &C, unit: UnitId, left: i64) {
        if left == 0 {
            return;
        }
        let dom = cx.info(unit).dom;
        let others_wait = cx.with_domain(dom, |d| {
            d.budget += left;
            d.budget > 0 && !d.parked.is_empty()
        });
        if others_wait {
            // Unparking takes their schedule locks, and one is held here.
            cx.set_timer(Timer { kind: UNPARK, index: u32::from(dom) }, cx.now());
        }
    }

    /// A domain is capped from now on: start its timer, on the calling pCPU.
    pub(super) fn start_cap<C: Lend<Self>>(&self, cx: &C, dom: u16) {
        let at = cx.now() + self.conf.cap_period;
        let start = cx.with_domain(dom, |d| {
            let start = d.total > 0 && d.next.is_none();
            if start {
                d.next = Some(at);
            }
            start
        });
        if start {
            cx.set_timer(Timer { kind: REPLENISH, index: u32::from(dom) }, at);
        }
    }

    /// They can go on. With their quotas in hand: who came first to an empty pool would be the one whose pCPU the timer runs on.
    fn unpark<C: Lend<Self>>(&self, cx: &C, parked: Vec<(UnitId, i64)>) {
        for (unit, quota) in parked {
            let rq = cx.lock_unit(unit);
            cx.with_unit(unit, |u| u.budget.grant(quota));
            cx.unlock(rq);
            cx.count(Perf::VcpuUnpark);
            cx.unpark(unit);
        }
    }

    /// The contract's `timer`.
    pub(super) fn timer_due<C: Lend<Self>>(&self, cx: &C, timer: Timer) {
        let dom = timer.index as u16;
        let (now, period) = (cx.now(), self.conf.cap_period);
        let mut again = None;
        let parked = cx.with_domain(dom, |d| {
            if timer.kind == REPLENISH {
                d.next = d.next.filter(|_| d.total > 0);
                if let Some(next) = &mut d.next {
                    let periods = now.saturating_sub(*next) / period + 1;
                    *next += periods * period;
                    again = Some(*next);
                    d.replenish(periods as i64);
                }
            }
            d.unpark()
        });
        if let Some(at) = again {
            cx.set_timer(timer, at);
        }
        self.unpark(cx, parked);
    }

    /// Parameters of a domain change.
    pub(super) fn change_domain<C: Lend<Self>>(&self, cx: &C, dom: u16, params: DomParams) {
        let total = self.total(params);
        cx.lock_global();
        let (units, parked) = cx.with_domain(dom, |d| {
            if d.total == 0 {
                d.budget = total;
            }
            (d.params, d.total) = (params, total);
            let free = if total == 0 { d.unpark() } else { Vec::new() };
            (d.units.clone(), free)
        });
        for unit in units {
            let rq = cx.lock_unit(unit);
            let old = cx.with_both(rq, unit, |r, u| {
                let old = std::mem::replace(&mut u.weight, params.weight);
                r.max_weight = r.max_weight.max(params.weight);
                if u.budget.left().is_some() != (total > 0) {
                    u.budget = Budget::new(total > 0);
                }
                old
            });
            if old != params.weight {
                self.weight_left(cx, rq, old);
            }
            cx.unlock(rq);
        }
        cx.unlock_global();
        if total > 0 {
            self.start_cap(cx, dom);
        }
        self.unpark(cx, parked);
    }
}
