//! What a recording and its replay are compared by: the same counts, from the same events, of the same tasks.
//!
//! A [`SchedStats`] takes switches and wake-ups of the tasks that are watched, from a recording ([`Kept::stats`]) or from a
//! simulation (it is an [`EventSink`]). Wake-up latency is the time from `sched_waking` of a sleeping task to the switch to it.
//!
//! Some kernels do not record every switch: on some CPUs none from the idle task to another, so that the next that is heard of who came is that
//! it leaves. How long it waited, and when its run began, is not in such a recording. Which CPU a task is on is chance; so whoever compares
//! a replay lets [as many](FromIdle) of each task's arrivals there count as were recorded, wherever they are.

use std::collections::BTreeMap;

use contend_platform::{CpuId, Time};
use contend_sim::host::{EventSink, Who};
use contend_sim::os::histogram;
use contend_trace::event::{Event, Kind, TaskState};
use hdrhistogram::Histogram;
use rustc_hash::{FxHashMap, FxHashSet};

/// Counts of some tasks.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Switches away from them.
    pub switches: u64,
    /// Of those, switches in which the task stayed runnable.
    pub preempted: u64,
    /// Switches to another CPU than the last.
    pub migrations: u64,
    /// Wake-ups.
    pub wakeups: u64,
    /// Of those, by the CPU on which the task had slept. Unlike switches from idle, wake-ups are in every recording.
    pub wakeups_here: u64,
    /// Time on a CPU, in ns.
    pub run_ns: u64,
    /// From `sched_waking` to running, in ns.
    pub wakeup_latency: Histogram<u64>,
    /// From coming to a CPU to leaving it, in ns.
    pub runs: Histogram<u64>,
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
            switches: 0,
            preempted: 0,
            migrations: 0,
            wakeups: 0,
            wakeups_here: 0,
            run_ns: 0,
            wakeup_latency: histogram(),
            runs: histogram(),
        }
    }
}

/// Where a watched task is.
#[derive(Clone, Copy, Default)]
struct Place {
    /// On a CPU since then.
    running: Option<u64>,
    /// Asleep, and woken then.
    woken: Option<u64>,
    /// Has left its CPU to sleep.
    asleep: bool,
    cpu: Option<u32>,
}

/// Takes events, counts.
#[derive(Clone, Debug, Default)]
pub struct SchedStats {
    /// Over all watched tasks.
    pub all: Counts,
    /// By name; the names of a replay end in a number that is cut off.
    pub by_name: BTreeMap<String, Counts>,
    /// Arrivals of the watched tasks on CPUs that idled.
    pub from_idle: FromIdle,
    /// Begin of the first run of a watched task, and the last switch of one.
    pub span: Option<(u64, u64)>,
    places: FxHashMap<u64, Place>,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("cpu", &self.cpu).finish_non_exhaustive()
    }
}

impl SchedStats {
    /// From the first run to the last switch, in s.
    pub fn seconds(&self) -> f64 {
        self.span.map_or(0.0, |(from, to)| (to - from) as f64 / 1e9)
    }

    fn of(&mut self, name: &str, mut f: impl FnMut(&mut Counts)) {
        f(&mut self.all);
        if !self.by_name.contains_key(name) {
            self.by_name.insert(name.to_string(), Counts::default());
        }
        f(self.by_name.get_mut(name).expect("just inserted"));
    }

    fn leaves(&mut self, ts: u64, task: u64, name: &str, runnable: bool) {
        let place = self.places.entry(task).or_default();
        place.asleep = !runnable;
        // Whose coming is not recorded came when it was woken, or soon after: near enough for a sum.
        let unseen = place.woken.take().map_or(0, |since| ts.saturating_sub(since));
        let ran = place.running.take().map(|since| ts.saturating_sub(since));
        let from = self.span.map_or(ts - ran.unwrap_or(unseen).min(ts), |(from, _)| from);
        self.span = Some((from, ts.max(from)));
        self.of(name, |c| {
            c.switches += 1;
            c.preempted += u64::from(runnable);
            c.run_ns += ran.unwrap_or(unseen);
            if let Some(ran) = ran {
                c.runs.saturating_record(ran);
            }
        });
    }

