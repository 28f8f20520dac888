//! Which pCPUs share a runqueue.
//!
//! A socket is a node of the machine file: package and node are one there (`docs/xen-credit2.md`).

use super::state::Conf;
use crate::xen::contract::RqId;
use crate::xen::features::Credit2Runqueue;
use crate::xen::mask::CpuMask;
use contend_machine::Topology;
use contend_platform::CpuId;
use std::collections::BTreeMap;

/// The runqueue of each pCPU: by `credit2_runqueue`, then split so that none has more than `credit2_max_cpus_runqueue`.
pub fn partition(conf: &Conf, topo: &Topology, cpus: &CpuMask) -> Vec<RqId> {
    let group = |cpu: CpuId| match conf.runqueue {
        Credit2Runqueue::Cpu => cpu.index(),
        Credit2Runqueue::Core => topo.core_of(cpu),
        Credit2Runqueue::Socket | Credit2Runqueue::Node => topo.node_of(cpu),
        Credit2Runqueue::All => 0,
    };
    // By group, its cores; of runqueues of single pCPUs each is its own.
    let mut groups: BTreeMap<usize, BTreeMap<usize, Vec<CpuId>>> = BTreeMap::new();
    for cpu in cpus.iter() {
        groups.entry(group(cpu)).or_default().entry(topo.core_of(cpu)).or_default().push(cpu);
    }
    let mut of = vec![RqId(0); topo.nr_cpus()];
    let mut next = 0;
    for cores in groups.into_values() {
        for queue in split(cores.into_values().collect(), conf.max_cpus) {
            queue.into_iter().for_each(|c| of[c.index()] = RqId(next));
            next += 1;
        }
    }
    of
}

/// Split cores over as few queues of at most `max` pCPUs as will do, evenly, siblings together. A core of more than `max`
/// threads stays whole.
fn split(cores: Vec<Vec<CpuId>>, max: usize) -> Vec<Vec<CpuId>> {
    let total: usize = cores.iter().map(Vec::len).sum();
    let widest = cores.iter().map(Vec::len).max().unwrap_or(0);
    let max = if max == 0 { total } else { max.max(widest) };
    for queues in total.div_ceil(max)..=cores.len() {
        let mut out: Vec<Vec<CpuId>> = vec![Vec::new(); queues];
        let mut done = 0;
        for core in &cores {
            // The middle of the core decides, so that sizes differ by a core at most.
            let at = (2 * done + core.len()) * queues / (2 * total);
            done += core.len();
            out[at].extend(core);
        }
        if out.iter().all(|q| !q.is_empty() && q.len() <= max) {
            return out;
        }
    }
    cores
}
