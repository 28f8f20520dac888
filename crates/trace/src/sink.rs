//! What takes scheduler events: a simulation, or a recording, writes; a file format implements.
//!
//! Calls borrow everything and name nothing twice, so that a writer can put the bytes where they belong without an
//! allocation. The trait is object-safe.

use std::io;

use crate::event::{Context, Event, Kind, Nanos, TaskRef, TaskState};

/// Where and when an event happens, and on whose stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At<'a> {
    /// Time in ns. Not falling on one CPU, and best not falling over all of them.
    pub ts: Nanos,
    /// The CPU.
    pub cpu: u32,
    /// The task that runs there: for a switch, the one that leaves.
    pub pid: u32,
    /// Its name.
    pub comm: &'a str,
    /// On whose behalf the CPU runs.
    pub context: Context,
}

/// A task as an event names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task<'a> {
    /// Thread id (0: idle).
    pub pid: u32,
    /// Name. The kernel's are of at most 15 bytes; longer ones are written whole.
    pub comm: &'a str,
    /// Kernel priority (120 = nice 0).
    pub prio: i32,
}

impl<'a> From<&'a TaskRef> for Task<'a> {
    fn from(task: &'a TaskRef) -> Self {
        Self { pid: task.pid, comm: &task.comm, prio: task.prio }
    }
}

/// Takes scheduler events in the order in which they happen.
pub trait SchedSink {
    /// sched_switch.
    fn switch(&mut self, at: At<'_>, prev: Task<'_>, prev_state: TaskState, next: Task<'_>) -> io::Result<()>;
    /// sched_waking: `at` is the waker's side.
    fn waking(&mut self, at: At<'_>, task: Task<'_>, target_cpu: u32) -> io::Result<()>;
    /// sched_wakeup: the task is on `target_cpu`'s queue.
    fn wakeup(&mut self, at: At<'_>, task: Task<'_>, target_cpu: u32) -> io::Result<()>;
    /// sched_wakeup_new.
    fn wakeup_new(&mut self, at: At<'_>, task: Task<'_>, target_cpu: u32) -> io::Result<()>;
    /// sched_migrate_task.
    fn migrate(&mut self, at: At<'_>, task: Task<'_>, orig_cpu: u32, dest_cpu: u32) -> io::Result<()>;
    /// sched_process_fork: `(pid, comm)` of parent and child.
    fn fork(&mut self, at: At<'_>, parent: (u32, &str), child: (u32, &str)) -> io::Result<()>;
    /// sched_process_exec.
    fn exec(&mut self, at: At<'_>, filename: &str, pid: u32, old_pid: u32) -> io::Result<()>;
    /// sched_process_exit.
    fn exit(&mut self, at: At<'_>, task: Task<'_>) -> io::Result<()>;

    /// What is not scheduling but explains it: the kinds of [`Kind`] that have no method here.
    ///
    /// # Panics
    /// May panic if given one that has.
    fn explain(&mut self, at: At<'_>, kind: &Kind) -> io::Result<()>;

    /// An event of a recording.
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let at = At { ts: event.ts, cpu: event.cpu, pid: event.pid, comm: &event.comm, context: event.context };
        match &event.kind {
            Kind::Switch { prev, prev_state, next } => self.switch(at, prev.into(), *prev_state, next.into()),
            Kind::Waking { task, target_cpu } => self.waking(at, task.into(), *target_cpu),
            Kind::Wakeup { task, target_cpu } => self.wakeup(at, task.into(), *target_cpu),
            Kind::WakeupNew { task, target_cpu } => self.wakeup_new(at, task.into(), *target_cpu),
            Kind::Migrate { task, orig_cpu, dest_cpu } => self.migrate(at, task.into(), *orig_cpu, *dest_cpu),
            Kind::Fork { parent_pid, parent_comm, child_pid, child_comm } => {
                self.fork(at, (*parent_pid, parent_comm), (*child_pid, child_comm))
            }
            Kind::Exec { filename, pid, old_pid } => self.exec(at, filename, *pid, *old_pid),
            Kind::Exit { task } => self.exit(at, task.into()),
            explaining => self.explain(at, explaining),
        }
    }
}