    fn wakes(&mut self, ts: u64, task: u64, name: &str, here: bool) {
        self.of(name, |c| {
            c.wakeups += 1;
            c.wakeups_here += u64::from(here);
        });
        let place = self.places.entry(task).or_default();
        if place.asleep && place.running.is_none() {
            place.woken.get_or_insert(ts);
        }
    }

    fn comes(&mut self, ts: u64, task: u64, name: &str, cpu: u32) {
        let place = self.places.entry(task).or_default();
        place.running = Some(ts);
        place.asleep = false;
        let moved = place.cpu.replace(cpu).is_some_and(|before| before != cpu);
        let waited = place.woken.take().map(|since| ts.saturating_sub(since));
        self.of(name, |c| {
            c.migrations += u64::from(moved);
            if let Some(waited) = waited {
                c.wakeup_latency.saturating_record(waited);
            }
        });
    }
}

/// How many arrivals on idle CPUs are in a recording, and how many are not: each task's, of those that were woken there
/// (by an interrupt) and of those that were woken elsewhere.
#[derive(Clone, Debug, Default)]
pub struct FromIdle {
    of: FxHashMap<(u64, bool), Arrivals>,
    all: Arrivals,
}

/// Of one task and kind, or of all.
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    seen: u64,
    unseen: u64,
    /// Of a replay: arrivals until now, and those that counted.
    replayed: (u64, u64),
}

impl FromIdle {
    /// Not recorded.
    pub fn unseen(&self) -> u64 {
        self.all.unseen
    }

    fn add(&mut self, task: u64, here: bool, seen: bool) {
        for a in [self.of.entry((task, here)).or_default(), &mut self.all] {
            *(if seen { &mut a.seen } else { &mut a.unseen }) += 1;
        }
    }

    /// A task comes to an idle CPU in a replay: would it have been recorded? Of each task and kind the recorded share is, evenly; of one that
    /// never came so, the share of all that did.
    pub fn would_be_seen(&mut self, task: u64, here: bool) -> bool {
        let a = self.of.entry((task, here)).or_default();
        let recorded = if a.seen + a.unseen > 0 { *a } else { self.all };
        let (seen, unseen) = (recorded.seen, recorded.unseen);
        a.replayed.0 += 1;
        let counts = unseen == 0 || a.replayed.0 * seen / (seen + unseen) > a.replayed.1;
        a.replayed.1 += u64::from(counts);
        counts
    }
}

/// The idle task's number.
const NOBODY: u32 = u32::MAX;

/// A switch or a wake-up of a recording, with tasks by their numbers.
#[derive(Clone, Copy, Debug)]
enum Seen {
    Switch { ts: u64, cpu: u32, prev: u32, runnable: bool, next: u32 },
    Waking { ts: u64, cpu: u32, task: u32, here: bool },
}

/// Keeps what statistics need of a recording until it is known whose count: 24 bytes a switch or wake-up.
#[derive(Clone, Debug, Default)]
pub struct Kept(Vec<Seen>);

impl Kept {
    /// Take an event of the recording; `task_of` says who has a pid then.
    pub fn event(&mut self, e: &Event, task_of: &dyn Fn(u32) -> Option<u32>) {
        let task_of = |pid| task_of(pid).filter(|_| pid != 0).unwrap_or(NOBODY);
        self.0.push(match &e.kind {
            Kind::Switch { prev, prev_state, next } => Seen::Switch {
                ts: e.ts,
                cpu: e.cpu,
                prev: task_of(prev.pid),
                runnable: prev_state.is_runnable(),
                next: task_of(next.pid),
            },
            Kind::Waking { task, target_cpu } => {
                Seen::Waking { ts: e.ts, cpu: e.cpu, task: task_of(task.pid), here: *target_cpu == e.cpu }
            }
            _ => return,
        });
    }

