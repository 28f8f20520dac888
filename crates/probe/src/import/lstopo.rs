//! hwloc's XML: `lstopo --of xml`, versions 1 (caches are `Cache` with a depth, nodes contain packages) and 2 (`L3Cache`,
//! nodes hang beside what they belong to; told apart by what is there, not by the version).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use roxmltree::{Document, Node, NodeId, ParsingOptions};

use super::{hybrid, wrong};
use crate::ProbeError;
use crate::sysfs::{CoreType, CpuSet, Raw, RawCache, RawCpu, RawNode};

/// Far more than 4,096 CPUs with all their caches need.
const NODES_MAX: u32 = 2_000_000;
/// A mask of more CPUs is damage.
const WORDS_MAX: usize = 1 << 11;

/// What hwloc says, and the processor's model.
pub fn read(file: &Path, text: &str) -> Result<(Raw, Option<String>), ProbeError> {
    // A document type is declared in every such file; entities that grow without end are the parser's error.
    let options = ParsingOptions { allow_dtd: true, nodes_limit: NODES_MAX, ..Default::default() };
    let document = Document::parse_with_options(text, options).map_err(|e| {
        let said = e.to_string();
        wrong(file, Some(e.pos().row), format!("not valid XML: {said}; should be the output of lstopo --of xml"))
    })?;
    let read = Read { file, document: &document };
    if document.root_element().tag_name().name() != "topology" {
        let found = document.root_element().tag_name().name();
        let line = read.line(document.root_element());
        return Err(wrong(file, line, format!("found <{found}>; should be <topology>, the output of lstopo --of xml")));
    }
    let (cpus, notes) = read.cpus()?;
    let mut nodes = read.nodes()?;
    read.distances(&mut nodes)?;
    let machine = read.objects("Machine").next();
    let all = machine.map(|m| read.set(m, "complete_cpuset")).transpose()?.flatten().unwrap_or_default();
    let offline = all.iter().filter(|c| !cpus.contains_key(c)).count();
    let info = |name: &str| {
        document
            .descendants()
            .find(|n| n.has_tag_name("info") && n.attribute("name") == Some(name))
            .and_then(|n| n.attribute("value"))
    };
    let raw = Raw { cpus: cpus.into_values().collect(), offline, nodes, idle_states: Vec::new(), notes };
    Ok((raw, info("CPUModel").map(str::to_string)))
}

struct Read<'a> {
    file: &'a Path,
    document: &'a Document<'a>,
}

impl<'a> Read<'a> {
    fn line(&self, node: Node<'_, '_>) -> Option<u32> {
        Some(self.document.text_pos_at(node.range().start).row)
    }

    fn wrong(&self, node: Node<'_, '_>, what: impl Into<String>) -> ProbeError {
        wrong(self.file, self.line(node), what)
    }

    fn objects(&self, kind: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
        self.document.descendants().filter(move |n| n.has_tag_name("object") && n.attribute("type") == Some(kind))
    }

    fn number<T: std::str::FromStr>(&self, node: Node<'_, '_>, key: &str) -> Result<Option<T>, ProbeError> {
        let Some(text) = node.attribute(key) else { return Ok(None) };
        let parsed = text.trim().parse().map(Some);
        parsed.map_err(|_| self.wrong(node, format!("{key}: found \"{text}\"; should be a whole number")))
    }

    /// `0x0000000f,0xffffffff`: words of 32 CPUs, the highest first; an empty word is 0. None if infinite.
    fn set(&self, node: Node<'_, '_>, key: &str) -> Result<Option<CpuSet>, ProbeError> {
        let Some(text) = node.attribute(key) else { return Ok(None) };
        if text.starts_with("0xf...f") {
            return Ok(None);
        }
        let bad = || self.wrong(node, format!("{key}: found \"{text}\"; should be a mask such as 0x0000000f"));
        let words: Vec<&str> = text.split(',').rev().collect();
        if words.len() > WORDS_MAX {
            return Err(bad());
        }
        let mut set = CpuSet::new();
        for (i, word) in words.iter().enumerate() {
            let digits = word.trim_start_matches("0x");
            let bits = if digits.is_empty() { 0 } else { u32::from_str_radix(digits, 16).map_err(|_| bad())? };
            set.extend((0..32).filter(|b| bits >> b & 1 == 1).map(|b| i * 32 + b));
        }
        Ok(Some(set))
    }

