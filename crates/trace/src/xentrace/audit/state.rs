//! The scheduler's state, as records tell it.

use std::collections::BTreeMap;

use contend_machine::Topology;
use contend_platform::{CpuId, TaskId};
use contend_sched::xen::credit2::state::{Entry, Rq};
use contend_sched::xen::mask::CpuMask;

use super::Host;
use super::clock::{Clocks, Stamp};
use crate::xentrace::VcpuId;

/// Where a vCPU is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Not met yet.
    Unknown,
    /// It neither runs nor waits.
    Away,
    /// It counts in the load, and will be queued.
    Coming,
    /// In the list.
    Queued,
    /// On this pCPU.
    Running(usize),
    /// It has been switched from, and its registers are not yet saved.
    Leaving,
}

impl Place {
    /// Whether it counts in the load.
    pub fn counts(self) -> bool {
        !matches!(self, Self::Unknown | Self::Away)
    }
}

/// A vCPU.
#[derive(Clone, Debug)]
pub struct Vcpu {
    pub id: VcpuId,
    pub weight: u16,
    /// `None`: all pCPUs.
    pub soft: Option<CpuMask>,
    pub credit: Option<i32>,
    /// The pCPU that it belongs to.
    pub cpu: Option<CpuId>,
    pub rq: Option<usize>,
    pub place: Place,
    /// Paid up to here.
    pub start: Option<Stamp>,
    /// Given its pCPU then.
    pub dispatched: Option<Stamp>,
    /// Mean load, and when it was of.
    pub load: Option<(i64, Stamp)>,
    pub yielded: bool,
}

/// A run queue.
#[derive(Debug)]
pub struct Queue {
    /// List and masks.
    pub rq: Rq,
    /// pCPUs of which it is known whether they idle or are tickled.
    pub seen: CpuMask,
    /// vCPUs that count, by the last record.
    pub load: Option<i64>,
    /// Its mean, the same as balancing sees it, and when they were of.
    pub avgload: Option<(i64, Stamp)>,
    pub b_avgload: Option<i64>,
    /// vCPUs that count, of those met.
    pub counted: i64,
    pub max_weight: Option<u16>,
    /// All vCPUs that belong to it have been met.
    pub members_known: bool,
}

/// All of it.
#[derive(Debug)]
pub struct State {
    pub topo: Topology,
    pub queues: Vec<Queue>,
    pub clocks: Clocks,
    rq_of: Vec<Option<usize>>,
    vcpus: Vec<Vcpu>,
    units: BTreeMap<VcpuId, usize>,
    /// By pCPU: who runs there (`None`: it idles); the outer one: not known.
    pub running: Vec<Option<Option<VcpuId>>>,
    /// By pCPU: it has idled since, by its clock.
    pub idle_since: Vec<Option<Stamp>>,
    weights: BTreeMap<u16, u16>,
    soft: BTreeMap<u16, CpuMask>,
}

impl State {
    pub fn new(host: &Host, topo: Topology, rq_of: Vec<Option<usize>>, clocks: Clocks) -> Self {
        let queues = rq_of.iter().flatten().max().map_or(0, |most| most + 1);
        let queue = |rq| {
            let cpus: CpuMask = (0..rq_of.len()).filter(|c| rq_of[*c] == Some(rq)).map(|c| CpuId(c as u16)).collect();
            Queue {
                rq: Rq::new(&cpus),
                seen: CpuMask::NONE,
                load: None,
                avgload: None,
                b_avgload: None,
                counted: 0,
                max_weight: None,
                members_known: false,
            }
        };
        Self {
            topo,
            queues: (0..queues).map(queue).collect(),
            clocks,
            vcpus: Vec::new(),
            units: BTreeMap::new(),
            running: vec![None; rq_of.len()],
            idle_since: vec![None; rq_of.len()],
            rq_of,
            weights: host.weights.clone(),
            soft: host.soft.clone(),
        }
    }

    /// The run queue of a pCPU.
    pub fn rq_of(&self, cpu: CpuId) -> Option<usize> {
        *self.rq_of.get(cpu.index())?
    }

