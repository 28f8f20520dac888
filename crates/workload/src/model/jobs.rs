//! Job structure: one task (the dispatcher: `make`, `xargs`, a test runner) starts others, never more than so many at once.
//!
//! The time of an exact model is that of its recording only in order: [`find`] takes the order of the recording's starts and ends,
//! which the chains were built in, from [`Order`]. A job that was started
//!
//! * when no other had ended since the start before it, or after an end that freed the last slot, waited for a **slot**
//!   if for anything;
//! * after an end when slots had been free already, waited for something that the recording does not name: for the job
//!   that ended, or, if none was left running, for **all** before it.
//!
//! With fewer slots than were recorded jobs that ran side by side run one after another: what a job's tasks waited for outside
//! of it may come only when it has ended ([`JobPlan::parts`]). They sleep as long as recorded instead.

use rustc_hash::{FxHashMap, FxHashSet};

use super::exact::Exact;
use super::step::{What, Why};

/// Fewer jobs than this are no structure.
const JOBS_MIN: usize = 4;

/// The jobs of a model.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jobs {
    /// One a dispatcher.
    pub dispatchers: Vec<Dispatcher>,
}

/// A task that starts jobs.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dispatcher {
    /// Number of the task.
    pub task: u32,
    /// Most jobs at once: the recording's limit.
    pub limit: u32,
    /// Its jobs, in the order of their starts.
    pub jobs: Vec<Job>,
}

/// A job: a child of the dispatcher, with all that it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Number of the task.
    pub task: u32,
    /// What its start waited for.
    pub start: Start,
}

/// What the start of a job waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// A free slot.
    Slot,
    /// The end of this task's job.
    After(u32),
    /// The end of all jobs before it.
    AfterAll,
}

/// Starts and ends of tasks in the order of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The first starts the second.
    Start(u32, u32),
    /// A task ends.
    End(u32),
    /// A task that has started others goes to sleep: it has done what there was to do.
    Sleep(u32),
}

/// Look for dispatchers, and for scripts: tasks that started several others, each after the end of the one before.
pub fn find(order: &[Order]) -> (Option<Jobs>, Vec<u32>) {
    let mut parents: FxHashMap<u32, u32> = FxHashMap::default();
    let mut seen: FxHashMap<u32, Seen> = FxHashMap::default();
    let mut tasks = Vec::new();
    for event in order {
        match *event {
            Order::Start(parent, child) => {
                parents.insert(child, parent);
                let seen = seen.entry(parent).or_insert_with(|| {
                    tasks.push(parent);
                    Seen::default()
                });
                seen.start(child);
            }
            Order::Sleep(task) => {
                if let Some(seen) = seen.get_mut(&task) {
                    seen.handled = true;
                }
            }
            Order::End(task) => {
                if let Some(seen) = parents.get(&task).and_then(|p| seen.get_mut(p)) {
                    seen.end(task);
                }
            }
        }
    }
    let dispatchers: Vec<Dispatcher> = tasks.iter().filter_map(|t| seen[t].dispatcher(*t)).collect();
    let scripts = tasks.into_iter().filter(|t| seen[t].most == 1 && seen[t].starts.len() > 1).collect();
    ((!dispatchers.is_empty()).then_some(Jobs { dispatchers }), scripts)
}

/// A child that has ended.
#[derive(Clone, Copy)]
struct Freed {
    /// How many ran before.
    ran: u32,
    /// How many were left running when the next was started.
    left: u32,
    /// Who it was.
    who: u32,
}

/// What was seen of one parent.
#[derive(Default)]
struct Seen {
    /// Children, and the end before their start, if one came since the start before.
    starts: Vec<(u32, Option<Freed>)>,
    running: u32,
    most: u32,
    /// How many ran before it, and who it was.
    last_end: Option<(u32, u32)>,
    /// It has slept since.
    handled: bool,
}

impl Seen {
    fn start(&mut self, child: u32) {
        let since = self.last_end.take().map(|(ran, who)| Freed { ran, left: self.running, who });
        self.starts.push((child, since));
        self.running += 1;
        self.most = self.most.max(self.running);
    }

    fn end(&mut self, child: u32) {
        // Several ends at once count as the first. But one that was seen, and led to no start, left a slot free.
        let before = self.last_end.filter(|_| !self.handled);
        let ran = before.map_or(self.running, |(ran, _)| ran.max(self.running));
        self.last_end = Some((ran, child));
        self.handled = false;
        self.running = self.running.saturating_sub(1);
    }

    fn dispatcher(&self, task: u32) -> Option<Dispatcher> {
        let limit = self.most;
        let jobs: Vec<Job> = (self.starts.iter())
            .map(|&(task, since)| {
                let start = match since {
                    None => Start::Slot,
                    Some(end) if end.ran >= limit => Start::Slot,
                    Some(end) if end.left == 0 => Start::AfterAll,
                    Some(end) => Start::After(end.who),
                };
                Job { task, start }
            })
            .collect();
        let for_slots = self.starts.iter().filter(|(_, s)| s.is_some_and(|end| end.ran >= limit)).count();
        // All at once and then none is a fork and a join; one after another is a script.
        let limited = for_slots >= 2 && limit > 1;
        (jobs.len() >= JOBS_MIN && limited).then_some(Dispatcher { task, limit, jobs })
    }
}

/// A job, as a player asks for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub number: u32,
    pub dispatcher: u32,
    pub start: Start,
    /// Jobs of the dispatcher that were started before.
    pub before: u32,
    /// Jobs that wait for the end of this one.
    pub needed_by: u32,
}

