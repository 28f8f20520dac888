//! From the JSON tree to the typed file: every key is known here or it is an error.

use std::collections::{BTreeMap, HashMap};

use super::ast::{Event, EventKind, Global, Loops, Phase, Policy, RtApp, Settings, Task};
use super::error::{Pos, Problem, RtAppError, nearest};
use super::json::{Item, Lines, Member, Node, cut};
use super::{MAX_TASKS, check, json};

/// Events, by name. A key is an event if it is such a name, or one with a suffix (see [`event_name`]).
const EVENTS: [&str; 18] = [
    "run", "runtime", "sleep", "mem", "iorun", "timer", "lock", "unlock", "wait", "signal", "broad", "broadcast",
    "sync", "barrier", "suspend", "resume", "yield", "fork",
];
/// Keys of a task alone.
const TASK_KEYS: [&str; 3] = ["instance", "delay", "phases"];
/// Keys of a task or a phase.
const BOTH_KEYS: [&str; 13] = [
    "loop", "policy", "priority", "cpus", "taskgroup", "util_min", "util_max", "membind_nodes", "nodes_membind",
    "dl-runtime", "dl-period", "dl-deadline", "dl-reclaim",
];
/// Keys of the format before phases and events (rt-app 0.x), in a task or a phase.
const LEGACY_KEYS: [&str; 5] = ["exec", "period", "deadline", "lock_order", "resources"];
const GLOBAL_KEYS: [&str; 14] = [
    "duration", "calibration", "default_policy", "pi_enabled", "lock_pages", "logdir", "log_basename", "log_size",
    "ftrace", "gnuplot", "io_device", "mem_buffer_size", "cumulative_slack", "frag",
];
const SECTIONS: [&str; 3] = ["tasks", "resources", "global"];

/// rt-app keeps numbers in a C `int`.
const INT_MAX: i64 = i32::MAX as i64;

