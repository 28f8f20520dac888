//! The policy contract: what a scheduling policy decides, and what the mechanism does around it.
//!
//! A policy is a plain state machine. Its state is partitioned by lock domain: one [`Policy::Rq`] per run queue, lent
//! only while that run queue's lock is held, and one [`Policy::Task`] per task, lent with it. It does no I/O, knows no
//! atomics, and never waits.
//!
//! The life of a task, as the policy sees it:
//!
//! ```text
//!            enqueue                    set_next
//!   sleeping ───────▶ queued (in Rq) ──────────────▶ running (out of Rq)
//!       ▲                │   ▲                            │
//!       │                │   └── put_prev(Preempted) ─────┤
//!       │        dequeue │       put_prev(Yielded)        │
//!       │                ▼                                │
//!       │          another Rq (enqueue Migrate)           │
//!       └───────────────── put_prev(Sleep | Exit) ────────┘
//! ```
//!
//! The mechanism verifies decisions: [`Policy::pick_next`] must name a task that is queued, awake, on this run queue (the
//! mechanism queues tasks only where they may run), and nothing only if nobody is; a violation ends the run as a policy
//! error.
//!
//! [`fifo::Fifo`] is the reference: read it first. Write your own in any crate; `examples/my-policy` shows how.

pub mod cfs;
pub mod cpus;
#[cfg(test)]
mod drive;
pub mod eevdf;
pub mod fifo;
pub mod groups;
mod timeline;

use contend_platform::{CpuId, TaskId, Time};
use cpus::{Cpus, Wake};
use groups::{GroupId, Groups};

/// Why a task enters a run queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Enqueue {
    /// First time (fork).
    New,
    /// It slept; `moved` tells whether on another CPU.
    Wakeup {
        /// The task last ran elsewhere.
        moved: bool,
    },
    /// Load balancing or affinity moved it here, runnable.
    Migrate,
}

/// Why a queued task leaves a run queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dequeue {
    /// Load balancing or affinity moves it.
    Migrate,
    /// It sleeps (only after a delayed dequeue; a running task goes through `put_prev`).
    Sleep,
}

/// Why a task stops running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// Something else shall run; the task stays runnable.
    Preempted,
    /// It called `sched_yield`.
    Yielded,
    /// It sleeps.
    Sleep,
    /// It is gone.
    Exit,
}

/// What to run next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pick {
    /// This task; the mechanism calls [`Policy::set_next`] with it.
    Task(TaskId),
    /// This sleeping task, kept queued to work off its lag, has none left: the mechanism dequeues it
    /// (`Dequeue::Sleep`) and asks again.
    Finished(TaskId),
    /// Nothing is queued.
    Nothing,
}

