//! What a Xen host is made of, and what is reported of it.

use crate::guest::GuestSpec;
use crate::host::Limits;
use crate::program::Program;
use contend_machine::Machine;
use contend_platform::{Nanos, Time};
use contend_sched::xen::contract::{DomParams, Tunables};
use contend_sched::xen::event::VcpuId;
use contend_sched::xen::features::{Scheduler, XenFeatures};
use contend_sched::xen::mask::CpuMask;
use contend_sched::xen::perf::Perf;
use contend_sched::xen::units::VcpuAffinity;

/// A run of a Xen host.
pub struct XenSetup {
    /// The machine.
    pub machine: Machine,
    /// Its scheduler.
    pub scheduler: Scheduler,
    /// Switches and tunables.
    pub features: XenFeatures,
    /// cpupools. Together they hold each pCPU once.
    pub pools: Vec<PoolSetup>,
    /// Domains.
    pub domains: Vec<DomainSetup>,
    /// What changes while it runs, in any order.
    pub timeline: Vec<Change>,
    /// Seed of all random streams.
    pub seed: u64,
    /// Bounds.
    pub limits: Limits,
}

/// A cpupool.
pub struct PoolSetup {
    /// Name (`Pool-0`).
    pub name: String,
    /// Its pCPUs.
    pub cpus: CpuMask,
    /// Its parameters at the start.
    pub tunables: Tunables,
}

/// A domain.
pub struct DomainSetup {
    /// Its number; 0 is dom0.
    pub dom: u16,
    /// Weight and cap.
    pub params: DomParams,
    /// Its cpupool, by number.
    pub pool: usize,
    /// Affinities, vCPU by vCPU.
    pub affinity: Vec<VcpuAffinity>,
    /// What runs in it.
    pub content: Content,
}

/// What runs in a domain.
pub enum Content {
    /// A guest kernel; its `pin` is not used.
    Kernel(Box<GuestSpec>),
    /// No kernel: each vCPU runs one program, which may compute, sleep, yield and exit.
    Programs {
        /// Name of the domain.
        name: String,
        /// By vCPU.
        programs: Vec<Box<dyn Program>>,
        /// The run does not wait for their end.
        background: bool,
    },
}

/// A change of parameters while the host runs: `xl sched-credit`, `xl sched-credit2`, `xl vcpu-pin`.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// When.
    pub at: Time,
    /// What.
    pub what: What,
}

/// What changes.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// A domain's weight and cap, by its index in [`XenSetup::domains`].
    Domain(usize, DomParams),
    /// A cpupool's parameters, by its number.
    Pool(usize, Tunables),
    /// Affinities of a vCPU: domain by index, vCPU by number.
    Affinity(usize, u16, VcpuAffinity),
}

/// What a Xen host reports besides what every host does.
#[derive(Clone, Debug)]
pub struct XenReport {
    /// vCPUs, domain by domain.
    pub vcpus: Vec<XenVcpu>,
    /// Performance counters, by [`Perf`].
    pub perf: [u64; Perf::COUNT],
    /// Try-locks of schedule locks, and those that failed.
    pub trylocks: [u64; 2],
    /// Changes of the timeline that were made.
    pub changes: usize,
}

/// A vCPU in the result, as its scheduler saw it.
#[derive(Clone, Debug)]
pub struct XenVcpu {
    /// Domain and number.
    pub id: VcpuId,
    /// Name of the domain.
    pub domain: String,
    /// Weight and cap at the end.
    pub params: DomParams,
    /// Time running, runnable, blocked, offline, in ns.
    pub times: [Nanos; 4],
    /// Of the time running: within its soft affinity, in ns.
    pub in_soft: Nanos,
    /// Times it was given a pCPU.
    pub dispatches: u64,
    /// Times it was given another pCPU than the last.
    pub moves: u64,
    /// Times it lost its pCPU while runnable.
    pub preempted: u64,
    /// Longest time runnable without a pCPU, in ns.
    pub wait_max: Nanos,
}
