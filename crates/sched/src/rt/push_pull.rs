//! What CPUs do for one another's real-time tasks: where a woken one goes, push and pull.
//!
//! Each CPU has a *level*: the highest real-time priority that runs or waits there, 0 if there is none. A task goes to a CPU of
//! a level below its own priority, the lowest there is. Whether a CPU of level 0 is idle does not matter.

use super::queue::Published;
use crate::class::{RT_PRIO_MAX, RtPrio};
use crate::cpuset::{Affinity, CpuMask};
use crate::kernel::{Held, Kernel};
use crate::policy::{Enqueue, Policy};
use contend_platform::Ordering::{AcqRel, Acquire, Release};
use contend_platform::{Account, CpuId, Platform, SchedEvent, SchedPlatform, TaskId, Work};

const LEVELS: usize = RT_PRIO_MAX as usize + 1;
/// Words of a level (a count and a pointer to a mask) on one line.
const LEVELS_PER_LINE: usize = 4;

/// What all CPUs know of one another: made with the first real-time task.
pub(crate) struct Shared<P: Platform> {
    /// How many CPUs are at each level.
    counts: Vec<P::Word>,
    /// Which ones. An observer's bitmaps without simulated cost.
    at_level: Vec<CpuMask>,
    /// By CPU: its level, and the highest priority that waits there.
    cpus: Vec<P::Word>,
    /// On how many CPUs real-time tasks wait, and on which. The mask is as above.
    nr_overloaded: P::Word,
    overloaded: CpuMask,
}

/// So often in succession a push begins anew, when others were faster: another CPU pushed to the same place, or took the task. (Upstream
/// gives up after three; then a task waits that has a place.)
const RACES_MAX: u32 = 16;

/// What became of a push.
enum Push {
    Moved,
    /// There is nobody to push, or no place for him.
    Nowhere,
    /// The place was taken, or the task, while the locks were.
    Raced,
}

impl<P: Platform> Shared<P> {
    fn new(p: &P, cpus: usize) -> Self {
        let mut counts = Vec::with_capacity(LEVELS);
        for first in (0..LEVELS).step_by(LEVELS_PER_LINE) {
            let line = p.line();
            let here = first..LEVELS.min(first + LEVELS_PER_LINE);
            counts.extend(here.map(|level| p.word(line, if level == 0 { cpus as u64 } else { 0 })));
        }
        let at_level: Vec<CpuMask> = (0..LEVELS).map(|_| CpuMask::new(cpus)).collect();
        (0..cpus).for_each(|c| at_level[0].set(CpuId(c as u16), true));
        Shared {
            counts,
            at_level,
            cpus: (0..cpus).map(|_| p.word(p.line(), 0)).collect(),
            nr_overloaded: p.word(p.line(), 0),
            overloaded: CpuMask::new(cpus),
        }
    }
}

fn pack(of: Published) -> u64 {
    u64::from(of.pinned) << 16 | u64::from(of.level) << 8 | u64::from(of.waiting)
}

