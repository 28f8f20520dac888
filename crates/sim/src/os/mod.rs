//! The small kernel around the scheduler: system calls, the objects tasks share, sleeping and waking.
//!
//! A system call that cannot finish leaves a [`Pending`] in its task and blocks; when the task runs again the call goes
//! on from there, looking at its condition anew, so a wake-up for no reason harms nobody. Sleeping follows one
//! protocol everywhere: take the object's lock, find the condition false, queue up, announce the sleep, release the lock,
//! call `schedule()`.

mod cross_cpu;
mod futex;
mod metrics;
mod object;
mod pipe;
mod report;
mod ring;
mod threads;
mod word_futex;

pub(crate) use metrics::Unheard;
pub use metrics::{MetricStore, Samples, histogram};
pub use object::ObjectReport;
pub use report::TaskReport;
pub(crate) use report::long_waits;

use crate::kvm::VcpuWait;
use crate::program::{Cx, GroupId, Groups, Metrics, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};
use crate::thread::{Ready, State};
use crate::world::World;
use contend_platform::{Account, Nanos, TaskId, Time, Work};
use contend_sched::class::Sched;
use contend_sched::cpuset::Affinity;
use contend_sched::kernel::{Kernel, SyscallEnd, Syscalls};
use contend_sched::policy::Policy;
use contend_sched::task::state;
use contend_sched::wakeup::flags;
use object::Object;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What is left to do of a system call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pending {
    /// Nothing: ask the program.
    Nothing,
    /// Sleep until this time; the timer is armed.
    Sleep(Time),
    /// Bytes still to be written.
    Write(ObjId, u32),
    /// Bytes still to be read.
    Read(ObjId, u32),
    /// Take the mutex.
    Lock(ObjId),
    /// Wait for the condition variable's signal, then take the mutex.
    Cond(ObjId, ObjId),
    /// Wait until the barrier's generation passes this.
    Barrier(ObjId, u64),
    /// Take one count.
    Sem(ObjId),
    /// Wait for a futex wake-up.
    Futex(ObjId),
    /// Wait for a wake-up of the word that the thread halts on.
    WordFutex,
    /// Serve a vCPU's exit further.
    Vcpu(VcpuWait),
    /// Spin until the others have arrived.
    Rendezvous(ObjId),
}

/// What a task runs.
enum Code {
    /// A stackless program.
    Program(Box<dyn Program>),
    /// A thread; the engine has its stack.
    Thread(Rc<State>),
}

/// A task as the kernel around the scheduler knows it.
struct OsTask {
    name: String,
    program: Option<Box<dyn Program>>,
    thread: Option<Rc<State>>,
    rng: Pcg64Mcg,
    pending: Pending,
    /// When it last went to sleep in a call.
    slept_at: Time,
    /// When it asked for the mutex that it waits for.
    asked: Time,
    /// Woken from the futex-like object it queued at.
    woken: bool,
    background: bool,
    /// Its address space, if that matters to anyone.
    space: Option<ObjId>,
    sched: Sched,
    group: GroupId,
    affinity: Affinity,
    started: Time,
    alive: bool,
}

/// A task to be, whatever its code.
struct Birth {
    name: String,
    code: Code,
    sched: Sched,
    group: GroupId,
    affinity: Affinity,
    background: bool,
    working_set_kib: u32,
}

