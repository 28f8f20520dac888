//! Shares by weight, and caps, over 10 virtual seconds.

use super::*;
use crate::xen::testing::{Dom, Load, World};

const SETS: [&str; 3] = ["base", "patched", "upstream-today"];

#[test]
fn weights_give_shares() {
    for set in SETS {
        let policy = credit2(set, &[("credit2_runqueue", "all")]);
        let doms = [256, 512, 1024].map(|w| Dom::new(w, 0, 4, Load::BURNER));
        let mut world = World::new(&topo("1n1l4c1t"), policy, doms.into());
        world.run_until(10 * S);
        let total: u64 = (1..=3).map(|d| world.dom_ran(d)).sum();
        assert_eq!(total, 40 * S, "{set}: no pCPU idles");
        for (dom, weight) in [(1, 256.0), (2, 512.0), (3, 1024.0)] {
            let (share, due) = (world.dom_ran(dom) as f64 / total as f64, weight / 1792.0);
            assert!((share / due - 1.0).abs() < 0.01, "{set}: domain {dom} had {share:.4}, due {due:.4}");
        }
    }
}
