//! From what sysfs says to a topology that a machine file can hold: CPUs without gaps, cores in caches in nodes.
//!
//! Real machines contradict this shape, and so do hypervisors that make topologies up. Rules, each said in a note where
//! it was needed:
//!
//! - CPUs are renumbered in the kernel's order, without those that are offline.
//! - CPUs form a core, or share a cache, if their lists are the same (of online CPUs) and name them. A CPU whose list
//!   disagrees with those of others stands alone.
//! - The last-level cache is the one of the highest level. Without cache information a package counts as one cache,
//!   without packages a node.
//! - A core that spans caches, or a cache that spans nodes, is cut.
//! - Clusters are what the kernel calls so, or else CPUs that share a data cache below the last level. Where they hold no more
//!   than a core, or no less than a last-level cache, or cut a core, there are none.
//! - Nodes without CPUs are left out; distances are made symmetric, and at most 16 different ones are kept.

use std::collections::{BTreeMap, BTreeSet};

use contend_machine::{
    CAPACITY_MAX, Cost, Kind, MAX_KINDS, MAX_NODES, MAX_REMOTE, MAX_THREADS, Place, SLIT_LOCAL, SLIT_MAX,
    SLIT_REMOTE_DEFAULT, write_list,
};
use contend_platform::CpuId;

use crate::derive::Found;
use crate::sysfs::{CoreType, CpuSet, Raw, RawCache, RawCpu};
use crate::{How, ProbeError};

/// Sizes in KiB: smallest, most common and largest over the CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// The most common.
    pub value: u64,
    /// The smallest.
    pub lo: u64,
    /// The largest.
    pub hi: u64,
}

/// A machine's shape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The kernel's number of each CPU of the machine file.
    pub kernel_cpu: Vec<usize>,
    /// Where each CPU is.
    pub places: Vec<Place>,
    /// Distances of the nodes.
    pub slit: Vec<Vec<u32>>,
    /// The largest cache that belongs to one core and is not the last-level one.
    pub private_kib: Option<Sizes>,
    /// The last-level cache.
    pub llc_kib: Option<Sizes>,
    /// Kinds of cores, the slowest first; none where all are alike.
    pub kinds: Vec<Kind>,
    /// `cpu.capacity` of each.
    pub capacity: Vec<Found>,
    /// The kernel knows which of them to prefer, not how much each computes (x86).
    pub asym_packing: bool,
    /// What was assumed or corrected, in words.
    pub notes: Vec<String>,
}

