//! What happens to vCPUs: they wake, block, yield, are paused, and move.

use super::contract::{UnitId, XenPolicy};
use super::event::{RunState, XenEvent};
use super::mechanism::Xen;
use super::units::{VcpuAffinity, pause};
use contend_platform::Ordering::{AcqRel, Acquire, Relaxed};
use contend_platform::{Account, CpuId, SchedPlatform};

impl<P: SchedPlatform, L: XenPolicy> Xen<P, L> {
    /// Start a vCPU that is down.
    pub fn start_unit(&self, p: &P, unit: UnitId) {
        let u = self.unit(unit);
        let cx = self.cx_of_unit(p, unit);
        let policy = &self.pools[u.pool].policy;
        let rq = cx.take_unit(unit);
        let to = policy.pick_cpu(&cx, unit);
        self.check_pick(unit, to);
        cx.release(rq);
        // Nobody else knows the vCPU yet.
        u.processor.set(to);
        let rq = cx.take_unit(unit);
        self.set_runstate(p, unit, RunState::Blocked);
        policy.insert(&cx, unit);
        cx.release(rq);
        p.fetch_and(&u.flags, !pause::DOWN, AcqRel);
        self.wake(p, unit);
    }

    /// vcpu_wake: whatever held it up may be gone.
    pub fn wake(&self, p: &P, unit: UnitId) {
        let before = p.enter(Account::Wakeup);
        let u = self.unit(unit);
        let cx = self.cx_of_unit(p, unit);
        let rq = cx.take_unit(unit);
        let flags = p.load(&u.flags, Relaxed);
        if flags == 0 {
            if let Some(observer) = self.observer.as_ref().filter(|_| self.tracing) {
                observer.wakes(p.now(), p.cpu(), unit, u.processor.get());
            }
            self.trace(p, || XenEvent::Wake { vcpu: u.info });
            if u.book.borrow().state != RunState::Running {
                self.set_runstate(p, unit, RunState::Runnable);
            }
            self.pools[u.pool].policy.wake(&cx, unit);
        } else if flags & pause::BLOCKED == 0 && u.book.borrow().state == RunState::Blocked {
            self.set_runstate(p, unit, RunState::Offline);
        }
        cx.release(rq);
        p.enter(before);
    }

    /// vcpu_sleep: it is not runnable any more.
    pub(super) fn sleep(&self, p: &P, unit: UnitId) {
        let u = self.unit(unit);
        let cx = self.cx_of_unit(p, unit);
        let rq = cx.take_unit(unit);
        if p.load(&u.flags, Acquire) != 0 {
            if u.book.borrow().state == RunState::Runnable {
                self.set_runstate(p, unit, RunState::Offline);
            }
            self.trace(p, || XenEvent::Sleep { vcpu: u.info });
            self.pools[u.pool].policy.sleep(&cx, unit);
        }
        cx.release(rq);
    }

    /// vcpu_block: the vCPU, which runs here, waits for an event, unless `pending` says that one is there already.
    pub fn block(&self, p: &P, unit: UnitId, pending: impl FnOnce() -> bool) -> bool {
        let u = self.unit(unit);
        p.fetch_or(&u.flags, pause::BLOCKED, AcqRel);
        if pending() {
            p.fetch_and(&u.flags, !pause::BLOCKED, AcqRel);
            return false;
        }
        self.trace(p, || XenEvent::Block { vcpu: u.info });
        self.raise(p, p.cpu());
        true
    }

    /// vcpu_unblock: an event has come. True if it was blocked.
    pub fn unblock(&self, p: &P, unit: UnitId) -> bool {
        let was = p.fetch_and(&self.unit(unit).flags, !pause::BLOCKED, AcqRel) & pause::BLOCKED != 0;
        if was {
            self.wake(p, unit);
        }
        was
    }

    /// vcpu_yield: the vCPU, which runs here, lets others run.
    pub fn yield_unit(&self, p: &P, unit: UnitId) {
        let cx = self.cx_of_unit(p, unit);
        let rq = cx.take_unit(unit);
        self.pools[self.unit(unit).pool].policy.yield_unit(&cx, unit);
        cx.release(rq);
        self.trace(p, || XenEvent::Yield { vcpu: self.unit(unit).info });
        self.raise(p, p.cpu());
    }

