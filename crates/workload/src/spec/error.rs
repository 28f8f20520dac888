//! What can be wrong with a workload: every message names the key, what was found and what would be right.
//!
//! The text is the scenario's, so the file and line are the caller's to add: [`SpecError::span`] says where.

use std::fmt;
use std::ops::Range;

/// A key or value that is not right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpecError {
    /// The full key, such as `workload.groups`.
    pub key: String,
    /// Bytes of the scenario's text that are wrong; `None` for `--set`.
    pub span: Option<Range<usize>>,
    /// What is wrong.
    pub problem: SpecProblem,
}

/// What is wrong with a key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SpecProblem {
    /// A key nobody reads.
    UnknownKey {
        /// Keys that look like it, nearest first.
        close: Vec<String>,
        /// All keys that may stand here.
        all: Vec<String>,
    },
    /// A key that must be there is not.
    MissingKey {
        /// What to write.
        right: String,
    },
    /// A value of the wrong type, out of its range, or not one of the words.
    Value {
        /// What stands there.
        found: String,
        /// What should.
        right: String,
    },
}

impl fmt::Display for SpecProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecProblem::UnknownKey { close, all } if close.is_empty() => {
                write!(f, "unknown key; keys here are {}", all.join(", "))
            }
            SpecProblem::UnknownKey { close, .. } => write!(f, "unknown key; did you mean {}?", close.join(" or ")),
            SpecProblem::MissingKey { right } => write!(f, "missing; {right}"),
            SpecProblem::Value { found, right } => write!(f, "found {found}; should be {right}"),
        }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.problem)
    }
}

impl std::error::Error for SpecError {}

/// Why a workload cannot be built for a machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A key that is not right for this machine.
    #[error("{0}")]
    Spec(#[from] SpecError),
    /// A file cannot be read.
    #[error("{file}: cannot be read: {}", contend_machine::reason(source))]
    Read {
        /// The file.
        file: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// An rt-app file that is not right.
    #[error("{0}")]
    RtApp(#[from] crate::rtapp::RtAppError),
    /// A file that is no model, or a model that cannot be scaled so.
    #[error("{0}")]
    Model(#[from] crate::model::ModelError),
    /// A recording that cannot be replayed.
    #[error("{0}")]
    Recording(#[from] crate::recording::RecordingError),
}

impl WorkloadError {
    /// Name its file as `placed` does.
    pub fn place(&mut self, placed: impl FnOnce(&str) -> String) {
        match self {
            Self::Spec(_) => {}
            Self::Read { file, .. } => *file = placed(file),
            Self::RtApp(e) => e.file = placed(&e.file),
            Self::Model(e) => e.file = placed(&e.file),
            Self::Recording(e) => e.place(placed),
        }
    }
}

/// [`contend_machine::close_to`] of owned names.
pub(crate) fn close_to(name: &str, all: &[String]) -> Vec<String> {
    contend_machine::close_to(name, all.iter().map(String::as_str)).into_iter().map(String::from).collect()
}
