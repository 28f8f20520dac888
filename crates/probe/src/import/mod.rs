//! A machine file from what a machine says about itself, without measuring: topology from sysfs (of this machine, or a
//! copied tree) or from hwloc's XML, distances of nodes from there or from a table, costs from the defaults.
//!
//! All sources are reduced to [`crate::sysfs::Raw`]; [`crate::layout`] makes the topology of it, and says in notes what
//! it had to correct.

mod lstopo;
mod slit;

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use contend_machine::{Flags, HZ_DEFAULT, HZ_MAX, HZ_MIN, Machine};
use serde::Serialize;

use crate::layout::{join_distances, layout};
use crate::sysfs::{self, CpuSet, Raw};
use crate::{ProbeError, Processor, Roots, check_name, sys, write};

/// The largest input file that is read.
const BYTES_MAX: u64 = 64 << 20;
/// So many different remote distances have default costs.
const REMOTE_DEFAULTS: usize = 4;

/// The first lines of the file.
const MADE: &str = "# Made by `contend machine import`: the topology is the machine's, no cost was measured. `contend probe`, on the\n\
                    # machine itself, measures them.";

/// Where the topology comes from. Nothing given: this machine.
#[derive(Clone, Debug, Default)]
pub struct From {
    /// A copy of `/sys`, of `/sys/devices/system`, or of a root directory that has them.
    pub sysfs: Option<PathBuf>,
    /// `lstopo --of xml`, of hwloc 1 or 2.
    pub lstopo: Option<PathBuf>,
    /// Distances of nodes: `numactl --hardware`, or a table of numbers.
    pub slit: Option<PathBuf>,
    /// The machine's name; made from the processor's if not given.
    pub name: Option<String>,
}

/// What was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Imported {
    /// The machine's name.
    pub name: String,
    /// One or two sentences about it.
    pub description: String,
    /// CPUs, cores, last-level caches and nodes.
    pub counts: [usize; 4],
    /// Clusters; 0 on a machine without.
    pub clusters: usize,
    /// Ticks a second.
    pub hz: u32,
    /// What was assumed or corrected.
    pub notes: Vec<String>,
    /// The machine file.
    pub toml: String,
}

/// An input that is not right.
fn wrong(file: &Path, line: Option<u32>, what: impl Into<String>) -> ProbeError {
    let line = line.map_or(String::new(), |l| format!(":{l}"));
    ProbeError::Import { at: format!("{}{line}", file.display()), what: what.into() }
}

