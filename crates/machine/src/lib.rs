//! Machines: topology and costs, each cost with its source.
//!
//! A machine file says what a host looks like ([`Topology`]) and what things cost on it ([`Costs`]). One file serves
//! every study on that machine. The files in `machines/` are part of the library ([`Machine::shipped`]), so an
//! installed tool needs none on disk; `docs/machines.md` describes the format.

mod costs;
mod error;
mod lists;
mod parse;
mod set;
mod topology;
mod write;

use std::io::Read;

pub use costs::{
    Arity, CAPACITY_MAX, Cache, Cost, Costs, Cpu, Interrupts, Kernel, Key, Lines, Memory, SECTIONS, Unit, keys,
};
pub use error::{At, MachineError};
pub use lists::{NUMBER_MAX, cpu_list, ends_of, write_list};
pub use topology::{
    Kind, MAX_KINDS, MAX_NODES, MAX_REMOTE, MAX_THREADS, Numbering, Place, SLIT_LOCAL, SLIT_MAX, SLIT_REMOTE_DEFAULT,
    Shape, Topology,
};

use contend_platform::CpuId;

/// The largest machine file that is read.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Tick rate of a file that does not say.
pub const HZ_DEFAULT: u32 = 250;
/// The lowest tick rate.
pub const HZ_MIN: u32 = 24;
/// The highest tick rate.
pub const HZ_MAX: u32 = 10_000;

/// The costs of synthetic machines, and of sections that a file asks for in its `defaults` array.
pub const DEFAULTS: &str = include_str!("../../../machines/defaults.toml");

/// The letters of a synthetic machine's parts, from the outermost.
const UNITS: &str = "nlkct";

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../machines/", $name, ".toml")))),*]
    };
}

const SHIPPED: &[(&str, &str)] = shipped![
    "intel-2s-44c-88t",
    "sparc-2s-16c-128t",
    "x86_64-2cpu",
    "westmere-ex-4s-40c-80t",
    "westmere-ex-8s-32c",
    "haswell-ex-4s-32c",
    "xen-16pcpu-2node",
    "epyc-2vcpu",
    "kunpeng-920-2s-128c",
    "intel-2s-56c-112t",
    "zen3-2s-128c-256t",
    "kirin-960-8c",
    "alder-lake-16c-24t",
];

/// A host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Its name, as in [`Machine::load`].
    pub name: String,
    /// One or two sentences.
    pub description: String,
    /// Its CPUs.
    pub topology: Topology,
    /// What things cost on it.
    pub costs: Costs,
    /// Periodic ticks a second.
    pub hz: u32,
    /// What else is so of it.
    pub flags: Flags,
}

