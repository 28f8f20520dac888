//! Random mixes of virtual machines: whatever runs beside whatever, all work is done, no interrupt is lost or invented, times add
//! up on both levels (the run asserts that), and the same mix gives the same run.

use crate::common::{MS, cpus, script};
use crate::guests::{guest, run};
use contend_platform::Account;
use contend_sim::guest::GuestSpec;
use contend_sim::host::{Outcome, RunResult};
use contend_sim::kvm::{DirectedYield, Exit, Kvm, KvmFeatures};
use contend_sim::program::{ObjectKind, Op, Workload};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const LOCKS: [&str; 8] =
    ["ticket", "queued", "unfair-byte", "pv-ticket", "pv-queued", "pv-queued-2015", "unfair-queued", "hybrid"];
const MACHINES: [&str; 5] = ["1c", "2c", "3c", "2n1l2c1t", "1n1l2c2t"];

fn pick<T: Copy>(rng: &mut Pcg64Mcg, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

/// Tasks that compute, lock, sleep, yield and hand counts round a ring of semaphores.
fn workload(rng: &mut Pcg64Mcg) -> (Workload, u64) {
    let mut w = Workload::default();
    let tasks = rng.random_range(1..6_usize);
    let lock = w.object("lock", ObjectKind::SpinLock);
    let mutex = w.object("mutex", ObjectKind::Mutex);
    let ring: Vec<_> = (0..tasks).map(|i| w.object(format!("ring{i}"), ObjectKind::Semaphore { initial: 1 })).collect();
    let mut locked = 0;
    for i in 0..tasks {
        let mut ops = Vec::new();
        for _ in 0..rng.random_range(5..40) {
            match rng.random_range(0..6) {
                0 => ops.push(Op::Run(rng.random_range(1_000..2_000_000))),
                1 => ops.push(Op::Sleep(rng.random_range(10_000..3 * MS))),
                2 => ops.push(Op::Yield),
                3 => {
                    locked += 1;
                    ops.push(Op::kernel_lock(lock, rng.random_range(100..60_000)));
                }
                4 => ops.extend([Op::Lock(mutex), Op::Run(rng.random_range(100..200_000)), Op::Unlock(mutex)]),
                // What it takes of its own it has given to the next first: the ring never runs dry.
                _ => ops.extend([Op::SemPost(ring[(i + 1) % tasks], 1)]),
            }
        }
        ops.push(Op::SemWait(ring[i]));
        w.task(script(&format!("t{i}"), ops));
    }
    (w, locked)
}

fn specs(seed: u64) -> (Vec<GuestSpec>, Vec<u64>) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut locked = Vec::new();
    let specs = (0..rng.random_range(1..4_usize))
        .map(|i| {
            let vcpus = rng.random_range(1..5);
            let (w, n) = workload(&mut rng);
            locked.push(n);
            let mut spec = guest(&format!("vm{i}"), vcpus, pick(&mut rng, &LOCKS), w);
            if rng.random_bool(0.3) {
                spec.pin = (0..vcpus).map(|_| cpus(&[0])).collect();
            }
            spec
        })
        .collect();
    (specs, locked)
}

fn mix(seed: u64) -> RunResult {
    let mut rng = Pcg64Mcg::seed_from_u64(!seed);
    let kvm = KvmFeatures {
        directed_yield: pick(&mut rng, DirectedYield::ALL),
        halt_poll_ns: pick(&mut rng, &[0, 200_000]),
        pv_kick_yield: rng.random_bool(0.5),
        pv_preempted: rng.random_bool(0.5),
        ple_window_shrink: pick(&mut rng, &[0, 2]),
        ..KvmFeatures::default()
    };
    run(pick(&mut rng, &MACHINES), kvm, specs(seed).0, 60_000 * MS)
}

#[test]
fn random_mixes_do_all_their_work_and_lose_nothing() {
    for seed in 0..60 {
        let r = mix(seed);
        assert_eq!(r.outcome, Outcome::Finished, "mix {seed}");
        for (g, locked) in std::iter::zip(&r.guests, specs(seed).1) {
            assert!(g.finished.is_some(), "mix {seed}: {}", g.name);
            let lock = g.locks.iter().find(|l| l.name == "lock").expect("the lock");
            assert_eq!(lock.stats.acquisitions, locked, "mix {seed}: {}", g.name);
        }
        let under_way = r.guests.iter().map(|g| g.vcpus.len()).sum::<usize>() as u64 * 4;
        let (sent, got) = (r.kvm[Kvm::IpisSent as usize], r.kvm[Kvm::IpisDelivered as usize]);
        assert!(got <= sent && sent - got <= under_way, "mix {seed}: {sent} sent, {got} delivered");
        // A host without programs of its own: what it does, it does for guests.
        let host = r.ledger();
        assert_eq!(host[Account::User as usize] + host[Account::Syscall as usize], 0, "mix {seed}");
        let exits: u64 = r.guests.iter().flat_map(|g| &g.vcpus).map(|v| v.exits[Exit::Pause as usize]).sum();
        assert_eq!(exits, r.kvm[Kvm::OnSpin as usize], "mix {seed}");
    }
}

#[test]
fn the_same_mix_gives_the_same_run() {
    for seed in 0..10 {
        let (a, b) = (mix(seed), mix(seed));
        assert_eq!((a.trace_hash, a.virtual_ns, a.kvm), (b.trace_hash, b.virtual_ns, b.kvm), "mix {seed}");
    }
}
