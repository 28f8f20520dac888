//! [`Vcpu`]: the handle of a guest kernel's code on its virtual CPU.
//!
//! Kernel code of a guest runs with the guest's interrupts off; the host's come at any access and in the middle of computing.

use super::channel::{Channel, Packet};
use super::state::{KICK, VcpuState};
use super::vm::{GuestWork, Vm};
use crate::engine::{FULL_SPEED, first_tick, next_tick};
use crate::kvm::{Exit, VcpuCall};
use crate::program::RingEnd;
use crate::thread::{Call, Spin, Thread};
use crate::trace::Waiter;
use crate::world::{SimCell, SimWord, World};
use contend_platform::Ordering::Acquire;
use contend_platform::{
    Account, CpuId, Interrupts, Ipi, Line, LockEvent, NEVER, Nanos, Ordering, Platform, SchedEvent, SchedPlatform,
    SpinlockPhase, TaskId, Time, Trap, Work,
};
use std::cmp::Reverse;
use std::rc::Rc;

/// A guest kernel's handle on the virtual CPU that runs it.
pub struct Vcpu {
    thread: Thread,
    state: Rc<VcpuState>,
    vm: Rc<Vm>,
}

impl AsRef<Thread> for Vcpu {
    fn as_ref(&self) -> &Thread {
        &self.thread
    }
}

impl Vcpu {
    pub(crate) fn new(thread: Thread, vm: Rc<Vm>, number: CpuId) -> Self {
        let state = Rc::clone(vm.vcpu(number));
        Vcpu { thread, state, vm }
    }

    /// The thread's code begins: into guest mode.
    pub(crate) fn start(&self) {
        self.state.enter_guest(&self.thread);
    }

    fn exit(&self, exit: Exit, call: VcpuCall) {
        self.state.count_exit(exit);
        self.thread.enter_kernel(Call::Vcpu(call));
    }

    /// The next timer of this vCPU has changed: a write to the timer's register, which exits.
    fn timer_armed(&self) {
        self.state.quick_exit(&self.thread, Exit::Timer, self.state.virt().timer);
    }

    /// The guest's next timer has come due while it ran: the host's timer interrupts it.
    fn timer_exit(&self) {
        let ns = self.thread.engine().irq_cost() + self.thread.engine().work_cost(Work::Timer);
        self.state.quick_exit(&self.thread, Exit::PreemptionTimer, ns);
    }

    /// Caches that a task fills again on another physical CPU, in 1/1024 ns.
    fn refill_on(&self, work: &mut GuestWork) {
        let engine = self.thread.engine();
        let here = engine.current();
        let from = std::mem::replace(&mut work.pcpu, here.0);
        if from != here.0 && from != u16::MAX && work.working_set_kib > 0 {
            work.refill = engine.refill_work(CpuId(from), here, work.working_set_kib);
        }
    }

    /// Run `work`, booked to `account`, until it is done, or one of the guest's interrupts is due; returns what is left.
    fn stretch(&self, mut work: u64, account: Account) -> u64 {
        let before = self.enter(account);
        loop {
            self.thread.point();
            if work == 0 || self.state.irq_due(self.now()) {
                break;
            }
            let host = self.state.host_account();
            work = self.compute(work, account, host);
            if self.thread.engine().is_over() {
                break;
            }
            if work > 0 && self.state.timer_at() <= self.now() && !self.thread.engine().irq_pending() {
                self.timer_exit();
            }
        }
        self.enter(before);
        work
    }

    /// Compute `work` on the physical CPU of now, until an interrupt or the guest's timer; returns what is left.
    fn compute(&self, work: u64, account: Account, host: Account) -> u64 {
        let engine = self.thread.engine();
        // Filling caches costs what it does from where the data was; all else waits for the guest's memory.
        match self.vm.slowdown.as_ref().filter(|_| account != Account::ColdCache) {
            None => engine.compute_user(work, host, self.state.timer_at()),
            Some(slowdown) => {
                // The vCPU changes its physical CPU only between such stretches.
                let pcpu = engine.current();
                let left = engine.compute_user(slowdown.there(work, pcpu), host, self.state.timer_at());
                slowdown.back(left, pcpu)
            }
        }
    }

    /// PAUSE loops exit after this long, in ns; [`NEVER`]: they do not.
    fn window(&self) -> Nanos {
        self.vm.hosting.window_ns(self.state.ple_window.get())
    }
}

impl Platform for Vcpu {
    type Word = SimWord;
    type Cell<T> = SimCell<T>;