/// Makes a topology of what was read.
pub fn layout(raw: &Raw) -> Result<Layout, ProbeError> {
    let n = raw.cpus.len();
    if n == 0 || n > CpuId::MAX_CPUS {
        return Err(ProbeError::Topology(format!("found {n} CPUs; a machine has 1 to {}", CpuId::MAX_CPUS)));
    }
    let mut notes = raw.notes.clone();
    let kernel_cpu: Vec<usize> = raw.cpus.iter().map(|c| c.id).collect();
    let online: CpuSet = kernel_cpu.iter().copied().collect();
    if raw.offline > 0 {
        notes.push(format!("{} CPUs are offline and left out", raw.offline));
    }
    if kernel_cpu.iter().enumerate().any(|(i, id)| i != *id) {
        let last = kernel_cpu[n - 1];
        notes.push(format!("the kernel's CPU numbers run to {last} with gaps; the file numbers them 0 to {}", n - 1));
    }

    let (node_of, slit) = nodes(raw, &mut notes)?;
    let cut = |within: &[usize], group: &[usize]| joined(within.iter().copied().zip(group.iter().copied()));

    let caches: Vec<Option<&RawCache>> = raw.cpus.iter().map(last_level).collect();
    let llc_lists: Vec<Option<CpuSet>> = caches.iter().map(|c| c.and_then(|c| c.shared.clone())).collect();
    let listed = by_lists(raw, &llc_lists, &online, "last-level cache", &mut notes);
    let lacking: Vec<usize> = (0..n).filter(|i| llc_lists[*i].is_none()).collect();
    let by_package = lacking.iter().all(|i| raw.cpus[*i].package.is_some());
    let whole = if by_package { "package" } else { "node" };
    if lacking.len() == n {
        notes.push(format!("no cache information: each {whole} counts as one last-level cache"));
    } else if let Some(first) = lacking.first() {
        notes.push(format!(
            "{} CPUs, {} the first, have no cache information: those of a {whole} count as one last-level cache",
            lacking.len(),
            kernel_cpu[*first]
        ));
    }
    let whole_of = |i: usize| if by_package { raw.cpus[i].package } else { Some(node_of[i]) };
    let llc = joined((0..n).map(|i| llc_lists[i].as_ref().map_or_else(|| Err(whole_of(i)), |_| Ok(listed[i]))));
    let llc_of = cut(&node_of, &llc);
    if count(&llc_of) > count(&llc) {
        notes.push("a last-level cache spans nodes: it is cut at their borders".into());
    }

    let siblings: Vec<Option<CpuSet>> = raw.cpus.iter().map(|c| c.siblings.clone()).collect();
    let cores = by_lists(raw, &siblings, &online, "core", &mut notes);
    let core_of = cut(&llc_of, &cores);
    if count(&core_of) > count(&cores) {
        notes.push("a core spans last-level caches: it is cut at their borders".into());
    }
    let threads = (0..count(&core_of)).map(|k| core_of.iter().filter(|c| **c == k).count()).max().unwrap_or(1);
    if threads > MAX_THREADS {
        let said = format!("found a core of {threads} CPUs; a core has at most {MAX_THREADS}");
        return Err(ProbeError::Topology(said));
    }

    let cluster_of = clusters(raw, &online, &core_of, &llc_of, &mut notes);
    let place = |i: usize| Place {
        core: core_of[i],
        cluster: cluster_of.as_ref().map(|of| of[i]),
        llc: llc_of[i],
        node: node_of[i],
    };
    let places = (0..n).map(place).collect();
    let private_kib = sizes(raw.cpus.iter().filter_map(private));
    let llc_kib = sizes(caches.iter().filter_map(|c| c.and_then(|c| c.kib)));
    let (kinds, capacity) = kinds(raw, &core_of, &mut notes).into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
    let asym_packing = !kinds.is_empty() && raw.cpus.iter().any(|c| c.core_type.is_some() && c.capacity.is_none());
    Ok(Layout { kernel_cpu, places, slit, private_kib, llc_kib, kinds, capacity, asym_packing, notes })
}

/// Kinds of cores, the slowest first, where all CPUs tell theirs and they differ: by capacity, or by the type of hybrid processors.
fn kinds(raw: &Raw, core_of: &[usize], notes: &mut Vec<String>) -> Vec<(Kind, Found)> {
    let all = |of: fn(&RawCpu) -> Option<u64>| {
        let of: Option<Vec<u64>> = raw.cpus.iter().map(of).collect();
        of.filter(|of| of.iter().any(|k| *k != of[0]))
    };
    let (of, by) = if let Some(of) = all(|c| c.capacity) {
        (of, "capacities")
    } else if let Some(of) = all(|c| c.core_type.map(|t| t as u64)) {
        (of, "types")
    } else {
        return Vec::new();
    };
    let by_core: BTreeSet<(usize, u64)> = core_of.iter().copied().zip(of.iter().copied()).collect();
    let values: Vec<u64> = of.iter().copied().collect::<BTreeSet<u64>>().into_iter().collect();
    if by_core.len() > count(core_of) || values.len() > MAX_KINDS {
        let why = if values.len() > MAX_KINDS { "too many of them" } else { "threads of one core differ" };
        notes.push(format!("CPUs of {} {by}, {why}: the file has one speed for all", values.len()));
        return Vec::new();
    }
    let sorts = if by == "types" { by_type(&values) } else { by_capacity(&values) };
    let kind = |(value, (name, how, cost)): (&u64, (String, How, Cost))| {
        let cpus = (0..of.len()).filter(|c| of[*c] == *value);
        let cpus = std::fmt::from_fn(|f| write_list(f, cpus.clone())).to_string();
        (Kind { name, cpus }, Found { section: "cpu", field: "capacity", how, cost })
    };
    values.iter().zip(sorts).map(kind).collect()
}

