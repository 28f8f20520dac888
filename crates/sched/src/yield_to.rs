//! The scheduler's half of directed yield.

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