    fn line(&self) -> Line {
        self.thread.line()
    }
    fn word(&self, line: Line, init: u64) -> SimWord {
        self.thread.word(line, init)
    }
    fn cell<T>(&self, line: Line, init: T) -> SimCell<T> {
        self.thread.cell(line, init)
    }
    /// The virtual CPU's number.
    #[inline]
    fn cpu(&self) -> CpuId {
        self.state.number
    }
    /// Guests read the clock without an exit.
    #[inline]
    fn now(&self) -> Time {
        self.thread.time()
    }
    #[inline]
    fn load(&self, w: &SimWord, order: Ordering) -> u64 {
        self.thread.load(w, order)
    }
    #[inline]
    fn store(&self, w: &SimWord, value: u64, order: Ordering) {
        self.thread.store(w, value, order);
    }
    #[inline]
    fn swap(&self, w: &SimWord, value: u64, order: Ordering) -> u64 {
        self.thread.swap(w, value, order)
    }
    #[inline]
    fn compare_exchange(&self, w: &SimWord, c: u64, n: u64, s: Ordering, f: Ordering) -> Result<u64, u64> {
        self.thread.compare_exchange(w, c, n, s, f)
    }
    #[inline]
    fn fetch_add(&self, w: &SimWord, n: u64, order: Ordering) -> u64 {
        self.thread.fetch_add(w, n, order)
    }
    #[inline]
    fn fetch_or(&self, w: &SimWord, bits: u64, order: Ordering) -> u64 {
        self.thread.fetch_or(w, bits, order)
    }
    #[inline]
    fn fetch_and(&self, w: &SimWord, bits: u64, order: Ordering) -> u64 {
        self.thread.fetch_and(w, bits, order)
    }
    #[inline]
    fn fence(&self, _: Ordering) {}
    /// A kernel's, as on bare CPUs.
    #[inline]
    fn light_fence(&self) {
        self.thread.compute(self.thread.fence_cost());
    }
    #[inline]
    fn heavy_fence(&self) -> bool {
        self.light_fence();
        true
    }

    /// A PAUSE loop: exits when it has lasted for ple_window. A budget counts the loop's own time, in guest mode.
    fn wait_until<const N: usize>(
        &self,
        words: [&SimWord; N],
        budget: Option<Nanos>,
        mut done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        let mut values = self.thread.look(words);
        if done(values) {
            return Some(values);
        }
        let engine = self.thread.engine();
        let budget = budget.map_or(NEVER, |b| self.state.guest_time(self.now()).saturating_add(b));
        let spin = Spin { since: self.now(), line: words[0].line, bounded: budget != NEVER };
        self.thread.state().spins.set(Some(spin));
        let mut loop_since = self.now();
        let mut exits = self.state.exits_sum.get();
        let found = loop {
            if engine.is_over() {
                break (budget == NEVER).then_some(values);
            }
            if self.state.exits_sum.get() != exits {
                // The loop was left: the hardware begins to count anew.
                exits = self.state.exits_sum.get();
                loop_since = self.now();
            }
            let now = self.now();
            let left = budget.saturating_sub(self.state.guest_time(now));
            if left == 0 {
                break None;
            }
            let exits_at = loop_since.saturating_add(self.window());
            if now >= exits_at {
                self.exit(Exit::Pause, VcpuCall::Pause);
                continue;
            }
            // What was owed is paid first, which lets others run: only then is it true that nothing has changed.
            engine.settle_user();
            if std::iter::zip(words, values).all(|(w, v)| w.observe() == v) {
                engine.spin_user(&words.map(|w| w.line), now.saturating_add(left).min(exits_at));
            }
            values = self.thread.look(words);
            if done(values) {
                break Some(values);
            }
        };
        self.thread.state().spins.set(None);
        found
    }

    /// kvm_wait: look once more, then halt until a kick. The hypervisor latches kicks.
    fn halt(&self, w: &SimWord, expected: u64) {
        if self.load(w, Acquire) as u32 == expected as u32 {
            self.exit(Exit::Hlt, VcpuCall::Halt { interrupts: false });
        }
    }
    /// A hypercall that names the virtual CPU.
    fn kick(&self, _w: &SimWord, target: CpuId) {
        self.exit(Exit::Vmcall, VcpuCall::Kick { target });
    }
    /// vcpu_is_preempted: a byte that the host writes.
    fn preempted(&self, cpu: CpuId) -> bool {
        self.vm.hosting.pv_preempted && self.load(&self.vm.vcpu(cpu).preempted, Ordering::Relaxed) != 0
    }
    #[inline]
    fn lock_clock(&self) -> Time {
        self.thread.time()
    }
    fn lock_event(&self, event: LockEvent, n: u64) {
        self.vm.lock_events.add(self.now(), event, n);
    }
    fn spinlock(&self, lock: u32, phase: SpinlockPhase) {
        match phase {
            SpinlockPhase::Wait => self.state.waiting.set(Some((lock, self.now()))),
            SpinlockPhase::Held => {
                self.state.waiting.set(None);
                self.state.holding.borrow_mut().push(lock);
            }
            SpinlockPhase::Released => {
                let mut held = self.state.holding.borrow_mut();
                // A run-queue lock may be released by another stretch of code than took it; on the same vCPU.
                if let Some(at) = held.iter().rposition(|l| *l == lock) {
                    held.remove(at);
                }
            }
        }
    }