    /// The statistics of the tasks that `watched` names.
    pub fn stats<'a>(&self, watched: impl Fn(u32) -> Option<&'a str>) -> SchedStats {
        let mut stats = SchedStats::default();
        // CPUs that went idle, as far as is known, and where each task was woken last.
        let (mut idle, mut woken) = (FxHashSet::default(), FxHashMap::default());
        for &seen in &self.0 {
            match seen {
                Seen::Switch { ts, cpu, prev, runnable, next } => {
                    let was_idle = idle.remove(&cpu);
                    let here = |task| woken.get(&task) == Some(&cpu);
                    if let Some(name) = watched(prev) {
                        if was_idle {
                            stats.from_idle.add(prev.into(), here(prev), false);
                        }
                        stats.leaves(ts, prev.into(), name, runnable);
                    }
                    if let Some(name) = watched(next) {
                        if prev == NOBODY {
                            stats.from_idle.add(next.into(), here(next), true);
                        }
                        stats.comes(ts, next.into(), name, cpu);
                    }
                    if next == NOBODY {
                        idle.insert(cpu);
                    }
                }
                Seen::Waking { ts, cpu, task, here } => {
                    if let Some(name) = watched(task) {
                        woken.insert(task, cpu);
                        stats.wakes(ts, task.into(), name, here);
                    }
                }
            }
        }
        stats
    }
}

/// A replayed task's name without its number: `cc1-4711+3` is `cc1`.
fn own(name: &str) -> &str {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let name = name.rsplit_once('+').filter(|(_, n)| digits(n)).map_or(name, |(rest, _)| rest);
    name.rsplit_once('-').filter(|(_, n)| digits(n)).map_or(name, |(rest, _)| rest)
}

impl EventSink for SchedStats {
    fn switch(&mut self, now: Time, cpu: CpuId, prev: Option<Who<'_>>, prev_state: u64, next: Option<Who<'_>>) {
        if let Some(who) = prev {
            let runnable = TaskState::from_prev_state(prev_state as i64).is_some_and(TaskState::is_runnable);
            self.leaves(now, who.id, own(who.name), runnable);
        }
        if let Some(who) = next {
            self.comes(now, who.id, own(who.name), cpu.index() as u32);
        }
    }

    fn waking(&mut self, now: Time, cpu: CpuId, _: Option<Who<'_>>, who: Who<'_>, slept_on: CpuId) {
        self.wakes(now, who.id, own(who.name), cpu == slept_on);
    }

    fn wakeup(&mut self, _: Time, _: CpuId, _: Option<Who<'_>>, _: Who<'_>, _: CpuId, _: bool) {}

    fn migrate(&mut self, _: Time, _: CpuId, _: Option<Who<'_>>, _: Who<'_>, _: CpuId, _: CpuId) {}

    fn finish(&mut self, _: Time) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_sim::program::Sched;

    #[test]
    fn wake_ups_are_told_apart_by_where_the_task_slept() {
        let mut stats = SchedStats::default();
        let who = Who { id: 1, name: "make-1", sched: Sched::normal(0) };
        for slept_on in [0, 0, 1] {
            stats.waking(5, CpuId(0), None, who, CpuId(slept_on));
        }
        assert_eq!((stats.all.wakeups, stats.all.wakeups_here), (3, 2));
        assert_eq!(stats.by_name["make"].wakeups_here, 2);
    }

    #[test]
    fn as_many_arrivals_count_as_were_recorded() {
        let mut from_idle = FromIdle::default();
        for i in 0..8 {
            from_idle.add(1, false, i < 2);
            from_idle.add(1, true, true);
            from_idle.add(2, false, false);
        }
        assert_eq!(from_idle.unseen(), 14);
        let mut seen = |task, here| (0..100).filter(|_| from_idle.would_be_seen(task, here)).count();
        assert_eq!((seen(1, false), seen(1, true), seen(2, false)), (25, 100, 0));
        // Of a task that never came so: 10 of 24.
        assert_eq!(seen(3, false), 41);
        let mut all = FromIdle::default();
        assert!((0..9).all(|task| all.would_be_seen(task, task % 2 == 0)), "nothing is missing");
    }
}
