//! Recordings as models: what `contend model` writes, and what it says of them.

use std::path::Path;

use contend_trace::xentrace::Clock;
use contend_workload::WorkloadSpec;
use contend_workload::model::fitted::{self, Fitted};
use contend_workload::model::step::{What, Why};
use contend_workload::model::{Exact, Model, Start, rt_app};
use contend_workload::recording::{RecordingReport, RecordingSpec};
use serde_json::{Value, json};

use crate::error::{At, RunError, ScenarioError};
use crate::result::recorded_locks;
use crate::scenario::{Plan, Scenario};
use crate::target::{OutFile, beginning, write_error};

/// What is to be made of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// What happened, as columns (`.arrow`).
    Exact,
    /// Roles with distributions, as text (`.toml`).
    Fitted,
    /// The roles' CPU profiles as a file of rt-app (`.json`).
    RtApp,
}

impl Form {
    /// The form that a file's name says.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "arrow" => Some(Form::Exact),
            "toml" => Some(Form::Fitted),
            "json" => Some(Form::RtApp),
            _ => None,
        }
    }
}

/// What of a recording is meant, and how it is to be read (docs/recordings.md).
#[derive(Clone, Debug, Default)]
pub struct Which {
    /// The tasks that this command started; empty: the first one's.
    pub command: String,
    /// All tasks.
    pub all: bool,
    /// Frequency of a binary Xen trace's time stamps.
    pub cpu_hz: Option<u64>,
}

/// A recording, or an exact model, as a model: what it holds as one JSON object. With `out` it is written there, in the form that the name
/// says; whole or not at all.
///
/// # Errors
/// `path` is neither; nothing in it can be replayed; `out` has another ending than `.toml`, `.arrow` or `.json`, or cannot be written.
pub fn model(path: &Path, which: &Which, out: Option<&Path>) -> Result<Value, RunError> {
    let form = out.map(|out| {
        Form::of(out).ok_or_else(|| {
            let at = At::option("--out");
            let right = "a name that ends in .toml (fitted), .arrow (exact) or .json (rt-app)".into();
            ScenarioError::Value { at, found: format!("\"{}\"", out.display()), right }
        })
    });
    let form = form.transpose()?;
    let plan = Scenario::from_path(path)?.plan()?;
    let target = out.map(|out| target(&plan, out)).transpose()?;
    let (model, report) = of_plan(&plan, which)?;
    let mut said = match &model {
        Model::Exact(exact) => describe(exact, &fitted::fit(exact)),
        Model::Fitted(fitted) => json!({"form": "fitted", "source": fitted.source, "roles": roles(fitted)}),
    };
    said["report"] = report.as_ref().map_or(String::new(), ToString::to_string).into();
    said["recorded_locks"] = json!(report.iter().flat_map(recorded_locks).collect::<Vec<_>>());
    let (Some(form), Some(out), Some(target)) = (form, out, target) else { return Ok(said) };
    let bytes = match (form, model) {
        (Form::Exact, model @ Model::Exact(_)) => model.to_bytes(),
        (Form::Exact, Model::Fitted(_)) => {
            let at = At::option("--out");
            let right = ".toml or .json: what happened is not in a fitted model".into();
            return Err(ScenarioError::Value { at, found: format!("\"{}\"", out.display()), right }.into());
        }
        (Form::Fitted, Model::Exact(exact)) => Model::Fitted(fitted::fit(&exact)).to_bytes(),
        (Form::Fitted, model) => model.to_bytes(),
        (Form::RtApp, Model::Exact(exact)) => rt_app(&fitted::fit(&exact)).into_bytes(),
        (Form::RtApp, Model::Fitted(fitted)) => rt_app(&fitted).into_bytes(),
    };
    let partial = target.partial();
    std::fs::write(&partial.0, bytes).map_err(|e| write_error(out, &e))?;
    target.publish(partial, out)?;
    Ok(said)
}

