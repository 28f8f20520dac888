//! A world for tests of policies: one thread plays all pCPUs, nothing takes time but what vCPUs compute, and the real generic layer
//! runs over it. [`World::run_until`] is a discrete-event loop; for directed tests put the world in a state and call the
//! policy with [`World::cx`].

use super::contract::{DomParams, Tunables, UnitId, XenPolicy};
use super::event::{RunState, XenEvent};
use super::lend::Cx;
use super::mask::CpuMask;
use super::mechanism::{DomainSpec, Hypercalls, Observer, PoolSpec, Xen};
use super::perf::Perf;
use super::units::VcpuAffinity;
use contend_machine::Topology;
use contend_platform::{
    CpuId, Interrupts, Ipi, Line, NEVER, Nanos, Ordering, Platform, SchedPlatform, TaskId, Time, Trap, Work,
};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::rc::Rc;

/// The machine: a clock, and who plays.
pub struct Stage {
    now: Cell<Time>,
    cpu: Cell<CpuId>,
    deadlines: Vec<Cell<Time>>,
    work: [Cell<u64>; Work::COUNT],
}

impl Stage {
    /// Move the clock alone: nobody hears of it.
    pub fn set_now(&self, now: Time) {
        self.now.set(now);
    }
    /// Work of a kind that has been charged.
    pub fn charged(&self, work: Work) -> u64 {
        self.work[work as usize].get()
    }
}

impl Platform for Stage {
    type Word = Cell<u64>;
    type Cell<T> = UnsafeCell<T>;

    fn line(&self) -> Line {
        Line(0)
    }
    fn word(&self, _: Line, init: u64) -> Cell<u64> {
        Cell::new(init)
    }
    fn cell<T>(&self, _: Line, init: T) -> UnsafeCell<T> {
        UnsafeCell::new(init)
    }
    fn cpu(&self) -> CpuId {
        self.cpu.get()
    }
    fn now(&self) -> Time {
        self.now.get()
    }
    fn load(&self, w: &Cell<u64>, _: Ordering) -> u64 {
        w.get()
    }
    fn store(&self, w: &Cell<u64>, value: u64, _: Ordering) {
        w.set(value);
    }
    fn swap(&self, w: &Cell<u64>, value: u64, _: Ordering) -> u64 {
        w.replace(value)
    }
    fn compare_exchange(&self, w: &Cell<u64>, current: u64, new: u64, _: Ordering, _: Ordering) -> Result<u64, u64> {
        let old = w.get();
        if old != current {
            return Err(old);
        }
        w.set(new);
        Ok(old)
    }
    fn fetch_add(&self, w: &Cell<u64>, n: u64, _: Ordering) -> u64 {
        w.replace(w.get().wrapping_add(n))
    }
    fn fetch_or(&self, w: &Cell<u64>, bits: u64, _: Ordering) -> u64 {
        w.replace(w.get() | bits)
    }
    fn fetch_and(&self, w: &Cell<u64>, bits: u64, _: Ordering) -> u64 {
        w.replace(w.get() & bits)
    }
    fn fence(&self, _: Ordering) {}
    fn charge(&self, work: Work, n: u64) {
        let sum = &self.work[work as usize];
        sum.set(sum.get() + n);
    }
    fn wait_until<const N: usize>(
        &self,
        words: [&Cell<u64>; N],
        _: Option<Nanos>,
        mut done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        let values = words.map(Cell::get);
        assert!(done(values), "{:?} waits for a lock, and nobody else plays", self.cpu.get());
        Some(values)
    }
    fn halt(&self, _: &Cell<u64>, _: u64) {}
    fn kick(&self, _: &Cell<u64>, _: CpuId) {}
    unsafe fn read<T, R>(&self, c: &UnsafeCell<T>, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: one thread, and `f` calls no platform operation (contract of `read`).
        f(unsafe { &*c.get() })
    }
    unsafe fn write<T, R>(&self, c: &UnsafeCell<T>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as in `read`.
        f(unsafe { &mut *c.get() })
    }
}

