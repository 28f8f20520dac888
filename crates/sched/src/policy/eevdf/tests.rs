//! EEVDF through its contract, against mechanisms A.4 and a naive implementation.

use super::super::drive::{At, Drive, Step, steps};
use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const TICK: u64 = 4 * MS;

fn eevdf(f: &Features) -> Eevdf {
    // 8 CPUs: slices of 2.8 ms.
    Eevdf::new(f, 8, TICK)
}

fn id(i: u32) -> TaskId {
    TaskId(i)
}

/// Everybody in the queue or running: (vruntime, weight).
fn members(d: &Drive<Eevdf>) -> Vec<(i128, i128)> {
    let there = |a: &At| matches!(a, At::Queued | At::Running | At::Delayed);
    let of = |t: &EevdfTask| (i128::from(t.vruntime), i128::from(t.weight));
    d.at.iter().zip(&d.tasks).filter(|(a, _)| there(a)).map(|(_, t)| of(t)).collect()
}

/// The choice by definition: of those with vruntime <= V the earliest deadline, first come first served.
fn naive(d: &Drive<Eevdf>) -> Option<usize> {
    let all = members(d);
    let (s, w) = all.iter().fold((0, 0), |(s, w), (v, weight)| (s + v * weight, w + weight));
    let queued = (0..d.tasks.len()).filter(|i| matches!(d.at[*i], At::Queued | At::Delayed));
    queued.filter(|i| i128::from(d.tasks[*i].vruntime) * w <= s).min_by_key(|i| (d.tasks[*i].deadline, d.tasks[*i].seq))
}

#[test]
fn slices_and_bounds() {
    let p = eevdf(&Features::default());
    assert_eq!(p.base_slice, 2_800_000);
    let of = |p: &Eevdf, weight, slice| EevdfTask { weight, slice, ..p.new_task(0) };
    assert_eq!(p.vslice(&of(&p, 1024, 0)), 2_800_000);
    assert_eq!(p.vslice(&of(&p, 2048, 0)), 1_400_000);
    assert_eq!(p.vslice(&of(&p, 2048, 100_000)), 50_000, "its own slice is not scaled by the CPUs");
    assert_eq!(p.lag_limit(&of(&p, 1024, 0)), 5_600_000, "two slices are more than a tick");
    assert_eq!(p.lag_limit(&of(&p, 1024, 100_000)), 4_000_000, "a tick is more than two of 0.1 ms");
    assert_eq!(
        Eevdf::new(&Features::default(), 1, TICK).lag_limit(&of(&p, 1024, 0)),
        4_000_000,
        "a tick is more than two of 0.7 ms"
    );
}

#[test]
fn new_tasks_get_half_a_slice() {
    let p = eevdf(&Features::default());
    let mut rq = p.new_rq();
    let mut t = p.new_task(0);
    p.enqueue(&mut rq, id(0), &mut t, Enqueue::New, 0);
    assert_eq!(t.deadline - t.vruntime, 1_400_000);
    p.set_next(&mut rq, id(0), &mut t, 0);
    assert!(!p.tick(&mut rq, id(0), &mut t, 1_399_999));
    p.tick(&mut rq, id(0), &mut t, 1_400_000);
    assert_eq!(t.deadline - t.vruntime, 2_800_000, "the next request is a whole one");
}

#[test]
fn a_used_up_request_reschedules_whoever_finds_out() {
    let p = eevdf(&Features { wakeup_preemption: false, ..Features::default() });
    let mut rq = p.new_rq();
    let (mut a, mut b) = (p.new_task(0), p.new_task(0));
    p.enqueue(&mut rq, id(0), &mut a, Enqueue::New, 0);
    p.set_next(&mut rq, id(0), &mut a, 0);
    p.enqueue(&mut rq, id(1), &mut b, Enqueue::Wakeup { moved: false }, MS);
    assert!(!p.wakeup_preempt(&mut rq, (id(0), &mut a), (id(1), &b), MS), "off");
    assert!(p.wakeup_preempt(&mut rq, (id(0), &mut a), (id(1), &b), 2 * MS), "1.4 ms are over");
}