/// The random stream of the task, or program, that was created as number `id` of a run with this seed: one each, whatever
/// order they run in.
pub(crate) fn random_stream(seed: u64, id: u64) -> Pcg64Mcg {
    let seed = u128::from(seed) << 64 | u128::from(id.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    Pcg64Mcg::from_seed((seed | 1).to_le_bytes())
}

/// The kernel around the scheduler.
pub struct Os<W: World> {
    objects: Vec<Object<W>>,
    tasks: RefCell<Vec<Option<OsTask>>>,
    finished: RefCell<Vec<TaskReport>>,
    ids: RefCell<Vec<u64>>,
    created: Cell<u64>,
    /// Living tasks that keep the run alive.
    foreground: Cell<u64>,
    alive: Cell<u64>,
    seed: u64,
    /// End of the warm-up.
    warmup: Time,
    /// Samples of the programs.
    pub metrics: RefCell<MetricStore>,
    initial: RefCell<Vec<TaskSpec>>,
    threads: RefCell<Vec<Ready>>,
    buckets: word_futex::Buckets,
    /// By CPU; empty where nobody needs them.
    flushes: Vec<cross_cpu::Flushes<W>>,
    /// Ends of rings among the objects.
    rings: Vec<ObjId>,
    /// Groups of tasks.
    pub groups: Groups,
}

/// Most exited tasks whose reports are kept.
const REPORT_MAX: usize = 1 << 20;

impl<W: World> Os<W> {
    /// A kernel for `workload`; its tasks start when CPU 0 calls [`Os::start`].
    pub(crate) fn new<L: Policy>(
        p: &W,
        kernel: &Kernel<W, L>,
        workload: &mut Workload,
        threads: Vec<Ready>,
        seed: u64,
        warmup: Time,
    ) -> Self {
        let objects = workload.objects.iter().map(|o| Object::new(p, kernel, o)).collect();
        let initial = std::mem::take(&mut workload.tasks);
        let foreground = initial.iter().filter(|t| !t.background).count();
        let foreground = (foreground + threads.iter().filter(|t| !t.background).count()) as u64;
        Os {
            groups: std::mem::take(&mut workload.groups),
            objects,
            tasks: RefCell::default(),
            finished: RefCell::default(),
            ids: RefCell::default(),
            created: Cell::new(0),
            foreground: Cell::new(foreground),
            alive: Cell::new(0),
            seed,
            warmup,
            metrics: RefCell::default(),
            initial: RefCell::new(initial),
            threads: RefCell::new(threads),
            buckets: word_futex::Buckets::default(),
            rings: (0..workload.objects.len())
                .filter(|i| matches!(workload.objects[*i].kind, ObjectKind::Ring { .. }))
                .map(|i| ObjId(i as u32))
                .collect(),
            flushes: cross_cpu::Flushes::of(p, workload.objects.iter().any(|o| o.kind == ObjectKind::AddressSpace)),
        }
    }

    /// Start the tasks that exist at time 0, on the calling CPU's behalf, in order.
    pub fn start<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W) {
        let initial = self.initial.take();
        let threads = self.threads.take();
        if initial.is_empty() && threads.is_empty() {
            p.all_exited();
        }
        for spec in initial {
            let task = self.born(kernel, p, spec, Affinity::ALL);
            kernel.wake_up_first(p, task);
        }
        for thread in threads {
            W::spawn_thread(self, kernel, p, thread);
        }
    }

    /// Is there a foreground task left?
    pub fn finished(&self) -> bool {
        self.foreground.get() == 0
    }
    /// Tasks alive.
    pub fn alive(&self) -> u64 {
        self.alive.get()
    }

    fn born<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, spec: TaskSpec, inherited: Affinity) -> TaskId {
        let TaskSpec { name, program, sched, group, affinity, background } = spec;
        let affinity = affinity.map_or(inherited, Affinity::only);
        let (group, sched) = (group.unwrap_or_default(), sched.unwrap_or_default());
        let working_set_kib = program.working_set_kib();
        let code = Code::Program(program);
        self.create(kernel, p, Birth { name, code, sched, group, affinity, background, working_set_kib })
    }

    fn create<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, birth: Birth) -> TaskId {
        let (program, thread) = match birth.code {
            Code::Program(program) => (Some(program), None),
            Code::Thread(state) => (None, Some(state)),
        };
        let task = kernel.create(p, birth.sched, birth.affinity.clone(), birth.group);
        p.create_task(task, birth.working_set_kib);
        let id = self.created.get();
        self.created.set(id + 1);
        self.alive.set(self.alive.get() + 1);
        {
            let mut tasks = self.tasks.borrow_mut();
            let mut ids = self.ids.borrow_mut();
            if tasks.len() <= task.index() {
                tasks.resize_with(task.index() + 1, || None);
                ids.resize(task.index() + 1, 0);
            }
            ids[task.index()] = id;
            tasks[task.index()] = Some(OsTask {
                name: birth.name,
                program,
                thread,
                rng: random_stream(self.seed, id),
                pending: Pending::Nothing,
                slept_at: 0,
                asked: 0,
                woken: false,
                background: birth.background,
                space: None,
                sched: birth.sched,
                group: birth.group,
                affinity: birth.affinity,
                started: p.now(),
                alive: true,
            });
        }
        task
    }

    fn with<R>(&self, task: TaskId, f: impl FnOnce(&mut OsTask) -> R) -> R {
        f(self.tasks.borrow_mut()[task.index()].as_mut().expect("the task lives"))
    }

    fn object(&self, id: ObjId) -> &Object<W> {
        &self.objects[id.0 as usize]
    }

    /// Wake a task that sleeps at an object.
    fn wake<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, task: TaskId, flags: u64) -> bool {
        kernel.try_to_wake_up(p, task, state::NORMAL, flags)
    }

    /// Ask the program what it does next.
    fn next_op(&self, p: &W, task: TaskId) -> Op {
        let (now, cpu) = (p.now(), p.cpu());
        // A program sees nothing of the kernel but this context: the borrows end before anything else can run.
        let mut metrics = self.metrics.borrow_mut();
        self.with(task, |t| {
            let metrics: &mut dyn Metrics = if now < self.warmup { &mut Unheard } else { &mut *metrics };
            let mut cx = Cx { now, task, cpu, rng: &mut t.rng, metrics };
            t.program.as_mut().expect("a living task has its program").next(&mut cx)
        })
    }

    /// Begin an operation.
    // Called once, from the hot path of every system call.
    #[inline(always)]
    fn begin<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, task: TaskId, op: Op) -> SyscallEnd {
        if let Op::Run(ns) = op {
            p.set_work(task, ns, Account::User);
            return SyscallEnd::Continue;
        }
        // A mutex enters the kernel only when it must.
        if !matches!(op, Op::Lock(_) | Op::Unlock(_) | Op::Release(..)) {
            p.charge(Work::Syscall, 1);
        }
        match op {
            Op::Run(_) => unreachable!("handled above"),
            Op::Syscall(ns) => {
                p.set_work(task, ns, Account::Syscall);
                SyscallEnd::Continue
            }
            Op::Sleep(ns) => self.sleep_until(kernel, p, task, p.now().saturating_add(ns)),
            Op::Device(ns, cpu) => {
                let at = p.now().saturating_add(ns);
                let end = self.block(kernel, p, task, Pending::Sleep(at));
                p.arm_device(at, task, cpu);
                end
            }
            Op::SleepUntil(at) if at <= p.now() => SyscallEnd::Continue,
            Op::SleepUntil(at) => self.sleep_until(kernel, p, task, at),
            Op::Yield => SyscallEnd::Yield,
            Op::Write(o, n) => self.go_on(kernel, p, task, Pending::Write(o, n)),
            Op::Read(o, n) => self.go_on(kernel, p, task, Pending::Read(o, n)),
            Op::Lock(o) => self.mutex_lock(kernel, p, task, o, true),
            Op::Unlock(o) => self.mutex_unlock(kernel, p, task, o),
            Op::Release(o, tail) => {
                let wakes = !self.object(o).waiters.borrow().is_empty();
                let end = self.mutex_unlock(kernel, p, task, o);
                p.charge(Work::Ns, if wakes { tail } else { 0 });
                end
            }
            Op::CondWait { cond, mutex } => self.cond_wait(kernel, p, task, cond, mutex),
            Op::CondSignal(o) => self.futex_wake(kernel, p, o, 1),
            Op::CondBroadcast(o) => self.futex_wake(kernel, p, o, u32::MAX),
            Op::Barrier(o) => self.barrier(kernel, p, task, o),
            Op::SemWait(o) => self.sem_wait(kernel, p, task, o),
            Op::SemPost(o, n) => self.sem_post(kernel, p, o, n, 0),
            Op::Wake { semaphore, sync, tail, blocks: _ } => {
                let end = self.sem_post(kernel, p, semaphore, 1, if sync { flags::SYNC } else { 0 });
                p.charge(Work::Ns, tail);
                end
            }
            Op::FutexWait(o) => self.futex_wait(kernel, p, task, o, Pending::Futex(o)),
            Op::FutexWake(o, n) => self.futex_wake(kernel, p, o, n),
            Op::KernelLock { lock, hold, lines } => self.kernel_lock(p, lock, hold, lines),
            Op::Rendezvous(o) => self.rendezvous(p, task, o),
            Op::Join(o) => self.join(task, o),
            Op::Shootdown => self.shootdown(kernel, p, task),
            Op::Spawn(spec) => {
                p.charge(Work::Fork, 1);
                self.spawn(kernel, p, task, *spec)
            }
            Op::Spawned(spec) => self.spawn(kernel, p, task, *spec),
            Op::Exec => kernel.exec(p, task).map_or(SyscallEnd::Continue, SyscallEnd::MoveTo),
            Op::SetAffinity(set) => {
                let affinity = set.map_or(Affinity::ALL, Affinity::only);
                self.with(task, |t| t.affinity = affinity.clone());
                if kernel.set_affinity(p, task, affinity) { SyscallEnd::Migrate } else { SyscallEnd::Continue }
            }
            Op::SetScheduler(sched) => {
                self.with(task, |t| t.sched = sched);
                kernel.set_scheduler(p, task, sched);
                SyscallEnd::Continue
            }
            Op::SetGroup(group) => {
                self.with(task, |t| t.group = group);
                kernel.set_group(p, task, group);
                SyscallEnd::Continue
            }
            Op::Exit => {
                p.charge(Work::Exit, 1);
                self.exit(kernel, p, task)
            }
            Op::Exited => self.exit(kernel, p, task),
        }
    }

    /// Go on with a system call that blocked, or begin one that may.
    fn go_on<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, task: TaskId, pending: Pending) -> SyscallEnd {
        match pending {
            Pending::Nothing => SyscallEnd::Continue,
            Pending::Sleep(until) => {
                if p.now() >= until {
                    return self.done(task);
                }
                self.block(kernel, p, task, pending)
            }
            Pending::Write(o, n) if self.is_ring(o) => self.ring_send(kernel, p, task, o, n),
            Pending::Read(o, _) if self.is_ring(o) => self.ring_take(kernel, p, task, o),
            Pending::Write(o, n) => self.pipe_write(kernel, p, task, o, n),
            Pending::Read(o, n) => self.pipe_read(kernel, p, task, o, n),
            Pending::Lock(o) => self.mutex_lock(kernel, p, task, o, false),
            Pending::Cond(c, m) => {
                if self.with(task, |t| t.woken) {
                    return self.mutex_lock(kernel, p, task, m, true);
                }
                self.futex_wait(kernel, p, task, c, pending)
            }
            Pending::Barrier(o, generation) => self.barrier_check(kernel, p, task, o, generation),
            Pending::WordFutex | Pending::Vcpu(_) => W::thread_woken(self, kernel, p, task),
            Pending::Sem(o) => self.sem_wait(kernel, p, task, o),
            Pending::Rendezvous(o) => panic!("{} let a task go on before all were there", self.object(o).name),
            Pending::Futex(o) => {
                if self.with(task, |t| t.woken) {
                    return self.done(task);
                }
                self.futex_wait(kernel, p, task, o, pending)
            }
        }
    }

    pub(crate) fn set_pending(&self, task: TaskId, pending: Pending) {
        self.with(task, |t| t.pending = pending);
    }

    pub(crate) fn done(&self, task: TaskId) -> SyscallEnd {
        self.with(task, |t| t.pending = Pending::Nothing);
        SyscallEnd::Continue
    }

    /// Sleep; `pending` is what is left to do. Where there is an object, its lock is held.
    #[inline]
    fn block<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, task: TaskId, pending: Pending) -> SyscallEnd {
        let now = p.now();
        self.with(task, |t| (t.pending, t.slept_at) = (pending, now));
        kernel.announce_sleep(p, task, state::INTERRUPTIBLE);
        SyscallEnd::Block
    }

    #[inline(always)]
    fn sleep_until<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, task: TaskId, at: Time) -> SyscallEnd {
        p.charge(Work::TimerProgram, 1);
        let end = self.block(kernel, p, task, Pending::Sleep(at));
        p.arm_timer(at, task);
        end
    }

    /// So many lines of an object come, one after another, from the CPU that worked on it last.
    fn fetch_lines(p: &W, ob: &Object<W>, lines: u32) {
        let from = ob.state_at.replace(p.cpu());
        p.owe_latency(u64::from(lines) * p.line_cost(from, p.cpu()));
    }

    fn kernel_lock(&self, p: &W, o: ObjId, hold: Nanos, lines: u32) -> SyscallEnd {
        let before = p.enter(Account::Syscall);
        let ob = self.object(o);
        ob.lock.lock(p);
        p.charge(Work::Ns, hold);
        if lines > 0 {
            Self::fetch_lines(p, ob, lines);
        }
        ob.lock.unlock(p);
        p.enter(before);
        SyscallEnd::Continue
    }

    /// The caller's child: of its class, group, and kind.
    fn spawn<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, parent: TaskId, mut spec: TaskSpec) -> SyscallEnd {
        // What a daemon starts does not keep the run alive either.
        let of_parent = |t: &mut OsTask| (t.background, t.group, t.sched, t.affinity.clone());
        let (background, group, sched, affinity) = self.with(parent, of_parent);
        spec.background |= background;
        spec.group.get_or_insert(group);
        spec.sched.get_or_insert(sched);
        if !spec.background {
            self.foreground.set(self.foreground.get() + 1);
        }
        let task = self.born(kernel, p, spec, affinity);
        kernel.wake_up_new(p, task);
        SyscallEnd::Continue
    }

    fn exit<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, task: TaskId) -> SyscallEnd {
        kernel.exiting(p, task);
        let background = self.with(task, |t| {
            t.alive = false;
            t.program = None;
            t.thread = None;
            t.background
        });
        self.alive.set(self.alive.get() - 1);
        let report = self.report(kernel, task, Some(p.now()), Some(p.now()));
        if self.finished.borrow().len() < REPORT_MAX {
            self.finished.borrow_mut().push(report);
        }
        if !background {
            self.foreground.set(self.foreground.get() - 1);
            if self.foreground.get() == 0 {
                p.all_exited();
            }
        }
        SyscallEnd::Exit
    }
}

