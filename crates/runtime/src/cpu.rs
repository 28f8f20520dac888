//! A CPU: an OS thread, the word by which others interrupt it, its tick and its sleep timers.
//!
//! The word `pending` holds what has come for the CPU and whether it sleeps:
//!
//! ```text
//! send      pending: p -> p | kind      release; if p had SLEEPING: futex wake
//! idle      pending: p -> p | SLEEPING  acquire; if p had anything else: do not sleep
//!           futex wait while pending == SLEEPING, at most until the next timer
//!           pending: p -> p & !SLEEPING
//! handler   pending: p -> p & !kinds    acquire; what the senders wrote is seen
//! ```
//!
//! No interrupt is lost: the sender's bit is either there before the sleeper compares, in `idle` or in the kernel's futex
//! compare, or it comes after SLEEPING and the sender wakes.

use crate::fiber::Fibers;
use crate::task::{Request, Resumed};
use contend_platform::Ordering::{AcqRel, Acquire, Relaxed};
use contend_platform::native::{Native, NativeCell, futex_wait, futex_wake};
use contend_platform::{
    CpuId, Interrupts, Ipi, Line, NEVER, Nanos, Ordering, Padded, Platform, SchedPlatform, TaskId, Time, Trap,
};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Interrupt kinds: [`Ipi::bit`].
const KINDS: u64 = (1 << Ipi::ALL.len()) - 1;
/// The CPU sleeps, or is about to, and wants a futex wake.
const SLEEPING: u64 = 1 << 8;
/// The machine is to stop; cleared at the next start.
const STOP: u64 = 1 << 9;
/// Looks of a polling idle CPU before it begins to yield its core.
const POLLS_BEFORE_YIELD: u32 = 1 << 10;

/// Events on one CPU, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCounts {
    /// Interrupts sent by this CPU, by [`Ipi`].
    pub ipis_sent: [u64; Ipi::ALL.len()],
    /// Ticks taken.
    pub ticks: u64,
    /// Switches to another task or to idle.
    pub switches: u64,
    /// Wake-ups by this CPU that it placed elsewhere.
    pub wakeups_remote: u64,
    /// Wake-ups by this CPU that moved the task between CPUs.
    pub wakeups_moved: u64,
    /// Sleeps in the futex.
    pub sleeps: u64,
}

/// What other CPUs reach of a CPU.
#[derive(Default)]
pub(crate) struct Port {
    pending: AtomicU64,
}

/// What the CPUs of a machine share below the kernel.
pub(crate) struct World {
    epoch: Instant,
    ports: Box<[Padded<Port>]>,
    pub(crate) fibers: Fibers,
    tick_ns: Nanos,
    idle_polls: bool,
    /// The first panic of a task or of a CPU.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl World {
    pub(crate) fn new(cpus: usize, tick_ns: Nanos, idle_polls: bool) -> Self {
        World {
            epoch: Instant::now(),
            ports: (0..cpus).map(|_| Padded::default()).collect(),
            fibers: Fibers::default(),
            tick_ns,
            idle_polls,
            panic: Mutex::default(),
        }
    }
    fn port(&self, cpu: CpuId) -> &AtomicU64 {
        &self.ports[cpu.index()].0.pending
    }
    /// Time since the start in ns.
    pub(crate) fn now(&self) -> Time {
        self.epoch.elapsed().as_nanos() as Time
    }
    /// Has something come for `cpu`? The clock is not asked.
    #[inline]
    pub(crate) fn wanted(&self, cpu: CpuId) -> bool {
        self.port(cpu).load(Relaxed) & (KINDS | STOP) != 0
    }
    fn interrupt(&self, cpu: CpuId, bits: u64) {
        let old = self.port(cpu).fetch_or(bits, AcqRel);
        if old & SLEEPING != 0 && old & bits != bits {
            futex_wake(self.port(cpu), 1);
        }
    }
    /// Before the CPUs start.
    pub(crate) fn restart(&self) {
        self.ports.iter().for_each(|port| port.0.pending.store(0, Relaxed));
    }
    /// All CPUs leave their loops at the next point where they can.
    pub(crate) fn stop(&self) {
        (0..self.ports.len()).for_each(|cpu| self.interrupt(CpuId(cpu as u16), STOP));
    }
    /// Stop because of a panic; the first one is kept for the caller of the run.
    pub(crate) fn panicked(&self, payload: Box<dyn Any + Send>) {
        self.panic.lock().expect("no panic while held").get_or_insert(payload);
        self.stop();
    }
    pub(crate) fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        self.panic.lock().expect("no panic while held").take()
    }
}