    /// CPUs by number, and what is to be said about them.
    fn cpus(&self) -> Result<(BTreeMap<usize, RawCpu>, Vec<String>), ProbeError> {
        let mut cpus: BTreeMap<usize, Node<'_, '_>> = BTreeMap::new();
        let mut below: HashMap<NodeId, CpuSet> = HashMap::new();
        for pu in self.objects("PU") {
            let id: usize = self
                .number(pu, "os_index")?
                .filter(|id| *id < WORDS_MAX * 32)
                .ok_or_else(|| self.wrong(pu, "a PU without a sensible os_index: the number of the CPU"))?;
            for over in pu.ancestors().skip(1).filter(|n| n.has_tag_name("object")) {
                if self.set(over, "cpuset")?.is_some_and(|s| !s.contains(&id)) {
                    let kind = over.attribute("type").unwrap_or("?");
                    let what = format!("contradictory: CPU {id} lies in this {kind}, whose cpuset is without it");
                    return Err(self.wrong(over, what));
                }
                below.entry(over.id()).or_default().insert(id);
            }
            if cpus.insert(id, pu).is_some() {
                return Err(self.wrong(pu, format!("contradictory: CPU {id} is there twice")));
            }
        }
        if cpus.is_empty() {
            let what = "found no CPUs (objects of type PU); should be the output of lstopo --of xml";
            return Err(self.wrong(self.document.root_element(), what));
        }
        let mut cpus = cpus
            .into_iter()
            .map(|(id, pu)| Ok((id, self.cpu(id, pu, &below)?)))
            .collect::<Result<BTreeMap<usize, RawCpu>, ProbeError>>()?;
        let (told, kinds) = self.kinds(&mut cpus)?;
        Ok((cpus, if kinds > 1 && !told { vec![hybrid(kinds)] } else { Vec::new() }))
    }

    /// Capacity or type of each CPU, where that of each kind is told (`LinuxCapacity`, `CoreType`); whether it is, and how many kinds there are.
    fn kinds(&self, cpus: &mut BTreeMap<usize, RawCpu>) -> Result<(bool, usize), ProbeError> {
        let kinds: Vec<_> = self.document.descendants().filter(|n| n.has_tag_name("cpukind")).collect();
        let mut found: BTreeMap<usize, (Option<u64>, Option<CoreType>)> = BTreeMap::new();
        for &kind in &kinds {
            let info = |name: &str| {
                let of = kind.children().find(|n| n.has_tag_name("info") && n.attribute("name") == Some(name));
                of.and_then(|n| n.attribute("value"))
            };
            let capacity = info("LinuxCapacity").and_then(|v| v.parse().ok()).filter(|v| *v > 0);
            let core_type = match info("CoreType") {
                Some("IntelCore") => Some(CoreType::Core),
                Some("IntelAtom") => Some(CoreType::Atom),
                Some("IntelLowPower") => Some(CoreType::LowPower),
                _ => None,
            };
            for cpu in self.set(kind, "cpuset")?.unwrap_or_default() {
                found.insert(cpu, (capacity, core_type));
            }
        }
        let is_told = |cpu| found.get(cpu).is_some_and(|of| of.0.is_some() || of.1.is_some());
        let told = !kinds.is_empty() && cpus.keys().all(is_told);
        for (id, cpu) in cpus.iter_mut().filter(|_| told) {
            (cpu.capacity, cpu.core_type) = found[id];
        }
        Ok((told, kinds.len()))
    }

