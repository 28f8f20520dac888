//! Model files: fitted ones are TOML, exact ones Arrow IPC with a row a step. A file's form is told by its content.
//!
//! The columns of an exact model: `task` (number), `step` (`run`, `kernel`, `sleep`, `post`, `spawn`, `yield`, `sched`, `lock`, `locked`,
//! `unlock`), `ns` (of run, kernel and sleep), `why` (of sleep: [`Why`]; of post: `sync` or nothing; of lock: `waited` or nothing; of sched the
//! class from there on, `fifo:50` say), `peer`
//! (of post and spawn the task, of a sleep the task that ended it, or the CPU of the device's interrupt; of lock and unlock the mutex). The tasks and where the model is from are TOML under the schema's key `contend_model`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::io::Cursor;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use contend_machine::Unit;
use contend_sim::program::Sched;
use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use super::class;
use super::exact::{Exact, Task};
use super::fitted::{Fitted, Role};
use super::jobs::Jobs;
use super::source::{NewidlePulls, Source};
use super::step::{Step, What, Why};

/// Version of the files.
const SCHEMA: u32 = 1;
/// The key of an exact model's head.
const HEAD: &str = "contend_model";
/// What Arrow IPC files begin with.
const ARROW: &[u8] = b"ARROW1";
/// The `why` of a synchronous post.
const SYNC: &str = "sync";

/// Of a kernel step: the system call then does the next step, too.
const BLOCKS: &str = "blocks";
/// The `why` of a lock that was waited for.
const WAITED: &str = "waited";
/// Tasks of a model.
const TASKS_MAX: usize = 1_000_000;

/// A model of either form.
#[derive(Clone, Debug)]
pub enum Model {
    /// What happened.
    Exact(Exact),
    /// Roles with distributions.
    Fitted(Fitted),
}

/// Why a file is no model.
#[derive(Debug, thiserror::Error)]
#[error("{file}{line}{key}: {what}")]
pub struct ModelError {
    /// The file.
    pub file: String,
    /// The line, or `0`.
    pub line: Line,
    /// A colon, a blank and the key; or nothing.
    pub key: String,
    /// What is wrong, and what would be right.
    pub what: String,
}

/// A line, if there are lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line(pub usize);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0 { write!(f, ":{}", self.0) } else { Ok(()) }
    }
}

/// The head of an exact model.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    schema: u32,
    form: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scripts: Vec<u32>,
    source: Source,
    #[serde(default)]
    jobs: Option<Jobs>,
    #[serde(default)]
    task: Vec<HeadTask>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadTask {
    name: String,
    pid: u32,
    nice: i8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sched: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<u32>,
    initial: bool,
    exited: bool,
}

/// A fitted model's file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    schema: u32,
    form: String,
    source: Source,
    #[serde(default)]
    role: Vec<Role>,
}

const ABOUT: &str = "\
# A workload as roles, fitted to a recording by `contend model`; docs/models.md explains the keys. Edit at will.
# Quantiles are the values at 0, 10, 25, 50, 75, 90, 95, 99 and 100 %, or one value for all.
";

impl Model {
    /// From a file's bytes; `file` names it in errors.
    ///
    /// # Errors
    /// Not a model; a key or value that is not right; steps that contradict each other.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, ModelError> {
        if bytes.starts_with(ARROW) {
            exact(bytes, file).map(Model::Exact)
        } else {
            fitted(bytes, file).map(Model::Fitted)
        }
    }

    /// The file.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Model::Exact(model) => columns(model),
            Model::Fitted(model) => {
                let Fitted { source, roles: role } = model.clone();
                let text = Text { schema: SCHEMA, form: "fitted".into(), source, role };
                let body = toml::to_string(&text).expect("plain values");
                format!("{ABOUT}{body}").into_bytes()
            }
        }
    }

    /// `exact` or `fitted`.
    pub fn form(&self) -> &'static str {
        match self {
            Model::Exact(_) => "exact",
            Model::Fitted(_) => "fitted",
        }
    }

    /// Where it is from.
    pub fn source(&self) -> &Source {
        match self {
            Model::Exact(m) => &m.source,
            Model::Fitted(m) => &m.source,
        }
    }
}

fn error(file: &str, key: &str, what: impl Into<String>) -> ModelError {
    let key = if key.is_empty() { String::new() } else { format!(": {key}") };
    ModelError { file: file.into(), line: Line(0), key, what: what.into() }
}

/// The line where that stands; none of an empty one.
fn line_of(text: &str, span: &Range<usize>) -> Line {
    if span.is_empty() {
        return Line(0);
    }
    Line(1 + text.as_bytes()[..span.start.min(text.len())].iter().filter(|b| **b == b'\n').count())
}

