//! The event loop, and the stacks that CPUs are on.
//!
//! A CPU is on a stack while it is in the kernel, or runs the code of a thread. Between two visits to the kernel, computing
//! for a task without a stack or idling, there is nothing on it to keep: the CPU returns it ([`Engine::poll_user`],
//! [`Engine::poll_idle`]) and takes the one that was returned last when its next event comes. So a large machine runs on as
//! few stacks as there are CPUs in the kernel at once, and these stay in the host's caches. When the next event is of a
//! CPU without a stack, the one at hand goes on with it, without a switch.

use super::{Cpu, Engine, IN_PLACE_MAX, Mode, Stop};
use crate::queue::{key, key_cpu, key_time, key_within};
use contend_platform::{CpuId, NEVER, Time};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::Cell;
use std::rc::Rc;

/// Size of a stack in bytes, besides its guard page. Kernel paths use a few KiB; user policies may use more.
const STACK_BYTES: usize = 256 * 1024;
/// "On no stack".
pub(super) const NO_STACK: u16 = u16::MAX;

/// Of what [`Engine::prefetch`] fetches of a [`Cpu`]: all but what few visits need.
const HOT_BYTES: u32 = std::mem::offset_of!(Cpu, ahead) as u32;

/// A key above those of all events up to `horizon`.
#[inline]
fn beyond(horizon: Time) -> u64 {
    key(horizon.saturating_add(1), CpuId(0))
}

/// Why a stack lets others run.
pub(super) enum Pause {
    /// Its CPU has more to do on it.
    Held,
    /// No CPU is on it.
    Free,
}

pub(super) type StackYielder = Yielder<CpuId, Pause>;

/// The coroutines of a run: its CPUs', and its threads' in the engine. Dropped (and unwound) with it.
pub struct Stacks {
    all: Vec<Coroutine<CpuId, Pause, (), DefaultStack>>,
    /// Those that no CPU is on, the one last used at the end.
    free: Vec<u16>,
    engine: Rc<Engine>,
}

impl Drop for Stacks {
    fn drop(&mut self) {
        self.engine.end();
        self.all.clear();
        self.engine.drop_codes();
    }
}

