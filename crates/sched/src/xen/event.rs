//! What Xen's schedulers report: the events of `xentrace`, as plain data.
//!
//! Fields have the widths that a record of Xen 4.17 gives them, so that a recording goes through this type and back
//! without a change. Times within events are the low 32 bits of a number of ns, as in Xen: they wrap after 4.29 s. What
//! happened when and on which pCPU is not in the event: a [`XenSink`] gets it beside. The layouts in bytes are in
//! `contend-trace` (`docs/xentrace.md`); [`Display`](std::fmt::Display) prints what `xenalyze --dump-all` prints.

mod text;

use contend_platform::{CpuId, Time};

/// A vCPU: domain and number, `d1v0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VcpuId {
    /// The domain's number.
    pub dom: u16,
    /// The vCPU's number in its domain.
    pub vcpu: u16,
}

impl VcpuId {
    /// The domain of the idle vCPUs, one for each pCPU.
    pub const IDLE_DOMAIN: u16 = 0x7fff;

    /// A vCPU of a domain.
    pub const fn new(dom: u16, vcpu: u16) -> Self {
        Self { dom, vcpu }
    }

    /// The idle vCPU of a pCPU.
    pub const fn idle(cpu: CpuId) -> Self {
        Self { dom: Self::IDLE_DOMAIN, vcpu: cpu.0 }
    }

    /// Whether it is an idle vCPU.
    pub const fn is_idle(self) -> bool {
        self.dom == Self::IDLE_DOMAIN
    }
}

/// A vCPU's run state, with the numbers that records use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum RunState {
    /// On a pCPU.
    Running = 0,
    /// Wants one.
    Runnable = 1,
    /// Waits for an event.
    Blocked = 2,
    /// Neither: paused, or not to run for now (parked by a cap, on its way to another pCPU).
    Offline = 3,
}

impl RunState {
    /// All, by number.
    pub const ALL: [Self; 4] = [Self::Running, Self::Runnable, Self::Blocked, Self::Offline];

    /// The state of a number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Its name, as `xenalyze` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Runnable => "runnable",
            Self::Blocked => "blocked",
            Self::Offline => "offline",
        }
    }
}

/// Words of a record that is kept as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Words {
    len: u8,
    words: [u32; Self::MAX],
}

impl Words {
    /// A record has at most that many.
    pub const MAX: usize = 7;

    /// Copies up to seven words.
    ///
    /// # Panics
    /// There are more.
    pub fn new(words: &[u32]) -> Self {
        let mut all = [0; Self::MAX];
        all[..words.len()].copy_from_slice(words);
        Self { len: words.len() as u8, words: all }
    }

    /// The words.
    pub fn as_slice(&self) -> &[u32] {
        &self.words[..usize::from(self.len)]
    }
}

/// An event of Xen's scheduler.
///
/// `vcpu` is whom it is about; `cpu` a pCPU that the event names, which need not be the one that reports it; `rq` a run
/// queue of Credit2; `ns` at the end of a name the low 32 bits of a duration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "fields are named for what they are; each variant's line says more")]
pub enum XenEvent {
    /// A vCPU's run state changes.
    Runstate { vcpu: VcpuId, old: RunState, new: RunState },
    /// A running vCPU goes on running.
    RunstateContinue { vcpu: VcpuId },

    /// A domain is made known to the scheduler.
    DomainAdd { dom: u16 },
    /// A domain is removed from it.
    DomainRemove { dom: u16 },
    /// A vCPU is put to sleep (not runnable for another reason than that it waits).
    Sleep { vcpu: VcpuId },
    /// A vCPU is woken.
    Wake { vcpu: VcpuId },
    /// A vCPU gives way of itself.
    Yield { vcpu: VcpuId },
    /// A vCPU waits for an event.
    Block { vcpu: VcpuId },
    /// A domain shuts down, asked for by this vCPU.
    Shutdown { vcpu: VcpuId, reason: u32 },
    /// A domain will shut down for this reason.
    ShutdownCode { vcpu: VcpuId, reason: u32 },
    /// Somebody reads or writes a domain's scheduling parameters.
    Adjust { dom: u16 },
    /// A pCPU passes from one vCPU to another.
    Switch { prev: VcpuId, next: VcpuId },
    /// ... who left, after how long a run.
    SwitchInfPrev { vcpu: VcpuId, ran_ns: u32 },
    /// ... who came, after how long a time in its former run state, and for how long at most (`None`: no timer).
    SwitchInfNext { vcpu: VcpuId, waited_ns: u32, slice_ns: Option<u32> },
    /// A pass of the scheduler leaves the vCPU where it is: how long it has run, and for how long at most it goes on.
    SwitchInfCont { vcpu: VcpuId, ran_ns: u32, slice_ns: Option<u32> },