/// Where a fitted model says that of its source.
fn line_in_source(text: &str, key: &str) -> Line {
    let found = DeTable::parse(text).ok().and_then(|t| {
        let source = t.get_ref().get("source")?.get_ref().as_table()?;
        Some(line_of(text, &source.get(key)?.span()))
    });
    found.unwrap_or(Line(0))
}

fn fitted(bytes: &[u8], file: &str) -> Result<Fitted, ModelError> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        let right = "neither text nor Arrow: should be a model, as `contend model RECORDING --out FILE` writes";
        return Err(error(file, "", right));
    };
    let whole = text;
    let text: Text = toml::from_str(text).map_err(|e| {
        let what = e.message().trim().replace('\n', "; ");
        let toml = toml::from_str::<toml::Table>(text).is_ok();
        let right = "; not TOML, should be a model, as `contend model RECORDING --out FILE` writes (kind = \"recording\" replays a recording)";
        let what = if toml { what } else { format!("{what}{right}") };
        ModelError { file: file.into(), line: e.span().map_or(Line(0), |s| line_of(text, &s)), key: String::new(), what }
    })?;
    if (text.schema, text.form.as_str()) != (SCHEMA, "fitted") {
        let found = format!("found schema = {}, form = \"{}\"", text.schema, text.form);
        return Err(error(file, "schema", format!("{found}; should be schema = {SCHEMA}, form = \"fitted\"")));
    }
    check_source(&text.source).map_err(|(key, what)| ModelError {
        line: line_in_source(whole, key),
        ..error(file, &format!("source.{key}"), what)
    })?;
    let model = Fitted { source: text.source, roles: text.role };
    match model.check() {
        None => Ok(model),
        Some((key, found, right)) => Err(error(file, &key, format!("found {found}; should be {right}"))),
    }
}

/// What is wrong of which of its keys.
fn check_source(source: &Source) -> Result<(), (&'static str, String)> {
    let (speed, max) = (source.machine_speed, Unit::PerS.max());
    if speed > max {
        return Err(("machine_speed", format!("found {speed}; should be 0 to {max}")));
    }
    let NewidlePulls { chances, pulled } = source.newidle;
    if pulled > chances {
        return Err(("newidle", format!("found {pulled} pulled of {chances} chances; should be at most as many")));
    }
    Ok(())
}

/// Rows of an exact model.
fn columns(model: &Exact) -> Vec<u8> {
    let mut task: Vec<u32> = Vec::new();
    let mut step: Vec<&str> = Vec::new();
    let mut ns: Vec<Option<u64>> = Vec::new();
    let mut why: Vec<Option<Cow<'_, str>>> = Vec::new();
    let mut peer: Vec<Option<u32>> = Vec::new();
    for i in 0..model.tasks.len() {
        for what in model.steps_of(i) {
            let row = match what {
                What::Run(n) => ("run", Some(n), None, None),
                What::Kernel(n, blocks) => ("kernel", Some(n), blocks.then_some(BLOCKS.into()), None),
                What::Sleep(n, w) => ("sleep", Some(n), Some(w.name().into()), None),
                What::Post(t, sync) => ("post", None, sync.then_some(SYNC.into()), Some(t)),
                What::Spawn(t) => ("spawn", None, None, Some(t)),
                What::Exec => ("exec", None, None, None),
                What::Yield => ("yield", None, None, None),
                What::Lock(m, waited) => ("lock", None, waited.then_some(WAITED.into()), Some(m)),
                What::Locked => ("locked", None, None, None),
                What::Unlock(m) => ("unlock", None, None, Some(m)),
                What::Barrier(b) => ("barrier", None, None, Some(b)),
                What::Sched(s) => ("sched", None, Some(s.to_string().into()), None),
                What::By(t) | What::On(t) => {
                    // Belongs to the sleep before.
                    *peer.last_mut().expect("follows a sleep") = Some(t);
                    continue;
                }
                What::Nop | What::Extra(_) => continue,
            };
            task.push(i as u32);
            step.push(row.0);
            ns.push(row.1);
            why.push(row.2);
            peer.push(row.3);
        }
    }
    let head = Head {
        schema: SCHEMA,
        form: "exact".into(),
        scripts: model.scripts.clone(),
        source: model.source.clone(),
        jobs: model.jobs.clone(),
        task: (model.tasks.iter())
            .map(|t| HeadTask {
                name: t.name.clone(),
                pid: t.pid,
                nice: t.sched.nice(),
                sched: class::text(t.sched),
                session: t.session,
                initial: t.initial,
                exited: t.exited,
            })
            .collect(),
    };
    let head = toml::to_string(&head).expect("plain values");
    let fields = vec![
        Field::new("task", DataType::UInt32, false),
        Field::new("step", DataType::Utf8, false),
        Field::new("ns", DataType::UInt64, true),
        Field::new("why", DataType::Utf8, true),
        Field::new("peer", DataType::UInt32, true),
    ];
    let schema = Arc::new(Schema::new_with_metadata(fields, HashMap::from([(HEAD.to_string(), head)])));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt32Array::from(task)),
        Arc::new(StringArray::from_iter_values(step)),
        Arc::new(UInt64Array::from(ns)),
        Arc::new(StringArray::from_iter(why)),
        Arc::new(UInt32Array::from(peer)),
    ];
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).expect("columns of equal length");
    let mut out = Vec::new();
    let written = arrow_ipc::writer::FileWriter::try_new(&mut out, &schema)
        .and_then(|mut w| w.write(&batch).and_then(|()| w.finish()));
    written.expect("writing to memory cannot fail");
    out
}