impl Engine {
    /// Give every CPU the code it runs, on one stack from beginning to end; nothing runs before [`Engine::run`].
    ///
    /// # Errors
    /// The system refused memory for the stacks.
    pub fn boot<F: FnOnce(CpuId) + 'static>(
        self: &Rc<Self>,
        mut code: impl FnMut(CpuId) -> F,
    ) -> std::io::Result<Stacks> {
        let bodies: Vec<_> = (0..self.cpus.len()).map(|i| Cell::new(Some(code(CpuId(i as u16))))).collect();
        self.boot_visits(move |cpu| {
            if let Some(body) = bodies[cpu.index()].take() {
                body(cpu);
            }
        })
    }

    /// Call `visit` with each CPU at time 0, and again whenever one that has left the kernel ([`Engine::poll_user`],
    /// [`Engine::poll_idle`]) is due. A CPU whose visit ends without that never runs again.
    ///
    /// # Errors
    /// As for [`Engine::boot`].
    pub fn boot_visits(self: &Rc<Self>, visit: impl Fn(CpuId) + 'static) -> std::io::Result<Stacks> {
        let visit = Rc::new(visit);
        let n = self.cpus.len();
        let mut all = Vec::with_capacity(n);
        for id in 0..n as u16 {
            let (engine, visit) = (Rc::clone(self), Rc::clone(&visit));
            let stack = DefaultStack::new(STACK_BYTES)?;
            let serve = move |yielder: &StackYielder, cpu| engine.serve(id, yielder, &*visit, cpu);
            all.push(Coroutine::with_stack(stack, serve));
        }
        for i in 0..n {
            let cpu = CpuId(i as u16);
            self.queue.set(cpu, key(0, cpu));
            self.cpus[i].mode.set(Mode::Kernel);
        }
        let free = (0..n as u16).rev().collect();
        Ok(Stacks { all, free, engine: Rc::clone(self) })
    }

    /// Run until `horizon`, until nothing is left, until asked to stop, or for `budget` events.
    pub fn run(&self, stacks: &mut Stacks, horizon: Time, budget: u64) -> Stop {
        self.horizon.set(horizon);
        self.budget.set(budget);
        self.due_below.set(if self.stopping.get() { 0 } else { beyond(horizon) });
        loop {
            let cpu = match self.due() {
                Ok(event) => self.begin(event),
                Err(stop) => return stop,
            };
            let id = match self.cpu(cpu).stack.get() {
                NO_STACK => stacks.free.pop().expect("as many stacks as CPUs"),
                id => id,
            };
            match stacks.all[usize::from(id)].resume(cpu) {
                CoroutineResult::Yield(Pause::Held) => {}
                CoroutineResult::Yield(Pause::Free) => stacks.free.push(id),
                CoroutineResult::Return(()) => unreachable!("a stack serves one CPU after the other"),
            }
        }
    }

    /// The life of stack `id`: visits of the kernel, beginning with that of `cpu`.
    fn serve(&self, id: u16, yielder: &StackYielder, visit: &impl Fn(CpuId), mut cpu: CpuId) -> ! {
        loop {
            let c = self.cpu(cpu);
            c.stack.set(id);
            c.yielder.set(yielder);
            visit(cpu);
            c.stack.set(NO_STACK);
            if !matches!(c.mode.get(), Mode::User | Mode::Idle) {
                c.mode.set(Mode::Kernel);
                self.keep_ahead(c);
                self.queue.set(cpu, key(NEVER, cpu));
            }
            cpu = match self.due() {
                Ok(event) if self.cpu(key_cpu(event)).stack.get() == NO_STACK => self.begin(event),
                _ => yielder.suspend(Pause::Free),
            };
        }
    }

    /// The next event, or why the event loop ends here.
    #[inline]
    fn due(&self) -> Result<u64, Stop> {
        let first = self.queue.first();
        if first < self.due_below.get() && self.budget.get() > 0 { Ok(first) } else { Err(self.ends(first)) }
    }

    /// Why `first` does not happen now.
    #[cold]
    fn ends(&self, first: u64) -> Stop {
        if self.stopping.get() {
            return Stop::Asked;
        }
        if key_time(first) == NEVER {
            return Stop::Nothing;
        }
        let horizon = self.horizon.get();
        if key_time(first) > horizon {
            self.now.set(horizon);
            return Stop::Horizon;
        }
        Stop::Budget
    }

    /// `event` happens: its CPU runs from here on.
    #[inline]
    fn begin(&self, event: u64) -> CpuId {
        let (time, cpu) = (key_time(event), key_cpu(event));
        self.budget.set(self.budget.get() - 1);
        self.now.set(time);
        self.debt.set(0);
        self.current.set(cpu);
        self.recent.forget();
        // Its own key stays in the queue, out of date, until it suspends.
        let next = self.queue.others(cpu);
        let cap = key_within(time, CpuId(0)).saturating_add(key_within(IN_PLACE_MAX, CpuId(0)));
        self.limit.set(next.min(cap).min(self.due_below.get()));
        self.prefetch(key_cpu(next));
        cpu
    }

    /// What CPU `cpu` looks at first when it next enters the kernel, so that it is fetched into the host's caches before its turn
    /// comes; `slot` is 0 or 1. Changes no result.
    pub fn hint<T>(&self, cpu: CpuId, slot: usize, at: &T) {
        self.cpu(cpu).hints[slot].set(((&raw const *at).cast(), size_of::<T>() as u32));
    }

    /// `cpu` is likely to run next: bring what it needs first into the simulator's own caches.
    #[inline]
    fn prefetch(&self, cpu: CpuId) {
        if self.fetched.replace(cpu) == cpu {
            return;
        }
        let Some(c) = self.cpus.get(cpu.index()) else { return };
        let at: *const u8 = (&raw const *c).cast();
        if c.stack.get() == NO_STACK {
            fetch(at, HOT_BYTES);
            c.hints.iter().for_each(|hint| fetch(hint.get().0, hint.get().1));
        } else {
            // It was in the kernel a moment ago: what it has there is not far.
            (0..2).for_each(|i| fetch_line(at, i));
            (0..4).for_each(|i| fetch_line(c.stack_top.get(), i));
        }
    }

    /// Suspend the running CPU until `until`, in `mode`, with what is on its stack.
    ///
    /// Inlined, as is what calls it up to one function that the kernel calls: the host predicts no return after a switch of
    /// stacks, so that each one on the way back costs.
    #[inline(always)]
    pub(super) fn suspend(&self, until: u64, mode: Mode) {
        self.put_off(until, mode);
        self.stay().mode.set(Mode::Running);
    }

    /// The next event of the running CPU, which will be in `mode` till then, is `until`. The caller lets others run.
    #[inline(always)]
    pub(super) fn put_off(&self, until: u64, mode: Mode) {
        let cpu = self.current.get();
        let c = self.cpu(cpu);
        c.mode.set(mode);
        if c.since.get() > self.now.get() {
            self.keep_ahead(c);
        }
        self.queue.set(cpu, until);
        self.events.set(self.events.get() + 1);
    }

    /// Let others run, until the next event of the running CPU; it stays on its stack.
    #[inline(always)]
    pub(super) fn stay(&self) -> &Cpu {
        let cpu = self.current.get();
        let c = self.cpu(cpu);
        let yielder = c.yielder.get();
        c.stack_top.set((&raw const yielder).cast());
        // SAFETY: `yielder` was stored by the coroutine of this CPU's stack when it took the CPU, and lives on that stack until
        // the coroutine ends; `current` is `cpu`, so this code runs inside that very coroutine, or in that of a thread which
        // it has resumed and which has not yielded: `suspend` requires that the coroutine runs, and stops the whole chain.
        unsafe { (*yielder).suspend(Pause::Held) };
        debug_assert_eq!(self.current.get(), cpu);
        c
    }
}

/// Fetch what lies there into the host's caches.
#[inline]
fn fetch(at: *const u8, bytes: u32) {
    (0..bytes.div_ceil(64)).for_each(|i| fetch_line(at, i));
}

/// Fetch the line that lies `i` lines behind `at`.
#[inline]
fn fetch_line(at: *const u8, i: u32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and faults nowhere, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.wrapping_add(64 * i as usize).cast());
    }
}
