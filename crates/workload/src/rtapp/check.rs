//! Sense: what can be told from the file alone to hang, to corrupt or to mean nothing.
//!
//! Mutexes are followed along each task's own path: every loop body once more than once is enough, since the second
//! round starts in the state that the first leaves and all later ones repeat it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::ast::{EventKind, Loops, Policy, RtApp, Task};
use super::error::{Pos, Problem, RtAppError, nearest};

/// Rounds of a loop without passing time that are taken for an endless one.
const LONG: u32 = 1_000_000;

pub(super) fn check(app: &mut RtApp) -> Result<(), RtAppError> {
    forks(app)?;
    barriers(app)?;
    for i in 0..app.tasks.len() {
        priorities(app, &app.tasks[i])?;
        time_passes(app, &app.tasks[i])?;
        mutexes(app, i)?;
    }
    pairs(app);
    endless(app);
    Ok(())
}

fn error(app: &RtApp, pos: Pos, key: String, problem: Problem) -> RtAppError {
    RtAppError { file: app.file.clone(), pos, key, problem }
}

/// The path of a phase or, if the phase stands for the task itself, of the task.
fn path(task: &Task, phase: usize) -> String {
    let p = &task.phases[phase];
    if p.pos == task.pos { format!("tasks.{}", task.name) } else { format!("tasks.{}.phases.{}", task.name, p.name) }
}

fn forks(app: &RtApp) -> Result<(), RtAppError> {
    let names: BTreeMap<&str, usize> = app.tasks.iter().enumerate().map(|(i, t)| (&*t.name, i)).collect();
    let mut forked = BTreeSet::new();
    for task in &app.tasks {
        for (p, phase) in task.phases.iter().enumerate() {
            for event in &phase.events {
                let EventKind::Fork(target) = &event.kind else { continue };
                let key = || format!("{}.{}", path(task, p), event.key);
                let Some(&i) = names.get(&**target) else {
                    let what = format!("no task is named {target:?}; {}", nearest(target, names.keys().copied()));
                    return Err(error(app, event.pos, key(), Problem::Senseless(what)));
                };
                if app.tasks[i].events().any(|e| matches!(e.kind, EventKind::Barrier(_))) {
                    let what = format!("{target:?} waits at a barrier, whose users must be known: it cannot be forked");
                    return Err(error(app, event.pos, key(), Problem::Senseless(what)));
                }
                forked.insert(i);
            }
        }
    }
    for (i, task) in app.tasks.iter().enumerate() {
        if task.instances == 0 && !forked.contains(&i) {
            let key = format!("tasks.{}.instance", task.name);
            let want = "at least 1; 0 is for a task that another one forks".into();
            return Err(error(app, task.pos, key, Problem::Value { found: "0".into(), want }));
        }
    }
    if app.task_count() == 0 {
        let what = "no task has an instance: nothing would start".into();
        return Err(error(app, app.tasks[0].pos, "tasks".into(), Problem::Senseless(what)));
    }
    Ok(())
}

/// rt-app takes a barrier's number of users from how often its name occurs, so a task that names it twice waits for
/// itself.
fn barriers(app: &mut RtApp) -> Result<(), RtAppError> {
    let mut users: BTreeMap<String, (u64, Pos)> = BTreeMap::new();
    for task in &app.tasks {
        let mut first: HashMap<&str, Pos> = HashMap::new();
        for (p, phase) in task.phases.iter().enumerate() {
            for event in &phase.events {
                let EventKind::Barrier(name) = &event.kind else { continue };
                if let Some(pos) = first.insert(name, event.pos) {
                    let what = format!(
                        "the task names the barrier {name:?} on line {} already; each barrier is one point, and with \
                         two rt-app waits for ever: give this one another name",
                        pos.line
                    );
                    let key = format!("{}.{}", path(task, p), event.key);
                    return Err(error(app, event.pos, key, Problem::Senseless(what)));
                }
                users.entry(name.clone()).or_insert((0, event.pos)).0 += u64::from(task.instances);
            }
        }
    }
    for (name, (n, pos)) in users {
        if n == 1 {
            app.notes
                .push(format!("{}:{}: the barrier {name:?} has one user, whom it never stops", app.file, pos.line));
        }
    }
    Ok(())
}

