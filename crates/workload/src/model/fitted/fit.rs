//! From an exact model to roles.

use contend_sim::program::Sched;
use std::collections::{BTreeMap, BTreeSet};

use super::{By, End, Fitted, Quantiles, Role, Start, Wake};
use crate::model::barriers;
use crate::model::class;
use crate::model::exact::Exact;
use crate::model::pairs;
use crate::model::step::{What, Why};
use crate::model::wake_ups::WakeUps;

/// What was seen of a role.
#[derive(Default)]
struct Seen {
    tasks: u32,
    lives: u32,
    sched: Sched,
    turns: Vec<f64>,
    run_us: Vec<f64>,
    /// By what ended them, and the role of the task that did or was asked: lengths in µs.
    ends: BTreeMap<(By, Option<usize>), Vec<f64>>,
    wakes: BTreeMap<usize, u64>,
    starts: BTreeMap<usize, u64>,
    /// Most tasks that one of its tasks had at once, by their role, where that is a limit.
    at_once: BTreeMap<usize, u32>,
}

/// Fit roles to an exact model.
pub fn fit(model: &Exact) -> Fitted {
    let (names, role_of) = roles(model);
    let mut seen: Vec<Seen> = names.iter().map(|_| Seen::default()).collect();
    for dispatcher in model.jobs.iter().flat_map(|j| &j.dispatchers) {
        for job in &dispatcher.jobs {
            let most = seen[role_of[dispatcher.task as usize]].at_once.entry(role_of[job.task as usize]).or_default();
            *most = dispatcher.limit.max(*most);
        }
    }
    for role in in_turn(model, &role_of) {
        let (at_once, starts) = (&mut seen[role].at_once, starts_of(model, &role_of, role));
        starts.for_each(|child| _ = at_once.entry(child).or_insert(1));
    }
    // Slots stand for a dispatcher's waits for its jobs, and for what those tell it.
    let limited: Vec<(usize, usize)> =
        seen.iter().enumerate().flat_map(|(d, s)| s.at_once.keys().map(move |&j| (d, j))).collect();
    let mut wake_ups = WakeUps::of(model);
    let barriers = barriers::find(model, &wake_ups);
    wake_ups.leave_out(&barriers.dropped);
    let parties = barriers.parties() as u32;
    let asks = asks(model, &wake_ups, &role_of);
    let asks_of = |client: usize, server: usize| asks.contains_key(&(client, server));
    for (i, t) in model.tasks.iter().enumerate() {
        let s = &mut seen[role_of[i]];
        s.lives += 1;
        s.tasks += u32::from(t.initial);
        s.sched = model.main_sched(i);
        let (mut run, mut turns, mut slept) = (0u64, 0u32, 0u64);
        let mut steps = (t.from..t.to).map(|at| (at, model.steps[at].what())).peekable();
        // The first sleep of a task that comes late is its delay, and no turn's end.
        if t.initial {
            steps.next_if(|(_, s)| matches!(s, What::Sleep(_, Why::Unseen)));
        }
        while let Some((at, step)) = steps.next() {
            let mut end = |by, role, ns: u64| {
                s.ends.entry((by, role)).or_default().push(ns as f64 / 1e3);
                s.run_us.push(std::mem::take(&mut run) as f64 / 1e3);
                turns += 1;
            };
            match step {
                What::Run(ns) | What::Kernel(ns, _) => run += ns,
                What::Barrier(_) if barriers.arrivals.contains_key(&at) => {
                    let waits = steps.peek().map(|(_, next)| *next);
                    end(By::Barrier, None, if let Some(What::Sleep(ns, _)) = waits { ns } else { 0 });
                }
                What::Post(..) | What::Sleep(..) if barriers.dropped.contains(&at) => {}
                What::Post(who, _) if asks_of(role_of[i], role_of[who as usize]) => {
                    end(By::Ask, Some(role_of[who as usize]), std::mem::take(&mut slept));
                }
                // A reply: whoever is asked owes one.
                What::Post(who, _) if asks_of(role_of[who as usize], role_of[i]) => {}
                What::Post(who, _) if limited.contains(&(role_of[who as usize], role_of[i])) => {}
                What::Post(who, _) => *s.wakes.entry(role_of[who as usize]).or_default() += 1,
                What::Spawn(who) => *s.starts.entry(role_of[who as usize]).or_default() += 1,
                What::Sleep(ns, why) => {
                    let by = match steps.next_if(|(_, s)| matches!(s, What::By(_))) {
                        Some((_, What::By(who))) => Some(role_of[who as usize]),
                        _ => None,
                    };
                    if by.is_some_and(|by| limited.contains(&(role_of[i], by))) {
                        continue;
                    }
                    if by.is_some_and(|by| asks_of(role_of[i], by)) {
                        slept += ns;
                        continue;
                    }
                    end(By::Sleep(why), by, ns);
                }
                What::Nop
                | What::Exec
                | What::Yield
                | What::By(_)
                | What::On(_)
                | What::Lock(..)
                | What::Locked
                | What::Unlock(_)
                | What::Barrier(_)
                | What::Sched(_)
                | What::Extra(_) => {}
            }
        }
        // The last turn ends in the exit.
        s.run_us.push(run as f64 / 1e3);
        s.turns.push(f64::from(turns + 1));
    }
    // One whose end frees a slot has to end.
    let serves = |i: usize| asks.keys().any(|(_, s)| *s == i) && !limited.iter().any(|(_, job)| *job == i);
    let roles = (names.iter().zip(seen).enumerate()).map(|(i, (name, s))| Role {
        serves: serves(i),
        ..role(name, s, &names, parties, &|server| asks.get(&(i, server)).copied())
    });
    let roles = roles.collect();
    Fitted { source: model.source.clone(), roles }
}

