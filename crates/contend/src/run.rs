//! From a plan to a result.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Once;
use std::time::Instant;

use contend_machine::{Machine, Unit};
use contend_sched::features::{Features, Preset};
use contend_sched::policy::Policy;
use contend_sim::guest::Guests;
use contend_sim::host::{EventSink, Limits, Outcome, Progress, RunResult, Setup, Status, simulate, simulate_with};
use contend_sim::program::Workload;
use contend_sim::xen::{self, PoolSetup, Sinks, XenSetup};
use contend_workload::spec::{Origins, ReadFile, Target};

use crate::as_recorded::as_recorded;
use crate::error::{At, RunError, ScenarioError};
use crate::guests;
use crate::result::{Output, summarise};
use crate::rings;
use crate::scenario::{Input, Plan};
use crate::target::{OutFile, write_error};
use crate::trace::{self, TraceFile};
use crate::watched::watched;

/// End of a run whose scenario and workload name none: 11 days.
const HORIZON_NS_MAX: u64 = 1_000_000_000_000_000;

/// What the caller wants besides the result.
#[derive(Default)]
pub struct RunOptions<'a> {
    /// Write the scheduling events to this file: ftrace text if it ends in `.txt`, a Xen host's records if in `.xentrace` or
    /// `.bin`, else Perfetto's format.
    pub trace: Option<&'a Path>,
    /// Called some times a second while the simulation runs; false ends it (outcome `interrupted`).
    pub progress: Option<&'a mut dyn FnMut(Status) -> bool>,
}

/// Simulate. Nothing is written but the trace, and that only if the run was not interrupted.
///
/// # Errors
/// The workload cannot be built on this machine, the trace cannot be written, or the system refuses memory. The scenario names a
/// policy of a program's. What happens inside the simulation, a panic of a policy included, is the result's outcome.
pub fn run(plan: &Plan, options: RunOptions<'_>) -> Result<Output, RunError> {
    if let Some(own) = &plan.own_policy {
        let right = "left out, or run by the program that made this scenario and has that policy: contend has it not";
        return Err(wrong_own(plan, own, right));
    }
    run_by(plan, options, &|setup, sink, look| simulate(plan.preset.policy, setup, sink, look))
}

/// Simulate under a policy of the caller's, in the place of the preset's. Results call it `name`; `contend explain`, `report` and
/// `compare` read them as any. Features, machine, workload, guests are the plan's; groups are not known.
///
/// # Errors
/// As for [`run`]. The host is Xen, the name is a preset's or has other characters than ASCII letters, digits, `-`, `_` and `.`,
/// or the scenario is of another such policy.
pub fn run_with<L: Policy>(
    plan: &Plan,
    name: &str,
    policy: impl Fn(&Setup) -> L,
    options: RunOptions<'_>,
) -> Result<Output, RunError> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || !name.chars().all(is_word) || Preset::find(name).is_some() {
        return Err(wrong_own(plan, name, "a name of ASCII letters, digits, -, _ and . that no preset has"));
    }
    if let Some(other) = plan.own_policy.as_ref().filter(|other| *other != name) {
        return Err(wrong_own(plan, other, &format!("\"{name}\", the policy of this program")));
    }
    if plan.xen.is_some() {
        return Err(wrong_own(plan, name, "left out: the host is Xen, and programs bring policies for Linux hosts"));
    }
    let mut plan = plan.clone();
    plan.own_policy = Some(name.into());
    run_by(&plan, options, &|setup, sink, look| simulate_with(policy(&setup), setup, sink, look))
}

fn wrong_own(plan: &Plan, found: &str, right: &str) -> RunError {
    let at = At { file: plan.file.clone(), line: 0, key: "own_policy".into() };
    ScenarioError::Value { at, found: format!("\"{found}\""), right: right.into() }.into()
}

