//! Scheduling domains: what load balancing and the wake-up path see of the topology.
//!
//! From the smallest to the largest: SMT (threads of a core), CLS (CPUs of a cluster, in kernels that know of them), MC (CPUs of
//! a last-level cache), PKG (caches of a node), NUMA (all nodes within a distance). A level that spans no more than the one below is left out. A domain's groups are
//! the spans of the level below.

use crate::capacity::Capacities;
use contend_machine::Topology;
use contend_platform::CpuId;
use std::sync::Arc;

/// Kind of a level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Hardware threads of a core.
    Smt,
    /// CPUs of a cluster: they share part of what the last-level cache is to all.
    Cls,
    /// CPUs that share the last-level cache.
    Mc,
    /// Caches of one node.
    Pkg,
    /// Nodes.
    Numa,
}

impl Level {
    /// Name as in `/proc/schedstat` and `sched_domain/*/name`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Smt => "SMT",
            Level::Cls => "CLS",
            Level::Mc => "MC",
            Level::Pkg => "PKG",
            Level::Numa => "NUMA",
        }
    }

    /// Do all CPUs of such a domain share the last-level cache?
    pub fn inside_llc(self) -> bool {
        self <= Level::Mc
    }
}

/// Capacity of a whole CPU and of an SMT core, in upstream's units.
pub(crate) const CAPACITY: u64 = 1024;
const SMT_CORE_CAPACITY: u64 = 1178;

/// What a group of CPUs amounts to.
#[derive(Clone, Copy, Debug)]
pub struct GroupSize {
    /// Cores that it touches.
    pub cores: u64,
    /// Its capacity, at least 1.
    pub capacity: u64,
    /// That of its smallest CPU.
    pub min_capacity: u64,
    /// That of its largest.
    pub max_capacity: u64,
    /// The highest priority of its CPUs (asym_prefer_cpu).
    pub priority: u64,
}

impl GroupSize {
    fn of(topo: &Topology, capacities: &Capacities, cpus: &[CpuId]) -> Self {
        // CPUs of a core are mostly far apart in number, so cores are counted by their first thread in the group.
        let (mut cores, mut capacity) = (0, 0);
        for &c in cpus {
            let threads = topo.core_cpus(topo.core_of(c));
            let whole = if threads.len() == 1 { CAPACITY } else { SMT_CORE_CAPACITY };
            capacity += whole / threads.len() as u64 * capacities.of(c) / CAPACITY;
            let first = threads.iter().find(|t| cpus.binary_search(t).is_ok());
            cores += u64::from(first == Some(&c));
        }
        let each = || cpus.iter().map(|c| capacities.of(*c));
        let (min_capacity, max_capacity) = (each().min().unwrap_or(CAPACITY), each().max().unwrap_or(CAPACITY));
        let priority = capacities.best_priority(cpus);
        GroupSize { cores, capacity: capacity.max(1), min_capacity, max_capacity, priority }
    }
}

/// One domain, shared by the CPUs it spans.
#[derive(Debug)]
pub struct Domain {
    /// Its level.
    pub level: Level,
    /// Its CPUs, ascending.
    pub span: Box<[CpuId]>,
    /// They differ in capacity, as far as the kernel knows (SD_ASYM_CPUCAPACITY).
    pub asym: bool,
    /// It has CPUs of all capacities of the machine (SD_ASYM_CPUCAPACITY_FULL).
    pub asym_full: bool,
    /// Its groups differ in cores.
    pub uneven: bool,
    /// Its groups: partitions of the span, by their first CPUs. Each CPU goes round them from its own on ([`Domain::nth_from`]).
    pub groups: Box<[Box<[CpuId]>]>,
    /// Their sizes.
    pub sizes: Box<[GroupSize]>,
}

impl Domain {
    /// Index of the group that holds `cpu`.
    pub fn group_of(&self, cpu: CpuId) -> usize {
        self.groups.iter().position(|g| g.binary_search(&cpu).is_ok()).expect("the groups partition the span")
    }

    /// Which of the groups `group` is to a CPU of the group `local`, that group being 0. A domain's groups are a ring that
    /// each CPU enters at its own (the kernel's documentation, scheduler/sched-domains), and of equals the first is taken.
    pub fn nth_from(&self, local: usize, group: usize) -> usize {
        if group >= local { group - local } else { group + self.groups.len() - local }
    }