/// The handle of the OS thread that plays a CPU.
pub struct NativeCpu {
    native: Native,
    world: Arc<World>,
    /// Next tick; NEVER while it is stopped.
    tick_at: Cell<Time>,
    timers: RefCell<BinaryHeap<Reverse<(Time, TaskId)>>>,
    /// What the task asked for that trapped last.
    request: RefCell<Option<Request>>,
    counts: Cell<CpuCounts>,
}

impl NativeCpu {
    /// # Safety
    /// As [`Native::new`] says, for handles of the same world.
    pub(crate) unsafe fn new(cpu: CpuId, world: Arc<World>) -> Self {
        NativeCpu {
            // SAFETY: passed on from the caller.
            native: unsafe { Native::new(cpu, world.epoch) },
            world,
            tick_at: Cell::new(NEVER),
            timers: RefCell::default(),
            request: RefCell::default(),
            counts: Cell::default(),
        }
    }
    pub(crate) fn world(&self) -> &World {
        &self.world
    }
    /// Counts so far.
    pub fn counts(&self) -> CpuCounts {
        self.counts.get()
    }
    fn count(&self, f: impl FnOnce(&mut CpuCounts)) {
        let mut counts = self.counts.get();
        f(&mut counts);
        self.counts.set(counts);
    }
    /// The request behind the last [`Trap::Syscall`].
    pub(crate) fn take_request(&self) -> Request {
        self.request.take().expect("a task trapped")
    }
    pub(crate) fn stopped(&self) -> bool {
        self.world.port(self.cpu()).load(Acquire) & STOP != 0
    }
    fn timer_at(&self) -> Time {
        self.timers.borrow().peek().map_or(NEVER, |Reverse((at, _))| *at)
    }
    /// When the clock interrupts next.
    fn alarm(&self) -> Time {
        self.tick_at.get().min(self.timer_at())
    }
}

impl Platform for NativeCpu {
    type Word = AtomicU64;
    type Cell<T> = NativeCell<T>;

    fn line(&self) -> Line {
        self.native.line()
    }
    fn word(&self, line: Line, init: u64) -> AtomicU64 {
        self.native.word(line, init)
    }
    fn cell<T>(&self, line: Line, init: T) -> NativeCell<T> {
        self.native.cell(line, init)
    }
    #[inline]
    fn cpu(&self) -> CpuId {
        self.native.cpu()
    }
    #[inline]
    fn now(&self) -> Time {
        self.native.now()
    }
    #[inline]
    fn load(&self, w: &AtomicU64, order: Ordering) -> u64 {
        self.native.load(w, order)
    }
    #[inline]
    fn store(&self, w: &AtomicU64, value: u64, order: Ordering) {
        self.native.store(w, value, order);
    }
    #[inline]
    fn swap(&self, w: &AtomicU64, value: u64, order: Ordering) -> u64 {
        self.native.swap(w, value, order)
    }
    #[inline]
    fn compare_exchange(&self, w: &AtomicU64, c: u64, n: u64, s: Ordering, f: Ordering) -> Result<u64, u64> {
        self.native.compare_exchange(w, c, n, s, f)
    }
    #[inline]
    fn fetch_add(&self, w: &AtomicU64, n: u64, order: Ordering) -> u64 {
        self.native.fetch_add(w, n, order)
    }
    #[inline]
    fn fetch_or(&self, w: &AtomicU64, bits: u64, order: Ordering) -> u64 {
        self.native.fetch_or(w, bits, order)
    }
    #[inline]
    fn fetch_and(&self, w: &AtomicU64, bits: u64, order: Ordering) -> u64 {
        self.native.fetch_and(w, bits, order)
    }
    #[inline]
    fn fence(&self, order: Ordering) {
        self.native.fence(order);
    }
    #[inline]
    fn wait_until<const N: usize>(
        &self,
        words: [&AtomicU64; N],
        budget: Option<Nanos>,
        done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        self.native.wait_until(words, budget, done)
    }
    fn halt(&self, w: &AtomicU64, expected: u64) {
        self.native.halt(w, expected);
    }
    fn kick(&self, w: &AtomicU64, target: CpuId) {
        self.native.kick(w, target);
    }
    #[inline]
    unsafe fn read<T, R>(&self, c: &NativeCell<T>, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: passed on from the caller.
        unsafe { self.native.read(c, f) }
    }
    #[inline]
    unsafe fn write<T, R>(&self, c: &NativeCell<T>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: passed on from the caller.
        unsafe { self.native.write(c, f) }
    }
}