#[test]
fn a_sleeper_keeps_its_lag() {
    let p = eevdf(&Features { delay_dequeue: false, ..Features::default() });
    let mut rq = p.new_rq();
    let (mut a, mut b) = (p.new_task(0), p.new_task(0));
    p.enqueue(&mut rq, id(0), &mut a, Enqueue::New, 0);
    p.enqueue(&mut rq, id(1), &mut b, Enqueue::New, 0);
    p.set_next(&mut rq, id(0), &mut a, 0);
    // After 2 ms a is at 2, b at 0, V at 1.
    assert!(!p.put_prev(&mut rq, id(0), &mut a, Put::Sleep, 2 * MS));
    assert_eq!(a.vlag, -(MS as i64));
    p.set_next(&mut rq, id(1), &mut b, 2 * MS);
    // 10 ms later b is at 10; a is placed so that its lag is what it was once it counts: V - lag x (W + w) / W.
    p.enqueue(&mut rq, id(0), &mut a, Enqueue::Wakeup { moved: false }, 12 * MS);
    assert_eq!(a.vruntime, 12 * MS as i64);
    assert_eq!(rq.average() - a.vruntime, -(MS as i64));
    // Clamped: two slices.
    let mut c = p.new_task(0);
    p.enqueue(&mut rq, id(2), &mut c, Enqueue::New, 12 * MS);
    p.put_prev(&mut rq, id(1), &mut b, Put::Sleep, 100 * MS);
    assert_eq!(b.vlag, -5_600_000);
}

#[test]
fn delayed_dequeue() {
    let p = eevdf(&Features::default());
    let mut rq = p.new_rq();
    let (mut a, mut b) = (p.new_task(0), p.new_task(0));
    p.enqueue(&mut rq, id(0), &mut a, Enqueue::New, 0);
    p.enqueue(&mut rq, id(1), &mut b, Enqueue::New, 0);
    p.set_next(&mut rq, id(0), &mut a, 0);
    assert!(p.put_prev(&mut rq, id(0), &mut a, Put::Sleep, MS), "it has had too much: stays queued");
    assert_eq!(p.pick_next(&mut rq, MS), Pick::Task(id(1)));
    p.set_next(&mut rq, id(1), &mut b, MS);
    let mut again = (rq.clone(), a.clone(), b.clone());
    // b catches up and passes it.
    p.put_prev(&mut rq, id(1), &mut b, Put::Preempted, 4 * MS);
    assert_eq!(p.pick_next(&mut rq, 4 * MS), Pick::Finished(id(0)));
    p.dequeue(&mut rq, id(0), &mut a, Dequeue::Sleep, 4 * MS);
    assert_eq!(a.vlag, 0, "it earns nothing by waiting");
    // Or it is woken before: it goes on where it was, with its debt.
    p.revive(&mut again.0, id(0), &mut again.1, MS + MS / 2);
    assert_eq!(again.1.vruntime, MS as i64);
    assert!(!again.1.delayed);
    let _ = again.2;
    // A sleeper that has not had its share leaves at once.
    let mut rq = p.new_rq();
    let (mut a, mut b) = (p.new_task(0), p.new_task(0));
    p.enqueue(&mut rq, id(0), &mut a, Enqueue::New, 0);
    p.set_next(&mut rq, id(0), &mut a, 0);
    p.enqueue(&mut rq, id(1), &mut b, Enqueue::New, 0);
    p.put_prev(&mut rq, id(0), &mut a, Put::Preempted, MS);
    p.set_next(&mut rq, id(1), &mut b, MS);
    assert!(!p.put_prev(&mut rq, id(1), &mut b, Put::Sleep, MS + MS / 2));
}

#[test]
fn yield_forfeits_the_request() {
    let p = eevdf(&Features::default());
    let mut rq = p.new_rq();
    let (mut a, mut b) = (p.new_task(0), p.new_task(0));
    p.enqueue(&mut rq, id(0), &mut a, Enqueue::New, 0);
    p.enqueue(&mut rq, id(1), &mut b, Enqueue::New, 0);
    p.set_next(&mut rq, id(0), &mut a, 0);
    let deadline = a.deadline;
    p.put_prev(&mut rq, id(0), &mut a, Put::Yielded, 0);
    assert_eq!((a.vruntime, a.deadline), (deadline, deadline + 2_800_000));
    assert_eq!(p.pick_next(&mut rq, 0), Pick::Task(id(1)));
}

