//! The exact form: what each task did, step by step.
//!
//! **A replay cannot deadlock.** Whatever a step needs stands before it in the recording: a wait's end needs a post, a task's first
//! step its spawn, a post that is held (`pairs`) the beginning of a wait. Were all tasks stuck, take the step that came first in the
//! recording among those that they are stuck in: what it needs is a step before it, of a task that is stuck in a later
//! one: it has been executed. A post of a stream (`pairs`) is made before its writer sleeps or ends; whoever holds a mutex (`mutexes`)
//! waits for no task, so it gets to its unlocking. At a barrier (`barriers`) nobody waits for what comes after the round.
//!
//! Slots (`jobs`), as many as were recorded or more, change nothing: a job that holds one while another waits for it had ended before in
//! the recording. With fewer it had not. There a job's waits for tasks outside of it are sleeps, so each job ends by itself, those
//! within it first; every slot becomes free, and among the tasks of one job the argument is as before. Where servers stand in for each
//! other, see `pairs`.

use super::jobs::Jobs;
use super::source::Source;
use super::step::{Step, What, Why};
use contend_sim::program::Sched;

/// Everything that the tasks of a recording did.
#[derive(Clone, Debug, Default)]
pub struct Exact {
    /// Where it is from.
    pub source: Source,
    /// The tasks, in the order in which they were first seen: parents before their children.
    pub tasks: Vec<Task>,
    /// The steps of all tasks, one after another.
    pub steps: Vec<Step>,
    /// Job structure, where there is one.
    pub jobs: Option<Jobs>,
    /// Tasks that started others one after another, as a script does.
    pub scripts: Vec<u32>,
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its last name.
    pub name: String,
    /// Its number where it was recorded.
    pub pid: u32,
    /// Class and priority.
    pub sched: Sched,
    /// Its session (`setsid`), the last one, if that is known.
    pub session: Option<u32>,
    /// Its steps: `steps[from..to]`.
    pub from: usize,
    /// End of its steps.
    pub to: usize,
    /// It starts when the workload starts, not by a spawn.
    pub initial: bool,
    /// Its end was recorded.
    pub exited: bool,
}

impl Exact {
    /// A task's steps.
    pub fn steps_of(&self, task: usize) -> impl DoubleEndedIterator<Item = What> + '_ {
        self.steps[self.tasks[task].from..self.tasks[task].to].iter().map(|s| s.what())
    }

    /// Who started each task.
    pub fn parents(&self) -> Vec<Option<u32>> {
        let mut parents = vec![None; self.tasks.len()];
        for i in 0..self.tasks.len() {
            for step in self.steps_of(i) {
                if let What::Spawn(child) = step {
                    parents[child as usize] = Some(i as u32);
                }
            }
        }
        parents
    }

    /// The classes and priorities that a task has, in order.
    pub fn scheds_of(&self, task: usize) -> impl Iterator<Item = Sched> + '_ {
        let later = self.steps_of(task).filter_map(|s| if let What::Sched(sched) = s { Some(sched) } else { None });
        std::iter::once(self.tasks[task].sched).chain(later)
    }

    /// The one in which a task sleeps most often; of equals the first.
    pub fn main_sched(&self, task: usize) -> Sched {
        let mut sleeps: Vec<(Sched, u64)> = vec![(self.tasks[task].sched, 0)];
        let mut at = 0;
        for step in self.steps_of(task) {
            match step {
                What::Sched(sched) => {
                    at = sleeps.iter().position(|(s, _)| *s == sched).unwrap_or(sleeps.len());
                    if at == sleeps.len() {
                        sleeps.push((sched, 0));
                    }
                }
                What::Sleep(..) => sleeps[at].1 += 1,
                _ => {}
            }
        }
        let most = sleeps.iter().map(|(_, n)| *n).max();
        sleeps.into_iter().find(|(_, n)| Some(*n) == most).expect("the first is there").0
    }

    /// CPU time of a task, in ns.
    pub fn run_ns(&self, task: usize) -> u64 {
        self.steps_of(task).map(|s| if let What::Run(ns) | What::Kernel(ns, _) = s { ns } else { 0 }).sum()
    }

    /// Number and length in ns of the sleeps that ended so, over all tasks.
    pub fn sleeps(&self) -> Vec<(Why, u64, u64)> {
        let mut sums = [(0, 0); Why::ALL.len()];
        for step in &self.steps {
            if let What::Sleep(ns, why) = step.what() {
                sums[why as usize].0 += 1;
                sums[why as usize].1 += ns;
            }
        }
        std::iter::zip(Why::ALL, sums).map(|(why, (n, ns))| (why, n, ns)).collect()
    }
}
