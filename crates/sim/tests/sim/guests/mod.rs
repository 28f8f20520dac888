//! Virtual machines: their time, their interrupts, their locks, whatever the host does to their CPUs.

mod memory;
mod mixes;

use crate::common::{MS, cpus, hog, machine, preset, script, task};
use contend_machine::Machine;
use contend_platform::Account;
use contend_sched::features::Features;
use contend_sim::guest::{GuestSpec, Guests};
use contend_sim::host::{Limits, Outcome, RunResult, Setup, simulate};
use contend_sim::kvm::{DirectedYield, Exit, Kvm, KvmFeatures};
use contend_sim::program::{GroupId, ObjectKind, Op, Workload};

/// A guest with a socket for each vCPU.
pub fn guest(name: &str, vcpus: usize, spinlock: &str, workload: Workload) -> GuestSpec {
    let p = preset("linux-3.6");
    let mut features = p.features;
    features.set("spinlock", spinlock).expect("a kind of lock");
    GuestSpec {
        name: name.into(),
        topology: Machine::synthetic(&format!("{vcpus}n1l1c1t")).expect("a topology").topology,
        policy: p.policy,
        features,
        hz: 250,
        group: GroupId::ROOT,
        workload,
        pin: Vec::new(),
        background: false,
        memory: None,
    }
}

/// Run guests on a machine.
pub fn run(on: &str, kvm: KvmFeatures, specs: Vec<GuestSpec>, horizon: u64) -> RunResult {
    run_within(on, kvm, specs, Limits { horizon, ..Limits::default() })
}

fn run_within(on: &str, kvm: KvmFeatures, specs: Vec<GuestSpec>, limits: Limits) -> RunResult {
    let p = preset("linux-3.6");
    let features: Features = p.features;
    let guests = Guests { kvm, specs };
    let setup = Setup { machine: machine(on), features, workload: Workload::default(), seed: 1, limits, guests };
    simulate(p.policy, setup, None, &mut |_| true).expect("stacks")
}

fn kvm(directed_yield: DirectedYield) -> KvmFeatures {
    KvmFeatures { directed_yield, halt_poll_ns: 0, ..KvmFeatures::default() }
}

fn hogs(n: usize, ns: u64) -> Workload {
    let mut w = Workload::default();
    (0..n).for_each(|i| w.task(hog(&format!("hog{i}"), ns)));
    w
}

/// Tasks that take one kernel lock again and again.
fn lockers(n: usize, times: u32, hold: u64, think: u64) -> Workload {
    let mut w = Workload::default();
    let lock = w.object("lock", ObjectKind::SpinLock);
    for i in 0..n {
        let ops = (0..times).flat_map(|_| [Op::kernel_lock(lock, hold), Op::Run(think)]).collect();
        w.task(script(&format!("locker{i}"), ops));
    }
    w
}

fn stolen(r: &RunResult, guest: usize) -> u64 {
    r.guests[guest].vcpus.iter().map(|v| v.times.stolen).sum()
}

/// Longer than anybody may be runnable without running: a halted vCPU has a timer.
#[test]
fn a_guest_may_sleep_for_long() {
    let mut w = Workload::default();
    w.task(script("sleeper", vec![Op::Run(1000), Op::Sleep(100_000 * MS), Op::Run(1000)]));
    let r = run("2c", KvmFeatures::default(), vec![guest("a", 1, "ticket", w)], 200_000 * MS);
    assert_eq!(r.outcome, Outcome::Finished);
    assert!(r.virtual_ns > 100_000 * MS);
}

#[test]
fn a_guest_alone_runs_nearly_as_fast_as_its_host() {
    let r = run("2c", kvm(DirectedYield::V3_6), vec![guest("vm", 2, "ticket", hogs(2, 50 * MS))], 1000 * MS);
    assert_eq!(r.outcome, Outcome::Finished);
    assert!((50 * MS..54 * MS).contains(&r.virtual_ns), "{} ns", r.virtual_ns);
    let user: u64 = r.guests[0].vcpus.iter().map(|v| v.ledger[Account::User as usize]).sum();
    assert!((100 * MS..101 * MS).contains(&user), "{user}");
}

#[test]
fn two_vcpus_on_one_cpu_are_each_stolen_half_their_time() {
    let r = run("1c", kvm(DirectedYield::V3_6), vec![guest("vm", 2, "ticket", hogs(2, 100 * MS))], 1000 * MS);
    assert_eq!(r.outcome, Outcome::Finished);
    assert!((200 * MS..215 * MS).contains(&r.virtual_ns), "{} ns", r.virtual_ns);
    let stolen = stolen(&r, 0) as f64 / r.virtual_ns as f64;
    assert!((0.9..1.02).contains(&stolen), "{stolen}");
}