impl SchedPlatform for NativeCpu {
    fn nr_cpus(&self) -> usize {
        self.world.ports.len()
    }
    fn send_ipi(&self, target: CpuId, ipi: Ipi) {
        self.count(|c| c.ipis_sent[ipi as usize] += 1);
        self.world.interrupt(target, ipi.bit());
    }
    fn take_interrupts(&self) -> Interrupts {
        let ipis = self.world.port(self.cpu()).fetch_and(!KINDS, AcqRel) & KINDS;
        let now = self.now();
        let tick = self.tick_at.get() <= now;
        if tick {
            self.count(|c| c.ticks += 1);
            // Ticks that were missed are one tick.
            self.tick_at.set(now + self.world.tick_ns);
        }
        Interrupts { ipis, tick, timers: self.timer_at() <= now, deadline: false }
    }
    fn arm_timer(&self, at: Time, task: TaskId) {
        self.timers.borrow_mut().push(Reverse((at, task)));
    }
    fn take_timer(&self) -> Option<TaskId> {
        if self.timer_at() > self.now() {
            return None;
        }
        self.timers.borrow_mut().pop().map(|Reverse((_, task))| task)
    }
    fn stop_tick(&self, stopped: bool) {
        self.tick_at.set(if stopped { NEVER } else { self.now() + self.world.tick_ns });
    }
    fn interrupt_pending(&self) -> bool {
        self.world.port(self.cpu()).load(Relaxed) & KINDS != 0 || self.alarm() <= self.now()
    }
    fn run_user(&self, task: TaskId) -> Trap {
        if self.interrupt_pending() || self.stopped() {
            return Trap::Interrupt;
        }
        let on = Resumed { cpu: self.cpu(), alarm: self.alarm() };
        // SAFETY: the kernel calls this with the task that it has chosen for this CPU, whose `on_cpu` it holds until the
        // switch away from it is over.
        match unsafe { self.world.fibers.resume(task, on) } {
            Ok(Request::Checkpoint) => Trap::Interrupt,
            Ok(request) => {
                self.request.replace(Some(request));
                Trap::Syscall
            }
            Err(payload) => {
                self.world.panicked(payload);
                self.request.replace(Some(Request::Exit));
                Trap::Syscall
            }
        }
    }
    fn idle(&self, poll: &AtomicU64) {
        let port = self.world.port(self.cpu());
        let told = || poll.load(Acquire) & 1 != 0;
        if self.world.idle_polls {
            let mut looks = 0u32;
            while port.load(Acquire) & (KINDS | STOP) == 0 && !told() && self.alarm() > self.now() {
                looks = looks.saturating_add(1);
                if looks > POLLS_BEFORE_YIELD {
                    std::thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
            }
            return;
        }
        if told() {
            return;
        }
        let alarm = self.alarm();
        let now = self.now();
        if alarm > now && port.fetch_or(SLEEPING, AcqRel) == 0 {
            self.count(|c| c.sleeps += 1);
            let timeout = (alarm != NEVER).then(|| Duration::from_nanos(alarm - now));
            futex_wait(port, SLEEPING as u32, timeout);
        }
        port.fetch_and(!SLEEPING, AcqRel);
    }
    fn idle_polls(&self) -> bool {
        self.world.idle_polls
    }
    fn switch_to(&self, prev: Option<TaskId>, next: Option<TaskId>) {
        if prev != next {
            self.count(|c| c.switches += 1);
        }
    }
    fn wakeup_placed(&self, prev: CpuId, cpu: CpuId) {
        self.count(|c| {
            c.wakeups_remote += u64::from(cpu != self.cpu());
            c.wakeups_moved += u64::from(cpu != prev);
        });
    }
}
