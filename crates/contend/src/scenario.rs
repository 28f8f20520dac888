//! Scenarios: everything that determines a result, in one file.
//!
//! ```toml
//! machine = "intel-2s-44c-88t"        # name, path of a machine file, or synthetic such as 2n2l8c2t
//! policy = "linux-6.18"               # a preset; `contend list presets`
//! seed = 1
//! horizon_s = 20                      # optional: the run ends here even if tasks live
//! warmup_s = 1                        # optional: what programs report before does not count
//!
//! [set]                               # optional: features, and costs of the machine
//! wake_path = "remote-lock"
//! machine.lines.llc = 40
//!
//! [workload]
//! kind = "hackbench"
//! groups = 16
//! ```
//!
//! Groups of tasks have a weight (`cpu.weight`, 100 if left out); parts of a mix (`group = "/web"`), guests and tasks of rt-app
//! files are in them:
//!
//! ```toml
//! [groups]
//! "/web" = 400
//! "/web/api" = 100
//! ```
//!
//! A [`Scenario`] is what a file says plus the command line's overrides; [`Scenario::plan`] checks it and looks
//! everything up. rt-app files and recordings stand for scenarios of their own ([`Scenario::from_path`]). Virtual
//! machines are tables `[[guest]]` ([`guest`]); a table `[xen]` makes them domains of a Xen host ([`xen`]).

mod groups;
pub mod guest;
mod recording;
mod resolved;
mod source;
pub mod xen;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use contend_machine::{Machine, MachineError, reason};
use contend_sched::features::{Features, Preset};
use contend_sim::kvm::KvmFeatures;
use contend_sim::program::Groups;
use contend_trace::TraceError;
use contend_workload::{WorkloadError, WorkloadSpec};
use toml::de::DeTable;

use crate::error::{At, ScenarioError};
use crate::names::did_you_mean;
use guest::{GuestPlan, GuestTable};
use source::Source;
use xen::{AtTable, XenPlan, XenTable};

type Result<T> = std::result::Result<T, ScenarioError>;

/// The largest scenario file that is read.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// The largest workload file (rt-app file or recording) that is read.
pub const INPUT_BYTES_MAX: u64 = 4 << 30;
/// Policy of a scenario that names none.
pub const POLICY_DEFAULT: &str = "linux-6.18";
/// Machine of an rt-app file that is run without a scenario.
pub const MACHINE_RTAPP: &str = "1n1l8c1t";
/// Seed of a scenario that names none.
pub const SEED_DEFAULT: u64 = 1;
/// The longest horizon and stall limit: 11 days.
const SECONDS_MAX: f64 = 1e6;
/// Bound on the wait of a runnable task, unless the scenario says another.
const STALL_NS_DEFAULT: u64 = 30_000_000_000;

/// A value and where it was given.
#[derive(Clone, Debug)]
struct Given<T> {
    at: At,
    value: T,
}

/// What is to be simulated, as it was asked for.
#[derive(Clone, Debug)]
pub struct Scenario {
    file: String,
    /// Paths inside the scenario are relative to this.
    base: PathBuf,
    machine: Option<Given<String>>,
    /// The default if none is given.
    policy: Option<Given<String>>,
    /// The policy of a program that made this, in the preset's place.
    own_policy: Option<Given<String>>,
    seed: u64,
    horizon_ns: Option<u64>,
    warmup_ns: u64,
    stall_ns: u64,
    set: BTreeMap<String, Given<String>>,
    groups: groups::Given,
    guests: Vec<GuestTable>,
    workload: Option<WorkloadSpec>,
    /// Where the workload names its file.
    workload_file: Option<At>,
    xen: Option<XenTable>,
    timeline: Vec<AtTable>,
}

