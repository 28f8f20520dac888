//! The `[workload]` table of a scenario file: which workload, with which parameters.
//!
//! ```
//! use contend_workload::WorkloadSpec;
//! use toml::de::DeTable;
//!
//! let scenario = DeTable::parse("[workload]\nkind = \"hackbench\"\ngroups = 2\n").expect("valid TOML");
//! let mut spec = WorkloadSpec::from_toml(&scenario.get_ref()["workload"])?;
//! spec.set("loops", "10")?;
//! let workload = spec.build(4, &|path| std::fs::read(path)).expect("it fits 4 CPUs");
//! assert_eq!(workload.tasks.len(), 80);
//! # Ok::<(), contend_workload::SpecError>(())
//! ```
//!
//! Every key has a type, a range and a default; [`list`] describes them, and [`WorkloadSpec::to_toml`] writes all of them
//! out, so that a result says what made it even if a default changes later. `docs/workloads.md` is the reference.

mod cpus;
mod error;
pub(crate) mod keys;
#[cfg(test)]
mod tests;
pub(crate) mod value;

pub use cpus::CpuList;
pub use error::{SpecError, SpecProblem, WorkloadError};
pub use keys::KeyInfo;
pub use value::NiceList;

use std::ops::Range;

use contend_sim::program::{Groups, Sched, Workload};
use keys::{Keys, spec};
use toml::Spanned;
use toml::de::DeValue;
use value::{Bad, shown};

use crate::model::{ModelSpec, Source};
use crate::programs::{
    Daemons, Dbench, Ebizzy, GuestBoot, Hackbench, Hogs, IperfClient, IperfServer, KernelBuild, LockLoop, Mmc, Netperf,
    Oltp, OltpDedicated, Periodic, PingPong, Schbench, Sembench, Tbench, Uperf,
};
use crate::recording::{RecordingReport, RecordingSpec};
use crate::speed::Rescaled;

/// Most tasks of a workload.
pub const TASKS_MAX: u64 = 1_000_000;
/// Most parts of a mix.
const PARTS_MAX: usize = 64;

spec! {
    /// An rt-app JSON file (`docs/rt-app.md`).
    pub struct RtAppFile = "rt-app" {
        /// The file, relative to the scenario.
        file: String [()] = String::new(), "path";
    }
}

/// A program among the workloads: it adds its tasks and objects to what is there already.
pub(crate) trait Build: Keys {
    /// How many tasks it makes.
    fn tasks(&self) -> u64;
    /// Add tasks and objects.
    fn build(&self, w: &mut Workload, nr_cpus: usize) -> Result<(), WorkloadError>;
}

/// What a workload is made for.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// It has CPUs 0 to `nr_cpus - 1`.
    pub nr_cpus: usize,
    /// How fast they compute, `cpu.speed` of the machine's file; 0: not known.
    pub speed: u64,
    /// How much each of them computes, in 1/1024 of the fastest; empty: they are all alike.
    pub capacity: &'a [u64],
}

/// What became of the files that a workload was made from.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// The recordings.
    pub recordings: Vec<RecordingReport>,
    /// Recordings and models: where they are from.
    pub sources: Vec<Source>,
    /// Recordings and models: their run times on this machine.
    pub rescaled: Vec<Rescaled>,
}

impl Origins {
    /// Those of another workload, too.
    pub fn extend(&mut self, others: Origins) {
        self.recordings.extend(others.recordings);
        self.sources.extend(others.sources);
        self.rescaled.extend(others.rescaled);
    }
}

/// How the caller reads files.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> std::io::Result<Vec<u8>>;

/// One workload in `contend list workloads`.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkloadInfo {
    /// The word after `kind =`.
    pub name: &'static str,
    /// What it does.
    pub doc: String,
    /// Its keys.
    pub keys: Vec<KeyInfo>,
}

/// Several workloads side by side.
///
/// Where some parts end by themselves and others do not (hogs, say), the run ends with the former.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Mix {
    /// The parts; at most one is an rt-app file.
    pub parts: Vec<Part>,
}