    fn lock_waited(&self, lock: u32, since: Time) {
        if let Some(hook) = self.vm.hosting.hook() {
            hook.waited(self.now(), Waiter::Vcpu(self.state.name()), lock, since);
        }
    }

    #[inline]
    unsafe fn read<T, R>(&self, c: &SimCell<T>, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: passed on from the caller.
        unsafe { self.thread.read(c, f) }
    }
    #[inline]
    unsafe fn write<T, R>(&self, c: &SimCell<T>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: passed on from the caller.
        unsafe { self.thread.write(c, f) }
    }
    #[inline]
    unsafe fn rewrite<T, R>(&self, c: &SimCell<T>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: passed on from the caller; one OS thread runs the simulation and `f` cannot suspend.
        f(unsafe { &mut *c.value.get() })
    }
    unsafe fn write2<A, B, R>(&self, a: &SimCell<A>, b: &SimCell<B>, f: impl FnOnce(&mut A, &mut B) -> R) -> R {
        // SAFETY: passed on from the caller: the closures do nothing.
        unsafe {
            self.thread.write(a, |_| ());
            self.thread.write(b, |_| ());
        }
        // SAFETY: both are guarded by the caller, who promises that they differ; nothing suspends in `f`.
        unsafe { f(&mut *a.value.get(), &mut *b.value.get()) }
    }

    #[inline]
    fn charge(&self, work: Work, n: u64) {
        self.thread.charge(work, n);
    }
    fn enter(&self, account: Account) -> Account {
        let old = self.state.enter(account, self.now());
        if old != account {
            self.thread.book_to(self.state.host_account());
        }
        old
    }
}

impl SchedPlatform for Vcpu {
    fn nr_cpus(&self) -> usize {
        self.vm.vcpus.len()
    }
    /// A write to the interrupt command register, which exits; then perhaps a pv yield.
    fn send_ipi(&self, target: CpuId, ipi: Ipi) {
        self.exit(Exit::Icr, VcpuCall::Ipi { target, bits: ipi.bit() });
        if ipi == Ipi::CallFunction && self.vm.hosting.pv_sched_yield && self.preempted(target) {
            self.exit(Exit::Vmcall, VcpuCall::Yield { target });
        }
    }
    fn arm_timer(&self, at: Time, task: TaskId) {
        let first = self.state.timer_at();
        let seq = self.vm.timer_seq.replace(self.vm.timer_seq.get() + 1);
        self.state.timers.borrow_mut().push(Reverse((at, seq, task)));
        if at < first {
            self.timer_armed();
        }
    }
    fn take_interrupts(&self) -> Interrupts {
        let now = self.now();
        if !self.state.irq_due(now) {
            return Interrupts::default();
        }
        self.thread.compute(self.thread.engine().irq_cost());
        let ipis = self.state.take_ipis(&self.thread);
        let delivered = &self.vm.hosting.ipis_delivered;
        delivered.set(delivered.get() + u64::from(ipis.count_ones()));
        let now = self.now();
        let tick = self.state.tick_at.get() <= now;
        if tick {
            self.state.tick_at.set(next_tick(self.state.tick_at.get(), now, self.vm.tick_ns));
        }
        let timers = self.state.timers.borrow().peek().is_some_and(|Reverse((at, _, _))| *at <= now);
        if tick || timers {
            self.timer_armed();
        }
        Interrupts { ipis, tick, timers, deadline: false }
    }
    fn take_timer(&self) -> Option<TaskId> {
        let mut timers = self.state.timers.borrow_mut();
        let due = matches!(timers.peek(), Some(Reverse((at, _, _))) if *at <= self.now());
        if due { timers.pop().map(|Reverse((_, _, task))| task) } else { None }
    }
    fn stop_tick(&self, stopped: bool) {
        if self.state.tick_stopped.replace(stopped) == stopped {
            return;
        }
        if stopped {
            self.state.tick_at.set(NEVER);
        } else {
            self.state.tick_at.set(first_tick(self.now(), self.cpu(), self.nr_cpus(), self.vm.tick_ns));
        }
        self.timer_armed();
    }
    fn interrupt_pending(&self) -> bool {
        self.state.irq_due(self.now())
    }
    fn run_user(&self, task: TaskId) -> Trap {
        self.thread.point();
        if self.state.irq_due(self.now()) {
            return Trap::Interrupt;
        }
        let work = self.vm.with_task(task, |w| {
            self.refill_on(w);
            *w
        });
        if work.refill > 0 {
            let left = self.stretch(work.refill, Account::ColdCache);
            self.vm.with_task(task, |w| w.refill = left);
            if left > 0 {
                return Trap::Interrupt;
            }
        }
        if work.left > 0 {
            let left = self.stretch(work.left, work.account);
            self.vm.with_task(task, |w| w.left = left);
            if left > 0 {
                return Trap::Interrupt;
            }
        }
        Trap::Syscall
    }
    /// HLT.
    fn idle(&self, poll: &SimWord) {
        self.thread.point();
        if self.state.irq_due(self.now()) || poll.observe() & 1 != 0 {
            return;
        }
        let before = self.enter(Account::Idle);
        self.exit(Exit::Hlt, VcpuCall::Halt { interrupts: true });
        self.enter(before);
    }
    fn idle_polls(&self) -> bool {
        false
    }
    fn trace(&self, event: SchedEvent) {
        if let Some(hook) = self.vm.hosting.hook() {
            hook.guest_event(self.now(), self.state.name(), event);
        }
    }
    fn switch_to(&self, prev: Option<TaskId>, next: Option<TaskId>) {
        if prev != next {
            self.thread.compute(self.thread.engine().switch_cost());
        }
    }
}

