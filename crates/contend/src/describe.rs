//! `contend list`: what there is, as JSON.

use contend_machine::Machine;
use contend_sched::features::{Features, PolicyKind, Preset};
use contend_sched::switches::FeatureInfo;
use contend_sched::xen::features::XenFeatures;
use contend_sched::xen::perf::Perf;
use contend_sim::kvm::{Exit, Kvm, KvmFeatures};
use serde_json::{Value, json};

use crate::error::{At, ScenarioError};
use crate::names::did_you_mean;
use crate::scenario::POLICY_DEFAULT;

/// Machine whose costs are listed if none is named: one socket, all costs from the defaults.
const MACHINE_DEFAULT: &str = "1n1l8c2t";

/// What can be listed.
pub const WHAT: &[&str] =
    &["machines", "workloads", "policies", "features", "presets", "costs", "kvm", "xen", "counters"];

/// The list of `what` (one of [`WHAT`]): an array of objects that have a `name` and a `doc`. Features have the values
/// of the preset `of`, the policy that alone reads them (`only`), and whether the preset's policy does (`read`); costs are those of the machine `of`.
///
/// # Errors
/// Nothing of that name can be listed; no such preset; no such machine, or its file is not right.
pub fn list(what: &str, of: Option<&str>) -> Result<Value, ScenarioError> {
    Ok(match what {
        "machines" => Machine::shipped().iter().map(|(name, text)| machine(name, text)).collect(),
        "workloads" => crate::workloads().iter().map(workload).collect(),
        "policies" => policies(),
        "presets" => Preset::all().iter().map(preset).collect(),
        "features" => features(of.unwrap_or(POLICY_DEFAULT))?,
        "kvm" => switches(KvmFeatures::default().list()),
        "xen" => xen(of.unwrap_or("base"))?,
        "counters" => counters(),
        "costs" => costs(of.unwrap_or(MACHINE_DEFAULT))?,
        other => {
            let right = format!("one of {}", WHAT.join(", "));
            let at = At { file: "list".into(), line: 0, key: String::new() };
            return Err(ScenarioError::Value { at, found: format!("\"{other}\""), right });
        }
    })
}

fn machine(name: &str, text: &str) -> Value {
    let m = Machine::parse(text, name).expect("shipped machines are tested");
    let t = &m.topology;
    json!({
        "name": name, "doc": m.description, "cpus": t.nr_cpus(), "nodes": t.nr_nodes(), "llcs": t.nr_llcs(),
        "cores": t.nr_cores(), "threads_per_core": t.threads_per_core_max(),
    })
}

fn costs(machine: &str) -> Result<Value, ScenarioError> {
    let m = Machine::load(machine).map_err(|source| {
        let at = At::option("--machine");
        ScenarioError::Machine { at, source: Box::new(source) }
    })?;
    Ok(costs_of(&m))
}

/// Each cost of a machine by the name that `--set machine.NAME=VALUE` takes.
pub fn costs_of(m: &Machine) -> Value {
    let all = m.costs.iter().flat_map(|(key, costs)| {
        costs.iter().enumerate().map(move |(i, c)| {
            json!({
                "name": key.name_of(i), "doc": c.source, "value": c.value,
                "lo": c.lo, "hi": c.hi, "unit": key.unit.name(),
            })
        })
    });
    all.collect()
}

fn workload(w: &crate::WorkloadInfo) -> Value {
    let keys: Vec<Value> = (w.keys.iter())
        .map(|k| {
            let default = k.default.as_ref().map(|d| serde_json::to_value(d).expect("plain values"));
            json!({ "name": k.key, "doc": k.doc, "unit": k.unit, "values": k.allowed, "default": default })
        })
        .collect();
    json!({ "name": w.name, "doc": w.doc, "keys": keys })
}

fn preset(p: &Preset) -> Value {
    let features: serde_json::Map<String, Value> =
        p.features.list().into_iter().map(|f| (f.key.to_string(), f.value.into())).collect();
    json!({ "name": p.name, "doc": p.doc, "policy": p.policy.name(), "features": features })
}

fn policies() -> Value {
    let doc = |p: PolicyKind| match p {
        PolicyKind::Fifo => "first in, first out: the reference policy of the contract",
        PolicyKind::Cfs => "completely fair scheduler (Linux 2.6.23 to 6.5)",
        PolicyKind::Eevdf => "earliest eligible virtual deadline first (Linux 6.6 to today)",
    };
    let all = Preset::all();
    (PolicyKind::ALL.iter())
        .map(|&kind| {
            let presets: Vec<&str> = all.iter().filter(|p| p.policy == kind).map(|p| p.name).collect();
            json!({ "name": kind.name(), "doc": doc(kind), "presets": presets })
        })
        .collect()
}