macro_rules! flags {
    ($($(#[$m:meta])* $flag:ident,)*) => {
        /// What is so of a machine or not: keys at the top of its file, false if left out.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Flags {
            $($(#[$m])* pub $flag: bool,)*
        }

        impl Flags {
            /// Their keys.
            pub const KEYS: &[&str] = &[$(stringify!($flag)),*];

            /// The flag of a key.
            pub fn get_mut(&mut self, key: &str) -> Option<&mut bool> {
                match key {
                    $(stringify!($flag) => Some(&mut self.$flag),)*
                    _ => None,
                }
            }

            /// The keys of those that are true.
            pub fn named(mut self) -> impl Iterator<Item = &'static str> {
                Self::KEYS.iter().copied().filter(move |key| self.get_mut(key).is_some_and(|set| *set))
            }
        }
    };
}

flags! {
    /// Its CPUs are those of a KVM guest with steal time: a halted one looks preempted (`vcpu_is_preempted`), as the hypervisor
    /// took it off its CPU. Kernels look for an idle CPU that is not preempted, and pass it over.
    steal_time,
    /// It is a guest of a cloud whose kernel packs tasks on few virtual CPUs (`sched_vcpu_pack`): a woken or new task goes to its
    /// waker's CPU while that has room.
    vcpu_pack,
    /// Its idle CPUs halt and do not watch a flag, as those of most guests of hypervisors: whoever wakes one sends an interrupt, whatever
    /// the kernel could do elsewhere.
    idle_halts,
    /// Its kernel knows by which of its CPUs to begin (`SD_ASYM_PACKING`: Intel's ITMT, AMD's preferred cores), and not how much each computes: the
    /// faster a kind of cores, the more it is preferred.
    asym_packing,
}

impl Machine {
    /// A shipped machine by name, a machine file by its path (it ends in `.toml`), or a synthetic machine by its
    /// specification, as for [`Machine::synthetic`].
    pub fn load(what: &str) -> Result<Machine, MachineError> {
        if let Some((name, text)) = SHIPPED.iter().find(|(name, _)| *name == what) {
            return Self::parse(text, &format!("machines/{name}.toml"));
        }
        if what.ends_with(".toml") {
            return Self::parse(&read(what)?, what);
        }
        if looks_synthetic(what) {
            return Self::synthetic(what);
        }
        let close = close_to(what, SHIPPED.iter().map(|(name, _)| *name));
        let close = if close.is_empty() { String::new() } else { format!("did you mean {}? ", close.join(" or ")) };
        Err(MachineError::UnknownMachine { name: what.into(), close })
    }

    /// From the text of a machine file; `file` is its name in messages.
    pub fn parse(text: &str, file: &str) -> Result<Machine, MachineError> {
        parse::machine(text, file)
    }

    /// A regular machine with the default costs: `2n2l8c2t` has 2 nodes of 2 LLCs of 8 cores of 2 threads, `2n8k4c` 2 nodes
    /// of one LLC of 8 clusters of 4 cores. Parts may be left out (`16c`, `2n8c2t`) and are 1 then, but for `k`, without which
    /// cores form no clusters. CPUs are numbered cores first.
    pub fn synthetic(spec: &str) -> Result<Machine, MachineError> {
        let wrong = |right: String| MachineError::Synthetic { spec: spec.into(), right };
        let form = "should be numbers with n (nodes), l (LLCs per node), k (clusters per LLC), c (cores per cluster, or per \
                    LLC), t (threads per core), in this order, such as 2n2l8c2t, 2n8k4c or 16c";
        let mut counts = [1usize; UNITS.len()];
        let mut next = 0;
        let mut rest = spec;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let unit = rest[digits..].chars().next().and_then(|u| UNITS.find(u));
            let (Some(unit), 1..) = (unit, digits) else { return Err(wrong(form.into())) };
            if unit < next {
                return Err(wrong(form.into()));
            }
            counts[unit] = match rest[..digits].parse() {
                Ok(n @ 1..=CpuId::MAX_CPUS) => n,
                _ => {
                    let right = format!("found {}; should be 1 to {}", &rest[..=digits], CpuId::MAX_CPUS);
                    return Err(wrong(right));
                }
            };
            next = unit + 1;
            rest = &rest[digits + 1..];
        }
        if next == 0 {
            return Err(wrong(form.into()));
        }
        // Five factors of at most 4,096 fit 64 bits.
        let cpus = counts.iter().map(|&c| c as u64).product::<u64>();
        if cpus > CpuId::MAX_CPUS as u64 {
            return Err(wrong(format!("found {cpus} CPUs; should be 1 to {}", CpuId::MAX_CPUS)));
        }
        let [nodes, llcs_per_node, clusters, cores, threads_per_core] = counts;
        let shape = Shape {
            nodes,
            llcs_per_node,
            cores_per_llc: clusters * cores,
            cores_per_cluster: spec.contains('k').then_some(cores),
            threads_per_core,
            numbering: Numbering::CoresFirst,
        };
        let topology = Topology::regular(shape, &[]).map_err(|f| wrong(format!("found {}; {}", f.found, f.right)))?;
        let costs = parse::default_costs(&topology).map_err(|e| wrong(e.to_string()))?;
        let (of_clusters, described) = match shape.cores_per_cluster {
            Some(_) => (format!("{clusters}k"), format!("{clusters} clusters x ")),
            None => Default::default(),
        };
        Ok(Machine {
            name: format!("{nodes}n{llcs_per_node}l{of_clusters}{cores}c{threads_per_core}t"),
            description: format!(
                "Synthetic: {nodes} nodes x {llcs_per_node} LLCs x {described}{cores} cores x {threads_per_core} threads, \
                 default costs."
            ),
            topology,
            costs,
            hz: HZ_DEFAULT,
            flags: Flags::default(),
        })
    }

    /// The machines that are part of the library: name and text of the file.
    pub fn shipped() -> &'static [(&'static str, &'static str)] {
        SHIPPED
    }

    /// `what`, as for [`Machine::load`], is the path of a file.
    pub fn names_file(what: &str) -> bool {
        what.ends_with(".toml") && !SHIPPED.iter().any(|(name, _)| *name == what)
    }

    /// The complete machine as a file that [`Machine::parse`] reads back to an equal value.
    pub fn to_toml(&self) -> String {
        write::machine(self)
    }

    /// How much a lone thread of `cpu` computes, in 1/1024 of what one of the fastest CPUs does (`arch_scale_cpu_capacity`).
    pub fn capacity_of(&self, cpu: CpuId) -> u64 {
        self.costs.cpu.capacity.get(self.topology.kind_of(cpu)).map_or(CAPACITY_MAX, |c| c.value)
    }

    /// That of each CPU; none on a machine whose CPUs are all alike.
    pub fn capacities(&self) -> Vec<u64> {
        let cpus = if self.topology.kinds().is_empty() { 0 } else { self.topology.nr_cpus() };
        (0..cpus).map(|c| self.capacity_of(CpuId(c as u16))).collect()
    }

    /// Override one cost: the key is that of the file (`lines.llc`, `lines.remote.1`, `kernel.ttwu`), `hz`
    /// or a flag (`steal_time`, `vcpu_pack`, `idle_halts`, `asym_packing`). A value is a number, of a flag true or false; for an array, numbers with commas, or one number for
    /// all entries. The override is certain: its band is the value itself.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), MachineError> {
        set::set(self, key, value)
    }
}

