//! `contend list`: what there is, as JSON.

use contend_machine::Machine;
use contend_sched::features::{PolicyKind, Preset};
use serde_json::{Value, json};

use crate::error::{At, ScenarioError};
use crate::names::did_you_mean;
use crate::scenario::POLICY_DEFAULT;

/// What can be listed.
pub const WHAT: &[&str] = &["machines", "workloads", "policies", "features", "presets"];

/// The list of `what` (one of [`WHAT`]): an array of objects that have a `name` and a `doc`. Features have the values
/// of the preset `policy`.
///
/// # Errors
/// Nothing of that name can be listed; no such preset.
pub fn list(what: &str, policy: Option<&str>) -> Result<Value, ScenarioError> {
    Ok(match what {
        "machines" => Machine::shipped().iter().map(|(name, text)| machine(name, text)).collect(),
        "workloads" => crate::workloads().iter().map(workload).collect(),
        "policies" => policies(),
        "presets" => Preset::all().iter().map(preset).collect(),
        "features" => features(policy.unwrap_or(POLICY_DEFAULT))?,
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
    [PolicyKind::Fifo, PolicyKind::Cfs, PolicyKind::Eevdf]
        .into_iter()
        .map(|kind| {
            let all = Preset::all();
            let presets: Vec<&str> = all.iter().filter(|p| p.policy == kind).map(|p| p.name).collect();
            json!({ "name": kind.name(), "doc": doc(kind), "presets": presets })
        })
        .collect()
}

fn features(policy: &str) -> Result<Value, ScenarioError> {
    let preset = Preset::find(policy).ok_or_else(|| {
        let all = Preset::all();
        let right = did_you_mean(policy, all.iter().map(|p| p.name), "`contend list presets` lists them");
        let at = At { file: "--policy".into(), line: 0, key: String::new() };
        ScenarioError::UnknownPolicy { at, name: policy.into(), right }
    })?;
    let list = preset.features.list().into_iter();
    Ok(list.map(|f| json!({ "name": f.key, "doc": f.doc, "values": f.values, "value": f.value })).collect())
}
