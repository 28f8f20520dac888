//! contend: scenario, simulation, result.
//!
//! One way of data. A [`Scenario`] is complete before a run starts ([`Scenario::plan`]); a run touches no file but its
//! trace ([`run`]); a result holds all that reports need ([`Output`]).
//!
//! ```
//! use contend::{RunOptions, Scenario, run};
//!
//! let text = "machine = \"4c\"\nhorizon_s = 0.1\n[workload]\nkind = \"periodic\"\ntasks = 8\n";
//! let plan = Scenario::parse(text, "example", std::path::Path::new(""))?.plan()?;
//! let out = run(&plan, RunOptions::default())?;
//! let ledger: u64 = out.summary.ledger_ns.values().sum();
//! assert_eq!(ledger, 4 * out.summary.virtual_ns);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
mod as_recorded;
pub mod describe;
pub mod error;
mod guests;
pub mod model;
mod names;
pub mod result;
mod rings;
pub mod run;
pub mod scenario;
mod table;
mod target;
pub mod trace;
pub mod validate;
mod watched;
pub mod xen_audit;
pub mod xen_replay;
pub mod xen_trace;

pub use contend_machine::{Machine, MachineError};
pub use contend_sched::features::Preset;
pub use contend_sched::switches::FeatureInfo;
pub use contend_sim::host::{Outcome, Status};
pub use contend_workload::{WorkloadInfo, list as workloads};
pub use error::{RunError, ScenarioError};
pub use result::Output;
pub use run::{RunOptions, run, run_with, uncertain_machine};
pub use scenario::{Plan, Scenario};
