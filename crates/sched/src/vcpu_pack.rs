//! `vcpu_pack`: a cloud guest's kernel that packs tasks on few virtual CPUs (`sched_vcpu_pack` on its command line), so that the
//! others stay halted. Its sources are not ours to read; the rule is what designed wake-ups show (docs/internals/eevdf-wakeups.md):
//!
//! A woken or new task goes to the CPU that wakes it, wherever it slept and whatever else idles, while that CPU has *room*: it runs
//! nothing but the waker, and its utilisation with the task's in it is at most 70 % of it. Without room everything is as elsewhere.
//!
//! The utilisation that counts is the larger of util_avg and util_est, the sum of what the tasks that are runnable there last had when they
//! went to sleep. A new task starts with half of what its CPU has to spare.

use crate::kernel::{Held, Kernel};
use crate::pelt::Average;
use crate::policy::Policy;
use crate::rq::{RqData, peek_nr_running};
use crate::task::Entity;
use contend_platform::Ordering::{Acquire, Relaxed};
use contend_platform::{CpuId, SchedPlatform, TaskId, Time};

/// A whole CPU, as averages count it.
const CAPACITY: u64 = 1024;
/// Up to where a CPU is filled: 70 %. Wakers of a steady utilisation kept or drew wakees up to 68 and 70 % of a CPU and not from 70 and
/// 72 % on; with a wakee of 10 and of 30 %, up to 59 and 36 %.
const FILLED: u64 = CAPACITY * 70 / 100;

impl<L: Policy> RqData<L> {
    /// A fair task has become runnable here: what it had last, counts.
    pub(crate) fn est_in(&mut self, e: &mut Entity<L>) {
        if e.sched.rt().is_none() {
            e.est_counted = e.util_est;
            self.util_est += e.est_counted;
        }
    }
    /// It is no longer.
    pub(crate) fn est_out(&mut self, e: &mut Entity<L>) {
        self.util_est -= std::mem::take(&mut e.est_counted);
    }
}

impl<L: Policy> Entity<L> {
    /// The task goes to sleep: its estimate follows a rise at once, a fall by a quarter of the difference.
    pub(crate) fn est_update(&mut self) {
        let util = self.util.get();
        self.util_est = if util >= self.util_est { util } else { self.util_est - (self.util_est - util) / 4 };
    }
    /// The task is new on a CPU of this capacity and utilisation.
    pub(crate) fn start_util(&mut self, capacity: u64, of_cpu: u64, now: Time) {
        self.util = Average::new(capacity.saturating_sub(of_cpu) / 2, now);
    }
}

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    /// Publish util_est; only packing asks for it.
    #[inline]
    pub(crate) fn est_publish(&self, p: &P, held: &Held) {
        if self.vcpu_pack {
            let est = self.with_rq(p, held, |rd| rd.util_est);
            p.store(&self.rq(held.0).util_est, est, Relaxed);
        }
    }

    /// Has the calling CPU room for a task that it wakes and that was on `prev` before? Of a new one (`None`) nothing is known.
    pub(crate) fn pack_has_room(&self, p: &P, task: TaskId, this: CpuId, prev: Option<CpuId>) -> bool {
        let rq = self.rq(this);
        if peek_nr_running(p.load(&rq.peek, Acquire)) > 1 {
            return false;
        }
        let now = p.now();
        // SAFETY: the task is WAKING, or new: its entity is the waker's.
        let (util, est) = unsafe {
            p.read(&self.task(task).ent, |e| {
                let mut util = e.util;
                util.update(now, 0);
                (util.get(), e.util_est)
            })
        };
        // A task that slept here is still in this CPU's average, but in no estimate.
        let (util, est) = match prev {
            Some(prev) if prev == this => (0, est),
            Some(_) => (util, est),
            None => (0, 0),
        };
        let filled = Average::unpack(p.load(&rq.util, Relaxed)).get() + util;
        filled.max(p.load(&rq.util_est, Relaxed) + est) <= FILLED
    }
}
