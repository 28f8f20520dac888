//! Tasks: the words others race on, and the data that locks guard.

use crate::class::Sched;
use crate::cpuset::Affinity;
use crate::pelt::Average;
use crate::policy::Policy;
use crate::policy::groups::GroupId;
use crate::wake_protocol::WakeWords;
use contend_platform::{CpuId, Nanos, Platform, TaskId, Time};
use std::sync::{Mutex, OnceLock};

/// Task states, with their upstream values.
pub mod state {
    /// Runnable or running.
    pub const RUNNING: u64 = 0;
    /// Sleeping, may be interrupted.
    pub const INTERRUPTIBLE: u64 = 1;
    /// Sleeping, may not (I/O); counts in the load average.
    pub const UNINTERRUPTIBLE: u64 = 2;
    /// Gone.
    pub const DEAD: u64 = 16;
    /// A waker owns the task.
    pub const WAKING: u64 = 256;
    /// Not started yet.
    pub const NEW: u64 = 2048;
    /// Any sleep.
    pub const NORMAL: u64 = INTERRUPTIBLE | UNINTERRUPTIBLE;
}

/// One task. Its words share one line, its guarded data another.
pub struct Task<P: Platform, L: Policy> {
    /// One of [`state`].
    pub state: P::Word,
    /// On a run queue (also while it runs).
    pub on_rq: P::Word,
    /// From being chosen until the next task has finished the switch.
    pub on_cpu: P::Word,
    /// The CPU whose run queue it is on or was on last.
    pub cpu: P::Word,
    /// Serialises wakers (3.0 and later) and guards `info`.
    pub pi_lock: P::Word,
    /// Link of a wake list.
    pub wake_entry: P::Word,
    /// Flags that travel with a queued wake-up ([`crate::wakeup::flags`]).
    pub wake_flags: P::Word,
    /// Where it may run. Written with `pi_lock` and the run queue's lock, read with either.
    pub affinity: P::Cell<Affinity>,
    /// Guarded by `pi_lock` (wakers) or by being the task itself.
    pub info: P::Cell<TaskInfo>,
    /// Guarded by the lock of the run queue of `cpu`.
    pub ent: P::Cell<Entity<L>>,
}

/// What wakers and placement know of a task.
#[derive(Clone, Debug, Default)]
pub struct TaskInfo {
    /// The task it woke last.
    pub last_wakee: Option<TaskId>,
    /// wakee_flips: how often that changed; halved once a second.
    pub wakee_flips: u64,
    /// When it was last halved.
    pub flip_decay_at: Time,
    /// One more CPU it ran on.
    pub recent_used_cpu: Option<CpuId>,
    /// Counters.
    pub stats: WakeStats,
}

/// Per-task counters of /proc/PID/sched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "upstream's names, documented in mechanisms A.5")]
pub struct WakeStats {
    pub nr_wakeups: u64,
    pub nr_wakeups_sync: u64,
    pub nr_wakeups_migrate: u64,
    pub nr_wakeups_local: u64,
    pub nr_wakeups_remote: u64,
    pub nr_wakeups_affine: u64,
    pub nr_wakeups_affine_attempts: u64,
}

/// What the run queue's lock guards of a task.
#[derive(Clone, Debug)]
pub struct Entity<L: Policy> {
    /// The policy's part.
    pub pol: L::Task,
    /// Its class and priority.
    pub sched: Sched,
    /// `SCHED_RR`: ticks that found it running in this slice.
    pub rr_ticks: u32,
    /// A real-time task that is about to stop becomes the last of its priority: its slice is over, or one that may run nowhere else waits.
    pub makes_room: bool,
    /// A real-time task that may run on one CPU only. (Kept for these alone: it is in the affinity, which others of its data's line are not.)
    pub pinned: bool,
    /// The run queue it is on (queued or running there).
    pub queued_on: Option<CpuId>,
    /// It sleeps but stays queued.
    pub delayed: bool,
    /// Runnable, and kept out of its class's hands: a group of its has no run time left here.
    pub parked: bool,
    /// load_avg: weight while runnable.
    pub load: Average,
    /// util_avg: 1024 while running.
    pub util: Average,
    /// util_est: what util was when it went to sleep, smoothed downwards.
    pub util_est: u64,
    /// What of it counts where the task is runnable.
    pub est_counted: u64,
    /// What its load counted for on its queue when it went to sleep ([`Policy::h_load`]).
    pub slept_load: u64,
    /// Runnable (not running) since.
    pub waiting_since: Option<Time>,
    /// The wait began with a wake-up.
    pub woken: bool,
    /// Counters.
    pub stats: RunStats,
}

/// Per-task counters, as `perf sched latency` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Times it got a CPU.
    pub switches: u64,
    /// Of those, after waiting behind others.
    pub waits: u64,
    /// Total time runnable but not running, in ns.
    pub wait_sum: Nanos,
    /// Longest such wait.
    pub wait_max: Nanos,
    /// When the longest began.
    pub wait_max_at: Time,
    /// Moves between CPUs.
    pub nr_migrations: u64,
    /// Involuntary switches.
    pub preempted: u64,
    /// Time run, in ns.
    pub sum_exec: Nanos,
}

