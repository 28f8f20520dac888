//! A model as a file of rt-app.
//!
//! rt-app's wake-ups are forgotten when nobody sleeps, so two tasks that wake each other would stop for good; waits for other tasks become
//! sleeps of the mean recorded length. What is left is each role's CPU profile: how long it runs, how often and how long it sleeps,
//! whom it forks.

use contend_sim::program::Sched;

use crate::rtapp::Policy;
use serde_json::{Map, Value, json};

use super::fitted::Fitted;

/// Threads that rt-app is asked for, at most, by role.
const INSTANCES_MAX: u32 = 10_000;

/// The JSON text.
pub fn rt_app(model: &Fitted) -> String {
    let us = |v: f64| (v.round() as u64).min(i32::MAX as u64);
    let name = |role: &str| role.replace(['<', '#', '"', '\\', '/'], "_");
    let mut tasks = Map::new();
    for role in &model.roles {
        let turns = role.turns.mean().round().max(1.0) as u64;
        let mut events = Map::new();
        events.insert("run".into(), json!(us(role.run_us.mean()).max(1)));
        let sleeps: f64 = role.ends.iter().map(|e| e.share * e.us.mean()).sum();
        if turns > 1 && us(sleeps) > 0 {
            events.insert("sleep".into(), json!(us(sleeps)));
        }
        events.insert("loop".into(), json!(turns));
        let mut phases = Map::new();
        let forks: u64 = role.starts.iter().map(|s| s.per_life.round() as u64).sum();
        if forks > 0 {
            // Forks first: rt-app has no "in the middle of a loop".
            for (n, start) in role.starts.iter().enumerate().filter(|(_, s)| s.per_life.round() > 0.0) {
                let phase = json!({"loop": start.per_life.round() as u64, "fork": name(&start.role), "run": 1});
                phases.insert(format!("start{n}"), phase);
            }
        }
        phases.insert("turns".into(), Value::Object(events));
        let (policy, priority) = match role.class() {
            Sched::Normal(nice) => (Policy::Other, nice),
            Sched::Batch(nice) => (Policy::Batch, nice),
            Sched::Idle => (Policy::Idle, 0),
            Sched::Fifo(prio) => (Policy::Fifo, prio as i8),
            Sched::RoundRobin(prio) => (Policy::RoundRobin, prio as i8),
        };
        let task = json!({
            "instance": role.tasks.min(INSTANCES_MAX),
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
