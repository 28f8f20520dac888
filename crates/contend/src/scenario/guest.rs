//! Virtual machines of a scenario.
//!
//! ```toml
//! [[guest]]
//! name = "vm"                   # optional
//! copies = 10                   # optional: vm0 .. vm9
//! vcpus = 16
//! policy = "linux-3.6"          # the guest's kernel: a preset; POLICY_DEFAULT if left out
//! topology = "1n16l1c1t"        # what the guest is shown; one socket a vCPU if left out
//! pin = "none"                  # or "1:1": vCPU i on CPU i, the next guest on the CPUs after those
//! group = "/vms"                # optional: the host's group that its vCPUs are in; copies are in groups within it: /vms/vm0
//! hz = 250                      # optional: its tick; the host's if left out
//! background = false            # the run does not wait for its end
//! set = { spinlock = "ticket" }  # features of its kernel
//! [guest.workload]
//! kind = "dbench"
//! ```
//!
//! `guest.KEY` in `[set]` is a feature of every guest's kernel and stronger than the guest's own `set`; on the command
//! line it may be a key of these tables as well (`guest.vcpus`, `guest.workload.clients`). On a Xen host a guest is a domain,
//! and has more keys ([`super::xen`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use contend_machine::{HZ_MAX, HZ_MIN, Machine, Topology};
use contend_platform::CpuId;
use contend_sched::features::{Features, Preset};
use contend_sched::switches::FeatureError;
use contend_sim::guest::Memory;
use contend_sim::program::Groups;
use contend_workload::{SpecProblem, WorkloadSpec};
use fixedbitset::FixedBitSet;
use toml::Spanned;
use toml::de::DeValue;

use super::resolved::{differ, plain};
use super::source::{Source, found};
use super::xen::domain::{self, DomainKeys};
use super::xen::{GuestDomain, XenPlan};
use super::{Given, POLICY_DEFAULT, Result, Scenario, preset, recording, set_at, workload_error};
use crate::error::{At, ScenarioError};
use crate::names::did_you_mean;

/// Most vCPUs of a guest, and of all guests: the most CPUs that can be simulated.
pub const VCPUS_MAX: u64 = CpuId::MAX_CPUS as u64;
/// Longest name of a guest.
const NAME_MAX: usize = 32;
const NAME_DEFAULT: &str = "vm";

const KEYS: &[&str] =
    &["name", "copies", "vcpus", "policy", "topology", "pin", "group", "hz", "background", "set", "workload"];

/// Is `guest.KEY` a key of the tables, not a feature of the guests' kernels?
pub(super) fn is_key(key: &str) -> bool {
    KEYS.contains(&key) || domain::KEYS.contains(&key) || key.starts_with("workload.") || key.starts_with("set.")
}

/// Which physical CPUs vCPUs may run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pin {
    /// All.
    #[default]
    None,
    /// One: the vCPUs of all guests are dealt to CPUs 0, 1, ... and again from 0.
    OneToOne,
}

impl Pin {
    const RIGHT: &str = "\"none\" or \"1:1\"";

    fn parse(text: &str) -> Option<Pin> {
        match text {
            "none" => Some(Pin::None),
            "1:1" => Some(Pin::OneToOne),
            _ => None,
        }
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Pin::None => "none",
            Pin::OneToOne => "1:1",
        }
    }
}

/// A table `[[guest]]`, as it was asked for.
#[derive(Clone, Debug)]
pub(super) struct GuestTable {
    at: At,
    name: Given<String>,
    copies: Option<Given<u64>>,
    vcpus: Option<Given<u64>>,
    policy: Option<Given<String>>,
    topology: Option<Given<String>>,
    pin: Option<Given<Pin>>,
    group: Option<Given<String>>,
    hz: Option<Given<u32>>,
    background: bool,
    set: BTreeMap<String, Given<String>>,
    workload: Option<WorkloadSpec>,
    /// Keys of domains.
    pub domain: DomainKeys,
}

/// A guest with everything looked up.
#[derive(Clone, Debug)]
pub struct GuestPlan {
    /// Name; that of a copy has its number behind it.
    pub name: String,
    /// How many such machines, if the scenario says so.
    pub copies: Option<u64>,
    /// The topology's specification.
    pub shape: String,
    /// What the guest is shown; its CPUs are the vCPUs.
    pub topology: Topology,
    /// Its kernel, before changes.
    pub preset: Preset,
    /// Its kernel's features.
    pub features: Features,
    /// Its tick in Hz.
    pub hz: u32,
    /// Where its vCPUs run.
    pub pin: Pin,
    /// The path of the host's group that its vCPUs are in, or that the groups of its copies are in.
    pub group: Option<String>,
    /// The run does not wait for its end.
    pub background: bool,
    /// What runs in it.
    pub workload: WorkloadSpec,
    /// Where its memory lies.
    pub memory: Option<Memory>,
    /// What it is on a Xen host.
    pub domain: Option<GuestDomain>,
    at: At,
}

