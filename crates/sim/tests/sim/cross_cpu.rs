//! Rendezvous and shootdowns: CPUs that wait for one another in the kernel.

use crate::common::{MS, cpus, machine, preset, run_on, script, task};
use contend_platform::Account;
use contend_sim::host::{Outcome, RunResult};
use contend_sim::program::{ObjectKind, Op, TaskSpec, Workload};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const PRESETS: [&str; 4] = ["linux-2.6.37", "linux-3.6", "linux-5.2", "linux-6.18"];

fn end(w: Workload, machine_name: &str, preset_name: &str) -> RunResult {
    run_on(machine(machine_name), &preset(preset_name), w, 10_000 * MS)
}

fn spun(r: &RunResult) -> u64 {
    r.ledger()[Account::SpinLock as usize]
}

fn pinned(mut t: TaskSpec, cpu: usize) -> TaskSpec {
    t.affinity = Some(cpus(&[cpu]));
    t
}

#[test]
fn nobody_leaves_a_rendezvous_before_all_have_come() {
    for preset in PRESETS {
        let mut w = Workload::default();
        let at = w.object("at", ObjectKind::Rendezvous { parties: 4 });
        let arrived = Arc::new(AtomicU32::new(0));
        // Twenty generations; each time another comes last.
        for cpu in 0..4 {
            let arrived = Arc::clone(&arrived);
            let (mut round, mut computed) = (0, true);
            let t = task(&format!("t{cpu}"), move |_| {
                computed = !computed;
                if computed {
                    arrived.fetch_add(1, Relaxed);
                    return Op::Rendezvous(at);
                }
                assert!(arrived.load(Relaxed) >= 4 * round, "round {round}");
                round += 1;
                if round > 20 { Op::Exit } else { Op::Run(if round % 4 == cpu { 500_000 } else { 1_000 }) }
            });
            w.task(pinned(t, cpu as usize));
        }
        let r = end(w, "4c", preset);
        assert_eq!(r.outcome, Outcome::Finished, "{preset}");
        // Three wait for the fourth, about half a millisecond each time.
        let each = spun(&r) / (20 * 3);
        assert!((480_000..520_000).contains(&each), "{each}");
        assert!(r.virtual_ns > 20 * 500_000 && r.virtual_ns < 21 * 500_000, "{}", r.virtual_ns);
    }
}

#[test]
fn a_rendezvous_of_one_waits_for_nobody() {
    let mut w = Workload::default();
    let at = w.object("at", ObjectKind::Rendezvous { parties: 1 });
    w.task(script("alone", vec![Op::Rendezvous(at), Op::Rendezvous(at)]));
    let r = end(w, "1c", "linux-6.18");
    assert_eq!((r.outcome.clone(), spun(&r)), (Outcome::Finished, 0));
}

#[test]
fn who_waits_at_a_rendezvous_for_ever_is_named() {
    let mut w = Workload::default();
    let at = w.object("at", ObjectKind::Rendezvous { parties: 3 });
    (0..2).for_each(|i| w.task(pinned(script(&format!("t{i}"), vec![Op::Rendezvous(at)]), i)));
    let r = end(w, "2c", "linux-6.18");
    assert_eq!(r.outcome.name(), "deadlock");
    let said = r.outcome.detail();
    assert!(said.contains("t0 (task 0) waits for rendezvous at (2 of 3 have arrived)"), "{said}");
}

/// Tasks of one address space on as many CPUs as given, the first of which shoots down `n` times.
fn shooting(spaces: &[u32], senders: usize, n: usize, machine: &str, preset: &str) -> RunResult {
    let mut w = Workload::default();
    let ids = [0, 1].map(|i| w.object(format!("space{i}"), ObjectKind::AddressSpace));
    for (cpu, space) in spaces.iter().enumerate() {
        let space = ids[*space as usize];
        let mut ops = vec![Op::Join(space)];
        for _ in 0..n {
            ops.push(Op::Run(20_000));
            ops.push(if cpu < senders { Op::Shootdown } else { Op::Run(1_000) });
        }
        // The others run on while the senders send.
        ops.push(Op::Run(if cpu < senders { 0 } else { n as u64 * 40_000 }));
        w.task(pinned(script(&format!("t{cpu}"), ops), cpu));
    }
    let r = end(w, machine, preset);
    assert_eq!(r.outcome, Outcome::Finished);
    r
}

#[test]
fn a_shootdown_interrupts_the_others_of_the_address_space_and_nobody_else() {
    for preset in PRESETS {
        // One sender; two others share its space, one does not; four CPUs idle.
        let r = shooting(&[0, 0, 0, 1], 1, 50, "8c", preset);
        let none = shooting(&[0, 1, 1, 1], 1, 50, "8c", preset);
        // All run at 20 us in each round; each round has two IPIs.
        let more = r.counts.ipis - none.counts.ipis;
        assert!((100..=104).contains(&more), "{preset}: {} and {}", r.counts.ipis, none.counts.ipis);
        assert!(spun(&none) < 1000, "{}", spun(&none));
        // An interrupt there and an answer back, some microseconds.
        let each = spun(&r) / 50;
        assert!((500..20_000).contains(&each), "{each}");
    }
}

#[test]
fn those_who_shoot_at_one_another_answer_while_they_wait() {
    for preset in PRESETS {
        for machine in ["2c", "2n4c", "1n1l4c2t"] {
            let cpus = crate::common::machine(machine).topology.nr_cpus();
            let r = shooting(&vec![0; cpus], cpus, 200, machine, preset);
            // Nobody's work takes longer than so many answers.
            assert!(r.virtual_ns < 200 * 1_000_000, "{preset} {machine}: {}", r.virtual_ns);
        }
    }
}