/// A part of a mix.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// The group that its tasks are in: a path as below `/sys/fs/cgroup` (`None`: the root).
    pub group: Option<String>,
    /// Class and priority of its tasks that have none of their own.
    pub sched: Option<Sched>,
    /// CPUs that its tasks may run on which have no such list of their own (`None`: all).
    pub cpus: Option<CpuList>,
    /// What it is.
    pub workload: WorkloadSpec,
}

impl Part {
    fn to_toml(&self) -> toml::Table {
        let mut table = self.workload.to_toml();
        if let Some(group) = &self.group {
            table.insert(GROUP.into(), group.as_str().into());
        }
        if let Some(sched) = self.sched {
            table.insert(SCHED.into(), sched.to_string().into());
        }
        if let Some(cpus) = &self.cpus {
            table.insert(CPUS.into(), cpus.to_string().into());
        }
        table
    }
}

macro_rules! kinds {
    ($($Variant:ident($ty:ty)),*) => {
        /// A workload and its parameters.
        #[derive(Clone, PartialEq, Debug)]
        #[non_exhaustive]
        pub enum WorkloadSpec {
            $(#[doc = concat!("See [`", stringify!($ty), "`].")] $Variant($ty),)*
            /// See [`Mix`].
            Mix(Mix),
        }

        /// All workloads.
        pub fn list() -> Vec<WorkloadInfo> {
            vec![
                $(WorkloadInfo { name: <$ty>::NAME, doc: <$ty>::doc(), keys: <$ty>::keys() },)*
                WorkloadInfo {
                    name: MIX,
                    doc: "Several workloads side by side. Where some parts end by themselves and others do not, the run \
                          ends with the former."
                        .into(),
                    keys: vec![KeyInfo {
                        key: "parts",
                        doc: "The parts: tables like this one (not mixes), at most one of them an rt-app file; with the key \
                              group (a path such as /web) their tasks are in that group, with sched (such as fifo:50) of \
                              that class, with cpus (such as 0-7,16) on these CPUs only. On the command line: workload.parts.0.KEY."
                            .into(),
                        unit: "workloads",
                        allowed: format!("1 to {PARTS_MAX} tables"),
                        default: None,
                    }],
                },
            ]
        }

        impl WorkloadSpec {
            fn default_of(kind: &str) -> Option<Self> {
                $(if kind == <$ty>::NAME {
                    return Some(WorkloadSpec::$Variant(<$ty>::default()));
                })*
                None
            }
            /// The word after `kind =`.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(WorkloadSpec::$Variant(_) => <$ty>::NAME,)*
                    WorkloadSpec::Mix(_) => MIX,
                }
            }
            fn key_infos(&self) -> Vec<KeyInfo> {
                match self {
                    $(WorkloadSpec::$Variant(_) => <$ty>::keys(),)*
                    WorkloadSpec::Mix(_) => Vec::new(),
                }
            }
            fn set_toml(&mut self, key: &str, v: &DeValue<'_>) -> Option<Result<(), Bad>> {
                match self {
                    $(WorkloadSpec::$Variant(s) => s.set_toml(key, v),)*
                    WorkloadSpec::Mix(_) => None,
                }
            }
            fn set_text(&mut self, key: &str, text: &str) -> Option<Result<(), Bad>> {
                match self {
                    $(WorkloadSpec::$Variant(s) => s.set_text(key, text),)*
                    WorkloadSpec::Mix(_) => None,
                }
            }
            fn write(&self, out: &mut toml::Table) {
                match self {
                    $(WorkloadSpec::$Variant(s) => s.write(out),)*
                    WorkloadSpec::Mix(m) => {
                        let parts = m.parts.iter().map(|p| toml::Value::Table(p.to_toml())).collect();
                        out.insert("parts".into(), toml::Value::Array(parts));
                    }
                }
            }
        }
    };
}

const MIX: &str = "mix";
/// The key of a part that says which group its tasks are in.
const GROUP: &str = "group";
/// The key that says which class they are of.
const SCHED: &str = "sched";
/// The key that says which CPUs they may run on.
const CPUS: &str = "cpus";
/// What a part has besides its workload's keys.
const OWN_KEYS: [&str; 3] = [GROUP, SCHED, CPUS];

/// The group of a part, checked.
fn group_of(text: &str) -> Result<String, Bad> {
    match Groups::default().at(text) {
        Ok(_) => Ok(text.into()),
        Err(right) => Err(Bad { found: format!("\"{text}\""), right: right.into() }),
    }
}

