//! Moving load between runqueues (mechanisms E.2), and how soft affinity enters into it (patch 19, our design:
//! `docs/xen-credit2.md`).

use super::Credit2;
use super::pick::in_turn;
use super::state::Conf;
use crate::xen::contract::{Lend, RqId, UnitId};
use crate::xen::event::XenEvent;
use crate::xen::perf::Perf;
use contend_platform::{Account, Time, Work};

/// A vCPU that could move to the other runqueue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[expect(missing_docs, reason = "fields are named for what they are; comments say more where there is more")]
pub struct Movable {
    /// Its average load.
    pub avg: i64,
    /// It may run there, and is not on its way elsewhere.
    pub may: bool,
    /// Patch 19: here it has pCPUs that it prefers, there it has none; or the other way round.
    pub leaves: bool,
    pub enters: bool,
}

/// Two runqueues to be balanced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are named for what they are; comments say more where there is more")]
pub struct Sides {
    /// Load of the own one and of the other, as balancing sees them.
    pub own: i64,
    pub other: i64,
    /// Patch 19, and then: how much load the pCPUs of each can carry.
    pub room: Option<(i64, i64)>,
    /// Patch 19: the loads are near enough; only who comes home may move.
    pub home_only: bool,
}

/// Which vCPU to give and which to take, by their places in `push` and `pull`: the choice that leaves the smallest difference of
/// loads. `None` and `None`: leave it as it is.
pub fn choose(sides: &Sides, push: &[Movable], pull: &[Movable]) -> (Option<usize>, Option<usize>) {
    let mut best = ((sides.own - sides.other).abs(), None, None);
    let mut consider = |give: Option<usize>, take: Option<usize>| {
        if let Some(cost) = cost(sides, give.map(|g| &push[g]), take.map(|t| &pull[t]))
            && cost < best.0
        {
            best = (cost, give, take);
        }
    };
    let may = |list: &[Movable]| (0..list.len()).filter(|i| list[*i].may).collect::<Vec<_>>();
    let (gives, takes) = (may(push), may(pull));
    for give in gives {
        takes.iter().for_each(|take| consider(Some(give), Some(*take)));
        consider(Some(give), None);
    }
    takes.iter().for_each(|take| consider(None, Some(*take)));
    (best.1, best.2)
}

/// The difference of loads after a move; with patch 19 plus the load that leaves its soft affinity, less what comes into it. `None`:
/// not to be done.
fn cost(sides: &Sides, give: Option<&Movable>, take: Option<&Movable>) -> Option<i64> {
    let avg = |m: Option<&Movable>| m.map_or(0, |m| m.avg);
    let own = sides.own - avg(give) + avg(take);
    let other = sides.other + avg(give) - avg(take);
    let after = (own - other).abs();
    let Some((own_room, other_room)) = sides.room else { return Some(after) };
    // Who has a pCPU where it prefers to be gains nothing by leaving.
    let crowded_out = |m: Option<&Movable>, load: i64, room: i64| !m.is_some_and(|m| m.leaves) || load > room;
    if !crowded_out(give, sides.own, own_room) || !crowded_out(take, sides.other, other_room) {
        return None;
    }
    let of = |f: fn(&Movable) -> bool, m: Option<&Movable>| m.filter(|m| f(m)).map_or(0, |m| m.avg);
    let lost = of(|m| m.leaves, give) + of(|m| m.leaves, take);
    // Nobody comes home into a queue, unless that ends with the loads no further apart.
    let before = (sides.own - sides.other).abs();
    let nearer = after <= before;
    // Where nobody waits, it does not matter who is alone.
    let after = if own <= own_room && other <= other_room { after.min(before) } else { after };
    let home = |m: Option<&Movable>, load: i64, room: i64| {
        if load <= room || nearer { of(|m| m.enters, m) } else { 0 }
    };
    let gained = home(give, other, other_room) + home(take, own, own_room);
    if sides.home_only && gained <= lost {
        return None;
    }
    Some(after + lost - gained)
}

