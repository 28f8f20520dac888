//! What a task may ask for. Every request is a point at which it may be preempted and go on elsewhere.

use crate::cpu::World;
use crate::object::{Parker, Semaphore};
use contend_platform::{CpuId, Nanos, TaskId, Time};
use contend_sched::cpuset::Affinity;
use corosensei::Yielder;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::Duration;

/// Where and until when a task was resumed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resumed {
    pub(crate) cpu: CpuId,
    /// When the CPU's clock interrupts next.
    pub(crate) alarm: Time,
}

/// The code of a task.
pub(crate) type Body = Box<dyn FnOnce(&TaskCtx<'_>) + Send>;

/// What the task wants of the kernel.
pub(crate) enum Request {
    /// Nothing: it noticed an interrupt.
    Checkpoint,
    Yield,
    Sleep(Nanos),
    Down(Arc<Semaphore>),
    Up(Arc<Semaphore>),
    Park(Arc<Parker>),
    Unpark(Arc<Parker>),
    Spawn(Body, Affinity, Arc<Parker>),
    SetAffinity(Affinity),
    Exit,
}

/// A task as others see it.
#[derive(Clone)]
pub struct TaskHandle(pub(crate) Arc<Parker>);

/// A task's view of its world; valid on its own stack only.
pub struct TaskCtx<'a> {
    yielder: &'a Yielder<Resumed, Request>,
    on: Cell<Resumed>,
    world: &'a World,
    own: TaskHandle,
}

impl<'a> TaskCtx<'a> {
    pub(crate) fn new(yielder: &'a Yielder<Resumed, Request>, on: Resumed, world: &'a World, own: TaskHandle) -> Self {
        TaskCtx { yielder, on: Cell::new(on), world, own }
    }

    // Not inlined: code after it may run on another thread, and must not reuse the address of a thread-local.
    #[inline(never)]
    fn request(&self, request: Request) {
        assert!(!std::thread::panicking(), "a task asked for something while it unwinds");
        self.on.set(self.yielder.suspend(request));
    }

    /// The CPU the task runs on, until its next request.
    pub fn cpu(&self) -> CpuId {
        self.on.get().cpu
    }
    /// Time since the start in ns.
    pub fn now(&self) -> Time {
        self.world.now()
    }

    /// A point where the task may be preempted: cheap while no interrupt is pending.
    #[inline]
    pub fn checkpoint(&self) {
        let on = self.on.get();
        if self.world.wanted(on.cpu) || self.world.now() >= on.alarm {
            self.request(Request::Checkpoint);
        }
    }
    /// `sched_yield`.
    pub fn yield_now(&self) {
        self.request(Request::Yield);
    }
    /// Sleep for at least this long.
    pub fn sleep(&self, duration: Duration) {
        self.request(Request::Sleep(duration.as_nanos() as Nanos));
    }
    /// Take a unit of the semaphore, or sleep until there is one. First come, first served.
    pub fn down(&self, semaphore: &Arc<Semaphore>) {
        self.request(Request::Down(Arc::clone(semaphore)));
    }
    /// Give a unit to the semaphore: to the first task that waits, if there is one.
    pub fn up(&self, semaphore: &Arc<Semaphore>) {
        self.request(Request::Up(Arc::clone(semaphore)));
    }
    /// The calling task, for others to unpark.
    pub fn handle(&self) -> TaskHandle {
        self.own.clone()
    }
    /// Sleep until somebody unparks this task; at once if that has happened since the last time.
    pub fn park(&self) {
        while self.own.0.token.swap(0, AcqRel) == 0 {
            self.request(Request::Park(Arc::clone(&self.own.0)));
        }
    }
    /// Let that task go on from where it parks, or from its next parking.
    pub fn unpark(&self, other: &TaskHandle) {
        other.0.token.store(1, Release);
        self.request(Request::Unpark(Arc::clone(&other.0)));
    }
    /// Start another task, which may run where `affinity` says.
    ///
    /// # Safety
    /// The task runs on one thread after another: across requests and checkpoints it holds no value that is bound to its
    /// thread (references to thread-locals, guards of OS mutexes), and it makes no request while it unwinds.
    pub unsafe fn spawn(&self, affinity: Affinity, body: impl FnOnce(&TaskCtx<'_>) + Send + 'static) -> TaskHandle {
        let parker = Arc::new(Parker::default());
        self.request(Request::Spawn(Box::new(body), affinity, Arc::clone(&parker)));
        TaskHandle(parker)
    }
    /// Change where the calling task may run; it has moved there on return.
    pub fn set_affinity(&self, affinity: Affinity) {
        self.request(Request::SetAffinity(affinity));
    }
}

impl TaskHandle {
    /// The task's number in the kernel; another task's once it has ended.
    pub fn id(&self) -> TaskId {
        let link = self.0.task.load(Acquire);
        TaskId(link.checked_sub(1).expect("handles are given out after the start") as u32)
    }
}

impl std::fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TaskHandle({:?})", self.id())
    }
}
