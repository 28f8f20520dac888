//! The text of a scenario.

use std::collections::BTreeMap;
use std::path::Path;

use contend_sched::features::Features;
use contend_workload::WorkloadSpec;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::guest::{self, GuestTable};
use super::xen::{AtTable, XenTable};
use super::{Given, Result, SECONDS_MAX, Scenario, groups, seconds_ns, workload_error};
use crate::error::{At, ScenarioError};
use crate::names::did_you_mean;

const KEYS: &[&str] = &[
    "machine",
    "policy",
    "own_policy",
    "seed",
    "horizon_s",
    "horizon_ns",
    "warmup_s",
    "stall_s",
    "set",
    "groups",
    "xen",
    "guest",
    "workload",
    "at",
];

/// A value of TOML in words, shortened.
pub(super) fn found(v: &DeValue<'_>) -> String {
    let short = |s: &str| match s.char_indices().nth(60) {
        Some((i, _)) => format!("{}...", &s[..i]),
        None => s.to_string(),
    };
    match v {
        DeValue::String(s) => format!("\"{}\"", short(s)),
        DeValue::Integer(i) => i.to_string(),
        DeValue::Float(f) => f.to_string(),
        DeValue::Boolean(b) => b.to_string(),
        DeValue::Datetime(d) => d.to_string(),
        DeValue::Array(_) => "an array".into(),
        DeValue::Table(_) => "a table".into(),
    }
}

/// The line of a scenario below which this key may stand: that of its workload, of features of the policy, of its guests.
fn section_of(root: &DeTable<'_>, key: &str) -> Option<&'static str> {
    let kind = root.get("workload").and_then(|w| w.get_ref().as_table()?.get("kind")?.get_ref().as_str());
    let workload = kind.and_then(|kind| contend_workload::list().into_iter().find(|w| w.name == kind));
    if workload.is_some_and(|w| w.keys.iter().any(|k| k.key == key)) {
        Some("[workload]")
    } else if Features::default().list().iter().any(|f| f.key == key) {
        Some("[set]")
    } else {
        let guests = root.get("guest").filter(|_| guest::is_key(key))?;
        Some(if guests.get_ref().is_array() { "[[guest]]" } else { "[guest]" })
    }
}

/// A scenario's text.
pub(super) struct Source<'a> {
    pub text: &'a str,
    /// Its name in messages.
    pub file: &'a str,
    /// Line numbers mean something to the user.
    pub lines: bool,
}

