//! From text to [`Machine`].
//!
//! The TOML tree is walked by hand rather than derived, because a message should name the full key, what stands there
//! and what would be right, and because how many entries an array needs depends on the topology of the same file.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::OnceLock;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::costs::{Arity, Cost, Costs, Key, SECTIONS, Unit, keys};
use crate::error::{At, MachineError};
use crate::topology::{Flaw, Kind, Numbering, Place, SLIT_MAX, Shape, Topology};
use crate::{CAPACITY_MAX, FILE_BYTES_MAX, Flags, HZ_DEFAULT, HZ_MAX, HZ_MIN, Machine, close_to};
use contend_platform::CpuId;

type Result<T> = std::result::Result<T, MachineError>;
type Value<'i> = Spanned<DeValue<'i>>;

/// The costs that a file may take over; its arrays are cut to what a topology needs.
struct Defaults(BTreeMap<(&'static str, &'static str), Vec<Cost>>);

fn defaults() -> &'static Defaults {
    static DEFAULTS: OnceLock<Defaults> = OnceLock::new();
    DEFAULTS.get_or_init(|| {
        let file = Source { text: crate::DEFAULTS, file: "defaults.toml" };
        let costs = file.table_of().and_then(|root| {
            file.no_others(&root, "", SECTIONS)?;
            file.costs(&root, None, &[])
        });
        match costs {
            Ok(map) => Defaults(map),
            Err(e) => panic!("the built-in defaults are broken: {e}"),
        }
    })
}

/// Costs of `topology` taken from the defaults whole.
pub(crate) fn default_costs(topology: &Topology) -> Result<Costs> {
    let mut map = BTreeMap::new();
    for key in keys() {
        let at = At { file: "defaults.toml".into(), line: 0, key: format!("{}.{}", key.section, key.field) };
        map.insert((key.section, key.field), default_of(key, topology, at)?);
    }
    Ok(Costs::build(|s, f| map.remove(&key_of(s, f)).expect("every key is filled")))
}

/// Keys that came after machine files were written that name all of their section: what is not known apart from other costs, or not at
/// all. They may be left out.
const LATER: &[(&str, &str)] = &[
    ("interrupts", "irq_leave"),
    ("interrupts", "tick_restart"),
    ("interrupts", "timer_write"),
    ("cpu", "speed"),
    ("cpu", "busy_freq_pct"),
];

fn key_of(section: &str, field: &str) -> (&'static str, &'static str) {
    let k = keys().find(|k| k.section == section && k.field == field).expect("a key of the list");
    (k.section, k.field)
}

fn default_of(key: Key, topology: &Topology, at: At) -> Result<Vec<Cost>> {
    let all = &defaults().0[&(key.section, key.field)];
    let need = entries_of(key.arity, Some(topology)).unwrap_or(1);
    match all.get(..need) {
        Some(part) => Ok(part.to_vec()),
        None => Err(MachineError::MissingKey {
            at,
            right: format!("the defaults have {} entries, {} needs {need}", all.len(), what_for(key.arity)),
        }),
    }
}

fn entries_of(arity: Arity, topology: Option<&Topology>) -> Option<usize> {
    topology.map(|t| match arity {
        Arity::One => 1,
        Arity::IfClusters => usize::from(t.has_clusters()),
        Arity::PerRemote => t.nr_remote(),
        Arity::PerThread => t.threads_per_core_max(),
        Arity::PerKind => t.kinds().len(),
    })
}

fn what_for(arity: Arity) -> &'static str {
    match arity {
        Arity::One => "the key",
        Arity::IfClusters => "the key where cores form clusters, the machine",
        Arity::PerRemote => "one for each different remote distance of topology.slit, ascending, the machine",
        Arity::PerThread => "one for each number of busy threads in a core, from 1, the machine",
        Arity::PerKind => "one for each kind of topology.kinds, in that order, the machine",
    }
}

