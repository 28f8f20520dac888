//! Things to wait for: a semaphore (decided under its lock) and parking (decided by the wake-up protocol's fences alone).

use crate::cpu::NativeCpu;
use contend_platform::native::NativeCell;
use contend_platform::{Account, Platform, TaskId};
use contend_sched::rq_lock::{KernelLock, LockFactory};
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;

/// A counting semaphore, first come, first served: a unit given while tasks wait goes to the first of them.
pub struct Semaphore {
    lock: KernelLock<NativeCpu>,
    /// Guarded by `lock`.
    state: NativeCell<State>,
}

#[derive(Default)]
struct State {
    units: u64,
    waiters: VecDeque<TaskId>,
}

impl Semaphore {
    pub(crate) fn new(p: &NativeCpu, locks: &LockFactory<NativeCpu>, units: u64) -> Self {
        let state = State { units, waiters: VecDeque::new() };
        Semaphore { lock: locks.create(p, p.line(), Account::SpinLock), state: p.cell(p.line(), state) }
    }

    /// Take a unit; if there is none, queue `task`, call `announce` with the lock held, and return false.
    pub(crate) fn down(&self, p: &NativeCpu, task: TaskId, announce: impl FnOnce()) -> bool {
        self.lock.lock(p);
        // SAFETY: the lock is held; the closure is plain code.
        let got = unsafe {
            p.write(&self.state, |s| {
                if s.units > 0 {
                    s.units -= 1;
                    return true;
                }
                s.waiters.push_back(task);
                false
            })
        };
        if !got {
            announce();
        }
        self.lock.unlock(p);
        got
    }

    /// Give a unit; the task that it went to is to be woken.
    pub(crate) fn up(&self, p: &NativeCpu) -> Option<TaskId> {
        self.lock.lock(p);
        // SAFETY: the lock is held; the closure is plain code.
        let waiter = unsafe {
            p.write(&self.state, |s| {
                let waiter = s.waiters.pop_front();
                s.units += u64::from(waiter.is_none());
                waiter
            })
        };
        self.lock.unlock(p);
        waiter
    }
}

/// Where one task parks. It outlives the task, whose number may be another's by then: a late unpark then wakes that one
/// from its parking for nothing, and it parks again.
#[derive(Default)]
pub(crate) struct Parker {
    /// 1: go on.
    pub(crate) token: AtomicU64,
    /// The task's number plus 1.
    pub(crate) task: AtomicU64,
}
