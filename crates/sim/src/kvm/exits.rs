//! Exits that the host serves: halts, interrupts between vCPUs, kicks, pause loops.

use super::on_spin::Search;
use super::{Hypervisor, Kvm};
use crate::guest::{IPIS, KICK, VcpuState};
use crate::os::{Os, Pending};
use crate::world::Sim;
use contend_platform::Ordering::Acquire;
use contend_platform::{Account, CpuId, Ipi, NEVER, Platform, SchedPlatform, TaskId, Work};
use contend_sched::kernel::{Kernel, SyscallEnd};
use contend_sched::policy::Policy;
use contend_sched::task::state;
use std::rc::Rc;

/// What a vCPU has left guest mode for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum VcpuCall {
    /// HLT; with the guest's interrupts on they wake it, else only a kick does.
    Halt { interrupts: bool },
    /// A pause loop has lasted for ple_window.
    Pause,
    /// A write to the interrupt command register.
    Ipi { target: CpuId, bits: u64 },
    /// The pv kick.
    Kick { target: CpuId },
    /// The pv sched yield.
    Yield { target: CpuId },
}

/// What is left to do of an exit when the vCPU's thread runs again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum VcpuWait {
    /// It is halted. `timer`: the host's timer for it is armed.
    Halt { interrupts: bool, timer: bool },
    /// It polls before it blocks, and let an interrupt in.
    Poll { interrupts: bool },
    /// It searches for a candidate and let an interrupt in.
    Search(Search),
    /// Its directed yield succeeded: note to whom.
    Boosted(CpuId),
}

impl VcpuWait {
    /// In words, for reports.
    pub fn describe(self) -> &'static str {
        match self {
            VcpuWait::Halt { interrupts: true, .. } => "an interrupt for its guest (halted)",
            VcpuWait::Halt { interrupts: false, .. } => "a pv kick (halted)",
            VcpuWait::Poll { .. } => "an interrupt for its guest or a pv kick (halted, polling)",
            VcpuWait::Search(_) => "a candidate for a directed yield",
            VcpuWait::Boosted(_) => "a CPU, after a directed yield",
        }
    }
    /// Will nothing end the wait but what another vCPU does?
    pub fn for_ever(self) -> bool {
        matches!(self, VcpuWait::Halt { timer: false, .. })
    }
}

impl Os<Sim> {
    /// Serve an exit, on the host, on the CPU that the vCPU's thread runs on.
    #[cold]
    pub(crate) fn vcpu_exit<L: Policy>(
        &self,
        kernel: &Kernel<Sim, L>,
        p: &Sim,
        task: TaskId,
        call: VcpuCall,
    ) -> SyscallEnd {
        let kvm = Rc::clone(p.kvm().expect("a vCPU has a hypervisor"));
        let (vm, vcpu) = kvm.find(task).expect("the task is a vCPU's thread");
        let before = p.enter(Account::VmExit);
        let end = match call {
            VcpuCall::Halt { interrupts } => self.halt(kernel, p, &kvm, vcpu, interrupts),
            VcpuCall::Pause => {
                vcpu.ple_window.set(kvm.features.grown_window(vcpu.ple_window.get()));
                self.search(kernel, p, &kvm, vm, vcpu, kvm.begin_search(p, vm, vcpu))
            }
            VcpuCall::Ipi { target, bits } => {
                p.charge(Work::Ns, kvm.costs.icr_write);
                let fresh = bits & !vm.vcpu(target).post(p, bits);
                kvm.count(Kvm::IpisSent, u64::from(fresh.count_ones()));
                self.wake_or_kick(kernel, p, &kvm, vm.vcpu(target));
                SyscallEnd::Continue
            }
            VcpuCall::Kick { target } => {
                p.charge(Work::Ns, kvm.costs.hypercall);
                kvm.count(Kvm::PvKicks, 1);
                vm.vcpu(target).post(p, KICK);
                self.wake_or_kick(kernel, p, &kvm, vm.vcpu(target));
                if kvm.features.pv_kick_yield {
                    self.yield_by_hypercall(kernel, p, &kvm, vcpu, vm.vcpu(target))
                } else {
                    SyscallEnd::Continue
                }
            }
            VcpuCall::Yield { target } => {
                p.charge(Work::Ns, kvm.costs.hypercall);
                self.yield_by_hypercall(kernel, p, &kvm, vcpu, vm.vcpu(target))
            }
        };
        p.enter(before);
        end
    }