/// A scenario with everything looked up: ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the scenario's file, for messages.
    pub file: String,
    /// The machine before overrides.
    pub machine_base: Machine,
    /// The machine.
    pub machine: Machine,
    /// Where policy and features start from.
    pub preset: Preset,
    /// The name of a policy of the caller's ([`run_with`](crate::run_with)), in the place of the preset's.
    pub own_policy: Option<String>,
    /// The features.
    pub features: Features,
    /// Seed.
    pub seed: u64,
    /// End of the run, in ns.
    pub horizon_ns: Option<u64>,
    /// What programs report before this time does not count, in ns.
    pub warmup_ns: u64,
    /// A runnable task that waits longer is a stall, in ns.
    pub stall_ns: u64,
    /// Overrides of machine costs, without the leading `machine.`.
    pub machine_set: BTreeMap<String, String>,
    /// Groups of the host's tasks that the scenario or a guest names.
    pub groups: Groups,
    /// What runs on the host; `None`: nothing but its guests.
    pub workload: Option<WorkloadSpec>,
    /// Virtual machines.
    pub guests: Vec<GuestPlan>,
    /// The hypervisor's switches.
    pub kvm: KvmFeatures,
    /// The host is Xen's: policy and features above are nobody's, and guests are domains.
    pub xen: Option<XenPlan>,
    base: PathBuf,
    machine_file: Option<PathBuf>,
    /// Where the host's workload names its file.
    workload_file: Option<At>,
}