impl SchedPlatform for Stage {
    fn nr_cpus(&self) -> usize {
        self.deadlines.len()
    }
    fn send_ipi(&self, _: CpuId, _: Ipi) {}
    fn take_interrupts(&self) -> Interrupts {
        Interrupts::default()
    }
    fn take_timer(&self) -> Option<TaskId> {
        None
    }
    fn stop_tick(&self, _: bool) {}
    fn program_timer(&self, at: Time) {
        self.deadlines[self.cpu.get().index()].set(at);
    }
    fn interrupt_pending(&self) -> bool {
        false
    }
    fn run_user(&self, _: TaskId) -> Trap {
        unreachable!("the world runs vCPUs itself")
    }
    fn idle(&self, _: &Cell<u64>) {
        unreachable!("the world idles itself")
    }
    fn idle_polls(&self) -> bool {
        false
    }
    fn switch_to(&self, _: Option<TaskId>, _: Option<TaskId>) {}
}

/// What a vCPU does for ever: compute `run` ns, then sleep for `sleep` ns (0: never).
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub run: Nanos,
    pub sleep: Nanos,
}

impl Load {
    /// Computes without end.
    pub const BURNER: Load = Load { run: NEVER, sleep: 0 };
}

/// A domain to be: parameters, and for each vCPU what it does and where.
pub struct Dom {
    pub params: DomParams,
    pub vcpus: Vec<(Load, VcpuAffinity)>,
}

impl Dom {
    /// `n` vCPUs that all do `load` anywhere.
    pub fn new(weight: u16, cap: u16, n: usize, load: Load) -> Self {
        let affinity = VcpuAffinity { hard: CpuMask::first_n(512), soft: CpuMask::first_n(512) };
        Dom { params: DomParams { weight, cap }, vcpus: vec![(load, affinity); n] }
    }
    /// With this soft affinity.
    pub fn soft(mut self, soft: CpuMask) -> Self {
        self.vcpus.iter_mut().for_each(|(_, a)| a.soft = soft);
        self
    }
    /// With this hard affinity.
    pub fn hard(mut self, hard: CpuMask) -> Self {
        self.vcpus.iter_mut().for_each(|(_, a)| a.hard = hard);
        self
    }
}

struct NoCalls;

impl<L: XenPolicy> Hypercalls<Stage, L> for NoCalls {
    fn exit(&self, _: &Xen<Stage, L>, _: &Stage, _: UnitId) {}
    fn timer(&self, _: &Xen<Stage, L>, _: &Stage, _: UnitId) {}
    fn start(&self, _: &Xen<Stage, L>, _: &Stage) {}
    fn alarm(&self, _: &Xen<Stage, L>, _: &Stage) {}
}

/// Keeps the trace.
#[derive(Default)]
pub struct Log(pub RefCell<Vec<(Time, CpuId, XenEvent)>>);

impl Observer for Log {
    fn runstate(&self, _: Time, _: CpuId, _: UnitId, _: RunState, _: RunState) {}
    fn event(&self, now: Time, cpu: CpuId, event: &XenEvent) {
        self.0.borrow_mut().push((now, cpu, *event));
    }
}

/// A host, and what its vCPUs do.
pub struct World<L: XenPolicy> {
    pub p: Stage,
    pub xen: Xen<Stage, L>,
    pub log: Rc<Log>,
    loads: Vec<Load>,
    /// Left of the present stretch of computing.
    left: Vec<Nanos>,
    wakes: Vec<Time>,
}

impl<L: XenPolicy> World<L> {
    /// A host of one pool with `doms` (numbers from 1), all vCPUs started at time 0 on pCPU 0's behalf.
    pub fn new(topo: &Topology, policy: L, doms: Vec<Dom>) -> Self {
        Self::with(topo, policy, Tunables { ratelimit: 1_000_000, tslice: 30_000_000 }, doms)
    }

    /// The same, with other parameters of the pool.
    pub fn with(topo: &Topology, policy: L, tunables: Tunables, doms: Vec<Dom>) -> Self {
        let world = Self::down(topo, policy, tunables, doms);
        for cpu in 0..topo.nr_cpus() {
            world.on(CpuId(cpu as u16)).xen.boot_cpu(&world.p);
        }
        world.on(CpuId(0));
        for unit in 0..world.loads.len() {
            world.xen.start_unit(&world.p, TaskId(unit as u32));
        }
        world.softirqs();
        world
    }

