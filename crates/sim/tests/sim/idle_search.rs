//! select_task_rq by era (mechanisms C.1 to C.4): which CPU, how many probes, what is remembered. CPU 0 is the waker; the
//! other run queues say what the test wrote into them.

use crate::common::{MS, Stage, hog, machine, preset, run_on, run_with, script, stage, task};
use contend_platform::Ordering::{Relaxed, Release};
use contend_platform::Platform;
use contend_sched::class::Sched;
use contend_sched::features::{Features, IdleSearch, SchedIdleCpu, WakeAffine};
use contend_sched::wakeup::flags;
use contend_sim::program::{Op, TaskSpec, Workload};

/// Two sockets of 22 cores of 2 threads; socket 0 has CPUs 0 to 21 and their siblings 44 to 65.
const INTEL: &str = "intel-2s-44c-88t";
/// Two sockets of 8 cores of 8 threads; a core's threads have consecutive numbers.
const SPARC: &str = "sparc-2s-16c-128t";

/// The preset with the wakee's last CPU as target, and no search for idle cores.
fn plain(name: &str) -> Features {
    Features { wake_affine: WakeAffine::Off, sis_core: false, recent_used_cpu: false, ..preset(name).features }
}

fn set(s: &Stage, avg_idle: u64, scan_cost: u64) {
    s.p.store(&s.kernel.rqs[0].avg_idle, avg_idle, Release);
    s.p.store(&s.kernel.llcs[0].avg_scan_cost, scan_cost, Release);
}

fn next_cpu(s: &Stage, target: usize) -> Option<u64> {
    s.p.load(&s.kernel.rqs[target].next_cpu, Relaxed).checked_sub(1)
}

/// Patch 1: limits of 2 to 4 on two threads a core and 8 to 16 on eight; one probe fewer than the limit.
#[test]
fn limit_gives_1_to_3_probes_on_smt2_and_7_to_15_on_smt8() {
    for (machine, least, most) in [(INTEL, 1, 3), (SPARC, 7, 15)] {
        stage(machine, Features { sis_rotate: false, ..plain("2019-v3") }, false, move |s| {
            s.idle_only(&[]);
            set(s, 0, 1_000_000);
            assert_eq!(s.wake_from(5).1, least, "{machine}, never idle");
            set(s, MS, 0);
            assert_eq!(s.wake_from(5).1, most, "{machine}, idle and cheap to search");
        });
    }
}

/// Between the limits the scan is in proportion: size x avg_idle / cost.
#[test]
fn limit_is_proportional_in_between() {
    stage(INTEL, plain("2019-v3"), false, |s| {
        s.idle_only(&[]);
        // 44 x (512,000 / 512) / 14,667 = 2.99 is above the floor of 2 and rounds down to it: 1 probe; 14,666: 3, so 2 probes.
        set(s, 512_000, 14_666);
        assert_eq!(s.wake_from(5).1, 1);
        set(s, 512_000, 14_665);
        assert_eq!(s.wake_from(5).1, 2);
    });
}

/// The baseline looks at 3 CPUs at least and at all of the cache at most.
#[test]
fn sis_prop_looks_at_3_to_44() {
    stage(INTEL, plain("linux-5.2"), false, |s| {
        s.idle_only(&[]);
        set(s, 0, 1_000_000);
        assert_eq!(s.wake_from(5).1, 3);
        set(s, MS, 0);
        assert_eq!(s.wake_from(5).1, 44);
        // 44 x 1,000 / 1,000 = 44 of which the last is not probed.
        set(s, 512_000, 999);
        assert_eq!(s.wake_from(5).1, 43);
    });
    stage(INTEL, Features { sis_prop: false, ..plain("linux-5.2") }, false, |s| {
        s.idle_only(&[]);
        set(s, 0, 1_000_000);
        assert_eq!(s.wake_from(5).1, 44, "SIS_PROP off");
    });
    stage(INTEL, Features { sis_avg_cpu: true, ..plain("linux-5.2") }, false, |s| {
        s.idle_only(&[]);
        set(s, 512_000, 1000);
        assert_eq!(s.wake_from(5).1, 0, "SIS_AVG_CPU: idle less than a search costs");
        set(s, 512_000, 999);
        assert_eq!(s.wake_from(5).1, 43);
    });
}

