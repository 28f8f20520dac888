//! The same loop on a simulated machine.
//!
//! The locks are the same source as natively, on [`Thread`]s: each is a task of the simulated kernel, may lose its CPU at any
//! instruction, and halts and kicks by futex system calls. The loop, the window that counts, the work and the think
//! times are those of [`crate::native`], and so are the two reads of the counter for an acquisition. What is not
//! the same: hogs do not wait at the barrier, and CPU share and switches are those of the whole run, warm-up included.

use crate::row::{Row, Wait, Waits};
use crate::{Load, LoadError};
use contend_locks::algorithm::{
    Adaptive, Hybrid, MakeLock, Mcs, PvFeatures, PvQueuedWith, PvTicket, Queued, RawLock, Ticket, UnfairByte,
    UnfairQueued,
};
use contend_machine::Machine;
use contend_platform::{CpuId, Nanos, Ordering, Platform, Time};
use contend_sched::features::Preset;
use contend_sim::crew::Crew;
use contend_sim::host::{Outcome, RunResult};
use contend_sim::thread::Thread;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cell::Cell;
use std::sync::Arc;

/// A native wait without a budget spins 4,096 times before it yields at each look. Measured on epyc-2vcpu: 23.4 ns a spin, a
/// pause of some 65 cycles for the most part; other processors pause for 40 to 140 cycles (general knowledge, not
/// checked).
const SPIN_BEFORE_YIELD: Nanos = 4096 * 234 / 10;
/// The native loop reads the processor's counter, not the clock. Measured on epyc-2vcpu: 9.2 ns.
const COUNTER_READ: Nanos = 9;

/// Where it runs.
pub struct On<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The kernel.
    pub preset: &'a Preset,
}

/// Why there is no row.
#[derive(Debug, thiserror::Error)]
pub enum SimulatedError {
    /// The load makes no sense, or no lock that can be simulated has that name.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The run ended otherwise than it should.
    #[error("{lock} with {threads} threads on {machine}: {outcome}: {detail}")]
    Outcome {
        /// The lock.
        lock: String,
        /// Threads.
        threads: u32,
        /// The machine's name.
        machine: String,
        /// How it ended.
        outcome: &'static str,
        /// In words.
        detail: String,
    },
    /// The system refused memory for stacks.
    #[error("stacks for the simulated threads: {0}")]
    Stacks(#[from] std::io::Error),
}

macro_rules! simulated {
    ($( $name:literal = $lock:ty; )*) => {
        /// Locks that can be simulated, by the names of [`crate::contenders`] where they are there.
        pub const NAMES: &[&str] = &[$($name,)*];

        /// Run lock `name` under `load` once; `repeat` varies the think times.
        ///
        /// # Errors
        /// As [`SimulatedError`] says.
        pub fn run(name: &str, load: &Load, repeat: u32, on: &On<'_>) -> Result<Row, SimulatedError> {
            load.check()?;
            match name {
                $( $name => run_type::<$lock>(name, load, repeat, on), )*
                _ => Err(LoadError::Lock(name.into(), NAMES.join(", ")).into()),
            }
        }
    };
}

simulated! {
    "adaptive" = Adaptive<Thread>;
    "unfair-byte" = UnfairByte<Thread>;
    "ticket" = Ticket<Thread>;
    "pv-ticket" = PvTicket<Thread>;
    "mcs" = Mcs<Thread>;
    "queued" = Queued<Thread>;
    "pv-queued" = PvQueuedWith<Thread, { PvFeatures::V4_2.bits() }>;
    "pv-queued-2015" = PvQueuedWith<Thread, { PvFeatures::SERIES_2015.bits() }>;
    "unfair-queued" = UnfairQueued<Thread>;
    "hybrid" = Hybrid<Thread>;
}

/// What a thread records.
#[derive(Default)]
struct Record {
    count: u64,
    waits: Waits,
}

/// Where the threads wait for one another; who comes last says what counts.
struct Barrier {
    arrived: <Thread as Platform>::Word,
    open: <Thread as Platform>::Word,
    /// Begin and end of what counts.
    window: Cell<(Time, Time)>,
}

impl Barrier {
    fn new(outside: &Thread) -> Self {
        let line = outside.line();
        Barrier { arrived: outside.word(line, 0), open: outside.word(line, 0), window: Cell::default() }
    }

