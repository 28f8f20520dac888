//! What became of a recording.

use std::fmt;

use super::locks::RecordedLock;
use crate::model::NewidlePulls;
use crate::model::step::Why;

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
    /// Tasks that ran with a real-time priority, if only for a while; replayed as `SCHED_FIFO` there.
    pub realtime: u64,
    /// Changes of class, priority or nice value.
    pub reclassed: u64,
    /// Stretches of running between two sleeps.
    pub bursts: u64,
    /// Recorded time of all runs, in ns.
    pub run_ns: u64,
    /// From the first replayed step to the end of the recording, in ns.
    pub span_ns: u64,
    /// Sleeps by what ended them, in the order of [`Why::ALL`]. All but those that replayed tasks end are replayed with
    /// their recorded length.
    pub sleeps: [u64; Why::ALL.len()],
    /// Names of tasks that are replayed because they and the command's tasks wake each other, with their numbers.
    pub partners: Vec<(String, u64)>,
    /// Kernel work that the simulated kernel does itself, taken out of runs, in ns.
    pub kernel_ns: u64,
    /// How long a system call that woke another task goes on after that, in ns: the median where the woken task preempted its waker
    /// at once, less what the simulated kernel does then.
    pub tail_ns: u64,
    /// All such time, in ns: part of the runs, spent in the kernel.
    pub tails_ns: u64,
    /// Time of interrupts, taken out of runs, in ns.
    pub interrupts_ns: u64,
    /// Time spent spinning for contended kernel locks, taken out of runs, in ns.
    pub spun_ns: u64,
    /// Locks of the recorded kernel that the replayed tasks waited for, those with the longest waits first. None are
    /// replayed: sleeping for them is among the sleeps, spinning is left out.
    pub locks: Vec<RecordedLock>,
    /// Posts. More than waits where a task was woken and never seen to run again.
    pub posts: u64,
    /// Of those, synchronous ones (WF_SYNC): made by a task in another system call than futex. Where the recording has
    /// neither calls of futex nor of execve, none is known.
    pub sync_posts: u64,
    /// Forks.
    pub forks: u64,
    /// Programs executed.
    pub execs: u64,
    /// Steps on the tape, 8 bytes each.
    pub steps: u64,
    /// Recorded switches away from replayed tasks.
    pub switches: u64,
    /// Of those, switches in which the task stayed runnable, but yields.
    pub preempted: u64,
    /// Switches that nothing but the task itself can have caused: yields.
    pub yields: u64,
    /// Wake-ups of replayed tasks that ended no sleep.
    pub idle_wakes: u64,
    /// Sleeps of replayed tasks whose end was not recorded: they last until the task runs.
    pub unseen: u64,
    /// Times a replayed task's coming to a CPU, or its leaving, was not recorded. Who came to an idle CPU is taken to have run there since it was
    /// woken, elsewhere not at all; who left, until the CPU's last event.
    pub unchained: u64,
    /// There is no `sched_waking` in it: `sched_wakeup` was taken for it.
    pub no_waking: bool,
    /// Wake-ups taken for a replayed task's own because the recording does not tell interrupts apart.
    pub ambiguous: u64,
    /// What the reader met.
    pub read: Option<contend_trace::ReadReport>,
    /// What came of newidle balances, of all CPUs and tasks: how a replay begins.
    pub newidle: NewidlePulls,
    /// The frequency that the time stamps of a binary trace of Xen are supposed to have, where nobody said another one.
    pub assumed_hz: Option<u64>,
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
    /// Its number among all tasks of the recording: another may have had its thread id before.
    pub number: u32,
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
    /// Of those, switches in which it stayed runnable, but yields.
    pub preempted: u64,
    /// It exited within the recording.
    pub exited: bool,
}

