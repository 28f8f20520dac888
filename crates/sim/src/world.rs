//! The simulated world: the platform contract on the engine.

use crate::engine::Engine;
use crate::guest::{Channel, Packet};
use crate::kvm::Hypervisor;
use crate::lines::Touch;
use crate::os::Os;
use crate::program::{Op, RingEnd};
use crate::thread::Ready;
use crate::trace::Waiter;
use contend_platform::{
    Account, CpuId, Interrupts, Ipi, Line, NEVER, Nanos, Ordering, Platform, SchedEvent, SchedPlatform, SpinlockPhase,
    TaskId, Time, Trap, Work,
};
use contend_sched::kernel::{Kernel, Outside, SyscallEnd};
use contend_sched::policy::Policy;
use std::cell::{Cell, UnsafeCell};
use std::rc::Rc;
use std::task::Poll;

/// The handle on a simulated machine. One value serves all CPUs of a run: who executes is the engine's to know.
#[derive(Clone)]
pub struct Sim {
    engine: Rc<Engine>,
    trace: Option<Rc<dyn TraceHook>>,
    kvm: Option<Rc<Hypervisor>>,
}

/// What the small kernel ([`Os`]) needs of a machine besides scheduling. Physical machines are [`Sim`], virtual ones
/// [`crate::guest::Vcpu`].
pub trait World: SchedPlatform<Word = SimWord> + Sized + 'static {
    /// Make room for a task.
    fn create_task(&self, task: TaskId, working_set_kib: u32);
    /// Give a task this much to compute, booked to `account`, in ns at reference speed.
    fn set_work(&self, task: TaskId, ns: Nanos, account: Account);
    /// Report `task` from a device's interrupt at `at` on CPU `cpu`, modulo the CPUs there are. Virtual machines have no devices of their
    /// own: the calling CPU's timer.
    fn arm_device(&self, at: Time, task: TaskId, cpu: u32) {
        let _ = cpu;
        self.arm_timer(at, task);
    }
    /// Cost of one unit of `work`, in ns.
    fn work_cost(&self, work: Work) -> Nanos;
    /// What a KiB that `from` has in its caches costs `to`, in ns.
    fn refill_cost(&self, from: CpuId, to: CpuId) -> Nanos;
    /// Latency of a line that `from` has written, for `to`, in ns.
    fn line_cost(&self, from: CpuId, to: CpuId) -> Nanos;
    /// Wait for the hardware for `ns`.
    fn owe_latency(&self, ns: Nanos);
    /// The last foreground task has exited.
    fn all_exited(&self);
    /// The ring `channel`, whose `end` is the caller's kernel's; its events interrupt `cpu` (domains of a Xen host only).
    fn channel(&self, channel: u32, end: RingEnd, cpu: CpuId) -> Rc<Channel> {
        unreachable!(
            "{} end of channel {channel}, bound to CPU {cpu}: only domains of a Xen host share rings",
            end.name()
        )
    }
    /// Send an event to an end of a ring.
    fn notify(&self, channel: &Channel, to: RingEnd) {
        unreachable!("there is no channel {} to notify the {} end of", channel.number, to.name())
    }
    /// Have the hypervisor copy what another domain has granted.
    fn grant_copy(&self, packet: Packet) {
        unreachable!("nobody grants {packet:?}")
    }
    /// The physical CPU that runs the caller.
    fn physical_cpu(&self) -> CpuId {
        self.cpu()
    }
    /// A look at guarded data without cost: for reports.
    fn observe<T, R>(cell: &Self::Cell<T>, f: impl FnOnce(&T) -> R) -> R;
    /// Start a task with a stack.
    fn spawn_thread<L: Policy>(os: &Os<Self>, kernel: &Kernel<Self, L>, p: &Self, thread: Ready) {
        let _ = (os, kernel, p);
        unreachable!("{} has a stack", thread.name)
    }
    /// What a task with a stack has trapped for ([`Os`] of physical machines only).
    fn thread_op<L: Policy>(os: &Os<Self>, kernel: &Kernel<Self, L>, p: &Self, task: TaskId) -> Result<Op, SyscallEnd> {
        let _ = (os, kernel, p);
        unreachable!("{task:?} has no stack")
    }
    /// A task with a stack goes on with a call that blocked.
    fn thread_woken<L: Policy>(os: &Os<Self>, kernel: &Kernel<Self, L>, p: &Self, task: TaskId) -> SyscallEnd {
        let _ = (os, kernel, p);
        unreachable!("{task:?} has no stack")
    }
}

