//! Rings between domains: nothing is lost, a busy ring is silent, and nobody sleeps for ever.

use super::{ALL, kernel, run, setup};
use crate::common::{Does, MS, hog};
use contend_sched::xen::features::Scheduler;
use contend_sim::host::{Outcome, RunResult};
use contend_sim::kvm::Exit;
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, RingEnd, TaskSpec, Workload};

const BYTES: u32 = 65_536;

fn end(w: &mut Workload, end: RingEnd) -> ObjId {
    w.object("ring", ObjectKind::Ring { channel: 7, end, vcpu: 0, bytes: BYTES })
}

/// Sends `n` packets, computing for `gap` between them.
fn sender(n: u32, gap: u64) -> Workload {
    let mut w = Workload::default();
    let ring = end(&mut w, RingEnd::Front);
    let mut step = 0;
    w.task(TaskSpec::new(
        "sender",
        Does(move |cx: &mut Cx<'_>| {
            step += 1;
            match (step > 2 * n, step % 2) {
                (true, _) => Op::Exit,
                (_, 1) => Op::Run(gap),
                _ => {
                    cx.metrics.count("sent", 1);
                    Op::Write(ring, BYTES)
                }
            }
        }),
    ));
    w
}

/// Takes `n` packets, computing for `gap` after each.
fn receiver(n: u32, gap: u64) -> Workload {
    let mut w = Workload::default();
    let ring = end(&mut w, RingEnd::Back);
    let mut step = 0;
    w.task(TaskSpec::new(
        "receiver",
        Does(move |cx: &mut Cx<'_>| {
            step += 1;
            match (step > 2 * n, step % 2) {
                (true, _) => Op::Exit,
                (_, 1) => Op::Read(ring, BYTES),
                _ => {
                    cx.metrics.count("taken", 1);
                    Op::Run(gap)
                }
            }
        }),
    ));
    w
}

fn go(scheduler: Scheduler, n: u32, gaps: [u64; 2], hogs: usize) -> RunResult {
    let mut front = sender(n, gaps[0]);
    (0..hogs).for_each(|i| front.task(hog(&format!("hog{i}"), 5 * MS)));
    let r = run(setup("4c", scheduler, vec![kernel(0, 2, receiver(n, gaps[1])), kernel(1, 2, front)], 60_000 * MS));
    assert_eq!(r.outcome, Outcome::Finished, "{scheduler:?} {gaps:?}: {}", r.outcome.detail());
    r
}

fn hypercalls(r: &RunResult, guest: usize) -> u64 {
    r.guests[guest].vcpus.iter().map(|v| v.exits[Exit::Vmcall as usize]).sum()
}

#[test]
fn every_packet_arrives_whoever_is_slow() {
    for scheduler in ALL {
        for gaps in [[0, 0], [50_000, 0], [0, 50_000], [20_000, 20_000]] {
            for hogs in [0, 4] {
                let r = go(scheduler, 200, gaps, hogs);
                assert_eq!(r.guests[0].metrics.counts["taken"], 200, "{scheduler:?} {gaps:?}");
                assert_eq!(r.guests[1].metrics.counts["sent"], 200, "{scheduler:?} {gaps:?}");
            }
        }
    }
}

#[test]
fn the_slower_side_decides_the_pace() {
    let r = go(Scheduler::RoundRobin, 300, [0, 100_000], 0);
    assert!((30 * MS..40 * MS).contains(&r.virtual_ns), "{}", r.virtual_ns);
    let r = go(Scheduler::RoundRobin, 300, [100_000, 0], 0);
    assert!((30 * MS..40 * MS).contains(&r.virtual_ns), "{}", r.virtual_ns);
}

#[test]
fn a_busy_ring_is_silent() {
    // The receiver never runs dry: the sender tells it about the first packet alone.
    let r = go(Scheduler::RoundRobin, 300, [0, 100_000], 0);
    assert!(hypercalls(&r, 1) < 10, "{}", hypercalls(&r, 1));
    // Answers are told about once for half a ring; each packet is a copy besides.
    let told = hypercalls(&r, 0) - 300;
    assert!((300 / 14..300 / 4).contains(&told), "{told}");
    // It runs dry after each: each is told.
    let r = go(Scheduler::RoundRobin, 300, [100_000, 0], 0);
    assert!((290..=310).contains(&hypercalls(&r, 1)), "{}", hypercalls(&r, 1));
}

#[test]
fn what_was_written_far_away_costs_more_to_copy() {
    let time = |cpu: u16| {
        use super::{affinity, only};
        let mut domains = vec![kernel(0, 1, receiver(200, 0)), kernel(1, 1, sender(200, 200_000))];
        domains[0].affinity = vec![affinity(only(0), only(0))];
        domains[1].affinity = vec![affinity(only(cpu), only(cpu))];
        let r = run(setup("2n2c", Scheduler::RoundRobin, domains, 60_000 * MS));
        assert_eq!(r.outcome, Outcome::Finished);
        r.guests[0].vcpus[0].times.host
    };
    let (near, far) = (time(1), time(2));
    let m = contend_machine::Machine::synthetic("2n2c").expect("a shape").costs.cache;
    let more = 200 * 64 * (m.refill_remote_per_kib.value - m.refill_llc_per_kib.value);
    let found = far - near;
    assert!(found.abs_diff(more) < more / 10, "{found}, not {more}");
}
