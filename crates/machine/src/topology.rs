//! Which CPUs share what: `Node > Llc > Cluster > Core > Cpu`, all numbered from 0 without gaps. Most machines have no
//! clusters: groups of cores within an LLC that share a smaller cache or the LLC's tags.
//!
//! [`Topology::distance`] stands in the simulator's innermost loop (each transfer of a cache line asks it), so it is
//! one XOR of two packed words and a small table: the node, the LLC and the core of a CPU are packed into a `u32`
//! from the most to the least significant bits, and because a core lies in one LLC and an LLC in one node, the
//! highest differing bit tells the level at which two CPUs part. Only the nodes need a table (node x node), never the
//! CPUs. A machine with clusters asks a second word for two CPUs of an LLC.

use crate::cpu_list;
use contend_platform::CpuId;

/// The largest number of NUMA nodes.
pub const MAX_NODES: usize = 256;
/// The largest number of different remote distances in a SLIT.
pub const MAX_REMOTE: usize = 16;
/// The largest number of hardware threads in a core.
pub const MAX_THREADS: usize = 64;
/// The largest number of kinds of cores.
pub const MAX_KINDS: usize = 16;
/// The SLIT distance of a node to itself (ACPI: System Locality Information Table).
pub const SLIT_LOCAL: u32 = 10;
/// The SLIT distance between nodes that a file or a synthetic machine leaves unsaid.
pub const SLIT_REMOTE_DEFAULT: u32 = 20;
/// The largest distance in a SLIT (a byte, of which 255 means "unreachable").
pub const SLIT_MAX: u32 = 254;

const LLC_SHIFT: u32 = 12;
const NODE_SHIFT: u32 = 24;

/// How CPU numbers run over the hardware threads of a regular machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbering {
    /// First all first threads of all cores, then all second threads (Intel machines under Linux).
    CoresFirst,
    /// The threads of a core have consecutive numbers (SPARC).
    ThreadsFirst,
}

impl Numbering {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Numbering::CoresFirst => "cores-first",
            Numbering::ThreadsFirst => "threads-first",
        }
    }
}

/// A regular machine: every node, LLC and core is like every other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// NUMA nodes.
    pub nodes: usize,
    /// Last-level caches in a node.
    pub llcs_per_node: usize,
    /// Cores that share a last-level cache.
    pub cores_per_llc: usize,
    /// Cores of a cluster; the number of an LLC is a multiple of it. `None`: no clusters.
    pub cores_per_cluster: Option<usize>,
    /// Hardware threads of a core.
    pub threads_per_core: usize,
    /// How CPU numbers run.
    pub numbering: Numbering,
}

/// The place of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its core.
    pub core: usize,
    /// Its cluster. All places of a machine have one, or none has.
    pub cluster: Option<usize>,
    /// Its last-level cache.
    pub llc: usize,
    /// Its NUMA node.
    pub node: usize,
}

/// CPUs of one kind: cores that compute equally fast.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kind {
    /// What they are called: `little`, `P`.
    pub name: String,
    /// Which they are, as a list: `0-3`.
    pub cpus: String,
}

/// Why places or distances make no topology. The parser adds file, line and key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Flaw {
    /// `cpu`, `slit`: the key at fault.
    pub key: &'static str,
    /// The entry of that key at fault.
    pub entry: Option<usize>,
    pub found: String,
    pub right: String,
}

/// Groups of CPUs: cores, clusters, LLCs or nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Groups {
    start: Vec<u32>,
    cpus: Vec<CpuId>,
}

impl Groups {
    fn new(count: usize, of: impl Iterator<Item = usize> + Clone) -> Self {
        let mut start = vec![0u32; count + 1];
        for g in of.clone() {
            start[g + 1] += 1;
        }
        for g in 0..count {
            start[g + 1] += start[g];
        }
        let mut next = start.clone();
        let mut cpus = vec![CpuId(0); start[count] as usize];
        for (cpu, g) in of.enumerate() {
            cpus[next[g] as usize] = CpuId(cpu as u16);
            next[g] += 1;
        }
        Groups { start, cpus }
    }

    fn len(&self) -> usize {
        self.start.len() - 1
    }

    #[inline]
    fn get(&self, g: usize) -> &[CpuId] {
        &self.cpus[self.start[g] as usize..self.start[g + 1] as usize]
    }
}

/// What lies in what, as far as it has been seen.
#[derive(Default)]
struct Nested(std::collections::BTreeMap<(&'static str, usize, &'static str), usize>);

