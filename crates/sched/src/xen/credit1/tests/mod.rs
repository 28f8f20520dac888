//! Tests of Credit1 over the real generic layer ([`crate::xen::testing`]).

mod affinity;
mod mixes;
mod shares;
mod stealing;
mod wakeups;

use super::{Credit1, Vcpu};
use crate::xen::contract::{Lend, UnitId};
use crate::xen::event::XenEvent;
use crate::xen::features::XenFeatures;
use crate::xen::mask::CpuMask;
use crate::xen::testing::{Dom, World};
use crate::xen::units::VcpuAffinity;
use contend_machine::{Machine, Topology};
use contend_platform::{CpuId, Nanos, TaskId, Time};

const MS: Nanos = 1_000_000;
const SECOND: Time = 1_000_000_000;

fn topo(shape: &str) -> Topology {
    Machine::synthetic(shape).unwrap().topology
}

/// Base with some switches changed.
fn features(set: &[(&str, &str)]) -> XenFeatures {
    let mut features = XenFeatures::default();
    set.iter().for_each(|(key, value)| features.set(key, value).unwrap());
    features
}

fn preset(name: &str) -> XenFeatures {
    XenFeatures::preset(name).unwrap()
}

fn world(shape: &str, features: &XenFeatures, doms: Vec<Dom>) -> World<Credit1> {
    World::new(&topo(shape), Credit1::new(features), doms)
}

/// A share in per cent of what it should be.
fn percent(is: Nanos, of: Nanos) -> f64 {
    100.0 * is as f64 / of as f64
}

fn cpus(list: &[u16]) -> CpuMask {
    list.iter().map(|c| CpuId(*c)).collect()
}

/// Wake a vCPU that sleeps, from the pCPU that it is assigned to.
fn wake(world: &World<Credit1>, unit: UnitId) {
    assert!(world.on(world.xen.unit(unit).processor()).xen.unblock(&world.p, unit), "it slept");
    world.softirqs();
}

/// Set a vCPU's affinities; it moves if it must.
fn affine(world: &World<Credit1>, unit: UnitId, hard: CpuMask, soft: CpuMask) {
    world.on(CpuId(0)).xen.set_affinity(&world.p, unit, VcpuAffinity { hard, soft });
    world.softirqs();
}

/// Assign a sleeping vCPU to a pCPU.
fn put(world: &World<Credit1>, unit: UnitId, cpu: CpuId) {
    let now = world.xen.unit(unit).affinity();
    affine(world, unit, CpuMask::only(cpu), now.soft);
    affine(world, unit, now.hard, now.soft);
    assert_eq!(world.xen.unit(unit).processor(), cpu);
}

/// Look at, or change, what Credit1 keeps of a vCPU.
fn state<R>(world: &World<Credit1>, unit: UnitId, f: impl FnOnce(&mut Vcpu) -> R) -> R {
    let cx = world.cx(false);
    let rq = cx.lock_unit(unit);
    let r = cx.with_unit(unit, f);
    cx.unlock(rq);
    r
}

/// Trace records that are wanted.
fn events<T>(world: &World<Credit1>, wanted: impl Fn(&XenEvent) -> Option<T>) -> Vec<T> {
    world.log.0.borrow().iter().filter_map(|(_, _, event)| wanted(event)).collect()
}

/// Forget the trace so far.
fn forget(world: &World<Credit1>) {
    world.log.0.borrow_mut().clear();
}
