//! Scheduling classes: real-time tasks above every policy, `SCHED_BATCH` and `SCHED_IDLE` in the fair ones
//! (`docs/internals/classes.md`).

use crate::common::{MS, Stage, cpus, hog, machine, preset, run_on, run_with, script, stage, task};
use contend_machine::Machine;
use contend_platform::{Account, CpuId};
use contend_sched::cpuset::Affinity;
use contend_sched::features::{Features, PolicyKind, Preset, RtThrottle};
use contend_sched::policy::groups::GroupId;
use contend_sched::yield_to::{YieldTo, Yielded};
use contend_sim::host::{Outcome, RunResult};
use contend_sim::program::{Op, Sched, TaskSpec, Workload};

fn of(sched: Sched, spec: TaskSpec) -> TaskSpec {
    TaskSpec { sched: Some(sched), ..spec }
}

fn on(cpu: usize, spec: TaskSpec) -> TaskSpec {
    TaskSpec { affinity: Some(cpus(&[cpu])), ..spec }
}

fn run(machine_name: &str, features: Features, tasks: Vec<TaskSpec>, ms: u64) -> RunResult {
    let mut w = Workload::default();
    tasks.into_iter().for_each(|t| {
        w.task(t);
    });
    crate::common::run_with(machine(machine_name), PolicyKind::Eevdf, features, w, ms * MS, None)
}

/// What each task had, in ms.
fn had(r: &RunResult) -> Vec<u64> {
    r.tasks.iter().map(|t| t.run.sum_exec / MS).collect()
}

fn close(found: u64, want: u64, by: u64) -> bool {
    found.abs_diff(want) <= by
}

fn today() -> Features {
    preset("linux-6.18").features
}

fn forever(name: &str) -> TaskSpec {
    hog(name, 1 << 50)
}

#[test]
fn what_real_time_tasks_leave_is_what_the_throttle_says() {
    let share = |features: Features| {
        had(&run("1c", features, vec![of(Sched::Fifo(1), forever("rt")), forever("fair")], 10_000))
    };
    let server = share(today());
    assert!(close(server[0], 9500, 40) && close(server[1], 500, 40), "{server:?}");
    let runtime = share(Features { rt_throttle: RtThrottle::Runtime, rt_runtime_us: 700_000, ..today() });
    assert!(close(runtime[0], 7000, 40) && close(runtime[1], 3000, 40), "{runtime:?}");
    assert_eq!(share(Features { rt_throttle: RtThrottle::None, ..today() })[1], 0);
}

#[test]
fn a_throttled_cpu_idles_if_nobody_else_wants_it_but_a_fair_server_serves_nobody() {
    let idle = |throttle| {
        let features = Features { rt_throttle: throttle, ..today() };
        run("1c", features, vec![of(Sched::Fifo(1), forever("rt"))], 10_000).ledger()[Account::Idle as usize] / MS
    };
    assert!(close(idle(RtThrottle::Runtime), 500, 40), "{}", idle(RtThrottle::Runtime));
    assert_eq!(idle(RtThrottle::FairServer), 0);
}

/// The task sleeps when its time is used up but no tick has come yet, and wakes up on the idle CPU, which must look again.
#[test]
fn a_task_that_wakes_on_a_throttled_idle_cpu_runs_in_the_next_period() {
    for us in [950_100, 950_500, 951_000, 953_000] {
        let ops = (0..3).flat_map(|_| [Op::Run(us * 1000), Op::Sleep(MS)]).collect();
        let features = Features { rt_throttle: RtThrottle::Runtime, ..today() };
        let r = run("1c", features, vec![of(Sched::Fifo(50), script("rt", ops))], 20_000);
        assert_eq!(r.outcome, Outcome::Finished, "{us}");
        assert!((2850..4100).contains(&(r.virtual_ns / MS)), "{us}: {} ms", r.virtual_ns / MS);
    }
}

/// One that becomes a real-time task while those are throttled stops with them, and waits behind the higher one.
#[test]
fn nobody_escapes_throttling_by_changing_its_class() {
    let up = script("up", vec![Op::Run(80 * MS), Op::SetScheduler(Sched::Fifo(40)), Op::Run(5000 * MS)]);
    let features = Features { rt_throttle: RtThrottle::Runtime, rt_runtime_us: 50_000, ..today() };
    let r = run("1c", features, vec![of(Sched::Fifo(50), forever("rt")), up], 10_000);
    let had = had(&r);
    assert!(close(had[0], 500, 60) && had[1] < 100, "{had:?}");
}

