//! From the JSON tree to the typed file: every key is known here or it is an error.

mod events;
mod global;
mod values;

use std::collections::{BTreeMap, HashMap};

use super::ast::{Global, Loops, Phase, RtApp, Settings, Task};
use super::error::{Pos, Problem, RtAppError};
use super::json::{Item, Lines, Member, cut};
use super::{MAX_TASKS, check, json};

/// Events, by name. A key is an event if it is such a name, or one with a suffix (see [`event_name`]).
const EVENTS: [&str; 18] = [
    "run",
    "runtime",
    "sleep",
    "mem",
    "iorun",
    "timer",
    "lock",
    "unlock",
    "wait",
    "signal",
    "broad",
    "broadcast",
    "sync",
    "barrier",
    "suspend",
    "resume",
    "yield",
    "fork",
];
/// Keys of a task alone.
const TASK_KEYS: [&str; 3] = ["instance", "delay", "phases"];
/// Keys of a task or a phase.
const BOTH_KEYS: [&str; 13] = [
    "loop",
    "policy",
    "priority",
    "cpus",
    "taskgroup",
    "util_min",
    "util_max",
    "membind_nodes",
    "nodes_membind",
    "dl-runtime",
    "dl-period",
    "dl-deadline",
    "dl-reclaim",
];
/// Keys of the format before phases and events (rt-app 0.x), in a task or a phase.
const LEGACY_KEYS: [&str; 5] = ["exec", "period", "deadline", "lock_order", "resources"];
const GLOBAL_KEYS: [&str; 14] = [
    "duration",
    "calibration",
    "default_policy",
    "pi_enabled",
    "lock_pages",
    "logdir",
    "log_basename",
    "log_size",
    "ftrace",
    "gnuplot",
    "io_device",
    "mem_buffer_size",
    "cumulative_slack",
    "frag",
];
const SECTIONS: [&str; 3] = ["tasks", "resources", "global"];

/// rt-app keeps numbers in a C `int`.
const PERF_JSON: &str =
    "this is perf's JSON, not an rt-app file; its text is read: `perf script --ns -i perf.data > FILE.txt`";
const CHROME_JSON: &str =
    "this is a trace in Chrome's JSON, not an rt-app file; Perfetto's own format is read, and text of ftrace";
const INT_MAX: i64 = i32::MAX as i64;

/// Read a file's text. `file` is its name for messages.
pub fn parse(text: &str, file: &str) -> Result<RtApp, RtAppError> {
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = Lines::new(text);
    let root = json::read(text, file, &lines)?;
    let mut p = Parser { file, lines, path: Vec::new(), counted: BTreeMap::new(), repeated: (0, Pos::default()) };
    let mut app = p.root(&root)?;
    check::check(&mut app)?;
    app.notes.extend(p.notes());
    Ok(app)
}

/// The event that a key means: its name, or the name and a suffix that makes the key unique. The suffix starts with
/// a digit or punctuation (`run0`, `run_b`) or is one capital letter and digits (`runA`); rt-app takes any, but then
/// `runtme` would be a `run`.
pub(super) fn event_name(key: &str) -> Option<&'static str> {
    let fits = |name: &&&str| {
        key.strip_prefix(**name).is_some_and(|suffix| {
            let mut chars = suffix.chars();
            match chars.next() {
                None => true,
                Some(c) if c.is_ascii_uppercase() => chars.all(|c| c.is_ascii_digit()),
                Some(c) => !c.is_alphabetic(),
            }
        })
    };
    EVENTS.iter().filter(fits).max_by_key(|n| n.len()).copied()
}

struct Parser<'t> {
    file: &'t str,
    lines: Lines<'t>,
    /// Keys from the root to where we are.
    path: Vec<String>,
    /// Keys without effect: how many, and where first.
    counted: BTreeMap<&'static str, (u32, Pos)>,
    /// Events and phases whose key had been used before.
    repeated: (u32, Pos),
}

impl<'t> Parser<'t> {
    fn error(&self, at: usize, problem: Problem) -> RtAppError {
        RtAppError { file: self.file.into(), pos: self.lines.pos(at), key: self.path.join("."), problem }
    }

    /// Run `f` with `key` appended to the path.
    fn at<T>(&mut self, key: &str, f: impl FnOnce(&mut Self) -> Result<T, RtAppError>) -> Result<T, RtAppError> {
        self.path.push(cut(key));
        let result = f(self);
        self.path.pop();
        result
    }

    fn count(&mut self, what: &'static str, at: usize) {
        let pos = self.lines.pos(at);
        self.counted.entry(what).or_insert((0, pos)).0 += 1;
    }

    fn notes(self) -> Vec<String> {
        let mut notes = Vec::new();
        let (repeated, pos) = self.repeated;
        if repeated > 0 {
            notes.push(format!(
                "{}:{}: {repeated} times a key repeats another of the same object (first here); each counts, as with workgen, \
                 whereas rt-app alone keeps only the last",
                self.file, pos.line
            ));
        }
        let mut counted: Vec<_> = self.counted.into_iter().collect();
        counted.sort_by_key(|(what, (_, pos))| (*pos, *what));
        for (what, (n, pos)) in counted {
            let times = if n == 1 { String::new() } else { format!(" ({n} times)") };
            notes.push(format!("{}:{}: {what}{times}", self.file, pos.line));
        }
        notes
    }

