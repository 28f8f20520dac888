//! Groups of tasks in a scenario: the table `[groups]`, from paths to weights and limits.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use contend_sched::bandwidth::Limit;
use contend_sched::features::{CfsBandwidth, Features, PolicyKind};
use contend_sched::policy::groups::{Group, WEIGHT_DEFAULT, WEIGHT_MAX, weight_of};
use contend_sched::switches::Value as _;
use contend_sim::program::Groups;
use toml::Spanned;
use toml::de::DeValue;

use super::guest::GuestPlan;
use super::source::Source;
use super::{Plan, Result, Scenario};
use crate::error::{At, ScenarioError};
use crate::names::did_you_mean;

/// What `cpu.weight` may be.
const WEIGHTS: RangeInclusive<u64> = 1..=WEIGHT_MAX;
/// What quota and period may be, in us. A quota may be longer: there are more CPUs than one.
const PERIODS: RangeInclusive<u64> = 1_000..=1_000_000;
const QUOTAS: RangeInclusive<u64> = 1_000..=1_000_000_000;
/// The period of a `cpu.max` that names none.
const PERIOD_DEFAULT: u64 = 100_000;

/// What a scenario says of each of its groups.
pub(super) type Given = BTreeMap<String, GivenGroup>;

/// What a scenario says of a group.
#[derive(Clone, Debug)]
pub struct GivenGroup {
    /// Where it says so first.
    at: At,
    weight: u64,
    /// Quota and period, in us, and where.
    max: Option<(u64, u64, At)>,
    /// In us, and where.
    burst: Option<(u64, At)>,
}

/// A key of a group.
#[derive(Clone, Copy)]
enum Key {
    Weight,
    Max,
    Burst,
}

