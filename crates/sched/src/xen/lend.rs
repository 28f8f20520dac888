//! The lender: what [`Lend`] promises, on the generic layer's state; and which locks the calling pCPU holds.

use super::contract::{Lend, RqId, Timer, Tunables, UnitId, XenPolicy};
use super::event::{RunState, VcpuId, XenEvent};
use super::mask::CpuMask;
use super::mechanism::{Pool, Xen};
use super::perf::Perf;
use super::units::pause;
use crate::kernel::policy_error;
use contend_machine::Topology;
use contend_platform::Ordering::{AcqRel, Acquire, Relaxed};
use contend_platform::{Account, CpuId, SchedPlatform, Time, Work};
use std::cell::Cell;

/// Most schedule locks that a pCPU holds at a time: its own, and two that a balancer tried.
const HELD_MAX: usize = 4;

/// No schedule lock.
const NONE: u16 = u16::MAX;

/// What one call into a policy may touch.
pub struct Cx<'a, P: SchedPlatform, L: XenPolicy> {
    xen: &'a Xen<P, L>,
    p: &'a P,
    pool: &'a Pool<P, L>,
    /// Schedule locks that the pCPU holds, in any order; [`NONE`] elsewhere. Asked at each access to a partition.
    held: Cell<[u16; HELD_MAX]>,
    /// The pool's lock: 0: not held, 1: for reading, 2: for writing.
    global: Cell<u8>,
}

impl<'a, P: SchedPlatform, L: XenPolicy> Cx<'a, P, L> {
    pub(super) fn new(xen: &'a Xen<P, L>, p: &'a P, pool: usize) -> Self {
        Cx { xen, p, pool: &xen.pools[pool], held: Cell::new([NONE; HELD_MAX]), global: Cell::new(0) }
    }

    #[inline]
    fn holds(&self, rq: RqId) -> bool {
        // All at once, without branches.
        self.held.get().iter().fold(false, |found, r| found | (*r == rq.0))
    }
    /// In the list of what is held, `from` becomes `to`.
    fn note(&self, from: u16, to: u16) -> bool {
        let mut held = self.held.get();
        let slot = held.iter_mut().find(|r| **r == from);
        let found = slot.is_some();
        slot.into_iter().for_each(|r| *r = to);
        self.held.set(held);
        found
    }
    fn note_taken(&self, rq: RqId) {
        self.nothing_lent();
        assert!(self.note(NONE, rq.0), "no more than {HELD_MAX} schedule locks at a time");
        // SAFETY: the lock that guards the data has just been taken, and nothing is lent. This fetches its line for the critical
        // section.
        unsafe { self.p.write(&self.pool.rqs[rq.index()].pol, |_| ()) };
    }
    /// Is a closure of the policy's running that has a partition? It could ask the lender for the same one again, or let others
    /// run who ask for it: two exclusive borrows of one value.
    #[inline]
    fn nothing_lent(&self) {
        if self.xen.lent.get() {
            policy_error("the lender was called from inside a closure that it had lent a partition to".into());
        }
    }
    /// Run `f`, which has a partition.
    #[inline]
    fn lend<R>(&self, f: impl FnOnce() -> R) -> R {
        // Getting the partition's line may have let others run.
        self.nothing_lent();
        self.xen.lent.set(true);
        let r = f();
        self.xen.lent.set(false);
        r
    }
    #[track_caller]
    fn must_hold(&self, rq: RqId) {
        if !self.holds(rq) {
            policy_error(format!("schedule lock {} is not held on {:?}", rq.0, self.p.cpu()));
        }
    }

    /// Lend what this schedule lock, which must be held, guards: nothing else may be lent.
    #[inline]
    #[track_caller]
    fn may_lend(&self, rq: RqId) {
        self.must_hold(rq);
        self.nothing_lent();
    }

    /// Wait for a schedule lock.
    pub(super) fn take(&self, rq: RqId) {
        self.pool.rqs[rq.index()].lock.lock(self.p);
        self.note_taken(rq);
    }
    /// Release it.
    pub(super) fn release(&self, rq: RqId) {
        if !self.note(rq.0, NONE) {
            policy_error(format!("schedule lock {} released, but not held", rq.0));
        }
        self.pool.rqs[rq.index()].lock.unlock(self.p);
    }
    /// Wait for the schedule lock of a vCPU.
    pub(super) fn take_unit(&self, unit: UnitId) -> RqId {
        loop {
            let rq = self.rq_of(self.processor(unit));
            self.take(rq);
            if self.rq_of(self.processor(unit)) == rq {
                return rq;
            }
            self.release(rq);
        }
    }
    /// Wait for the schedule locks of two pCPUs, the lower number first.
    pub(super) fn take_two(&self, a: CpuId, b: CpuId) -> (RqId, Option<RqId>) {
        let (a, b) = (self.rq_of(a), self.rq_of(b));
        self.take(a.min(b));
        if a == b {
            return (a, None);
        }
        self.take(a.max(b));
        (a.min(b), Some(a.max(b)))
    }
    pub(super) fn release_two(&self, a: RqId, b: Option<RqId>) {
        b.into_iter().for_each(|b| self.release(b));
        self.release(a);
    }
    fn nothing_held(&self, what: &str) {
        if self.held.get() != [NONE; HELD_MAX] {
            policy_error(format!("{what} with a schedule lock held: a deadlock in waiting"));
        }
    }
}

