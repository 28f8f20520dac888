//! Is a replay true? The same counts of a recording and of its replay, side by side.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use contend_platform::{CpuId, Time};
use contend_sim::guest::Guests;
use contend_sim::host::{EventSink, Outcome, Setup, Status, Who, simulate};
use contend_sim::program::{Sched, Workload};
use contend_trace::Format;
use contend_workload::recording::stats::{Counts, FromIdle, Kept, SchedStats};
use contend_workload::recording::{RecordedTask, RecordingError, RecordingSpec};
use contend_workload::{WorkloadError, WorkloadSpec};
use serde::Serialize;

use crate::as_recorded::as_recorded;
use crate::error::{At, RunError, ScenarioError};
use crate::result::{Percentiles, RecordedLock, percentiles, recorded_locks};
use crate::run::limits;
use crate::scenario::Plan;

/// A recording and its replay.
#[derive(Clone, Debug, Serialize)]
pub struct Validation {
    /// The recording.
    pub recording: String,
    /// Where it was replayed.
    pub machine: String,
    /// Under which preset.
    pub policy: String,
    /// How the replay ended.
    pub outcome: &'static str,
    /// More words, such as who waits for whom.
    pub outcome_detail: String,
    /// What was read, and what is replayed.
    pub report: String,
    /// Kernel locks that the compared tasks waited for in the recording.
    pub recorded_locks: Vec<RecordedLock>,
    /// Arrivals of the compared tasks on idle CPUs that the kernel did not record. As many of each task's are left out of the replay's
    /// latencies and runs ([`FromIdle`]).
    pub hidden_arrivals: u64,
    /// Over all replayed tasks.
    pub all: Pair,
    /// By the tasks' names; those that were switched most come first.
    pub tasks: Vec<(String, Pair)>,
}

/// One of the two sides, or both.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// As recorded.
    pub recorded: Side,
    /// As simulated.
    pub simulated: Side,
}

/// What is compared.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// From the first run to the last switch, in s.
    pub seconds: f64,
    /// Switches away from the tasks.
    pub switches: u64,
    /// The same a second.
    pub switches_per_s: f64,
    /// Of the switches, those in which the task stayed runnable.
    pub preempted: u64,
    /// Switches to another CPU than the last.
    pub migrations: u64,
    /// Wake-ups.
    pub wakeups: u64,
    /// Of those, by the CPU on which the task had slept.
    pub wakeups_here: u64,
    /// Time on a CPU, in s.
    pub run_s: f64,
    /// From `sched_waking` to running, in µs.
    pub wakeup_latency_us: Percentiles,
    /// From coming to a CPU to leaving it, in µs.
    pub run_us: Percentiles,
}

fn side(c: &Counts, seconds: f64) -> Side {
    Side {
        seconds,
        switches: c.switches,
        switches_per_s: if seconds > 0.0 { c.switches as f64 / seconds } else { 0.0 },
        preempted: c.preempted,
        migrations: c.migrations,
        wakeups: c.wakeups,
        wakeups_here: c.wakeups_here,
        run_s: c.run_ns as f64 / 1e9,
        wakeup_latency_us: percentiles(&c.wakeup_latency),
        run_us: percentiles(&c.runs),
    }
}

/// `prev_state` of who exits.
const EXITED: u64 = 0x10;

/// Hands a simulation's events to statistics that outlive it.
struct Listener {
    stats: Rc<RefCell<SchedStats>>,
    /// The tasks that are compared: their numbers in the recording, by full names.
    watched: HashMap<String, u32>,
    /// Which of their arrivals on idle CPUs would be recorded.
    from_idle: FromIdle,
    /// Where each was woken last.
    woken: HashMap<u64, CpuId>,
    /// Who of them is on which CPU.
    on_cpu: Rc<RefCell<OnCpu>>,
}

/// Tasks by CPU: number in the simulation and in the recording.
type OnCpu = HashMap<CpuId, (u64, u32)>;

impl Listener {
    fn watched<'a>(&self, who: Option<Who<'a>>) -> Option<Who<'a>> {
        who.filter(|w| self.watched.contains_key(w.name))
    }

    /// Would the recorded kernel record that an idle CPU goes on to it?
    fn is_seen(&mut self, who: Who<'_>, cpu: CpuId) -> bool {
        let here = self.woken.get(&who.id) == Some(&cpu);
        self.from_idle.would_be_seen(self.watched[who.name].into(), here)
    }
}

impl EventSink for Listener {
    fn switch(&mut self, now: Time, cpu: CpuId, prev: Option<Who<'_>>, prev_state: u64, next: Option<Who<'_>>) {
        let from_idle = prev.is_none();
        let (prev, next) = (self.watched(prev), self.watched(next));
        match next {
            Some(who) => self.on_cpu.borrow_mut().insert(cpu, (who.id, self.watched[who.name])),
            None => self.on_cpu.borrow_mut().remove(&cpu),
        };
        let next = next.filter(|&who| !from_idle || self.is_seen(who, cpu));
        self.stats.borrow_mut().switch(now, cpu, prev, prev_state, next);
    }
    fn waking(&mut self, now: Time, cpu: CpuId, by: Option<Who<'_>>, who: Who<'_>, target: CpuId) {
        if self.watched.contains_key(who.name) {
            self.woken.insert(who.id, cpu);
            self.stats.borrow_mut().waking(now, cpu, by, who, target);
        }
    }
    fn wakeup(&mut self, _: Time, _: CpuId, _: Option<Who<'_>>, _: Who<'_>, _: CpuId, _: bool) {}
    fn migrate(&mut self, _: Time, _: CpuId, _: Option<Who<'_>>, _: Who<'_>, _: CpuId, _: CpuId) {}
    fn finish(&mut self, _: Time) -> std::io::Result<()> {
        Ok(())
    }
}