/// A file that a workload was made from, as the result keeps it.
#[derive(Clone, Debug)]
pub struct Input {
    /// Path relative to the result's directory.
    pub stored: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Scenario {
    fn empty(file: &str, base: &Path) -> Self {
        Scenario {
            file: file.into(),
            base: base.into(),
            machine: None,
            policy: None,
            own_policy: None,
            seed: SEED_DEFAULT,
            horizon_ns: None,
            warmup_ns: 0,
            stall_ns: STALL_NS_DEFAULT,
            set: BTreeMap::new(),
            groups: groups::Given::new(),
            guests: Vec::new(),
            workload: None,
            workload_file: None,
            xen: None,
            timeline: Vec::new(),
        }
    }

    /// From a file: a scenario (`.toml`), a result's directory, an rt-app file (JSON), a recording (a directory of
    /// `contend record`, or a trace) or a model. The last three are scenarios of their own: a recording runs on the
    /// machine that it was made with, or on one node with as many CPUs as it was made on, as a model does; an rt-app file on
    /// [`MACHINE_RTAPP`].
    ///
    /// # Errors
    /// The file cannot be read, or is not right.
    pub fn from_path(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let read_error = |e: std::io::Error| ScenarioError::Read { file: name.clone(), why: reason(&e) };
        if path.is_dir() {
            let inner = path.join("scenario.toml");
            if inner.is_file() {
                return Self::from_path(inner);
            }
            if path.join(recording::FILE).is_file() {
                return recording::scenario(path);
            }
            let found = "a directory, and neither a result (scenario.toml) nor a recording (recording.toml)".into();
            let right = "name a scenario (.toml), an rt-app file (.json), a recording or a result's directory".into();
            return Err(ScenarioError::WrongKind { file: name, found, right });
        }
        let mut file = std::fs::File::open(path).map_err(read_error)?;
        let base = path.parent().unwrap_or(Path::new(""));
        if path.extension().is_some_and(|e| e == "toml") {
            let mut bytes = Vec::new();
            file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(read_error)?;
            if bytes.len() as u64 > FILE_BYTES_MAX {
                return Err(ScenarioError::TooLarge { file: name, max: FILE_BYTES_MAX, what: "a scenario" });
            }
            let text = String::from_utf8(bytes).map_err(|e| ScenarioError::Syntax {
                file: name.clone(),
                line: 1 + e.as_bytes()[..e.utf8_error().valid_up_to()].iter().filter(|&&b| b == b'\n').count(),
                why: "not UTF-8 text".into(),
            })?;
            if is_fitted_model(&text) {
                return Self::of_model(path);
            }
            return Self::parse(&text, &name, base);
        }
        let mut head = Vec::new();
        (&mut file).take(4096).read_to_end(&mut head).map_err(read_error)?;
        if head.is_empty() {
            let right = "name a scenario (.toml), an rt-app file (.json) or a recording".into();
            return Err(ScenarioError::WrongKind { file: name, found: "the file is empty".into(), right });
        }
        if head.starts_with(b"ARROW1") {
            return Self::of_model(path);
        }
        let text = head.trim_ascii_start();
        let json = path.extension().is_some_and(|e| e == "json")
            || text.starts_with(b"{")
            || text.starts_with(b"/*")
            || text.starts_with(b"//");
        let mut scenario = Self::empty(&name, base);
        let own = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let machine = if json {
            scenario.workload = Some(file_workload("rt-app", &own));
            MACHINE_RTAPP.to_string()
        } else {
            let cpus = recorded_cpus(path)?;
            scenario.workload = Some(file_workload("recording", &own));
            format!("1n1l{cpus}c1t")
        };
        let at = At { file: name, line: 0, key: "machine".into() };
        scenario.machine = Some(Given { at, value: machine });
        Ok(scenario)
    }

    /// A model on one node with as many CPUs as its recording was made on.
    fn of_model(path: &Path) -> Result<Self> {
        let mut scenario = Self::empty(&path.display().to_string(), path.parent().unwrap_or(Path::new("")));
        let own = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let at = At { file: path.display().to_string(), line: 0, key: "machine".into() };
        scenario.machine = Some(Given { at, value: format!("1n1l{}c1t", crate::model::recorded_cpus(path)?) });
        scenario.workload = Some(file_workload("model", &own));
        Ok(scenario)
    }

    /// From the text of a scenario; `file` is its name in messages, `base` the directory its paths are relative to.
    ///
    /// # Errors
    /// Not TOML, unknown keys, values of the wrong type.
    pub fn parse(text: &str, file: &str, base: &Path) -> Result<Self> {
        Source { text, file, lines: true }.scenario(base)
    }

    /// From a JSON object with the keys of a scenario; paths are relative to `base`.
    ///
    /// # Errors
    /// As for [`Scenario::parse`].
    pub fn from_json(json: &str, base: &Path) -> Result<Self> {
        let file = "scenario";
        let wrong = |why: String| ScenarioError::Syntax { file: file.into(), line: 0, why };
        let value: serde_json::Value = serde_json::from_str(json).map_err(|e| wrong(e.to_string()))?;
        let text = toml::to_string(&value).map_err(|e| wrong(e.to_string()))?;
        Source { text: &text, file, lines: false }.scenario(base)
    }

    /// Run on another machine; a path is relative to the working directory.
    pub fn set_machine(&mut self, name: &str) {
        let at = At::option("--machine");
        let value = if Machine::names_file(name) {
            std::path::absolute(name).map_or_else(|_| name.into(), |p| p.to_string_lossy().into_owned())
        } else {
            name.into()
        };
        self.machine = Some(Given { at, value });
    }

    /// Run under another preset.
    pub fn set_policy(&mut self, name: &str) {
        let at = At::option("--policy");
        self.policy = Some(Given { at, value: name.into() });
    }

    /// Another seed.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// Another end of the run.
    ///
    /// # Errors
    /// Not a positive number of seconds.
    pub fn set_horizon_s(&mut self, seconds: f64) -> Result<()> {
        let at = At::option("--horizon");
        self.horizon_ns = Some(seconds_ns(seconds, at)?);
        Ok(())
    }

    /// Another warm-up; none if 0.
    ///
    /// # Errors
    /// Not a number of seconds.
    pub fn set_warmup_s(&mut self, seconds: f64) -> Result<()> {
        let at = At::option("--warmup");
        self.warmup_ns = if seconds == 0.0 { 0 } else { seconds_ns(seconds, at)? };
        Ok(())
    }

    /// `--set KEY=VALUE`: a feature, `machine.COST`, `workload.KEY`, `groups.PATH` (its weight), `groups.PATH.max`, `kvm.KEY`, `xen.KEY`, or `guest.KEY`: a key of every table
    /// `[[guest]]` (`vcpus`, `workload.KEY`...) or a feature of every guest's kernel.
    ///
    /// # Errors
    /// A key of a workload or guest that is not right. Features and costs are looked at by [`Scenario::plan`], because
    /// policy and machine may still change.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let at = At::option("--set");
        if let Some(rest) = key.strip_prefix("guest.") {
            if self.guests.is_empty() {
                return Err(no_guests(At { key: key.into(), ..at }, value));
            }
            if guest::is_key(rest) {
                return guest::set_all(&mut self.guests, rest, value, &at);
            }
        }
        if let Some(rest) = key.strip_prefix("groups.") {
            return groups::set(&mut self.groups, rest, value, At { key: key.into(), ..at });
        }
        if let Some(rest) = key.strip_prefix("workload.") {
            if self.workload.is_none() && !self.guests.is_empty() {
                let right = format!("guest.{key}: nothing runs on the host of this scenario but its guests");
                return Err(ScenarioError::UnknownKey { at: At { key: key.into(), ..at }, right });
            }
            let workload = self.workload.get_or_insert_default();
            return workload.set(rest, value).map_err(|e| workload_error(e, at, |_| 0));
        }
        self.set.insert(key.into(), Given { at, value: value.into() });
        Ok(())
    }

