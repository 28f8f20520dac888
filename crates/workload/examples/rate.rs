//! Measure a workload: `rate MACHINE PRESET KIND [KEY=VALUE]...` prints rates per second of this process's CPU time.
use contend_machine::Machine;
use contend_sched::features::Preset;
use contend_sim::guest::Guests;
use contend_sim::host::{Limits, Setup, simulate};
use contend_workload::WorkloadSpec;
use contend_workload::spec::Target;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [machine, preset, kind, sets @ ..] = args.as_slice() else {
        eprintln!("usage: rate MACHINE PRESET KIND [KEY=VALUE]...");
        std::process::exit(2);
    };
    let machine = Machine::load(machine).unwrap_or_else(|e| panic!("{e}"));
    let preset = Preset::find(preset).expect("a preset");
    let file = sets.iter().find_map(|s| s.strip_prefix("file=")).map(|f| format!("file = {f:?}\n"));
    let text = format!("[workload]\nkind = \"{kind}\"\n{}", file.unwrap_or_default());
    let table = toml::de::DeTable::parse(&text).expect("valid TOML");
    let mut spec = WorkloadSpec::from_toml(&table.get_ref()["workload"]).unwrap_or_else(|e| panic!("{e}"));
    for set in sets {
        let (key, value) = set.split_once('=').expect("KEY=VALUE");
        spec.set(key, value).unwrap_or_else(|e| panic!("{e}"));
    }
    let cpus = machine.topology.nr_cpus();
    let t0 = cpu_s();
    let capacity = machine.capacities();
    let target = Target { nr_cpus: cpus, speed: machine.costs.cpu.speed.value, capacity: &capacity };
    let (workload, origins) =
        spec.build_in(Default::default(), target, &|p| std::fs::read(p)).unwrap_or_else(|e| panic!("{e}"));
    for r in origins.recordings {
        println!("{r}");
    }
    let t1 = cpu_s();
    let setup = Setup {
        machine,
        features: preset.features,
        workload,
        seed: 1,
        limits: Limits::default(),
        guests: Guests::default(),
    };
    let r = simulate(preset.policy, setup, None, &mut |_| true).expect("stacks");
    let cpu = cpu_s() - t1;
    println!(
        "{} {}: {cpus} CPUs, {} tasks, virtual {:.6} s, CPU {cpu:.3} s (built in {:.3} s), dispatches {} ({:.3} M/s)",
        r.outcome.name(),
        r.outcome.detail(),
        r.tasks.len(),
        r.virtual_ns as f64 / 1e9,
        t1 - t0,
        r.dispatches,
        r.dispatches as f64 / cpu / 1e6
    );
    let ledger = r.ledger();
    assert_eq!(ledger.iter().sum::<u64>(), cpus as u64 * r.virtual_ns, "the ledger adds up");
    let (switches, preempted, run) =
        (r.tasks.iter()).fold((0, 0, 0), |(a, b, c), t| (a + t.run.switches, b + t.run.preempted, c + t.run.sum_exec));
    println!("  tasks got a CPU {switches} times, were preempted {preempted} times, ran {:.6} s", run as f64 / 1e9);
    println!("  events {}", r.counts.events);
    for (name, n) in &r.metrics.counts {
        println!("  {name} {n} ({:.3} M per CPU-second)", *n as f64 / cpu / 1e6);
    }
    for (name, s) in &r.metrics.latencies {
        let h = &s.histogram;
        print!("  {name} us: n {} mean {:.3}", h.len(), h.mean() / 1e3);
        for q in [50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9] {
            print!(" p{q} {:.3}", h.value_at_percentile(q) as f64 / 1e3);
        }
        println!();
    }
    for (a, ns) in std::iter::zip(contend_platform::Account::ALL, ledger) {
        println!("  {:16} {:6.2} %", a.name(), ns as f64 * 100.0 / ledger.iter().sum::<u64>() as f64);
    }
}

/// CPU time of this process.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    stat.split(' ').next().and_then(|n| n.parse::<f64>().ok()).expect("a number") / 1e9
}
