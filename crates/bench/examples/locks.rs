//! The native benchmark without Python: `cargo run --release -p contend-bench --example locks -- std,ticket 1,2,64 3 0.5 [hogs]`

use contend_bench::{Load, native};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let list =
        |i: usize, default: &str| args.get(i).map_or(default, |s| s).split(',').map(str::to_string).collect::<Vec<_>>();
    let (locks, threads) = (list(0, "std,parking_lot"), list(1, "1,2,4,64"));
    let repeats: u32 = args.get(2).map_or(1, |s| s.parse().expect("repeats"));
    let seconds: f64 = args.get(3).map_or(0.5, |s| s.parse().expect("seconds"));
    let hogs: u32 = args.get(4).map_or(0, |s| s.parse().expect("hogs"));
    println!(
        "{:>18} {:>4} {:>8} {:>6} {:>8} {:>7} {:>9} {:>10} {:>8} {:>6}",
        "lock", "n", "Mops/s", "jain", "max/min", "p99", "p99.9", "p99.99", "max us", "cpu"
    );
    for n in threads {
        let mut rows = Vec::new();
        for repeat in 0..repeats {
            for lock in &locks {
                let load = Load {
                    threads: n.parse().expect("threads"),
                    hogs,
                    duration_ns: (seconds * 1e9) as u64,
                    ..Load::default()
                };
                rows.push(native::run(lock, &load, repeat).unwrap_or_else(|e| panic!("{e}")));
            }
        }
        for lock in &locks {
            let mine: Vec<_> = rows.iter().filter(|r| &r.lock == lock).collect();
            let median = |f: &dyn Fn(&contend_bench::Row) -> f64| {
                let mut all: Vec<f64> = mine.iter().map(|r| f(r)).collect();
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            };
            println!(
                "{lock:>18} {n:>4} {:8.3} {:6.3} {:8.2} {:7.0} {:9.0} {:10.0} {:8.0} {:6.2} {:7.0}",
                median(&|r| r.throughput / 1e6),
                median(&|r| r.jain),
                median(&|r| r.max_min),
                median(&|r| r.p99_ns as f64),
                median(&|r| r.p999_ns as f64),
                median(&|r| r.p9999_ns as f64),
                median(&|r| r.wait_max_ns as f64 / 1e3),
                median(&|r| r.cpu_share),
                median(&|r| r.switches)
            );
        }
    }
}
