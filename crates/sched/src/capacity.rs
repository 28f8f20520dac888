//! CPUs that do not all compute equally fast: what each is worth, whom it suits, and who runs on one that is too small for it (ARM's
//! big.LITTLE and DynamIQ), or just which are to be filled first (x86). docs/internals/capacity.md says what is taken from where.
//!
//! A CPU's capacity is in 1/1024 of the fastest; utilisation counts in the same unit, so that a task that always runs has 1,024 on the
//! fastest CPU and 462 on one of that capacity. A kernel that knows nothing of this takes all CPUs for equal, and pays by its tasks.

use crate::cpuset::Affinity;
use crate::domains::{CAPACITY, Domain};
use crate::features::{AsymCapacity, Features};
use crate::kernel::{Held, Kernel};
use crate::pelt::Average;
use crate::policy::Policy;
use crate::rq::peek_taken;
use contend_platform::Ordering::{Acquire, Relaxed};
use contend_platform::{CpuId, SchedPlatform, TaskId, Work};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A CPU suits a utilisation up to four fifths of its capacity.
pub(crate) fn fits(util: u64, capacity: u64) -> bool {
    util * 1280 < capacity * 1024
}

/// More by so much that it is worth a move: 5 %.
pub(crate) fn clearly_more(capacity: u64, than: u64) -> bool {
    capacity * 1024 > than * 1078
}

