//! The ledger over time adds up to the ledger, interval by interval, and puts work where it was done.

use crate::common::{MS, hog, machine, preset, run_on, script};
use contend_platform::{Account, Nanos};
use contend_sim::host::RunResult;
use contend_sim::program::{Op, Workload};

fn run(on: &str, horizon: Nanos, fill: impl FnOnce(&mut Workload)) -> RunResult {
    let mut workload = Workload::default();
    fill(&mut workload);
    run_on(machine(on), &preset("linux-6.18"), workload, horizon)
}

/// Sums over intervals, CPUs and accounts are what they have to be.
fn adds_up(r: &RunResult, intervals_max: usize) {
    let t = &r.timeline;
    let n = (r.virtual_ns.div_ceil(t.width)) as usize;
    assert!(n <= intervals_max && n > intervals_max / 2 || t.width == 15_625, "{n} intervals of {}", t.width);
    assert_eq!(t.cpus.len(), r.cpus.len());
    for (cpu, (report, intervals)) in std::iter::zip(&r.cpus, &t.cpus).enumerate() {
        assert_eq!(intervals.len(), n, "cpu{cpu}");
        for (i, interval) in intervals.iter().enumerate() {
            let from = i as u64 * t.width;
            let length = (from + t.width).min(r.virtual_ns) - from;
            assert_eq!(interval.ledger.iter().sum::<Nanos>(), length, "cpu{cpu}, interval {i}");
        }
        for a in Account::ALL.iter().copied() {
            let sum = intervals.iter().map(|x| x.ledger[a as usize]).sum::<Nanos>();
            assert_eq!(sum, report.ledger[a as usize], "cpu{cpu}, {}", a.name());
        }
    }
}

#[test]
fn the_intervals_of_a_busy_run_add_up_to_its_ledger() {
    for horizon in [MS / 100, 3 * MS, 777 * MS + 123] {
        let r = run("2n2l4c2t", horizon, |w| {
            for i in 0..40u64 {
                let ops = (0..1_000)
                    .flat_map(|k| [Op::Run(1 + (i * 7_919 + k * 104_729) % 3_000_000), Op::Sleep(k * 997 % 90_000)]);
                w.task(script("t", ops.collect()));
            }
        });
        adds_up(&r, 256);
    }
}

#[test]
fn wide_machines_have_fewer_intervals() {
    let r = run("4n4l16c2t", 20 * MS, |w| (0..600).for_each(|_| w.task(hog("t", 30 * MS))));
    assert_eq!(r.cpus.len(), 512, "more than 256");
    adds_up(&r, 128);
}

#[test]
fn a_long_computation_lies_where_it_ran() {
    // 100 ms of sleep, then 4 ms in one piece: in the intervals of those 4 ms the CPU computes, and nowhere else.
    let r = run("1c", 500 * MS, |w| w.task(script("t", vec![Op::Sleep(100 * MS), Op::Run(4 * MS)])));
    adds_up(&r, 256);
    let busy: Vec<_> = r.timeline.cpus[0].iter().map(|i| i.ledger[Account::User as usize]).collect();
    let total = busy.iter().sum::<Nanos>();
    assert!((4 * MS..5 * MS).contains(&total), "{total}");
    let (first, last) = (busy.iter().position(|ns| *ns > 0).unwrap(), busy.iter().rposition(|ns| *ns > 0).unwrap());
    let width = r.timeline.width;
    assert_eq!(first as u64, 100 * MS / width, "began in the interval in which the sleep ended");
    assert!((last - first) as u64 <= 4 * MS / width + 1, "{first} to {last} of {width} ns");
}

#[test]
fn the_queue_is_as_long_as_there_are_tasks() {
    // Three that always can run on one CPU, for half of the time.
    let r = run("1c", 400 * MS, |w| (0..3).for_each(|_| w.task(hog("t", 60 * MS))));
    let t = &r.timeline;
    assert!(t.has_queues);
    let mean = |i: usize| t.cpus[0][i].runnable as f64 / t.width as f64;
    let early = t.cpus[0].len() / 8;
    assert!((mean(early) - 3.0).abs() < 0.01, "{}", mean(early));
    // What was runnable ran or waited: three times 60 ms of work end at most 180 ms and a bit after the start.
    let sum = t.cpus[0].iter().map(|i| i.runnable).sum::<Nanos>();
    let ran_or_waited = r.tasks.iter().map(|t| t.run.sum_exec + t.run.wait_sum).sum::<Nanos>();
    assert!(sum.abs_diff(ran_or_waited) < MS, "{sum} against {ran_or_waited}");
}
