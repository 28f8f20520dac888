//! The fitted form: roles with distributions, as a text to edit (`docs/models.md`).
//!
//! A **role** is all tasks of one name and one kind of parent. A task's life is a number of **turns**: a run, in which it wakes and starts
//! others, and its end: a sleep, or asking another role. [`fit`] takes the distributions from an exact model; [`play`] makes tasks of them.
//!
//! **Everything is dealt, nothing diced.** Were the wake-ups of a turn drawn at random, posts and waits would drift apart as random walks do,
//! and closed loops of tasks would run dry. So how often a turn ends in which way, and how many it wakes, is dealt out evenly over a
//! role's tasks: after `n` turns each happened `n` times its share, within one. Times follow even sequences through the quantiles; only
//! where those begin is the seed's. What is still missed (tasks that wait for wake-ups that do not come, since
//! two roles' shares were edited or cut apart) ends by itself after twice what nine of ten such sleeps took, and is
//! counted: `model_timeouts`.
//!
//! **Requests and replies.** A client that finds the reply before it sleeps is woken by nobody: wake-ups alone do not close the loop of a
//! client and its servers. So where the recording shows such pairs ([`super::pairs`]), a client's turn ends in asking the role, and
//! it goes on unless as many requests as there were servers have no reply yet; then it sleeps for one. A server has replied when it waits to be
//! asked again. It **serves**: it stays as long as others live, since how many turns it has is its clients'
//! business.
//!
//! **Barriers.** At a barrier tasks meet whose turns end there, of whatever role: whoever comes last lets the others go on ([`End::parties`]). A model
//! has one.

mod fit;
mod meeting;
mod play;
mod quantiles;

use serde::{Deserialize, Serialize};

use super::class;
use super::source::Source;
use super::step::Why;
use contend_sim::program::Sched;
pub use fit::fit;
pub(super) use play::lives;
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
    /// Its class, where it is not an ordinary one: `batch`, `idle`, `fifo:50`, `rr:50`...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sched: Option<String>,
    /// Its tasks stay as long as any of another role lives; [`Role::turns`] says how many turns those had that were recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub serves: bool,
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

impl Role {
    /// Class and priority of its tasks.
    pub fn class(&self) -> Sched {
        class::read(self.nice, self.sched.as_deref()).unwrap_or_default()
    }
}

fn is_zero<T: Default + PartialEq>(n: &T) -> bool {
    *n == T::default()
}

/// What ends a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum By {
    /// Asking a role, without a sleep unless too many replies are open.
    Ask,
    /// A sleep, and what ends that.
    Sleep(Why),
    /// The barrier.
    Barrier,
}

impl By {
    /// In a word, as files have it.
    pub fn name(self) -> &'static str {
        match self {
            By::Ask => "ask",
            By::Sleep(why) => why.name(),
            By::Barrier => "barrier",
        }
    }

    /// From the word.
    pub fn find(name: &str) -> Option<Self> {
        [By::Ask, By::Barrier].into_iter().find(|by| by.name() == name).or_else(|| Why::find(name).map(By::Sleep))
    }

    /// Another role takes part.
    fn has_role(self) -> bool {
        matches!(self, By::Ask | By::Sleep(Why::Task))
    }
}

/// A way in which a turn ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// What ends the sleep: `task`, `timer`, `io`, `outside`, `interrupt`, `unseen`; or `ask`, or `barrier`.
    pub by: String,
    /// For `task`: of which role. For `ask`: which role is asked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// Which part of the turns ends so, 0 to 1.
    pub share: f64,
    /// For `ask`: at most so many requests of a task have no reply; one more, and it sleeps for one first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub open: u32,
    /// For `barrier`: how many tasks meet, of all roles whose turns end there. When some of them have ended, all that are left do.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub parties: u32,
    /// How long it sleeps, in µs. Of a sleep that a task ends, of one for a reply, and at a barrier it only says how long it was; the first two are given
    /// up after twice the value at 90 %, but for one for the reply of a role that serves.
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
    /// At most so many at once, those of the starter's other roles that have a limit counted in; 0: no limit. 1: one after another, as a script;
    /// more: the recorded limit of jobs, which `jobs` moves.
    #[serde(default)]
    pub at_once: u32,
}

