//! Exits that the host serves: halts, interrupts between vCPUs, kicks, pause loops.

use super::on_spin::Search;
use super::{Hypervisor, Kvm};
use crate::guest::{IPIS, KICK, VcpuState, Vm};
use crate::os::{Os, Pending};
use crate::program::RingEnd;
use crate::world::Sim;
use contend_platform::Ordering::Acquire;
use contend_platform::{Account, CpuId, Ipi, NEVER, Platform, SchedPlatform, TaskId, Work};
use contend_sched::kernel::{Kernel, SyscallEnd};
use contend_sched::policy::Policy;
use contend_sched::rq::{NEED_RESCHED, peek_nr_running};
use contend_sched::task::state;

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
    /// An event for an end of a ring that domains share.
    Event { channel: u32, to: RingEnd },
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
        self.in_host(kernel, p, task, |exit| exit.serve(call))
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
        self.in_host(kernel, p, task, |exit| exit.go_on(wait))
    }

    /// Work for the vCPU whose thread `task` is.
    fn in_host<L: Policy>(
        &self,
        kernel: &Kernel<Sim, L>,
        p: &Sim,
        task: TaskId,
        f: impl FnOnce(&Exiting<'_, L>) -> SyscallEnd,
    ) -> SyscallEnd {
        let kvm = p.kvm().expect("a vCPU has a hypervisor");
        let (vm, vcpu) = kvm.find(task).expect("the task is a vCPU's thread");
        let before = p.enter(Account::VmExit);
        let end = f(&Exiting { os: self, kernel, p, kvm, vm, vcpu });
        p.enter(before);
        end
    }
}

/// A vCPU that has left guest mode, on the CPU of its thread, and all that serves it.
pub(super) struct Exiting<'a, L: Policy> {
    pub os: &'a Os<Sim>,
    pub kernel: &'a Kernel<Sim, L>,
    pub p: &'a Sim,
    pub kvm: &'a Hypervisor,
    pub vm: &'a Vm,
    pub vcpu: &'a VcpuState,
}