impl World for Vcpu {
    fn create_task(&self, task: TaskId, working_set_kib: u32) {
        let new = GuestWork { left: 0, account: Account::User, refill: 0, working_set_kib, pcpu: u16::MAX };
        let mut tasks = self.vm.tasks.borrow_mut();
        if tasks.len() <= task.index() {
            tasks.resize(task.index() + 1, new);
        }
        tasks[task.index()] = new;
    }
    fn set_work(&self, task: TaskId, ns: Nanos, account: Account) {
        let left = ns.checked_mul(FULL_SPEED).expect("an operation is shorter than 2^54 ns");
        self.vm.with_task(task, |w| (w.left, w.account) = (left, account));
    }
    fn work_cost(&self, work: Work) -> Nanos {
        self.thread.engine().work_cost(work)
    }
    fn refill_cost(&self, from: CpuId, _to: CpuId) -> Nanos {
        let engine = self.thread.engine();
        engine.refill_cost(self.vm.vcpu(from).pcpu.get(), engine.current())
    }
    fn line_cost(&self, from: CpuId, _to: CpuId) -> Nanos {
        let engine = self.thread.engine();
        engine.line_cost(self.vm.vcpu(from).pcpu.get(), engine.current())
    }
    fn owe_latency(&self, ns: Nanos) {
        self.thread.compute(ns);
    }
    fn channel(&self, channel: u32, end: RingEnd, cpu: CpuId) -> Rc<Channel> {
        let channel = self.vm.hosting.channel(self, channel);
        channel.bind(end, self.vm.vcpu(cpu));
        channel
    }
    /// EVTCHNOP_send.
    fn notify(&self, channel: &Channel, to: RingEnd) {
        self.exit(Exit::Vmcall, VcpuCall::Event { channel: channel.number, to });
    }
    /// GNTTABOP_copy: one hypercall; the bytes come out of the caches of whoever wrote them.
    fn grant_copy(&self, packet: Packet) {
        let engine = self.thread.engine();
        let kib = engine.work_cost(Work::CopyKib) + engine.refill_cost(packet.from, engine.current());
        let ns = self.state.virt().hypercall + (kib * u64::from(packet.bytes)).div_ceil(1024);
        self.state.quick_exit(&self.thread, Exit::Vmcall, ns);
    }
    fn physical_cpu(&self) -> CpuId {
        self.thread.engine().current()
    }
    fn all_exited(&self) {
        self.vm.finished.set(Some(self.now()));
        if !self.vm.background && self.vm.hosting.one_finished() {
            self.thread.engine().stop();
        }
    }
    fn observe<T, R>(cell: &SimCell<T>, f: impl FnOnce(&T) -> R) -> R {
        cell.observe(f)
    }
}

const _: () = assert!(KICK > 1 << Ipi::ALL.len());
