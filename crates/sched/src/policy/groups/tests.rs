//! Groups through the contract of policies: shares, hierarchy, one CPU and two.

use super::super::cfs::Cfs;
use super::super::drive::{Drive, Step, steps};
use super::super::eevdf::Eevdf;
use super::*;
use crate::features::Features;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const TICK: u64 = 4 * MS;

fn eevdf() -> Eevdf {
    Eevdf::new(&Features::default(), 8, TICK)
}

fn cfs() -> Cfs {
    Cfs::new(&Features::default(), 8)
}

fn group(name: &str, parent: GroupId, shares: u64) -> Group {
    Group { name: name.into(), parent, shares, limit: None, session: false }
}

/// Groups of these parents and shares.
fn tree(of: &[(u16, u64)]) -> Groups {
    let mut groups = Groups::default();
    for (i, (parent, shares)) in of.iter().enumerate() {
        groups.add(group(&format!("/{i}"), GroupId(*parent), *shares));
    }
    groups
}

/// One task a number, of that group.
fn drive<L: Fair>(policy: L, groups: Groups, tasks: &[u16]) -> Drive<Grouped<L>> {
    let mut d = Drive::new(Grouped::new(policy, groups, 1, true), &vec![0; tasks.len()]);
    for (t, g) in std::iter::zip(&mut d.tasks, tasks) {
        d.policy.join(t, GroupId(*g));
    }
    d
}

/// What each task gets of 10 s, in permille.
fn shares<L: Fair>(policy: L, groups: Groups, tasks: &[u16]) -> Vec<u64> {
    let ran = drive(policy, groups, tasks).saturate(10_000 * MS, TICK, |_| ());
    let all: u64 = ran.iter().sum();
    ran.iter().map(|r| (r * 1000 + all / 2) / all).collect()
}

fn near(got: &[u64], want: &[u64]) {
    let off = std::iter::zip(got, want).map(|(g, w)| g.abs_diff(*w)).max();
    assert!(got.len() == want.len() && off.is_some_and(|off| off <= 10), "{got:?}, not {want:?}");
}

#[test]
fn groups_share_by_their_weights_however_many_tasks_are_in_them() {
    // One task against a group of three of the same weight; a group of twice the weight.
    near(&shares(eevdf(), tree(&[(0, 1024)]), &[0, 1, 1, 1]), &[500, 167, 167, 167]);
    near(&shares(cfs(), tree(&[(0, 1024)]), &[0, 1, 1, 1]), &[500, 167, 167, 167]);
    near(&shares(eevdf(), tree(&[(0, 2048), (0, 1024)]), &[1, 1, 2]), &[333, 333, 333]);
    near(&shares(cfs(), tree(&[(0, 2048), (0, 1024)]), &[1, 1, 2]), &[333, 333, 333]);
}

#[test]
fn groups_within_groups_share_what_theirs_gets() {
    // /0 has half; in it /1 has 3/4 and a task 1/4... of 1024 against 3072.
    let groups = || tree(&[(0, 1024), (1, 3072)]);
    near(&shares(eevdf(), groups(), &[0, 1, 2, 2]), &[500, 125, 188, 188]);
    near(&shares(cfs(), groups(), &[0, 1, 2, 2]), &[500, 125, 188, 188]);
}

#[test]
fn without_groups_everything_is_as_with_the_policy_itself() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let run = |steps: &[Step], d: &mut dyn FnMut(Step) -> Option<usize>| -> Vec<Option<usize>> {
        steps.iter().map(|s| d(*s)).collect()
    };
    runner
        .run(&steps(6), |steps| {
            let nices = [0, 0, 5, -3, 0, 19];
            let mut plain = Drive::new(eevdf(), &nices);
            let mut grouped = Drive::new(Grouped::new(eevdf(), Groups::default(), 1, true), &nices);
            let a = run(&steps, &mut |s| {
                plain.step(s, |_, _| ());
                plain.curr
            });
            let b = run(&steps, &mut |s| {
                grouped.step(s, |_, _| ());
                grouped.curr
            });
            prop_assert_eq!(a, b);
            Ok(())
        })
        .expect("the same");
}

/// What must be true of a CPU's queues between two operations.
fn check<L: Fair>(d: &Drive<Grouped<L>>) {
    use super::super::drive::At as TaskAt;
    let there = |a: &TaskAt| matches!(a, TaskAt::Queued | TaskAt::Running | TaskAt::Delayed);
    for (id, _) in d.policy.groups.iter() {
        let here = d.rq.look(id);
        let tasks = std::iter::zip(&d.tasks, &d.at).filter(|(t, a)| t.group == id && there(a));
        let within = d.policy.groups.iter().filter(|(g, _)| {
            let inner = d.rq.look(*g);
            inner.parent == id && !matches!(inner.at, At::Out(_))
        });
        let weights = tasks.clone().map(|(t, _)| d.policy.weight(t));
        let weights = weights.chain(within.clone().map(|(g, _)| d.policy.inner.weight(&d.rq.look(g).entity)));
        assert_eq!(here.nr as usize, tasks.count() + within.count(), "{id:?}");
        assert_eq!(here.weight, weights.sum::<u64>(), "{id:?}");
        assert_eq!(here.nr == 0, matches!(here.at, At::Out(_) | At::Delayed), "{id:?}");
        let runs = d.curr.is_some_and(|c| d.rq.path(d.tasks[c].group).any(|g| g == id));
        assert_eq!(runs, here.at == At::Running, "{id:?}");
        let shares = d.policy.groups.get(id).expect("it is one").shares;
        assert!((2..=shares).contains(&d.policy.inner.weight(&here.entity)) || here.nr == 0, "{id:?}");
    }
}

