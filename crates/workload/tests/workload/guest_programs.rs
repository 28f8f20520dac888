//! The programs that are meant for guests, on bare hosts: what they count is what they should do.

use crate::common::{run, spec, user_ns};
use contend_sim::host::{Outcome, RunResult};

fn lock(r: &RunResult, name: &str) -> u64 {
    r.locks.iter().find(|l| l.name == name).unwrap_or_else(|| panic!("no lock {name}")).stats.acquisitions
}

#[test]
fn a_kernel_build_compiles_all_units_and_links() {
    for (jobs, preset) in [(1, "linux-3.6"), (3, "linux-5.2"), (8, "linux-6.18")] {
        let jobs_text = jobs.to_string();
        let sets = [
            ("jobs", jobs_text.as_str()),
            ("units", "40"),
            ("compile_ms", "20"),
            ("faults_per_unit", "1240"),
            ("start_ms", "30"),
            ("link_ms", "50"),
            ("spread_pct", "0"),
        ];
        // Without SMT, so that work takes its nominal time.
        let r = run("4n1c", preset, &spec("kernel-build", &sets));
        assert_eq!(r.outcome, Outcome::Finished);
        let count = |name| r.metrics.counts[name];
        assert_eq!(count("units"), 40);
        assert_eq!(r.metrics.latencies["unit"].histogram.len(), 40);
        assert_eq!(r.tasks.len(), 1 + 40 * 11);
        // A few faults and millionths are lost to rounding in each process.
        let near = |n: u64, right: u64| n <= right && n * 1000 >= right * 990;
        assert!(near(count("unit_millionths"), 40_000_000), "{}", count("unit_millionths"));
        let faults = 40 * 1240 + 80 * 1240 / 20;
        assert!(near(count("faults"), faults), "{} for {faults}", count("faults"));
        // Bursts are half to one and a half of their mean; make's own work is 1 ms a unit.
        let work = 1_000_000 * (40 * 21 + 80);
        assert!(user_ns(&r).abs_diff(work) < work / 25, "{} for {work}", user_ns(&r));
        // Each process forks, exits and is waited for; make waits for none. Each page comes and goes.
        assert_eq!(lock(&r, "tasklist"), 40 * (11 + 11 + 10));
        assert_eq!(lock(&r, "journal"), 40 * 8);
        assert_eq!(lock(&r, "inodes"), 40 * 8);
        let zone = lock(&r, "zone");
        // What is not a whole list's worth is carried as one: two more for each of 442 processes at most.
        assert!((2 * faults / 31..=2 * faults / 31 + 2 * 442).contains(&zone), "{zone} for {faults}");
        // Serial parts take their time, and no more than `jobs` units go on at once.
        assert!(r.virtual_ns > 80_000_000 + 40 * 20_000_000 / jobs.min(4), "{}", r.virtual_ns);
    }
}

#[test]
fn a_kernel_build_without_faults_files_or_children_to_speak_of_ends_as_well() {
    let none = ["faults_per_unit", "opens_per_unit", "changes_per_unit", "make_us", "start_ms", "link_ms"];
    let mut sets: Vec<(&str, &str)> = none.iter().map(|k| (*k, "0")).collect();
    sets.extend([("units", "3"), ("processes", "3"), ("spread_pct", "100"), ("compile_ms", "1")]);
    let r = run("2c", "linux-6.18", &spec("kernel-build", &sets));
    assert_eq!((r.outcome.clone(), r.metrics.counts["units"], r.tasks.len()), (Outcome::Finished, 3, 10));
}

/// A slice makes units as fast as the whole build's parallel part does.
#[test]
fn a_slice_of_a_kernel_build_predicts_the_whole() {
    let common = [("jobs", "4"), ("compile_ms", "40"), ("start_ms", "0"), ("link_ms", "0")];
    let with = |more: &[(&'static str, &'static str)]| {
        let sets: Vec<_> = common.iter().chain(more).copied().collect();
        run("1n1l4c1t", "linux-5.2", &spec("kernel-build", &sets))
    };
    let whole = with(&[("units", "200")]);
    let slice = with(&[("duration_ms", "1000")]);
    assert_eq!(slice.outcome, Outcome::Horizon);
    let predicted = 200e6 / slice.metrics.counts["unit_millionths"] as f64;
    let ratio = predicted / (whole.virtual_ns as f64 / 1e9);
    assert!((0.95..1.05).contains(&ratio), "{ratio}");
    // At the start the units are at random points: the first ends long before a unit's time, and not all at once.
    assert!(slice.metrics.counts["units"] > 60);
}
#[test]
fn a_boot_brings_up_every_cpu_and_ends_with_the_services() {
    for (machine, cpus) in [("1c", 1), ("2c", 2), ("2n4c", 8), ("1n1l4c2t", 8)] {
        for preset in ["linux-2.6.37", "linux-3.6", "linux-6.18"] {
            let sets = [("serial_ms", "3"), ("broadcasts", "7"), ("broadcasts_per_cpu", "2"), ("service_ms", "8")];
            let r = run(machine, preset, &spec("guest-boot", &sets));
            assert_eq!(r.outcome, Outcome::Finished, "{machine} {preset}");
            let count = |name| r.metrics.counts.get(name).copied().unwrap_or(0);
            assert_eq!((count("cpus_up"), count("services")), (cpus - 1, 2 * cpus));
            assert_eq!(count("broadcasts"), 7 + 2 * (cpus - 1));
            assert_eq!(lock(&r, "change"), count("broadcasts"));
            assert_eq!(lock(&r, "shared0"), count("service_steps"));
            assert!(count("service_steps") >= 2 * cpus * 8 / 2);
            assert_eq!(r.tasks.len() as u64, 1 + (cpus - 1) + 2 * cpus);
            assert!(r.metrics.latencies["broadcast"].histogram.min() >= 100_000);
            if cpus > 1 {
                // Preparation and initialisation; nothing slows them but the siblings of a core.
                let h = &r.metrics.latencies["bring_up"].histogram;
                assert!(h.min() >= 12_000_000 && h.max() < 25_000_000, "{} to {}", h.min(), h.max());
            }
        }
    }
}

