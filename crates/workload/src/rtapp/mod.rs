//! rt-app files: the field's common language for periodic and interacting threads, read as their users have them.
//!
//! [`parse`] turns the text into a typed file ([`RtApp`]) or one precise error; [`RtApp::workload`] turns that into
//! tasks for a machine of a given size. `docs/rt-app.md` says what each key means here. The sources are rt-app's
//! tutorial and what the program (1.0) was seen to do where the tutorial is silent:
//!
//! * a timer's first period counts from the start of the task's life, wherever its first use;
//! * `resume` wakes all that are suspended and is forgotten if none is;
//! * `sync` neither takes nor releases its mutex (the tutorial says it does: done here where the task does not hold it);
//! * `runtime` is wall-clock time, preemption included;
//! * a barrier has as many users as tasks (times instances) name it.
//!
//! The stages, a module each: `json` (text to tree), `parse` (tree to types; unknown keys), `check` (sense), `compile`
//! (types to steps and objects), `program` (execution).

mod ast;
mod check;
mod compile;
mod error;
mod json;
mod parse;
mod program;
#[cfg(test)]
mod tests;

pub use ast::{Event, EventKind, Global, Loops, Phase, Policy, RtApp, Settings, Task};
pub use error::{Pos, Problem, RtAppError};
pub use parse::parse;

/// Longest text that is read.
pub const MAX_BYTES: usize = 16 << 20;
/// Deepest nesting; a valid file needs six.
pub const MAX_DEPTH: usize = 64;
/// Most values in a file.
pub const MAX_VALUES: usize = 2_000_000;
/// Most tasks, instances counted.
pub const MAX_TASKS: u64 = 100_000;
