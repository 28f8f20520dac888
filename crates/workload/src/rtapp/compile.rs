//! From the typed file to tasks for a machine.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use contend_machine::CAPACITY_MAX;
use contend_platform::{NEVER, Nanos};
use contend_sim::program::{GroupId, Groups, ObjId, ObjectKind, Sched, Workload};
use fixedbitset::FixedBitSet;

use super::ast::{EventKind, Loops, Policy, RtApp, Settings, Task};
use super::error::{Pos, Problem, RtAppError};
use super::program::{App, PhaseCode, Step, TaskCode, spec};

/// `mem` writes this many bytes per ns: 10 GB/s, the order of one core's streaming stores on a server. An
/// approximation: the file says how much is written, not to which level of the memory hierarchy.
const BYTES_PER_NS: u64 = 10;
/// A `write` to `/dev/null`: entry, file lookup, exit. Measured on a 2-CPU virtual machine as 4 us per 24 calls.
const WRITE_NS: Nanos = 170;

const NS_PER_US: Nanos = 1_000;
const NS_PER_S: Nanos = 1_000_000_000;
/// Longer than any run: eleven days.
const FOREVER_NS: Nanos = 1_000_000 * NS_PER_S;

impl RtApp {
    /// The tasks and objects of the file on a machine with CPUs 0 to `nr_cpus - 1`. Each call makes a fresh state.
    ///
    /// # Errors
    ///
    /// A CPU that the machine lacks; a policy other than `SCHED_OTHER`.
    pub fn workload(&self, nr_cpus: usize) -> Result<Workload, RtAppError> {
        self.workload_in(Groups::default(), nr_cpus, &[])
    }

    /// The same where there are groups already; rt-app makes those that are missing, with the default weight. On CPUs of several capacities
    /// (in 1/1024 of the fastest; empty: all alike) 1 us of `run` is what the CPU that `calibration` names does in that time, CPU 0 if it
    /// names none.
    ///
    /// # Errors
    ///
    /// As for [`RtApp::workload`].
    pub fn workload_in(&self, groups: Groups, nr_cpus: usize, capacity: &[u64]) -> Result<Workload, RtAppError> {
        let speed = match self.global.calibrated_on.filter(|_| !capacity.is_empty()) {
            None => CAPACITY_MAX,
            Some(cpu) => *capacity.get(usize::from(cpu)).ok_or_else(|| RtAppError {
                file: self.file.clone(),
                pos: self.global.calibration_pos,
                key: "global.calibration".into(),
                problem: Problem::Value {
                    found: format!("\"CPU{cpu}\""),
                    want: format!("\"CPU0\" to \"CPU{}\", the CPUs of the machine", nr_cpus - 1),
                },
            })?,
        };
        let mut c = Compiler {
            rt: self,
            nr_cpus,
            speed,
            workload: Workload { groups, ..Workload::default() },
            app: App { cumulative_slack: self.global.cumulative_slack, ..App::default() },
            objects: HashMap::new(),
            timers: HashMap::new(),
            cpusets: HashMap::new(),
            parties: HashMap::new(),
            numbers: HashMap::new(),
        };
        c.run()?;
        let app = Arc::new(c.app);
        let mut workload = c.workload;
        // rt-app numbers threads through the file, not within a task.
        let mut number = 0;
        for (i, task) in self.tasks.iter().enumerate() {
            for _ in 0..task.instances {
                workload.task(spec(&app, i as u32, format!("{}-{number}", task.name)));
                number += 1;
            }
        }
        workload.horizon = self.global.duration_s.map(|s| u64::from(s) * NS_PER_S);
        Ok(workload)
    }
}

/// Kinds of objects have separate names: a file may call a mutex and a condition variable the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Mutex,
    Cond,
    Barrier,
    Suspension,
}

struct Compiler<'a> {
    rt: &'a RtApp,
    nr_cpus: usize,
    /// Of the CPU by which `run` counts, in 1/1024 of the fastest.
    speed: u64,
    workload: Workload,
    app: App,
    objects: HashMap<(Kind, &'a str), ObjId>,
    /// Shared timers by name.
    timers: HashMap<&'a str, u32>,
    cpusets: HashMap<&'a [u32], u32>,
    /// Users of each barrier.
    parties: HashMap<&'a str, u32>,
    /// Tasks by name.
    numbers: HashMap<&'a str, u32>,
}

fn rounds(loops: Loops) -> u32 {
    match loops {
        Loops::Forever => u32::MAX,
        Loops::Times(n) => n,
    }
}

impl<'a> Compiler<'a> {
    fn error(&self, pos: Pos, key: String, problem: Problem) -> RtAppError {
        RtAppError { file: self.rt.file.clone(), pos, key, problem }
    }

    fn run(&mut self) -> Result<(), RtAppError> {
        let rt = self.rt;
        for (i, task) in rt.tasks.iter().enumerate() {
            self.numbers.insert(&task.name, i as u32);
            for event in task.events() {
                if let EventKind::Barrier(name) = &event.kind {
                    *self.parties.entry(name).or_default() += task.instances;
                }
            }
        }
        self.app.cpus.push(None);
        for i in 0..rt.tasks.len() {
            self.task(i)?;
        }
        Ok(())
    }

