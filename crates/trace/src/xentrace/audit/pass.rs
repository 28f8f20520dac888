//! Passes of the scheduler: who is to run, for how long, and whether credits are reset.

use contend_platform::CpuId;
use contend_sched::xen::credit2::candidate::{CandidateIn, Current, Next, Queue, Waiter, candidate};
use contend_sched::xen::credit2::credit::{RuntimeIn, after_reset, burn, reset_due, reset_times, runtime};
use contend_sched::xen::credit2::state::{Entry, MIGRATE_COMPENSATION};

use super::clock::Stamp;
use super::report::Kind;
use super::state::{Place, State};
use super::{Auditor, E, same};
use crate::xentrace::{RunState, VcpuId};

/// How a pass ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// The rate limit keeps the current vCPU, which has run for as long.
    Ratelimited { ran: u32 },
    /// This one, told to that pCPU, with that credit.
    Candidate { vcpu: VcpuId, tickled: Option<CpuId>, credit: i32 },
}

/// A pass, with what is known of it from its later records.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    rq: usize,
    /// The pCPU's clock in it.
    pub now: i64,
    /// The last record of its decisions.
    pub last: usize,
    /// Who runs; `None`: it idles.
    current: Option<VcpuId>,
    /// What it has to pay for.
    delta: Option<i32>,
    /// How long it has run, and whether it could go on.
    ran: Option<u32>,
    runnable: bool,
    outcome: Outcome,
    /// vCPUs of the list that were looked at.
    checked: Vec<VcpuId>,
    resets: bool,
    /// Who runs next; its credit when that decided about a reset; whether it comes from another pCPU, if that is known.
    next: Option<VcpuId>,
    next_credit: Option<i32>,
    migrated: Option<bool>,
    slice: Option<u32>,
}

impl Pass {
    /// How long the current vCPU has run.
    fn has_run(&self) -> Result<u64, &'static str> {
        // Of a record: the low half of a number that may be below 0.
        self.ran
            .map(|ran| i64::from(ran as i32) as u64)
            .ok_or("how long the current vCPU has run is not in the records")
    }
}

/// The list, as the policy's function sees it.
struct List<'a> {
    state: &'a State,
    list: &'a [Entry],
    checked: Vec<VcpuId>,
    /// A pCPU that a vCPU belongs to was asked for and is not known.
    unknown: bool,
}

impl Queue for List<'_> {
    fn get(&mut self, at: usize) -> Option<Waiter> {
        let e = self.list.get(at)?;
        let cpu = self.state.of_unit(e.unit).cpu;
        self.unknown |= cpu.is_none();
        Some(Waiter { credit: e.credit, cpu: cpu.unwrap_or(CpuId(0)), allowed: true, tickled: e.tickled })
    }
    fn checked(&mut self, at: usize) {
        self.checked.push(self.state.of_unit(self.list[at].unit).id);
    }
    fn has_budget(&mut self, _: usize) -> bool {
        true
    }
}