    /// Check everything and look it up.
    ///
    /// # Errors
    /// Unknown machine, policy or feature; a machine file that is not right; features that contradict each other.
    pub fn plan(&self) -> Result<Plan> {
        let Some(machine) = &self.machine else {
            let at = At { file: self.file.clone(), line: 0, key: "machine".into() };
            let right = "write machine = \"...\", or give --machine; `contend list machines` lists them".into();
            return Err(ScenarioError::MissingKey { at, right });
        };
        if self.xen.is_some() {
            self.check_of_xen()?;
        } else if self.workload.is_none() && self.guests.is_empty() {
            let at = At { file: self.file.clone(), line: 0, key: "workload".into() };
            let right = "write a table [workload] with kind = \"...\"; `contend list workloads` lists them".into();
            return Err(ScenarioError::MissingKey { at, right });
        }
        if let Some(horizon) = self.horizon_ns.filter(|h| *h <= self.warmup_ns) {
            let at = At { file: self.file.clone(), line: 0, key: "warmup_s".into() };
            let found = format!("{} s with a horizon of {} s", self.warmup_ns as f64 / 1e9, horizon as f64 / 1e9);
            return Err(ScenarioError::Value { at, found, right: "before the horizon".into() });
        }
        let machine_error = |source| ScenarioError::Machine { at: machine.at.clone(), source: Box::new(source) };
        let path = if Machine::names_file(&machine.value) {
            self.base.join(&machine.value).to_string_lossy().into_owned()
        } else {
            machine.value.clone()
        };
        let machine_base = Machine::load(&path).map_err(|e| match e {
            // The message already begins with the machine file's name.
            MachineError::UnknownMachine { .. } | MachineError::Synthetic { .. } => machine_error(e),
            e => ScenarioError::Machine { at: set_at(&machine.at), source: Box::new(e) },
        })?;

        let preset = match &self.policy {
            Some(given) => preset(given)?,
            None => Preset::find(POLICY_DEFAULT).expect("it ships"),
        };
        let mut features = preset.features.clone();
        let mut changed = machine_base.clone();
        let mut machine_set = BTreeMap::new();
        let mut kvm = KvmFeatures::default();
        let mut last = None;
        for (key, given) in &self.set {
            if let Some(cost) = key.strip_prefix("machine.") {
                changed
                    .set(cost, &given.value)
                    .map_err(|e| ScenarioError::MachineCost(Box::new(placed(e, &given.at))))?;
                machine_set.insert(cost.to_string(), given.value.clone());
            } else if (key.starts_with("kvm.") || key.starts_with("guest.")) && self.guests.is_empty() {
                return Err(no_guests(At { key: key.clone(), ..given.at.clone() }, &given.value));
            } else if let Some(switch) = key.strip_prefix("kvm.").filter(|_| self.xen.is_none()) {
                kvm.set(switch, &given.value).map_err(|e| guest::prefixed(e, "kvm", &given.at))?;
            } else if self.xen.is_some() && !key.starts_with("xen.") && !key.starts_with("guest.") {
                let at = At { key: key.clone(), ..given.at.clone() };
                let right =
                    "left out: a feature of Linux as the host, and the host is Xen; guest.KEY is a feature of its \
                             guests, xen.KEY a switch of Xen"
                        .into();
                return Err(ScenarioError::Value { at, found: given.value.clone(), right });
            } else if !key.starts_with("guest.") && !key.starts_with("xen.") {
                features
                    .set(key, &given.value)
                    .map_err(|e| ScenarioError::Feature { at: set_at(&given.at), source: Box::new(e) })?;
                last = Some(&given.at);
            }
        }
        features.validate().map_err(|source| {
            let at = self.set.get(&source.key).map(|g| &g.at).or(last);
            let at = at.map_or(At { file: self.file.clone(), line: 0, key: String::new() }, set_at);
            ScenarioError::Feature { at, source: Box::new(source) }
        })?;
        let topo = &changed.topology;
        let host = xen::host(self, topo, machine)?;
        let guests = guest::plan(self, &guest::Host { hz: changed.hz, topo, xen: host.as_ref(), base: &self.base })?;
        let groups = groups::plan(self, &guests, preset.policy, &features)?;
        let xen = host.map(|x| x.finish(self, topo, &guests)).transpose()?;
        Ok(Plan {
            file: self.file.clone(),
            machine_base,
            machine: changed,
            preset,
            own_policy: self.own_policy.as_ref().map(|given| given.value.clone()),
            features,
            seed: self.seed,
            horizon_ns: self.horizon_ns,
            warmup_ns: self.warmup_ns,
            stall_ns: self.stall_ns,
            machine_set,
            groups,
            workload: self.workload.clone().map(|w| recording::resolved(w, &self.base)).transpose()?,
            guests,
            kvm,
            xen,
            base: self.base.clone(),
            machine_file: Machine::names_file(&machine.value).then(|| path.into()),
            workload_file: self.workload_file.clone(),
        })
    }
}

