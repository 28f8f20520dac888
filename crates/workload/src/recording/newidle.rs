//! How often a CPU that was about to idle pulled a waiting task, of the times that one waited elsewhere.
//!
//! Kernels that throw a dice before they balance (`ni_random`) weigh it by what came of it before: of the last thousand times on that CPU,
//! longer than most recordings. A replay that began with what a kernel begins with would pull at every second chance, where a
//! machine that has been up for an hour does at one in twenty or fifty. So the recorded share is what a replay begins with (feature
//! `newidle_ratio`).

use contend_trace::event::{Context, Event, Kind};
use rustc_hash::FxHashMap;

use crate::model::NewidlePulls;

/// A task that ran this recently is cache hot, and is not pulled: sched_migration_cost, in ns.
const HOT_NS: u64 = 500_000;
/// So many of those that wait are looked at: crowds are long, and CPUs idle often.
const LOOK_MAX: usize = 256;

#[derive(Default)]
struct Task {
    /// On which CPU it was last.
    cpu: Option<u32>,
    /// It was on another one before.
    moves: bool,
    /// When it last ran.
    ran: u64,
    /// Chances to pull it that were not taken.
    left: u64,
}

#[derive(Clone, Copy)]
struct Waiting {
    cpu: u32,
    since: u64,
}

#[derive(Clone, Copy, Default)]
struct Cpu {
    /// Who runs, 0 for nobody.
    current: u32,
    /// Whom its last event woke.
    woke: Option<u32>,
    /// Whom its current task has pulled here.
    pulls: Option<u32>,
}

/// Counts them from events.
#[derive(Default)]
pub struct Newidle {
    cpus: FxHashMap<u32, Cpu>,
    tasks: FxHashMap<u32, Task>,
    waiting: FxHashMap<u32, Waiting>,
    pulled: u64,
}

impl Newidle {
    pub fn event(&mut self, e: &Event) {
        let woke = self.cpus.entry(e.cpu).or_default().woke.take();
        // Kernels that record no switch from idle: who records an event has come.
        self.comes(e.pid, e.cpu);
        match &e.kind {
            Kind::Waking { task, target_cpu } | Kind::WakeupNew { task, target_cpu } => {
                self.cpu(e.cpu).woke = Some(task.pid);
                self.waiting.insert(task.pid, Waiting { cpu: *target_cpu, since: e.ts });
            }
            Kind::Migrate { task, dest_cpu, .. } => {
                if let Some(w) = self.waiting.get_mut(&task.pid) {
                    w.cpu = *dest_cpu;
                    // By whom its next switch will tell; wake-ups place their wakee.
                    let own = matches!(e.context, Context::Task | Context::Unknown) && e.cpu == *dest_cpu && e.pid != 0;
                    if own && woke != Some(task.pid) {
                        self.cpu(e.cpu).pulls = Some(task.pid);
                    }
                }
            }
            Kind::Switch { prev, prev_state, next } => {
                let sleeps = prev.pid != 0 && !prev_state.is_runnable();
                match self.cpu(e.cpu).pulls.take() {
                    Some(pulled) if sleeps => {
                        self.pulled += 1;
                        self.tasks.entry(pulled).or_default().moves = true;
                    }
                    None if next.pid == 0 => self.left(e),
                    _ => {}
                }
                if prev.pid != 0 {
                    self.tasks.entry(prev.pid).or_default().ran = e.ts;
                    // One that was woken before it left has gone on.
                    if prev_state.is_runnable() {
                        self.waiting.insert(prev.pid, Waiting { cpu: e.cpu, since: e.ts });
                    } else {
                        self.waiting.remove(&prev.pid);
                    }
                }
                self.comes(next.pid, e.cpu);
            }
            Kind::Exit { task } => {
                self.waiting.remove(&task.pid);
            }
            _ => {}
        }
    }

    fn cpu(&mut self, cpu: u32) -> &mut Cpu {
        self.cpus.entry(cpu).or_default()
    }

    /// `pid` is on `cpu`, if it was not before.
    fn comes(&mut self, pid: u32, cpu: u32) {
        if pid == u32::MAX || std::mem::replace(&mut self.cpu(cpu).current, pid) == pid || pid == 0 {
            return;
        }
        self.waiting.remove(&pid);
        let task = self.tasks.entry(pid).or_default();
        task.moves |= task.cpu.replace(cpu).is_some_and(|before| before != cpu);
    }

    /// A CPU begins to idle. If one of those that wait could have been pulled, it is one that is known to move.
    fn left(&mut self, e: &Event) {
        let could = |(pid, w): (&u32, &Waiting)| {
            let behind = self.cpus.get(&w.cpu).is_some_and(|c| c.current != 0 && c.current != *pid);
            let (moves, ran) = self.tasks.get(pid).map_or((false, 0), |t| (t.moves, t.ran));
            let cold = e.ts.saturating_sub(ran) > HOT_NS && e.ts > w.since;
            (w.cpu != e.cpu && behind && cold).then_some((!moves, *pid))
        };
        if let Some((_, pid)) = self.waiting.iter().take(LOOK_MAX).filter_map(could).min() {
            self.tasks.entry(pid).or_default().left += 1;
        }
    }

