//! CFS through its contract, against mechanisms A.1 and A.2.

use super::super::drive::{At, Drive, Step, steps};
use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn cfs(f: &Features) -> Cfs {
    // 8 CPUs: latency 24 ms, granularities 3 and 4 ms.
    Cfs::new(f, 8)
}

fn id(i: u32) -> TaskId {
    TaskId(i)
}

/// A queue in which task 0 runs since time 0 and has virtual runtime 0.
struct One {
    p: Cfs,
    rq: CfsRq,
    curr: CfsTask,
}

fn one(f: &Features) -> One {
    let p = cfs(f);
    let mut rq = p.new_rq();
    let mut curr = p.new_task(0);
    p.enqueue(&mut rq, id(0), &mut curr, Enqueue::New, 0);
    curr.vruntime = 0;
    rq = CfsRq { timeline: [Node::of(id(0), &curr)].into(), min_vruntime: 0, ..rq };
    p.set_next(&mut rq, id(0), &mut curr, 0);
    One { p, rq, curr }
}

#[test]
fn tunables_scale_with_the_machine() {
    for (cpus, factor) in [(1, 1), (2, 2), (3, 2), (4, 3), (8, 4), (88, 4)] {
        let p = Cfs::new(&Features::default(), cpus);
        assert_eq!(
            (p.latency, p.min_granularity, p.wakeup_granularity),
            (6 * MS * factor, 3 * MS / 4 * factor, MS * factor),
            "{cpus} CPUs"
        );
    }
}

#[test]
fn slices_divide_the_period_by_weight() {
    let p = cfs(&Features::default());
    let rq = CfsRq { nr: 8, total_weight: 8 * 1024, ..CfsRq::default() };
    assert_eq!(p.slice(&rq, 1024, true), 3 * MS, "24 ms / 8");
    assert_eq!(p.slice(&rq, 1024, false), 3 * MS, "nine tasks: 9 x 3 ms / 9");
    let rq = CfsRq { nr: 2, total_weight: 1024 + 335, ..CfsRq::default() };
    assert_eq!(p.slice(&rq, 335, true), 24 * MS * 335 / 1359);
}

#[test]
fn placement() {
    for (gentle, debit, woken, new) in [(true, true, -12, 12), (false, false, -24, 0)] {
        let f = Features { gentle_fair_sleepers: gentle, start_debit: debit, ..Features::default() };
        let mut q = one(&f);
        let (mut a, mut b) = (q.p.new_task(0), q.p.new_task(0));
        a.vruntime = -1_000 * MS as i64;
        // The running task is accounted up to now: min_vruntime is 5 ms.
        q.p.enqueue(&mut q.rq, id(1), &mut a, Enqueue::Wakeup { moved: false }, 5 * MS);
        assert_eq!(a.vruntime, (5 + woken) * MS as i64);
        q.p.dequeue(&mut q.rq, id(1), &mut a, Dequeue::Migrate, 5 * MS);
        assert_eq!(a.vruntime, woken * MS as i64, "relative while it moves");
        q.p.enqueue(&mut q.rq, id(2), &mut b, Enqueue::New, 5 * MS);
        assert_eq!(b.vruntime, (5 + new) * MS as i64, "a slice of two behind");
    }
    // A short sleeper gains nothing.
    let mut q = one(&Features::default());
    let mut a = q.p.new_task(0);
    a.vruntime = 20 * MS as i64;
    q.p.enqueue(&mut q.rq, id(1), &mut a, Enqueue::Wakeup { moved: false }, 5 * MS);
    assert_eq!(a.vruntime, 20 * MS as i64);
    // Woken to another queue: by its distance from the old minimum.
    let mut b = q.p.new_task(0);
    b.vruntime = 103 * MS as i64;
    q.p.detach_sleeping(&mut b, 100 * MS as i64);
    q.p.enqueue(&mut q.rq, id(2), &mut b, Enqueue::Wakeup { moved: true }, 5 * MS);
    assert_eq!(b.vruntime, 8 * MS as i64);
}

