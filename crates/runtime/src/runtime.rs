//! A machine of OS threads: its system calls, start and end.

use crate::cpu::{CpuCounts, NativeCpu, World};
use crate::fiber::Fiber;
use crate::object::{Parker, Semaphore};
use crate::task::{Body, Request, TaskCtx, TaskHandle};
use contend_machine::Topology;
use contend_platform::Ordering::{AcqRel, Acquire, Relaxed};
use contend_platform::{CpuId, Nanos, Platform, SchedPlatform as _, TaskId};
use contend_sched::capacity::Told;
use contend_sched::class::Sched;
use contend_sched::cpuset::Affinity;
use contend_sched::features::Features;
use contend_sched::kernel::{Kernel, SyscallEnd, Syscalls};
use contend_sched::policy::Policy;
use contend_sched::policy::groups::GroupId;
use contend_sched::task::state;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What a machine of threads is like.
#[derive(Clone, Debug)]
pub struct Config {
    /// As many threads as it has CPUs; scheduling domains follow it. The OS places the threads.
    pub topology: Topology,
    /// Switches of the scheduler.
    pub features: Features,
    /// Tick period in ns.
    pub tick_ns: Nanos,
    /// Idle CPUs poll (and yield) instead of sleeping in the OS; with `features.idle_polling` they then need no interrupt.
    pub idle_polls: bool,
    /// Stack of a task in bytes, besides its guard page.
    pub stack_bytes: usize,
}

/// The kernel and what its system calls need.
pub struct Runtime<L: Policy> {
    kernel: Kernel<NativeCpu, L>,
    world: Arc<World>,
    /// Tasks that have not ended.
    live: AtomicU64,
    stack_bytes: usize,
}

impl<L: Policy> Syscalls<NativeCpu, L> for Runtime<L> {
    fn syscall(&self, kernel: &Kernel<NativeCpu, L>, p: &NativeCpu, task: TaskId) -> SyscallEnd {
        match p.take_request() {
            Request::Checkpoint => SyscallEnd::Continue,
            Request::Yield => SyscallEnd::Yield,
            Request::Sleep(ns) => {
                kernel.announce_sleep(p, task, state::UNINTERRUPTIBLE);
                p.arm_timer(p.now() + ns, task);
                SyscallEnd::Block
            }
            Request::Down(semaphore) => {
                let announce = || kernel.announce_sleep(p, task, state::UNINTERRUPTIBLE);
                if semaphore.down(p, task, announce) { SyscallEnd::Continue } else { SyscallEnd::Block }
            }
            Request::Up(semaphore) => {
                if let Some(waiter) = semaphore.up(p) {
                    kernel.try_to_wake_up(p, waiter, state::UNINTERRUPTIBLE, 0);
                }
                SyscallEnd::Continue
            }
            Request::Park(parker) => {
                kernel.announce_sleep(p, task, state::INTERRUPTIBLE);
                // Relaxed: the fence of the announcement orders it, and the task takes the token itself.
                if parker.token.load(Relaxed) == 0 {
                    return SyscallEnd::Block;
                }
                kernel.cancel_sleep(p, task);
                SyscallEnd::Continue
            }
            Request::Unpark(parker) => {
                if let Some(id) = parker.task.load(Acquire).checked_sub(1) {
                    kernel.try_to_wake_up(p, TaskId(id as u32), state::INTERRUPTIBLE, 0);
                }
                SyscallEnd::Continue
            }
            Request::Spawn(body, affinity, parker) => {
                self.start(p, body, affinity, &parker);
                SyscallEnd::Continue
            }
            Request::SetAffinity(affinity) => {
                assert!(affinity.first(self.kernel.rqs.len()).is_some(), "no CPU is allowed");
                if kernel.set_affinity(p, task, affinity) { SyscallEnd::Migrate } else { SyscallEnd::Continue }
            }
            Request::Exit => {
                // SAFETY: this CPU runs the task.
                unsafe { self.world.fibers.drop_fiber(task) };
                kernel.exiting(p, task);
                if self.live.fetch_sub(1, AcqRel) == 1 {
                    self.world.stop();
                }
                SyscallEnd::Exit
            }
        }
    }

    fn timer(&self, kernel: &Kernel<NativeCpu, L>, p: &NativeCpu, task: TaskId) {
        kernel.try_to_wake_up(p, task, state::UNINTERRUPTIBLE, 0);
    }

    fn stopped(&self, p: &NativeCpu) -> bool {
        p.stopped()
    }
}

