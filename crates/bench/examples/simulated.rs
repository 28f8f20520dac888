//! The simulated benchmark without Python:
//! `cargo run --release -p contend-bench --example simulated -- epyc-2vcpu ticket,mcs 1,2,64 3 0.5 [hogs]`

use contend_bench::{Load, Row, simulated};
use contend_machine::Machine;
use contend_sched::features::Preset;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let list =
        |i: usize, default: &str| args.get(i).map_or(default, |s| s).split(',').map(str::to_string).collect::<Vec<_>>();
    let machine = Machine::load(args.first().map_or("epyc-2vcpu", |s| s)).unwrap_or_else(|e| panic!("{e}"));
    let preset = Preset::find("linux-6.18").expect("it ships");
    let (locks, threads) = (list(1, &simulated::NAMES.join(",")), list(2, "1,2,4,8,16,32,64"));
    let repeats: u32 = args.get(3).map_or(1, |s| s.parse().expect("repeats"));
    let seconds: f64 = args.get(4).map_or(0.5, |s| s.parse().expect("seconds"));
    let hogs: u32 = args.get(5).map_or(0, |s| s.parse().expect("hogs"));
    println!(
        "{:>18} {:>4} {:>8} {:>6} {:>8} {:>7} {:>9} {:>10} {:>8} {:>6}",
        "lock", "n", "Mops/s", "jain", "max/min", "p99", "p99.9", "p99.99", "max us", "cpu"
    );
    for n in threads {
        for lock in &locks {
            let load = Load {
                threads: n.parse().expect("threads"),
                hogs,
                duration_ns: (seconds * 1e9) as u64,
                ..Load::default()
            };
            let on = simulated::On { machine: &machine, preset: &preset };
            let run = |repeat| simulated::run(lock, &load, repeat, &on).unwrap_or_else(|e| panic!("{e}"));
            let rows: Vec<Row> = (0..repeats).map(run).collect();
            let median = |f: &dyn Fn(&Row) -> f64| {
                let mut all: Vec<f64> = rows.iter().map(f).collect();
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            };
            println!(
                "{lock:>18} {n:>4} {:8.3} {:6.3} {:8.2} {:7.0} {:9.0} {:10.0} {:8.0} {:6.2}",
                median(&|r| r.throughput / 1e6),
                median(&|r| r.jain),
                median(&|r| r.max_min),
                median(&|r| r.p99_ns as f64),
                median(&|r| r.p999_ns as f64),
                median(&|r| r.p9999_ns as f64),
                median(&|r| r.wait_max_ns as f64 / 1e3),
                median(&|r| r.cpu_share),
            );
        }
    }
}
