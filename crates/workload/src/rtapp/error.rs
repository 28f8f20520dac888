//! What can be wrong with an rt-app file: one error type that says where, what was found and what would be right.

use std::fmt;

/// A place in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord, Default)]
pub struct Pos {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// An rt-app file that cannot be read or cannot be run here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RtAppError {
    /// The file's name as the caller gave it.
    pub file: String,
    /// Where in it.
    pub pos: Pos,
    /// The path of the key, such as `tasks.t0.phases.p1.run` (empty: the file as a whole).
    pub key: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// The file is longer than [`super::MAX_BYTES`].
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// Objects nest deeper than [`super::MAX_DEPTH`].
    TooDeep,
    /// More values than [`super::MAX_VALUES`].
    TooManyValues,
    /// Not JSON, even with comments and trailing commas.
    Syntax(String),
    /// No such key here.
    UnknownKey {
        /// Where the key stands: "a task", "a phase"...
        place: &'static str,
        /// The nearest key that is valid here, or a list of them all.
        nearest: String,
    },
    /// A setting is given twice.
    DuplicateKey {
        /// Line of the first.
        first: u32,
    },
    /// The value has the wrong type.
    Type {
        /// The value found.
        found: String,
        /// What would be right.
        want: &'static str,
    },
    /// The value is out of range or not one of those that exist.
    Value {
        /// The value found.
        found: String,
        /// What would be right.
        want: String,
    },
    /// A key that must be there is not.
    Missing {
        /// The key and its meaning.
        want: &'static str,
    },
    /// Right syntax, but it makes no sense: what, and what would.
    Senseless(String),
    /// rt-app knows it, contend does not simulate it.
    NotModelled(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::TooLarge { bytes } => {
                write!(f, "the file has {bytes} bytes; at most {} are read", super::MAX_BYTES)
            }
            Problem::TooDeep => write!(f, "nested deeper than {} levels", super::MAX_DEPTH),
            Problem::TooManyValues => write!(f, "more than {} values", super::MAX_VALUES),
            Problem::Syntax(what) => write!(f, "{what}"),
            Problem::UnknownKey { place, nearest } => write!(f, "unknown key in {place}; {nearest}"),
            Problem::DuplicateKey { first } => {
                write!(f, "given twice (first on line {first}); only events and phases may repeat")
            }
            Problem::Type { found, want } => write!(f, "found {found}, want {want}"),
            Problem::Value { found, want } => write!(f, "{found} is not valid here, want {want}"),
            Problem::Missing { want } => write!(f, "missing {want}"),
            Problem::Senseless(what) => write!(f, "{what}"),
            Problem::NotModelled(what) => write!(f, "not modelled: {what}"),
        }
    }
}

impl fmt::Display for RtAppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.pos.line, self.pos.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}", self.problem)
    }
}

impl std::error::Error for RtAppError {}

/// "nearest valid key: ..." or, where nothing is near, the list of all of them.
pub(super) fn nearest<'a>(found: &str, valid: impl Iterator<Item = &'a str> + Clone) -> String {
    // Keys are short; whatever is longer is near none of them.
    let lower: String = found.to_lowercase().chars().take(32).collect();
    let best = valid.clone().map(|v| (strsim::levenshtein(&lower, &v.to_lowercase()), v)).min();
    match best {
        Some((d, v)) if d <= 2.max(v.len() / 3) && d < v.len().max(lower.len()) => {
            format!("nearest valid: \"{v}\"")
        }
        _ => format!("valid: {}", valid.collect::<Vec<_>>().join(", ")),
    }
}