/// What it is called in its replay.
fn replayed_name(t: &RecordedTask) -> String {
    format!("{}-{}", t.name, t.pid)
}

/// Replay the recording that is `plan`'s workload on its machine, and compare. `progress` as for a run.
///
/// # Errors
/// The workload is no recording; otherwise as for a run. An interrupted replay's outcome says so.
pub fn validate(plan: &Plan, progress: &mut dyn FnMut(Status) -> bool) -> Result<Validation, RunError> {
    let Some(WorkloadSpec::Recording(spec)) = plan.workload.as_ref().filter(|_| plan.guests.is_empty()) else {
        let at = At { file: plan.file.clone(), line: 0, key: "workload.kind".into() };
        let found = plan.workload.as_ref().map_or("guests".into(), |w| format!("\"{}\"", w.kind()));
        let right = "a recording, and no guests: what was recorded is compared with its replay".into();
        return Err(ScenarioError::Value { at, found, right }.into());
    };
    let of_workload = |e: RecordingError| plan.workload_error(e.into());
    // As recorded, whatever the scenario scales.
    let spec = RecordingSpec { copies: 1, speed: 1.0, jobs: 0, ..spec.clone() };
    let bytes = plan.read_input(&spec.file);
    let bytes = bytes.map_err(|source| plan.workload_error(WorkloadError::Read { file: spec.file.clone(), source }))?;
    let mut kept = Kept::default();
    let recording = spec
        .read(bytes, &|name| plan.read_input(name), &mut |e, task_of| kept.event(e, task_of))
        .map_err(of_workload)?;
    // Whom to compare; and everything that ran, since it took CPU time and preempted those.
    let (_, report) = recording.model(&spec.command, spec.all).map_err(of_workload)?;
    if report.read.as_ref().is_some_and(|r| r.format == Format::Xentrace) {
        let found = "a binary trace of Xen".into();
        let right =
            "should be a recording of Linux; `contend xen replay` compares a trace with its replay on Xen".into();
        return Err(ScenarioError::WrongKind { file: spec.file.clone(), found, right }.into());
    }
    let (everything, _) = recording.model("", true).map_err(of_workload)?;
    let source = everything.source.clone();
    let mut workload = Workload::default();
    let rescaled = recording.rescaled(plan.machine.costs.cpu.speed.value);
    spec.play(everything, &mut workload, rescaled.factor()).map_err(of_workload)?;

    let compared: HashMap<u32, &RecordedTask> = report.per_task.iter().map(|t| (t.number, t)).collect();
    let recorded = kept.stats(|number| compared.get(&number).map(|t| t.name.as_str()));
    drop((recording, kept));

    let simulated = Rc::new(RefCell::new(SchedStats::default()));
    let nr_cpus = plan.machine.topology.nr_cpus();
    let setup = Setup {
        machine: plan.machine.clone(),
        features: as_recorded(&plan.features, &plan.preset, nr_cpus, &[source]),
        workload,
        seed: plan.seed,
        limits: limits(plan),
        guests: Guests::default(),
    };
    let watched = report.per_task.iter().map(|t| (replayed_name(t), t.number)).collect();
    let from_idle = recorded.from_idle.clone();
    let on_cpu = Rc::<RefCell<OnCpu>>::default();
    let (stats, woken) = (Rc::clone(&simulated), HashMap::new());
    let sink = Box::new(Listener { stats, watched, from_idle, woken, on_cpu: Rc::clone(&on_cpu) });
    let mut progress = crate::watched::watched(plan, None, progress);
    let result = simulate(plan.preset.policy, setup, Some(sink), &mut progress).map_err(RunError::Resources)?;
    drop(progress);
    // It ends in the exit of its last task, before the switch away from it, which a recording has.
    if result.outcome == Outcome::Finished {
        for (&cpu, &(id, number)) in &*on_cpu.borrow() {
            let name = replayed_name(compared[&number]);
            let who = Who { id, name: &name, sched: Sched::normal(0) };
            simulated.borrow_mut().switch(result.virtual_ns, cpu, Some(who), EXITED, None);
        }
    }
    let simulated = simulated.borrow();

    let pair = |r: &Counts, s: &Counts| Pair {
        recorded: side(r, recorded.seconds()),
        simulated: side(s, simulated.seconds()),
    };
    let all: BTreeSet<&String> = recorded.by_name.keys().chain(simulated.by_name.keys()).collect();
    let none = Counts::default();
    let of = |stats: &SchedStats, name: &str| stats.by_name.get(name).cloned().unwrap_or_else(|| none.clone());
    let mut tasks: Vec<(String, Pair)> =
        all.into_iter().map(|name| (name.clone(), pair(&of(&recorded, name), &of(&simulated, name)))).collect();
    tasks.sort_by_key(|(_, p)| std::cmp::Reverse(p.recorded.switches));
    Ok(Validation {
        recording: report.file.clone(),
        machine: plan.machine_base.name.clone(),
        policy: plan.preset.name.into(),
        outcome: if result.outcome == Outcome::Interrupted { "interrupted" } else { result.outcome.name() },
        outcome_detail: result.outcome.detail(),
        report: if rescaled.factor() == 1.0 { report.to_string() } else { format!("{report}\n  {rescaled}") },
        recorded_locks: recorded_locks(&report),
        hidden_arrivals: recorded.from_idle.unseen(),
        all: pair(&recorded.all, &simulated.all),
        tasks,
    })
}