impl Auditor {
    /// What the records of a pass say. `None`: the trace ends before it does.
    fn look_ahead(&self, at: usize, rq: usize) -> Option<Pass> {
        let mut pass = Pass {
            rq,
            now: self.now(at).0,
            last: at,
            current: None,
            delta: None,
            ran: None,
            runnable: false,
            outcome: Outcome::Ratelimited { ran: 0 },
            checked: Vec::new(),
            resets: false,
            next: None,
            next_credit: None,
            migrated: Some(false),
            slice: None,
        };
        let mut outcome = None;
        let mut ended = false;
        for (index, event) in self.after(at) {
            match *event {
                E::Credit2CreditBurn { delta, .. } if outcome.is_none() => pass.delta = Some(delta),
                E::Credit2CandidateCheck { vcpu } => pass.checked.push(vcpu),
                E::Credit2Ratelimit { ran_ns, .. } => outcome = Some(Outcome::Ratelimited { ran: ran_ns }),
                E::Credit2RunqCandidate { vcpu, tickled, credit } => {
                    outcome = Some(Outcome::Candidate { vcpu, tickled, credit });
                }
                E::Credit2CreditReset { .. } => pass.resets = true,
                E::SwitchInfPrev { vcpu, ran_ns } => {
                    (pass.current, pass.ran, ended) = ((!vcpu.is_idle()).then_some(vcpu), Some(ran_ns), true);
                }
                E::SwitchInfNext { vcpu, slice_ns, .. } => {
                    (pass.next, pass.slice, ended) = ((!vcpu.is_idle()).then_some(vcpu), slice_ns, true);
                }
                E::SwitchInfCont { vcpu, ran_ns, slice_ns } => {
                    let vcpu = (!vcpu.is_idle()).then_some(vcpu);
                    (pass.current, pass.next) = (vcpu, vcpu);
                    (pass.slice, pass.runnable) = (slice_ns, true);
                    pass.ran = match outcome {
                        Some(Outcome::Ratelimited { ran }) => Some(ran),
                        _ => Some(ran_ns),
                    };
                    return outcome.map(|outcome| Pass { outcome, ..pass });
                }
                // The first one is of who ran.
                E::Runstate { vcpu, new, .. } if ended && pass.current.is_none_or(|current| current == vcpu) => {
                    pass.runnable = new == RunState::Runnable;
                    return outcome.map(|outcome| Pass { outcome, ..pass });
                }
                E::Credit2Schedule { .. } => return None,
                _ => {}
            }
            if !ended {
                pass.last = index;
            }
        }
        None
    }

    /// A pass begins.
    ///
    /// What a record says of how long a vCPU has run is at times how long another one has. The real policy does not go by that: rate
    /// limit and slices are right with the time since the vCPU was dispatched.
    pub(super) fn begin_pass(&mut self, at: usize, rq: usize, [idle, smt_idle, tickled]: [bool; 3]) {
        let (cpu, ns) = (self.recs[at].cpu, self.recs[at].ns);
        let me = CpuId(cpu as u16);
        if rq >= self.state.queues.len() {
            self.passes[cpu] = None;
            return self.count(Kind::Masks, at, Err::<(), _>("the run queue is not known"), |()| Ok(()));
        }
        let mut pass = self.look_ahead(at, rq);
        let before = self.before[cpu].map(|before| self.recs[before].event);
        if let Some(pass) = &mut pass {
            // It may have been woken between the decision and the record of its run state.
            if let (Some(vcpu), Some(E::Block { vcpu: blocked })) = (pass.current, before)
                && vcpu == blocked
                && pass.next != pass.current
            {
                pass.runnable = false;
            }
            // The clock: from when this pCPU's vCPU last paid or was dispatched by this pCPU, or this pCPU began to idle.
            let clocks = &self.state.clocks;
            let of = |stamp: Option<Stamp>| stamp.filter(|s| s.cpu == cpu && clocks.exact(*s)).map(|s| s.ns);
            let (paid, since) = match pass.current.and_then(|vcpu| self.state.peek(vcpu)) {
                Some(v) => (v.start, of(v.dispatched)),
                None => (None, of(self.state.idle_since[cpu])),
            };
            // Where records contradict each other the time that goes with the pass before is believed.
            let about = clocks.about(cpu, ns);
            let by_pay = paid.zip(pass.delta).and_then(|(paid, delta)| clocks.after(ns, cpu, paid, delta.into()));
            let by_run = since.zip(pass.ran).map(|(since, ran)| unwrapped(since, ran, about));
            let now = by_pay.into_iter().chain(by_run).min_by_key(|now| (now - about).abs());
            match now {
                Some(now) => pass.now = now,
                None => self.state.clocks.restart(cpu),
            }
            self.state.clocks.set(cpu, ns, pass.now);
            if let (Some(since), Outcome::Candidate { .. }) = (since, pass.outcome) {
                pass.ran = Some((pass.now - since) as u32);
            }
            self.state.running[cpu] = Some(pass.current);
            if let Some(vcpu) = pass.current {
                self.state.place(vcpu, Some(rq), Place::Running(cpu));
            }
        }
        let queue = &mut self.state.queues[rq];
        let core: Vec<CpuId> = self.state.topo.core_cpus(self.state.topo.core_of(me)).to_vec();
        let seen = core.iter().all(|c| queue.seen.contains(*c));
        let was_tickled = queue.rq.tickled.contains(me);
        queue.rq.untickle(&self.state.topo, me);
        let ours = [queue.rq.idle.contains(me), queue.rq.smt_idle.contains(me), was_tickled];
        // What the record says holds.
        if !seen || ours != [idle, smt_idle, tickled] {
            let masks = &mut queue.rq;
            for (mask, set) in [(&mut masks.idle, idle), (&mut masks.smt_idle, smt_idle)] {
                if set { mask.insert(me) } else { mask.remove(me) }
            }
        }
        queue.seen.insert(me);
        let inputs = seen.then_some(()).ok_or("the pCPU or its core has not been met");
        self.count(Kind::Masks, at, inputs, |()| same(ours, [idle, smt_idle, tickled]));
        self.passes[cpu] = pass;
    }

