//! User code with a stack of its own: running it, and what it does to time and lines.
//!
//! The code of a thread runs on its coroutine's stack, resumed from the stack of the CPU that chose it. It suspends in two
//! ways. To let an earlier event go first it suspends its *CPU*, as kernel code does ([`Engine::suspend`]); it goes on where
//! it was. To trap it yields to the CPU's stack ([`Engine::run_code`]); the task may go on elsewhere.
//! `docs/internals/user-threads.md` says why.

use super::{Engine, Mode, STACKFUL, TaskWork};
use crate::lines::{Cost, Touch};
use crate::queue::{NO_KEY, key, key_time, key_within};
use crate::thread::{State, Thread};
use contend_platform::slices::Rounds;
use contend_platform::ticks::Ticks;
use contend_platform::{Account, CpuId, NEVER, Nanos, TaskId, Time, Trap};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use std::rc::Rc;

/// The code of a thread: a stack, and what the code, the engine and the kernel know of one another.
pub(crate) struct Code {
    coroutine: Coroutine<(), Trap, (), DefaultStack>,
    state: Rc<State>,
}

impl Code {
    /// Code that has not started.
    pub(crate) fn new<H: AsRef<Thread> + 'static>(
        stack_bytes: usize,
        handle: H,
        body: impl FnOnce(&H) + 'static,
    ) -> std::io::Result<Self> {
        let stack = DefaultStack::new(stack_bytes)?;
        let state = Rc::clone(handle.as_ref().state());
        let coroutine = Coroutine::with_stack(stack, move |yielder, ()| {
            handle.as_ref().begin(yielder);
            body(&handle);
        });
        Ok(Code { coroutine, state })
    }
    pub(crate) fn state(&self) -> &Rc<State> {
        &self.state
    }
}

impl Engine {
    /// Before the run: what `make` does to words takes no time.
    pub(crate) fn set_up<R>(self: &Rc<Self>, make: impl FnOnce(&Thread) -> R) -> R {
        assert_eq!(self.now(), 0, "the run has not begun");
        let made = make(&Thread::outside(Rc::clone(self), CpuId(0)));
        self.now.set(0);
        self.debt.set(0);
        made
    }

    /// `task`, which has been created, runs `code`.
    pub(crate) fn give_code(&self, task: TaskId, code: Code) {
        self.task_work.borrow_mut()[task.index()].first |= STACKFUL;
        let mut codes = self.codes.borrow_mut();
        if codes.len() <= task.index() {
            codes.resize_with(task.index() + 1, || None);
        }
        codes[task.index()] = Some(code);
    }

    /// [`Engine::run_user`] of a thread.
    #[cold]
    pub(super) fn run_thread(&self, task: TaskId, work: TaskWork) -> bool {
        if work.first != STACKFUL && !self.run_refill(task, work) {
            return false;
        }
        if work.left > 0 {
            let left = self.run_stretch(work.left, work.account, NEVER);
            self.task_work.borrow_mut()[task.index()].left = left;
            if left > 0 {
                return false;
            }
        }
        self.run_code(task)
    }

    /// Run the code of `task` on the running CPU until it traps: true for a system call, false for an interrupt.
    fn run_code(&self, task: TaskId) -> bool {
        // Out of the table while it runs: nobody else can run it, and no borrow is held while other CPUs go on.
        let code = self.codes.borrow_mut()[task.index()].take();
        let mut code = code.expect("a thread runs on one CPU at a time");
        if code.state.in_kernel.get() {
            self.codes.borrow_mut()[task.index()] = Some(code);
            return true;
        }
        let before = self.enter(code.state.account.get());
        // A panic of the code passes through here and ends the run.
        let result = code.coroutine.resume(());
        assert!(!self.is_over(), "a thread caught the panic that ended its run");
        self.enter(before);
        match result {
            CoroutineResult::Yield(trap) => {
                self.codes.borrow_mut()[task.index()] = Some(code);
                trap == Trap::Syscall
            }
            CoroutineResult::Return(()) => {
                code.state.ended();
                true
            }
        }
    }

    /// The run is over: from here on platform operations, which only destructors make, take effect at once and let
    /// nobody else run.
    pub(super) fn end(&self) {
        self.over.set(true);
        self.limit.set(NO_KEY);
    }

