//! try_to_wake_up by era (mechanisms B): which locks, which interrupts, when a wake-up is queued; avg_idle.

use crate::common::{MS, Stage, machine, preset, run_with, stage, task};
use contend_platform::Ordering::{Relaxed, Release};
use contend_platform::Platform;
use contend_sched::features::{Features, IdleSearch, WakeAffine};
use contend_sched::pelt::Average;
use contend_sched::rq::{NEED_RESCHED, POLLING};
use contend_sim::program::{ObjectKind, Op, Workload};

/// The wakee goes where it was, without a search.
fn home(name: &str) -> Features {
    Features {
        wake_affine: WakeAffine::Off,
        idle_search: IdleSearch::None,
        idle_polling: false,
        ..preset(name).features
    }
}

/// Was the wake-up of a sleeper of `prev` queued there, rather than done with that CPU's lock?
fn queued(s: &Stage, prev: usize) -> bool {
    let locks = s.locked(prev);
    s.wake_from(prev);
    let queued = !s.kernel.rqs[prev].wake_list.is_empty(&s.p);
    assert_eq!(s.locked(prev) - locks, u64::from(!queued), "queued, or the lock taken once");
    if queued {
        assert_eq!(s.p.load(&s.kernel.rqs[prev].ttwu_pending, Relaxed), 1);
    }
    queued
}

/// 3.0: to every other CPU. 3.3: to other caches. 6.0: also to CPUs of the own cache with nothing to run.
#[test]
fn who_is_queued_to() {
    // CPUs 0 to 3 share a cache, 4 to 7 another.
    for (name, near_busy, near_idle, far_busy, far_idle) in [
        ("linux-3.0", true, true, true, true),
        ("linux-3.6", false, false, true, true),
        ("linux-5.2", false, false, true, true),
        ("linux-5.8", false, false, true, true),
        ("linux-6.0", false, true, true, true),
        ("linux-6.18", false, true, true, true),
    ] {
        stage("1n2l4c", home(name), false, move |s| {
            s.idle_only(&[2, 6]);
            assert_eq!(queued(s, 1), near_busy, "{name}: near, busy");
            assert_eq!(queued(s, 2), near_idle, "{name}: near, idle");
            assert_eq!(queued(s, 5), far_busy, "{name}: far, busy");
            assert_eq!(queued(s, 6), far_idle, "{name}: far, idle");
            assert!(!queued(s, 0), "{name}: never to itself");
        });
    }
}

/// 5.8 and later: a wakee that is still switching out is queued to that CPU without a search, unless others run there.
#[test]
fn a_wakee_still_on_its_cpu() {
    for (name, nr, queues) in [("linux-5.8", 1, true), ("linux-6.0", 0, true)] {
        let f = Features { idle_search: IdleSearch::V5_2, sis_core: false, ..home(name) };
        stage("4c", f, false, move |s| {
            s.idle_only(&[1]);
            s.busy(2, nr);
            let t = s.sleeper(2);
            s.p.store(&s.kernel.task(t).on_cpu, 1, Release);
            assert_eq!(s.wake(t, 0), (2, 0), "{name}: no search, although CPU 1 is idle");
            assert_eq!(!s.kernel.rqs[2].wake_list.is_empty(&s.p), queues);
        });
    }
}

/// One interrupt a batch; none for a CPU that polls its flag.
#[test]
fn the_first_of_a_batch_interrupts() {
    stage("4c", home("linux-3.0"), false, |s| {
        s.idle_only(&[]);
        let before = s.counts().ipis;
        (0..5).for_each(|_| assert!(queued(s, 2)));
        assert_eq!(s.counts().ipis - before, 1);
    });
    stage("4c", Features { idle_polling: true, ..home("linux-6.0") }, false, |s| {
        s.idle_only(&[2]);
        s.p.store(&s.kernel.rqs[2].resched, POLLING, Release);
        let before = s.counts().ipis;
        assert!(queued(s, 2));
        assert_eq!(s.counts().ipis, before, "sched_wake_idle_without_ipi");
        assert_eq!(s.p.load(&s.kernel.rqs[2].resched, Relaxed), POLLING | NEED_RESCHED);
    });
}

/// 2.6.37: the lock of the CPU the task ran on, the search under it, then the lock of the chosen CPU. 3.6: only the latter.
#[test]
fn locks_of_a_wake_up_that_moves() {
    for (name, old, new) in [("linux-2.6.37", 1, 1), ("linux-3.6", 0, 1)] {
        stage("4c", Features { idle_search: IdleSearch::V2_6_37, ..home(name) }, false, move |s| {
            s.idle_only(&[1]);
            let (l1, l3) = (s.locked(1), s.locked(3));
            assert_eq!(s.wake_from(3).0, 1);
            assert_eq!((s.locked(3) - l3, s.locked(1) - l1), (old, new), "{name}");
        });
    }
}

