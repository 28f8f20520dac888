//! The scheduler's half of directed yield (mechanisms D.2 and D.3): the running task gives its CPU up in favour of a
//! certain other one, on whichever run queue that is. KVM's pause-loop handler is who asks for it.
//!
//! As in every kernel since 2.6.39: both run queues are locked (`double_rq_lock`, the lower CPU first), the target becomes
//! the `next` hint of its queue, that queue's CPU is made to reschedule, and the caller yields. What differs between
//! versions and proposals is which checks are made, and when: [`YieldTo`].
//!
//! # The unlocked check
//!
//! Theurer's patch asks whether the target runs (`on_cpu`) or sleeps (`state`) before it locks, and not again under the
//! locks. Nothing that the locks guard is decided by it:
//!
//! * *the target starts to run in between*: it is hinted at while it runs, which a policy must bear
//!   ([`Policy::yield_to`](crate::policy::Policy::yield_to)). The hint has an effect when it is put back, at most, or none;
//! * *it stops in between, or goes to sleep*: a chance is missed; or it is found not to be queued, by what the lock of its
//!   run queue guards, and the yield fails there;
//! * *it moves in between*: the lock of the wrong run queue is released, and all begins anew, the check too.
//!
//! So a hint never names a task that is not on the hinted queue, whatever the check saw. The simulator's tests throw yields of
//! every kind at tasks that run, sleep, move and exit, and the mechanism verifies every pick.
//!
//! # The yielding word
//!
//! The post's open question, skip a candidate whose run queue is in a directed yield already: a word of each run queue, on
//! a line of its own, counts the directed yields that hold its lock or wait for it, as the caller's queue or the target's.
//! It is kept only by yields that look at it.

use crate::kernel::{Held, Kernel};
use crate::policy::Policy;
use crate::rq::peek_nr_running;
use crate::task::state;
use contend_platform::Ordering::{Acquire, Relaxed};
use contend_platform::{CpuId, SchedPlatform, TaskId};

/// Which checks [`Kernel::yield_to`] makes, and how it takes its locks. All off: the locks are waited for, and only a
/// target that is not queued is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct YieldTo {
    /// Fail without a lock if the target runs or sleeps (Theurer's patch).
    pub unlocked_check: bool,
    /// Fail under the locks if the target runs or sleeps.
    pub locked_check: bool,
    /// Fail without a lock if neither run queue has a second task (3.9).
    pub nr_running_check: bool,
    /// Take the target's `pi_lock` first (6.19).
    pub pi_lock: bool,
    /// Try the locks, the target's first; fail instead of waiting.
    pub trylock: bool,
    /// Fail without a lock if the target's run queue is in a directed yield.
    pub skip_yielding_rq: bool,
}