impl World for Sim {
    fn create_task(&self, task: TaskId, working_set_kib: u32) {
        self.engine.create_task(task, working_set_kib);
    }
    #[inline]
    fn set_work(&self, task: TaskId, ns: Nanos, account: Account) {
        self.engine.set_work(task, ns, account);
    }
    fn arm_device(&self, at: Time, task: TaskId, cpu: u32) {
        self.engine.arm_device(at, task, cpu);
    }
    #[inline]
    fn work_cost(&self, work: Work) -> Nanos {
        self.engine.work_cost(work)
    }
    fn refill_cost(&self, from: CpuId, to: CpuId) -> Nanos {
        self.engine.refill_cost(from, to)
    }
    fn line_cost(&self, from: CpuId, to: CpuId) -> Nanos {
        self.engine.line_cost(from, to)
    }
    fn owe_latency(&self, ns: Nanos) {
        self.engine.owe_latency(ns);
    }
    fn all_exited(&self) {
        if self.kvm.as_ref().is_none_or(|kvm| kvm.hosting().one_finished()) {
            self.engine.stop();
        }
    }
    #[inline]
    fn observe<T, R>(cell: &SimCell<T>, f: impl FnOnce(&T) -> R) -> R {
        cell.observe(f)
    }
    fn spawn_thread<L: Policy>(os: &Os<Self>, kernel: &Kernel<Self, L>, p: &Self, thread: Ready) {
        os.spawn_thread(kernel, p, thread);
    }
    fn thread_op<L: Policy>(os: &Os<Self>, kernel: &Kernel<Self, L>, p: &Self, task: TaskId) -> Result<Op, SyscallEnd> {
        os.serve_thread(kernel, p, task)
    }
    fn thread_woken<L: Policy>(os: &Os<Self>, kernel: &Kernel<Self, L>, p: &Self, task: TaskId) -> SyscallEnd {
        os.thread_goes_on(kernel, p, task)
    }
}

pub use crate::trace::TraceHook;

/// What ended a stretch of user code: was all done?
#[inline]
fn trap(done: bool) -> Trap {
    if done { Trap::Syscall } else { Trap::Interrupt }
}

impl Sim {
    /// A handle on `engine`.
    pub fn new(engine: Rc<Engine>, trace: Option<Rc<dyn TraceHook>>) -> Self {
        Sim { engine, trace, kvm: None }
    }
    /// It hosts guests.
    pub(crate) fn with_kvm(mut self, kvm: Rc<Hypervisor>) -> Self {
        self.kvm = Some(kvm);
        self
    }
    /// The hypervisor of a host of guests.
    pub(crate) fn kvm(&self) -> Option<&Rc<Hypervisor>> {
        self.kvm.as_ref()
    }
    /// Who is told what happens.
    pub(crate) fn hook(&self) -> Option<&Rc<dyn TraceHook>> {
        self.trace.as_ref()
    }
    /// The engine behind it.
    pub fn engine(&self) -> &Rc<Engine> {
        &self.engine
    }

    /// One visit of the running CPU ([`Engine::boot_visits`]), which is `outside` of its kernel: drive it in, through and out, until
    /// it is outside for a while. `word` is what it watches while idle, `idle_ended` and `trapped` are its kernel.
    #[inline]
    pub fn visit(
        &self,
        mut outside: Outside,
        word: &SimWord,
        idle_ended: impl Fn() -> Outside,
        trapped: impl Fn(TaskId, Trap) -> Outside,
    ) -> Outside {
        loop {
            outside = match outside {
                Outside::Idle => match self.poll_idle(word) {
                    Poll::Ready(()) => idle_ended(),
                    Poll::Pending => return outside,
                },
                Outside::User(task) => match self.engine.poll_user(task) {
                    Poll::Ready(done) => trapped(task, trap(done)),
                    Poll::Pending => return outside,
                },
            }
        }
    }

