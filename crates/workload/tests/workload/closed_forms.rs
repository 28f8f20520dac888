//! What is known without simulating: queues, saturated locks, shares, lag.

use crate::common::{free, run, run_on, spec};
use contend_sched::features::Preset;
use contend_sim::guest::Guests;
use contend_sim::host::{Limits, Setup, simulate};
use contend_workload::WorkloadSpec;

/// M/M/c: the mean wait of a long run is that of Erlang C. Ten runs of 400,000 jobs with different seeds had means that
/// scatter by 1 % (c = 1), 3 % (c = 4) and 3 % (c = 8) around it; the mean of six is held to 3 %.
#[test]
fn mmc_waits_as_erlang_says() {
    for (servers, load) in [("1", "0.5"), ("4", "0.8"), ("8", "0.7")] {
        let s = spec("mmc", &[("servers", servers), ("load", load), ("jobs", "400000"), ("pin", "true")]);
        let WorkloadSpec::Mmc(mmc) = &s else { unreachable!() };
        let expected = mmc.wait_ns_mean();
        let mean_wait = |seed: u64| {
            let r = run_on(free("9c"), "fifo", &s, seed);
            assert_eq!(r.metrics.counts["jobs"], 400_000);
            let service = r.metrics.latencies["service"].histogram.mean();
            assert!((service / 1e6 - 1.0).abs() < 0.01, "{service}");
            r.metrics.latencies["wait"].histogram.mean()
        };
        // Side by side, two at a time.
        let of = |seeds: [u64; 3]| seeds.map(&mean_wait).iter().sum::<f64>();
        let sum = std::thread::scope(|scope| {
            let even = scope.spawn(|| of([2, 4, 6]));
            of([1, 3, 5]) + even.join().expect("no panic")
        });
        let mean = sum / 6.0;
        let error = (mean / expected - 1.0).abs();
        assert!(error < 0.03, "c = {servers}, load {load}: {mean} ns, Erlang C says {expected}");
    }
}

/// Servers that share a CPU: whoever divides it and whatever comes first, a job stays as long as in M/M/1, if service times
/// are exponential and nobody knows them. What a service takes is more than it computes, if the CPU is divided.
#[test]
fn mmc_on_one_cpu_stays_as_long_as_in_a_queue_of_one_server() {
    for preset in ["fifo", "linux-6.18"] {
        let s = spec("mmc", &[("servers", "4"), ("load", "0.15"), ("jobs", "150000")]);
        let r = run_on(free("1c"), preset, &s, 1);
        let mean_ms = |of: &str| r.metrics.latencies[of].histogram.mean() / 1e6;
        let (wait, service, sojourn) = (mean_ms("wait"), mean_ms("service"), mean_ms("sojourn"));
        assert!((sojourn / 2.5 - 1.0).abs() < 0.04, "{preset}: {sojourn} ms, 1 / (1 - 0.6) is 2.5");
        assert!((wait + service - sojourn).abs() < 0.01, "{preset}: {wait} + {service}, {sojourn}");
        assert_eq!(service > 1.1, preset != "fifo", "{preset}: {service} ms");
    }
}

/// A run that is cut: jobs being served then have begun, and do not count.
#[test]
fn mmc_counts_a_job_when_it_is_served() {
    let s = spec("mmc", &[("servers", "4"), ("load", "0.95"), ("jobs", "1000000")]);
    let workload = s.build(4, &|f| std::fs::read(f)).expect("a workload");
    let preset = Preset::find("fifo").expect("a preset");
    let setup = Setup {
        machine: free("4c"),
        features: preset.features,
        workload,
        seed: 1,
        limits: Limits { horizon: 200_000_000, ..Limits::default() },
        guests: Guests::default(),
    };
    let r = simulate(preset.policy, setup, None, &mut |_| true).expect("stacks");
    let samples = |of: &str| r.metrics.latencies[of].histogram.len();
    let jobs = r.metrics.counts["jobs"];
    assert_eq!((samples("service"), samples("sojourn")), (jobs, jobs));
    assert!((1..=4).contains(&(samples("wait") - jobs)), "{} begun, {jobs} served", samples("wait"));
}

