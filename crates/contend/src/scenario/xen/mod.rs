//! Xen hosts of a scenario.
//!
//! ```toml
//! [xen]                          # the host is Xen's, its guests are domains
//! scheduler = "credit2"          # credit, credit2, round-robin
//! preset = "base"                # base, patched, upstream-today
//! patches = "1-7"                # optional, in place of the preset's: none, all, numbers and ranges
//!
//! [[xen.pool]]                   # optional: cpupools; one of all pCPUs, Pool-0, if left out
//! name = "Pool-0"
//! cpus = "0-7"                   # also "node:0", "all"
//! ratelimit_us = 1000            # optional; tslice_ms as well
//!
//! [set]
//! "xen.credit2_runqueue" = "socket"  # any switch of Xen's; also xen.scheduler, xen.preset, xen.patches
//!
//! [[guest]]
//! name = "vm1"                   # dom0 or Domain-0 is domain 0, the others are 1, 2, ... in order
//! vcpus = 8
//! weight = 256
//! cap = 0
//! cpus = "all"                   # hard affinity; a list has one for each vCPU
//! cpus_soft = "node:0"
//! pool = "Pool-0"
//! kernel = true                  # false: the workload's tasks run one a vCPU, without a kernel
//!
//! [[at]]                         # a change at a virtual time
//! s = 2
//! xl = "sched-credit2 -d vm1 -w 512"
//! ```

pub mod cpus;
pub mod domain;
mod state;
mod xl;

use std::collections::BTreeMap;

use contend_machine::Topology;
use contend_platform::Time;
use contend_sched::switches::{FeatureError, Value};
use contend_sched::xen::contract::Tunables;
use contend_sched::xen::features::{PATCHES, Scheduler, XenFeatures};
use contend_sched::xen::mask::{CpuMask, PCPUS_MAX};
use contend_sim::xen::{Change, What};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::guest::GuestPlan;
use super::resolved::differ;
use super::source::Source;
use super::{Given, Result, Scenario};
use crate::error::{At, ScenarioError};
use crate::names::did_you_mean;
pub use domain::GuestDomain;

/// Scheduler of a host that names none: Xen's default since 4.12.
const SCHEDULER_DEFAULT: Scheduler = Scheduler::Credit2;
const PRESET_DEFAULT: &str = "base";
const POOL_DEFAULT: &str = "Pool-0";
const KEYS: &[&str] = &["scheduler", "preset", "patches", "pool"];
const POOL_KEYS: &[&str] = &["name", "cpus", "ratelimit_us", "tslice_ms"];
const AT_KEYS: &[&str] = &["s", "xl"];
/// Longest name of a cpupool.
const NAME_MAX: usize = 32;

/// The table `[xen]`, as it was asked for.
#[derive(Clone, Debug)]
pub(super) struct XenTable {
    at: At,
    words: BTreeMap<&'static str, Given<String>>,
    pools: Vec<PoolTable>,
}

#[derive(Clone, Debug)]
struct PoolTable {
    at: At,
    name: Option<Given<String>>,
    cpus: Option<Given<String>>,
    ratelimit_us: Option<Given<u64>>,
    tslice_ms: Option<Given<u64>>,
}

/// A table `[[at]]`.
#[derive(Clone, Debug)]
pub(super) struct AtTable {
    at: Time,
    xl: Given<String>,
}

/// A Xen host with everything looked up.
#[derive(Clone, Debug)]
pub struct XenPlan {
    /// Its scheduler.
    pub scheduler: Scheduler,
    /// Where its switches start from.
    pub preset: &'static str,
    /// Its switches.
    pub features: XenFeatures,
    /// cpupools; together they hold each pCPU once.
    pub pools: Vec<PoolPlan>,
    /// Domains: the guests with their copies, in order.
    pub domains: Vec<Domain>,
    /// What changes while it runs, in the order of time.
    timeline: Vec<Event>,
}

/// A cpupool.
#[derive(Clone, Debug)]
pub struct PoolPlan {
    /// Name.
    pub name: String,
    /// Its pCPUs.
    pub cpus: CpuMask,
    /// Its parameters at the start.
    pub tunables: Tunables,
}

