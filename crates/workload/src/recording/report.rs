//! What became of a recording.

/// Counts of everything in a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordingReport {
    /// Tasks replayed (of one copy).
    pub tasks: u64,
}

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// Not a recording.
    #[error("{0}")]
    Trace(#[from] contend_trace::TraceError),
    /// Nothing in it runs.
    #[error("{file}: no task of the recorded command runs in it; set all = true for every task")]
    NoTasks {
        /// The file.
        file: String,
    },
}
