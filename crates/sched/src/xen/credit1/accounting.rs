//! Credits: burnt while running, handed out every 30 ms.
//!
//! The accounting runs on one pCPU of the pool, with the pool's lock. Each active domain's fair share of the credits (300 for each
//! pCPU) goes by weight; one that could not use its share (its active vCPUs cannot run for more than all the time, or its cap is
//! less) leaves the surplus to those that come after it. Shares are rounded up, so a little more is handed out than there is.

use super::{CREDITS_PER_MS, Credit1, UNSORTED, pri};
use crate::xen::contract::{DomParams, Lend, UnitId};
use crate::xen::event::XenEvent;
use crate::xen::perf::Perf;
use contend_platform::Work;

/// Credits times this are ns of running times [`CREDITS_PER_MS`].
const NS_PER_MS: u64 = 1_000_000;

/// A domain with active vCPUs.
#[derive(Clone, Debug)]
struct Active {
    dom: u16,
    params: DomParams,
    units: Vec<UnitId>,
}

/// State under the pool's lock.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    domains: Vec<Active>,
    /// Sum of the weights of active domains, each times its active vCPUs.
    weight: u64,
    /// Credits that the active vCPUs had, together, after the last accounting.
    pub(super) balance: i64,
    /// Credits handed out by the last accounting; reports alone.
    pub(super) handed_out: u64,
}

impl Accounts {
    pub(super) fn adjust(&mut self, dom: u16, params: DomParams) {
        if let Some(active) = self.domains.iter_mut().find(|d| d.dom == dom) {
            let n = active.units.len() as u64;
            self.weight = self.weight - u64::from(active.params.weight) * n + u64::from(params.weight) * n;
            active.params = params;
        }
    }

    /// A vCPU joins; `params` are its domain's. Returns how many of its domain are active now.
    fn start(&mut self, unit: UnitId, dom: u16, params: DomParams) -> u32 {
        self.weight += u64::from(params.weight);
        if let Some(active) = self.domains.iter_mut().find(|d| d.dom == dom) {
            active.units.push(unit);
            return active.units.len() as u32;
        }
        self.domains.push(Active { dom, params, units: vec![unit] });
        1
    }
}

/// What an accounting gives the vCPUs of a domain.
struct Grant {
    /// To each vCPU.
    each: u64,
    /// A cap is set, and comes to so many credits for each vCPU.
    cap: Option<u64>,
    /// Credits of a whole slice.
    slice: i64,
}

/// The pot of an accounting.
struct Pot {
    credit: u64,
    weight: u64,
    weight_left: u64,
    /// Credits of a whole slice of one pCPU.
    slice: u64,
    /// Negative balance of the last accounting, as a positive number.
    debt: u64,
}

impl Pot {
    /// What each active vCPU of a domain gets, the cap of each, and whether the domain could use more.
    fn grant(&mut self, active: &Active) -> (Grant, bool) {
        let n = active.units.len() as u64;
        let weight = u64::from(active.params.weight) * n;
        self.weight_left -= weight;
        let mut peak = n * self.slice + (self.debt * weight).div_ceil(self.weight);
        let mut cap = None;
        if active.params.cap != 0 {
            let credit = (u64::from(active.params.cap) * self.slice).div_ceil(100);
            peak = peak.min(credit);
            cap = Some(credit.div_ceil(n));
        }
        let fair = (self.credit * weight).div_ceil(self.weight);
        let wants_more = fair < peak;
        if !wants_more && self.weight_left > 0 {
            self.credit += ((fair - peak) * self.weight).div_ceil(self.weight_left);
        }
        (Grant { each: fair.min(peak).div_ceil(n), cap, slice: self.slice as i64 }, wants_more)
    }
}