    /// Credit1: a tasklet wants to run.
    Credit1Tasklet,
    /// Credit1: a vCPU is accounted for from now on; `active` vCPUs of its domain are.
    Credit1AcctStart { vcpu: VcpuId, active: u32 },
    /// Credit1: a vCPU is no longer accounted for; `active` vCPUs of its domain are.
    Credit1AcctStop { vcpu: VcpuId, active: u32 },
    /// Credit1: a vCPU is stolen from the run queue of `peer`.
    Credit1Stolen { peer: CpuId, vcpu: VcpuId },
    /// Credit1: the pCPU that suits a vCPU best.
    Credit1PickedCpu { vcpu: VcpuId, cpu: CpuId },
    /// Credit1: a pCPU is told to schedule.
    Credit1Tickle { cpu: CpuId },
    /// Credit1: a vCPU that woke gets priority BOOST.
    Credit1Boost { vcpu: VcpuId },
    /// Credit1: it loses it.
    Credit1Unboost { vcpu: VcpuId },
    /// Credit1: a pass of the scheduler begins; whether a tasklet wants to run, and whether the pCPU idles.
    Credit1Schedule { cpu: CpuId, tasklet: bool, idle: bool },
    /// Credit1: a vCPU is kept since it has run for less than the rate limit.
    Credit1Ratelimit { vcpu: VcpuId, ran_ns: u32 },
    /// Credit1: the run queue of `peer` is looked at for somebody to steal (`checked`), or passed over.
    Credit1StealCheck { peer: CpuId, checked: bool },

    /// Credit2: a vCPU takes this place on its run queue, from 0.
    Credit2RunqPos { vcpu: VcpuId, pos: u32 },
    /// Credit2: a vCPU has paid `delta` and has `credit` left; `budget` (ns) if its domain has a cap.
    Credit2CreditBurn { vcpu: VcpuId, credit: i32, budget: Option<i32>, delta: i32 },
    /// Credit2: may the running `vcpu` be preempted? With its credit, and the score of the comparison.
    Credit2TickleCheck { vcpu: VcpuId, credit: i32, score: i32 },
    /// Credit2: a pCPU is told to schedule.
    Credit2Tickle { cpu: CpuId },
    /// Credit2: a vCPU's credit is topped up.
    Credit2CreditReset { vcpu: VcpuId, start: i32, end: i32 },
    /// Credit2: a tasklet wants to run.
    Credit2Tasklet,
    /// Credit2: loads are brought up to date.
    Credit2UpdateLoad,
    /// Credit2: a vCPU belongs to a run queue from now on.
    Credit2RunqAssign { vcpu: VcpuId, rq: u16 },
    /// Credit2: a vCPU's mean load; 1 is `1 << shift`.
    Credit2UpdateVcpuLoad { vcpu: VcpuId, avgload: u64, shift: u8 },
    /// Credit2: a run queue's load: mean, mean as balancing sees it (1 is `1 << shift`), vCPUs now. A record keeps
    /// the low 8 bits of `rq`.
    Credit2UpdateRunqLoad { rq: u16, avgload: u64, b_avgload: u64, load: u16, shift: u8 },
    /// Credit2: whom to tickle for a vCPU that has become runnable? With the pCPU that it belongs to, and its credit.
    Credit2TickleNew { vcpu: VcpuId, cpu: CpuId, credit: i32 },
    /// Credit2: the largest weight on a run queue changes.
    Credit2RunqMaxWeight { rq: u16, weight: u16 },
    /// Credit2: a vCPU passes from one run queue to another.
    Credit2Migrate { vcpu: VcpuId, from: u16, to: u16 },
    /// Credit2: two run queues are compared: the difference of their mean loads.
    Credit2LoadCheck { lrq: u16, orq: u16, delta: u32 },
    /// Credit2: two run queues are balanced: their mean loads.
    Credit2LoadBalance { lrq: u16, orq: u16, lavg: u64, oavg: u64 },
    /// Credit2: the pCPU chosen for a vCPU, the run queue that it was chosen by (`None`: by no load, a fall-back), and
    /// that one's mean load.
    Credit2PickedCpu { vcpu: VcpuId, rq: Option<u16>, cpu: CpuId, b_avgload: u64 },
    /// Credit2: who shall run, with its credit, and the pCPU that it had tickled (`None`: none).
    Credit2RunqCandidate { vcpu: VcpuId, tickled: Option<CpuId>, credit: i32 },
    /// Credit2: a pass of the scheduler begins; whether a tasklet wants to run, whether the pCPU idles, whether its core
    /// does, and whether it was tickled.
    Credit2Schedule { cpu: CpuId, rq: u16, tasklet: bool, idle: bool, smt_idle: bool, tickled: bool },
    /// Credit2: a vCPU is kept since it has run for less than the rate limit.
    Credit2Ratelimit { vcpu: VcpuId, ran_ns: u32 },
    /// Credit2: a waiting vCPU is considered.
    Credit2CandidateCheck { vcpu: VcpuId },