fn exact(bytes: &[u8], file: &str) -> Result<Exact, ModelError> {
    let bad = |what: String| error(file, "", what);
    let reader = arrow_ipc::reader::FileReader::try_new(Cursor::new(bytes), None)
        .map_err(|e| bad(format!("not a whole Arrow file: {e}")))?;
    let schema = reader.schema();
    let head = schema.metadata().get(HEAD);
    let head = head.ok_or_else(|| bad(format!("an Arrow file without the key {HEAD}: not made by `contend model`")))?;
    let head: Head = toml::from_str(head).map_err(|e| error(file, HEAD, e.message().replace('\n', "; ")))?;
    if (head.schema, head.form.as_str()) != (SCHEMA, "exact") {
        let found = format!("found schema = {}, form = \"{}\"", head.schema, head.form);
        return Err(error(file, HEAD, format!("{found}; should be schema = {SCHEMA}, form = \"exact\"")));
    }
    check_source(&head.source).map_err(|(key, what)| error(file, &format!("source.{key}"), what))?;
    if !(1..=TASKS_MAX).contains(&head.task.len()) {
        return Err(error(file, HEAD, format!("found {} tasks; should be 1 to {TASKS_MAX}", head.task.len())));
    }
    let mut steps: Vec<Vec<Step>> = vec![Vec::new(); head.task.len()];
    let mut row = 0usize;
    for batch in reader {
        let batch = batch.map_err(|e| bad(format!("damaged: {e}")))?;
        read_batch(&batch, &mut row, &mut steps).map_err(|what| error(file, &format!("row {row}"), what))?;
    }
    let mut model = Exact { source: head.source, jobs: head.jobs, scripts: head.scripts, ..Exact::default() };
    for (t, own) in std::iter::zip(head.task, steps) {
        let from = model.steps.len();
        model.steps.extend(own);
        let HeadTask { name, pid, nice, sched, session, initial, exited } = t;
        let sched = class::read(nice, sched.as_deref()).map_err(|(key, found, right)| {
            error(file, HEAD, format!("task \"{name}-{pid}\": {key}: found {found}; should be {right}"))
        })?;
        model.tasks.push(Task { name, pid, sched, session, from, to: model.steps.len(), initial, exited });
    }
    check(&model).map_err(bad)?;
    Ok(model)
}

