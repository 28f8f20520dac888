//! Tests of Credit2. Worlds are those of `xen/testing.rs`: the real generic layer, one thread, nothing takes time but computing.

mod affinity;
mod arithmetic;
mod balancing;
mod candidates;
mod caps;
mod partitions;
mod patches;
mod shares;
mod tickles;

use super::Credit2;
use super::state::Conf;
use crate::xen::contract::UnitId;
use crate::xen::event::XenEvent;
use crate::xen::features::XenFeatures;
use crate::xen::mask::CpuMask;
use crate::xen::testing::World;
use contend_machine::{Machine, Topology};
use contend_platform::{CpuId, Platform, TaskId, Time};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const SETS: [&str; 3] = ["base", "patched", "upstream-today"];

fn topo(name: &str) -> Topology {
    Machine::synthetic(name).unwrap().topology
}

/// A preset, or a set of patches, and then keys and values.
fn features(set: &str, keys: &[(&str, &str)]) -> XenFeatures {
    let mut f = XenFeatures::preset(set).unwrap_or_else(|| {
        let mut f = XenFeatures::default();
        f.set_patches(set).unwrap();
        f
    });
    keys.iter().for_each(|(k, v)| f.set(k, v).unwrap());
    f.check().unwrap();
    f
}

fn credit2(set: &str, keys: &[(&str, &str)]) -> Credit2 {
    Credit2::new(&features(set, keys))
}

fn conf(set: &str) -> Conf {
    Conf::new(&features(set, &[]))
}

/// `0-3,8`.
fn cpus(text: &str) -> CpuMask {
    let mut mask = CpuMask::NONE;
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        (from.parse().unwrap()..=to.parse().unwrap()).for_each(|c| mask.insert(CpuId(c)));
    }
    mask
}

fn unit(n: u32) -> UnitId {
    TaskId(n)
}

/// A look at a vCPU's state, or a change of it.
fn with_unit<R>(world: &World<Credit2>, n: u32, f: impl FnOnce(&mut super::state::Unit) -> R) -> R {
    // SAFETY: one thread, and `f` reaches no platform.
    unsafe { world.p.write(&world.xen.unit(unit(n)).pol, f) }
}

/// The same of a runqueue.
fn with_rq<R>(world: &World<Credit2>, rq: usize, f: impl FnOnce(&mut super::state::Rq) -> R) -> R {
    // SAFETY: as in `with_unit`.
    unsafe { world.p.write(&world.xen.pools[0].rqs[rq].pol, f) }
}

/// Events of a kind, from the trace.
fn events<R>(world: &World<Credit2>, f: impl Fn(&XenEvent) -> Option<R>) -> Vec<(Time, CpuId, R)> {
    let log = world.log.0.borrow();
    log.iter().filter_map(|(at, cpu, e)| f(e).map(|r| (*at, *cpu, r))).collect()
}