    /// RTDS: a pCPU is told to schedule.
    RtdsTickle { cpu: CpuId },
    /// RTDS: who shall run, with deadline (ns of the host's clock) and budget (ns).
    RtdsRunqPick { vcpu: VcpuId, deadline: u64, budget: u64 },
    /// RTDS: a vCPU has used `delta` of its budget (ns) and has this left.
    RtdsBudgetBurn { vcpu: VcpuId, budget: u64, delta: i32 },
    /// RTDS: a vCPU's budget is filled up.
    RtdsBudgetReplenish { vcpu: VcpuId, deadline: u64, budget: u64 },
    /// RTDS: a tasklet wants to run.
    RtdsTasklet,
    /// RTDS: a pass of the scheduler begins.
    RtdsSchedule { cpu: CpuId, tasklet: bool, idle: bool, tickled: bool },

    /// Another event, or one of the above in a layout that is not the known one: kept as it stands.
    Other { id: u32, words: Words },
}

impl XenEvent {
    /// Its name: `xenalyze`'s, without what it is about.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Runstate { .. } => "runstate_change",
            Self::RunstateContinue { .. } => "runstate_continue",
            Self::DomainAdd { .. } => "sched_init_domain",
            Self::DomainRemove { .. } => "sched_destroy_domain",
            Self::Sleep { .. } => "vcpu_sleep",
            Self::Wake { .. } => "vcpu_wake",
            Self::Yield { .. } => "vcpu_yield",
            Self::Block { .. } => "vcpu_block",
            Self::Shutdown { .. } => "sched_shutdown",
            Self::ShutdownCode { .. } => "sched_shutdown_code",
            Self::Adjust { .. } => "sched_adjust",
            Self::Switch { .. } => "sched_switch",
            Self::SwitchInfPrev { .. } => "sched_switch_infprev",
            Self::SwitchInfNext { .. } => "sched_switch_infnext",
            Self::SwitchInfCont { .. } => "sched_switch_infcont",
            Self::Credit1Tasklet => "csched:sched_tasklet",
            Self::Credit1AcctStart { .. } => "csched:acct_start",
            Self::Credit1AcctStop { .. } => "csched:acct_stop",
            Self::Credit1Stolen { .. } => "csched:stolen_vcpu",
            Self::Credit1PickedCpu { .. } => "csched:pick_cpu",
            Self::Credit1Tickle { .. } => "csched:runq_tickle",
            Self::Credit1Boost { .. } => "csched:boost",
            Self::Credit1Unboost { .. } => "csched:unboost",
            Self::Credit1Schedule { .. } => "csched:schedule",
            Self::Credit1Ratelimit { .. } => "csched:ratelimit",
            Self::Credit1StealCheck { .. } => "csched:load_balance",
            Self::Credit2RunqPos { .. } => "csched2:runq_insert",
            Self::Credit2CreditBurn { .. } => "csched2:burn_credits",
            Self::Credit2TickleCheck { .. } => "csched2:tickle_check",
            Self::Credit2Tickle { .. } => "csched2:runq_tickle",
            Self::Credit2CreditReset { .. } => "csched2:reset_credits",
            Self::Credit2Tasklet => "csched2:sched_tasklet",
            Self::Credit2UpdateLoad => "csched2:update_load",
            Self::Credit2RunqAssign { .. } => "csched2:runq_assign",
            Self::Credit2UpdateVcpuLoad { .. } => "csched2:update_vcpu_load",
            Self::Credit2UpdateRunqLoad { .. } => "csched2:update_rq_load",
            Self::Credit2TickleNew { .. } => "csched2:runq_tickle_new",
            Self::Credit2RunqMaxWeight { .. } => "csched2:update_max_weight",
            Self::Credit2Migrate { .. } => "csched2:migrate",
            Self::Credit2LoadCheck { .. } => "csched2:load_balance_check",
            Self::Credit2LoadBalance { .. } => "csched2:load_balance_begin",
            Self::Credit2PickedCpu { .. } => "csched2:picked_cpu",
            Self::Credit2RunqCandidate { .. } => "csched2:runq_candidate",
            Self::Credit2Schedule { .. } => "csched2:schedule",
            Self::Credit2Ratelimit { .. } => "csched2:ratelimit",
            Self::Credit2CandidateCheck { .. } => "csched2:runq_cand_check",
            Self::RtdsTickle { .. } => "rtds:runq_tickle",
            Self::RtdsRunqPick { .. } => "rtds:runq_pick",
            Self::RtdsBudgetBurn { .. } => "rtds:burn_budget",
            Self::RtdsBudgetReplenish { .. } => "rtds:repl_budget",
            Self::RtdsTasklet => "rtds:sched_tasklet",
            Self::RtdsSchedule { .. } => "rtds:schedule",
            Self::Other { .. } => "other",
        }
    }
}