    fn cpu(&self, id: usize, pu: Node<'a, 'a>, below: &HashMap<NodeId, CpuSet>) -> Result<RawCpu, ProbeError> {
        let mut cpu = RawCpu {
            id,
            package: None,
            siblings: None,
            cluster: None,
            caches: Vec::new(),
            capacity: None,
            core_type: None,
        };
        for over in pu.ancestors().skip(1).filter(|n| n.has_tag_name("object")) {
            let shared = || below.get(&over.id()).cloned();
            match over.attribute("type").unwrap_or_default() {
                "Core" => cpu.siblings = shared(),
                "Group" if over.attribute("subtype") == Some("Cluster") => cpu.cluster = shared(),
                "Package" | "Socket" => cpu.package = self.number(over, "os_index")?,
                kind if kind == "Cache" || kind.ends_with("Cache") => {
                    // 2: instructions.
                    if kind.ends_with("iCache") || over.attribute("cache_type") == Some("2") {
                        continue;
                    }
                    let level = self.number(over, "depth")?;
                    let level = level.ok_or_else(|| self.wrong(over, "a cache without depth: its level, 1 to 5"))?;
                    let bytes: Option<u64> = self.number(over, "cache_size")?;
                    let kib = bytes.map(|b| b / 1024).filter(|k| *k > 0);
                    cpu.caches.push(RawCache { level, kib, shared: shared() });
                }
                _ => {}
            }
        }
        // hwloc leaves out levels that add nothing: a core of its own is one such.
        cpu.siblings.get_or_insert_with(|| CpuSet::from([id]));
        Ok(cpu)
    }

    fn nodes(&self) -> Result<Vec<RawNode>, ProbeError> {
        let mut nodes = BTreeMap::new();
        for (i, n) in self.objects("NUMANode").enumerate() {
            let id = self.number(n, "os_index")?.unwrap_or(i);
            let cpus = self.set(n, "cpuset")?.unwrap_or_default();
            if nodes.insert(id, RawNode { id, cpus, distances: None }).is_some() {
                return Err(self.wrong(n, format!("contradictory: node {id} is there twice")));
            }
        }
        Ok(nodes.into_values().collect())
    }

    /// Latencies between nodes: `distances2` of hwloc 2, `distances` of hwloc 1.
    fn distances(&self, nodes: &mut [RawNode]) -> Result<(), ProbeError> {
        for d in self.document.descendants().filter(|n| n.has_tag_name("distances2")) {
            // Bit 2 of the kind: means latency (others are bandwidths).
            let latency = self.number::<u32>(d, "kind")?.is_some_and(|k| k & 4 != 0);
            if d.attribute("type") != Some("NUMANode") || !latency {
                continue;
            }
            let texts = |tag: &'static str| -> Result<Vec<u32>, ProbeError> {
                let text = d.children().filter(|n| n.has_tag_name(tag)).filter_map(|n| n.text());
                let bad = |w: &str| self.wrong(d, format!("{tag}: found \"{w}\"; should be whole numbers"));
                let all: Vec<&str> = text.flat_map(str::split_ascii_whitespace).collect();
                all.into_iter().map(|w| w.parse().map_err(|_| bad(w))).collect()
            };
            return self.matrix(d, &texts("indexes")?, &texts("u64values")?, nodes);
        }
        for d in self.document.descendants().filter(|n| n.has_tag_name("distances")) {
            let base: f64 = self.number(d, "latency_base")?.unwrap_or(10.0);
            let mut values = Vec::new();
            for v in d.children().filter(|n| n.has_tag_name("latency")) {
                let value: Option<f64> = self.number(v, "value")?;
                values.push(value.map_or(0, |v| (v * base).round() as u32));
            }
            let ids: Vec<u32> = nodes.iter().map(|n| n.id as u32).collect();
            if self.number(d, "nbobjs")? == Some(ids.len()) {
                return self.matrix(d, &ids, &values, nodes);
            }
        }
        Ok(())
    }

    fn matrix(&self, at: Node<'_, '_>, ids: &[u32], values: &[u32], nodes: &mut [RawNode]) -> Result<(), ProbeError> {
        let known: BTreeSet<u32> = nodes.iter().map(|n| n.id as u32).collect();
        if ids.iter().copied().collect::<BTreeSet<_>>() != known || values.len() != ids.len() * ids.len() {
            let what = format!(
                "contradictory: distances of {} nodes in {} values; the topology has {} nodes",
                ids.len(),
                values.len(),
                nodes.len()
            );
            return Err(self.wrong(at, what));
        }
        let place: BTreeMap<u32, usize> = ids.iter().enumerate().map(|(i, id)| (*id, i)).collect();
        for n in nodes {
            let row = place[&(n.id as u32)] * ids.len();
            n.distances = Some(known.iter().map(|id| values[row + place[id]]).collect());
        }
        Ok(())
    }
}