impl fmt::Display for RecordingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} tasks ran {:.6} s in {} bursts over {:.6} s; {} left out ({} of the kernel)",
            self.file,
            self.tasks,
            self.run_ns as f64 / 1e9,
            self.bursts,
            self.span_ns as f64 / 1e9,
            self.outside,
            self.kernel_threads
        )?;
        if !self.partners.is_empty() {
            let all: Vec<String> = self.partners.iter().map(|(name, n)| format!("{name} ({n})")).collect();
            write!(f, "\n  besides the command's, as they wake each other: {}", all.join(", "))?;
        }
        let of = |why: Why| self.sleeps[why as usize];
        write!(
            f,
            "\n  sleeps ended by replayed tasks {}, timers {}, devices {}, tasks left out {}, other interrupts {}, unseen {}; \
             forks {}, execs {}",
            of(Why::Task),
            of(Why::Timer),
            of(Why::Io),
            of(Why::Outside),
            of(Why::Interrupt),
            of(Why::Unseen),
            self.forks,
            self.execs
        )?;
        write!(f, "; switches {}, of which preemptions {}", self.switches, self.preempted)?;
        if self.yields > 0 {
            write!(f, ", yields {}", self.yields)?;
        }
        if self.sync_posts > 0 {
            write!(f, "; wake-ups {}, of which synchronous {}", self.posts, self.sync_posts)?;
        }
        let ms = |ns: u64| ns as f64 / 1e6;
        write!(f, "\n  taken out of runs: scheduling and system calls {:.3} ms", ms(self.kernel_ns))?;
        write!(
            f,
            "; before: interrupts {:.3} ms, spinning for kernel locks {:.3} ms",
            ms(self.interrupts_ns),
            ms(self.spun_ns)
        )?;
        if self.tail_ns > 0 {
            write!(f, "\n  after a wake-up a system call goes on for {:.1} us", self.tail_ns as f64 / 1e3)?;
        }
        if !self.locks.is_empty() {
            let (waits, ns) = self.locks.iter().fold((0, 0), |(n, ns), l| (n + l.contended, ns + l.wait_ns));
            write!(f, "\n  contended kernel locks: {waits} waits of {:.3} ms in all", ms(ns))?;
        }
        if self.newidle.chances > 0 {
            let NewidlePulls { chances, pulled } = self.newidle;
            let ratio = self.newidle.ratio();
            write!(
                f,
                "\n  a task waited elsewhere as a CPU began to idle {chances} times; pulled {pulled} times: newidle_ratio {ratio}"
            )?;
        }
        let odd = [
            (self.idle_wakes, "wake-ups of a task that did not sleep"),
            (self.unseen, "sleeps whose end is not recorded"),
            (self.unchained, "times a task came to a CPU or left it unrecorded"),
            (self.ambiguous, "wake-ups that may be interrupts' (the recording has no flags)"),
            (self.realtime, "real-time tasks, replayed as SCHED_FIFO"),
            (self.reclassed, "changes of class, priority or nice value, replayed"),
        ];
        if let Some(read) = &self.read {
            write!(f, "{}", contend_trace::Damage(read))?;
        }
        if let Some(hz) = self.assumed_hz {
            write!(f, "\n  time stamps taken to be of {} GHz, as xenalyze does (cpu_hz)", hz as f64 / 1e9)?;
        }
        if self.no_waking {
            write!(
                f,
                "\n  no sched_waking in it: sched_wakeup is taken for it; of wake-ups that it has from an interrupt nobody knows who made them, and those sleeps \
                 last as long as recorded on any machine"
            )?;
        }
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
    /// It does not say who ran.
    #[error(
        "{file}: no sched_switch among its {events} events: nobody knows who ran when; record the events sched:sched_switch, \
         sched_waking, sched_wakeup_new, sched_process_fork, sched_process_exec and sched_process_exit"
    )]
    NoSwitches {
        /// The file.
        file: String,
        /// All events.
        events: u64,
    },
    /// It is no one recording in the order of time.
    #[error(
        "{file}: {count} of its {events} events go back in time, by up to {:.3} s: not sorted by time, more than one recording, or a damaged time stamp",
        *worst_ns as f64 / 1e9
    )]
    OutOfOrder {
        /// The file.
        file: String,
        /// Events before an earlier one.
        count: u64,
        /// All events.
        events: u64,
        /// The longest way back, in ns.
        worst_ns: u64,
    },
    /// A text of which most is no event.
    #[error("{file}:{line}: found {found:?}, and {damaged} such lines beside {events} events; {}", FIELDS)]
    Damaged {
        /// The file.
        file: String,
        /// The first such line, from 1.
        line: u64,
        /// What stands there, shortened.
        found: String,
        /// All such lines.
        damaged: u64,
        /// Events that could be read.
        events: u64,
    },
    /// Who is to be replayed never ran.
    #[error("{file}: none of the {tasks} tasks to replay ran in it{damage}")]
    NoRuns {
        /// The file.
        file: String,
        /// How many they are.
        tasks: usize,
        /// What of the file is missing or damaged: lines, each on a new line.
        damage: String,
    },
    /// A frequency for time stamps that are ns.
    #[error("{file}: cpu_hz: found {hz}; should be left out: {format} has times, not a count of clocks")]
    CpuHz {
        /// The file.
        file: String,
        /// The frequency.
        hz: u64,
        /// What the file is.
        format: contend_trace::Format,
    },
    /// All tasks, and those of one command.
    #[error(
        "{file}: command = \"{command}\" and all = true: should be one of them; all takes the command's tasks, too"
    )]
    Both {
        /// The file.
        file: String,
        /// The command.
        command: String,
    },
    /// The command was not executed.
    #[error("{file}: \"{command}\" was not executed in it; executed were {}", some(executed))]
    NoCommand {
        /// The file.
        file: String,
        /// The command asked for.
        command: String,
        /// Those that were.
        executed: Vec<String>,
    },
    /// No command was executed, and no task is called so.
    #[error("{file}: no task in it is called \"{command}\"; tasks are {}", some(tasks))]
    NoTask {
        /// The file.
        file: String,
        /// The name asked for.
        command: String,
        /// Their names.
        tasks: Vec<String>,
    },
    /// The file of the machine it was recorded on cannot be read.
    #[error("{file}: cannot be read: {}", contend_machine::reason(source))]
    Read {
        /// The file.
        file: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file with the tasks' sessions is not right.
    #[error("{file}: {what}")]
    Sessions {
        /// The file.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// The machine it was recorded on is not right.
    #[error("{0}")]
    Machine(#[from] contend_machine::MachineError),
    /// Jobs asked for, and none found.
    #[error(
        "{file}: no task in it starts others a few at a time, as make -j and xargs -P do; leave jobs out, or set copies"
    )]
    NoJobs {
        /// The file.
        file: String,
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

/// What a line of a text needs.
const FIELDS: &str = "a line has who ran (name and pid), the CPU in brackets, the time, the event and its fields, as `perf script --ns`, \
                      `trace-cmd report` and tracefs write them";

impl RecordingError {
    /// Name its file as `placed` does.
    pub fn place(&mut self, placed: impl FnOnce(&str) -> String) {
        match self {
            Self::Trace(e) => *e.path_mut() = placed(&e.path_mut().to_string_lossy()).into(),
            Self::NoTasks { file }
            | Self::NoSwitches { file, .. }
            | Self::OutOfOrder { file, .. }
            | Self::Damaged { file, .. }
            | Self::NoRuns { file, .. }
            | Self::CpuHz { file, .. }
            | Self::Both { file, .. }
            | Self::NoCommand { file, .. }
            | Self::NoTask { file, .. }
            | Self::Read { file, .. }
            | Self::Sessions { file, .. }
            | Self::NoJobs { file }
            | Self::TooManyTasks { file, .. } => *file = placed(file),
            Self::Machine(_) => {}
        }
    }
}

/// Names that an error lists at most.
const NAMES: usize = 30;

/// The first of some names.
fn some(names: &[String]) -> String {
    let more = if names.len() > NAMES { ", ..." } else { "" };
    format!("{}{more}", names[..names.len().min(NAMES)].join(", "))
}