    /// Of the whole recording. Tasks that never moved may not be allowed to.
    pub fn finish(&self) -> NewidlePulls {
        let left: u64 = self.tasks.values().filter(|t| t.moves).map(|t| t.left).sum();
        NewidlePulls { chances: left + self.pulled, pulled: self.pulled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_trace::Reader;

    /// The text's lines are of a microsecond each, from 1 ms on.
    fn count(lines: &[&str]) -> NewidlePulls {
        let text: String = lines
            .iter()
            .zip(1000..)
            .map(|(line, us)| {
                let (who, what) = line.split_once(' ').expect("CPU and event");
                let (task, cpu) = who.split_once('@').expect("task and CPU");
                format!("{task} [00{cpu}] d..2. 1.{us:06}: {what}\n")
            })
            .collect();
        let mut newidle = Newidle::default();
        for e in Reader::from_read("t", std::io::Cursor::new(text.into_bytes())).expect("a text") {
            newidle.event(&e.expect("an event"));
        }
        newidle.finish()
    }

    fn switch(from: &str, state: &str, to: &str) -> String {
        let of = |task: &str| task.rsplit_once('-').map(|(c, p)| (c.to_string(), p.to_string())).expect("a task");
        let ((c, p), (d, n)) = (of(from), of(to));
        format!(
            "sched_switch: prev_comm={c} prev_pid={p} prev_prio=120 prev_state={state} ==> next_comm={d} next_pid={n} next_prio=120"
        )
    }

    /// Says no more than that `a` runs.
    const AWAKE: &str = "sched_waking: comm=a pid=1 prio=120 target_cpu=000";

    fn on(task: &str, cpu: u32, what: &str) -> String {
        format!("{task}@{cpu} {what}")
    }

    fn migrate(task: &str, from: u32, to: u32) -> String {
        let (c, p) = task.rsplit_once('-').expect("a task");
        format!("sched_migrate_task: comm={c} pid={p} prio=120 orig_cpu={from} dest_cpu={to}")
    }

    /// `b` waits behind `a` on CPU 0 while `s` comes and goes on CPU 1, and is pulled at last: in a kernel that records switches from idle,
    /// and in one that does not.
    #[test]
    fn a_task_that_waits_is_a_chance() {
        for unseen in [false, true] {
            let mut lines = vec![
                on("b-2", 1, &switch("b-2", "S", "swapper/1-0")),
                on("a-1", 0, "sched_waking: comm=b pid=2 prio=120 target_cpu=000"),
            ];
            // Hot until 500 us after it ran; then three chances that nobody takes.
            lines.extend((0..600).map(|_| on("a-1", 0, AWAKE)));
            for _ in 0..3 {
                lines.push(on("<idle>-0", 1, "sched_waking: comm=s pid=3 prio=120 target_cpu=001"));
                if !unseen {
                    lines.push(on("<idle>-0", 1, &switch("swapper/1-0", "R", "s-3")));
                }
                lines.push(on("s-3", 1, &switch("s-3", "S", "swapper/1-0")));
            }
            lines.push(on("<idle>-0", 1, "sched_waking: comm=s pid=3 prio=120 target_cpu=001"));
            lines.push(on("s-3", 1, &migrate("b-2", 0, 1)));
            lines.push(on("s-3", 1, &switch("s-3", "S", "b-2")));
            lines.push(on("b-2", 1, &switch("b-2", "S", "swapper/1-0")));
            let found = count(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(found, NewidlePulls { chances: 4, pulled: 1 }, "unseen: {unseen}");
            assert_eq!(found.ratio(), 308, "1.5 of 5");
        }
    }

    /// None of these is a chance: a task that is hot, that never moves, that was woken to an idle CPU or before it slept; and a wake-up that brings
    /// the wakee here is no pull.
    #[test]
    fn what_is_no_chance() {
        let idles = || on("s-3", 1, &switch("s-3", "S", "swapper/1-0"));
        let long = || (0..600).map(|_| on("a-1", 0, AWAKE));
        let cases: [(&str, Vec<String>); 5] = [
            ("hot", {
                let mut lines = vec![on("a-1", 0, AWAKE)];
                lines.push(on("b-2", 1, &switch("b-2", "R", "s-3")));
                lines.push(on("<idle>-0", 0, &migrate("b-2", 1, 0)));
                lines.push(on("a-1", 0, AWAKE));
                lines.push(idles());
                lines.push(on("b-2", 0, &switch("b-2", "S", "swapper/0-0")));
                lines
            }),
            ("never moves", {
                let mut lines = vec![on("b-2", 0, &switch("b-2", "R", "a-1"))];
                lines.extend(long());
                lines.push(idles());
                lines
            }),
            ("woken to an idle CPU", {
                let mut lines = vec![on("b-2", 1, &switch("b-2", "S", "s-3"))];
                lines.extend((0..600).map(|_| on("<idle>-0", 0, "softirq_entry: vec=1 [action=TIMER]")));
                lines.push(on("s-3", 1, "sched_waking: comm=b pid=2 prio=120 target_cpu=000"));
                lines.push(idles());
                lines.push(on("b-2", 0, &switch("b-2", "S", "swapper/0-0")));
                lines
            }),
            ("woken before it slept", {
                let mut lines = vec![on("b-2", 0, "sched_waking: comm=b pid=2 prio=120 target_cpu=000")];
                lines.push(on("b-2", 0, &switch("b-2", "S", "a-1")));
                lines.extend(long());
                lines.push(idles());
                lines.push(on("b-2", 1, &switch("b-2", "S", "swapper/1-0")));
                lines
            }),
            ("placed here by the wake-up", {
                let mut lines = vec![on("b-2", 0, &switch("b-2", "S", "a-1"))];
                lines.extend(long());
                lines.push(on("s-3", 1, "sched_waking: comm=b pid=2 prio=120 target_cpu=000"));
                lines.push(on("s-3", 1, &migrate("b-2", 0, 1)));
                lines.push(on("s-3", 1, &switch("s-3", "S", "b-2")));
                lines
            }),
        ];
        for (what, lines) in cases {
            let found = count(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(found, NewidlePulls::default(), "{what}");
        }
    }
}
