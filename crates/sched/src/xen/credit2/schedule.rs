//! The SCHEDULE softirq: who runs next, for how long, and what follows from it (mechanisms E.2).

use super::Credit2;
use super::candidate::{Candidate, CandidateIn, Current, Next, Queue, Waiter, candidate};
use super::credit::{Limit, RuntimeIn, after_reset, reset_due, reset_times, runtime};
use super::state::{Conf, Entry, MIGRATE_COMPENSATION};
use crate::xen::contract::{Decision, Lend, RqId, UnitId};
use crate::xen::event::{VcpuId, XenEvent};
use crate::xen::mask::CpuMask;
use crate::xen::perf::Perf;
use contend_platform::{CpuId, Time, Work};

/// The list, as [`candidate`] sees it.
struct List<'a, C: Lend<Credit2>> {
    policy: &'a Credit2,
    cx: &'a C,
    list: &'a [Entry],
    /// Places whose vCPUs found their domain's budget used up.
    parked: Vec<UnitId>,
}

impl<C: Lend<Credit2>> Queue for List<'_, C> {
    fn get(&mut self, at: usize) -> Option<Waiter> {
        let e = self.list.get(at)?;
        let (cpu, allowed) = (self.cx.processor(e.unit), self.cx.hard(e.unit).contains(self.cx.cpu()));
        Some(Waiter { credit: e.credit, cpu, allowed, tickled: e.tickled })
    }
    fn checked(&mut self, at: usize) {
        if self.policy.conf.today {
            self.cx.trace(|| XenEvent::Credit2CandidateCheck { vcpu: self.cx.info(self.list[at].unit) });
        }
    }
    fn has_budget(&mut self, at: usize) -> bool {
        let unit = self.list[at].unit;
        let has = self.policy.has_budget(self.cx, unit);
        if !has {
            self.parked.push(unit);
        }
        has
    }
}

impl Credit2 {
    /// The contract's `schedule`.
    pub(super) fn decide<C: Lend<Self>>(&self, cx: &C, curr: Option<UnitId>) -> Decision {
        let (cpu, now) = (cx.cpu(), cx.now());
        let rq = cx.rq_of(cpu);
        let topo = cx.topo();
        let (smt_idle, tickled) = cx.with_rq(rq, |r| {
            let tickled = r.tickled.contains(cpu);
            r.untickle(topo, cpu);
            (r.smt_idle.contains(cpu), tickled)
        });
        if self.conf.trace_schedule {
            let idle = curr.is_none();
            cx.trace(|| XenEvent::Credit2Schedule { cpu, rq: rq.0, tasklet: false, idle, smt_idle, tickled });
        }
        let current = curr.map(|unit| self.current(cx, rq, unit, now));
        let (next, entry) = self.choose_next(cx, rq, curr, current, now);
        if let Some(unit) = curr.filter(|_| next != curr) {
            let runnable = cx.runnable(unit);
            cx.with_unit(unit, |u| {
                u.yielded = false;
                u.delayed_add |= runnable;
            });
        }
        let Some(unit) = next else {
            cx.with_rq(rq, |r| r.set_idle(topo, cpu, true));
            self.change_load(cx, rq, None, now, 0);
            return Decision { next: None, slice: None };
        };
        if next == curr {
            if self.conf.today {
                self.change_load(cx, rq, Some(unit), now, 0);
            }
        } else {
            if entry.is_some_and(|e| e.tickled.is_some_and(|t| t != cpu)) {
                cx.count(Perf::TickledOverridden);
            }
        }
        let goes_on = next == curr;
        let credit = entry.map(|e| e.credit).or(current.map(|c| c.credit)).expect("it waited or ran");
        let head = cx.with_rq(rq, |r| {
            if !goes_on {
                *r.since(cpu) = now;
            }
            r.list.first().map(|e| e.credit)
        });
        if reset_due(credit, head, self.conf.today) {
            self.reset(cx, rq, credit, now);
            self.balance_load(cx, now);
        }
        let migrated = cx.processor(unit) != cpu;
        let (credit, weight, budget) = cx.with_unit(unit, |u| {
            u.yielded = false;
            u.start_time = now;
            u.credit += if migrated { MIGRATE_COMPENSATION } else { 0 };
            (u.credit, u.weight, u.budget.left())
        });
        if migrated {
            cx.count(Perf::Migrated);
            cx.set_processor(unit, cpu);
        }
        let (max_weight, waiter) = cx.with_rq(rq, |r| {
            r.set_idle(topo, cpu, false);
            (r.max_weight, r.list.first().map(|e| e.credit))
        });
        let ran = current.filter(|_| goes_on).map(|c| c.ran);
        let (ratelimit, max) = (cx.tunables().ratelimit, self.conf.max_timer);
        let (time, limit) = runtime(&RuntimeIn { credit, weight, max_weight, waiter, ratelimit, ran, max, budget });
        match limit {
            Limit::Within => {}
            Limit::Min => cx.count(Perf::RuntimeMin),
            Limit::Max => cx.count(Perf::RuntimeMax),
        }
        Decision { next, slice: Some(time) }
    }