fn features(policy: &str) -> Result<Value, ScenarioError> {
    let preset = Preset::find(policy).ok_or_else(|| {
        let all = Preset::all();
        let right = did_you_mean(policy, all.iter().map(|p| p.name), "`contend list presets` lists them");
        let at = At::option("--policy");
        ScenarioError::UnknownPolicy { at, name: policy.into(), right }
    })?;
    let mut list = switches(preset.features.list());
    for feature in list.as_array_mut().into_iter().flatten() {
        let only = feature["name"].as_str().and_then(Features::read_by);
        feature["only"] = only.map_or(Value::Null, |p| p.name().into());
        feature["read"] = only.is_none_or(|p| p == preset.policy).into();
    }
    Ok(list)
}

fn switches(list: Vec<FeatureInfo>) -> Value {
    let one = |f: FeatureInfo| json!({ "name": f.key, "doc": f.doc, "values": f.values, "value": f.value });
    list.into_iter().map(one).collect()
}

/// Xen's switches as they are in a preset, the patches with their numbers, and each with its values in all presets.
fn xen(preset: &str) -> Result<Value, ScenarioError> {
    let Some(features) = XenFeatures::preset(preset) else {
        let right = format!("one of {}", XenFeatures::PRESETS.join(", "));
        let at = At::option("--policy");
        return Err(ScenarioError::Value { at, found: format!("\"{preset}\""), right });
    };
    let patches = features.patches();
    let all: Vec<_> = XenFeatures::PRESETS
        .iter()
        .map(|name| (*name, XenFeatures::preset(name).expect("a preset's own name").list()))
        .collect();
    let one = |(i, f): (usize, FeatureInfo)| {
        let patch = patches.iter().find(|(_, p)| p.key == f.key).map(|(n, _)| *n);
        let presets: serde_json::Map<String, Value> =
            all.iter().map(|(name, list)| ((*name).to_string(), list[i].value.as_str().into())).collect();
        json!({
            "name": f.key, "doc": f.doc, "values": f.values, "value": f.value, "patch": patch, "presets": presets,
        })
    };
    Ok(features.list().into_iter().enumerate().map(one).collect())
}

/// What is counted of virtual machines: KVM's counters, why vCPUs leave guest mode, and Xen's performance counters.
fn counters() -> Value {
    let kvm = Kvm::ALL.iter().map(|k| json!({ "name": k.name(), "doc": k.describe(), "of": "kvm" }));
    let exits = Exit::ALL.iter().map(|e| json!({ "name": e.name(), "doc": e.describe(), "of": "exits" }));
    let xen = Perf::ALL.iter().map(|p| json!({ "name": p.name(), "doc": p.describe(), "of": "xen" }));
    kvm.chain(exits).chain(xen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_say_whether_the_policy_reads_them() {
        let of = |preset: &str, feature: &str| {
            let listed = list("features", Some(preset)).expect("a preset");
            let found = listed.as_array().expect("a list").iter().find(|f| f["name"] == feature).cloned();
            found.map(|f| (f["only"].clone(), f["read"].clone())).expect("a feature")
        };
        assert_eq!(of("linux-6.18", "latency_ns"), (json!("cfs"), json!(false)));
        assert_eq!(of("linux-5.2", "latency_ns"), (json!("cfs"), json!(true)));
        assert_eq!(of("linux-5.2", "base_slice_ns"), (json!("eevdf"), json!(false)));
        assert_eq!(of("linux-5.2", "wake_path"), (Value::Null, json!(true)));
    }

    #[test]
    fn every_cost_can_be_set_by_its_listed_name() {
        for (name, _) in Machine::shipped() {
            let mut m = Machine::load(name).expect("shipped");
            let listed = list("costs", Some(name)).expect("shipped");
            for cost in listed.as_array().expect("a list") {
                let key = cost["name"].as_str().expect("a name");
                m.set(key, &cost["hi"].to_string()).unwrap_or_else(|e| panic!("{name}: {e}"));
            }
            assert!(listed.as_array().is_some_and(|l| l.iter().any(|c| c["lo"].as_u64() < c["hi"].as_u64())), "{name}");
        }
        assert!(list("costs", Some("nowhere")).is_err());
    }
}