/// The scan ends early without touching avg_scan_cost; a complete one moves it by an eighth of the difference.
#[test]
fn only_a_complete_scan_updates_the_cost() {
    stage(INTEL, plain("linux-5.2"), false, |s| {
        let cost = |s: &Stage| s.p.load(&s.kernel.llcs[0].avg_scan_cost, Relaxed);
        s.idle_only(&[]);
        set(s, 0, 8_000);
        s.wake_from(5);
        assert_eq!(cost(s), 8_000, "cut short");
        set(s, MS, 10);
        s.wake_from(5);
        assert!(cost(s) > 10, "44 CPUs were read: {}", cost(s));
        s.idle_only(&[6]);
        set(s, MS, 80_000);
        assert_eq!(s.wake_from(5).0, 6);
        assert!((70_000..71_000).contains(&cost(s)), "two probes cost next to nothing: {}", cost(s));
    });
}

/// Patches 2 and 3: the search starts where the last one for this target ended: at the idle CPU it found, or at the first
/// one it did not look at.
#[test]
fn rotation_ends_at_the_found_cpu_or_the_first_unprobed() {
    stage(INTEL, plain("2019-v3"), false, |s| {
        s.idle_only(&[]);
        set(s, MS, 0);
        assert_eq!(next_cpu(s, 5), None);
        assert_eq!(s.wake_from(5), (5, 3));
        assert_eq!(next_cpu(s, 5), Some(8), "5, 6 and 7 were looked at");
        assert_eq!(s.wake_from(5), (5, 3));
        assert_eq!(next_cpu(s, 5), Some(11));
        assert_eq!(next_cpu(s, 11), None, "by target");
        s.idle_only(&[6, 12]);
        set(s, MS, 0);
        assert_eq!(s.wake_from(5), (12, 2), "not 6, which is nearer");
        assert_eq!(next_cpu(s, 5), Some(12));
    });
    stage(INTEL, Features { sis_prop: false, ..plain("2019-v3") }, false, |s| {
        s.idle_only(&[]);
        assert_eq!(s.wake_from(5), (5, 44));
        assert_eq!(next_cpu(s, 5), Some(4), "rotates without SIS_PROP too: round to the one before the start");
    });
    stage(INTEL, Features { sis_rotate: false, ..plain("2019-v3") }, false, |s| {
        s.idle_only(&[6]);
        s.p.store(&s.kernel.rqs[5].next_cpu, 13, Release);
        set(s, MS, 0);
        assert_eq!(s.wake_from(5).0, 6, "patch 3 off: from the target");
    });
}

/// A failed core search reads every CPU of the cache and clears the flag; SIS_CORE guards the call and nothing else.
#[test]
fn idle_cores() {
    let on = Features { sis_core: true, ..plain("linux-5.2") };
    stage(INTEL, on.clone(), false, |s| {
        let llc = &s.kernel.llcs[0];
        s.idle_only(&[48, 10, 54]);
        set(s, MS, 0);
        assert_eq!(s.wake_from(2).0, 10, "the idle core, not the idle thread 48 nor the nearer one");
        s.idle_only(&[48]);
        set(s, 0, 1_000_000);
        let (cpu, probes) = s.wake_from(2);
        assert_eq!((cpu, probes), (2, 44 + 3), "all 44, then SIS_PROP's minimum");
        assert_eq!(s.p.load(&llc.has_idle_cores, Relaxed), 0);
        assert_eq!(s.wake_from(2).1, 3, "not searched while the flag is clear");
    });
    stage(INTEL, on, false, |s| {
        s.idle_only(&[10, 54]);
        assert_eq!(s.wake_from(48).0, 54, "the walk from 48 meets the core at its thread 54");
    });
    stage(INTEL, plain("linux-5.2"), false, |s| {
        s.idle_only(&[7, 10, 54]);
        set(s, MS, 0);
        assert_eq!(s.wake_from(5).0, 7, "SIS_CORE off: the first idle CPU");
        assert_eq!(s.p.load(&s.kernel.llcs[0].has_idle_cores, Relaxed), 1, "nobody clears the flag");
    });
}

