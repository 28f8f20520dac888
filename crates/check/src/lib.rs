//! The checked world: the project's algorithms, from their one generic source, under model checkers.
//!
//! A [`Model`] is a small program for a few CPUs: shared state, what each CPU does, and what must hold at the end. It is
//! generic over the platform, so the same model runs
//!
//! * under loom ([`loom_world`]): all interleavings and all values that weak memory lets a load return, 2 or 3 CPUs;
//! * under shuttle ([`shuttle_world`]): random and PCT interleavings, sequentially consistent, 4 to 8 CPUs;
//! * on OS threads ([`native_world`]): whatever happens, at full speed;
//! * in the simulator ([`sim_world`]): sequentially consistent and in virtual time, any number of CPUs.
//!
//! All four in one plain `cargo test`: worlds are types, not `cfg`s (loom's own types need no `--cfg loom`).
//!
//! [`mutate`] proves that the checks can fail: it weakens one ordering, drops one store or skips one wait of the
//! algorithm under test, at one place in its source, and some checker must notice.
//!
//! [`observe`] watches how often waiters are overtaken and who touches whose queue nodes.
//!
//! What is checked at which size, and what was found, is in `docs/internals/checked-world.md`.

/// For a platform around another one, `inner`: what that one says about CPUs and their slices.
macro_rules! inner_hints {
    () => {
        fn preempted(&self, cpu: ::contend_platform::CpuId) -> bool {
            self.inner.preempted(cpu)
        }
        fn parting_due(&self) -> bool {
            self.inner.parting_due()
        }
        fn parting(&self) -> ::contend_platform::Parting {
            self.inner.parting()
        }
        fn part(&self, how: ::contend_platform::Parting) {
            self.inner.part(how);
        }
        fn relinquish(&self, turn: u32) -> bool {
            self.inner.relinquish(turn)
        }
        fn spun(&self, since: &mut Option<::contend_platform::Time>) {
            self.inner.spun(since);
        }
    };
}

pub mod counted;
pub mod loom_world;
pub mod models;
pub mod mutate;
pub mod native_world;
pub mod observe;
pub mod shuttle_world;
pub mod sim_world;

pub use counted::{Counted, Counts};
pub use loom_world::{Loom, LoomRun};
pub use mutate::{Mutant, Mutated, Site};
pub use native_world::run_native;
pub use observe::{Observed, Watch};
pub use shuttle_world::{Scheduler, Shuttle, ShuttleRun};
pub use sim_world::{Simulated, run_sim, run_sim_as};

use contend_platform::{Line, Nanos, Ordering, Platform};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, Once};

/// A small concurrent program with something to check.
pub trait Model<P: Platform>: Clone + Send + Sync + 'static {
    /// What the CPUs share.
    type Shared;
    /// How many CPUs take part, numbered from 0.
    fn cpus(&self) -> usize;
    /// Make the shared state; runs before the CPUs start, as CPU 0.
    fn setup(&self, p: &P) -> Self::Shared;
    /// What CPU `p.cpu()` does. Waits through the platform only.
    fn run(&self, p: &P, shared: &Self::Shared);
    /// What must hold after all CPUs have ended.
    fn finish(&self, p: &P, shared: &Self::Shared) {
        let _ = (p, shared);
    }
}

/// What a checker's platform offers to mutants besides.
pub trait CheckedPlatform: Platform {
    /// [`Platform::wait_until`], its loads with an ordering of one's own.
    fn wait_until_ordered<const N: usize>(
        &self,
        words: [&Self::Word; N],
        order: Ordering,
        budget: Option<Nanos>,
        done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]>;
}

/// How much was explored without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    /// Executions (interleavings).
    pub executions: usize,
}

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// Unsynchronised accesses to guarded data.
    Race,
    /// Every CPU that has not ended is halted.
    Deadlock,
    /// CPUs spin and none gets anywhere.
    NoProgress,
    /// An assertion of the model or of the algorithm.
    Assertion,
}

/// A failed check.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What went wrong.
    pub kind: FailureKind,
    /// The panic message.
    pub message: String,
    /// In which execution, from 1.
    pub execution: usize,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} in execution {}: {}", self.kind, self.execution, self.message)
    }
}

/// Where the text of a panic says what kind of failure it is.
fn kind_of(message: &str) -> FailureKind {
    let has = |text: &str| message.contains(text);
    if has("Causality violation") || has("overlapping access") {
        FailureKind::Race
    } else if has("deadlock") {
        FailureKind::Deadlock
    } else if has("maximum number of branches") || has("max_steps") {
        FailureKind::NoProgress
    } else {
        FailureKind::Assertion
    }
}

/// A line that no other is: placement means nothing here, but checkers tell queue nodes by their lines.
fn fresh_line() -> Line {
    static LINES: AtomicU32 = AtomicU32::new(0);
    Line(LINES.fetch_add(1, Ordering::Relaxed))
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Run a check that reports failures by panicking; `executions` tells how far it came.
fn caught(check: impl FnOnce(), executions: impl Fn() -> usize) -> Result<Explored, Failure> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // Shuttle puts a hook of its own over the one it finds, once, at its first run: let that be before ours. (Loom
        // ends each thread with a panic, which shuttle's hook would report.)
        shuttle::Runner::new(shuttle::scheduler::RandomScheduler::new_from_seed(0, 1), shuttle::Config::new())
            .run(|| {});
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                default(info);
            }
        }));
    });
    // Loom maps and unmaps a stack for each thread of each execution, which stops the process's other threads: two checks at once
    // take longer, and twice the CPU time, than one after the other.
    static ALONE: Mutex<()> = Mutex::new(());
    let result = {
        let _alone = ALONE.lock();
        let before = QUIET.replace(true);
        let result = catch_unwind(AssertUnwindSafe(check));
        QUIET.set(before);
        result
    };
    match result {
        Ok(()) => Ok(Explored { executions: executions() }),
        Err(payload) => {
            let message = payload
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string()))
                .unwrap_or_else(|| "a panic without text".into());
            Err(Failure { kind: kind_of(&message), message, execution: executions() })
        }
    }
}