    fn poll_idle(&self, word: &SimWord) -> Poll<()> {
        let line = self.idle_polls().then_some(word.line);
        self.engine.poll_idle(line, || word.value.get() & 1 != 0)
    }

    #[inline(always)]
    fn rmw(&self, w: &SimWord, f: impl FnOnce(u64) -> u64) -> u64 {
        self.engine.access(w.line, Touch::Rmw);
        let old = w.value.get();
        self.put(w, old, f(old));
        old
    }

    #[inline]
    fn put(&self, w: &SimWord, old: u64, new: u64) {
        if old != new {
            w.value.set(new);
            self.engine.changed(w.line);
        }
    }
}

/// A word on a simulated line.
#[derive(Debug)]
pub struct SimWord {
    pub(crate) value: Cell<u64>,
    pub(crate) line: u32,
}

/// Guarded data on a simulated line.
#[derive(Debug)]
pub struct SimCell<T> {
    pub(crate) value: UnsafeCell<T>,
    pub(crate) line: u32,
}

impl SimWord {
    /// The value, without cost or effect: for reports.
    pub(crate) fn observe(&self) -> u64 {
        self.value.get()
    }
}

impl<T> SimCell<T> {
    /// A look at the data, without cost or effect: for reports, never from inside `read` or `write` of the same cell.
    pub(crate) fn observe<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: one OS thread runs the simulation, and the only mutable borrows are inside `write`'s closures, which
        // call nothing of this crate.
        f(unsafe { &*self.value.get() })
    }
}

impl Platform for Sim {
    type Word = SimWord;
    type Cell<T> = SimCell<T>;

    fn line(&self) -> Line {
        Line(self.engine.create_line())
    }
    fn word(&self, line: Line, init: u64) -> SimWord {
        SimWord { value: Cell::new(init), line: line.0 }
    }
    fn cell<T>(&self, line: Line, init: T) -> SimCell<T> {
        SimCell { value: UnsafeCell::new(init), line: line.0 }
    }
    #[inline]
    fn cpu(&self) -> CpuId {
        self.engine.current()
    }
    #[inline]
    fn now(&self) -> Time {
        self.engine.now()
    }
    #[inline]
    fn preempted(&self, cpu: CpuId) -> bool {
        self.engine.preempted(cpu)
    }
    #[inline]
    fn load(&self, w: &SimWord, order: Ordering) -> u64 {
        if order == Ordering::Relaxed {
            self.engine.touch(w.line, Touch::Read);
        } else {
            self.engine.access(w.line, Touch::Read);
        }
        w.value.get()
    }
    #[inline]
    fn load_many<const N: usize>(&self, words: [&SimWord; N]) -> [u64; N] {
        // Loops: `map` on arrays stays a call for each element.
        let (mut lines, mut values) = ([0; N], [0; N]);
        std::iter::zip(&mut lines, words).for_each(|(line, w)| *line = w.line);
        self.engine.access_many(lines);
        std::iter::zip(&mut values, words).for_each(|(value, w)| *value = w.value.get());
        values
    }
    #[inline]
    fn load_more<const N: usize>(&self, words: [&SimWord; N]) -> [u64; N] {
        let (mut lines, mut values) = ([0; N], [0; N]);
        std::iter::zip(&mut lines, words).for_each(|(line, w)| *line = w.line);
        let there = self.engine.touch_copies(lines);
        for (value, w) in std::iter::zip(&mut values, words) {
            if !there {
                self.engine.touch(w.line, Touch::Read);
            }
            *value = w.value.get();
        }
        values
    }
    #[inline]
    fn store(&self, w: &SimWord, value: u64, order: Ordering) {
        if order == Ordering::Relaxed {
            self.engine.touch(w.line, Touch::Write);
        } else {
            self.engine.access(w.line, Touch::Write);
        }
        self.put(w, w.value.get(), value);
    }
    #[inline]
    fn store_many<const N: usize>(&self, words: [&SimWord; N], values: [u64; N]) {
        let line = words[0].line;
        self.engine.touch(line, Touch::Write);
        let mut changed = false;
        for (w, v) in std::iter::zip(words, values) {
            assert_eq!(w.line, line, "the words share a line");
            changed |= w.value.replace(v) != v;
        }
        if changed {
            self.engine.changed(line);
        }
    }
    #[inline(always)]
    fn swap(&self, w: &SimWord, value: u64, _: Ordering) -> u64 {
        self.rmw(w, |_| value)
    }
    #[inline(always)]
    fn compare_exchange(&self, w: &SimWord, current: u64, new: u64, _: Ordering, _: Ordering) -> Result<u64, u64> {
        let old = self.rmw(w, |v| if v == current { new } else { v });
        if old == current { Ok(old) } else { Err(old) }
    }
    #[inline(always)]
    fn fetch_add(&self, w: &SimWord, n: u64, _: Ordering) -> u64 {
        self.rmw(w, |v| v.wrapping_add(n))
    }
    #[inline(always)]
    fn fetch_or(&self, w: &SimWord, bits: u64, _: Ordering) -> u64 {
        self.rmw(w, |v| v | bits)
    }
    #[inline(always)]
    fn fetch_and(&self, w: &SimWord, bits: u64, _: Ordering) -> u64 {
        self.rmw(w, |v| v & bits)
    }
    #[inline]
    fn fence(&self, _: Ordering) {}
    /// A kernel's: its CPUs have no cheaper pair than two fences.
    #[inline]
    fn light_fence(&self) {
        self.engine.owe(self.engine.fence_cost());
    }
    #[inline]
    fn heavy_fence(&self) -> bool {
        self.light_fence();
        true
    }

