//! Threads: tasks whose user code is plain code with a stack, generic over [`Platform`], that may lose its CPU anywhere.
//!
//! [`Thread`] is the handle that a thread's code gets. The same lock source that runs natively and as kernel code in
//! [`Sim`](crate::world::Sim) runs on it in user mode: interrupts come at any access and in the middle of computing, the
//! scheduler decides when the code goes on and where, and a halt is a futex system call. `docs/internals/user-threads.md` says
//! how and why.

use crate::engine::{Code, Engine, FULL_SPEED};
use crate::guest::VcpuState;
use crate::kvm::VcpuCall;
use crate::lines::Touch;
use crate::program::{GroupId, Op};
use crate::world::{SimCell, SimWord};
use contend_platform::slices::{Clocks, Relinquish, Slice};
use contend_platform::{Account, CpuId, Line, LockEvent, NEVER, Nanos, Ordering, Parting, Platform, Time, Trap, Work};
use contend_sched::class::Sched;
use corosensei::Yielder;
use fixedbitset::FixedBitSet;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A thread's code.
pub type Body = Box<dyn FnOnce(&Thread)>;

/// Makes the threads of a run once its world exists; the handle is there to make words and cells with.
pub type Threads = Box<dyn FnOnce(&Thread) -> Vec<ThreadSpec> + Send>;

/// Stack of a thread in bytes, besides its guard page. Lock algorithms need little; a panic's message some KiB.
const STACK_BYTES: usize = 64 * 1024;

/// How much later than asked for a thread's sleep ends, in ns: Linux's default timer slack (prctl(2), `PR_SET_TIMERSLACK`), which is used up where
/// no other interrupt comes before.
const TIMER_SLACK_NS: Nanos = 50_000;

/// A thread to be.
pub struct ThreadSpec {
    /// `comm` in traces; at most 15 bytes are shown there.
    pub name: String,
    /// Its code. The thread exits when it returns.
    pub body: Body,
    /// What [`Platform::cpu`] says: the thread's slot in queues of per-thread nodes.
    pub number: u16,
    /// Class and priority.
    pub sched: Sched,
    /// Allowed CPUs (`None`: all).
    pub affinity: Option<FixedBitSet>,
    /// The thread does not keep the run alive.
    pub background: bool,
    /// Working set in KiB: what a migration must refill from farther away.
    pub working_set_kib: u32,
    /// Stack in bytes, besides a guard page.
    pub stack_bytes: usize,
    /// A wait that has spun for this long, without budget or in many pieces, yields the CPU at each further look ([`NEVER`]: it just spins).
    pub yield_after: Nanos,
}

impl ThreadSpec {
    /// An ordinary thread with no restrictions, whose waits just spin.
    pub fn new(name: impl Into<String>, number: u16, body: impl FnOnce(&Thread) + 'static) -> Self {
        ThreadSpec {
            name: name.into(),
            body: Box::new(body),
            number,
            sched: Sched::default(),
            affinity: None,
            background: false,
            working_set_kib: 0,
            stack_bytes: STACK_BYTES,
            yield_after: NEVER,
        }
    }

    /// Give it its stack.
    pub(crate) fn make(self, engine: &Rc<Engine>) -> std::io::Result<Ready> {
        let ThreadSpec { name, body, number, sched, affinity, background, working_set_kib, stack_bytes, yield_after } =
            self;
        let mut thread = Thread::outside(Rc::clone(engine), CpuId(number));
        thread.yield_after = yield_after;
        let code = Code::new(stack_bytes, thread, body)?;
        let group = GroupId::ROOT;
        Ok(Ready { name, code, sched, group, affinity, background, working_set_kib, vcpu: None })
    }
}

/// A thread with its stack, before it becomes a task. Only this crate makes them.
pub struct Ready {
    pub(crate) name: String,
    pub(crate) code: Code,
    pub(crate) sched: Sched,
    pub(crate) group: GroupId,
    pub(crate) affinity: Option<FixedBitSet>,
    pub(crate) background: bool,
    pub(crate) working_set_kib: u32,
    /// The thread is a vCPU: of which guest, and its number there.
    pub(crate) vcpu: Option<(usize, CpuId)>,
}

