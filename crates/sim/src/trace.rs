//! What a run tells whoever records it: scheduling events, and what the vCPUs of guests do.
//!
//! The simulation calls a [`TraceHook`] with its own numbers; that adds the names and passes on to an [`EventSink`].
//! Without a trace nobody is called. Nothing that is told changes what is simulated.

use crate::guest::RunningGuest;
use crate::kvm::Exit;
use crate::os::Os;
use crate::world::Sim;
use contend_platform::{CpuId, SchedEvent, TaskId, Time};
use contend_sched::class::Sched;
use contend_sched::yield_to::Yielded;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// A CPU of a guest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct GuestCpu {
    /// Its guest's number in the run.
    pub guest: u16,
    /// Its own in the guest.
    pub cpu: CpuId,
}

/// What becomes of a vCPU's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VcpuPhase {
    /// It is in guest mode.
    Guest,
    /// It has left guest mode, and host code works for it.
    Exit(Exit),
    /// Host code works for it: its thread has got a CPU again.
    Host,
    /// It is runnable and has no CPU.
    Stolen,
    /// It is halted.
    Halted,
}

impl VcpuPhase {
    /// In a few words.
    pub fn name(self) -> &'static str {
        match self {
            VcpuPhase::Guest => "guest mode",
            VcpuPhase::Exit(exit) => exit.name(),
            VcpuPhase::Host => "host",
            VcpuPhase::Stolen => "runnable, no CPU",
            VcpuPhase::Halted => "halted",
        }
    }
}

/// Who waited for a spinlock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiter {
    /// A CPU of the host, in its kernel.
    Cpu(CpuId),
    /// A CPU of a guest, in the guest's kernel.
    Vcpu(GuestCpu),
}

/// Receives what happens when a trace is on.
pub trait TraceHook {
    /// Something happened on `cpu` at `now`.
    fn event(&self, now: Time, cpu: CpuId, event: SchedEvent);
    /// `waiter` has got the spinlock with this number in its kernel, for which it had to wait since `since`.
    fn waited(&self, now: Time, waiter: Waiter, lock: u32, since: Time) {
        let _ = (now, waiter, lock, since);
    }
    /// A vCPU's time is this from now on.
    fn vcpu(&self, now: Time, vcpu: GuestCpu, phase: VcpuPhase) {
        let _ = (now, vcpu, phase);
    }
    /// Something happened in a guest's kernel.
    fn guest_event(&self, now: Time, vcpu: GuestCpu, event: SchedEvent) {
        let _ = (now, vcpu, event);
    }
    /// A vCPU has asked for a directed yield to another of its guest.
    fn yield_to(&self, now: Time, from: GuestCpu, to: CpuId, end: Yielded) {
        let _ = (now, from, to, end);
    }
}

/// What happens, with names, as sinks get it. Those of guests need not be taken.
pub trait EventSink: 'static {
    /// A task left a CPU for another. `None`: idle.
    fn switch(&mut self, now: Time, cpu: CpuId, prev: Option<Who<'_>>, prev_state: u64, next: Option<Who<'_>>);
    /// A waker (`by`) has begun to wake a task.
    fn waking(&mut self, now: Time, cpu: CpuId, by: Option<Who<'_>>, task: Who<'_>, target: CpuId);
    /// A task is on a run queue.
    fn wakeup(&mut self, now: Time, cpu: CpuId, by: Option<Who<'_>>, task: Who<'_>, target: CpuId, new: bool);
    /// A task moves.
    fn migrate(&mut self, now: Time, cpu: CpuId, by: Option<Who<'_>>, task: Who<'_>, from: CpuId, to: CpuId);
    /// The run is over; write out what is held back.
    ///
    /// # Errors
    /// Those of writing, now or at any time before.
    fn finish(&mut self, now: Time) -> std::io::Result<()>;

    /// A CPU begins to serve interrupts (true), or has served them: what it tells in between is not its task's doing. Told
    /// for each CPU as the run begins, if it is told at all.
    fn interrupt(&mut self, now: Time, cpu: CpuId, begin: bool) {
        let _ = (now, cpu, begin);
    }
    /// The run has these guests: number, name, how many vCPUs. Told once, before anything happens, if there are any.
    fn guests(&mut self, guests: &[(u16, &str, usize)]) {
        let _ = guests;
    }
    /// A spinlock was waited for from `since` to `now`.
    fn waited(&mut self, now: Time, waiter: Waiter, lock: &str, since: Time) {
        let _ = (now, waiter, lock, since);
    }
    /// A vCPU's time is this from now on.
    fn vcpu(&mut self, now: Time, vcpu: GuestCpu, phase: VcpuPhase) {
        let _ = (now, vcpu, phase);
    }
    /// A guest's CPU goes on with this task of the guest. `None`: idle.
    fn guest_switch(&mut self, now: Time, vcpu: GuestCpu, next: Option<Who<'_>>) {
        let _ = (now, vcpu, next);
    }
    /// A guest's task (`by`; `None`: an interrupt, or nobody) has begun to wake another.
    fn guest_waking(&mut self, now: Time, vcpu: GuestCpu, by: Option<Who<'_>>, task: Who<'_>) {
        let _ = (now, vcpu, by, task);
    }
    /// A vCPU has asked for a directed yield to another of its guest.
    fn yield_to(&mut self, now: Time, from: GuestCpu, to: CpuId, end: Yielded) {
        let _ = (now, from, to, end);
    }
}

