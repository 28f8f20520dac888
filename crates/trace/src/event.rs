//! The one event model that every reader fills and every writer takes.

/// Nanoseconds on the trace's clock.
pub type Nanos = u64;

/// One scheduler event on one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time in ns.
    pub ts: Nanos,
    /// The CPU that recorded it.
    pub cpu: u32,
    /// The task that ran there (0: idle).
    pub pid: u32,
    /// Its `comm`.
    pub comm: String,
    /// What happened.
    pub kind: Kind,
}

/// A task as events name it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TaskRef {
    /// Process id of the thread (tid).
    pub pid: u32,
    /// Name.
    pub comm: String,
    /// Kernel priority (120 = nice 0).
    pub prio: i32,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// sched_switch.
    Switch {
        /// Who left.
        prev: TaskRef,
        /// The letter set of its state: "R", "R+", "S", "D", "Z", "X", ...
        prev_state: String,
        /// Who came.
        next: TaskRef,
    },
    /// sched_waking.
    Waking {
        /// Who is being woken.
        task: TaskRef,
        /// The CPU named in the event.
        target_cpu: u32,
    },
    /// sched_wakeup.
    Wakeup {
        /// Who is runnable now.
        task: TaskRef,
        /// On which CPU's queue.
        target_cpu: u32,
    },
    /// sched_wakeup_new.
    WakeupNew {
        /// Who is runnable for the first time.
        task: TaskRef,
        /// On which CPU's queue.
        target_cpu: u32,
    },
    /// sched_migrate_task.
    Migrate {
        /// Who moves.
        task: TaskRef,
        /// From.
        orig_cpu: u32,
        /// To.
        dest_cpu: u32,
    },
    /// sched_process_fork.
    Fork {
        /// Parent's pid.
        parent_pid: u32,
        /// Parent's name.
        parent_comm: String,
        /// Child's pid.
        child_pid: u32,
        /// Child's name.
        child_comm: String,
    },
    /// sched_process_exec.
    Exec {
        /// New image.
        filename: String,
        /// Thread that called.
        pid: u32,
    },
    /// sched_process_exit.
    Exit {
        /// Who exits.
        task: TaskRef,
    },
}