/// What a thread asks the kernel for.
pub(crate) enum Call {
    /// Whatever programs can ask for.
    Op(Op),
    /// FUTEX_WAIT. The word is borrowed by the caller until the call is over.
    Wait { word: *const SimWord, expected: u32 },
    /// FUTEX_WAKE of all waiters.
    Wake(Futex),
    /// getrusage of the thread.
    Usage,
    /// membarrier of the process's threads.
    Barrier,
    /// A vCPU has left guest mode for the host to serve it.
    Vcpu(VcpuCall),
    /// The code has returned.
    Exit,
}

/// A futex word: its line, and its address as an identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Futex {
    pub line: u32,
    at: usize,
}

impl Futex {
    pub(crate) fn of(word: &SimWord) -> Self {
        Futex { line: word.line, at: std::ptr::from_ref(word).addr() }
    }
}

/// A wait in user mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spin {
    pub since: Time,
    pub line: u32,
    /// It has a budget: it ends by itself.
    pub bounded: bool,
}

/// What a thread's code, the engine and the kernel know of one another.
pub(crate) struct State {
    /// Where its coroutine yields; null before it has started.
    yielder: Cell<*const Yielder<(), Trap>>,
    /// What its time in user mode is booked to.
    pub account: Cell<Account>,
    /// A system call of it has blocked and is not over.
    pub in_kernel: Cell<bool>,
    /// The system call it traps for.
    pub call: RefCell<Option<Call>>,
    /// What it spins on.
    pub spins: Cell<Option<Spin>>,
    /// The answer to [`Call::Usage`]: CPU time, and how often it was preempted.
    pub usage: Cell<(Nanos, u64)>,
    /// The line of the word it halted on last, and the value that the word held.
    pub halts: Cell<Option<(u32, u32)>>,
}

impl State {
    /// The code has returned.
    pub(crate) fn ended(&self) {
        *self.call.borrow_mut() = Some(Call::Exit);
    }
}

/// A thread's handle on its world: [`Platform`] in user mode, and system calls. Exists inside the thread's code only (and
/// once before the run, to make words with).
pub struct Thread {
    engine: Rc<Engine>,
    state: Rc<State>,
    number: CpuId,
    yield_after: Nanos,
    slice: Slice,
    /// The thread is a vCPU: every trap is an exit.
    vcpu: Option<Rc<VcpuState>>,
}

impl AsRef<Thread> for Thread {
    fn as_ref(&self) -> &Thread {
        self
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.engine.rounds().leave(&self.slice);
    }
}

impl Thread {
    /// A handle that belongs to no code yet.
    pub(crate) fn outside(engine: Rc<Engine>, number: CpuId) -> Self {
        let state = State {
            yielder: Cell::new(std::ptr::null()),
            account: Cell::new(Account::User),
            in_kernel: Cell::new(false),
            call: RefCell::new(None),
            spins: Cell::new(None),
            usage: Cell::new((0, 0)),
            halts: Cell::new(None),
        };
        Thread { engine, state: Rc::new(state), number, yield_after: NEVER, slice: Slice::new(), vcpu: None }
    }
    /// A handle of a vCPU's thread.
    pub(crate) fn of_vcpu(engine: Rc<Engine>, vcpu: Rc<VcpuState>) -> Self {
        let mut thread = Thread::outside(engine, vcpu.number);
        thread.vcpu = Some(vcpu);
        // It begins outside guest mode, as after an exit.
        thread.state.account.set(Account::VmExit);
        thread
    }
    pub(crate) fn engine(&self) -> &Rc<Engine> {
        &self.engine
    }
    pub(crate) fn state(&self) -> &Rc<State> {
        &self.state
    }
    /// The handle's coroutine begins.
    pub(crate) fn begin(&self, yielder: &Yielder<(), Trap>) {
        self.state.yielder.set(yielder);
    }