/// In a broadcast all CPUs but one spin.
#[test]
fn broadcasts_cost_every_cpu_their_time() {
    let sets = [
        ("serial_ms", "0"),
        ("bringup_us", "0"),
        ("init_us", "0"),
        ("broadcasts_per_cpu", "0"),
        ("broadcasts", "100"),
        ("broadcast_us", "500"),
        ("between_us", "0"),
        ("services_per_cpu", "0"),
    ];
    let r = run("16n", "linux-3.6", &spec("guest-boot", &sets));
    let spun = r.ledger()[contend_platform::Account::SpinLock as usize];
    let right = 15 * 100 * 500_000;
    assert!(spun > right && spun < right * 11 / 10, "{spun} for {right}");
}

#[test]
fn dbench_in_memory_shares_locks_and_sleeps_for_nobody() {
    for preset in ["linux-3.6", "linux-6.18"] {
        let sets = [("clients", "8"), ("file_system", "tmpfs"), ("dcache_ns", "300"), ("duration_ms", "50")];
        let r = run("8n", preset, &spec("dbench", &sets));
        assert_eq!((r.outcome.clone(), r.tasks.len()), (Outcome::Horizon, 8));
        let (ops, flushes) = (r.metrics.counts["ops"], r.metrics.counts["flushes"]);
        assert!(flushes > ops / 100 && !r.metrics.counts.contains_key("commits"));
        // One of each client is under way.
        assert!(lock(&r, "dcache").abs_diff(ops) <= 8, "{} for {ops}", lock(&r, "dcache"));
        let changes = lock(&r, "inodes") as f64 / ops as f64;
        assert!((0.167..0.187).contains(&changes), "{changes}");
        assert!(r.metrics.latencies["flush"].histogram.max() < 100_000);
        let idle = r.ledger()[contend_platform::Account::Idle as usize];
        assert!(idle < 8 * r.virtual_ns / 100, "{idle}");
    }
}

#[test]
fn ebizzy_maps_and_unmaps_what_it_searches() {
    for (threads, preset) in [(1, "linux-3.6"), (8, "linux-3.6"), (16, "linux-6.18")] {
        let text = threads.to_string();
        let sets = [("threads", text.as_str()), ("chunk_kib", "256"), ("duration_ms", "100")];
        let r = run("8n", preset, &spec("ebizzy", &sets));
        assert_eq!(r.outcome, Outcome::Horizon);
        let (records, faults) = (r.metrics.counts["records"], r.metrics.counts["faults"]);
        // Each thread is in the midst of one.
        assert!(
            records > 500 && faults >= 64 * records && faults <= 64 * (records + threads),
            "{faults} for {records}"
        );
        // 64 pages are 3 batches, there and back.
        let zone = lock(&r, "zone");
        assert!((6 * records..=6 * (records + threads)).contains(&zone), "{zone} for {records}");
        let h = &r.metrics.latencies["record"].histogram;
        assert_eq!((h.len(), r.metrics.latencies["unmap"].histogram.len()), (records, records));
        // Copying and faults alone take 60 us.
        assert!(h.min() > 60_000, "{}", h.min());
        // One thread has nobody to interrupt; of several, most run when one unmaps.
        let each = r.counts.ipis as f64 / records as f64;
        assert!(if threads == 1 { each < 0.1 } else { each > 2.0 && each < 9.0 }, "{each} of {threads}");
    }
}

#[test]
fn what_an_endless_part_starts_does_not_keep_a_mix_alive() {
    let text = "[workload]\nkind = \"mix\"\nparts = [\n{ kind = \"kernel-build\", jobs = 4, compile_ms = 5, duration_ms = 1000 },\n\
                { kind = \"ping-pong\", round_trips = 1000 },\n]\n";
    let table = toml::de::DeTable::parse(text).expect("valid TOML");
    let s = contend_workload::WorkloadSpec::from_toml(&table.get_ref()["workload"]).expect("a mix");
    let r = run("2c", "linux-6.18", &s);
    assert_eq!((r.outcome.clone(), r.metrics.counts["round_trips"]), (Outcome::Finished, 1000));
    assert!(r.virtual_ns < 1_000_000_000, "{}", r.virtual_ns);
}