/// The fastest kind of cores is what others are compared with.
pub(crate) fn check_capacity(capacity: &[Cost], at: impl Fn() -> At) -> Result<()> {
    let certain = |c: &Cost| c.lo == CAPACITY_MAX && c.value == CAPACITY_MAX;
    if capacity.is_empty() || capacity.iter().any(certain) {
        return Ok(());
    }
    let largest = capacity.iter().map(|c| c.value).max().unwrap_or_default();
    let found = format!("{largest} as the largest");
    let right = format!(
        "{CAPACITY_MAX}, with lo = {CAPACITY_MAX}, for the fastest kind: it is what the others are compared with"
    );
    Err(MachineError::OutOfRange { at: at(), found, right })
}

const CAPACITY: &str = "cpu.capacity";

/// Checks one cost against its unit and itself.
pub(crate) fn check(cost: &Cost, key: Key, index: usize, at: impl Fn(&str) -> At) -> Result<()> {
    let unit = key.unit;
    for (name, v) in [("value", cost.value), ("lo", cost.lo), ("hi", cost.hi)] {
        if v < unit.min() || v > unit.max() {
            return Err(MachineError::OutOfRange {
                at: at(name),
                found: v.to_string(),
                right: format!("{} to {} {}", unit.min(), unit.max(), unit.name()),
            });
        }
    }
    // 0 is no speed but "not known".
    if unit == Unit::PerS && (cost.lo == 0 || cost.value == 0) && cost.hi > 0 {
        let found = format!("lo = {}, value = {}, hi = {}", cost.lo, cost.value, cost.hi);
        let right = "all three 0 (not known), or none".into();
        return Err(MachineError::OutOfRange { at: at(""), found, right });
    }
    if cost.lo > cost.value || cost.value > cost.hi {
        return Err(MachineError::Band { at: at(""), lo: cost.lo, value: cost.value, hi: cost.hi });
    }
    if key.arity == Arity::PerThread && index == 0 && (cost.lo != 100 || cost.value != 100) {
        return Err(MachineError::OutOfRange {
            at: at("value"),
            found: cost.value.to_string(),
            right: "100: a lone thread runs at full speed".into(),
        });
    }
    if cost.source.trim().is_empty() {
        return Err(MachineError::OutOfRange {
            at: at("source"),
            found: "nothing".into(),
            right: "a paper, a manual, a measurement, or \"estimate: ...\"".into(),
        });
    }
    Ok(())
}

/// The parser's knowledge of where it is.
struct Source<'a> {
    text: &'a str,
    file: &'a str,
}

impl<'a> Source<'a> {
    fn line(&self, offset: usize) -> usize {
        1 + self.text.as_bytes().iter().take(offset).filter(|&&b| b == b'\n').count()
    }

    fn at<T>(&self, here: &Spanned<T>, key: impl Display) -> At {
        At { file: self.file.into(), line: self.line(here.span().start), key: key.to_string() }
    }

    fn at_line(&self, line: usize, key: impl Display) -> At {
        At { file: self.file.into(), line, key: key.to_string() }
    }

