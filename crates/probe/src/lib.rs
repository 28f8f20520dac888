//! `contend probe`: a machine file of the machine at hand.
//!
//! The topology is what sysfs says (`sysfs`, `layout`). Costs are measured by small experiments in user space, without
//! privileges, that take turns for some seconds (`plan`); a cost is the median of its repetitions and its range the 5th to
//! the 95th percentile. Where only a sum can be measured (a wake-up is a system call, a search, a switch ...), it is split
//! as the source of each part says (`derive`). What this machine cannot tell is left to `machines/defaults.toml`.
//!
//! [`import`] makes a machine file without measuring: of this machine, or of another that only its sysfs or hwloc's XML
//! tells of.
//!
//! Linux only.

pub mod layout;
pub mod stats;
pub mod sysfs;

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
pub mod derive;
#[cfg(target_os = "linux")]
pub mod import;
#[cfg(target_os = "linux")]
mod interrupts;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod pair;
#[cfg(target_os = "linux")]
pub mod plan;
#[cfg(target_os = "linux")]
mod speed;
#[cfg(target_os = "linux")]
mod sys;
/// Experiments that read the kernel's events.
mod traced;
#[cfg(target_os = "linux")]
mod wakeups;
#[cfg(target_os = "linux")]
mod write;

use std::path::{Path, PathBuf};
use std::time::Duration;

use contend_machine::{Flags, HZ_DEFAULT, HZ_MAX, HZ_MIN, Machine, MachineError};
use serde::Serialize;
use thiserror::Error;

/// Why there is no machine file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// Another system.
    #[error("contend probe measures Linux machines only; a machine file of another can be written by hand")]
    NotLinux,
    /// A shape that a machine file cannot hold.
    #[error("the topology of this machine cannot be described: {0}")]
    Topology(String),
    /// A name that a machine file cannot have.
    #[error("name: found {0:?}; should be 1 to 64 characters")]
    Name(String),
    /// An input of an import that is not right.
    #[error("{at}: {what}")]
    Import {
        /// File and line, or the option.
        at: String,
        /// What was found, and what would be right.
        what: String,
    },
    /// Nothing may run where it should be measured.
    #[error("no CPU that is online may be used by this process")]
    NoCpu,
    /// Stopped by the caller.
    #[error("interrupted")]
    Interrupted,
    /// The file that was made does not load.
    #[error("the machine file that was made is not valid: {0}")]
    Invalid(#[from] MachineError),
}

/// Called often with the share of the work that is done; false stops.
pub type Progress<'a> = dyn FnMut(f64) -> bool + 'a;

/// How to probe.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Fewer repetitions: some seconds instead of some twenty.
    pub quick: bool,
    /// The machine's name; made from the processor's if not given.
    pub name: Option<String>,
    /// Another time for the experiments.
    pub budget: Option<Duration>,
}

/// One cost.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// As in a machine file: `lines.llc`, `lines.remote.0`.
    pub cost: String,
    /// The value.
    pub value: u64,
    /// The lower end of its range.
    pub lo: u64,
    /// The upper end of its range.
    pub hi: u64,
    /// `ns`, `ns per KiB`, `KiB`, `%`.
    pub unit: &'static str,
    /// `measured`, `derived` (a part of a measured sum), `declared` (the kernel says so) or `estimate`.
    pub how: How,
    /// In words.
    pub source: String,
}

/// How a cost came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// An experiment gives it.
    Measured,
    /// It is what remains of a measured sum, or a part of that.
    Derived,
    /// The kernel says so.
    Declared,
    /// As in `machines/defaults.toml`, or bounded by what was measured.
    Estimate,
}

/// Something measured that is no cost by itself, or that the costs can be checked by. In ns.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Check {
    /// What it is.
    pub what: String,
    /// The median.
    pub value: f64,
    /// The 5th percentile.
    pub lo: f64,
    /// The 95th percentile.
    pub hi: f64,
    /// Repetitions.
    pub n: usize,
}

/// What was found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The machine's name.
    pub name: String,
    /// One or two sentences about it.
    pub description: String,
    /// Ticks a second.
    pub hz: u32,
    /// CPUs, cores, last-level caches and nodes.
    pub counts: [usize; 4],
    /// Clusters; 0 on a machine without.
    pub clusters: usize,
    /// Every cost of the machine, in the order of a file.
    pub rows: Vec<Row>,
    /// Sums that were split, and second opinions.
    pub checks: Vec<Check>,
    /// What was assumed, corrected or could not be measured.
    pub notes: Vec<String>,
    /// The machine file.
    pub toml: String,
}

/// Probes this machine. `progress` is called often.
pub fn probe(options: &Options, progress: &mut Progress<'_>) -> Result<Report, ProbeError> {
    probe_at(&Roots::default(), options, progress)
}

