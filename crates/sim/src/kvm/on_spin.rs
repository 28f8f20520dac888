//! `kvm_vcpu_on_spin`: what a vCPU that has spun for long does for the others of its guest (mechanisms D.2, D.3).

use super::exits::{Exiting, VcpuWait};
use super::{Hypervisor, Kvm};
use crate::guest::{IPIS, VcpuState, Vm};
use crate::world::Sim;
use contend_platform::Ordering::{AcqRel, Relaxed};
use contend_platform::{Account, CpuId, Platform, SchedPlatform, Work};
use contend_sched::kernel::{Kernel, SyscallEnd};
use contend_sched::policy::Policy;
use contend_sched::yield_to::Yielded;

/// Where a search for a candidate stands.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Search {
    /// last_boosted, read once.
    from: u16,
    /// Candidates looked at: those after `from` first, in a circle.
    looked: u16,
    /// Failures for want of a second task that are left; 0: they do not count.
    tries: u16,
}

impl Hypervisor {
    pub(super) fn begin_search(&self, p: &Sim, vm: &Vm, vcpu: &VcpuState) -> Search {
        p.enter(Account::Ple);
        self.count(Kvm::OnSpin, 1);
        p.charge(Work::Ns, self.hosting.costs.pause_handler);
        if self.on_spin.eligible {
            p.store(&vcpu.in_spin_loop, 1, Relaxed);
        }
        let from =
            if self.features.on_spin_own_start { vcpu.number.0 } else { p.load(&vm.last_boosted, Relaxed) as u16 };
        Search { from, looked: 0, tries: self.on_spin.tries as u16 }
    }

    fn end_search(&self, p: &Sim, vcpu: &VcpuState) {
        if self.on_spin.eligible {
            p.store(&vcpu.in_spin_loop, 0, Relaxed);
            p.store(&vcpu.dy_eligible, 0, Relaxed);
        }
    }

    pub(super) fn note_boosted(&self, p: &Sim, vm: &Vm, vcpu: &VcpuState, to: CpuId) {
        p.enter(Account::Ple);
        p.store(&vm.last_boosted, to.0.into(), Relaxed);
        self.end_search(p, vcpu);
    }

    /// Is the candidate worth a yield_to?
    fn is_candidate(&self, p: &Sim, v: &VcpuState) -> bool {
        let f = &self.on_spin;
        p.charge(Work::Ns, self.hosting.costs.candidate);
        self.count(Kvm::Candidates, 1);
        if f.ready {
            if p.load(&v.ready, Relaxed) == 0 {
                self.count(Kvm::SkippedFiltered, 1);
                return false;
            }
        } else if f.preempted && p.load(&v.preempted, Relaxed) == 0 {
            self.count(Kvm::SkippedFiltered, 1);
            return false;
        }
        if p.load(&v.halted, Relaxed) != 0 {
            let waits = f.halted_with_interrupt && p.load(&v.pending, Relaxed) & IPIS != 0;
            if !waits {
                self.count(Kvm::SkippedHalted, 1);
                return false;
            }
        }
        if f.kernel_mode && p.load(&v.preempted, Relaxed) == 1 && p.load(&v.pending, Relaxed) & IPIS == 0 {
            self.count(Kvm::SkippedFiltered, 1);
            return false;
        }
        if f.skip_in_guest && p.load(v.mode(), Relaxed) != 0 {
            self.count(Kvm::SkippedInGuest, 1);
            return false;
        }
        if f.skip_cpu_not_in_guest && p.load(&self.hosting.modes[v.pcpu.get().index()], Relaxed) == 0 {
            self.count(Kvm::SkippedFiltered, 1);
            return false;
        }
        if f.eligible && p.load(&v.in_spin_loop, Relaxed) != 0 {
            let eligible = p.load(&v.dy_eligible, Relaxed);
            p.store(&v.dy_eligible, eligible ^ 1, Relaxed);
            if eligible == 0 {
                self.count(Kvm::SkippedFiltered, 1);
                return false;
            }
        }
        true
    }