fn read_batch(batch: &RecordBatch, row: &mut usize, steps: &mut [Vec<Step>]) -> Result<(), String> {
    let column = |name: &str, kind: DataType| {
        let c = batch.column_by_name(name).ok_or_else(|| format!("the column \"{name}\" is missing"))?;
        if *c.data_type() == kind {
            Ok(c)
        } else {
            Err(format!("column \"{name}\" is {}; should be {kind}", c.data_type()))
        }
    };
    let task = column("task", DataType::UInt32)?.as_primitive::<UInt32Type>();
    let ns = column("ns", DataType::UInt64)?.as_primitive::<UInt64Type>();
    let peer = column("peer", DataType::UInt32)?.as_primitive::<UInt32Type>();
    let step = column("step", DataType::Utf8)?.as_string::<i32>();
    let why = column("why", DataType::Utf8)?.as_string::<i32>();
    for i in 0..batch.num_rows() {
        *row += 1;
        let number = steps.len();
        let task = Some(task.value(i)).filter(|t| task.is_valid(i) && (*t as usize) < number);
        let out = task.ok_or_else(|| format!("task: should be 0 to {}", number - 1))?;
        let ns = || if ns.is_valid(i) { Ok(ns.value(i)) } else { Err("ns is missing".to_string()) };
        let peer = || peer.is_valid(i).then(|| peer.value(i));
        let other = || {
            peer()
                .filter(|p| (*p as usize) < number)
                .ok_or_else(|| format!("peer: should be a task, 0 to {}", number - 1))
        };
        let word = if why.is_valid(i) { why.value(i) } else { "" };
        let out = &mut steps[out as usize];
        match step.value(i) {
            "run" => out.push(Step::new(What::Run(ns()?))),
            kind @ ("kernel" | "post") => {
                let marked = if kind == "post" { SYNC } else { BLOCKS };
                if !word.is_empty() && word != marked {
                    return Err(format!("why: found \"{word}\"; should be {marked}, or nothing, of a {kind} step"));
                }
                let marked = !word.is_empty();
                let what = if kind == "post" { What::Post(other()?, marked) } else { What::Kernel(ns()?, marked) };
                out.push(Step::new(what));
            }
            "spawn" => out.push(Step::new(What::Spawn(other()?))),
            "exec" => out.push(Step::new(What::Exec)),
            "yield" => out.push(Step::new(What::Yield)),
            "lock" => {
                if !word.is_empty() && word != WAITED {
                    return Err(format!("why: found \"{word}\"; should be {WAITED}, or nothing, of a lock step"));
                }
                out.push(Step::new(What::Lock(peer().ok_or("peer: the mutex is missing")?, !word.is_empty())));
            }
            "locked" => out.push(Step::new(What::Locked)),
            "sched" => {
                let sched = Sched::parse(word)
                    .ok_or_else(|| format!("why: found \"{word}\"; should be {}, of a sched step", Sched::ALLOWED))?;
                out.push(Step::new(What::Sched(sched)));
            }
            "unlock" => out.push(Step::new(What::Unlock(peer().ok_or("peer: the mutex is missing")?))),
            "barrier" => out.push(Step::new(What::Barrier(peer().ok_or("peer: the barrier is missing")?))),
            "sleep" => {
                let why = Why::find(word).ok_or_else(|| {
                    format!("why: found \"{word}\"; should be one of {}", Why::ALL.map(Why::name).join(", "))
                })?;
                out.push(Step::new(What::Sleep(ns()?, why)));
                match why {
                    Why::Task => out.push(Step::new(What::By(other()?))),
                    Why::Io => out.extend(peer().map(|cpu| Step::new(What::On(cpu)))),
                    _ => {}
                }
            }
            other => {
                let right = "run, kernel, sleep, post, spawn, exec, yield, sched, lock, locked, unlock or barrier";
                return Err(format!("step: found \"{other}\"; should be {right}"));
            }
        }
    }
    Ok(())
}

/// Contradictions between steps that a replay would hang or never begin with.
fn check(model: &Exact) -> Result<(), String> {
    let n = model.tasks.len();
    let mut starts = vec![0u32; n];
    let mut balance: HashMap<(u32, u32), i64> = HashMap::new();
    for i in 0..n {
        for what in model.steps_of(i) {
            match what {
                What::Spawn(child) => {
                    starts[child as usize] += 1;
                    if child as usize <= i {
                        return Err(format!("task {i} starts task {child}: parents stand before their children"));
                    }
                }
                What::Post(sleeper, _) => *balance.entry((i as u32, sleeper)).or_default() += 1,
                What::By(waker) => *balance.entry((waker, i as u32)).or_default() -= 1,
                _ => {}
            }
        }
    }
    for (i, t) in model.tasks.iter().enumerate() {
        if starts[i] > 1 || (starts[i] == 1) == t.initial {
            let right = if t.initial { "none: it is there at the start" } else { "exactly one" };
            return Err(format!("task {i} ({}) is started by {} steps; should be {right}", t.name, starts[i]));
        }
    }
    let mut missing: Vec<_> = balance.into_iter().filter(|(_, n)| *n < 0).collect();
    missing.sort_unstable();
    if let Some(((waker, sleeper), n)) = missing.first() {
        let (waits, name) = (-n, &model.tasks[*sleeper as usize].name);
        return Err(format!("task {sleeper} ({name}) waits {waits} times more for task {waker} than that posts"));
    }
    let known = |task: u32| (task as usize) < n;
    let jobs = model.jobs.iter().flat_map(|j| &j.dispatchers);
    if let Some(d) = jobs.clone().find(|d| !known(d.task) || d.jobs.iter().any(|j| !known(j.task))) {
        return Err(format!("jobs: dispatcher {} or one of its jobs is no task", d.task));
    }
    if let Some(task) = model.scripts.iter().find(|&&task| !known(task)) {
        return Err(format!("scripts: {task} is no task"));
    }
    Ok(())
}
