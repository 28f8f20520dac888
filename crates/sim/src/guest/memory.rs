//! Memory of one node: a guest computes slower where it is far from its memory.
//!
//! Of a task's computing time at local memory a share waits for memory; where the vCPU runs on another node than the guest's
//! memory lies on, that share is longer by the ratio of the two latencies. With a share s and latencies l and r the time
//! is 1 + s (r / l - 1) times as long. Bandwidth, and what vCPUs of a node do to each other's last-level cache, is not
//! modelled.

use contend_machine::Machine;
use contend_platform::CpuId;

/// Where a guest's memory lies, and how much its tasks depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// The physical node.
    pub node: usize,
    /// Share of computing time at local memory that waits for memory, in percent, 0 to 100.
    pub stall_pct: u32,
}

/// Work by physical CPU: how much more of it there is than at local memory, as a fraction.
pub(crate) struct Slowdown(Vec<(u64, u64)>);

impl Slowdown {
    /// On every physical CPU of the machine.
    pub fn new(machine: &Machine, memory: Memory) -> Self {
        let topo = &machine.topology;
        let costs = &machine.costs.memory;
        let all = || (0..topo.nr_cpus()).map(|c| CpuId(c as u16));
        let home = all().find(|c| topo.node_of(*c) == memory.node).expect("the node has CPUs");
        let local = costs.local.value.max(1);
        let of = |cpu: CpuId| {
            let latency = match topo.node_of(cpu) == memory.node {
                true => local,
                false => costs.remote[topo.distance(home, cpu) - topo.first_remote()].value.max(local),
            };
            (100 * local + u64::from(memory.stall_pct) * (latency - local), 100 * local)
        };
        Slowdown(all().map(of).collect())
    }

    /// What `work` at local memory is on `cpu`.
    pub fn there(&self, work: u64, cpu: CpuId) -> u64 {
        let (n, d) = self.0[cpu.index()];
        scaled(work, n, d)
    }

    /// The reverse: what of it is left.
    pub fn back(&self, left: u64, cpu: CpuId) -> u64 {
        let (n, d) = self.0[cpu.index()];
        scaled(left, d, n)
    }
}

/// Rounded up: what is left stays more than nothing.
fn scaled(work: u64, n: u64, d: u64) -> u64 {
    if n == d {
        work
    } else {
        u64::try_from((u128::from(work) * u128::from(n)).div_ceil(u128::from(d))).unwrap_or(u64::MAX)
    }
}
