//! The complete scenario that makes a result again.

use std::collections::BTreeMap;

use contend_sched::switches::{FeatureInfo, Value as _};
use contend_sim::kvm::KvmFeatures;
use contend_workload::WorkloadSpec;

use super::guest::GuestPlan;
use super::{Plan, STALL_NS_DEFAULT, groups, quoted};

/// The switches of which the value is not the one to start from.
pub(super) fn differ(ours: Vec<FeatureInfo>, from: Vec<FeatureInfo>) -> Vec<(&'static str, String)> {
    std::iter::zip(ours, from).filter(|(a, b)| a.value != b.value).map(|(a, _)| (a.key, a.value)).collect()
}

/// A switch's value as TOML.
pub(super) fn plain(value: &str) -> toml::Value {
    match (value, value.parse::<i64>()) {
        ("true" | "false", _) => toml::Value::Boolean(value == "true"),
        (_, Ok(n)) => toml::Value::Integer(n),
        _ => toml::Value::String(value.into()),
    }
}

impl Plan {
    /// What runs: the preset, the policy of the caller's, or `xen-` and the scheduler.
    pub fn policy_name(&self) -> String {
        let linux = || self.own_policy.clone().unwrap_or_else(|| self.preset.name.into());
        self.xen.as_ref().map_or_else(linux, |xen| format!("xen-{}", xen.scheduler.show()))
    }

    /// The policy behind that name.
    pub fn algorithm(&self) -> String {
        let linux = || self.own_policy.clone().unwrap_or_else(|| self.preset.policy.name());
        self.xen.as_ref().map_or_else(linux, |xen| xen.scheduler.show())
    }

    /// Whether the host's policy knows groups.
    pub fn has_groups(&self) -> bool {
        self.own_policy.is_none() && self.preset.policy.has_groups()
    }

    /// Features that differ from the preset's.
    pub fn features_set(&self) -> Vec<(&'static str, String)> {
        differ(self.features.list(), self.preset.features.list())
    }

    /// Switches of the hypervisor that differ from its defaults.
    pub fn kvm_set(&self) -> Vec<(&'static str, String)> {
        differ(self.kvm.list(), KvmFeatures::default().list())
    }

    /// The complete scenario that makes the same result again: all choices written out, paths relative to the result's
    /// directory. `inputs` maps the workload's file names to the stored ones.
    pub fn resolved_toml(&self, inputs: &BTreeMap<String, String>) -> String {
        let who = self
            .own_policy
            .as_ref()
            .map_or("`contend run scenario.toml`".into(), |own| format!("The program that has the policy {own}"));
        let mut text = format!(
            "# contend {}: everything that made this result. {who} makes it again.\n\
             machine = \"machine.toml\" # {}\n",
            env!("CARGO_PKG_VERSION"),
            self.machine_base.name,
        );
        if self.xen.is_none() {
            text += &format!("policy = {}\n", quoted(self.preset.name));
        }
        if let Some(own) = &self.own_policy {
            text += &format!("own_policy = {} # in the place of that preset's\n", quoted(own));
        }
        text += &format!("seed = {}\n", self.seed);
        let mut time = |key: &str, ns: u64| {
            if ns.is_multiple_of(1_000_000_000) {
                text += &format!("{key}_s = {}\n", ns / 1_000_000_000);
            } else if key != "horizon" {
                text += &format!("{key}_s = {:?}\n", ns as f64 / 1e9);
            } else {
                text += &format!("{key}_ns = {ns}\n");
            }
        };
        self.horizon_ns.into_iter().for_each(|ns| time("horizon", ns));
        if self.warmup_ns > 0 {
            time("warmup", self.warmup_ns);
        }
        if self.stall_ns != STALL_NS_DEFAULT {
            time("stall", self.stall_ns);
        }
        let (features, kvm) = (self.features_set(), self.kvm_set());
        let xen = self.xen.as_ref().map(|x| x.features_set()).unwrap_or_default();
        if !features.is_empty() || !kvm.is_empty() || !xen.is_empty() || !self.machine_set.is_empty() {
            text += "\n[set]\n";
            for (key, value) in features {
                text += &format!("{key} = {}\n", plain(&value));
            }
            for (key, value) in kvm {
                text += &format!("\"kvm.{key}\" = {}\n", plain(&value));
            }
            for (key, value) in xen {
                text += &format!("\"xen.{key}\" = {}\n", plain(&value));
            }
            for (key, value) in &self.machine_set {
                text += &format!("\"machine.{key}\" = {}\n", quoted(value));
            }
        }
        let workload = |spec: &WorkloadSpec| {
            let mut spec = spec.clone();
            for_each_file(&mut spec, &mut |file| {
                if let Some(stored) = inputs.get(file) {
                    *file = stored.clone();
                }
            });
            toml::Value::Table(spec.to_toml())
        };
        let mut root = toml::Table::new();
        let groups = groups::to_toml(&self.groups);
        if !groups.is_empty() {
            root.insert("groups".into(), toml::Value::Table(groups));
        }
        if let Some(spec) = &self.workload {
            root.insert("workload".into(), workload(spec));
        }
        let guest = |g: &GuestPlan| toml::Value::Table(g.to_toml(workload(&g.workload), self.xen.as_ref()));
        let guests: Vec<_> = self.guests.iter().map(guest).collect();
        if let Some(xen) = &self.xen {
            root.insert("xen".into(), toml::Value::Table(xen.to_toml()));
        }
        if !guests.is_empty() {
            root.insert("guest".into(), toml::Value::Array(guests));
        }
        let at = self.xen.as_ref().map(|x| x.at_toml()).unwrap_or_default();
        if !at.is_empty() {
            root.insert("at".into(), toml::Value::Array(at));
        }
        text + "\n" + &toml::to_string(&root).expect("a table of plain values")
    }
}

/// Every file that a workload names.
fn for_each_file(spec: &mut WorkloadSpec, f: &mut dyn FnMut(&mut String)) {
    match spec {
        WorkloadSpec::RtApp(s) => f(&mut s.file),
        WorkloadSpec::Model(s) => f(&mut s.file),
        WorkloadSpec::Recording(s) => {
            f(&mut s.file);
            f(&mut s.recorded_on);
            f(&mut s.sessions);
        }
        WorkloadSpec::Mix(mix) => mix.parts.iter_mut().for_each(|p| for_each_file(&mut p.workload, f)),
        _ => {}
    }
}