/// Roles whose tasks start others one after another: all those that start several.
fn in_turn(model: &Exact, role_of: &[usize]) -> BTreeSet<usize> {
    let scripts: BTreeSet<usize> = model.scripts.iter().map(|&t| t as usize).collect();
    let starts = |task| model.steps_of(task).filter(|s| matches!(s, What::Spawn(_))).count();
    let others = (0..model.tasks.len()).filter(|t| !scripts.contains(t) && starts(*t) > 1);
    let others: BTreeSet<usize> = others.map(|t| role_of[t]).collect();
    scripts.into_iter().map(|t| role_of[t]).filter(|role| !others.contains(role)).collect()
}

/// Roles of the tasks that a role's tasks start.
fn starts_of<'a>(model: &'a Exact, role_of: &'a [usize], role: usize) -> impl Iterator<Item = usize> + 'a {
    let tasks = (0..model.tasks.len()).filter(move |&t| role_of[t] == role);
    tasks.flat_map(|t| model.steps_of(t)).filter_map(|s| match s {
        What::Spawn(child) => Some(role_of[child as usize]),
        _ => None,
    })
}

/// Which roles ask which, and the most tasks that one of theirs asks.
///
/// Pairs of tasks are told apart by their wake-ups ([`pairs`]); a few of a role's tasks may show what the others hardly do. So more than half
/// of the wake-ups between two roles decide; and a role that is asked by one is asked by all that it wakes as well.
fn asks(model: &Exact, wake_ups: &WakeUps, role_of: &[usize]) -> BTreeMap<(usize, usize), u32> {
    let pairs = pairs::find(model, wake_ups, pairs::IN_ROLES);
    // Posts, and how many of them are requests.
    let mut posts: BTreeMap<(usize, usize), (u64, u64)> = BTreeMap::new();
    let mut partners: BTreeMap<(usize, usize), BTreeSet<u32>> = BTreeMap::new();
    for (i, t) in model.tasks.iter().enumerate() {
        for at in t.from..t.to {
            let What::Post(who, _) = model.steps[at].what() else { continue };
            let (all, requests) = posts.entry((role_of[i], role_of[who as usize])).or_default();
            *all += 1;
            if let Some(held) = pairs.held.get(&at) {
                *requests += u64::from(held.server.is_some());
                partners.entry((i, role_of[who as usize])).or_default().insert(who);
            }
        }
    }
    let of = |waker, sleeper| posts.get(&(waker, sleeper)).copied().unwrap_or_default();
    let shows = |client, server| {
        let (all, requests) = of(client, server);
        client != server && 2 * requests > all && requests > of(server, client).1
    };
    let servers: BTreeSet<usize> = posts.keys().filter(|&&(c, s)| shows(c, s)).map(|(_, s)| *s).collect();
    let most = |(client, server): (usize, usize)| {
        let of_client = partners.iter().filter(|((i, role), _)| role_of[*i] == client && *role == server);
        of_client.map(|(_, tasks)| tasks.len() as u32).max()
    };
    // Of two servers one may ask the other.
    let asks = |&(client, server): &(usize, usize)| {
        client != server && servers.contains(&server) && (!servers.contains(&client) || shows(client, server))
    };
    // Who has no partners neither waits for replies nor is waited for.
    posts.keys().copied().filter(asks).filter_map(|pair| Some((pair, most(pair)?))).collect()
}

