//! What happens to vCPUs between decisions: they wake, sleep, are queued, join and leave runqueues, and pay for their time.

use super::Credit2;
use super::credit::burn;
use super::schedule::Running;
use super::tickle::{Tickle, TickleIn, tickle};
use crate::xen::contract::{Lend, RqId, UnitId};
use crate::xen::event::XenEvent;
use crate::xen::perf::Perf;
use contend_platform::{CpuId, Time, Work};

/// What is known of a vCPU that has paid.
#[derive(Clone, Copy)]
pub(super) struct Paid {
    pub credit: i32,
    pub budget: Option<i64>,
    pub yields: bool,
}

impl Credit2 {
    /// A vCPU pays for its running up to now.
    pub(super) fn burn<C: Lend<Self>>(&self, cx: &C, rq: RqId, unit: UnitId, now: Time) -> Paid {
        let floor = self.conf.credit_floor();
        let (paid, delta) = cx.with_both(rq, unit, |r, u| {
            let delta = now as i64 - u.start_time as i64;
            if delta > 0 {
                let ran = delta as u64;
                (u.credit, u.residual) = burn(u.credit, u.residual, ran, u.weight, r.max_weight, floor);
                u.start_time = now;
                u.budget.spend(ran);
            }
            (Paid { credit: u.credit, budget: u.budget.left(), yields: u.yielded }, delta)
        });
        if delta <= 0 {
            cx.count(Perf::BurnCreditsT2c);
        }
        let credit = self.conf.shown(paid.credit);
        cx.trace(|| XenEvent::Credit2CreditBurn {
            vcpu: cx.info(unit),
            credit,
            budget: paid.budget.map(|b| b as i32),
            delta: delta as i32,
        });
        paid
    }

    /// The load of a runqueue changes; its averages are brought up to date first. Returns the one that balancing sees.
    pub(super) fn change_rq_load<C: Lend<Self>>(&self, cx: &C, rq: RqId, now: Time, change: i64) -> i64 {
        let shifts = self.conf.load;
        let (load, b_avgload) = cx.with_rq(rq, |r| {
            let units = r.load.elapse(now);
            r.b_avgload = shifts.decayed(r.b_avgload, units, r.load.now);
            r.load.avg = shifts.decayed(r.load.avg, units, r.load.now);
            r.load.now += change;
            debug_assert!(r.load.now >= 0, "more vCPUs left than came");
            (r.load, r.b_avgload)
        });
        cx.trace(|| XenEvent::Credit2UpdateRunqLoad {
            rq: rq.0,
            avgload: load.avg as u64,
            b_avgload: b_avgload as u64,
            load: load.now as u16,
            shift: shifts.precision as u8,
        });
        b_avgload
    }

    /// The same, and that of the vCPU it is about.
    pub(super) fn change_load<C: Lend<Self>>(&self, cx: &C, rq: RqId, unit: Option<UnitId>, now: Time, change: i64) {
        cx.trace(|| XenEvent::Credit2UpdateLoad);
        self.change_rq_load(cx, rq, now, change);
        if let Some(unit) = unit {
            let avg = cx.with_unit(unit, |u| {
                u.load.update(self.conf.load, now, change);
                u.load.avg
            });
            self.trace_unit_load(cx, unit, avg);
        }
    }

    pub(super) fn trace_unit_load<C: Lend<Self>>(&self, cx: &C, unit: UnitId, avg: i64) {
        cx.trace(|| XenEvent::Credit2UpdateVcpuLoad {
            vcpu: cx.info(unit),
            avgload: avg as u64,
            shift: self.conf.load.precision as u8,
        });
    }

    /// Queue a vCPU, and look for a pCPU for it.
    pub(super) fn queue_and_tickle<C: Lend<Self>>(&self, cx: &C, rq: RqId, unit: UnitId, now: Time) {
        cx.charge(Work::Enqueue, 1);
        let (pos, credit) = cx.with_both(rq, unit, |r, u| {
            u.queued = true;
            (r.queue(unit, u.credit), u.credit)
        });
        cx.charge(Work::BalanceTask, pos as u64);
        cx.trace(|| XenEvent::Credit2RunqPos { vcpu: cx.info(unit), pos: pos as u32 });
        self.tickle_for(cx, unit, credit, now);
    }

    /// Take it out again; to run, if it is `chosen`.
    pub(super) fn unqueue<C: Lend<Self>>(&self, cx: &C, rq: RqId, unit: UnitId, chosen: bool) {
        cx.charge(Work::Dequeue, 1);
        cx.with_both(rq, unit, |r, u| {
            u.queued = false;
            u.scheduled |= chosen;
            r.unqueue(unit);
        });
    }

    /// A vCPU that has been queued may be worth a pCPU's attention.
    fn tickle_for<C: Lend<Self>>(&self, cx: &C, unit: UnitId, credit: i32, now: Time) {
        let cpu = cx.processor(unit);
        let rq = cx.rq_of(cpu);
        cx.trace(|| XenEvent::Credit2TickleNew { vcpu: cx.info(unit), cpu, credit });
        let (hard, soft, soft_useful) = (cx.hard(unit), cx.soft(unit), cx.soft_useful(unit));
        let i = cx.with_rq(rq, |r| TickleIn {
            credit,
            cpu,
            hard: hard & r.cpus,
            soft,
            soft_useful,
            pinned: hard.len() == 1,
            cpus: r.cpus,
            idle: r.idle,
            tickled: r.tickled,
            smt_idle: r.smt_idle,
        });
        let mut probes = 0;
        let found = tickle(&self.conf, &i, &mut probes, &mut Running::new(self, cx, rq, now));
        cx.charge(Work::Probe, probes);
        let target = match found {
            Tickle::Idle(target) => {
                cx.count(Perf::TickledIdle);
                target
            }
            Tickle::Busy(target) => {
                cx.count(Perf::TickledBusy);
                target
            }
            Tickle::Nobody => return cx.count(Perf::TickledNo),
        };
        cx.trace(|| XenEvent::Credit2Tickle { cpu: target });
        let topo = cx.topo();
        let overwritten = cx.with_rq(rq, |r| {
            r.tickle(topo, target);
            let entry = r.list.iter_mut().find(|e| e.unit == unit).filter(|_| self.conf.tickled_cpu);
            entry.is_some_and(|e| e.tickled.replace(target).is_some())
        });
        if overwritten {
            cx.count(Perf::TickledOverwritten);
        }
        cx.tickle(target);
    }