/// The key with `guest.` before it; without line numbers the message counts the tables.
fn key_of(source: &Source<'_>, index: usize, key: &str) -> String {
    match (source.lines, key) {
        (true, "") => "guest".into(),
        (true, key) => format!("guest.{key}"),
        (false, "") => format!("guest.{index}"),
        (false, key) => format!("guest.{index}.{key}"),
    }
}

impl GuestTable {
    /// From a table of the scenario's text.
    pub fn read(source: &Source<'_>, value: &Spanned<DeValue<'_>>, index: usize) -> Result<Self> {
        let key_of = |key: &str| key_of(source, index, key);
        let DeValue::Table(table) = value.get_ref() else {
            return source.wrong(value, &key_of(""), "a table with vcpus = N and [guest.workload]");
        };
        let known = || KEYS.iter().chain(domain::KEYS).copied();
        let first = table.keys().filter(|k| !known().any(|n| n == k.get_ref().as_ref())).min_by_key(|k| k.span().start);
        if let Some(key) = first {
            let name = key.get_ref().as_ref();
            let all = format!("keys of a guest are {}", known().collect::<Vec<_>>().join(", "));
            let right = did_you_mean(name, known(), all);
            return Err(ScenarioError::UnknownKey { at: source.at(key, &key_of(name)), right });
        }
        let at = |key: &str| source.at(value, &key_of(key));
        let mut guest = GuestTable {
            at: at(""),
            name: Given { at: at("name"), value: NAME_DEFAULT.into() },
            copies: None,
            vcpus: None,
            policy: None,
            topology: None,
            pin: None,
            group: None,
            hz: None,
            background: false,
            set: BTreeMap::new(),
            workload: None,
            domain: DomainKeys::default(),
        };
        // In the order of the file: the first error is the topmost.
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(k, _)| k.span().start);
        for (key, v) in entries {
            let name = key.get_ref().as_ref();
            let at = source.at(v, &key_of(name));
            match (name, v.get_ref()) {
                ("set", DeValue::Table(features)) => {
                    source.sets(features, &key_of("set"), "", &mut guest.set)?;
                }
                ("workload", _) => {
                    let spec = WorkloadSpec::from_toml(v).map_err(|mut e| {
                        e.key = e.key.replacen("workload", &key_of("workload"), 1);
                        workload_error(e, At { key: String::new(), ..at }, |span| source.line(span.start))
                    })?;
                    guest.workload = Some(spec);
                }
                ("set", _) => {
                    return source.wrong(v, &at.key, "a table of features, such as { spinlock = \"ticket\" }");
                }
                (_, DeValue::String(s)) if is_word(name) => guest.put(name, s, found(v.get_ref()), at)?,
                (_, DeValue::Integer(i)) if is_number(name) && i.radix() == 10 => {
                    guest.put(name, i.as_str(), found(v.get_ref()), at)?;
                }
                ("background", DeValue::Boolean(b)) => guest.background = *b,
                _ if guest.domain.read(source, name, v, &at)? => {}
                _ => return source.wrong(v, &at.key, right_of(name)),
            }
        }
        Ok(guest)
    }

    /// `--set guest.KEY=VALUE` for a key of the table.
    pub fn set(&mut self, key: &str, value: &str, given: &At) -> Result<()> {
        if let Some(rest) = key.strip_prefix("workload.") {
            // Without one the plan says that it is missing.
            let Some(workload) = &mut self.workload else { return Ok(()) };
            return workload.set(rest, value).map_err(|mut e| {
                e.key = format!("guest.{}", e.key);
                workload_error(e, given.clone(), |_| 0)
            });
        }
        let at = At { key: format!("guest.{key}"), ..given.clone() };
        if matches!(key, "name" | "set" | "workload") || key.starts_with("set.") {
            let right = "guest.FEATURE, guest.workload.KEY, or a key of the guest but its name".into();
            return Err(ScenarioError::UnknownKey { at, right });
        }
        self.put(key, value, value.into(), at)
    }

    /// A word, number or truth value.
    fn put(&mut self, key: &str, text: &str, found: String, at: At) -> Result<()> {
        let number = |min: u64, max: u64| text.replace('_', "").parse().ok().filter(|n| (min..=max).contains(n));
        let word = || Given { at: at.clone(), value: text.to_string() };
        let count = |n| Given { at: at.clone(), value: n };
        let done = match key {
            "name" => {
                let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                let good = (1..=NAME_MAX).contains(&text.len()) && text.chars().all(fine);
                good.then(|| self.name = word())
            }
            "copies" => number(1, VCPUS_MAX).map(|n| self.copies = Some(count(n))),
            "vcpus" => number(1, VCPUS_MAX).map(|n| self.vcpus = Some(count(n))),
            "pin" => Pin::parse(text).map(|value| self.pin = Some(Given { at: at.clone(), value })),
            "hz" => {
                number(HZ_MIN.into(), HZ_MAX.into()).map(|n| self.hz = Some(Given { at: at.clone(), value: n as u32 }))
            }
            "background" => text.parse().ok().map(|b| self.background = b),
            "group" => Groups::default().at(text).ok().map(|_| self.group = Some(word())),
            // What a policy and a topology may be is looked at with everything else.
            "policy" => {
                self.policy = Some(word());
                Some(())
            }
            "topology" => {
                self.topology = Some(word());
                Some(())
            }
            _ => self.domain.put(key, text, &at).then_some(()),
        };
        done.ok_or_else(|| ScenarioError::Value { at, found, right: right_of(key).into() })
    }

    /// The specification of the topology, and the topology.
    fn topology(&self) -> Result<(String, Topology)> {
        let Some(vcpus) = &self.vcpus else {
            let Some(shape) = &self.topology else {
                let at = At { key: format!("{}.vcpus", self.at.key), ..self.at.clone() };
                let right = "write vcpus = N".into();
                return Err(ScenarioError::MissingKey { at, right });
            };
            return Ok((shape.value.clone(), synthetic(shape)?));
        };
        // A socket is a last-level cache; without NUMA all sockets are one node.
        let sockets = format!("1n{}l1c1t", vcpus.value);
        let Some(shape) = &self.topology else {
            let own = Given { at: vcpus.at.clone(), value: sockets };
            let topology = synthetic(&own)?;
            return Ok((own.value, topology));
        };
        let topology = synthetic(shape)?;
        let cpus = topology.nr_cpus();
        if cpus as u64 != vcpus.value {
            let found = format!("\"{}\", {cpus} CPUs, with vcpus = {}", shape.value, vcpus.value);
            let right = format!("of {} CPUs, such as {sockets}; or one of the two left out", vcpus.value);
            return Err(ScenarioError::Value { at: shape.at.clone(), found, right });
        }
        Ok((shape.value.clone(), topology))
    }

    /// Everything looked up; `all` are features of every guest's kernel.
    fn plan(&self, all: &BTreeMap<&str, &Given<String>>, on: &Host<'_>) -> Result<GuestPlan> {
        if on.xen.is_some() {
            self.check_of_xen()?;
        }
        let (shape, topology) = self.topology()?;
        let preset = match &self.policy {
            Some(given) => preset(given)?,
            None => Preset::find(POLICY_DEFAULT).expect("it ships"),
        };
        let mut features = preset.features.clone();
        for (key, given) in &self.set {
            let refused = |e| ScenarioError::Feature { at: set_at(&given.at), source: Box::new(e) };
            features.set(key, &given.value).map_err(refused)?;
        }
        for (key, given) in all {
            features.set(key, &given.value).map_err(|e| prefixed(e, "guest", &given.at))?;
        }
        features.validate().map_err(|e| match (all.get(e.key.as_str()), self.set.get(&e.key)) {
            (Some(given), _) => prefixed(e, "guest", &given.at),
            (None, given) => {
                let at = given.map_or(&self.at, |g| &g.at);
                ScenarioError::Feature { at: set_at(at), source: Box::new(e) }
            }
        })?;
        let Some(workload) = &self.workload else {
            let at = At { key: format!("{}.workload", self.at.key), ..self.at.clone() };
            let right = "write a table [guest.workload] below it, with kind = \"...\"; `contend list workloads` lists \
                         them"
                .into();
            return Err(ScenarioError::MissingKey { at, right });
        };
        let vcpus = topology.nr_cpus();
        let domain = on.xen.map(|xen| self.domain.plan(xen, on.topo, vcpus, &self.at)).transpose()?;
        Ok(GuestPlan {
            name: self.name.value.clone(),
            copies: self.copies.as_ref().map(|c| c.value),
            shape,
            topology,
            preset,
            features,
            hz: self.hz.as_ref().map_or(on.hz, |hz| hz.value),
            pin: self.pin.as_ref().map_or(Pin::None, |pin| pin.value),
            group: self.group.as_ref().map(|group| group.value.clone()),
            background: self.background,
            workload: recording::resolved(workload.clone(), on.base)?,
            memory: self.domain.memory(on.topo, &self.at)?,
            domain,
            at: self.at.clone(),
        })
    }

    /// What a domain cannot have.
    fn check_of_xen(&self) -> Result<()> {
        let refuse = |at: &At, found: String, right: &str| {
            Err(ScenarioError::Value { at: at.clone(), found, right: right.into() })
        };
        if let Some(pin) = &self.pin {
            let right = "left out: on a Xen host cpus says where vCPUs run, a list has one set for each";
            return refuse(&pin.at, format!("\"{}\"", pin.value.name()), right);
        }
        if self.domain.kernel() {
            return Ok(());
        }
        let right = "left out: kernel = false, and this is a guest kernel's";
        let words = [&self.policy, &self.topology].into_iter().flatten();
        if let Some(given) = words.chain(self.set.values()).next() {
            return refuse(&given.at, given.value.clone(), right);
        }
        self.hz.as_ref().map_or(Ok(()), |hz| refuse(&hz.at, hz.value.to_string(), right))
    }
}

