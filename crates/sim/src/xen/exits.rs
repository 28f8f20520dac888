//! What vCPUs ask of Xen: exits of guest kernels, steps of programs that run without one, timers.

use super::host::{Occupant, ProgramVcpu, XenHost};
use crate::guest::{IPIS, KICK, VcpuState};
use crate::kvm::VcpuCall;
use crate::os::Unheard;
use crate::program::{Cx, Metrics, Op};
use crate::thread::Call;
use crate::world::{Sim, World};
use contend_platform::Ordering::{AcqRel, Acquire};
use contend_platform::{Account, Ipi, NEVER, Nanos, Platform, SchedPlatform, TaskId, Work};
use contend_sched::xen::contract::{UnitId, XenPolicy};
use contend_sched::xen::mechanism::{Hypercalls, Xen};

impl<L: XenPolicy> Hypercalls<Sim, L> for XenHost {
    fn exit(&self, xen: &Xen<Sim, L>, p: &Sim, unit: UnitId) {
        let before = p.enter(Account::VmExit);
        match &self.occupants[unit.index()] {
            Occupant::Kernel(guest) => {
                let exit = Exit { host: self, xen, p, unit, vcpu: &guest.vcpu };
                let served = match guest.halted.get() {
                    Some(interrupts) => exit.halted(interrupts),
                    None => match guest.state.call.take() {
                        Some(Call::Vcpu(call)) => exit.serve(call),
                        _ => unreachable!("a vCPU's code asks for nothing else, and never ends"),
                    },
                };
                guest.state.in_kernel.set(!served);
            }
            Occupant::Program(program) => self.step(xen, p, unit, program),
        }
        p.enter(before);
    }

    fn timer(&self, xen: &Xen<Sim, L>, p: &Sim, unit: UnitId) {
        match &self.occupants[unit.index()] {
            Occupant::Kernel(guest) => {
                if guest.vcpu.host_timer.get() > p.now() {
                    return;
                }
                guest.vcpu.host_timer.set(NEVER);
                if guest.halted.get() == Some(true) {
                    xen.unblock(p, unit);
                }
            }
            Occupant::Program(program) => {
                if program.wake_at.get() <= p.now() {
                    xen.unblock(p, unit);
                }
            }
        }
    }

    fn start(&self, xen: &Xen<Sim, L>, p: &Sim) {
        // All vCPUs exist before one runs: it may send interrupts and events to those that have not been started.
        let units = || (0..self.occupants.len()).map(|unit| TaskId(unit as u32));
        units().for_each(|unit| self.adopt(xen, p, unit));
        units().for_each(|unit| xen.start_unit(p, unit));
        self.next_change(xen, p);
    }

    fn alarm(&self, xen: &Xen<Sim, L>, p: &Sim) {
        self.change(xen, p);
        self.next_change(xen, p);
    }
}

/// A vCPU that has left guest mode, and all that serves it.
struct Exit<'a, L: XenPolicy> {
    host: &'a XenHost,
    xen: &'a Xen<Sim, L>,
    p: &'a Sim,
    unit: UnitId,
    vcpu: &'a VcpuState,
}