    /// The vCPU's thread runs again in the middle of an exit.
    #[cold]
    pub(crate) fn vcpu_goes_on<L: Policy>(
        &self,
        kernel: &Kernel<Sim, L>,
        p: &Sim,
        task: TaskId,
        wait: VcpuWait,
    ) -> SyscallEnd {
        let kvm = Rc::clone(p.kvm().expect("a vCPU has a hypervisor"));
        let (vm, vcpu) = kvm.find(task).expect("the task is a vCPU's thread");
        let before = p.enter(Account::VmExit);
        let end = match wait {
            VcpuWait::Halt { interrupts, .. } => self.halted(kernel, p, &kvm, vcpu, interrupts),
            VcpuWait::Poll { interrupts } => self.poll(kernel, p, &kvm, vcpu, interrupts),
            VcpuWait::Search(search) => self.search(kernel, p, &kvm, vm, vcpu, search),
            VcpuWait::Boosted(to) => {
                kvm.note_boosted(p, vm, vcpu, to);
                self.done(task)
            }
        };
        p.enter(before);
        end
    }

    // ---- halts -------------------------------------------------------------------------------------------------

    /// HLT: poll for a while, then block.
    fn halt<L: Policy>(
        &self,
        kernel: &Kernel<Sim, L>,
        p: &Sim,
        kvm: &Hypervisor,
        vcpu: &VcpuState,
        interrupts: bool,
    ) -> SyscallEnd {
        p.charge(Work::Ns, kvm.costs.halt);
        vcpu.halted_since.set(p.now());
        if vcpu.poll_ns.get() == 0 {
            return self.block_vcpu(kernel, p, kvm, vcpu, interrupts);
        }
        kvm.count(Kvm::HaltAttemptedPoll, 1);
        self.poll(kernel, p, kvm, vcpu, interrupts)
    }

    /// Halt polling, until something wakes the vCPU, its window is over, or its CPU is wanted for something else.
    fn poll<L: Policy>(
        &self,
        kernel: &Kernel<Sim, L>,
        p: &Sim,
        kvm: &Hypervisor,
        vcpu: &VcpuState,
        interrupts: bool,
    ) -> SyscallEnd {
        let before = p.enter(Account::HaltPoll);
        let ends = vcpu.halted_since.get() + vcpu.poll_ns.get();
        let resched = &kernel.rq(p.cpu()).resched;
        let woken = loop {
            let now = p.now();
            if wakes(vcpu, p.load(&vcpu.pending, Acquire), interrupts, now) {
                break true;
            }
            if now >= ends || resched.observe() & 1 != 0 {
                break false;
            }
            if p.interrupt_pending() {
                self.set_pending(vcpu.thread_task(), Pending::Vcpu(VcpuWait::Poll { interrupts }));
                p.enter(before);
                return SyscallEnd::Continue;
            }
            let timer = if interrupts { vcpu.timer_at() } else { NEVER };
            let look = ends.min(timer).saturating_sub(now).clamp(1, POLL_LOOK);
            p.wait_until([&vcpu.pending], Some(look), |[pending]| wakes(vcpu, pending, interrupts, now));
        };
        p.enter(before);
        let spent = p.now() - vcpu.halted_since.get();
        if woken {
            kvm.count(Kvm::HaltSuccessfulPoll, 1);
            kvm.count(Kvm::HaltPollSuccessNs, spent);
            return self.unhalted(p, kvm, vcpu, false);
        }
        kvm.count(Kvm::HaltPollFailNs, spent);
        self.block_vcpu(kernel, p, kvm, vcpu, interrupts)
    }

