//! How a policy looks at other CPUs ([`Cpus`]): each look is paid for and counted as a probe of the mechanism's own search.

use crate::cpuset::Affinity;
use crate::kernel::Kernel;
use crate::policy::Policy;
use crate::policy::cpus::Cpus;
use crate::rq::peek_nr_running;
use contend_machine::Topology;
use contend_platform::Ordering::Acquire;
use contend_platform::{CpuId, SchedPlatform, Time, Work};

/// The looks of one decision.
pub(crate) struct Looks<'a, P: SchedPlatform, L: Policy> {
    kernel: &'a Kernel<P, L>,
    p: &'a P,
    affinity: Affinity,
    probes: u64,
    idle: Vec<CpuId>,
}

impl<'a, P: SchedPlatform, L: Policy> Looks<'a, P, L> {
    pub(crate) fn new(kernel: &'a Kernel<P, L>, p: &'a P, affinity: Affinity) -> Self {
        Looks { kernel, p, affinity, probes: 0, idle: Vec::new() }
    }

    /// This was chosen for a task: a search, if it looked anywhere.
    pub(crate) fn count(&self, chosen: Option<CpuId>) {
        if self.probes > 0 {
            self.p.idle_search(self.probes, chosen.is_some_and(|cpu| self.idle.contains(&cpu)));
        }
    }
}

impl<P: SchedPlatform, L: Policy> Cpus for Looks<'_, P, L> {
    fn now(&self) -> Time {
        self.p.now()
    }
    fn this(&self) -> CpuId {
        self.p.cpu()
    }
    fn topology(&self) -> &Topology {
        &self.kernel.topo
    }
    fn allows(&self, cpu: CpuId) -> bool {
        self.affinity.allows(cpu)
    }
    fn is_idle(&mut self, cpu: CpuId) -> bool {
        self.kernel.must_be_a_cpu(cpu, "is_idle");
        self.probes += 1;
        let idle = self.kernel.idle_cpu(self.p, cpu);
        if idle {
            self.idle.push(cpu);
        }
        idle
    }
    fn nr_running(&mut self, cpu: CpuId) -> u32 {
        self.kernel.must_be_a_cpu(cpu, "nr_running");
        self.probes += 1;
        self.p.charge(Work::Probe, 1);
        peek_nr_running(self.p.load(&self.kernel.rq(cpu).peek, Acquire))
    }
}