/// Is the difference worth the trouble, with the load and number of pCPUs given?
pub fn worthwhile(conf: &Conf, delta: i64, load_max: i64, cpus_max: usize) -> bool {
    let full = conf.load.full(1);
    let least =
        if load_max < conf.load.full(cpus_max) { full << conf.balance_under } else { full >> conf.balance_over_minus };
    delta >= least
}

/// Book the time to balancing.
pub(super) fn balancing<L: crate::xen::contract::XenPolicy, C: Lend<L>, R>(cx: &C, f: impl FnOnce() -> R) -> R {
    let before = cx.enter(Account::Balance);
    let r = f();
    cx.enter(before);
    r
}

impl Credit2 {
    /// Bring a runqueue's averages up to date; returns the one that balancing sees.
    fn refresh<C: Lend<Self>>(&self, cx: &C, rq: RqId, now: Time) -> i64 {
        self.change_rq_load(cx, rq, now, 0)
    }

    /// Balance the calling pCPU's runqueue, whose lock is held, with another.
    pub(super) fn balance_load<C: Lend<Self>>(&self, cx: &C, now: Time) {
        balancing(cx, || {
            cx.count(Perf::LoadBalance);
            let own = cx.rq_of(cx.cpu());
            let load = self.refresh(cx, own, now);
            if !cx.try_read_global() {
                return;
            }
            let partner = self.find_partner(cx, own, load, now);
            cx.unlock_read_global();
            if let Some((other, home_only)) = partner {
                self.even_out(cx, own, other, home_only, now);
                cx.unlock(other);
            }
        });
    }

    /// The runqueue to balance with, locked, and whether only homecoming is worth it.
    fn find_partner<C: Lend<Self>>(&self, cx: &C, own: RqId, load: i64, now: Time) -> Option<(RqId, bool)> {
        let mut best: Option<RqId> = None;
        let mut delta_max = 0;
        loop {
            if self.conf.today {
                (best, delta_max) = (None, 0);
            }
            // Of the runqueue scanned last, not of the one chosen: so it is, and still is.
            let (mut load_max, mut cpus_max) = (load, cx.rq_cpus(own).len());
            for rq in (0..cx.nr_rqs() as u16).map(RqId).filter(|rq| *rq != own) {
                cx.charge(Work::BalanceQueue, 1);
                if !cx.try_lock(rq) {
                    continue;
                }
                let other = self.refresh(cx, rq, now);
                cx.unlock(rq);
                let delta = (load - other).abs();
                cx.trace(|| XenEvent::Credit2LoadCheck { lrq: own.0, orq: rq.0, delta: delta as u32 });
                if delta > delta_max {
                    (best, delta_max) = (Some(rq), delta);
                }
                load_max = load.max(other);
                cpus_max = cx.rq_cpus(own).len().max(cx.rq_cpus(rq).len());
            }
            let Some(target) = best.filter(|_| worthwhile(&self.conf, delta_max, load_max, cpus_max)) else {
                // Once only: its holder may want the own runqueue for the same reason.
                return self.away_from(cx, own).filter(|home| cx.try_lock(*home)).map(|home| (home, true));
            };
            // Its holder has come meanwhile. If that wants the own one, to move a vCPU between the two, a candidate that is not
            // forgotten is tried for ever: a lockup, as it was until 2018.
            if cx.try_lock(target) {
                return Some((target, false));
            }
        }
    }

    /// Patch 19: a runqueue that a vCPU of `own` prefers, which `own` has no pCPU for.
    fn away_from<C: Lend<Self>>(&self, cx: &C, own: RqId) -> Option<RqId> {
        if !self.conf.balance_soft {
            return None;
        }
        let assigned = cx.with_rq(own, |r| r.assigned.clone());
        cx.charge(Work::BalanceTask, assigned.len() as u64);
        assigned.into_iter().find_map(|unit| {
            let home = cx.soft(unit) & cx.hard(unit);
            let away = cx.soft_useful(unit) && !home.intersects(cx.rq_cpus(own));
            away.then(|| home.first().map(|cpu| cx.rq_of(cpu))).flatten()
        })
    }

