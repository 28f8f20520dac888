//! Helpers of the tests: programs from closures, runs with events recorded, and a stage on which one CPU's kernel code is
//! called directly while the state of the others is set by hand.

use contend_machine::Machine;
use contend_platform::Ordering::{Relaxed, Release};
use contend_platform::{CpuId, Platform, SchedPlatform, TaskId, Time};
use contend_sched::capacity::Told;
use contend_sched::class::Sched;
use contend_sched::cpuset::Affinity;
use contend_sched::features::{Features, PolicyKind, Preset};
use contend_sched::kernel::{Kernel, SyscallEnd, Syscalls};
use contend_sched::policy::cfs::Cfs;
use contend_sched::task::state;
use contend_sim::engine::{Engine, EngineCounts, Stop};
use contend_sim::guest::Guests;
use contend_sim::host::{EventSink, Limits, RunResult, Setup, Who, simulate};
use contend_sim::program::{Cx, GroupId, Op, Program, TaskSpec, Workload};
use contend_sim::world::Sim;
use fixedbitset::FixedBitSet;
use std::cell::RefCell;
use std::rc::Rc;

/// ns of a millisecond.
pub const MS: u64 = 1_000_000;

/// A program that is a closure.
pub struct Does<F>(pub F);
impl<F: FnMut(&mut Cx<'_>) -> Op + Send> Program for Does<F> {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        (self.0)(cx)
    }
}

