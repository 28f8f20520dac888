//! Whom to tickle for a vCPU that has become runnable (mechanisms E.2 and E.3), as a function of plain values.

use super::state::{CREDIT_INIT, Conf, RATELIMIT_TOLERANCE};
use crate::xen::mask::CpuMask;
use contend_platform::{CpuId, Nanos};

/// What the decision knows without asking.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "fields are named for what they are; comments say more where there is more")]
pub struct TickleIn {
    /// The new vCPU's credit.
    pub credit: i32,
    /// The pCPU it is assigned to.
    pub cpu: CpuId,
    /// Where it may run.
    pub hard: CpuMask,
    /// Where it would rather run.
    pub soft: CpuMask,
    /// A step with soft affinity is of use.
    pub soft_useful: bool,
    /// It may run on one pCPU only.
    pub pinned: bool,
    /// The runqueue's masks.
    pub cpus: CpuMask,
    pub idle: CpuMask,
    pub tickled: CpuMask,
    pub smt_idle: CpuMask,
}

/// What is asked about the vCPUs that run.
pub trait Currents {
    /// Of these, the pCPUs whose vCPU may be preempted. (Patch 24: not if it is under the rate limit still.)
    fn preemptable(&mut self, cpus: &CpuMask) -> CpuMask;
    /// Its credit, with its running paid for up to now.
    fn credit(&mut self, cpu: CpuId) -> i32;
    /// Is `cpu` within its soft affinity?
    fn in_soft(&mut self, cpu: CpuId) -> bool;
    /// It has been compared, with this score.
    fn checked(&mut self, cpu: CpuId, credit: i32, score: i32);
}

/// The decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tickle {
    /// This pCPU, which idles.
    Idle(CpuId),
    /// This pCPU: preempt.
    Busy(CpuId),
    /// Nobody.
    Nobody,
}

/// How much better than the vCPU that runs on a pCPU the new one would be there (post-17 form).
///
/// Where the new one wins by credit, 10 ms are added if it prefers the pCPU, and 10 ms if who runs there does not.
pub fn score(new: i32, cur: i32, resist: i32, own: bool, new_prefers: bool, cur_prefers: bool) -> i32 {
    let mut score = by_credit(new, cur, resist, own);
    if score > 0 {
        score += if new_prefers { CREDIT_INIT } else { 0 };
        score += if cur_prefers { 0 } else { CREDIT_INIT };
    }
    score
}

/// Patch 24: has who runs had its rate limit, but for the time that the softirq takes?
pub fn preemptable(ran: Nanos, ratelimit: Nanos) -> bool {
    ratelimit <= RATELIMIT_TOLERANCE || ran > ratelimit - RATELIMIT_TOLERANCE
}

fn by_credit(new: i32, cur: i32, resist: i32, own: bool) -> i32 {
    new.saturating_sub(cur).saturating_sub(if own { 0 } else { resist })
}

/// The own pCPU if it is in the set, else the next one.
fn own_or_next(mask: &CpuMask, own: CpuId) -> Option<CpuId> {
    if mask.contains(own) { Some(own) } else { mask.cycle(own) }
}

/// Whom to tickle; `probes` counts pCPUs looked at.
pub fn tickle(conf: &Conf, i: &TickleIn, probes: &mut u64, currents: &mut impl Currents) -> Tickle {
    let own = i.cpu;
    let free = i.idle - i.tickled;
    // Today: a vCPU that may run on one pCPU only needs no search if that one is free.
    if conf.today && i.pinned && free.contains(own) && i.hard.contains(own) {
        *probes += 1;
        return Tickle::Idle(own);
    }
    if conf.tickle_soft && i.soft_useful {
        if let Some(cpu) = idle_in(conf, i, &(i.hard & i.soft), &free, probes) {
            return Tickle::Idle(cpu);
        }
    }
    if let Some(cpu) = idle_in(conf, i, &i.hard, &free, probes) {
        return Tickle::Idle(cpu);
    }
    let busy = (i.cpus - i.idle - i.tickled) & i.hard;
    let target = if conf.tickle_soft {
        best_score(conf, i, &busy, probes, currents)
    } else {
        own_then_lowest(conf, i, &busy, probes, currents)
    };
    target.map_or(Tickle::Nobody, Tickle::Busy)
}

