//! Workloads: what runs on the simulated machine.
//!
//! A [`WorkloadSpec`] is the `[workload]` table of a scenario; it builds a `contend_sim::program::Workload` from one of
//! four sources: the [`programs`] written here, an [`rtapp`] file, a [`recording`] of a real kernel, or a [`model`] made of one.

pub mod model;
pub mod programs;
pub mod recording;
pub mod rtapp;
pub mod spec;
pub mod speed;

pub use spec::{KeyInfo, SpecError, SpecProblem, WorkloadError, WorkloadInfo, WorkloadSpec, list};
