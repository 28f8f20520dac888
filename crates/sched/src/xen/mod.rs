//! Xen: what its hypervisor's scheduler says and does.

pub mod event;
