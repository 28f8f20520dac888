//! Who watches a Xen host: the vCPUs' own books, and sinks for traces.

use super::host::Occupant;
use crate::guest::Phase;
use crate::host::{EventSink, Who};
use crate::trace::SharedSink;
use crate::world::Sim;
use contend_platform::{CpuId, Time};
use contend_sched::class::Sched;
use contend_sched::xen::contract::{UnitId, XenPolicy};
use contend_sched::xen::event::{RunState, VcpuId, XenEvent, XenSink};
use contend_sched::xen::mechanism::{Observer, Xen};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// A sink of xentrace records.
pub trait RecordSink: XenSink + 'static {
    /// The run is over; write out what is held back.
    ///
    /// # Errors
    /// Those of writing, now or at any time before.
    fn finish(&mut self, now: Time) -> std::io::Result<()>;
}

impl<W: std::io::Write + 'static> RecordSink for contend_trace::xentrace::Writer<W> {
    fn finish(&mut self, _: Time) -> std::io::Result<()> {
        self.end()
    }
}

/// Where traces go.
#[derive(Default)]
pub struct Sinks {
    /// Switches and wake-ups of vCPUs, as of tasks.
    pub sched: Option<Box<dyn EventSink>>,
    /// Xen's own records.
    pub xen: Option<Box<dyn RecordSink>>,
}

pub(super) struct Watcher {
    occupants: Rc<[Occupant]>,
    names: Vec<String>,
    units: HashMap<VcpuId, usize>,
    sched: Option<SharedSink>,
    xen: Option<RefCell<Box<dyn RecordSink>>>,
    /// Records of switches carry the vCPU's number (patch 9).
    switch_vcpu: bool,
    /// Switches of which the state that the vCPU leaves in is still to come: the record after it says.
    leaving: RefCell<Vec<Option<(VcpuId, VcpuId)>>>,
    curr: RefCell<Vec<Option<usize>>>,
}

impl Watcher {
    pub fn new<L: XenPolicy>(
        occupants: Rc<[Occupant]>,
        names: Vec<String>,
        xen: &Xen<Sim, L>,
        (sched, xen_records): (Option<SharedSink>, Option<Box<dyn RecordSink>>),
        switch_vcpu: bool,
    ) -> Self {
        let cpus = xen.topo.nr_cpus();
        let units = xen.units.iter().enumerate().map(|(i, u)| (u.info, i)).collect();
        Watcher {
            occupants,
            names,
            units,
            sched,
            xen: xen_records.map(RefCell::new),
            switch_vcpu,
            leaving: RefCell::new(vec![None; cpus]),
            curr: RefCell::new(vec![None; cpus]),
        }
    }

    pub fn finish(&self, now: Time) -> std::io::Result<()> {
        if let Some(sink) = &self.sched {
            sink.borrow_mut().finish(now)?;
        }
        if let Some(sink) = &self.xen {
            sink.borrow_mut().finish(now)?;
        }
        Ok(())
    }

    fn who(&self, unit: Option<usize>) -> Option<Who<'_>> {
        unit.map(|u| Who { id: u as u64, name: &self.names[u], sched: Sched::default() })
    }

    fn as_sched(&self, sink: &mut dyn EventSink, now: Time, cpu: CpuId, event: &XenEvent) {
        match *event {
            XenEvent::Switch { prev, next } => self.leaving.borrow_mut()[cpu.index()] = Some((prev, next)),
            XenEvent::Runstate { vcpu, old: RunState::Running, new } => {
                let leaving = &mut self.leaving.borrow_mut()[cpu.index()];
                if let Some((prev, next)) = leaving.take_if(|(prev, _)| *prev == vcpu) {
                    let (prev, next) = (self.units.get(&prev).copied(), self.units.get(&next).copied());
                    self.curr.borrow_mut()[cpu.index()] = next;
                    sink.switch(now, cpu, self.who(prev), u64::from(new != RunState::Runnable), self.who(next));
                }
            }
            _ => {}
        }
    }
}

/// A record as before patch 9, when those of switches named the domain alone.
fn unnumbered(mut event: XenEvent) -> XenEvent {
    if let XenEvent::SwitchInfPrev { vcpu, .. } | XenEvent::SwitchInfNext { vcpu, .. } = &mut event {
        vcpu.vcpu = 0;
    }
    event
}

impl Observer for Watcher {
    /// What steal time counts.
    fn runstate(&self, now: Time, cpu: CpuId, unit: UnitId, from: RunState, to: RunState) {
        let Occupant::Kernel(guest) = &self.occupants[unit.index()] else { return };
        let (vm, vcpu) = (&guest.vm, &guest.vcpu);
        match to {
            RunState::Running => {
                vcpu.book(Phase::Host, now);
                vcpu.pcpu.set(cpu);
                if let Some(since) = vcpu.lost_at.take() {
                    let ns = now - since;
                    vcpu.preempted_max.set(vcpu.preempted_max.get().max(ns));
                    vm.count_preemption(vcpu, ns);
                }
            }
            RunState::Runnable | RunState::Offline => {
                vcpu.book(Phase::Stolen, now);
                if from == RunState::Running {
                    vcpu.preemptions.set(vcpu.preemptions.get() + 1);
                    vcpu.lost_at.set(Some(now));
                }
            }
            RunState::Blocked => vcpu.book(Phase::Halted, now),
        }
    }

    fn wakes(&self, now: Time, cpu: CpuId, unit: UnitId, processor: CpuId) {
        if let (Some(sink), Some(who)) = (&self.sched, self.who(Some(unit.index()))) {
            let (mut sink, by) = (sink.borrow_mut(), self.who(self.curr.borrow()[cpu.index()]));
            sink.waking(now, cpu, by, who, processor);
            sink.wakeup(now, cpu, by, who, processor, false);
        }
    }

    fn event(&self, now: Time, cpu: CpuId, event: &XenEvent) {
        if let Some(sink) = &self.xen {
            sink.borrow_mut().event(now, cpu, &if self.switch_vcpu { *event } else { unnumbered(*event) });
        }
        if let Some(sink) = &self.sched {
            self.as_sched(&mut **sink.borrow_mut(), now, cpu, event);
        }
    }
}
