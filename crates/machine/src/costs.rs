//! What things cost on a machine: each number with the range it may lie in and where it comes from.
//!
//! The list of keys is written once, in `sections!`; the parser, the writer, overrides and the uncertainty bands all
//! walk [`KEYS`].

use std::ops::Index;

use contend_platform::Work;

/// One cost. Unless its key says otherwise the unit is the nanosecond.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cost {
    /// The value that runs use.
    pub value: u64,
    /// The lower end of what is plausible.
    pub lo: u64,
    /// The upper end of what is plausible.
    pub hi: u64,
    /// A paper, a manual, a measurement; or "estimate: ..." with its reason.
    pub source: String,
}

/// What a cost counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Nanoseconds for each KiB.
    NsPerKib,
    /// KiB.
    Kib,
    /// Percent.
    Pct,
    /// Megahertz.
    Mhz,
    /// Rounds a second.
    PerS,
    /// Parts of [`CAPACITY_MAX`].
    Capacity,
}

/// The capacity of the fastest CPUs of a machine (`SCHED_CAPACITY_SCALE`).
pub const CAPACITY_MAX: u64 = 1024;

impl Unit {
    /// The smallest value allowed.
    pub fn min(self) -> u64 {
        match self {
            Unit::Ns | Unit::NsPerKib | Unit::PerS => 0,
            Unit::Kib | Unit::Pct | Unit::Capacity => 1,
            Unit::Mhz => 100,
        }
    }
    /// The largest value allowed; keeps sums of costs far away from overflow.
    pub fn max(self) -> u64 {
        match self {
            Unit::Ns => 1_000_000_000,
            Unit::NsPerKib | Unit::PerS => 1_000_000,
            Unit::Kib => 16 * 1024 * 1024,
            Unit::Pct => 100,
            Unit::Mhz => 100_000,
            Unit::Capacity => CAPACITY_MAX,
        }
    }
    /// The name in messages and documents.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Ns => "ns",
            Unit::NsPerKib => "ns per KiB",
            Unit::Kib => "KiB",
            Unit::Pct => "%",
            Unit::Mhz => "MHz",
            Unit::PerS => "/s",
            Unit::Capacity => "of 1024",
        }
    }
}

/// How many costs a key holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arity {
    /// One.
    One,
    /// One if the machine has clusters, else none.
    IfClusters,
    /// An array: one for each class of remote distance.
    PerRemote,
    /// An array: one for each number of busy threads in a core, from 1.
    PerThread,
    /// An array: one for each kind of cores, none where all are alike.
    PerKind,
}

impl Arity {
    /// A file has an array of them.
    pub fn is_array(self) -> bool {
        !matches!(self, Arity::One | Arity::IfClusters)
    }
}

/// One key of a machine file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// The section.
    pub section: &'static str,
    /// The key within the section.
    pub field: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// How many.
    pub arity: Arity,
}

impl Key {
    /// The name of its `i`-th cost, as `--set machine.NAME=VALUE` takes it.
    pub fn name_of(self, i: usize) -> String {
        let name = format!("{}.{}", self.section, self.field);
        if self.arity.is_array() { format!("{name}.{i}") } else { name }
    }
}

macro_rules! field_type {
    (One) => { Cost };
    ($list:ident) => { Vec<Cost> };
}
macro_rules! as_slice {
    (One, $e:expr) => {
        std::slice::from_ref(&$e)
    };
    ($list:ident, $e:expr) => {
        &$e
    };
}
macro_rules! as_mut_slice {
    (One, $e:expr) => {
        std::slice::from_mut(&mut $e)
    };
    ($list:ident, $e:expr) => {
        &mut $e
    };
}
macro_rules! from_vec {
    (One, $v:expr) => {
        $v.into_iter().next().expect("one cost")
    };
    ($list:ident, $v:expr) => {
        $v
    };
}

