//! What CPUs wait for of one another without sleeping: rendezvous, and flushes of what others have translated.
//!
//! **Rendezvous** (as in `stop_machine` and the bring-up of a CPU): each party arrives with interrupts off and polls one
//! word until all have. The word holds the generation above and the arrivals below: the last to come begins a new generation.
//!
//! **Shootdown** (as in munmap of a process with several threads): the sender asks each other CPU that runs a task of the
//! address space, by an interrupt, to flush, and polls until all have done so. It serves others' requests meanwhile, as a kernel
//! does that waits with interrupts on: two that ask one another at a time must not wait for ever. Whoever spins for a lock with
//! interrupts off answers late, so nobody may shoot down with a lock held that others spin for.

use super::{Os, Pending};
use crate::program::{ObjId, ObjectKind};
use crate::world::World;
use contend_platform::Ordering::{AcqRel, Acquire, Release};
use contend_platform::{Account, CpuId, Ipi, Nanos, TaskId, Work};
use contend_sched::kernel::{Kernel, SyscallEnd};
use contend_sched::policy::Policy;
use std::cell::RefCell;

/// A flush on the CPU that is asked, in ns: a few pages invalidated, or all of the address space's. Estimate, 100 to 500.
const FLUSH_NS: Nanos = 200;

/// Requests to a CPU, and the answers to its own.
pub(super) struct Flushes<W: World> {
    /// 1: somebody asked.
    asked: W::Word,
    /// Who.
    by: RefCell<Vec<CpuId>>,
    /// Answers that this CPU waits for.
    missing: W::Word,
}

impl<W: World> Flushes<W> {
    /// One for each CPU, if any of the objects needs them.
    pub(super) fn of(p: &W, needed: bool) -> Vec<Self> {
        let one = |_| {
            let (asked, missing) = (p.word(p.line(), 0), p.word(p.line(), 0));
            Flushes { asked, by: RefCell::default(), missing }
        };
        if needed { (0..p.nr_cpus()).map(one).collect() } else { Vec::new() }
    }
}

impl<W: World> Os<W> {
    /// Arrive, and spin until all have.
    pub(super) fn rendezvous(&self, p: &W, task: TaskId, o: ObjId) -> SyscallEnd {
        let ob = self.object(o);
        let ObjectKind::Rendezvous { parties } = ob.kind else { panic!("{} is not a rendezvous", ob.name) };
        let before = p.fetch_add(&ob.word, 1, AcqRel);
        let (generation, arrived) = (before >> 32, before as u32 + 1);
        if arrived >= parties {
            p.store(&ob.word, (generation + 1) << 32, Release);
            return SyscallEnd::Continue;
        }
        // Not that the call goes on later: it is for the report of a run that ends here.
        self.with(task, |t| t.pending = Pending::Rendezvous(o));
        let account = p.enter(Account::SpinLock);
        p.wait_until([&ob.word], None, |[v]| v >> 32 != generation);
        p.enter(account);
        self.done(task)
    }

    /// The task's address space from here on.
    pub(super) fn join(&self, task: TaskId, o: ObjId) -> SyscallEnd {
        assert_eq!(self.object(o).kind, ObjectKind::AddressSpace, "{} is not an address space", self.object(o).name);
        self.with(task, |t| t.space = Some(o));
        SyscallEnd::Continue
    }

    /// Have all CPUs that run tasks of the caller's address space flush, and wait until they have.
    pub(super) fn shootdown<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, task: TaskId) -> SyscallEnd {
        let space = self.with(task, |t| t.space).expect("a task that shoots down has an address space");
        p.charge(Work::Ns, FLUSH_NS);
        let me = p.cpu();
        // The mask of CPUs lies on the address space's line.
        p.load(&self.object(space).word, Acquire);
        let runs = |cpu: &CpuId| {
            let curr = W::observe(&kernel.rq(*cpu).data, |rd| rd.curr);
            *cpu != me && curr.is_some_and(|t| self.with(t, |t| t.space) == Some(space))
        };
        let others: Vec<CpuId> = (0..p.nr_cpus()).map(|i| CpuId(i as u16)).filter(runs).collect();
        let mine = &self.flushes[me.index()];
        p.store(&mine.missing, others.len() as u64, Release);
        for cpu in others {
            let theirs = &self.flushes[cpu.index()];
            theirs.by.borrow_mut().push(me);
            p.fetch_or(&theirs.asked, 1, AcqRel);
            p.send_ipi(cpu, Ipi::CallFunction);
        }
        let account = p.enter(Account::SpinLock);
        loop {
            let seen = p.wait_until([&mine.missing, &mine.asked], None, |[missing, asked]| missing == 0 || asked != 0);
            let [missing, asked] = seen.expect("a wait without a budget ends with its condition");
            if asked != 0 {
                self.flush(p);
            }
            if missing == 0 {
                break;
            }
        }
        p.enter(account);
        SyscallEnd::Continue
    }

    /// Do what others asked of this CPU.
    pub(super) fn flush(&self, p: &W) {
        let Some(mine) = self.flushes.get(p.cpu().index()) else { return };
        p.swap(&mine.asked, 0, AcqRel);
        for sender in mine.by.take() {
            p.charge(Work::Ns, FLUSH_NS);
            p.fetch_add(&self.flushes[sender.index()].missing, u64::MAX, AcqRel);
        }
    }
}