/// A CPU that becomes idle beside idle siblings sets the flag, with SIS_CORE on or off.
#[test]
fn idling_sets_has_idle_cores() {
    for sis_core in [true, false] {
        let f = Features { sis_core, idle_polling: false, ..preset("linux-5.2").features };
        stage("1n1l2c2t", f, true, |s| {
            s.p.store(&s.kernel.llcs[0].has_idle_cores, 0, Release);
            s.pass(50_000);
            assert_eq!(s.p.load(&s.kernel.llcs[0].has_idle_cores, Relaxed), 1, "CPUs 1 and 3 idle together");
        });
    }
}

/// select_idle_smt comes last in 5.2: an idle thread of the target's core that the bounded scan did not reach.
#[test]
fn the_sibling_is_tried_last() {
    stage(INTEL, plain("linux-5.2"), false, |s| {
        s.idle_only(&[5 + 44]);
        set(s, 0, 1_000_000);
        assert_eq!(s.wake_from(5).0, 49);
    });
}

/// 2.6.37: by number, whatever is near.
#[test]
fn numeric_order_of_2_6_37() {
    let f = plain("linux-2.6.37");
    stage(INTEL, f.clone(), false, |s| {
        s.idle_only(&[3, 9]);
        assert_eq!(s.wake_from(7).0, 3);
        s.idle_only(&[9, 51]);
        assert_eq!(s.wake_from(7).0, 51, "the sibling's domain comes first");
        s.idle_only(&[7, 3]);
        assert_eq!(s.wake_from(7).0, 7, "the target itself");
        s.idle_only(&[30]);
        assert_eq!(s.wake_from(7).0, 7, "another cache is not looked at");
    });
    // A CPU on its way from idle to a woken task still counts as idle.
    for (name, idle) in [("linux-2.6.37", true), ("linux-3.0", true), ("linux-3.6", false)] {
        stage("8c", Features { idle_search: IdleSearch::V2_6_37, ..plain(name) }, false, move |s| {
            s.idle_only(&[]);
            s.p.store(&s.kernel.rqs[3].peek, 1, Release);
            assert_eq!(s.wake_from(7).0, if idle { 3 } else { 7 }, "{name}");
        });
    }
}

/// 3.6: only groups that are idle altogether, from the cache down; a lone idle CPU is not found.
#[test]
fn idle_groups_of_3_6() {
    stage(INTEL, plain("linux-3.6"), false, |s| {
        s.idle_only(&[3, 9, 53]);
        assert_eq!(s.wake_from(7).0, 9, "core 9 is idle, core 3 is half idle");
        s.idle_only(&[3, 12]);
        assert_eq!(s.wake_from(7).0, 7, "no idle core: the target");
        s.idle_only(&[51]);
        assert_eq!(s.wake_from(7).0, 51, "inside the target's core a group is a thread");
    });
}

/// The groups of a domain are a ring that a search enters at the target's.
#[test]
fn idle_groups_begin_at_the_target() {
    for name in ["linux-3.6", "linux-4.1"] {
        stage(INTEL, plain(name), false, move |s| {
            s.idle_only(&[3, 47, 9, 53]);
            assert_eq!(s.wake_from(7).0, 9, "{name}");
            assert_eq!(s.wake_from(12).0, 3, "{name}: round the cache");
        });
    }
}

/// Until 3.8 an idle last CPU was not asked where the waker's is the target: the pair goes on to the next idle core.
#[test]
fn an_idle_last_cpu_counts_from_3_9_on() {
    for (name, to) in [("linux-3.6", 2), ("linux-4.1", 9)] {
        stage(INTEL, Features { wake_affine: WakeAffine::V3_6, ..plain(name) }, false, move |s| {
            s.idle_only(&[2, 46, 9, 53]);
            assert_eq!(s.wake(s.sleeper(9), flags::SYNC).0, to, "{name}");
        });
    }
}