/// Simulates a Linux host.
type Simulate<'a> = &'a dyn Fn(Setup, Option<Box<dyn EventSink>>, Progress<'_>) -> std::io::Result<RunResult>;

fn run_by(plan: &Plan, options: RunOptions<'_>, simulate: Simulate<'_>) -> Result<Output, RunError> {
    let wall = Instant::now();
    let cpu = thread_cpu_s();
    let inputs = RefCell::new(Inputs::default());
    let cpus = plan.machine.topology.nr_cpus();
    let read = |name: &str| {
        let bytes = plan.read_input(name)?;
        inputs.borrow_mut().add(name, &bytes);
        Ok(bytes)
    };
    let Programs { mut workload, features, mut guests, mut origins } = programs(plan, &read)?;
    check_groups(plan, &workload)?;
    let mut limits = limits(plan);
    rings::check(plan, &workload, &guests, plan.xen.is_some())?;
    if let Some(end) = guests::one_end(&mut workload, &mut guests) {
        limits.horizon = limits.horizon.min(end);
    }
    let domains = plan.xen.as_ref().map(|_| guests::domains(plan, std::mem::take(&mut guests))).transpose()?;
    let inputs = inputs.into_inner();

    let mut partial_trace = None;
    let mut sinks = Sinks::default();
    if let Some(path) = options.trace {
        let records = trace::is_xentrace(path);
        if records && plan.xen.is_none() {
            let at = At::option("--trace");
            let found = format!("\"{}\"", path.display());
            let right = "a name that does not end in .xentrace or .bin: only Xen hosts make such records".into();
            return Err(ScenarioError::Value { at, found, right }.into());
        }
        let target = OutFile::check(path, plan.files(inputs.0.keys().map(String::as_str)), "a trace", trace::is_one)?;
        let partial = target.partial();
        let failed = |e| write_error(path, &e);
        if records {
            sinks.xen = Some(trace::create_xentrace(&partial.0).map_err(failed)?);
        } else {
            sinks.sched = Some(Box::new(TraceFile::create(&partial.0, path, cpus).map_err(failed)?));
        }
        partial_trace = Some((partial, target, path));
    }
    let mut go_on = |_: Status| true;
    let progress = options.progress.unwrap_or(&mut go_on);
    let mut look = |mut status: Status| {
        status.horizon = status.horizon.filter(|h| *h < HORIZON_NS_MAX);
        progress(status)
    };
    let partial = partial_trace.as_ref().map(|(partial, ..)| partial.0.clone());
    let mut look = watched(plan, partial, &mut look);
    let machine = plan.machine.clone();
    let result = match (&plan.xen, domains) {
        (Some(host), Some(domains)) => {
            let pools = host.pools.iter();
            let pools = pools.map(|p| PoolSetup { name: p.name.clone(), cpus: p.cpus, tunables: p.tunables }).collect();
            let setup = XenSetup {
                machine,
                scheduler: host.scheduler,
                features: host.features.clone(),
                pools,
                domains,
                timeline: host.changes(),
                seed: plan.seed,
                limits,
            };
            quietly(|| xen::simulate(setup, sinks, &mut look))
        }
        _ => {
            let setup = Setup { machine, features, workload, seed: plan.seed, limits, guests };
            quietly(|| simulate(setup, sinks.sched, &mut look))
        }
    };
    drop(look);
    let mut result = match (result, &partial_trace) {
        (Ok(result), _) => result,
        (Err(e), Some((.., path))) => return Err(write_error(path, &e)),
        (Err(e), None) => return Err(RunError::Resources(e)),
    };
    if let (Outcome::Panic(said), Some(at)) = (&mut result.outcome, PANICKED_AT.take()) {
        *said += &format!(" (at {at})");
    }
    if let Some((partial, target, path)) = partial_trace
        && result.outcome != Outcome::Interrupted
    {
        target.publish(partial, path)?;
    }
    origins.recordings.iter_mut().for_each(|r| r.file = own_name(&r.file));
    origins.rescaled.iter_mut().for_each(|r| r.file = own_name(&r.file));
    let mut output = summarise(plan, &result, &origins, inputs.0);
    output.wall_s = wall.elapsed().as_secs_f64();
    output.cpu_s = thread_cpu_s() - cpu;
    Ok(output)
}

/// What the host and the guests run.
struct Programs {
    workload: Workload,
    /// The host's.
    features: Features,
    guests: Guests,
    /// What became of the files that it is made from.
    origins: Origins,
}

fn programs(plan: &Plan, read: ReadFile<'_>) -> Result<Programs, ScenarioError> {
    let machine = &plan.machine;
    let (nr_cpus, capacity) = (machine.topology.nr_cpus(), machine.capacities());
    let target = Target { nr_cpus, speed: machine.costs.cpu.speed.value, capacity: &capacity };
    let host = plan.workload.as_ref().map(|w| w.build_in(plan.groups.clone(), target, read));
    let host = host.transpose().map_err(|e| plan.workload_error(e))?;
    let bare = || (Workload { groups: plan.groups.clone(), ..Workload::default() }, Origins::default());
    let (workload, mut origins) = host.unwrap_or_else(bare);
    let features = as_recorded(&plan.features, &plan.preset, target.nr_cpus, &origins.sources);
    let guests = guests::build(plan, read, &mut origins)?;
    Ok(Programs { workload, features, guests, origins })
}

/// The plan's machine, its speed with the range of its ratio to those of the machines that were recorded; none where nothing was recorded
/// elsewhere, since how fast a machine is against itself is certain.
///
/// # Errors
/// The workload cannot be built.
pub fn uncertain_machine(plan: &Plan) -> Result<Machine, ScenarioError> {
    let origins = programs(plan, &|name| plan.read_input(name))?.origins;
    let mut machine = plan.machine.clone();
    let speed = &mut machine.costs.cpu.speed;
    if *speed != plan.machine_base.costs.cpu.speed {
        // The scenario says it.
        return Ok(machine);
    }
    let known = origins.rescaled.iter().filter(|r| r.recorded > 0 && r.here > 0);
    let others = known.filter(|r| !r.is_of(&machine.name, speed));
    let ranges = others.map(|r| r.range(speed)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let (lo, hi) = ranges.unwrap_or((speed.value, speed.value));
    // What `--set` takes.
    (speed.lo, speed.hi) = (lo.max(speed.value.min(1)), hi.min(Unit::PerS.max()));
    Ok(machine)
}

/// Most queues of groups: a group has one on each CPU.
const GROUP_QUEUES_MAX: usize = 1 << 20;

/// Has the host's policy the groups that its workload names, and are they not too many? Sessions are groups only where there can be any.
fn check_groups(plan: &Plan, workload: &Workload) -> Result<(), ScenarioError> {
    let (groups, cpus) = (workload.groups.len(), plan.machine.topology.nr_cpus());
    if groups * cpus > GROUP_QUEUES_MAX {
        let at = At { file: plan.file.clone(), line: 0, key: "groups".into() };
        let found = format!("{groups} groups on {cpus} CPUs");
        return Err(ScenarioError::Value { at, found, right: format!("at most {}", GROUP_QUEUES_MAX / cpus) });
    }
    let named = workload.groups.iter().find(|(_, g)| !g.session);
    match named.filter(|_| !plan.has_groups() && plan.xen.is_none()) {
        None => Ok(()),
        Some((_, group)) => {
            let at = At { file: plan.file.clone(), line: 0, key: "policy".into() };
            let found = format!("\"{}\" with the group {}", plan.policy_name(), group.name);
            Err(ScenarioError::Value { at, found, right: "a fair policy such as linux-6.18".into() })
        }
    }
}

/// When a run ends by itself.
pub(crate) fn limits(plan: &Plan) -> Limits {
    Limits { horizon: plan.horizon_ns.unwrap_or(HORIZON_NS_MAX), stall: plan.stall_ns, warmup: plan.warmup_ns }
}

/// CPU time of the calling thread, in seconds.
fn thread_cpu_s() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec to write to.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    assert_eq!(failed, 0, "Linux has a clock of the thread's CPU time");
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// Files a workload was made from, as the result will keep them.
#[derive(Default)]
struct Inputs(BTreeMap<String, Input>);

impl Inputs {
    /// `inputs/NAME`; where two files have one name, the later gets a number before it.
    fn add(&mut self, name: &str, bytes: &[u8]) {
        if self.0.contains_key(name) {
            return;
        }
        let own = own_name(name);
        let taken = |stored: &str, all: &BTreeMap<String, Input>| all.values().any(|i| i.stored == stored);
        let mut stored = format!("inputs/{own}");
        let mut n = 2;
        while taken(&stored, &self.0) {
            stored = format!("inputs/{n}-{own}");
            n += 1;
        }
        self.0.insert(name.into(), Input { stored, bytes: bytes.to_vec() });
    }
}

/// A file's name without its directory: results name no place.
fn own_name(path: &str) -> String {
    Path::new(path).file_name().map_or("input".into(), |n| n.to_string_lossy().into_owned())
}

thread_local! {
    static SIMULATING: Cell<bool> = const { Cell::new(false) };
    /// Where a simulation on this thread panicked.
    static PANICKED_AT: Cell<Option<String>> = const { Cell::new(None) };
}

/// Panics within a simulation are outcomes: they are reported once, with where and the replay command, and not by the default
/// hook in the middle of the output, unless a backtrace is asked for. Panics of other threads are none of ours.
fn quietly<R>(f: impl FnOnce() -> R) -> R {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !SIMULATING.get() || std::env::var_os("RUST_BACKTRACE").is_some_and(|v| v != "0") {
                before(info);
            }
            if SIMULATING.get() {
                PANICKED_AT.set(info.location().map(ToString::to_string));
            }
        }));
    });
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            SIMULATING.set(false);
        }
    }
    SIMULATING.set(true);
    PANICKED_AT.set(None);
    let _reset = Reset;
    f()
}
