//! Whose chains are replayed.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::build::is_recorder;
use super::chains::{Chain, Chains};
use crate::model::step::What;

/// The chosen tasks.
pub struct Chosen {
    /// By task.
    pub included: Vec<bool>,
    /// The command's first task, and how many of its steps and ns precede the command.
    pub root: Option<(u32, usize, u64)>,
    /// Tasks of the kernel among those left out.
    pub kernel_threads: u64,
    /// Those that the command did not start, by name.
    pub partners: Vec<(String, u64)>,
}

/// Names of kernel threads; those that sleep as TASK_IDLE are known by that.
const KERNEL: &[&str] = &[
    "kworker/",
    "ksoftirqd/",
    "migration/",
    "cpuhp/",
    "idle_inject/",
    "watchdog/",
    "irq/",
    "jbd2/",
    "napi/",
    "rcub/",
    "rcuc/",
    "rcuog/",
    "rcuop/",
    "rcuos/",
    "rcu_",
    "kswapd",
    "kcompactd",
    "xfsaild/",
    "scsi_eh_",
    "kblockd",
    "loop",
];
const KERNEL_WHOLE: &[&str] = &[
    "kthreadd",
    "khugepaged",
    "ksmd",
    "kauditd",
    "khungtaskd",
    "oom_reaper",
    "kdevtmpfs",
    "writeback",
    "netns",
    "psimon",
    "pr/legacy",
    "hwrng",
];

pub fn is_kernel(t: &Chain) -> bool {
    t.kernel
        || KERNEL.iter().any(|k| {
            t.name.strip_prefix(k).is_some_and(|rest| *k != "loop" || rest.bytes().all(|b| b.is_ascii_digit()))
        })
        || KERNEL_WHOLE.contains(&&*t.name)
}

/// The descendants of `command`, or of the first command that was executed; if none was, all but the system's tasks.
pub fn choose(chains: &Chains, command: &str, all: bool) -> Chosen {
    let tasks = &chains.tasks;
    if all {
        return Chosen { included: vec![true; tasks.len()], root: None, kernel_threads: 0, partners: Vec::new() };
    }
    let named = |e: &&super::chains::Exec| command.is_empty() || e.name == command;
    let execs = || chains.execs.iter().filter(named);
    let root = execs().find(|e| e.by_recorder).or_else(|| execs().next());
    let mut included = vec![false; tasks.len()];
    let mut partners = Vec::new();
    if let Some(root) = root {
        // Parents stand before their children.
        for (i, t) in tasks.iter().enumerate() {
            let late = |p: u32| p != root.task || t.start_ts >= root.ts;
            included[i] = i == root.task as usize || t.parent.is_some_and(|p| included[p as usize] && late(p));
        }
        partners = add_partners(chains, &mut included);
    } else if chains.execs.is_empty() {
        for (i, t) in tasks.iter().enumerate() {
            included[i] = if command.is_empty() {
                !is_kernel(t) && !is_recorder(&t.name) && t.switches > 0
            } else {
                *t.name == *command
            };
        }
    }
    let kernel_threads = std::iter::zip(tasks, &included).filter(|(t, i)| !**i && is_kernel(t)).count() as u64;
    Chosen { included, root: root.map(|r| (r.task, r.at, r.ts)), kernel_threads, partners }
}

/// Fewer wake-ups than this are no partnership: a shell that waits for the command's end is none.
const WAKES_MIN: u64 = 3;

/// Servers: tasks of users that the chosen ones wake and are woken by, or that wake up for hardly anybody else; and so on for
/// those. Of a benchmark that talks to a database, the database.
fn add_partners(chains: &Chains, included: &mut [bool]) -> Vec<(String, u64)> {
    let tasks = &chains.tasks;
    // (waker, sleeper) to sleeps ended.
    let mut wakes: FxHashMap<(u32, u32), u64> = FxHashMap::default();
    for (i, t) in tasks.iter().enumerate() {
        for step in &t.steps {
            if let What::By(waker) = step.what() {
                *wakes.entry((waker, i as u32)).or_default() += 1;
            }
        }
    }
    let mut pairs: Vec<_> = wakes.into_iter().collect();
    pairs.sort_unstable();
    let candidate = |i: u32| !is_kernel(&tasks[i as usize]) && !is_recorder(&tasks[i as usize].name);
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        // For each candidate: woken by chosen ones, woken at all, waking chosen ones.
        let mut sums: BTreeMap<u32, (u64, u64, u64)> = BTreeMap::new();
        for &((waker, sleeper), n) in &pairs {
            let (by, of) = (included[waker as usize], included[sleeper as usize]);
            if !of && candidate(sleeper) {
                let sum = sums.entry(sleeper).or_default();
                sum.0 += if by { n } else { 0 };
                sum.1 += n;
            }
            if of && !by && candidate(waker) {
                sums.entry(waker).or_default().2 += n;
            }
        }
        let mut more = false;
        for (i, (woken, all, waking)) in sums {
            if woken >= WAKES_MIN && (waking >= WAKES_MIN || 2 * woken > all) {
                included[i as usize] = true;
                more = true;
                *found.entry(tasks[i as usize].name.to_string()).or_default() += 1;
            }
        }
        if !more {
            return found.into_iter().collect();
        }
    }
}