fn role(name: &str, mut s: Seen, names: &[String], parties: u32, open: &dyn Fn(usize) -> Option<u32>) -> Role {
    let turns: f64 = s.turns.iter().sum();
    let sleeps = s.ends.values().map(Vec::len).sum::<usize>().max(1) as f64;
    let rounded = |v: f64| (v * 1e6).round() / 1e6;
    let ends = s.ends.iter_mut().map(|(&(by, of), us)| End {
        by: by.name().into(),
        role: of.map_or(String::new(), |r| names[r].clone()),
        open: of.filter(|_| by == By::Ask).and_then(open).unwrap_or(0),
        parties: if by == By::Barrier { parties } else { 0 },
        share: rounded(us.len() as f64 / sleeps),
        us: Quantiles::of(us),
    });
    let wakes =
        s.wakes.iter().map(|(&r, &n)| Wake { role: names[r].clone(), per_turn: rounded(n as f64 / turns.max(1.0)) });
    let starts = s.starts.iter().map(|(&r, &n)| Start {
        role: names[r].clone(),
        per_life: rounded(n as f64 / f64::from(s.lives.max(1))),
        at_once: s.at_once.get(&r).copied().unwrap_or(0),
    });
    Role {
        name: name.into(),
        tasks: s.tasks,
        nice: s.sched.nice(),
        sched: class::text(s.sched),
        serves: false,
        ends: ends.collect(),
        wakes: wakes.collect(),
        starts: starts.collect(),
        turns: Quantiles::of(&mut s.turns),
        run_us: Quantiles::of(&mut s.run_us),
    }
}

/// Names of the roles, and the role of each task: tasks of one name, class and nice value whose parents are of one role. Where a name
/// has several roles, those of tasks that others start bear their parent's, too, then class or nice value. A role never descends from itself: a child that is called as
/// its parent is another one.
fn roles(model: &Exact) -> (Vec<String>, Vec<usize>) {
    let parents = model.parents();
    let mut keys: Vec<(String, Option<usize>, Sched)> = Vec::new();
    let mut role_of = Vec::with_capacity(model.tasks.len());
    for (i, t) in model.tasks.iter().enumerate() {
        // Parents stand before their children.
        let name = if t.name.is_empty() { "(unnamed)".into() } else { t.name.clone() };
        let key = (name, parents[i].map(|p| role_of[p as usize]), model.main_sched(i));
        let role = keys.iter().position(|k| *k == key).unwrap_or_else(|| {
            keys.push(key);
            keys.len() - 1
        });
        role_of.push(role);
    }
    let mut names: Vec<String> = Vec::new();
    for (i, (name, parent, sched)) in keys.iter().enumerate() {
        let others = || keys.iter().enumerate().filter(move |(k, (n, ..))| *k != i && n == name).map(|(_, key)| key);
        let mut full = match parent {
            Some(p) if others().any(|(_, q, _)| q != parent) => format!("{name}<{}", names[*p]),
            _ => name.clone(),
        };
        if others().any(|(_, q, s)| q == parent && s != sched) {
            let words = class::text(*sched).unwrap_or_else(|| format!("nice:{}", sched.nice()));
            full = format!("{full} {words}");
        }
        let own = if names.contains(&full) { format!("{full}#{i}") } else { full };
        names.push(own);
    }
    (names, role_of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Task;

    #[test]
    fn a_role_has_a_name_if_its_tasks_have_none() {
        let mut model = Exact::default();
        let (name, sched) = (String::new(), Sched::default());
        model.tasks.push(Task { name, pid: 1, sched, session: None, from: 0, to: 0, initial: true, exited: true });
        assert_eq!(fit(&model).roles[0].name, "(unnamed)");
    }

    #[test]
    fn roles_are_of_one_class_and_nice_value() {
        let mut model = Exact::default();
        for (pid, sched) in (1..).zip(["fifo:50", "", "fifo:50"]) {
            let sched = Sched::parse(sched).unwrap_or(Sched::normal(10));
            let name = "head".into();
            model.tasks.push(Task { name, pid, sched, session: None, from: 0, to: 0, initial: true, exited: true });
        }
        let roles: Vec<_> = fit(&model).roles.into_iter().map(|r| (r.name, r.tasks, r.nice, r.sched)).collect();
        let of = |name: &str, tasks, nice, sched: Option<&str>| (name.to_string(), tasks, nice, sched.map(Into::into));
        assert_eq!(roles, [of("head fifo:50", 2, 0, Some("fifo:50")), of("head nice:10", 1, 10, None)]);
    }
}