/// From 5.4 on a CPU with nothing but SCHED_IDLE tasks is as good as an idle one; with `others` not for a SCHED_IDLE wakee. An idle core
/// has to be idle.
#[test]
fn cpus_of_sched_idle_tasks() {
    // As a run queue publishes it.
    const SCHED_IDLE: u64 = 1 << 31 | 1;
    for (name, taken) in [("linux-5.2", false), ("linux-5.8", true), ("linux-6.0", true), ("linux-6.18", true)] {
        stage(INTEL, plain(name), false, move |s| {
            s.idle_only(&[]);
            let batch = |cpu: usize| s.p.store(&s.kernel.rqs[cpu].peek, 1_000_000 << 32 | SCHED_IDLE, Release);
            batch(7);
            assert_eq!(s.wake_from(7).1 == 0, taken, "{name}: the target itself, without a search");
            batch(7);
            assert_eq!(s.wake_from(6).0, if taken { 7 } else { 6 }, "{name}");
        });
    }
    for (mode, sched, taken) in [
        (SchedIdleCpu::Any, Sched::Idle, true),
        (SchedIdleCpu::Others, Sched::Idle, false),
        (SchedIdleCpu::Others, Sched::default(), true),
        (SchedIdleCpu::Off, Sched::default(), false),
    ] {
        stage(INTEL, Features { sched_idle_cpu: mode, ..plain("linux-6.18") }, false, move |s| {
            s.idle_only(&[]);
            s.p.store(&s.kernel.rqs[7].peek, 1_000_000 << 32 | SCHED_IDLE, Release);
            assert_eq!(s.wake(s.sleeper_of(sched, 6), 0).0, if taken { 7 } else { 6 }, "{mode:?} {sched}");
        });
    }
    let f = Features { sis_core: true, ..plain("linux-6.18") };
    stage(INTEL, f, false, |s| {
        s.idle_only(&[9, 53]);
        for cpu in [7, 51] {
            s.p.store(&s.kernel.rqs[cpu].peek, 1_000_000 << 32 | SCHED_IDLE, Release);
        }
        assert_eq!(s.wake_from(6).0, 9, "an idle core first");
        s.idle_only(&[53]);
        s.p.store(&s.kernel.rqs[7].peek, 1_000_000 << 32 | SCHED_IDLE, Release);
        assert_eq!(s.wake_from(6).0, 7, "no idle core: the first that is either");
    });
}

/// Eight that compute as `SCHED_IDLE` on as many CPUs, and twelve that sleep most of the time: how long the latter wait for a CPU, in us, in the mean.
fn beside_sched_idle(mode: SchedIdleCpu, sched: Sched) -> u64 {
    let mut w = Workload::default();
    for _ in 0..8 {
        w.task(TaskSpec { sched: Some(Sched::Idle), background: true, ..hog("batch", 60_000 * MS) });
    }
    for i in 0..12u64 {
        let ops = (0..200).flat_map(|k| [Op::Sleep((2 + (i * 7 + k * 3) % 5) * MS), Op::Run(MS)]).collect();
        w.task(TaskSpec { sched: Some(sched), ..script("service", ops) });
    }
    let p = preset("linux-6.18");
    let r = run_with(machine("8c"), p.policy, Features { sched_idle_cpu: mode, ..p.features }, w, 60_000 * MS, None);
    assert_eq!(r.outcome.name(), "finished");
    let service = || r.tasks.iter().filter(|t| t.name == "service").map(|t| &t.run);
    service().map(|t| t.wait_sum).sum::<u64>() / service().map(|t| t.waits).sum::<u64>() / 1000
}