impl Source<'_> {
    pub fn line(&self, offset: usize) -> usize {
        if !self.lines {
            return 0;
        }
        1 + self.text.as_bytes().iter().take(offset).filter(|&&b| b == b'\n').count()
    }

    pub fn at<T>(&self, here: &Spanned<T>, key: &str) -> At {
        At { file: self.file.into(), line: self.line(here.span().start), key: key.into() }
    }

    pub fn wrong<T>(&self, v: &Spanned<DeValue<'_>>, key: &str, right: &str) -> Result<T> {
        Err(ScenarioError::Value { at: self.at(v, key), found: found(v.get_ref()), right: right.into() })
    }

    pub fn string(&self, v: &Spanned<DeValue<'_>>, key: &str, right: &str) -> Result<Given<String>> {
        match v.get_ref().as_str() {
            Some(s) => Ok(Given { at: self.at(v, key), value: s.into() }),
            None => self.wrong(v, key, right),
        }
    }

    pub fn integer(&self, v: &Spanned<DeValue<'_>>, key: &str, max: u64) -> Result<u64> {
        let n = v.get_ref().as_integer().and_then(|i| u64::from_str_radix(i.as_str(), i.radix()).ok());
        match n.filter(|n| *n <= max) {
            Some(n) => Ok(n),
            None => self.wrong(v, key, &format!("a whole number from 0 to {max}")),
        }
    }

    pub fn seconds(&self, v: &Spanned<DeValue<'_>>, key: &str) -> Result<u64> {
        let number = match v.get_ref() {
            DeValue::Integer(i) => i.as_str().parse::<f64>().ok(),
            DeValue::Float(f) => f.as_str().parse::<f64>().ok(),
            _ => None,
        };
        match number {
            Some(s) => seconds_ns(s, self.at(v, key)),
            None => self.wrong(v, key, "a number of seconds above 0, at most 1,000,000"),
        }
    }

    pub fn scenario(&self, base: &Path) -> Result<Scenario> {
        let root = DeTable::parse(self.text).map_err(|e| ScenarioError::Syntax {
            file: self.file.into(),
            line: self.line(e.span().map_or(self.text.len(), |s| s.start)),
            why: e.message().trim().replace('\n', "; "),
        })?;
        let root = root.get_ref();
        if root.get("topology").is_some() && root.get("workload").or(root.get("guest")).is_none() {
            return Err(ScenarioError::WrongKind {
                file: self.file.into(),
                found: "a machine file".into(),
                right: "name it in a scenario's key machine, or give it to --machine".into(),
            });
        }
        let first = root.keys().filter(|k| !KEYS.contains(&k.get_ref().as_ref())).min_by_key(|k| k.span().start);
        if let Some(key) = first {
            let name = key.get_ref().as_ref();
            let right = match section_of(root, name) {
                Some(section) => format!("it is a key of {section}: write it below a line {section}"),
                None => did_you_mean(name, KEYS.iter().copied(), format!("keys of a scenario are {}", KEYS.join(", "))),
            };
            return Err(ScenarioError::UnknownKey { at: self.at(key, name), right });
        }
        let mut s = Scenario::empty(self.file, base);
        if let Some(v) = root.get("machine") {
            s.machine =
                Some(self.string(v, "machine", "a name, a path ending in .toml, or a specification like 2n2l8c2t")?);
        }
        if let Some(v) = root.get("policy") {
            s.policy = Some(self.string(v, "policy", "the name of a preset; `contend list presets` lists them")?);
        }
        if let Some(v) = root.get("own_policy") {
            s.own_policy = Some(self.string(v, "own_policy", "what a program calls its policy")?);
        }
        if let Some(v) = root.get("seed") {
            s.seed = self.integer(v, "seed", i64::MAX as u64)?;
        }
        match (root.get("horizon_s"), root.get("horizon_ns")) {
            (Some(_), Some(v)) => return self.wrong(v, "horizon_ns", "left out: horizon_s is given too"),
            (Some(v), None) => s.horizon_ns = Some(self.seconds(v, "horizon_s")?),
            (None, Some(v)) => {
                s.horizon_ns = Some(self.integer(v, "horizon_ns", (SECONDS_MAX * 1e9) as u64)?);
                if s.horizon_ns == Some(0) {
                    return self.wrong(v, "horizon_ns", "above 0");
                }
            }
            (None, None) => {}
        }
        if let Some(v) = root.get("warmup_s") {
            s.warmup_ns = self.seconds(v, "warmup_s")?;
        }
        if let Some(v) = root.get("stall_s") {
            s.stall_ns = self.seconds(v, "stall_s")?;
        }
        if let Some(v) = root.get("set") {
            let Some(table) = v.get_ref().as_table() else {
                return self.wrong(v, "set", "a table of features and machine costs");
            };
            self.sets(table, "set", "", &mut s.set)?;
        }
        if let Some(v) = root.get("groups") {
            s.groups = groups::read(self, v)?;
        }
        if let Some(v) = root.get("guest") {
            let right = "tables [[guest]], with two brackets on each side";
            let DeValue::Array(tables) = v.get_ref() else { return self.wrong(v, "guest", right) };
            s.guests = tables.iter().enumerate().map(|(i, v)| GuestTable::read(self, v, i)).collect::<Result<_>>()?;
        }
        s.xen = root.get("xen").map(|v| XenTable::read(self, v)).transpose()?;
        if let Some(v) = root.get("at") {
            let right = "tables [[at]], with two brackets on each side";
            let DeValue::Array(tables) = v.get_ref() else { return self.wrong(v, "at", right) };
            s.timeline = tables.iter().map(|v| AtTable::read(self, v)).collect::<Result<_>>()?;
        }
        if let Some(v) = root.get("workload") {
            let at = At { file: self.file.into(), line: 0, key: String::new() };
            let spec = WorkloadSpec::from_toml(v).map_err(|e| workload_error(e, at, |span| self.line(span.start)))?;
            s.workload = Some(spec);
            let file = v.get_ref().as_table().and_then(|t| t.get("file"));
            s.workload_file = file.map(|file| self.at(file, "workload.file"));
        }
        Ok(s)
    }

    /// The table `section`, `[set]` or `set` of a guest: nested tables are dotted keys.
    pub fn sets(
        &self,
        table: &DeTable<'_>,
        section: &str,
        path: &str,
        out: &mut BTreeMap<String, Given<String>>,
    ) -> Result<()> {
        for (key, v) in table.iter() {
            let name = key.get_ref().as_ref();
            let full = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
            let value = match v.get_ref() {
                DeValue::Table(inner) => {
                    self.sets(inner, section, &full, out)?;
                    continue;
                }
                DeValue::Array(list) => {
                    let parts: Option<Vec<String>> =
                        list.iter().map(|v| v.get_ref().as_integer().map(|i| i.as_str().to_string())).collect();
                    match parts {
                        Some(parts) => parts.join(","),
                        None => return self.wrong(v, &format!("{section}.{full}"), "numbers"),
                    }
                }
                DeValue::String(s) => s.to_string(),
                DeValue::Integer(i) => i.as_str().to_string(),
                DeValue::Float(f) => f.as_str().to_string(),
                DeValue::Boolean(b) => b.to_string(),
                DeValue::Datetime(_) => {
                    return self.wrong(v, &format!("{section}.{full}"), "a word, a number or a boolean");
                }
            };
            if full.starts_with("workload.") {
                let right = "written in the table [workload]".to_string();
                return Err(ScenarioError::Value {
                    at: self.at(key, &format!("{section}.{full}")),
                    found: value,
                    right,
                });
            }
            if full.strip_prefix("guest.").is_some_and(guest::is_key) {
                let right = "written in the table [[guest]]".to_string();
                return Err(ScenarioError::Value {
                    at: self.at(key, &format!("{section}.{full}")),
                    found: value,
                    right,
                });
            }
            out.insert(full, Given { at: self.at(key, ""), value });
        }
        Ok(())
    }
}