/// A task as events name it.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// Number in order of creation.
    pub id: u64,
    /// Name.
    pub name: &'a str,
    /// Nice value.
    pub sched: Sched,
}

/// Calls back with what tasks are called: a kernel, whatever its policy.
pub(crate) trait Names {
    /// Name of a task: as [`Os::identify`].
    fn identify(&self, task: TaskId, f: &mut dyn FnMut(u64, &str, Sched));
    /// Names of its spinlocks, by their numbers.
    fn locks(&self) -> Vec<(u32, String)>;
}

/// A sink that several tell.
pub(crate) type SharedSink = Rc<RefCell<Box<dyn EventSink>>>;

/// Adds the names to what guests do, and passes on to a sink.
pub(crate) struct GuestNamer {
    sink: SharedSink,
    guests: RefCell<HashMap<u16, Introduced>>,
    /// Who runs on each CPU.
    curr: RefCell<HashMap<GuestCpu, TaskId>>,
    /// CPUs that serve interrupts.
    interrupted: RefCell<HashSet<GuestCpu>>,
    over: Cell<bool>,
}

/// A guest whose names are known.
struct Introduced {
    guest: Rc<dyn RunningGuest>,
    locks: HashMap<u32, String>,
}

impl GuestNamer {
    pub fn new(sink: SharedSink) -> Self {
        GuestNamer {
            sink,
            guests: RefCell::default(),
            curr: RefCell::default(),
            interrupted: RefCell::default(),
            over: Cell::new(false),
        }
    }

    /// These are the run's guests.
    pub fn introduce(&self, guests: &[Rc<dyn RunningGuest>]) {
        if guests.is_empty() {
            return;
        }
        let told: Vec<_> = guests.iter().map(|guest| (guest.number(), guest.name(), guest.vcpus())).collect();
        self.sink.borrow_mut().guests(&told);
        let introduced = |guest: &Rc<dyn RunningGuest>| {
            let locks = guest.locks().into_iter().collect();
            (guest.number(), Introduced { guest: Rc::clone(guest), locks })
        };
        *self.guests.borrow_mut() = guests.iter().map(introduced).collect();
    }

    /// The run is over: let go of it.
    pub fn let_go(&self) {
        self.over.set(true);
        self.guests.borrow_mut().clear();
    }

    /// Calls `f` with the task that runs on a guest's CPU, and with `task`.
    fn tasks(&self, vcpu: GuestCpu, task: Option<TaskId>, f: &mut dyn FnMut(Option<Who<'_>>, Option<Who<'_>>)) {
        let guests = self.guests.borrow();
        let Some(Introduced { guest, .. }) = guests.get(&vcpu.guest) else { return };
        let by = self.curr.borrow().get(&vcpu).copied();
        let mut with_by = |by: Option<Who<'_>>| match task {
            None => f(by, None),
            Some(task) => guest.identify(task, &mut |id, name, sched| f(by, Some(Who { id, name, sched }))),
        };
        match by {
            None => with_by(None),
            Some(by) => guest.identify(by, &mut |id, name, sched| with_by(Some(Who { id, name, sched }))),
        }
    }
}

impl TraceHook for GuestNamer {
    /// The host's events are others' to tell.
    fn event(&self, _: Time, _: CpuId, _: SchedEvent) {}

    fn waited(&self, now: Time, waiter: Waiter, lock: u32, since: Time) {
        let Waiter::Vcpu(vcpu) = waiter else { return };
        if let Some(guest) = self.guests.borrow().get(&vcpu.guest) {
            let name = guest.locks.get(&lock).map_or("a spinlock", String::as_str);
            self.sink.borrow_mut().waited(now, waiter, name, since);
        }
    }

    fn vcpu(&self, now: Time, vcpu: GuestCpu, phase: VcpuPhase) {
        if !self.over.get() {
            self.sink.borrow_mut().vcpu(now, vcpu, phase);
        }
    }

    fn guest_event(&self, now: Time, vcpu: GuestCpu, event: SchedEvent) {
        match event {
            SchedEvent::Switch { next, .. } => {
                match next {
                    Some(next) => drop(self.curr.borrow_mut().insert(vcpu, next)),
                    None => drop(self.curr.borrow_mut().remove(&vcpu)),
                }
                self.tasks(vcpu, next, &mut |_, next| self.sink.borrow_mut().guest_switch(now, vcpu, next));
            }
            SchedEvent::Waking { task, .. } => self.tasks(vcpu, Some(task), &mut |by, task| {
                let by = by.filter(|_| !self.interrupted.borrow().contains(&vcpu));
                task.into_iter().for_each(|task| self.sink.borrow_mut().guest_waking(now, vcpu, by, task));
            }),
            SchedEvent::Interrupt { begin: true } => drop(self.interrupted.borrow_mut().insert(vcpu)),
            SchedEvent::Interrupt { begin: false } => drop(self.interrupted.borrow_mut().remove(&vcpu)),
            SchedEvent::Wakeup { .. } | SchedEvent::Migrate { .. } => {}
        }
    }