#[test]
fn services_do_not_wait_for_each_other_beside_sched_idle_tasks() {
    let mean = |mode| beside_sched_idle(mode, Sched::default());
    let (off, any, others) = (mean(SchedIdleCpu::Off), mean(SchedIdleCpu::Any), mean(SchedIdleCpu::Others));
    assert!(off > 4 * any && off > 4 * others, "{off} {any} {others}");
}

/// From 6.8 on: the target's cluster, the rest of its cache, and last an idle last CPU in another cluster, which came first before.
#[test]
fn the_targets_cluster_comes_first() {
    let with = |sis_cluster| Features { wake_affine: WakeAffine::V5_2, sis_cluster, ..plain("linux-6.18") };
    for (idle, plainly, clustered) in [(&[9, 2][..], 9, 2), (&[9, 6], 9, 6), (&[9], 9, 9), (&[9, 3, 1], 9, 1)] {
        for (sis_cluster, to) in [(false, plainly), (true, clustered)] {
            stage("1n1l4k4c", with(sis_cluster), false, move |s| {
                s.idle_only(idle);
                assert_eq!(s.wake(s.sleeper(9), flags::SYNC).0, to, "{idle:?}, {sis_cluster}");
            });
        }
    }
    // CPUs 4 to 7 are a cluster. A kernel without the domains, and a machine without clusters, look round the cache.
    for (on, sched_cluster, to) in [("1n1l4k4c", true, 4), ("1n1l4k4c", false, 8), ("16c", true, 8)] {
        stage(on, Features { sched_cluster, ..plain("linux-6.18") }, false, move |s| {
            s.idle_only(&[4, 8]);
            assert_eq!(s.wake_from(5).0, to, "{on}, {sched_cluster}");
        });
    }
    // Each probe counts against the limit; two threads of a core lie in the same cluster.
    stage("1n1l4k4c", plain("linux-6.18"), false, |s| {
        s.idle_only(&[12]);
        assert_eq!(s.wake_from(5), (12, 4 + 5));
        s.p.store(&s.kernel.llcs[0].nr_idle_scan, 6, Release);
        assert_eq!(s.wake_from(5), (5, 6));
    });
    stage("1n1l2k2c2t", Features { sis_core: true, ..plain("linux-6.18") }, false, |s| {
        // Cores are 0-4, 1-5, 2-6, 3-7; the clusters 0-1-4-5 and 2-3-6-7.
        s.idle_only(&[1, 5, 2, 6]);
        assert_eq!(s.wake_from(3).0, 6, "an idle core of the cluster");
        s.idle_only(&[1, 5, 2]);
        assert_eq!(s.wake_from(3).0, 5, "an idle core elsewhere before an idle thread");
    });
}

/// A buddy in the neighbouring core, the other thread there, and nothing else.
#[test]
fn buddies() {
    stage(INTEL, Features { idle_search: IdleSearch::Buddy, ..plain("linux-3.6") }, false, |s| {
        s.idle_only(&[6, 50]);
        assert_eq!(s.wake_from(7), (6, 1));
        assert_eq!(s.wake_from(51), (50, 1), "thread by thread");
        s.idle_only(&[50, 8]);
        assert_eq!(s.wake_from(7), (50, 2), "the buddy's sibling");
        s.idle_only(&[7, 51]);
        assert_eq!(s.wake_from(6), (7, 1), "each is the other's");
        s.idle_only(&[8, 51]);
        assert_eq!(s.wake_from(7), (7, 2), "no farther");
    });
    // Three cores: the last has its own threads.
    stage("1n1l3c2t", Features { idle_search: IdleSearch::Buddy, ..plain("linux-3.6") }, false, |s| {
        let sibling = s.kernel.topo.core_cpus(2).iter().map(|c| c.index()).collect::<Vec<_>>();
        s.idle_only(&sibling[1..]);
        assert_eq!(s.wake_from(sibling[0]), (sibling[1], 1));
    });
}