/// avg_idle: an eighth of the difference, capped at 1 ms; before 5.x a period above the cap goes there at once.
#[test]
fn avg_idle() {
    for (name, long) in [("linux-3.6", MS), ("linux-5.2", 400_000 + (3 * MS - 400_000) / 8)] {
        stage("4c", home(name), false, move |s| {
            let word = &s.kernel.rqs[2].avg_idle;
            let idle_for = |ns: u64| {
                s.idle_only(&[2]);
                s.p.store(word, 400_000, Release);
                s.pass(10 * MS);
                // SAFETY: nobody else runs on this stage.
                unsafe { s.p.write(&s.kernel.rqs[2].data, |rd| rd.idle_stamp = s.p.now() - ns) };
                s.wake_from(2);
                s.p.load(word, Relaxed)
            };
            assert_eq!(s.p.load(word, Relaxed), MS, "initially");
            // The wake-up itself takes a few microseconds.
            let close = |got: u64, want: u64| assert!(got.abs_diff(want) < 1000, "{name}: {got}, not {want}");
            close(idle_for(240_000), 380_000);
            close(idle_for(3 * MS), long);
            close(idle_for(9 * MS), MS);
        });
    }
}

/// A task that is woken to another CPU takes its share of load_avg and util_avg out of the queue that it slept on, where that is next
/// changed (`cfs_rq->removed`).
#[test]
fn averages_move_with_the_task() {
    for name in ["linux-6.0", "linux-6.18"] {
        stage("4c", Features { idle_search: IdleSearch::V2_6_37, ..home(name) }, false, move |s| {
            let now = s.p.now();
            let rq = &s.kernel.rqs[3];
            let others = 300;
            // SAFETY: nobody else runs on this stage.
            let averages = || unsafe { s.p.read(&rq.data, |rd| (rd.load.get(), rd.util.get())) };
            let task = s.sleeper(3);
            let (load, util) = (Average::new(1024 + others, now), Average::new(600 + others, now));
            // SAFETY: as above.
            unsafe {
                s.p.write(&s.kernel.task(task).ent, |e| {
                    (e.load, e.slept_load, e.util) = (Average::new(1024, now), 1024, Average::new(600, now));
                });
                s.p.write(&rq.data, |rd| (rd.load, rd.util) = (load, util));
            }
            s.p.store(&rq.util, util.pack(), Relaxed);
            s.pass(10 * MS);
            s.idle_only(&[1]);
            assert_eq!(s.wake(task, 0).0, 1, "{name}: it went to the idle CPU");
            assert_eq!(averages(), (1024 + others, 600 + others), "{name}: without that queue's lock");
            s.pass(50 * MS);
            s.idle_only(&[]);
            assert!(!queued(s, 3));
            // 60 ms of 32.8 a half-life.
            let (load, util) = averages();
            let left = (others as f64 * 0.5f64.powf(60.0 / 32.768)) as u64;
            assert!(load.abs_diff(left) <= 3 && util.abs_diff(left) <= 3, "{name}: {load} and {util}, not {left}");
            assert_eq!(s.p.load(&rq.removed, Relaxed), 0, "{name}: once");
        });
    }
}

/// A wake-up of a task whose dequeue is delayed is one like others: counted, and its queue is as long as it is.
#[test]
fn wake_ups_of_delayed_tasks_count() {
    for (name, delays) in [("linux-6.18", true), ("linux-6.18", false), ("linux-5.2", false)] {
        let mut w = Workload::default();
        let pipes = ["ping", "pong"].map(|n| w.object(n, ObjectKind::Pipe { capacity: 4096 }));
        for (name, write, read) in [("a", pipes[0], pipes[1]), ("b", pipes[1], pipes[0])] {
            let mut writes = name == "b";
            let mut left = 2000;
            w.task(task(name, move |_| {
                writes = !writes;
                left -= 1;
                match (left, writes) {
                    (0, _) => Op::Exit,
                    (_, true) => Op::Write(write, 1),
                    _ => Op::Read(read, 1),
                }
            }));
        }
        let mut p = preset(name);
        p.features.delay_dequeue = delays;
        let r = run_with(machine("1c"), p.policy, p.features, w, 1000 * MS, None);
        let woken: u64 = r.tasks.iter().map(|t| t.wake.nr_wakeups).sum();
        // Each wake-up has a latency, and so have the two that are new.
        let latencies = r.observed.wakeup_latency.len();
        assert!(woken > 990 && woken.abs_diff(latencies) <= 2, "{name}, {delays}: {woken} and {latencies}");
        let counted: u64 = r.cpus.iter().map(|c| c.stats.ttwu_count).sum();
        assert_eq!(woken, counted);
        // Who runs or waits is in the queue.
        let had: u64 = r.tasks.iter().map(|t| t.run.sum_exec + t.run.wait_sum).sum();
        let queued: u64 = r.timeline.cpus.iter().flatten().map(|i| i.runnable).sum();
        assert!(queued as f64 > 0.96 * had as f64, "{name}, {delays}: {queued} of {had}");
    }
}
