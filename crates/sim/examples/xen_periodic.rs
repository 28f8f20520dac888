//! vCPUs without a kernel that run 3 ms and sleep 1 + (i mod 7) ms: `xen_periodic MACHINE VCPUS SECONDS credit|credit2|round-robin [PRESET]`.
use contend_machine::Machine;
use contend_sched::switches::Value;
use contend_sched::xen::contract::{DomParams, Tunables};
use contend_sched::xen::features::{Scheduler, XenFeatures};
use contend_sched::xen::mask::CpuMask;
use contend_sched::xen::perf::Perf;
use contend_sched::xen::units::VcpuAffinity;
use contend_sim::host::Limits;
use contend_sim::program::{Cx, Op, Program};
use contend_sim::xen::{Content, DomainSetup, PoolSetup, Sinks, XenSetup, simulate};

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

/// Domains of 4 vCPUs.
fn domains(vcpus: u64, all: CpuMask) -> Vec<DomainSetup> {
    let domain = |d: u64| {
        let of = d * 4..(d * 4 + 4).min(vcpus);
        let programs: Vec<Box<dyn Program>> =
            of.map(|i| Box::new(Periodic { sleep: (1 + i % 7) * 1_000_000, run: false }) as Box<dyn Program>).collect();
        let affinity = vec![VcpuAffinity { hard: all, soft: all }; programs.len()];
        let content = Content::Programs { name: format!("d{d}"), programs, background: false };
        DomainSetup { dom: d as u16 + 1, params: DomParams::default(), pool: 0, affinity, content }
    };
    (0..vcpus.div_ceil(4)).map(domain).collect()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let machine = Machine::load(&args[1]).expect("machine");
    let vcpus: u64 = args[2].parse().expect("vCPUs");
    let seconds: f64 = args[3].parse().expect("seconds");
    let scheduler = Scheduler::parse(&args[4]).expect("scheduler");
    let features = XenFeatures::preset(args.get(5).map_or("upstream-today", |s| s)).expect("preset");
    let cpus = machine.topology.nr_cpus();
    let all = CpuMask::first_n(cpus);
    let tunables = Tunables { ratelimit: features.ratelimit_us * 1_000, tslice: features.tslice_ms * 1_000_000 };
    let t0 = std::time::Instant::now();
    let setup = XenSetup {
        machine,
        scheduler,
        features,
        pools: vec![PoolSetup { name: "Pool-0".into(), cpus: all, tunables }],
        domains: domains(vcpus, all),
        timeline: Vec::new(),
        seed: 1,
        limits: Limits { horizon: (seconds * 1e9) as u64, ..Limits::default() },
    };
    let r = simulate(setup, Sinks::default(), &mut |_| true).expect("stacks");
    let wall = t0.elapsed().as_secs_f64();
    println!(
        "{:?} {} cpus {cpus} virtual {:.3} s wall {wall:.3} s dispatches {} = {:.3} M/s events {} = {:.2}/dispatch hash {:016x}",
        r.outcome.name(),
        r.outcome.detail(),
        r.virtual_ns as f64 / 1e9,
        r.dispatches,
        r.dispatches as f64 / wall / 1e6,
        r.counts.events,
        r.counts.events as f64 / r.dispatches as f64,
        r.trace_hash
    );
    let total: u64 = r.ledger().iter().sum();
    for (a, ns) in std::iter::zip(contend_platform::Account::ALL, r.ledger()).filter(|(_, ns)| *ns > 0) {
        println!("  {:16} {:6.2} %", a.name(), ns as f64 * 100.0 / total as f64);
    }
    let xen = r.xen.expect("a Xen host");
    for (what, n) in std::iter::zip(Perf::ALL, xen.perf).filter(|(_, n)| *n > 0) {
        println!("  {:26} {n}", what.name());
    }
}