/// Where the kernel tells about itself.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/sys/devices/system`.
    pub devices: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Roots { devices: "/sys/devices/system".into(), proc: "/proc".into() }
    }
}

/// The default size of a working set that is fetched, where the kernel does not tell the size of a private cache.
const REFILL_KIB: usize = 64;
/// Time for the experiments.
const BUDGET: Duration = Duration::from_secs(18);
/// The same, quick.
const BUDGET_QUICK: Duration = Duration::from_millis(2_500);

#[cfg(not(target_os = "linux"))]
fn probe_at(_: &Roots, _: &Options, _: &mut Progress<'_>) -> Result<Report, ProbeError> {
    Err(ProbeError::NotLinux)
}

#[cfg(target_os = "linux")]
fn probe_at(roots: &Roots, options: &Options, progress: &mut Progress<'_>) -> Result<Report, ProbeError> {
    use plan::{Facts, Places};

    if let Some(name) = &options.name {
        check_name(name)?;
    }
    let allowed = sys::allowed();
    let raw = sysfs::read(&roots.devices, &allowed);
    let mut layout = layout::layout(&raw)?;
    let processor = Processor::read(&roots.proc);
    let name = options.name.clone().unwrap_or_else(|| processor.name(layout.places.len()));

    let known = sys::tick_hz().filter(|hz| (HZ_MIN..=HZ_MAX).contains(hz));
    let hz = known.unwrap_or(HZ_DEFAULT);
    if known.is_none() {
        layout.notes.push(format!("the tick rate is not known; {HZ_DEFAULT} is taken"));
    }
    let description = processor.description(layout.places.len());
    // The shape, and costs to fall back on.
    let written = |layout: &layout::Layout, idle_halts: bool, costs: &[derive::Found]| {
        let asym_packing = layout.asym_packing;
        let flags = Flags { vcpu_pack: processor.vcpu_pack, idle_halts, asym_packing, ..Flags::default() };
        write::machine(&write::Head { made: MADE, name: &name, description: &description, hz, flags, layout }, costs)
    };
    let text = written(&layout, false, &[]);
    let bare = Machine::parse(&text, &format!("{name}.toml"))?;

    // Costs are of the fastest cores: what runs on others takes as much longer as they are slower.
    let fastest = bare.topology.kinds().len().saturating_sub(1);
    let kernel_cpu = layout.kernel_cpu.clone();
    let of_kind = |kind: usize| -> sysfs::CpuSet {
        let of = |i: usize| bare.topology.kind_of(contend_platform::CpuId(i as u16)) == kind;
        let cpus = kernel_cpu.iter().enumerate().filter(|(i, cpu)| of(*i) && allowed.contains(cpu));
        cpus.map(|(_, cpu)| *cpu).collect()
    };
    let measured = of_kind(fastest);
    let usable = |cpu: usize| measured.contains(&cpu);
    let places = Places::of(&bare.topology, &layout.kernel_cpu, usable);
    if places.single.is_empty() {
        return Err(ProbeError::NoCpu);
    }
    let unusable = layout.kernel_cpu.iter().filter(|c| !allowed.contains(c)).count();
    if unusable > 0 {
        layout.notes.push(format!("this process may not use {unusable} of the CPUs: they were not measured"));
    }
    if places.pairs.is_empty() {
        layout.notes.push("one CPU: nothing between CPUs can be measured, and the estimates stand".into());
    }
    layout.notes.extend(processor.load_note(bare.topology.nr_cpus()));

    let llc_bytes = layout.llc_kib.map_or(32 << 20, |s| s.value as usize * 1024);
    let (times, least, most) = if options.quick { (2, 32 << 20, 96 << 20) } else { (4, 64 << 20, 512 << 20) };
    let private = layout.private_kib.map_or(REFILL_KIB, |s| s.value as usize / 4);
    let facts = Facts {
        places,
        hz,
        refill_kib: 1 << private.clamp(16, 1024).ilog2(),
        memory_bytes: (llc_bytes * times).clamp(least, most).min(processor.free_bytes / 4).max(1 << 20),
    };
    let budget = options.budget.unwrap_or(if options.quick { BUDGET_QUICK } else { BUDGET });
    // Before the others: it warms the machine up.
    let speed = speed::measure(&measured);
    let slower: Vec<_> = (0..fastest).map(|kind| speed::measure(&of_kind(kind))).collect();
    for (kind, of) in slower.into_iter().enumerate() {
        match speed.as_ref().zip(of) {
            Some((fast, slow)) => layout.capacity[kind] = speed::compared(&slow.cost, &fast.cost),
            None => {
                let name = &layout.kinds[kind].name;
                layout.notes.push(format!("no CPU of kind {name} may be used: its capacity was not measured"));
            }
        }
    }
    let samples = plan::run(&facts, budget, progress).ok_or(ProbeError::Interrupted)?;

    let mut found = derive::derive(&derive::Given {
        samples: &samples,
        machine: &bare,
        layout: &layout,
        idle_states: &raw.idle_states,
        facts: &facts,
        guest: processor.guest,
    });
    found.costs.extend(speed);
    let toml = written(&layout, found.idle_halts, &found.costs);
    let machine = Machine::parse(&toml, &format!("{name}.toml"))?;
    let t = &machine.topology;
    let notes = layout.notes.iter().cloned().chain(found.notes).collect();
    Ok(Report {
        counts: [t.nr_cpus(), t.nr_cores(), t.nr_llcs(), t.nr_nodes()],
        clusters: t.nr_clusters(),
        rows: derive::rows(&machine, &[&found.costs[..], &layout.capacity].concat()),
        checks: found.checks,
        notes,
        name,
        description,
        hz,
        toml,
    })
}

