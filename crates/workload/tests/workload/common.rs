//! What the tests of this crate share.

use contend_machine::{Machine, Unit};
use contend_platform::Account;
use contend_sched::features::Preset;
use contend_sim::guest::Guests;
use contend_sim::host::{Limits, Outcome, RunResult, Setup, simulate};
use contend_workload::WorkloadSpec;

/// A workload by its kind and keys.
pub fn spec(kind: &str, sets: &[(&str, &str)]) -> WorkloadSpec {
    let file = sets.iter().find(|s| s.0 == "file").map(|s| format!("file = {:?}\n", s.1)).unwrap_or_default();
    let text = format!("[workload]\nkind = \"{kind}\"\n{file}");
    let table = toml::de::DeTable::parse(&text).expect("valid TOML");
    let mut spec = WorkloadSpec::from_toml(&table.get_ref()["workload"]).expect("a valid workload");
    for (key, value) in sets {
        spec.set(key, value).unwrap_or_else(|e| panic!("{e}"));
    }
    spec
}

/// A machine on which only computing takes time.
pub fn free(name: &str) -> Machine {
    let mut m = Machine::load(name).expect("a machine");
    for key in contend_machine::keys() {
        if matches!(key.unit, Unit::Ns | Unit::NsPerKib) {
            let full = format!("{}.{}", key.section, key.field);
            // An array may be empty: no remote distances.
            if m.costs.get(key.section, key.field).is_some_and(|c| !c.is_empty()) {
                m.set(&full, "0").expect("a cost");
            }
        }
    }
    m
}

/// Run; checks what holds for every run.
pub fn run_on(machine: Machine, preset: &str, spec: &WorkloadSpec, seed: u64) -> RunResult {
    let p = Preset::find(preset).expect("a preset");
    let cpus = machine.topology.nr_cpus();
    let workload = spec.build(cpus, &|f| std::fs::read(f)).unwrap_or_else(|e| panic!("{e}"));
    let setup =
        Setup { machine, features: p.features, workload, seed, limits: Limits::default(), guests: Guests::default() };
    let r = simulate(p.policy, setup, None, &mut |_| true).expect("stacks");
    assert!(matches!(r.outcome, Outcome::Finished | Outcome::Horizon), "{:?}", r.outcome);
    assert_eq!(r.ledger().iter().sum::<u64>(), cpus as u64 * r.virtual_ns, "the ledger adds up");
    r
}

pub fn run(machine: &str, preset: &str, spec: &WorkloadSpec) -> RunResult {
    run_on(Machine::load(machine).expect("a machine"), preset, spec, 1)
}

/// Time computing in user space, in ns.
pub fn user_ns(r: &RunResult) -> u64 {
    let at = Account::ALL.iter().position(|a| a.name() == "user").expect("an account of user time");
    r.ledger()[at]
}