/// Where a model of a plan's workload may be written: not over that workload's file, nor over what is no model.
fn target(plan: &Plan, out: &Path) -> Result<OutFile, RunError> {
    let named = match &plan.workload {
        Some(WorkloadSpec::Recording(spec)) => Some(spec.file.as_str()),
        Some(WorkloadSpec::Model(spec)) => Some(spec.file.as_str()),
        _ => None,
    };
    OutFile::check(out, plan.files(named.into_iter()), "a model of contend", |file| {
        let bytes = beginning(file, crate::scenario::INPUT_BYTES_MAX);
        // Of rt-app's files those that are made here.
        let rt_app = |json: Value| {
            let tasks = json["tasks"].as_object().filter(|_| json["global"].is_object());
            tasks.is_some_and(|tasks| tasks.values().all(|t| t["phases"]["turns"].is_object()))
        };
        Model::parse(&bytes, "").is_ok() || serde_json::from_slice(&bytes).is_ok_and(rt_app)
    })
}

/// The model of a plan's workload, and what became of its recording.
fn of_plan(plan: &Plan, which: &Which) -> Result<(Model, Option<RecordingReport>), RunError> {
    let read = |file: &str| plan.read_input(file);
    let input = |file: &str| {
        let read = read(file);
        read.map_err(|e| RunError::from(ScenarioError::Read { file: file.into(), why: contend_machine::reason(&e) }))
    };
    match &plan.workload {
        Some(WorkloadSpec::Recording(spec)) => {
            let Which { command, all, cpu_hz } = which.clone();
            let cpu_hz = cpu_hz.unwrap_or(spec.cpu_hz);
            if !Clock::HZ_RANGE.contains(&cpu_hz) {
                let right = format!("{} to {} Hz", Clock::HZ_RANGE.start(), Clock::HZ_RANGE.end());
                return Err(
                    ScenarioError::Value { at: At::option("--cpu-hz"), found: cpu_hz.to_string(), right }.into()
                );
            }
            let spec = RecordingSpec { command, all, cpu_hz, ..spec.clone() };
            let made = spec.model(input(&spec.file)?, &read);
            let (model, report) = made.map_err(|e| plan.workload_error(e.into()))?;
            Ok((Model::Exact(model), Some(report)))
        }
        Some(WorkloadSpec::Model(spec)) => {
            if let Some(hz) = which.cpu_hz {
                let right = "none: a model has times".into();
                return Err(ScenarioError::Value { at: At::option("--cpu-hz"), found: hz.to_string(), right }.into());
            }
            let model = Model::parse(&input(&spec.file)?, &spec.file).map_err(|e| plan.workload_error(e.into()))?;
            Ok((model, None))
        }
        other => {
            let at = At { file: plan.file.clone(), line: 0, key: "workload.kind".into() };
            let found = other.as_ref().map_or("guests".into(), |w| format!("\"{}\"", w.kind()));
            Err(ScenarioError::Value { at, found, right: "a recording or a model".into() }.into())
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn describe(model: &Exact, fitted: &Fitted) -> Value {
    let sleeps: Vec<Value> = (model.sleeps().into_iter())
        .filter(|(_, n, _)| *n > 0)
        .map(|(why, n, ns)| json!({"why": why.name(), "count": n, "s": seconds(ns)}))
        .collect();
    let run_ns: u64 = (0..model.tasks.len()).map(|i| model.run_ns(i)).sum();
    json!({
        "form": "exact",
        "source": model.source,
        "tasks": model.tasks.len(),
        "steps": model.steps.len(),
        "run_s": seconds(run_ns),
        "span_s": seconds(model.source.span_ns),
        "busy_cpus": run_ns as f64 / model.source.span_ns.max(1) as f64,
        "sleeps": sleeps,
        "roles": roles(fitted),
        "jobs": jobs(model),
        "limits": limits(model),
    })
}

fn roles(model: &Fitted) -> Value {
    let role = |r: &fitted::Role| {
        let ends: Vec<Value> = (r.ends.iter())
            .map(|e| json!({"by": e.by, "role": e.role, "share": e.share, "open": e.open, "mean_us": e.us.mean()}))
            .collect();
        json!({
            "name": r.name,
            "tasks": r.tasks,
            "serves": r.serves,
            "turns": r.turns.mean(),
            "run_us": r.run_us.mean(),
            "ends": ends,
            "wakes": r.wakes,
            "starts": r.starts,
        })
    };
    model.roles.iter().map(role).collect()
}

/// CPU time of a task and all that it starts, in ns.
fn tree_ns(model: &Exact, parents: &[Option<u32>]) -> Vec<u64> {
    let mut sums: Vec<u64> = (0..model.tasks.len()).map(|i| model.run_ns(i)).collect();
    // Children stand behind their parents.
    for i in (0..sums.len()).rev() {
        if let Some(p) = parents[i] {
            sums[p as usize] += sums[i];
        }
    }
    sums
}

fn jobs(model: &Exact) -> Value {
    let sums = tree_ns(model, &model.parents());
    let dispatcher = |d: &contend_workload::model::jobs::Dispatcher| {
        let of = |f: fn(&Start) -> bool| d.jobs.iter().filter(|j| f(&j.start)).count();
        let all: u64 = d.jobs.iter().map(|j| sums[j.task as usize]).sum();
        let longest = d.jobs.iter().map(|j| sums[j.task as usize]).max().unwrap_or(0);
        json!({
            "dispatcher": model.tasks[d.task as usize].name,
            "jobs": d.jobs.len(),
            "limit": d.limit,
            "for_slots": of(|s| *s == Start::Slot),
            "after_one": of(|s| matches!(s, Start::After(_))),
            "after_all": of(|s| *s == Start::AfterAll),
            "run_s": seconds(all),
            "longest_s": seconds(longest),
            "own_run_s": seconds(model.run_ns(d.task as usize)),
        })
    };
    model.jobs.iter().flat_map(|j| &j.dispatchers).map(dispatcher).collect()
}

/// What a run elsewhere cannot be better than, in sentences.
fn limits(model: &Exact) -> Vec<String> {
    let mut said = Vec::new();
    let sums = tree_ns(model, &model.parents());
    for d in model.jobs.iter().flat_map(|j| &j.dispatchers) {
        let name = &model.tasks[d.task as usize].name;
        let alone = d.jobs.iter().filter(|j| j.start != Start::Slot).count();
        let all: u64 = d.jobs.iter().map(|j| sums[j.task as usize]).sum();
        let longest = d.jobs.iter().map(|j| sums[j.task as usize]).max().unwrap_or(0).max(1);
        said.push(format!(
            "{name} ran at most {} of its {} jobs at once: the recording's limit, which `--jobs N` moves. {alone} of them waited for \
             other jobs, and do so elsewhere. The longest took {:.3} s of CPU time, all together {:.3} s: with any number of CPUs they take \
             {:.1} times less than one after another, at most.",
            d.limit,
            d.jobs.len(),
            seconds(longest),
            seconds(all),
            all as f64 / longest as f64,
        ));
    }
    let starts = |task: u32| model.steps_of(task as usize).filter(|s| matches!(s, What::Spawn(_))).count();
    if let Some(task) = model.scripts.iter().copied().max_by_key(|&t| starts(t)) {
        said.push(format!(
            "{} started its {} tasks one after another{}: the program's own order, here and elsewhere.",
            model.tasks[task as usize].name,
            starts(task),
            match model.scripts.len() {
                1 => String::new(),
                n => format!(", and so did {} more", n - 1),
            }
        ));
    }
    let mut fixed = [0u64; 2];
    for (why, _, ns) in model.sleeps() {
        match why {
            Why::Io => fixed[0] += ns,
            Why::Timer | Why::Outside | Why::Interrupt | Why::Unseen => fixed[1] += ns,
            Why::Task => {}
        }
    }
    for (ns, what) in std::iter::zip(fixed, ["devices", "timers, and whom the model leaves out"]) {
        if ns > 0 {
            said.push(format!(
                "Sleeps for {what} ({:.3} s over all tasks) are as long elsewhere as they were recorded.",
                seconds(ns)
            ));
        }
    }
    if model.jobs.is_none() {
        said.push(
            "No task starts others a few at a time: on more CPUs the same tasks run; `--copies N` runs N of them side by side.".into(),
        );
    }
    said
}

/// CPUs of the machine that a model's recording was made on.
pub(crate) fn recorded_cpus(path: &Path) -> Result<u32, ScenarioError> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path)
        .map_err(|e| ScenarioError::Read { file: name.clone(), why: contend_machine::reason(&e) })?;
    let model = Model::parse(&bytes, &name).map_err(|e| ScenarioError::Workload(Box::new(e.into())))?;
    Ok(model.source().cpus.max(1))
}