    /// The same before anything has started.
    fn down(topo: &Topology, policy: L, tunables: Tunables, doms: Vec<Dom>) -> Self {
        let n = topo.nr_cpus();
        let p = Stage {
            now: Cell::new(0),
            cpu: Cell::new(CpuId(0)),
            deadlines: (0..n).map(|_| Cell::new(NEVER)).collect(),
            work: std::array::from_fn(|_| Cell::new(0)),
        };
        let loads: Vec<Load> = doms.iter().flat_map(|d| d.vcpus.iter().map(|(load, _)| *load)).collect();
        let specs = doms.iter().enumerate().map(|(i, d)| DomainSpec {
            dom: i as u16 + 1,
            params: d.params,
            pool: 0,
            vcpus: d.vcpus.iter().map(|(_, a)| *a).collect(),
        });
        let pool = PoolSpec { name: "Pool-0".into(), policy, cpus: CpuMask::first_n(n), tunables };
        let mut xen = Xen::new(&p, topo, vec![pool], specs.collect());
        let log = Rc::new(Log::default());
        xen.observe(Rc::clone(&log) as Rc<dyn Observer>, true);
        World { left: loads.iter().map(|l| l.run).collect(), wakes: vec![NEVER; loads.len()], p, xen, log, loads }
    }