/// Takes the events of a host, in the order in which they happen.
pub trait XenSink {
    /// `cpu` reports an event. `now` (ns) does not fall on one pCPU.
    fn event(&mut self, now: Time, cpu: CpuId, event: &XenEvent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_print_as_xenalyze_prints_them() {
        let vcpu = VcpuId::new(1, 3);
        let idle = VcpuId::idle(CpuId(2));
        assert!(idle.is_idle() && !vcpu.is_idle());
        let check = |event: XenEvent, text: &str| assert_eq!(event.to_string(), text);
        let (old, new) = (RunState::Running, RunState::Offline);
        check(XenEvent::Runstate { vcpu, old, new }, "runstate_change d1v3 running->offline");
        check(XenEvent::Switch { prev: idle, next: vcpu }, "sched_switch prev d32767v2 next d1v3");
        check(
            XenEvent::SwitchInfNext { vcpu, waited_ns: 3_502_987, slice_ns: Some(30_000_000) },
            "sched_switch next d1v3, was runnable for 3502.987us, next slice 30000.000us",
        );
        check(
            XenEvent::Credit2UpdateRunqLoad { rq: 0, avgload: 452_681, b_avgload: 452_681, load: 1, shift: 18 },
            "csched2:update_rq_load rq# 0, load = 1, avgload = 172.684% (452681), b_avgload = 172.684% (452681)",
        );
        check(
            XenEvent::Credit2RunqCandidate { vcpu: idle, tickled: None, credit: -10_000_001 },
            "csched2:runq_candidate d32767v2, credit = -10000001, no cpu was tickled",
        );
        check(XenEvent::Other { id: 0x2_8012, words: Words::new(&[1, 0xff]) }, "0x28012 0x1 0xff");
    }
}