impl Nested {
    /// Group `inner` lies in `outer`: always in the same. Else what was found, and what would be right.
    fn check(
        &mut self,
        what: &'static str,
        inner: usize,
        of: &'static str,
        outer: usize,
    ) -> Result<(), (String, String)> {
        let first = *self.0.entry((what, inner, of)).or_insert(outer);
        if first == outer {
            return Ok(());
        }
        let found = format!("{what} {inner} in {of} {first} and in {of} {outer}");
        let right = match of {
            "node" => format!("all CPUs of an {what} lie in one node"),
            _ => format!("all CPUs of a {what} share one {of}"),
        };
        Err((found, right))
    }
}

/// The CPUs of a machine and what they share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// Kept for writing the file in the form it had.
    shape: Option<Shape>,
    /// Per CPU: node, LLC and core.
    packed: Vec<u32>,
    /// Per CPU: its cluster. Empty on a machine without.
    cluster_of: Vec<u16>,
    /// Per CPU: its kind. Empty on a machine whose cores are all alike.
    kind_of: Vec<u8>,
    kinds: Vec<Kind>,
    cores: Groups,
    clusters: Groups,
    llcs: Groups,
    nodes: Groups,
    /// SLIT, row by row.
    slit: Vec<u32>,
    /// How many classes of distance CPUs of two nodes are farther apart than those of one, row by row.
    classes: Vec<u8>,
    names: Vec<String>,
    threads_max: usize,
}

impl Topology {
    /// A regular machine; `slit` has `nodes` rows and columns, or is empty for 10 on and 20 off the diagonal.
    pub(crate) fn regular(shape: Shape, slit: &[Vec<u32>]) -> Result<Self, Flaw> {
        let Shape { nodes, llcs_per_node, cores_per_llc, cores_per_cluster, threads_per_core, numbering } = shape;
        if let Some(n) = cores_per_cluster.filter(|n| !cores_per_llc.is_multiple_of(*n)) {
            let right = format!("a divisor of cores_per_llc, which is {cores_per_llc}");
            return Err(Flaw { key: "cores_per_cluster", entry: None, found: n.to_string(), right });
        }
        let cores = nodes * llcs_per_node * cores_per_llc;
        let places: Vec<Place> = (0..cores * threads_per_core)
            .map(|cpu| {
                let core = match numbering {
                    Numbering::CoresFirst => cpu % cores,
                    Numbering::ThreadsFirst => cpu / threads_per_core,
                };
                let llc = core / cores_per_llc;
                Place { core, cluster: cores_per_cluster.map(|n| core / n), llc, node: llc / llcs_per_node }
            })
            .collect();
        let mut t = Self::from_places(&places, slit)?;
        t.shape = Some(shape);
        Ok(t)
    }

