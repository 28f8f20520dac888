//! Groups of tasks on several CPUs, under every fair era: who gets what comes out of shares, queues and balancing together.

use crate::common::{MS, hog, machine, preset, run_on, script, task};
use contend_sched::features::Preset;
use contend_sim::host::RunResult;
use contend_sim::program::{Group, GroupId, ObjectKind, Op, TaskSpec, Workload};

const FAIR: [&str; 9] = [
    "linux-2.6.37",
    "linux-3.0",
    "linux-3.6",
    "linux-5.2",
    "2019-v3",
    "linux-5.8",
    "linux-6.0",
    "linux-6.6",
    "linux-6.18",
];

/// `n` hogs that outlast the run, in the group of this path and weight.
fn hogs(w: &mut Workload, path: &str, weight: u64, n: usize) -> GroupId {
    let group = w.groups.at(path).expect("a path");
    if group != GroupId::ROOT {
        w.groups.set_weight(group, weight);
    }
    for _ in 0..n {
        w.task(TaskSpec { group: Some(group), ..hog(path, 100_000 * MS) });
    }
    group
}

/// What the tasks of this name had of all CPU time, in percent.
fn share(r: &RunResult, name: &str) -> f64 {
    let sum = |f: &dyn Fn(&str) -> bool| r.tasks.iter().filter(|t| f(&t.name)).map(|t| t.run.sum_exec).sum::<u64>();
    100.0 * sum(&|n| n == name) as f64 / sum(&|_| true) as f64
}

#[test]
fn weights_divide_the_machine_and_balancing_counts_what_groups_weigh() {
    // 3 tasks of weight 300 against 5 of 100 on two CPUs: with two of the 3 on one CPU and all else on the other, both
    // CPUs carry half of the weight, and /web has 3/4. Balancing by the tasks' own weights would put 4 tasks on each.
    for name in FAIR {
        let mut w = Workload::default();
        hogs(&mut w, "/web", 300, 3);
        hogs(&mut w, "/batch", 100, 5);
        let r = run_on(machine("2c"), &preset(name), w, 10_000 * MS);
        assert!((share(&r, "/web") - 75.0).abs() < 1.5, "{name}: {}", share(&r, "/web"));
    }
}

#[test]
fn one_group_with_many_tasks_takes_no_more_than_its_weight() {
    for name in ["linux-5.2", "linux-6.18"] {
        let of = |path: &str| {
            let mut w = Workload::default();
            hogs(&mut w, "/one", 100, 1);
            hogs(&mut w, path, 100, 15);
            share(&run_on(machine("1c"), &preset(name), w, 10_000 * MS), "/one")
        };
        let (grouped, flat) = (of("/many"), of("/"));
        assert!((grouped - 50.0).abs() < 1.0, "{name}: {grouped}");
        // In the root each of the 15 is worth as much as the group.
        assert!((flat - 6.25).abs() < 1.0, "{name}: {flat}");
    }
}

#[test]
fn a_sleeper_in_a_light_group_is_not_starved_by_heavy_ones() {
    // It asks for 10 % and is entitled to a little more than that.
    for name in ["linux-6.0", "linux-6.18"] {
        let mut w = Workload::default();
        let light = hogs(&mut w, "/light", 100, 0);
        hogs(&mut w, "/heavy", 700, 8);
        let mut sleeps = false;
        let program = move |_: &mut contend_sim::program::Cx<'_>| {
            sleeps = !sleeps;
            if sleeps { Op::Sleep(9 * MS) } else { Op::Run(MS) }
        };
        w.task(TaskSpec { group: Some(light), ..task("sleeper", program) });
        let r = run_on(machine("1c"), &preset(name), w, 10_000 * MS);
        assert!(share(&r, "sleeper") > 8.0, "{name}: {}", share(&r, "sleeper"));
    }
}

#[test]
fn children_are_born_in_their_parents_group_and_tasks_can_move() {
    let mut w = Workload::default();
    let (a, b) = (hogs(&mut w, "/a", 100, 0), hogs(&mut w, "/b", 100, 0));
    let child = |name: &str| Op::Spawn(Box::new(hog(name, MS)));
    let ops = vec![child("in a"), Op::SetGroup(b), child("in b"), Op::SetGroup(GroupId::ROOT), child("in root")];
    w.task(TaskSpec { group: Some(a), ..script("parent", ops) });
    let r = run_on(machine("2c"), &preset("linux-6.18"), w, 1000 * MS);
    let group = |name: &str| r.tasks.iter().find(|t| t.name == name).map(|t| t.group);
    assert_eq!(["in a", "in b", "in root", "parent"].map(group), [a, b, GroupId::ROOT, GroupId::ROOT].map(Some));
    assert!(r.tasks.iter().all(|t| t.exited.is_some()));
}

#[test]
fn sessions_matter_with_autogroup_only() {
    let had = |autogroup| {
        let mut w = Workload::default();
        for (name, n) in [("make", 9), ("editor", 1)] {
            let session = Group {
                name: format!("/autogroup-{name}"),
                parent: GroupId::ROOT,
                shares: 1024,
                limit: None,
                session: true,
            };
            let session = w.groups.add(session);
            for _ in 0..n {
                w.task(TaskSpec { group: Some(session), ..hog(name, 100_000 * MS) });
            }
        }
        let Preset { policy, mut features, .. } = preset("linux-6.18");
        features.autogroup = autogroup;
        let r = crate::common::run_with(machine("1c"), policy, features, w, 10_000 * MS, None);
        (share(&r, "editor").round(), r.tasks[0].group)
    };
    assert_eq!(had(false), (10.0, GroupId::ROOT));
    assert_eq!(had(true), (50.0, GroupId(1)));
}

#[test]
fn a_wake_up_preempts_by_what_its_group_has_had() {
    // A pair that exchanges tokens beside four hogs on one CPU. In a group of its own it sleeps half of the time, is owed for
    // it, and each token finds the hogs ahead of it; among equals it has a fifth or less as well, since it asks for no more.
    let turns = |apart: bool| {
        let mut w = Workload::default();
        let (ping, pong) = (
            w.object("ping", ObjectKind::Pipe { capacity: 4096 }),
            w.object("pong", ObjectKind::Pipe { capacity: 4096 }),
        );
        let own = hogs(&mut w, if apart { "/pair" } else { "/" }, 100, 0);
        hogs(&mut w, if apart { "/hogs" } else { "/" }, 100, 4);
        for (name, out, back) in [("a", ping, pong), ("b", pong, ping)] {
            let mut step = if name == "a" { 0 } else { 2 };
            let program = move |cx: &mut contend_sim::program::Cx<'_>| {
                step = (step + 1) % 3;
                match step {
                    1 => Op::Run(50_000),
                    2 => {
                        cx.metrics.count("turns", 1);
                        Op::Write(out, 1)
                    }
                    _ => Op::Read(back, 1),
                }
            };
            w.task(TaskSpec { group: Some(own), ..task(name, program) });
        }
        run_on(machine("1c"), &preset("linux-6.18"), w, 5_000 * MS).metrics.counts["turns"]
    };
    let (apart, among) = (turns(true), turns(false));
    assert!(apart as f64 > 1.8 * among as f64, "{apart} turns against {among}");
}