    /// What there is to know of the vCPU that runs: it pays for its time; under a cap it may have run out.
    fn current<C: Lend<Self>>(&self, cx: &C, rq: RqId, unit: UnitId, now: Time) -> Current {
        let paid = self.burn(cx, rq, unit, now);
        let better_off = self.conf.kick_soft && self.better_off(cx, rq, unit);
        let cpu = cx.cpu();
        let since = cx.with_rq(rq, |r| *r.since(cpu));
        let ran = now.saturating_sub(since);
        let runnable = cx.runnable(unit) && self.tops_up(cx, unit, paid.budget);
        Current { credit: paid.credit, runnable, ran, yields: paid.yields, better_off }
    }

    /// Patch 20: it runs where it would rather not, and a pCPU where it would is free.
    fn better_off<C: Lend<Self>>(&self, cx: &C, rq: RqId, unit: UnitId) -> bool {
        let soft = cx.soft(unit);
        if !cx.soft_useful(unit) || soft.contains(cx.cpu()) {
            return false;
        }
        let free = cx.with_rq(rq, |r| r.idle - r.tickled);
        cx.charge(Work::Probe, 1);
        free.intersects(&(soft & cx.hard(unit)))
    }

    /// The candidate, taken out of the list if it was in it.
    fn choose_next<C: Lend<Self>>(
        &self,
        cx: &C,
        rq: RqId,
        curr: Option<UnitId>,
        current: Option<Current>,
        now: Time,
    ) -> (Option<UnitId>, Option<Entry>) {
        let (entries, tickled) = cx.with_rq(rq, |r| (std::mem::take(&mut r.list), r.tickled));
        let i = CandidateIn { cpu: cx.cpu(), current, ratelimit: cx.tunables().ratelimit, tickled };
        let mut list = List { policy: self, cx, list: &entries, parked: Vec::new() };
        let found = candidate(&self.conf, &i, &mut list);
        let parked = list.parked;
        cx.charge(Work::BalanceTask, found.walked);
        cx.charge(Work::Probe, u64::from(found.asked));
        let chosen = match found.next {
            Next::Waiter(at) => Some(entries[at]),
            _ => None,
        };
        cx.with_rq(rq, |r| r.list = entries);
        (0..found.deferred).for_each(|_| cx.count(Perf::DeferredToTickled));
        (0..found.resisted).for_each(|_| cx.count(Perf::MigrateResisted));
        if let Some(e) = chosen {
            self.unqueue(cx, rq, e.unit, true);
        }
        self.report(cx, &found, curr, current, chosen);
        for unit in parked {
            self.unqueue(cx, rq, unit, false);
            self.change_load(cx, rq, Some(unit), now, -1);
            cx.stops_waiting(unit);
        }
        let next = match found.next {
            Next::Idle => None,
            Next::Current => curr,
            Next::Waiter(_) => chosen.map(|e| e.unit),
        };
        (next, chosen)
    }