/// A directed yield: its target is next as soon as it is eligible, before whoever has the earlier deadline or is protected.
#[test]
fn a_directed_yield_is_followed_if_eligible() {
    for buddy in [true, false] {
        let p = eevdf(&Features { pick_buddy: buddy, ..Features::default() });
        let mut rq = p.new_rq();
        let mut t = [p.new_task(0), p.new_task(0), p.new_task(0)];
        (0..3).for_each(|i| p.enqueue(&mut rq, id(i), &mut t[i as usize], Enqueue::New, 0));
        p.set_next(&mut rq, id(0), &mut t[0], 0);
        assert!(p.yield_to(&mut rq, id(2), &t[2]));
        p.put_prev(&mut rq, id(0), &mut t[0], Put::Yielded, 1000);
        let next = if buddy { 2 } else { 1 };
        assert_eq!(p.pick_next(&mut rq, 1000), Pick::Task(id(next)));
        p.set_next(&mut rq, id(next), &mut t[next as usize], 1000);
        assert_eq!(rq.next, if buddy { None } else { Some(id(2)) }, "picked, the hint is gone");
    }
    let p = eevdf(&Features::default());
    // Not eligible: the hint waits.
    let mut rq = p.new_rq();
    let (mut a, mut b) = (p.new_task(0), p.new_task(0));
    p.enqueue(&mut rq, id(0), &mut a, Enqueue::New, 0);
    p.enqueue(&mut rq, id(1), &mut b, Enqueue::New, 0);
    p.set_next(&mut rq, id(0), &mut a, 0);
    assert!(p.yield_to(&mut rq, id(0), &a));
    p.put_prev(&mut rq, id(0), &mut a, Put::Preempted, MS);
    assert_eq!(p.pick_next(&mut rq, MS), Pick::Task(id(1)));
    assert_eq!(rq.next, Some(id(0)));
    // It ends with a sleep, a yield, and with the request.
    for why in [Put::Sleep, Put::Yielded] {
        let (mut rq, mut a) = (rq.clone(), a.clone());
        rq.next = None;
        p.set_next(&mut rq, id(0), &mut a, MS);
        assert!(p.yield_to(&mut rq, id(0), &a));
        p.put_prev(&mut rq, id(0), &mut a, why, MS);
        assert_eq!(rq.next, None, "{why:?}");
    }
    p.set_next(&mut rq, id(0), &mut a, MS);
    assert!(p.yield_to(&mut rq, id(0), &a));
    assert!(p.tick(&mut rq, id(0), &mut a, 100 * MS));
    assert_eq!(rq.next, None);
}

#[test]
fn run_to_parity_protects_the_slice_from_wake_ups() {
    for (parity, preempts) in [(true, false), (false, true)] {
        let p = eevdf(&Features { run_to_parity: parity, ..Features::default() });
        let mut rq = p.new_rq();
        let (mut a, mut b) = (p.new_task(0), p.new_task(0));
        p.enqueue(&mut rq, id(0), &mut a, Enqueue::Wakeup { moved: false }, 0);
        p.set_next(&mut rq, id(0), &mut a, 0);
        // Half a slice: an earlier deadline.
        p.enqueue(&mut rq, id(1), &mut b, Enqueue::New, 0);
        assert!(b.deadline < a.deadline);
        assert_eq!(p.wakeup_preempt(&mut rq, (id(0), &mut a), (id(1), &b), 0), preempts);
        // Protection is of one queue's time and ends with a move.
        p.put_prev(&mut rq, id(0), &mut a, Put::Preempted, 0);
        p.dequeue(&mut rq, id(0), &mut a, Dequeue::Migrate, 0);
        p.enqueue(&mut rq, id(0), &mut a, Enqueue::Migrate, 0);
        assert_eq!(a.vprot, i64::MIN);
    }
}