#[test]
fn wakeup_preemption_needs_more_than_the_granularity_of_the_woken() {
    // Weight 1024: 4 ms; nice 5 (335): 12.2 ms; nice -5 (3121): 1.3 ms.
    for (nice, gran) in [(0i8, 4 * MS), (5, 4 * MS * 1024 / 335), (-5, 4 * MS * 1024 / 3121)] {
        for (ahead, preempts) in [(gran, false), (gran + 1, true)] {
            let mut q = one(&Features::default());
            let mut t = q.p.new_task(nice);
            t.vruntime = 0;
            q.p.enqueue(&mut q.rq, id(1), &mut t, Enqueue::Migrate, 0);
            let got = q.p.wakeup_preempt(&mut q.rq, (id(0), &mut q.curr), (id(1), &t), ahead);
            assert_eq!(got, preempts, "nice {nice}, {ahead} ns ahead");
            assert_eq!(q.rq.next.map(|n| n.task), preempts.then_some(id(1)), "the next hint");
        }
    }
    let off = Features { wakeup_preemption: false, ..Features::default() };
    let mut q = one(&off);
    let mut t = q.p.new_task(0);
    t.vruntime = 0;
    q.p.enqueue(&mut q.rq, id(1), &mut t, Enqueue::Migrate, 0);
    assert!(!q.p.wakeup_preempt(&mut q.rq, (id(0), &mut q.curr), (id(1), &t), 100 * MS));
    let old = Features { wakeup_next_hint: false, ..Features::default() };
    let mut q = one(&old);
    let mut t = q.p.new_task(0);
    t.vruntime = 0;
    q.p.enqueue(&mut q.rq, id(1), &mut t, Enqueue::Migrate, 0);
    assert!(q.p.wakeup_preempt(&mut q.rq, (id(0), &mut q.curr), (id(1), &t), 100 * MS));
    assert_eq!(q.rq.next, None, "2.6.37 sets none");
}

#[test]
fn last_buddy_from_eight_tasks_on() {
    for (others, last) in [(7, true), (6, false)] {
        let mut q = one(&Features::default());
        let mut woken = q.p.new_task(0);
        for i in 1..=others {
            let mut t = q.p.new_task(0);
            t.vruntime = 0;
            q.p.enqueue(&mut q.rq, id(i), &mut t, Enqueue::Migrate, 0);
            woken = t;
        }
        assert!(q.p.wakeup_preempt(&mut q.rq, (id(0), &mut q.curr), (id(others), &woken), 5 * MS));
        assert_eq!(q.rq.last.map(|n| n.task), last.then_some(id(0)), "{} tasks", others + 1);
    }
}

/// A queue of tasks with these virtual runtimes in ms, and hints.
fn queue(p: &Cfs, vruntimes: &[i64]) -> (CfsRq, Vec<CfsTask>) {
    let mut rq = p.new_rq();
    let tasks = (0..vruntimes.len())
        .map(|i| {
            let mut t = p.new_task(0);
            t.vruntime = vruntimes[i] * MS as i64 - rq.min_vruntime;
            p.enqueue(&mut rq, id(i as u32), &mut t, Enqueue::Migrate, 0);
            t
        })
        .collect();
    (rq, tasks)
}

#[test]
fn pick_follows_hints_while_that_is_fair() {
    let p = cfs(&Features::default());
    let picked = |vruntimes: &[i64], next: Option<u32>, last: Option<u32>, skip: Option<u32>| {
        let (mut rq, tasks) = queue(&p, vruntimes);
        let hint = |i: Option<u32>| i.map(|i| Node::of(id(i), &tasks[i as usize]));
        (rq.next, rq.last, rq.skip) = (hint(next), hint(last), hint(skip));
        let Pick::Task(t) = p.pick_next(&mut rq, 0) else { panic!("something is queued") };
        for h in [rq.next, rq.last, rq.skip].into_iter().flatten() {
            assert_ne!(h.task, t, "hints at the choice are cleared");
        }
        t.0
    };
    assert_eq!(picked(&[3, 1, 2], None, None, None), 1, "leftmost");
    assert_eq!(picked(&[1, 1, 2], None, None, None), 0, "ties: first come");
    assert_eq!(picked(&[1, 4, 9], None, None, Some(0)), 1, "skip the leftmost");
    assert_eq!(picked(&[1, 6, 9], None, None, Some(0)), 0, "not if the second is more than 4 ms behind");
    assert_eq!(picked(&[1], None, None, Some(0)), 0, "nobody else");
    assert_eq!(picked(&[1, 2, 5], None, Some(2), None), 2, "last");
    assert_eq!(picked(&[1, 2, 6], None, Some(2), None), 0, "last, unfair");
    assert_eq!(picked(&[1, 2, 5], Some(1), Some(2), None), 1, "next before last");
    assert_eq!(picked(&[1, 6, 5], Some(1), Some(2), Some(0)), 2, "next is unfair, last before skip");
}

#[test]
fn the_tick() {
    // Two tasks: ideal slice 12 ms, minimum 3 ms.
    let at = |other: i64, ran: u64| {
        let mut q = one(&Features::default());
        let mut t = q.p.new_task(0);
        t.vruntime = other;
        q.p.enqueue(&mut q.rq, id(1), &mut t, Enqueue::Migrate, 0);
        q.p.tick(&mut q.rq, id(0), &mut q.curr, ran)
    };
    assert!(!at(0, 12 * MS), "exactly its slice");
    assert!(at(0, 12 * MS + 1));
    assert!(at(50 * MS as i64, 12 * MS + 1), "used up is used up, whoever is next");
    assert!(!at(-20 * MS as i64, 3 * MS - 1), "protected for the minimum granularity");
    assert!(at(-9 * MS as i64 - 1, 3 * MS), "more than a slice ahead of the leftmost");
    assert!(!at(-9 * MS as i64, 3 * MS));
    let mut q = one(&Features::default());
    assert!(!q.p.tick(&mut q.rq, id(0), &mut q.curr, 1000 * MS), "alone");
}

