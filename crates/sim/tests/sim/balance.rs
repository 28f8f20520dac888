//! Load balancing by era (mechanisms A.3): intervals, cache-hot tasks, active balance.

use crate::common::{MS, cpus, hog, machine, preset, run_on, run_with, script, task};
use contend_machine::Machine;
use contend_platform::Account;
use contend_sched::domains::Level;
use contend_sched::rq::BalanceStats;
use contend_sim::host::{Outcome, RunResult};
use contend_sim::program::{Op, TaskSpec, Workload};
use std::sync::{Arc, Mutex};

const IDLE_TYPES: [&str; 3] = ["not idle", "idle", "newly idle"];

fn sum(r: &RunResult, level: Level, idle: &str, f: impl Fn(&BalanceStats) -> u64) -> u64 {
    let i = IDLE_TYPES.iter().position(|t| *t == idle).expect("an idle type");
    r.cpus.iter().flat_map(|c| &c.domains).filter(|d| d.0 == level).map(|d| f(&d.1[i])).sum()
}

/// Busy CPUs balance every interval x busy_factor, where the interval lies between the level's minimum and maximum.
#[test]
fn busy_intervals() {
    // 2 CPUs of one cache, 10 s: (preset, shortest and longest period in ms).
    for (name, shortest, longest) in
        [("linux-3.6", 64, 4 * 64), ("linux-5.2", 2 * 32, 4 * 32), ("linux-6.0", 2 * 16, 4 * 16)]
    {
        let mut w = Workload { horizon: Some(10_000 * MS), ..Workload::default() };
        for i in 0..2 {
            w.task(TaskSpec { affinity: Some(cpus(&[i])), ..hog("hog", 20_000 * MS) });
        }
        let r = run_on(machine("2c"), &preset(name), w, 10_000 * MS);
        let n = sum(&r, Level::Mc, "not idle", |s| s.lb_count);
        // Found out at a tick of 4 ms.
        let (least, most) = (2 * (10_000 / (longest + 4)) - 4, 2 * (10_000 / shortest) + 4);
        assert!((least..=most).contains(&n), "{name}: {n} balances of 2 CPUs, should be {least} to {most}");
    }
}

/// Two hogs that were put on one core of two threads move apart only by active balance: both run.
#[test]
fn active_balance_moves_a_running_task() {
    for name in ["linux-3.6", "linux-5.2", "linux-6.0", "linux-6.18"] {
        let mut w = Workload::default();
        // CPUs 0 and 2 are the threads of core 0.
        for cpu in [0, 2] {
            let t = script("hog", vec![Op::Run(10 * MS), Op::SetAffinity(None), Op::Run(2000 * MS)]);
            w.task(TaskSpec { affinity: Some(cpus(&[cpu])), ..t });
        }
        let r = run_on(machine("1n1l2c2t"), &preset(name), w, 10_000 * MS);
        assert_eq!(r.outcome, Outcome::Finished, "{name}");
        let pushed: u64 = ["not idle", "idle", "newly idle"]
            .iter()
            .map(|t| sum(&r, Level::Smt, t, |s| s.alb_pushed) + sum(&r, Level::Mc, t, |s| s.alb_pushed))
            .sum();
        assert!(pushed >= 1, "{name}: {pushed}");
        assert!(r.virtual_ns < 2400 * MS, "{name}: together they would take {} ms", r.virtual_ns / MS);
    }
}

