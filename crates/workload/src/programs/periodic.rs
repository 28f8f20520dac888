//! Tasks that run and sleep, each with its own sleep: `sleep_us + (i mod sleep_steps) x sleep_step_us`.
//!
//! With the defaults this is the load by which the simulators of `docs/performance.md` were compared.

use contend_platform::Nanos;
use contend_sim::program::{Cx, Op, Program, Workload};

use super::{DURATION_MS_MAX, NS_PER_MS, NS_PER_US, STEP_US_MAX, cached};
use crate::spec::keys::spec;
use crate::spec::{Build, NiceList, WorkloadError};

spec! {
    /// Tasks that run and sleep in turn; task i sleeps sleep_us + (i mod sleep_steps) x sleep_step_us. Runs until the
    /// duration is over. Counts: periods (at each task's 64th period and so on).
    pub struct Periodic = "periodic" {
        /// Tasks. Default: the load that simulators are compared by, 256 tasks on 64 CPUs.
        tasks: u64 [1..=1_000_000] = 256, "tasks";
        /// Time running. Default: of the same load.
        run_us: u64 [0..=STEP_US_MAX] = 3000, "us";
        /// Task 0's sleep. Default: of the same load.
        sleep_us: u64 [0..=STEP_US_MAX] = 1000, "us";
        /// Longer sleep of the next task. Default: of the same load.
        sleep_step_us: u64 [0..=STEP_US_MAX] = 1000, "us";
        /// Different sleeps. Default: of the same load.
        sleep_steps: u64 [1..=1_000] = 7, "tasks";
        /// Nice value, or several that the tasks take in turn. Default: an ordinary task's.
        nice: NiceList [()] = NiceList(vec![0]), "nice";
        /// Working set, fetched again after a migration. Default: of the same load, which has none.
        working_set_kib: u64 [0..=1_048_576] = 0, "KiB";
        /// How long. Default: of the same load.
        duration_ms: u64 [1..=DURATION_MS_MAX] = 20_000, "ms";
    }
}

/// Periods between two counts.
const BULK: u64 = 64;

struct Periods {
    run: Nanos,
    sleep: Nanos,
    running: bool,
    periods: u64,
}

impl Program for Periods {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        self.running = !self.running;
        if !self.running {
            return Op::Sleep(self.sleep);
        }
        self.periods += 1;
        if self.periods.is_multiple_of(BULK) {
            cx.metrics.count("periods", BULK);
        }
        Op::Run(self.run)
    }
}

impl Build for Periodic {
    fn tasks(&self) -> u64 {
        self.tasks
    }

    fn build(&self, w: &mut Workload, _: usize) -> Result<(), WorkloadError> {
        for i in 0..self.tasks {
            let sleep_us = self.sleep_us + i % self.sleep_steps * self.sleep_step_us;
            let periods =
                Periods { run: self.run_us * NS_PER_US, sleep: sleep_us * NS_PER_US, running: false, periods: 0 };
            let mut task = cached(format!("periodic{i}"), periods, self.working_set_kib);
            task.sched = self.nice.sched(i);
            w.task(task);
        }
        w.horizon = Some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}