    fn table_of(&self) -> Result<DeTable<'a>> {
        if self.text.len() as u64 > FILE_BYTES_MAX {
            return Err(MachineError::TooLarge { file: self.file.into(), max: FILE_BYTES_MAX });
        }
        match DeTable::parse(self.text) {
            Ok(t) => Ok(t.into_inner()),
            Err(e) => Err(MachineError::Syntax {
                file: self.file.into(),
                line: self.line(e.span().map_or(self.text.len(), |s| s.start)),
                why: e.message().replace('\n', "; "),
            }),
        }
    }

    /// Every key of the table is one of `allowed`.
    fn no_others(&self, table: &DeTable<'_>, section: &str, allowed: &[&str]) -> Result<()> {
        let first = table.keys().filter(|k| !allowed.contains(&k.get_ref().as_ref())).min_by_key(|k| k.span().start);
        let Some(key) = first else { return Ok(()) };
        let name = key.get_ref().as_ref();
        let close = close_to(name, allowed.iter().copied());
        let right = if close.is_empty() {
            format!("keys here are {}", allowed.join(", "))
        } else {
            format!("did you mean {}?", close.join(" or "))
        };
        Err(MachineError::UnknownKey { at: self.at(key, dotted(section, name)), right })
    }

    fn wrong<T>(&self, v: &Value<'_>, key: impl Display, right: impl Into<String>) -> Result<T> {
        Err(MachineError::WrongType { at: self.at(v, key), found: found(v.get_ref()), right: right.into() })
    }

    fn string(&self, v: &Value<'_>, key: impl Display) -> Result<String> {
        match v.get_ref().as_str() {
            Some(s) => Ok(s.to_string()),
            None => self.wrong(v, key, "a string"),
        }
    }

    /// An integer from `min` to `max`.
    fn number(&self, v: &Value<'_>, key: impl Display, min: u64, max: u64) -> Result<u64> {
        let Some(i) = v.get_ref().as_integer() else { return self.wrong(v, key, "a whole number") };
        match u64::from_str_radix(i.as_str(), i.radix()) {
            Ok(n) if (min..=max).contains(&n) => Ok(n),
            _ => Err(MachineError::OutOfRange {
                at: self.at(v, key),
                found: i.to_string(),
                right: format!("{min} to {max}"),
            }),
        }
    }

    fn missing<T>(&self, line: usize, key: impl Display, right: impl Into<String>) -> Result<T> {
        Err(MachineError::MissingKey { at: self.at_line(line, key), right: right.into() })
    }

    fn machine(&self) -> Result<Machine> {
        let root = self.table_of()?;
        let mut allowed = vec!["name", "description", "hz"];
        allowed.extend(Flags::KEYS);
        allowed.extend(["defaults", "topology"]);
        allowed.extend(SECTIONS);
        self.no_others(&root, "", &allowed)?;

        let Some(name) = root.get("name") else { return self.missing(1, "name", "write name = \"...\"") };
        let at = self.at(name, "name");
        let name = self.string(name, "name")?;
        if name.is_empty() || name.len() > 64 || name.chars().any(|c| c.is_control()) {
            return Err(MachineError::OutOfRange {
                at,
                found: format!("{name:?}"),
                right: "1 to 64 characters".into(),
            });
        }
        let description = match root.get("description") {
            Some(d) => self.string(d, "description")?,
            None => String::new(),
        };
        let hz = match root.get("hz") {
            Some(v) => self.number(v, "hz", HZ_MIN.into(), HZ_MAX.into())? as u32,
            None => HZ_DEFAULT,
        };
        let mut flags = Flags::default();
        for &key in Flags::KEYS {
            if let Some(v) = root.get(key) {
                let set = v.get_ref().as_bool().map_or_else(|| self.wrong(v, key, "true or false"), Ok)?;
                *flags.get_mut(key).expect("a key of the list") = set;
            }
        }
        let mut taken = Vec::new();
        if let Some(v) = root.get("defaults") {
            let Some(list) = v.get_ref().as_array() else {
                return self.wrong(v, "defaults", "an array of section names");
            };
            for v in list.iter() {
                let s = self.string(v, "defaults")?;
                let Some(&s) = SECTIONS.iter().find(|x| **x == s) else {
                    return Err(MachineError::OutOfRange {
                        at: self.at(v, "defaults"),
                        found: format!("\"{s}\""),
                        right: format!("one of {}", SECTIONS.join(", ")),
                    });
                };
                taken.push(s);
            }
        }
        let Some(t) = root.get("topology") else {
            return self.missing(1, "topology", "write a table [topology]");
        };
        let topology = self.topology(t)?;
        let mut map = self.costs(&root, Some(&topology), &taken)?;
        let costs = Costs::build(|s, f| map.remove(&key_of(s, f)).expect("every key is filled"));
        check_capacity(&costs.cpu.capacity, || {
            let cpu = root.get("cpu").and_then(|v| v.get_ref().as_table());
            match cpu.and_then(|t| t.get("capacity")) {
                Some(v) => self.at(v, CAPACITY),
                None => self.at_line(1, CAPACITY),
            }
        })?;
        Ok(Machine { name, description, topology, costs, hz, flags })
    }

    /// The costs of all sections. Without a topology (the defaults) arrays may have any length.
    fn costs(
        &self,
        root: &DeTable<'_>,
        topology: Option<&Topology>,
        taken: &[&str],
    ) -> Result<BTreeMap<(&'static str, &'static str), Vec<Cost>>> {
        let mut map = BTreeMap::new();
        for &section in SECTIONS {
            let allowed: Vec<&str> = keys().filter(|k| k.section == section).map(|k| k.field).collect();
            let (table, line) = match root.get(section) {
                Some(v) => match v.get_ref().as_table() {
                    Some(t) => (Some(t), self.line(v.span().start)),
                    None => return self.wrong(v, section, "a table"),
                },
                None => (None, self.line(self.text.len())),
            };
            if let Some(t) = table {
                self.no_others(t, section, &allowed)?;
            }
            for key in keys().filter(|k| k.section == section) {
                let full = format!("{section}.{}", key.field);
                let costs = match (table.and_then(|t| t.get(key.field)), topology) {
                    (Some(v), _) => self.entries(v, key, &full, topology)?,
                    (None, Some(t))
                        if key.arity != Arity::PerKind
                            && (taken.contains(&section) || LATER.contains(&(section, key.field))) =>
                    {
                        default_of(key, t, self.at_line(line, &full))?
                    }
                    // A machine of one node has no remote distances, and kinds of cores have no default.
                    (None, Some(t)) if entries_of(key.arity, Some(t)) == Some(0) => Vec::new(),
                    (None, None) if key.arity == Arity::PerKind => Vec::new(),
                    (None, _) => {
                        let form = if key.arity.is_array() { "[..]" } else { COST_FORM };
                        let right = match key.arity {
                            Arity::PerKind => {
                                format!("write {} = {form}: one for each kind of topology.kinds", key.field)
                            }
                            _ => format!("write {} = {form}, or add \"{section}\" to the array `defaults`", key.field),
                        };
                        return self.missing(line, full, right);
                    }
                };
                map.insert((key.section, key.field), costs);
            }
        }
        Ok(map)
    }

    fn entries(&self, v: &Value<'_>, key: Key, full: &str, topology: Option<&Topology>) -> Result<Vec<Cost>> {
        if !key.arity.is_array() {
            if entries_of(key.arity, topology) == Some(0) {
                return Err(MachineError::Contradiction {
                    at: self.at(v, full),
                    found: format!("{} on a machine without clusters", key.field),
                    right: "remove it, or say which cores form clusters (topology.cores_per_cluster)".into(),
                });
            }
            return Ok(vec![self.cost(v, key, 0, full)?]);
        }
        let Some(list) = v.get_ref().as_array() else {
            return self.wrong(v, full, format!("an array of {COST_FORM}"));
        };
        if let Some(need) = entries_of(key.arity, topology)
            && need != list.len()
        {
            return Err(MachineError::Length {
                at: self.at(v, full),
                found: list.len(),
                right: format!("{need}: {} has {need}", what_for(key.arity)),
            });
        }
        list.iter().enumerate().map(|(i, v)| self.cost(v, key, i, &format!("{full}.{i}"))).collect()
    }

    fn cost(&self, v: &Value<'_>, key: Key, index: usize, full: &str) -> Result<Cost> {
        let Some(t) = v.get_ref().as_table() else { return self.wrong(v, full, COST_FORM) };
        self.no_others(t, full, &["value", "lo", "hi", "source"])?;
        let field = |name: &str| match t.get(name) {
            Some(v) => Ok(v),
            None => self.missing(self.line(v.span().start), dotted(full, name), format!("write {COST_FORM}")),
        };
        let number = |name: &str| self.number(field(name)?, dotted(full, name), key.unit.min(), key.unit.max());
        let cost = Cost {
            value: number("value")?,
            lo: number("lo")?,
            hi: number("hi")?,
            source: self.string(field("source")?, dotted(full, "source"))?,
        };
        check(&cost, key, index, |name| self.at(t.get(name).unwrap_or(v), dotted(full, name)))?;
        Ok(cost)
    }

    fn topology(&self, v: &Value<'_>) -> Result<Topology> {
        const COUNTS: [&str; 4] = ["nodes", "llcs_per_node", "cores_per_llc", "threads_per_core"];
        const CLUSTER: &str = "cores_per_cluster";
        let Some(t) = v.get_ref().as_table() else { return self.wrong(v, "topology", "a table") };
        let line = self.line(v.span().start);
        let mut allowed = COUNTS.to_vec();
        allowed.extend([CLUSTER, "numbering", "slit", "kinds", "cpu"]);
        self.no_others(t, "topology", &allowed)?;
        let slit = self.slit(t)?;
        let kinds = self.kinds(t)?;
        let flaw = |f: Flaw| {
            let entry = t.get(f.key).map(|v| match (v.get_ref().as_array(), f.entry) {
                (Some(list), Some(i)) => list.get(i).unwrap_or(v),
                _ => v,
            });
            let at = match entry {
                Some(v) => self.at(v, dotted("topology", f.key)),
                None => self.at_line(line, "topology"),
            };
            MachineError::Contradiction { at, found: f.found, right: f.right }
        };

        if let Some(list) = t.get("cpu") {
            for key in COUNTS.into_iter().chain([CLUSTER, "numbering"]) {
                if let Some(v) = t.get(key) {
                    return Err(MachineError::Contradiction {
                        at: self.at(v, dotted("topology", key)),
                        found: format!("{key} and [[topology.cpu]]"),
                        right: "a topology is regular or lists its CPUs, not both".into(),
                    });
                }
            }
            let (places, entry_of) = self.places(list)?;
            // Flaws name a CPU; its entry may stand anywhere in the list.
            return Topology::from_places(&places, &slit)
                .and_then(|t| t.with_kinds(kinds))
                .map_err(|f| flaw(Flaw { entry: f.entry.map(|i| if f.key == "cpu" { entry_of[i] } else { i }), ..f }));
        }

        let mut counts = [0usize; 4];
        for (key, count) in COUNTS.into_iter().zip(&mut counts) {
            let full = dotted("topology", key);
            *count = match t.get(key) {
                Some(v) => self.number(v, full, 1, CpuId::MAX_CPUS as u64)? as usize,
                None => return self.missing(line, full, "write a number from 1, or list the CPUs in [[topology.cpu]]"),
            };
        }
        let [nodes, llcs_per_node, cores_per_llc, threads_per_core] = counts;
        // Four factors of at most 4,096 fit 64 bits.
        let cpus = counts.iter().map(|&c| c as u64).product::<u64>();
        if cpus > CpuId::MAX_CPUS as u64 {
            return Err(MachineError::OutOfRange {
                at: self.at_line(line, "topology"),
                found: format!("{cpus} CPUs"),
                right: format!("1 to {} CPUs", CpuId::MAX_CPUS),
            });
        }
        let numbering = match t.get("numbering") {
            None => Numbering::CoresFirst,
            Some(v) => match self.string(v, "topology.numbering")?.as_str() {
                "cores-first" => Numbering::CoresFirst,
                "threads-first" => Numbering::ThreadsFirst,
                other => {
                    return Err(MachineError::OutOfRange {
                        at: self.at(v, "topology.numbering"),
                        found: format!("\"{other}\""),
                        right: "\"cores-first\" or \"threads-first\"".into(),
                    });
                }
            },
        };
        let of_cluster = |v: &Value<'_>| self.number(v, dotted("topology", CLUSTER), 1, CpuId::MAX_CPUS as u64);
        let cores_per_cluster = t.get(CLUSTER).map(of_cluster).transpose()?.map(|n| n as usize);
        let shape = Shape { nodes, llcs_per_node, cores_per_llc, cores_per_cluster, threads_per_core, numbering };
        Topology::regular(shape, &slit).and_then(|t| t.with_kinds(kinds)).map_err(flaw)
    }

    /// The kinds of cores that the file names.
    fn kinds(&self, t: &DeTable<'_>) -> Result<Vec<Kind>> {
        const KEY: &str = "topology.kinds";
        const FORM: &str = "an array of { name = \"..\", cpus = \"0-3\" }";
        let Some(v) = t.get("kinds") else { return Ok(Vec::new()) };
        let list = v.get_ref().as_array().filter(|list| !list.is_empty());
        let Some(list) = list else { return self.wrong(v, KEY, FORM) };
        let kind = |v: &Value<'_>| {
            let Some(t) = v.get_ref().as_table() else { return self.wrong(v, KEY, FORM) };
            self.no_others(t, KEY, &["name", "cpus"])?;
            let text = |name: &str| match t.get(name) {
                Some(v) => Ok((self.string(v, dotted(KEY, name))?, self.at(v, dotted(KEY, name)))),
                None => self.missing(self.line(v.span().start), dotted(KEY, name), format!("write {FORM}")),
            };
            let ((name, at), (cpus, _)) = (text("name")?, text("cpus")?);
            if !(1..=16).contains(&name.len()) || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
                let right = "1 to 16 letters, digits and hyphens".into();
                return Err(MachineError::OutOfRange { at, found: format!("{name:?}"), right });
            }
            Ok(Kind { name, cpus })
        };
        list.iter().map(kind).collect()
    }

    fn slit(&self, t: &DeTable<'_>) -> Result<Vec<Vec<u32>>> {
        const FORM: &str = "an array of arrays of numbers, such as [[10, 21], [21, 10]]";
        let Some(v) = t.get("slit") else { return Ok(Vec::new()) };
        let Some(rows) = v.get_ref().as_array() else { return self.wrong(v, "topology.slit", FORM) };
        if rows.is_empty() {
            return self.wrong(v, "topology.slit", FORM);
        }
        rows.iter()
            .map(|row| match row.get_ref().as_array() {
                None => self.wrong(row, "topology.slit", FORM),
                Some(r) => r.iter().map(|d| Ok(self.number(d, "topology.slit", 0, SLIT_MAX.into())? as u32)).collect(),
            })
            .collect()
    }

    /// Places by CPU number, and the entry of the list that each CPU came from.
    fn places(&self, v: &Value<'_>) -> Result<(Vec<Place>, Vec<usize>)> {
        const KEY: &str = "topology.cpu";
        let Some(list) = v.get_ref().as_array() else { return self.wrong(v, KEY, "tables [[topology.cpu]]") };
        if list.is_empty() || list.len() > CpuId::MAX_CPUS {
            return Err(MachineError::OutOfRange {
                at: self.at(v, KEY),
                found: format!("{} CPUs", list.len()),
                right: format!("1 to {} CPUs", CpuId::MAX_CPUS),
            });
        }
        let mut places: Vec<Option<(Place, usize)>> = vec![None; list.len()];
        for (i, v) in list.iter().enumerate() {
            let Some(t) = v.get_ref().as_table() else { return self.wrong(v, KEY, "a table") };
            self.no_others(t, KEY, &["id", "core", "cluster", "llc", "node"])?;
            let number = |v: &Value<'_>, name: &str, max: usize| -> Result<usize> {
                Ok(self.number(v, dotted(KEY, name), 0, max as u64)? as usize)
            };
            let get = |name: &str, max| match t.get(name) {
                Some(v) => number(v, name, max),
                None => self.missing(self.line(v.span().start), dotted(KEY, name), "write id, core, llc and node"),
            };
            let id = get("id", list.len() - 1)?;
            let any = CpuId::MAX_CPUS - 1;
            let cluster = t.get("cluster").map(|v| number(v, "cluster", any)).transpose()?;
            let place = Place { core: get("core", any)?, cluster, llc: get("llc", any)?, node: get("node", any)? };
            if places[id].replace((place, i)).is_some() {
                return Err(MachineError::Contradiction {
                    at: self.at(v, dotted(KEY, "id")),
                    found: format!("CPU {id} twice"),
                    right: "each CPU has one entry".into(),
                });
            }
        }
        // As many entries as numbers and none twice: none is missing.
        Ok(places.into_iter().map(|p| p.expect("all numbers are taken")).unzip())
    }
}

const COST_FORM: &str = "{ value = .., lo = .., hi = .., source = \"..\" }";

fn dotted(section: &str, key: &str) -> String {
    match (section, key) {
        ("", k) => k.into(),
        (s, "") => s.into(),
        (s, k) => format!("{s}.{k}"),
    }
}

/// A value in a message: short.
fn found(v: &DeValue<'_>) -> String {
    match v {
        DeValue::String(s) if s.len() <= 40 => format!("{s:?}"),
        DeValue::Integer(i) => i.to_string(),
        DeValue::Float(f) => f.to_string(),
        DeValue::Boolean(b) => b.to_string(),
        DeValue::Datetime(d) => d.to_string(),
        DeValue::String(_) => "a long string".into(),
        DeValue::Array(_) => "an array".into(),
        DeValue::Table(_) => "a table".into(),
    }
}

pub(crate) fn machine(text: &str, file: &str) -> Result<Machine> {
    Source { text, file }.machine()
}
