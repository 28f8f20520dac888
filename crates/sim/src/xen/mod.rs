//! Xen hosts: domains on the generic layer of [`contend_sched::xen`]. `docs/internals/xen.md` says what runs where.

mod exits;
mod host;
mod spec;
mod watcher;

pub use host::{simulate, simulate_with};
pub use spec::{Change, Content, DomainSetup, PoolSetup, What, XenReport, XenSetup, XenVcpu};
pub use watcher::{RecordSink, Sinks};