    /// Virtual time, without the cost of reading a clock: for what the thread records outside the simulation.
    #[inline]
    pub fn time(&self) -> Time {
        self.engine.now()
    }
    /// The CPU that the thread runs on at the moment.
    #[inline]
    pub fn on_cpu(&self) -> CpuId {
        self.engine.current()
    }
    /// Compute for `ns` at the machine's reference speed.
    #[inline]
    pub fn compute(&self, ns: Nanos) {
        if !self.engine.owe_user(ns) {
            self.stretch(ns);
        }
    }
    /// Make a system call and come back when it is over. To exit, return from the thread's code instead.
    pub fn call(&self, op: Op) {
        assert!(!matches!(op, Op::Exit | Op::Exited), "a thread exits by returning from its code");
        self.enter_kernel(Call::Op(op));
    }
    /// Sleep for `ns`.
    pub fn sleep(&self, ns: Nanos) {
        self.call(Op::Sleep(ns));
    }
    /// sched_yield.
    pub fn sched_yield(&self) {
        self.call(Op::Yield);
    }
    /// CPU time that the thread has had, in user mode and in the kernel, in ns: a system call.
    pub fn cpu_time(&self) -> Nanos {
        self.enter_kernel(Call::Usage);
        self.state.usage.get().0
    }

    /// What a fence takes, in ns.
    pub(crate) fn fence_cost(&self) -> Nanos {
        self.engine.fence_cost()
    }

    #[cold]
    fn stretch(&self, ns: Nanos) {
        let mut left = ns.checked_mul(FULL_SPEED).expect("a computation is shorter than 2^54 ns");
        while left > 0 {
            self.point();
            left = self.engine.compute_user(left, self.state.account.get(), NEVER);
        }
    }

    /// A point where everything earlier has happened and interrupts have been taken.
    #[inline]
    pub(crate) fn point(&self) {
        self.engine.settle_user();
        if self.engine.irq_pending() {
            self.trap(Trap::Interrupt);
        }
    }

    #[cold]
    pub(crate) fn enter_kernel(&self, call: Call) {
        *self.state.call.borrow_mut() = Some(call);
        self.trap(Trap::Syscall);
    }

    /// Leave user mode; returns when the task runs again and, after a system call, the call is over.
    #[cold]
    fn trap(&self, trap: Trap) {
        if !self.engine.may_suspend() {
            return;
        }
        if let Some(vcpu) = &self.vcpu {
            vcpu.leave_guest(self, trap);
        }
        let yielder = self.state.yielder.get();
        assert!(!yielder.is_null(), "a handle that belongs to no thread has nobody to give way to");
        // SAFETY: `begin` was called by this handle's coroutine with its own yielder, which lives as long as the coroutine's
        // main function. That function owns the handle, which cannot be cloned or sent, and lends it to the body for any
        // lifetime: whoever calls this does so while the function runs, on its stack or on that of a coroutine nested in it,
        // as `suspend` demands.
        unsafe { (*yielder).suspend(trap) };
        if let Some(vcpu) = &self.vcpu {
            vcpu.enter_guest(self);
        }
    }

    #[inline]
    fn access(&self, w: &SimWord, how: Touch) {
        self.point();
        self.engine.touch_user(w.line, how);
    }

    /// Guarded or relaxed: no settling point unless the line must move or time has run up.
    #[inline]
    fn touch(&self, line: u32, how: Touch) {
        if self.engine.owes_too_much() {
            self.point();
        }
        self.engine.touch_user(line, how);
    }

    #[inline]
    fn put(&self, w: &SimWord, new: u64) {
        if w.value.replace(new) != new {
            self.engine.changed(w.line);
        }
    }

    #[inline]
    fn rmw(&self, w: &SimWord, f: impl FnOnce(u64) -> u64) -> u64 {
        self.access(w, Touch::Rmw);
        let old = w.value.get();
        self.put(w, f(old));
        old
    }

    #[inline]
    pub(crate) fn look<const N: usize>(&self, words: [&SimWord; N]) -> [u64; N] {
        words.map(|w| self.load(w, Ordering::Acquire))
    }

    /// Book the thread's time in user mode to `account` from now on.
    pub(crate) fn book_to(&self, account: Account) {
        self.state.account.set(account);
        self.engine.enter(account);
    }

