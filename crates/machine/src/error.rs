//! What can be wrong with a machine file. Every message names the file, the line, the key, what was found and what
//! would be right.

use std::fmt;

use thiserror::Error;

/// Where in a machine file something stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct At {
    /// The file, or `--set` for an override.
    pub file: String,
    /// The line, counted from 1; 0 if there is none.
    pub line: usize,
    /// The key with its section, such as `lines.llc`.
    pub key: String,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.key)
    }
}

/// Why a machine could not be had.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum MachineError {
    /// The operating system refused.
    #[error("{file}: cannot be read: {why}")]
    Read {
        /// The file.
        file: String,
        /// The operating system's reason.
        why: String,
    },
    /// Larger than any machine file can sensibly be.
    #[error("{file}: larger than {max} bytes, the most a machine file may have")]
    TooLarge {
        /// The file.
        file: String,
        /// The limit.
        max: u64,
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
        /// Where: the line of the table that lacks the key.
        at: At,
        /// What to write.
        right: String,
    },
    /// A string where a number should be, and the like.
    #[error("{at}: found {found}; should be {right}")]
    WrongType {
        /// Where.
        at: At,
        /// What stands there.
        found: String,
        /// What should.
        right: String,
    },
    /// A number or name out of its range.
    #[error("{at}: found {found}; should be {right}")]
    OutOfRange {
        /// Where.
        at: At,
        /// What stands there.
        found: String,
        /// What should.
        right: String,
    },
    /// The value lies outside its own band.
    #[error("{at}: found lo = {lo}, value = {value}, hi = {hi}; should be lo <= value <= hi")]
    Band {
        /// Where.
        at: At,
        /// Lower end of the band.
        lo: u64,
        /// The value.
        value: u64,
        /// Upper end of the band.
        hi: u64,
    },
    /// A list with too few or too many entries.
    #[error("{at}: found {found} entries; should be {right}")]
    Length {
        /// Where.
        at: At,
        /// How many there are.
        found: usize,
        /// How many there should be, and why.
        right: String,
    },
    /// The topology contradicts itself.
    #[error("{at}: contradictory: found {found}; {right}")]
    Contradiction {
        /// Where.
        at: At,
        /// What stands there.
        found: String,
        /// The rule it breaks.
        right: String,
    },
    /// No shipped machine, file or synthetic specification of that name.
    #[error(
        "unknown machine \"{name}\": {close}`contend list machines` lists all; a path ends in .toml; \
         a synthetic machine is written like 2n2l8c2t"
    )]
    UnknownMachine {
        /// The name.
        name: String,
        /// "did you mean ...? " or nothing.
        close: String,
    },
    /// A malformed or impossible synthetic specification.
    #[error("synthetic machine \"{spec}\": {right}")]
    Synthetic {
        /// The specification.
        spec: String,
        /// What would be right.
        right: String,
    },
}