/// Name and capacity of a kind for each of these `cpu_capacity`, ascending.
fn by_capacity(values: &[u64]) -> Vec<(String, How, Cost)> {
    let max = values[values.len() - 1];
    let name = |i: usize| match (values.len(), i) {
        (2 | 3, 0) => "little".to_string(),
        (3, 1) => "middle".into(),
        (2, 1) | (3, 2) => "big".into(),
        _ => format!("kind{i}"),
    };
    let sort = |(i, of): (usize, &u64)| {
        let value = (of * CAPACITY_MAX / max).max(1);
        let (lo, hi) = if *of == max { (value, value) } else { (value * 4 / 5, (value * 5 / 4).min(CAPACITY_MAX)) };
        let source = format!(
            "the kernel's cpu_capacity, {of} of {max}, which comes from firmware; a fifth off either way for other programs (estimate)"
        );
        (name(i), How::Declared, Cost { value, lo: lo.max(1), hi, source })
    };
    values.iter().enumerate().map(sort).collect()
}

/// The same for each of these types of x86's hybrid processors ([`CoreType`]). How much slower is not told: on the desktops of 2021 to 2024 an
/// efficient core has some 70 to 75 % of the clock and does some 65 to 90 % as much in a cycle (general knowledge, not checked).
fn by_type(values: &[u64]) -> Vec<(String, How, Cost)> {
    let sort = |of: &u64| {
        let (name, (lo, value, hi)) = match *of {
            of if of == CoreType::Core as u64 => ("P", (CAPACITY_MAX, CAPACITY_MAX, CAPACITY_MAX)),
            of if of == CoreType::Atom as u64 => ("E", (450, 600, 800)),
            _ => ("LP-E", (250, 400, 600)),
        };
        let source = match name {
            "P" => "by definition",
            _ => {
                "estimate: clock and work a cycle of such cores against the fast ones, general knowledge, not checked; contend probe measures it"
            }
        };
        (name.into(), How::Estimate, Cost { value, lo, hi, source: source.into() })
    };
    // Without fast ones the fastest there is counts.
    let mut sorts: Vec<_> = values.iter().map(sort).collect();
    if let Some((.., cost)) = sorts.last_mut() {
        let source = "by definition".into();
        *cost = Cost { value: CAPACITY_MAX, lo: CAPACITY_MAX, hi: CAPACITY_MAX, source };
    }
    sorts
}

/// The cluster of each CPU.
fn clusters(
    raw: &Raw,
    online: &CpuSet,
    core_of: &[usize],
    llc_of: &[usize],
    notes: &mut Vec<String>,
) -> Option<Vec<usize>> {
    let said = raw.cpus.iter().any(|c| c.cluster.is_some());
    let list = |c: &RawCpu| if said { c.cluster.clone() } else { middle(c).and_then(|cache| cache.shared.clone()) };
    let lists: Vec<Option<CpuSet>> = raw.cpus.iter().map(list).collect();
    // Not a word of lists that contradict one another: where there are no clusters, they may be anything.
    let groups = by_lists(raw, &lists, online, "cluster", &mut Vec::new());
    // CPUs that name nobody are in a cluster with their core.
    let whole = |i: usize| groups.iter().filter(|g| **g == groups[i]).count() == 1;
    let of = |i: usize| if whole(i) { Err(core_of[i]) } else { Ok(groups[i]) };
    let cluster_of = joined((0..core_of.len()).map(|i| (llc_of[i], of(i))));
    let cores_whole = count(&joined(cluster_of.iter().zip(core_of))) == count(core_of);
    let (clusters, cores, llcs) = (count(&cluster_of), count(core_of), count(llc_of));
    if !cores_whole {
        notes.push("clusters cut cores: they are left out".into());
    }
    (cores_whole && llcs < clusters && clusters < cores).then_some(cluster_of)
}

