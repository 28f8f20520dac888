//! The scheduler's half of directed yield.

use crate::kernel::Kernel;
use crate::policy::Policy;
use contend_platform::{SchedPlatform, TaskId};

/// Which checks `yield_to` makes, and how it takes its locks (mechanisms D.2, D.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct YieldTo {
    /// Fail without a lock if the target runs or sleeps (Theurer's patch).
    pub unlocked_check: bool,
    /// Fail under the locks if the target runs or sleeps.
    pub locked_check: bool,
    /// Fail if neither run queue has a second task (3.9).
    pub nr_running_check: bool,
    /// Take the target's `pi_lock` first (6.19).
    pub pi_lock: bool,
    /// Try the locks; fail instead of waiting.
    pub trylock: bool,
    /// Fail if the target's run queue is in a directed yield.
    pub skip_yielding_rq: bool,
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Yielded {
    /// The target is next.
    Yes,
    /// It runs, or sleeps.
    Running,
    /// It is not queued.
    NotQueued,
    /// Neither run queue has a second task.
    Alone,
    /// A lock was taken, or the run queue in a directed yield.
    Busy,
}

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    /// Directed yield.
    pub fn yield_to(&self, _p: &P, _curr: TaskId, _target: TaskId, _how: YieldTo) -> Yielded {
        Yielded::Running
    }
}
