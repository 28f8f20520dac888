//! CPUs of different capacity: how long work takes on them, and what the scheduler makes of them by era (docs/internals/capacity.md).

use crate::common::{MS, cpus, hog, machine, preset, run_on, script, task};
use contend_platform::CpuId;
use contend_sched::features::AsymCapacity;
use contend_sim::host::{Outcome, RunResult};
use contend_sim::program::{Op, TaskSpec, Workload};

/// Little: CPUs 0 to 3, of capacity 462; big: 4 to 7.
const MACHINE: &str = "kirin-960-8c";
const LITTLE: f64 = 462.0 / 1024.0;
/// Kernels that know of capacities, of both eras, and one that does not.
const AWARE: [&str; 5] = ["linux-5.2", "linux-5.8", "linux-5.15", "linux-6.0", "linux-6.18"];
const UNAWARE: &str = "linux-4.1";

fn finished(r: &RunResult, what: &str) -> f64 {
    assert_eq!(r.outcome, Outcome::Finished, "{what}");
    r.virtual_ns as f64 / MS as f64
}

fn busy_ms(r: &RunResult, cpu: u16) -> f64 {
    r.cpus[usize::from(cpu)].stats.rq_cpu_time as f64 / MS as f64
}

/// Share of the fair tasks' running time that was spent on big CPUs.
fn on_big(r: &RunResult) -> f64 {
    let of = |cpus: std::ops::Range<u16>| cpus.map(|c| busy_ms(r, c)).sum::<f64>();
    of(4..8) / of(0..8)
}

/// Computes on CPU `cpu` for `pinned`, then freely for `free`.
fn freed_from(name: &str, cpu: usize, pinned: u64, free: u64) -> TaskSpec {
    let t = script(name, vec![Op::Run(pinned), Op::SetAffinity(None), Op::Run(free)]);
    TaskSpec { affinity: Some(cpus(&[cpu])), ..t }
}

/// Computes for `run` and sleeps for `sleep`, for ever; on CPU `cpu` for the first twenty rounds.
fn periodic(name: &str, cpu: usize, run: u64, sleep: u64) -> TaskSpec {
    let mut n = 0;
    let t = task(name, move |_| {
        n += 1;
        match n {
            41 => Op::SetAffinity(None),
            n if n % 2 == 1 => Op::Run(run),
            _ => Op::Sleep(sleep),
        }
    });
    TaskSpec { affinity: Some(cpus(&[cpu])), ..t }
}

fn run(preset_name: &str, w: Workload, horizon: u64) -> RunResult {
    run_on(machine(MACHINE), &preset(preset_name), w, horizon)
}

fn of(tasks: impl IntoIterator<Item = TaskSpec>) -> Workload {
    let mut w = Workload::default();
    tasks.into_iter().for_each(|t| {
        w.task(t);
    });
    w
}

#[test]
fn work_takes_as_long_as_its_cpu_is_slow() {
    let takes = |cpu| {
        finished(
            &run("linux-6.18", of([TaskSpec { affinity: Some(cpus(&[cpu])), ..hog("hog", 100 * MS) }]), 1000 * MS),
            "pinned",
        )
    };
    let (little, big) = (takes(0), takes(4));
    assert!((99.9..101.0).contains(&big), "{big}");
    assert!((little / big * LITTLE - 1.0).abs() < 0.01, "{little} ms and {big} ms");
}

/// The same of a core whose threads share it: the kind's speed and the siblings' multiply. And a machine without kinds is as it was.
#[test]
fn kinds_and_siblings_multiply() {
    let text = machine("1n1l2c2t").to_toml();
    let kinds = "kinds = [{ name = \"a\", cpus = \"0,2\" }, { name = \"b\", cpus = \"1,3\" }]\n[lines]";
    let capacity = |value| format!("{{ value = {value}, lo = {value}, hi = {value}, source = \"a test\" }}");
    let capacity = format!("[cpu]\ncapacity = [{}, {}]\n", capacity(512), capacity(1024));
    let uneven = text.replacen("[lines]", kinds, 1).replacen("[cpu]\n", &capacity, 1);
    let uneven = contend_machine::Machine::parse(&uneven, "uneven.toml").expect("a machine");
    let smt = uneven.costs.cpu.smt_speed_pct[1].value as f64 / 100.0;
    let takes = |m: &contend_machine::Machine, on: [usize; 2]| {
        let w = of(on.map(|cpu| TaskSpec { affinity: Some(cpus(&[cpu])), ..hog("hog", 100 * MS) }));
        finished(&run_on(m.clone(), &preset("linux-6.18"), w, 10_000 * MS), "pinned")
    };
    for (on, speed) in [([0, 2], 0.5 * smt), ([1, 3], smt), ([0, 1], 0.5)] {
        let took = takes(&uneven, on);
        assert!((100.0 / speed / took - 1.0).abs() < 0.02, "{on:?}: {took} ms at {speed}");
    }
}

