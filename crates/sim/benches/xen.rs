//! Xen's schedulers over many pCPUs: `cargo bench -p contend-sim --bench xen` (or `make bench`).
//!
//! The counter says how many dispatches a second were done. Compare figures of one run only.

use contend_machine::Machine;
use contend_sched::xen::contract::{DomParams, Tunables};
use contend_sched::xen::features::{Scheduler, XenFeatures};
use contend_sched::xen::mask::CpuMask;
use contend_sched::xen::units::VcpuAffinity;
use contend_sim::host::Limits;
use contend_sim::program::{Cx, Op, Program};
use contend_sim::xen::{Content, DomainSetup, PoolSetup, Sinks, XenSetup, simulate};
use divan::counter::ItemsCount;

fn main() {
    divan::main();
}

/// Runs 3 ms and sleeps for `sleep` ns.
struct Periodic {
    sleep: u64,
    run: bool,
}

impl Program for Periodic {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        self.run = !self.run;
        if self.run { Op::Run(3_000_000) } else { Op::Sleep(self.sleep) }
    }
}

/// Four vCPUs a pCPU, in domains of four, for `ms` of virtual time; returns dispatches.
fn run(machine: &str, scheduler: Scheduler, preset: &str, ms: u64) -> u64 {
    let machine = Machine::load(machine).expect("a machine");
    let cpus = machine.topology.nr_cpus();
    let all = CpuMask::first_n(cpus);
    let domain = |d: u64| {
        let program = |i: u64| Box::new(Periodic { sleep: (1 + i % 7) * 1_000_000, run: false }) as Box<dyn Program>;
        let programs: Vec<_> = (d * 4..d * 4 + 4).map(program).collect();
        DomainSetup {
            dom: d as u16 + 1,
            params: DomParams::default(),
            pool: 0,
            affinity: vec![VcpuAffinity { hard: all, soft: all }; programs.len()],
            content: Content::Programs { name: format!("d{d}"), programs, background: false },
        }
    };
    let features = XenFeatures::preset(preset).expect("a preset");
    let tunables = Tunables { ratelimit: features.ratelimit_us * 1_000, tslice: features.tslice_ms * 1_000_000 };
    let setup = XenSetup {
        machine,
        scheduler,
        features,
        pools: vec![PoolSetup { name: "Pool-0".into(), cpus: all, tunables }],
        domains: (0..cpus as u64).map(domain).collect(),
        timeline: Vec::new(),
        seed: 1,
        limits: Limits { horizon: ms * 1_000_000, ..Limits::default() },
    };
    let r = simulate(setup, Sinks::default(), &mut |_| true).expect("memory for stacks");
    assert_eq!(r.virtual_ns, ms * 1_000_000);
    r.dispatches
}

fn bench(bencher: divan::Bencher, machine: &str, (scheduler, preset): (Scheduler, &str), ms: u64) {
    let dispatches = run(machine, scheduler, preset, ms);
    bencher.counter(ItemsCount::new(dispatches)).bench(|| run(machine, scheduler, preset, ms));
}

const BOTH: [(Scheduler, &str); 4] = [
    (Scheduler::Credit2, "base"),
    (Scheduler::Credit2, "upstream-today"),
    (Scheduler::Credit, "base"),
    (Scheduler::Credit, "upstream-today"),
];

/// 64 vCPUs on 16 pCPUs.
#[divan::bench(args = BOTH, sample_count = 5)]
fn pcpus_16(bencher: divan::Bencher, of: (Scheduler, &str)) {
    bench(bencher, "2n1l8c1t", of, 2_000);
}

/// 1,024 vCPUs on 256 pCPUs.
#[divan::bench(args = BOTH, sample_count = 3)]
fn pcpus_256(bencher: divan::Bencher, of: (Scheduler, &str)) {
    bench(bencher, "8n1l16c2t", of, 500);
}
