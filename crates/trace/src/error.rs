//! What can be wrong with a file that should be a trace.

use std::io;
use std::path::PathBuf;

/// Why a trace cannot be read. A single damaged line is no error: it is counted in [`crate::ReadReport`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened or read (a damaged `.gz` is found here; one that is merely cut off is read up to there).
    #[error("{}: cannot be read: {}", path.display(), contend_machine::reason(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A recording in its recorder's own binary form: to be turned into text first.
    #[error("{}: found {found}; turn it into text first: {command}", path.display())]
    Binary {
        /// The file.
        path: PathBuf,
        /// What its first bytes say that it is.
        found: &'static str,
        /// The command that makes a readable file of it.
        command: String,
    },
    /// Text, but not a single line of it is a trace line.
    #[error("{}:{line}: found {found:?}; expected {expected}", path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// The first line that is no trace line, from 1.
        line: u64,
        /// Its text, shortened.
        found: String,
        /// What would be right.
        expected: &'static str,
    },
    /// A binary recording whose header cannot be read, or that holds what cannot be used.
    #[error("{}: found {found}; expected {expected}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What there is, and where.
        found: String,
        /// What would be right.
        expected: &'static str,
    },
    /// A binary trace of Xen that what it is asked for cannot be found in.
    #[error("{}: found {found}; {right}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What there is.
        found: String,
        /// What would be right.
        right: String,
    },
    /// Not a binary trace of Xen: it does not begin with a window of a pCPU.
    #[error("{}: found {found}; expected a binary trace of xentrace (a word 0x2001f003, a pCPU, a size)", path.display())]
    NotXentrace {
        /// The file.
        path: PathBuf,
        /// What there is.
        found: String,
    },
}

impl TraceError {
    /// The file that it names.
    pub fn path_mut(&mut self) -> &mut PathBuf {
        match self {
            Self::Io { path, .. }
            | Self::Binary { path, .. }
            | Self::NotATrace { path, .. }
            | Self::Unusable { path, .. }
            | Self::Unfit { path, .. }
            | Self::NotXentrace { path, .. } => path,
        }
    }

    /// A binary trace of Xen over `ns`, longer than any that is believed.
    pub fn too_long(path: PathBuf, ns: u64) -> Self {
        let right = "expected 24 at most: time stamps are damaged, or --cpu-hz is too low".into();
        Self::Unfit { path, found: format!("records over {} hours", ns / 3_600_000_000_000), right }
    }
}