impl<L: Policy> Runtime<L> {
    /// A machine that does not run yet.
    pub fn new(config: Config, policy: L) -> Self {
        let world = Arc::new(World::new(config.topology.nr_cpus(), config.tick_ns, config.idle_polls));
        // SAFETY: the machine does not run yet.
        let p = unsafe { NativeCpu::new(CpuId(0), Arc::clone(&world)) };
        let kernel = Kernel::new(&p, config.topology, Told::Nothing, config.features, policy, config.tick_ns);
        Runtime { kernel, world, live: AtomicU64::new(0), stack_bytes: config.stack_bytes }
    }

    /// A semaphore with this many units.
    pub fn semaphore(&self, units: u64) -> Arc<Semaphore> {
        // SAFETY: it makes words and cells only, and touches nothing of a CPU's.
        let p = unsafe { NativeCpu::new(CpuId(0), Arc::clone(&self.world)) };
        Arc::new(Semaphore::new(&p, &self.kernel.locks, units))
    }

    /// The kernel, for its counters.
    pub fn kernel(&self) -> &Kernel<NativeCpu, L> {
        &self.kernel
    }

    /// Tasks that balancing has pulled, by occasion: CPU not idle, idle, about to idle.
    pub fn pulled(&mut self) -> [u64; 3] {
        // SAFETY: `&mut self`: no CPU runs.
        let p = unsafe { NativeCpu::new(CpuId(0), Arc::clone(&self.world)) };
        let mut pulled = [0; 3];
        for rq in &self.kernel.rqs {
            // SAFETY: `&mut self`: no CPU runs.
            unsafe {
                p.read(&rq.data, |rd| {
                    for stats in rd.balance.iter().flat_map(|d| d.stats.iter().enumerate()) {
                        pulled[stats.0] += stats.1.lb_gained;
                    }
                });
            }
        }
        pulled
    }

    fn start(&self, p: &NativeCpu, body: Body, affinity: Affinity, parker: &Arc<Parker>) {
        let fiber = Fiber::new(self.stack_bytes, body, Arc::clone(&self.world), TaskHandle(Arc::clone(parker)))
            .unwrap_or_else(|e| {
                panic!("the system refused {} bytes for a task's stack: {e}", self.stack_bytes);
            });
        self.live.fetch_add(1, Relaxed);
        let task = self.kernel.create(p, Sched::default(), affinity, GroupId::ROOT);
        // SAFETY: the task was created just now.
        unsafe { self.world.fibers.put(task, fiber) };
        parker.task.store(u64::from(task.0) + 1, contend_platform::Ordering::Release);
        self.kernel.wake_up_new(p, task);
    }
}

impl<L> Runtime<L>
where
    L: Policy + Send + Sync,
    L::Rq: Send,
    L::Task: Send,
{
    /// Run `main` as the first task, and the machine until no task is left. Returns what each CPU counted. A panic of a
    /// task stops the machine and is passed on; tasks that are left are unwound.
    ///
    /// # Safety
    /// As for [`TaskCtx::spawn`].
    pub unsafe fn run(&mut self, main: impl FnOnce(&TaskCtx<'_>) + Send + 'static) -> Vec<CpuCounts> {
        assert_eq!(self.live.load(Relaxed), 0, "an earlier run broke off");
        self.world.restart();
        let this = &*self;
        let mut first = Some((Box::new(main) as Body, TaskHandle(Arc::default())));
        let counts = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..this.kernel.rqs.len())
                .map(|cpu| {
                    let first = first.take();
                    let cpu = move || {
                        // SAFETY: a number for each of the threads; `&mut self`: there are no others.
                        let p = unsafe { NativeCpu::new(CpuId(cpu as u16), Arc::clone(&this.world)) };
                        let code = || {
                            if let Some((body, handle)) = first {
                                this.start(&p, body, Affinity::ALL, &handle.0);
                            }
                            this.kernel.cpu_loop(&p, this);
                        };
                        if let Err(payload) = catch_unwind(AssertUnwindSafe(code)) {
                            p.world().panicked(payload);
                        }
                        p.counts()
                    };
                    std::thread::Builder::new().name("contend-cpu".into()).spawn_scoped(scope, cpu).expect("a thread")
                })
                .collect();
            threads.into_iter().map(|t| t.join().expect("panics are caught")).collect()
        });
        // SAFETY: the threads have ended. (Only after a panic is there anything left.)
        unsafe { self.world.fibers.clear() };
        if let Some(payload) = self.world.take_panic() {
            resume_unwind(payload);
        }
        counts
    }
}
