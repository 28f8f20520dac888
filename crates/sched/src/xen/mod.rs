//! Xen: its scheduler's generic layer ([`mechanism`]), the contract of its policies ([`contract`]) and the policies.
//!
//! `docs/internals/xen.md` says what runs where, and why there is a second contract. [`round_robin`] is the reference policy: read it
//! first.

pub mod contract;
pub mod credit1;
pub mod credit2;
pub mod event;
pub mod features;
mod lend;
pub mod mask;
pub mod mechanism;
mod ops;
pub mod perf;
mod pool_lock;
pub mod round_robin;
#[cfg(test)]
mod testing;
pub mod units;

pub use lend::Cx;