#[test]
fn steal_time_is_what_the_hosts_scheduler_made_the_threads_wait() {
    let specs =
        vec![guest("a", 3, "ticket", lockers(3, 400, 2_000, 20_000)), guest("b", 2, "ticket", hogs(2, 30 * MS))];
    let r = run("2c", kvm(DirectedYield::Theurer), specs, 1000 * MS);
    assert_eq!(r.outcome, Outcome::Finished);
    let vcpus: Vec<_> = r.guests.iter().flat_map(|g| &g.vcpus).collect();
    assert_eq!(vcpus.len(), r.tasks.len());
    for (v, t) in std::iter::zip(vcpus, &r.tasks) {
        // The scheduler counts a wait when it ends, and the first begins before the vCPU exists.
        let off = v.times.stolen.abs_diff(t.run.wait_sum);
        assert!(off < 8 * MS, "{}: stolen {} ns, waited {} ns", t.name, v.times.stolen, t.run.wait_sum);
    }
}

#[test]
fn wake_ups_between_vcpus_lose_and_invent_no_interrupt() {
    for halt_poll_ns in [0, 200_000] {
        let mut w = Workload::default();
        let there = w.object("there", ObjectKind::Semaphore { initial: 0 });
        let back = w.object("back", ObjectKind::Semaphore { initial: 0 });
        let ping = (0..500).flat_map(|_| [Op::SemPost(there, 1), Op::SemWait(back), Op::Run(5_000)]).collect();
        let pong = (0..500).flat_map(|_| [Op::SemWait(there), Op::Run(5_000), Op::SemPost(back, 1)]).collect();
        w.task(script("ping", ping));
        w.task(script("pong", pong));
        let features = KvmFeatures { halt_poll_ns, ..kvm(DirectedYield::V3_6) };
        let r = run("2c", features, vec![guest("vm", 2, "ticket", w)], 1000 * MS);
        assert_eq!(r.outcome, Outcome::Finished);
        let (sent, got) = (r.kvm[Kvm::IpisSent as usize], r.kvm[Kvm::IpisDelivered as usize]);
        assert!(sent > 100 && sent - got <= 2, "{sent} sent, {got} delivered, the last may be under way");
        let polled = r.kvm[Kvm::HaltAttemptedPoll as usize];
        assert_eq!(polled > 0, halt_poll_ns > 0, "{polled}");
    }
}

/// A halted vCPU polls only while nobody else wants its CPU: beside a hog it computes as if it did not poll.
#[test]
fn nobody_polls_beside_a_runnable_task() {
    let polled = |on: &str, halt_poll_ns| {
        let ops = (0..2000).flat_map(|_| [Op::Run(50_000), Op::Sleep(100_000)]).collect();
        let mut w = Workload::default();
        w.task(script("periodic", ops));
        let features = KvmFeatures { halt_poll_ns, ..kvm(DirectedYield::V3_6) };
        let specs = vec![guest("periodic", 1, "ticket", w), guest("hog", 1, "ticket", hogs(1, 300 * MS))];
        let r = run(on, features, specs, 300 * MS);
        let ns = |what: Kvm| r.kvm[what as usize];
        (ns(Kvm::HaltPollSuccessNs) + ns(Kvm::HaltPollFailNs), r.guests[0].vcpus[0].times.stolen)
    };
    let (alone, _) = polled("2c", 200_000);
    assert!(alone > 50 * MS, "{alone}: a CPU of its own");
    let (crowded, stolen) = polled("1c", 200_000);
    assert!(crowded < MS, "{crowded}: polled beside the hog");
    let (none, stolen_without) = polled("1c", 0);
    assert_eq!(none, 0);
    assert!(stolen.abs_diff(stolen_without) < 15 * MS, "{stolen}, {stolen_without}");
}

#[test]
fn every_lock_works_in_guests_whose_vcpus_lose_their_cpus() {
    let kinds = [
        "ticket",
        "queued",
        "unfair-byte",
        "pv-ticket",
        "pv-queued",
        "pv-queued-2015",
        "unfair-queued",
        "hybrid",
        "mcs",
        "adaptive",
    ];
    for kind in kinds {
        for pinned in [false, true] {
            let mut a = guest("a", 4, kind, lockers(4, 300, 3_000, 6_000));
            if pinned {
                a.pin = (0..4).map(|i| cpus(&[i % 2])).collect();
            }
            let b = guest("b", 2, kind, lockers(2, 300, 3_000, 6_000));
            let r = run("2c", kvm(DirectedYield::Theurer), vec![a, b], 20_000 * MS);
            assert_eq!(r.outcome, Outcome::Finished, "{kind}");
            let lock = r.guests[0].locks.iter().find(|l| l.name == "lock").expect("the lock");
            assert_eq!(lock.stats.acquisitions, 1200, "{kind}");
        }
    }
}

