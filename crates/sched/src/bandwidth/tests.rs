use super::pool::Pool;
use super::{Limit, Timer};
use crate::policy::groups::GroupId;
use contend_platform::{CpuId, Time};

const MS: Time = 1_000_000;

fn pool(burst: Time) -> Pool {
    Pool::new(Limit { quota: 20 * MS, period: 100 * MS, burst }, GroupId(1))
}

#[test]
fn a_pool_hands_out_no_more_than_a_quota_a_period() {
    let mut pool = pool(0);
    let first = pool.start(0).expect("the timer was off");
    assert!(first > 0 && first <= 100 * MS, "{first}");
    assert_eq!(pool.start(1), None, "it is on");
    assert_eq!((pool.draw(15 * MS), pool.draw(15 * MS), pool.draw(1)), (15 * MS, 5 * MS, 0));
    assert!(pool.is_empty());
    let end = pool.period_ends(first);
    assert_eq!((end.waiting, end.next), (false, Some(first + 100 * MS)));
    assert_eq!(pool.draw(100 * MS), 20 * MS);
}

#[test]
fn what_was_not_used_is_lost_but_for_the_burst() {
    let unused = |burst| {
        let mut pool = pool(burst);
        let mut next = pool.start(0);
        for _ in 0..3 {
            let at = next.expect("it is active");
            pool.start(at - 1);
            next = pool.period_ends(at).next;
        }
        pool.draw(MS * 1000)
    };
    assert_eq!((unused(0), unused(15 * MS)), (20 * MS, 35 * MS));
}

#[test]
fn bursts_are_counted_by_what_was_used_beyond_the_quota() {
    let mut pool = pool(15 * MS);
    let at = pool.start(0).expect("off");
    pool.start(1);
    pool.period_ends(at);
    assert_eq!(pool.draw(32 * MS), 32 * MS);
    pool.period_ends(at + 100 * MS);
    assert_eq!((pool.stat.nr_bursts, pool.stat.burst_ns), (1, 12 * MS));
    assert_eq!(pool.draw(MS * 1000), 23 * MS, "3 were left");
}

#[test]
fn the_timer_stops_after_a_period_in_which_nobody_asked() {
    let mut pool = pool(0);
    let first = pool.start(0).expect("off");
    assert_eq!(pool.period_ends(first).next, Some(first + 100 * MS));
    assert_eq!(pool.period_ends(first + 100 * MS).next, None);
    assert_eq!(pool.stat.nr_periods, 2);
    // It is set to the grid again, whenever that is.
    assert_eq!(pool.start(first + 777 * MS), Some(first + 800 * MS));
}

#[test]
fn a_late_timer_counts_all_periods_and_fills_once() {
    let mut pool = pool(0);
    let first = pool.start(0).expect("off");
    pool.draw(20 * MS);
    pool.waiting.push_back(CpuId(3));
    let end = pool.period_ends(first + 250 * MS);
    assert!(end.waiting);
    assert_eq!(end.next, Some(first + 300 * MS));
    assert_eq!((pool.stat.nr_periods, pool.stat.nr_throttled), (3, 3));
    assert_eq!(pool.draw(MS * 1000), 20 * MS);
}

#[test]
fn what_is_given_back_is_handed_out_unless_the_period_ends_soon() {
    let mut pool = pool(0);
    let ends = pool.start(0).expect("off");
    pool.draw(20 * MS);
    assert!(!pool.give_back(6 * MS, 5 * MS, 0), "nobody waits");
    pool.waiting.push_back(CpuId(1));
    assert!(!pool.give_back(0, 5 * MS, ends - 7 * MS), "the period ends soon");
    assert!(pool.give_back(0, 5 * MS, 0));
    assert!(!pool.give_back(1, 5 * MS, 0), "it is under way");
    assert!(pool.slack_due(5 * MS));
    pool.draw(2 * MS);
    assert!(!pool.slack_due(5 * MS), "less than a slice is kept");
}

#[test]
fn timers_have_names_of_their_own() {
    for timer in [Timer::Period(0), Timer::Slack(0), Timer::Period(4095), Timer::Slack(4095)] {
        assert_eq!(Timer::of(timer.id()), Some(timer));
    }
    assert_eq!(Timer::of(contend_platform::TaskId(super::TASKS_MAX as u32 - 1)), None);
}
