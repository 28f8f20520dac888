//! Tests of Credit2. Worlds are those of `xen/testing.rs`: the real generic layer, one thread, nothing takes time but computing.

mod shares;

use super::Credit2;
use crate::xen::features::XenFeatures;
use contend_machine::{Machine, Topology};

#[expect(dead_code)]
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

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
