//! The platform under shuttle: random interleavings of more CPUs than loom can enumerate.
//!
//! * Memory is sequentially consistent: orderings are loom's to check.
//! * An access to a cell takes time: there is a scheduling point inside it, and another access to the same cell that
//!   falls in between is reported.
//! * `wait_until` loads and yields; the expiry of a budget is a coin of shuttle's random source, so a schedule replays
//!   with its coins. So are the answers whether another CPU runs (`preempted`) and whether this one is about to stop (`parting`).
//! * `halt` compares, registers and parks; when every CPU is parked, shuttle reports a deadlock.
//! * Seeds are fixed: a run explores the same executions every time. A failure names the execution's number.

use crate::{CheckedPlatform, Explored, Failure, Model, caught};
use contend_platform::{CpuId, Line, Nanos, Ordering, Parting, Platform, Time};
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicU64, fence};
use std::cell::UnsafeCell;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

/// One CPU's handle.
#[derive(Clone, Debug)]
pub struct Shuttle {
    cpu: CpuId,
}

/// A shared word.
pub struct ShuttleWord {
    word: AtomicU64,
    /// CPUs halted on it; touched only where shuttle does not switch.
    halted: Mutex<Vec<shuttle::thread::Thread>>,
}

/// Guarded data that notices overlapping accesses.
pub struct ShuttleCell<T> {
    /// Readers inside, or [`WRITER`].
    inside: AtomicU64,
    data: UnsafeCell<T>,
}

/// The mark of a writer inside a cell.
const WRITER: u64 = 1 << 32;
/// One chance in this many that a budget expires at a look, that a CPU seems not to run, and that a tick seems near.
const EXPIRES_ONE_IN: u32 = 4;

/// True once in [`EXPIRES_ONE_IN`] times.
fn coin() -> bool {
    shuttle::rand::thread_rng().gen_ratio(1, EXPIRES_ONE_IN)
}

// SAFETY: shuttle runs its threads as coroutines of one OS thread, and `inside` is checked before each access; the value
// may move between threads.
unsafe impl<T: Send> Sync for ShuttleCell<T> {}

impl<T> ShuttleCell<T> {
    /// Run `access` with `mark` added to `inside`; each addition is a scheduling point.
    fn marked<R>(&self, mark: u64, allowed: impl Fn(u64) -> bool, access: impl FnOnce(*mut T) -> R) -> R {
        let before = self.inside.fetch_add(mark, Ordering::SeqCst);
        assert!(allowed(before), "overlapping access to guarded data");
        let result = access(self.data.get());
        self.inside.fetch_sub(mark, Ordering::SeqCst);
        result
    }
}

impl Platform for Shuttle {
    type Word = ShuttleWord;
    type Cell<T> = ShuttleCell<T>;

    fn line(&self) -> Line {
        crate::fresh_line()
    }
    fn word(&self, _line: Line, init: u64) -> ShuttleWord {
        ShuttleWord { word: AtomicU64::new(init), halted: Mutex::default() }
    }
    fn cell<T>(&self, _line: Line, init: T) -> ShuttleCell<T> {
        ShuttleCell { inside: AtomicU64::new(0), data: UnsafeCell::new(init) }
    }
    fn cpu(&self) -> CpuId {
        self.cpu
    }
    fn now(&self) -> Time {
        0
    }
    fn load(&self, w: &ShuttleWord, order: Ordering) -> u64 {
        w.word.load(order)
    }
    fn store(&self, w: &ShuttleWord, value: u64, order: Ordering) {
        w.word.store(value, order);
    }
    fn swap(&self, w: &ShuttleWord, value: u64, order: Ordering) -> u64 {
        w.word.swap(value, order)
    }
    fn compare_exchange(
        &self,
        w: &ShuttleWord,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        w.word.compare_exchange(current, new, success, failure)
    }
    fn fetch_add(&self, w: &ShuttleWord, n: u64, order: Ordering) -> u64 {
        w.word.fetch_add(n, order)
    }
    fn fetch_or(&self, w: &ShuttleWord, bits: u64, order: Ordering) -> u64 {
        w.word.fetch_or(bits, order)
    }
    fn fetch_and(&self, w: &ShuttleWord, bits: u64, order: Ordering) -> u64 {
        w.word.fetch_and(bits, order)
    }
    fn fence(&self, order: Ordering) {
        fence(order);
    }

    fn wait_until<const N: usize>(
        &self,
        words: [&ShuttleWord; N],
        budget: Option<Nanos>,
        done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        self.wait_until_ordered(words, Ordering::Acquire, budget, done)
    }

