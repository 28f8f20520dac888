//! The kernel's work that is part of recorded runs, and that a simulated kernel does itself.
//!
//! A recorded run goes from one switch to the next. In it are the system call that wakes another, the one that blocks, the fork, and
//! the scheduler's own way from one task to the next. A replay computes for the length of the run and then makes the
//! same calls, which cost what they cost on the machine and under the policy under test. So that this work is
//! not done twice, each step's price **on the recorded machine** is taken out of the run before it. It is what
//! the simulator charges for the step where nothing contends; it does not depend on where the replay runs.

use contend_machine::Machine;
use contend_platform::Work;

use crate::model::step::{What, Why};

/// The price of each kind of step, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelWork {
    /// Waking a task.
    pub post: u64,
    /// Waiting for a task.
    pub wait: u64,
    /// Sleeping for a timer.
    pub sleep: u64,
    /// Sleeping for a device: what the request takes is the task's own.
    pub request: u64,
    /// Being preempted.
    pub preempted: u64,
    /// Yielding.
    pub yielded: u64,
    /// Starting a task; what a fork copies is in the recorded run.
    pub spawn: u64,
    /// Executing a program: choosing the CPU. What it loads is in the recorded run.
    pub exec: u64,
    /// Leaving the CPU for good; what an exit unmaps is in the recorded run.
    pub exit: u64,
    /// From `sched_waking` to `sched_switch` where a woken task preempts its waker at once: what is left of the wake-up, and
    /// the way to the switch.
    pub preempts: u64,
    /// Sending the interrupt that wakes a CPU that halts: part of a post to one that idles.
    pub kick: u64,
    /// Setting the CPU's timer: part of a sleep whose timer is the CPU's next.
    pub timer_write: u64,
    /// From `sched_waking` until a task runs on an idle CPU on which an interrupt woke it. Recordings may lack that switch: then the task seems to
    /// run all the time.
    pub after_interrupt: u64,
    /// The same of one that a task woke from another CPU.
    pub after_idle: u64,
}

impl KernelWork {
    /// Of a machine.
    pub fn of(machine: &Machine) -> Self {
        let of = |work: Work| machine.costs.kernel[work].value;
        let switch = of(Work::Pick) + machine.costs.cpu.context_switch.value;
        let call = of(Work::Syscall);
        let interrupts = &machine.costs.interrupts;
        let halts = u64::from(machine.flags.idle_halts);
        let interrupted = interrupts.ipi_send.value + interrupts.ipi_deliver.value + interrupts.irq.value;
        KernelWork {
            post: call + of(Work::FutexOp) + of(Work::Ttwu) + of(Work::SelectCpu) + of(Work::Enqueue),
            wait: call + of(Work::FutexOp) + of(Work::Dequeue) + switch,
            sleep: call + of(Work::TimerProgram) + of(Work::Dequeue) + switch,
            request: call + of(Work::Dequeue) + switch,
            preempted: switch,
            yielded: call + switch,
            spawn: call + of(Work::SelectCpu) + of(Work::Enqueue),
            exec: call + of(Work::SelectCpu),
            exit: of(Work::Dequeue) + switch,
            preempts: of(Work::SelectCpu) + of(Work::Enqueue) + of(Work::Pick),
            after_interrupt: interrupts.irq_leave.value + interrupts.tick_restart.value + switch,
            kick: halts * interrupts.ipi_send.value,
            timer_write: interrupts.timer_write.value,
            after_idle: halts * interrupted + interrupts.idle_exit.value + interrupts.tick_restart.value + switch,
        }
    }

    /// Of one step.
    pub fn price(&self, step: What) -> u64 {
        match step {
            What::Post(..) => self.post,
            What::Sleep(_, Why::Task) => self.wait,
            What::Sleep(_, Why::Io) => self.request,
            What::Sleep(..) => self.sleep,
            What::Spawn(_) => self.spawn,
            What::Exec => self.exec,
            What::Yield => self.yielded,
            What::Nop
            | What::Run(_)
            | What::Kernel(..)
            | What::By(_)
            | What::On(_)
            | What::Lock(..)
            | What::Locked
            | What::Unlock(_)
            | What::Barrier(_)
            | What::Sched(_)
            | What::Extra(_) => 0,
        }
    }
}