#[test]
fn a_misfit_is_pulled_to_a_larger_cpu() {
    let takes = |name: &str| {
        let r = run(name, of([freed_from("hog", 0, 50 * MS, 950 * MS)]), 10_000 * MS);
        (finished(&r, name), on_big(&r))
    };
    let pinned = 50.0 / LITTLE;
    for name in AWARE {
        let (took, share) = takes(name);
        assert!(took < pinned + 950.0 + 100.0, "{name}: {took} ms, {share:.2} of them on big CPUs");
    }
    let (took, share) = takes(UNAWARE);
    assert!(took > 0.98 * 1000.0 / LITTLE && share < 0.02, "{UNAWARE}: {took} ms, {share:.2} on big CPUs");
}

/// Who wakes up and is too much for a little CPU goes to a big one, and stays there; who fits stays where it was.
#[test]
fn wakees_go_where_they_fit() {
    // Of a big CPU 70 % and 10 %. (On a little one the first has 86 % just when it sleeps; with 6 and 4 ms it has 80 %, which is the edge.)
    for (run_ms, sleep_ms, wants_big) in [(7, 3, true), (1, 9, false)] {
        for name in AWARE {
            let w = Workload { horizon: Some(5_000 * MS), ..of([periodic("p", 1, run_ms * MS, sleep_ms * MS)]) };
            let share = on_big(&run(name, w, 5_000 * MS));
            assert!(
                if wants_big { share > 0.85 } else { share < 0.02 },
                "{name}: {run_ms} of {}: {share:.3}",
                run_ms + sleep_ms
            );
        }
    }
}

/// As many hogs as big CPUs have one each, wherever they began.
#[test]
fn big_cpus_are_filled_first() {
    for name in AWARE {
        let r = run(name, of((0..4).map(|i| freed_from("hog", i, 10 * MS, 990 * MS))), 10_000 * MS);
        let took = finished(&r, name);
        assert!(took < 10.0 / LITTLE + 990.0 + 150.0, "{name}: {took} ms");
    }
}

/// Eight hogs on eight CPUs: when those on the big ones are through, the others take their place.
#[test]
fn freed_big_cpus_pull() {
    let rest = 1000.0 * (1.0 - LITTLE);
    for name in AWARE {
        let took = finished(&run(name, of((0..8).map(|i| freed_from("hog", i, MS, 999 * MS))), 10_000 * MS), name);
        assert!(took < 1000.0 + rest + 150.0, "{name}: {took} ms, should be some {}", 1000.0 + rest);
    }
    let took = finished(&run(UNAWARE, of((0..8).map(|i| freed_from("hog", i, MS, 999 * MS))), 10_000 * MS), UNAWARE);
    assert!(took > 0.98 * 1000.0 / LITTLE, "{UNAWARE}: {took} ms");
}

/// A hog alone on each big CPU stays, though little ones idle.
#[test]
fn nobody_is_taken_from_a_big_cpu_to_a_little_one() {
    for name in AWARE {
        let w = of((4..8).map(|i| freed_from("hog", i, 10 * MS, 2_990 * MS)));
        let r = run(name, w, 10_000 * MS);
        let moves: u64 = r.tasks.iter().map(|t| t.run.nr_migrations).sum();
        assert!(finished(&r, name) < 3_010.0 && moves == 0, "{name}: {moves} moves, {} ms", r.virtual_ns / MS);
    }
}

