//! Models: a workload taken from a recording, as something to read, edit, scale and share.
//!
//! Two forms of one thing (`docs/models.md`, `docs/internals/own-workload.md`):
//!
//! * **exact** ([`Exact`]): the chain of [`step`]s that each task did. Replays what happened; a file of columns;
//! * **fitted** ([`fitted`]): roles with distributions; a text to edit.
//!
//! [`jobs`] finds out in an exact model how many jobs ran side by side, and which of them waited for a slot, so that a run
//! may have more.

pub mod step;

mod barriers;
mod class;
mod exact;
mod file;
pub mod fitted;
pub mod jobs;
mod mutexes;
mod pairs;
mod play;
mod rtapp;
mod same;
mod source;
mod spec;
mod wake_ups;

pub use exact::{Exact, Task};
pub use file::{Model, ModelError};
pub use jobs::{Jobs, Start};
pub use play::{PlayOptions, play};
pub use rtapp::rt_app;
pub use source::{NewidlePulls, Source};
pub use spec::ModelSpec;