    /// The record that says who is to run.
    pub(super) fn chosen(&mut self, at: usize) {
        let cpu = self.recs[at].cpu;
        let Some(mut pass) = self.passes[cpu].clone() else {
            return self.count(Kind::Candidate, at, Err::<(), _>("the trace begins or ends in the pass"), |()| Ok(()));
        };
        let inputs = self.candidate(cpu, &pass);
        let real = match pass.outcome {
            Outcome::Ratelimited { .. } => (pass.current, true, None),
            Outcome::Candidate { vcpu, tickled, .. } => ((!vcpu.is_idle()).then_some(vcpu), false, tickled),
        };
        let checked = pass.checked.clone();
        self.count(Kind::Candidate, at, inputs, |(ours, looked, told)| {
            if ours == real && looked == checked {
                return Ok(());
            }
            Err(format!("ours {ours:?}, looked at {looked:?}; real {real:?}, looked at {checked:?}; {told}"))
        });
        // From here on as the real one did.
        let now = self.state.clocks.stamp(cpu, pass.now, true);
        pass.next = real.0;
        if let (Some(next), Outcome::Candidate { credit, .. }) = (real.0, pass.outcome) {
            self.state.set_credit(next, credit);
        }
        if real.0 != pass.current {
            if let Some(current) = pass.current {
                self.state.place(current, Some(pass.rq), Place::Leaving);
            }
            if let Some(next) = real.0 {
                self.state.place(next, Some(pass.rq), Place::Running(cpu));
                let v = self.state.vcpu(next);
                (v.dispatched, v.start) = (Some(now), Some(now));
                pass.migrated = v.cpu.map(|c| c.index() != cpu);
            }
        }
        if let Some(next) = real.0 {
            pass.next_credit = self.state.vcpu(next).credit;
            let head = self.state.queues[pass.rq].rq.list.first().map(|e| e.credit);
            let complete = self.state.complete(pass.rq);
            let inputs = complete.and(pass.next_credit.ok_or("the credit is not known"));
            let real = pass.resets;
            self.count(Kind::Reset, at, inputs, |credit| {
                same(reset_due(credit, head, true), real)
                    .map_err(|e| format!("{e}; next has {credit}, the head {head:?}"))
            });
        }
        self.passes[cpu] = Some(pass);
    }

