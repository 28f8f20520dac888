//! What Linux says about its CPUs, as it says it: files below `/sys/devices/system`.
//!
//! Nothing here judges: lists that contradict one another are read as they stand, what is missing is `None`, and
//! [`crate::layout`] makes a machine of it. A file that cannot be understood counts as missing, and is noted.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use contend_machine::{NUMBER_MAX, cpu_list};

/// The longest file that is believed.
const TEXT_MAX: u64 = 1 << 16;

/// Numbers of CPUs, as a list file has them.
pub type CpuSet = BTreeSet<usize>;

/// One cache as seen by one CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawCache {
    /// 1 is nearest to the CPU.
    pub level: u32,
    /// KiB, if the kernel says.
    pub kib: Option<u64>,
    /// The CPUs that use it, if the kernel says.
    pub shared: Option<CpuSet>,
}

/// One online CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawCpu {
    /// The kernel's number.
    pub id: usize,
    /// `topology/physical_package_id`.
    pub package: Option<usize>,
    /// `topology/thread_siblings_list` (`core_cpus_list`).
    pub siblings: Option<CpuSet>,
    /// `topology/cluster_cpus_list` (Linux 5.16): CPUs that share what is smaller than the last-level cache.
    pub cluster: Option<CpuSet>,
    /// Caches that hold data.
    pub caches: Vec<RawCache>,
    /// `cpu_capacity`: what the kernel takes it for, against its others (ARM, RISC-V).
    pub capacity: Option<u64>,
    /// Which of a hybrid processor's kinds of cores it is of (x86).
    pub core_type: Option<CoreType>,
}

/// Kinds of cores of x86's hybrid processors, the slowest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CoreType {
    /// Efficient ones outside the last-level cache (`cpu_lowpower`).
    LowPower,
    /// Efficient ones (`cpu_atom`).
    Atom,
    /// The fast ones (`cpu_core`).
    Core,
}

impl CoreType {
    /// All, with the directories beside `system/` that list their CPUs.
    pub const ALL: [(CoreType, &str); 3] =
        [(CoreType::LowPower, "cpu_lowpower"), (CoreType::Atom, "cpu_atom"), (CoreType::Core, "cpu_core")];
}

/// One NUMA node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawNode {
    /// The kernel's number.
    pub id: usize,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Distances to the online nodes in ascending order, itself included.
    pub distances: Option<Vec<u32>>,
}

/// An idle state that the kernel's idle driver declares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawIdleState {
    /// `POLL`, `C1`, ...
    pub name: String,
    /// The shortest idle time for which it is meant, in ns.
    pub residency_ns: u64,
}

/// The whole.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Raw {
    /// Online CPUs, ascending.
    pub cpus: Vec<RawCpu>,
    /// CPUs that are there but offline.
    pub offline: usize,
    /// Online nodes, ascending.
    pub nodes: Vec<RawNode>,
    /// Idle states of the first online CPU, shallowest first.
    pub idle_states: Vec<RawIdleState>,
    /// What could not be read or understood, in words.
    pub notes: Vec<String>,
}

/// Reads below `root` (`/sys/devices/system`). If it does not say which CPUs are online, `fallback` are; where that is empty those with a
/// directory, unless that says that they are not.
pub fn read(root: &Path, fallback: &CpuSet) -> Raw {
    let mut reader = Reader { root: root.into(), notes: Vec::new() };
    let directories: CpuSet = reader.numbered("cpu", "cpu").into_iter().collect();
    let online = reader.list("cpu/online").filter(|l| !l.is_empty()).unwrap_or_else(|| {
        let (taken, which) = if fallback.is_empty() {
            let off = |cpu: &usize| reader.text(&format!("cpu/cpu{cpu}/online")).as_deref() == Some("0");
            (
                directories.iter().copied().filter(|cpu| !off(cpu)).collect(),
                "with a directory that does not say otherwise",
            )
        } else {
            (fallback.clone(), "this process may use")
        };
        reader.notes.push(format!("which CPUs are online is not known (cpu/online); taken are those {which}"));
        taken
    });
    let present = reader.list("cpu/present").unwrap_or(directories);
    let mut cpus: Vec<RawCpu> = online.iter().map(|&id| reader.cpu(id)).collect();
    for (core_type, dir) in CoreType::ALL {
        let of = reader.list(&format!("../{dir}/cpus")).unwrap_or_default();
        cpus.iter_mut().filter(|c| of.contains(&c.id)).for_each(|c| c.core_type = Some(core_type));
    }
    let nodes = reader.nodes();
    let idle_states = online.first().map_or_else(Vec::new, |&id| reader.idle_states(id));
    Raw { cpus, offline: present.difference(&online).count(), nodes, idle_states, notes: reader.notes }
}

/// The text of a file of sysfs.
pub fn text(file: &Path) -> Option<String> {
    // A copied tree may hold anything.
    if !fs::metadata(file).is_ok_and(|m| m.is_file()) {
        return None;
    }
    // A file in sysfs is a page at most; lists of thousands of CPUs may be longer.
    let mut bytes = Vec::new();
    fs::File::open(file).ok()?.take(TEXT_MAX + 1).read_to_end(&mut bytes).ok()?;
    let ends = |c: char| c.is_whitespace() || c == '\0';
    (bytes.len() as u64 <= TEXT_MAX).then(|| String::from_utf8_lossy(&bytes).trim_matches(ends).to_string())
}

struct Reader {
    root: PathBuf,
    notes: Vec<String>,
}