/// A domain.
#[derive(Clone, Debug)]
pub struct Domain {
    /// Its number.
    pub dom: u16,
    /// Its name.
    pub name: String,
    /// Index of its guest in the plan.
    pub guest: usize,
}

/// A change.
#[derive(Clone, Debug)]
struct Event {
    at: Time,
    text: String,
    command: xl::Command,
    what: Vec<What>,
}

/// An error of a key in `table`, whose keys are `known`.
fn known_keys(source: &Source<'_>, table: &DeTable<'_>, known: &[&str], section: &str) -> Result<()> {
    let first = table.keys().filter(|k| !known.contains(&k.get_ref().as_ref())).min_by_key(|k| k.span().start);
    let Some(key) = first else { return Ok(()) };
    let name = key.get_ref().as_ref();
    let all = format!("keys of {section} are {}", known.join(", "));
    let right = did_you_mean(name, known.iter().copied(), all);
    Err(ScenarioError::UnknownKey { at: source.at(key, &format!("{section}.{name}")), right })
}

impl XenTable {
    /// From the scenario's text.
    pub fn read(source: &Source<'_>, value: &Spanned<DeValue<'_>>) -> Result<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            return source.wrong(value, "xen", "a table [xen] with scheduler = \"...\"");
        };
        known_keys(source, table, KEYS, "xen")?;
        let mut xen = XenTable { at: source.at(value, "xen"), words: BTreeMap::new(), pools: Vec::new() };
        for key in ["scheduler", "preset", "patches"] {
            if let Some(v) = table.get(key) {
                let given = match (key, v.get_ref()) {
                    // One patch.
                    ("patches", DeValue::Integer(i)) => {
                        Given { at: source.at(v, "xen.patches"), value: i.as_str().into() }
                    }
                    _ => source.string(v, &format!("xen.{key}"), right_of(key))?,
                };
                xen.words.insert(key, given);
            }
        }
        if let Some(v) = table.get("pool") {
            let right = "tables [[xen.pool]], with two brackets on each side";
            let DeValue::Array(pools) = v.get_ref() else { return source.wrong(v, "xen.pool", right) };
            xen.pools = pools.iter().map(|v| PoolTable::read(source, v)).collect::<Result<_>>()?;
        }
        Ok(xen)
    }
}

/// What may stand behind a word of `[xen]`.
fn right_of(key: &str) -> &'static str {
    match key {
        "scheduler" => "\"credit\", \"credit2\" or \"round-robin\"",
        "preset" => "\"base\", \"patched\" or \"upstream-today\"",
        _ => "\"none\", \"all\", or numbers from 1 to 24 such as \"1-7\" or \"2,16-18\"",
    }
}

impl PoolTable {
    fn read(source: &Source<'_>, value: &Spanned<DeValue<'_>>) -> Result<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            return source.wrong(value, "xen.pool", "a table with name and cpus");
        };
        known_keys(source, table, POOL_KEYS, "xen.pool")?;
        let number = |key: &str| -> Result<Option<Given<u64>>> {
            let Some(v) = table.get(key) else { return Ok(None) };
            let name = format!("xen.pool.{key}");
            let value = source.integer(v, &name, 1_000_000)?;
            Ok(Some(Given { at: source.at(v, &name), value }))
        };
        let word = |key: &str, right: &str| {
            table.get(key).map(|v| source.string(v, &format!("xen.pool.{key}"), right)).transpose()
        };
        Ok(PoolTable {
            at: source.at(value, "xen.pool"),
            name: word("name", "a name")?,
            cpus: word("cpus", cpus::RIGHT)?,
            ratelimit_us: number("ratelimit_us")?,
            tslice_ms: number("tslice_ms")?,
        })
    }
}

