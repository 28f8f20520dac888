//! Load balancing over scheduling domains (mechanisms A.3): newidle, periodic, nohz idle, active.
//!
//! A balance pulls to one CPU (`dst`) within one domain: find the busiest group, in it the busiest queue, take from it.
//! Reading another CPU's load is a line miss; taking tasks needs its lock. Several idle CPUs choose the same busiest queue
//! and then wait for one another there: that is a result here, not an input.

mod idlest;
mod newidle;
pub(crate) mod newidle_ratio;
mod pull;

pub(crate) use idlest::Placed;

use crate::capacity::clearly_more;
use crate::domains::{CAPACITY, Domain, GroupSize, Level};
use crate::features::{Balance, IdleSearch};
use crate::kernel::Kernel;
use crate::pelt::Average;
use crate::policy::Policy;
use crate::rq::{
    BalanceStats, DomainBalance, DomainLearned, NEED_RESCHED, peek_curr, peek_load, peek_nr_running, peek_taken,
};
use contend_platform::Ordering::{Acquire, Relaxed};
use contend_platform::{Account, CpuId, Ipi, Nanos, SchedPlatform, Time, Work};
use std::cmp::Reverse;
use std::sync::Arc;

const MS: Nanos = 1_000_000;

/// A difference of so many idle CPUs between nodes is left alone where little runs.
const NUMA_IMBALANCE_MIN: u64 = 2;

/// Run queues whose lines a scan requests at once: about the number of misses a core can have under way (10 to 16 line
/// fill buffers on x86 of the time, fewer on others).
pub(crate) const SCAN_BATCH: usize = 8;

/// When a balance happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    /// The destination is busy.
    Busy,
    /// It is idle.
    Idle,
    /// It is about to be.
    NewIdle,
}

/// One group's load.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    index: usize,
    load: u64,
    nr_running: u64,
    idle_cpus: u64,
    cpus: u64,
    cores: u64,
    capacity: u64,
    /// One of its queues holds more than one task.
    overloaded: bool,
    /// Capacities of its smallest and its largest CPU.
    between: (u64, u64),
    /// The highest priority of its CPUs.
    priority: u64,
    /// The heaviest of its tasks that are too much for their CPUs.
    misfit: u64,
}

impl Group {
    /// Load per capacity.
    fn avg(&self) -> u64 {
        self.load * CAPACITY / self.capacity.max(1)
    }
    /// How many tasks of that group make as many a core in both, rounded up.
    fn lacks(&self, other: &Group) -> u64 {
        let cores = self.cores + other.cores;
        let gap = (self.cores * other.nr_running).saturating_sub(other.cores * self.nr_running);
        (2 * gap + cores) / (2 * cores)
    }
    /// More tasks than it can serve well: than cores before 5.5, than CPUs after.
    fn above_capacity(&self, era: Balance) -> bool {
        self.nr_running > if era == Balance::V6_18 { self.cpus } else { self.cores }
    }
}

/// How much to take from where.
#[derive(Clone, Copy, Debug)]
struct Plan {
    group: usize,
    what: Amount,
    /// If nothing that waits can be had, the running task is, at once.
    running_too: bool,
}

