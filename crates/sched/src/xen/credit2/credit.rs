//! Credits as arithmetic: burning, resets, and how long to run (mechanisms E.2). A credit is a ns of running at the largest weight of
//! the runqueue; who has less weight pays more for a ns.

use super::state::{CREDIT_INIT, CREDIT_MAX, MIN_TIMER};
use contend_platform::Nanos;

/// The credits that `ran` ns cost, and what is left below one.
pub fn cost(ran: Nanos, residual: u64, weight: u16, max_weight: u16) -> (u64, u64) {
    let val = ran * u64::from(max_weight) + residual;
    (val / u64::from(weight), val % u64::from(weight))
}

/// A credit after `ran` ns, and the residual. Not below `floor`.
pub fn burn(credit: i32, residual: u64, ran: Nanos, weight: u16, max_weight: u16, floor: i32) -> (i32, u64) {
    let (cost, residual) = cost(ran, residual, weight, max_weight);
    let left = i64::from(credit).saturating_sub_unsigned(cost);
    (left.max(i64::from(floor)) as i32, residual)
}

/// The time for which `credit` lasts, in ns; 0 for none.
pub fn lasts(credit: i32, weight: u16, max_weight: u16) -> Nanos {
    credit.max(0) as u64 * u64::from(weight) / u64::from(max_weight)
}

/// Is a reset due, with `next` the credit of who runs next and `head` that of the head of the list without it?
///
/// Base: when who runs next has none. 5e4b419966 in 2016 spoiled that if the head of the list had been skipped; 4.17 looks at the
/// head's credit itself, which says it better: as long as somebody who waits has credit there is none.
pub fn reset_due(next: i32, head: Option<i32>, today: bool) -> bool {
    next.max(head.filter(|_| today).unwrap_or(next)) <= 0
}

/// How many times [`CREDIT_INIT`] a reset gives to everybody, when who runs next has `next`.
pub fn reset_times(next: i32, today: bool) -> i32 {
    match (today, next < -CREDIT_INIT) {
        (true, _) => 1 + i32::from(next <= -CREDIT_INIT),
        (false, true) => 1 + -next / CREDIT_INIT,
        (false, false) => 1,
    }
}

/// A credit after a reset of `times`.
pub fn after_reset(credit: i32, times: i32) -> i32 {
    let to = i64::from(credit) + i64::from(times) * i64::from(CREDIT_INIT);
    to.min(i64::from(CREDIT_MAX)) as i32
}

/// What decides how long the next vCPU runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuntimeIn {
    /// Its credit.
    pub credit: i32,
    /// Its weight.
    pub weight: u16,
    /// The runqueue's largest.
    pub max_weight: u16,
    /// The best credit of those who wait, if anybody does.
    pub waiter: Option<i32>,
    /// The rate limit in ns; 0: none.
    pub ratelimit: Nanos,
    /// How long it has run already, if it goes on.
    pub ran: Option<Nanos>,
    /// The longest time, in ns.
    pub max: Nanos,
    /// Under a cap: what is left, in ns.
    pub budget: Option<i64>,
}

/// Which limit a time was cut to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// None.
    Within,
    /// The shortest time.
    Min,
    /// The longest.
    Max,
}

/// Time until the next decision, in ns.
pub fn runtime(i: &RuntimeIn) -> (Nanos, Limit) {
    let mut min = MIN_TIMER;
    if i.ratelimit > 0 {
        min = min.max(i.ratelimit.saturating_sub(i.ran.unwrap_or(0)));
    }
    let span = i.credit.saturating_sub(i.waiter.filter(|w| *w > 0).unwrap_or(0));
    let mut time = lasts(span, i.weight, i.max_weight);
    if let Some(budget) = i.budget {
        time = time.min(budget.max(0) as u64);
    }
    // A rate limit above the longest time wins: the limit is a promise.
    if time <= min {
        (min, Limit::Min)
    } else if time > i.max {
        (i.max.max(min), Limit::Max)
    } else {
        (time, Limit::Within)
    }
}