#[test]
fn yield_skips_from_3_6_on() {
    for (skip, next) in [(true, 1), (false, 0)] {
        let mut q = one(&Features { yield_skip: skip, ..Features::default() });
        let mut t = q.p.new_task(0);
        t.vruntime = 4 * MS as i64;
        q.p.enqueue(&mut q.rq, id(1), &mut t, Enqueue::Migrate, 0);
        q.p.put_prev(&mut q.rq, id(0), &mut q.curr, Put::Yielded, MS);
        assert_eq!(q.p.pick_next(&mut q.rq, MS), Pick::Task(id(next)));
    }
}

/// A directed yield: its target is next within a granularity of the leftmost, whoever yields and wherever.
#[test]
fn a_directed_yield_is_followed_if_fair() {
    for (vruntime, next) in [(4 * MS as i64, 2), (4 * MS as i64 + 1, 1)] {
        let mut q = one(&Features::default());
        let (mut left, mut t) = (q.p.new_task(0), q.p.new_task(0));
        (left.vruntime, t.vruntime) = (0, vruntime);
        q.p.enqueue(&mut q.rq, id(1), &mut left, Enqueue::Migrate, 0);
        q.p.enqueue(&mut q.rq, id(2), &mut t, Enqueue::Migrate, 0);
        assert!(q.p.yield_to(&mut q.rq, id(2), &t));
        assert!(q.p.is_buddy(&q.rq, id(2)), "balancing leaves it");
        q.p.put_prev(&mut q.rq, id(0), &mut q.curr, Put::Yielded, MS);
        assert_eq!(q.p.pick_next(&mut q.rq, MS), Pick::Task(id(next)));
    }
    // At the running task: it keeps the CPU when it is put back, unless it sleeps.
    for (why, next) in [(Put::Preempted, 0), (Put::Sleep, 1)] {
        let mut q = one(&Features::default());
        let mut left = q.p.new_task(0);
        left.vruntime = 0;
        q.p.enqueue(&mut q.rq, id(1), &mut left, Enqueue::Migrate, 0);
        assert!(q.p.yield_to(&mut q.rq, id(0), &q.curr));
        q.p.put_prev(&mut q.rq, id(0), &mut q.curr, why, MS);
        assert_eq!(q.p.pick_next(&mut q.rq, MS), Pick::Task(id(next)));
    }
}

proptest! {
    /// min_vruntime never falls and is never above everybody; sums count everybody runnable; without hints the leftmost runs.
    #[test]
    fn invariants(nices in prop::collection::vec(-20i8..20, 2..12), hints: bool, steps in steps(12)) {
        let f = Features { wakeup_next_hint: hints, last_buddy: hints, yield_skip: hints, ..Features::default() };
        let mut d = Drive::new(cfs(&f), &nices);
        let mut floor = i64::MIN;
        for step in steps {
            if let Step::Wake(i) | Step::Away(i) = step {
                if i >= nices.len() {
                    continue;
                }
            }
            d.step(step, |d, picked| {
                let queued = d.at.iter().zip(&d.tasks).filter(|(a, _)| **a == At::Queued);
                let left = queued.map(|(_, t)| (t.vruntime, t.seq)).min();
                assert!(hints || left == Some((d.tasks[picked].vruntime, d.tasks[picked].seq)));
            });
            prop_assert!(d.rq.min_vruntime >= floor, "{} after {floor}", d.rq.min_vruntime);
            floor = d.rq.min_vruntime;
            let runnable = || d.at.iter().zip(&d.tasks).filter(|(a, _)| matches!(a, At::Queued | At::Running));
            prop_assert_eq!(d.rq.total_weight, runnable().map(|(_, t)| t.weight).sum::<u64>());
            prop_assert_eq!(d.rq.nr, runnable().count() as u64);
        }
    }

    /// Saturated, everybody's share is its weight's, within a slice and a tick.
    #[test]
    fn shares(nices in prop::collection::vec(-5i8..6, 2..8)) {
        let mut d = Drive::new(cfs(&Features::default()), &nices);
        let total = 20_000 * MS;
        let ran = d.saturate(total, 4 * MS, |_| ());
        let weights: u64 = nices.iter().map(|n| nice_to_weight(*n)).sum();
        for (n, ran) in std::iter::zip(&nices, ran) {
            let fair = (u128::from(total) * u128::from(nice_to_weight(*n)) / u128::from(weights)) as u64;
            // Granularity is virtual: a light task may be ahead by wakeup or slice granularity scaled by 1024 / weight.
            let slack = 24 * MS + 12 * MS;
            prop_assert!(ran.abs_diff(fair) <= slack + fair / 100, "nice {n}: {ran} instead of {fair}");
        }
    }
}
