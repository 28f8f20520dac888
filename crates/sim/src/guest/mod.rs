//! Virtual machines, as their kernels see them. `docs/internals/guests.md` says what runs where.

mod channel;
mod hosting;
mod memory;
mod run;
mod spec;
mod state;
mod vcpu;
mod vm;

pub(crate) use channel::SLOTS;
pub use channel::{Channel, Packet};
pub(crate) use hosting::Hosting;
pub use memory::Memory;
pub(crate) use run::{Boot, RunningGuest, boot};
pub use spec::{GuestReport, GuestSpec, Guests, LockPreemption, VcpuReport, VcpuTimes};
pub(crate) use state::{IPIS, KICK, Phase, VcpuState};
pub use vcpu::Vcpu;
pub(crate) use vm::Vm;
