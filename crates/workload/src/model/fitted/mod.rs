//! The fitted form: roles with distributions, as a text to edit (`docs/models.md`).
//!
//! A **role** is all tasks of one name and one kind of parent. A task's life is a number of **turns**: a run, in which it wakes and starts
//! others, and the sleep that ends it. [`fit`] takes the distributions from an exact model; [`play`] makes tasks of them.
//!
//! **Everything is dealt, nothing diced.** Were the wake-ups of a turn drawn at random, posts and waits would drift apart as random walks do,
//! and closed loops of tasks would run dry. So how often a turn ends in which way, and how many it wakes, is dealt out evenly over a
//! role's tasks: after `n` turns each happened `n` times its share, within one. Times follow even sequences through the quantiles; only
//! where those begin is the seed's. What is still missed (tasks that wait for wake-ups that do not come, since
//! two roles' shares were edited or cut apart) ends by itself after twice what nine of ten such sleeps took, and is
//! counted: `model_timeouts`.

mod fit;
mod play;
mod quantiles;

use serde::{Deserialize, Serialize};

use super::exact::Source;
use super::step::Why;
pub use fit::fit;
pub use play::play;
pub use quantiles::Quantiles;

/// A model of roles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// Where it is from.
    pub source: Source,
    /// The roles; others name them by their place's name.
    #[serde(rename = "role")]
    pub roles: Vec<Role>,
}

/// Tasks of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Role {
    /// Its name; also that of its tasks.
    pub name: String,
    /// Tasks that are there when the workload starts. Others are started by roles ([`Role::starts`]).
    pub tasks: u32,
    /// Nice value, -20 to 19.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nice: i8,
    /// Turns of a life.
    pub turns: Quantiles,
    /// CPU time of a turn, in µs.
    pub run_us: Quantiles,
    /// The ways in which turns end; their shares add up to 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<End>,
    /// Whom its turns wake.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wakes: Vec<Wake>,
    /// Whom it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<Start>,
}

fn is_zero(n: &i8) -> bool {
    *n == 0
}

/// A way in which a turn ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// What ends the sleep: `task`, `timer`, `io`, `outside`, `interrupt`, `unseen`.
    pub by: String,
    /// For `task`: of which role.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// Which part of the turns ends so, 0 to 1.
    pub share: f64,
    /// How long it sleeps, in µs. Of a sleep that a task ends it only says how long it was; it is given up after
    /// twice the value at 90 %.
    pub us: Quantiles,
}

/// A role that is woken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wake {
    /// Which.
    pub role: String,
    /// Wake-ups in a turn, on average.
    pub per_turn: f64,
}

/// A role whose tasks are started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Which.
    pub role: String,
    /// How many in a life, on average.
    pub per_life: f64,
    /// At most so many at once; 0: no limit. The recording's limit where it has one.
    #[serde(default)]
    pub at_once: u32,
}

impl End {
    /// What ends the sleep, if the word is known.
    pub fn why(&self) -> Option<Why> {
        Why::find(&self.by)
    }
}

impl Fitted {
    /// What is wrong with it: the key, what was found, and what would be right.
    pub fn check(&self) -> Option<(String, String, String)> {
        let known = |name: &str| self.roles.iter().any(|r| r.name == name);
        let names = || self.roles.iter().map(|r| r.name.as_str()).collect::<Vec<_>>().join(", ");
        let wrong = |key: String, found: String, right: &str| Some((key, found, right.to_string()));
        if self.roles.iter().all(|r| r.tasks == 0) {
            return wrong("role.tasks".into(), "0 in every role".into(), "a role whose tasks are there at the start");
        }
        for (i, role) in self.roles.iter().enumerate() {
            let key = |rest: &str| format!("role \"{}\": {rest}", role.name);
            if role.name.is_empty() || self.roles[..i].iter().any(|r| r.name == role.name) {
                return wrong(format!("role[{i}].name"), format!("\"{}\"", role.name), "a name that no other role has");
            }
            if !(-20..=19).contains(&role.nice) {
                return wrong(key("nice"), role.nice.to_string(), "-20 to 19");
            }
            for (name, q) in [("turns", &role.turns), ("run_us", &role.run_us)]
                .into_iter()
                .chain(role.ends.iter().map(|e| ("ends.us", &e.us)))
            {
                if let Some(right) = q.wrong() {
                    return wrong(key(name), format!("{:?}", q.values()), right);
                }
            }
            for e in &role.ends {
                let Some(why) = e.why() else {
                    let all = Why::ALL.map(Why::name).join(", ");
                    return wrong(key("ends.by"), format!("\"{}\"", e.by), &format!("one of {all}"));
                };
                if (why == Why::Task) != known(&e.role) {
                    let right = if why == Why::Task { names() } else { "no role: only tasks have one".into() };
                    return wrong(key("ends.role"), format!("\"{}\"", e.role), &right);
                }
                if !(0.0..=1.0).contains(&e.share) {
                    return wrong(key("ends.share"), e.share.to_string(), "0 to 1");
                }
            }
            let shares: f64 = role.ends.iter().map(|e| e.share).sum();
            if !role.ends.is_empty() && (shares - 1.0).abs() > 0.01 {
                return wrong(key("ends.share"), format!("{shares} in all"), "shares that add up to 1");
            }
            let rates = role.wakes.iter().map(|w| ("wakes", &w.role, w.per_turn));
            for (what, name, rate) in rates.chain(role.starts.iter().map(|s| ("starts", &s.role, s.per_life))) {
                if !known(name) {
                    return wrong(key(&format!("{what}.role")), format!("\"{name}\""), &names());
                }
                if !(0.0..=1e6).contains(&rate) {
                    return wrong(key(what), rate.to_string(), "0 to 1,000,000");
                }
            }
            // Two roles that start each other would never end.
            let mut reached = vec![false; self.roles.len()];
            let mut todo: Vec<&str> = role.starts.iter().map(|s| s.role.as_str()).collect();
            while let Some(name) = todo.pop() {
                if name == role.name {
                    return wrong(
                        key("starts"),
                        format!("\"{name}\" again"),
                        "roles that do not, in the end, start themselves",
                    );
                }
                if let Some(j) = self.roles.iter().position(|r| r.name == name).filter(|&j| !reached[j]) {
                    reached[j] = true;
                    todo.extend(self.roles[j].starts.iter().map(|s| s.role.as_str()));
                }
            }
        }
        None
    }
}