impl Key {
    const ALL: [(&'static str, Key); 3] = [("weight", Key::Weight), ("max", Key::Max), ("burst", Key::Burst)];

    fn right(self) -> &'static str {
        match self {
            Key::Weight => "a weight from 1 to 10000, as cpu.weight has; 100 is the default",
            Key::Max => {
                "text as in cpu.max: \"QUOTA PERIOD\" in us, such as \"200000 100000\" for 2 CPUs (quota 1000 to 10^9, \
                 period 1000 to 1000000, 100000 if left out), or \"max\""
            }
            Key::Burst => "a number of us, at most the quota of max, as cpu.max.burst has",
        }
    }
}

impl GivenGroup {
    fn new(at: At) -> Self {
        GivenGroup { at, weight: WEIGHT_DEFAULT, max: None, burst: None }
    }
    /// Set a key from text. `None`: not a value of it.
    fn set(&mut self, key: Key, value: &str, at: At) -> Option<()> {
        let number = |text: &str| text.parse::<u64>().ok();
        match key {
            Key::Weight => self.weight = number(value).filter(|w| WEIGHTS.contains(w))?,
            Key::Burst => self.burst = number(value).map(|us| Some((us, at)))?,
            Key::Max => {
                let mut words = value.split_ascii_whitespace();
                let quota = words.next()?;
                let period = words.next().map_or(Some(PERIOD_DEFAULT), number).filter(|p| PERIODS.contains(p))?;
                if words.next().is_some() {
                    return None;
                }
                let quota = if quota == "max" { None } else { Some(number(quota).filter(|q| QUOTAS.contains(q))?) };
                self.max = quota.map(|quota| (quota, period, at));
            }
        }
        Some(())
    }
    /// The limit that it has.
    fn limit(&self, path: &str) -> Result<Option<Limit>> {
        let burst = self.burst.as_ref().filter(|(us, _)| *us > 0);
        match (&self.max, burst) {
            (None, None) => Ok(None),
            (Some((quota, _, _)), Some((us, at))) if us > quota => Err(ScenarioError::Value {
                at: at.clone(),
                found: us.to_string(),
                right: format!("at most {quota}, the quota of {path}"),
            }),
            (None, Some((us, at))) => Err(ScenarioError::Value {
                at: at.clone(),
                found: us.to_string(),
                right: format!("with max: {path} has no quota to save up"),
            }),
            (Some((quota, period, _)), burst) => Ok(Some(Limit {
                quota: quota * 1000,
                period: period * 1000,
                burst: burst.map_or(0, |(us, _)| us * 1000),
            })),
        }
    }
}

/// The table `[groups]`: a weight, or a table of keys, for each path.
pub(super) fn read(source: &Source<'_>, value: &Spanned<DeValue<'_>>) -> Result<Given> {
    let DeValue::Table(table) = value.get_ref() else {
        return source.wrong(value, "groups", "a table of groups, such as \"/web\" = 200");
    };
    let mut groups = Given::new();
    for (path, v) in table.iter() {
        let name = format!("groups.{}", path.get_ref());
        let mut group = GivenGroup::new(source.at(path, &name));
        let mut read = |key: Key, v: &Spanned<DeValue<'_>>, name: &str| {
            let text = match (key, v.get_ref()) {
                (Key::Max, DeValue::String(text)) => text.to_string(),
                (Key::Weight | Key::Burst, DeValue::Integer(i)) => {
                    u64::from_str_radix(i.as_str(), i.radix()).map(|n| n.to_string()).unwrap_or_default()
                }
                _ => String::new(),
            };
            match group.set(key, &text, source.at(v, name)) {
                Some(()) => Ok(()),
                None => source.wrong(v, name, key.right()),
            }
        };
        match v.get_ref() {
            DeValue::Table(keys) => {
                for (key, v) in keys.iter() {
                    let word = key.get_ref().as_ref();
                    let at = format!("{name}.{word}");
                    let Some((_, found)) = Key::ALL.iter().find(|(known, _)| *known == word) else {
                        let known = Key::ALL.iter().map(|(known, _)| *known);
                        let right = did_you_mean(word, known, "keys of a group are weight, max, burst");
                        return Err(ScenarioError::UnknownKey { at: source.at(key, &at), right });
                    };
                    read(*found, v, &at)?;
                }
            }
            DeValue::Integer(_) => read(Key::Weight, v, &name)?,
            _ => {
                let right = "a weight from 1 to 10000, as cpu.weight has, or a table of weight, max, burst";
                return source.wrong(v, &name, right);
            }
        }
        groups.insert(path.get_ref().to_string(), group);
    }
    Ok(groups)
}

/// `--set groups.PATH=WEIGHT`, or `groups.PATH.KEY=VALUE`.
pub(super) fn set(groups: &mut Given, rest: &str, value: &str, at: At) -> Result<()> {
    let key = rest.rsplit_once('.').and_then(|(path, word)| {
        let known = Key::ALL.iter().find(|(known, _)| *known == word);
        known.map(|(_, key)| (path, *key))
    });
    let (path, key) = key.unwrap_or((rest, Key::Weight));
    let group = groups.entry(path.into()).or_insert_with(|| GivenGroup::new(at.clone()));
    match group.set(key, value, at.clone()) {
        Some(()) => Ok(()),
        None => Err(ScenarioError::Value { at, found: value.into(), right: key.right().into() }),
    }
}