/// recent_used_cpu: taken if idle and near, then replaced by prev; today replaced in any case.
#[test]
fn recent_used_cpu() {
    for (name, always) in [("linux-5.2", false), ("linux-6.0", true)] {
        let f = Features { recent_used_cpu: true, ..plain(name) };
        stage(INTEL, f, false, move |s| {
            let t = s.sleeper(5);
            let recent = |s: &Stage| {
                // SAFETY: nobody else runs on this stage.
                unsafe { s.p.read(&s.kernel.task(t).info, |i| i.recent_used_cpu.map(|c| c.index())) }
            };
            // SAFETY: as above.
            unsafe { s.p.write(&s.kernel.task(t).info, |i| i.recent_used_cpu = Some(contend_platform::CpuId(15))) };
            s.idle_only(&[6, 15]);
            assert_eq!(s.wake(t, 0).0, 15, "{name}: before the nearer CPU 6");
            assert_eq!(recent(s), Some(5), "{name}: prev took its place");
        });
        let f = Features { recent_used_cpu: true, ..plain(name) };
        stage(INTEL, f, false, move |s| {
            let t = s.sleeper(5);
            // SAFETY: nobody else runs on this stage.
            unsafe { s.p.write(&s.kernel.task(t).info, |i| i.recent_used_cpu = Some(contend_platform::CpuId(30))) };
            s.idle_only(&[30]);
            assert_eq!(s.wake(t, 0).0, 5, "{name}: 30 is in the other cache");
            // SAFETY: as above.
            let now = unsafe { s.p.read(&s.kernel.task(t).info, |i| i.recent_used_cpu.map(|c| c.index())) };
            assert_eq!(now, Some(if always { 5 } else { 30 }), "{name}");
        });
    }
}

/// SIS_UTIL: the scan is bounded by nr_idle_scan and starts behind the target; 0 ends it, idle-core flag or not.
#[test]
fn sis_util_is_bounded_and_starts_behind_the_target() {
    let f = Features { sis_core: true, ..plain("linux-6.0") };
    stage(INTEL, f.clone(), false, |s| {
        let llc = &s.kernel.llcs[0];
        s.idle_only(&[9]);
        s.p.store(&llc.has_idle_cores, 0, Release);
        s.p.store(&llc.nr_idle_scan, 3, Release);
        assert_eq!(s.wake_from(5), (5, 3), "6, 7 and 8");
        s.p.store(&llc.nr_idle_scan, 4, Release);
        assert_eq!(s.wake_from(5), (9, 4));
    });
    stage(INTEL, f.clone(), false, |s| {
        let llc = &s.kernel.llcs[0];
        s.idle_only(&[9, 53]);
        s.p.store(&llc.nr_idle_scan, 0, Release);
        assert_eq!(s.wake_from(5), (5, 0), "an overloaded cache is not searched");
        s.p.store(&llc.nr_idle_scan, 1, Release);
        assert_eq!(s.wake_from(5).0, 9, "the search for an idle core is not bounded");
    });
    stage(INTEL, f, false, |s| {
        let llc = &s.kernel.llcs[0];
        s.idle_only(&[55, 60]);
        assert_eq!(s.wake_from(5).0, 55, "no idle core: the first idle thread seen");
        assert_eq!(s.p.load(&llc.has_idle_cores, Relaxed), 0);
        s.idle_only(&[49, 6]);
        assert_eq!(s.wake_from(5).0, 49, "no idle core known: first the siblings of prev");
    });
}

