//! select_idle_sibling: an idle CPU near the target, by era (mechanisms C.2 to C.4).
//!
//! Every probe reads a line of a remote run queue, which is the scarce resource: what a search costs comes from the lines
//! it touches, not from a formula.

use crate::class::Sched;
use crate::cpuset::Affinity;
use crate::features::{IdleSearch, SchedIdleCpu};
use crate::kernel::{Kernel, Llc};
use crate::policy::Policy;
use crate::rq::peek_sched_idle;
use contend_platform::Ordering::{Acquire, Relaxed, Release};
use contend_platform::{CpuId, Nanos, SchedPlatform, TaskId, Work};

/// The threads of `core` in the order in which a walk that wraps at `start` meets them: is `cpu` the first allowed one?
fn met_first(core: &[CpuId], cpu: CpuId, start: CpuId, affinity: &Affinity) -> bool {
    let allowed = core.iter().filter(|c| affinity.allows(**c));
    allowed.min_by_key(|c| (**c < start, **c)) == Some(&cpu)
}

/// CPUs in wrap order from `start`.
fn wrap(cpus: &[CpuId], start: CpuId) -> impl Iterator<Item = CpuId> + '_ {
    let at = cpus.iter().position(|c| *c >= start).unwrap_or(0);
    cpus[at..].iter().chain(&cpus[..at]).copied()
}

/// For whom a CPU is looked for.
struct Wakee<'a> {
    affinity: &'a Affinity,
    /// A CPU with nothing but `SCHED_IDLE` tasks is as good as an idle one (`sched_idle_cpu`).
    takes_sched_idle: bool,
    /// It must fit the CPU with this utilisation, if that is asked.
    util: Option<u64>,
}

/// What a look at a CPU finds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Idle,
    /// Nothing but `SCHED_IDLE` tasks, and the wakee takes that.
    SchedIdle,
    Busy,
}

/// How the combined scan ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scanned {
    Found(CpuId),
    Nothing,
    /// As many CPUs were looked at as allowed.
    CutShort,
}

impl Scanned {
    fn found(self) -> Option<CpuId> {
        match self {
            Scanned::Found(cpu) => Some(cpu),
            Scanned::Nothing | Scanned::CutShort => None,
        }
    }
}

/// SIS_PROP: one more than the CPUs that a search may look at, if `worth` is the idle time of all CPUs of the cache and `cost` what a
/// search takes.
fn prop_limit(worth: Nanos, cost: Nanos) -> u64 {
    if worth > 4 * cost { worth / cost } else { 4 }
}

/// An average of ns after one more value.
pub(crate) fn moved_by_an_eighth(average: Nanos, value: Nanos) -> Nanos {
    (average as i64 + (value as i64 - average as i64) / 8) as Nanos
}

/// Time that a CPU may still spend on searches (`wake_avg_idle`, mechanisms C.4): half of `avg_idle` when a wake-up ends an idle
/// period, less what its own searches take since, halved with each tick that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SearchTime {
    ns: Nanos,
    /// The tick as of which.
    tick: u64,
}

impl SearchTime {
    pub(crate) const AT_START: SearchTime = SearchTime { ns: crate::kernel::AVG_IDLE_CAP_NS, tick: 0 };

    pub(crate) fn after_idle(avg_idle: Nanos, tick: u64) -> Self {
        SearchTime { ns: avg_idle / 2, tick }
    }

    fn aged(self, tick: u64) -> Self {
        let ticks = tick.saturating_sub(self.tick);
        SearchTime { ns: self.ns.checked_shr(ticks.try_into().unwrap_or(u32::MAX)).unwrap_or(0), tick }
    }

    fn less(self, took: Nanos) -> Self {
        SearchTime { ns: self.ns.saturating_sub(took), ..self }
    }

    /// Time in the lower half, up to 4 s (`avg_idle` has a few ms at most); ticks in the upper one.
    pub(crate) fn pack(self) -> u64 {
        self.tick << 32 | self.ns.min(u64::from(u32::MAX))
    }

