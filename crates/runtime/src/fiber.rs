//! Coroutines by task.
//!
//! A coroutine is touched by one CPU at a time: the one that has chosen its task. That is the kernel's `on_cpu` protocol
//! and not a lock of this table, which asserts it: a task on two CPUs ends the process's run at once.

use crate::cpu::World;
use crate::task::{Body, Request, Resumed, TaskCtx, TaskHandle};
use contend_platform::TaskId;
use contend_sched::task::TASKS_MAX;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// A task's code and stack.
pub(crate) struct Fiber(Coroutine<Resumed, Request, (), DefaultStack>);

// SAFETY: a suspended coroutine is a stack and the values on it. What its closure captured is `Send`. What it made since is
// promised to be movable by whoever spawned it (contract of `Runtime::run` and `TaskCtx::spawn`). The coroutine itself holds
// no reference to the thread that ran it: `Resumed`, of plain data, is handed in anew each time.
unsafe impl Send for Fiber {}

impl Fiber {
    /// A coroutine that has not started.
    pub(crate) fn new(stack_bytes: usize, body: Body, world: Arc<World>, own: TaskHandle) -> std::io::Result<Self> {
        let stack = DefaultStack::new(stack_bytes)?;
        Ok(Fiber(Coroutine::with_stack(stack, move |yielder, on| {
            body(&TaskCtx::new(yielder, on, &world, own));
        })))
    }
}

#[derive(Default)]
struct Slot {
    fiber: UnsafeCell<Option<Fiber>>,
    /// A CPU runs it. Relaxed: it only asserts what the kernel's protocol ensures, and must not help it.
    running: AtomicBool,
}

// SAFETY: `fiber` is accessed by `put`, `resume` and `drop_fiber` only, whose contracts demand that no other CPU accesses the
// same task's; it is `Send`.
unsafe impl Sync for Slot {}

const CHUNK: usize = 256;

/// The table.
pub(crate) struct Fibers(Vec<OnceLock<Box<[Slot]>>>);

impl Default for Fibers {
    fn default() -> Self {
        Fibers((0..TASKS_MAX / CHUNK).map(|_| OnceLock::new()).collect())
    }
}

impl Fibers {
    fn slot(&self, task: TaskId) -> &Slot {
        let chunk =
            self.0[task.index() / CHUNK].get_or_init(|| std::iter::repeat_with(Slot::default).take(CHUNK).collect());
        &chunk[task.index() % CHUNK]
    }

    /// Give a new task its code.
    ///
    /// # Safety
    /// The task has been created and not yet been woken: nobody else knows its number.
    pub(crate) unsafe fn put(&self, task: TaskId, fiber: Fiber) {
        let slot = self.slot(task);
        // SAFETY: by the contract nobody else accesses the slot; its last user let go of it before the number became free.
        let old = unsafe { (*slot.fiber.get()).replace(fiber) };
        assert!(old.is_none(), "{task:?} has code already");
    }

    /// Run the task until it asks for something; `Err` is its panic.
    ///
    /// # Safety
    /// The calling CPU is the one that the task has been chosen for, and has seen all that the last one did with it.
    pub(crate) unsafe fn resume(&self, task: TaskId, on: Resumed) -> Result<Request, Box<dyn Any + Send>> {
        let slot = self.slot(task);
        assert!(!slot.running.swap(true, Relaxed), "{task:?} runs on {:?} and on another CPU", on.cpu);
        // SAFETY: by the contract this CPU alone accesses the slot until the task is chosen elsewhere.
        let fiber = unsafe { (*slot.fiber.get()).as_mut().expect("the task has code") };
        let result = catch_unwind(AssertUnwindSafe(|| match fiber.0.resume(on) {
            CoroutineResult::Yield(request) => request,
            CoroutineResult::Return(()) => Request::Exit,
        }));
        assert!(slot.running.swap(false, Relaxed), "{task:?} was run by another CPU meanwhile");
        result
    }

    /// Unwind all that have not ended.
    ///
    /// # Safety
    /// No CPU runs.
    pub(crate) unsafe fn clear(&self) {
        for slot in self.0.iter().filter_map(OnceLock::get).flatten() {
            // SAFETY: by the contract nobody else accesses the slots.
            drop(unsafe { (*slot.fiber.get()).take() });
        }
    }

    /// The task is over.
    ///
    /// # Safety
    /// As for [`Fibers::resume`].
    pub(crate) unsafe fn drop_fiber(&self, task: TaskId) {
        // SAFETY: by the contract.
        let fiber = unsafe { (*self.slot(task).fiber.get()).take() };
        drop(fiber.expect("the task has code"));
    }
}
