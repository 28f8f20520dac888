//! The words on which sleeping and waking meet, and the orderings between them (Linux 3.0 to today).
//!
//! A task sleeps by announcing it, looking once more at what it waits for, and calling `schedule()`; a waker changes
//! what is waited for and then looks at the announcement. Nobody holds a common lock. Three words decide:
//!
//! ```text
//!            state            on_rq     on_cpu
//! runs       RUNNING          1         1
//! announces  RUNNING -> s     1         1            by the task: announce_sleep
//! sleeps     s                1 -> 0    1            by schedule() of its CPU, with the run-queue lock: leave_queue
//! is gone    s                0         1 -> 0       the same, after the switch: leave_cpu
//!            (with a delayed dequeue: first on_cpu falls, on_rq when the task is chosen though it sleeps)
//! claimed    s -> WAKING      0         *            by one waker, with the task's pi_lock: claim
//! queued     WAKING -> RUNNING  0 -> 1  0            by the enqueuing CPU, with its run-queue lock: enter_queue
//! chosen     RUNNING          1         0 -> 1       by schedule(), with the run-queue lock: enter_cpu
//! ```
//!
//! * **No wake-up is lost**: between announcing and looking there is a full fence, between changing and looking too
//!   ([`announce_sleep`], [`claim`]); so either the task sees the change or the waker sees the announcement.
//! * **A claimed task cannot run**, and only one waker proceeds: claims are made with the task's `pi_lock`.
//! * **A task is on one queue at most**: a waker that finds it still queued takes the run-queue lock and looks again;
//!   `schedule()` changes `on_rq` only with that lock.
//! * **Nobody runs a task whose registers are still being saved**: enqueuing waits for `on_cpu` to fall
//!   ([`wait_off_cpu`]), or leaves the enqueuing to the CPU that is switching away.
//!
//! `contend-check` (`tests/check/wakeup.rs`) runs these functions under loom and shuttle.

use contend_platform::{Ordering, Platform};

/// State: runnable or running.
pub const RUNNING: u64 = 0;
/// State: a waker owns the task.
pub const WAKING: u64 = 256;

/// The three words of one task.
pub struct WakeWords<'a, P: Platform> {
    /// [`RUNNING`], a sleep state, or [`WAKING`].
    pub state: &'a P::Word,
    /// 1: on a run queue, running included.
    pub on_rq: &'a P::Word,
    /// 1: from being chosen until the next task has finished the switch.
    pub on_cpu: &'a P::Word,
}

impl<P: Platform> Clone for WakeWords<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Platform> Copy for WakeWords<'_, P> {}

/// What a waker finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The task is in no state that this wake-up is for: nothing to do.
    NotAsleep,
    /// The task has announced its sleep and is still queued: lock its run queue and call [`reclaim_queued`].
    Queued,
    /// The caller owns the wake-up. If the task is still on its CPU, wait ([`wait_off_cpu`]) or let that CPU do it.
    Claimed {
        /// It has not finished switching out.
        on_cpu: bool,
    },
}

/// The task itself, before it looks at what it waits for: `state` is about to become true.
#[inline]
pub fn announce_sleep<P: Platform>(p: &P, words: WakeWords<'_, P>, state: u64) {
    // Release: a waker that sees the announcement sees also that the task is queued and on a CPU.
    p.store(words.state, state, Ordering::Release);
    // With the fence in `claim`: the look at the condition is not done before the announcement.
    p.fence(Ordering::SeqCst);
}

/// The task itself, when it need not sleep after all.
#[inline]
pub fn cancel_sleep<P: Platform>(p: &P, words: WakeWords<'_, P>) {
    p.store(words.state, RUNNING, Ordering::Relaxed);
}

/// A waker that holds the task's `pi_lock` and has changed what the task waits for.
#[inline]
pub fn claim<P: Platform>(p: &P, words: WakeWords<'_, P>, mask: u64) -> Claim {
    // With the fence in `announce_sleep`: the change is visible before the state is looked at.
    p.fence(Ordering::SeqCst);
    // Acquire, with the announcement's release: what the next loads find is of this run on the CPU or later, never a 0
    // from an earlier sleep.
    if p.load(words.state, Ordering::Acquire) & mask == 0 {
        return Claim::NotAsleep;
    }
    // Acquire, with `leave_queue`: the owner of the wake-up goes on to the task's scheduling data without a lock, and a
    // delayed dequeue may have changed them after the task left its CPU.
    if p.load(words.on_rq, Ordering::Acquire) != 0 {
        return Claim::Queued;
    }
    claimed(p, words)
}

/// The same waker after [`Claim::Queued`], now with the lock of the task's run queue too: `None` if the task was still
/// queued, and runs on without having slept.
#[inline]
pub fn reclaim_queued<P: Platform>(p: &P, words: WakeWords<'_, P>) -> Option<Claim> {
    if p.load(words.on_rq, Ordering::Relaxed) != 0 {
        p.store(words.state, RUNNING, Ordering::Relaxed);
        None
    } else {
        Some(claimed(p, words))
    }
}

#[inline]
fn claimed<P: Platform>(p: &P, words: WakeWords<'_, P>) -> Claim {
    p.store(words.state, WAKING, Ordering::Relaxed);
    // Acquire: the task's last act on that CPU.
    Claim::Claimed { on_cpu: p.load(words.on_cpu, Ordering::Acquire) != 0 }
}

/// Wait until the task has been switched out.
#[inline]
pub fn wait_off_cpu<P: Platform>(p: &P, words: WakeWords<'_, P>) {
    p.wait_until([words.on_cpu], None, |[on_cpu]| on_cpu == 0);
}

/// The owner of a wake-up, with the lock of the run queue it puts the task on.
#[inline]
pub fn enter_queue<P: Platform>(p: &P, words: WakeWords<'_, P>) {
    p.store(words.on_rq, 1, Ordering::Relaxed);
    // Relaxed: whoever next sees a sleep state sees the task's own announcement, which comes after.
    p.store(words.state, RUNNING, Ordering::Relaxed);
}

/// `schedule()`, with the run-queue lock, when the current task calls it: does it sleep? (Not if it was woken since the
/// announcement.)
#[inline]
pub fn wants_sleep<P: Platform>(p: &P, words: WakeWords<'_, P>) -> bool {
    // Relaxed: the task's own announcement, or what a waker wrote with the run-queue lock.
    p.load(words.state, Ordering::Relaxed) != RUNNING
}

/// The same, or later when the dequeue was delayed: the task is off the queue, its scheduling data are as they will be.
#[inline]
pub fn leave_queue<P: Platform>(p: &P, words: WakeWords<'_, P>) {
    // Release: those data.
    p.store(words.on_rq, 0, Ordering::Release);
}

/// `schedule()`, with the run-queue lock: the task is chosen.
#[inline]
pub fn enter_cpu<P: Platform>(p: &P, words: WakeWords<'_, P>) {
    p.store(words.on_cpu, 1, Ordering::Relaxed);
}

/// `schedule()`, after the switch away from the task.
#[inline]
pub fn leave_cpu<P: Platform>(p: &P, words: WakeWords<'_, P>) {
    // Release: all that the task did there.
    p.store(words.on_cpu, 0, Ordering::Release);
}