    fn root(&mut self, root: &Item<'_>) -> Result<RtApp, RtAppError> {
        let members = self.object(root, "an object with the sections tasks and global")?;
        let mut app = RtApp { file: self.file.into(), global: Global::default(), tasks: Vec::new(), notes: Vec::new() };
        let mut seen = HashMap::new();
        for m in members {
            self.at(&m.key, |p| {
                p.duplicate(m, &mut seen)?;
                match &*m.key {
                    "tasks" => app.tasks = p.tasks(m)?,
                    "global" => app.global = p.global(m)?,
                    "resources" => p.resources(m)?,
                    // What else is JSON and may come from who records.
                    "linux-perf-json-version" => return Err(p.error(m.at, Problem::Senseless(PERF_JSON.into()))),
                    "traceEvents" => return Err(p.error(m.at, Problem::Senseless(CHROME_JSON.into()))),
                    _ => return Err(p.unknown(m, "the file", SECTIONS.iter().copied())),
                }
                Ok(())
            })?;
        }
        if app.tasks.is_empty() {
            let want = "\"tasks\": an object with at least one task";
            return Err(self.error(root.at, Problem::Missing { want }));
        }
        Ok(app)
    }

    /// Kept by rt-app for old files; resources are created where events name them.
    fn resources(&mut self, m: &Member<'_>) -> Result<(), RtAppError> {
        let members = self.object(self.value(m)?, "an object of resources")?;
        let mut seen = HashMap::new();
        for r in members {
            self.at(&r.key, |p| {
                p.duplicate(r, &mut seen)?;
                p.object(p.value(r)?, "an object such as { \"type\": \"mutex\" }").map(|_| ())
            })?;
        }
        self.count("the section \"resources\" has no effect: events create what they name", m.at);
        Ok(())
    }

    fn tasks(&mut self, m: &Member<'_>) -> Result<Vec<Task>, RtAppError> {
        let members = self.object(self.value(m)?, "an object of tasks")?;
        let mut tasks = Vec::with_capacity(members.len());
        let mut seen = HashMap::new();
        let mut total = 0;
        for m in members {
            self.at(&m.key, |p| {
                p.duplicate(m, &mut seen)?;
                let task = p.task(m)?;
                total += u64::from(task.instances);
                if total > MAX_TASKS || tasks.len() as u64 == MAX_TASKS {
                    let found = format!("{total} tasks in all up to here");
                    return Err(p.error(m.at, Problem::Value { found, want: format!("at most {MAX_TASKS}") }));
                }
                tasks.push(task);
                Ok(())
            })?;
        }
        Ok(tasks)
    }

    fn task(&mut self, m: &Member<'_>) -> Result<Task, RtAppError> {
        let members = self.object(self.value(m)?, "an object: one task")?;
        if m.key.is_empty() || m.key.contains('\0') {
            let want = "a name of at least one character, without NUL".into();
            return Err(self.error(m.at, Problem::Value { found: format!("{:?}", cut(&m.key)), want }));
        }
        let pos = self.lines.pos(m.at);
        let mut task = Task {
            name: m.key.to_string(),
            pos,
            instances: 1,
            delay_us: 0,
            loops: Loops::Forever,
            settings: Settings::default(),
            phases: Vec::new(),
        };
        let mut flat = Phase {
            name: m.key.to_string(),
            pos,
            loops: Loops::Times(1),
            settings: Settings::default(),
            events: vec![],
        };
        let mut phases_at = None;
        let mut loop_at = None;
        let mut seen = HashMap::new();
        for m in members {
            self.at(&m.key, |p| {
                match &*m.key {
                    "instance" => {
                        task.instances = p.int(m, 0, MAX_TASKS as i64, "a number of threads")? as u32;
                    }
                    "delay" => task.delay_us = p.micros(m)?,
                    "phases" => {
                        phases_at = Some(m.at);
                        task.phases = p.phases(m, &task.name)?;
                    }
                    "loop" => {
                        task.loops = p.loops(m)?;
                        loop_at = Some(m.at);
                    }
                    _ if p.setting(m, &mut task.settings)? => {}
                    _ => {
                        if let Some(event) = p.event(m, &task.name, "a task")? {
                            p.repeats(m, &mut seen);
                            flat.events.push(event);
                            return Ok(());
                        }
                    }
                }
                p.duplicate(m, &mut seen)
            })?;
        }
        match (phases_at, flat.events.first()) {
            (Some(_), Some(event)) => {
                let what = format!("events such as \"{}\" stand beside \"phases\"; put them into a phase", event.key);
                return Err(RtAppError { pos: event.pos, ..self.error(m.at, Problem::Senseless(what)) });
            }
            (None, None) => {
                let want = "events (\"run\", \"sleep\"...) or \"phases\"";
                return Err(self.error(m.at, Problem::Missing { want }));
            }
            (Some(at), None) if task.events().next().is_none() => {
                return Err(self.error(at, Problem::Missing { want: "events: all phases of the task are empty" }));
            }
            (Some(_), None) => {}
            (None, Some(_)) => {
                task.phases.push(flat);
                if let (Loops::Times(_), Some(at)) = (task.loops, loop_at) {
                    self.count(
                        "\"loop\" beside events ends the task after so many rounds, as the tutorial says; rt-app 1.0 \
                         itself goes on until \"duration\"",
                        at,
                    );
                }
            }
        }
        Ok(task)
    }