fn read(path: &str) -> Result<String, MachineError> {
    let error = |e: std::io::Error| MachineError::Read { file: path.into(), why: reason(&e) };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(error)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(error)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(MachineError::TooLarge { file: path.into(), max: FILE_BYTES_MAX });
    }
    String::from_utf8(bytes).map_err(|e| {
        let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        MachineError::Syntax {
            file: path.into(),
            line: 1 + good.iter().filter(|&&b| b == b'\n').count(),
            why: "not UTF-8 text".into(),
        }
    })
}

fn looks_synthetic(what: &str) -> bool {
    what.starts_with(|c: char| c.is_ascii_digit()) && what.chars().all(|c| c.is_ascii_digit() || UNITS.contains(c))
}

/// Why the system refused a file, in its words, without the number.
pub fn reason(e: &std::io::Error) -> String {
    e.to_string().split(" (os error ").next().unwrap_or_default().into()
}

/// The names closest to `name`, if any is close: at most a third of its letters differ, or it is part of one, or a good part
/// (a third) of it is one. Of equally close ones those that begin alike come first.
pub fn close_to<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    if name.len() > 100 {
        return Vec::new();
    }
    let mut close: Vec<_> = all
        .filter_map(|other| {
            let d = strsim::levenshtein(name, other);
            let part =
                name.len() >= 3 && (other.contains(name) || name.contains(other) && other.len() * 3 >= name.len());
            (part || d * 3 <= name.chars().count().max(3)).then(|| {
                let alike = std::iter::zip(name.chars(), other.chars()).take_while(|(a, b)| a == b).count();
                (d, std::cmp::Reverse(alike), other)
            })
        })
        .collect();
    close.sort();
    close.truncate(3);
    close.into_iter().map(|(.., other)| other).collect()
}