impl Credit1 {
    /// The running vCPU pays for the time since it last did.
    pub(super) fn burn<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        let now = cx.now();
        let idle = cx.with_unit(unit, |u| {
            let elapsed = now.saturating_sub(u.start);
            let due = elapsed * CREDITS_PER_MS + u.residual;
            u.credit -= (due / NS_PER_MS) as i64;
            u.residual = due % NS_PER_MS;
            u.start = u.start.max(now);
            elapsed == 0
        });
        if idle {
            cx.count(Perf::BurnCreditsT2c);
        }
    }

    /// The tick of a pCPU.
    pub(super) fn tick<C: Lend<Self>>(&self, cx: &C) {
        let cpu = cx.cpu();
        let rq = cx.rq_of(cpu);
        cx.charge(Work::Tick, 1);
        cx.lock(rq);
        if let Some(unit) = cx.curr(cpu) {
            let boosted = cx.with_unit(unit, |u| u.pri == pri::BOOST);
            if boosted {
                cx.with_unit(unit, |u| u.pri = pri::UNDER);
                cx.trace(|| XenEvent::Credit1Unboost { vcpu: cx.info(unit) });
            }
            self.burn(cx, unit);
            if !cx.with_unit(unit, |u| u.active) {
                cx.unlock(rq);
                self.start(cx, unit);
                cx.lock(rq);
            } else if self.pick(cx, unit) != cpu {
                // Somewhere is a better place: off it goes.
                cx.count(Perf::MigrateRunning);
                cx.set_migrating(unit);
                cx.tickle(cpu);
            }
        }
        if cx.mask(UNSORTED).contains(cpu) {
            cx.mask_put(UNSORTED, cpu, false);
            let walked = cx.with_rq(rq, |q| {
                q.sort();
                q.waiting.len()
            });
            cx.charge(Work::BalanceTask, walked as u64);
        }
        cx.unlock(rq);
    }

    /// A tick found the vCPU running, and it is not active: it is from now on.
    fn start<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        let vcpu = cx.info(unit);
        cx.lock_global();
        let params = cx.with_domain(vcpu.dom, |d| *d);
        let rq = cx.lock_unit(unit);
        let new = cx.with_unit(unit, |u| !std::mem::replace(&mut u.active, true));
        cx.unlock(rq);
        if new {
            let active = cx.with_global(|g| g.start(unit, vcpu.dom, params));
            cx.count(Perf::AcctVcpuActive);
            cx.trace(|| XenEvent::Credit1AcctStart { vcpu, active });
        }
        cx.unlock_global();
    }

    /// Hand out credits.
    pub(super) fn account<C: Lend<Self>>(&self, cx: &C) {
        cx.count(Perf::AcctRun);
        cx.lock_global();
        let (mut domains, weight, balance) = cx.with_global(|g| (std::mem::take(&mut g.domains), g.weight, g.balance));
        if domains.is_empty() {
            cx.count(Perf::AcctNoWork);
            cx.with_global(|g| g.balance = 0);
            cx.unlock_global();
            return;
        }
        let slice = cx.tunables().tslice / NS_PER_MS * CREDITS_PER_MS;
        let debt = balance.min(0).unsigned_abs();
        let credit = cx.cpus().len() as u64 * slice + debt;
        let mut pot = Pot { credit, weight, weight_left: weight, slice, debt };
        let (mut balance, mut handed_out, mut left) = (0, 0, 0);
        let mut wanting = false;
        let (mut sated, mut gone) = (Vec::new(), Vec::new());
        for active in &mut domains {
            let (grant, wants_more) = pot.grant(active);
            if wanting && !wants_more {
                // It comes first the next time: whoever wants more comes after those who leave something.
                cx.count(Perf::AcctReorder);
                sated.push(active.dom);
            }
            wanting |= wants_more;
            cx.charge(Work::BalanceTask, active.units.len() as u64);
            handed_out += grant.each * active.units.len() as u64;
            let before = active.units.len();
            let mut kept = Vec::with_capacity(before);
            for unit in std::mem::take(&mut active.units) {
                let (credit, stays) = self.earn(cx, unit, &grant);
                balance += credit;
                if stays {
                    kept.push(unit);
                    continue;
                }
                left += u64::from(active.params.weight);
                gone.push(unit);
            }
            active.units = kept;
            for (i, unit) in gone.drain(..).enumerate() {
                cx.count(Perf::AcctVcpuIdle);
                let active = (before - i - 1) as u32;
                cx.trace(|| XenEvent::Credit1AcctStop { vcpu: cx.info(unit), active });
            }
        }
        domains.retain(|d| !d.units.is_empty());
        domains.sort_by_key(|d| !sated.contains(&d.dom));
        cx.with_global(|g| {
            g.weight -= left;
            (g.domains, g.balance, g.handed_out) = (domains, balance, handed_out);
        });
        for cpu in cx.cpus().iter() {
            cx.mask_put(UNSORTED, cpu, true);
        }
        cx.unlock_global();
    }

    /// One vCPU gets its credits. Returns what it has then, and whether it stays active.
    fn earn<C: Lend<Self>>(&self, cx: &C, unit: UnitId, grant: &Grant) -> (i64, bool) {
        #[derive(PartialEq)]
        enum Then {
            Nothing,
            Park,
            Unpark,
        }
        let rq = cx.lock_unit(unit);
        let (floor, was) = (-grant.slice, cx.with_unit(unit, |u| (u.pri, u.parked)));
        let (credit, pri, then, clipped, stays) = cx.with_unit(unit, |u| {
            u.credit += grant.each as i64;
            let mut then = Then::Nothing;
            let (mut clipped, mut stays) = (false, true);
            if u.credit < 0 {
                u.pri = pri::OVER;
                if grant.cap.is_some_and(|cap| u.credit < -(cap as i64)) && !u.parked {
                    u.parked = true;
                    then = Then::Park;
                }
                clipped = u.credit < floor;
                u.credit = u.credit.max(floor);
            } else {
                u.pri = pri::UNDER;
                if u.parked {
                    then = Then::Unpark;
                }
                if u.credit > grant.slice {
                    // It does not use what it gets. The half is a head start for when it comes back.
                    u.credit /= 2;
                    (u.active, stays) = (false, false);
                }
            }
            (u.credit, u.pri, then, clipped, stays)
        });
        if pri != was.0 {
            cx.with_rq(rq, |q| q.set_pri(unit, pri));
        }
        cx.unlock(rq);
        if clipped {
            cx.count(Perf::AcctMinCredit);
        }
        match then {
            Then::Nothing => {}
            Then::Park => {
                cx.count(Perf::VcpuPark);
                cx.park(unit);
            }
            Then::Unpark => {
                cx.count(Perf::VcpuUnpark);
                cx.unpark(unit);
                // Only now: the wake-up that this is must not boost it.
                let rq = cx.lock_unit(unit);
                cx.with_unit(unit, |u| u.parked = false);
                cx.unlock(rq);
            }
        }
        (credit, stays)
    }
}

/// For tests of the arithmetic alone.
#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// What each vCPU of domains, (weight, cap, active vCPUs) each, gets out of `credit` where a slice is worth `slice`.
    pub fn grants(doms: &[(u16, u16, usize)], credit: u64, slice: u64) -> Vec<u64> {
        let weight = doms.iter().map(|(w, _, n)| u64::from(*w) * *n as u64).sum();
        let mut pot = Pot { credit, weight, weight_left: weight, slice, debt: 0 };
        let active = |(i, (weight, cap, n)): (usize, &(u16, u16, usize))| Active {
            dom: i as u16,
            params: DomParams { weight: *weight, cap: *cap },
            units: vec![contend_platform::TaskId(0); *n],
        };
        doms.iter().enumerate().map(active).map(|a| pot.grant(&a).0.each).collect()
    }
}