    fn halt(&self, w: &ShuttleWord, expected: u64) {
        // Shuttle switches before the load, not between it and the registration.
        if w.word.load(Ordering::SeqCst) as u32 == expected as u32 {
            w.halted.lock().expect("one OS thread").push(shuttle::thread::current());
            shuttle::thread::park();
        }
    }
    fn preempted(&self, _cpu: CpuId) -> bool {
        coin()
    }
    fn parting(&self) -> Parting {
        if coin() { Parting::PassTick } else { Parting::YieldIfOver }
    }
    fn kick(&self, w: &ShuttleWord, _target: CpuId) {
        let halted = std::mem::take(&mut *w.halted.lock().expect("one OS thread"));
        for thread in halted {
            thread.unpark();
        }
    }

    unsafe fn read<T, R>(&self, c: &ShuttleCell<T>, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: `marked` has found no writer inside, and asserts in every later access that none enters.
        c.marked(1, |inside| inside < WRITER, |data| f(unsafe { &*data }))
    }
    unsafe fn write<T, R>(&self, c: &ShuttleCell<T>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: `marked` has found nobody inside.
        c.marked(WRITER, |inside| inside == 0, |data| f(unsafe { &mut *data }))
    }
}

impl CheckedPlatform for Shuttle {
    fn wait_until_ordered<const N: usize>(
        &self,
        words: [&ShuttleWord; N],
        order: Ordering,
        budget: Option<Nanos>,
        mut done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        loop {
            let values = words.map(|w| w.word.load(order));
            if done(values) {
                return Some(values);
            }
            if budget.is_some() && coin() {
                return None;
            }
            shuttle::thread::yield_now();
        }
    }
}

/// Which interleavings shuttle tries.
#[derive(Clone, Copy, Debug)]
pub enum Scheduler {
    /// Any CPU may be next, with equal chances.
    Random,
    /// Probabilistic concurrency testing: strict priorities with this many changes, which finds any bug of that depth
    /// with a known probability.
    Pct {
        /// Depth of the bugs looked for.
        depth: usize,
    },
}

/// How long shuttle tries.
#[derive(Clone, Copy, Debug)]
pub struct ShuttleRun {
    /// The schedules.
    pub scheduler: Scheduler,
    /// Executions.
    pub executions: usize,
    /// Seed of the schedules.
    pub seed: u64,
    /// Give an execution up as without progress after this many steps.
    pub steps_max: usize,
}

impl ShuttleRun {
    /// `executions` random schedules.
    pub fn random(executions: usize) -> Self {
        ShuttleRun { scheduler: Scheduler::Random, executions, seed: 1, steps_max: 20_000 }
    }
    /// `executions` schedules with bug depth `depth`.
    pub fn pct(executions: usize, depth: usize) -> Self {
        ShuttleRun { scheduler: Scheduler::Pct { depth }, ..Self::random(executions) }
    }

    /// Try `model`.
    pub fn check<M>(self, model: M) -> Result<Explored, Failure>
    where
        M: Model<Shuttle>,
        M::Shared: Send + Sync + 'static,
    {
        self.check_as(model, |p| p)
    }

    /// Try `model` on handles that `wrap` makes of shuttle's.
    pub fn check_as<P, M>(
        self,
        model: M,
        wrap: impl Fn(Shuttle) -> P + Clone + Send + Sync + 'static,
    ) -> Result<Explored, Failure>
    where
        P: Platform + 'static,
        M: Model<P>,
        M::Shared: Send + Sync + 'static,
    {
        let executions = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&executions);
        let body = move || {
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let main = wrap(Shuttle { cpu: CpuId(0) });
            let shared = Arc::new(model.setup(&main));
            let spawn = |cpu: usize| {
                let (shared, model, wrap) = (Arc::clone(&shared), model.clone(), wrap.clone());
                shuttle::thread::spawn(move || model.run(&wrap(Shuttle { cpu: CpuId(cpu as u16) }), &shared))
            };
            let threads: Vec<_> = (0..model.cpus()).map(spawn).collect();
            for thread in threads {
                thread.join().expect("panics end the execution");
            }
            model.finish(&main, &shared);
        };
        let mut config = shuttle::Config::new();
        config.max_steps = shuttle::MaxSteps::FailAfter(self.steps_max);
        config.failure_persistence = shuttle::FailurePersistence::None;
        config.silence_warnings = true;
        let run = || {
            match self.scheduler {
                Scheduler::Random => {
                    shuttle::Runner::new(RandomScheduler::new_from_seed(self.seed, self.executions), config).run(body)
                }
                Scheduler::Pct { depth } => {
                    shuttle::Runner::new(PctScheduler::new_from_seed(self.seed, depth, self.executions), config)
                        .run(body)
                }
            };
        };
        caught(run, || executions.load(std::sync::atomic::Ordering::Relaxed))
    }
}
