//! What a policy sees of the machine when it says where a task goes.

use contend_machine::Topology;
use contend_platform::{CpuId, Time};

/// The CPUs, as one of them sees the others without holding a lock. What a probe says may have changed a moment later.
pub trait Cpus {
    /// The time here, in ns.
    fn now(&self) -> Time;
    /// The CPU that asks: the waker's, or the one with nothing to run.
    fn this(&self) -> CpuId;
    /// Cores, last-level caches, nodes and their distances.
    fn topology(&self) -> &Topology;
    /// May the task that is placed run there, by its affinity? (Always, if none is placed.)
    fn allows(&self, cpu: CpuId) -> bool;
    /// Does `cpu` idle, with nothing on its way there? Reads a line of its run queue, and is counted as a probe of an idle
    /// search. A CPU that is not there is a policy error.
    fn is_idle(&mut self, cpu: CpuId) -> bool;
    /// How many runnable tasks `cpu` has, the running one included. Costs and counts as [`Cpus::is_idle`].
    fn nr_running(&mut self, cpu: CpuId) -> u32;
}

/// A task is to be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wake {
    /// Where it ran last; of a new task, where its parent runs.
    pub prev: CpuId,
    /// The waker says that it is about to sleep.
    pub sync: bool,
    /// The task has not run yet.
    pub new: bool,
}