    /// The groups as a CPU of the group `local` goes round them.
    pub fn groups_from(&self, local: usize) -> impl Iterator<Item = &[CpuId]> {
        let (before, from) = self.groups.split_at(local);
        from.iter().chain(before).map(|g| &**g)
    }
}

/// The domains of every CPU, smallest first.
#[derive(Debug)]
pub struct Domains {
    per_cpu: Vec<Vec<Arc<Domain>>>,
}

impl Domains {
    /// Build them from a topology; with a level for clusters if the kernel knows of them and the machine has some.
    pub(crate) fn new(topo: &Topology, capacities: &Capacities, clusters: bool) -> Self {
        let n = topo.nr_cpus();
        let cluster = |c| topo.cluster_of(c).filter(|_| clusters).unwrap_or_else(|| topo.core_of(c));
        // Spans by level, as an id per CPU: CPUs with equal ids form one span.
        let mut levels: Vec<(Level, Vec<u32>)> = vec![
            (Level::Smt, (0..n).map(|c| topo.core_of(CpuId(c as u16)) as u32).collect()),
            (Level::Cls, (0..n).map(|c| cluster(CpuId(c as u16)) as u32).collect()),
            (Level::Mc, (0..n).map(|c| topo.llc_of(CpuId(c as u16)) as u32).collect()),
            (Level::Pkg, (0..n).map(|c| topo.node_of(CpuId(c as u16)) as u32).collect()),
        ];
        if topo.nr_nodes() > 1 {
            // Nodes at the nearest remote distance form a level if that is an equivalence; all nodes form the last one.
            let nodes = topo.nr_nodes();
            let mut distances: Vec<u32> = (0..nodes)
                .flat_map(|a| (0..nodes).map(move |b| (a, b)))
                .map(|(a, b)| topo.node_distance(a, b))
                .collect();
            distances.sort_unstable();
            distances.dedup();
            for (i, d) in distances.iter().enumerate().skip(1) {
                let last = i + 1 == distances.len();
                let leader = |a: usize| (0..nodes).find(|&b| topo.node_distance(a, b) <= *d).unwrap_or(a);
                let consistent = (0..nodes)
                    .all(|a| (0..nodes).all(|b| (leader(a) == leader(b)) == (topo.node_distance(a, b) <= *d)));
                if last || consistent {
                    let id = |c: usize| {
                        let node = topo.node_of(CpuId(c as u16));
                        if last { 0 } else { leader(node) as u32 }
                    };
                    levels.push((Level::Numa, (0..n).map(id).collect()));
                }
            }
        }
        let mut per_cpu: Vec<Vec<Arc<Domain>>> = vec![Vec::new(); n];
        let mut below: Vec<u32> = (0..n as u32).collect();
        for (level, ids) in levels {
            let mut spans: std::collections::BTreeMap<u32, Vec<CpuId>> = std::collections::BTreeMap::new();
            for (c, id) in ids.iter().enumerate() {
                spans.entry(*id).or_default().push(CpuId(c as u16));
            }
            let mut grew = false;
            for span in spans.into_values() {
                let mut groups: std::collections::BTreeMap<u32, Vec<CpuId>> = std::collections::BTreeMap::new();
                for cpu in &span {
                    groups.entry(below[cpu.index()]).or_default().push(*cpu);
                }
                if groups.len() < 2 {
                    continue;
                }
                grew = true;
                let sizes: Box<[GroupSize]> =
                    groups.values().map(|cpus| GroupSize::of(topo, capacities, cpus)).collect();
                let domain = Arc::new(Domain {
                    level,
                    asym: capacities.differ_among(&span),
                    asym_full: capacities.all_among(&span),
                    uneven: sizes.iter().any(|s| s.cores != sizes[0].cores),
                    sizes,
                    groups: groups.into_values().map(Vec::into_boxed_slice).collect(),
                    span: span.clone().into_boxed_slice(),
                });
                for cpu in &span {
                    per_cpu[cpu.index()].push(Arc::clone(&domain));
                }
            }
            if grew {
                below = ids;
            }
        }
        Domains { per_cpu }
    }

    /// The domains of `cpu`, smallest first.
    pub fn of(&self, cpu: CpuId) -> &[Arc<Domain>] {
        &self.per_cpu[cpu.index()]
    }
}
