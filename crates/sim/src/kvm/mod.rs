//! KVM: the host's half of virtual machines. `docs/internals/guests.md` says what runs where.

mod counters;
mod exits;
mod features;
mod on_spin;

pub use counters::{Exit, Kvm};
pub(crate) use exits::{VcpuCall, VcpuWait};
pub use features::{DirectedYield, KvmFeatures};

use crate::counters::Counters;
use crate::guest::{Hosting, Phase, VcpuState, Vm};
use crate::world::{Sim, SimWord};
use contend_platform::{CpuId, Line, Ordering, Platform, SchedEvent, TaskId};
use contend_sched::kernel::Kernel;
use contend_sched::policy::Policy;
use contend_sched::yield_to::YieldTo;
use features::OnSpin;
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

/// The hypervisor of a run.
pub struct Hypervisor {
    features: KvmFeatures,
    on_spin: OnSpin,
    yield_to: YieldTo,
    hosting: Rc<Hosting>,
    counts: Counters<{ Kvm::COUNT }>,
    vms: OnceCell<Vec<Rc<Vm>>>,
    /// Guest and number of the vCPU whose thread a task is.
    by_task: RefCell<Vec<Option<(u16, CpuId)>>>,
}

impl Hypervisor {
    /// A hypervisor without guests yet.
    pub(crate) fn new(p: &Sim, features: KvmFeatures, unfinished: usize) -> Self {
        let machine = &p.engine().machine;
        let on_spin = features.on_spin();
        let asked = if on_spin.skip_cpu_not_in_guest { machine.topology.nr_cpus() } else { 0 };
        let modes: Rc<[SimWord]> = (0..asked).map(|_| p.word(p.line(), 0)).collect();
        let window = features.pause_exits().then_some(features.ple_window);
        let mut hosting = Hosting::new(machine, modes, window, unfinished);
        (hosting.pv_preempted, hosting.pv_sched_yield) = (features.pv_preempted, features.pv_sched_yield);
        if let Some(hook) = p.hook() {
            hosting.tell(hook);
        }
        Hypervisor {
            on_spin,
            yield_to: features.yield_to(),
            hosting: Rc::new(hosting),
            counts: Counters::default(),
            vms: OnceCell::new(),
            by_task: RefCell::default(),
            features,
        }
    }
    /// What guests know of it.
    pub(crate) fn hosting(&self) -> &Rc<Hosting> {
        &self.hosting
    }
    /// The guests exist.
    pub(crate) fn set_guests(&self, vms: Vec<Rc<Vm>>) {
        assert!(self.vms.set(vms).is_ok(), "guests are made once");
    }
    fn vms(&self) -> &[Rc<Vm>] {
        self.vms.get().map_or(&[], Vec::as_slice)
    }
    /// Count an event.
    pub(crate) fn count(&self, what: Kvm, n: u64) {
        self.counts.add(what as usize, n);
    }
    /// Counters so far.
    pub(crate) fn counts(&self) -> [u64; Kvm::COUNT] {
        let mut counts = self.counts.get();
        counts[Kvm::IpisDelivered as usize] = self.hosting.ipis_delivered.get();
        counts
    }

    /// `task` is the thread of a vCPU.
    pub(crate) fn adopt<L: Policy>(&self, p: &Sim, kernel: &Kernel<Sim, L>, task: TaskId, vm: usize, number: CpuId) {
        let mut by_task = self.by_task.borrow_mut();
        if by_task.len() <= task.index() {
            by_task.resize(task.index() + 1, None);
        }
        by_task[task.index()] = Some((vm as u16, number));
        self.vms()[vm].vcpu(number).attach(p, task, Line(kernel.task(task).state.line));
    }

    /// The guest and the vCPU whose thread `task` is.
    pub(crate) fn find(&self, task: TaskId) -> Option<(&Rc<Vm>, &Rc<VcpuState>)> {
        let (vm, number) = (*self.by_task.borrow().get(task.index())?)?;
        let vm = &self.vms()[vm as usize];
        Some((vm, vm.vcpu(number)))
    }

    /// The notifiers that KVM hangs into the scheduler: sched out, sched in; and what steal time counts.
    pub(crate) fn sched_event(&self, p: &Sim, event: SchedEvent) {
        match event {
            SchedEvent::Switch { prev, prev_state, next } => {
                if let Some((_, vcpu)) = prev.and_then(|t| self.find(t)) {
                    self.sched_out(p, vcpu, prev_state == 0);
                }
                if let Some((vm, vcpu)) = next.and_then(|t| self.find(t)) {
                    self.sched_in(p, vm, vcpu);
                }
            }
            SchedEvent::Wakeup { task, .. } => {
                if let Some((_, vcpu)) = self.find(task)
                    && vcpu.phase() == Phase::Halted
                {
                    vcpu.book(Phase::Stolen, p.now());
                    if self.on_spin.ready {
                        p.store(&vcpu.ready, 1, Ordering::Relaxed);
                    }
                }
            }
            _ => {}
        }
    }

    fn told_preempted(&self) -> bool {
        self.on_spin.preempted || self.features.pv_preempted
    }

    fn sched_out(&self, p: &Sim, vcpu: &VcpuState, runnable: bool) {
        let now = p.now();
        vcpu.book(if runnable { Phase::Stolen } else { Phase::Halted }, now);
        if !runnable {
            return;
        }
        vcpu.preemptions.set(vcpu.preemptions.get() + 1);
        vcpu.lost_at.set(Some(now));
        if self.told_preempted() {
            let value = if vcpu.in_user_mode() { 1 } else { 2 };
            p.store(&vcpu.preempted, value, Ordering::Relaxed);
        }
        if self.on_spin.ready {
            p.store(&vcpu.ready, 1, Ordering::Relaxed);
        }
    }

    fn sched_in(&self, p: &Sim, vm: &Vm, vcpu: &VcpuState) {
        let now = p.now();
        vcpu.book(Phase::Host, now);
        vcpu.pcpu.set(p.cpu());
        if let Some(since) = vcpu.lost_at.take() {
            let ns = now - since;
            vcpu.preempted_max.set(vcpu.preempted_max.get().max(ns));
            vm.count_preemption(vcpu, ns);
        }
        if self.told_preempted() && vcpu.preempted.observe() != 0 {
            p.store(&vcpu.preempted, 0, Ordering::Relaxed);
        }
        if self.on_spin.ready && vcpu.ready.observe() != 0 {
            p.store(&vcpu.ready, 0, Ordering::Relaxed);
        }
        vcpu.ple_window.set(self.features.shrunk_window(vcpu.ple_window.get()));
    }
}