/// The first lines of a file of a machine that was measured.
#[cfg(target_os = "linux")]
const MADE: &str = "# Made by `contend probe`. A range is the 5th to 95th percentile of the repetitions; of a sum or a difference, \
                    the\n# worst of its parts.";

fn check_name(name: &str) -> Result<(), ProbeError> {
    if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
        return Err(ProbeError::Name(name.into()));
    }
    Ok(())
}

/// `amd-epyc-2cpu`: of a processor's model.
fn named(model: &str, cpus: usize) -> String {
    let words = model.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    let words = words.filter(|w| !["R", "TM", "CPU", "Processor"].contains(w)).take(4);
    let name = words.collect::<Vec<_>>().join("-").to_lowercase();
    let name: String = name.chars().take(40).collect();
    format!("{}-{cpus}cpu", if name.is_empty() { "machine" } else { &name })
}

/// Does the kernel's command line switch packing on? It is a mask; what its bits are is not known.
#[cfg(target_os = "linux")]
fn packs(cmdline: &str) -> bool {
    let kernels = cmdline.split(" -- ").next().unwrap_or_default();
    let mask = kernels.split_whitespace().filter_map(|word| word.strip_prefix("sched_vcpu_pack=")).next_back();
    mask.is_some_and(|mask| !mask.bytes().all(|b| b == b'0'))
}

/// What `/proc` says.
struct Processor {
    model: String,
    guest: bool,
    release: String,
    load: f64,
    free_bytes: usize,
    vcpu_pack: bool,
}

impl Processor {
    fn read(proc: &Path) -> Processor {
        let text = |name: &str| std::fs::read_to_string(proc.join(name)).unwrap_or_default();
        let info = text("cpuinfo");
        let field = |keys: &[&str]| {
            let line = info.lines().find(|l| keys.iter().any(|k| l.starts_with(k)))?;
            Some(line.split_once(':')?.1.trim().to_string()).filter(|v| !v.is_empty())
        };
        let free = text("meminfo")
            .lines()
            .find_map(|l| l.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?.trim().parse::<usize>().ok());
        Processor {
            model: field(&["model name", "Model", "cpu\t", "uarch"]).unwrap_or_else(|| std::env::consts::ARCH.into()),
            guest: field(&["flags"]).is_some_and(|f| f.split(' ').any(|f| f == "hypervisor")),
            release: text("sys/kernel/osrelease").trim().to_string(),
            load: text("loadavg").split(' ').next().and_then(|l| l.parse().ok()).unwrap_or(0.0),
            free_bytes: free.unwrap_or(1 << 20) * 1024,
            vcpu_pack: packs(&text("cmdline")),
        }
    }

    fn name(&self, cpus: usize) -> String {
        named(&self.model, cpus)
    }

    fn description(&self, cpus: usize) -> String {
        let model: String = self.model.chars().filter(|c| !c.is_control()).take(80).collect();
        format!(
            "{model}{}, {cpus} CPUs, Linux {}; made by contend probe {}.",
            if self.guest { ", a guest of a hypervisor" } else { "" },
            self.release,
            env!("CARGO_PKG_VERSION")
        )
    }

    fn load_note(&self, cpus: usize) -> Option<String> {
        (self.load > 0.5 * cpus as f64).then(|| {
            format!("the load average was {} when this began: other work disturbs; ranges are wider for it", self.load)
        })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::packs;

    #[test]
    fn the_command_line_says_whether_the_kernel_packs() {
        for (cmdline, packs_) in [
            ("", false),
            ("quiet sched_vcpu_pack=15 rdinit=/x", true),
            ("quiet sched_vcpu_pack=0", false),
            ("sched_vcpu_pack=15 sched_vcpu_pack=0", false),
            ("sched_vcpu_pack=", false),
            ("not_sched_vcpu_pack=15 -- sched_vcpu_pack=15", false),
        ] {
            assert_eq!(packs(cmdline), packs_, "{cmdline:?}");
        }
    }
}