/// Group numbers from 0 in order of appearance.
fn joined<K: Ord>(keys: impl Iterator<Item = K>) -> Vec<usize> {
    let mut seen = BTreeMap::new();
    keys.map(|k| {
        let next = seen.len();
        *seen.entry(k).or_insert(next)
    })
    .collect()
}

fn count(groups: &[usize]) -> usize {
    groups.iter().max().map_or(0, |m| m + 1)
}

/// Groups of CPUs whose lists agree.
fn by_lists(raw: &Raw, lists: &[Option<CpuSet>], online: &CpuSet, what: &str, notes: &mut Vec<String>) -> Vec<usize> {
    let lists: Vec<Option<CpuSet>> =
        lists.iter().map(|l| l.as_ref().map(|l| l.intersection(online).copied().collect())).collect();
    let index: BTreeMap<usize, usize> = raw.cpus.iter().enumerate().map(|(i, c)| (c.id, i)).collect();
    let mut alone = Vec::new();
    let keys: Vec<CpuSet> = raw
        .cpus
        .iter()
        .zip(&lists)
        .map(|(cpu, list)| {
            let mine = || CpuSet::from([cpu.id]);
            let Some(list) = list else { return mine() };
            // Everybody in the list has the same list; so a CPU that stands alone for this reason leaves nobody behind.
            if list.contains(&cpu.id) && list.iter().all(|c| lists[index[c]].as_ref() == Some(list)) {
                return list.clone();
            }
            alone.push(cpu.id);
            mine()
        })
        .collect();
    if !alone.is_empty() {
        let shown: Vec<String> = alone.iter().take(8).map(usize::to_string).collect();
        let more = if alone.len() > 8 { ", ..." } else { "" };
        notes.push(format!(
            "CPU {}{more}: the lists of who shares a {what} contradict one another; each is taken alone",
            shown.join(", ")
        ));
    }
    joined(keys.into_iter())
}

fn last_level(cpu: &RawCpu) -> Option<&RawCache> {
    cpu.caches.iter().max_by_key(|c| c.level)
}

/// The largest cache below the last level.
fn middle(cpu: &RawCpu) -> Option<&RawCache> {
    let last = last_level(cpu)?.level;
    cpu.caches.iter().filter(|c| c.level < last).max_by_key(|c| c.level)
}

/// The size of the cache of a CPU's core.
fn private(cpu: &RawCpu) -> Option<u64> {
    middle(cpu)?.kib
}

fn sizes(all: impl Iterator<Item = u64>) -> Option<Sizes> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    all.for_each(|kib| *counts.entry(kib).or_default() += 1);
    let (lo, hi) = (*counts.first_key_value()?.0, *counts.last_key_value()?.0);
    let value = *counts.iter().max_by_key(|(_, n)| **n)?.0;
    Some(Sizes { value, lo, hi })
}

/// The node of each CPU, numbered from 0, and the distances.
fn nodes(raw: &Raw, notes: &mut Vec<String>) -> Result<(Vec<usize>, Vec<Vec<u32>>), ProbeError> {
    let mut kernel_node = Vec::new();
    let (mut without, mut twice) = (0, 0);
    for cpu in &raw.cpus {
        let mut of = raw.nodes.iter().enumerate().filter(|(_, n)| n.cpus.contains(&cpu.id)).map(|(i, _)| i);
        let first = of.next();
        without += usize::from(first.is_none());
        twice += usize::from(of.next().is_some());
        kernel_node.push(first);
    }
    if !raw.nodes.is_empty() && without > 0 {
        notes.push(format!("{without} CPUs are in no node; they are put into the first"));
    }
    if twice > 0 {
        notes.push(format!("{twice} CPUs are in several nodes; the first counts"));
    }
    let first = kernel_node.iter().flatten().min().copied().unwrap_or(0);
    let kernel_node: Vec<usize> = kernel_node.into_iter().map(|n| n.unwrap_or(first)).collect();
    let mut used: Vec<usize> = kernel_node.clone();
    used.sort_unstable();
    used.dedup();
    if used.len() < raw.nodes.len() {
        notes.push(format!("{} nodes without CPUs are left out", raw.nodes.len() - used.len()));
    }
    if used.len() > MAX_NODES {
        return Err(ProbeError::Topology(format!("found {} nodes; a machine has at most {MAX_NODES}", used.len())));
    }
    let number = |kernel: usize| used.binary_search(&kernel).expect("it is in use");
    let node_of = kernel_node.into_iter().map(number).collect();
    Ok((node_of, slit(raw, &used, notes)))
}

