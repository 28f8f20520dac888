//! Virtual machines, as their kernels see them. `docs/internals/guests.md` says what runs where.

mod spec;

pub use spec::{GuestReport, GuestSpec, Guests, LockPreemption, VcpuReport, VcpuTimes};