    /// The vCPU, which runs here, has ended.
    pub fn stop_unit(&self, p: &P, unit: UnitId) {
        p.fetch_or(&self.unit(unit).flags, pause::DOWN, AcqRel);
        self.raise(p, p.cpu());
    }

    /// Set one of the [`pause`] flags of any vCPU.
    pub fn pause(&self, p: &P, unit: UnitId, flag: u64) {
        p.fetch_or(&self.unit(unit).flags, flag, AcqRel);
        self.sleep(p, unit);
    }

    /// Clear one.
    pub fn unpause(&self, p: &P, unit: UnitId, flag: u64) {
        if p.fetch_and(&self.unit(unit).flags, !flag, AcqRel) & flag != 0 {
            self.wake(p, unit);
        }
    }

    /// vcpu_set_affinity.
    pub fn set_affinity(&self, p: &P, unit: UnitId, affinity: VcpuAffinity) {
        let u = self.unit(unit);
        let cx = self.cx_of_unit(p, unit);
        let rq = cx.take_unit(unit);
        u.set_affinity(affinity, &self.pools[u.pool].cpus);
        self.pools[u.pool].policy.affinity_changed(&cx, unit);
        let moves = !u.affinity.get().hard.contains(u.processor.get());
        if moves {
            p.fetch_or(&u.flags, pause::MIGRATING, AcqRel);
        }
        cx.release(rq);
        if moves {
            self.sleep(p, unit);
            self.migrate_now(p, unit);
        }
    }

    /// vcpu_migrate: a vCPU whose MIGRATING flag is set goes to the pCPU that the policy picks; nothing happens while it runs
    /// ([`Xen::schedule`] comes back here when it does not any more).
    pub(super) fn migrate_now(&self, p: &P, unit: UnitId) {
        let before = p.enter(Account::Balance);
        let u = self.unit(unit);
        let cx = self.cx_of_unit(p, unit);
        let pool = &self.pools[u.pool];
        let mut picked: Option<CpuId> = None;
        loop {
            // The locks of where it is and, once that is known, of where it goes; then whether both still hold.
            let from = u.processor.get();
            let to = picked.unwrap_or(from);
            let (a, b) = cx.take_two(from, to);
            let settled = u.processor.get() == from;
            if settled {
                if p.load(&u.running, Acquire) != 0 || p.load(&u.flags, Acquire) & pause::MIGRATING == 0 {
                    cx.release_two(a, b);
                    p.enter(before);
                    return;
                }
                if picked.is_some() && u.affinity.get().hard.contains(to) {
                    p.fetch_and(&u.flags, !pause::MIGRATING, AcqRel);
                    if to != from {
                        pool.policy.migrate(&cx, unit, to);
                    }
                    cx.release_two(a, b);
                    break;
                }
                if picked.take().is_some() {
                    // Its affinity has changed meanwhile. `pick_cpu` is called with one lock.
                    cx.release_two(a, b);
                    continue;
                }
                let to = pool.policy.pick_cpu(&cx, unit);
                self.check_pick(unit, to);
                picked = Some(to);
                let pcpus = (&self.pcpus[from.index()], &self.pcpus[to.index()]);
                if pcpus.0.rq == pcpus.1.rq {
                    // The lock that is held serves both.
                    p.fetch_and(&u.flags, !pause::MIGRATING, AcqRel);
                    if to != from {
                        pool.policy.migrate(&cx, unit, to);
                    }
                    cx.release_two(a, b);
                    break;
                }
            }
            cx.release_two(a, b);
        }
        p.enter(before);
        self.wake(p, unit);
    }

    fn check_pick(&self, unit: UnitId, to: CpuId) {
        let u = self.unit(unit);
        if !u.affinity.get().hard.contains(to) {
            crate::kernel::policy_error(format!(
                "pick_cpu sent d{}v{} to {to:?}; its hard affinity is {:?}",
                u.info.dom,
                u.info.vcpu,
                u.affinity.get().hard
            ));
        }
    }

    /// Does the vCPU run, or is it being switched away from?
    pub fn is_running(&self, p: &P, unit: UnitId) -> bool {
        p.load(&self.unit(unit).running, Relaxed) != 0
    }

    fn cx_of_unit<'a>(&'a self, p: &'a P, unit: UnitId) -> super::lend::Cx<'a, P, L> {
        super::lend::Cx::new(self, p, self.unit(unit).pool)
    }
}