macro_rules! sections {
    ($( $(#[$sm:meta])* $section:ident : $Section:ident {
        $( $(#[$fm:meta])* $field:ident : $arity:ident $unit:ident, )*
    } )*) => {
        $(
            $(#[$sm])*
            #[derive(Clone, PartialEq, Eq, Debug)]
            pub struct $Section { $( $(#[$fm])* pub $field: field_type!($arity), )* }
        )*

        /// All costs of a machine.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct Costs {
            $( $(#[$sm])* pub $section: $Section, )*
            /// Private kernel work.
            pub kernel: Kernel,
        }

        /// The sections in the order of a file.
        pub const SECTIONS: &[&str] = &[$(stringify!($section),)* "kernel"];

        const FIXED_KEYS: &[Key] = &[$($(Key {
            section: stringify!($section),
            field: stringify!($field),
            unit: Unit::$unit,
            arity: Arity::$arity,
        },)*)*];

        impl Costs {
            /// From the costs of each key.
            pub(crate) fn build(mut of: impl FnMut(&str, &str) -> Vec<Cost>) -> Self {
                Costs {
                    $($section: $Section {
                        $($field: from_vec!($arity, of(stringify!($section), stringify!($field))),)*
                    },)*
                    kernel: Kernel(Work::ALL.iter().map(|&w| {
                        if priced(w) { from_vec!(One, of("kernel", w.name())) } else { Kernel::unit() }
                    }).collect()),
                }
            }

            /// The costs a key holds, if there is such a key.
            pub fn get(&self, section: &str, field: &str) -> Option<&[Cost]> {
                $($(if section == stringify!($section) && field == stringify!($field) {
                    return Some(as_slice!($arity, self.$section.$field));
                })*)*
                (section == "kernel").then(|| work_named(field))?.map(|w| as_slice!(One, self.kernel.0[w as usize]))
            }

            pub(crate) fn get_mut(&mut self, section: &str, field: &str) -> Option<&mut [Cost]> {
                $($(if section == stringify!($section) && field == stringify!($field) {
                    return Some(as_mut_slice!($arity, self.$section.$field));
                })*)*
                (section == "kernel").then(|| work_named(field))?
                    .map(|w| as_mut_slice!(One, self.kernel.0[w as usize]))
            }
        }
    };
}

sections! {
    /// Cache lines: latency of one access or transfer.
    lines: Lines {
        /// Load or store of a line whose right is held.
        hit: One Ns,
        /// Atomic read-modify-write of a line that is owned.
        atomic: One Ns,
        /// From a thread of the same core.
        core: One Ns,
        /// From another core of the same cluster.
        cluster: IfClusters Ns,
        /// From another core under the same LLC (of another cluster, where there are some).
        llc: One Ns,
        /// From another LLC of the same node (also: from the node's memory).
        node: One Ns,
        /// From another node, by ascending class of SLIT distance.
        remote: PerRemote Ns,
    }
    /// Interrupts and idle states.
    interrupts: Interrupts {
        /// The sender's part of an IPI.
        ipi_send: One Ns,
        /// Flight time to a CPU of the same node.
        ipi_deliver: One Ns,
        /// Flight time to a CPU of another node.
        ipi_deliver_remote: One Ns,
        /// Entering and leaving an interrupt handler.
        irq: One Ns,
        /// The part of that which follows the handler: a task that it woke comes to this CPU after it.
        irq_leave: One Ns,
        /// Leaving the shallowest idle state (C1).
        idle_exit: One Ns,
        /// What an idle CPU that found a task to run does first: it sets up the tick again. Follows the interrupt that ended idling.
        tick_restart: One Ns,
        /// Writing the CPU's next timer event: when a timer is armed that is the CPU's first, after the timers that expired were served, when
        /// an idle CPU's tick stops. In a guest of a hypervisor each is an exit. 0: not known apart from `kernel.timer_program` and `kernel.timer`,
        /// which have it.
        timer_write: One Ns,
        /// Leaving the next one (C1E).
        c1e_exit: One Ns,
        /// Shortest expected idle time for which it is entered; 1 s: never.
        c1e_residency: One Ns,
        /// Leaving the deepest one (C6).
        c6_exit: One Ns,
        /// Shortest expected idle time for which it is entered; 1 s: never.
        c6_residency: One Ns,
    }
    /// The processor.
    cpu: Cpu {
        /// Switching registers, stack and address space.
        context_switch: One Ns,
        /// Speed of each thread, in percent of a lone one, by the number of busy threads in the core.
        smt_speed_pct: PerThread Pct,
        /// How much a lone thread of each kind of cores (`topology.kinds`, in that order) computes in a given time, in 1/1024 of what one of
        /// the fastest kind does: `cpu_capacity` of Linux.
        capacity: PerKind Capacity,
        /// How fast a lone thread (of the fastest kind) computes: rounds a second of what `contend probe` packs and unpacks. 0: not known.
        speed: One PerS,
        /// Frequency while all cores are busy, in percent of the one by which the kernel scales util_avg. 100: they are the same, or the
        /// kernel does not scale.
        busy_freq_pct: One Pct,
    }
    /// Cache sizes, and what a migrated working set costs to fetch.
    cache: Cache {
        /// Private cache of a core.
        l2_kib: One Kib,
        /// Last-level cache.
        llc_kib: One Kib,
        /// After a move to another thread of the core.
        refill_core_per_kib: One NsPerKib,
        /// After a move to another core of the cluster.
        refill_cluster_per_kib: IfClusters NsPerKib,
        /// After a move to another core under the LLC (in another cluster, where there are some).
        refill_llc_per_kib: One NsPerKib,
        /// After a move to another LLC of the node.
        refill_node_per_kib: One NsPerKib,
        /// After a move to another node.
        refill_remote_per_kib: One NsPerKib,
    }
    /// Memory: what computing waits for whose data is in no cache.
    memory: Memory {
        /// Idle latency of the node's own memory.
        local: One Ns,
        /// Of another node's, by ascending class of SLIT distance.
        remote: PerRemote Ns,
    }
    /// Hosting guests: what the processor and the hypervisor's own instructions take. Lines, locks, `schedule()` and
    /// the host's timers are simulated and come on top.
    virt: Virt {
        /// Leaving guest mode: the hardware's part, and the host's way into the handler of the exit.
        exit: One Ns,
        /// From the end of a handler into guest mode, the hardware's part included.
        entry: One Ns,
        /// Delivering one interrupt at an entry.
        inject: One Ns,
        /// A pause-loop exit's handler before and after its loop over candidates.
        pause_handler: One Ns,
        /// That loop, for each candidate looked at.
        candidate: One Ns,
        /// One directed yield.
        yield_to: One Ns,
        /// Blocking a vCPU that halts.
        halt: One Ns,
        /// Emulating a write to the interrupt command register: decoding it, finding the target.
        icr_write: One Ns,
        /// Dispatching one hypercall.
        hypercall: One Ns,
        /// Emulating that the guest arms its timer.
        timer: One Ns,
        /// Rate of the time-stamp counter, in whose cycles pause-loop windows are given.
        tsc_mhz: One Mhz,
    }
}

/// Has the work a price in the file? (`ns` and `policy` are nanoseconds themselves.)
fn priced(w: Work) -> bool {
    !matches!(w, Work::Ns | Work::Policy)
}

fn work_named(name: &str) -> Option<Work> {
    Work::ALL.iter().copied().find(|&w| priced(w) && w.name() == name)
}

/// Every key that holds costs, in the order of a file.
pub fn keys() -> impl Iterator<Item = Key> {
    FIXED_KEYS.iter().copied().chain(Work::ALL.iter().filter(|&&w| priced(w)).map(|w| Key {
        section: "kernel",
        field: w.name(),
        unit: Unit::Ns,
        arity: Arity::One,
    }))
}

/// The cost of one unit of each kind of kernel work, indexed by [`Work`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kernel(Vec<Cost>);

impl Kernel {
    fn unit() -> Cost {
        Cost { value: 1, lo: 1, hi: 1, source: "by definition".into() }
    }
}

impl Index<Work> for Kernel {
    type Output = Cost;
    fn index(&self, w: Work) -> &Cost {
        &self.0[w as usize]
    }
}

impl Costs {
    /// The costs of kernel work in ns, by `Work as usize`; 1 for [`Work::Ns`] and [`Work::Policy`].
    pub fn kernel_ns(&self) -> [u64; Work::COUNT] {
        std::array::from_fn(|i| self.kernel.0[i].value)
    }

    /// Latency of a line transfer in ns by [`crate::Topology::distance`]; entry 0 is `lines.hit`.
    pub fn transfer_ns(&self) -> Vec<u64> {
        let l = &self.lines;
        let near = [&l.hit, &l.core].into_iter().chain(&l.cluster).chain([&l.llc, &l.node]);
        near.chain(&l.remote).map(|c| c.value).collect()
    }

    /// Every key with its costs, in the order of a file.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &[Cost])> {
        keys().map(|k| (k, self.get(k.section, k.field).expect("every key has its costs")))
    }
}
