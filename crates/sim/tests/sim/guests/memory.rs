//! A guest's memory lies on a node: how far its vCPUs run from it decides how fast they compute.

use super::{guest, hogs, kvm, run};
use crate::common::{MS, cpus};
use contend_machine::Machine;
use contend_platform::Account;
use contend_sim::guest::Memory;
use contend_sim::host::{Outcome, RunResult};
use contend_sim::kvm::DirectedYield;

const ON: &str = "2n2c";
const STALL_PCT: u32 = 30;

/// Two tasks that compute for 40 ms each, in a guest on `pins` with its memory as said.
fn went(pins: &[usize], memory: Option<Memory>) -> RunResult {
    let mut spec = guest("vm", 2, "ticket", hogs(2, 40 * MS));
    spec.pin = pins.iter().map(|p| cpus(&[*p])).collect();
    spec.memory = memory;
    let r = run(ON, kvm(DirectedYield::V3_6), vec![spec], 1000 * MS);
    assert_eq!(r.outcome, Outcome::Finished);
    r
}

fn user(r: &RunResult) -> u64 {
    r.guests[0].vcpus.iter().map(|v| v.ledger[Account::User as usize]).sum()
}

fn on_node(node: usize) -> Option<Memory> {
    Some(Memory { node, stall_pct: STALL_PCT })
}

/// 1 + share x (remote / local - 1), of `ns`.
fn slower(ns: u64) -> u64 {
    let m = Machine::synthetic(ON).expect("a shape").costs.memory;
    let (local, remote) = (m.local.value, m.remote[0].value);
    assert!(remote > local);
    ns + ns * u64::from(STALL_PCT) * (remote - local) / (100 * local)
}

#[test]
fn on_its_node_a_guest_is_as_fast_as_one_without_a_node() {
    let (here, nowhere) = (went(&[0, 1], on_node(0)), went(&[0, 1], None));
    assert_eq!((here.trace_hash, here.virtual_ns), (nowhere.trace_hash, nowhere.virtual_ns));
}

#[test]
fn off_its_node_a_guest_computes_longer_by_the_share_that_waits() {
    let (near, far) = (user(&went(&[2, 3], on_node(1))), user(&went(&[2, 3], on_node(0))));
    assert!(near.abs_diff(80 * MS) < 100, "{near}");
    // Each interrupt rounds up to a whole ns.
    assert!(far.abs_diff(slower(80 * MS)) < 100, "{far}, not {}", slower(80 * MS));
}

#[test]
fn each_vcpu_is_as_fast_as_where_it_runs() {
    let r = went(&[1, 2], on_node(0));
    let [near, far] = [0, 1].map(|v: usize| r.guests[0].vcpus[v].ledger[Account::User as usize]);
    assert!(near.abs_diff(40 * MS) < 100 && far.abs_diff(slower(40 * MS)) < 100, "{near} {far}");
}