/// A task that ran within migration_cost stays, unless balancing has failed too often.
#[test]
fn cache_hot_tasks_are_refused() {
    let gained = |name: &str, cost: u64| {
        let mut w = Workload { horizon: Some(2000 * MS), ..Workload::default() };
        // Stretches of tasks that take turns every 0.2 ms, always hot, and sleep at different times; so a CPU often runs dry.
        for i in 0..6u64 {
            let mut n = 0;
            w.task(task(&format!("t{i}"), move |_| {
                n += 1;
                match n % 41 {
                    40 => Op::Sleep((15 + 7 * i) * MS),
                    k if k % 2 == 0 => Op::Yield,
                    _ => Op::Run(200_000),
                }
            }));
        }
        let mut p = preset(name);
        p.features.migration_cost_ns = cost;
        let r = run_with(machine("2c"), p.policy, p.features, w, 2000 * MS, None);
        let all = |f: fn(&BalanceStats) -> u64| IDLE_TYPES.iter().map(|t| sum(&r, Level::Mc, t, f)).sum::<u64>();
        (all(|s| s.lb_gained), all(|s| s.lb_hot_gained), all(|s| s.lb_failed))
    };
    for name in ["linux-5.2", "linux-6.18"] {
        let ((gained_cold, hot_cold, _), (gained_hot, hot, failed)) = (gained(name, 1), gained(name, 1_000_000_000));
        assert!(
            gained_cold >= 10 && hot_cold == 0,
            "{name}: nothing is hot: {gained_cold} taken, {hot_cold} of them hot"
        );
        assert_eq!(hot, gained_hot, "{name}: everything is hot");
        assert!(failed > hot, "{name}: a hot task is taken only after failures: {failed} failed, {hot} taken");
        assert!(gained_hot * 2 < gained_cold, "{name}: {gained_hot} taken hot, {gained_cold} cold");
    }
}

/// Newidle balancing is not tried when idle periods are shorter than a migration costs.
#[test]
fn newidle_needs_a_long_enough_idle_period() {
    let tried = |cost: u64| {
        let mut w = Workload { horizon: Some(500 * MS), ..Workload::default() };
        let mut on = false;
        w.task(task("short", move |_| {
            on = !on;
            if on { Op::Run(100_000) } else { Op::Sleep(100_000) }
        }));
        let mut p = preset("linux-3.6");
        p.features.migration_cost_ns = cost;
        let r = run_with(machine("2c"), p.policy, p.features, w, 500 * MS, None);
        sum(&r, Level::Mc, "newly idle", |s| s.lb_count)
    };
    let (always, never) = (tried(1000), tried(500_000));
    assert!(always > 2000, "{always}");
    assert!(never < always / 20, "{never} of {always}: avg_idle falls to 0.1 ms");
}

/// One more hog than CPUs: since 5.5 a task that is too large for the imbalance moves once balancing has failed, so all take turns
/// instead of two that share a CPU for ever.
#[test]
fn hogs_beyond_the_cpus_take_turns() {
    for name in ["linux-5.8", "linux-6.0", "linux-6.6", "linux-6.18"] {
        for (on, cpus, n) in [("4c", 4, 5), ("8c", 8, 9), ("2n1l4c1t", 8, 9)] {
            let mut w = Workload::default();
            for _ in 0..n {
                w.task(hog("hog", 100_000 * MS));
            }
            let r = run_on(machine(on), &preset(name), w, 30_000 * MS);
            let fair = 30_000.0 * f64::from(cpus) / f64::from(n);
            for t in &r.tasks {
                let had = t.run.sum_exec as f64 / MS as f64;
                assert!((had / fair - 1.0).abs() < 0.2, "{name} on {on}: task {} had {had} of {fair} ms", t.id);
            }
        }
    }
}

/// A queue of tasks that may not move is left out, and the next busiest is balanced: free tasks find the idle CPUs.
#[test]
fn pinned_tasks_do_not_stop_balancing() {
    for name in ["linux-2.6.37", "linux-3.6", "linux-5.2", "linux-6.0", "linux-6.18"] {
        for (on, nr_cpus) in [("4c", 4), ("3c", 3)] {
            let mut w = Workload::default();
            for _ in 0..4 {
                w.task(TaskSpec { affinity: Some(cpus(&[0])), ..hog("pinned", 100_000 * MS) });
            }
            for _ in 0..nr_cpus - 1 {
                let ops = vec![Op::Run(15 * MS), Op::SetAffinity(None), Op::Run(100_000 * MS)];
                w.task(TaskSpec { affinity: Some(cpus(&[1])), ..script("free", ops) });
            }
            let r = run_on(machine(on), &preset(name), w, 3000 * MS);
            for t in &r.tasks[4..] {
                assert!(t.run.sum_exec > 2700 * MS, "{name} on {on}: task {} had {} ms", t.id, t.run.sum_exec / MS);
            }
        }
    }
}