    fn report<C: Lend<Self>>(
        &self,
        cx: &C,
        found: &Candidate,
        curr: Option<UnitId>,
        current: Option<Current>,
        chosen: Option<Entry>,
    ) {
        if found.ratelimited {
            cx.count(Perf::Ratelimited);
            if let (true, Some(unit), Some(c)) = (self.conf.trace_schedule, curr, current) {
                cx.trace(|| XenEvent::Credit2Ratelimit { vcpu: cx.info(unit), ran_ns: c.ran as u32 });
            }
        } else if self.conf.tickled_cpu {
            let (vcpu, tickled, credit) = match (found.next, chosen, curr, current) {
                (Next::Waiter(_), Some(e), ..) => (cx.info(e.unit), e.tickled, e.credit),
                (Next::Current, _, Some(unit), Some(c)) => (cx.info(unit), None, c.credit),
                _ => (VcpuId::idle(cx.cpu()), None, self.conf.idle_credit()),
            };
            cx.trace(|| XenEvent::Credit2RunqCandidate { vcpu, tickled, credit });
        }
    }

    /// Give credit to all that are assigned to the runqueue; `next` is what who runs next has.
    fn reset<C: Lend<Self>>(&self, cx: &C, rq: RqId, next: i32, now: Time) {
        cx.count(Perf::CreditReset);
        let times = reset_times(next, self.conf.today);
        let assigned = cx.with_rq(rq, |r| std::mem::take(&mut r.assigned));
        cx.charge(Work::BalanceTask, assigned.len() as u64);
        for unit in &assigned {
            // Today who runs pays first for what it has run.
            if self.conf.today && cx.curr(cx.processor(*unit)) == Some(*unit) {
                self.burn(cx, rq, *unit, now);
            }
            let (start, end) = cx.with_unit(*unit, |u| {
                let start = u.credit;
                u.credit = after_reset(start, times);
                u.start_time = now;
                (start, u.credit)
            });
            cx.with_rq(rq, |r| {
                if let Some(e) = r.list.iter_mut().find(|e| e.unit == *unit) {
                    e.credit = end;
                }
            });
            cx.trace(|| XenEvent::Credit2CreditReset { vcpu: cx.info(*unit), start, end });
        }
        cx.with_rq(rq, |r| r.assigned = assigned);
    }
}

/// The running vCPUs, as [`super::tickle::tickle`] asks about them.
pub(super) struct Running<'a, C: Lend<Credit2>> {
    policy: &'a Credit2,
    cx: &'a C,
    rq: RqId,
    now: Time,
}

impl<'a, C: Lend<Credit2>> Running<'a, C> {
    /// Of a runqueue, now.
    pub(super) fn new(policy: &'a Credit2, cx: &'a C, rq: RqId, now: Time) -> Self {
        Running { policy, cx, rq, now }
    }
    fn unit(&self, cpu: CpuId) -> Option<UnitId> {
        self.cx.curr(cpu)
    }
    fn conf(&self) -> &Conf {
        &self.policy.conf
    }
}

impl<C: Lend<Credit2>> super::tickle::Currents for Running<'_, C> {
    fn preemptable(&mut self, cpus: &CpuMask) -> CpuMask {
        let (now, ratelimit) = (self.now, self.cx.tunables().ratelimit);
        // A clock that is behind makes it look as if it had run for ever: so it is recorded (`docs/xen-decisions.md`).
        let may = |since: Time| super::tickle::preemptable(now.wrapping_sub(since), ratelimit);
        self.cx.with_rq(self.rq, |r| cpus.iter().filter(|c| may(*r.since(*c))).collect())
    }
    fn credit(&mut self, cpu: CpuId) -> i32 {
        match self.unit(cpu) {
            Some(unit) => self.policy.burn(self.cx, self.rq, unit, self.now).credit,
            // Nobody to preempt there any more: it is not worth an interrupt.
            None => i32::MAX,
        }
    }
    fn in_soft(&mut self, cpu: CpuId) -> bool {
        self.unit(cpu).is_none_or(|unit| self.cx.soft(unit).contains(cpu))
    }
    fn checked(&mut self, cpu: CpuId, credit: i32, score: i32) {
        if let Some(unit) = self.unit(cpu) {
            let (vcpu, credit) = (self.cx.info(unit), self.conf().shown(credit));
            self.cx.trace(|| XenEvent::Credit2TickleCheck { vcpu, credit, score });
        }
    }
}
