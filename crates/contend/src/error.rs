//! What can be wrong with a scenario. Every message names the file, the line, the key, what was found and what would be
//! right.

use std::fmt;

use contend_machine::MachineError;
use contend_sched::switches::FeatureError;
use contend_trace::TraceError;
use contend_workload::{SpecError, WorkloadError};
use thiserror::Error;

/// Where in a scenario something stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct At {
    /// The file, or the option (`--set`, `--policy`...) of an override.
    pub file: String,
    /// The line, counted from 1; 0 if there is none.
    pub line: usize,
    /// The key with its section, such as `set.wake_path`.
    pub key: String,
}

impl At {
    /// On the command line: this option.
    pub(crate) fn option(name: &str) -> Self {
        At { file: name.into(), line: 0, key: String::new() }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        Ok(())
    }
}

/// Why a scenario cannot be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The operating system refused.
    #[error("{file}: cannot be read: {why}")]
    Read {
        /// The file.
        file: String,
        /// The operating system's reason.
        why: String,
    },
    /// Larger than any scenario can sensibly be.
    #[error("{file}: larger than {max} bytes, the most {what} may have")]
    TooLarge {
        /// The file.
        file: String,
        /// The limit.
        max: u64,
        /// What the file should be.
        what: &'static str,
    },
    /// A file of another kind.
    #[error("{file}: {found}; {right}")]
    WrongKind {
        /// The file.
        file: String,
        /// What it seems to be.
        found: String,
        /// What to do instead.
        right: String,
    },
    /// Not TOML, or the file ends too early.
    #[error("{file}:{line}: not valid TOML: {why}")]
    Syntax {
        /// The file.
        file: String,
        /// The line.
        line: usize,
        /// The parser's reason.
        why: String,
    },
    /// A key nobody reads.
    #[error("{at}: unknown key; {right}")]
    UnknownKey {
        /// Where.
        at: At,
        /// A close key, or all keys that may stand here.
        right: String,
    },
    /// A key that must be there is not.
    #[error("{at}: missing; {right}")]
    MissingKey {
        /// Where.
        at: At,
        /// What to write.
        right: String,
    },
    /// A value of the wrong type, out of range, or in contradiction to another.
    #[error("{at}: found {found}; should be {right}")]
    Value {
        /// Where.
        at: At,
        /// What stands there.
        found: String,
        /// What should.
        right: String,
    },
    /// A command of a timeline.
    #[error("{at}: `xl {command}`: {why}")]
    Xl {
        /// Where.
        at: At,
        /// The command.
        command: String,
        /// What `xl` or Xen would say.
        why: String,
    },
    /// No preset of this name.
    #[error("{at}: unknown policy \"{name}\"; {right}")]
    UnknownPolicy {
        /// Where.
        at: At,
        /// The name.
        name: String,
        /// A close one, or where they are listed.
        right: String,
    },
    /// The machine of a scenario.
    #[error("{at}: {source}")]
    Machine {
        /// Where it was named.
        at: At,
        /// What is wrong with it.
        source: Box<MachineError>,
    },
    /// A cost of the machine that was set.
    #[error(transparent)]
    MachineCost(Box<MachineError>),
    /// A feature.
    #[error("{at}: {source}")]
    Feature {
        /// Where it was set.
        at: At,
        /// What is wrong with it.
        source: Box<FeatureError>,
    },
    /// A key of the workload.
    #[error("{at}: {source}")]
    WorkloadKey {
        /// Where it was given.
        at: At,
        /// What is wrong with it.
        source: Box<SpecError>,
    },
    /// The workload cannot be built for this machine.
    #[error(transparent)]
    Workload(Box<WorkloadError>),
    /// A recording given in place of a scenario.
    #[error(transparent)]
    Trace(Box<TraceError>),
}

impl From<WorkloadError> for ScenarioError {
    fn from(e: WorkloadError) -> Self {
        ScenarioError::Workload(Box::new(e))
    }
}

impl From<TraceError> for ScenarioError {
    fn from(e: TraceError) -> Self {
        ScenarioError::Trace(Box::new(e))
    }
}

/// Why there is no result. What happens inside a simulation is no error but its outcome.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The scenario is wrong.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A file could not be written.
    #[error("{file}: cannot be written: {why}")]
    Write {
        /// The file or directory.
        file: String,
        /// The operating system's reason, or what stands in the way.
        why: String,
    },
    /// The system refused what the simulation needs.
    #[error("the simulation cannot start: {0}")]
    Resources(std::io::Error),
}