impl End {
    /// What it is, if the word is known.
    pub fn by(&self) -> Option<By> {
        By::find(&self.by)
    }
}

impl Role {
    /// Do its tasks meet at the barrier?
    fn meets(&self) -> bool {
        self.ends.iter().any(|e| e.by() == Some(By::Barrier))
    }
}

impl Fitted {
    /// How many tasks meet at the barrier: 0 if there is none.
    fn parties(&self) -> u32 {
        self.roles.iter().flat_map(|r| &r.ends).map(|e| e.parties).max().unwrap_or(0)
    }

    /// Does the role of this name ask that role?
    fn asks(&self, client: &str, role: &Role) -> bool {
        let asks = |e: &End| e.by() == Some(By::Ask) && e.role == role.name;
        self.roles.iter().any(|r| r.name == client && r.ends.iter().any(asks))
    }

    /// Does any?
    fn is_asked(&self, role: &Role) -> bool {
        self.roles.iter().any(|client| self.asks(&client.name, role))
    }

    /// What is wrong with it: the key, what was found, and what would be right.
    pub fn check(&self) -> Option<(String, String, String)> {
        let known = |name: &str| self.roles.iter().any(|r| r.name == name);
        let names = || self.roles.iter().map(|r| r.name.as_str()).collect::<Vec<_>>().join(", ");
        let wrong = |key: String, found: String, right: &str| Some((key, found, right.to_string()));
        let parties = self.parties();
        if self.roles.iter().all(|r| r.tasks == 0 || r.serves) {
            let right = "a role whose tasks are there at the start, and do not serve";
            return wrong("role.tasks".into(), "0 in every role".into(), right);
        }
        for (i, role) in self.roles.iter().enumerate() {
            let key = |rest: &str| format!("role \"{}\": {rest}", role.name);
            if role.name.is_empty() || self.roles[..i].iter().any(|r| r.name == role.name) {
                return wrong(format!("role[{i}].name"), format!("\"{}\"", role.name), "a name that no other role has");
            }
            if let Err((name, found, right)) = class::read(role.nice, role.sched.as_deref()) {
                return Some((key(name), found, right));
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
                let Some(by) = e.by() else {
                    let all = Why::ALL.map(Why::name).join(", ");
                    return wrong(key("ends.by"), format!("\"{}\"", e.by), &format!("one of {all}, ask, barrier"));
                };
                if by.has_role() != known(&e.role) {
                    let right = if by.has_role() { names() } else { "no role: only task and ask have one".into() };
                    return wrong(key("ends.role"), format!("\"{}\"", e.role), &right);
                }
                if (by == By::Ask) != (e.open > 0) {
                    let right = if by == By::Ask { "1 or more" } else { "left out: only ask has it" };
                    return wrong(key("ends.open"), e.open.to_string(), right);
                }
                let meets = by == By::Barrier;
                if meets != (e.parties > 0) || (meets && (e.parties < 2 || e.parties != parties)) {
                    let right = match meets {
                        true => &*format!("2 or more, the same everywhere ({parties} elsewhere)"),
                        false => "left out: only barrier has it",
                    };
                    return wrong(key("ends.parties"), e.parties.to_string(), right);
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
            if role.serves && !self.is_asked(role) {
                return wrong(key("serves"), "true".into(), "left out: no role asks it");
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
        let tasks: u32 = std::iter::zip(lives(self), &self.roles).filter(|(_, r)| r.meets()).map(|(n, _)| n).sum();
        let right = format!("at most {tasks}: there are no more tasks whose turns end by barrier");
        (parties > tasks).then(|| ("role.ends.parties".into(), parties.to_string(), right))
    }
}