/// An idle pCPU in `mask`: of an idle core if there is one (of a busy core with power savings), else any.
fn idle_in(conf: &Conf, i: &TickleIn, mask: &CpuMask, free: &CpuMask, probes: &mut u64) -> Option<CpuId> {
    let cores = if conf.smt_power_savings { *free - i.smt_idle } else { i.smt_idle };
    if conf.tickle_micro {
        // The same answers as below, sooner in the two common cases: the own pCPU will do, or no pCPU is free at all.
        *probes += 1;
        if mask.contains(i.cpu) && cores.contains(i.cpu) {
            return Some(i.cpu);
        }
        if free.is_empty() {
            return None;
        }
    }
    // To make a mask and to search it are two steps; patch 23 has made the first of them.
    *probes += if conf.tickle_micro { 1 } else { 2 };
    if let Some(cpu) = own_or_next(&(cores & *mask), i.cpu) {
        return Some(cpu);
    }
    *probes += 2;
    own_or_next(&(*free & *mask), i.cpu)
}

/// Those of `busy` to compare with: all, or the preemptable ones (patch 24). Each that is asked about is a probe.
fn comparable(conf: &Conf, busy: CpuMask, probes: &mut u64, currents: &mut impl Currents) -> CpuMask {
    *probes += busy.len() as u64;
    if conf.tickle_ratelimited { currents.preemptable(&busy) } else { busy }
}

/// Before patch 17: the own pCPU if the new vCPU has more credit than who runs there; else the one with the least credit, if
/// that is less by more than migration resistance.
fn own_then_lowest<C: Currents>(
    conf: &Conf,
    i: &TickleIn,
    busy: &CpuMask,
    probes: &mut u64,
    currents: &mut C,
) -> Option<CpuId> {
    let look = |currents: &mut C, cpu: CpuId| {
        let credit = currents.credit(cpu);
        currents.checked(cpu, credit, by_credit(i.credit, credit, conf.resist, cpu == i.cpu));
        credit
    };
    let own = *busy & CpuMask::only(i.cpu);
    if !comparable(conf, own, probes, currents).is_empty() && look(currents, i.cpu) < i.credit {
        return Some(i.cpu);
    }
    let mut lowest: Option<(i32, CpuId)> = None;
    for cpu in comparable(conf, *busy - own, probes, currents).iter() {
        let credit = look(currents, cpu);
        if lowest.is_none_or(|(low, _)| credit < low) {
            lowest = Some((credit, cpu));
        }
    }
    lowest.filter(|(credit, _)| credit.saturating_add(conf.resist) <= i.credit).map(|(_, cpu)| cpu)
}

/// With patch 17: the own pCPU if its score is positive and the new vCPU prefers it; else the largest positive score.
fn best_score<C: Currents>(
    conf: &Conf,
    i: &TickleIn,
    busy: &CpuMask,
    probes: &mut u64,
    currents: &mut C,
) -> Option<CpuId> {
    let look = |currents: &mut C, cpu: CpuId| {
        let credit = currents.credit(cpu);
        let score = score(i.credit, credit, conf.resist, cpu == i.cpu, i.soft.contains(cpu), currents.in_soft(cpu));
        currents.checked(cpu, credit, score);
        score
    };
    let mut best = (0, None);
    let own = *busy & CpuMask::only(i.cpu);
    if !comparable(conf, own, probes, currents).is_empty() {
        let score = look(currents, i.cpu);
        if score > 0 && i.soft.contains(i.cpu) {
            return Some(i.cpu);
        }
        if score > 0 {
            best = (score, Some(i.cpu));
        }
    }
    for cpu in comparable(conf, *busy - own, probes, currents).iter() {
        let score = look(currents, cpu);
        if score > best.0 {
            best = (score, Some(cpu));
        }
    }
    best.1
}
