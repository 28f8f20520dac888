//! A model as a file of rt-app.
//!
//! rt-app's wake-ups are forgotten when nobody sleeps, so two tasks that wake each other would stop for good; waits for other tasks become
//! sleeps of the mean recorded length. What is left is each role's CPU profile: how long it runs, how often and how long it sleeps,
//! whom it forks.

use contend_sim::program::Sched;

use crate::rtapp::Policy;
use serde_json::{Map, Value, json};

use super::fitted::{Fitted, Start, lives};

/// Threads that rt-app is asked for, at most, by role.
const INSTANCES_MAX: u32 = 10_000;

/// How often a task of a life starts another.
fn forks(start: &Start) -> u64 {
    start.per_life.round() as u64
}

/// The JSON text.
pub fn rt_app(model: &Fitted) -> String {
    let us = |v: f64| (v.round() as u64).min(i32::MAX as u64);
    let name = |role: &str| role.replace(['<', '#', '"', '\\', '/'], "_");
    let mut tasks = Map::new();
    let forked = |name: &str| model.roles.iter().flat_map(|r| &r.starts).any(|s| s.role == name && forks(s) > 0);
    for (role, lives) in model.roles.iter().zip(lives(model)) {
        let turns = role.turns.mean().round().max(1.0) as u64;
        let mut events = Map::new();
        events.insert("run".into(), json!(us(role.run_us.mean()).max(1)));
        let sleeps: f64 = role.ends.iter().map(|e| e.share * e.us.mean()).sum();
        if turns > 1 && us(sleeps) > 0 {
            events.insert("sleep".into(), json!(us(sleeps)));
        }
        events.insert("loop".into(), json!(turns));
        let mut phases = Map::new();
        // Forks first: rt-app has no "in the middle of a loop".
        for (n, start) in role.starts.iter().enumerate().filter(|(_, s)| forks(s) > 0) {
            let phase = json!({"loop": forks(start), "fork": name(&start.role), "run": 1});
            phases.insert(format!("start{n}"), phase);
        }
        phases.insert("turns".into(), Value::Object(events));
        let (policy, priority) = match role.class() {
            Sched::Normal(s) => (Policy::Other, s.nice),
            Sched::Batch(s) => (Policy::Batch, s.nice),
            Sched::Idle => (Policy::Idle, 0),
            Sched::Fifo(prio) => (Policy::Fifo, prio as i8),
            Sched::RoundRobin(prio) => (Policy::RoundRobin, prio as i8),
        };
        // Whom others start now and then, but none of them once in most of its lives, is there from the beginning.
        let seldom = role.tasks == 0 && !forked(&role.name);
        let instances = if seldom { lives.max(1) } else { role.tasks };
        let task = json!({
            "instance": instances.min(INSTANCES_MAX),
            "loop": 1,
            "policy": policy.name(),
            "priority": priority,
            "phases": phases,
        });
        tasks.insert(name(&role.name), task);
    }
    let file = json!({"tasks": tasks, "global": {"default_policy": Policy::Other.name(), "duration": -1}});
    serde_json::to_string_pretty(&file).expect("plain values") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    #[test]
    fn whom_nobody_starts_for_certain_is_there_from_the_beginning() {
        let role = |name: &str, tasks: u32, starts: &[(&str, f64)]| {
            let starts =
                starts.iter().map(|(role, n)| format!("[[role.starts]]\nrole = \"{role}\"\nper_life = {n:.3}\n"));
            let starts: String = starts.collect();
            format!("[[role]]\nname = \"{name}\"\ntasks = {tasks}\nturns = [1.0]\nrun_us = [5.0]\n{starts}\n")
        };
        let text =
            "schema = 1\nform = \"fitted\"\n[source]\nrecording = \"r\"\ncommand = \"c\"\ncpus = 2\nspan_ns = 1000\n"
                .to_string()
                + &role("parent", 20, &[("child", 2.0), ("seldom", 0.15), ("never", 0.001)])
                + &role("child", 0, &[])
                + &role("seldom", 0, &[("grandchild", 1.0)])
                + &role("never", 0, &[])
                + &role("grandchild", 0, &[]);
        let Ok(Model::Fitted(model)) = Model::parse(text.as_bytes(), "m.toml") else { panic!("a model") };
        let written = rt_app(&model);
        let value: Value = serde_json::from_str(&written).expect("JSON");
        let there = ["parent", "child", "seldom", "never", "grandchild"]
            .map(|name| value["tasks"][name]["instance"].as_u64().expect("a number"));
        assert_eq!(there, [20, 0, 3, 1, 0]);
        crate::rtapp::parse(&written, "m.json").expect("what contend reads, too");
    }
}