/// Erlang C against values worked out by hand.
#[test]
fn erlang_c_itself() {
    let wait = |servers: &str, load: &str| {
        let s = spec("mmc", &[("servers", servers), ("load", load)]);
        let WorkloadSpec::Mmc(mmc) = s else { unreachable!() };
        mmc.wait_ns_mean() / 1e6
    };
    // M/M/1: rho / (1 - rho) services.
    assert!((wait("1", "0.5") - 1.0).abs() < 1e-9);
    assert!((wait("1", "0.9") - 9.0).abs() < 1e-9);
    // M/M/2: rho^2 / (1 - rho^2) services.
    assert!((wait("2", "0.5") - 1.0 / 3.0).abs() < 1e-9);
}

/// A saturated lock serves one holder after another: where nothing but the critical section takes time, one a hold.
#[test]
fn a_saturated_lock_without_hand_over_serves_one_a_hold() {
    for lock in ["spinlock", "mutex"] {
        let sets = [("lock", lock), ("tasks", "4"), ("pin", "true"), ("duration_ms", "50")];
        let r = run_on(free("4c"), "linux-6.18", &spec("lock-loop", &sets), 1);
        let n = r.metrics.counts["acquisitions"] as f64;
        assert!((n / 50_000.0 - 1.0).abs() < 0.01, "{lock}: {n} in 50 ms of 1 us each");
    }
}

/// With costs, the rate is 1 / (hold + hand-over), and the hand-over is a few transfers of the lock's lines.
#[test]
fn a_saturated_spinlock_pays_transfers_between_holders() {
    let s = spec("lock-loop", &[("lock", "spinlock"), ("tasks", "4"), ("pin", "true"), ("duration_ms", "50")]);
    let mut per = Vec::new();
    for llc in [20u64, 200] {
        let mut m = free("4c");
        m.set("lines.llc", &llc.to_string()).expect("a cost");
        let r = run_on(m, "linux-6.18", &s, 1);
        let each = 50e6 / r.metrics.counts["acquisitions"] as f64;
        let transfers = (each - 1000.0) / llc as f64;
        assert!((0.9..=6.0).contains(&transfers), "{transfers} transfers of {llc} ns a hand-over");
        per.push(transfers);
    }
    assert!((per[0] - per[1]).abs() < 1.0, "as many transfers whatever they cost: {per:?}");
}

/// Linux's weights by nice value (sched_prio_to_weight).
fn weight(nice: i8) -> f64 {
    match nice {
        -5 => 3121.0,
        0 => 1024.0,
        1 => 820.0,
        5 => 335.0,
        10 => 110.0,
        _ => unreachable!(),
    }
}

#[test]
fn shares_follow_weights() {
    for preset in ["linux-2.6.37", "linux-3.6", "linux-5.2", "linux-6.0", "linux-6.6", "linux-6.18"] {
        for nices in [&[0i8, 5][..], &[0, 1], &[-5, 0, 5], &[0, 0, 0, 0], &[0, 10]] {
            let list = nices.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let n = nices.len().to_string();
            let r = run("1c", preset, &spec("hogs", &[("tasks", &n), ("nice", &list), ("duration_ms", "20000")]));
            let ran: f64 = r.tasks.iter().map(|t| t.run.sum_exec as f64).sum();
            let weights: f64 = nices.iter().map(|&n| weight(n)).sum();
            for (t, &n) in std::iter::zip(&r.tasks, nices) {
                let (got, due) = (t.run.sum_exec as f64 / ran, weight(n) / weights);
                assert!((got / due - 1.0).abs() < 0.02, "{preset} {nices:?}: nice {n} got {got:.4}, due {due:.4}");
            }
        }
    }
}

/// EEVDF: a task's lag (what it is due less what it got) stays within a slice and what the tick adds, at any time.
#[test]
fn eevdf_bounds_lag() {
    let slice = 0.7e6;
    let tick = 4e6;
    for ms in (1..120).step_by(7) {
        let n = 5;
        let r = run("1c", "linux-6.18", &spec("hogs", &[("tasks", "5"), ("duration_ms", &ms.to_string())]));
        let ran: f64 = r.tasks.iter().map(|t| t.run.sum_exec as f64).sum();
        for t in &r.tasks {
            let lag = ran / f64::from(n) - t.run.sum_exec as f64;
            assert!(lag.abs() <= slice + tick, "after {ms} ms {} has a lag of {lag} ns", t.name);
        }
    }
}
