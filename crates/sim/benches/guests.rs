//! Guests, as CPU-bound loops: `cargo bench -p contend-sim --bench guests` (or `make bench`).
//!
//! The counter says how many virtual microseconds a second were done. Compare figures of one run only.

use contend_machine::Machine;
use contend_sched::features::Preset;
use contend_sim::guest::{GuestSpec, Guests};
use contend_sim::host::{Limits, Setup, simulate};
use contend_sim::kvm::{DirectedYield, KvmFeatures};
use contend_sim::program::{Cx, GroupId, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};
use divan::counter::ItemsCount;

fn main() {
    divan::main();
}

/// Takes the one lock of its kernel for `hold` ns, then computes for `think` ns; for ever.
struct Locker {
    lock: ObjId,
    hold: u64,
    think: u64,
    locked: bool,
}

impl Program for Locker {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        self.locked = !self.locked;
        if self.locked { Op::kernel_lock(self.lock, self.hold) } else { Op::Run(self.think) }
    }
}

/// One guest whose tasks, one a vCPU, all want one lock.
fn run(machine: &str, vcpus: usize, spinlock: &str, (hold, think): (u64, u64), ms: u64, kvm: KvmFeatures) {
    let machine = Machine::load(machine).expect("a machine");
    let preset = Preset::find("linux-3.6").expect("it ships");
    let mut features = preset.features.clone();
    features.set("spinlock", spinlock).expect("a kind of lock");
    let mut workload = Workload::default();
    let lock = workload.object("lock", ObjectKind::SpinLock);
    for i in 0..vcpus {
        workload.task(TaskSpec::new(format!("t{i}"), Locker { lock, hold, think, locked: false }));
    }
    let guest = GuestSpec {
        name: "vm".into(),
        topology: Machine::synthetic(&format!("{vcpus}n1l1c1t")).expect("a topology").topology,
        policy: preset.policy,
        features,
        hz: 250,
        group: GroupId::ROOT,
        workload,
        pin: Vec::new(),
        background: false,
        memory: None,
    };
    let limits = Limits { horizon: ms * 1_000_000, ..Limits::default() };
    let guests = Guests { kvm, specs: vec![guest] };
    let setup = Setup { machine, features: preset.features, workload: Workload::default(), seed: 1, limits, guests };
    let r = simulate(preset.policy, setup, None, &mut |_| true).expect("memory for stacks");
    assert_eq!(r.virtual_ns, ms * 1_000_000);
}

/// 80 vCPUs on 80 CPUs, all but one of which spin, under the pause-loop handlers of 3.6.
#[divan::bench(args = ["3.6", "theurer"], sample_count = 3)]
fn pause_loop_storm(bencher: divan::Bencher, directed_yield: &str) {
    let directed_yield = if directed_yield == "3.6" { DirectedYield::V3_6 } else { DirectedYield::Theurer };
    let kvm = KvmFeatures { directed_yield, halt_poll_ns: 0, ple_window_grow: 0, ..KvmFeatures::default() };
    let go = || run("westmere-ex-4s-40c-80t", 80, "ticket", (10_000, 500_000), 20, kvm.clone());
    bencher.counter(ItemsCount::new(20_000_u64)).bench(go);
}

/// 60 vCPUs on 32 CPUs with a lock that is wanted most of the time.
#[divan::bench(args = ["pv-ticket", "pv-queued-2015", "unfair-queued"], sample_count = 3)]
fn overcommitted_locks(bencher: divan::Bencher, spinlock: &str) {
    let go = || run("haswell-ex-4s-32c", 60, spinlock, (2_000, 100_000), 50, KvmFeatures::default());
    bencher.counter(ItemsCount::new(50_000_u64)).bench(go);
}