    fn wait_until<const N: usize>(
        &self,
        words: [&SimWord; N],
        budget: Option<Nanos>,
        mut done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        let deadline = budget.map_or(NEVER, |b| self.now() + b);
        loop {
            let values = words.map(|w| self.load(w, Ordering::Acquire));
            if done(values) {
                return Some(values);
            }
            if self.now() >= deadline {
                return None;
            }
            // A load may have let others run: sleep only if nothing has changed since each was read. From here to the
            // registration in `wait_on` nobody else runs.
            if std::iter::zip(words, values).all(|(w, v)| w.value.get() == v) {
                self.engine.wait_on(words.map(|w| w.line).as_slice(), deadline, words[0].line.into());
            }
        }
    }

    fn halt(&self, w: &SimWord, expected: u64) {
        self.wait_until([w], None, |[v]| v as u32 != expected as u32);
    }
    fn kick(&self, _w: &SimWord, target: CpuId) {
        self.engine.send_ipi(target, Ipi::Reschedule);
    }

    #[inline]
    fn spinlock(&self, lock: u32, phase: SpinlockPhase) {
        // That it is over is said by `lock_waited`.
        if phase == SpinlockPhase::Wait {
            self.engine.waits_for_lock(Some((lock, self.engine.now())));
        }
    }
    #[inline]
    fn lock_waited(&self, lock: u32, since: Time) {
        self.engine.waits_for_lock(None);
        if let Some(hook) = &self.trace {
            hook.waited(self.engine.now(), Waiter::Cpu(self.engine.current()), lock, since);
        }
    }

