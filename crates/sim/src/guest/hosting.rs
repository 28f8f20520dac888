//! What the code of guests knows of its hypervisor, whichever that is.

use super::channel::Channel;
use crate::trace::TraceHook;
use crate::world::SimWord;
use contend_machine::Machine;
use contend_platform::{NEVER, Nanos, Platform};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

/// What hosting costs on the machine, in ns: its file's section `[virt]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VirtCosts {
    pub exit: Nanos,
    pub entry: Nanos,
    pub inject: Nanos,
    pub pause_handler: Nanos,
    pub candidate: Nanos,
    pub yield_to: Nanos,
    pub halt: Nanos,
    pub icr_write: Nanos,
    pub hypercall: Nanos,
    pub timer: Nanos,
    pub tsc_mhz: u64,
}

impl VirtCosts {
    pub fn of(machine: &Machine) -> Self {
        let v = &machine.costs.virt;
        VirtCosts {
            exit: v.exit.value,
            entry: v.entry.value,
            inject: v.inject.value,
            pause_handler: v.pause_handler.value,
            candidate: v.candidate.value,
            yield_to: v.yield_to.value,
            halt: v.halt.value,
            icr_write: v.icr_write.value,
            hypercall: v.hypercall.value,
            timer: v.timer.value,
            tsc_mhz: v.tsc_mhz.value,
        }
    }
}

/// What the guests of a run share.
pub(crate) struct Hosting {
    pub costs: VirtCosts,
    /// Do the physical CPUs run in guest mode? One word each; empty where nobody asks.
    pub modes: Rc<[SimWord]>,
    /// A new vCPU's window of pause-loop exits, in cycles; `None`: PAUSE loops do not exit.
    pub ple_window: Option<u64>,
    /// Guests see which of their vCPUs have lost their CPU.
    pub pv_preempted: bool,
    /// A guest that interrupts such a vCPU yields to it by hypercall.
    pub pv_sched_yield: bool,
    /// Who is told what vCPUs do, as long as somebody wants to know.
    hook: OnceCell<Weak<dyn TraceHook>>,
    /// Interrupts between vCPUs that arrived.
    pub ipis_delivered: Cell<u64>,
    /// Guests and host programs that the run waits for.
    unfinished: Cell<usize>,
    /// Rings that guests share.
    channels: RefCell<BTreeMap<u32, Rc<Channel>>>,
    /// vCPUs' books that did not add up at the end: errors of this program.
    pub doubts: RefCell<Vec<String>>,
}

impl Hosting {
    /// `unfinished` guests, the host's own programs counting as one, keep the run going.
    pub fn new(machine: &Machine, modes: Rc<[SimWord]>, ple_window: Option<u64>, unfinished: usize) -> Self {
        Hosting {
            costs: VirtCosts::of(machine),
            modes,
            ple_window,
            pv_preempted: false,
            pv_sched_yield: false,
            hook: OnceCell::new(),
            ipis_delivered: Cell::new(0),
            unfinished: Cell::new(unfinished),
            channels: RefCell::default(),
            doubts: RefCell::default(),
        }
    }
    /// Tell `hook` what vCPUs do from now on.
    pub fn tell(&self, hook: &Rc<dyn TraceHook>) {
        assert!(self.hook.set(Rc::downgrade(hook)).is_ok(), "guests are watched once");
    }
    /// Who is told what vCPUs do.
    #[inline]
    pub fn hook(&self) -> Option<Rc<dyn TraceHook>> {
        self.hook.get().and_then(Weak::upgrade)
    }
    /// A ring that guests share, made when it is first asked for.
    pub fn channel(&self, p: &impl Platform<Word = SimWord>, number: u32) -> Rc<Channel> {
        let mut channels = self.channels.borrow_mut();
        Rc::clone(channels.entry(number).or_insert_with(|| Rc::new(Channel::new(p, number))))
    }
    /// Cycles of the time-stamp counter in ns.
    pub fn cycles(&self, n: u64) -> Nanos {
        (n.saturating_mul(1000) / self.costs.tsc_mhz).max(1)
    }
    /// A window of pause-loop exits in ns.
    pub fn window_ns(&self, cycles: u64) -> Nanos {
        if self.ple_window.is_some() { self.cycles(cycles) } else { NEVER }
    }
    pub fn doubt(&self, text: String) {
        self.doubts.borrow_mut().push(text);
    }
    /// One of those that the run waits for has ended; was it the last?
    pub fn one_finished(&self) -> bool {
        self.unfinished.set(self.unfinished.get() - 1);
        self.unfinished.get() == 0
    }
}
