//! What a pause-loop storm costs to simulate: one guest with a vCPU for each CPU of a machine, all but one of which spin.
//!
//! `cargo run --release -p contend-sim --example storm -- westmere-ex-4s-40c-80t 3.6 20`: machine, kind of directed yield,
//! virtual milliseconds. Prints virtual seconds a wall second, and what happened.

use contend_machine::Machine;
use contend_platform::Account;
use contend_sched::features::Preset;
use contend_sched::switches::Value;
use contend_sim::guest::{GuestSpec, Guests};
use contend_sim::host::{Limits, Setup, simulate};
use contend_sim::kvm::{DirectedYield, Kvm, KvmFeatures};
use contend_sim::program::{Cx, ObjectKind, Op, Program, TaskSpec, Workload};
use std::time::Instant;

/// Takes the one lock of its kernel for half a millisecond, for ever.
struct Greedy(contend_sim::program::ObjId);

impl Program for Greedy {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        Op::KernelLock(self.0, 500_000)
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let machine = args.next().unwrap_or_else(|| "westmere-ex-4s-40c-80t".into());
    let directed_yield = args.next().unwrap_or_else(|| "3.6".into());
    let ms: u64 = args.next().map_or(20, |a| a.parse().expect("milliseconds"));
    let machine = Machine::load(&machine).expect("a machine");
    let n = machine.topology.nr_cpus();
    let preset = Preset::find("linux-3.6").expect("a preset");
    let mut workload = Workload::default();
    let lock = workload.object("lock", ObjectKind::SpinLock);
    (0..n).for_each(|i| workload.task(TaskSpec::new(format!("t{i}"), Greedy(lock))));
    let guest = GuestSpec {
        name: "vm".into(),
        topology: Machine::synthetic(&format!("{n}n1l1c1t")).expect("a topology").topology,
        policy: preset.policy,
        features: preset.features.clone(),
        hz: 250,
        workload,
        pin: Vec::new(),
        background: false,
    };
    let directed_yield = DirectedYield::parse(&directed_yield).expect("a kind of directed yield");
    let kvm = KvmFeatures { directed_yield, halt_poll_ns: 0, ple_window_grow: 0, ..KvmFeatures::default() };
    let limits = Limits { horizon: ms * 1_000_000, ..Limits::default() };
    let guests = Guests { kvm, specs: vec![guest] };
    let workload = Workload::default();
    let setup = Setup { machine, features: preset.features, workload, seed: 1, limits, guests };
    let begun = Instant::now();
    let r = simulate(preset.policy, setup, None, &mut |_| true).expect("memory for stacks");
    let wall = begun.elapsed().as_secs_f64();
    println!("{:?}: {:.3} virtual s a wall s, {} events", r.outcome, r.virtual_ns as f64 / 1e9 / wall, r.counts.events);
    for (c, n) in std::iter::zip(Kvm::ALL, r.kvm).filter(|(_, n)| *n > 0) {
        println!("{:30} {n}", c.name());
    }
    let total = r.virtual_ns * n as u64;
    for (a, ns) in std::iter::zip(Account::ALL, r.ledger()).filter(|(_, ns)| *ns > 0) {
        println!("{:30} {:6.2} %", a.name(), 100.0 * ns as f64 / total as f64);
    }
}