/// More hogs than CPUs: each kind's share of the work is that of its capacity, within what balancing leaves.
#[test]
fn crowds_are_spread_by_capacity() {
    for name in AWARE {
        let w =
            Workload { horizon: Some(10_000 * MS), ..of((0..24).map(|i| freed_from("hog", i % 8, MS, 100_000 * MS))) };
        let r = run(name, w, 10_000 * MS);
        for cpu in 0..8 {
            assert!(busy_ms(&r, cpu) > 9_900.0, "{name}: CPU {cpu} was busy for {} ms", busy_ms(&r, cpu));
        }
        let mut had: Vec<f64> = r.tasks.iter().map(|t| t.run.sum_exec as f64 / MS as f64).collect();
        had.sort_by(f64::total_cmp);
        // By number alone all would have 3,333 ms; by capacity there are two on a little CPU and four on a big one.
        assert!(had[0] > 1_500.0 && had[23] < 6_000.0, "{name}: {had:?}");
    }
}

/// What is off is off: the kernel takes all CPUs for equal, and the machine is as fast as it is.
#[test]
fn the_switch_turns_it_off() {
    let mut p = preset("linux-6.18");
    p.features.asym_capacity = AsymCapacity::Off;
    let r = run_on(machine(MACHINE), &p, of([freed_from("hog", 0, 50 * MS, 950 * MS)]), 10_000 * MS);
    assert!(finished(&r, "off") > 0.98 * 1000.0 / LITTLE);
    assert_eq!(r.cpus.len(), usize::from(CpuId(8).0));
}

// ---- x86: an order in place of capacities ------------------------------------------------------------------------

/// P: CPUs 0 to 15, two threads a core; E: 16 to 23.
const HYBRID: &str = "alder-lake-16c-24t";
const PACKING: [&str; 4] = ["linux-5.2", "linux-5.8", "linux-6.0", "linux-6.18"];

/// Hogs that begin on the efficient cores, one each, have a fast core each soon; where the kernel does not pack, they stay.
#[test]
fn fast_cores_are_packed_first() {
    let e_core = 600.0 / 1024.0;
    let hogs = || of((0..8).map(|i| freed_from("hog", 16 + i, 5 * MS, 495 * MS)));
    let run = |p: &contend_sched::features::Preset| finished(&run_on(machine(HYBRID), p, hogs(), 10_000 * MS), p.name);
    for name in PACKING {
        let took = run(&preset(name));
        assert!(took < 5.0 / e_core + 495.0 + 100.0, "{name}: {took} ms");
        let mut without = preset(name);
        without.features.asym_packing = false;
        let took = run(&without);
        assert!(took > 0.9 * 500.0 / e_core, "{name} without: {took} ms");
    }
    let took = run(&preset(UNAWARE));
    assert!(took > 0.9 * 500.0 / e_core, "{UNAWARE}: {took} ms");
}

/// With all fast cores busy nobody is taken to the second thread of one.
#[test]
fn a_sibling_is_no_better_than_an_efficient_core() {
    for name in PACKING {
        let w = of((0..16).map(|i| freed_from("hog", if i < 8 { 2 * i } else { 8 + i }, 5 * MS, 995 * MS)));
        let r = run_on(machine(HYBRID), &preset(name), Workload { horizon: Some(500 * MS), ..w }, 500 * MS);
        for core in 0..8 {
            let both = busy_ms(&r, 2 * core).min(busy_ms(&r, 2 * core + 1));
            assert!(both < 50.0, "{name}: both threads of core {core} ran for {both} ms");
        }
    }
}

/// Clusters of efficient cores are a level from 6.6 on.
#[test]
fn clusters_of_hybrids_by_era() {
    for (name, clusters) in [("linux-5.8", false), ("linux-6.0", false), ("linux-6.6", true), ("linux-6.18", true)] {
        let r = run_on(machine(HYBRID), &preset(name), of([hog("hog", MS)]), 10 * MS);
        let of_e_core = r.cpus[16].domains.iter().any(|d| d.0 == contend_sched::domains::Level::Cls);
        assert_eq!(of_e_core, clusters, "{name}");
    }
    // Elsewhere from 5.16 on.
    let r = run_on(machine("1n2k4c"), &preset("linux-6.0"), of([hog("hog", MS)]), 10 * MS);
    assert!(r.cpus[0].domains.iter().any(|d| d.0 == contend_sched::domains::Level::Cls));
}