/// NEXT_BUDDY: who is woken and eligible is next, before whoever is protected or has the earlier deadline.
#[test]
fn an_eligible_wakee_preempts_and_is_next() {
    for buddy in [true, false] {
        let p = eevdf(&Features { next_buddy: buddy, ..Features::default() });
        let mut rq = p.new_rq();
        let mut t = [p.new_task(0), p.new_task(0), p.new_task(0)];
        t[2].sum_exec = 1;
        (0..2).for_each(|i| p.enqueue(&mut rq, id(i), &mut t[i as usize], Enqueue::New, 0));
        p.set_next(&mut rq, id(0), &mut t[0], 0);
        // 0 is protected, 1 has half a slice and so the earlier deadline; 2 is placed at V.
        p.enqueue(&mut rq, id(2), &mut t[2], Enqueue::Wakeup { moved: false }, 0);
        assert!(t[1].deadline < t[2].deadline);
        let [curr, _, woken] = &mut t;
        assert_eq!(p.wakeup_preempt(&mut rq, (id(0), curr), (id(2), woken), 0), buddy);
        p.put_prev(&mut rq, id(0), curr, Put::Preempted, 0);
        assert_eq!(p.pick_next(&mut rq, 0), Pick::Task(id(if buddy { 2 } else { 0 })));
    }
    let p = eevdf(&Features { next_buddy: true, ..Features::default() });
    // With a debt it is not eligible, and has to wait.
    let mut rq = p.new_rq();
    let (mut a, mut b) = (p.new_task(0), p.new_task(0));
    (b.sum_exec, b.vlag) = (1, -(MS as i64));
    p.enqueue(&mut rq, id(0), &mut a, Enqueue::New, 0);
    p.set_next(&mut rq, id(0), &mut a, 0);
    p.enqueue(&mut rq, id(1), &mut b, Enqueue::Wakeup { moved: false }, 0);
    assert!(!p.wakeup_preempt(&mut rq, (id(0), &mut a), (id(1), &b), 0));
    assert_eq!(rq.next, None);
    // A new task waits for its turn.
    let mut c = p.new_task(0);
    p.enqueue(&mut rq, id(2), &mut c, Enqueue::New, 0);
    assert!(!p.wakeup_preempt(&mut rq, (id(0), &mut a), (id(2), &c), 0));
}

#[test]
fn a_change_of_weight_keeps_the_service_owed() {
    let p = eevdf(&Features::default());
    let mut t = p.new_task(0);
    (t.vlag, t.vruntime, t.deadline) = (3_000, 10_000, 20_240);
    p.set_nice(&mut t, 19);
    assert_eq!(t.weight, 15);
    assert_eq!((t.vlag, t.deadline), (3_000 * 1024 / 15, 10_000 + 10_240 * 1024 / 15));
}

proptest! {
    /// The sums are those of the members; lags add up to zero; stored lags are bounded; the choice is the naive one's, the
    /// protected task's or the hint's.
    #[test]
    fn invariants(
        nices in prop::collection::vec(-20i8..20, 2..12), delay: bool, parity: bool, buddy: bool, steps in steps(12),
    ) {
        let f = Features { delay_dequeue: delay, run_to_parity: parity, next_buddy: buddy, ..Features::default() };
        let mut d = Drive::new(eevdf(&f), &nices);
        for step in steps {
            if let Step::Wake(i) | Step::Away(i) = step {
                if i >= nices.len() {
                    continue;
                }
            }
            let before = d.curr;
            d.step(step, |d, picked| {
                let t = &d.tasks[picked];
                let parity_holds = parity && before == Some(picked) && t.vruntime < t.vprot && d.rq.eligible(t.vruntime);
                let hinted = buddy && d.rq.next == Some(id(picked as u32)) && d.rq.eligible(t.vruntime);
                assert!(hinted || parity_holds || naive(d) == Some(picked), "picked {picked}, should be {:?}", naive(d));
            });
            // The queue's copy of the running task may be ahead of the task's own: account it.
            if let Some(c) = d.curr {
                if matches!(step, Step::Wake(_)) {
                    d.policy.update_curr(&mut d.rq, &mut d.tasks[c], d.now);
                }
            }
            let (s, w) = d.rq.sums();
            let w = i128::from(w);
            let all = members(&d);
            prop_assert_eq!(w, all.iter().map(|m| m.1).sum::<i128>());
            if w > 0 && d.curr.is_none_or(|c| d.tasks[c].exec_start == d.rq.curr_at) {
                prop_assert_eq!(s, all.iter().map(|m| m.0 * m.1).sum::<i128>());
                // V is rounded down: the weighted lags add up to less than the weights.
                let v = i128::from(d.rq.average());
                let lags: i128 = all.iter().map(|m| (v - m.0) * m.1).sum();
                prop_assert!((-w..=0).contains(&lags), "{lags}");
            }
            for t in &d.tasks {
                prop_assert!(t.vlag.abs() <= d.policy.lag_limit(t));
            }
        }
    }

    /// Saturated, no lag ever exceeds a slice and a tick of service, and shares are those of the weights within that.
    #[test]
    fn lags_and_shares(nices in prop::collection::vec(-5i8..6, 2..8)) {
        let mut d = Drive::new(eevdf(&Features::default()), &nices);
        let total = 5_000 * MS;
        let bound = (2_800_000 + MS) as i128 * 1024;
        let ran = d.saturate(total, MS, |d| {
            let all = members(d);
            let v = i128::from(d.rq.average());
            for (vruntime, weight) in all {
                let lag = (v - vruntime) * weight;
                assert!(lag.abs() <= bound, "lag of weight {weight}: {} us of service", lag / 1024 / 1000);
            }
        });
        let weights: u64 = nices.iter().map(|n| nice_to_weight(*n)).sum();
        for (n, ran) in std::iter::zip(&nices, ran) {
            let fair = (u128::from(total) * u128::from(nice_to_weight(*n)) / u128::from(weights)) as u64;
            prop_assert!(ran.abs_diff(fair) <= 2 * (2_800_000 + MS), "nice {n}: {ran} instead of {fair}");
        }
    }
}