    /// The words were `values`, which is not what the thread waits for: spin.
    #[cold]
    fn spin<const N: usize>(
        &self,
        words: [&SimWord; N],
        mut values: [u64; N],
        deadline: Time,
        mut done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        let bounded = deadline != NEVER;
        self.engine.forget_debt();
        self.book_to(Account::UserSpin);
        self.state.spins.set(Some(Spin { since: self.time(), line: words[0].line, bounded }));
        let mut spun = 0;
        let found = loop {
            if self.engine.is_over() {
                break (!bounded).then_some(values);
            }
            if self.time() >= deadline {
                break None;
            }
            // A look may have let others run: sleep only if nothing has changed since each word was read. From here to the
            // registration in `spin_user` nobody else runs.
            if std::iter::zip(words, values).all(|(w, v)| w.value.get() == v) {
                if !bounded && spun >= self.yield_after {
                    self.sched_yield();
                } else {
                    self.engine.forget_debt();
                    let since = self.time();
                    let patience = if bounded { NEVER } else { self.yield_after - spun };
                    self.engine.spin_user(&words.map(|w| w.line), deadline.min(since.saturating_add(patience)));
                    spun += self.time() - since;
                }
            }
            values = self.look(words);
            if done(values) {
                break Some(values);
            }
        };
        self.state.spins.set(None);
        self.book_to(Account::User);
        found
    }
}

impl Clocks for Thread {
    fn cpus(&self) -> u64 {
        self.engine.topology().nr_cpus() as u64
    }
    fn now(&self) -> Time {
        Platform::now(self)
    }
    fn used(&self) -> Nanos {
        self.cpu_time()
    }
    fn preempted(&self) -> u64 {
        self.enter_kernel(Call::Usage);
        self.state.usage.get().1
    }
    /// Here CPUs tick one after another, so each has its own stamp.
    fn tick(&self) -> (Time, Time) {
        self.charge(Work::ClockRead, 1);
        (self.engine.latest_tick(), Platform::now(self))
    }
    fn tick_period(&self) -> Nanos {
        self.engine.tick_period()
    }
}

impl Platform for Thread {
    type Word = SimWord;
    type Cell<T> = SimCell<T>;

    fn line(&self) -> Line {
        Line(self.engine.create_line())
    }
    fn word(&self, line: Line, init: u64) -> SimWord {
        SimWord { value: Cell::new(init), line: line.0 }
    }
    fn cell<T>(&self, line: Line, init: T) -> SimCell<T> {
        SimCell { value: init.into(), line: line.0 }
    }
    /// The thread's number, wherever it runs ([`Thread::on_cpu`]).
    #[inline]
    fn cpu(&self) -> CpuId {
        self.number
    }
    /// Reads the clock, which costs what it costs ([`Thread::time`] does not).
    #[inline]
    fn now(&self) -> Time {
        self.charge(Work::ClockRead, 1);
        self.time()
    }
    #[inline]
    fn load(&self, w: &SimWord, order: Ordering) -> u64 {
        if order == Ordering::Relaxed {
            self.touch(w.line, Touch::Read);
        } else {
            self.access(w, Touch::Read);
        }
        w.value.get()
    }
    #[inline]
    fn store(&self, w: &SimWord, value: u64, order: Ordering) {
        if order == Ordering::Relaxed {
            self.touch(w.line, Touch::Write);
        } else {
            self.access(w, Touch::Write);
        }
        self.put(w, value);
    }
    #[inline]
    fn swap(&self, w: &SimWord, value: u64, _: Ordering) -> u64 {
        self.rmw(w, |_| value)
    }
    #[inline]
    fn compare_exchange(&self, w: &SimWord, current: u64, new: u64, _: Ordering, _: Ordering) -> Result<u64, u64> {
        let old = self.rmw(w, |v| if v == current { new } else { v });
        if old == current { Ok(old) } else { Err(old) }
    }
    #[inline]
    fn fetch_add(&self, w: &SimWord, n: u64, _: Ordering) -> u64 {
        self.rmw(w, |v| v.wrapping_add(n))
    }
    #[inline]
    fn fetch_or(&self, w: &SimWord, bits: u64, _: Ordering) -> u64 {
        self.rmw(w, |v| v | bits)
    }
    #[inline]
    fn fetch_and(&self, w: &SimWord, bits: u64, _: Ordering) -> u64 {
        self.rmw(w, |v| v & bits)
    }
    #[inline]
    fn fence(&self, _: Ordering) {}
    /// Nothing: the other half makes the CPU pass a barrier.
    #[inline]
    fn light_fence(&self) {}
    /// membarrier: a system call that interrupts all CPUs on which threads run, and waits for them.
    fn heavy_fence(&self) -> bool {
        self.enter_kernel(Call::Barrier);
        true
    }