    fn object(&mut self, kind: Kind, name: &'a str) -> ObjId {
        let object = match kind {
            Kind::Mutex => ObjectKind::Mutex,
            Kind::Cond => ObjectKind::Cond,
            Kind::Barrier => ObjectKind::Barrier { parties: self.parties.get(name).copied().unwrap_or(1).max(1) },
            Kind::Suspension => ObjectKind::Futex,
        };
        let workload = &mut self.workload;
        *self.objects.entry((kind, name)).or_insert_with(|| workload.object(name, object))
    }

    /// The class that settings bring where `policy` was in force, which they may change: theirs, or the default priority with a
    /// policy alone.
    fn sched(&self, path: &str, settings: &Settings, policy: &mut Policy) -> Result<Option<Sched>, RtAppError> {
        if let Some((own, pos)) = settings.policy {
            *policy = own;
            self.modelled(own, pos, &format!("{path}.policy"))?;
        }
        if settings.policy.is_none() && settings.priority.is_none() {
            return Ok(None);
        }
        Ok(Some(sched(*policy, settings.priority.map(|(n, _)| n))))
    }

    fn modelled(&self, policy: Policy, pos: Pos, key: &str) -> Result<(), RtAppError> {
        if policy != Policy::Deadline {
            return Ok(());
        }
        let what = format!("{}; SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_FIFO and SCHED_RR are", policy.name());
        Err(self.error(pos, key.into(), Problem::NotModelled(what)))
    }

    /// Index of a CPU set.
    fn cpus(&mut self, path: &str, settings: &'a Settings) -> Result<Option<u32>, RtAppError> {
        let Some((cpus, pos)) = &settings.cpus else { return Ok(None) };
        if let Some(&beyond) = cpus.iter().find(|&&c| c as usize >= self.nr_cpus) {
            let want = match self.nr_cpus {
                0 | 1 => "0: the machine has one CPU".into(),
                n => format!("0 to {}: the machine has {n} CPUs", n - 1),
            };
            let problem = Problem::Value { found: format!("CPU {beyond}"), want };
            return Err(self.error(*pos, format!("{path}.cpus"), problem));
        }
        if let Some(&index) = self.cpusets.get(&**cpus) {
            return Ok(Some(index));
        }
        let mut set = FixedBitSet::with_capacity(self.nr_cpus);
        set.extend(cpus.iter().map(|&c| c as usize));
        self.app.cpus.push(Some(set));
        let index = self.app.cpus.len() as u32 - 1;
        self.cpusets.insert(cpus, index);
        Ok(Some(index))
    }

    /// The group that settings bring.
    fn group(&mut self, path: &str, settings: &Settings) -> Result<Option<GroupId>, RtAppError> {
        let Some((group, pos)) = &settings.taskgroup else { return Ok(None) };
        let wrong = |want: &str| Problem::Value { found: format!("\"{group}\""), want: want.into() };
        let found = self.workload.groups.at(group);
        found.map(Some).map_err(|want| self.error(*pos, format!("{path}.taskgroup"), wrong(want)))
    }

    fn task(&mut self, number: usize) -> Result<(), RtAppError> {
        let rt = self.rt;
        let task = &rt.tasks[number];
        let path = format!("tasks.{}", task.name);
        let mut policy = rt.global.default_policy.unwrap_or_default();
        if task.settings.policy.is_none() {
            // The global key is what must change.
            self.modelled(policy, rt.global.default_policy_pos, "global.default_policy")?;
        }
        let own = self.sched(&path, &task.settings, &mut policy)?;
        let own = own.or_else(|| rt.global.default_policy.map(|policy| sched(policy, None)));
        let cpus = self.cpus(&path, &task.settings)?.unwrap_or(0);
        let group = self.group(&path, &task.settings)?.unwrap_or_default();
        let entry = self.app.steps.len() as u32;
        if task.delay_us > 0 {
            self.app.steps.push(Step::Delay(u64::from(task.delay_us) * NS_PER_US));
        }
        self.app.steps.push(Step::Start);
        let body = self.app.steps.len() as u32;
        let mut own_timers = HashMap::new();
        let mut first = None;
        for phase in &task.phases {
            // A task without `phases` has the one phase that stands for it, with no settings of its own.
            let phase_path = format!("{path}.phases.{}", phase.name);
            let change = self.sched(&phase_path, &phase.settings, &mut policy)?;
            let set = self.cpus(&phase_path, &phase.settings)?.unwrap_or(cpus);
            let index = self.app.phases.len() as u32;
            let timer = phase.events.iter().any(|e| matches!(e.kind, EventKind::Timer { .. }));
            let phase_group = self.group(&phase_path, &phase.settings)?.unwrap_or(group);
            first.get_or_insert((set, change.or(own), phase_group));
            let rounds = if phase.events.is_empty() { 1 } else { rounds(phase.loops) };
            self.app.phases.push(PhaseCode { rounds, cpus: set, sched: change, group: phase_group, timer });
            self.app.steps.push(Step::Head(index));
            if phase.events.is_empty() {
                continue;
            }
            let top = self.app.steps.len() as u32;
            self.app.steps.push(Step::Top);
            for event in &phase.events {
                self.event(&event.kind, &mut own_timers);
            }
            self.app.steps.push(Step::Foot { phase: index, top });
        }
        self.app.steps.push(Step::Tail { task: number as u32 });
        let (cpus, sched, group) = first.unwrap_or((cpus, own, group));
        self.app.tasks.push(TaskCode {
            name: task.name.clone(),
            number: number as u32,
            entry,
            body,
            rounds: rounds(task.loops),
            own_timers: own_timers.len() as u32,
            cpus,
            sched,
            group,
            working_set_kib: self.working_set_kib(task),
            forks: AtomicU32::new(0),
        });
        Ok(())
    }