/// Nodes share evenly: where more than a pair of tasks runs, no difference is left alone.
#[test]
fn nodes_even_out() {
    for name in ["linux-5.2", "linux-5.8", "linux-6.18"] {
        let mut w = Workload::default();
        // Eight on the first of two nodes of four cores.
        let node = cpus(&(0..16).filter(|c| c % 8 < 4).collect::<Vec<_>>());
        for _ in 0..8 {
            let ops = vec![Op::Run(100 * MS), Op::SetAffinity(None), Op::Run(100_000 * MS)];
            w.task(TaskSpec { affinity: Some(node.clone()), ..script("hog", ops) });
        }
        let r = run_on(machine("2n1l4c2t"), &preset(name), w, 20_000 * MS);
        // Eight cores: nobody shares one for long, so each computes at full speed. (A shared core is slower.)
        let busy = r.cpus.iter().filter(|c| c.stats.rq_cpu_time > 15_000 * MS).count();
        assert!(busy >= 8 || r.cpus.len() == 8, "{name}: {busy}");
        let by_node = [0, 1].map(|node| {
            let of = |(i, _): &(usize, &contend_sim::host::CpuReport)| (i % 8 < 4) == (node == 0);
            r.cpus.iter().enumerate().filter(of).map(|(_, c)| c.stats.rq_cpu_time / MS).sum::<u64>()
        });
        assert!(by_node.iter().all(|ms| (70_000..=90_000).contains(ms)), "{name}: {by_node:?} ms");
    }
}

/// Two levels of NUMA (sub-NUMA clustering): a new task descends through each of them, not only the outermost.
#[test]
fn new_tasks_spread_over_nested_nodes() {
    let nested = Machine::parse(
        r#"
        name = "snc"
        defaults = ["lines", "interrupts", "cpu", "cache", "memory", "virt", "kernel"]
        [topology]
        nodes = 4
        llcs_per_node = 1
        cores_per_llc = 4
        threads_per_core = 1
        slit = [[10, 12, 21, 21], [12, 10, 21, 21], [21, 21, 10, 12], [21, 21, 12, 10]]
        "#,
        "snc.toml",
    )
    .expect("a machine");
    for name in ["linux-2.6.37", "linux-3.6", "linux-5.2", "linux-6.0", "linux-6.18"] {
        let mut w = Workload::default();
        for i in 0..8 {
            w.task(hog(&format!("hog{i}"), 10 * MS));
        }
        let r = run_on(nested.clone(), &preset(name), w, 100 * MS);
        let ran = |node: usize| -> u64 {
            r.cpus[node * 4..node * 4 + 4].iter().map(|c| c.ledger[Account::User as usize]).sum::<u64>() / MS
        };
        assert_eq!([0, 1, 2, 3].map(ran), [20; 4], "{name}: ms of tasks by node");
    }
}

/// When CPUs balance a domain is spread over its interval, 128 to 256 ms here: idle caches begin to pull one after the other, not all at once.
#[test]
fn idle_caches_do_not_balance_in_step() {
    let on = machine("1n8l16c1t");
    for name in ["linux-5.2", "linux-6.6", "linux-6.18"] {
        let first = Arc::new(Mutex::new(vec![None; on.topology.nr_llcs()]));
        let mut w = Workload::default();
        for _ in 0..64 {
            let (first, topo, mut step) = (Arc::clone(&first), on.topology.clone(), 0);
            let crowd = task("crowd", move |cx| {
                step += 1;
                if step == 2 {
                    return Op::SetAffinity(None);
                }
                first.lock().expect("no task panics")[topo.llc_of(cx.cpu)].get_or_insert(cx.now / MS);
                if step < 400 { Op::Run(MS) } else { Op::Exit }
            });
            w.task(TaskSpec { affinity: Some(cpus(&(0..16).collect::<Vec<_>>())), ..crowd });
        }
        run_on(on.clone(), &preset(name), w, 60_000 * MS);
        let first = first.lock().expect("no task panics");
        let mut at: Vec<_> = first[1..].iter().flatten().copied().collect();
        at.sort_unstable();
        assert!(at.len() == 7 && at[0] < 128 && at[6] - at[0] > 50, "{name}: {at:?} ms");
    }
}