/// Every policy runs under them, the reference one too.
#[test]
fn priorities_decide_under_every_preset() {
    for p in Preset::all() {
        let tasks = [("low", Sched::Fifo(10)), ("high", Sched::Fifo(90)), ("fair", Sched::normal(-20))];
        let mut w = Workload::default();
        for (name, sched) in tasks {
            w.task(of(sched, hog(name, 100 * MS)));
        }
        let r = crate::common::run_on(machine("1c"), &p, w, 10_000 * MS);
        assert_eq!(r.outcome, Outcome::Finished, "{}", p.name);
        let ends: Vec<u64> = r.tasks.iter().map(|t| t.exited.expect("it ended") / MS).collect();
        assert!(close(ends[1], 100, 2) && close(ends[0], 200, 3) && close(ends[2], 300, 4), "{}: {ends:?}", p.name);
    }
}

#[test]
fn round_robin_takes_turns_and_first_in_first_out_does_not() {
    let ends = |sched| {
        let tasks = vec![of(sched, hog("a", 290 * MS)), of(sched, hog("b", 290 * MS))];
        let r = run("1c", Features { rt_throttle: RtThrottle::None, ..today() }, tasks, 10_000);
        (r.tasks.iter().map(|t| t.exited.expect("it ended") / MS).collect::<Vec<_>>(), r.tasks[0].run.switches)
    };
    let (fifo, switches) = ends(Sched::Fifo(5));
    assert!(close(fifo[0], 290, 2) && close(fifo[1], 580, 3) && switches == 1, "{fifo:?} {switches}");
    let (rr, switches) = ends(Sched::RoundRobin(5));
    // Slices of 100 ms in turn: a ends after five of them.
    assert!(close(rr[0], 490, 6) && close(rr[1], 580, 3) && switches == 3, "{rr:?} {switches}");
}

/// A tick of 1/300 s is not a whole number of ns; thirty of them are a slice of 100 ms.
#[test]
fn a_slice_is_as_many_ticks_where_a_tick_is_no_whole_number_of_ns() {
    for hz in [100, 250, 300, 1000] {
        let mut w = Workload::default();
        for name in ["a", "b"] {
            w.task(of(Sched::RoundRobin(5), hog(name, 2_950 * MS)));
        }
        let features = Features { rt_throttle: RtThrottle::None, ..today() };
        let r = run_with(Machine { hz, ..machine("1c") }, PolicyKind::Eevdf, features, w, 10_000 * MS, None);
        // 29 whole slices and a half one.
        assert_eq!(r.tasks[0].run.switches, 30, "{hz} Hz");
    }
}

/// Of two that wait, the one that yields is last.
#[test]
fn a_yield_makes_room_for_others_of_the_same_priority_only() {
    let first = |other| {
        let yields = script("yields", vec![Op::Run(MS), Op::Yield, Op::Run(MS)]);
        let r = run("1c", today(), vec![of(Sched::Fifo(5), yields), of(other, hog("other", 50 * MS))], 1000);
        r.tasks[0].exited < r.tasks[1].exited
    };
    assert!(!first(Sched::Fifo(5)));
    assert!(first(Sched::Fifo(4)));
    assert!(first(Sched::default()));
}

/// A task that is preempted by a higher one that may not go anywhere else goes elsewhere itself.
#[test]
fn waiting_tasks_are_pushed() {
    let end = |push_pull| {
        let features = Features { rt_push_pull: push_pull, rt_throttle: RtThrottle::None, ..today() };
        let high = on(0, script("high", vec![Op::Sleep(5 * MS), Op::Run(30 * MS)]));
        let low = hog("low", 50 * MS);
        let r = run("4c", features, vec![of(Sched::Fifo(10), low), of(Sched::Fifo(20), high)], 1000);
        (r.tasks[0].exited.expect("it ended") / MS, r.tasks[0].run.nr_migrations)
    };
    let (with, moves) = end(true);
    assert!(close(with, 50, 1) && moves == 1, "{with} ms, {moves} moves");
    let (without, moves) = end(false);
    assert!(close(without, 80, 1) && moves == 0, "{without} ms, {moves} moves");
}