    #[inline]
    unsafe fn read<T, R>(&self, c: &SimCell<T>, f: impl FnOnce(&T) -> R) -> R {
        self.engine.touch(c.line, Touch::Read);
        // SAFETY: one OS thread runs the whole simulation, and `f` cannot suspend (contract of `read`): nobody else
        // touches the cell during the call.
        f(unsafe { &*c.value.get() })
    }
    #[inline]
    unsafe fn write<T, R>(&self, c: &SimCell<T>, f: impl FnOnce(&mut T) -> R) -> R {
        self.engine.touch(c.line, Touch::Write);
        // SAFETY: as in `read`.
        f(unsafe { &mut *c.value.get() })
    }
    #[inline]
    unsafe fn rewrite<T, R>(&self, c: &SimCell<T>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as in `read`. No charge: the line was fetched in this critical section.
        f(unsafe { &mut *c.value.get() })
    }
    #[inline]
    unsafe fn write2<A, B, R>(&self, a: &SimCell<A>, b: &SimCell<B>, f: impl FnOnce(&mut A, &mut B) -> R) -> R {
        self.engine.touch(a.line, Touch::Write);
        self.engine.touch(b.line, Touch::Write);
        // SAFETY: as in `read`; both lines have been paid for above, so nothing suspends between the two borrows, and
        // the caller promises that the cells differ.
        unsafe { f(&mut *a.value.get(), &mut *b.value.get()) }
    }

    #[inline]
    fn charge(&self, work: Work, n: u64) {
        self.engine.charge(work, n);
    }
    #[inline]
    fn enter(&self, account: Account) -> Account {
        self.engine.enter(account)
    }
}

impl SchedPlatform for Sim {
    fn nr_cpus(&self) -> usize {
        self.engine.topology().nr_cpus()
    }
    fn send_ipi(&self, target: CpuId, ipi: Ipi) {
        self.engine.send_ipi(target, ipi);
    }
    fn take_interrupts(&self) -> Interrupts {
        self.engine.take_interrupts()
    }
    #[inline]
    fn arm_timer(&self, at: Time, task: TaskId) {
        self.engine.arm_timer(at, task);
    }
    fn leave_interrupts(&self) {
        self.engine.leave_interrupts();
    }
    fn leave_idle(&self) -> Nanos {
        self.engine.leave_idle()
    }
    fn take_timer(&self) -> Option<TaskId> {
        self.engine.take_timer()
    }
    fn stop_tick(&self, stopped: bool) {
        self.engine.stop_tick(stopped);
    }
    #[inline]
    fn program_timer(&self, at: Time) {
        self.engine.program_timer(at);
    }
    #[inline]
    fn interrupt_pending(&self) -> bool {
        self.engine.irq_pending()
    }
    #[inline]
    fn run_user(&self, task: TaskId) -> Trap {
        trap(self.engine.run_user(task))
    }
    fn idle(&self, poll: &SimWord) {
        let line = self.idle_polls().then_some(poll.line);
        self.engine.idle(line, || poll.value.get() & 1 != 0);
    }
    fn idle_polls(&self) -> bool {
        self.engine.idle_polls.get()
    }
    #[inline]
    fn switch_to(&self, prev: Option<TaskId>, next: Option<TaskId>) {
        self.engine.switch_to(prev, next);
    }
    fn wakeup_placed(&self, prev: CpuId, cpu: CpuId) {
        let (topo, this) = (self.engine.topology(), self.engine.current());
        let (far, moved) = (topo.distance(this, cpu), topo.distance(prev, cpu));
        let mut o = self.engine.observed.borrow_mut();
        o.wakeups_from_waker[far] += 1;
        o.wakeups_from_prev[moved] += 1;
    }
    fn idle_search(&self, probes: u64, found: bool) {
        let mut o = self.engine.observed.borrow_mut();
        o.idle_searches += 1;
        o.idle_searches_found += u64::from(found);
        o.probes += probes;
    }
    #[inline]
    fn wakeup_latency(&self, ns: Nanos) {
        self.engine.observed.borrow_mut().wakeup_latency.saturating_record(ns);
    }
    #[inline]
    fn queue_length(&self, cpu: CpuId, n: u32) {
        self.engine.queue_length(cpu, n);
    }
    #[inline]
    fn trace(&self, event: SchedEvent) {
        if let Some(kvm) = &self.kvm {
            kvm.sched_event(self, event);
        }
        if let Some(hook) = &self.trace {
            hook.event(self.engine.now(), self.engine.current(), event);
        }
    }
}
