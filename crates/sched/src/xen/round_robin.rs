//! The reference policy: every pCPU has a queue of its own, first in first out, with a slice. Read it before the others.
//!
//! It knows no weights, no caps and no soft affinity, never moves a vCPU by itself, and is no scheduler of Xen's: it shows what a
//! policy must do, and tests the mechanism.

use super::contract::{Decision, DomParams, Lend, RqId, UnitId, XenPolicy};
use super::event::VcpuId;
use super::mask::CpuMask;
use super::perf::Perf;
use contend_machine::Topology;
use contend_platform::{CpuId, Nanos, Work};
use std::collections::VecDeque;

/// Length of a slice in ns: Credit1's default.
const SLICE: Nanos = 30_000_000;

/// The reference policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin;

/// State of a vCPU: is it in its pCPU's queue?
#[derive(Debug, Default)]
pub struct Unit {
    queued: bool,
}

impl XenPolicy for RoundRobin {
    type Rq = VecDeque<UnitId>;
    type Unit = Unit;
    type Global = ();
    type Domain = ();
    const MASKS: usize = 0;
    const CONTEXT_SAVED: bool = false;

    fn partition(&self, topo: &Topology, cpus: &CpuMask) -> Vec<RqId> {
        let mut of = vec![RqId(0); topo.nr_cpus()];
        cpus.iter().enumerate().for_each(|(i, c)| of[c.index()] = RqId(i as u16));
        of
    }
    fn new_rq(&self, _: &Topology, _: RqId, _: &CpuMask) -> Self::Rq {
        VecDeque::new()
    }
    fn new_global(&self, _: &Topology, _: &CpuMask) {}
    fn new_domain(&self, _: u16, _: DomParams) {}
    fn new_unit(&self, _: UnitId, _: VcpuId, _: DomParams) -> Unit {
        Unit::default()
    }

    fn insert<C: Lend<Self>>(&self, _: &C, _: UnitId) {}

    fn schedule<C: Lend<Self>>(&self, cx: &C, curr: Option<UnitId>) -> Decision {
        let rq = cx.rq_of(cx.cpu());
        if let Some(unit) = curr
            && cx.runnable(unit)
        {
            push(cx, rq, unit);
        }
        let next = cx.with_rq(rq, VecDeque::pop_front);
        if let Some(unit) = next {
            cx.charge(Work::Dequeue, 1);
            cx.with_unit(unit, |u| u.queued = false);
        }
        Decision { next, slice: next.map(|_| SLICE) }
    }

    fn wake<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        let cpu = cx.processor(unit);
        let curr = cx.curr(cpu);
        if curr == Some(unit) {
            return cx.count(Perf::WakeRunning);
        }
        if cx.with_unit(unit, |u| u.queued) {
            return cx.count(Perf::WakeOnRunq);
        }
        cx.count(Perf::WakeRunnable);
        push(cx, cx.rq_of(cpu), unit);
        if curr.is_none() {
            cx.count(Perf::TickledIdle);
            cx.tickle(cpu);
        } else {
            cx.count(Perf::TickledNo);
        }
    }

    fn sleep<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        let cpu = cx.processor(unit);
        cx.count(Perf::VcpuSleep);
        if cx.curr(cpu) == Some(unit) {
            cx.tickle(cpu);
        } else if cx.with_unit(unit, |u| std::mem::take(&mut u.queued)) {
            cx.charge(Work::Dequeue, 1);
            cx.with_rq(cx.rq_of(cpu), |rq| rq.retain(|u| *u != unit));
        }
    }

    fn yield_unit<C: Lend<Self>>(&self, cx: &C, _: UnitId) {
        cx.count(Perf::VcpuYield);
    }

    /// Where the queue is shortest cannot be known without locks: spread by number.
    fn pick_cpu<C: Lend<Self>>(&self, cx: &C, unit: UnitId) -> CpuId {
        let hard = cx.hard(unit);
        let at = cx.processor(unit);
        if cx.runnable(unit) && hard.contains(at) {
            return at;
        }
        hard.iter().nth(unit.index() % hard.len()).expect("hard affinity is not empty")
    }
}

fn push<C: Lend<RoundRobin>>(cx: &C, rq: RqId, unit: UnitId) {
    cx.charge(Work::Enqueue, 1);
    cx.with_both(rq, unit, |rq, u| {
        rq.push_back(unit);
        u.queued = true;
    });
}
