//! Workloads: what runs on the simulated machine.
//!
//! A [`WorkloadSpec`] is the `[workload]` table of a scenario; it builds a `contend_sim::program::Workload` from one of
//! three sources: the [`programs`] written here, an [`rtapp`] file, or a [`recording`] of a real kernel.

pub mod programs;
pub mod recording;
pub mod rtapp;
pub mod spec;

pub use spec::{KeyInfo, SpecError, SpecProblem, WorkloadError, WorkloadInfo, WorkloadSpec, list};