impl Plan {
    /// The usual: what waits.
    fn of(group: usize, what: Amount) -> Self {
        Plan { group, what, running_too: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    /// Tasks whose loads add up to about this.
    Load(u64),
    /// This many tasks.
    Tasks(u64),
    /// One that is too much for its CPU (migrate_misfit).
    Misfit,
}

/// What to take from a queue.
#[derive(Clone, Copy)]
struct Pull {
    what: Amount,
    /// Leave those that are cache hot.
    keep_hot: bool,
    /// So many balances have got nothing since one did ([`DomainLearned::nr_balance_failed`]).
    failed: u32,
    idle: When,
}

/// What came of a pull.
#[derive(Clone, Copy, Default)]
struct Pulled {
    moved: u64,
    /// So many of them were cache hot.
    hot: u64,
    /// Of all tasks looked at, the running one among them, none may run on the destination.
    all_pinned: bool,
}

/// What came of an attempt to balance.
enum Tried {
    /// So many tasks were moved.
    Done(u64),
    /// The busiest queue, of this CPU, has none that may move.
    Pinned(CpuId),
}

/// A level's constants in an era.
struct LevelParams {
    min_interval: Nanos,
    max_interval: Nanos,
    busy_factor: u64,
    imbalance_pct: u64,
    cache_nice_tries: u32,
}

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    fn level_params(&self, d: &Domain) -> LevelParams {
        let span = d.span.len() as u64 * MS;
        match self.features.balance {
            Balance::Off | Balance::V3_6 => LevelParams {
                min_interval: MS,
                max_interval: if d.level == Level::Smt { 2 * MS } else { 4 * MS },
                busy_factor: 64,
                imbalance_pct: if d.level == Level::Smt { 110 } else { 125 },
                cache_nice_tries: u32::from(d.level != Level::Smt),
            },
            Balance::V5_2 => LevelParams {
                min_interval: span,
                max_interval: 2 * span,
                busy_factor: 32,
                imbalance_pct: match d.level {
                    Level::Smt => 110,
                    Level::Cls | Level::Mc => 117,
                    _ => 125,
                },
                cache_nice_tries: match d.level {
                    Level::Smt => 0,
                    Level::Numa => 2,
                    _ => 1,
                },
            },
            Balance::V6_18 => LevelParams {
                min_interval: span,
                max_interval: 2 * span,
                busy_factor: 16,
                imbalance_pct: if d.level == Level::Smt { 110 } else { 117 },
                cache_nice_tries: if d.level.inside_llc() {
                    u32::from(d.level != Level::Smt)
                } else {
                    1 + u32::from(d.level == Level::Numa)
                },
            },
        }
    }

    /// What balancing has learned of the domains of `cpu`. `f` calls no platform operation.
    fn with_learned<R>(&self, p: &P, cpu: CpuId, f: impl FnOnce(&mut Vec<DomainLearned>) -> R) -> R {
        // SAFETY: nobody ever has the cell for writing; the mutex inside guards what it holds.
        unsafe { p.read(&self.rq(cpu).learned, |learned| f(&mut learned.lock().expect("no panic while held"))) }
    }

    /// A domain's imbalance_pct in this era, for wake_affine.
    pub(crate) fn imbalance_pct(&self, d: &Domain) -> u64 {
        self.level_params(d).imbalance_pct
    }

    // ---- periodic --------------------------------------------------------------------------------------------

    /// rebalance_domains for `cpu` (this CPU, or an idle one it stands in for).
    pub(crate) fn periodic_balance(&self, p: &P, cpu: CpuId, idle: bool) {
        let before = p.enter(Account::Balance);
        let mut next = p.now() + 60_000 * MS;
        let mut idle = idle;
        for (i, domain) in self.domains.of(cpu).iter().enumerate() {
            let params = self.level_params(domain);
            let now = p.now();
            let held = self.lock(p, cpu);
            self.with_learned(p, cpu, |d| decay_cost(&mut d[i], now));
            if self.pelt && i == 0 {
                // update_blocked_averages: what slept away decays, also on CPUs that stay idle.
                self.with_rq(p, &held, |rd| rd.update_averages(now));
                self.publish(p, &held);
            }
            let (due, at) = self.with_rq(p, &held, |rd| {
                let d = &mut rd.balance[i];
                d.interval = d.interval.clamp(params.min_interval, params.max_interval);
                let mut interval = d.interval * if idle { 1 } else { params.busy_factor };
                // max_load_balance_interval: HZ/10 times the number of CPUs.
                interval = interval.clamp(self.tick_ns, self.tick_ns.max(100 * MS * self.rqs.len() as u64));
                let at = self.next_due(cpu, i, d, interval, &params);
                if now < at {
                    return (false, at);
                }
                d.last_balance = Some(now);
                (true, now + interval)
            });
            self.unlock(p, held);
            if due {
                let kind = if idle { When::Idle } else { When::Busy };
                if self.load_balance(p, cpu, i, domain, kind) > 0 {
                    idle = false;
                }
            }
            next = next.min(at);
        }
        p.store(&self.rq(cpu).next_balance, next, Relaxed);
        p.enter(before);
    }

    /// When `cpu` is to balance its domain `i` next, by an interval of `interval`. Before it has for the first time, the machine has been up and
    /// idle: the last balance lies anywhere in the level's longest interval before the run, which is what balanced domains
    /// come to. (Were all balanced at time 0, they would all balance again at once, and never in a short run.)
    fn next_due(&self, cpu: CpuId, i: usize, d: &DomainBalance, interval: Nanos, params: &LevelParams) -> Time {
        match d.last_balance {
            Some(last) => last + interval,
            None => interval.saturating_sub(self.phase(cpu, i) % params.max_interval),
        }
    }

    /// A random number of this run, its own for each domain of each CPU (the finaliser of SplitMix64, Steele, Lea and Flood 2014).
    fn phase(&self, cpu: CpuId, i: usize) -> u64 {
        let place = (cpu.index() as u64) << 8 | i as u64;
        let mut x = self.seed ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    }

    /// SIS_UTIL: how many CPUs of the cache an idle search may look at (mechanisms C.4), by the sum of util_avg in it.
    fn update_idle_scan(&self, p: &P, cpu: CpuId, domain: &Domain, pct: u64) {
        let llc = &self.llcs[self.topo.llc_of(cpu)];
        if self.features.idle_search != IdleSearch::SisUtil || domain.span != llc.cpus {
            return;
        }
        let now = p.now();
        // The lines were read for the group sums a moment ago, so the instructions are all that is left to pay.
        p.charge(Work::Ns, llc.cpus.len() as u64);
        let sum = llc.cpus.iter().map(|c| {
            let rq = self.rq(*c);
            // Brought up to now: an idle CPU's was published when it went idle.
            let mut util = Average::unpack(p.load(&rq.util, Relaxed));
            let running = peek_curr(p.load(&rq.peek, Relaxed)).is_some();
            util.update(now, if running { CAPACITY } else { 0 });
            util.get()
        });
        let n = idle_scan(sum.sum(), llc.cpus.len() as u64, pct);
        if p.load(&llc.nr_idle_scan, Relaxed) != n {
            p.store(&llc.nr_idle_scan, n, Relaxed);
        }
    }

    /// Kick one idle CPU so that it balances for all idle CPUs, whose ticks are stopped.
    /// There is reason to if this CPU has more than one task (`crowded`), or if its cache has another busy CPU: they may
    /// be two threads of a core, or crowd a cache where another is empty.
    pub(crate) fn kick_nohz_balancer(&self, p: &P, crowded: bool) {
        let now = p.now();
        if now < self.nohz_next.load(Relaxed) {
            return;
        }
        let busy = |c: &&CpuId| !self.nohz_idle.has(**c);
        if !crowded && self.llcs[self.topo.llc_of(p.cpu())].cpus.iter().filter(busy).nth(1).is_none() {
            return;
        }
        if let Some(cpu) = self.nohz_idle.iter().next() {
            self.nohz_next.store(now + self.tick_ns, Relaxed);
            p.send_ipi(cpu, Ipi::NohzBalance);
        }
    }

    /// This idle CPU was kicked: balance for itself and for every other idle CPU that is due.
    pub(crate) fn nohz_idle_balance(&self, p: &P) {
        let this = p.cpu();
        let idle: Vec<CpuId> = self.nohz_idle.iter().collect();
        let mut next = Time::MAX;
        for cpu in std::iter::once(this).chain(idle.into_iter().filter(|c| *c != this)) {
            if p.load(&self.rq(this).resched, Relaxed) & NEED_RESCHED != 0 {
                return;
            }
            let rq = self.rq(cpu);
            if p.load(&rq.peek, Acquire) == 0 && p.now() >= p.load(&rq.next_balance, Relaxed) {
                self.periodic_balance(p, cpu, true);
            }
            next = next.min(p.load(&rq.next_balance, Relaxed));
        }
        // The next kick when the first of them is due. (A CPU that idles later does not bring it forward: that would make
        // for kicks all the time.)
        if next != Time::MAX && next > self.nohz_next.load(Relaxed) {
            self.nohz_next.store(next, Relaxed);
        }
    }

    // ---- one balance -----------------------------------------------------------------------------------------

    /// Pull to `dst` within its `i`-th domain; returns the number of tasks moved.
    fn load_balance(&self, p: &P, dst: CpuId, i: usize, domain: &Arc<Domain>, idle: When) -> u64 {
        let mut note = BalanceStats { lb_count: 1, ..BalanceStats::default() };
        let pulled = self.balance_once(p, dst, i, domain, idle, &mut note);
        let held = self.lock(p, dst);
        self.with_rq(p, &held, |rd| {
            let d = &mut rd.balance[i];
            let s = &mut d.stats[idle as usize];
            s.lb_count += note.lb_count;
            s.lb_balanced += note.lb_balanced;
            s.lb_failed += note.lb_failed;
            s.lb_imbalance += note.lb_imbalance;
            s.lb_gained += pulled;
            s.lb_hot_gained += note.lb_hot_gained;
            s.lb_nobusyq += note.lb_nobusyq;
            s.lb_nobusyg += note.lb_nobusyg;
            s.alb_count += note.alb_count;
            if pulled > 0 {
                d.interval = 0;
            } else if note.lb_balanced > 0 && idle != When::NewIdle {
                // Bounded by the level's maximum where it is used.
                d.interval = (d.interval * 2).min(60_000 * MS);
            }
        });
        if pulled > 0 || (note.lb_failed > 0 && idle != When::NewIdle) {
            self.with_learned(p, dst, |d| {
                let failed = &mut d[i].nr_balance_failed;
                *failed = match (pulled, note.alb_count) {
                    (1.., _) => 0,
                    (0, 1..) => 1,
                    (0, 0) => *failed + 1,
                };
            });
        }
        self.unlock(p, held);
        pulled
    }

    fn balance_once(
        &self,
        p: &P,
        dst: CpuId,
        i: usize,
        domain: &Arc<Domain>,
        idle: When,
        note: &mut BalanceStats,
    ) -> u64 {
        let local = domain.group_of(dst);
        if idle != When::NewIdle && !self.should_we_balance(p, dst, &domain.groups[local]) {
            note.lb_balanced += 1;
            return 0;
        }
        // Queues all of whose tasks may not run here are left out, and it looks again.
        let mut pinned = Vec::new();
        loop {
            match self.balance_but(p, dst, i, domain, idle, &pinned, note) {
                Tried::Done(pulled) => return pulled,
                Tried::Pinned(src) => pinned.push(src),
            }
            if (domain.groups.iter().enumerate()).all(|(g, cpus)| g == local || cpus.iter().all(|c| pinned.contains(c)))
            {
                note.lb_balanced += 1;
                return 0;
            }
        }
    }

    /// One attempt of [`Kernel::balance_once`] that does not look at the queues of `pinned`.
    #[expect(clippy::too_many_arguments, reason = "those of a balance, and what to leave out")]
    fn balance_but(
        &self,
        p: &P,
        dst: CpuId,
        i: usize,
        domain: &Arc<Domain>,
        idle: When,
        pinned: &[CpuId],
        note: &mut BalanceStats,
    ) -> Tried {
        let params = self.level_params(domain);
        let groups: Vec<Group> = (std::iter::zip(&domain.groups, &domain.sizes).enumerate())
            .map(|(g, (cpus, size))| self.group(p, g, cpus, *size, pinned))
            .collect();
        if idle != When::NewIdle {
            self.update_idle_scan(p, dst, domain, params.imbalance_pct);
        }
        if i + 1 == self.domains.of(dst).len() && pinned.is_empty() {
            // The root domain's overload flag: does any queue hold more than one task?
            let overloaded = u64::from(groups.iter().any(|g| g.overloaded || g.misfit > 0));
            if p.load(&self.overloaded, Relaxed) != overloaded {
                p.store(&self.overloaded, overloaded, Relaxed);
            }
        }
        let Some(plan) = self.find_busiest_group(p, domain, &groups, dst, idle, &params) else {
            note.lb_balanced += 1;
            note.lb_nobusyg += 1;
            return Tried::Done(0);
        };
        let Some(src) = self.find_busiest_queue(p, &domain.groups[plan.group], dst, plan.what, pinned) else {
            note.lb_balanced += 1;
            note.lb_nobusyq += 1;
            return Tried::Done(0);
        };
        if let Amount::Load(l) = plan.what {
            note.lb_imbalance += l;
        }
        let failed = self.with_learned(p, dst, |d| d[i].nr_balance_failed);
        let tries = params.cache_nice_tries;
        let keep_hot = failed <= tries && domain.level != Level::Smt;
        let pulled = self.pull(p, src, dst, Pull { what: plan.what, keep_hot, failed, idle });
        if pulled.all_pinned {
            return Tried::Pinned(src);
        }
        note.lb_hot_gained += pulled.hot;
        if pulled.moved == 0 {
            note.lb_failed += 1;
            // This failure counts too.
            if plan.running_too || (idle != When::NewIdle && failed + 1 > tries + 2) {
                note.alb_count += 1;
                self.ask_active_balance(p, src, dst);
            }
        }
        Tried::Done(pulled.moved)
    }

    /// Only one CPU of the local group balances: its first idle one, else its first.
    fn should_we_balance(&self, p: &P, dst: CpuId, group: &[CpuId]) -> bool {
        let first_idle = group.iter().find(|c| p.load(&self.rq(**c).peek, Acquire) == 0);
        *first_idle.unwrap_or(&group[0]) == dst
    }

    fn group(&self, p: &P, index: usize, cpus: &[CpuId], size: GroupSize, pinned: &[CpuId]) -> Group {
        let GroupSize { cores, capacity, min_capacity, max_capacity, priority } = size;
        let between = (min_capacity, max_capacity);
        let mut g = Group { index, cpus: cpus.len() as u64, cores, capacity, between, priority, ..Group::default() };
        let mut taken = 0;
        // The loads of a scan do not depend on one another: a CPU overlaps their misses.
        let mut see = |peek: u64, load: u64| {
            let nr = u64::from(peek_nr_running(peek));
            g.load += peek_load(load);
            taken += peek_taken(load);
            g.nr_running += nr;
            g.idle_cpus += u64::from(nr == 0);
            g.overloaded |= nr > 1;
        };
        let seen: Vec<CpuId>;
        let looked_at = if pinned.is_empty() {
            cpus
        } else {
            seen = cpus.iter().copied().filter(|c| !pinned.contains(c)).collect();
            &seen
        };
        let (batches, rest) = looked_at.as_chunks::<SCAN_BATCH>();
        for batch in batches {
            p.charge(Work::BalanceQueue, SCAN_BATCH as u64);
            let peeks = p.load_many(batch.map(|c| &self.rq(c).peek));
            let loads = p.load_more(batch.map(|c| &self.rq(c).load));
            std::iter::zip(peeks, loads).for_each(|(peek, load)| see(peek, load));
        }
        for &c in rest {
            p.charge(Work::BalanceQueue, 1);
            let rq = self.rq(c);
            see(p.load(&rq.peek, Acquire), p.load(&rq.load, Relaxed));
        }
        if self.capacity.differ() {
            // On the lines that were just read.
            g.misfit = looked_at.iter().map(|c| p.load(&self.rq(*c).misfit, Relaxed)).max().unwrap_or(0);
        }
        // Real-time tasks leave the others less.
        g.capacity = (g.capacity * (CAPACITY * g.cpus - taken) / (CAPACITY * g.cpus)).max(1);
        g
    }

    fn find_busiest_group(
        &self,
        p: &P,
        domain: &Domain,
        groups: &[Group],
        dst: CpuId,
        idle: When,
        params: &LevelParams,
    ) -> Option<Plan> {
        let era = self.features.balance;
        let local = domain.group_of(dst);
        let here = groups[local];
        let others = || groups.iter().filter(|g| g.index != local && g.nr_running > 0);
        let first = |g: &&Group| Reverse(domain.nth_from(local, g.index));
        if era == Balance::V6_18 {
            return self.busiest_by_class(p, domain, groups, here, dst, idle, params);
        }
        // Spread over cores first: a core with two tasks is above capacity where another has none.
        let Some(busiest) = (others().filter(|g| g.above_capacity(era))).max_by_key(|g| (g.avg(), first(g))) else {
            return self.better_place(p, domain, groups, here, dst, idle);
        };
        let total_load: u64 = groups.iter().map(|g| g.load).sum();
        let total_capacity: u64 = groups.iter().map(|g| g.capacity).sum();
        let avg = total_load * CAPACITY / total_capacity.max(1);
        let force = idle == When::NewIdle && here.nr_running < here.cores;
        if !force {
            if here.avg() >= busiest.avg() || here.avg() >= avg {
                return None;
            }
            if idle == When::Busy {
                if 100 * busiest.avg() <= params.imbalance_pct * here.avg() {
                    return None;
                }
            } else if busiest.nr_running <= busiest.cpus && here.nr_running >= here.cores {
                return None;
            }
        }
        let from_busiest = busiest.avg().saturating_sub(avg) * busiest.capacity / CAPACITY;
        let to_local = avg.saturating_sub(here.avg()) * here.capacity / CAPACITY;
        let per_task = busiest.load / busiest.nr_running.max(1);
        let imbalance = from_busiest.min(to_local).max(per_task);
        Some(Plan::of(busiest.index, Amount::Load(imbalance.max(1))))
    }

    /// 5.5 and later: groups are overloaded, fully busy, or have spare CPUs.
    #[expect(clippy::too_many_arguments, reason = "those of find_busiest_group")]
    fn busiest_by_class(
        &self,
        p: &P,
        domain: &Domain,
        groups: &[Group],
        here: Group,
        dst: CpuId,
        idle: When,
        params: &LevelParams,
    ) -> Option<Plan> {
        let overloaded = |g: &Group| g.nr_running > g.cpus;
        let first = |g: &&Group| Reverse(domain.nth_from(here.index, g.index));
        // Tasks that have a larger CPU each are not taken to a smaller one.
        let better_there =
            |g: &Group| domain.asym && !overloaded(g) && clearly_more(g.between.0, self.capacity.of(dst));
        let others = || groups.iter().filter(|g| g.index != here.index && g.nr_running > 0 && !better_there(g));
        // Tasks a CPU; of groups of unlike cores (a core of two threads beside a cluster of four) tasks a core.
        let fill = |g: &Group| g.nr_running * 1024 / if domain.uneven { g.cores } else { g.cpus };
        let busiest = others().max_by_key(|g| (overloaded(g), if overloaded(g) { g.avg() } else { fill(g) }, first(g)));
        if !busiest.is_some_and(overloaded)
            && let Some(plan) = self.better_place(p, domain, groups, here, dst, idle)
        {
            return Some(plan);
        }
        let busiest = busiest?;
        if overloaded(busiest) {
            if here.nr_running < here.cpus {
                // The local group has spare CPUs: within a cache even out, elsewhere fill them.
                let n = if domain.level.inside_llc() {
                    here.lacks(busiest)
                } else {
                    here.idle_cpus.min(busiest.nr_running - busiest.cpus)
                };
                let n = n.max(1);
                let n = if idle == When::NewIdle { 1 } else { n };
                return Some(Plan::of(busiest.index, Amount::Tasks(n)));
            }
            let total_load: u64 = groups.iter().map(|g| g.load).sum();
            let total_capacity: u64 = groups.iter().map(|g| g.capacity).sum();
            let avg = total_load * CAPACITY / total_capacity.max(1);
            // Between two that have more than they can serve, a small difference does not matter.
            let alike = overloaded(&here) && 100 * busiest.avg() <= params.imbalance_pct * here.avg();
            if here.avg() >= busiest.avg() || here.avg() >= avg || alike {
                return None;
            }
            let from_busiest = busiest.avg().saturating_sub(avg) * busiest.capacity / CAPACITY;
            let to_local = avg.saturating_sub(here.avg()) * here.capacity / CAPACITY;
            return Some(Plan::of(busiest.index, Amount::Load(from_busiest.min(to_local).max(1))));
        }
        if idle == When::Busy || here.idle_cpus == 0 {
            return None;
        }
        // Everybody has spare CPUs: even out the number of tasks among siblings of the level (prefer_sibling), else the
        // number of idle CPUs.
        let n = if domain.level != Level::Numa && groups.len() > 1 && !domain.asym {
            match domain.uneven {
                // As many a core (6.6).
                true => here.lacks(busiest),
                false if busiest.nr_running <= here.nr_running + 1 => 0,
                false => (busiest.nr_running - here.nr_running) / 2,
            }
        } else {
            // NUMA: a pair of tasks that may talk to each other is left alone where little runs.
            let gap = here.idle_cpus.saturating_sub(busiest.idle_cpus);
            if domain.level == Level::Numa && self.leaves_alone(&here, gap) {
                return None;
            }
            gap / 2
        };
        (n > 0).then_some(Plan::of(busiest.index, Amount::Tasks(n)))
    }

    /// A task that is too much for its CPU, for this larger one, if the group here has one to spare.
    fn misfits(&self, domain: &Domain, groups: &[Group], here: Group, dst: CpuId) -> Option<Plan> {
        if !domain.asym || here.idle_cpus == 0 {
            return None;
        }
        let smaller = |g: &&Group| clearly_more(self.capacity.of(dst), g.between.1);
        let others = groups.iter().filter(|g| g.index != here.index && g.misfit > 0).filter(smaller);
        let first = |g: &&Group| Reverse(domain.nth_from(here.index, g.index));
        let busiest = others.max_by_key(|g| (g.misfit, first(g)))?;
        Some(Plan { group: busiest.index, what: Amount::Misfit, running_too: true })
    }

    /// Where nothing is overloaded: a task that is better placed on this idle CPU than where it is.
    fn better_place(
        &self,
        p: &P,
        domain: &Domain,
        groups: &[Group],
        here: Group,
        dst: CpuId,
        idle: When,
    ) -> Option<Plan> {
        self.packs(p, domain, groups, here, dst, idle).or_else(|| self.misfits(domain, groups, here, dst))
    }

    /// The tasks of a group of CPUs that are to be filled after this one, of which the core idles; between cores only (asym_packing).
    fn packs(&self, p: &P, domain: &Domain, groups: &[Group], here: Group, dst: CpuId, idle: When) -> Option<Plan> {
        if !self.capacity.packs()
            || idle == When::Busy
            || domain.level == Level::Smt
            || !self.has_core_to_itself(p, dst)
        {
            return None;
        }
        let own = self.capacity.priority(dst);
        let others = groups.iter().filter(|g| g.index != here.index && g.nr_running > 0 && g.priority < own);
        let last = others.min_by_key(|g| (g.priority, domain.nth_from(here.index, g.index)))?;
        let n = if idle == When::NewIdle { 1 } else { last.nr_running };
        Some(Plan { group: last.index, what: Amount::Tasks(n), running_too: true })
    }

    /// Little runs on the node `here`, and another has but a few idle CPUs more, `gap`: no task moves for that, and none is born there.
    fn leaves_alone(&self, here: &Group, gap: u64) -> bool {
        here.nr_running < self.imb_numa_nr(here) && gap <= NUMA_IMBALANCE_MIN
    }

    /// How many tasks a node may run and be left alone with: an eighth of its CPUs if they share a cache, else one for each of its
    /// caches (imb_numa_nr, 5.18).
    fn imb_numa_nr(&self, node: &Group) -> u64 {
        let llcs = (self.topo.nr_llcs() as u64 * node.cpus / self.topo.nr_cpus() as u64).max(1);
        if llcs == 1 { (node.cpus / 8).max(1) } else { llcs }
    }

    fn find_busiest_queue(&self, p: &P, group: &[CpuId], dst: CpuId, what: Amount, pinned: &[CpuId]) -> Option<CpuId> {
        if what == Amount::Misfit {
            return self.heaviest_misfit(p, group, pinned);
        }
        let mut best: Option<(u64, CpuId)> = None;
        for &c in group.iter().filter(|c| **c != dst && !pinned.contains(c)) {
            let rq = self.rq(c);
            let nr = u64::from(peek_nr_running(p.load(&rq.peek, Acquire)));
            let word = p.load(&rq.load, Relaxed);
            let load = peek_load(word);
            if nr == 1 && self.keeps_its_only(c, dst) {
                continue;
            }
            let key = match what {
                Amount::Load(imbalance) => {
                    if nr == 0 || (nr == 1 && load > imbalance) {
                        continue;
                    }
                    load * CAPACITY / (CAPACITY - peek_taken(word)).max(1)
                }
                Amount::Tasks(_) | Amount::Misfit => nr,
            };
            if nr > 0 && best.is_none_or(|(k, _)| key > k) {
                best = Some((key, c));
            }
        }
        best.map(|(_, c)| c)
    }
}

/// nr_idle_scan of a cache of `weight` CPUs whose utilisations add up to `sum`: falls with the square of the mean, to 0
/// at 100/`pct` (85 % for 117).
fn idle_scan(sum: u64, weight: u64, pct: u64) -> u64 {
    let x = sum / weight;
    let y = CAPACITY - (x * x * pct * pct / (10_000 * CAPACITY)).min(CAPACITY);
    weight * y / CAPACITY
}

/// max_newidle_lb_cost decays by about 1 % a second.
fn decay_cost(d: &mut DomainLearned, now: Time) {
    if now > d.cost_decay_at + 1_000_000_000 {
        d.max_newidle_lb_cost = d.max_newidle_lb_cost * 253 / 256;
        d.cost_decay_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::{Group, idle_scan};

    #[test]
    fn idle_scan_falls_with_the_square_of_utilisation() {
        let at = |pct: u64| idle_scan(44 * 1024 * pct / 100, 44, 117);
        assert_eq!((at(0), at(30), at(50), at(70)), (44, 38, 28, 14));
        assert_eq!(at(83), 2);
        assert_eq!((at(85), at(86), at(100)), (0, 0, 0), "nothing from 85 % on");
        assert_eq!(idle_scan(64 * 1024 / 2, 64, 117), 42, "in proportion to the cache");
    }

    #[test]
    fn what_evens_two_groups_out() {
        let of = |cores, nr_running| Group { cores, nr_running, ..Group::default() };
        let lacks = |here: (u64, u64), other: (u64, u64)| of(here.0, here.1).lacks(&of(other.0, other.1));
        // One CPU each: half of the difference, rounded up.
        assert_eq!((lacks((1, 0), (1, 2)), lacks((1, 0), (1, 3)), lacks((1, 0), (1, 40))), (1, 2, 20));
        assert_eq!((lacks((1, 1), (1, 1)), lacks((1, 3), (1, 1))), (0, 0));
        // Twice the cores: twice the tasks stay there.
        assert_eq!((lacks((1, 0), (2, 9)), lacks((2, 0), (1, 9))), (3, 6));
    }
}