impl<L: Policy> Exiting<'_, L> {
    fn serve(&self, call: VcpuCall) -> SyscallEnd {
        let &Self { p, kvm, vm, vcpu, .. } = self;
        match call {
            VcpuCall::Halt { interrupts } => self.halt(interrupts),
            VcpuCall::Pause => {
                vcpu.ple_window.set(kvm.features.grown_window(vcpu.ple_window.get()));
                self.search(kvm.begin_search(p, vm, vcpu))
            }
            VcpuCall::Ipi { target, bits } => {
                p.charge(Work::Ns, kvm.hosting.costs.icr_write);
                let fresh = bits & !vm.vcpu(target).post(p, bits);
                kvm.count(Kvm::IpisSent, u64::from(fresh.count_ones()));
                self.wake_or_kick(vm.vcpu(target));
                SyscallEnd::Continue
            }
            VcpuCall::Kick { target } => {
                p.charge(Work::Ns, kvm.hosting.costs.hypercall);
                kvm.count(Kvm::PvKicks, 1);
                vm.vcpu(target).post(p, KICK);
                self.wake_or_kick(vm.vcpu(target));
                if kvm.features.pv_kick_yield { self.yield_by_hypercall(vm.vcpu(target)) } else { SyscallEnd::Continue }
            }
            VcpuCall::Yield { target } => {
                p.charge(Work::Ns, kvm.hosting.costs.hypercall);
                self.yield_by_hypercall(vm.vcpu(target))
            }
            VcpuCall::Event { channel, .. } => {
                unreachable!("channel {channel}: only domains of a Xen host share rings")
            }
        }
    }

    fn go_on(&self, wait: VcpuWait) -> SyscallEnd {
        match wait {
            VcpuWait::Halt { interrupts, .. } => self.halted(interrupts),
            VcpuWait::Poll { interrupts } => self.poll(interrupts),
            VcpuWait::Search(search) => self.search(search),
            VcpuWait::Boosted(to) => {
                self.kvm.note_boosted(self.p, self.vm, self.vcpu, to);
                self.done()
            }
        }
    }

    /// The exit has been served: the guest goes on.
    pub(super) fn done(&self) -> SyscallEnd {
        self.os.done(self.vcpu.thread_task())
    }
    /// What is left to do when the thread runs again.
    pub(super) fn later(&self, wait: VcpuWait) {
        self.os.set_pending(self.vcpu.thread_task(), Pending::Vcpu(wait));
    }

    // ---- halts -------------------------------------------------------------------------------------------------

    /// HLT: poll for a while, then block.
    fn halt(&self, interrupts: bool) -> SyscallEnd {
        let &Self { p, kvm, vcpu, .. } = self;
        p.charge(Work::Ns, kvm.hosting.costs.halt);
        vcpu.halted_since.set(p.now());
        if vcpu.poll_ns.get() == 0 {
            return self.block(interrupts);
        }
        kvm.count(Kvm::HaltAttemptedPoll, 1);
        vcpu.polled.set(0);
        self.poll(interrupts)
    }

    /// Halt polling, until something wakes the vCPU, its window is over, or another task is runnable on its CPU, too.
    fn poll(&self, interrupts: bool) -> SyscallEnd {
        let &Self { kernel, p, kvm, vcpu, .. } = self;
        let before = p.enter(Account::HaltPoll);
        let since = p.now();
        // What interrupts and other threads took meanwhile was not polled.
        let stop = || {
            p.enter(before);
            vcpu.polled.set(vcpu.polled.get() + p.now() - since);
        };
        let ends = vcpu.halted_since.get() + vcpu.poll_ns.get();
        let rq = kernel.rq(p.cpu());
        let wanted = || rq.resched.observe() & NEED_RESCHED != 0 || peek_nr_running(rq.peek.observe()) > 1;
        let woken = loop {
            let now = p.now();
            if wakes(vcpu, p.load(&vcpu.pending, Acquire), interrupts, now) {
                break true;
            }
            if now >= ends || wanted() {
                break false;
            }
            if p.interrupt_pending() {
                self.later(VcpuWait::Poll { interrupts });
                stop();
                return SyscallEnd::Continue;
            }
            let timer = if interrupts { vcpu.timer_at() } else { NEVER };
            let look = ends.min(timer).saturating_sub(now).clamp(1, POLL_LOOK);
            p.wait_until([&vcpu.pending], Some(look), |[pending]| wakes(vcpu, pending, interrupts, now));
        };
        stop();
        let spent = vcpu.polled.get();
        if woken {
            kvm.count(Kvm::HaltSuccessfulPoll, 1);
            kvm.count(Kvm::HaltPollSuccessNs, spent);
            return self.unhalted(false);
        }
        kvm.count(Kvm::HaltPollFailNs, spent);
        self.block(interrupts)
    }

    /// Onto the halt queue.
    fn block(&self, interrupts: bool) -> SyscallEnd {
        let &Self { kernel, p, vcpu, .. } = self;
        let task = vcpu.thread_task();
        vcpu.set_halted(p, true);
        kernel.announce_sleep(p, task, state::INTERRUPTIBLE);
        // Whoever posts from here on finds it on its halt queue.
        if wakes(vcpu, p.load(&vcpu.pending, Acquire), interrupts, p.now()) {
            kernel.cancel_sleep(p, task);
            return self.unhalted(true);
        }
        let timer = if interrupts { vcpu.timer_at() } else { NEVER };
        if timer != NEVER && vcpu.host_timer.get() != timer {
            p.charge(Work::TimerProgram, 1);
            p.engine().arm_timer(timer, task);
            vcpu.host_timer.set(timer);
        }
        self.later(VcpuWait::Halt { interrupts, timer: timer != NEVER });
        SyscallEnd::Block
    }

    /// The thread of a halted vCPU was woken.
    fn halted(&self, interrupts: bool) -> SyscallEnd {
        let &Self { p, kvm, vcpu, .. } = self;
        if vcpu.host_timer.get() <= p.now() {
            vcpu.host_timer.set(NEVER);
        }
        if wakes(vcpu, p.load(&vcpu.pending, Acquire), interrupts, p.now()) {
            kvm.count(Kvm::HaltWakeup, 1);
            return self.unhalted(true);
        }
        self.block(interrupts)
    }

    /// The halt is over.
    fn unhalted(&self, blocked: bool) -> SyscallEnd {
        let &Self { p, kvm, vcpu, .. } = self;
        let slept = p.now() - vcpu.halted_since.get();
        if blocked {
            vcpu.set_halted(p, false);
            kvm.count(Kvm::HaltWaitNs, slept);
        }
        vcpu.poll_ns.set(kvm.features.next_poll_ns(vcpu.poll_ns.get(), slept, true));
        vcpu.take_kick(p);
        self.done()
    }

    // ---- interrupts for vCPUs ------------------------------------------------------------------------------------

    /// Something is pending for `to`: wake its thread if it is halted, pull it out of guest mode if it is there. If its
    /// thread has no CPU, it will see when it gets one.
    fn wake_or_kick(&self, to: &VcpuState) {
        let &Self { kernel, p, kvm, .. } = self;
        if !to.started() {
            return;
        }
        if p.load(&to.halted, Acquire) != 0 {
            kernel.try_to_wake_up(p, to.thread_task(), state::NORMAL, 0);
        } else if p.load(to.mode(), Acquire) != 0 && to.pcpu.get() != p.cpu() {
            kvm.count(Kvm::Kicked, 1);
            p.send_ipi(to.pcpu.get(), Ipi::Reschedule);
        }
    }
}

/// Longest look of a poller at its word, in ns: then it looks whether its CPU is wanted for something else.
const POLL_LOOK: u64 = 1_000;

/// Does what is pending end the halt?
fn wakes(vcpu: &VcpuState, pending: u64, interrupts: bool, now: u64) -> bool {
    pending & KICK != 0 || interrupts && (pending & IPIS != 0 || vcpu.timer_at() <= now)
}
