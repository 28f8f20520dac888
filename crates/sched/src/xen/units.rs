//! vCPUs as the mechanism knows them.

use super::contract::XenPolicy;
use super::event::{RunState, VcpuId};
use super::mask::CpuMask;
use contend_platform::{CpuId, Nanos, Platform, Time};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Why a vCPU is not runnable.
pub mod pause {
    /// It waits for an event.
    pub const BLOCKED: u64 = 1;
    /// It has not been started, or has stopped for good.
    pub const DOWN: u64 = 2;
    /// It is about to migrate.
    pub const MIGRATING: u64 = 4;
    /// It is out of credit, under a cap.
    pub const PARKED: u64 = 8;
    /// Somebody paused it (`xl pause`).
    pub const PAUSED: u64 = 16;
}

/// What is known of a vCPU without simulated cost.
#[derive(Clone, Debug)]
pub struct Book {
    /// Its state now.
    pub state: RunState,
    /// Since then.
    pub since: Time,
    /// Time in each [`RunState`] before that, in ns.
    pub times: [Nanos; 4],
    /// Times it was given a pCPU that ran another vCPU, or none, before.
    pub dispatches: u64,
    /// Times it was given another pCPU than the last.
    pub moves: u64,
    /// Times it was switched away from while runnable.
    pub preempted: u64,
    /// Longest time runnable without a pCPU, in ns.
    pub wait_max: Nanos,
    /// The pCPU it ran on last.
    pub last: Option<CpuId>,
    /// Time run within its soft affinity, in ns.
    pub in_soft: Nanos,
    before: VecDeque<Before>,
}

/// The part of a [`Book`] that a change of state changes, as it was before one.
#[derive(Clone, Copy, Debug)]
struct Before {
    state: RunState,
    since: Time,
    times: [Nanos; 4],
    wait_max: Nanos,
    last: Option<CpuId>,
    in_soft: Nanos,
}

/// More changes of state than a pCPU makes within what it may owe.
const BEFORE_KEPT: usize = 16;

impl Book {
    pub(super) fn new() -> Self {
        Book {
            state: RunState::Offline,
            since: 0,
            times: [0; 4],
            dispatches: 0,
            moves: 0,
            preempted: 0,
            wait_max: 0,
            last: None,
            in_soft: 0,
            before: VecDeque::with_capacity(BEFORE_KEPT),
        }
    }

    /// Its state changes.
    pub(super) fn remember(&mut self) {
        if self.before.len() == BEFORE_KEPT {
            self.before.pop_front();
        }
        let &mut Book { state, since, times, wait_max, last, in_soft, .. } = self;
        self.before.push_back(Before { state, since, times, wait_max, last, in_soft });
    }

    /// As it was at `end`, when a run ended: pCPUs that are ahead of that change states after it. Their counts stay.
    #[must_use]
    pub fn at(&self, end: Time) -> Book {
        let mut book = self.clone();
        while book.since > end
            && let Some(Before { state, since, times, wait_max, last, in_soft }) = book.before.pop_back()
        {
            book = Book { state, since, times, wait_max, last, in_soft, ..book };
        }
        book
    }

    /// The time in each state, up to `now`.
    pub fn times_until(&self, now: Time) -> [Nanos; 4] {
        let mut times = self.times;
        times[self.state as usize] += now.saturating_sub(self.since);
        times
    }
}

/// Affinities of a vCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VcpuAffinity {
    /// Where it may run.
    pub hard: CpuMask,
    /// Where it would rather run.
    pub soft: CpuMask,
}

/// A vCPU.
pub struct UnitSlot<P: Platform, L: XenPolicy> {
    /// Who it is.
    pub info: VcpuId,
    /// Index of its domain in the host's list.
    pub domain: usize,
    /// Its cpupool.
    pub(super) pool: usize,
    /// The pCPU it is assigned to. Written under the schedule locks of old and new.
    pub(super) processor: Cell<CpuId>,
    /// [`pause`] flags: zero is runnable.
    pub flags: P::Word,
    /// From being chosen until the next one has finished the switch.
    pub(super) running: P::Word,
    /// Within its pool.
    pub(super) affinity: Cell<VcpuAffinity>,
    pub(super) soft_useful: Cell<bool>,
    /// Guarded by the schedule lock of `processor`.
    pub(super) pol: P::Cell<L::Unit>,
    /// Reports.
    pub book: RefCell<Book>,
}

impl<P: Platform, L: XenPolicy> UnitSlot<P, L> {
    /// The pCPU it is assigned to, without simulated cost.
    pub fn processor(&self) -> CpuId {
        self.processor.get()
    }
    /// Set affinities; `cpus` are its pool's. Hard affinity meets the pool.
    pub(super) fn set_affinity(&self, affinity: VcpuAffinity, cpus: &CpuMask) {
        let hard = affinity.hard & *cpus;
        assert!(!hard.is_empty(), "hard affinity meets the cpupool");
        let soft = affinity.soft;
        self.affinity.set(VcpuAffinity { hard, soft });
        self.soft_useful.set(!cpus.is_subset(&soft) && !hard.is_subset(&soft) && soft.intersects(&hard));
    }
    /// Its affinities, within its pool.
    pub fn affinity(&self) -> VcpuAffinity {
        self.affinity.get()
    }
}