/// Several are preempted at once: each goes to a CPU of its own, though all looked for one at the same time.
#[test]
fn pushes_that_meet_begin_anew() {
    for (name, n) in [("6c", 3), ("8c", 4), ("16c", 8)] {
        for preset_name in ["linux-2.6.37", "linux-6.18"] {
            let features = Features { rt_throttle: RtThrottle::None, ..preset(preset_name).features };
            let low = (0..n).map(|i| of(Sched::Fifo(50), hog(&format!("low{i}"), 50 * MS)));
            let high = (0..n).map(|i| {
                let ops = vec![Op::Sleep(20 * MS), Op::Run(100 * MS)];
                of(Sched::Fifo(90), on(i, script(&format!("high{i}"), ops)))
            });
            let r = run(name, features, low.chain(high).collect(), 1000);
            let most = r.tasks.iter().map(|t| t.run.wait_max).max().expect("tasks");
            assert!(most < MS, "{name} {preset_name}: somebody waits {most} ns beside idle CPUs");
        }
    }
}

/// A task that may not leave its CPU is not preempted by one that may go elsewhere, and one of its priority that may makes room for it.
#[test]
fn tasks_that_may_go_elsewhere_do() {
    let free = Features { rt_throttle: RtThrottle::None, ..today() };
    let wakes = |n| script("wakes", (0..n).flat_map(|_| [Op::Run(5 * MS), Op::Sleep(5 * MS)]).collect());
    let tasks = vec![of(Sched::Fifo(60), wakes(20)), of(Sched::Fifo(50), on(0, hog("pinned", 200 * MS)))];
    let r = run("2c", free.clone(), tasks, 1000);
    assert!(r.tasks[1].run.preempted <= 1, "{:?}", r.tasks[1].run);
    let pinned = on(0, script("pinned", vec![Op::Sleep(5 * MS), Op::Run(50 * MS)]));
    // Both begin on CPU 0, and the other one may leave it from then on.
    let late = on(0, script("free", vec![Op::SetAffinity(None), Op::Run(500 * MS)]));
    let tasks = vec![of(Sched::Fifo(50), pinned), of(Sched::Fifo(50), late)];
    let r = run("2c", free, tasks, 1000);
    assert!(r.tasks[0].run.wait_max < MS && r.tasks[1].run.nr_migrations == 1, "{:?}", r.tasks);
}

/// A CPU whose real-time task becomes a lower one fetches what is higher.
#[test]
fn a_task_that_lowers_itself_makes_room_for_others_elsewhere() {
    for lower in [Sched::default(), Sched::Fifo(10)] {
        let ops = vec![Op::Run(20 * MS), Op::SetScheduler(lower), Op::Run(300 * MS)];
        let tasks = vec![
            of(Sched::Fifo(50), on(0, hog("a", 500 * MS))),
            of(Sched::Fifo(60), on(1, script("b", ops))),
            of(Sched::Fifo(40), script("c", vec![Op::Sleep(MS), Op::Run(50 * MS)])),
        ];
        let r = run("2c", Features { rt_throttle: RtThrottle::None, ..today() }, tasks, 2000);
        assert!(close(r.tasks[2].exited.expect("it ended") / MS, 70, 1), "{lower}: {:?}", r.tasks[2]);
    }
}

/// A CPU whose real-time task goes to sleep fetches one that waits elsewhere.
#[test]
fn a_cpu_that_is_left_pulls() {
    // CPU 1 is held by one that may not leave it. The waiting one cannot be pushed while both CPUs are taken.
    let long = on(0, hog("long", 100 * MS));
    let short = on(1, script("short", vec![Op::Run(20 * MS), Op::Sleep(200 * MS)]));
    let waits = script("waits", vec![Op::Sleep(MS), Op::Run(10 * MS)]);
    let tasks = vec![of(Sched::Fifo(50), long), of(Sched::Fifo(50), short), of(Sched::Fifo(20), waits)];
    let r = run("2c", Features { rt_throttle: RtThrottle::None, ..today() }, tasks, 1000);
    let end = r.tasks[2].exited.expect("it ended") / MS;
    assert!(close(end, 30, 1), "{end} ms: after the short one, not after the long one");
}