/// A scheduling policy.
pub trait Policy: 'static {
    /// It says where woken and new tasks go ([`Policy::select_cpu`]), but for real-time ones.
    const PLACES: bool = false;
    /// It says from whom a CPU takes that has nothing to run ([`Policy::pull_from`]). (The feature `newidle_balance` off: from
    /// nobody.)
    const PULLS: bool = false;

    /// State of one run queue; guarded by its lock.
    type Rq: 'static;
    /// State of one task; guarded by the lock of its run queue.
    type Task: Clone + 'static;

    /// State of an empty run queue.
    fn new_rq(&self) -> Self::Rq;
    /// State of a new task with this nice value.
    fn new_task(&self, nice: i8) -> Self::Task;

    /// The task becomes runnable on this run queue.
    fn enqueue(&self, rq: &mut Self::Rq, task: TaskId, t: &mut Self::Task, why: Enqueue, now: Time);
    /// A queued task that does not run leaves.
    fn dequeue(&self, rq: &mut Self::Rq, task: TaskId, t: &mut Self::Task, why: Dequeue, now: Time);
    /// What should run? The running task, if it is still runnable, has been put back before.
    fn pick_next(&self, rq: &mut Self::Rq, now: Time) -> Pick;
    /// The task starts to run: take it out of the queue.
    fn set_next(&self, rq: &mut Self::Rq, task: TaskId, t: &mut Self::Task, now: Time);
    /// The running task stops; put it back if it stays runnable. Returns true if it sleeps but stays queued
    /// (delayed dequeue).
    fn put_prev(&self, rq: &mut Self::Rq, task: TaskId, t: &mut Self::Task, why: Put, now: Time) -> bool;
    /// The periodic tick found this task running: should it be preempted?
    fn tick(&self, rq: &mut Self::Rq, task: TaskId, t: &mut Self::Task, now: Time) -> bool;
    /// `woken` (already queued here) was just enqueued: should it preempt `curr`?
    fn wakeup_preempt(
        &self,
        rq: &mut Self::Rq,
        curr: (TaskId, &mut Self::Task),
        woken: (TaskId, &Self::Task),
        now: Time,
    ) -> bool;
    /// Where does a woken or new task go? `None`: where the mechanism would place it. No run queue is locked (but the one that the task
    /// slept on, where the wake-up path is that of 2010). Asked of a policy that [`PLACES`](Policy::PLACES). A CPU that is not there, or
    /// that the task's affinity forbids, is a policy error.
    fn select_cpu(&self, cpus: &mut dyn Cpus, task: TaskId, t: &Self::Task, wake: Wake) -> Option<CpuId> {
        let _ = (cpus, task, t, wake);
        None
    }
    /// `cpus.this()` has nothing to run: whose first possible candidate does it take? No run queue is locked. Asked again with the
    /// CPUs from which nothing could be taken, until one could or `None`. Asked of a policy that [`PULLS`](Policy::PULLS). A CPU
    /// that is not there, itself, or that has failed is a policy error.
    fn pull_from(&self, cpus: &mut dyn Cpus, failed: &[CpuId]) -> Option<CpuId> {
        let _ = (cpus, failed);
        None
    }
    /// `woken` was just enqueued and may not preempt `curr`, by its class (`SCHED_BATCH`, `SCHED_IDLE`). Is `curr` to be rescheduled even so,
    /// since its time is up?
    fn time_is_up(
        &self,
        rq: &mut Self::Rq,
        curr: (TaskId, &mut Self::Task),
        woken: (TaskId, &Self::Task),
        now: Time,
    ) -> bool {
        let _ = (rq, curr, woken, now);
        false
    }

    /// Another task, here or elsewhere, yields its CPU to `task`, which is runnable here (queued, or running: nobody looked):
    /// let it be next, as far as that is fair. False: this policy has no directed yield, and the other one goes on.
    fn yield_to(&self, rq: &mut Self::Rq, task: TaskId, t: &Self::Task) -> bool {
        let _ = (rq, task, t);
        false
    }
    /// A task that slept with its dequeue delayed is woken while still queued.
    fn revive(&self, rq: &mut Self::Rq, task: TaskId, t: &mut Self::Task, now: Time) {
        let _ = (rq, task, t, now);
    }
    /// A woken task is about to be placed on another CPU: detach what is relative to its old run queue, which is
    /// *not* locked (`rq_floor` is the old queue's published floor, see [`Policy::floor`]).
    fn detach_sleeping(&self, t: &mut Self::Task, rq_floor: i64) {
        let _ = (t, rq_floor);
    }
    /// A number that others may read without the lock (CFS: min_vruntime).
    fn floor(&self, rq: &Self::Rq) -> i64 {
        let _ = rq;
        0
    }
    /// Queued tasks that are awake, in the order in which load balancing should try to take them, into `into`, at most `max`.
    fn candidates(&self, rq: &Self::Rq, max: usize, into: &mut Vec<TaskId>);
    /// Does a hint make the task worth keeping (cache buddy)?
    fn is_buddy(&self, rq: &Self::Rq, task: TaskId) -> bool {
        let _ = (rq, task);
        false
    }
    /// Time at which the task last started or was accounted, for the cache-hot test.
    fn last_ran(&self, t: &Self::Task) -> Time;
    /// Load weight (nice 0 = 1024).
    fn weight(&self, t: &Self::Task) -> u64 {
        let _ = t;
        1024
    }
    /// What a load of the task's own counts for on its whole run queue (task_h_load): less in a group, which has a part in the queue
    /// and divides it among its own.
    fn h_load(&self, rq: &Self::Rq, t: &Self::Task, load: u64) -> u64 {
        let _ = (rq, t);
        load
    }
    /// The sum of the weights that compete on the run queue, where the runnable tasks' own add up to `flat`.
    fn queue_weight(&self, rq: &Self::Rq, flat: u64) -> u64 {
        let _ = rq;
        flat
    }
    /// The nice value changes; the task is not queued at this moment.
    fn set_nice(&self, t: &mut Self::Task, nice: i8) {
        let _ = (t, nice);
    }
    /// The task is a `SCHED_IDLE` one from now on: it weighs 3; not queued at this moment. [`Policy::set_nice`] makes it an
    /// ordinary one again. Who preempts it is the mechanism's.
    fn set_idle(&self, t: &mut Self::Task) {
        self.set_nice(t, 19);
    }
    /// The slice that the task asks for, in ns (0: the policy's own); not queued at this moment. A policy that does not know slices of a
    /// task's own ignores it, as kernels did.
    fn set_slice(&self, t: &mut Self::Task, slice: u64) {
        let _ = (t, slice);
    }
    /// The task is of this group from now on; it is not queued at this moment. A policy without groups has one.
    fn join(&self, t: &mut Self::Task, group: GroupId) {
        let _ = (t, group);
    }
    /// A queued task may not run for a while, because its group has no run time left: it leaves, and will be back on this run queue
    /// ([`Policy::unpark`]) with what it was owed among its own.
    fn park(&self, rq: &mut Self::Rq, task: TaskId, t: &mut Self::Task, now: Time) {
        self.dequeue(rq, task, t, Dequeue::Migrate, now);
    }
    /// A parked task may run again. Of several, those that were parked last come first.
    fn unpark(&self, rq: &mut Self::Rq, task: TaskId, t: &mut Self::Task, now: Time) {
        self.enqueue(rq, task, t, Enqueue::Migrate, now);
    }
    /// The groups that tasks can be of; `None`: this policy has none.
    fn groups(&self) -> Option<&Groups> {
        None
    }
    /// The group that the task is of.
    fn group_of(&self, t: &Self::Task) -> GroupId {
        let _ = t;
        GroupId::ROOT
    }
    /// All tasks of a group and of those within it that are queued here and awake, into `into`.
    fn members(&self, rq: &Self::Rq, group: GroupId, into: &mut Vec<TaskId>) {
        let _ = (rq, group, into);
    }
    /// Time run so far, in ns, as of the last accounting.
    fn sum_exec(&self, t: &Self::Task) -> u64;
}

/// Load weight by nice value, -20 first (mechanisms A.1): nice 0 is 1024, each step is a factor of 1.25.
const NICE_TO_WEIGHT: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121, 2501,
    1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
];

/// Weight of a `SCHED_IDLE` task: a fifth of nice 19's, as upstream.
pub const WEIGHT_IDLE: u64 = 3;

/// Weight of a nice value.
pub fn nice_to_weight(nice: i8) -> u64 {
    u64::from(NICE_TO_WEIGHT[(i32::from(nice.clamp(-20, 19)) + 20) as usize])
}