/// What guests must know of their host.
pub(super) struct Host<'a> {
    /// Ticks a second.
    pub hz: u32,
    pub topo: &'a Topology,
    pub xen: Option<&'a XenPlan>,
    /// What the scenario's paths are relative to.
    pub base: &'a Path,
}

/// Keys with a word as their value.
fn is_word(key: &str) -> bool {
    matches!(key, "name" | "policy" | "topology" | "pin" | "group" | "cpus" | "cpus_soft" | "pool")
}

/// Keys with a number as their value.
fn is_number(key: &str) -> bool {
    matches!(key, "copies" | "vcpus" | "hz") || domain::is_number(key)
}

/// What may stand behind a key.
fn right_of(key: &str) -> &'static str {
    const _: () = assert!(VCPUS_MAX == 4096 && HZ_MIN == 24 && HZ_MAX == 10_000 && NAME_MAX == 32);
    match key {
        "name" => "1 to 32 of the letters a to z and A to Z, digits, - _ .",
        "copies" | "vcpus" => "a whole number from 1 to 4096",
        "policy" => "the name of a preset; `contend list presets` lists them",
        "topology" => "a shape such as 2n1l4c2t, in quotes",
        "pin" => Pin::RIGHT,
        "group" => Groups::PATH,
        "hz" => "a whole number from 24 to 10000",
        _ => domain::right_of(key),
    }
}