/// A text that a part has besides its workload's keys.
fn own_key<T>(
    part: &Spanned<DeValue<'_>>,
    path: &str,
    key: &str,
    right: &str,
    parse: impl FnOnce(&str) -> Result<T, Bad>,
) -> Result<Option<T>, SpecError> {
    let Some(v) = part.get_ref().as_table().and_then(|t| t.get(key)) else { return Ok(None) };
    let wrong = || Bad { found: shown(v.get_ref()), right: right.into() };
    let parsed = v.get_ref().as_str().ok_or_else(wrong).and_then(parse);
    parsed.map(Some).map_err(|Bad { found, right }| SpecError {
        key: format!("{path}.{key}"),
        span: Some(v.span()),
        problem: SpecProblem::Value { found, right },
    })
}

/// The class of a part, checked.
fn sched_of(text: &str) -> Result<Sched, Bad> {
    Sched::parse(text).ok_or_else(|| Bad { found: format!("\"{text}\""), right: Sched::ALLOWED.into() })
}

kinds! {
    Hackbench(Hackbench),
    Schbench(Schbench),
    Sembench(Sembench),
    PingPong(PingPong),
    Periodic(Periodic),
    Mmc(Mmc),
    LockLoop(LockLoop),
    Hogs(Hogs),
    Daemons(Daemons),
    Uperf(Uperf),
    Netperf(Netperf),
    Tbench(Tbench),
    Dbench(Dbench),
    Oltp(Oltp),
    OltpDedicated(OltpDedicated),
    KernelBuild(KernelBuild),
    GuestBoot(GuestBoot),
    Ebizzy(Ebizzy),
    IperfClient(IperfClient),
    IperfServer(IperfServer),
    RtApp(RtAppFile),
    Recording(RecordingSpec),
    Model(ModelSpec)
}

impl Default for WorkloadSpec {
    fn default() -> Self {
        WorkloadSpec::Hackbench(Hackbench::default())
    }
}

impl WorkloadSpec {
    /// From the value of a scenario's key `workload`: a table with `kind` and that workload's keys.
    ///
    /// # Errors
    /// An unknown or missing key, or a value that is not right; with the bytes of the text that are wrong.
    pub fn from_toml(value: &Spanned<DeValue<'_>>) -> Result<Self, SpecError> {
        Self::part(value, "workload", true)
    }

    fn part(value: &Spanned<DeValue<'_>>, path: &str, mix: bool) -> Result<Self, SpecError> {
        let error = |span: Range<usize>, key: &str, problem| {
            let key = if key.is_empty() { path.into() } else { format!("{path}.{key}") };
            SpecError { key, span: Some(span), problem }
        };
        let DeValue::Table(table) = value.get_ref() else {
            let found = shown(value.get_ref());
            let right = "a table with kind = \"...\"".into();
            return Err(error(value.span(), "", SpecProblem::Value { found, right }));
        };
        let mut kinds: Vec<String> = list().into_iter().map(|w| w.name.to_string()).collect();
        if !mix {
            kinds.retain(|k| k != MIX);
        }
        let Some(kind) = table.get("kind") else {
            let right = format!("write kind = one of {}", kinds.join(", "));
            return Err(error(value.span(), "kind", SpecProblem::MissingKey { right }));
        };
        if mix && kind.get_ref().as_str() == Some(MIX) {
            return Self::mix(value, table, path);
        }
        let Some(mut spec) = kind.get_ref().as_str().and_then(Self::default_of) else {
            let close = error::close_to(kind.get_ref().as_str().unwrap_or(""), &kinds);
            let meant =
                if close.is_empty() { String::new() } else { format!("; did you mean {}?", close.join(" or ")) };
            let right = format!("one of {}{meant}", kinds.join(", "));
            let problem = SpecProblem::Value { found: shown(kind.get_ref()), right };
            return Err(error(kind.span(), "kind", problem));
        };
        // In the order of the file: the first error is the topmost.
        let elsewhere = |k: &str| k == "kind" || (OWN_KEYS.contains(&k) && !mix);
        let mut entries: Vec<_> = table.iter().filter(|(k, _)| !elsewhere(k.get_ref().as_ref())).collect();
        entries.sort_by_key(|(k, _)| k.span().start);
        for (key, v) in entries {
            let name = key.get_ref().as_ref();
            match spec.set_toml(name, v.get_ref()) {
                Some(Ok(())) => {}
                Some(Err(Bad { found, right })) => {
                    return Err(error(v.span(), name, SpecProblem::Value { found, right }));
                }
                None => {
                    let mut problem = spec.unknown(name);
                    if let SpecProblem::UnknownKey { close, all } = &mut problem
                        && !mix
                    {
                        all.extend(OWN_KEYS.map(String::from));
                        *close = error::close_to(name, all);
                    }
                    return Err(error(key.span(), name, problem));
                }
            }
        }
        spec.check(path).map_err(|e| {
            // The table's span, or that of the key to blame.
            let name = e.key.rsplit('.').next().unwrap_or_default();
            let span = table.get(name).map_or(value.span(), |v| v.span());
            SpecError { span: Some(span), ..e }
        })?;
        Ok(spec)
    }

