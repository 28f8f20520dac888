//! Background tasks as a running system has them: short, rare, anywhere.
//!
//! What they are for: tasks that wake one another in turn keep the CPUs that they were given until somebody else takes one
//! of them. On a machine somebody does, within seconds. A simulated slice lasts milliseconds, so at first the daemons wake
//! much more often ("settling"), and the slice that is measured starts from placements like those of a long run.

use contend_platform::{Nanos, Time};
use contend_sim::program::{Cx, Op, Program, TaskSpec, Workload};
use rand::Rng;

use super::{DURATION_MS_MAX, NS_PER_MS, NS_PER_US, STEP_US_MAX};
use crate::spec::keys::spec;
use crate::spec::{Build, WorkloadError};

spec! {
    /// Background tasks that wake at random, for a part of a mix. Runs until the duration is over.
    /// Counts: daemon_wakeups.
    pub struct Daemons = "daemons" {
        /// How many. Default: an estimate; a server has hundreds, of which few are ever awake.
        tasks: u64 [1..=100_000] = 64, "tasks";
        /// Mean of a daemon's sleeps, which are random between none and twice this. Default: an estimate, with `tasks` a
        /// thousand wake-ups a second.
        sleep_us: u64 [1..=STEP_US_MAX] = 64_000, "us";
        /// CPU work after each sleep. Default: an estimate, 10 to 100.
        run_us: u64 [0..=STEP_US_MAX] = 30, "us";
        /// At first, until this time, sleeps are shorter. Default: no such time.
        settle_ms: u64 [0..=DURATION_MS_MAX] = 0, "ms";
        /// By this factor. Default: an estimate; 5 ms then hold the wake-ups of half a second.
        settle_factor: u64 [1..=10_000] = 100, "";
        /// How long. Default: 1 s.
        duration_ms: u64 [1..=DURATION_MS_MAX] = 1000, "ms";
    }
}

struct Daemon {
    sleep: Nanos,
    run: Nanos,
    settled: Time,
    factor: u64,
    sleeps: bool,
}

impl Program for Daemon {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        self.sleeps = !self.sleeps;
        if !self.sleeps {
            cx.metrics.count("daemon_wakeups", 1);
            return Op::Run(self.run);
        }
        let sleep = cx.rng.next_u64() % (2 * self.sleep);
        // A sleep that begins while the system settles ends then at the latest.
        let short = (sleep / self.factor).min(self.settled.saturating_sub(cx.now));
        Op::Sleep(if cx.now < self.settled { short } else { sleep }.max(1))
    }
}

impl Build for Daemons {
    fn tasks(&self) -> u64 {
        self.tasks
    }

    fn build(&self, w: &mut Workload, _: usize) -> Result<(), WorkloadError> {
        for i in 0..self.tasks {
            let daemon = Daemon {
                sleep: self.sleep_us * NS_PER_US,
                run: self.run_us * NS_PER_US,
                settled: self.settle_ms * NS_PER_MS,
                factor: self.settle_factor,
                sleeps: false,
            };
            w.task(TaskSpec::new(format!("daemon{i}"), daemon));
        }
        w.horizon = Some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}