    /// From now on `cpu` plays.
    pub fn on(&self, cpu: CpuId) -> &Self {
        self.p.cpu.set(cpu);
        self
    }
    /// A lender for a call on the pCPU that plays, with its schedule lock held if `locked`.
    pub fn cx(&self, locked: bool) -> Cx<'_, Stage, L> {
        let cx = self.xen.cx(&self.p);
        if locked {
            cx.take(self.xen.pcpus[self.p.cpu.get().index()].rq);
        }
        cx
    }
    pub fn now(&self) -> Time {
        self.p.now.get()
    }

    /// Serve softirqs until there are none.
    pub fn softirqs(&self) {
        while let Some(cpu) = (0..self.p.nr_cpus()).find(|c| self.xen.pcpus[*c].softirq.get() & 1 != 0) {
            self.on(CpuId(cpu as u16));
            self.xen.schedule(&self.p);
        }
    }

    /// Let time pass.
    pub fn run_until(&mut self, end: Time) {
        loop {
            let cpus = self.p.nr_cpus();
            let running: Vec<(CpuId, UnitId)> =
                (0..cpus).filter_map(|c| self.xen.pcpus[c].curr.get().map(|u| (CpuId(c as u16), u))).collect();
            let stretch = running.iter().map(|(_, u)| self.left[u.index()]).min().unwrap_or(NEVER);
            let timer = self.p.deadlines.iter().map(Cell::get).min().unwrap_or(NEVER);
            let wake = self.wakes.iter().copied().min().unwrap_or(NEVER);
            let next = self.now().saturating_add(stretch).min(timer).min(wake).max(self.now());
            let to = next.min(end);
            let passed = to - self.now();
            for (_, unit) in &running {
                let left = &mut self.left[unit.index()];
                if *left != NEVER {
                    *left -= passed;
                }
            }
            self.p.now.set(to);
            if next > end {
                return;
            }
            for (cpu, unit) in running {
                if self.left[unit.index()] == 0 {
                    let load = self.loads[unit.index()];
                    self.left[unit.index()] = load.run;
                    if load.sleep > 0 {
                        self.on(cpu).xen.block(&self.p, unit, || false);
                        self.wakes[unit.index()] = to + load.sleep;
                    }
                }
            }
            for cpu in 0..cpus {
                if self.p.deadlines[cpu].get() <= to {
                    self.p.deadlines[cpu].set(NEVER);
                    self.on(CpuId(cpu as u16)).xen.timers(&self.p, &NoCalls);
                }
            }
            self.softirqs();
            for unit in 0..self.wakes.len() {
                if self.wakes[unit] <= to {
                    self.wakes[unit] = NEVER;
                    let unit = TaskId(unit as u32);
                    self.on(self.xen.unit(unit).processor()).xen.unblock(&self.p, unit);
                }
            }
            self.softirqs();
        }
    }

    /// Time that a vCPU has run so far.
    pub fn ran(&self, unit: u32) -> Nanos {
        self.xen.unit(TaskId(unit)).book.borrow().times_until(self.now())[RunState::Running as usize]
    }
    /// Time that all vCPUs of a domain have run so far.
    pub fn dom_ran(&self, dom: u16) -> Nanos {
        (0..self.xen.units.len()).filter(|u| self.xen.units[*u].info.dom == dom).map(|u| self.ran(u as u32)).sum()
    }
    /// A counter.
    pub fn count(&self, what: Perf) -> u64 {
        self.xen.counts()[what as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xen::round_robin::RoundRobin;
    use contend_machine::Machine;

    #[test]
    fn the_reference_policy_shares_a_pcpu_and_wakes_sleepers() {
        let topo = Machine::synthetic("1n1l2c1t").unwrap().topology;
        let sleeper = Load { run: 1_000_000, sleep: 9_000_000 };
        let doms = vec![
            Dom::new(256, 0, 3, Load::BURNER).hard(CpuMask::only(CpuId(0))),
            Dom::new(256, 0, 1, sleeper).hard(CpuMask::only(CpuId(1))),
        ];
        let mut world = World::new(&topo, RoundRobin, doms);
        world.run_until(9_000_000_000);
        for unit in 0..3 {
            assert_eq!(world.ran(unit), 3_000_000_000, "three burners share pCPU 0");
        }
        assert_eq!(world.ran(3), 900_000_000, "a sleeper alone on its pCPU never waits");
        assert_eq!(world.count(Perf::TickledIdle), 900 + 4, "for each sleep, and for each vCPU that starts");
    }

    #[test]
    fn vcpus_begin_dealt_out_over_the_pcpus_that_they_may_run_on() {
        let doms = vec![
            Dom::new(256, 0, 3, Load::BURNER),
            Dom::new(256, 0, 1, Load::BURNER).hard(CpuMask::only(CpuId(1))),
            Dom::new(256, 0, 3, Load::BURNER),
        ];
        let topo = Machine::synthetic("1n1l4c1t").unwrap().topology;
        let world = World::down(&topo, RoundRobin, Tunables { ratelimit: 0, tslice: 30_000_000 }, doms);
        let began: Vec<u16> = (0..7).map(|u| world.xen.unit(TaskId(u)).processor().0).collect();
        assert_eq!(began, [0, 1, 2, 1, 2, 3, 0]);
    }

    #[test]
    fn what_is_not_held_or_lent_already_is_a_policy_error() {
        use crate::kernel::PolicyError;
        use crate::xen::contract::{Lend, RqId};
        use std::panic::{AssertUnwindSafe, catch_unwind};
        let topo = Machine::synthetic("1n1l2c1t").unwrap().topology;
        let refused = |with: &dyn Fn(&Cx<'_, Stage, RoundRobin>)| {
            let world = World::new(&topo, RoundRobin, vec![Dom::new(256, 0, 1, Load::BURNER)]);
            let cx = world.on(CpuId(0)).cx(true);
            let error = catch_unwind(AssertUnwindSafe(|| with(&cx))).expect_err("it is refused");
            error.downcast::<PolicyError>().expect("a policy error").0
        };
        let (own, other) = (RqId(0), RqId(1));
        let said = refused(&|cx| cx.with_rq(own, |_| cx.with_rq(own, |_| ())));
        assert!(said.contains("from inside a closure"), "{said}");
        let said = refused(&|cx| cx.with_rq(own, |_| assert!(cx.try_lock(other))));
        assert!(said.contains("from inside a closure"), "{said}");
        let said = refused(&|cx| cx.with_rq(other, |_| ()));
        assert!(said.contains("schedule lock 1 is not held"), "{said}");
        let said = refused(&|cx| cx.lock(other));
        assert!(said.contains("a deadlock in waiting"), "{said}");
        let said = refused(&|cx| cx.with_global(|()| ()));
        assert!(said.contains("without its lock"), "{said}");
    }
}