    fn phases(&mut self, m: &Member<'_>, task: &str) -> Result<Vec<Phase>, RtAppError> {
        let members = self.object(self.value(m)?, "an object of phases")?;
        let mut phases = Vec::with_capacity(members.len());
        let mut seen = HashMap::new();
        for m in members {
            let phase = self.at(&m.key, |p| {
                p.repeats(m, &mut seen);
                p.phase(m, task)
            })?;
            phases.push(phase);
        }
        Ok(phases)
    }

    fn phase(&mut self, m: &Member<'_>, task: &str) -> Result<Phase, RtAppError> {
        let members = self.object(self.value(m)?, "an object: one phase")?;
        let mut phase = Phase {
            name: m.key.to_string(),
            pos: self.lines.pos(m.at),
            loops: Loops::Times(1),
            settings: Settings::default(),
            events: Vec::new(),
        };
        let mut seen = HashMap::new();
        for m in members {
            self.at(&m.key, |p| {
                match &*m.key {
                    key if TASK_KEYS.contains(&key) => {
                        let what = format!("\"{key}\" is a key of a task, not of a phase; move it up");
                        return Err(p.error(m.at, Problem::Senseless(what)));
                    }
                    "loop" => phase.loops = p.loops(m)?,
                    _ if p.setting(m, &mut phase.settings)? => {}
                    _ => {
                        if let Some(event) = p.event(m, task, "a phase")? {
                            p.repeats(m, &mut seen);
                            phase.events.push(event);
                            return Ok(());
                        }
                    }
                }
                p.duplicate(m, &mut seen)
            })?;
        }
        Ok(phase)
    }

    /// Count a key that the object has already, where that is allowed.
    fn repeats(&mut self, m: &Member<'_>, seen: &mut HashMap<String, usize>) {
        if seen.insert(m.key.to_string(), m.at).is_some() {
            if self.repeated.0 == 0 {
                self.repeated.1 = self.lines.pos(m.at);
            }
            self.repeated.0 += 1;
        }
    }

    fn loops(&self, m: &Member<'_>) -> Result<Loops, RtAppError> {
        match self.int(m, -1, INT_MAX, "a number of rounds or -1 for ever")? {
            0 => {
                let at = m.value.as_ref().map_or(m.at, |v| v.at);
                let want = "at least 1, or -1 for ever (rt-app takes 0 for that, too)".into();
                Err(self.error(at, Problem::Value { found: "0".into(), want }))
            }
            -1 => Ok(Loops::Forever),
            n => Ok(Loops::Times(n as u32)),
        }
    }

    /// A setting that tasks and phases share; false if the key is none.
    fn setting(&mut self, m: &Member<'_>, s: &mut Settings) -> Result<bool, RtAppError> {
        let pos = self.lines.pos(m.at);
        match &*m.key {
            "policy" => s.policy = Some((self.policy(m)?, pos)),
            "priority" => s.priority = Some((self.int(m, -20, 99, "a priority")? as i32, pos)),
            "cpus" => {
                let cpus = self.list(m, 65_535, "a list of CPU numbers such as [0, 2]")?;
                if cpus.is_empty() {
                    let want = "at least one CPU; without the key all are allowed".into();
                    return Err(self.error(m.at, Problem::Value { found: "[]".into(), want }));
                }
                s.cpus = Some((cpus, pos));
            }
            "taskgroup" => {
                let group = self.text(m, "the path of a task group")?;
                s.taskgroup = Some((group, pos)).filter(|(group, _)| !group.is_empty());
            }
            "util_min" | "util_max" => {
                self.int(m, 0, 1024, "a utilization")?;
                self.count("\"util_min\" and \"util_max\" have no effect: utilization clamping is not modelled", m.at);
            }
            "membind_nodes" | "nodes_membind" => {
                self.list(m, 65_535, "a list of NUMA nodes such as [0, 2]")?;
                self.count("\"membind_nodes\" has no effect: memory is always local", m.at);
            }
            "dl-runtime" | "dl-period" | "dl-deadline" => {
                self.micros(m)?;
                self.count("\"dl-...\" keys have no effect on SCHED_OTHER tasks", m.at);
            }
            "dl-reclaim" => {
                self.bool(m)?;
                self.count("\"dl-...\" keys have no effect on SCHED_OTHER tasks", m.at);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
