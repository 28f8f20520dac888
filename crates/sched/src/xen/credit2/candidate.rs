//! Who runs next on a pCPU (mechanisms E.2 and E.3), as a function of plain values.

use super::state::Conf;
use crate::xen::mask::CpuMask;
use contend_platform::{CpuId, Nanos};

/// The vCPU that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Current {
    /// Its credit, burned up to now.
    pub credit: i32,
    /// It could go on.
    pub runnable: bool,
    /// How long it has had the pCPU, in ns.
    pub ran: Nanos,
    /// It yields (patch 6).
    pub yields: bool,
    /// It runs outside its soft affinity, and a pCPU inside is free (patch 20).
    pub better_off: bool,
}

/// What the decision knows without asking.
#[derive(Clone, Copy, Debug)]
pub struct CandidateIn {
    /// The pCPU.
    pub cpu: CpuId,
    /// Who runs there; `None`: idle.
    pub current: Option<Current>,
    /// The rate limit in ns; 0: none.
    pub ratelimit: Nanos,
    /// pCPUs that are tickled and have not scheduled.
    pub tickled: CpuMask,
}

/// A vCPU that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are named for what they are; comments say more where there is more")]
pub struct Waiter {
    pub credit: i32,
    /// The pCPU it is assigned to.
    pub cpu: CpuId,
    /// Its hard affinity contains the pCPU.
    pub allowed: bool,
    /// The pCPU tickled for it.
    pub tickled: Option<CpuId>,
}

/// The list, from its head.
pub trait Queue {
    /// The vCPU at a place.
    fn get(&mut self, at: usize) -> Option<Waiter>;
    /// It is looked at.
    fn checked(&mut self, at: usize);
    /// It is chosen: has it, under a cap, anything to run with? (It is parked if not.)
    fn has_budget(&mut self, at: usize) -> bool;
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Nobody.
    Idle,
    /// Who ran goes on.
    Current,
    /// The vCPU at this place of the list.
    Waiter(usize),
}

/// The decision, and what to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are named for what they are; comments say more where there is more")]
pub struct Candidate {
    pub next: Next,
    /// Kept by the rate limit alone.
    pub ratelimited: bool,
    /// vCPUs left to the pCPU tickled for them.
    pub deferred: u64,
    /// vCPUs left to their own pCPU.
    pub resisted: u64,
    /// vCPUs of the list looked at.
    pub walked: u64,
    /// Whether the current vCPU yields, is under the rate limit or better off elsewhere was asked (patch 21: not of an idle one).
    pub asked: bool,
}

/// Who runs next.
///
/// An idle pCPU's vCPU is compared with the waiting ones like any other. With the idle credit of the base that says nothing; with
/// today's, which is close above the floor, an idle pCPU leaves a vCPU of another pCPU alone that has less than resistance above it. So
/// the recorded Xen 4.17 decides.
pub fn candidate(conf: &Conf, i: &CandidateIn, queue: &mut impl Queue) -> Candidate {
    let mut c = Candidate { next: Next::Idle, ratelimited: false, deferred: 0, resisted: 0, walked: 0, asked: true };
    c.asked = i.current.is_some() || !conf.early_out;
    let mut credit = conf.idle_credit();
    let mut yields = false;
    if let Some(cur) = i.current.filter(|c| c.runnable) {
        yields = conf.yields && cur.yields;
        if i.ratelimit > 0 && cur.ran < i.ratelimit && !(yields && conf.yield_no_ratelimit) {
            (c.next, c.ratelimited) = (Next::Current, true);
            return c;
        }
        if !(conf.kick_soft && cur.better_off) {
            (c.next, credit) = (Next::Current, cur.credit);
        }
    }
    for at in 0.. {
        let Some(w) = queue.get(at) else { break };
        queue.checked(at);
        c.walked += 1;
        if conf.today && !yields && w.credit <= credit {
            break;
        }
        if !w.allowed {
            continue;
        }
        if conf.tickled_cpu && w.tickled.is_some_and(|t| t != i.cpu && i.tickled.contains(t)) {
            c.deferred += 1;
            continue;
        }
        if w.cpu != i.cpu && credit.saturating_add(conf.resist) > w.credit {
            c.resisted += 1;
            continue;
        }
        if yields || w.credit > credit {
            if !queue.has_budget(at) {
                continue;
            }
            c.next = Next::Waiter(at);
        }
        break;
    }
    c
}