fn synthetic(shape: &Given<String>) -> Result<Topology> {
    let wrong = |source| ScenarioError::Machine { at: shape.at.clone(), source: Box::new(source) };
    Machine::synthetic(&shape.value).map(|m| m.topology).map_err(wrong)
}

/// A switch's error, with the section before the switch's name.
pub(super) fn prefixed(mut e: FeatureError, section: &str, given: &At) -> ScenarioError {
    e.key = format!("{section}.{}", e.key);
    if section == "kvm" {
        e.expected = e.expected.replace("list features", "list kvm");
    }
    ScenarioError::Feature { at: set_at(given), source: Box::new(e) }
}

/// All guests of a scenario.
pub(super) fn plan(scenario: &Scenario, on: &Host<'_>) -> Result<Vec<GuestPlan>> {
    let all: BTreeMap<&str, &Given<String>> =
        scenario.set.iter().filter_map(|(key, given)| Some((key.strip_prefix("guest.")?, given))).collect();
    let mut names = BTreeSet::new();
    let mut vcpus = 0;
    let mut plans = Vec::new();
    for table in &scenario.guests {
        let plan = table.plan(&all, on)?;
        vcpus += plan.vcpus() as u64 * plan.copies.unwrap_or(1);
        if vcpus > VCPUS_MAX {
            let given = table.copies.as_ref().or(table.vcpus.as_ref());
            let at = given.map_or(&table.at, |g| &g.at).clone();
            let found = format!("{vcpus} vCPUs in all guests so far");
            return Err(ScenarioError::Value { at, found, right: format!("at most {VCPUS_MAX}") });
        }
        for name in plan.names() {
            if let Some(name) = names.replace(name) {
                let found = format!("\"{name}\" a second time");
                let right = "a name of its own for each guest".into();
                return Err(ScenarioError::Value { at: table.name.at.clone(), found, right });
            }
        }
        plans.push(plan);
    }
    if scenario.workload.is_none()
        && let Some(first) = plans.first().filter(|_| plans.iter().all(|g| g.background))
    {
        let at = At { key: format!("{}.background", first.at.key), ..first.at.clone() };
        let right = "false for a guest at least: the run would end as it begins".into();
        return Err(ScenarioError::Value { at, found: "true for all guests".into(), right });
    }
    Ok(plans)
}

