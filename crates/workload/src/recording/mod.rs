//! Recordings of a real kernel as workloads: what each task did, replayed step by step on any machine and policy.
//!
//! A recording says when tasks ran; a replay must say what they do and leave the when to the scheduler under test. So
//! each task becomes a chain of steps:
//!
//! * **run**: the time between two sleeps, preemptions cut out;
//! * **post, wait**: a wake-up by another replayed task. The waker posts the sleeper's semaphore at that point of its own
//!   run. Semaphores remember, so a sleeper that comes late does not sleep;
//! * **sleep**: one that a timer, an interrupt or a task outside the replay ended: as long as recorded;
//! * **spawn**: a fork; the child's chain starts there. The end of a chain is the task's exit.
//!
//! **A replay cannot deadlock.** Chains are built in the order of the file. Every wait is paired with one post that stands
//! before the end of that wait in the file. Were all tasks stuck, take the wait that ends first in the file: each post
//! that it needs stands before that end, in a task that is stuck in a wait that ends later, hence before that wait began:
//! it has been executed. The same holds for spawns.
//!
//! The stages, a module each: `chains` (events to chains of all tasks),
//! `filter` (whose chains are replayed), `tape` (the chains as they are played). Memory is proportional to the steps, 8
//! bytes each, two for a wait. `docs/recordings.md` is the reference.

mod chains;
mod filter;
mod report;
mod tape;

pub use report::{RecordedTask, RecordingError, RecordingReport};

use std::io::Cursor;
use std::sync::Arc;

use contend_sim::program::Workload;
use contend_trace::Reader;

use crate::spec::TASKS_MAX;
use crate::spec::keys::spec;

spec! {
    /// A recording of a real kernel (trace.dat, Perfetto or text), replayed task by task (docs/recordings.md). Ends with the
    /// recording's tasks.
    pub struct RecordingSpec = "recording" {
        /// The file, relative to the scenario; may be gzip-compressed.
        file: String [()] = String::new(), "path";
        /// How many times side by side. Default: as recorded.
        copies: u64 [1..=100_000] = 1, "copies";
        /// Factor by which run and sleep times shrink. Default: as recorded.
        speed: f64 [0.001..=1000.0] = 1.0, "";
        /// Name of the command whose descendants are replayed. Default: empty, the first command that was executed
        /// (one that perf or trace-cmd executed goes first).
        command: String [()] = String::new(), "name";
        /// Replay all tasks, those of the system too. Default: only the command's.
        all: bool [()] = false, "";
    }
}

impl RecordingSpec {
    /// Add the recording's tasks to `w`; `bytes` is the file.
    ///
    /// # Errors
    /// Not a recording; one with nothing to replay; too many tasks.
    pub fn build(&self, w: &mut Workload, bytes: Vec<u8>) -> Result<RecordingReport, RecordingError> {
        let mut reader = Reader::from_read(&self.file, Cursor::new(bytes))?;
        let mut chains = chains::Builder::new();
        for event in &mut reader {
            chains.event(&event?);
        }
        let chains = chains.finish();
        let chosen = filter::choose(&chains, &self.command, self.all);
        if chosen.included.iter().all(|i| !i) {
            let (file, command) = (self.file.clone(), self.command.clone());
            return Err(if command.is_empty() || self.all {
                RecordingError::NoTasks { file }
            } else {
                RecordingError::NoCommand { file, command, executed: chains.executed() }
            });
        }
        let (tape, mut report) = tape::cut(&chains, &chosen, self.speed);
        let tasks = tape.tasks.len() as u64 * self.copies;
        if tasks > TASKS_MAX {
            return Err(RecordingError::TooManyTasks { file: self.file.clone(), tasks, copies: self.copies });
        }
        report.file.clone_from(&self.file);
        report.copies = self.copies;
        report.read = Some(reader.report());
        let tape = Arc::new(tape);
        for copy in 0..self.copies {
            tape::add(&tape, w, copy, self.copies);
        }
        Ok(report)
    }
}