    /// yield_to, counted.
    fn try_yield<L: Policy>(&self, kernel: &Kernel<Sim, L>, p: &Sim, me: &VcpuState, to: &VcpuState) -> Yielded {
        p.charge(Work::Ns, self.hosting.costs.yield_to);
        self.count(Kvm::YieldTo, 1);
        let end = kernel.yield_to(p, me.thread_task(), to.thread_task(), self.yield_to);
        if let Some(hook) = p.hook() {
            hook.yield_to(p.now(), me.name(), to.number, end);
        }
        let unlocked = end == Yielded::Running && self.yield_to.unlocked_check;
        self.count(Kvm::YieldToRunningUnlocked, u64::from(unlocked));
        self.count(
            match end {
                Yielded::Yes => Kvm::YieldToSucceeded,
                Yielded::Running => Kvm::YieldToRunning,
                Yielded::Alone => Kvm::YieldToAlone,
                Yielded::Busy => Kvm::YieldToBusy,
                _ => Kvm::YieldToNotQueued,
            },
            1,
        );
        end
    }
}

impl<L: Policy> Exiting<'_, L> {
    /// Go on with a search, until a success, the end, or an interrupt of the CPU.
    pub(super) fn search(&self, mut at: Search) -> SyscallEnd {
        let &Self { kernel, p, kvm, vm, vcpu: me, .. } = self;
        p.enter(Account::Ple);
        let n = vm.vcpus.len();
        while usize::from(at.looked) < n && n > 1 {
            // The handler runs with interrupts on.
            if at.looked > 0 && p.interrupt_pending() {
                self.later(VcpuWait::Search(at));
                return SyscallEnd::Continue;
            }
            at.looked += 1;
            let v = &vm.vcpus[(usize::from(at.from) + usize::from(at.looked)) % n];
            if v.number == me.number || !v.started() {
                continue;
            }
            // Whoever looks at a task holds a reference to it, a count on the line of its state.
            p.fetch_add(v.usage(), 1, AcqRel);
            let candidate = kvm.is_candidate(p, v);
            let end = candidate.then(|| kvm.try_yield(kernel, p, me, v));
            p.fetch_add(v.usage(), u64::MAX, AcqRel);
            match end {
                Some(Yielded::Yes) => {
                    // last_boosted is written when this thread runs again: schedule() is inside yield_to.
                    self.later(VcpuWait::Boosted(v.number));
                    return SyscallEnd::Yield;
                }
                Some(Yielded::Alone) if kvm.on_spin.alone_is_success => {
                    kvm.note_boosted(p, vm, me, v.number);
                    return self.done();
                }
                Some(Yielded::Alone) if at.tries > 0 => {
                    at.tries -= 1;
                    if at.tries == 0 {
                        break;
                    }
                }
                _ => {}
            }
        }
        kvm.end_search(p, me);
        self.done()
    }

    /// The pv sched yield, and the yield of a pv kick: to a vCPU that is ready, if this CPU has somebody else to run.
    pub(super) fn yield_by_hypercall(&self, to: &VcpuState) -> SyscallEnd {
        let &Self { kernel, p, kvm, vcpu: me, .. } = self;
        kvm.count(Kvm::DirectedYieldAttempted, 1);
        let alone = contend_sched::rq::peek_nr_running(p.load(&kernel.rq(p.cpu()).peek, Relaxed)) <= 1;
        if alone || !to.started() || (kvm.on_spin.ready && p.load(&to.ready, Relaxed) == 0) {
            return SyscallEnd::Continue;
        }
        if kvm.try_yield(kernel, p, me, to) == Yielded::Yes {
            kvm.count(Kvm::DirectedYieldSuccessful, 1);
            return SyscallEnd::Yield;
        }
        SyscallEnd::Continue
    }
}