fn priorities(app: &RtApp, task: &Task) -> Result<(), RtAppError> {
    let mut policy = task.settings.policy.map_or(app.global.default_policy.unwrap_or_default(), |p| p.0);
    let all = std::iter::once((format!("tasks.{}", task.name), &task.settings))
        .chain(task.phases.iter().enumerate().map(|(i, p)| (path(task, i), &p.settings)));
    for (path, settings) in all {
        policy = settings.policy.map_or(policy, |p| p.0);
        let Some((priority, pos)) = settings.priority else { continue };
        let (min, max) = match policy {
            Policy::Other | Policy::Batch | Policy::Idle => (-20, 19),
            Policy::Fifo | Policy::RoundRobin => (1, 99),
            Policy::Deadline => (0, 0),
        };
        if !(min..=max).contains(&priority) {
            let want = format!("{min} to {max} under {}", policy.name());
            let problem = Problem::Value { found: priority.to_string(), want };
            return Err(error(app, pos, format!("{path}.priority"), problem));
        }
    }
    Ok(())
}

/// Whether an event takes time or enters the kernel, which takes some.
fn takes_time(kind: &EventKind) -> bool {
    match kind {
        EventKind::Run(n) | EventKind::Runtime(n) | EventKind::Sleep(n) | EventKind::Mem(n) | EventKind::IoRun(n) => {
            *n > 0
        }
        EventKind::Timer { period_us, .. } => *period_us > 0,
        _ => true,
    }
}

fn time_passes(app: &RtApp, task: &Task) -> Result<(), RtAppError> {
    let endless = |loops| match loops {
        Loops::Forever => true,
        Loops::Times(n) => n > LONG,
    };
    let complain = |pos, key: String| {
        let what = "loops for ever without letting time pass: no event takes more than 0 us".into();
        Err(error(app, pos, key, Problem::Senseless(what)))
    };
    for (i, phase) in task.phases.iter().enumerate() {
        if endless(phase.loops) && !phase.events.iter().any(|e| takes_time(&e.kind)) {
            return complain(phase.pos, path(task, i));
        }
    }
    if endless(task.loops) && !task.events().any(|e| takes_time(&e.kind)) {
        return complain(task.pos, format!("tasks.{}", task.name));
    }
    Ok(())
}

fn rounds(loops: Loops) -> u32 {
    if loops == Loops::Times(1) { 1 } else { 2 }
}

/// Follow the mutexes that a task holds; decide for each `sync` whether it must take its mutex.
fn mutexes(app: &mut RtApp, task: usize) -> Result<(), RtAppError> {
    let mut held: BTreeSet<&str> = BTreeSet::new();
    // Per `sync`: must it take the mutex?
    let mut syncs: BTreeMap<(usize, usize), bool> = BTreeMap::new();
    let t = &app.tasks[task];
    'task: for _ in 0..rounds(t.loops) {
        for (p, phase) in t.phases.iter().enumerate() {
            for _ in 0..rounds(phase.loops) {
                for (e, event) in phase.events.iter().enumerate() {
                    let complain = |what: String| {
                        let key = format!("{}.{}", path(t, p), event.key);
                        Err(error(app, event.pos, key, Problem::Senseless(what)))
                    };
                    match &event.kind {
                        EventKind::Lock(m) if held.contains(&**m) => {
                            return complain(format!(
                                "the task holds {m:?} here already (perhaps since the round before): it would wait \
                                 for itself"
                            ));
                        }
                        EventKind::Unlock(m) | EventKind::Wait { mutex: m, .. } if !held.contains(&**m) => {
                            return complain(format!("the task does not hold {m:?} here; \"lock\" it first"));
                        }
                        EventKind::Lock(m) => {
                            held.insert(m);
                        }
                        EventKind::Unlock(m) => {
                            held.remove(&**m);
                        }
                        EventKind::Sync { mutex, .. } => {
                            let take = !held.contains(&**mutex);
                            if syncs.insert((p, e), take).is_some_and(|before| before != take) {
                                return complain(format!(
                                    "the task holds {mutex:?} here in some rounds and not in others; \"unlock\" what \
                                     it locks"
                                ));
                            }
                        }
                        _ => {}
                    }
                }
            }
            if phase.loops == Loops::Forever {
                // Whatever follows is never reached.
                break 'task;
            }
        }
    }
    for ((p, e), must) in syncs {
        if let EventKind::Sync { take, .. } = &mut app.tasks[task].phases[p].events[e].kind {
            *take = must;
        }
    }
    Ok(())
}