    /// Any machine: the place of each CPU, by CPU number.
    pub(crate) fn from_places(places: &[Place], slit: &[Vec<u32>]) -> Result<Self, Flaw> {
        let flaw = |entry: Option<usize>, found: String, right: String| Flaw { key: "cpu", entry, found, right };
        let n = places.len();
        if n == 0 || n > CpuId::MAX_CPUS {
            return Err(flaw(None, format!("{n} CPUs"), format!("a machine has 1 to {} CPUs", CpuId::MAX_CPUS)));
        }
        let count = |what: &str, max: usize, of: &dyn Fn(&Place) -> usize| -> Result<usize, Flaw> {
            let mut used = vec![false; max];
            for (cpu, p) in places.iter().enumerate() {
                match used.get_mut(of(p)) {
                    Some(u) => *u = true,
                    None => {
                        let right = format!("{what} numbers run from 0 to at most {}", max - 1);
                        return Err(flaw(Some(cpu), format!("{what} {}", of(p)), right));
                    }
                }
            }
            let len = used.iter().rposition(|&u| u).map_or(0, |last| last + 1);
            match used[..len].iter().position(|&u| !u) {
                None => Ok(len),
                Some(gap) => {
                    let right = format!("{what} numbers run from 0 without gaps");
                    Err(flaw(None, format!("{what} {} but no {what} {gap}", len - 1), right))
                }
            }
        };
        let nr_cores = count("core", CpuId::MAX_CPUS, &|p| p.core)?;
        let nr_llcs = count("llc", CpuId::MAX_CPUS, &|p| p.llc)?;
        let nr_nodes = count("node", MAX_NODES, &|p| p.node)?;

        let some = places.iter().position(|p| p.cluster.is_some());
        if let (Some(some), Some(none)) = (some, places.iter().position(|p| p.cluster.is_none())) {
            let right = "all CPUs of a machine are in clusters, or none is".into();
            return Err(flaw(Some(none), format!("CPU {some} in a cluster, CPU {none} in none"), right));
        }
        let cluster = |p: &Place| p.cluster.unwrap_or(p.core);
        let nr_clusters = count("cluster", CpuId::MAX_CPUS, &cluster)?;
        let mut seen = Nested::default();
        for (cpu, p) in places.iter().enumerate() {
            let inside = (seen.check("core", p.core, "cluster", cluster(p)))
                .and_then(|()| seen.check("core", p.core, "llc", p.llc))
                .and_then(|()| seen.check("cluster", cluster(p), "llc", p.llc))
                .and_then(|()| seen.check("llc", p.llc, "node", p.node));
            inside.map_err(|(found, right)| flaw(Some(cpu), found, right))?;
        }
        // Clusters of a core each, or as large as the caches, tell nothing.
        let clustered = some.is_some() && nr_llcs < nr_clusters && nr_clusters < nr_cores;

        let (slit, classes, remote) = Self::check_slit(nr_nodes, slit)?;
        let near =
            if clustered { &["cpu", "core", "cluster", "llc", "node"][..] } else { &["cpu", "core", "llc", "node"] };
        let mut names: Vec<String> = near.iter().map(|n| (*n).into()).collect();
        names.extend((1..=remote).map(|r| if r == 1 { "remote".into() } else { format!("remote{r}") }));

        let cores = Groups::new(nr_cores, places.iter().map(|p| p.core));
        let threads_max = (0..nr_cores).map(|c| cores.get(c).len()).max().unwrap_or(1);
        if threads_max > MAX_THREADS {
            let right = format!("a core has at most {MAX_THREADS} CPUs");
            return Err(flaw(None, format!("a core of {threads_max} CPUs"), right));
        }
        let by_cluster = || places.iter().map(cluster).filter(|_| clustered);
        Ok(Topology {
            shape: None,
            kind_of: Vec::new(),
            kinds: Vec::new(),
            cluster_of: by_cluster().map(|c| c as u16).collect(),
            clusters: Groups::new(if clustered { nr_clusters } else { 0 }, by_cluster()),
            packed: places
                .iter()
                .map(|p| (p.node as u32) << NODE_SHIFT | (p.llc as u32) << LLC_SHIFT | p.core as u32)
                .collect(),
            cores,
            llcs: Groups::new(nr_llcs, places.iter().map(|p| p.llc)),
            nodes: Groups::new(nr_nodes, places.iter().map(|p| p.node)),
            slit,
            classes,
            names,
            threads_max,
        })
    }

    /// The same with cores of several kinds; all of one kind if `kinds` is empty.
    pub(crate) fn with_kinds(mut self, kinds: Vec<Kind>) -> Result<Self, Flaw> {
        let flaw = |entry: Option<usize>, found: String, right: String| Flaw { key: "kinds", entry, found, right };
        if kinds.len() == 1 || kinds.len() > MAX_KINDS {
            let right = format!("2 to {MAX_KINDS} kinds, or no `kinds` where all cores are alike");
            return Err(flaw(None, format!("{} kinds", kinds.len()), right));
        }
        let mut of: Vec<Option<u8>> = vec![None; self.nr_cpus()];
        for (k, kind) in kinds.iter().enumerate() {
            if let Some(first) = kinds[..k].iter().position(|other| other.name == kind.name) {
                let found = format!("kind {:?} twice, as number {first} and {k}", kind.name);
                return Err(flaw(Some(k), found, "a name for each kind".into()));
            }
            let cpus = cpu_list(&kind.cpus).filter(|cpus| !cpus.is_empty());
            let Some(cpus) = cpus.filter(|cpus| cpus.last().is_some_and(|c| *c < of.len())) else {
                let right = format!("CPUs from 0 to {}, such as \"0-3,8\"", of.len() - 1);
                return Err(flaw(Some(k), format!("cpus = {:?}", kind.cpus), right));
            };
            for cpu in cpus {
                if let Some(other) = of[cpu].replace(k as u8) {
                    let found = format!("CPU {cpu} of {:?} and of {:?}", kinds[usize::from(other)].name, kind.name);
                    return Err(flaw(Some(k), found, "each CPU is of one kind".into()));
                }
            }
        }
        if let Some(none) = of.iter().position(|k| k.is_none()).filter(|_| !kinds.is_empty()) {
            return Err(flaw(None, format!("CPU {none} of no kind"), "each CPU is of one kind".into()));
        }
        for core in 0..self.nr_cores() {
            let cpus = self.core_cpus(core);
            if let Some(other) = cpus.iter().find(|c| of[c.index()] != of[cpus[0].index()]) {
                let found = format!("CPUs {} and {other} of two kinds, both threads of core {core}", cpus[0]);
                return Err(flaw(None, found, "all threads of a core are of one kind".into()));
            }
        }
        self.kind_of = of.into_iter().flatten().collect();
        self.kinds = kinds;
        Ok(self)
    }

