//! Tasks that never stop computing.

use contend_platform::Nanos;
use contend_sim::program::{Cx, Op, Program, Workload};

use super::{DURATION_MS_MAX, NS_PER_MS, cached, only};
use crate::spec::keys::spec;
use crate::spec::{Build, NiceList, WorkloadError};

spec! {
    /// CPU hogs. Runs until the duration is over.
    pub struct Hogs = "hogs" {
        /// How many. Default: no tool's; one is the least.
        tasks: u64 [1..=1_000_000] = 1, "tasks";
        /// Nice value, or several that the tasks take in turn. Default: an ordinary task's.
        nice: NiceList [()] = NiceList(vec![0]), "nice";
        /// Working set, fetched again after a migration. Default: a loop in registers.
        working_set_kib: u64 [0..=1_048_576] = 0, "KiB";
        /// Task i on CPU i (modulo their number) alone. Default: free to move.
        pin: bool [()] = false, "";
        /// How long. Default: 1 s, a hundred or more time slices.
        duration_ms: u64 [1..=DURATION_MS_MAX] = 1000, "ms";
    }
}

/// Length of one `Run`: nothing happens at its end, so any length gives the same schedule.
const CHUNK: Nanos = 1_000_000_000;

struct Hog;

impl Program for Hog {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        Op::Run(CHUNK)
    }
}

impl Build for Hogs {
    fn tasks(&self) -> u64 {
        self.tasks
    }

    fn build(&self, w: &mut Workload, nr_cpus: usize) -> Result<(), WorkloadError> {
        for i in 0..self.tasks {
            let mut task = cached(format!("hog{i}"), Hog, self.working_set_kib);
            task.sched = self.nice.sched(i);
            task.affinity = self.pin.then(|| only(i as usize % nr_cpus, nr_cpus));
            w.task(task);
        }
        w.horizon = Some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}