/// A woken real-time task preempts a fair one where it was rather than to look for an idle CPU; if a real-time task of its
/// priority runs there, it goes elsewhere.
#[test]
fn placement_looks_at_priorities_and_not_at_idle_cpus() {
    let rt =
        |n: u64| of(Sched::Fifo(10), script("rt", (0..n).flat_map(|_| [Op::Sleep(5 * MS), Op::Run(MS)]).collect()));
    let cpu = |below: Sched| {
        let r = run("4c", today(), vec![rt(10), of(below, on(0, hog("below", 100 * MS)))], 1000);
        (r.tasks[0].run.nr_migrations, r.tasks[1].run.preempted)
    };
    let (moved, preempted) = cpu(Sched::default());
    assert!(moved == 0 && preempted == 10, "{moved} {preempted}");
    let (moved, preempted) = cpu(Sched::Fifo(10));
    assert!(moved == 1 && preempted == 0, "{moved} {preempted}");
}

/// Fair tasks are balanced by what real-time ones leave: five hogs have as much each, whichever of them is beside a real-time task
/// that takes three quarters of a CPU.
#[test]
fn balancing_sees_what_is_left() {
    let rt = of(
        Sched::Fifo(10),
        on(
            0,
            task("rt", {
                let mut run = false;
                move |_| {
                    run = !run;
                    if run { Op::Run(15 * MS) } else { Op::Sleep(5 * MS) }
                }
            }),
        ),
    );
    let tasks = [rt].into_iter().chain((0..5).map(|i| forever(&format!("hog{i}")))).collect();
    let r = run("2c", today(), tasks, 20_000);
    // 25 s of CPU for five. By numbers alone they are up to a tenth off.
    for ms in &had(&r)[1..] {
        assert!(close(*ms, 5000, 100), "{:?}", had(&r));
    }
}

#[test]
fn idle_tasks_have_what_nobody_wants() {
    for name in ["linux-2.6.37", "linux-5.2", "linux-6.18"] {
        let f = preset(name);
        let mut w = Workload::default();
        w.task(of(Sched::Idle, forever("idle")));
        w.task(forever("normal"));
        let r = crate::common::run_on(machine("1c"), &f, w, 20_000 * MS);
        // 3 to 1024.
        let idle = had(&r)[0];
        assert!((30..120).contains(&idle), "{name}: {idle} ms of 20 s");
    }
    // Two of them do not preempt each other.
    let naps = script("naps", (0..50).flat_map(|_| [Op::Sleep(5 * MS), Op::Run(100_000)]).collect());
    let r = run("1c", today(), vec![of(Sched::Idle, naps), of(Sched::Idle, forever("idle"))], 600);
    assert!(r.tasks[0].run.wait_max > MS, "{:?}", r.tasks[0].run);
    // It is preempted at once.
    let wakes = |sched| {
        let naps = script("naps", (0..50).flat_map(|_| [Op::Sleep(3 * MS), Op::Run(100_000)]).collect());
        let r = run("1c", today(), vec![of(sched, naps), of(Sched::Idle, forever("idle"))], 300);
        r.tasks[0].run.wait_max / 1000
    };
    assert!(wakes(Sched::default()) < 10 && wakes(Sched::Fifo(1)) < 10, "{} us", wakes(Sched::default()));
}

/// A batch task that wakes is as any where nobody preempts by waking: it waits for a tick, or (EEVDF) until the running one's slice is up.
#[test]
fn batch_tasks_do_not_preempt() {
    for name in ["linux-3.6", "linux-5.2", "linux-6.6", "linux-6.18"] {
        let ran = |sched, wakeup_preemption| {
            let mut p = preset(name);
            p.features.wakeup_preemption = wakeup_preemption;
            let naps = (0..100).flat_map(|_| [Op::Sleep(17_300_000), Op::Run(MS)]).collect();
            let mut w = Workload::default();
            w.task(of(sched, script("naps", naps)));
            w.task(forever("hog"));
            w.task(forever("hog"));
            let r = run_with(machine("1c"), p.policy, p.features, w, 3000 * MS, None);
            (r.trace_hash, r.tasks[0].run.wait_sum / MS)
        };
        let (normal, batch) = (ran(Sched::default(), true), ran(Sched::batch(0), true));
        // EEVDF owes whoever sleeps little, so that a normal task waits nearly as long.
        if preset(name).policy == PolicyKind::Cfs {
            assert!(batch.1 > normal.1 + 20, "{name}: {normal:?} and {batch:?} ms");
        }
        assert_eq!(batch, ran(Sched::default(), false), "{name}");
    }
}

