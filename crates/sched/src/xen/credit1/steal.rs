//! What a pCPU takes from the queues of others, when it would idle or run a vCPU without credit.

use super::{Credit1, IDLERS, LOADED, Step, pri, queue::Entry, step_mask};
use crate::xen::contract::{Lend, RqId, UnitId};
use crate::xen::event::XenEvent;
use crate::xen::mask::CpuMask;
use crate::xen::perf::Perf;
use contend_platform::{CpuId, Nanos, Work};

/// With `c1_2023`: least time between two searches of a pCPU, in ns (`load-balance-ratelimit`).
const BALANCE_LIMIT: Nanos = 1_000_000;

impl Credit1 {
    /// A vCPU of a higher priority than `best`, which is what the calling pCPU has: it is the pCPU's from now on, and in no queue.
    /// First vCPUs that prefer this pCPU, then any that may run here; each time the own node first.
    pub(super) fn steal<C: Lend<Self>>(&self, cx: &C, best: i8) -> Option<UnitId> {
        let (cpu, now) = (cx.cpu(), cx.now());
        let (own, topo) = (cx.rq_of(cpu), cx.topo());
        if self.y2023 {
            let early = cx.with_rq(own, |q| {
                let early = q.balanced.is_some_and(|at| now - at < BALANCE_LIMIT);
                if !early {
                    q.balanced = Some(now);
                }
                early
            });
            if early {
                return None;
            }
        }
        cx.count(match best {
            pri::IDLE => Perf::LoadBalanceIdle,
            pri::OVER => Perf::LoadBalanceOver,
            _ => Perf::LoadBalanceOther,
        });
        let busy = *cx.cpus() - cx.mask(IDLERS) - CpuMask::only(cpu);
        if busy.is_empty() {
            return None;
        }
        let nodes = topo.nr_nodes();
        for step in [Step::Soft, Step::Hard] {
            for node in (0..nodes).map(|i| (topo.node_of(cpu) + i) % nodes) {
                let (peers, last) = cx.with_rq(own, |q| (q.nodes[node] & busy, q.last_peer[node]));
                // Base: from the lowest, each time.
                let first = if self.y2017 { peers.cycle(last) } else { peers.first() };
                let Some(first) = first else { continue };
                // Once for a node: between two of its pCPUs there is nearly no time.
                let worth = if self.y2017 { cx.mask(LOADED) } else { peers };
                let mut peer = first;
                loop {
                    cx.charge(Work::BalanceQueue, 1);
                    if let Some(unit) = self.steal_from(cx, peer, worth.contains(peer), best, step) {
                        cx.with_rq(own, |q| q.last_peer[node] = peer);
                        return Some(unit);
                    }
                    peer = peers.cycle(peer).expect("there are peers");
                    if peer == first {
                        break;
                    }
                }
            }
        }
        None
    }

    /// Try `peer`, if it is `worth` it.
    fn steal_from<C: Lend<Self>>(&self, cx: &C, peer: CpuId, worth: bool, best: i8, step: Step) -> Option<UnitId> {
        let rq = cx.rq_of(peer);
        let checked = |checked| {
            if self.y2017 {
                cx.trace(|| XenEvent::Credit1StealCheck { peer, checked });
            }
        };
        if !worth {
            checked(false);
            return None;
        }
        if !cx.try_lock(rq) {
            cx.count(Perf::StealTrylockFailed);
            checked(false);
            return None;
        }
        checked(true);
        let found = if cx.curr(peer).is_some() {
            self.stealable(cx, rq, best, step)
        } else {
            // It has just gone idle, or is about to run what it has.
            cx.count(Perf::StealPeerIdle);
            None
        };
        if let Some(unit) = found {
            self.dequeue(cx, rq, unit);
            self.note_load(cx, peer, true);
            cx.set_processor(unit, cx.cpu());
            cx.count(Perf::Migrated);
            cx.count(Perf::MigrateQueued);
            cx.trace(|| XenEvent::Credit1Stolen { peer, vcpu: cx.info(unit) });
        }
        cx.unlock(rq);
        found
    }

    /// The first vCPU of a queue, whose lock is held, that the calling pCPU may take.
    fn stealable<C: Lend<Self>>(&self, cx: &C, rq: RqId, best: i8, step: Step) -> Option<UnitId> {
        let (cpu, now) = (cx.cpu(), cx.now());
        for place in 0.. {
            let Entry { unit, pri, yielded } = cx.with_rq(rq, |q| q.waiting.get(place).copied())?;
            if pri <= best {
                return None;
            }
            cx.charge(Work::BalanceTask, 1);
            let Some(allowed) = step_mask(cx, unit, step) else { continue };
            // Running: it has been switched away from, and its registers are not saved yet.
            if !allowed.contains(cpu) || cx.running(unit) || self.y2023 && yielded {
                continue;
            }
            let hot = self.migration_delay > 0 && now - cx.with_unit(unit, |u| u.last_run) < self.migration_delay;
            if !hot {
                return Some(unit);
            }
        }
        None
    }
}