fn slit(raw: &Raw, used: &[usize], notes: &mut Vec<String>) -> Vec<Vec<u32>> {
    let said = |a: usize, b: usize| -> Option<u32> {
        let row = raw.nodes.get(a)?.distances.as_ref()?;
        (row.len() == raw.nodes.len()).then(|| row[b])
    };
    let (mut unsaid, mut changed) = (0, 0);
    let mut slit: Vec<Vec<u32>> = used
        .iter()
        .map(|&a| {
            let of = |&b: &usize| {
                if a == b {
                    changed += usize::from(said(a, a).is_some_and(|d| d != SLIT_LOCAL));
                    return SLIT_LOCAL;
                }
                // The larger of the two directions.
                let both = [said(a, b), said(b, a)];
                unsaid += usize::from(both == [None, None]);
                let d = both.into_iter().flatten().max().unwrap_or(SLIT_REMOTE_DEFAULT);
                let fit = d.clamp(SLIT_LOCAL + 1, SLIT_MAX);
                changed += usize::from(both.iter().flatten().any(|s| *s != fit));
                fit
            };
            used.iter().map(of).collect()
        })
        .collect();
    if unsaid > 0 {
        notes.push(format!("distances of nodes are not known; {SLIT_REMOTE_DEFAULT} is taken"));
    }
    if changed > 0 {
        notes.push("distances of nodes were corrected: 10 to itself, 11 to 254 elsewhere, the same both ways".into());
    }
    if join_distances(&mut slit, MAX_REMOTE) {
        notes.push(format!("more than {MAX_REMOTE} different distances of nodes: close ones are joined"));
    }
    slit
}

/// Too many different distances: classes of neighbours, such that their members differ least from their mean, which then
/// stands for them. Returns whether any were joined.
pub fn join_distances(slit: &mut [Vec<u32>], most: usize) -> bool {
    let mut far: Vec<u32> = slit.concat().into_iter().filter(|d| *d != SLIT_LOCAL).collect();
    far.sort_unstable();
    far.dedup();
    if far.len() <= most {
        return false;
    }
    let mut mean = BTreeMap::new();
    for class in classes(&far, most) {
        let n = class.len() as u32;
        let middle = (class.iter().sum::<u32>() + n / 2) / n;
        mean.extend(class.iter().map(|d| (*d, middle)));
    }
    slit.iter_mut().flatten().filter(|d| **d != SLIT_LOCAL).for_each(|d| *d = mean[d]);
    true
}

/// `sorted` cut into `most` runs with the least sum of squared differences from the runs' means.
fn classes(sorted: &[u32], most: usize) -> Vec<&[u32]> {
    let n = sorted.len();
    let spread = |run: &[u32]| {
        let mean = run.iter().map(|d| f64::from(*d)).sum::<f64>() / run.len() as f64;
        run.iter().map(|d| (f64::from(*d) - mean).powi(2)).sum::<f64>()
    };
    // Of the first `i` in so many runs: the least sum, and where the last run begins.
    let mut best: Vec<Vec<(f64, usize)>> = vec![(0..=n).map(|i| (spread(&sorted[..i]), 0)).collect()];
    for runs in 1..most {
        let fewer = &best[runs - 1];
        let of = |i: usize| {
            let cuts = (runs..i).map(|cut| (fewer[cut].0 + spread(&sorted[cut..i]), cut));
            cuts.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, 0))
        };
        let row = (0..=n).map(of).collect();
        best.push(row);
    }
    let mut cut = Vec::new();
    let mut end = n;
    for row in best.iter().rev() {
        cut.push(&sorted[row[end].1..end]);
        end = row[end].1;
    }
    cut.reverse();
    cut
}
