//! What a pCPU runs next.

use super::{Credit1, IDLERS, TICK, next_tick, pri};
use crate::xen::contract::{Decision, Lend, UnitId};
use crate::xen::event::XenEvent;
use crate::xen::perf::Perf;
use contend_platform::{Nanos, Work};

/// The floor of what is left of a rate limit with patch 3: the smallest value, 100 us, of the parameter, taken for ns.
const LIMIT_MIN_NS: Nanos = 100;

impl Credit1 {
    pub(super) fn decide<C: Lend<Self>>(&self, cx: &C, curr: Option<UnitId>) -> Decision {
        let (cpu, now) = (cx.cpu(), cx.now());
        let (rq, tunables) = (cx.rq_of(cpu), cx.tunables());
        if self.trace_schedule {
            cx.trace(|| XenEvent::Credit1Schedule { cpu, tasklet: false, idle: curr.is_none() });
        }
        let mut yields = false;
        if let Some(unit) = curr {
            self.burn(cx, unit);
            yields = cx.with_unit(unit, |u| u.yields);
        }
        let willing = curr.filter(|u| cx.runnable(*u));
        let ran = now - cx.with_rq(rq, |q| q.since);
        if let Some(unit) = willing
            && ran < tunables.ratelimit
            && !(self.yield_no_ratelimit && yields)
        {
            cx.count(Perf::Ratelimited);
            if self.trace_schedule {
                cx.trace(|| XenEvent::Credit1Ratelimit { vcpu: cx.info(unit), ran_ns: ran as u32 });
            }
            return Decision { next: curr, slice: Some(self.limit_timer(tunables.ratelimit, ran)) };
        }
        if let Some(unit) = curr {
            cx.with_unit(unit, |u| u.last_run = now);
        }
        if let Some(unit) = willing {
            self.enqueue(cx, rq, unit);
        }
        let head = cx.with_rq(rq, |q| q.head_pri());
        let stolen = if head > pri::OVER { None } else { self.steal(cx, head) };
        let next = stolen.or_else(|| {
            let unit = cx.with_rq(rq, |q| q.waiting.first().map(|e| e.unit))?;
            self.dequeue(cx, rq, unit);
            Some(unit)
        });
        self.note_load(cx, cpu, next.is_some());
        cx.charge(Work::Probe, 1);
        if cx.mask(IDLERS).contains(cpu) != next.is_none() {
            cx.mask_put(IDLERS, cpu, next.is_none());
        }
        if self.y2023 && curr.is_some() != next.is_some() {
            // Xen's tick_suspend and tick_resume, which its idle loop calls.
            if next.is_none() { cx.stop_timer(TICK) } else { cx.set_timer(TICK, next_tick(cx)) }
        }
        if next != curr {
            cx.with_rq(rq, |q| q.since = now);
        }
        if let Some(unit) = next {
            cx.with_unit(unit, |u| u.start = now);
        }
        Decision { next, slice: next.map(|_| tunables.tslice) }
    }

    /// When to look again at a vCPU that the rate limit keeps: base, after another whole limit.
    fn limit_timer(&self, limit: Nanos, ran: Nanos) -> Nanos {
        if !self.ratelimit_remaining {
            limit
        } else if ran < LIMIT_MIN_NS {
            // What should be compared is the rest. It is the bug that patch 3 brought, and that is there still.
            LIMIT_MIN_NS
        } else {
            limit - ran
        }
    }
}
