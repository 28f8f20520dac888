//! Loads, and moving them.

use contend_platform::CpuId;
use contend_sched::xen::credit2::balance::{Movable, Sides, choose, worthwhile};

use super::clock::Stamp;
use super::report::Kind;
use super::state::Place;
use super::{Auditor, E, same};
use crate::xentrace::VcpuId;

/// What the latest records of a pCPU said of loads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    /// Run queues and their loads as balancing sees them: the last one, and the one before.
    rqs: [Option<(usize, i64)>; 2],
    /// By how much the number of vCPUs changed in the last one, and which record that was.
    change: Option<(usize, i64)>,
}

impl Auditor {
    /// Units of time that may have passed since `then`.
    fn units(&self, at: usize, then: Stamp) -> Result<std::ops::RangeInclusive<i64>, &'static str> {
        let (least, most) = self.since(at, then).ok_or("two pCPUs' clocks have not been linked")?;
        Ok((least >> 10).max(0)..=(most >> 10).max(0) + 1)
    }

    pub(super) fn queue_load(&mut self, at: usize) {
        let cpu = self.recs[at].cpu;
        let E::Credit2UpdateRunqLoad { rq, avgload, b_avgload, load, .. } = self.recs[at].event else { return };
        let rq = usize::from(rq);
        let Some(queue) = self.state.queues.get(rq) else { return };
        let (avg, b_avg, load) = (avgload as i64, b_avgload as i64, i64::from(load));
        let before = (|| {
            let (avg, then) = queue.avgload.ok_or("no load of the run queue has been seen")?;
            let b_avg = queue.b_avgload.ok_or("a vCPU of unknown load has come or gone")?;
            let load = queue.load.ok_or("no load of the run queue has been seen")?;
            Ok((avg, b_avg, load, self.units(at, then)?))
        })();
        let shifts = self.conf.load;
        let told = queue.avgload;
        self.count(Kind::QueueLoad, at, before, |(a, b, now, mut units)| {
            let range = units.clone();
            let fits = units.any(|d| shifts.decayed(a, d, now) == avg && shifts.decayed(b, d, now) == b_avg);
            if fits {
                return Ok(());
            }
            let ours = |d| (shifts.decayed(a, d, now), shifts.decayed(b, d, now));
            let (least, most) = (ours(*range.start()), ours(*range.end()));
            Err(format!("ours {least:?} to {most:?}, real {:?}; {now} vCPUs, {range:?} units, {told:?}", (avg, b_avg)))
        });
        let (now, exact) = self.now(at);
        let now = self.state.clocks.stamp(cpu, now, exact);
        let queue = &mut self.state.queues[rq];
        let change = load - queue.load.unwrap_or(load);
        (queue.avgload, queue.b_avgload, queue.load) = (Some((avg, now)), Some(b_avg), Some(load));
        let recent = &mut self.loads[cpu];
        recent.rqs = [Some((rq, b_avg)), recent.rqs[0]];
        recent.change = Some((at, change));
    }

    pub(super) fn vcpu_load(&mut self, at: usize) {
        let cpu = self.recs[at].cpu;
        let E::Credit2UpdateVcpuLoad { vcpu, avgload, .. } = self.recs[at].event else { return };
        let avg = avgload as i64;
        // Just after a change of the run queue's load the vCPU's is what changed it.
        let change = self.loads[cpu].change.filter(|(last, _)| self.recs[*last].next == Some(at as u32));
        let change = change.map_or(0, |(_, change)| change);
        let v = self.state.vcpu(vcpu).clone();
        let was = match (change, v.place) {
            (1, _) => Ok(0),
            (-1, _) => Ok(1),
            (_, Place::Unknown) => Err("whether the vCPU counts is not known"),
            (_, place) => Ok(i64::from(place.counts())),
        };
        let before = was.and_then(|was| {
            let (avg, then) = v.load.ok_or("no load of the vCPU has been seen")?;
            Ok((avg, was, self.units(at, then)?))
        });
        let shifts = self.conf.load;
        self.count(Kind::VcpuLoad, at, before, |(a, was, mut units)| {
            let range = units.clone();
            if units.any(|d| shifts.decayed(a, d, was) == avg) {
                return Ok(());
            }
            let (least, most) = (shifts.decayed(a, *range.start(), was), shifts.decayed(a, *range.end(), was));
            Err(format!("ours {least} to {most}, real {avg}; {a} before, counts {was}, {range:?} units"))
        });
        let (now, exact) = self.now(at);
        let now = self.state.clocks.stamp(cpu, now, exact);
        self.state.vcpu(vcpu).load = Some((avg, now));
        let rq = self.loads[cpu].rqs[0].map(|(rq, _)| rq);
        match change {
            1 => self.state.place(vcpu, rq, Place::Coming),
            -1 => self.state.place(vcpu, None, Place::Away),
            _ => {}
        }
    }

    pub(super) fn load_checked(&mut self, at: usize) {
        let E::Credit2LoadCheck { delta, .. } = self.recs[at].event else { return };
        let cpu = self.recs[at].cpu;
        let inputs = match self.loads[cpu].rqs {
            [Some((other, o)), Some((own, l))] if other != own => Ok((own, l, other, o)),
            _ => Err("the loads are not in the records before"),
        };
        self.count(Kind::BalanceCheck, at, inputs, |(_, l, _, o)| same((l - o).abs(), i64::from(delta)));
        // The last of a round decides.
        let mut begins = false;
        for (_, event) in self.after(at) {
            match event {
                E::Credit2LoadCheck { .. } => return,
                E::Credit2UpdateRunqLoad { .. } => {}
                E::Credit2LoadBalance { .. } => {
                    begins = true;
                    break;
                }
                _ => break,
            }
        }
        let inputs = match self.state.queues.len() {
            2 => inputs,
            _ => Err("there are more than two run queues"),
        };
        let cpus = |rq: usize| self.state.queues[rq].rq.cpus.len();
        let (conf, inputs) = (self.conf, inputs.map(|(own, l, other, o)| (l, o, cpus(own).max(cpus(other)))));
        self.count(Kind::Balance, at, inputs, |(l, o, cpus)| {
            same(worthwhile(&conf, (l - o).abs(), l.max(o), cpus), begins).map_err(|e| format!("{e}; loads {l}, {o}"))
        });
    }

    pub(super) fn balanced(&mut self, at: usize) {
        let E::Credit2LoadBalance { lrq, lavg, oavg, .. } = self.recs[at].event else { return };
        let own = usize::from(lrq);
        let (mut push, mut pull) = (Vec::new(), Vec::new());
        let mut real = (None, None);
        let looked: Vec<E> = {
            let ends =
                |e: &E| matches!(e, E::SwitchInfCont { .. } | E::SwitchInfPrev { .. } | E::Credit2Schedule { .. });
            self.after(at).map(|(_, e)| *e).take_while(|e| !ends(e)).collect()
        };
        let mut known = self.state.queues.len() == 2 && self.state.queues.iter().all(|q| q.members_known);
        for event in &looked {
            match *event {
                E::Credit2UpdateVcpuLoad { vcpu, avgload, .. } if real == (None, None) => {
                    let Some(rq) = self.state.vcpu(vcpu).rq else {
                        known = false;
                        continue;
                    };
                    let list = if rq == own { &mut push } else { &mut pull };
                    list.push((vcpu, Movable { avg: avgload as i64, may: true, ..Movable::default() }));
                }
                E::Credit2Migrate { vcpu, from, .. } => {
                    let side = if usize::from(from) == own { &mut real.0 } else { &mut real.1 };
                    *side = Some(vcpu);
                }
                _ => {}
            }
        }
        let inputs = known.then_some(()).ok_or("not all vCPUs of both run queues have been met");
        self.count(Kind::Moves, at, inputs, |()| {
            let sides = Sides { own: lavg as i64, other: oavg as i64, room: None, home_only: false };
            let of = |list: &[(VcpuId, Movable)]| list.iter().map(|(_, m)| *m).collect::<Vec<_>>();
            let (give, take) = choose(&sides, &of(&push), &of(&pull));
            let ours = (give.map(|i| push[i].0), take.map(|i| pull[i].0));
            same(ours, real).map_err(|e| format!("{e}; {sides:?}, push {push:?}, pull {pull:?}"))
        });
    }

    /// A vCPU goes to another run queue, now or, if it runs, later.
    pub(super) fn migrates(&mut self, at: usize, vcpu: VcpuId, from: usize, to: usize) {
        let now = self
            .after(at)
            .find(|(_, e)| {
                !matches!(e, E::Credit2UpdateLoad | E::Credit2UpdateRunqLoad { .. } | E::Credit2RunqMaxWeight { .. })
            })
            .is_some_and(|(_, e)| matches!(e, E::Credit2RunqAssign { vcpu: v, .. } if *v == vcpu));
        let v = self.state.vcpu(vcpu).clone();
        if to >= self.state.queues.len() {
            return;
        }
        if !now {
            // It runs: its pCPU is told to let it go.
            if let (Place::Running(on), Some(queue)) = (v.place, self.state.queues.get_mut(from)) {
                queue.rq.tickle(&self.state.topo, CpuId(on as u16));
            }
            return;
        }
        // Queued, it counts in the new run queue from its second record of a load on; until then in none.
        let place = if v.place == Place::Away || v.place == Place::Unknown { v.place } else { Place::Away };
        self.state.place(vcpu, Some(to), place);
        self.state.vcpu(vcpu).cpu = None;
        let avg = v.load.map(|(avg, _)| avg);
        // The mean that balancing sees goes with it: from the run queue that it leaves after the record of that one's load, to
        // the other before.
        if let Some(queue) = self.state.queues.get_mut(to) {
            queue.b_avgload = queue.b_avgload.zip(avg).map(|(b, avg)| b + avg);
        }
        self.leaving = Some((from, avg));
    }

    /// A vCPU belongs to a run queue from now on.
    pub(super) fn assigned(&mut self, vcpu: VcpuId, rq: usize) {
        if rq >= self.state.queues.len() {
            return;
        }
        if let Some((from, avg)) = self.leaving.take()
            && let Some(queue) = self.state.queues.get_mut(from)
        {
            queue.b_avgload = queue.b_avgload.zip(avg).map(|(b, avg)| (b - avg).max(0));
        }
        let v = self.state.vcpu(vcpu);
        if v.rq != Some(rq) {
            let place = v.place;
            self.state.place(vcpu, Some(rq), place);
        }
    }
}