impl Scenario {
    /// A Xen host runs domains, and nothing beside them.
    fn check_of_xen(&self) -> Result<()> {
        let refuse = |at: At, found: &str, right: &str| {
            Err(ScenarioError::Value { at, found: found.into(), right: right.into() })
        };
        if let Some(policy) = &self.policy {
            let right = "left out: the host is Xen, its scheduler is xen.scheduler; a guest's kernel is its own policy";
            return refuse(policy.at.clone(), &format!("\"{}\"", policy.value), right);
        }
        if let Some(own) = &self.own_policy {
            let right = "left out: the host is Xen, and programs bring policies for Linux hosts";
            return refuse(own.at.clone(), &format!("\"{}\"", own.value), right);
        }
        if let Some(workload) = &self.workload {
            let at = At { file: self.file.clone(), line: 0, key: "workload".into() };
            let right = "left out: Xen runs nothing but domains; write it into a [[guest]], such as dom0";
            return refuse(at, workload.kind(), right);
        }
        if self.guests.is_empty() {
            let at = At { file: self.file.clone(), line: 0, key: "guest".into() };
            let right = "write tables [[guest]]: a Xen host runs domains".into();
            return Err(ScenarioError::MissingKey { at, right });
        }
        Ok(())
    }
}

/// The preset of a key `policy`.
fn preset(policy: &Given<String>) -> Result<Preset> {
    Preset::find(&policy.value).ok_or_else(|| {
        let all = Preset::all();
        let known = all.iter().map(|p| p.name).chain(["cfs", "eevdf", "linux"]);
        let right = did_you_mean(&policy.value, known, "`contend list presets` lists them");
        ScenarioError::UnknownPolicy { at: policy.at.clone(), name: policy.value.clone(), right }
    })
}

/// A key of guests in a scenario that has none.
fn no_guests(at: At, value: &str) -> ScenarioError {
    let right = "left out: the scenario has no table [[guest]]".into();
    ScenarioError::Value { at, found: value.into(), right }
}

/// Where an override was given, without the key: the message that follows names it.
fn set_at(at: &At) -> At {
    At { key: String::new(), ..at.clone() }
}

/// A machine error of an override, with the override's place.
fn placed(mut e: MachineError, given: &At) -> MachineError {
    if let MachineError::UnknownKey { at, .. }
    | MachineError::WrongType { at, .. }
    | MachineError::OutOfRange { at, .. }
    | MachineError::Length { at, .. }
    | MachineError::Band { at, .. } = &mut e
    {
        at.file = given.file.clone();
        at.line = given.line;
        at.key = format!("machine.{}", at.key);
    }
    e
}

/// Scenarios have no key `form`.
fn is_fitted_model(text: &str) -> bool {
    DeTable::parse(text).is_ok_and(|root| root.get_ref().contains_key("form"))
}

/// A workload of the kind that is a file.
fn file_workload(kind: &str, file: &str) -> WorkloadSpec {
    let table = format!("workload = {{ kind = {}, file = {} }}", quoted(kind), quoted(file));
    let root = DeTable::parse(&table).expect("quoted strings are valid TOML");
    WorkloadSpec::from_toml(&root.get_ref()["workload"]).expect("a workload kind that takes a file")
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.into()).to_string()
}