    /// How a vCPU would fare if it went `from` here `to` there.
    fn movable<C: Lend<Self>>(&self, cx: &C, unit: UnitId, from: RqId, to: RqId, now: Time) -> Movable {
        let (avg, going) = cx.with_unit(unit, |u| {
            u.load.update(self.conf.load, now, 0);
            (u.load.avg, u.migrate_to.is_some())
        });
        self.trace_unit_load(cx, unit, avg);
        let hard = cx.hard(unit);
        let may = !going && hard.intersects(cx.rq_cpus(to));
        let home = hard & cx.soft(unit);
        let prefers = |rq: RqId| cx.soft_useful(unit) && home.intersects(cx.rq_cpus(rq));
        let soft = self.conf.balance_soft;
        Movable {
            avg,
            may,
            leaves: soft && prefers(from) && !prefers(to),
            enters: soft && !prefers(from) && prefers(to),
        }
    }

    /// Give and take between two runqueues, both locked.
    fn even_out<C: Lend<Self>>(&self, cx: &C, own: RqId, other: RqId, home_only: bool, now: Time) {
        let (lavg, push) = cx.with_rq(own, |r| (r.b_avgload, r.assigned.clone()));
        let (oavg, pull) = cx.with_rq(other, |r| (r.b_avgload, r.assigned.clone()));
        cx.trace(|| XenEvent::Credit2LoadBalance { lrq: own.0, orq: other.0, lavg: lavg as u64, oavg: oavg as u64 });
        // The other's are brought up to date when the first of the own is compared with them.
        let mut pushes = Vec::with_capacity(push.len());
        let mut pulls: Option<Vec<Movable>> = None;
        let look_at_pulls = || pull.iter().map(|u| self.movable(cx, *u, other, own, now)).collect();
        for unit in &push {
            let m = self.movable(cx, *unit, own, other, now);
            if m.may && pulls.is_none() {
                pulls = Some(look_at_pulls());
            }
            pushes.push(m);
        }
        let pulls = pulls.unwrap_or_else(look_at_pulls);
        let pairs = pushes.len() * pulls.len();
        cx.charge(Work::BalanceTask, (pushes.len() + pulls.len()) as u64);
        cx.charge(Work::Policy, pairs as u64 * NS_PER_PAIR);
        let full = |rq: RqId| self.conf.load.full(cx.rq_cpus(rq).len());
        let room = self.conf.balance_soft.then(|| (full(own), full(other)));
        let (give, take) = choose(&Sides { own: lavg, other: oavg, room, home_only }, &pushes, &pulls);
        if let Some(give) = give {
            self.send(cx, push[give], own, other, now);
        }
        if let Some(take) = take {
            self.send(cx, pull[take], other, own, now);
        }
    }

    /// A vCPU goes from one runqueue to another, both locked.
    fn send<C: Lend<Self>>(&self, cx: &C, unit: UnitId, from: RqId, to: RqId, now: Time) {
        cx.trace(|| XenEvent::Credit2Migrate { vcpu: cx.info(unit), from: from.0, to: to.0 });
        let (scheduled, queued) = cx.with_unit(unit, |u| (u.scheduled, u.queued));
        let bias = cx.with_rq(to, |r| r.pick_bias);
        if scheduled {
            cx.count(Perf::MigrateRunning);
            cx.with_unit(unit, |u| u.migrate_to = Some((to, bias)));
            cx.set_migrating(unit);
            if self.conf.migrate_softirq {
                let cpu = cx.processor(unit);
                cx.with_rq(from, |r| r.tickle(cx.topo(), cpu));
                cx.tickle(cpu);
            }
            return;
        }
        cx.count(if queued { Perf::MigrateOnRunq } else { Perf::MigrateNoRunq });
        if queued {
            self.unqueue(cx, from, unit, false);
            self.change_load(cx, from, None, now, -1);
        }
        let cpu = in_turn(&self.places(cx, unit, to), bias).expect("the vCPU may run there");
        self.deassign(cx, from, unit);
        cx.set_processor(unit, cpu);
        self.assign(cx, to, unit);
        if queued {
            self.change_load(cx, to, None, now, 1);
            self.queue_and_tickle(cx, to, unit, now);
        }
    }
}

/// Comparing one pair of vCPUs: two additions, a subtraction, a comparison, and the list's next element (estimate).
const NS_PER_PAIR: u64 = 3;