/// Names that only one side uses are probably misspelt, though rt-app takes them.
fn pairs(app: &mut RtApp) {
    #[derive(Default)]
    struct Sides {
        sleeps: Option<u32>,
        wakes: Option<u32>,
    }
    let mut conds: BTreeMap<&str, Sides> = BTreeMap::new();
    let mut names: BTreeMap<&str, Sides> = BTreeMap::new();
    for event in app.tasks.iter().flat_map(|t| t.events()) {
        let line = Some(event.pos.line);
        match &event.kind {
            EventKind::Wait { cond, .. } => conds.entry(cond).or_default().sleeps = line,
            EventKind::Sync { cond, .. } => {
                let sides = conds.entry(cond).or_default();
                (sides.sleeps, sides.wakes) = (line, line);
            }
            EventKind::Signal(c) | EventKind::Broadcast(c) => conds.entry(c).or_default().wakes = line,
            EventKind::Suspend(n) => names.entry(n).or_default().sleeps = line,
            EventKind::Resume(n) => names.entry(n).or_default().wakes = line,
            _ => {}
        }
    }
    let mut notes = Vec::new();
    let mut note = |line, what: String| notes.push(format!("{}:{line}: a task {what}", app.file));
    for (name, sides) in &conds {
        match (sides.sleeps, sides.wakes) {
            (Some(l), None) => {
                note(l, format!("waits for the condition variable {name:?}, but none signals it: it never wakes"));
            }
            (None, Some(l)) => {
                note(l, format!("signals the condition variable {name:?}, but none waits for it: no effect"));
            }
            _ => {}
        }
    }
    for (name, sides) in &names {
        match (sides.sleeps, sides.wakes) {
            (Some(l), None) => note(l, format!("suspends as {name:?}, but none resumes that name: it never wakes")),
            (None, Some(l)) => note(l, format!("resumes {name:?}, but none suspends under that name: no effect")),
            _ => {}
        }
    }
    app.notes.append(&mut notes);
}

fn endless(app: &mut RtApp) {
    let mut notes = Vec::new();
    for task in &app.tasks {
        let forever = task.phases.iter().position(|p| p.loops == Loops::Forever);
        if let Some(next) = forever.and_then(|i| task.phases.get(i + 1)) {
            notes.push(format!(
                "{}:{}: the phase {:?} of {:?} is never reached: the one before loops for ever",
                app.file, next.pos.line, next.name, task.name
            ));
        }
    }
    let runs = |t: &Task| t.events().any(|e| e.kind == EventKind::RunForever);
    let forever =
        |t: &&Task| t.loops == Loops::Forever || t.phases.iter().any(|p| p.loops == Loops::Forever) || runs(t);
    if let (None, Some(task)) = (app.global.duration_s, app.tasks.iter().find(forever)) {
        let does = if runs(task) { "runs" } else { "loops" };
        notes.push(format!(
            "{}:{}: {:?} {does} for ever and there is no \"duration\": the run ends only where its caller sets an end",
            app.file, task.pos.line, task.name
        ));
    }
    app.notes.append(&mut notes);
}