fn text_of(file: &Path) -> Result<String, ProbeError> {
    let read = |e: std::io::Error| wrong(file, None, format!("cannot be read: {}", contend_machine::reason(&e)));
    // A device may have no end, and a pipe no writer.
    if !std::fs::metadata(file).map_err(read)?.is_file() {
        return Err(wrong(file, None, "found a directory, device or pipe; should be a file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(file).map_err(read)?.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(read)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(wrong(file, None, format!("found more than {BYTES_MAX} bytes; should be at most so many")));
    }
    String::from_utf8(bytes).map_err(|_| wrong(file, None, "found binary data; should be UTF-8 text"))
}

/// Makes a machine file.
///
/// # Errors
/// An input cannot be read or contradicts itself; a shape that a machine file cannot hold.
pub fn import(from: &From) -> Result<Imported, ProbeError> {
    if let Some(name) = &from.name {
        check_name(name)?;
    }
    let mut here = None;
    let (mut raw, source, model) = match (&from.lstopo, &from.sysfs) {
        (Some(_), Some(_)) => {
            return Err(ProbeError::Import {
                at: "--lstopo".into(),
                what: "found --sysfs too; should be one of them".into(),
            });
        }
        (Some(file), None) => {
            let (raw, model) = lstopo::read(file, &text_of(file)?)?;
            (raw, format!("hwloc's XML ({})", shown(file)), model)
        }
        (None, Some(dir)) => (copied(dir)?, format!("a copy of sysfs ({})", shown(dir)), None),
        (None, None) => {
            let roots = Roots::default();
            let processor = here.insert(Processor::read(&roots.proc));
            let model = Some(processor.model.clone());
            let mut raw = sysfs::read(&roots.devices, &sys::allowed());
            raw.notes.extend(kinds(&roots.devices, &raw));
            (raw, "sysfs".to_string(), model)
        }
    };
    if let Some(file) = &from.slit {
        slit::put(file, &text_of(file)?, &mut raw)?;
    }
    let mut layout = layout(&raw)?;
    if join_distances(&mut layout.slit, REMOTE_DEFAULTS) {
        let said = format!(
            "more than {REMOTE_DEFAULTS} different distances of nodes have no default costs: close ones are joined"
        );
        layout.notes.push(said);
    }
    let cpus = layout.places.len();
    let name = match (&from.name, &here) {
        (Some(name), _) => name.clone(),
        (None, Some(here)) => format!("{}-default-costs", here.name(cpus)),
        (None, None) => format!("{}-default-costs", crate::named(model.as_deref().unwrap_or("imported"), cpus)),
    };
    let model: String = model.as_deref().unwrap_or("A machine").chars().filter(|c| !c.is_control()).take(80).collect();
    let release = here.as_ref().map_or(String::new(), |h| format!(", Linux {}", h.release));
    let description = format!(
        "{model}, {cpus} CPUs{release}: topology from {source}, costs not measured but those of machines/defaults.toml."
    );
    let vcpu_pack = here.as_ref().is_some_and(|h| h.vcpu_pack);
    let flags = Flags { vcpu_pack, asym_packing: layout.asym_packing, ..Flags::default() };
    let hz = here.and_then(|_| sys::tick_hz()).filter(|hz| (HZ_MIN..=HZ_MAX).contains(hz)).unwrap_or(HZ_DEFAULT);
    let head = write::Head { made: MADE, name: &name, description: &description, hz, flags, layout: &layout };
    let toml = write::machine(&head, &[]);
    let machine = Machine::parse(&toml, &format!("{name}.toml"))?;
    let t = &machine.topology;
    let counts = [t.nr_cpus(), t.nr_cores(), t.nr_llcs(), t.nr_nodes()];
    let clusters = t.nr_clusters();
    Ok(Imported { name, description, counts, clusters, hz, notes: layout.notes, toml })
}

/// The last part of a path: where somebody keeps his files is nobody's business.
fn shown(path: &Path) -> String {
    path.file_name().map_or_else(|| "a directory".into(), |n| n.to_string_lossy().into_owned())
}

/// A copied tree.
fn copied(dir: &Path) -> Result<Raw, ProbeError> {
    let inside = ["", "devices/system", "sys/devices/system"].map(|part| dir.join(part));
    let Some(root) = inside.iter().find(|d| d.join("cpu").is_dir()) else {
        let what = if dir.is_dir() { "found no cpu/ in it" } else { "found no such directory" };
        return Err(wrong(dir, None, format!("{what}; should be a copy of /sys/devices/system, or of /sys")));
    };
    let mut raw = sysfs::read(root, &CpuSet::new());
    if raw.cpus.is_empty() {
        return Err(wrong(&root.join("cpu/online"), None, "found no CPUs; should list them, such as 0-3"));
    }
    raw.notes.extend(kinds(root, &raw));
    Ok(raw)
}

/// Whether the CPUs are of several kinds, where the layout has none: some have a capacity, or their highest frequencies differ.
fn kinds(root: &Path, raw: &Raw) -> Option<String> {
    if raw.cpus.iter().all(|c| c.capacity.is_some()) || raw.cpus.iter().all(|c| c.core_type.is_some()) {
        return None;
    }
    let different = |file: &str| {
        let of = raw.cpus.iter().filter_map(|c| sysfs::text(&root.join(format!("cpu/cpu{}/{file}", c.id))));
        of.collect::<BTreeSet<String>>().len()
    };
    let capacities = different("cpu_capacity");
    if capacities > 1 {
        return Some(hybrid(capacities));
    }
    let frequencies = different("cpufreq/cpuinfo_max_freq");
    (frequencies > 1)
        .then(|| format!("CPUs of {frequencies} highest frequencies (hybrid, or some that go higher): {ONE_SPEED}"))
}

fn hybrid(kinds: usize) -> String {
    format!("CPUs of {kinds} kinds (hybrid): {ONE_SPEED}")
}

/// What a file has whose source names no capacities.
const ONE_SPEED: &str = "the file has one speed for all; topology.kinds and cpu.capacity would say otherwise";
