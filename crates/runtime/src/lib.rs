//! The scheduler mechanism on real threads: the native world of `contend-sched`.
//!
//! An OS thread plays a CPU and runs [`contend_sched::kernel::Kernel::cpu_loop`] on its own stack; a task is a coroutine
//! that its CPU resumes until it asks for something ([`TaskCtx`]). Wake-up, switch, balancing and run-queue locks are the
//! source that the simulator runs. What the seam maps to what is told in `docs/internals/native-world.md`.
//!
//! | file | holds |
//! |---|---|
//! | `cpu` | [`NativeCpu`]: a thread's handle; interrupts, tick, timers, idle |
//! | `fiber` | coroutines by task, and why they may move between threads |
//! | `task` | what a task may ask for |
//! | `object` | semaphores, parking |
//! | `runtime` | system calls; start and end |
//!
//! Preemption happens at explicit points only ([`TaskCtx::checkpoint`] and every request).

mod cpu;
mod fiber;
mod object;
mod runtime;
mod task;

pub use cpu::{CpuCounts, NativeCpu};
pub use object::Semaphore;
pub use runtime::{Config, Runtime};
pub use task::{TaskCtx, TaskHandle};
