//! Whom a vCPU that has become runnable is told to.

use contend_platform::CpuId;
use contend_sched::xen::credit2::tickle::{Currents, Tickle, TickleIn, preemptable, score, tickle};
use contend_sched::xen::mask::CpuMask;

use super::report::Kind;
use super::{Auditor, E, same};
use crate::xentrace::VcpuId;

/// A pCPU looks for one for a vCPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tickling {
    vcpu: VcpuId,
    cpu: CpuId,
    credit: i32,
}

/// An answer about the rate limit: ours, the real one, and for how long the vCPU has run, at least and at most. `None`: not known.
type Limit = (Option<bool>, bool, Option<(i64, i64)>);

/// The running vCPUs, as the policy's function asks about them.
struct Running<'a> {
    auditor: &'a Auditor,
    at: usize,
    /// pCPUs that the real one looked at, and their vCPUs' credits.
    looked: &'a [(usize, i32)],
    ratelimit: u64,
    limits: Vec<Limit>,
    checked: Vec<usize>,
    unknown: Option<&'static str>,
}

impl Running<'_> {
    fn vcpu(&self, cpu: CpuId) -> Option<VcpuId> {
        self.auditor.state.running[cpu.index()].flatten()
    }
    fn may_be_preempted(&mut self, cpu: CpuId) -> bool {
        let real = self.looked.iter().any(|(c, _)| *c == cpu.index());
        let state = &self.auditor.state;
        let dispatched = self.vcpu(cpu).and_then(|v| state.peek(v)).and_then(|v| v.dispatched);
        let ran = dispatched.and_then(|then| self.auditor.since(self.at, then));
        // Where clocks contradict each other, less than nothing: as the policy's own subtraction has it.
        let may = |ran: i64| preemptable(ran as u64, self.ratelimit);
        let limit = self.ratelimit as i64;
        let ours = ran.and_then(|(least, most)| {
            let sure = may(least) == may(most) && !(least < 0 && most > limit);
            sure.then(|| may(least))
        });
        self.limits.push((ours, real, ran));
        if !real && ours.is_none() {
            self.unknown = Some("how long a vCPU has run is not known well enough");
        }
        if real { true } else { ours.unwrap_or(false) }
    }
}

impl Currents for Running<'_> {
    fn preemptable(&mut self, cpus: &CpuMask) -> CpuMask {
        cpus.iter().filter(|cpu| self.may_be_preempted(*cpu)).collect()
    }
    fn credit(&mut self, cpu: CpuId) -> i32 {
        let recorded = self.looked.iter().find(|(c, _)| *c == cpu.index()).map(|(_, credit)| *credit);
        let credit =
            recorded.or_else(|| self.vcpu(cpu).and_then(|v| self.auditor.state.peek(v)).and_then(|v| v.credit));
        if credit.is_none() {
            self.unknown = Some("the credit of a running vCPU is not known");
        }
        credit.unwrap_or(0)
    }
    fn in_soft(&mut self, cpu: CpuId) -> bool {
        let soft = self.vcpu(cpu).and_then(|v| self.auditor.state.peek(v)).and_then(|v| v.soft);
        soft.is_none_or(|soft| soft.contains(cpu))
    }
    fn checked(&mut self, cpu: CpuId, _: i32, _: i32) {
        self.checked.push(cpu.index());
    }
}

impl Auditor {
    /// Where a vCPU runs.
    fn runs_on(&self, vcpu: VcpuId) -> Option<usize> {
        self.state.running.iter().position(|r| *r == Some(Some(vcpu)))
    }