    /// Whom ours chooses.
    #[expect(clippy::type_complexity, reason = "used in one place")]
    fn candidate(
        &mut self,
        cpu: usize,
        pass: &Pass,
    ) -> Result<((Option<VcpuId>, bool, Option<CpuId>), Vec<VcpuId>, String), &'static str> {
        self.state.complete(pass.rq)?;
        let me = CpuId(cpu as u16);
        let queue = &self.state.queues[pass.rq].rq;
        let free = queue.idle - queue.tickled;
        let current = match pass.current {
            None => None,
            Some(vcpu) => {
                let v = self.state.vcpu(vcpu);
                let (credit, soft, yields) =
                    (v.credit.ok_or("the current vCPU's credit is not known")?, v.soft, v.yielded);
                let better_off = self.state.soft_useful(soft)
                    && soft.is_some_and(|soft| !soft.contains(me) && free.intersects(&soft));
                let ran = pass.has_run()?;
                Some(Current { credit, runnable: pass.runnable, ran, yields, better_off })
            }
        };
        let queue = &self.state.queues[pass.rq].rq;
        let i = CandidateIn { cpu: me, current, ratelimit: self.ratelimit, tickled: queue.tickled };
        let mut list = List { state: &self.state, list: &queue.list, checked: Vec::new(), unknown: false };
        let found = candidate(&self.conf, &i, &mut list);
        if list.unknown {
            return Err("the pCPU that a waiting vCPU belongs to is not known");
        }
        let checked = list.checked;
        let (next, tickled) = match found.next {
            Next::Idle => (None, None),
            Next::Current => (pass.current, None),
            Next::Waiter(place) => (Some(self.state.of_unit(queue.list[place].unit).id), queue.list[place].tickled),
        };
        let waiters = queue.list.iter().map(|e| {
            let v = self.state.of_unit(e.unit);
            format!("{} {} of {:?} told {:?}", v.id, e.credit, v.cpu, e.tickled)
        });
        let told = format!("{current:?}, {:?}, tickled {:?}", waiters.collect::<Vec<_>>(), queue.tickled);
        Ok(((next, found.ratelimited, tickled), checked, told))
    }

    /// A vCPU pays.
    pub(super) fn burned(&mut self, at: usize, vcpu: VcpuId, credit: i32, delta: i32, budget: Option<i32>) {
        let (cpu, (now, _)) = (self.recs[at].cpu, self.now(at));
        let ns = self.recs[at].ns;
        let (floor, v) = (self.conf.credit_floor(), self.state.vcpu(vcpu).clone());
        let max_weight = v.rq.and_then(|rq| self.state.queues[rq].max_weight);
        let inputs = match (v.credit, max_weight) {
            _ if budget.is_some() => Err("the domain has a cap"),
            (None, _) => Err("the credit is not known"),
            (_, None) => Err("the largest weight is not known"),
            (Some(before), Some(max)) => Ok((before, max)),
        };
        self.count(Kind::Burn, at, inputs, |(before, max)| {
            let ours = |residual| match delta {
                ..=0 => before,
                _ => burn(before, residual, delta as u64, v.weight, max, floor).0,
            };
            let (most, least) = (ours(0), ours(u64::from(v.weight) - 1));
            if (least..=most).contains(&credit) {
                return Ok(());
            }
            Err(format!("ours {most}, real {credit}; {before} before, weight {} of {max}", v.weight))
        });
        self.state.set_credit(vcpu, credit);
        // Burns in a pass link clocks; others tell the time.
        let in_pass = self.passes[cpu].is_some();
        let told = v.start.and_then(|start| self.state.clocks.after(self.recs[at].ns, cpu, start, delta.into()));
        if let (Some(start), true) = (v.start, in_pass) {
            self.state.clocks.link(ns, cpu, now, start, delta.into());
        }
        if delta > 0 {
            let now = if in_pass { now } else { told.unwrap_or(now) };
            self.state.vcpu(vcpu).start = Some(self.state.clocks.stamp(cpu, now, in_pass || told.is_some()));
        }
    }

    /// A vCPU is given credit.
    pub(super) fn reset(&mut self, at: usize, vcpu: VcpuId, start: i32, end: i32) {
        let (cpu, (now, exact)) = (self.recs[at].cpu, self.now(at));
        let times =
            self.passes[cpu].as_ref().and_then(|p| p.next_credit).ok_or("the credit of who runs next is not known");
        self.count(Kind::ResetAmount, at, times, |next| {
            same(after_reset(start, reset_times(next, true)), end).map_err(|e| format!("{e}; next has {next}"))
        });
        let rq = self.passes[cpu].as_ref().map(|p| p.rq);
        let place = self.state.vcpu(vcpu).place;
        if let Some(rq) = rq
            && self.state.vcpu(vcpu).rq != Some(rq)
        {
            self.state.place(vcpu, Some(rq), place);
        }
        self.state.set_credit(vcpu, end);
        self.state.vcpu(vcpu).start = Some(self.state.clocks.stamp(cpu, now, exact));
        // The last of them.
        let more = self
            .after(at)
            .next()
            .is_some_and(|(_, e)| matches!(e, E::Credit2CreditReset { .. } | E::Credit2CreditBurn { .. }));
        if let (Some(rq), false) = (rq, more) {
            let largest = self.state.largest_weight(rq);
            let queue = &mut self.state.queues[rq];
            queue.members_known = true;
            queue.max_weight.get_or_insert(largest);
        }
    }

    /// The decisions of a pass have been made.
    pub(super) fn end_pass(&mut self, at: usize) {
        let cpu = self.recs[at].cpu;
        let pass = self.passes[cpu].take().expect("a pass ends");
        let me = CpuId(cpu as u16);
        let queue = &mut self.state.queues[pass.rq];
        queue.rq.set_idle(&self.state.topo, me, pass.next.is_none());
        self.state.running[cpu] = Some(pass.next);
        if let Some(current) = pass.current {
            self.state.vcpu(current).yielded = false;
        }
        let now = self.state.clocks.stamp(cpu, pass.now, true);
        let Some(next) = pass.next else {
            if pass.current.is_some() {
                self.state.idle_since[cpu] = Some(now);
            }
            return;
        };
        let v = self.state.vcpu(next);
        v.cpu = Some(me);
        v.start = Some(now);
        v.credit = match (v.credit, pass.migrated) {
            (Some(credit), Some(migrated)) => Some(credit + if migrated { MIGRATE_COMPENSATION } else { 0 }),
            _ => None,
        };
        let (credit, weight) = (v.credit, v.weight);
        let Some(slice) = pass.slice else { return };
        let goes_on = pass.next == pass.current;
        let inputs = self.runtime_in(&pass, credit, weight, goes_on);
        self.count(Kind::Slice, at, inputs, |i| same(runtime(&i).0, slice.into()).map_err(|e| format!("{e}; {i:?}")));
    }

    fn runtime_in(
        &self,
        pass: &Pass,
        credit: Option<i32>,
        weight: u16,
        goes_on: bool,
    ) -> Result<RuntimeIn, &'static str> {
        self.state.complete(pass.rq)?;
        let queue = &self.state.queues[pass.rq];
        let ran = if goes_on { Some(pass.has_run()?) } else { None };
        Ok(RuntimeIn {
            credit: credit.ok_or("the credit is not known")?,
            weight,
            max_weight: queue.max_weight.ok_or("the largest weight is not known")?,
            waiter: queue.rq.list.first().map(|e| e.credit),
            ratelimit: self.ratelimit,
            ran,
            max: self.conf.max_timer,
            budget: None,
        })
    }
}

/// The time `ran` after `since`, of which only the low 32 bits are known, that is nearest to `about`.
fn unwrapped(since: i64, ran: u32, about: i64) -> i64 {
    let exact = since + i64::from(ran);
    let wraps = (about - exact + (1 << 31)).div_euclid(1 << 32);
    exact + (wraps << 32)
}