/// What firmware or a driver tells the kernel of CPUs that are not all alike.
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// They are alike, or it says nothing.
    Nothing,
    /// What each is worth, in 1/1024 of the fastest.
    Capacity(&'a [u64]),
    /// By which to begin: the higher, the sooner.
    Priority(&'a [u64]),
}

/// What each CPU is worth, as far as the kernel knows.
#[derive(Clone, Debug)]
pub(crate) struct Capacities {
    of: Box<[u64]>,
    /// Those that there are, ascending.
    values: Box<[u64]>,
    /// By which CPUs to begin (arch_asym_cpu_priority); nothing where it does not matter.
    priority: Box<[u64]>,
}

impl Capacities {
    /// As far as the kernel asks for what it is told.
    pub(crate) fn new(cpus: usize, told: Told<'_>, features: &Features, pelt: bool) -> Self {
        let asked = |what: &[u64], asks: bool| (asks && what.len() == cpus).then(|| Box::from(what));
        let (of, priority) = match told {
            Told::Nothing => (None, None),
            Told::Capacity(of) => (asked(of, pelt && features.asym_capacity != AsymCapacity::Off), None),
            Told::Priority(of) => (None, asked(of, features.asym_packing)),
        };
        let of: Box<[u64]> = of.unwrap_or_else(|| vec![CAPACITY; cpus].into());
        let values = of.iter().copied().collect::<BTreeSet<u64>>().into_iter().collect();
        Capacities { of, values, priority: priority.unwrap_or_default() }
    }
    /// Are some CPUs to be filled before others?
    #[inline]
    pub(crate) fn packs(&self) -> bool {
        !self.priority.is_empty()
    }
    /// Is `a` to be filled before `b` (sched_asym_prefer)?
    pub(crate) fn prefers(&self, a: CpuId, b: CpuId) -> bool {
        self.packs() && self.priority[a.index()] > self.priority[b.index()]
    }
    /// The highest priority among these CPUs; 0 where it does not matter.
    pub(crate) fn best_priority(&self, cpus: &[CpuId]) -> u64 {
        cpus.iter().filter_map(|c| self.priority.get(c.index())).copied().max().unwrap_or(0)
    }
    /// That of one.
    pub(crate) fn priority(&self, cpu: CpuId) -> u64 {
        self.best_priority(&[cpu])
    }
    #[inline]
    pub(crate) fn of(&self, cpu: CpuId) -> u64 {
        self.of[cpu.index()]
    }
    /// That of the largest.
    pub(crate) fn max(&self) -> u64 {
        self.values[self.values.len() - 1]
    }
    /// Do they differ?
    #[inline]
    pub(crate) fn differ(&self) -> bool {
        self.values.len() > 1
    }
    /// Do they among these?
    pub(crate) fn differ_among(&self, cpus: &[CpuId]) -> bool {
        self.differ() && cpus.iter().any(|c| self.of(*c) != self.of(cpus[0]))
    }
    /// Are there all capacities of the machine among these CPUs?
    pub(crate) fn all_among(&self, cpus: &[CpuId]) -> bool {
        self.values.iter().all(|value| cpus.iter().any(|c| self.of(*c) == *value))
    }
}

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    /// What `cpu` has for fair tasks: its capacity, less what real-time tasks take of it (capacity_of).
    pub(crate) fn capacity_left(&self, p: &P, cpu: CpuId) -> u64 {
        let taken = peek_taken(p.load(&self.rq(cpu).load, Relaxed)).min(CAPACITY);
        self.capacity.of(cpu) * (CAPACITY - taken) / CAPACITY
    }

    /// What a task that its waker owns uses: what it has been using, or had when it last went to sleep if that was more (task_util_est).
    fn wakee_util(&self, p: &P, task: TaskId) -> u64 {
        let now = p.now();
        // SAFETY: the task is WAKING: its entity is the waker's.
        unsafe {
            p.read(&self.task(task).ent, |e| {
                let mut util = e.util;
                util.update(now, 0);
                util.get().max(e.util_est)
            })
        }
    }

    // ---- wake-ups --------------------------------------------------------------------------------------------

    /// wake_cap (4.10 to 5.6): the wakee is too much for the smaller of the two CPUs around which the search would be, so that it is placed
    /// where most is left instead. `None`: it is not.
    pub(crate) fn wake_cap(&self, p: &P, task: TaskId, this: CpuId, prev: CpuId, affinity: &Affinity) -> Option<CpuId> {
        if self.features.asym_capacity != AsymCapacity::V4_20 || !self.capacity.differ() {
            return None;
        }
        let smaller = self.capacity.of(this).min(self.capacity.of(prev));
        // Within an eighth of the largest nobody is small.
        let max = self.capacity.max();
        if max - smaller < max / 8 {
            return None;
        }
        let util = self.wakee_util(p, task);
        if fits(util, smaller) {
            return None;
        }
        let mut cpu = prev;
        for domain in self.domains.of(prev).iter().rev().filter(|d| d.asym) {
            cpu = self.most_spare(p, domain, cpu, util, affinity);
        }
        affinity.allows(cpu).then_some(cpu)
    }

    /// In the group whose best CPU has most to spare: an idle CPU, else the one with most.
    fn most_spare(&self, p: &P, domain: &Domain, cpu: CpuId, util: u64, affinity: &Affinity) -> CpuId {
        let spare = |c: CpuId| {
            p.charge(Work::Probe, 1);
            let used = Average::unpack(p.load(&self.rq(c).util, Relaxed)).get();
            let idle = p.load(&self.rq(c).peek, Acquire) == 0;
            (self.capacity_left(p, c).saturating_sub(used), idle, c)
        };
        let local = domain.group_of(cpu);
        let mut best: Option<(u64, Reverse<usize>, CpuId)> = None;
        for (g, cpus) in domain.groups.iter().enumerate() {
            let found: Vec<_> = cpus.iter().filter(|c| affinity.allows(**c)).map(|c| spare(*c)).collect();
            let Some(most) = found.iter().map(|f| f.0).max() else { continue };
            let enough = |f: &&(u64, bool, CpuId)| f.1 && f.0 > util / 2;
            let of = found.iter().filter(enough).max_by_key(|f| (f.0, Reverse(f.2)));
            let Some(chosen) = of.or(found.iter().max_by_key(|f| (f.0, Reverse(f.2)))) else { continue };
            let key = (most, Reverse(domain.nth_from(local, g)), chosen.2);
            if best.is_none_or(|b| (key.0, key.1) > (b.0, b.1)) {
                best = Some(key);
            }
        }
        best.map_or(cpu, |b| b.2)
    }

    /// What a wakee must fit where idle CPUs are looked for by capacity (5.7 on); `None`: they are not.
    pub(crate) fn util_to_fit(&self, p: &P, task: TaskId) -> Option<u64> {
        let asks = self.features.asym_capacity == AsymCapacity::V5_7 && self.capacity.differ();
        asks.then(|| self.wakee_util(p, task))
    }

    /// Does the wakee fit this CPU, if it must?
    pub(crate) fn suits(&self, p: &P, cpu: CpuId, util: Option<u64>) -> bool {
        util.is_none_or(|util| fits(util, self.capacity_left(p, cpu)))
    }

    /// The smallest domain of `cpu` that has CPUs of all capacities.
    pub(crate) fn asym_domain(&self, cpu: CpuId) -> Option<&Arc<Domain>> {
        self.domains.of(cpu).iter().find(|d| d.asym_full)
    }

    // ---- misfits ---------------------------------------------------------------------------------------------

    /// The task that runs, or will run, on a locked queue may be too much for the CPU: note it for those that balance. `None`: nobody does.
    #[inline]
    pub(crate) fn update_misfit(&self, p: &P, held: &Held, task: Option<TaskId>) {
        if self.capacity.differ() {
            self.note_misfit(p, held, task);
        }
    }

    #[cold]
    fn note_misfit(&self, p: &P, held: &Held, task: Option<TaskId>) {
        let cpu = held.0;
        let left = self.capacity_left(p, cpu);
        let load = task.map_or(0, |task| {
            let (util, load, fair) = self.with_task(p, held, task, |rd, e| {
                let load = self.load_of(rd, e);
                (e.util.get().max(e.util_est), load, e.sched.rt().is_none())
            });
            let affinity = self.affinity(p, task);
            let larger = |c: usize| self.capacity.of[c] > self.capacity.of(cpu) && affinity.allows(CpuId(c as u16));
            // On one of the largest nobody is a misfit.
            let suits = !fair || fits(util, left) || self.capacity.of(cpu) == self.capacity.max();
            if suits || !(0..self.rqs.len()).any(larger) { 0 } else { load.max(1) }
        });
        let now = p.now();
        self.with_rq(p, held, |rd| {
            rd.stats.misfit_time += rd.misfit_since.map_or(0, |since| now - since);
            rd.misfit_since = (load > 0).then_some(now);
        });
        let word = &self.rq(cpu).misfit;
        if p.load(word, Relaxed) != load {
            p.store(word, load, Relaxed);
        }
        if load > 0 && p.load(&self.overloaded, Relaxed) == 0 {
            p.store(&self.overloaded, 1, Relaxed);
        }
    }

    /// Does this CPU run a task that is too much for it?
    pub(crate) fn has_misfit(&self, p: &P, cpu: CpuId) -> bool {
        self.capacity.differ() && p.load(&self.rq(cpu).misfit, Relaxed) != 0
    }

    /// Is there an idle CPU that is to be filled before this one?
    pub(crate) fn preferred_idles(&self, cpu: CpuId) -> bool {
        self.capacity.packs() && self.nohz_idle.iter().any(|idle| self.capacity.prefers(idle, cpu))
    }

    /// Does `cpu` idle with all its core? Only then is it worth more than a CPU of a slower core (sched_use_asym_prio).
    pub(crate) fn has_core_to_itself(&self, p: &P, cpu: CpuId) -> bool {
        let core = self.topo.core_cpus(self.topo.core_of(cpu));
        core.iter().filter(|c| **c != cpu).all(|c| p.load(&self.rq(*c).peek, Acquire) == 0)
    }

    /// May the only task of `src` be pulled to `dst`? Not to a clearly smaller CPU.
    pub(crate) fn keeps_its_only(&self, src: CpuId, dst: CpuId) -> bool {
        self.capacity.differ() && clearly_more(self.capacity.of(src), self.capacity.of(dst))
    }

    /// Of these CPUs the one with the heaviest misfit.
    pub(crate) fn heaviest_misfit(&self, p: &P, cpus: &[CpuId], but: &[CpuId]) -> Option<CpuId> {
        let mut best: Option<(u64, CpuId)> = None;
        for &c in cpus.iter().filter(|c| !but.contains(c)) {
            let load = p.load(&self.rq(c).misfit, Relaxed);
            if load > 0 && best.is_none_or(|b| load > b.0) {
                best = Some((load, c));
            }
        }
        best.map(|b| b.1)
    }
}
