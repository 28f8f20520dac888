//! KVM: the host's half of virtual machines. `docs/internals/guests.md` says what runs where.

mod counters;
mod features;

pub use counters::{Exit, Kvm};
pub use features::{DirectedYield, KvmFeatures};
