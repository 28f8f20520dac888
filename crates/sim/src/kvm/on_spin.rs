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

    /// Is the candidate worth a look at its task?
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

    /// Yield to a candidate, unless it is not worth that.
    fn ask<L: Policy>(&self, kernel: &Kernel<Sim, L>, p: &Sim, me: &VcpuState, v: &VcpuState) -> Option<Yielded> {
        if self.is_candidate(p, v) { self.yield_to_task(kernel, p, me, v) } else { None }
    }

    /// `kvm_vcpu_yield_to`: whoever looks at a task holds a reference to it meanwhile, a count on the line of its state.
    /// `None`: the task is in guest mode.
    fn yield_to_task<L: Policy>(
        &self,
        kernel: &Kernel<Sim, L>,
        p: &Sim,
        me: &VcpuState,
        to: &VcpuState,
    ) -> Option<Yielded> {
        p.fetch_add(to.usage(), 1, AcqRel);
        let in_guest = self.on_spin.skip_in_guest && p.load(to.mode(), Relaxed) != 0;
        self.count(Kvm::SkippedInGuest, u64::from(in_guest));
        let end = (!in_guest).then(|| self.try_yield(kernel, p, me, to));
        p.fetch_add(to.usage(), u64::MAX, AcqRel);
        end
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
            match kvm.ask(kernel, p, me, v) {
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
        if kvm.yield_to_task(kernel, p, me, to) == Some(Yielded::Yes) {
            kvm.count(Kvm::DirectedYieldSuccessful, 1);
            return SyscallEnd::Yield;
        }
        SyscallEnd::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, Stop};
    use crate::kvm::{DirectedYield, KvmFeatures};
    use contend_machine::Machine;
    use contend_sched::class::Sched;
    use contend_sched::cpuset::Affinity;
    use contend_sched::features::Features;
    use contend_sched::policy::fifo::Fifo;
    use contend_sched::policy::groups::GroupId;
    use std::cell::Cell;
    use std::rc::Rc;

    /// What a version did with a candidate.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Did {
        /// Its task was not looked at.
        Nothing,
        /// Looked at, and found to be in guest mode.
        Looked,
        /// Yielded to, or tried to.
        Asked,
    }
    use Did::{Asked, Looked, Nothing};

    /// Ask a vCPU in a certain state `times` times, with a task that nobody has looked at yet; what came of the last time.
    fn ask(version: DirectedYield, times: usize, state: impl Fn(&Sim, &VcpuState) + Copy + 'static) -> Did {
        let machine = Machine::load("2c").expect("the machine exists");
        let topo = machine.topology.clone();
        let engine = Engine::new(machine);
        let p = Sim::new(Rc::clone(&engine), None);
        let features = Features::default();
        let kernel = Rc::new(Kernel::new(
            &p,
            topo,
            contend_sched::capacity::Told::Nothing,
            features.clone(),
            Fifo::new(&features),
            4_000_000,
        ));
        let did = Rc::new(Cell::new(None));
        let mut stacks = engine
            .boot(|_| {
                let (kernel, p, did) = (Rc::clone(&kernel), p.clone(), Rc::clone(&did));
                move |cpu: CpuId| {
                    if cpu == CpuId(0) {
                        did.set(Some(ask_here(&kernel, &p, version, times, state)));
                        p.engine().stop();
                    }
                }
            })
            .expect("stacks");
        while engine.run(&mut stacks, 1_000_000_000, 1_000) == Stop::Budget {}
        did.get().expect("CPU 0 ran to its end")
    }

    fn ask_here<L: Policy>(
        kernel: &Kernel<Sim, L>,
        p: &Sim,
        version: DirectedYield,
        times: usize,
        state: impl Fn(&Sim, &VcpuState),
    ) -> Did {
        let kvm = Hypervisor::new(p, KvmFeatures { directed_yield: version, ..KvmFeatures::default() }, 1);
        let [me, to] = [0, 1].map(|i| {
            let vcpu = VcpuState::new(p, 0, CpuId(i), Rc::clone(kvm.hosting()));
            vcpu.attach(p, kernel.create(p, Sched::default(), Affinity::ALL, GroupId::ROOT), p.line());
            vcpu
        });
        state(p, &to);
        let mut asked = None;
        (0..times).for_each(|_| asked = kvm.ask(kernel, p, &me, &to));
        let load = |w| {
            let since = p.now();
            p.load(w, Relaxed);
            p.now() - since
        };
        // Whoever has touched a line has it.
        let touched = load(to.usage()) < load(&p.word(p.line(), 0));
        assert_eq!(to.usage().observe(), 0, "the reference is given back");
        assert!(touched || asked.is_none(), "nobody yields to a task without a reference to it");
        match asked {
            Some(_) => Asked,
            None if touched => Looked,
            None => Nothing,
        }
    }

    #[test]
    fn a_filter_that_needs_no_task_takes_no_reference_to_it() {
        for &version in DirectedYield::ALL {
            let preempted = |p: &Sim, v: &VcpuState| {
                p.store(&v.preempted, 2, Relaxed);
                p.store(&v.ready, 1, Relaxed);
            };
            let no_guest_there = version == DirectedYield::SkipNotInGuest;
            let filtered = |by: bool| if by || no_guest_there { Nothing } else { Asked };

            assert_eq!(ask(version, 1, preempted), filtered(false), "{version:?}");
            let halted = move |p: &Sim, v: &VcpuState| {
                preempted(p, v);
                p.store(&v.halted, 1, Relaxed);
            };
            assert_eq!(ask(version, 1, halted), Nothing, "{version:?}: halted");

            use DirectedYield::{Today, V3_7, V3_9, V3_10, V5_7};
            let on_cpu = ask(version, 1, |_, _| ());
            assert_eq!(on_cpu, filtered(matches!(version, V3_10 | V5_7 | Today)), "{version:?}: not preempted");
            let in_user_mode = move |p: &Sim, v: &VcpuState| {
                preempted(p, v);
                p.store(&v.preempted, 1, Relaxed);
            };
            let user = ask(version, 1, in_user_mode);
            assert_eq!(user, filtered(matches!(version, V5_7 | Today)), "{version:?}: preempted in user mode");
            let spins = move |p: &Sim, v: &VcpuState| {
                preempted(p, v);
                p.store(&v.in_spin_loop, 1, Relaxed);
            };
            let eligible = matches!(version, V3_7 | V3_9 | V3_10 | V5_7 | Today);
            assert_eq!(ask(version, 1, spins), filtered(eligible), "{version:?}: in a loop itself");
            assert_eq!(ask(version, 2, spins), filtered(false), "{version:?}: and asked for the second time");
        }
    }

    #[test]
    fn the_flag_of_guest_mode_is_the_task_s() {
        let in_guest = |p: &Sim, v: &VcpuState| {
            p.store(&v.preempted, 2, Relaxed);
            p.store(&v.ready, 1, Relaxed);
            v.mode().value.set(1);
        };
        assert_eq!(ask(DirectedYield::V3_6, 1, in_guest), Looked);
        assert_eq!(ask(DirectedYield::V3_9, 1, in_guest), Looked);
        assert_eq!(ask(DirectedYield::Today, 1, in_guest), Asked);
    }
}