impl AtTable {
    /// From the scenario's text.
    pub fn read(source: &Source<'_>, value: &Spanned<DeValue<'_>>) -> Result<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            return source.wrong(value, "at", "a table with s = SECONDS and xl = \"COMMAND\"");
        };
        known_keys(source, table, AT_KEYS, "at")?;
        let missing = |key: &str, right: &str| {
            let at = source.at(value, &format!("at.{key}"));
            Err(ScenarioError::MissingKey { at, right: right.into() })
        };
        let Some(s) = table.get("s") else { return missing("s", "write s = SECONDS, when it happens") };
        let Some(xl) = table.get("xl") else {
            return missing("xl", "write xl = \"sched-credit2 -d DOMAIN -w WEIGHT\", sched-credit or vcpu-pin");
        };
        Ok(AtTable { at: source.seconds(s, "at.s")?, xl: source.string(xl, "at.xl", "an xl command")? })
    }
}

/// A switch's error under its name in scenarios.
fn refused(mut e: FeatureError, given: &At) -> ScenarioError {
    e.key = format!("xen.{}", e.key);
    e.expected = e.expected.replace("list features", "list xen");
    ScenarioError::Feature { at: super::set_at(given), source: Box::new(e) }
}

/// The host of a scenario, on a machine with this topology; domains and timeline are still to come.
pub(super) fn host(scenario: &Scenario, topo: &Topology, machine: &Given<String>) -> Result<Option<XenPlan>> {
    let set = |key: &str| scenario.set.get(&format!("xen.{key}"));
    let Some(table) = &scenario.xen else {
        let given = scenario.set.iter().find(|(key, _)| key.starts_with("xen."));
        if let Some((key, given)) = given {
            return Err(no_xen(&At { key: key.clone(), ..given.at.clone() }, &given.value));
        }
        return match (scenario.timeline.first(), scenario.guests.iter().find_map(|g| g.domain.first())) {
            (Some(at), _) => Err(no_xen(&at.xl.at, &format!("\"{}\"", at.xl.value))),
            (None, Some(at)) => Err(no_xen(at, "it")),
            (None, None) => Ok(None),
        };
    };
    let word = |key: &str| {
        let given = set(key).map(|g| Given { at: At { key: format!("xen.{key}"), ..g.at.clone() }, ..g.clone() });
        given.or_else(|| table.words.get(key).cloned())
    };
    let wrong = |given: &Given<String>, key: &str| ScenarioError::Value {
        at: given.at.clone(),
        found: format!("\"{}\"", given.value),
        right: right_of(key).into(),
    };
    let scheduler = match word("scheduler") {
        Some(given) => Scheduler::parse(&given.value).ok_or_else(|| wrong(&given, "scheduler"))?,
        None => SCHEDULER_DEFAULT,
    };
    let preset = match word("preset") {
        Some(given) => {
            *(XenFeatures::PRESETS.iter().find(|p| **p == given.value)).ok_or_else(|| wrong(&given, "preset"))?
        }
        None => PRESET_DEFAULT,
    };
    let mut features = XenFeatures::preset(preset).expect("its name is known");
    let mut last = table.at.clone();
    if let Some(given) = word("patches") {
        features.set_patches(&given.value).map_err(|_| wrong(&given, "patches"))?;
        last = given.at;
    }
    for (key, given) in &scenario.set {
        let Some(switch) = key.strip_prefix("xen.").filter(|k| !matches!(*k, "scheduler" | "preset" | "patches"))
        else {
            continue;
        };
        features.set(switch, &given.value).map_err(|e| refused(e, &given.at))?;
    }
    features.check().map_err(|e| {
        // A patch is there by its set, and the one that it needs was switched off.
        let off = || PATCHES.iter().filter(|p| e.expected.contains(*p)).find_map(|p| set(p));
        let at = set(&e.key).or_else(off).map_or(&last, |g| &g.at);
        refused(e, at)
    })?;
    if topo.nr_cpus() > PCPUS_MAX {
        let found = format!("\"{}\", {} CPUs", machine.value, topo.nr_cpus());
        let right = format!("a machine of at most {PCPUS_MAX} CPUs: Xen hosts here have no more");
        let at = At { key: "machine".into(), ..machine.at.clone() };
        return Err(ScenarioError::Value { at, found, right });
    }
    let given = set("ratelimit_us").or(set("tslice_ms")).map_or(&last, |g| &g.at);
    let pools = pools(table, topo, (scheduler, &features), given)?;
    Ok(Some(XenPlan { scheduler, preset, features, pools, domains: Vec::new(), timeline: Vec::new() }))
}

