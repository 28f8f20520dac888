//! A pCPU's queue.
//!
//! Ordered by priority when vCPUs are inserted, first in, first out within one. Priorities change while vCPUs wait (at an
//! accounting); the pCPU's next tick sorts then, OVER to the end. Entries carry a copy of the vCPU's priority, so that a walk
//! needs no look at the vCPU; what it would cost is charged for each.

use super::{Credit1, LOADED, pri};
use crate::xen::contract::{Lend, RqId, UnitId};
use crate::xen::mask::CpuMask;
use contend_machine::Topology;
use contend_platform::{CpuId, Time, Work};

/// A vCPU that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub unit: UnitId,
    pub pri: i8,
    /// It is here since it yielded.
    pub yielded: bool,
}

/// State under a pCPU's schedule lock.
#[derive(Debug)]
pub struct Queue {
    pub(super) waiting: Vec<Entry>,
    /// When the vCPU that runs here was switched to.
    pub(super) since: Time,
    /// The idle pCPU that was tickled last for a vCPU of this queue: where the next round begins.
    pub(super) last_tickle: CpuId,
    /// With `c1_2017`: for each node, whom this pCPU stole from last.
    pub(super) last_peer: Vec<CpuId>,
    /// With `c1_2023`: when it last looked for something to steal.
    pub(super) balanced: Option<Time>,
    /// The bit of [`LOADED`].
    loaded: bool,
    /// pCPUs of each node: what Xen has as masks of sockets and nodes.
    pub(super) nodes: Vec<CpuMask>,
}

impl Queue {
    /// Of an idle pCPU.
    pub(super) fn new(topo: &Topology, cpu: CpuId) -> Self {
        let nodes: Vec<CpuMask> = (0..topo.nr_nodes()).map(|n| topo.node_cpus(n).iter().copied().collect()).collect();
        Queue {
            waiting: Vec::new(),
            since: 0,
            last_tickle: cpu,
            last_peer: nodes.iter().map(|n| n.iter().last().unwrap_or(cpu)).collect(),
            balanced: None,
            loaded: false,
            nodes,
        }
    }

    /// The priority of who comes first.
    pub(super) fn head_pri(&self) -> i8 {
        self.waiting.first().map_or(pri::IDLE, |e| e.pri)
    }

    /// Behind all of at least its priority; who yields, behind one more. Returns the place.
    pub(super) fn insert(&mut self, entry: Entry) -> usize {
        let behind = self.waiting.iter().take_while(|e| e.pri >= entry.pri).count();
        let at = if entry.yielded { (behind + 1).min(self.waiting.len()) } else { behind };
        self.waiting.insert(at, entry);
        at
    }

    /// The priority of a vCPU has changed where it waits.
    pub(super) fn set_pri(&mut self, unit: UnitId, pri: i8) {
        if let Some(entry) = self.waiting.iter_mut().find(|e| e.unit == unit) {
            entry.pri = pri;
        }
    }

    /// Who has credit goes before who has none; the order is kept otherwise.
    pub(super) fn sort(&mut self) {
        self.waiting.sort_by_key(|e| e.pri < pri::UNDER);
    }
}

impl Credit1 {
    /// Queue a vCPU of the pCPU.
    pub(super) fn enqueue<C: Lend<Self>>(&self, cx: &C, rq: RqId, unit: UnitId) {
        cx.charge(Work::Enqueue, 1);
        let passed = cx.with_both(rq, unit, |q, u| {
            u.queued = true;
            q.insert(Entry { unit, pri: u.pri, yielded: std::mem::take(&mut u.yields) })
        });
        cx.charge(Work::BalanceTask, passed as u64);
    }

    /// Take a vCPU out of the pCPU's queue. False: it was not there.
    pub(super) fn dequeue<C: Lend<Self>>(&self, cx: &C, rq: RqId, unit: UnitId) -> bool {
        let queued = cx.with_unit(unit, |u| std::mem::take(&mut u.queued));
        if queued {
            cx.charge(Work::Dequeue, 1);
            cx.with_rq(rq, |q| q.waiting.retain(|e| e.unit != unit));
        }
        queued
    }

    /// With `c1_2017`: how many vCPUs are runnable on `cpu` may have changed; one of them runs, if `busy`.
    pub(super) fn note_load<C: Lend<Self>>(&self, cx: &C, cpu: CpuId, busy: bool) {
        if !self.y2017 {
            return;
        }
        let changed = cx.with_rq(cx.rq_of(cpu), |q| {
            let loaded = q.waiting.len() + usize::from(busy) > 1;
            (std::mem::replace(&mut q.loaded, loaded) != loaded).then_some(loaded)
        });
        if let Some(loaded) = changed {
            cx.mask_put(LOADED, cpu, loaded);
        }
    }
}
