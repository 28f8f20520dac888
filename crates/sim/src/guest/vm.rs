//! A virtual machine: what its vCPUs share.

use super::hosting::Hosting;
use super::memory::Slowdown;
use super::spec::LockPreemption;
use super::state::VcpuState;
use crate::counters::LockEvents;
use crate::world::SimWord;
use contend_platform::{Account, CpuId, Nanos, TaskId, Time};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What a guest's task has left to compute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuestWork {
    /// In 1/1024 ns at reference speed.
    pub left: u64,
    pub account: Account,
    /// Refill of cold caches that comes first.
    pub refill: u64,
    pub working_set_kib: u32,
    /// The physical CPU whose caches it filled last; none: `u16::MAX`.
    pub pcpu: u16,
}

/// A virtual machine.
pub(crate) struct Vm {
    pub vcpus: Vec<Rc<VcpuState>>,
    /// The vCPU that the last successful directed yield went to; read and written without a lock.
    pub last_boosted: SimWord,
    pub tasks: RefCell<Vec<GuestWork>>,
    pub timer_seq: Cell<u64>,
    pub tick_ns: Nanos,
    pub finished: Cell<Option<Time>>,
    pub background: bool,
    pub lock_events: LockEvents,
    /// By number of the guest's spinlock.
    pub preemption: RefCell<Vec<LockPreemption>>,
    pub hosting: Rc<Hosting>,
    /// What distance from its memory does to it.
    pub slowdown: Option<Slowdown>,
}

impl Vm {
    pub fn vcpu(&self, number: CpuId) -> &Rc<VcpuState> {
        &self.vcpus[number.index()]
    }
    pub fn with_task<R>(&self, task: TaskId, f: impl FnOnce(&mut GuestWork) -> R) -> R {
        f(&mut self.tasks.borrow_mut()[task.index()])
    }

    /// `vcpu`, which holds or waits for locks, has lost its CPU for `ns`.
    pub fn count_preemption(&self, vcpu: &VcpuState, ns: Nanos) {
        let mut locks = self.preemption.borrow_mut();
        let mut at = |lock: u32, f: &mut dyn FnMut(&mut LockPreemption)| {
            let lock = lock as usize;
            if locks.len() <= lock {
                locks.resize(lock + 1, LockPreemption::default());
            }
            f(&mut locks[lock]);
        };
        for lock in vcpu.holding.borrow().iter() {
            at(*lock, &mut |l| {
                l.holder += 1;
                l.holder_ns += ns;
                l.holder_max = l.holder_max.max(ns);
            });
        }
        if let Some((lock, _)) = vcpu.waiting.get() {
            at(lock, &mut |l| {
                l.waiter += 1;
                l.waiter_ns += ns;
            });
        }
    }
}