/// Something of Xen's in a scenario without Xen.
fn no_xen(at: &At, found: &str) -> ScenarioError {
    let right = "left out, or the host made a Xen host by a table [xen] with scheduler = \"...\"".into();
    ScenarioError::Value { at: at.clone(), found: found.into(), right }
}

fn pools(
    table: &XenTable,
    topo: &Topology,
    (scheduler, features): (Scheduler, &XenFeatures),
    last: &At,
) -> Result<Vec<PoolPlan>> {
    let default = Tunables { ratelimit: features.ratelimit_us * 1_000, tslice: features.tslice_ms * 1_000_000 };
    let all = CpuMask::first_n(topo.nr_cpus());
    // Credit2 has no time slice.
    let longer = |t: &Tunables| scheduler == Scheduler::Credit && t.ratelimit > t.tslice;
    if longer(&default) {
        let expected = format!("should be no longer than the time slice, tslice_ms = {}", features.tslice_ms);
        let key = "ratelimit_us".to_string();
        return Err(refused(FeatureError { key, value: features.ratelimit_us.show(), expected }, last));
    }
    if table.pools.is_empty() {
        return Ok(vec![PoolPlan { name: POOL_DEFAULT.into(), cpus: all, tunables: default }]);
    }
    let mut plans: Vec<PoolPlan> = Vec::new();
    let mut taken = CpuMask::NONE;
    for (index, pool) in table.pools.iter().enumerate() {
        let wrong = |at: &At, found: String, right: String| ScenarioError::Value { at: at.clone(), found, right };
        let name = match &pool.name {
            None if index == 0 => POOL_DEFAULT.to_string(),
            None => {
                let at = At { key: "xen.pool.name".into(), ..pool.at.clone() };
                return Err(ScenarioError::MissingKey { at, right: "write name = \"...\"".into() });
            }
            Some(given) => {
                let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                let good = (1..=NAME_MAX).contains(&given.value.len()) && given.value.chars().all(fine);
                if !good || given.value.bytes().all(|b| b.is_ascii_digit()) {
                    let right = "1 to 32 of the letters a to z and A to Z, digits, - _ ., and not a number".into();
                    return Err(wrong(&given.at, format!("\"{}\"", given.value), right));
                }
                if plans.iter().any(|p| p.name == given.value) {
                    let right = "a name of its own for each cpupool".into();
                    return Err(wrong(&given.at, format!("\"{}\" a second time", given.value), right));
                }
                given.value.clone()
            }
        };
        let cpus = match &pool.cpus {
            None => all,
            Some(given) => cpus::parse(&given.value, topo)
                .map_err(|right| wrong(&given.at, format!("\"{}\"", given.value), right))?,
        };
        let at = pool.cpus.as_ref().map_or(&pool.at, |g| &g.at);
        let both = cpus & taken;
        if !both.is_empty() {
            let right = "pCPUs of no other cpupool".into();
            return Err(wrong(at, format!("\"{cpus:?}\", of which {both:?} are in a cpupool above"), right));
        }
        taken = taken | cpus;
        let mut tunables = default;
        if let Some(given) = &pool.tslice_ms {
            if !(1..=1000).contains(&given.value) {
                return Err(wrong(&given.at, given.value.to_string(), "from 1 to 1000 ms".into()));
            }
            if scheduler != Scheduler::Credit && given.value != features.tslice_ms {
                let right = format!("left out: only Credit1 has a time slice, and this host's is {}", scheduler.show());
                return Err(wrong(&given.at, given.value.to_string(), right));
            }
            tunables.tslice = given.value * 1_000_000;
        }
        if let Some(given) = &pool.ratelimit_us {
            if given.value != 0 && !(100..=500_000).contains(&given.value) {
                return Err(wrong(&given.at, given.value.to_string(), "0 (off), or from 100 to 500000 us".into()));
            }
            tunables.ratelimit = given.value * 1_000;
        }
        if longer(&tunables) {
            let at = pool.ratelimit_us.as_ref().or(pool.tslice_ms.as_ref()).map_or(&pool.at, |g| &g.at);
            let (r, t) = (tunables.ratelimit / 1_000, tunables.tslice / 1_000_000);
            let found = format!("a rate limit of {r} us with a time slice of {t} ms");
            return Err(wrong(at, found, "no longer than the time slice".into()));
        }
        plans.push(PoolPlan { name, cpus, tunables });
    }
    let left = all - taken;
    if !left.is_empty() {
        let last = table.pools.last().expect("not empty");
        let at = last.cpus.as_ref().map_or(&last.at, |g| &g.at).clone();
        let found = format!("cpupools without pCPUs {left:?}");
        return Err(ScenarioError::Value { at, found, right: "each pCPU in a cpupool".into() });
    }
    Ok(plans)
}

