//! Tasks that run 3 ms and sleep 1 + (i mod 7) ms: `periodic MACHINE TASKS SECONDS [PRESET]`.
use contend_machine::Machine;
use contend_sched::features::Preset;
use contend_sim::guest::Guests;
use contend_sim::host::{Limits, Setup, simulate};
use contend_sim::program::{Cx, Op, Program, TaskSpec, Workload};

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

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let machine = Machine::load(&args[1]).expect("machine");
    let n: u64 = args[2].parse().expect("tasks");
    let seconds: f64 = args[3].parse().expect("seconds");
    let preset = Preset::find(args.get(4).map_or("linux-6.18", |s| s)).expect("preset");
    let mut workload = Workload { horizon: Some((seconds * 1e9) as u64), ..Workload::default() };
    for i in 0..n {
        workload.task(TaskSpec::new(format!("t{i}"), Periodic { sleep: (1 + i % 7) * 1_000_000, run: false }));
    }
    let cpus = machine.topology.nr_cpus();
    let t0 = std::time::Instant::now();
    let r = simulate(
        preset.policy,
        Setup {
            machine,
            features: preset.features,
            workload,
            seed: 1,
            limits: Limits::default(),
            guests: Guests::default(),
        },
        None,
        &mut |_| true,
    )
    .expect("stacks");
    let wall = t0.elapsed().as_secs_f64();
    println!(
        "{:?} cpus {cpus} virtual {:.3} s wall {wall:.3} s dispatches {} = {:.3} M/s events {} = {:.2}/dispatch hash {:016x}",
        r.outcome,
        r.virtual_ns as f64 / 1e9,
        r.dispatches,
        r.dispatches as f64 / wall / 1e6,
        r.counts.events,
        r.counts.events as f64 / r.dispatches as f64,
        r.trace_hash
    );
    let total: u64 = r.ledger().iter().sum();
    for (a, ns) in std::iter::zip(contend_platform::Account::ALL, r.ledger()) {
        println!("  {:16} {:6.2} %", a.name(), ns as f64 * 100.0 / total as f64);
    }
    let h = &r.observed.wakeup_latency;
    println!(
        "  latency us p50 {:.1} p99 {:.1} max {:.1} n {}",
        h.value_at_quantile(0.5) as f64 / 1e3,
        h.value_at_quantile(0.99) as f64 / 1e3,
        h.max() as f64 / 1e3,
        h.len()
    );
    println!(
        "  from_waker {:?} from_prev {:?} searches {} probes {} ipis {}",
        r.observed.wakeups_from_waker,
        r.observed.wakeups_from_prev,
        r.observed.idle_searches,
        r.observed.probes,
        r.counts.ipis
    );
    let mig: u64 = r.tasks.iter().map(|t| t.run.nr_migrations).sum();
    println!("  migrations {mig}");
}
