//! The operations that each construct turns into, and the measures it reports.

use contend_sim::program::{ObjectKind, Sched};

use super::super::EventKind;
use super::{Player, SAMPLES, load, parse, player, task, workload};

#[test]
fn a_task_without_phases_is_one_phase() {
    let flat = player(&task(r#""loop" : 2, "run" : 10, "sleep" : 20"#)).play(9);
    let phases = player(&task(r#""loop" : 2, "phases" : { "p" : { "run" : 10, "sleep" : 20 } }"#)).play(9);
    assert_eq!(flat, "run 10, sleep 20, run 10, sleep 20, exit");
    assert_eq!(flat, phases);
}

#[test]
fn the_task_loops_for_ever_and_the_phase_once_by_default() {
    assert_eq!(
        player(&task(r#""phases" : { "a" : { "run" : 1 }, "b" : { "run" : 2 } }"#)).play(5),
        "run 1, run 2, run 1, run 2, run 1"
    );
}

#[test]
fn loops_nest() {
    let text = task(r#""loop" : 2, "phases" : { "a" : { "loop" : 2, "run" : 1 }, "b" : { "loop" : 3, "sleep" : 2 } }"#);
    let round = "run 1, run 1, sleep 2, sleep 2, sleep 2";
    assert_eq!(player(&text).play(99), format!("{round}, {round}, exit"));
    let endless = task(r#""loop" : 1, "phases" : { "a" : { "loop" : -1, "run" : 1 }, "b" : { "sleep" : 2 } }"#);
    assert_eq!(player(&endless).play(4), "run 1, run 1, run 1, run 1");
}

#[test]
fn an_exited_task_stays_so() {
    let mut p = player(&task(r#""loop" : 1, "run" : 1"#));
    assert_eq!(p.play(9), "run 1, exit");
    assert_eq!(p.play(9), "exit");
}

#[test]
fn events_run_in_order_and_keys_may_repeat_or_bear_suffixes() {
    let text = task(r#""loop" : 1, "run" : 1, "sleep" : 2, "run" : 3, "run_b" : 4, "runtime5" : 5, "sleepA" : 6"#);
    assert_eq!(player(&text).play(99), "run 1, sleep 2, run 3, run 4, run 5, sleep 6, exit");
}

#[test]
fn delay_comes_once_and_timers_count_from_its_end() {
    let text = task(r#""delay" : 500, "loop" : 2, "run" : 10, "timer" : { "ref" : "unique", "period" : 100 }"#);
    assert_eq!(player(&text).play(99), "sleep 500, run 10, until 600, run 10, until 700, exit");
}

#[test]
fn a_first_period_counts_from_the_start_of_the_task() {
    let text = task(
        r#""loop" : 1, "phases" : { "a" : { "sleep" : 20 },
           "b" : { "loop" : 3, "run" : 1, "timer" : { "ref" : "unique", "period" : 50 } } }"#,
    );
    assert_eq!(player(&text).play(99), "sleep 20, run 1, until 50, run 1, until 100, run 1, until 150, exit");
}

#[test]
fn a_relative_timer_found_late_starts_anew() {
    // The tutorial's figure: 10, 10, 30, 10, 10 of work against a period of 20.
    let text = task(
        r#""loop" : 1, "phases" : {
           "a" : { "loop" : 2, "run" : 10, "timer" : { "ref" : "unique", "period" : 20 } },
           "b" : { "run" : 30, "timer" : { "ref" : "unique", "period" : 20 } },
           "c" : { "loop" : 2, "run" : 10, "timer" : { "ref" : "unique", "period" : 20, "mode" : "relative" } } }"#,
    );
    let mut p = player(&text);
    assert_eq!(p.play(99), "run 10, until 20, run 10, until 40, run 30, run 10, until 90, run 10, until 110, exit");
    assert_eq!(p.samples.latencies["slack"], [10_000, 10_000, 10_000, 10_000]);
    assert_eq!(p.samples.latencies["slack_missed"], [10_000]);
    assert_eq!(p.samples.counts["timers_missed"], 1);
    assert_eq!(p.samples.counts["phase_loops"], 5);
}

#[test]
fn an_absolute_timer_keeps_its_phase() {
    let text = task(
        r#""loop" : 1, "phases" : {
           "a" : { "loop" : 2, "run" : 10, "timer" : { "ref" : "unique", "period" : 20, "mode" : "absolute" } },
           "b" : { "run" : 35, "timer" : { "ref" : "unique", "period" : 20, "mode" : "absolute" } },
           "c" : { "loop" : 3, "run" : 10, "timer" : { "ref" : "unique", "period" : 20, "mode" : "absolute" } } }"#,
    );
    let mut p = player(&text);
    assert_eq!(
        p.play(99),
        "run 10, until 20, run 10, until 40, run 35, until 60, run 10, until 80, run 10, until 100, run 10, until 120, exit"
    );
    assert_eq!(p.samples.latencies["slack_missed"], [15_000, 5_000]);
    assert_eq!(p.samples.latencies["slack"], [10_000, 10_000, 5_000, 10_000]);
}

#[test]
fn names_that_start_with_unique_are_own_timers_others_shared() {
    let own = workload(&task(r#""instance" : 2, "run" : 1, "timer" : { "ref" : "uniqueA", "period" : 10 }"#));
    let mut own: Vec<Player> = own.tasks.into_iter().map(Player::new).collect();
    assert_eq!(own[0].play(4), "run 1, until 10, run 1, until 20");
    assert_eq!(own[1].play(4), "run 1, until 10, run 1, until 20");
    let shared = workload(&task(r#""instance" : 2, "run" : 1, "timer" : { "ref" : "tick", "period" : 10 }"#));
    let mut shared: Vec<Player> = shared.tasks.into_iter().map(Player::new).collect();
    assert_eq!(shared[0].play(2), "run 1, until 10");
    assert_eq!(shared[1].play(2), "run 1, until 20");
    assert_eq!(shared[0].play(2), "run 1, until 30");
    assert_eq!(shared[1].play(2), "run 1, until 40");
    let two = task(
        r#""loop" : 1, "timer0" : { "ref" : "uniqueA", "period" : 10 }, "timer1" : { "ref" : "uniqueB", "period" : 15 },
           "timer2" : { "ref" : "uniqueA", "period" : 10 }"#,
    );
    assert_eq!(player(&two).play(9), "until 10, until 15, until 20, exit");
}

#[test]
fn each_workload_has_timers_of_its_own() {
    let app = load(&task(r#""run" : 1, "timer" : { "ref" : "tick", "period" : 10 }"#));
    for _ in 0..2 {
        let mut p = Player::new(app.workload(1).unwrap().tasks.remove(0));
        assert_eq!(p.play(2), "run 1, until 10");
    }
}

#[test]
fn timers_report_wake_up_latency_period_and_run_time() {
    let mut p = player(&task(r#""loop" : 2, "run" : 10, "timer" : { "ref" : "unique", "period" : 100 }"#));
    p.late = 7;
    p.slow = 2;
    p.play(99);
    assert_eq!(p.samples.latencies["wakeup_latency"], [7, 7]);
    assert_eq!(p.samples.latencies["period"], [100_007, 100_000]);
    assert_eq!(p.samples.latencies["run"], [20_000, 20_000]);
    assert_eq!(p.samples.latencies["slack"], [80_000, 79_993]);
}

#[test]
fn slack_is_the_last_timers_or_the_sum() {
    let body = r#""loop" : 1, "run" : 15, "timer0" : { "ref" : "unique", "period" : 20 }, "run1" : 5,
        "timer1" : { "ref" : "unique", "period" : 20 }"#;
    let mut last = player(&task(body));
    last.play(9);
    assert_eq!(last.samples.latencies["slack"], [15_000]);
    let sum = format!(r#"{{ "tasks" : {{ "t" : {{ {body} }} }}, "global" : {{ "cumulative_slack" : true }} }}"#);
    let mut sum = player(&sum);
    sum.play(9);
    assert_eq!(sum.samples.latencies["slack"], [20_000]);
}

#[test]
fn runtime_ends_by_the_clock() {
    let mut p = player(&task(r#""loop" : 1, "runtime" : 1600, "sleep" : 1"#));
    assert_eq!(p.play(99).matches("run 100").count(), 16);
    assert_eq!(p.now, 1_601_000);
    // Half the CPU: the same time on the clock, half the work.
    let mut p = player(&task(r#""loop" : 1, "runtime" : 1600, "sleep" : 1"#));
    p.slow = 2;
    assert_eq!(p.play(99).matches("run 100").count(), 8);
    assert_eq!(p.now, 1_601_000);
    assert_eq!(p.samples.latencies["run"], [1_600_000]);
    assert_eq!(player(&task(r#""loop" : 1, "runtime" : 0, "runtime1" : 12"#)).play(9), "run 0, run 10, run 2, exit");
}

#[test]
fn mutexes_and_condition_variables() {
    let text = task(
        r#""loop" : 1, "lock" : "m", "wait" : { "ref" : "m", "mutex" : "m" }, "signal" : "m", "broad" : "m",
           "broadcast" : "n", "unlock" : "m""#,
    );
    let w = workload(&text);
    let kinds: Vec<_> = w.objects.iter().map(|o| (&*o.name, &o.kind)).collect();
    assert_eq!(kinds, [("m", &ObjectKind::Mutex), ("m", &ObjectKind::Cond), ("n", &ObjectKind::Cond)]);
    assert_eq!(player(&text).play(9), "lock 0, wait 1 0, signal 1, broadcast 1, broadcast 2, unlock 0, exit");
}

#[test]
fn sync_takes_the_mutex_only_if_the_task_does_not_hold_it() {
    let held = task(r#""loop" : 1, "lock" : "m", "sync" : { "ref" : "c", "mutex" : "m" }, "unlock" : "m""#);
    let free = task(r#""loop" : 1, "sync" : { "ref" : "c", "mutex" : "m" }"#);
    assert_eq!(player(&held).play(9), "lock 0, signal 1, wait 1 0, unlock 0, exit");
    let free = player(&free).play(9);
    assert_eq!(free, "lock 1, signal 0, wait 0 1, unlock 1, exit");
}

#[test]
fn a_barrier_has_as_many_parties_as_instances_name_it() {
    let w = workload(
        r#"{ "tasks" : { "a" : { "instance" : 3, "run" : 1, "barrier" : "x" }, "b" : { "barrier1" : "x" },
            "c" : { "run" : 1, "barrier" : "y" } } }"#,
    );
    let kinds: Vec<_> = w.objects.iter().map(|o| o.kind.clone()).collect();
    assert_eq!(kinds, [ObjectKind::Barrier { parties: 4 }, ObjectKind::Barrier { parties: 1 }]);
}

#[test]
fn resume_wakes_all_that_are_suspended_under_the_name() {
    let w =
        workload(r#"{ "tasks" : { "a" : { "suspend" : "", "run" : 1 }, "b" : { "suspend" : "a", "resume" : "a" } } }"#);
    assert_eq!(w.objects.len(), 1);
    assert_eq!((&*w.objects[0].name, &w.objects[0].kind), ("a", &ObjectKind::Futex));
    let played: Vec<_> = w.tasks.into_iter().map(|t| Player::new(t).play(2)).collect();
    assert_eq!(played, ["suspend 0, run 1", "suspend 0, resume 0 4294967295"]);
}

#[test]
fn yield_mem_and_iorun() {
    let text = r#"{ "tasks" : { "t" : { "loop" : 1, "yield" : "", "mem" : 100000, "iorun" : 100000, "yield" } },
        "global" : { "mem_buffer_size" : 40960 } }"#;
    let w = workload(text);
    assert_eq!(w.tasks[0].program.working_set_kib(), 40);
    assert_eq!(player(text).play(9), "yield, run 10, syscall 510ns, yield, exit");
    let disk = text.replace("\"mem_buffer_size\"", "\"io_device\" : \"/tmp/x\", \"mem_buffer_size\"");
    assert_eq!(player(&disk).play(9), "yield, run 10, syscall 10510ns, yield, exit");
}

#[test]
fn forks_are_named_by_task_and_count() {
    let text = r#"{ "tasks" : { "a" : { "loop" : 2, "run" : 1, "fork" : "b" },
        "b" : { "instance" : 0, "priority" : 3, "cpus" : [1], "loop" : 1, "sleep" : 5 } } }"#;
    let mut p = player(text);
    assert_eq!(p.play(9), "run 1, spawn b-1-0, run 1, spawn b-1-1, exit");
    let b = p.spawned.remove(0);
    assert_eq!((b.sched, b.affinity.as_ref().unwrap().ones().collect::<Vec<_>>()), (Some(Sched::normal(3)), vec![1]));
    assert_eq!(Player::new(b).play(9), "sleep 5, exit");
}

#[test]
fn instances_are_numbered_through_the_file() {
    let w = workload(r#"{ "tasks" : { "a" : { "instance" : 2, "run" : 1 }, "b" : { "run" : 1 } } }"#);
    assert_eq!(w.tasks.iter().map(|t| &*t.name).collect::<Vec<_>>(), ["a-0", "a-1", "b-2"]);
    assert!(w.horizon.is_none());
}

#[test]
fn affinity_follows_the_phase_and_falls_back_to_the_task() {
    let text = task(
        r#""cpus" : [2], "phases" : { "a" : { "cpus" : [0, 1], "run" : 1 }, "b" : { "run" : 2 }, "c" : { "run" : 3 } }"#,
    );
    let w = workload(&text);
    assert_eq!(w.tasks[0].affinity.as_ref().unwrap().ones().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(player(&text).play(7), "run 1, cpus [2], run 2, run 3, cpus [0, 1], run 1, cpus [2]");
    let all = task(r#""phases" : { "a" : { "run" : 1 }, "b" : { "cpus" : [1], "run" : 2 } }"#);
    assert!(workload(&all).tasks[0].affinity.is_none());
    assert_eq!(player(&all).play(5), "run 1, cpus [1], run 2, cpus all, run 1");
}

#[test]
fn priority_changes_where_a_phase_says_so_and_stays() {
    let text = task(
        r#""priority" : -3, "loop" : 1, "phases" : { "a" : { "run" : 1 }, "b" : { "priority" : 5, "run" : 2 },
           "c" : { "run" : 3 }, "d" : { "policy" : "SCHED_OTHER", "cpus" : [0], "run" : 4 } }"#,
    );
    assert_eq!(workload(&text).tasks[0].sched, Some(Sched::normal(-3)));
    assert_eq!(player(&text).play(99), "run 1, sched normal:5, run 2, run 3, cpus [0], sched normal, run 4, exit");
}

#[test]
fn classes_follow_the_policy_in_force() {
    let text = task(
        r#""policy" : "SCHED_FIFO", "loop" : 1, "phases" : { "a" : { "run" : 1 }, "b" : { "priority" : 50, "run" : 2 },
           "c" : { "policy" : "SCHED_RR", "run" : 3 }, "d" : { "policy" : "SCHED_IDLE", "run" : 4 },
           "e" : { "policy" : "SCHED_BATCH", "priority" : -5, "run" : 5 } }"#,
    );
    // 10 is what rt-app takes where the priority is not said.
    assert_eq!(workload(&text).tasks[0].sched, Some(Sched::Fifo(10)));
    let want = "run 1, sched fifo:50, run 2, sched rr:10, run 3, sched idle, run 4, sched batch:-5, run 5, exit";
    assert_eq!(player(&text).play(99), want);
    let all = r#"{ "tasks" : { "t" : { "run" : 1 } }, "global" : { "default_policy" : "SCHED_RR" } }"#;
    assert_eq!(workload(all).tasks[0].sched, Some(Sched::RoundRobin(10)));
}

/// A file that says nothing of classes leaves them to what the file is a part of; who has a class of its own does not pass it on by `fork`.
#[test]
fn classes_that_are_not_said_are_open() {
    let text = task(r#""loop" : 1, "phases" : { "a" : { "run" : 1 }, "b" : { "policy" : "SCHED_OTHER", "run" : 2 } }"#);
    assert_eq!(workload(&text).tasks[0].sched, None);
    assert_eq!(player(&text).play(9), "run 1, sched normal, run 2, exit");
    for (own, child) in [("", None), (r#""policy" : "SCHED_FIFO","#, Some(Sched::normal(0)))] {
        let text = format!(
            r#"{{ "tasks" : {{ "a" : {{ {own} "loop" : 1, "fork" : "b" }}, "b" : {{ "instance" : 0, "run" : 1 }} }} }}"#
        );
        let mut p = player(&text);
        p.play(9);
        assert_eq!(p.spawned.remove(0).sched, child);
    }
}

#[test]
fn an_empty_phase_only_changes_settings() {
    let text = task(r#""loop" : 1, "phases" : { "a" : { "run" : 1 }, "b" : { "loop" : 9, "cpus" : [1] } }"#);
    assert_eq!(player(&text).play(9), "run 1, cpus [1], exit");
}

#[test]
fn duration_is_the_horizon() {
    let w = |d: &str| {
        workload(&format!(r#"{{ "tasks" : {{ "t" : {{ "run" : 1 }} }}, "global" : {{ "duration" : {d} }} }}"#))
    };
    assert_eq!(w("6").horizon, Some(6_000_000_000));
    assert_eq!(w("-1").horizon, None);
}

#[test]
fn instances_are_cheap() {
    assert!(size_of::<super::super::program::RtProgram>() <= 128);
    assert!(size_of::<super::super::program::Step>() <= 24);
    let w = workload(&task(r#""instance" : 100000, "run" : 1, "timer" : { "ref" : "unique", "period" : 10 }"#));
    assert_eq!(w.tasks.len(), 100_000);
}

#[test]
fn samples_load_and_their_notes_say_what_is_lost() {
    let notes: Vec<String> = SAMPLES
        .iter()
        .flat_map(|(file, text)| {
            let app = parse(text, file).unwrap_or_else(|e| panic!("{e}"));
            app.workload(2).unwrap_or_else(|e| panic!("{e}"));
            app.notes
        })
        .collect();
    assert_eq!(notes, NOTES);
}

const NOTES: [&str; 12] = [
    "periodic.json:20: \"calibration\" in ns per loop is of a processor that is not known here: 1 us of `run` \
     is 1 us of the machine's fastest CPUs",
    "periodic.json:20: settings of logs and memory locking concern the host that runs \
     rt-app and have no effect here (3 times)",
    "locks.json:24: \"loop\" beside events ends the task after so many rounds, as the tutorial says; \
     rt-app 1.0 itself goes on until \"duration\"",
    "locks.json:26: the section \"resources\" has no effect: events create what they name",
    "locks.json:27: \"pi_enabled\" has no effect: nobody's priority is \
     inherited here",
    "workgen.json:6: 2 times a key repeats another of the same object (first here); each counts, as with \
     workgen, whereas rt-app alone keeps only the last",
    "workgen.json:13: settings of logs and memory locking concern the host that runs \
     rt-app and have no effect here (2 times)",
    "hints.json:7: \"b\" loops for ever and there is no \"duration\": the run ends only where its caller \
     sets an end",
    "hints.json:4: \"util_min\" and \"util_max\" have no effect: utilization clamping is not modelled (2 \
     times)",
    "hints.json:4: \"membind_nodes\" has no effect: memory is always local",
    "hints.json:4: \"dl-...\" keys have no effect on SCHED_OTHER tasks",
    "hints.json:5: \"loop\" beside events ends the task after so many rounds, as the tutorial says; \
     rt-app 1.0 itself goes on until \"duration\"",
];

#[test]
fn the_typed_file_keeps_what_was_said() {
    let app = parse(SAMPLES[0].1, SAMPLES[0].0).unwrap();
    assert_eq!(app.task_count(), 4);
    assert_eq!(app.tasks[1].phases[1].name, "heavy");
    assert_eq!(app.tasks[1].phases[1].events[0].kind, EventKind::Runtime(900));
    assert_eq!((app.tasks[0].phases[0].events[0].pos.line, app.tasks[0].phases[0].events[0].pos.column), (7, 4));
}

#[test]
fn task_groups_are_made_and_phases_move_between_them() {
    let text = r#"{"tasks": {"a": {"taskgroup": "/web/api", "run": 10}, "b": {"loop": 1, "phases": {
        "p": {"taskgroup": "/batch", "run": 10}, "q": {"run": 10}, "r": {"taskgroup": "/", "run": 10}}}}}"#;
    let w = parse(text, "f").and_then(|app| app.workload(2)).expect("a right file");
    let names: Vec<&str> = w.groups.iter().map(|(_, g)| g.name.as_str()).collect();
    assert_eq!(names, ["/web", "/web/api", "/batch"]);
    let first: Vec<Option<&str>> = w.tasks.iter().map(|t| t.group.map(|g| w.groups.path_of(g))).collect();
    assert_eq!(first, [Some("/web/api"), Some("/batch")]);
    let e =
        parse(r#"{"tasks": {"a": {"taskgroup": "web", "run": 10}}}"#, "f").and_then(|app| app.workload(2).map(drop));
    let said = "f:1:18: tasks.a.taskgroup: \"web\" is not valid here, want a path such as /web or /web/api, at most 16 deep, as \
                below /sys/fs/cgroup";
    assert_eq!(e.expect_err("no path").to_string(), said);
}

#[test]
fn run_counts_by_the_cpu_that_calibrates() {
    let play = |global: &str, capacity: &[u64]| {
        let text = format!(r#"{{"global": {{ {global} }}, "tasks": {{"a": {{"loop": 1, "run": 1000}}}}}}"#);
        let w = parse(&text, "f").and_then(|app| app.workload_in(Default::default(), 2, capacity));
        w.map(|mut w| Player::new(w.tasks.remove(0)).play(9)).map_err(|e| e.to_string())
    };
    let both = [512, 1024];
    for (global, capacity, ran) in [
        ("", &both[..], 500),
        (r#""calibration": "CPU0""#, &both, 500),
        (r#""calibration": "CPU1""#, &both, 1000),
        (r#""calibration": 180"#, &both, 1000),
        (r#""calibration": "CPU0""#, &[], 1000),
        // All alike: which of them does not matter, even if there are not so many.
        (r#""calibration": "CPU9""#, &[], 1000),
    ] {
        assert_eq!(play(global, capacity), Ok(format!("run {ran}, exit")), "{global} {capacity:?}");
    }
    let e = play(r#""calibration": "CPU2""#, &both).expect_err("no such CPU");
    assert_eq!(
        e,
        "f:1:14: global.calibration: \"CPU2\" is not valid here, want \"CPU0\" to \"CPU1\", the CPUs of the machine"
    );
}
