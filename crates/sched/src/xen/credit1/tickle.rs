//! Who is told of a vCPU that has been queued.

use super::{Credit1, IDLERS, Step, pri, step_mask};
use crate::xen::contract::{Lend, UnitId};
use crate::xen::event::XenEvent;
use crate::xen::mask::CpuMask;
use crate::xen::perf::Perf;
use contend_platform::Work;

impl Credit1 {
    /// Tickle for `new`, which has been queued on its pCPU.
    pub(super) fn tickle<C: Lend<Self>>(&self, cx: &C, new: UnitId) {
        let own = cx.processor(new);
        let cur = cx.curr(own);
        let new_pri = cx.with_unit(new, |u| u.pri);
        let cur_pri = cur.map_or(pri::IDLE, |c| cx.with_unit(c, |u| u.pri));
        let idle = cx.mask(IDLERS);
        let mut to = CpuMask::NONE;
        let Some(cur) = cur else {
            cx.count(Perf::TickledIdle);
            to.insert(own);
            return self.tell(cx, to);
        };
        if idle.is_empty() {
            if new_pri > cur_pri {
                to.insert(own);
            }
        } else {
            for step in [Step::Soft, Step::Hard] {
                let Some(allowed) = step_mask(cx, new, step) else { continue };
                cx.charge(Work::Probe, 1);
                let suitable = allowed & idle;
                if !suitable.is_empty() {
                    cx.count(Perf::TickledIdle);
                    return self.tell(cx, self.choose_idle(cx, new, suitable, idle));
                }
                if step == Step::Hard && new_pri > cur_pri {
                    // No idle pCPU is of use to `new`, but one may be to whoever runs here.
                    if self.refuge(cx, cur, suitable).intersects(&idle) {
                        cx.count(Perf::MigrateKickedAway);
                        cx.set_migrating(cur);
                    }
                    to.insert(own);
                }
            }
        }
        cx.count(if to.is_empty() { Perf::TickledNo } else { Perf::TickledBusy });
        self.tell(cx, to);
    }

    /// Where `cur` could go if `new`, which found the idle pCPUs `suitable` (none), takes its place.
    fn refuge<C: Lend<Self>>(&self, cx: &C, cur: UnitId, suitable: CpuMask) -> CpuMask {
        if self.y2023 {
            // Today's code looks at the mask that it has made for `new`. It is empty here: nobody is ever kicked away.
            return suitable;
        }
        if !self.cur_hard {
            // Before patch 1 the mask of the step is made for `cur`: the same pCPUs, and one mask's work more.
            cx.charge(Work::Probe, 1);
        }
        cx.hard(cur)
    }

    /// Idle pCPUs to tickle for `new`, which could use `suitable` ones of those that are `idle`.
    fn choose_idle<C: Lend<Self>>(&self, cx: &C, new: UnitId, suitable: CpuMask, idle: CpuMask) -> CpuMask {
        if !self.tickle_one_idle_cpu {
            return suitable;
        }
        // Before patch 2 the round goes over all that are idle, whether `new` may run there or not.
        let round = if self.tickle_mask { suitable } else { idle };
        cx.with_rq(cx.rq_of(cx.processor(new)), |q| {
            q.last_tickle = round.cycle(q.last_tickle).expect("somebody is idle");
            CpuMask::only(q.last_tickle)
        })
    }

    fn tell<C: Lend<Self>>(&self, cx: &C, to: CpuMask) {
        for cpu in to.iter() {
            cx.trace(|| XenEvent::Credit1Tickle { cpu });
            if self.y2017 && cx.mask(IDLERS).contains(cpu) {
                // It has its work: the next one that wakes shall look elsewhere.
                cx.mask_put(IDLERS, cpu, false);
            }
            cx.tickle(cpu);
        }
    }
}