/// 5.14: the combined scan under SIS_PROP. What it may cost is half of the idle time when the last idle period ended, less what
/// searches took since, halved with each tick.
#[test]
fn sis_prop_of_5_14_ages() {
    let f = Features { sis_core: true, ..plain("linux-5.15") };
    stage(INTEL, f.clone(), false, |s| {
        let llc = &s.kernel.llcs[0];
        s.idle_only(&[]);
        s.p.store(&llc.has_idle_cores, 0, Release);
        let look = |left: u64, cost: u64| {
            s.p.store(&s.kernel.rqs[0].search_time, left, Release);
            s.p.store(&llc.avg_scan_cost, cost, Release);
            s.wake_from(5).1
        };
        assert_eq!(look(0, 1000), 3, "no time left: 4 less 1");
        assert_eq!(look(100, 999), 3, "44 x 100 / 1,000 = 4.4");
        assert_eq!(look(500, 999), 21, "44 x 500 / 1,000 = 22");
        assert_eq!(look(100_000, 999), 44, "all");
        let left = s.p.load(&s.kernel.rqs[0].search_time, Relaxed);
        assert!((90_000..100_000).contains(&left), "less what 44 looks took: {left}");
        assert_ne!(s.p.load(&llc.avg_scan_cost, Relaxed), 999, "a whole scan counts");
        s.pass(17 * MS);
        let ticks = s.p.now() / (4 * MS);
        assert!(ticks >= 4);
        assert_eq!(look(500 << ticks, 999), 21, "halved by each tick since");
        assert_eq!(
            s.p.load(&s.kernel.rqs[0].search_time, Relaxed),
            ticks << 32 | 500,
            "cut short: nothing is taken off"
        );
    });
    stage(INTEL, f, false, |s| {
        s.p.store(&s.kernel.rqs[0].search_time, 0, Release);
        s.idle_only(&[9, 53]);
        assert_eq!(s.wake_from(5).0, 9, "the search for an idle core is not bounded");
        s.idle_only(&[55, 60]);
        assert_eq!(s.wake_from(5).0, 55, "no idle core: the first idle thread seen");
        assert_eq!(s.p.load(&s.kernel.llcs[0].has_idle_cores, Relaxed), 0);
        s.idle_only(&[49, 6]);
        assert_eq!(s.wake_from(5).0, 49, "no idle core known: first the siblings of prev");
        assert_eq!(s.p.load(&s.kernel.rqs[0].search_time, Relaxed), 0);
    });
}

// ---- the outer decision -------------------------------------------------------------------------------------------

/// The target shows directly when there is no search.
fn outer(name: &str, wide: bool) -> Features {
    Features { idle_search: IdleSearch::None, wake_wide: wide, ..preset(name).features }
}

/// wake_wide: both flip often enough, and one much more than the other.
#[test]
fn wake_wide() {
    stage("8c", Features { wake_affine_prev_idle: false, ..outer("linux-5.2", true) }, false, |s| {
        let flips = |waker: u64, wakee: u64| {
            s.idle_only(&[]);
            let t = s.sleeper(3);
            // SAFETY: nobody else runs on this stage.
            unsafe {
                s.p.write(&s.kernel.task(s.waker()).info, |i| i.wakee_flips = waker);
                s.p.write(&s.kernel.task(t).info, |i| i.wakee_flips = wakee);
            }
            s.busy(3, 1);
            s.wake(t, flags::SYNC).0
        };
        // This wake-up is one more flip of the waker.
        assert_eq!(flips(62, 8), 0, "63 < 8 x 8");
        assert_eq!(flips(63, 8), 3, "64 = 8 x 8: wide");
        assert_eq!(flips(1000, 7), 0, "7 < 8");
        assert_eq!(flips(7, 64), 3, "either way round");
    });
}

/// record_wakee counts changes of the wakee and halves once a second.
#[test]
fn flips_are_counted_and_decay() {
    stage("8c", outer("linux-5.2", true), false, |s| {
        s.idle_only(&[]);
        let flips = || {
            // SAFETY: nobody else runs on this stage.
            unsafe { s.p.read(&s.kernel.task(s.waker()).info, |i| i.wakee_flips) }
        };
        for (i, cpu) in [3, 4, 5].into_iter().enumerate() {
            s.wake_from(cpu);
            assert_eq!(flips(), i as u64 + 1);
        }
        let t = s.sleeper(6);
        // SAFETY: nobody else runs on this stage.
        unsafe {
            s.p.write(&s.kernel.task(s.waker()).info, |i| {
                (i.last_wakee, i.wakee_flips) = (Some(t), 9);
            });
        }
        s.pass(1000 * MS);
        s.wake(t, 0);
        assert_eq!(flips(), 4, "halved, and the same wakee as last time is no flip");
    });
}