/// A task goes from class to class; others see it at once.
#[test]
fn a_class_can_change() {
    let turns = vec![
        Op::Run(10 * MS),
        Op::SetScheduler(Sched::Fifo(50)),
        Op::Run(50 * MS),
        Op::SetScheduler(Sched::default()),
        Op::Run(10 * MS),
    ];
    let r = run("1c", today(), vec![script("turns", turns), hog("fair", 200 * MS)], 1000);
    assert_eq!(r.outcome, Outcome::Finished);
    let end = r.tasks[0].exited.expect("it ended") / MS;
    // Alone for the 50, beside the other for the 20.
    assert!((80..105).contains(&end), "{end}");
    assert_eq!(r.tasks[0].sched, Sched::default());
    // One that lowers itself below another makes room at once.
    let lowers = script("lowers", vec![Op::Run(MS), Op::SetScheduler(Sched::Fifo(1)), Op::Run(5 * MS)]);
    let tasks = vec![of(Sched::Fifo(50), lowers), of(Sched::Fifo(20), hog("other", 20 * MS))];
    let r = run("1c", today(), tasks, 1000);
    assert!(r.tasks[1].exited < r.tasks[0].exited, "{:?}", had(&r));
    assert!(close(r.tasks[1].exited.expect("it ended") / MS, 21, 1));
}

#[test]
fn children_inherit_the_class() {
    let child = hog("child", 10 * MS);
    let tasks = vec![
        of(Sched::RoundRobin(7), script("parent", vec![Op::Spawn(Box::new(child)), Op::Run(MS)])),
        hog("fair", 10 * MS),
    ];
    let r = run("1c", today(), tasks, 1000);
    let child = r.tasks.iter().find(|t| t.name == "child").expect("it was started");
    assert_eq!(child.sched, Sched::RoundRobin(7));
}

fn queued(s: &Stage, cpu: usize, sched: Sched) -> contend_platform::TaskId {
    let t = s.kernel.create(&s.p, sched, Affinity::only(cpus(&[cpu])), GroupId::ROOT);
    s.kernel.wake_up_new(&s.p, t);
    t
}

#[test]
fn directed_yields_leave_real_time_tasks_alone() {
    let how = YieldTo { locked_check: true, ..YieldTo::default() };
    stage("2c", preset("linux-3.6").features, false, move |s| {
        let me = queued(s, 0, Sched::default());
        let rt = queued(s, 1, Sched::Fifo(1));
        assert_eq!(s.kernel.yield_to(&s.p, me, rt, how), Yielded::Refused);
        assert_eq!(s.kernel.task_cpu(&s.p, rt), CpuId(1));
    });
}

/// Who is starved to the end has waited to the end.
#[test]
fn a_wait_under_way_counts() {
    let mut w = Workload::default();
    w.task(TaskSpec { sched: Some(Sched::Fifo(50)), ..hog("first", 100_000 * MS) });
    w.task(hog("starved", 100_000 * MS));
    let Preset { policy, mut features, .. } = preset("linux-6.18");
    features.rt_throttle = RtThrottle::None;
    let r = run_with(machine("1c"), policy, features, w, 5_000 * MS, None);
    let starved = &r.tasks[1].run;
    assert!(starved.wait_max > 4_900 * MS && starved.wait_sum >= starved.wait_max, "{starved:?}");
    assert!(r.cpus[0].stats.rq_cpu_time > 4_900 * MS, "the first one's stretch counts, too");
}

/// A yield gives up the rest of the request since 6.18; before, only its deadline moves, and shares stay equal.
#[test]
fn what_a_yield_gives_up() {
    let had = |name: &str| {
        let mut w = Workload::default();
        let mut yields = false;
        w.task(task("yields", move |_| {
            yields = !yields;
            if yields { Op::Run(100_000) } else { Op::Yield }
        }));
        w.task(hog("hog", 100_000 * MS));
        let r = run_on(machine("1c"), &preset(name), w, 5_000 * MS);
        r.tasks[0].run.sum_exec as f64 / 5e9
    };
    let (before, since) = (had("linux-6.6"), had("linux-6.18"));
    assert!(before > 0.4 && since < 0.2, "{before} {since}");
}
