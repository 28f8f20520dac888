//! Where a vCPU belongs: the least loaded runqueue that it may use, and a pCPU in it (mechanisms E.2; patch 18).

use super::Credit2;
use super::balance::balancing;
use crate::xen::contract::{Lend, RqId, UnitId};
use crate::xen::event::XenEvent;
use crate::xen::mask::CpuMask;
use crate::xen::perf::Perf;
use contend_platform::{CpuId, Work};

/// A runqueue that could be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are named for what they are; comments say more where there is more")]
pub struct Seen {
    pub rq: RqId,
    /// Its load as balancing sees it, without the vCPU.
    pub b_avgload: i64,
    /// It has a pCPU that the vCPU may use, or prefers.
    pub hard: bool,
    pub soft: bool,
}

/// The least loaded one: of those with a pCPU that the vCPU prefers, if there are any and `soft` steps are of use.
pub fn least_loaded(seen: &[Seen], soft: bool) -> Option<Seen> {
    // The first of equals.
    let least = |f: &dyn Fn(&&Seen) -> bool| seen.iter().filter(f).min_by_key(|s| s.b_avgload).copied();
    if soft && let Some(best) = least(&|s| s.soft) {
        return Some(best);
    }
    least(&|s| s.hard)
}

/// Without looking at runqueues: the own pCPU, one of the own runqueue, any; within soft affinity first if `soft` is given (as far
/// as the own runqueue goes: patch 18), else within hard affinity.
pub fn fallback(own: CpuId, rq: &CpuMask, hard: &CpuMask, soft: Option<&CpuMask>) -> CpuId {
    let near = |mask: CpuMask| if mask.contains(own) { Some(own) } else { (mask & *rq).cycle(own) };
    let preferred = soft.and_then(|s| near(*s & *hard));
    preferred.or_else(|| near(*hard)).or_else(|| hard.cycle(own)).expect("hard affinity is not empty")
}

/// A pCPU in a runqueue, when any will do: in turn.
pub fn in_turn(mask: &CpuMask, bias: CpuId) -> Option<CpuId> {
    mask.cycle(bias)
}

impl Credit2 {
    /// Which pCPUs of a runqueue a vCPU can be put on: the preferred ones if there are any.
    pub(super) fn places<C: Lend<Self>>(&self, cx: &C, unit: UnitId, rq: RqId) -> CpuMask {
        let hard = cx.hard(unit) & *cx.rq_cpus(rq);
        if self.conf.pick_soft && cx.soft_useful(unit) {
            let soft = hard & cx.soft(unit);
            if !soft.is_empty() {
                return soft;
            }
        }
        hard
    }

    /// The contract's `pick_cpu`.
    pub(super) fn pick<C: Lend<Self>>(&self, cx: &C, unit: UnitId) -> CpuId {
        balancing(cx, || {
            let (cpu, rq, b_avgload) = self.pick_inner(cx, unit);
            cx.trace(|| XenEvent::Credit2PickedCpu {
                vcpu: cx.info(unit),
                rq: rq.map(|r| r.0),
                cpu,
                b_avgload: b_avgload as u64,
            });
            cpu
        })
    }

    fn pick_inner<C: Lend<Self>>(&self, cx: &C, unit: UnitId) -> (CpuId, Option<RqId>, i64) {
        let own = cx.processor(unit);
        let own_rq = cx.rq_of(own);
        let hard = cx.hard(unit);
        let soft = (self.conf.pick_soft && cx.soft_useful(unit)).then(|| cx.soft(unit));
        let request = cx.with_unit(unit, |u| u.migrate_to.take());
        let fallback = || fallback(own, cx.rq_cpus(own_rq), &hard, soft.as_ref());
        if !cx.try_read_global() {
            cx.count(Perf::PickResource);
            return (fallback(), None, 0);
        }
        if let Some((to, bias)) = request {
            let places = self.places(cx, unit, to);
            if !places.is_empty() {
                cx.unlock_read_global();
                cx.count(Perf::MigrateRequested);
                return (in_turn(&places, bias).expect("not empty"), None, 0);
            }
        }
        // A new vCPU is not part of any load yet.
        let own_avg = cx.with_unit(unit, |u| if u.assigned { u.load.avg } else { 0 });
        let mut seen = Vec::with_capacity(cx.nr_rqs());
        let mut biases = Vec::with_capacity(cx.nr_rqs());
        for rq in (0..cx.nr_rqs() as u16).map(RqId) {
            cx.charge(Work::BalanceQueue, 1);
            let places = hard & *cx.rq_cpus(rq);
            if rq != own_rq && (places.is_empty() || !cx.try_lock(rq)) {
                continue;
            }
            let (b_avgload, bias) = cx.with_rq(rq, |r| (r.b_avgload, r.pick_bias));
            let b_avgload = if rq == own_rq { (b_avgload - own_avg).max(0) } else { b_avgload };
            if rq != own_rq {
                cx.unlock(rq);
            }
            let prefers = soft.as_ref().is_some_and(|s| places.intersects(s));
            seen.push(Seen { rq, b_avgload, hard: !places.is_empty(), soft: prefers });
            biases.push(bias);
        }
        cx.unlock_read_global();
        let Some(best) = least_loaded(&seen, soft.is_some()) else {
            return (fallback(), None, 0);
        };
        let bias = seen.iter().position(|s| *s == best).map(|at| biases[at]).expect("it has been seen");
        let cpu = in_turn(&self.places(cx, unit, best.rq), bias).expect("the runqueue has a place");
        (cpu, Some(best.rq), best.b_avgload)
    }
}