/// wake_affine_idle and its order; wake_affine_weight's tolerance is that of the domain that holds both CPUs.
#[test]
fn wake_affine_of_5_2() {
    let f = outer("linux-5.2", false);
    stage(INTEL, f.clone(), false, |s| {
        s.idle_only(&[0, 5]);
        assert_eq!(s.wake_from(5).0, 5, "this and prev idle, one cache: prev");
        s.idle_only(&[0]);
        assert_eq!(s.wake_from(5).0, 0, "this idle: this");
        s.idle_only(&[]);
        let t = s.sleeper(30);
        s.p.store(&s.kernel.rqs[0].load, 100_000, Release);
        assert_eq!(s.wake(t, flags::SYNC).0, 0, "a synchronous waker that is alone, even across caches");
        s.idle_only(&[]);
        s.p.store(&s.kernel.rqs[0].load, 1000, Release);
        for (prev, load, to) in [(5, 926, 0), (5, 925, 5), (30, 893, 0), (30, 892, 30)] {
            s.busy(prev, 1);
            s.p.store(&s.kernel.rqs[prev].load, load, Release);
            // 1000 x 100 < load x 108 in a cache (117), x 112 across nodes (125).
            assert_eq!(s.wake_from(prev).0, to, "prev {prev}, load {load}");
            s.p.store(&s.kernel.rqs[0].load, 1000, Release);
        }
    });
    for (prev_idle, to) in [(false, 0), (true, 30)] {
        stage(INTEL, Features { wake_affine_prev_idle: prev_idle, ..f.clone() }, false, move |s| {
            s.idle_only(&[30]);
            s.p.store(&s.kernel.rqs[30].load, 1000, Release);
            assert_eq!(s.wake_from(30).0, to, "an idle prev with stale load");
        });
    }
}

/// wake_affine of 2010, by weights.
#[test]
fn wake_affine_by_weight() {
    stage("8c", outer("linux-3.6", false), false, |s| {
        let at = |this: u64, nr: u64, prev: u64, sync: u64| {
            s.idle_only(&[]);
            let peek = &s.kernel.rqs[0].peek;
            s.p.store(peek, s.p.load(peek, Relaxed) & !0xffff_ffff | nr, Release);
            s.p.store(&s.kernel.rqs[0].load, this, Release);
            s.busy(3, 1);
            s.p.store(&s.kernel.rqs[3].load, prev, Release);
            s.wake(s.sleeper(3), sync).0
        };
        assert_eq!(at(1024, 1, 0, flags::SYNC), 0, "the waker leaves: no load here");
        assert_eq!(at(1024, 1, 1024, 0), 3, "2048 against 1.12 x 1024");
        assert_eq!(at(1024, 1, 2048, 0), 0, "2048 against 1.12 x 2048");
        assert_eq!(at(1024, 1, 1820, 0), 3, "1820 x 1.12 = 2038");
        assert_eq!(at(2048, 2, 0, flags::SYNC), 3, "one more stays here, nothing there");
    });
}

/// SIS_UTIL goes on searching where tasks move with their wake-ups: a queue that they have left does not count them any more.
#[test]
fn sis_util_is_not_misled_by_tasks_that_move() {
    for name in ["linux-6.0", "linux-6.18"] {
        let mut w = Workload { horizon: Some(1000 * MS), ..Workload::default() };
        for i in 0..3u32 {
            let mut n = i;
            w.task(task(&format!("t{i}"), move |_| {
                n += 1;
                // Two CPUs, each half busy; interrupts come to both in turn.
                if n % 2 == 0 { Op::Run(100_000 + 7_000 * u64::from(i)) } else { Op::Device(200_000, n / 2) }
            }));
        }
        let r = run_on(machine("2c"), &preset(name), w, 1000 * MS);
        let moved: u64 = r.tasks.iter().map(|t| t.run.nr_migrations).sum();
        let searches = r.observed.idle_searches;
        assert!(moved > 100, "{name}: they moved {moved} times");
        assert!(searches > 500, "{name}: {searches} searches");
    }
}
