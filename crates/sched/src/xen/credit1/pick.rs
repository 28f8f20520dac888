//! Where a vCPU should be: its own pCPU unless another is idle, and among idle ones where most of the neighbourhood is.

use super::{Credit1, IDLERS, Step, step_mask};
use crate::xen::contract::{Lend, UnitId};
use crate::xen::event::XenEvent;
use crate::xen::mask::CpuMask;
use contend_platform::{CpuId, Work};

/// The other socket must have so many times the idle pCPUs.
const FAR: usize = 2;

impl Credit1 {
    /// The pCPU that suits the vCPU best. Its schedule lock is held.
    pub(super) fn pick<C: Lend<Self>>(&self, cx: &C, unit: UnitId) -> CpuId {
        let own = cx.processor(unit);
        let mut idle = cx.mask(IDLERS);
        if cx.with_rq(cx.rq_of(own), |q| q.waiting.is_empty()) {
            idle.insert(own);
        }
        let mut best = own;
        for step in [Step::Soft, Step::Hard] {
            let Some(allowed) = step_mask(cx, unit, step) else { continue };
            cx.charge(Work::Probe, 1);
            best = if allowed.contains(own) { own } else { allowed.cycle(own).expect("an affinity is not empty") };
            let usable = allowed & idle;
            if usable.is_empty() {
                continue;
            }
            if !usable.contains(best) {
                best = usable.cycle(best).expect("somebody usable is idle");
            }
            best = self.spread(cx, own, best, usable, idle);
            break;
        }
        cx.trace(|| XenEvent::Credit1PickedCpu { vcpu: cx.info(unit), cpu: best });
        best
    }

    /// The pCPU of `usable` (`best` is one) with the most `idle` ones around it: threads of its core within a socket, pCPUs of
    /// the socket between sockets.
    fn spread<C: Lend<Self>>(&self, cx: &C, own: CpuId, best: CpuId, usable: CpuMask, idle: CpuMask) -> CpuId {
        let (topo, rq) = (cx.topo(), cx.rq_of(own));
        let core = |cpu| topo.core_cpus(topo.core_of(cpu)).iter().copied().collect::<CpuMask>();
        let socket = |cpu| cx.with_rq(rq, |q| q.nodes[topo.node_of(cpu)]);
        let mut best = best;
        let mut rest = usable - core(best);
        while let Some(next) = rest.cycle(best) {
            cx.charge(Work::MaskWeight, 2);
            let near = topo.node_of(best) == topo.node_of(next);
            let around = |cpu| (if near { core(cpu) } else { socket(cpu) } & idle).len();
            let (here, there) = (around(best), around(next));
            let better = if self.smt_power_savings { here > there } else { there > here * if near { 1 } else { FAR } };
            if better {
                best = next;
                rest = rest - core(next);
            } else {
                rest = rest - if near { core(next) } else { socket(next) };
            }
        }
        best
    }
}