    /// Flattened SLIT, distance classes, and how many remote classes there are.
    fn check_slit(nodes: usize, rows: &[Vec<u32>]) -> Result<(Vec<u32>, Vec<u8>, usize), Flaw> {
        let flaw = |entry: Option<usize>, found: String, right: String| Flaw { key: "slit", entry, found, right };
        let slit: Vec<u32> = if rows.is_empty() {
            (0..nodes * nodes).map(|i| if i / nodes == i % nodes { SLIT_LOCAL } else { SLIT_REMOTE_DEFAULT }).collect()
        } else {
            if rows.len() != nodes {
                let right = format!("one row for each of the {nodes} nodes");
                return Err(flaw(None, format!("{} rows", rows.len()), right));
            }
            for (i, row) in rows.iter().enumerate() {
                if row.len() != nodes {
                    let right = format!("the table is square: {nodes} columns");
                    return Err(flaw(Some(i), format!("{} columns in row {i}", row.len()), right));
                }
            }
            rows.concat()
        };
        for a in 0..nodes {
            for b in 0..nodes {
                let d = slit[a * nodes + b];
                let found = format!("{d} from node {a} to node {b}");
                if a == b && d != SLIT_LOCAL {
                    return Err(flaw(Some(a), found, format!("a node is {SLIT_LOCAL} from itself")));
                }
                if a != b && !(SLIT_LOCAL + 1..=SLIT_MAX).contains(&d) {
                    let right = format!("other nodes are {} to {SLIT_MAX} away", SLIT_LOCAL + 1);
                    return Err(flaw(Some(a), found, right));
                }
                if slit[b * nodes + a] != d {
                    let found = format!("{found} but {} back", slit[b * nodes + a]);
                    return Err(flaw(Some(a), found, "the table is symmetric".into()));
                }
            }
        }
        let mut far: Vec<u32> = slit.iter().copied().filter(|&d| d != SLIT_LOCAL).collect();
        far.sort_unstable();
        far.dedup();
        if far.len() > MAX_REMOTE {
            let right = format!("at most {MAX_REMOTE} different distances to other nodes");
            return Err(flaw(None, format!("{} different distances", far.len()), right));
        }
        let classes = slit.iter().map(|d| far.binary_search(d).map_or(0, |c| 1 + c as u8)).collect();
        Ok((slit, classes, far.len()))
    }

    /// Number of CPUs (hardware threads).
    #[inline]
    pub fn nr_cpus(&self) -> usize {
        self.packed.len()
    }
    /// Number of cores.
    pub fn nr_cores(&self) -> usize {
        self.cores.len()
    }
    /// Number of last-level caches.
    pub fn nr_llcs(&self) -> usize {
        self.llcs.len()
    }
    /// Number of NUMA nodes.
    pub fn nr_nodes(&self) -> usize {
        self.nodes.len()
    }
    /// Hardware threads of the core that has most.
    pub fn threads_per_core_max(&self) -> usize {
        self.threads_max
    }
    /// Number of different distances between nodes, the local one not counted.
    pub fn nr_remote(&self) -> usize {
        self.names.len() - self.first_remote()
    }
    /// Cores share more in groups than the LLC.
    #[inline]
    pub fn has_clusters(&self) -> bool {
        !self.cluster_of.is_empty()
    }
    /// Number of clusters; 0 on a machine without.
    pub fn nr_clusters(&self) -> usize {
        self.clusters.len()
    }
    /// The kinds of cores; none on a machine whose cores are all alike.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }
    /// Index of the kind of a CPU; 0 where all are alike.
    #[inline]
    pub fn kind_of(&self, cpu: CpuId) -> usize {
        self.kind_of.get(cpu.index()).map_or(0, |k| usize::from(*k))
    }
    /// The regular shape, if the machine was described by one.
    pub fn shape(&self) -> Option<&Shape> {
        self.shape.as_ref()
    }

