//! What became of a recording.

use std::fmt;

/// Counts of everything in a recording, for one copy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordingReport {
    /// The file.
    pub file: String,
    /// Copies replayed.
    pub copies: u64,
    /// Tasks replayed.
    pub tasks: u64,
    /// Of those, tasks that no replayed task starts.
    pub initial: u64,
    /// Tasks of the recording that are not replayed.
    pub outside: u64,
    /// Kernel threads among those.
    pub kernel_threads: u64,
    /// Tasks that ran with a real-time priority; replayed with nice -20.
    pub realtime: u64,
    /// Stretches of running between two sleeps.
    pub bursts: u64,
    /// Recorded time of all runs, in ns.
    pub run_ns: u64,
    /// From the first replayed step to the end of the recording, in ns.
    pub span_ns: u64,
    /// Sleeps that another replayed task ends.
    pub waits: u64,
    /// Sleeps that a timer, an interrupt or nobody known ended: replayed with their recorded length.
    pub sleeps: u64,
    /// Sleeps that a task outside the replay ended: replayed with their recorded length.
    pub sleeps_outside: u64,
    /// Posts. More than waits where a task was woken and never seen to run again.
    pub posts: u64,
    /// Forks.
    pub forks: u64,
    /// Steps on the tape, 8 bytes each.
    pub steps: u64,
    /// Recorded switches away from replayed tasks.
    pub switches: u64,
    /// Of those, switches in which the task stayed runnable.
    pub preempted: u64,
    /// Wake-ups of replayed tasks that ended no sleep.
    pub idle_wakes: u64,
    /// Sleeps of replayed tasks whose end was not recorded: they last until the task runs.
    pub unseen: u64,
    /// Switches away from a replayed task whose coming was not recorded. On an idle CPU it is taken to have run since
    /// it was woken, elsewhere not at all.
    pub unchained: u64,
    /// Wake-ups taken for a replayed task's own because the recording does not tell interrupts apart.
    pub ambiguous: u64,
    /// What the reader met.
    pub read: Option<contend_trace::ReadReport>,
    /// The replayed tasks, in the order of their first event.
    pub per_task: Vec<RecordedTask>,
}

/// One replayed task as it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedTask {
    /// Name at its end.
    pub name: String,
    /// Thread id.
    pub pid: u32,
    /// Time it ran, in ns.
    pub run_ns: u64,
    /// Stretches of running between two sleeps.
    pub bursts: u64,
    /// Sleeps that another replayed task ended.
    pub waits: u64,
    /// Other sleeps.
    pub sleeps: u64,
    /// Switches away from it.
    pub switches: u64,
    /// Of those, switches in which it stayed runnable.
    pub preempted: u64,
    /// It exited within the recording.
    pub exited: bool,
}

impl fmt::Display for RecordingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} tasks ran {:.6} s in {} bursts over {:.6} s; {} left out ({} of the kernel)\n  \
             sleeps ended by replayed tasks {}, by timers, interrupts or unknown {}, by tasks left out {}; forks {}",
            self.file,
            self.tasks,
            self.run_ns as f64 / 1e9,
            self.bursts,
            self.span_ns as f64 / 1e9,
            self.outside,
            self.kernel_threads,
            self.waits,
            self.sleeps,
            self.sleeps_outside,
            self.forks
        )?;
        write!(f, "; switches {}, of which preemptions {}", self.switches, self.preempted)?;
        let odd = [
            (self.idle_wakes, "wake-ups of a task that did not sleep"),
            (self.unseen, "sleeps whose end is not recorded"),
            (self.unchained, "times a task came to a CPU unrecorded"),
            (self.ambiguous, "wake-ups that may be interrupts' (the recording has no flags)"),
            (self.realtime, "real-time tasks, replayed with nice -20"),
        ];
        for (n, what) in odd.iter().filter(|(n, _)| *n > 0) {
            write!(f, "\n  {what}: {n}")?;
        }
        Ok(())
    }
}

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// Not a recording.
    #[error("{0}")]
    Trace(#[from] contend_trace::TraceError),
    /// Nothing in it runs.
    #[error("{file}: no task to replay; all = true takes the system's tasks, too")]
    NoTasks {
        /// The file.
        file: String,
    },
    /// The command was not executed.
    #[error(
        "{file}: \"{command}\" was not executed in it; {}",
        if executed.is_empty() { "no command was".to_string() } else { format!("executed were {}", executed.join(", ")) }
    )]
    NoCommand {
        /// The file.
        file: String,
        /// The command asked for.
        command: String,
        /// Those that were.
        executed: Vec<String>,
    },
    /// Copies times tasks.
    #[error("{file}: {tasks} tasks in {copies} copies; at most 1,000,000")]
    TooManyTasks {
        /// The file.
        file: String,
        /// All tasks.
        tasks: u64,
        /// Copies.
        copies: u64,
    },
}