/// A CPU with room takes of a crowd beside it what evens both out, at once: on Linux 6.18 up to 32 tasks in one balance.
#[test]
fn a_crowd_is_halved_at_once() {
    for name in ["linux-6.0", "linux-6.18"] {
        let mut p = preset(name);
        // It balances at its own ticks, when something runs there again and again: by then all of the crowd may move.
        (p.features.newidle_balance, p.features.nohz_balance) = (false, false);
        let mut w = Workload::default();
        let often = (0..20).flat_map(|_| [Op::Run(MS / 10), Op::Sleep(3 * MS)]);
        let alarm = std::iter::once(Op::Sleep(150 * MS)).chain(often).collect();
        w.task(TaskSpec { affinity: Some(cpus(&[1])), ..script("alarm", alarm) });
        for _ in 0..16 {
            let ops = vec![Op::Run(MS / 2), Op::SetAffinity(None), Op::Run(20 * MS)];
            w.task(TaskSpec { affinity: Some(cpus(&[0])), ..script("crowd", ops) });
        }
        let r = run_on(machine("2c"), &p, w, 10_000 * MS);
        let of = |f: fn(&BalanceStats) -> u64| IDLE_TYPES.iter().map(|t| sum(&r, Level::Mc, t, f)).sum::<u64>();
        let brought = of(|s| s.lb_count) - of(|s| s.lb_balanced) - of(|s| s.lb_failed);
        let gained = of(|s| s.lb_gained);
        assert!((1..=2).contains(&brought) && gained >= 6, "{name}: {gained} tasks in {brought} balances");
    }
}

/// How many of `n` tasks that compute, forked one after the other, are in each of six clusters of four after 100 ms; the fullest first.
fn spread_over_clusters(name: &str, n: usize) -> Vec<usize> {
    let on = machine("1n1l6k4c");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let children = (0..n).map(|_| {
        let (seen, mut step) = (Arc::clone(&seen), 0);
        Op::Spawn(Box::new(task("copy", move |cx| {
            step += 1;
            match step {
                1 => Op::Run(100 * MS),
                2 => {
                    seen.lock().expect("no task panics").push(cx.cpu);
                    Op::Run(MS)
                }
                _ => Op::Exit,
            }
        })))
    });
    let mut w = Workload::default();
    w.task(script("runspec", children.collect()));
    run_on(on.clone(), &preset(name), w, 60_000 * MS);
    let mut counts = vec![0; on.topology.nr_clusters()];
    for cpu in seen.lock().expect("no task panics").iter() {
        counts[on.topology.cluster_of(*cpu).expect("a machine with clusters")] += 1;
    }
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

/// What the level for clusters was made for: "some pretty bad clumping can be seen for the vanilla kernel without the L2 cluster domain
/// for the 6 and 12 copies case. With the extra domain for cluster, the load does get evened out between the clusters" (message of Linux
/// commit 66558b730f25, on a machine like this).
#[test]
fn tasks_are_spread_over_clusters() {
    for name in ["linux-6.0", "linux-6.6", "linux-6.18"] {
        assert_eq!(spread_over_clusters(name, 6), [1; 6], "{name}");
        assert_eq!(spread_over_clusters(name, 12), [2; 6], "{name}");
        assert_eq!(spread_over_clusters(name, 24), [4; 6], "{name}");
    }
    assert_eq!(spread_over_clusters("linux-5.8", 6)[2..], [0; 4]);
    assert_eq!(spread_over_clusters("linux-5.8", 12)[4..], [0; 2]);
}

/// A forked task may run where its parent may, until it says otherwise.
#[test]
fn affinity_is_inherited() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let child = |free: bool| {
        let (seen, mut step) = (Arc::clone(&seen), 0);
        Op::Spawn(Box::new(task("child", move |cx| {
            step += 1;
            match step {
                1 if free => Op::SetAffinity(None),
                1 | 2 => Op::Run(50 * MS),
                _ => {
                    seen.lock().expect("no task panics").push((free, cx.cpu.index()));
                    Op::Exit
                }
            }
        })))
    };
    let mut w = Workload::default();
    let ops = vec![child(false), child(false), child(true), Op::Run(200 * MS)];
    w.task(TaskSpec { affinity: Some(cpus(&[2, 3])), ..script("parent", ops) });
    run_on(machine("8c"), &preset("linux-6.18"), w, 60_000 * MS);
    let seen = seen.lock().expect("no task panics");
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|(free, cpu)| *free != [2, 3].contains(cpu)), "{seen:?}");
}