    /// A budget is wall time from the call, as natively; a thread that was preempted looks once more before it gives up.
    #[inline]
    fn wait_until<const N: usize>(
        &self,
        words: [&SimWord; N],
        budget: Option<Nanos>,
        mut done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        let deadline = budget.map_or(NEVER, |b| self.time().saturating_add(b));
        let values = self.look(words);
        if done(values) { Some(values) } else { self.spin(words, values, deadline, done) }
    }

    /// FUTEX_WAIT: a system call, which compares under the bucket's lock.
    fn halt(&self, w: &SimWord, expected: u64) {
        self.enter_kernel(Call::Wait { word: w, expected: expected as u32 });
    }
    /// FUTEX_WAKE of all waiters: a system call.
    fn kick(&self, w: &SimWord, _target: CpuId) {
        self.enter_kernel(Call::Wake(Futex::of(w)));
    }

    #[inline]
    fn parting_due(&self) -> bool {
        self.slice.parting_due()
    }
    /// As natively.
    fn parting(&self) -> Parting {
        self.slice.parting(self.engine.ticks(), self)
    }
    fn part(&self, how: Parting) {
        let rounds = self.engine.rounds();
        match how {
            Parting::YieldIfOver => {
                if self.slice.is_over(rounds, self) {
                    self.sched_yield();
                    self.slice.begin(rounds, self);
                }
            }
            Parting::PassTick => self.engine.ticks().pass(self.tick_period(), || self.tick()),
        }
    }
    /// As natively.
    fn relinquish(&self, turn: u32) -> bool {
        match self.slice.relinquish(turn) {
            None => return false,
            Some(Relinquish::Yield) => self.sched_yield(),
            Some(Relinquish::Sleep(ns)) => self.sleep(ns + TIMER_SLACK_NS),
        }
        true
    }
    /// As natively.
    fn spun(&self, since: &mut Option<Time>) {
        let now = self.time();
        if now - *since.get_or_insert(now) >= self.yield_after {
            self.sched_yield();
        }
    }
    /// Without cost: whoever counts is an observer.
    #[inline]
    fn lock_clock(&self) -> Time {
        self.time()
    }
    /// Counted after the warm-up, under the event's name among the result's metrics.
    #[inline]
    fn lock_event(&self, event: LockEvent, n: u64) {
        self.engine.lock_events.add(self.time(), event, n);
    }

    #[inline]
    unsafe fn read<T, R>(&self, c: &SimCell<T>, f: impl FnOnce(&T) -> R) -> R {
        self.touch(c.line, Touch::Read);
        // SAFETY: one OS thread runs the whole simulation, and `f` cannot suspend (contract of `read`): nobody else
        // touches the cell during the call.
        f(unsafe { &*c.value.get() })
    }
    #[inline]
    unsafe fn write<T, R>(&self, c: &SimCell<T>, f: impl FnOnce(&mut T) -> R) -> R {
        self.touch(c.line, Touch::Write);
        // SAFETY: as in `read`.
        f(unsafe { &mut *c.value.get() })
    }

    /// User computation, whatever the work: interruptible, at the core's speed.
    #[inline]
    fn charge(&self, work: Work, n: u64) {
        let ns = match work {
            Work::Ns | Work::Policy => n,
            _ => self.engine.work_cost(work) * n,
        };
        self.compute(ns);
    }
}
