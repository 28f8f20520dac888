//! Recordings as workloads.

mod report;

pub use report::{RecordingError, RecordingReport};

use contend_sim::program::Workload;

use crate::spec::keys::spec;

spec! {
    /// A recording of a real kernel (ftrace or perf text), replayed task by task. Ends with the recording's tasks.
    pub struct RecordingSpec = "recording" {
        /// The file, relative to the scenario; plain or gzip-compressed text.
        file: String [()] = String::new(), "path";
        /// How many times side by side. Default: as recorded.
        copies: u64 [1..=100_000] = 1, "copies";
        /// Factor by which run and sleep times shrink. Default: as recorded.
        speed: f64 [0.001..=1000.0] = 1.0, "";
        /// Also the tasks that do not descend from the recorded command. Default: only those that do.
        all: bool [()] = false, "";
    }
}

impl RecordingSpec {
    /// Add the recording's tasks; `bytes` is the file.
    ///
    /// # Errors
    /// Not a recording, or one without a task.
    pub fn build(&self, _w: &mut Workload, _bytes: Vec<u8>) -> Result<RecordingReport, RecordingError> {
        Err(RecordingError::NoTasks { file: self.file.clone() })
    }
}