    fn unpack(word: u64) -> Self {
        SearchTime { ns: word & u64::from(u32::MAX), tick: word >> 32 }
    }
}

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    fn llc(&self, cpu: CpuId) -> &Llc<P> {
        &self.llcs[self.topo.llc_of(cpu)]
    }
    fn share_llc(&self, a: CpuId, b: CpuId) -> bool {
        self.topo.llc_of(a) == self.topo.llc_of(b)
    }

    pub(crate) fn select_idle_sibling(
        &self,
        p: &P,
        task: TaskId,
        prev: CpuId,
        target: CpuId,
        affinity: &Affinity,
    ) -> CpuId {
        let util = self.util_to_fit(p, task);
        let wakee = &Wakee { affinity, takes_sched_idle: self.takes_sched_idle(p, task), util };
        match self.features.idle_search {
            IdleSearch::None => target,
            IdleSearch::V2_6_37 => self.sis_2_6_37(p, prev, target, wakee),
            // Until 3.8 the target alone was asked first, and a pair of tasks went round its package hand in hand.
            IdleSearch::V3_6 => self.sis_3_6(p, target, target, wakee),
            IdleSearch::V3_9 => self.sis_3_6(p, prev, target, wakee),
            IdleSearch::Buddy => self.sis_buddy(p, target, wakee),
            IdleSearch::V5_2 => self.sis_5_2(p, task, prev, target, wakee),
            IdleSearch::V5_14 | IdleSearch::SisUtil => self.sis_combined(p, task, prev, target, wakee),
        }
    }

    /// Does the task being woken take a CPU of `SCHED_IDLE` tasks for idle?
    fn takes_sched_idle(&self, p: &P, task: TaskId) -> bool {
        match self.features.sched_idle_cpu {
            SchedIdleCpu::Off => false,
            SchedIdleCpu::Any => true,
            // SAFETY: the task is WAKING: its entity is the waker's.
            SchedIdleCpu::Others => unsafe { p.read(&self.task(task).ent, |e| e.sched != Sched::Idle) },
        }
    }

    /// One probe.
    fn look_for(&self, p: &P, cpu: CpuId, wakee: &Wakee<'_>) -> Found {
        match self.probe(p, cpu) {
            (true, _) => Found::Idle,
            (_, peek) if wakee.takes_sched_idle && peek_sched_idle(peek) => Found::SchedIdle,
            _ => Found::Busy,
        }
    }

    fn is_free(&self, p: &P, cpu: CpuId, wakee: &Wakee<'_>) -> bool {
        self.look_for(p, cpu, wakee) != Found::Busy
    }

    // ---- CPUs of different capacity --------------------------------------------------------------------------

    /// select_idle_capacity: the first free CPU that the wakee fits, from the target's on, wherever CPUs of all capacities are; else the
    /// largest of the free ones. `None`: capacity plays no part, the search is as elsewhere.
    fn by_capacity(&self, p: &P, target: CpuId, wakee: &Wakee<'_>) -> Option<CpuId> {
        let domain = wakee.util.and_then(|_| self.asym_domain(target))?;
        let mut probes = 0;
        let mut largest: Option<(u64, CpuId)> = None;
        for cpu in wrap(&domain.span, target).filter(|c| wakee.affinity.allows(*c)) {
            probes += 1;
            if !self.is_free(p, cpu, wakee) {
                continue;
            }
            if self.suits(p, cpu, wakee.util) {
                p.idle_search(probes, true);
                return Some(cpu);
            }
            let capacity = self.capacity_left(p, cpu);
            if largest.is_none_or(|l| capacity > l.0) {
                largest = Some((capacity, cpu));
            }
        }
        p.idle_search(probes, largest.is_some());
        Some(largest.map_or(target, |l| l.1))
    }

    // ---- 2.6.37 ----------------------------------------------------------------------------------------------

    fn sis_2_6_37(&self, p: &P, prev: CpuId, target: CpuId, wakee: &Wakee<'_>) -> CpuId {
        let this = p.cpu();
        if (target == this || target == prev) && wakee.affinity.allows(target) && self.idle_cpu(p, target) {
            p.idle_search(1, true);
            return target;
        }
        let mut probes = 0;
        for domain in self.domains.of(target) {
            if !self.share_llc(domain.span[0], target) || domain.span.len() > self.llc(target).cpus.len() {
                break;
            }
            for &cpu in domain.span.iter().filter(|c| wakee.affinity.allows(**c)) {
                probes += 1;
                if self.idle_cpu(p, cpu) {
                    p.idle_search(probes, true);
                    return cpu;
                }
            }
            if domain.span.contains(&this) && domain.span.contains(&prev) {
                break;
            }
        }
        p.idle_search(probes, false);
        target
    }

    // ---- 3.6 and 3.9 -----------------------------------------------------------------------------------------

    fn sis_3_6(&self, p: &P, prev: CpuId, target: CpuId, wakee: &Wakee<'_>) -> CpuId {
        if let Some(cpu) = self.quick(p, prev, target, wakee) {
            return cpu;
        }
        let mut probes = 0;
        let llc = self.llc(target).cpus.len();
        for domain in self.domains.of(target).iter().rev().filter(|d| d.span.len() <= llc) {
            for group in domain.groups_from(domain.group_of(target)) {
                let Some(first) = group.iter().find(|c| wakee.affinity.allows(**c)) else { continue };
                let idle = group.iter().all(|cpu| {
                    probes += 1;
                    self.idle_cpu(p, *cpu)
                });
                if idle {
                    p.idle_search(probes, true);
                    return *first;
                }
            }
        }
        p.idle_search(probes, false);
        target
    }

    // ---- CPU buddies, 2012 -----------------------------------------------------------------------------------

    /// The buddy, then its siblings. The patch's message says no more than that each CPU has a buddy, which it tries besides
    /// "its SMT sibling", and that the buddies of siblings are cross-wired so that nothing bounces. Here the cores of a cache are
    /// pairs, in their order, and a CPU's buddy is the thread of the same number in the other core: one pair never leaves it. An
    /// odd core is left with its own threads.
    fn sis_buddy(&self, p: &P, target: CpuId, wakee: &Wakee<'_>) -> CpuId {
        if let Some(cpu) = self.quick(p, target, target, wakee) {
            return cpu;
        }
        let own = self.topo.core_cpus(self.topo.core_of(target));
        let thread = own.iter().position(|c| *c == target).expect("a core has its CPUs");
        let mut cores: Vec<usize> = self.llc(target).cpus.iter().map(|c| self.topo.core_of(*c)).collect();
        cores.sort_unstable();
        cores.dedup();
        let at = cores.iter().position(|c| *c == self.topo.core_of(target)).expect("a cache has its cores");
        let there = cores.get(at ^ 1).map_or(own, |c| self.topo.core_cpus(*c));
        let mut probes = 0;
        for cpu in wrap(there, there[thread % there.len()]) {
            if cpu == target || !wakee.affinity.allows(cpu) {
                continue;
            }
            probes += 1;
            if self.idle_cpu(p, cpu) {
                p.idle_search(probes, true);
                return cpu;
            }
        }
        p.idle_search(probes, false);
        target
    }

    /// target idle, or prev idle and near.
    fn quick(&self, p: &P, prev: CpuId, target: CpuId, wakee: &Wakee<'_>) -> Option<CpuId> {
        if wakee.affinity.allows(target) && self.is_free(p, target, wakee) && self.suits(p, target, wakee.util) {
            return Some(target);
        }
        if prev != target
            && self.share_llc(prev, target)
            && wakee.affinity.allows(prev)
            && self.is_free(p, prev, wakee)
            && self.suits(p, prev, wakee.util)
        {
            return Some(prev);
        }
        None
    }

    fn recent(
        &self,
        p: &P,
        task: TaskId,
        prev: CpuId,
        target: CpuId,
        wakee: &Wakee<'_>,
        always_replace: bool,
    ) -> Option<CpuId> {
        if !self.features.recent_used_cpu {
            return None;
        }
        // SAFETY: the waker owns the wakee (pi_lock).
        let recent = unsafe { p.read(&self.task(task).info, |i| i.recent_used_cpu) };
        let found = recent.filter(|&r| {
            r != prev
                && r != target
                && self.share_llc(r, target)
                && wakee.affinity.allows(r)
                && self.is_free(p, r, wakee)
                && self.suits(p, r, wakee.util)
        });
        if found.is_some() || always_replace || recent.is_none() {
            // SAFETY: as above.
            unsafe { p.write(&self.task(task).info, |i| i.recent_used_cpu = Some(prev)) };
        }
        found
    }

    // ---- 5.2 and the 2019 series -----------------------------------------------------------------------------

    fn sis_5_2(&self, p: &P, task: TaskId, prev: CpuId, target: CpuId, wakee: &Wakee<'_>) -> CpuId {
        if let Some(cpu) = self.quick(p, prev, target, wakee) {
            return cpu;
        }
        if let Some(cpu) = self.recent(p, task, prev, target, wakee, false) {
            return cpu;
        }
        if let Some(cpu) = self.by_capacity(p, target, wakee) {
            return cpu;
        }
        if self.features.sis_core
            && let Some(cpu) = self.select_idle_core(p, target, wakee)
        {
            return cpu;
        }
        if let Some(cpu) = self.select_idle_cpu_5_2(p, target, wakee) {
            return cpu;
        }
        if let Some(cpu) = self.select_idle_smt(p, target, wakee) {
            return cpu;
        }
        target
    }

    fn select_idle_core(&self, p: &P, target: CpuId, wakee: &Wakee<'_>) -> Option<CpuId> {
        let llc = self.llc(target);
        if self.topo.core_cpus(self.topo.core_of(target)).len() < 2 {
            return None;
        }
        if p.load(&llc.has_idle_cores, Relaxed) == 0 {
            return None;
        }
        let mut probes = 0;
        for cpu in wrap(&llc.cpus, target) {
            let core = self.topo.core_cpus(self.topo.core_of(cpu));
            if !met_first(core, cpu, target, wakee.affinity) {
                continue;
            }
            let mut idle = true;
            for &thread in core {
                probes += 1;
                if !self.idle_cpu(p, thread) {
                    idle = false;
                }
            }
            if idle {
                p.idle_search(probes, true);
                return Some(cpu);
            }
        }
        p.store(&llc.has_idle_cores, 0, Relaxed);
        p.idle_search(probes, false);
        None
    }

    fn select_idle_cpu_5_2(&self, p: &P, target: CpuId, wakee: &Wakee<'_>) -> Option<CpuId> {
        let f = &self.features;
        let llc = self.llc(target);
        let size = llc.cpus.len() as u64;
        let here = self.llc(p.cpu());
        let avg_idle = p.load(&self.rq(p.cpu()).avg_idle, Relaxed) / 512;
        let cost = p.load(&here.avg_scan_cost, Relaxed) + 1;
        if f.sis_avg_cpu && avg_idle < cost {
            return None;
        }
        let mut nr = u64::MAX;
        if f.sis_prop {
            nr = if f.sis_limit {
                if !f.smt_weight_cached {
                    p.charge(Work::MaskWeight, 1);
                }
                let floor = (self.topo.core_cpus(self.topo.core_of(target)).len() as u64).max(2);
                let limit = 2 * floor;
                if size * avg_idle > floor * cost { (size * avg_idle / cost).min(limit) } else { floor }
            } else {
                prop_limit(size * avg_idle, cost)
            };
        }
        let next_cpu = &self.rq(target).next_cpu;
        let start = if f.sis_rotate {
            match p.load(next_cpu, Relaxed) {
                0 => target,
                n => CpuId((n - 1) as u16),
            }
        } else {
            target
        };
        p.charge(Work::ClockRead, 1);
        let began = p.now();
        let mut probes = 0;
        let mut found = None;
        for cpu in wrap(&llc.cpus, start) {
            if f.sis_next_cpu {
                // Before the nr test, each step, whatever the CPU is (the list objected to both).
                p.store(next_cpu, u64::from(cpu.0) + 1, Relaxed);
            }
            nr -= 1;
            if nr == 0 {
                // This exit does not update the cost.
                p.idle_search(probes, false);
                return None;
            }
            if !wakee.affinity.allows(cpu) {
                continue;
            }
            probes += 1;
            if self.is_free(p, cpu, wakee) {
                found = Some(cpu);
                break;
            }
        }
        p.charge(Work::ClockRead, 1);
        let took = p.now() - began;
        p.store(&here.avg_scan_cost, moved_by_an_eighth(cost - 1, took), Relaxed);
        p.idle_search(probes, found.is_some());
        found
    }

    fn select_idle_smt(&self, p: &P, target: CpuId, wakee: &Wakee<'_>) -> Option<CpuId> {
        let core = self.topo.core_cpus(self.topo.core_of(target));
        if core.len() < 2 {
            return None;
        }
        core.iter().copied().find(|c| wakee.affinity.allows(*c) && self.is_free(p, *c, wakee))
    }

    // ---- 5.14 to today ---------------------------------------------------------------------------------------

    fn sis_combined(&self, p: &P, task: TaskId, prev: CpuId, target: CpuId, wakee: &Wakee<'_>) -> CpuId {
        // An idle last CPU, or the one before, in another cluster than the target's: only if its own has none.
        let mut outside = None;
        let mut taken = |cpu: CpuId| {
            let near = !self.clusters_first || self.topo.cluster_of(cpu) == self.topo.cluster_of(target);
            if !near {
                outside = outside.or(Some(cpu));
            }
            near
        };
        if let Some(cpu) = self.quick(p, prev, target, wakee)
            && (cpu == target || taken(cpu))
        {
            return cpu;
        }
        if let Some(cpu) = self.recent(p, task, prev, target, wakee, true)
            && taken(cpu)
        {
            return cpu;
        }
        if let Some(cpu) = self.by_capacity(p, target, wakee) {
            return cpu;
        }
        self.scan(p, prev, target, wakee).or(outside).unwrap_or(target)
    }

    /// The combined scan, and before it the siblings of the wakee's last CPU.
    fn scan(&self, p: &P, prev: CpuId, target: CpuId, wakee: &Wakee<'_>) -> Option<CpuId> {
        let llc = self.llc(target);
        let smt = self.topo.core_cpus(self.topo.core_of(target)).len() > 1;
        let mut idle_core = smt && p.load(&llc.has_idle_cores, Relaxed) != 0;
        if smt
            && !idle_core
            && self.share_llc(prev, target)
            && let Some(cpu) = self.select_idle_smt(p, prev, wakee)
        {
            return Some(cpu);
        }
        if self.features.idle_search == IdleSearch::V5_14 {
            idle_core &= self.features.sis_core;
            if idle_core || !self.features.sis_prop {
                return self.scan_cpus(p, target, wakee, idle_core, u64::MAX).found();
            }
            return self.scan_prop(p, target, wakee);
        }
        let nr = p.load(&llc.nr_idle_scan, Relaxed) + 1;
        if nr == 1 {
            // So busy a cache is unlikely to have an idle core either, whatever the flag says.
            return None;
        }
        self.scan_cpus(p, target, wakee, idle_core && self.features.sis_core, nr).found()
    }

    /// The scan under SIS_PROP (5.14): as many CPUs as the time that this CPU has left for searches is worth.
    fn scan_prop(&self, p: &P, target: CpuId, wakee: &Wakee<'_>) -> Option<CpuId> {
        let rq = self.rq(p.cpu());
        let tick = p.now() / self.tick_ns;
        let left = SearchTime::unpack(p.load(&rq.search_time, Relaxed)).aged(tick);
        let avg_cost = &self.llc(p.cpu()).avg_scan_cost;
        let cost = p.load(avg_cost, Relaxed);
        let worth = self.llc(target).cpus.len() as u64 * left.ns;
        p.charge(Work::ClockRead, 1);
        let began = p.now();
        let scanned = self.scan_cpus(p, target, wakee, false, prop_limit(worth, cost + 1));
        let took = if scanned == Scanned::CutShort {
            0
        } else {
            p.charge(Work::ClockRead, 1);
            let took = p.now() - began;
            p.store(avg_cost, moved_by_an_eighth(cost, took), Relaxed);
            took
        };
        p.store(&rq.search_time, left.less(took).pack(), Relaxed);
        scanned.found()
    }

    /// From behind `target` on: an idle core, or else the first idle CPU seen, where one is looked for; else an idle CPU among
    /// the next `nr - 1`.
    fn scan_cpus(&self, p: &P, target: CpuId, wakee: &Wakee<'_>, idle_core: bool, mut nr: u64) -> Scanned {
        let llc = self.llc(target);
        let mut probes = 0;
        let mut remembered = None;
        let start = CpuId(target.0 + 1);
        let cluster = self.topo.cluster_of(target).filter(|_| self.clusters_first);
        let first = cluster.map_or(&[][..], |c| self.topo.cluster_cpus(c));
        let rest = wrap(&llc.cpus, start).filter(|c| cluster.is_none() || self.topo.cluster_of(*c) != cluster);
        for cpu in wrap(first, start).chain(rest) {
            if idle_core {
                let core = self.topo.core_cpus(self.topo.core_of(cpu));
                if !met_first(core, cpu, start, wakee.affinity) {
                    continue;
                }
                let mut idle = true;
                for &thread in core {
                    probes += 1;
                    let found = self.look_for(p, thread, wakee);
                    idle &= found == Found::Idle;
                    if remembered.is_none() && found != Found::Busy && wakee.affinity.allows(thread) {
                        remembered = Some(thread);
                    } else if found != Found::Idle && remembered.is_some() {
                        break;
                    }
                }
                if idle {
                    p.idle_search(probes, true);
                    return Scanned::Found(cpu);
                }
            } else {
                nr -= 1;
                if nr == 0 {
                    p.idle_search(probes, false);
                    return Scanned::CutShort;
                }
                if !wakee.affinity.allows(cpu) {
                    continue;
                }
                probes += 1;
                if self.is_free(p, cpu, wakee) {
                    p.idle_search(probes, true);
                    return Scanned::Found(cpu);
                }
            }
        }
        if idle_core {
            p.store(&llc.has_idle_cores, 0, Relaxed);
        }
        p.idle_search(probes, remembered.is_some());
        remembered.map_or(Scanned::Nothing, Scanned::Found)
    }

    // ---- idle cores ------------------------------------------------------------------------------------------

    /// This CPU goes idle: if its siblings are idle too, the cache has an idle core.
    pub(crate) fn update_idle_core(&self, p: &P) {
        if !matches!(self.features.idle_search, IdleSearch::V5_2 | IdleSearch::V5_14 | IdleSearch::SisUtil) {
            return;
        }
        let cpu = p.cpu();
        let core = self.topo.core_cpus(self.topo.core_of(cpu));
        let llc = self.llc(cpu);
        if core.len() < 2 || p.load(&llc.has_idle_cores, Acquire) != 0 {
            return;
        }
        for &sibling in core.iter().filter(|c| **c != cpu) {
            if !self.idle_cpu(p, sibling) {
                return;
            }
        }
        p.store(&llc.has_idle_cores, 1, Release);
    }
}
