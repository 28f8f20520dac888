//! Credit2: Xen's second credit scheduler, with the patches of August 2016 as switches (mechanisms E.2 to E.4;
//! `docs/xen-credit2.md`).
//!
//! pCPUs share runqueues. Who runs pays credits, the more the less weight it has; the waiting vCPU with most credit runs next; when
//! who is to run has none left, all of the runqueue are given more. A vCPU that becomes runnable looks for a pCPU to tickle; load
//! moves between runqueues after resets.
//!
//! Decisions are functions of plain values: [`tickle::tickle`], [`candidate::candidate`], [`credit::runtime`], [`credit::burn`],
//! [`credit::after_reset`], [`balance::choose`], [`pick::least_loaded`]. The rest fetches what they need through the lender and
//! carries out what they say.

pub mod balance;
pub mod candidate;
pub mod cap;
pub mod credit;
pub mod load;
pub mod partition;
pub mod pick;
mod queue;
mod schedule;
pub mod state;
pub mod tickle;

#[cfg(test)]
mod tests;

use super::contract::{Adjust, Decision, DomParams, Lend, RqId, Timer, UnitId, XenPolicy};
use super::event::VcpuId;
use super::features::XenFeatures;
use super::mask::CpuMask;
use super::perf::Perf;
use cap::{Budget, Domain};
use contend_machine::Topology;
use contend_platform::CpuId;
use load::Load;
use state::{CREDIT_INIT, Conf, Rq, Unit};

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Credit2 {
    pub(super) conf: Conf,
}

impl Credit2 {
    /// With these switches, which have been checked ([`XenFeatures::check`]).
    pub fn new(features: &XenFeatures) -> Self {
        Credit2 { conf: Conf::new(features) }
    }
}

impl XenPolicy for Credit2 {
    type Rq = Rq;
    type Unit = Unit;
    /// What `prv->lock` guards here is who may look at several runqueues; the list of them does not change.
    type Global = ();
    type Domain = Domain;
    const MASKS: usize = 0;

    fn partition(&self, topo: &Topology, cpus: &CpuMask) -> Vec<RqId> {
        partition::partition(&self.conf, topo, cpus)
    }
    fn new_rq(&self, _: &Topology, _: RqId, cpus: &CpuMask) -> Rq {
        Rq::new(cpus)
    }
    fn new_global(&self, _: &Topology, _: &CpuMask) {}
    fn new_domain(&self, _: u16, params: DomParams) -> Domain {
        Domain::new(params, self.total(params))
    }
    fn new_unit(&self, _: UnitId, _: VcpuId, params: DomParams) -> Unit {
        Unit {
            weight: params.weight,
            credit: CREDIT_INIT,
            residual: 0,
            start_time: 0,
            assigned: false,
            queued: false,
            scheduled: false,
            delayed_add: false,
            yielded: false,
            migrate_to: None,
            // Of a new vCPU it is not known what it will do.
            load: Load { now: 0, avg: self.conf.load.full(1) / 2, last: 0 },
            budget: Budget::new(self.total(params) > 0),
        }
    }

    fn insert<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        let dom = cx.info(unit).dom;
        let now = cx.now();
        cx.with_unit(unit, |u| u.load.elapse(now));
        self.assign(cx, cx.rq_of(cx.processor(unit)), unit);
        cx.with_domain(dom, |d| d.units.push(unit));
        self.start_cap(cx, dom);
    }
    fn remove<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        self.deassign(cx, cx.rq_of(cx.processor(unit)), unit);
        cx.with_domain(cx.info(unit).dom, |d| {
            d.units.retain(|u| *u != unit);
            d.parked.retain(|u| *u != unit);
        });
    }

    fn schedule<C: Lend<Self>>(&self, cx: &C, curr: Option<UnitId>) -> Decision {
        self.decide(cx, curr)
    }
    fn wake<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        self.awake(cx, unit);
    }
    fn sleep<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        self.asleep(cx, unit);
    }
    fn yield_unit<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        if self.conf.yields {
            cx.count(Perf::VcpuYield);
            cx.with_unit(unit, |u| u.yielded = true);
        }
    }
    fn context_saved<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        self.saved(cx, unit);
    }
    fn pick_cpu<C: Lend<Self>>(&self, cx: &C, unit: UnitId) -> CpuId {
        self.pick(cx, unit)
    }
    fn migrate<C: Lend<Self>>(&self, cx: &C, unit: UnitId, to: CpuId) {
        self.moved(cx, unit, to);
    }
    fn timer<C: Lend<Self>>(&self, cx: &C, timer: Timer) {
        self.timer_due(cx, timer);
    }
    fn adjust<C: Lend<Self>>(&self, cx: &C, change: Adjust) {
        if let Adjust::Domain { dom, params } = change {
            self.change_domain(cx, dom, params);
        }
    }
}
