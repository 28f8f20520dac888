//! Tests of Credit1 over the real generic layer ([`crate::xen::testing`]).

mod shares;

use super::Credit1;
use crate::xen::features::XenFeatures;
use crate::xen::testing::{Dom, World};
use contend_machine::{Machine, Topology};
use contend_platform::{Nanos, Time};

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
