//! The engine: virtual time, cache lines, interrupts, ledger, and a small kernel over it.
mod counters;
pub mod crew;
pub mod engine;
pub mod guest;
pub mod host;
pub mod kvm;
pub mod lines;
pub mod os;
pub mod program;
pub mod queue;
pub mod thread;
pub mod trace;
mod watch;
pub mod watchdog;
pub mod world;
pub mod xen;