impl<P: Platform, L: Policy> Task<P, L> {
    /// The words of the sleep and wake-up protocol.
    #[inline]
    pub fn words(&self) -> WakeWords<'_, P> {
        WakeWords { state: &self.state, on_rq: &self.on_rq, on_cpu: &self.on_cpu }
    }
}

impl<L: Policy> Entity<L> {
    fn new(policy: &L, sched: Sched) -> Self {
        let mut pol = policy.new_task(sched.nice());
        if !sched.is_only_nice() {
            sched.apply(policy, &mut pol);
        }
        Entity {
            pol,
            sched,
            rr_ticks: 0,
            makes_room: false,
            pinned: false,
            queued_on: None,
            delayed: false,
            parked: false,
            load: Average::default(),
            util: Average::default(),
            util_est: 0,
            est_counted: 0,
            slept_load: 0,
            waiting_since: None,
            woken: false,
            stats: RunStats::default(),
        }
    }
}

const CHUNK: usize = 256;
/// Most tasks that may exist at once.
pub const TASKS_MAX: usize = 1 << 20;

/// Tasks that were made together.
type Chunk<P, L> = OnceLock<Box<[Task<P, L>; CHUNK]>>;

/// The task table: addresses never change, slots of dead tasks are reused.
pub struct Tasks<P: Platform, L: Policy> {
    chunks: Vec<Chunk<P, L>>,
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    free: Vec<TaskId>,
    made: usize,
}

impl<P: Platform, L: Policy> Default for Tasks<P, L> {
    fn default() -> Self {
        Tasks { chunks: (0..TASKS_MAX / CHUNK).map(|_| OnceLock::new()).collect(), slots: Mutex::default() }
    }
}

impl<P: Platform, L: Policy> Tasks<P, L> {
    /// The task of this id; it exists or existed.
    #[inline]
    pub fn get(&self, task: TaskId) -> &Task<P, L> {
        let chunk = self.chunks[task.index() / CHUNK].get().expect("the task was created");
        &chunk[task.index() % CHUNK]
    }

    /// Was a slot of this number ever made?
    pub fn exists(&self, task: TaskId) -> bool {
        self.chunks.get(task.index() / CHUNK).is_some_and(|c| c.get().is_some())
    }

    /// The slots that were ever made.
    pub fn ids(&self) -> impl Iterator<Item = TaskId> {
        let made = self.slots.lock().expect("no panic while held").made;
        (0..made).map(|id| TaskId(id as u32))
    }

    /// A slot for a new task of this group, in state NEW.
    pub fn create(&self, p: &P, policy: &L, sched: Sched, affinity: Affinity, group: GroupId) -> TaskId {
        let id = {
            let mut slots = self.slots.lock().expect("no panic while held");
            slots.free.pop().unwrap_or_else(|| {
                let id = slots.made;
                assert!(id < TASKS_MAX, "more than {TASKS_MAX} tasks at once");
                slots.made += 1;
                TaskId(id as u32)
            })
        };
        self.chunks[id.index() / CHUNK].get_or_init(|| {
            let tasks: Box<[_]> = (0..CHUNK)
                .map(|_| {
                    let words = p.line();
                    let data = p.line();
                    let word = || p.word(words, 0);
                    Task {
                        state: p.word(words, state::DEAD),
                        on_rq: word(),
                        on_cpu: word(),
                        cpu: word(),
                        pi_lock: word(),
                        wake_entry: word(),
                        wake_flags: word(),
                        affinity: p.cell(data, Affinity::ALL),
                        info: p.cell(data, TaskInfo::default()),
                        ent: p.cell(data, Entity::new(policy, Sched::default())),
                    }
                })
                .collect();
            tasks.try_into().unwrap_or_else(|_| unreachable!("the chunk is whole"))
        });
        let t = self.get(id);
        // SAFETY: the slot is ours alone: it was never used, or its last owner is DEAD and off every queue.
        unsafe {
            p.write2(&t.info, &t.ent, |info, ent| {
                *info = TaskInfo::default();
                *ent = Entity::new(policy, sched);
                ent.pinned = sched.rt().is_some() && !affinity.is_movable();
                policy.join(&mut ent.pol, group);
            });
            p.write(&t.affinity, |a| *a = affinity);
        }
        p.store(&t.state, state::NEW, std::sync::atomic::Ordering::Release);
        id
    }

    /// The slot of a dead task may be used again.
    pub fn free(&self, task: TaskId) {
        self.slots.lock().expect("no panic while held").free.push(task);
    }

    /// Number of slots that were ever used.
    pub fn len(&self) -> usize {
        self.slots.lock().expect("no panic while held").made
    }

    /// No task was ever created.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
