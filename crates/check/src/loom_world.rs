//! The platform under loom: every interleaving, every value weak memory allows.
//!
//! * A word is a loom atomic; a load may return any store that C11 lets it.
//! * A cell is a loom `UnsafeCell`: accesses that are not ordered by happens-before are reported as a race, whether or
//!   not they overlap in time.
//! * `wait_until` loads. A waiter that has seen the newest values sleeps until one of its words is written, and looks again;
//!   one that was shown an older value yields and looks again (loom does not show it the same one twice). If waiters
//!   yielded only, two of them taking turns would make infinitely many executions in which nothing happens. Loom orders
//!   a woken thread after its waker, so what a *woken* waiter lacks in ordering goes unnoticed; nothing is lost by that,
//!   because the same waiter looking for the first time after the write is another execution, and is explored too.
//!   Waiting for ever ends in a deadlock, or in the limit of branches ([`FailureKind::NoProgress`]).
//! * **A budget's expiry is a nondeterministic branch.** Loom offers no coin, but a relaxed load of a word that another
//!   thread stores to without any synchronisation is one: it returns the old or the new value, and both are explored.
//!   Each CPU has [`LoomRun::coins`] such words, which the main thread sets after starting the CPUs; a coin that shows
//!   the new value lets the budget expire. When a CPU has used up its coins, budgets expire no more, so the number of
//!   expiries explored is bounded by the number of coins. Models without budgets set it to 0 and pay nothing.
//! * **Whether another CPU runs (`preempted`), and whether this one is about to stop (`parting`), are branches too**, of the same coins: yes on one, and no when they are
//!   used up. The answer is right or wrong; the contract calls it a hint.
//! * `halt` compares and registers in one step and parks; `kick` unparks the registered. When all CPUs are halted loom
//!   reports a deadlock: a lost wake-up. As in the kernel call behind it, halting and kicking order memory: what
//!   happened before the kick is visible to the woken. So a missing fence *between a kick and the return of the halt* is
//!   not found here. A halt that does not sleep orders nothing.
//! * Where a plain store races with read-modify-writes of the same word, loom also shows the latter an older value than any
//!   execution can: it keeps modification order as a partial order only. Words on which several CPUs race are changed by
//!   read-modify-writes alone, in the models and in the algorithms.
//! * Loom treats sequentially consistent *accesses* as acquire-release: use a SeqCst fence where order between two words
//!   matters.
//!
//! [`FailureKind::NoProgress`]: crate::FailureKind::NoProgress

use crate::{CheckedPlatform, Explored, Failure, Model, caught};
use contend_platform::{CpuId, Line, Nanos, Ordering, Parting, Platform, Time};
use loom::sync::atomic::{AtomicU64, fence};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64 as Unchecked, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// One CPU's handle.
pub struct Loom {
    cpu: CpuId,
    coins: Arc<Vec<Vec<AtomicU64>>>,
    coins_used: Cell<usize>,
}

/// A shared word.
pub struct LoomWord {
    word: AtomicU64,
    // The rest is the checker's own, invisible to loom, and touched only where loom does not switch.
    /// The value written last.
    newest: Unchecked,
    /// CPUs that wait for another value.
    waiting: Mutex<Vec<Arc<Sleeper>>>,
    /// CPUs halted on it.
    halted: Mutex<Vec<Arc<Sleeper>>>,
}

/// A thread that is parked, or about to be without a switch in between.
struct Sleeper {
    thread: loom::thread::Thread,
    woken: AtomicBool,
}

impl Sleeper {
    fn me() -> Arc<Self> {
        Arc::new(Sleeper { thread: loom::thread::current(), woken: AtomicBool::new(false) })
    }
    /// Park until woken. Registered before, where wakers look.
    fn sleep(&self) {
        while !self.woken.load(Relaxed) {
            loom::thread::park();
        }
    }
    /// Wake all of `list`, each once wherever else it is registered: unparking a running thread would order it.
    fn wake_all(list: &Mutex<Vec<Arc<Sleeper>>>) {
        for sleeper in std::mem::take(&mut *list.lock().expect("one OS thread")) {
            if !sleeper.woken.swap(true, Relaxed) {
                sleeper.thread.unpark();
            }
        }
    }
}