#[test]
fn events_of_a_guest_s_locks_in_the_warm_up_do_not_count() {
    let go = |warmup| {
        let mut w = lockers(4, 100, 100_000, 10_000);
        w.task(hog("hog", 300 * MS));
        let limits = Limits { warmup, ..Limits::default() };
        run_within("2c", kvm(DirectedYield::Theurer), vec![guest("vm", 4, "pv-queued", w)], limits)
    };
    let events = |r: &RunResult| r.guests[0].metrics.counts.clone();
    let all = go(0);
    let exits: Vec<_> =
        all.guests[0].tasks.iter().filter(|t| t.name != "hog").map(|t| t.exited.expect("lockers end")).collect();
    let (first, last) = (exits.iter().min().expect("some"), *exits.iter().max().expect("some"));
    assert!(last < all.virtual_ns, "the hog goes on");
    // All four are at it until the first of them ends.
    let half = go(first / 2);
    let sum = |r: &RunResult| events(r).values().sum::<u64>();
    assert!(0 < sum(&half) && sum(&half) < sum(&all), "{} of {}", sum(&half), sum(&all));
    let none = go(last);
    assert!(events(&none).is_empty(), "{:?}", events(&none));
    assert_eq!(all.trace_hash, none.trace_hash, "counting changes nothing");
}

#[test]
fn every_way_to_yield_ends() {
    for &y in DirectedYield::ALL {
        let spec = |name: &str| guest(name, 4, "ticket", lockers(4, 200, 5_000, 5_000));
        let r = run("4c", kvm(y), vec![spec("a"), spec("b")], 60_000 * MS);
        assert_eq!(r.outcome, Outcome::Finished, "{y:?}");
        let pauses: u64 = r.guests.iter().flat_map(|g| &g.vcpus).map(|v| v.exits[Exit::Pause as usize]).sum();
        assert_eq!(pauses > 0, y != DirectedYield::PleOff, "{y:?}: {pauses}");
        assert_eq!(pauses, r.kvm[Kvm::OnSpin as usize], "{y:?}");
    }
}

#[test]
fn the_same_run_twice_is_the_same() {
    let specs = || {
        vec![guest("a", 4, "pv-queued-2015", lockers(4, 100, 3_000, 6_000)), guest("b", 3, "hybrid", hogs(3, 9 * MS))]
    };
    let go = || run("2c", KvmFeatures::default(), specs(), 10_000 * MS);
    let (a, b) = (go(), go());
    assert_eq!((a.trace_hash, a.virtual_ns, a.kvm), (b.trace_hash, b.virtual_ns, b.kvm));
    assert_eq!(
        a.guests.iter().map(|g| &g.vcpus).collect::<Vec<_>>(),
        b.guests.iter().map(|g| &g.vcpus).collect::<Vec<_>>()
    );
}

#[test]
fn a_guest_that_deadlocks_is_reported_with_the_waiters_of_both_levels() {
    let mut w = Workload::default();
    let never = w.object("never", ObjectKind::Semaphore { initial: 0 });
    w.task(script("waiter", vec![Op::SemWait(never)]));
    let r = run("1c", kvm(DirectedYield::V3_6), vec![guest("vm", 2, "ticket", w)], 10_000 * MS);
    let Outcome::Deadlock(who) = &r.outcome else { panic!("{:?}", r.outcome) };
    let all = who.join("\n");
    assert!(all.contains("vm: waiter") && all.contains("a post to never"), "{all}");
    assert!(all.contains("vm/0") && all.contains("halted"), "{all}");
}

#[test]
fn a_guest_program_that_sleeps_is_woken_by_its_own_timer() {
    let mut w = Workload::default();
    let mut n = 0;
    w.task(task("sleeper", move |cx| {
        n += 1;
        if n > 10 {
            return Op::Exit;
        }
        assert_eq!(cx.now / (3 * MS), n - 1, "after {} sleeps", n - 1);
        Op::SleepUntil(n * 3 * MS)
    }));
    let r = run("1c", kvm(DirectedYield::V3_6), vec![guest("vm", 1, "ticket", w)], 1000 * MS);
    assert_eq!(r.outcome, Outcome::Finished);
    assert!((30 * MS..31 * MS).contains(&r.virtual_ns), "{}", r.virtual_ns);
    assert!(r.guests[0].vcpus[0].times.halted > 28 * MS);
}
