//! Where a task belongs that has nothing in any cache: a new one, and one that executes a program. From the largest domain down,
//! the idlest group, then its idlest CPU.
//!
//! Two eras: until 5.4 by runnable tasks (which stands for the loads that those kernels compare); from 5.5 on by classes of groups, as
//! balancing has them: with CPUs to spare, fully busy, overloaded.

use super::{Group, LevelParams, SCAN_BATCH};
use crate::cpuset::Affinity;
use crate::domains::{CAPACITY, Domain, Level};
use crate::features::{Balance, IdleSearch};
use crate::kernel::Kernel;
use crate::policy::Policy;
use crate::rq::{peek_load, peek_nr_running};
use contend_platform::Ordering::{Acquire, Relaxed};
use contend_platform::{CpuId, SchedPlatform, Work};
use std::cmp::{Ordering, Reverse};

/// The task that is placed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placed {
    /// One that is there from the beginning: by count in all eras. Balancing has spread it and others like it before, and what load there is
    /// says nothing yet.
    Old,
    /// One that is started at the beginning. It stays near nobody: all would be on one node.
    Started,
    /// A forked one.
    New,
    /// One that runs `on` a CPU, where it does not count itself.
    Runs {
        on: CpuId,
        /// Its load.
        load: u64,
    },
}