impl<W: World, L: Policy> Syscalls<W, L> for Os<W> {
    fn syscall(&self, kernel: &Kernel<W, L>, p: &W, task: TaskId) -> SyscallEnd {
        let before = p.enter(Account::Syscall);
        let (pending, stackless) = self.with(task, |t| (t.pending, t.thread.is_none()));
        let end = 'end: {
            if pending != Pending::Nothing {
                break 'end self.go_on(kernel, p, task, pending);
            }
            let mut op = if stackless {
                self.next_op(p, task)
            } else {
                match W::thread_op(self, kernel, p, task) {
                    Ok(op) => op,
                    Err(end) => break 'end end,
                }
            };
            let mut blocks = false;
            loop {
                // Further posts do not end the call.
                blocks = match op {
                    Op::Wake { blocks, .. } => blocks,
                    Op::SemPost(..) => blocks,
                    _ => false,
                };
                let end = self.begin(kernel, p, task, op);
                if !blocks {
                    break end;
                }
                op = self.next_op(p, task);
            }
        };
        if !stackless {
            self.thread_served(task, end);
        }
        p.enter(before);
        end
    }
    fn call_function(&self, kernel: &Kernel<W, L>, p: &W) {
        self.flush(p);
        self.ring_events(kernel, p);
    }
}