impl XenPlan {
    /// Number the domains, and read the timeline.
    pub(super) fn finish(mut self, scenario: &Scenario, topo: &Topology, guests: &[GuestPlan]) -> Result<Self> {
        let mut next = 1;
        for (guest, plan) in guests.iter().enumerate() {
            for name in plan.names() {
                let dom = if matches!(name.as_str(), "dom0" | "Domain-0") { 0 } else { next };
                if dom == 0 && self.domains.iter().any(|d| d.dom == 0) {
                    let right = "one domain 0: dom0 and Domain-0 are names for it".into();
                    let at = plan.key_at("name");
                    return Err(ScenarioError::Value { at, found: format!("\"{name}\""), right });
                }
                next += u16::from(dom != 0);
                self.domains.push(Domain { dom, name, guest });
            }
        }
        let mut asked: Vec<&AtTable> = scenario.timeline.iter().collect();
        // Stable: what happens at one time happens in the order of the file.
        asked.sort_by_key(|a| a.at);
        let mut events = Vec::new();
        let mut state = state::State::new(&self, topo, guests);
        for AtTable { at, xl } in asked {
            let refused = |why| ScenarioError::Xl { at: xl.at.clone(), command: xl.value.trim().into(), why };
            let command = xl::parse(&xl.value).map_err(refused)?;
            let what = state.apply(&command).map_err(refused)?;
            let text = xl.value.split_whitespace().skip_while(|w| *w == "xl").collect::<Vec<_>>().join(" ");
            events.push(Event { at: *at, text, command, what });
        }
        self.timeline = events;
        Ok(self)
    }

    /// The timeline, as the simulation takes it.
    pub fn changes(&self) -> Vec<Change> {
        let each = |e: &Event| e.what.iter().map(|what| Change { at: e.at, what: *what }).collect::<Vec<_>>();
        self.timeline.iter().flat_map(each).collect()
    }

    /// The timeline: when, and what `xl` is told.
    pub fn timeline(&self) -> impl Iterator<Item = (Time, &str)> {
        self.timeline.iter().map(|e| (e.at, e.text.as_str()))
    }

    /// How many of its commands are carried out when so many of [`XenPlan::changes`] are made.
    pub fn carried_out(&self, made: usize) -> usize {
        let mut changes = 0;
        let ends = self.timeline.iter().map(|e| {
            changes += e.what.len();
            changes
        });
        ends.take_while(|end| *end <= made).count()
    }

    /// Switches that differ from the preset's.
    pub fn features_set(&self) -> Vec<(&'static str, String)> {
        let from = XenFeatures::preset(self.preset).expect("it was found by its name");
        differ(self.features.list(), from.list())
    }

    /// The table `[xen]`, all choices written out.
    pub(super) fn to_toml(&self) -> toml::Table {
        let mut xen = toml::Table::new();
        xen.insert("scheduler".into(), self.scheduler.show().into());
        xen.insert("preset".into(), self.preset.into());
        let pool = |p: &PoolPlan| {
            let mut table = toml::Table::new();
            table.insert("name".into(), p.name.as_str().into());
            table.insert("cpus".into(), cpus::show(&p.cpus).into());
            table.insert("ratelimit_us".into(), ((p.tunables.ratelimit / 1_000) as i64).into());
            table.insert("tslice_ms".into(), ((p.tunables.tslice / 1_000_000) as i64).into());
            toml::Value::Table(table)
        };
        xen.insert("pool".into(), self.pools.iter().map(pool).collect::<Vec<_>>().into());
        xen
    }