    fn wait(&self, t: &Thread, load: &Load) -> (Time, Time) {
        if t.fetch_add(&self.arrived, 1, Ordering::AcqRel) + 1 == u64::from(load.threads) {
            let begin = t.time() + load.warmup_ns;
            self.window.set((begin, begin + load.duration_ns));
            t.store(&self.open, 1, Ordering::Release);
            t.kick(&self.open, CpuId(0));
        }
        while t.load(&self.open, Ordering::Acquire) == 0 {
            t.halt(&self.open, 0);
        }
        self.window.get()
    }
}

/// What the lock guards: eight words beside it and eight on the next line, as natively.
struct Guarded<K> {
    lock: K,
    near: <Thread as Platform>::Cell<u64>,
    far: <Thread as Platform>::Cell<u64>,
    barrier: Barrier,
}

impl<K: MakeLock<Thread>> Guarded<K> {
    fn new(outside: &Thread, threads: u32) -> Self {
        let line = outside.line();
        let pool = Arc::new(K::pool(outside, threads as usize));
        Guarded {
            lock: K::on_line(outside, line, &pool),
            near: outside.cell(line, 0),
            far: outside.cell(outside.line(), 0),
            barrier: Barrier::new(outside),
        }
    }
}

/// Read the processor's counter.
#[inline]
fn counter(t: &Thread) -> Time {
    t.compute(COUNTER_READ);
    t.time()
}

/// One acquisition; returns what the thread had to wait.
#[inline]
fn once<K: RawLock<Thread>>(t: &Thread, shared: &Guarded<K>, asked: Time, critical: Nanos) -> Nanos {
    shared.lock.lock(t);
    let wait = counter(t).saturating_sub(asked);
    // SAFETY: the lock is held.
    let inside = unsafe {
        t.write(&shared.near, |n| {
            *n += 1;
            *n
        })
    };
    t.compute(critical);
    // SAFETY: the lock is held.
    let same = unsafe {
        t.write(&shared.far, |n| {
            *n += 1;
            *n
        })
    };
    assert_eq!(inside, same, "the lock let two threads in");
    shared.lock.unlock(t);
    wait
}

/// Run a lock that is not in the list.
///
/// # Errors
/// As [`SimulatedError`] says.
pub fn run_type<K: MakeLock<Thread> + 'static>(
    name: &str,
    load: &Load,
    repeat: u32,
    on: &On<'_>,
) -> Result<Row, SimulatedError> {
    load.check()?;
    let Load { threads, critical_ns, think_ns, warmup_ns, duration_ns, seed, .. } = *load;
    let crew = Crew {
        threads: threads as usize,
        hogs: load.hogs as usize,
        // Whoever waits at the end still gets the lock, and leaves.
        horizon: (warmup_ns + duration_ns).saturating_mul(100),
        yield_after: SPIN_BEFORE_YIELD,
        ..Crew::new(on.machine.clone(), on.preset.policy, on.preset.features.clone())
    };
    let seed = seed.wrapping_add(u64::from(repeat));
    let window = load.clone();
    let code = move |t: &Thread, shared: &Guarded<K>, mine: &mut Record| {
        let mut rng = Pcg64Mcg::seed_from_u64(seed << 32 | u64::from(t.cpu().0));
        let (begin, end) = shared.barrier.wait(t, &window);
        loop {
            let asked = counter(t);
            if asked >= end {
                break;
            }
            let wait = Wait::of((begin, end), asked, asked + once(t, shared, asked, critical_ns));
            mine.waits.record(wait);
            mine.count += u64::from(matches!(wait, Wait::Ended(_)));
            t.compute(rng.random_range(think_ns.0..=think_ns.1));
        }
    };
    let (result, records) = crew.run(move |outside| Guarded::<K>::new(outside, threads), code)?;
    if result.outcome != Outcome::Finished {
        return Err(SimulatedError::Outcome {
            lock: name.into(),
            threads,
            machine: on.machine.name.clone(),
            outcome: result.outcome.name(),
            detail: result.outcome.detail(),
        });
    }
    Ok(row(name, load, repeat, &result, &records))
}

fn row(name: &str, load: &Load, repeat: u32, result: &RunResult, records: &[Record]) -> Row {
    let counts: Vec<u64> = records.iter().map(|r| r.count).collect();
    let mut all = Waits::default();
    records.iter().for_each(|record| all.add(&record.waits, 1.0));
    let seconds = load.duration_ns as f64 * 1e-9;
    let own = || result.tasks.iter().filter(|t| t.name.starts_with('t'));
    let time = result.virtual_ns as f64 * result.cpus.len() as f64;
    let cpu_share = own().map(|t| t.run.sum_exec).sum::<u64>() as f64 / time;
    let switches = own().map(|t| t.run.switches).sum::<u64>() as f64 * 1e9 / result.virtual_ns as f64;
    Row::new(name, load, repeat, seconds, &counts, &all, cpu_share, switches)
}