fn any_steps<L: Fair>(policy: fn() -> L) {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    runner
        .run(&steps(7), |steps| {
            let groups = tree(&[(0, 1024), (0, 100), (2, 4096), (3, 2)]);
            let mut d = drive(policy(), groups, &[0, 1, 1, 2, 3, 4, 4]);
            for step in steps {
                // Whoever is picked is one that waits: the drive asserts it, and that nobody waits where none is.
                d.step(step, |_, _| ());
                check(&d);
            }
            Ok(())
        })
        .expect("sums hold");
}

#[test]
fn any_steps_keep_the_sums_eevdf() {
    any_steps(eevdf);
}

#[test]
fn any_steps_keep_the_sums_cfs() {
    any_steps(cfs);
}

#[test]
fn a_group_on_two_cpus_has_its_shares_once() {
    // Three tasks of the group on one CPU, one on the other: three quarters of the shares here, one there.
    let policy = Grouped::new(eevdf(), tree(&[(0, 1024)]), 2, true);
    let mut rqs = [policy.new_rq(), policy.new_rq()];
    let mut tasks: Vec<_> = (0..4).map(|_| policy.new_task(0)).collect();
    for (i, t) in tasks.iter_mut().enumerate() {
        policy.join(t, GroupId(1));
        policy.enqueue(&mut rqs[usize::from(i == 3)], TaskId(i as u32), t, Enqueue::New, 0);
    }
    // Averages take some time to believe it.
    for (rq, first) in std::iter::zip(&mut rqs, [0, 3]) {
        policy.set_next(rq, TaskId(first), &mut tasks[first as usize], 0);
    }
    for now in (1..=100).map(|i| i * TICK) {
        for (rq, first) in std::iter::zip(&mut rqs, [0, 3]) {
            policy.tick(rq, TaskId(first), &mut tasks[first as usize], now);
        }
    }
    let weights = [0, 1].map(|c| policy.inner.weight(&rqs[c].look(GroupId(1)).entity));
    assert!(weights[0].abs_diff(768) <= 4 && weights[1].abs_diff(256) <= 4, "{weights:?}");
    // The task there sleeps: its CPU's part of the load decays, and what is here counts for more and more.
    policy.put_prev(&mut rqs[1], TaskId(3), &mut tasks[3], Put::Sleep, 100 * TICK);
    let mut seen = vec![weights[0]];
    for now in (101..=150).map(|i| i * TICK) {
        policy.tick(&mut rqs[0], TaskId(0), &mut tasks[0], now);
        seen.push(policy.inner.weight(&rqs[0].look(GroupId(1)).entity));
    }
    assert!(seen.is_sorted(), "{seen:?}");
    assert!(seen[seen.len() - 1] >= 1010, "{seen:?}");
}

#[test]
fn sessions_are_groups_only_with_autogroup() {
    let groups = || {
        let mut groups = Groups::default();
        let web = groups.add(group("/web", GroupId::ROOT, 1024));
        groups.add(Group { session: true, ..group("/autogroup-1", GroupId::ROOT, 1024) });
        groups.add(Group { session: true, ..group("/web/autogroup-2", web, 1024) });
        groups
    };
    let member = |autogroup, of| {
        let policy = Grouped::new(eevdf(), groups(), 1, autogroup);
        let mut t = policy.new_task(0);
        policy.join(&mut t, GroupId(of));
        t.group
    };
    assert_eq!([1, 2, 3].map(|g| member(true, g)), [1, 2, 3].map(GroupId));
    assert_eq!([1, 2, 3].map(|g| member(false, g)), [1, 0, 1].map(GroupId));
}

#[test]
fn a_directed_yield_reaches_its_task_through_its_groups() {
    let policy = Grouped::new(eevdf(), tree(&[(0, 1024), (1, 1024)]), 1, true);
    let mut rq = policy.new_rq();
    let mut tasks: Vec<_> = (0..4).map(|_| policy.new_task(0)).collect();
    for (i, t) in tasks.iter_mut().enumerate() {
        policy.join(t, GroupId([0, 1, 2, 2][i]));
        policy.enqueue(&mut rq, TaskId(i as u32), t, Enqueue::New, 0);
    }
    assert!(policy.yield_to(&mut rq, TaskId(3), &tasks[3]));
    assert_eq!(policy.pick_next(&mut rq, 0), Pick::Task(TaskId(3)));
}

#[test]
fn balancing_sees_the_tasks_of_running_and_of_waiting_groups() {
    let policy = Grouped::new(eevdf(), tree(&[(0, 1024), (0, 1024)]), 1, true);
    let mut rq = policy.new_rq();
    let mut tasks: Vec<_> = (0..5).map(|_| policy.new_task(0)).collect();
    for (i, t) in tasks.iter_mut().enumerate() {
        policy.join(t, GroupId([0, 1, 1, 2, 2][i]));
        policy.enqueue(&mut rq, TaskId(i as u32), t, Enqueue::New, 0);
    }
    policy.set_next(&mut rq, TaskId(1), &mut tasks[1], 0);
    let mut seen = Vec::new();
    policy.candidates(&rq, 32, &mut seen);
    seen.sort();
    assert_eq!(seen, [0, 2, 3, 4].map(TaskId));
    let mut seen = Vec::new();
    policy.candidates(&rq, 2, &mut seen);
    assert_eq!(seen.len(), 2);
}