/// `--set guest.KEY=VALUE` for a key of the tables. One of a workload is for those whose workload has it.
pub(super) fn set_all(guests: &mut [GuestTable], key: &str, value: &str, at: &At) -> Result<()> {
    let (mut known, mut unknown) = (guests.is_empty(), None);
    for guest in guests {
        match guest.set(key, value, at) {
            Ok(()) => known = true,
            Err(ScenarioError::WorkloadKey { at, source })
                if matches!(source.problem, SpecProblem::UnknownKey { .. }) =>
            {
                unknown.get_or_insert(ScenarioError::WorkloadKey { at, source });
            }
            Err(e) => return Err(e),
        }
    }
    unknown.filter(|_| !known).map_or(Ok(()), Err)
}

impl GuestPlan {
    /// vCPUs of one such machine.
    pub fn vcpus(&self) -> usize {
        self.topology.nr_cpus()
    }

    /// The names of the machines: with a number behind if `copies` is given, be it 1.
    pub fn names(&self) -> Vec<String> {
        match self.copies {
            None => vec![self.name.clone()],
            Some(n) => (0..n).map(|i| format!("{}{i}", self.name)).collect(),
        }
    }

    /// The group of each of the machines: copies have one each, within the one that is named.
    pub fn groups(&self) -> Vec<String> {
        let Some(group) = &self.group else { return Vec::new() };
        match self.copies {
            None => vec![group.clone()],
            Some(_) => self.names().iter().map(|name| format!("{}/{name}", group.trim_end_matches('/'))).collect(),
        }
    }

    /// Features that differ from the preset's.
    pub fn features_set(&self) -> Vec<(&'static str, String)> {
        differ(self.features.list(), self.preset.features.list())
    }

    /// The physical CPUs of each vCPU on a machine of `cpus`, where guests before this one have `offset` vCPUs.
    pub(crate) fn pins(&self, offset: usize, cpus: usize) -> Vec<FixedBitSet> {
        let one = |vcpu: usize| {
            let mut set = FixedBitSet::with_capacity(cpus);
            set.insert((offset + vcpu) % cpus);
            set
        };
        match self.pin {
            Pin::None => Vec::new(),
            Pin::OneToOne => (0..self.vcpus()).map(one).collect(),
        }
    }

    /// What a workload that a guest cannot run is refused with.
    pub(crate) fn refused(&self, found: &str, right: &str) -> ScenarioError {
        let at = At { key: format!("{}.workload", self.at.key), ..self.at.clone() };
        ScenarioError::Value { at, found: found.into(), right: right.into() }
    }

    /// Where a key of it would stand.
    pub(super) fn key_at(&self, key: &str) -> At {
        At { key: format!("{}.{key}", self.at.key), ..self.at.clone() }
    }

    /// The table, all choices written out.
    pub(super) fn to_toml(&self, workload: toml::Value, xen: Option<&XenPlan>) -> toml::Table {
        let mut table = toml::Table::new();
        let mut put = |key: &str, value: toml::Value| table.insert(key.into(), value);
        put("name", self.name.as_str().into());
        if let Some(n) = self.copies {
            put("copies", (n as i64).into());
        }
        put("vcpus", (self.vcpus() as i64).into());
        put("background", self.background.into());
        if self.domain.as_ref().is_none_or(|d| d.kernel) {
            put("policy", self.preset.name.into());
            put("topology", self.shape.as_str().into());
            put("hz", i64::from(self.hz).into());
            let set: toml::Table = self.features_set().into_iter().map(|(key, v)| (key.into(), plain(&v))).collect();
            if !set.is_empty() {
                put("set", toml::Value::Table(set));
            }
        }
        if let Some(group) = &self.group {
            put("group", group.as_str().into());
        }
        if let Some(memory) = self.memory {
            put("memory_node", (memory.node as i64).into());
            put("memory_stall_pct", i64::from(memory.stall_pct).into());
        }
        match (&self.domain, xen) {
            (Some(domain), Some(xen)) => domain.put_toml(xen, &mut put),
            _ => drop(put("pin", self.pin.name().into())),
        }
        put("workload", workload);
        table
    }
}