    /// `mem` goes round in its buffer; one larger than the buffer touches all of it.
    fn working_set_kib(&self, task: &Task) -> u32 {
        let largest = task.events().map(|e| if let EventKind::Mem(n) = e.kind { u64::from(n) } else { 0 }).max();
        (largest.unwrap_or(0).min(self.rt.global.mem_buffer_bytes) / 1024) as u32
    }

    fn event(&mut self, kind: &'a EventKind, own_timers: &mut HashMap<&'a str, u32>) {
        let us = |n: u32| u64::from(n) * NS_PER_US;
        let step = match kind {
            EventKind::Run(n) => Step::Run((us(*n) * self.speed).div_ceil(CAPACITY_MAX)),
            EventKind::RunForever => Step::Run(FOREVER_NS),
            EventKind::Runtime(n) => Step::Runtime(us(*n)),
            EventKind::Sleep(n) => Step::Sleep(us(*n)),
            EventKind::Mem(n) => Step::Mem(u64::from(*n) / BYTES_PER_NS),
            EventKind::IoRun(n) => {
                let calls = u64::from(*n).div_ceil(self.rt.global.mem_buffer_bytes);
                let copy = if self.rt.global.io_device == "/dev/null" { 0 } else { u64::from(*n) / BYTES_PER_NS };
                Step::Io(calls * WRITE_NS + copy)
            }
            EventKind::Timer { timer, period_us, absolute } => {
                let own = timer.starts_with("unique");
                let slots = if own { own_timers } else { &mut self.timers };
                let next = slots.len() as u32;
                let slot = *slots.entry(timer).or_insert(next);
                if !own && slot as usize == self.app.timers.len() {
                    self.app.timers.push(AtomicU64::new(NEVER));
                }
                Step::Timer { slot, own, absolute: *absolute, period_ns: us(*period_us) }
            }
            EventKind::Lock(m) => Step::Lock(self.object(Kind::Mutex, m)),
            EventKind::Unlock(m) => Step::Unlock(self.object(Kind::Mutex, m)),
            EventKind::Wait { cond, mutex } => {
                Step::Wait { cond: self.object(Kind::Cond, cond), mutex: self.object(Kind::Mutex, mutex) }
            }
            EventKind::Signal(c) => Step::Signal(self.object(Kind::Cond, c)),
            EventKind::Broadcast(c) => Step::Broadcast(self.object(Kind::Cond, c)),
            EventKind::Sync { cond, mutex, take } => {
                let (cond, mutex) = (self.object(Kind::Cond, cond), self.object(Kind::Mutex, mutex));
                if *take {
                    self.app.steps.push(Step::Lock(mutex));
                }
                self.app.steps.push(Step::Signal(cond));
                self.app.steps.push(Step::Wait { cond, mutex });
                if !*take {
                    return;
                }
                Step::Unlock(mutex)
            }
            EventKind::Barrier(b) => Step::Barrier(self.object(Kind::Barrier, b)),
            EventKind::Suspend(n) => Step::Suspend(self.object(Kind::Suspension, n)),
            EventKind::Resume(n) => Step::Resume(self.object(Kind::Suspension, n)),
            EventKind::Yield => Step::Yield,
            EventKind::Fork(task) => Step::Fork(self.numbers.get(&**task).copied().unwrap_or(0)),
        };
        self.app.steps.push(step);
    }
}

/// Priority of a real-time task that says none (rt-app's tutorial).
const PRIORITY: i32 = 10;

/// The class of a checked policy and priority.
fn sched(policy: Policy, priority: Option<i32>) -> Sched {
    let nice = priority.unwrap_or(0).clamp(-20, 19) as i8;
    let prio = priority.unwrap_or(PRIORITY).clamp(1, 99) as u8;
    match policy {
        Policy::Batch => Sched::batch(nice),
        Policy::Idle => Sched::Idle,
        Policy::Fifo => Sched::Fifo(prio),
        Policy::RoundRobin => Sched::RoundRobin(prio),
        Policy::Other | Policy::Deadline => Sched::normal(nice),
    }
}
