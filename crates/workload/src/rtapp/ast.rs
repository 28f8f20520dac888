//! An rt-app file as types: what it says, with nothing about any machine.

use super::error::Pos;

/// A whole file. [`super::parse`] makes it; [`RtApp::workload`] turns it into tasks for a machine.
#[derive(Clone, PartialEq, Debug)]
pub struct RtApp {
    /// The file's name, for messages.
    pub file: String,
    /// The `global` section.
    pub global: Global,
    /// The tasks in the file's order.
    pub tasks: Vec<Task>,
    /// What was accepted but has no effect or looks wrong, one sentence each.
    pub notes: Vec<String>,
}

/// The `global` section, as far as it matters to a simulation.
#[derive(Clone, PartialEq, Debug)]
pub struct Global {
    /// End of the run in seconds (`None`: `-1`, when all tasks have ended).
    pub duration_s: Option<u32>,
    /// Policy of tasks that name none (`None`: not said, which is `SCHED_OTHER`).
    pub default_policy: Option<Policy>,
    /// Where `default_policy` stands.
    pub default_policy_pos: Pos,
    /// Buffer that `mem` writes to and `iorun` writes from, in bytes.
    pub mem_buffer_bytes: u64,
    /// File that `iorun` writes to.
    pub io_device: String,
    /// CPU whose speed the times of `run` count by (`None`: the fastest).
    pub calibrated_on: Option<u16>,
    /// Where that stands.
    pub calibration_pos: Pos,
    /// Report the sum of a phase's slacks rather than the last one.
    pub cumulative_slack: bool,
}

impl Default for Global {
    fn default() -> Self {
        Global {
            duration_s: None,
            default_policy: None,
            default_policy_pos: Pos::default(),
            mem_buffer_bytes: 4 << 20,
            io_device: "/dev/null".into(),
            calibrated_on: Some(0),
            calibration_pos: Pos::default(),
            cumulative_slack: false,
        }
    }
}

/// A scheduling policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// `SCHED_OTHER`.
    #[default]
    Other,
    /// `SCHED_BATCH`.
    Batch,
    /// `SCHED_IDLE`.
    Idle,
    /// `SCHED_FIFO`.
    Fifo,
    /// `SCHED_RR`.
    RoundRobin,
    /// `SCHED_DEADLINE`: [`RtApp::workload`] refuses it.
    Deadline,
}

impl Policy {
    /// All policies by name.
    pub const ALL: [(&'static str, Policy); 6] = [
        ("SCHED_OTHER", Policy::Other),
        ("SCHED_BATCH", Policy::Batch),
        ("SCHED_IDLE", Policy::Idle),
        ("SCHED_FIFO", Policy::Fifo),
        ("SCHED_RR", Policy::RoundRobin),
        ("SCHED_DEADLINE", Policy::Deadline),
    ];

    /// The name in files.
    pub fn name(self) -> &'static str {
        Policy::ALL.iter().find(|(_, p)| *p == self).map_or("", |(n, _)| n)
    }
}

/// A number of repetitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loops {
    /// `-1`.
    Forever,
    /// That many times, at least 1.
    Times(u32),
}

/// Settings that a task or a phase may have.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Settings {
    /// `policy` and where it stands.
    pub policy: Option<(Policy, Pos)>,
    /// `priority` (nice value for `SCHED_OTHER`) and where it stands.
    pub priority: Option<(i32, Pos)>,
    /// `cpus` in ascending order without repetitions, and where they stand.
    pub cpus: Option<(Vec<u32>, Pos)>,
    /// `taskgroup`, the path of a group, and where it stands.
    pub taskgroup: Option<(String, Pos)>,
}

/// One entry of `tasks`: the pattern of `instances` threads.
#[derive(Clone, PartialEq, Debug)]
pub struct Task {
    /// Its key.
    pub name: String,
    /// Where it stands.
    pub pos: Pos,
    /// Threads at the start; 0 if it is only forked.
    pub instances: u32,
    /// Start delay in us.
    pub delay_us: u32,
    /// How often the phases run as a whole.
    pub loops: Loops,
    /// Task-wide settings.
    pub settings: Settings,
    /// Phases in order; a task without `phases` has one that bears the task's name.
    pub phases: Vec<Phase>,
}

/// A phase: events, repeated.
#[derive(Clone, PartialEq, Debug)]
pub struct Phase {
    /// Its key.
    pub name: String,
    /// Where it stands.
    pub pos: Pos,
    /// How often it runs before the next phase.
    pub loops: Loops,
    /// Its settings.
    pub settings: Settings,
    /// Its events in order.
    pub events: Vec<Event>,
}

/// An event and where it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// Its key, suffix included.
    pub key: String,
    /// Where it stands.
    pub pos: Pos,
    /// What it does.
    pub kind: EventKind,
}

/// What an event does. Times are in us.
#[derive(Clone, PartialEq, Debug)]
pub enum EventKind {
    /// Work worth this long at reference speed.
    Run(u32),
    /// Work without an end (`"run" : -1`).
    RunForever,
    /// Compute until this much time has passed.
    Runtime(u32),
    /// Sleep this long.
    Sleep(u32),
    /// Write this many bytes to memory.
    Mem(u32),
    /// Write this many bytes to the I/O device.
    IoRun(u32),
    /// Sleep until the timer fires.
    Timer {
        /// The timer's name; one that starts with `unique` is each instance's own.
        timer: String,
        /// Its period.
        period_us: u32,
        /// A late timer keeps its phase instead of starting anew from now.
        absolute: bool,
    },
    /// Lock a mutex.
    Lock(String),
    /// Unlock a mutex.
    Unlock(String),
    /// Wait for a condition variable.
    Wait {
        /// The condition variable.
        cond: String,
        /// The mutex, held.
        mutex: String,
    },
    /// Wake one waiter.
    Signal(String),
    /// Wake all waiters.
    Broadcast(String),
    /// Signal a condition variable, then wait for it.
    Sync {
        /// The condition variable.
        cond: String,
        /// The mutex.
        mutex: String,
        /// The task does not hold the mutex here: take it before, release it after.
        take: bool,
    },
    /// Wait for all users of the barrier.
    Barrier(String),
    /// Wait for a `resume` of that name.
    Suspend(String),
    /// Wake all that are suspended under that name.
    Resume(String),
    /// `sched_yield`.
    Yield,
    /// Start another instance of that task.
    Fork(String),
}

impl Task {
    /// All events of all phases in order.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.phases.iter().flat_map(|p| &p.events)
    }
}

impl RtApp {
    /// Threads at the start.
    pub fn task_count(&self) -> u64 {
        self.tasks.iter().map(|t| u64::from(t.instances)).sum()
    }
}
