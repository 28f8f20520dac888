//! Groups of tasks in a scenario: the table `[groups]`, from paths to weights.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use contend_sched::features::PolicyKind;
use contend_sched::policy::groups::{WEIGHT_DEFAULT, WEIGHT_MAX, weight_of};
use contend_sim::program::Groups;
use toml::Spanned;
use toml::de::DeValue;

use super::guest::GuestPlan;
use super::source::Source;
use super::{Given, Result, Scenario};
use crate::error::{At, ScenarioError};

/// What `cpu.weight` may be.
pub(super) const WEIGHTS: RangeInclusive<u64> = 1..=WEIGHT_MAX;
pub(super) const RIGHT: &str = "a weight from 1 to 10000, as cpu.weight has; 100 is the default";

/// The table `[groups]`.
pub(super) fn read(source: &Source<'_>, value: &Spanned<DeValue<'_>>) -> Result<BTreeMap<String, Given<u64>>> {
    let DeValue::Table(table) = value.get_ref() else {
        return source.wrong(value, "groups", "a table of weights, such as \"/web\" = 200");
    };
    let mut groups = BTreeMap::new();
    for (path, v) in table.iter() {
        let key = format!("groups.{}", path.get_ref());
        let weight = v.get_ref().as_integer().and_then(|i| u64::from_str_radix(i.as_str(), i.radix()).ok());
        let Some(weight) = weight.filter(|w| WEIGHTS.contains(w)) else {
            return source.wrong(v, &key, RIGHT);
        };
        groups.insert(path.get_ref().to_string(), Given { at: source.at(path, &key), value: weight });
    }
    Ok(groups)
}

/// The groups that the scenario and its guests name, those that others are in first.
pub(super) fn plan(scenario: &Scenario, guests: &[GuestPlan], policy: PolicyKind) -> Result<Groups> {
    let mut groups = Groups::default();
    let wrong = |at: &At, found: &str, right: &str| {
        Err(ScenarioError::Value { at: at.clone(), found: format!("\"{found}\""), right: right.into() })
    };
    for (path, weight) in &scenario.groups {
        match groups.at(path) {
            Ok(group) if groups.get(group).is_some() => groups.set_weight(group, weight.value),
            Ok(_) => return wrong(&weight.at, path, "a group: the root has no siblings"),
            Err(right) => return wrong(&weight.at, path, right),
        }
    }
    for guest in guests {
        for path in guest.group.iter().flat_map(|_| guest.groups()) {
            if let Err(right) = groups.at(&path) {
                return wrong(&guest.key_at("group"), &path, right);
            }
        }
    }
    let given = scenario.groups.values().next().map(|weight| weight.at.clone());
    let given = given.or_else(|| guests.iter().find(|g| g.group.is_some()).map(|g| g.key_at("group")));
    if let Some(at) = given {
        let refuse =
            |found: &str, right: &str| Err(ScenarioError::Value { at, found: found.into(), right: right.into() });
        if scenario.xen.is_some() {
            return refuse("groups", "left out: the host is Xen; weight says what a domain has");
        }
        if policy == PolicyKind::Fifo {
            return refuse("groups under a FIFO policy", "left out, or a fair policy such as linux-6.18");
        }
    }
    Ok(groups)
}

/// The table, the weights that are not the default.
pub(super) fn to_toml(groups: &Groups) -> toml::Table {
    let weights = groups.iter().map(|(_, g)| (g.name.clone(), weight_of(g.shares)));
    weights.filter(|(_, w)| *w != WEIGHT_DEFAULT).map(|(name, w)| (name, toml::Value::Integer(w as i64))).collect()
}