    fn block_vcpu<L: Policy>(
        &self,
        kernel: &Kernel<Sim, L>,
        p: &Sim,
        kvm: &Hypervisor,
        vcpu: &VcpuState,
        interrupts: bool,
    ) -> SyscallEnd {
        let task = vcpu.thread_task();
        vcpu.set_halted(p, true);
        kernel.announce_sleep(p, task, state::INTERRUPTIBLE);
        // Whoever posts from here on finds it on its halt queue.
        if wakes(vcpu, p.load(&vcpu.pending, Acquire), interrupts, p.now()) {
            kernel.cancel_sleep(p, task);
            return self.unhalted(p, kvm, vcpu, true);
        }
        let timer = if interrupts { vcpu.timer_at() } else { NEVER };
        if timer != NEVER && vcpu.host_timer.get() != timer {
            p.charge(Work::TimerProgram, 1);
            p.engine().arm_timer(timer, task);
            vcpu.host_timer.set(timer);
        }
        self.set_pending(task, Pending::Vcpu(VcpuWait::Halt { interrupts, timer: timer != NEVER }));
        SyscallEnd::Block
    }

    /// The thread of a halted vCPU was woken.
    fn halted<L: Policy>(
        &self,
        kernel: &Kernel<Sim, L>,
        p: &Sim,
        kvm: &Hypervisor,
        vcpu: &VcpuState,
        interrupts: bool,
    ) -> SyscallEnd {
        if vcpu.host_timer.get() <= p.now() {
            vcpu.host_timer.set(NEVER);
        }
        if wakes(vcpu, p.load(&vcpu.pending, Acquire), interrupts, p.now()) {
            kvm.count(Kvm::HaltWakeup, 1);
            return self.unhalted(p, kvm, vcpu, true);
        }
        self.block_vcpu(kernel, p, kvm, vcpu, interrupts)
    }

    /// The halt is over.
    fn unhalted(&self, p: &Sim, kvm: &Hypervisor, vcpu: &VcpuState, blocked: bool) -> SyscallEnd {
        let slept = p.now() - vcpu.halted_since.get();
        if blocked {
            vcpu.set_halted(p, false);
            kvm.count(Kvm::HaltWaitNs, slept);
        }
        vcpu.poll_ns.set(kvm.features.next_poll_ns(vcpu.poll_ns.get(), slept, true));
        vcpu.take_kick(p);
        self.done(vcpu.thread_task())
    }

    // ---- interrupts for vCPUs ------------------------------------------------------------------------------------

    /// Something is pending for `vcpu`: wake its thread if it is halted, pull it out of guest mode if it is there. If its
    /// thread has no CPU, it will see when it gets one.
    fn wake_or_kick<L: Policy>(&self, kernel: &Kernel<Sim, L>, p: &Sim, kvm: &Hypervisor, vcpu: &VcpuState) {
        if !vcpu.started() {
            return;
        }
        if p.load(&vcpu.halted, Acquire) != 0 {
            kernel.try_to_wake_up(p, vcpu.thread_task(), state::NORMAL, 0);
        } else if p.load(vcpu.mode(), Acquire) != 0 && vcpu.pcpu.get() != p.cpu() {
            kvm.count(Kvm::Kicked, 1);
            p.send_ipi(vcpu.pcpu.get(), Ipi::Reschedule);
        }
    }
}

/// Longest look of a poller at its word, in ns: then it looks whether its CPU is wanted for something else.
const POLL_LOOK: u64 = 1_000;

/// Does what is pending end the halt?
fn wakes(vcpu: &VcpuState, pending: u64, interrupts: bool, now: u64) -> bool {
    pending & KICK != 0 || interrupts && (pending & IPIS != 0 || vcpu.timer_at() <= now)
}