    pub(super) fn looks_for_cpu(&mut self, at: usize, vcpu: VcpuId, cpu: CpuId, credit: i32) {
        self.state.set_credit(vcpu, credit);
        self.state.vcpu(vcpu).cpu = Some(cpu);
        self.tickling[self.recs[at].cpu] = Some(Tickling { vcpu, cpu, credit });
        let (inputs, limits) = match self.tickle_in(at, vcpu, cpu, credit) {
            Err(why) => (Err(why), Vec::new()),
            Ok((i, looked, real)) => {
                let mut running = Running {
                    auditor: self,
                    at,
                    looked: &looked,
                    ratelimit: self.ratelimit,
                    limits: Vec::new(),
                    checked: Vec::new(),
                    unknown: None,
                };
                let found = tickle(&self.conf, &i, &mut 0, &mut running);
                let (limits, checked, unknown) = (running.limits, running.checked, running.unknown);
                let ours = match found {
                    Tickle::Idle(cpu) | Tickle::Busy(cpu) => Some(cpu),
                    Tickle::Nobody => None,
                };
                let looked: Vec<usize> = looked.iter().map(|(c, _)| *c).collect();
                (unknown.map_or(Ok((ours, checked, real, looked, i)), Err), limits)
            }
        };
        for (ours, real, ran) in limits {
            let inputs = ours.ok_or("how long a vCPU has run is not known well enough");
            self.count(Kind::Preemptable, at, inputs, |ours| {
                same(ours, real).map_err(|e| format!("{e}; it has run for {ran:?} ns"))
            });
        }
        self.count(Kind::Tickle, at, inputs, |(ours, checked, real, looked, i)| {
            if ours == real && checked == looked {
                return Ok(());
            }
            Err(format!("ours {ours:?} after {checked:?}, real {real:?} after {looked:?}; {i:?}"))
        });
    }

    /// What the policy's function is given; the pCPUs that the real one looked at, with credits; and the one that it told.
    #[expect(clippy::type_complexity, reason = "used in one place")]
    fn tickle_in(
        &mut self,
        at: usize,
        vcpu: VcpuId,
        cpu: CpuId,
        credit: i32,
    ) -> Result<(TickleIn, Vec<(usize, i32)>, Option<CpuId>), &'static str> {
        let rq = self.state.rq_of(cpu).ok_or("the run queue is not known")?;
        let soft = self.state.vcpu(vcpu).soft;
        let queue = &self.state.queues[rq];
        if queue.seen != queue.rq.cpus {
            return Err("a pCPU has not been met");
        }
        let (mut looked, mut real, mut who) = (Vec::new(), None, Vec::new());
        for (_, event) in self.after(at) {
            match *event {
                E::Credit2CreditBurn { .. } => {}
                E::Credit2TickleCheck { vcpu, credit, .. } => who.push((vcpu, credit)),
                E::Credit2Tickle { cpu } => {
                    real = Some(cpu);
                    break;
                }
                _ => break,
            }
        }
        for (vcpu, credit) in who {
            looked.push((self.runs_on(vcpu).ok_or("where a running vCPU runs is not known")?, credit));
        }
        let pool = self.state.pool();
        let (r, soft_useful) = (&queue.rq, self.state.soft_useful(soft));
        let i = TickleIn {
            credit,
            cpu,
            hard: r.cpus,
            soft: soft.unwrap_or(pool),
            soft_useful,
            pinned: false,
            cpus: r.cpus,
            idle: r.idle,
            tickled: r.tickled,
            smt_idle: r.smt_idle,
        };
        Ok((i, looked, real))
    }

    pub(super) fn scored(&mut self, at: usize, vcpu: VcpuId, credit: i32, real: i32) {
        let inputs = match (self.tickling[self.recs[at].cpu], self.runs_on(vcpu)) {
            (None, _) => Err("the trace begins in the decision"),
            (_, None) => Err("where the running vCPU runs is not known"),
            (Some(new), Some(on)) => Ok((new, CpuId(on as u16))),
        };
        let inputs = inputs.map(|(new, on)| {
            let prefers = |soft: Option<CpuMask>| soft.is_none_or(|soft| soft.contains(on));
            let soft = (self.state.vcpu(new.vcpu).soft, self.state.vcpu(vcpu).soft);
            (new, on, prefers(soft.0), prefers(soft.1))
        });
        let resist = self.conf.resist;
        self.count(Kind::Score, at, inputs, |(new, on, new_prefers, cur_prefers)| {
            let ours = score(new.credit, credit, resist, on == new.cpu, new_prefers, cur_prefers);
            same(ours, real)
                .map_err(|e| format!("{e}; {new:?} against cpu {}, prefer it: {new_prefers}, {cur_prefers}", on.0))
        });
        self.state.set_credit(vcpu, credit);
    }

    pub(super) fn tickled(&mut self, by: usize, target: CpuId) {
        let Some(rq) = self.state.rq_of(target) else { return };
        self.state.queues[rq].rq.tickle(&self.state.topo, target);
        if let Some(Tickling { vcpu, .. }) = self.tickling[by] {
            let unit = self.state.unit(vcpu);
            if let Some(entry) = self.state.queues[rq].rq.list.iter_mut().find(|e| e.unit == unit) {
                entry.tickled = Some(target);
            }
        }
    }
}