    /// Has the run ended?
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.over.get()
    }

    /// What threads share to know how long their slices may be.
    pub(crate) fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    /// What threads have learned of the ticks.
    pub(crate) fn ticks(&self) -> &Ticks {
        &self.ticks
    }

    /// Time between two ticks of a CPU.
    pub(crate) fn tick_period(&self) -> Nanos {
        self.costs.tick_period
    }

    /// When the running CPU had its latest tick; threads run, so it ticks.
    pub(crate) fn latest_tick(&self) -> Time {
        self.cpu(self.current.get()).tick_at.get().saturating_sub(self.costs.tick_period)
    }

    /// Unwind and free the code of all threads.
    pub(super) fn drop_codes(&self) {
        let codes = self.codes.take();
        drop(codes);
    }

    // ---- called by a thread, on its own stack --------------------------------------------------------------------

    /// May a thread let others run? Not once the run is over; and a thread that unwinds from a panic ends it.
    pub(crate) fn may_suspend(&self) -> bool {
        if std::thread::panicking() {
            self.end();
        }
        !self.is_over()
    }

    /// Suspend the CPU under a thread.
    fn suspend_user(&self, until: u64, mode: Mode) {
        if !self.may_suspend() {
            let time = key_time(until);
            if time != NEVER {
                self.now.set(self.now.get().max(time));
            }
            return;
        }
        self.suspend(until, mode);
    }

    #[inline]
    fn advance_user(&self, time: Time) {
        let cpu = self.current.get();
        self.debt.set(0);
        if key_within(time, cpu) < self.limit.get() {
            self.now.set(time);
        } else {
            self.suspend_user(key(time, cpu), Mode::Kernel);
        }
    }

    /// As [`Engine::settle`].
    #[inline]
    pub(crate) fn settle_user(&self) {
        self.advance_user(self.now());
    }

    /// As [`Engine::touch`].
    #[inline]
    pub(crate) fn touch_user(&self, line: u32, how: Touch) {
        if self.lines.holds(line, self.current.get(), how) {
            let cost = if how == Touch::Rmw { self.costs.atomic } else { self.costs.hit };
            self.debt.set(self.debt.get() + cost);
        } else {
            self.transfer_user(line, how);
        }
    }

    #[cold]
    fn transfer_user(&self, line: u32, how: Touch) {
        match self.lines.touch(&self.machine.topology, line, self.current.get(), self.now(), how) {
            Cost::Hit(ns) => self.debt.set(self.debt.get() + ns),
            Cost::Until(time) => self.advance_user(time),
        }
    }

    /// More is owed than may be.
    #[inline]
    pub(crate) fn owes_too_much(&self) -> bool {
        self.debt.get() > super::DEBT_MAX
    }

    /// Owe `ns` at reference speed if that keeps the debt within bounds.
    #[inline]
    pub(crate) fn owe_user(&self, ns: Nanos) -> bool {
        let speed = self.cpu(self.current.get()).speed.get();
        let ns = if speed == super::FULL_SPEED {
            ns
        } else if ns > super::DEBT_MAX {
            return false;
        } else {
            (ns * super::FULL_SPEED).div_ceil(speed)
        };
        let debt = self.debt.get().saturating_add(ns);
        let within = debt <= super::DEBT_MAX;
        if within {
            self.debt.set(debt);
        }
        within
    }

    /// Compute `work` (1/1024 ns at reference speed), booked to `account`, until an interrupt or `deadline` comes; returns
    /// what is left.
    pub(crate) fn compute_user(&self, work: u64, account: Account, deadline: Time) -> u64 {
        if !self.may_suspend() {
            return 0;
        }
        self.run_stretch(work, account, deadline)
    }

    /// Owe `ns` at reference speed of work that is not to be interrupted: leaving and entering guest mode.
    pub(crate) fn spend_user(&self, ns: Nanos) {
        self.debt.set(self.debt.get() + self.at_speed(ns));
        if self.owes_too_much() {
            self.settle_user();
        }
    }

    /// What the looks of a poller cost is part of its wait, not owed on top of it.
    pub(crate) fn forget_debt(&self) {
        self.debt.set(0);
    }

    /// Sleep on `lines` until one changes, an interrupt comes or `deadline` passes; nothing is owed. Spurious returns are
    /// allowed.
    pub(crate) fn spin_user(&self, lines: &[u32], deadline: Time) {
        let cpu = self.current.get();
        let c = self.cpu(cpu);
        let until = deadline.min(c.irq_at.get());
        if until <= self.now.get() {
            return;
        }
        lines.iter().for_each(|l| self.lines.watch(*l, cpu));
        self.suspend_user(key(until, cpu), Mode::Spinning);
        lines.iter().for_each(|l| self.lines.unwatch(*l, cpu));
    }
}