impl LoomWord {
    /// `value` has just been written.
    fn wrote(&self, value: u64) {
        if self.newest.swap(value, Relaxed) != value {
            Sleeper::wake_all(&self.waiting);
        }
    }
}

/// Guarded data.
pub struct LoomCell<T>(loom::cell::UnsafeCell<T>);

// SAFETY: loom runs its threads as coroutines of one OS thread, and reports any access that happens-before does not
// order; the value may move between threads.
unsafe impl<T: Send> Sync for LoomCell<T> {}

impl Loom {
    fn has_coin(&self) -> bool {
        self.coins_used.get() < self.coins.get(self.cpu.index()).map_or(0, Vec::len)
    }
    /// A coin: true on one branch, false on the other.
    fn coin(&self) -> bool {
        let used = self.coins_used.get();
        self.coins_used.set(used + 1);
        self.coins[self.cpu.index()][used].load(Ordering::Relaxed) != 0
    }
}

impl Platform for Loom {
    type Word = LoomWord;
    type Cell<T> = LoomCell<T>;

    fn line(&self) -> Line {
        crate::fresh_line()
    }
    fn word(&self, _line: Line, init: u64) -> LoomWord {
        LoomWord {
            word: AtomicU64::new(init),
            newest: Unchecked::new(init),
            waiting: Mutex::default(),
            halted: Mutex::default(),
        }
    }
    fn cell<T>(&self, _line: Line, init: T) -> LoomCell<T> {
        LoomCell(loom::cell::UnsafeCell::new(init))
    }
    fn cpu(&self) -> CpuId {
        self.cpu
    }
    fn now(&self) -> Time {
        0
    }
    fn load(&self, w: &LoomWord, order: Ordering) -> u64 {
        w.word.load(order)
    }
    fn store(&self, w: &LoomWord, value: u64, order: Ordering) {
        w.word.store(value, order);
        w.wrote(value);
    }
    fn swap(&self, w: &LoomWord, value: u64, order: Ordering) -> u64 {
        let old = w.word.swap(value, order);
        w.wrote(value);
        old
    }
    fn compare_exchange(
        &self,
        w: &LoomWord,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let result = w.word.compare_exchange(current, new, success, failure);
        if result.is_ok() {
            w.wrote(new);
        }
        result
    }
    fn fetch_add(&self, w: &LoomWord, n: u64, order: Ordering) -> u64 {
        let old = w.word.fetch_add(n, order);
        w.wrote(old.wrapping_add(n));
        old
    }
    fn fetch_or(&self, w: &LoomWord, bits: u64, order: Ordering) -> u64 {
        let old = w.word.fetch_or(bits, order);
        w.wrote(old | bits);
        old
    }
    fn fetch_and(&self, w: &LoomWord, bits: u64, order: Ordering) -> u64 {
        let old = w.word.fetch_and(bits, order);
        w.wrote(old & bits);
        old
    }
    fn fence(&self, order: Ordering) {
        fence(order);
    }

    fn wait_until<const N: usize>(
        &self,
        words: [&LoomWord; N],
        budget: Option<Nanos>,
        done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        self.wait_until_ordered(words, Ordering::Acquire, budget, done)
    }

    fn halt(&self, w: &LoomWord, expected: u64) {
        // The comparison is with the newest value, as under the kernel's bucket lock; the access tells loom that a halt
        // depends on the word, and loom switches before it, not after it. Relaxed: a halt that does not sleep orders
        // nothing.
        w.word.fetch_or(0, Ordering::Relaxed);
        if w.newest.load(Relaxed) as u32 == expected as u32 {
            let me = Sleeper::me();
            w.halted.lock().expect("one OS thread").push(Arc::clone(&me));
            me.sleep();
        }
    }
    fn preempted(&self, _cpu: CpuId) -> bool {
        self.has_coin() && self.coin()
    }
    fn parting(&self) -> Parting {
        if self.has_coin() && self.coin() { Parting::PassTick } else { Parting::YieldIfOver }
    }
    fn kick(&self, w: &LoomWord, _target: CpuId) {
        // Makes the kick an access that loom knows to depend on a halt's.
        w.word.fetch_or(0, Ordering::Relaxed);
        Sleeper::wake_all(&w.halted);
    }