/// The jobs of a model by task and by step.
pub(super) struct JobPlan {
    pub dispatchers: u32,
    pub jobs: u32,
    by_task: FxHashMap<u32, Planned>,
    /// Number of each dispatcher's task, and how many jobs it has.
    by_dispatcher: FxHashMap<u32, (u32, u32)>,
    /// Steps that are a dispatcher's waits for the end of a job: the dispatcher, and how many jobs there are in all if
    /// none is started later.
    end_waits: FxHashMap<usize, (u32, Option<u32>)>,
    /// Steps that are the last post of a job to its dispatcher.
    end_posts: FxHashSet<usize>,
    /// Of each task the innermost job that it is part of, of those for which there are fewer slots than were recorded.
    narrowed: Vec<Option<u32>>,
    /// The same of the tasks that started these jobs, by the job's task.
    outer: FxHashMap<u32, Option<u32>>,
}

impl JobPlan {
    pub fn new(model: &Exact, jobs: &Jobs, slots: u32) -> Self {
        let mut plan = JobPlan {
            dispatchers: jobs.dispatchers.len() as u32,
            jobs: 0,
            by_task: FxHashMap::default(),
            by_dispatcher: FxHashMap::default(),
            end_waits: FxHashMap::default(),
            end_posts: FxHashSet::default(),
            narrowed: Vec::with_capacity(model.tasks.len()),
            outer: FxHashMap::default(),
        };
        for (d, dispatcher) in jobs.dispatchers.iter().enumerate() {
            plan.add(model, d as u32, dispatcher);
        }
        let fewer: FxHashSet<u32> =
            (jobs.dispatchers.iter().filter(|d| slots < d.limit)).flat_map(|d| d.jobs.iter().map(|j| j.task)).collect();
        // Parents stand before their children.
        for (task, parent) in (0u32..).zip(model.parents()) {
            let around = parent.and_then(|p| plan.narrowed.get(p as usize).copied().flatten());
            if fewer.contains(&task) {
                plan.outer.insert(task, around);
            }
            plan.narrowed.push(if fewer.contains(&task) { Some(task) } else { around });
        }
        plan
    }

    /// Whether `sleeper` is part of a job that may run without `waker`, which is not: with fewer slots than were recorded
    /// the waker's job may come only when this one has ended, or the waker may wait for its slot.
    pub fn parts(&self, waker: u32, sleeper: u32) -> bool {
        let job = self.narrowed[sleeper as usize];
        let mut at = self.narrowed[waker as usize];
        while at != job {
            match at {
                Some(inner) => at = self.outer[&inner],
                None => return true,
            }
        }
        false
    }

    fn add(&mut self, model: &Exact, d: u32, dispatcher: &Dispatcher) {
        self.by_dispatcher.insert(dispatcher.task, (d, dispatcher.jobs.len() as u32));
        for (before, job) in dispatcher.jobs.iter().enumerate() {
            let planned =
                Planned { number: self.jobs, dispatcher: d, start: job.start, before: before as u32, needed_by: 0 };
            self.by_task.insert(job.task, planned);
            self.jobs += 1;
        }
        for job in &dispatcher.jobs {
            if let Start::After(task) = job.start {
                let Some(needed) = self.by_task.get_mut(&task) else { continue };
                needed.needed_by += 1;
                let number = needed.number;
                self.by_task.get_mut(&job.task).expect("just added").start = Start::After(number);
            }
        }
        let task = &model.tasks[dispatcher.task as usize];
        // How many waits of the dispatcher each job ended; the last belongs to its end.
        let mut waits: FxHashMap<u32, usize> = FxHashMap::default();
        let mut last_start = task.from;
        for at in task.from..task.to {
            match model.steps[at].what() {
                What::By(who) if self.is_job_of(who, d) => {
                    waits.insert(who, at - 1);
                }
                What::Spawn(_) => last_start = at,
                _ => {}
            }
        }
        for job in &dispatcher.jobs {
            let t = &model.tasks[job.task as usize];
            let end = (t.from..t.to)
                .rev()
                .find(|&at| matches!(model.steps[at].what(), What::Post(who, _) if who == dispatcher.task));
            let (Some(end), Some(&wait), true) = (end, waits.get(&job.task), t.exited) else { continue };
            // A post with more of the job's life behind it is no end: the parent of a vfork.
            let lives_on =
                (end..t.to).any(|at| matches!(model.steps[at].what(), What::Sleep(_, why) if why != Why::Unseen));
            if !lives_on {
                let all = (wait > last_start).then_some(dispatcher.jobs.len() as u32);
                self.end_waits.insert(wait, (d, all));
                self.end_posts.insert(end);
            }
        }
    }

    fn is_job_of(&self, task: u32, dispatcher: u32) -> bool {
        self.by_task.get(&task).is_some_and(|j| j.dispatcher == dispatcher)
    }

    /// The job that this task is; a start's [`Start::After`] is a job's number.
    pub fn job_of(&self, task: u32) -> Option<Planned> {
        self.by_task.get(&task).copied()
    }

    /// Number and jobs of the dispatcher that this task is.
    pub fn dispatcher(&self, task: u32) -> Option<(u32, u32)> {
        self.by_dispatcher.get(&task).copied()
    }

    /// Whether this step is a dispatcher's wait for the end of a job.
    pub fn end_wait(&self, at: usize) -> Option<(u32, Option<u32>)> {
        self.end_waits.get(&at).copied()
    }

    /// Whether this step is the post that a job's end makes.
    pub fn end_post(&self, at: usize) -> bool {
        self.end_posts.contains(&at)
    }
}