    /// The core a CPU is a thread of.
    #[inline]
    pub fn core_of(&self, cpu: CpuId) -> usize {
        (self.packed[cpu.index()] & ((1 << LLC_SHIFT) - 1)) as usize
    }
    /// The cluster of a CPU. `None`: the machine has none.
    #[inline]
    pub fn cluster_of(&self, cpu: CpuId) -> Option<usize> {
        self.cluster_of.get(cpu.index()).map(|c| usize::from(*c))
    }
    /// The last-level cache a CPU uses.
    #[inline]
    pub fn llc_of(&self, cpu: CpuId) -> usize {
        (self.packed[cpu.index()] >> LLC_SHIFT & ((1 << (NODE_SHIFT - LLC_SHIFT)) - 1)) as usize
    }
    /// The NUMA node of a CPU.
    #[inline]
    pub fn node_of(&self, cpu: CpuId) -> usize {
        (self.packed[cpu.index()] >> NODE_SHIFT) as usize
    }
    /// The CPUs of a core, ascending.
    #[inline]
    pub fn core_cpus(&self, core: usize) -> &[CpuId] {
        self.cores.get(core)
    }
    /// The CPUs of a cluster, ascending.
    pub fn cluster_cpus(&self, cluster: usize) -> &[CpuId] {
        self.clusters.get(cluster)
    }
    /// The CPUs that share a last-level cache, ascending.
    #[inline]
    pub fn llc_cpus(&self, llc: usize) -> &[CpuId] {
        self.llcs.get(llc)
    }
    /// The CPUs of a NUMA node, ascending.
    #[inline]
    pub fn node_cpus(&self, node: usize) -> &[CpuId] {
        self.nodes.get(node)
    }
    /// SLIT distance of two nodes: 10 is local.
    pub fn node_distance(&self, a: usize, b: usize) -> u32 {
        assert!(a < self.nr_nodes() && b < self.nr_nodes(), "no such node");
        self.slit[a * self.nr_nodes() + b]
    }

    /// The distance of two CPUs of an LLC that are in no common cluster.
    #[inline]
    fn llc_distance(&self) -> usize {
        2 + usize::from(self.has_clusters())
    }
    /// The distance of two CPUs of a node that share no LLC.
    #[inline]
    pub fn node_wide(&self) -> usize {
        self.llc_distance() + 1
    }
    /// The smallest distance of two CPUs of different nodes.
    #[inline]
    pub fn first_remote(&self) -> usize {
        self.llc_distance() + 2
    }

    /// How far apart two CPUs are, from 0 on: the same CPU, the same core, the same cluster (on machines that have some), the same
    /// LLC, the same node, other nodes by ascending class of SLIT distance.
    #[inline]
    pub fn distance(&self, a: CpuId, b: CpuId) -> usize {
        let (pa, pb) = (self.packed[a.index()], self.packed[b.index()]);
        let differ = pa ^ pb;
        if differ == 0 {
            usize::from(a != b)
        } else if differ < 1 << LLC_SHIFT {
            if self.has_clusters() && self.cluster_of[a.index()] == self.cluster_of[b.index()] {
                2
            } else {
                self.llc_distance()
            }
        } else if differ < 1 << NODE_SHIFT {
            self.node_wide()
        } else {
            let classes = (pa >> NODE_SHIFT) as usize * self.nodes.len() + (pb >> NODE_SHIFT) as usize;
            self.node_wide() + usize::from(self.classes[classes])
        }
    }
    /// The smallest distance from `from` to `other` or one of `more` (none of them `from` itself).
    #[inline]
    pub fn nearest(&self, from: CpuId, other: CpuId, more: impl Iterator<Item = CpuId> + Clone) -> usize {
        // Packed places differ in higher bits the farther apart they are, up to the node.
        let packed = &self.packed[..];
        let place = packed[from.index()];
        let mut differ = packed[other.index()] ^ place;
        for c in more.clone() {
            differ = differ.min(packed[c.index()] ^ place);
        }
        let by_pairs = || more.clone().fold(self.distance(from, other), |d, c| d.min(self.distance(from, c)));
        if differ == 0 {
            1
        } else if differ < 1 << LLC_SHIFT {
            if self.has_clusters() { by_pairs() } else { self.llc_distance() }
        } else if differ < 1 << NODE_SHIFT {
            self.node_wide()
        } else if self.nr_remote() <= 1 {
            self.nr_distances() - 1
        } else {
            by_pairs()
        }
    }
    /// Number of values [`Topology::distance`] can have.
    #[inline]
    pub fn nr_distances(&self) -> usize {
        self.names.len()
    }
    /// The name of a distance: `cpu`, `core`, `cluster`, `llc`, `node`, `remote`, `remote2`, ...
    pub fn distance_name(&self, d: usize) -> &str {
        &self.names[d]
    }
}