/// A task wakes another 12 us after it came and goes on for 105 us; the other computes for `us`, and 3 us in the kernel. Both sleep then, and 2 ms later again.
/// Did the woken task preempt it each time?
fn preempted(us: u64) -> String {
    let mut d = Drive::new(Eevdf::new(&Features::default(), 2, TICK), &[0, 0]);
    let none = |_: &Drive<Eevdf>, _: usize| {};
    d.step(Step::Wake(1), none);
    d.pick(none);
    d.step(Step::Pass(20_000), none);
    d.step(Step::Sleep, none);
    let mut course = String::new();
    for _ in 0..16 {
        d.step(Step::Pass(2 * MS), none);
        d.step(Step::Wake(0), none);
        d.step(Step::Pass(12_000), none);
        d.step(Step::Wake(1), none);
        course.push(if d.curr == Some(1) { '1' } else { '0' });
        for _ in 0..2 {
            let runs = if d.curr == Some(1) { us * 1000 + 3_000 } else { 105_000 };
            d.step(Step::Pass(runs), none);
            d.step(Step::Sleep, none);
        }
        assert_eq!(d.curr, None);
    }
    course
}

/// Whoever is owed service preempts, who is owed none waits: he has what he was owed when he waited, until it is used up. Linux 6.18 did so on a real
/// machine (docs/internals/eevdf-wakeups.md), where the second line was 01111101111011110 and the third 01101001010101010.
#[test]
fn who_is_owed_service_preempts() {
    assert_eq!(preempted(5), "0111111111111101");
    assert_eq!(preempted(20), "0111101111011110");
    assert_eq!(preempted(50), "0101010101010101");
    assert_eq!(preempted(80), "0101010101010101");
    assert_eq!(preempted(120), "0000000000000000");
    assert_eq!(preempted(200), "0000000000000000");
}

/// A task starts another, runs on for `on` us and waits; the new one runs for `us` and wakes it. Does it preempt? With a tick just before the wake-up?
fn parent_preempts(on: u64, us: u64, tick: bool) -> bool {
    let mut d = Drive::new(Eevdf::new(&Features::default(), 2, TICK), &[0, 0]);
    let none = |_: &Drive<Eevdf>, _: usize| {};
    d.step(Step::Wake(0), none);
    d.pick(none);
    d.step(Step::Pass(500_000), none);
    d.step(Step::Wake(1), none);
    d.step(Step::Pass(on * 1000), none);
    d.step(Step::Sleep, none);
    assert_eq!(d.curr, Some(1));
    d.step(Step::Pass(us * 1000), none);
    if tick {
        d.step(Step::Tick, none);
    }
    d.step(Step::Wake(0), none);
    d.curr == Some(0)
}

/// Whoever sleeps on the queue with a debt, and is woken while the other has had more since it came, is owed that: unless a tick has told the
/// queue of it. Linux 6.18 did so on a real machine (docs/internals/eevdf-wakeups.md): it turned between 40 and 80 us with a child that ran 70, and with one that ran
/// 2 ms, in half of which a tick comes, 35 of 60 parents preempted.
#[test]
fn a_debt_is_judged_by_when_the_other_was_last_accounted_for() {
    for (on, us) in [(1, 30), (40, 70), (200, 245), (1, 1000)] {
        assert!(parent_preempts(on, us, false), "{on} us, child {us} us");
        assert!(!parent_preempts(on, us, true), "{on} us, child {us} us, a tick");
    }
    for (on, us) in [(80, 70), (300, 245)] {
        assert!(!parent_preempts(on, us, false), "{on} us, child {us} us");
    }
}