/// How many CPUs a recording was made on.
fn recorded_cpus(path: &Path) -> Result<usize> {
    let name = path.display().to_string();
    let mut reader = contend_trace::open(path).map_err(|e| no_recording(e, &name))?;
    for event in &mut reader {
        event?;
    }
    let report = reader.report();
    if report.events == 0 {
        let others: Vec<String> = report.unknown.iter().take(3).map(|(name, n)| format!("{name} {n}")).collect();
        let found = format!("a recording with no event of the scheduler ({})", others.join(", "));
        let right = "record sched_switch, sched_waking, sched_wakeup_new and sched_process_fork, exec and exit; `perf script` needs -F +trace";
        return Err(ScenarioError::WrongKind { file: name, found, right: right.into() });
    }
    let seen = report.cpus.iter().max().map_or(0, |&c| c as usize + 1);
    let cpus = seen.max(report.cpus_declared.unwrap_or(0) as usize);
    if !(1..=contend_platform::CpuId::MAX_CPUS).contains(&cpus) {
        let right = format!("1 to {} can be simulated", contend_platform::CpuId::MAX_CPUS);
        return Err(ScenarioError::WrongKind { file: name, found: format!("a recording of {cpus} CPUs"), right });
    }
    Ok(cpus)
}

/// A file that is no recording may have been meant as anything.
fn no_recording(e: TraceError, file: &str) -> ScenarioError {
    let TraceError::NotATrace { line, found, expected, .. } = &e else { return e.into() };
    let binary = found.chars().any(|c| c == '\u{fffd}' || (c.is_control() && c != '\t'));
    let found = if binary { "binary data".into() } else { format!("line {line} is {found:?}") };
    let right = if *expected == contend_trace::EXPECTED {
        "should be a scenario (.toml), an rt-app file (.json), or a recording: trace.dat, a Perfetto trace, a binary trace of \
         Xen, or text of `trace-cmd report`, tracefs or `perf script` (.gz and .xz too)"
            .into()
    } else {
        format!("should be {expected}")
    };
    ScenarioError::WrongKind { file: file.into(), found, right }
}

fn seconds_ns(seconds: f64, at: At) -> Result<u64> {
    if !(1e-9..=SECONDS_MAX).contains(&seconds) {
        let right = "a number of seconds above 0, at most 1,000,000".into();
        return Err(ScenarioError::Value { at, found: seconds.to_string(), right });
    }
    Ok((seconds * 1e9).round() as u64)
}

fn workload_error(
    e: contend_workload::SpecError,
    at: At,
    line: impl FnOnce(std::ops::Range<usize>) -> usize,
) -> ScenarioError {
    let line = e.span.clone().map_or(at.line, line);
    ScenarioError::WorkloadKey { at: At { line, key: String::new(), ..at }, source: Box::new(e) }
}

impl Plan {
    /// What `xl sched-credit`, `xl sched-credit2` and `xl vcpu-list` would list of a Xen host at virtual time `at` (ns).
    pub fn xen_listing(&self, at: u64) -> Option<serde_json::Value> {
        self.xen.as_ref().map(|xen| xen.listing(&self.machine.topology, &self.guests, at))
    }

    /// Read a file that the workload names.
    ///
    /// # Errors
    /// The system's, or the file is larger than [`INPUT_BYTES_MAX`].
    pub fn read_input(&self, name: &str) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut file = std::fs::File::open(self.base.join(name))?.take(INPUT_BYTES_MAX + 1);
        file.read_to_end(&mut bytes)?;
        if bytes.len() as u64 > INPUT_BYTES_MAX {
            return Err(std::io::Error::other(format!("larger than {INPUT_BYTES_MAX} bytes")));
        }
        Ok(bytes)
    }

    /// The files that it was made from; `named` are those that its workloads name.
    pub(crate) fn files<'a>(&self, named: impl Iterator<Item = &'a str>) -> Vec<PathBuf> {
        let named = named.map(|name| self.base.join(name));
        [self.file.clone().into()].into_iter().chain(self.machine_file.clone()).chain(named).collect()
    }

    /// A workload's error, with the scenario named where a file is missing.
    pub(crate) fn workload_error(&self, e: WorkloadError) -> ScenarioError {
        match (self.unplaced(e), &self.workload_file) {
            (ScenarioError::Read { file, why }, Some(at)) => ScenarioError::Read { file: format!("{at}: {file}"), why },
            (e, _) => e,
        }
    }

    /// The same of a guest's workload.
    pub(crate) fn unplaced(&self, mut e: WorkloadError) -> ScenarioError {
        e.place(|file| self.base.join(file).display().to_string());
        match e {
            WorkloadError::Read { file, source } => ScenarioError::Read { file, why: reason(&source) },
            e => e.into(),
        }
    }
}