/// The groups that the scenario and its guests name, those that others are in first.
pub(super) fn plan(
    scenario: &Scenario,
    guests: &[GuestPlan],
    policy: PolicyKind,
    features: &Features,
) -> Result<Groups> {
    let mut groups = Groups::default();
    let wrong = |at: &At, found: &str, right: &str| {
        Err(ScenarioError::Value { at: at.clone(), found: format!("\"{found}\""), right: right.into() })
    };
    for (path, given) in &scenario.groups {
        let group = match groups.at(path) {
            Ok(group) if groups.get(group).is_some() => group,
            Ok(_) => return wrong(&given.at, path, "a group: the root has no siblings"),
            Err(right) => return wrong(&given.at, path, right),
        };
        groups.set_weight(group, given.weight);
        if let Some(limit) = given.limit(path)? {
            check_era(given, limit, features.cfs_bandwidth)?;
            groups.set_limit(group, limit);
        }
    }
    for guest in guests {
        for path in guest.group.iter().flat_map(|_| guest.groups()) {
            if let Err(right) = groups.at(&path) {
                return wrong(&guest.key_at("group"), &path, right);
            }
        }
    }
    let given = scenario.groups.values().next().map(|given| given.at.clone());
    let given = given.or_else(|| guests.iter().find(|g| g.group.is_some()).map(|g| g.key_at("group")));
    if let Some(at) = given {
        let refuse =
            |found: &str, right: &str| Err(ScenarioError::Value { at, found: found.into(), right: right.into() });
        if scenario.xen.is_some() {
            return refuse("groups", "left out: the host is Xen; weight says what a domain has");
        }
        if !policy.has_groups() {
            return refuse(
                &format!("groups under the policy {}", policy.name()),
                "left out, or a fair policy such as linux-6.18",
            );
        }
    }
    Ok(groups)
}

/// Has the kernel such limits?
fn check_era(given: &GivenGroup, limit: Limit, has: CfsBandwidth) -> Result<()> {
    let at = |at: Option<&At>| at.unwrap_or(&given.at).clone();
    if has == CfsBandwidth::Off {
        return Err(ScenarioError::Value {
            at: at(given.max.as_ref().map(|(_, _, at)| at)),
            found: "a limit under cfs_bandwidth = off".into(),
            right: "left out, or a policy from linux-3.6 on: kernels before 3.2 have no cpu.max".into(),
        });
    }
    if limit.burst > 0 && has < CfsBandwidth::V5_14 {
        return Err(ScenarioError::Value {
            at: at(given.burst.as_ref().map(|(_, at)| at)),
            found: format!("a burst under cfs_bandwidth = {}", has.show()),
            right: "left out, or a policy from linux-6.0 on: it came with 5.14".into(),
        });
    }
    Ok(())
}

/// `cpu.max` of a limit.
fn max_of(limit: Limit) -> String {
    format!("{} {}", limit.quota / 1000, limit.period / 1000)
}

/// The table, of those that are not as groups are by default.
pub(super) fn to_toml(groups: &Groups) -> toml::Table {
    let mut table = toml::Table::new();
    for (_, g) in groups.iter() {
        let weight = toml::Value::Integer(weight_of(g.shares) as i64);
        let value = match g.limit {
            None if weight_of(g.shares) == WEIGHT_DEFAULT => continue,
            None => weight,
            Some(limit) => {
                let mut keys = toml::Table::new();
                keys.insert("weight".into(), weight);
                keys.insert("max".into(), max_of(limit).into());
                if limit.burst > 0 {
                    keys.insert("burst".into(), toml::Value::Integer((limit.burst / 1000) as i64));
                }
                toml::Value::Table(keys)
            }
        };
        table.insert(g.name.clone(), value);
    }
    table
}

impl Plan {
    /// Weights and limits of groups that differ from the defaults, by the keys of `--set`.
    pub fn groups_set(&self) -> Vec<(String, String)> {
        let of = |g: &Group| {
            let key = format!("groups.{}", g.name);
            let weight = Some(weight_of(g.shares)).filter(|w| *w != WEIGHT_DEFAULT);
            let weight = weight.map(|w| (key.clone(), w.to_string()));
            let max = g.limit.map(|limit| (format!("{key}.max"), max_of(limit)));
            let burst = g.limit.map(|limit| limit.burst / 1000).filter(|us| *us > 0);
            weight.into_iter().chain(max).chain(burst.map(|us| (format!("{key}.burst"), us.to_string())))
        };
        self.groups.iter().flat_map(|(_, g)| of(g)).collect()
    }
}
