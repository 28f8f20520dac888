//! What a virtual machine is made of, and what is reported of it.

use super::memory::Memory;
use crate::host::LockReport;
use crate::kvm::{Exit, KvmFeatures};
use crate::os::{MetricStore, TaskReport};
use crate::program::{GroupId, Groups, Workload};
use contend_machine::Topology;
use contend_platform::{Account, Nanos, Time};
use contend_sched::features::{Features, PolicyKind};
use contend_sched::rq::RqStats;
use fixedbitset::FixedBitSet;

/// The virtual machines of a run.
#[derive(Default)]
pub struct Guests {
    /// The hypervisor's switches.
    pub kvm: KvmFeatures,
    /// The machines.
    pub specs: Vec<GuestSpec>,
}

/// A virtual machine to be.
pub struct GuestSpec {
    /// Name; its vCPU threads are `NAME/0`, `NAME/1` ...
    pub name: String,
    /// The topology shown to the guest; its CPUs are the vCPUs.
    pub topology: Topology,
    /// The guest kernel's policy.
    pub policy: PolicyKind,
    /// Its switches, the kind of its spinlocks among them.
    pub features: Features,
    /// Its tick in Hz.
    pub hz: u32,
    /// What runs in it. Threads with stacks are the host's only: none here.
    pub workload: Workload,
    /// The host's group that its vCPU threads are in.
    pub group: GroupId,
    /// Physical CPUs of each vCPU's thread (empty: all, else one set a vCPU).
    pub pin: Vec<FixedBitSet>,
    /// The run does not wait for its end.
    pub background: bool,
    /// Where its memory lies (`None`: everywhere, all is local).
    pub memory: Option<Memory>,
}

/// Where a vCPU's time went, besides its guest's accounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VcpuTimes {
    /// Halted: nothing to run in the guest, or a waiter that sleeps, in ns.
    pub halted: Nanos,
    /// Runnable, and another thread had the CPU (steal time), in ns.
    pub stolen: Nanos,
    /// Host code that worked for the vCPU: exits, handlers, interrupts that came meanwhile, in ns.
    pub host: Nanos,
}

/// One vCPU in the result.
#[derive(Clone, Debug, PartialEq)]
pub struct VcpuReport {
    /// Guest mode by the guest kernel's accounts, in ns.
    pub ledger: [Nanos; Account::COUNT],
    /// The rest. Both together are the length of the run.
    pub times: VcpuTimes,
    /// Exits by reason.
    pub exits: [u64; Exit::COUNT],
    /// The guest kernel's /proc/schedstat.
    pub stats: RqStats,
    /// Times the host took its CPU away while it was runnable.
    pub preempted: u64,
    /// Longest such time in ns.
    pub preempted_max: Nanos,
}

/// What the loss of CPUs did at one lock of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockPreemption {
    /// Times its holder lost its CPU.
    pub holder: u64,
    /// For this long in all, in ns.
    pub holder_ns: Nanos,
    /// The longest, in ns.
    pub holder_max: Nanos,
    /// Times a waiter lost its CPU.
    pub waiter: u64,
    /// For this long in all, in ns.
    pub waiter_ns: Nanos,
}

/// One guest in the result.
#[derive(Clone, Debug)]
pub struct GuestReport {
    /// Name.
    pub name: String,
    /// Its last foreground task exited, in ns since the start.
    pub finished: Option<Time>,
    /// vCPUs, by number.
    pub vcpus: Vec<VcpuReport>,
    /// Its tasks.
    pub tasks: Vec<TaskReport>,
    /// Its groups of tasks.
    pub groups: Groups,
    /// Foreground tasks that have slept for more than half of the run and that no timer will wake, in words.
    pub long_waits: Vec<String>,
    /// Its run-queue locks, then its objects' locks.
    pub locks: Vec<LockReport>,
    /// What preemption did at each of `locks`.
    pub preemption: Vec<LockPreemption>,
    /// What its programs reported, and the events of its locks.
    pub metrics: MetricStore,
}