    fn mix(value: &Spanned<DeValue<'_>>, table: &toml::de::DeTable<'_>, path: &str) -> Result<Self, SpecError> {
        let error = |span, key: &str, problem| SpecError { key: format!("{path}.{key}"), span: Some(span), problem };
        if let Some((key, _)) = table.iter().find(|(k, _)| !["kind", "parts"].contains(&k.get_ref().as_ref())) {
            let name = key.get_ref().as_ref();
            let all = vec!["kind".to_string(), "parts".to_string()];
            let problem = SpecProblem::UnknownKey { close: error::close_to(name, &all), all };
            return Err(error(key.span(), name, problem));
        }
        let Some(v) = table.get("parts") else {
            let right = "write parts = [{ kind = \"...\" }, ...]".into();
            return Err(error(value.span(), "parts", SpecProblem::MissingKey { right }));
        };
        let parts = match v.get_ref() {
            DeValue::Array(list) if (1..=PARTS_MAX).contains(&list.len()) => list,
            other => {
                let right = format!("1 to {PARTS_MAX} tables with kind = \"...\"");
                return Err(error(v.span(), "parts", SpecProblem::Value { found: shown(other), right }));
            }
        };
        let parts = (parts.iter().enumerate())
            .map(|(i, v)| {
                let path = format!("{path}.parts.{i}");
                let workload = Self::part(v, &path, false)?;
                let group = own_key(v, &path, GROUP, Groups::PATH, group_of)?;
                let sched = own_key(v, &path, SCHED, Sched::ALLOWED, sched_of)?;
                let cpus = own_key(v, &path, CPUS, CpuList::RIGHT, CpuList::parse)?;
                Ok(Part { group, sched, cpus, workload })
            })
            .collect::<Result<_, _>>()?;
        let spec = WorkloadSpec::Mix(Mix { parts });
        spec.check(path).map_err(|e| SpecError { span: Some(v.span()), ..e })?;
        Ok(spec)
    }

    fn unknown(&self, name: &str) -> SpecProblem {
        let all: Vec<String> =
            std::iter::once("kind".to_string()).chain(self.key_infos().iter().map(|k| k.key.to_string())).collect();
        SpecProblem::UnknownKey { close: error::close_to(name, &all), all }
    }

    /// All keys, defaults included, as [`WorkloadSpec::from_toml`] reads them.
    pub fn to_toml(&self) -> toml::Table {
        let mut out = toml::Table::new();
        out.insert("kind".into(), toml::Value::String(self.kind().into()));
        self.write(&mut out);
        out
    }