    fn yield_to(&self, now: Time, from: GuestCpu, to: CpuId, end: Yielded) {
        if !self.over.get() {
            self.sink.borrow_mut().yield_to(now, from, to, end);
        }
    }
}

/// Adds the names to what a Linux host and its guests do, and passes on to a sink.
pub(crate) struct Namer {
    os: RefCell<Option<Rc<Os<Sim>>>>,
    locks: RefCell<HashMap<u32, String>>,
    sink: SharedSink,
    guests: GuestNamer,
    /// Who runs on each CPU.
    curr: RefCell<Vec<Option<TaskId>>>,
}

impl Namer {
    pub fn new(sink: Box<dyn EventSink>, cpus: usize) -> Self {
        let sink = Rc::new(RefCell::new(sink));
        let guests = GuestNamer::new(Rc::clone(&sink));
        let curr = RefCell::new(vec![None; cpus]);
        Namer { os: RefCell::default(), locks: RefCell::default(), sink, guests, curr }
    }

    /// Who is who from now on. `locks`: names of the host's spinlocks.
    pub fn introduce(&self, os: &Rc<Os<Sim>>, locks: Vec<(u32, String)>, guests: &[Rc<dyn RunningGuest>]) {
        *self.os.borrow_mut() = Some(Rc::clone(os));
        *self.locks.borrow_mut() = locks.into_iter().collect();
        let cpus = self.curr.borrow().len();
        (0..cpus).for_each(|cpu| self.sink.borrow_mut().interrupt(0, CpuId(cpu as u16), false));
        self.guests.introduce(guests);
    }

    /// The run is over: let go of it, and write out what is held back.
    pub fn finish(&self, now: Time) -> std::io::Result<()> {
        *self.os.borrow_mut() = None;
        self.guests.let_go();
        self.sink.borrow_mut().finish(now)
    }

    fn named<R>(os: &Os<Sim>, task: Option<TaskId>, f: impl FnOnce(Option<Who<'_>>) -> R) -> R {
        let Some(task) = task else { return f(None) };
        let mut f = Some(f);
        let mut out = None;
        os.identify(task, |id, name, sched| {
            out = f.take().map(|f| f(Some(Who { id, name, sched })));
        });
        out.expect("identify calls back once")
    }
}

impl TraceHook for Namer {
    fn event(&self, now: Time, cpu: CpuId, event: SchedEvent) {
        let os = self.os.borrow();
        let Some(os) = os.as_ref() else { return };
        let mut sink = self.sink.borrow_mut();
        let by = self.curr.borrow()[cpu.index()];
        match event {
            SchedEvent::Switch { prev, prev_state, next } => {
                self.curr.borrow_mut()[cpu.index()] = next;
                Self::named(os, prev, |prev| {
                    Self::named(os, next, |next| sink.switch(now, cpu, prev, prev_state, next));
                });
            }
            SchedEvent::Waking { task, target } => Self::named(os, by, |by| {
                Self::named(os, Some(task), |t| t.into_iter().for_each(|t| sink.waking(now, cpu, by, t, target)));
            }),
            SchedEvent::Wakeup { task, target, new } => Self::named(os, by, |by| {
                Self::named(os, Some(task), |t| t.into_iter().for_each(|t| sink.wakeup(now, cpu, by, t, target, new)));
            }),
            SchedEvent::Interrupt { begin } => sink.interrupt(now, cpu, begin),
            SchedEvent::Migrate { task, from, to } => Self::named(os, by, |by| {
                Self::named(os, Some(task), |t| t.into_iter().for_each(|t| sink.migrate(now, cpu, by, t, from, to)));
            }),
        }
    }

    fn waited(&self, now: Time, waiter: Waiter, lock: u32, since: Time) {
        if matches!(waiter, Waiter::Vcpu(_)) {
            self.guests.waited(now, waiter, lock, since);
        } else if self.os.borrow().is_some() {
            let locks = self.locks.borrow();
            let name = locks.get(&lock).map_or("a spinlock", String::as_str);
            self.sink.borrow_mut().waited(now, waiter, name, since);
        }
    }

    fn vcpu(&self, now: Time, vcpu: GuestCpu, phase: VcpuPhase) {
        self.guests.vcpu(now, vcpu, phase);
    }

    fn guest_event(&self, now: Time, vcpu: GuestCpu, event: SchedEvent) {
        self.guests.guest_event(now, vcpu, event);
    }

    fn yield_to(&self, now: Time, from: GuestCpu, to: CpuId, end: Yielded) {
        self.guests.yield_to(now, from, to, end);
    }
}