impl<L: XenPolicy> Exit<'_, L> {
    /// Returns whether the exit is over: the guest goes on when it runs again.
    fn serve(&self, call: VcpuCall) -> bool {
        let &Self { host, xen, p, unit, vcpu } = self;
        let costs = &host.hosting.costs;
        match call {
            VcpuCall::Halt { interrupts } => {
                p.charge(Work::Ns, costs.halt);
                vcpu.halted_since.set(p.now());
                return self.halt(interrupts);
            }
            // A pause-loop exit is a yield.
            VcpuCall::Pause => {
                p.charge(Work::Ns, costs.pause_handler);
                xen.yield_unit(p, unit);
            }
            VcpuCall::Ipi { target, bits } => {
                p.charge(Work::Ns, costs.icr_write);
                self.notify(host.unit_beside(unit, target), bits);
            }
            VcpuCall::Kick { target } => {
                p.charge(Work::Ns, costs.hypercall);
                self.notify(host.unit_beside(unit, target), KICK);
            }
            VcpuCall::Event { channel, to } => {
                p.charge(Work::Ns, costs.hypercall);
                let channel = host.hosting.channel(p, channel);
                p.fetch_or(channel.pending(to), 1, AcqRel);
                // An upcall: the guest's handler looks at all that is pending.
                self.notify(channel.port(to).thread_task(), Ipi::CallFunction.bit());
            }
            // SCHEDOP_yield: to nobody in particular.
            VcpuCall::Yield { .. } => {
                p.charge(Work::Ns, costs.hypercall);
                xen.yield_unit(p, unit);
            }
        }
        true
    }

    /// Something is pending for a vCPU from now on: unblock it, or pull it out of guest mode if it is there.
    fn notify(&self, unit: UnitId, bits: u64) {
        let &Self { host, xen, p, .. } = self;
        let Occupant::Kernel(guest) = &host.occupants[unit.index()] else {
            unreachable!("the vCPUs of a domain with a kernel have one");
        };
        let to = &guest.vcpu;
        to.post(p, bits);
        if p.load(&to.halted, Acquire) != 0 {
            xen.unblock(p, unit);
        } else if p.load(to.mode(), Acquire) != 0 && to.pcpu.get() != p.cpu() {
            p.send_ipi(to.pcpu.get(), Ipi::Reschedule);
        }
    }

    /// Block until something is pending that ends the halt.
    fn halt(&self, interrupts: bool) -> bool {
        let &Self { host, xen, p, unit, vcpu } = self;
        let Occupant::Kernel(guest) = &host.occupants[unit.index()] else { unreachable!("a kernel halts") };
        vcpu.set_halted(p, true);
        if !xen.block(p, unit, || wakes(vcpu, p.load(&vcpu.pending, Acquire), interrupts, p.now())) {
            return self.unhalted();
        }
        guest.halted.set(Some(interrupts));
        let timer = if interrupts { vcpu.timer_at() } else { NEVER };
        if timer != NEVER && vcpu.host_timer.get() != timer {
            p.charge(Work::TimerProgram, 1);
            p.engine().arm_timer(timer, unit);
            vcpu.host_timer.set(timer);
        }
        false
    }

    /// A vCPU that halted runs again.
    fn halted(&self, interrupts: bool) -> bool {
        let &Self { p, vcpu, .. } = self;
        if wakes(vcpu, p.load(&vcpu.pending, Acquire), interrupts, p.now()) {
            self.unhalted()
        } else {
            self.halt(interrupts)
        }
    }

    fn unhalted(&self) -> bool {
        let &Self { host, p, unit, vcpu, .. } = self;
        if let Occupant::Kernel(guest) = &host.occupants[unit.index()] {
            guest.halted.set(None);
        }
        vcpu.set_halted(p, false);
        vcpu.take_kick(p);
        true
    }
}

/// Does what is pending end the halt?
fn wakes(vcpu: &VcpuState, pending: u64, interrupts: bool, now: u64) -> bool {
    pending & KICK != 0 || interrupts && (pending & IPIS != 0 || vcpu.timer_at() <= now)
}

impl XenHost {
    /// A vCPU without a kernel has done what it was told: what next?
    fn step<L: XenPolicy>(&self, xen: &Xen<Sim, L>, p: &Sim, unit: UnitId, vcpu: &ProgramVcpu) {
        let (now, cpu) = (p.now(), p.cpu());
        let op = {
            let mut metrics = self.metrics.borrow_mut();
            let metrics: &mut dyn Metrics = if now < self.warmup { &mut Unheard } else { &mut *metrics };
            let mut cx = Cx { now, task: unit, cpu, rng: &mut vcpu.rng.borrow_mut(), metrics };
            vcpu.program.borrow_mut().next(&mut cx)
        };
        match op {
            Op::Run(ns) => p.set_work(unit, ns, Account::User),
            Op::Syscall(ns) => p.charge(Work::Ns, self.hosting.costs.hypercall + ns),
            Op::Sleep(ns) => self.sleep_until(xen, p, unit, vcpu, now.saturating_add(ns)),
            Op::SleepUntil(at) => self.sleep_until(xen, p, unit, vcpu, at),
            Op::Yield => {
                p.charge(Work::Ns, self.hosting.costs.hypercall);
                xen.yield_unit(p, unit);
            }
            Op::Exit | Op::Exited => {
                xen.stop_unit(p, unit);
                self.program_ended(p, vcpu.domain);
            }
            _ => panic!(
                "a vCPU without a kernel can compute, sleep, yield and exit; its program asks for something else"
            ),
        }
    }

    fn sleep_until<L: XenPolicy>(&self, xen: &Xen<Sim, L>, p: &Sim, unit: UnitId, vcpu: &ProgramVcpu, at: Nanos) {
        p.charge(Work::Ns, self.hosting.costs.hypercall);
        vcpu.wake_at.set(at);
        if xen.block(p, unit, || at <= p.now()) {
            p.charge(Work::TimerProgram, 1);
            p.engine().arm_timer(at, unit);
        }
    }
}