/// What became of a directed yield.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Yielded {
    /// The target is hinted at: the caller yields.
    Yes,
    /// The target runs or sleeps (the post's "failed because running"), said the check before the locks or the one under them.
    Running,
    /// The target is on no run queue.
    NotQueued,
    /// Both run queues have one task (`-ESRCH` upstream).
    Alone,
    /// One of the locks was taken, or the target's run queue in a directed yield.
    Busy,
    /// The policy knows no directed yield.
    Refused,
}

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    /// The current task `curr` wants `target`, another one, to run instead of it. Runs on its CPU with interrupts off, in a
    /// system call or an exit, in the account of the caller; waiting for run queues is booked to theirs.
    ///
    /// After [`Yielded::Yes`] the caller ends with [`SyscallEnd::Yield`](crate::kernel::SyscallEnd::Yield): that makes `curr`
    /// yield in the way of its policy, and counts it in `yld_count`. After anything else it goes on.
    ///
    /// `target` exists, or has existed: a task that is gone is on no run queue.
    pub fn yield_to(&self, p: &P, curr: TaskId, target: TaskId, how: YieldTo) -> Yielded {
        assert_ne!(curr, target, "a directed yield to oneself");
        if how.pi_lock {
            self.pi_lock(p, target);
        }
        let yielded = loop {
            let cpu = self.task_cpu(p, target);
            if let Some(yielded) = self.yield_to_on(p, target, cpu, how) {
                break yielded;
            }
        };
        if how.pi_lock {
            self.pi_unlock(p, target);
        }
        yielded
    }

    /// The same for a target that was on `cpu` a moment ago; `None`: it is elsewhere.
    fn yield_to_on(&self, p: &P, target: TaskId, cpu: CpuId, how: YieldTo) -> Option<Yielded> {
        let this = p.cpu();
        if how.unlocked_check && self.runs_or_sleeps(p, target) {
            return Some(Yielded::Running);
        }
        let alone = |cpu: CpuId| peek_nr_running(p.load(&self.rq(cpu).peek, Acquire)) == 1;
        if how.nr_running_check && alone(this) && alone(cpu) {
            return Some(Yielded::Alone);
        }
        if !how.skip_yielding_rq {
            return self.yield_to_locking(p, target, cpu, how);
        }
        if p.load(&self.rq(cpu).yielding, Acquire) != 0 {
            return Some(Yielded::Busy);
        }
        // Relaxed: they are hints.
        let count = |by: u64| {
            p.fetch_add(&self.rq(this).yielding, by, Relaxed);
            if cpu != this {
                p.fetch_add(&self.rq(cpu).yielding, by, Relaxed);
            }
        };
        count(1);
        let yielded = self.yield_to_locking(p, target, cpu, how);
        count(1u64.wrapping_neg());
        yielded
    }

    /// The part under the locks.
    fn yield_to_locking(&self, p: &P, target: TaskId, cpu: CpuId, how: YieldTo) -> Option<Yielded> {
        let Some((theirs, own)) = self.lock_both(p, cpu, how.trylock) else { return Some(Yielded::Busy) };
        let yielded = (self.task_cpu(p, target) == cpu).then(|| {
            if how.locked_check && self.runs_or_sleeps(p, target) {
                return Yielded::Running;
            }
            let ours = self.with_rq(p, own.as_ref().unwrap_or(&theirs), |rd| rd.rt.runs());
            let yielded = self.with_task(p, &theirs, target, |rd, e| {
                if ours || e.sched.rt().is_some() {
                    Yielded::Refused
                } else if e.queued_on != Some(cpu) || e.delayed || e.parked {
                    Yielded::NotQueued
                } else if self.policy.yield_to(&mut rd.pol, target, &e.pol) {
                    Yielded::Yes
                } else {
                    Yielded::Refused
                }
            });
            if yielded == Yielded::Yes && own.is_some() {
                self.resched(p, cpu);
            }
            yielded
        });
        self.unlock(p, theirs);
        if let Some(own) = own {
            self.unlock(p, own);
        }
        yielded
    }

    /// A racy answer, without or with locks. Relaxed: it is allowed to be old, and the words are on the line of `cpu`, which
    /// the caller has just read.
    fn runs_or_sleeps(&self, p: &P, task: TaskId) -> bool {
        let t = self.task(task);
        p.load(&t.on_cpu, Relaxed) != 0 || p.load(&t.state, Relaxed) != state::RUNNING
    }

    /// The locks of the run queue of `cpu` and, if that is another one, of this CPU's. `None`: one was taken, and we only try.
    fn lock_both(&self, p: &P, cpu: CpuId, trying: bool) -> Option<(Held, Option<Held>)> {
        let this = p.cpu();
        if trying {
            let theirs = self.try_lock(p, cpu)?;
            if cpu == this {
                return Some((theirs, None));
            }
            // Not in the order of CPUs: nobody waits here.
            let own = self.try_lock(p, this);
            if own.is_none() {
                self.unlock(p, theirs);
                return None;
            }
            return Some((theirs, own));
        }
        if cpu == this {
            return Some((self.lock(p, cpu), None));
        }
        let (theirs, own) = self.double_lock(p, cpu, this);
        Some((theirs, Some(own)))
    }

    fn try_lock(&self, p: &P, cpu: CpuId) -> Option<Held> {
        if !self.rq(cpu).lock.try_lock(p) {
            return None;
        }
        // SAFETY: the lock that guards the data has just been taken. This fetches its line, as in `lock`.
        unsafe { p.write(&self.rq(cpu).data, |_| ()) };
        Some(Held(cpu))
    }
}