    /// The tables `[[at]]`.
    pub(super) fn at_toml(&self) -> Vec<toml::Value> {
        let one = |e: &Event| {
            let mut table = toml::Table::new();
            let whole = e.at.is_multiple_of(1_000_000_000);
            let s = if whole { ((e.at / 1_000_000_000) as i64).into() } else { (e.at as f64 / 1e9).into() };
            table.insert("s".into(), s);
            table.insert("xl".into(), e.text.as_str().into());
            toml::Value::Table(table)
        };
        self.timeline.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use crate::scenario::{Plan, Scenario};

    fn plan(text: &str) -> Plan {
        Scenario::parse(text, "test", Path::new("")).and_then(|s| s.plan()).unwrap_or_else(|e| panic!("{e}"))
    }

    const HOST: &str = r#"
machine = "xen-16pcpu-2node"
[xen]
scheduler = "credit2"
preset = "upstream-today"
patches = "1-20"
[[xen.pool]]
name = "Pool-0"
cpus = "node:0"
ratelimit_us = 0
[[xen.pool]]
name = "right"
cpus = "8-15"
[set]
"xen.credit2_runqueue" = "core"
[[guest]]
name = "dom0"
vcpus = 4
pool = "Pool-0"
memory_node = 1
memory_stall_pct = 25
[guest.workload]
kind = "hackbench"
[[guest]]
name = "vm"
copies = 2
vcpus = 2
pool = "right"
weight = 512
cap = 150
cpus = ["8-11", "node:1"]
cpus_soft = "8,9"
kernel = false
[guest.workload]
kind = "hogs"
tasks = 2
[[at]]
s = 2.5
xl = "xl vcpu-pin vm1  all 12-15 12"
[[at]]
s = 2
xl = "sched-credit2 -s -p right -r 500"
"#;

    #[test]
    fn a_host_is_planned_and_stored_and_read_back() {
        let first = plan(HOST);
        let xen = first.xen.as_ref().expect("a Xen host");
        let domains: Vec<(u16, &str)> = xen.domains.iter().map(|d| (d.dom, d.name.as_str())).collect();
        assert_eq!(domains, [(0, "dom0"), (1, "vm0"), (2, "vm1")]);
        assert_eq!((xen.pools[0].tunables.ratelimit, xen.pools[1].tunables.ratelimit), (0, 1_000_000));
        let vm = first.guests[1].domain.as_ref().expect("a domain");
        assert_eq!((vm.params.weight, vm.params.cap, vm.kernel), (512, 150, false));
        assert_eq!(first.guests[0].memory.map(|m| (m.node, m.stall_pct)), Some((1, 25)));
        assert_eq!(format!("{:?}", vm.affinity[1].hard), "8-15");
        let timeline: Vec<_> = xen.timeline().collect();
        let expected =
            [(2_000_000_000, "sched-credit2 -s -p right -r 500"), (2_500_000_000, "vcpu-pin vm1 all 12-15 12")];
        assert_eq!(timeline, expected);
        assert_eq!(xen.changes().len(), 3);

        let stored = |p: &Plan| p.resolved_toml(&BTreeMap::new()).replace("machine.toml", "xen-16pcpu-2node");
        let again = plan(&stored(&first));
        assert_eq!(stored(&again), stored(&first));
        let again = again.xen.expect("a Xen host");
        assert_eq!((&again.features, again.scheduler), (&xen.features, xen.scheduler));
        assert_eq!(format!("{:?}", again.changes()), format!("{:?}", xen.changes()));
    }

    #[test]
    fn overrides_are_stronger_than_the_table() {
        let mut s = Scenario::parse(HOST, "test", Path::new("")).expect("right");
        for (key, value) in [("xen.preset", "base"), ("xen.patches", "1-15"), ("xen.c2_today", "true")] {
            s.set(key, value).expect("a key");
        }
        let p = s.plan().unwrap_or_else(|e| panic!("{e}"));
        let xen = p.xen.expect("a Xen host");
        assert_eq!((xen.preset, xen.features.patch(15), xen.features.patch(16)), ("base", true, false));
        assert!(xen.features.c2_today && !xen.features.c1_2017);
    }
}
