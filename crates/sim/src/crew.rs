//! Equal threads on a machine: what a benchmark of locks asks for.
//!
//! Each thread runs the same closure over state that all share, and records into a value of its own: host memory, without
//! simulated cost.

use crate::guest::Guests;
use crate::host::{Limits, RunResult, Setup, simulate};
use crate::program::{Cx, Op, Program, TaskSpec, Workload};
use crate::thread::{Thread, ThreadSpec};
use contend_machine::Machine;
use contend_platform::{CpuId, NEVER, Nanos, Time};
use contend_sched::features::{Features, PolicyKind};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

/// What runs where.
pub struct Crew {
    /// The machine.
    pub machine: Machine,
    /// The scheduler's policy.
    pub policy: PolicyKind,
    /// Its switches and tunables.
    pub features: Features,
    /// Equal threads, numbered from 0; at most [`CpuId::MAX_CPUS`].
    pub threads: usize,
    /// Tasks beside them that only compute, for as long as a thread lives.
    pub hogs: usize,
    /// End of the run if threads still live, in virtual ns.
    pub horizon: Time,
    /// [`ThreadSpec::yield_after`] of the threads.
    pub yield_after: Nanos,
}

/// Computes for ever.
struct Hog;

impl Program for Hog {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        Op::Run(1_000_000_000)
    }
}

impl Crew {
    /// One thread, no hogs, no horizon, waits that just spin.
    pub fn new(machine: Machine, policy: PolicyKind, features: Features) -> Self {
        Crew { machine, policy, features, threads: 1, hogs: 0, horizon: NEVER, yield_after: NEVER }
    }

    /// Run: `make` makes what the threads share, `body` is each thread's code, and the result comes with what each thread
    /// recorded, by number. Threads that the horizon cuts off have recorded what they have until then.
    ///
    /// # Errors
    /// The system refused memory for the stacks. What happens inside the simulation is the result's outcome.
    ///
    /// # Panics
    /// There are more threads than CPU numbers.
    pub fn run<S: 'static, R: Default + Send + 'static>(
        self,
        make: impl FnOnce(&Thread) -> S + Send + 'static,
        body: impl Fn(&Thread, &S, &mut R) + Send + 'static,
    ) -> std::io::Result<(RunResult, Vec<R>)> {
        let Crew { machine, policy, features, threads, hogs, horizon, yield_after } = self;
        assert!(threads <= CpuId::MAX_CPUS, "{threads} threads: at most {} have a number", CpuId::MAX_CPUS);
        let records: Vec<Arc<Mutex<R>>> = (0..threads).map(|_| Arc::default()).collect();
        let mut workload = Workload::default();
        for i in 0..hogs {
            workload.task(TaskSpec { background: true, ..TaskSpec::new(format!("hog{i}"), Hog) });
        }
        let own = records.clone();
        workload.threads = Some(Box::new(move |outside| {
            let shared = Rc::new((make(outside), body));
            let spec = |(i, record): (usize, Arc<Mutex<R>>)| {
                let shared = Rc::clone(&shared);
                let code = move |thread: &Thread| {
                    let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
                    (shared.1)(thread, &shared.0, &mut record);
                };
                ThreadSpec { yield_after, ..ThreadSpec::new(format!("t{i}"), i as u16, code) }
            };
            own.into_iter().enumerate().map(spec).collect()
        }));
        let limits = Limits { horizon, ..Limits::default() };
        let setup = Setup { machine, features, workload, seed: 1, limits, guests: Guests::default() };
        let result = simulate(policy, setup, None, &mut |_| true)?;
        let take = |record: Arc<Mutex<R>>| {
            let record = Arc::into_inner(record).expect("the simulation has let go of it");
            record.into_inner().unwrap_or_else(PoisonError::into_inner)
        };
        Ok((result, records.into_iter().map(take).collect()))
    }
}