fn unpack(word: u64) -> Published {
    Published { level: (word >> 8) as RtPrio, waiting: word as RtPrio, pinned: word >> 16 != 0 }
}

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    /// A real-time task is about to be.
    pub(crate) fn rt_shared(&self, p: &P) -> &Shared<P> {
        self.rt.get_or_init(|| Shared::new(p, self.rqs.len()))
    }

    /// The real-time priority of a task that is the caller's: its waker's, its parent's, or under its run queue's lock.
    pub(crate) fn rt_prio(&self, p: &P, task: TaskId) -> Option<RtPrio> {
        self.rt.get()?;
        // SAFETY: the caller owns the entity, as said above.
        unsafe { p.read(&self.task(task).ent, |e| e.sched.rt()) }
    }

    /// The part of [`Kernel::publish`] that is about real-time tasks.
    #[cold]
    pub(crate) fn rt_publish(&self, p: &P, held: &Held) {
        let shared = self.rt_shared(p);
        let cpu = held.0;
        let (old, new) = self.with_rq(p, held, |rd| rd.rt.publish());
        p.store(&shared.cpus[cpu.index()], pack(new), Release);
        if old.level != new.level {
            // First in, then out: a reader finds the CPU at one level at least.
            shared.at_level[usize::from(new.level)].set(cpu, true);
            p.fetch_add(&shared.counts[usize::from(new.level)], 1, AcqRel);
            p.fetch_add(&shared.counts[usize::from(old.level)], 1u64.wrapping_neg(), AcqRel);
            shared.at_level[usize::from(old.level)].set(cpu, false);
        }
        if (old.waiting == 0) != (new.waiting == 0) {
            shared.overloaded.set(cpu, new.waiting != 0);
            let by = if new.waiting != 0 { 1 } else { 1u64.wrapping_neg() };
            p.fetch_add(&shared.nr_overloaded, by, AcqRel);
        }
    }

    // ---- placement -------------------------------------------------------------------------------------------

    /// Where a woken or new real-time task goes that belongs to `prev`.
    #[cold]
    pub(crate) fn select_rt(&self, p: &P, prio: RtPrio, prev: CpuId, affinity: &Affinity) -> CpuId {
        let shared = self.rt_shared(p);
        // One that could not go out of the way is left alone, if there is another place.
        let there = unpack(p.load(&shared.cpus[prev.index()], Acquire));
        if affinity.allows(prev) && there.level < prio && !there.pinned {
            return prev;
        }
        self.find_lowest(p, prio, prev, affinity).unwrap_or_else(|| affinity.or_first(prev, self.rqs.len()))
    }

    /// An allowed CPU of the lowest level below `prio`, near `prev`.
    fn find_lowest(&self, p: &P, prio: RtPrio, prev: CpuId, affinity: &Affinity) -> Option<CpuId> {
        let shared = self.rt_shared(p);
        let this = p.cpu();
        for level in 0..usize::from(prio) {
            if p.load(&shared.counts[level], Acquire) == 0 {
                continue;
            }
            let mask = &shared.at_level[level];
            let good = |c: &CpuId| mask.has(*c) && affinity.allows(*c);
            if good(&prev) {
                return Some(prev);
            }
            for domain in self.domains.of(prev) {
                if domain.span.binary_search(&this).is_ok() && good(&this) {
                    return Some(this);
                }
                if let Some(c) = domain.span.iter().copied().find(good) {
                    return Some(c);
                }
            }
            if let Some(c) = mask.iter().find(good) {
                return Some(c);
            }
        }
        None
    }

    // ---- push ------------------------------------------------------------------------------------------------

    /// Release a run queue's lock; then, if real-time tasks wait behind one there, look for other CPUs for them.
    pub(crate) fn unlock_pushing(&self, p: &P, held: Held) {
        let cpu = held.0;
        let push =
            self.rt.get().is_some() && self.features.rt_push_pull && self.with_rq(p, &held, |rd| rd.rt.wants_push());
        self.unlock(p, held);
        if push {
            let before = p.enter(Account::Balance);
            let mut races = 0;
            loop {
                match self.push_one(p, cpu) {
                    Push::Moved => races = 0,
                    Push::Raced if races < RACES_MAX => races += 1,
                    Push::Nowhere | Push::Raced => break,
                }
            }
            p.enter(before);
        }
    }

    /// Move the highest waiting task that can go anywhere from `src` to a CPU of a lower level.
    #[cold]
    fn push_one(&self, p: &P, src: CpuId) -> Push {
        let held = self.lock(p, src);
        let waiting: Vec<_> =
            self.with_rq(p, &held, |rd| if rd.rt.wants_push() { rd.rt.waiting().collect() } else { Vec::new() });
        let found = waiting.into_iter().find_map(|(prio, task)| {
            let affinity = self.affinity(p, task);
            if !affinity.is_movable() {
                return None;
            }
            // Only the first that may move at all is tried, as upstream.
            Some((task, prio, self.find_lowest(p, prio, src, &affinity)))
        });
        self.unlock(p, held);
        let Some((task, prio, Some(dst))) = found else { return Push::Nowhere };
        if dst == src {
            return Push::Nowhere;
        }
        let (from, to) = self.double_lock(p, src, dst);
        let moved = self.with_rq(p, &to, |rd| rd.rt.level() < prio) && self.move_rt(p, &from, &to, task);
        self.unlock(p, to);
        self.unlock(p, from);
        if moved { Push::Moved } else { Push::Raced }
    }

    /// Move a task that waits on `from`, if it still does and has been switched away from.
    fn move_rt(&self, p: &P, from: &Held, to: &Held, task: TaskId) -> bool {
        let waits = |rd: &crate::rq::RqData<L>| rd.curr != Some(task) && rd.rt.waiting().any(|(_, t)| t == task);
        if !self.with_rq(p, from, |rd| waits(rd)) {
            return false;
        }
        // It is on `from`, whose lock is held, so its affinity cannot change.
        if !self.affinity(p, task).allows(to.0) {
            return false;
        }
        p.charge(Work::BalanceTask, 1);
        self.deactivate(p, from, task);
        p.store(&self.task(task).cpu, u64::from(to.0.0), Release);
        p.trace(SchedEvent::Migrate { task, from: from.0, to: to.0 });
        let now = self.activate(p, to, task, Enqueue::Migrate);
        self.check_preempt(p, to, task, now);
        self.publish(p, from);
        self.publish(p, to);
        true
    }

    // ---- pull ------------------------------------------------------------------------------------------------

    /// The real-time task of this CPU goes to sleep, or has become a lower one: take the highest ones that wait elsewhere, if they are
    /// higher than what is left here (`left`, 0: none). Returns with the lock held again.
    #[cold]
    pub(crate) fn pull_rt(&self, p: &P, held: Held, left: RtPrio) -> Held {
        let shared = self.rt_shared(p);
        let this = held.0;
        let mut own = left;
        let throttled = self.with_rq(p, &held, |rd| rd.rt.throttled());
        if !self.features.rt_push_pull || throttled {
            return held;
        }
        let before = p.enter(Account::Balance);
        let mut held = held;
        if p.load(&shared.nr_overloaded, Acquire) > 0 {
            let sources: Vec<CpuId> = shared.overloaded.iter().filter(|c| *c != this).collect();
            for src in sources {
                if unpack(p.load(&shared.cpus[src.index()], Acquire)).waiting <= own {
                    continue;
                }
                self.unlock(p, held);
                let (to, from) = self.double_lock(p, this, src);
                // One that is higher than what runs there is about to run there.
                let waiting: Vec<_> = self.with_rq(p, &from, |rd| {
                    let running = rd.rt.running().unwrap_or(0);
                    let fit = |prio: RtPrio| !rd.rt.throttled() && prio > own && prio <= running;
                    rd.rt.waiting().filter(|(prio, _)| fit(*prio)).collect()
                });
                let allowed = |task| self.affinity(p, task).allows(this);
                if let Some((prio, task)) = waiting.into_iter().find(|(_, t)| allowed(*t))
                    && self.move_rt(p, &from, &to, task)
                {
                    own = prio;
                }
                self.unlock(p, from);
                held = to;
            }
        }
        p.enter(before);
        held
    }

    // ---- equals ----------------------------------------------------------------------------------------------

    /// `task` was just queued where `curr` of the same priority runs. If it may run nowhere else and the other one may, that one makes
    /// room. Returns whether it does.
    #[cold]
    pub(crate) fn equal_makes_room(&self, p: &P, held: &Held, task: TaskId, curr: TaskId) -> bool {
        let cpu = held.0;
        let place = |task, prio| {
            let affinity = self.affinity(p, task);
            affinity.is_movable() && self.find_lowest(p, prio, cpu, &affinity).is_some()
        };
        let of = |task| self.with_task(p, held, task, |_, e| e.sched.rt());
        let (Some(prio), Some(other)) = (of(task), of(curr)) else { return false };
        if prio != other || !self.features.rt_push_pull || place(task, prio) || !place(curr, prio) {
            return false;
        }
        self.with_task(p, held, curr, |_, e| e.makes_room = true);
        true
    }
}
