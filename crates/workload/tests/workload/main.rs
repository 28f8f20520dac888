//! What the workloads' programs do on a simulated host, and what becomes of recordings: one program, since most of the time to
//! build it is what all tests share.

mod closed_forms;
mod common;
mod guest_programs;
mod programs;
mod recordings;
mod remote_wakeups;