impl<P: SchedPlatform, L: XenPolicy> Lend<L> for Cx<'_, P, L> {
    #[inline]
    fn now(&self) -> Time {
        self.p.now()
    }
    #[inline]
    fn cpu(&self) -> CpuId {
        self.p.cpu()
    }
    fn topo(&self) -> &Topology {
        &self.xen.topo
    }
    #[inline]
    fn cpus(&self) -> &CpuMask {
        &self.pool.cpus
    }
    #[inline]
    fn tunables(&self) -> Tunables {
        self.pool.tunables.get()
    }
    #[inline]
    fn charge(&self, work: Work, n: u64) {
        self.p.charge(work, n);
    }
    fn enter(&self, account: Account) -> Account {
        self.p.enter(account)
    }

    #[inline]
    fn info(&self, unit: UnitId) -> VcpuId {
        self.xen.unit(unit).info
    }
    #[inline]
    fn processor(&self, unit: UnitId) -> CpuId {
        self.xen.unit(unit).processor.get()
    }
    fn set_processor(&self, unit: UnitId, to: CpuId) {
        self.must_hold(self.rq_of(self.processor(unit)));
        if !self.pool.cpus.contains(to) {
            policy_error(format!("a vCPU was assigned to {to:?}, which is not in its cpupool"));
        }
        self.must_hold(self.rq_of(to));
        self.xen.unit(unit).processor.set(to);
    }
    #[inline]
    fn runnable(&self, unit: UnitId) -> bool {
        self.p.load(&self.xen.unit(unit).flags, Relaxed) == 0
    }
    #[inline]
    fn running(&self, unit: UnitId) -> bool {
        self.p.load(&self.xen.unit(unit).running, Relaxed) != 0
    }
    #[inline]
    fn hard(&self, unit: UnitId) -> CpuMask {
        self.xen.unit(unit).affinity.get().hard
    }
    #[inline]
    fn soft(&self, unit: UnitId) -> CpuMask {
        self.xen.unit(unit).affinity.get().soft
    }
    #[inline]
    fn soft_useful(&self, unit: UnitId) -> bool {
        self.xen.unit(unit).soft_useful.get()
    }
    #[inline]
    fn curr(&self, cpu: CpuId) -> Option<UnitId> {
        self.must_hold(self.rq_of(cpu));
        self.xen.pcpus[cpu.index()].curr.get()
    }

    #[inline]
    fn rq_of(&self, cpu: CpuId) -> RqId {
        self.xen.pcpus[cpu.index()].rq
    }
    fn nr_rqs(&self) -> usize {
        self.pool.rqs.len()
    }
    fn rq_cpus(&self, rq: RqId) -> &CpuMask {
        &self.pool.rqs[rq.index()].cpus
    }
    #[inline]
    fn with_rq<R>(&self, rq: RqId, f: impl FnOnce(&mut L::Rq) -> R) -> R {
        self.may_lend(rq);
        // SAFETY: the lock that guards the cell is held, and `note_taken` fetched it; `may_lend` and `lend` see to it that nobody
        // reaches a partition while `f` runs.
        unsafe { self.p.rewrite(&self.pool.rqs[rq.index()].pol, |rq| self.lend(|| f(rq))) }
    }
    #[inline]
    fn with_unit<R>(&self, unit: UnitId, f: impl FnOnce(&mut L::Unit) -> R) -> R {
        self.may_lend(self.rq_of(self.processor(unit)));
        // SAFETY: the schedule lock of the vCPU's pCPU guards it and is held; `f` as in `with_rq`.
        unsafe { self.p.write(&self.xen.unit(unit).pol, |unit| self.lend(|| f(unit))) }
    }
    #[inline]
    fn with_both<R>(&self, rq: RqId, unit: UnitId, f: impl FnOnce(&mut L::Rq, &mut L::Unit) -> R) -> R {
        self.may_lend(rq);
        self.must_hold(self.rq_of(self.processor(unit)));
        let unit = &self.xen.unit(unit).pol;
        // SAFETY: as in `with_rq` and `with_unit`; the cells differ.
        unsafe { self.p.write2(&self.pool.rqs[rq.index()].pol, unit, |rq, unit| self.lend(|| f(rq, unit))) }
    }
    fn try_lock(&self, rq: RqId) -> bool {
        if self.holds(rq) {
            policy_error(format!("schedule lock {} tried by its holder", rq.0));
        }
        let got = self.pool.rqs[rq.index()].lock.try_lock(self.p);
        // Counted without letting others run in between: they try locks, too.
        let [tried, failed] = self.xen.trylocks.get();
        self.xen.trylocks.set([tried + 1, failed + u64::from(!got)]);
        if got {
            self.note_taken(rq);
        }
        got
    }
    fn lock(&self, rq: RqId) {
        self.nothing_held("waiting for a schedule lock");
        self.take(rq);
    }
    fn lock_unit(&self, unit: UnitId) -> RqId {
        self.nothing_held("waiting for a vCPU's schedule lock");
        self.take_unit(unit)
    }
    fn unlock(&self, rq: RqId) {
        self.release(rq);
    }
    fn lock_global(&self) {
        self.nothing_held("waiting for the pool's lock");
        self.pool.lock.lock(self.p);
        self.global.set(2);
    }
    fn unlock_global(&self) {
        assert_eq!(self.global.get(), 2, "the pool's lock is held for writing");
        self.global.set(0);
        self.pool.lock.unlock(self.p);
    }
    fn try_read_global(&self) -> bool {
        let got = self.pool.lock.try_read(self.p);
        if got {
            self.global.set(1);
        }
        got
    }
    fn unlock_read_global(&self) {
        assert_eq!(self.global.get(), 1, "the pool's lock is held for reading");
        self.global.set(0);
        self.pool.lock.unlock_read(self.p);
    }
    fn with_global<R>(&self, f: impl FnOnce(&mut L::Global) -> R) -> R {
        if self.global.get() == 0 {
            policy_error("the pool's state was asked for without its lock".into());
        }
        self.nothing_lent();
        // SAFETY: the pool's lock is held: for writing by this pCPU alone; for reading by those who change nothing, and one OS
        // thread runs the simulation. `f` as in `with_rq`.
        unsafe {
            if self.global.get() == 1 {
                self.p.read(&self.pool.global, |_| ());
                self.p.rewrite(&self.pool.global, |g| self.lend(|| f(g)))
            } else {
                self.p.write(&self.pool.global, |g| self.lend(|| f(g)))
            }
        }
    }
    fn with_domain<R>(&self, dom: u16, f: impl FnOnce(&mut L::Domain) -> R) -> R {
        self.nothing_lent();
        let domain = self.xen.domains.iter().find(|d| d.dom == dom).expect("the domain exists");
        domain.lock.lock(self.p);
        // SAFETY: the domain's lock has just been taken; `f` as in `with_rq`.
        let r = unsafe { self.p.write(&domain.pol, |d| self.lend(|| f(d))) };
        domain.lock.unlock(self.p);
        r
    }

    fn mask(&self, mask: usize) -> CpuMask {
        CpuMask::from_words(self.pool.masks[mask].iter().map(|w| self.p.load(w, Acquire)))
    }
    fn mask_put(&self, mask: usize, cpu: CpuId, set: bool) {
        let word = &self.pool.masks[mask][cpu.index() / 64];
        let bit = 1 << (cpu.0 % 64);
        if set {
            self.p.fetch_or(word, bit, AcqRel);
        } else {
            self.p.fetch_and(word, !bit, AcqRel);
        }
    }

    fn tickle(&self, cpu: CpuId) {
        self.xen.raise(self.p, cpu);
    }
    fn set_migrating(&self, unit: UnitId) {
        self.must_hold(self.rq_of(self.processor(unit)));
        self.p.fetch_or(&self.xen.unit(unit).flags, pause::MIGRATING, AcqRel);
    }
    fn set_parked(&self, unit: UnitId, parked: bool) {
        self.must_hold(self.rq_of(self.processor(unit)));
        let flags = &self.xen.unit(unit).flags;
        if parked {
            self.p.fetch_or(flags, pause::PARKED, AcqRel);
        } else {
            self.p.fetch_and(flags, !pause::PARKED, AcqRel);
        }
    }
    fn stops_waiting(&self, unit: UnitId) {
        self.must_hold(self.rq_of(self.processor(unit)));
        if self.xen.unit(unit).book.borrow().state == RunState::Runnable {
            self.xen.set_runstate(self.p, unit, RunState::Offline);
        }
    }
    fn park(&self, unit: UnitId) {
        self.nothing_held("parking a vCPU");
        self.xen.pause(self.p, unit, pause::PARKED);
    }
    fn unpark(&self, unit: UnitId) {
        self.nothing_held("unparking a vCPU");
        self.xen.unpause(self.p, unit, pause::PARKED);
    }
    fn set_timer(&self, timer: Timer, at: Time) {
        let mut timers = self.xen.pcpus[self.p.cpu().index()].timers.borrow_mut();
        match timers.iter_mut().find(|(t, _)| *t == timer) {
            Some((_, old)) => *old = at,
            None => timers.push((timer, at)),
        }
        drop(timers);
        self.xen.program_timer(self.p);
    }
    fn stop_timer(&self, timer: Timer) {
        self.xen.pcpus[self.p.cpu().index()].timers.borrow_mut().retain(|(t, _)| *t != timer);
    }

    fn trace(&self, event: impl FnOnce() -> XenEvent) {
        self.xen.trace(self.p, event);
    }
    fn count(&self, what: Perf) {
        self.xen.count(what);
    }
}