    /// `--set workload.KEY=VALUE`; `key` is what follows `workload.` (`groups`, `parts.0.groups`). On an error nothing
    /// has changed. The kind cannot be set.
    ///
    /// # Errors
    /// An unknown key, or a value that is not right.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        let mut new = self.clone();
        new.set_in(key, value, "workload")?;
        new.check("workload")?;
        *self = new;
        Ok(())
    }

    fn set_in(&mut self, key: &str, value: &str, path: &str) -> Result<(), SpecError> {
        let error = |problem| SpecError { key: format!("{path}.{key}"), span: None, problem };
        if let WorkloadSpec::Mix(mix) = self {
            let n = mix.parts.len();
            let split = key.strip_prefix("parts.").and_then(|k| k.split_once('.'));
            let part = split.and_then(|(i, rest)| Some((i.parse::<usize>().ok().filter(|&i| i < n)?, rest)));
            let Some((i, rest)) = part else {
                let all = (0..n).map(|i| format!("parts.{i}.KEY")).collect();
                return Err(error(SpecProblem::UnknownKey { close: Vec::new(), all }));
            };
            let wrong = |Bad { found, right }| error(SpecProblem::Value { found, right });
            match rest {
                GROUP => mix.parts[i].group = Some(group_of(value).map_err(wrong)?),
                SCHED => mix.parts[i].sched = Some(sched_of(value).map_err(wrong)?),
                CPUS => mix.parts[i].cpus = Some(CpuList::parse(value).map_err(wrong)?),
                _ => return mix.parts[i].workload.set_in(rest, value, &format!("{path}.parts.{i}")),
            }
            return Ok(());
        }
        match self.set_text(key, value) {
            Some(Ok(())) => Ok(()),
            Some(Err(Bad { found, right })) => Err(error(SpecProblem::Value { found, right })),
            None if key == "kind" => {
                let right = "set in the scenario: which keys there are depends on it".into();
                Err(error(SpecProblem::Value { found: format!("\"{value}\""), right }))
            }
            None => Err(error(self.unknown(key))),
        }
    }

    /// Rules over several keys.
    fn check(&self, path: &str) -> Result<(), SpecError> {
        let error = |key: &str, problem| Err(SpecError { key: format!("{path}.{key}"), span: None, problem });
        let missing_file = |file: &str| {
            if file.is_empty() {
                return error("file", SpecProblem::MissingKey { right: "write file = \"PATH\"".into() });
            }
            Ok(())
        };
        match self {
            WorkloadSpec::RtApp(s) => missing_file(&s.file)?,
            WorkloadSpec::Recording(s) => missing_file(&s.file)?,
            WorkloadSpec::Model(s) => missing_file(&s.file)?,
            WorkloadSpec::Mix(m) => {
                for (i, part) in m.parts.iter().enumerate() {
                    part.workload.check(&format!("{path}.parts.{i}"))?;
                    let nice = match &part.workload {
                        WorkloadSpec::Hogs(s) => s.nice.is_given(),
                        WorkloadSpec::Periodic(s) => s.nice.is_given(),
                        _ => false,
                    };
                    if let Some(sched) = part.sched.filter(|_| nice) {
                        let found = format!("\"{sched}\" beside nice");
                        let right = "one of the two; sched takes nice values, too: normal:5, batch:5".into();
                        return error(&format!("parts.{i}.{SCHED}"), SpecProblem::Value { found, right });
                    }
                }
                let files = m.parts.iter().filter(|p| matches!(p.workload, WorkloadSpec::RtApp(_))).count();
                if files > 1 {
                    let found = format!("{files} rt-app files");
                    return error("parts", SpecProblem::Value { found, right: "at most one".into() });
                }
            }
            _ => {}
        }
        let tasks = self.tasks();
        if tasks > TASKS_MAX {
            let found = format!("{tasks} tasks ({})", self.tasks_formula());
            let right = "at most 1,000,000 tasks".into();
            return error(self.tasks_key(), SpecProblem::Value { found, right });
        }
        Ok(())
    }

    /// Tasks that are known before files are read.
    fn tasks(&self) -> u64 {
        match self {
            WorkloadSpec::Hackbench(s) => s.tasks(),
            WorkloadSpec::Schbench(s) => s.tasks(),
            WorkloadSpec::Sembench(s) => s.tasks(),
            WorkloadSpec::PingPong(s) => s.tasks(),
            WorkloadSpec::Periodic(s) => s.tasks(),
            WorkloadSpec::Mmc(s) => s.tasks(),
            WorkloadSpec::LockLoop(s) => s.tasks(),
            WorkloadSpec::Hogs(s) => s.tasks(),
            WorkloadSpec::Daemons(s) => s.tasks(),
            WorkloadSpec::Uperf(s) => s.tasks(),
            WorkloadSpec::Netperf(s) => s.tasks(),
            WorkloadSpec::Tbench(s) => s.tasks(),
            WorkloadSpec::Dbench(s) => s.tasks(),
            WorkloadSpec::Oltp(s) => s.tasks(),
            WorkloadSpec::OltpDedicated(s) => s.tasks(),
            WorkloadSpec::KernelBuild(s) => s.tasks(),
            WorkloadSpec::GuestBoot(s) => s.tasks(),
            WorkloadSpec::Ebizzy(s) => s.tasks(),
            WorkloadSpec::IperfClient(s) => s.tasks(),
            WorkloadSpec::IperfServer(s) => s.tasks(),
            WorkloadSpec::RtApp(_) | WorkloadSpec::Recording(_) | WorkloadSpec::Model(_) => 0,
            WorkloadSpec::Mix(m) => m.parts.iter().map(|p| p.workload.tasks()).sum(),
        }
    }

    fn tasks_key(&self) -> &'static str {
        match self {
            WorkloadSpec::Hackbench(_) => "groups",
            WorkloadSpec::Schbench(_) => "workers",
            WorkloadSpec::Sembench(_) => "threads",
            WorkloadSpec::PingPong(_) => "pairs",
            WorkloadSpec::Uperf(_) | WorkloadSpec::Oltp(_) => "threads",
            WorkloadSpec::Netperf(_) => "instances",
            WorkloadSpec::Tbench(_) | WorkloadSpec::Dbench(_) => "clients",
            WorkloadSpec::OltpDedicated(_) => "users",
            WorkloadSpec::Mix(_) => "parts",
            _ => "tasks",
        }
    }

    fn tasks_formula(&self) -> &'static str {
        match self {
            WorkloadSpec::Hackbench(_) => "groups x fds x 2",
            WorkloadSpec::Schbench(_) => "message_threads x (1 + workers)",
            WorkloadSpec::Sembench(_) => "wakers x (1 + threads)",
            WorkloadSpec::PingPong(_) => "pairs x 2",
            WorkloadSpec::Uperf(_) | WorkloadSpec::Oltp(_) => "threads x 2",
            WorkloadSpec::Tbench(_) => "clients x 2, and 2 if start = \"forked\"",
            WorkloadSpec::Netperf(_) => "instances x 2 + 2",
            WorkloadSpec::Dbench(_) => "clients + 1",
            WorkloadSpec::OltpDedicated(_) => "users + 1",
            _ => "of all parts",
        }
    }

    /// The tasks and objects, for a machine with CPUs 0 to `nr_cpus - 1`. `read` reads the files that the spec names.
    ///
    /// # Errors
    /// A file that cannot be read or is not right; a CPU that the machine lacks.
    pub fn build(&self, nr_cpus: usize, read: ReadFile<'_>) -> Result<Workload, WorkloadError> {
        self.build_in(Groups::default(), Target { nr_cpus, speed: 0, capacity: &[] }, read).map(|(w, _)| w)
    }

    /// [`WorkloadSpec::build`] where there are groups already, on a machine of known speed; with what became of recordings.
    ///
    /// # Errors
    /// As for [`WorkloadSpec::build`].
    pub fn build_in(
        &self,
        groups: Groups,
        target: Target<'_>,
        read: ReadFile<'_>,
    ) -> Result<(Workload, Origins), WorkloadError> {
        let mut w = Workload { groups, ..Workload::default() };
        let mut origins = Origins::default();
        let WorkloadSpec::Mix(mix) = self else {
            self.add(&mut w, target, read, &mut origins)?;
            return Ok((w, origins));
        };
        // An rt-app file's objects are numbered from 0: it comes first.
        let (first, rest): (Vec<_>, Vec<_>) =
            mix.parts.iter().partition(|p| matches!(p.workload, WorkloadSpec::RtApp(_)));
        let mut horizon = None;
        let mut endless = Vec::new();
        let mut ends = false;
        for part in first.into_iter().chain(rest) {
            let from = w.tasks.len();
            w.horizon = None;
            part.workload.add(&mut w, target, read, &mut origins)?;
            if let Some(path) = &part.group {
                let group = w.groups.at(path).map_err(|right| SpecError {
                    key: format!("workload.parts.{GROUP}"),
                    span: None,
                    problem: SpecProblem::Value { found: format!("\"{path}\""), right: right.into() },
                })?;
                for task in &mut w.tasks[from..] {
                    task.group.get_or_insert(group);
                }
            }
            if part.sched.is_some() {
                w.tasks[from..].iter_mut().for_each(|t| t.sched = t.sched.or(part.sched));
            }
            if let Some(list) = &part.cpus {
                let number = mix.parts.iter().position(|p| std::ptr::eq(p, part)).unwrap_or_default();
                let affinity = list.affinity(target.nr_cpus).map_err(|last| SpecError {
                    key: format!("workload.parts.{number}.{CPUS}"),
                    span: None,
                    problem: SpecProblem::Value {
                        found: format!("\"{list}\" with CPU {last}"),
                        right: format!("CPUs of the machine, 0 to {}", target.nr_cpus - 1),
                    },
                })?;
                for task in &mut w.tasks[from..] {
                    task.affinity.get_or_insert_with(|| affinity.clone());
                }
            }
            match w.horizon {
                Some(h) => {
                    horizon = horizon.max(Some(h));
                    endless.push(from..w.tasks.len());
                }
                None => ends = true,
            }
        }
        if ends {
            endless.into_iter().flatten().for_each(|i| w.tasks[i].background = true);
            w.horizon = None;
        } else {
            w.horizon = horizon;
        }
        Ok((w, origins))
    }

    fn add(
        &self,
        w: &mut Workload,
        target: Target<'_>,
        read: ReadFile<'_>,
        origins: &mut Origins,
    ) -> Result<(), WorkloadError> {
        let Target { nr_cpus, speed, capacity } = target;
        let bytes = |file: &str| read(file).map_err(|source| WorkloadError::Read { file: file.into(), source });
        match self {
            WorkloadSpec::Hackbench(s) => s.build(w, nr_cpus),
            WorkloadSpec::Schbench(s) => s.build(w, nr_cpus),
            WorkloadSpec::Sembench(s) => s.build(w, nr_cpus),
            WorkloadSpec::PingPong(s) => s.build(w, nr_cpus),
            WorkloadSpec::Periodic(s) => s.build(w, nr_cpus),
            WorkloadSpec::Mmc(s) => s.build(w, nr_cpus),
            WorkloadSpec::LockLoop(s) => s.build(w, nr_cpus),
            WorkloadSpec::Hogs(s) => s.build(w, nr_cpus),
            WorkloadSpec::Daemons(s) => s.build(w, nr_cpus),
            WorkloadSpec::Uperf(s) => s.build(w, nr_cpus),
            WorkloadSpec::Netperf(s) => s.build(w, nr_cpus),
            WorkloadSpec::Tbench(s) => s.build(w, nr_cpus),
            WorkloadSpec::Dbench(s) => s.build(w, nr_cpus),
            WorkloadSpec::Oltp(s) => s.build(w, nr_cpus),
            WorkloadSpec::OltpDedicated(s) => s.build(w, nr_cpus),
            WorkloadSpec::KernelBuild(s) => s.build(w, nr_cpus),
            WorkloadSpec::GuestBoot(s) => s.build(w, nr_cpus),
            WorkloadSpec::Ebizzy(s) => s.build(w, nr_cpus),
            WorkloadSpec::IperfClient(s) => s.build(w, nr_cpus),
            WorkloadSpec::IperfServer(s) => s.build(w, nr_cpus),
            WorkloadSpec::RtApp(s) => {
                let text = String::from_utf8_lossy(&bytes(&s.file)?).into_owned();
                *w = crate::rtapp::parse(&text, &s.file)?.workload_in(
                    std::mem::take(&mut w.groups),
                    nr_cpus,
                    capacity,
                )?;
                Ok(())
            }
            WorkloadSpec::Recording(s) => {
                let (report, source, of_run_times) = s.build(w, speed, bytes(&s.file)?, read)?;
                origins.recordings.push(report);
                origins.sources.push(source);
                origins.rescaled.push(of_run_times);
                Ok(())
            }
            WorkloadSpec::Model(s) => {
                let (source, of_run_times) = s.build(w, speed, &bytes(&s.file)?)?;
                origins.sources.push(source);
                origins.rescaled.push(of_run_times);
                Ok(())
            }
            // Parts of a mix are not mixes.
            WorkloadSpec::Mix(_) => Ok(()),
        }
    }
}