/// A task that does what the closure says.
pub fn task(name: &str, f: impl FnMut(&mut Cx<'_>) -> Op + Send + 'static) -> TaskSpec {
    TaskSpec::new(name, Does(f))
}

/// A task that does these things and exits.
pub fn script(name: &str, ops: Vec<Op>) -> TaskSpec {
    let mut ops = ops.into_iter();
    task(name, move |_| ops.next().unwrap_or(Op::Exit))
}

/// A task that computes for `ns` in all.
pub fn hog(name: &str, ns: u64) -> TaskSpec {
    script(name, vec![Op::Run(ns)])
}

/// These CPUs.
pub fn cpus(list: &[usize]) -> FixedBitSet {
    let mut set = FixedBitSet::with_capacity(list.iter().max().map_or(0, |m| m + 1));
    list.iter().for_each(|c| set.insert(*c));
    set
}

/// A preset by name.
pub fn preset(name: &str) -> Preset {
    Preset::find(name).expect("the preset exists")
}

/// Run a workload on a machine under a preset.
pub fn run_on(machine: Machine, preset: &Preset, workload: Workload, horizon: Time) -> RunResult {
    run_with(machine, preset.policy, preset.features.clone(), workload, horizon, None)
}

/// Run with everything stated.
pub fn run_with(
    machine: Machine,
    policy: PolicyKind,
    features: Features,
    workload: Workload,
    horizon: Time,
    sink: Option<Box<dyn EventSink>>,
) -> RunResult {
    let limits = Limits { horizon, ..Limits::default() };
    simulate(
        policy,
        Setup { machine, features, workload, seed: 1, limits, guests: Guests::default() },
        sink,
        &mut |_| true,
    )
    .expect("stacks")
}

/// A machine by name.
pub fn machine(name: &str) -> Machine {
    Machine::load(name).expect("the machine exists")
}

/// One scheduling event as a line: `  1234.567 cpu0 switch a -> b`.
pub struct Lines(pub Rc<RefCell<Vec<String>>>);

impl Lines {
    fn put(&self, now: Time, cpu: CpuId, what: String) {
        self.0.borrow_mut().push(format!("{:>9.1} us  {cpu:?}  {what}", now as f64 / 1000.0));
    }
}

fn name(who: Option<Who<'_>>) -> String {
    who.map_or("idle".into(), |w| w.name.to_string())
}

impl EventSink for Lines {
    fn switch(&mut self, now: Time, cpu: CpuId, prev: Option<Who<'_>>, prev_state: u64, next: Option<Who<'_>>) {
        let how = match prev_state {
            0 => "",
            1 | 2 => " sleeps",
            _ => " exits",
        };
        self.put(now, cpu, format!("{}{how} -> {}", name(prev), name(next)));
    }
    fn waking(&mut self, _: Time, _: CpuId, _: Option<Who<'_>>, _: Who<'_>, _: CpuId) {}
    fn wakeup(&mut self, now: Time, cpu: CpuId, by: Option<Who<'_>>, task: Who<'_>, target: CpuId, new: bool) {
        let verb = if new { "starts" } else { "wakes" };
        self.put(now, cpu, format!("{} {verb} {} on {target:?}", name(by), task.name));
    }
    fn migrate(&mut self, now: Time, cpu: CpuId, _: Option<Who<'_>>, task: Who<'_>, from: CpuId, to: CpuId) {
        self.put(now, cpu, format!("{} moves {from:?} -> {to:?}", task.name));
    }
    fn finish(&mut self, _: Time) -> std::io::Result<()> {
        Ok(())
    }
}

/// Run and return the events as lines too.
pub fn traced(m: Machine, policy: PolicyKind, f: Features, w: Workload, horizon: Time) -> (RunResult, Vec<String>) {
    let lines = Rc::new(RefCell::new(Vec::new()));
    let result = run_with(m, policy, f, w, horizon, Some(Box::new(Lines(Rc::clone(&lines)))));
    let lines = lines.take();
    (result, lines)
}

/// System calls of a world whose tasks make none.
pub struct NoCalls;
impl Syscalls<Sim, Cfs> for NoCalls {
    fn syscall(&self, _: &Kernel<Sim, Cfs>, _: &Sim, _: TaskId) -> SyscallEnd {
        unreachable!("no task runs")
    }
}

/// A kernel whose CPU 0 executes the test while the other CPUs' run queues say what the test made them say.
pub struct Stage {
    /// The kernel.
    pub kernel: Rc<Kernel<Sim, Cfs>>,
    /// Its world.
    pub p: Sim,
}

/// Run `script` on CPU 0 of a kernel with CFS and these features. With `live`, the other CPUs run their loops (and idle).
pub fn stage(machine: &str, features: Features, live: bool, script: impl FnOnce(&Stage) + Clone + 'static) {
    stage_on(self::machine(machine), features, live, script);
}

/// The same on a machine.
pub fn stage_on(machine: Machine, features: Features, live: bool, script: impl FnOnce(&Stage) + Clone + 'static) {
    let vcpu_pack = machine.flags.vcpu_pack;
    let topo = machine.topology.clone();
    let engine = Engine::new(machine);
    engine.idle_polls.set(features.idle_polling);
    let p = Sim::new(Rc::clone(&engine), None);
    let policy = Cfs::new(&features, topo.nr_cpus());
    let mut kernel = Kernel::new(&p, topo, Told::Nothing, features, policy, 4 * MS);
    kernel.pack_vcpus(vcpu_pack);
    let kernel = Rc::new(kernel);
    let done = Rc::new(RefCell::new(false));
    let mut stacks = engine
        .boot(|_| {
            let (kernel, p, script, done) = (Rc::clone(&kernel), p.clone(), script.clone(), Rc::clone(&done));
            move |cpu: CpuId| {
                if cpu == CpuId(0) {
                    script(&Stage { kernel: Rc::clone(&kernel), p: p.clone() });
                    *done.borrow_mut() = true;
                    p.engine().stop();
                } else if live {
                    kernel.cpu_loop(&p, &NoCalls);
                }
            }
        })
        .expect("stacks");
    while engine.run(&mut stacks, 10_000 * MS, 1_000_000) == Stop::Budget {}
    assert!(*done.borrow(), "the script ran to its end");
}

impl Stage {
    /// A sleeping task that last ran on `prev`.
    pub fn sleeper(&self, prev: usize) -> TaskId {
        self.sleeper_of(Sched::default(), prev)
    }
    /// The same, of a class.
    pub fn sleeper_of(&self, sched: Sched, prev: usize) -> TaskId {
        let t = self.kernel.create(&self.p, sched, Affinity::ALL, GroupId::ROOT);
        self.kernel.announce_sleep(&self.p, t, state::INTERRUPTIBLE);
        self.p.store(&self.kernel.task(t).cpu, prev as u64, Release);
        t
    }
    /// `cpu` says it runs something, with `nr` runnable tasks.
    pub fn busy(&self, cpu: usize, nr: u64) {
        self.p.store(&self.kernel.rqs[cpu].peek, 1_000_000 << 32 | nr, Release);
    }
    /// Every CPU is busy but these.
    pub fn idle_only(&self, idle: &[usize]) {
        for c in 0..self.p.nr_cpus() {
            if idle.contains(&c) {
                self.p.store(&self.kernel.rqs[c].peek, 0, Release);
            } else {
                self.busy(c, 1);
            }
        }
        // CPU 0 runs a real task: the waker.
        if !idle.contains(&0) {
            let waker = self.sleeper(0);
            self.p.store(&self.kernel.rqs[0].peek, (u64::from(waker.0) + 1) << 32 | 1, Release);
        }
    }
    /// The waker on CPU 0.
    pub fn waker(&self) -> TaskId {
        TaskId((self.p.load(&self.kernel.rqs[0].peek, Relaxed) >> 32) as u32 - 1)
    }
    /// Wake a new sleeper of `prev` from CPU 0; returns where it went and how many run queues a search looked at.
    pub fn wake_from(&self, prev: usize) -> (usize, u64) {
        let t = self.sleeper(prev);
        self.wake(t, 0)
    }
    /// Wake `t` from CPU 0.
    pub fn wake(&self, t: TaskId, flags: u64) -> (usize, u64) {
        let probes = || self.p.engine().observed.borrow().probes;
        let before = probes();
        self.kernel.try_to_wake_up(&self.p, t, state::NORMAL, flags);
        (self.kernel.task_cpu(&self.p, t).index(), probes() - before)
    }
    /// Engine counters.
    pub fn counts(&self) -> EngineCounts {
        self.p.engine().counts()
    }
    /// Times the lock of a run queue was taken.
    pub fn locked(&self, cpu: usize) -> u64 {
        self.kernel.rqs[cpu].lock.stats().acquisitions
    }
    /// Let virtual time pass.
    pub fn pass(&self, ns: u64) {
        let mut left = ns;
        while left > 0 {
            let step = left.min(1000);
            self.p.engine().owe(step);
            self.p.engine().settle();
            left -= step;
        }
    }
}
