//! The engine: virtual time, cache lines, interrupts, ledger, and a small kernel over it.
pub mod program;