impl Placed {
    fn runs_on(self, cpu: CpuId) -> bool {
        matches!(self, Placed::Runs { on, .. } if on == cpu)
    }
}

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    /// The idlest CPU that the task may have, near `cpu` if that is as good.
    pub(crate) fn idlest(&self, p: &P, mut cpu: CpuId, affinity: &Affinity, task: Placed) -> CpuId {
        if self.features.idle_search == IdleSearch::None {
            return cpu;
        }
        // By size, since a CPU may have several domains of level NUMA.
        let mut within = usize::MAX;
        let below = |cpu, within| self.domains.of(cpu).iter().rev().find(|d| d.span.len() < within).cloned();
        while let Some(domain) = below(cpu, within) {
            within = domain.span.len();
            cpu = match self.features.balance {
                Balance::V6_18 if !matches!(task, Placed::Old) => self.idlest_by_class(p, &domain, cpu, affinity, task),
                _ => self.idlest_by_count(p, &domain, cpu, affinity, task),
            };
        }
        cpu
    }

    /// Of the group with the fewest runnable tasks per CPU, the CPU with the fewest. The local group and `cpu` win ties.
    fn idlest_by_count(&self, p: &P, domain: &Domain, cpu: CpuId, affinity: &Affinity, task: Placed) -> CpuId {
        let local = domain.group_of(cpu);
        let mut best: Option<(u64, usize, usize)> = None;
        for (g, cpus) in domain.groups.iter().enumerate() {
            let (mut nr, mut allowed) = (0, 0);
            self.scan_nr_running(p, cpus, affinity, task, |_, n| {
                nr += u64::from(n);
                allowed += 1;
            });
            if allowed == 0 {
                continue;
            }
            let key = (nr * 1024 / allowed, domain.nth_from(local, g), g);
            if best.is_none_or(|b| key < b) {
                best = Some(key);
            }
        }
        let Some((_, _, group)) = best else { return cpu };
        if group == local && domain.groups[group].len() == 1 {
            return cpu;
        }
        let mut idlest = (u32::MAX, true, cpu);
        self.scan_nr_running(p, &domain.groups[group], affinity, task, |c, nr| idlest = idlest.min((nr, c != cpu, c)));
        idlest.2
    }

    /// nr_running of the allowed CPUs of `cpus`. The loads do not depend on one another and overlap.
    fn scan_nr_running(
        &self,
        p: &P,
        cpus: &[CpuId],
        affinity: &Affinity,
        task: Placed,
        mut see: impl FnMut(CpuId, u32),
    ) {
        let mut see = |c, peek| see(c, peek_nr_running(peek).saturating_sub(u32::from(task.runs_on(c))));
        let (batches, rest) = cpus.as_chunks::<SCAN_BATCH>();
        for batch in batches {
            p.charge(Work::Probe, SCAN_BATCH as u64);
            let peeks = p.load_many(batch.map(|c| &self.rq(c).peek));
            for (c, peek) in std::iter::zip(batch, peeks).filter(|(c, _)| affinity.allows(**c)) {
                see(*c, peek);
            }
        }
        for c in rest.iter().filter(|c| affinity.allows(**c)) {
            p.charge(Work::Probe, 1);
            see(*c, p.load(&self.rq(*c).peek, Acquire));
        }
    }

    /// The local group unless another's class is better, or it has clearly more idle CPUs or less load.
    fn idlest_by_class(&self, p: &P, domain: &Domain, cpu: CpuId, affinity: &Affinity, task: Placed) -> CpuId {
        let local = domain.group_of(cpu);
        let of = |g: usize| self.group_without(p, domain, g, task);
        let here = of(local);
        let allowed = |g: &usize| domain.groups[*g].iter().any(|c| affinity.allows(*c));
        let others = (0..domain.groups.len()).filter(|g| *g != local).filter(allowed).map(of);
        let Some(other) = others.min_by_key(|g| (g.class(), g.fill(), domain.nth_from(local, g.index))) else {
            return cpu;
        };
        let group =
            if allowed(&local) && !self.is_clearly_idler(domain, &other, &here, task) { local } else { other.index };
        let cpus = &domain.groups[group];
        // With the local group the choice is that of its own domain, below.
        if group == local { cpu } else { self.idlest_of(p, cpus, affinity).unwrap_or(cpu) }
    }

    /// Load of a group, less that of the task that is placed.
    fn group_without(&self, p: &P, domain: &Domain, index: usize, task: Placed) -> Group {
        let cpus = &domain.groups[index];
        let mut group = self.group(p, index, cpus, domain.sizes[index], &[]);
        if let Placed::Runs { on, load } = task
            && cpus.binary_search(&on).is_ok()
        {
            group.nr_running = group.nr_running.saturating_sub(1);
            group.load = group.load.saturating_sub(load);
            group.idle_cpus += u64::from(peek_nr_running(p.load(&self.rq(on).peek, Acquire)) == 1);
        }
        group
    }

    /// Is it worth to leave `here` for a group of the same domain?
    fn is_clearly_idler(&self, domain: &Domain, other: &Group, here: &Group, task: Placed) -> bool {
        let LevelParams { imbalance_pct: pct, .. } = self.level_params(domain);
        let numa = domain.level == Level::Numa;
        match other.class().cmp(&here.class()) {
            Ordering::Less => return true,
            Ordering::Greater => return false,
            Ordering::Equal => {}
        }
        if other.class() == Class::HasSpare {
            // A node keeps its children while little runs there (5.18).
            let gap = other.idle_cpus.saturating_sub(here.idle_cpus);
            return gap > 0 && !(numa && task != Placed::Started && self.leaves_alone(here, gap));
        }
        let margin = CAPACITY * (pct - 100) / 100;
        let (there, here) = (other.avg(), here.avg());
        let small = there + margin >= here;
        // A node counts as lighter only by more than the margin, another group if it is that or by the level's percentage.
        there < here + margin && !(numa && small) && !(small && 100 * here <= pct * there)
    }

    /// An idle CPU, else the one with the least load.
    fn idlest_of(&self, p: &P, cpus: &[CpuId], affinity: &Affinity) -> Option<CpuId> {
        if let [only] = cpus {
            return Some(*only);
        }
        let key = |c: &CpuId| {
            p.charge(Work::Probe, 1);
            let rq = self.rq(*c);
            match peek_nr_running(p.load(&rq.peek, Acquire)) {
                0 => (0, 0, *c),
                nr => (1, peek_load(p.load(&rq.load, Relaxed)).max(u64::from(nr)), *c),
            }
        };
        cpus.iter().copied().filter(|c| affinity.allows(*c)).min_by_key(key)
    }
}

/// What a group has left for one more task, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    HasSpare,
    FullyBusy,
    Overloaded,
}

impl Group {
    fn class(&self) -> Class {
        match self.nr_running.cmp(&self.cpus) {
            Ordering::Less => Class::HasSpare,
            Ordering::Equal => Class::FullyBusy,
            Ordering::Greater => Class::Overloaded,
        }
    }

    /// How full it is among those of its class, the least first.
    fn fill(&self) -> (Reverse<u64>, u64) {
        match self.class() {
            Class::HasSpare => (Reverse(self.idle_cpus), 0),
            _ => (Reverse(0), self.avg()),
        }
    }
}