    /// The contract's `wake`.
    pub(super) fn awake<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        let (cpu, now) = (cx.processor(unit), cx.now());
        if cx.curr(cpu) == Some(unit) {
            return cx.count(Perf::WakeRunning);
        }
        let (queued, scheduled) = cx.with_unit(unit, |u| {
            u.delayed_add |= u.scheduled;
            (u.queued, u.scheduled)
        });
        if queued {
            return cx.count(Perf::WakeOnRunq);
        }
        cx.count(Perf::WakeRunnable);
        if scheduled {
            return cx.count(Perf::DelayedAdd);
        }
        let rq = cx.rq_of(cpu);
        self.change_load(cx, rq, Some(unit), now, 1);
        self.queue_and_tickle(cx, rq, unit, now);
    }

    /// The contract's `sleep`.
    pub(super) fn asleep<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        let cpu = cx.processor(unit);
        cx.count(Perf::VcpuSleep);
        if cx.curr(cpu) == Some(unit) {
            return cx.tickle(cpu);
        }
        let queued = cx.with_unit(unit, |u| {
            u.delayed_add = false;
            u.queued
        });
        if queued {
            let rq = cx.rq_of(cpu);
            self.change_load(cx, rq, Some(unit), cx.now(), -1);
            self.unqueue(cx, rq, unit, false);
        }
    }

    /// The contract's `context_saved`.
    pub(super) fn saved<C: Lend<Self>>(&self, cx: &C, unit: UnitId) {
        let (rq, now) = (cx.rq_of(cx.processor(unit)), cx.now());
        let (add, counted, budget) = cx.with_unit(unit, |u| {
            u.scheduled = false;
            (std::mem::take(&mut u.delayed_add), u.load.now > 0, u.budget.take())
        });
        self.give_back(cx, unit, budget);
        if add && cx.runnable(unit) {
            if !counted {
                self.change_load(cx, rq, Some(unit), now, 1);
            }
            self.queue_and_tickle(cx, rq, unit, now);
        } else if counted {
            self.change_load(cx, rq, Some(unit), now, -1);
        }
    }

    /// The contract's `migrate`.
    pub(super) fn moved<C: Lend<Self>>(&self, cx: &C, unit: UnitId, to: CpuId) {
        let (from_rq, to_rq, now) = (cx.rq_of(cx.processor(unit)), cx.rq_of(to), cx.now());
        if from_rq == to_rq {
            return cx.set_processor(unit, to);
        }
        cx.trace(|| XenEvent::Credit2Migrate { vcpu: cx.info(unit), from: from_rq.0, to: to_rq.0 });
        // Its registers may be saved, and the policy not know it yet: then it still counts as running.
        let counted = cx.with_unit(unit, |u| u.load.now > 0);
        if counted {
            self.change_load(cx, from_rq, None, now, -1);
        }
        self.deassign(cx, from_rq, unit);
        cx.set_processor(unit, to);
        self.assign(cx, to_rq, unit);
        if counted {
            self.change_load(cx, to_rq, None, now, 1);
        }
    }

    /// A vCPU joins a runqueue, on the pCPU that it is assigned to.
    pub(super) fn assign<C: Lend<Self>>(&self, cx: &C, rq: RqId, unit: UnitId) {
        let cpu = cx.processor(unit);
        let weight = cx.with_both(rq, unit, |r, u| {
            r.assigned.push(unit);
            u.assigned = true;
            r.b_avgload += u.load.avg;
            r.pick_bias = cpu;
            r.max_weight = r.max_weight.max(u.weight);
            r.max_weight
        });
        self.trace_weight(cx, rq, weight);
        cx.trace(|| XenEvent::Credit2RunqAssign { vcpu: cx.info(unit), rq: rq.0 });
    }

    /// It leaves it.
    pub(super) fn deassign<C: Lend<Self>>(&self, cx: &C, rq: RqId, unit: UnitId) {
        let weight = cx.with_both(rq, unit, |r, u| {
            r.assigned.retain(|a| *a != unit);
            u.assigned = false;
            r.b_avgload = (r.b_avgload - u.load.avg).max(0);
            u.weight
        });
        self.weight_left(cx, rq, weight);
    }

    /// A weight is not on a runqueue any more: was it the largest?
    pub(super) fn weight_left<C: Lend<Self>>(&self, cx: &C, rq: RqId, weight: u16) {
        let (max, assigned) = cx.with_rq(rq, |r| (r.max_weight, r.assigned.clone()));
        let mut now = max;
        if weight == max {
            cx.charge(Work::BalanceTask, assigned.len() as u64);
            now = assigned.into_iter().map(|a| cx.with_unit(a, |u| u.weight)).max().unwrap_or(1);
            cx.with_rq(rq, |r| r.max_weight = now);
        }
        self.trace_weight(cx, rq, now);
    }

    pub(super) fn trace_weight<C: Lend<Self>>(&self, cx: &C, rq: RqId, weight: u16) {
        cx.trace(|| XenEvent::Credit2RunqMaxWeight { rq: rq.0, weight });
    }
}