impl Reader {
    fn text(&self, path: &str) -> Option<String> {
        text(&self.root.join(path))
    }

    fn understood<T>(&mut self, path: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let text = self.text(path)?;
        let found = parse(&text);
        if found.is_none() {
            let shown: String = text.chars().take(40).collect();
            self.notes.push(format!("{path} is not understood: {shown:?}; counted as missing"));
        }
        found
    }

    fn list(&mut self, path: &str) -> Option<CpuSet> {
        self.understood(path, cpu_list)
    }

    /// CPUs by a list, or by a mask of old kernels.
    fn cpus(&mut self, lists: &[&str], map: &str) -> Option<CpuSet> {
        lists.iter().find_map(|path| self.list(path)).or_else(|| self.understood(map, mask))
    }

    fn number(&mut self, path: &str) -> Option<usize> {
        self.understood(path, |t| t.parse().ok().filter(|n| *n <= NUMBER_MAX))
    }

    /// Names in `dir` that are `prefix` and a number, by number.
    fn numbered(&self, dir: &str, prefix: &str) -> Vec<usize> {
        let Ok(entries) = fs::read_dir(self.root.join(dir)) else { return Vec::new() };
        let number = |name: &str| name.strip_prefix(prefix)?.parse().ok().filter(|n| *n <= NUMBER_MAX);
        let mut found: Vec<usize> = entries.flatten().filter_map(|e| number(e.file_name().to_str()?)).collect();
        found.sort_unstable();
        found
    }

    fn cpu(&mut self, id: usize) -> RawCpu {
        let dir = format!("cpu/cpu{id}");
        // -1 where firmware does not say.
        let package = self.text(&format!("{dir}/topology/physical_package_id"));
        let package = package.and_then(|t| t.parse().ok()).filter(|n| *n <= NUMBER_MAX);
        let siblings = ["core_cpus_list", "thread_siblings_list"].map(|f| format!("{dir}/topology/{f}"));
        let siblings = self.cpus(&siblings.each_ref().map(String::as_str), &format!("{dir}/topology/thread_siblings"));
        let cluster = self.list(&format!("{dir}/topology/cluster_cpus_list"));
        let indices = self.numbered(&format!("{dir}/cache"), "index");
        let caches = indices.into_iter().filter_map(|i| self.cache(&format!("{dir}/cache/index{i}"))).collect();
        let capacity = self.understood(&format!("cpu/cpu{id}/cpu_capacity"), |t| t.parse().ok().filter(|c| *c > 0));
        RawCpu { id, package, siblings, cluster, caches, capacity, core_type: None }
    }

    fn cache(&mut self, dir: &str) -> Option<RawCache> {
        if self.text(&format!("{dir}/type")).as_deref() == Some("Instruction") {
            return None;
        }
        let level = self.number(&format!("{dir}/level"))? as u32;
        let kib = self.understood(&format!("{dir}/size"), kib);
        let shared = self.cpus(&[&format!("{dir}/shared_cpu_list")], &format!("{dir}/shared_cpu_map"));
        Some(RawCache { level, kib, shared })
    }

    fn nodes(&mut self) -> Vec<RawNode> {
        let ids = self.numbered("node", "node");
        ids.into_iter()
            .map(|id| RawNode {
                id,
                cpus: self
                    .cpus(&[&format!("node/node{id}/cpulist")], &format!("node/node{id}/cpumap"))
                    .unwrap_or_default(),
                distances: self.understood(&format!("node/node{id}/distance"), |t| {
                    let row: Option<Vec<u32>> = t.split_ascii_whitespace().map(|d| d.parse().ok()).collect();
                    row.filter(|r| !r.is_empty())
                }),
            })
            .collect()
    }

    fn idle_states(&mut self, cpu: usize) -> Vec<RawIdleState> {
        let dir = format!("cpu/cpu{cpu}/cpuidle");
        let enabled = |r: &Self, s: &str| r.text(&format!("{s}/disable")).is_none_or(|t| t == "0");
        let states = self.numbered(&dir, "state").into_iter().map(|i| format!("{dir}/state{i}"));
        let states: Vec<String> = states.filter(|s| enabled(self, s)).collect();
        states
            .iter()
            .filter_map(|s| {
                let us = self.text(&format!("{s}/residency"))?.parse::<u64>().ok()?;
                let name = self.text(&format!("{s}/name")).unwrap_or_default();
                Some(RawIdleState { name, residency_ns: us.min(1_000_000) * 1_000 })
            })
            .collect()
    }
}

/// `00000000,0000000f`: words of 32 CPUs, the highest first. `None` if it is no such mask.
fn mask(text: &str) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    for (i, word) in text.trim().rsplit(',').enumerate() {
        let bits = u32::from_str_radix(word.trim(), 16).ok()?;
        set.extend((0..32).filter(|bit| bits >> bit & 1 != 0).map(|bit| 32 * i + bit));
    }
    set.last().is_none_or(|last| *last <= NUMBER_MAX).then_some(set)
}

/// `32768K`, `1M`: in KiB.
fn kib(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let n: u64 = text[..digits].parse().ok()?;
    let unit = match &text[digits..] {
        "K" => 1,
        "M" => 1 << 10,
        "G" => 1 << 20,
        _ => return None,
    };
    n.checked_mul(unit).filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(kib("48K"), Some(48));
        assert_eq!(kib("2M"), Some(2048));
        for wrong in ["", "K", "0K", "12", "1T", "99999999999999999999K"] {
            assert_eq!(kib(wrong), None, "{wrong}");
        }
    }
}
