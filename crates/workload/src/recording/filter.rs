//! Whose chains are replayed.

use super::chains::{Chain, Chains, is_recorder};

/// The chosen tasks.
pub struct Chosen {
    /// By task.
    pub included: Vec<bool>,
    /// The command's first task, and how many of its steps and ns precede the command.
    pub root: Option<(u32, usize, u64)>,
    /// Tasks of the kernel among those left out.
    pub kernel_threads: u64,
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

fn is_kernel(t: &Chain) -> bool {
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
        return Chosen { included: vec![true; tasks.len()], root: None, kernel_threads: 0 };
    }
    let named = |e: &&super::chains::Exec| command.is_empty() || e.name == command;
    let execs = || chains.execs.iter().filter(named);
    let root = execs().find(|e| e.by_recorder).or_else(|| execs().next());
    let mut included = vec![false; tasks.len()];
    if let Some(root) = root {
        // Parents stand before their children.
        for (i, t) in tasks.iter().enumerate() {
            let late = |p: u32| p != root.task || t.start_ts >= root.ts;
            included[i] = i == root.task as usize || t.parent.is_some_and(|p| included[p as usize] && late(p));
        }
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
    Chosen { included, root: root.map(|r| (r.task, r.at, r.ts)), kernel_threads }
}