/// Read a file's text. `file` is its name for messages.
pub fn parse(text: &str, file: &str) -> Result<RtApp, RtAppError> {
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
                "{}:{}: {repeated} keys repeat others of the same object (first here); each counts, as with workgen, \
                 whereas rt-app alone keeps only the last",
                self.file, pos.line
            ));
        }
        for (what, (n, pos)) in self.counted {
            let times = if n == 1 { String::new() } else { format!(" ({n} times)") };
            notes.push(format!("{}:{}: {what}{times}", self.file, pos.line));
        }
        notes
    }

    // Values -------------------------------------------------------------------------------------------------------

    fn wrong_type(&self, item: &Item<'_>, want: &'static str) -> RtAppError {
        self.error(item.at, Problem::Type { found: item.node.show(), want })
    }

    fn value<'m, 'a>(&self, m: &'m Member<'a>) -> Result<&'m Item<'a>, RtAppError> {
        m.value.as_ref().ok_or_else(|| {
            self.error(m.at, Problem::Missing { want: "a value; only \"suspend\" and \"yield\" may stand without one" })
        })
    }

    fn int(&self, m: &Member<'_>, min: i64, max: i64, want: &'static str) -> Result<i64, RtAppError> {
        self.int_item(self.value(m)?, min, max, want)
    }

    fn int_item(&self, item: &Item<'_>, min: i64, max: i64, want: &'static str) -> Result<i64, RtAppError> {
        let Node::Number(text) = item.node else { return Err(self.wrong_type(item, want)) };
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(self.wrong_type(item, want));
        }
        match text.parse::<i64>() {
            Ok(n) if (min..=max).contains(&n) => Ok(n),
            _ => {
                let want = format!("{want}, {min} to {max}");
                Err(self.error(item.at, Problem::Value { found: cut(text), want }))
            }
        }
    }

    fn micros(&self, m: &Member<'_>) -> Result<u32, RtAppError> {
        self.int(m, 0, INT_MAX, "a whole number of microseconds").map(|n| n as u32)
    }

    fn bytes(&self, m: &Member<'_>, min: i64) -> Result<u32, RtAppError> {
        self.int(m, min, INT_MAX, "a whole number of bytes").map(|n| n as u32)
    }

    fn bool(&self, m: &Member<'_>) -> Result<bool, RtAppError> {
        let item = self.value(m)?;
        match item.node {
            Node::Bool(b) => Ok(b),
            _ => Err(self.wrong_type(item, "true or false")),
        }
    }

    fn text(&self, m: &Member<'_>, want: &'static str) -> Result<String, RtAppError> {
        self.text_item(self.value(m)?, want)
    }

    fn text_item(&self, item: &Item<'_>, want: &'static str) -> Result<String, RtAppError> {
        match &item.node {
            Node::String(s) => Ok(s.to_string()),
            _ => Err(self.wrong_type(item, want)),
        }
    }

    /// A name that must not be empty.
    fn name(&self, m: &Member<'_>, want: &'static str) -> Result<String, RtAppError> {
        let item = self.value(m)?;
        self.name_item(item, want)
    }

    fn name_item(&self, item: &Item<'_>, want: &'static str) -> Result<String, RtAppError> {
        let name = self.text_item(item, want)?;
        if name.is_empty() {
            return Err(self.error(item.at, Problem::Value { found: "\"\"".into(), want: want.into() }));
        }
        Ok(name)
    }

    fn object<'m, 'a>(&self, item: &'m Item<'a>, want: &'static str) -> Result<&'m [Member<'a>], RtAppError> {
        match &item.node {
            Node::Object(members) => Ok(members),
            _ => Err(self.wrong_type(item, want)),
        }
    }

    fn duplicate(&self, m: &Member<'_>, seen: &mut HashMap<String, usize>) -> Result<(), RtAppError> {
        match seen.insert(m.key.to_string(), m.at) {
            None => Ok(()),
            Some(first) => Err(self.error(m.at, Problem::DuplicateKey { first: self.lines.pos(first).line })),
        }
    }

    fn unknown<'v>(
        &self,
        m: &Member<'_>,
        place: &'static str,
        valid: impl Iterator<Item = &'v str> + Clone,
    ) -> RtAppError {
        self.error(m.at, Problem::UnknownKey { place, nearest: nearest(&m.key, valid) })
    }

    // Sections -----------------------------------------------------------------------------------------------------

    fn root(&mut self, root: &Item<'_>) -> Result<RtApp, RtAppError> {
        let members = self.object(root, "an object with the sections tasks and global")?;
        let mut app =
            RtApp { file: self.file.into(), global: Global::default(), tasks: Vec::new(), notes: Vec::new() };
        let mut seen = HashMap::new();
        for m in members {
            self.at(&m.key, |p| {
                p.duplicate(m, &mut seen)?;
                match &*m.key {
                    "tasks" => app.tasks = p.tasks(m)?,
                    "global" => app.global = p.global(m)?,
                    "resources" => p.resources(m)?,
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

    fn global(&mut self, m: &Member<'_>) -> Result<Global, RtAppError> {
        let members = self.object(self.value(m)?, "an object of settings")?;
        let mut g = Global::default();
        let mut seen = HashMap::new();
        for m in members {
            self.at(&m.key, |p| {
                p.duplicate(m, &mut seen)?;
                p.global_key(m, &mut g)
            })?;
        }
        Ok(g)
    }

    fn global_key(&mut self, m: &Member<'_>, g: &mut Global) -> Result<(), RtAppError> {
        let host = "settings of logs, calibration and memory locking concern the host that runs rt-app and have no \
                    effect here";
        match &*m.key {
            "duration" => {
                let n = self.int(m, -1, INT_MAX, "a whole number of seconds or -1")?;
                if n == 0 {
                    let at = m.value.as_ref().map_or(m.at, |v| v.at);
                    let want = "at least 1 second, or -1 to run until all tasks have ended".into();
                    return Err(self.error(at, Problem::Value { found: "0".into(), want }));
                }
                g.duration_s = u32::try_from(n).ok();
            }
            "default_policy" => {
                g.default_policy = self.policy(m)?;
                g.default_policy_pos = self.lines.pos(m.at);
            }
            "mem_buffer_size" => g.mem_buffer_bytes = u64::from(self.bytes(m, 1)?),
            "io_device" => g.io_device = self.name(m, "the path of a file")?,
            "cumulative_slack" => g.cumulative_slack = self.bool(m)?,
            "pi_enabled" => {
                if self.bool(m)? {
                    self.count(
                        "\"pi_enabled\" has no effect: among SCHED_OTHER tasks nobody's priority is inherited",
                        m.at,
                    );
                }
            }
            "calibration" => {
                let item = self.value(m)?;
                match &item.node {
                    Node::Number(_) => {
                        self.int_item(item, 1, INT_MAX, "ns per loop")?;
                    }
                    Node::String(s) if s.strip_prefix("CPU").is_some_and(|n| n.parse::<u16>().is_ok()) => {}
                    Node::String(s) => {
                        let found = format!("{:?}", cut(s));
                        return Err(self.error(item.at, Problem::Value { found, want: "\"CPU0\", \"CPU1\"...".into() }));
                    }
                    _ => return Err(self.wrong_type(item, "\"CPU<n>\" or ns per loop")),
                }
                self.count(host, m.at);
            }
            "lock_pages" | "gnuplot" => {
                self.bool(m)?;
                self.count(host, m.at);
            }
            "logdir" | "log_basename" => {
                self.text(m, "a text")?;
                self.count(host, m.at);
            }
            "frag" => {
                self.int(m, 0, INT_MAX, "a whole number")?;
                self.count(host, m.at);
            }
            "log_size" => {
                let item = self.value(m)?;
                match &item.node {
                    Node::Number(_) => {
                        self.int_item(item, 0, INT_MAX, "a whole number of MB")?;
                    }
                    Node::String(s) if ["file", "disable", "auto"].contains(&&*s.to_ascii_lowercase()) => {}
                    Node::String(s) => {
                        let found = format!("{:?}", cut(s));
                        let want = "\"file\", \"disable\", \"auto\" or a number of MB".into();
                        return Err(self.error(item.at, Problem::Value { found, want }));
                    }
                    _ => return Err(self.wrong_type(item, "\"file\", \"disable\", \"auto\" or a number of MB")),
                }
                self.count(host, m.at);
            }
            "ftrace" => {
                let item = self.value(m)?;
                match &item.node {
                    Node::Bool(_) => {}
                    Node::String(s) => {
                        const CATEGORIES: [&str; 7] = ["none", "main", "task", "run", "loop", "event", "stats"];
                        for word in s.split(',').map(str::trim).filter(|w| !w.is_empty()) {
                            if !CATEGORIES.contains(&word) {
                                let found = format!("{:?}", cut(word));
                                let want = nearest(word, CATEGORIES.iter().copied());
                                return Err(self.error(item.at, Problem::Value { found, want }));
                            }
                        }
                    }
                    _ => return Err(self.wrong_type(item, "true, false or a list such as \"task,loop\"")),
                }
                self.count(host, m.at);
            }
            _ => return Err(self.unknown(m, "global", GLOBAL_KEYS.iter().copied())),
        }
        Ok(())
    }

    fn policy(&self, m: &Member<'_>) -> Result<Policy, RtAppError> {
        let item = self.value(m)?;
        let text = self.text_item(item, "a policy such as \"SCHED_OTHER\"")?;
        Policy::ALL.iter().find(|(name, _)| *name == text).map(|(_, p)| *p).ok_or_else(|| {
            let want = nearest(&text, Policy::ALL.iter().map(|(n, _)| *n));
            self.error(item.at, Problem::Value { found: format!("{:?}", cut(&text)), want })
        })
    }

    // Tasks --------------------------------------------------------------------------------------------------------

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
        let mut flat =
            Phase { name: m.key.to_string(), pos, loops: Loops::Times(1), settings: Settings::default(), events: vec![] };
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
                if !group.is_empty() && group != "/" {
                    self.count("\"taskgroup\" has no effect yet: all tasks share the root group", m.at);
                }
                s.taskgroup = Some(group);
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

    fn list(&self, m: &Member<'_>, max: i64, want: &'static str) -> Result<Vec<u32>, RtAppError> {
        let item = self.value(m)?;
        let Node::Array(items) = &item.node else { return Err(self.wrong_type(item, want)) };
        let mut list = Vec::with_capacity(items.len());
        for item in items {
            list.push(self.int_item(item, 0, max, want)? as u32);
        }
        list.sort_unstable();
        list.dedup();
        Ok(list)
    }

    // Events -------------------------------------------------------------------------------------------------------

    fn event(&mut self, m: &Member<'_>, task: &str, place: &'static str) -> Result<Option<Event>, RtAppError> {
        let key = &*m.key;
        if LEGACY_KEYS.contains(&key) {
            let what = "a key of rt-app 0.x; since 1.0 a task is a list of events: \"run\", \"timer\", \"lock\"...";
            return Err(self.error(m.at, Problem::Senseless(what.into())));
        }
        if key.starts_with("external_workload") {
            return Err(self.error(m.at, Problem::NotModelled("code from a shared library cannot run here".into())));
        }
        let Some(name) = event_name(key) else {
            if GLOBAL_KEYS.contains(&key) {
                let what = format!("\"{key}\" is a key of the section \"global\"; move it there");
                return Err(self.error(m.at, Problem::Senseless(what)));
            }
            let tasks = if place == "a task" { &TASK_KEYS[..] } else { &[] };
            let valid = EVENTS.iter().chain(&BOTH_KEYS).chain(tasks).copied();
            return Err(self.unknown(m, place, valid));
        };
        let kind = match name {
            "run" => EventKind::Run(self.micros(m)?),
            "runtime" => EventKind::Runtime(self.micros(m)?),
            "sleep" => EventKind::Sleep(self.micros(m)?),
            "mem" => EventKind::Mem(self.bytes(m, 0)?),
            "iorun" => EventKind::IoRun(self.bytes(m, 0)?),
            "timer" => self.timer(m)?,
            "lock" => EventKind::Lock(self.name(m, "the name of a mutex")?),
            "unlock" => EventKind::Unlock(self.name(m, "the name of a mutex")?),
            "signal" => EventKind::Signal(self.name(m, "the name of a condition variable")?),
            "broad" | "broadcast" => EventKind::Broadcast(self.name(m, "the name of a condition variable")?),
            "wait" => {
                let (cond, mutex) = self.cond_and_mutex(m)?;
                EventKind::Wait { cond, mutex }
            }
            "sync" => {
                let (cond, mutex) = self.cond_and_mutex(m)?;
                EventKind::Sync { cond, mutex, take: false }
            }
            "barrier" => EventKind::Barrier(self.name(m, "the name of a barrier")?),
            "suspend" => {
                // workgen fills in the task's name where the value is empty or omitted.
                let name = match &m.value {
                    None => String::new(),
                    Some(item) => self.text_item(item, "the name under which the task waits, or \"\" for its own")?,
                };
                EventKind::Suspend(if name.is_empty() { task.into() } else { name })
            }
            "resume" => EventKind::Resume(self.name(m, "the name of whom to wake")?),
            "yield" => {
                if let Some(item) = &m.value {
                    self.text_item(item, "a text, usually \"\"")?;
                }
                EventKind::Yield
            }
            _ => EventKind::Fork(self.name(m, "the name of a task")?),
        };
        Ok(Some(Event { key: key.into(), pos: self.lines.pos(m.at), kind }))
    }

    fn timer(&mut self, m: &Member<'_>) -> Result<EventKind, RtAppError> {
        let item = self.value(m)?;
        let members = self.object(item, "an object such as { \"ref\": \"unique\", \"period\": 10000 }")?;
        let (mut timer, mut period, mut absolute) = (None, None, false);
        let mut seen = HashMap::new();
        for m in members {
            self.at(&m.key, |p| {
                p.duplicate(m, &mut seen)?;
                match &*m.key {
                    "ref" => timer = Some(p.name(m, "the name of a timer, or \"unique\"")?),
                    "period" => period = Some(p.micros(m)?),
                    "mode" => {
                        let item = p.value(m)?;
                        absolute = match &*p.text_item(item, "\"relative\" or \"absolute\"")? {
                            "relative" => false,
                            "absolute" => true,
                            other => {
                                let found = format!("{:?}", cut(other));
                                let want = "\"relative\" or \"absolute\"".into();
                                return Err(p.error(item.at, Problem::Value { found, want }));
                            }
                        };
                    }
                    _ => return Err(p.unknown(m, "a timer", ["ref", "period", "mode"].into_iter())),
                }
                Ok(())
            })?;
        }
        let missing = |want| self.error(item.at, Problem::Missing { want });
        let timer = timer.ok_or_else(|| missing("\"ref\": the timer's name, or \"unique\""))?;
        let period_us = period.ok_or_else(|| missing("\"period\": microseconds"))?;
        Ok(EventKind::Timer { timer, period_us, absolute })
    }

    fn cond_and_mutex(&mut self, m: &Member<'_>) -> Result<(String, String), RtAppError> {
        let item = self.value(m)?;
        let members = self.object(item, "an object such as { \"ref\": \"queue\", \"mutex\": \"m\" }")?;
        let (mut cond, mut mutex) = (None, None);
        let mut seen = HashMap::new();
        for m in members {
            self.at(&m.key, |p| {
                p.duplicate(m, &mut seen)?;
                match &*m.key {
                    "ref" => cond = Some(p.name(m, "the name of a condition variable")?),
                    "mutex" => mutex = Some(p.name(m, "the name of a mutex")?),
                    _ => return Err(p.unknown(m, "a wait or sync", ["ref", "mutex"].into_iter())),
                }
                Ok(())
            })?;
        }
        let missing = |want| self.error(item.at, Problem::Missing { want });
        let cond = cond.ok_or_else(|| missing("\"ref\": the condition variable to wait for"))?;
        let mutex = mutex.ok_or_else(|| missing("\"mutex\": the mutex to release while waiting"))?;
        Ok((cond, mutex))
    }
}