    unsafe fn read<T, R>(&self, c: &LoomCell<T>, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: the caller's protocol excludes writers; loom panics before the access if it does not.
        c.0.with(|data| f(unsafe { &*data }))
    }
    unsafe fn write<T, R>(&self, c: &LoomCell<T>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the caller's protocol excludes every other access; loom panics before the access if it does not.
        c.0.with_mut(|data| f(unsafe { &mut *data }))
    }
}

impl CheckedPlatform for Loom {
    fn wait_until_ordered<const N: usize>(
        &self,
        words: [&LoomWord; N],
        order: Ordering,
        budget: Option<Nanos>,
        mut done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        loop {
            let values = words.map(|w| w.word.load(order));
            if done(values) {
                return Some(values);
            }
            if budget.is_some() && self.has_coin() {
                if self.coin() {
                    return None;
                }
                loom::thread::yield_now();
                continue;
            }
            if words.map(|w| w.newest.load(Relaxed)) == values {
                let me = Sleeper::me();
                for w in words {
                    w.waiting.lock().expect("one OS thread").push(Arc::clone(&me));
                }
                me.sleep();
            } else {
                loom::thread::yield_now();
            }
        }
    }
}

/// How far loom explores.
#[derive(Clone, Copy, Debug)]
pub struct LoomRun {
    /// Explore executions with at most this many involuntary switches; `None`: all.
    pub preemptions: Option<usize>,
    /// Budget expiries, and answers that a CPU does not run, explored per CPU.
    pub coins: usize,
    /// Give an execution up as without progress after this many branches.
    pub branches_max: usize,
}

impl Default for LoomRun {
    fn default() -> Self {
        LoomRun { preemptions: None, coins: 0, branches_max: 1_000 }
    }
}

impl LoomRun {
    /// At most `n` preemptions.
    pub fn preemptions(n: usize) -> Self {
        LoomRun { preemptions: Some(n), ..Default::default() }
    }
    /// For each CPU, budgets expire or another CPU seems not to run at most `n` times in all.
    pub fn coins(self, n: usize) -> Self {
        LoomRun { coins: n, ..self }
    }

    /// Explore `model`.
    pub fn check<M>(self, model: M) -> Result<Explored, Failure>
    where
        M: Model<Loom>,
        M::Shared: Send + Sync + 'static,
    {
        self.check_as(model, |p| p)
    }

    /// Explore `model` on handles that `wrap` makes of loom's.
    pub fn check_as<P, M>(
        self,
        model: M,
        wrap: impl Fn(Loom) -> P + Clone + Send + Sync + 'static,
    ) -> Result<Explored, Failure>
    where
        P: Platform + 'static,
        M: Model<P>,
        M::Shared: Send + Sync + 'static,
    {
        let executions = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&executions);
        let body = move || {
            counter.fetch_add(1, Relaxed);
            let cpus = model.cpus();
            let coin = |_| AtomicU64::new(0);
            let coins = Arc::new((0..cpus).map(|_| (0..self.coins).map(coin).collect()).collect::<Vec<Vec<_>>>());
            let handle =
                |cpu: usize| wrap(Loom { cpu: CpuId(cpu as u16), coins: Arc::clone(&coins), coins_used: Cell::new(0) });
            let main = handle(0);
            let shared = Arc::new(model.setup(&main));
            // The main thread plays CPU 0 itself, unless it has coins to set, which must be unordered with every CPU.
            let first = usize::from(self.coins == 0);
            let mut threads = Vec::new();
            for cpu in first..cpus {
                let (shared, model, wrap, coins) =
                    (Arc::clone(&shared), model.clone(), wrap.clone(), Arc::clone(&coins));
                threads.push(loom::thread::spawn(move || {
                    let p = wrap(Loom { cpu: CpuId(cpu as u16), coins, coins_used: Cell::new(0) });
                    model.run(&p, &shared);
                }));
            }
            if first == 1 {
                // A handle of its own: its end is the CPU's.
                model.run(&handle(0), &shared);
            }
            for coin in coins.iter().flatten() {
                coin.store(1, Ordering::Relaxed);
            }
            for thread in threads {
                thread.join().expect("panics end the execution");
            }
            model.finish(&main, &shared);
        };
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = self.preemptions;
        builder.max_branches = self.branches_max;
        caught(|| builder.check(body), || executions.load(Relaxed))
    }
}