    fn index(&mut self, id: VcpuId) -> usize {
        let (vcpus, weights, soft) = (&mut self.vcpus, &self.weights, &self.soft);
        *self.units.entry(id).or_insert_with(|| {
            vcpus.push(Vcpu {
                id,
                weight: weights.get(&id.dom).copied().unwrap_or(256),
                soft: soft.get(&id.dom).copied(),
                credit: None,
                cpu: None,
                rq: None,
                place: Place::Unknown,
                start: None,
                dispatched: None,
                load: None,
                yielded: false,
            });
            vcpus.len() - 1
        })
    }

    /// A vCPU; not met before, it is from now on.
    pub fn vcpu(&mut self, id: VcpuId) -> &mut Vcpu {
        let index = self.index(id);
        &mut self.vcpus[index]
    }

    /// A vCPU that has been met.
    pub fn peek(&self, id: VcpuId) -> Option<&Vcpu> {
        self.units.get(&id).map(|index| &self.vcpus[*index])
    }

    /// Its number in lists.
    pub fn unit(&mut self, id: VcpuId) -> TaskId {
        TaskId(self.index(id) as u32)
    }

    /// The vCPU of a number in lists.
    pub fn of_unit(&self, unit: TaskId) -> &Vcpu {
        &self.vcpus[unit.0 as usize]
    }

    /// All pCPUs.
    pub fn pool(&self) -> CpuMask {
        CpuMask::first_n(self.rq_of.len())
    }

    /// Whether soft affinity can make a difference, with hard affinity to all.
    pub fn soft_useful(&self, soft: Option<CpuMask>) -> bool {
        soft.is_some_and(|soft| !self.pool().is_subset(&soft) && soft.intersects(&self.pool()))
    }

    /// A vCPU is somewhere else from now on (`rq` `None`: in the run queue where it was).
    pub fn place(&mut self, id: VcpuId, rq: Option<usize>, place: Place) {
        let index = self.index(id);
        let (old_rq, old) = (self.vcpus[index].rq, self.vcpus[index].place);
        let rq = rq.or(old_rq);
        if let Some(old_rq) = old_rq {
            let queue = &mut self.queues[old_rq];
            queue.counted -= i64::from(old.counts());
            if old == Place::Queued {
                queue.rq.list.retain(|e| e.unit.0 as usize != index);
            }
        }
        if let Some(rq) = rq {
            self.queues[rq].counted += i64::from(place.counts());
        }
        (self.vcpus[index].rq, self.vcpus[index].place) = (rq, place);
    }

    /// A vCPU takes this place in a list.
    pub fn insert(&mut self, id: VcpuId, rq: usize, pos: usize) {
        self.place(id, Some(rq), Place::Queued);
        let unit = self.unit(id);
        let credit = self.vcpu(id).credit.unwrap_or_default();
        let list = &mut self.queues[rq].rq.list;
        list.insert(pos.min(list.len()), Entry { unit, credit, tickled: None });
    }

    /// Whether all vCPUs that run or wait in a run queue are known, or why it is not known that they are.
    pub fn complete(&self, rq: usize) -> Result<(), &'static str> {
        match self.queues[rq].load {
            None => Err("no load of the run queue has been seen"),
            Some(load) if load != self.queues[rq].counted => Err("a vCPU in the run queue has not been met"),
            Some(_) => Ok(()),
        }
    }

    /// The largest weight of a run queue's vCPUs that have been met; 1 without any.
    pub fn largest_weight(&self, rq: usize) -> u16 {
        self.vcpus.iter().filter(|v| v.rq == Some(rq)).map(|v| v.weight).max().unwrap_or(1)
    }

    /// A credit is what a record says.
    pub fn set_credit(&mut self, id: VcpuId, credit: i32) {
        let unit = self.unit(id);
        let v = self.vcpu(id);
        v.credit = Some(credit);
        if let (Place::Queued, Some(rq)) = (v.place, v.rq)
            && let Some(entry) = self.queues[rq].rq.list.iter_mut().find(|e| e.unit == unit)
        {
            entry.credit = credit;
        }
    }
}
