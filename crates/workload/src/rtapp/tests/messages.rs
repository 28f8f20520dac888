//! Every message, word by word.

use super::super::{MAX_BYTES, RtAppError};
use super::{load, parse, task};

fn message(text: &str) -> String {
    match parse(text, "f") {
        Ok(app) => match app.workload(4) {
            Ok(_) => "loads".into(),
            Err(e) => e.to_string(),
        },
        Err(e) => e.to_string(),
    }
}

/// Each text's message; all differences at once.
fn check(cases: &[(&str, &str)]) {
    let wrong: Vec<String> = cases
        .iter()
        .map(|(text, want)| (text, want, message(text)))
        .filter(|(_, want, found)| found != *want)
        .map(|(text, want, found)| format!("{text}\n  want  {want}\n  found {found}"))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Bodies of a task `t` that starts in column 24 of line 1.
fn check_tasks(cases: &[(&str, &str)]) {
    let texts: Vec<String> = cases.iter().map(|(body, _)| task(body)).collect();
    let cases: Vec<(&str, &str)> = texts.iter().zip(cases).map(|(t, (_, want))| (&**t, *want)).collect();
    check(&cases);
}

/// Bodies of a `global` beside a valid task.
fn check_globals(cases: &[(&str, &str)]) {
    let texts: Vec<String> = cases
        .iter()
        .map(|(body, _)| format!("{{ \"tasks\" : {{ \"t\" : {{ \"run\" : 1 }} }},\n\"global\" : {{ {body} }} }}"))
        .collect();
    let cases: Vec<(&str, &str)> = texts.iter().zip(cases).map(|(t, (_, want))| (&**t, *want)).collect();
    check(&cases);
}

#[test]
fn syntax() {
    check(&[
        ("", "f:1:1: found the end of the file, want a value"),
        ("// nothing", "f:1:11: found the end of the file, want a value"),
        ("[1]", "f:1:1: found an array, want an object with the sections tasks and global"),
        ("{ \"tasks\" : { } }", "f:1:1: missing \"tasks\": an object with at least one task"),
        ("{ \"tasks\" : 3 }", "f:1:13: tasks: found 3, want an object of tasks"),
        ("{ tasks : { } }", "f:1:3: found `tasks`, want a key in quotes or `}`"),
        ("{ \"tasks\" { } }", "f:1:11: found `{`, want `:` after the key \"tasks\""),
        (
            "{ \"tasks\" : { \"t\" : { \"run\" : 1 \"sleep\" : 2 } } }",
            "f:1:33: found `sleep`, want `,` or `}` after a member",
        ),
        ("{ \"tasks\" : { \"t\" : { \"run\" : 1 } } } {", "f:1:39: something follows the closing brace of the file"),
        (
            "{ \"tasks\" : { \"t\" : { \"run\" : 1 } }",
            "f:1:36: found the end of the file, want `,` or `}` after a member",
        ),
        ("{ \"tasks\" : { \"t\" : { \"run\" : 0x10 } } }", "f:1:31: Hexadecimal numbers are not allowed"),
        ("{ \"tasks\" : { \"t\" : { \"run\" : } } }", "f:1:31: found `}`, want a value"),
        ("{ \"tasks\" : { \"t\" : { \"run\" : 1 } }\n/* open", "f:2:1: Unterminated comment block"),
        ("{ \"tasks\" : { \"t : 1", "f:1:15: Unterminated string literal"),
        ("{ \"t\u{e9}\u{e9}\" : 1 }", "f:1:3: téé: unknown key in the file; valid: tasks, resources, global"),
    ]);
}

#[test]
fn limits() {
    check(&[
        (&" ".repeat(MAX_BYTES + 1), "f:1:1: the file has 16777217 bytes; at most 16777216 are read"),
        (&"[".repeat(100), "f:1:66: nested deeper than 64 levels"),
        (&format!("[{}", "1,".repeat(super::super::MAX_VALUES)), "f:1:4000000: more than 2000000 values"),
    ]);
}

#[test]
fn keys() {
    check(&[
        ("{ \"task\" : { } }", "f:1:3: task: unknown key in the file; nearest valid: \"tasks\""),
        ("{ \"x\" : { } }", "f:1:3: x: unknown key in the file; valid: tasks, resources, global"),
        (
            "{\n\"tasks\" : { \"t\" : { \"run\" : 1 } },\n\"tasks\" : { } }",
            "f:3:1: tasks: given twice (first on line 2); only events and phases may repeat",
        ),
        (
            "{ \"tasks\" : { \"t\" : { \"run\" : 1 },\n\"t\" : { \"run\" : 1 } } }",
            "f:2:1: tasks.t: given twice (first on line 1); only events and phases may repeat",
        ),
        (
            "{ \"tasks\" : { \"\" : { \"run\" : 1 } } }",
            "f:1:15: tasks.: \"\" is not valid here, want a name of at least one character, without NUL",
        ),
    ]);
    check_tasks(&[
        ("\"runtme\" : 1", "f:1:23: tasks.t.runtme: unknown key in a task; nearest valid: \"runtime\""),
        ("\"slep\" : 1", "f:1:23: tasks.t.slep: unknown key in a task; nearest valid: \"sleep\""),
        (
            "\"xyzzy\" : 1",
            "f:1:23: tasks.t.xyzzy: unknown key in a task; valid: run, runtime, sleep, mem, iorun, timer, lock, unlock, wait, signal, broad, broadcast, sync, barrier, suspend, resume, yield, fork, loop, policy, priority, cpus, taskgroup, util_min, util_max, membind_nodes, nodes_membind, dl-runtime, dl-period, dl-deadline, dl-reclaim, instance, delay, phases",
        ),
        (
            "\"loop\" : 1, \"loop\" : 1, \"run\" : 1",
            "f:1:35: tasks.t.loop: given twice (first on line 1); only events and phases may repeat",
        ),
        (
            "\"duration\" : 1",
            "f:1:23: tasks.t.duration: \"duration\" is a key of the section \"global\"; move it there",
        ),
        (
            "\"exec\" : 5000",
            "f:1:23: tasks.t.exec: a key of rt-app 0.x; since 1.0 a task is a list of events: \"run\", \"timer\", \"lock\"...",
        ),
        (
            "\"external_workload\" : { }",
            "f:1:23: tasks.t.external_workload: not modelled: code from a shared library cannot run here",
        ),
        ("\"loop\" : 1", "f:1:15: tasks.t: missing events (\"run\", \"sleep\"...) or \"phases\""),
        ("\"phases\" : { }", "f:1:23: tasks.t: missing events: all phases of the task are empty"),
        ("\"phases\" : { \"p\" : { } }", "f:1:23: tasks.t: missing events: all phases of the task are empty"),
        (
            "\"phases\" : { \"p\" : { \"run\" : 1 } }, \"sleep\" : 2",
            "f:1:59: tasks.t: events such as \"sleep\" stand beside \"phases\"; put them into a phase",
        ),
        (
            "\"phases\" : { \"p\" : { \"delay\" : 1 } }",
            "f:1:44: tasks.t.phases.p.delay: \"delay\" is a key of a task, not of a phase; move it up",
        ),
        (
            "\"phases\" : { \"p\" : { \"lop\" : 1 } }",
            "f:1:44: tasks.t.phases.p.lop: unknown key in a phase; nearest valid: \"loop\"",
        ),
        ("\"run\"", "f:1:23: tasks.t.run: missing a value; only \"suspend\" and \"yield\" may stand without one"),
        (
            "\"timer\" : { \"ref\" : \"x\", \"perod\" : 1 }",
            "f:1:48: tasks.t.timer.perod: unknown key in a timer; nearest valid: \"period\"",
        ),
        ("\"timer\" : { \"period\" : 1 }", "f:1:33: tasks.t.timer: missing \"ref\": the timer's name, or \"unique\""),
        ("\"timer\" : { \"ref\" : \"x\" }", "f:1:33: tasks.t.timer: missing \"period\": microseconds"),
        (
            "\"timer\" : { \"ref\" : \"x\", \"ref\" : \"y\" }",
            "f:1:48: tasks.t.timer.ref: given twice (first on line 1); only events and phases may repeat",
        ),
        (
            "\"wait\" : { \"ref\" : \"x\" }",
            "f:1:32: tasks.t.wait: missing \"mutex\": the mutex to release while waiting",
        ),
        (
            "\"sync\" : { \"mutex\" : \"x\" }",
            "f:1:32: tasks.t.sync: missing \"ref\": the condition variable to wait for",
        ),
        (
            "\"wait\" : { \"ref\" : \"x\", \"mutx\" : \"m\" }",
            "f:1:47: tasks.t.wait.mutx: unknown key in a wait or sync; nearest valid: \"mutex\"",
        ),
    ]);
    check_globals(&[
        ("\"duraton\" : 1", "f:2:14: global.duraton: unknown key in global; nearest valid: \"duration\""),
        (
            "\"duration\" : 1, \"duration\" : 1",
            "f:2:30: global.duration: given twice (first on line 2); only events and phases may repeat",
        ),
    ]);
}

#[test]
fn values() {
    check_tasks(&[
        ("\"run\" : \"10\"", "f:1:31: tasks.t.run: found \"10\", want a whole number of microseconds, or -1 for ever"),
        ("\"run\" : 1.5", "f:1:31: tasks.t.run: found 1.5, want a whole number of microseconds, or -1 for ever"),
        (
            "\"run\" : -2",
            "f:1:31: tasks.t.run: -2 is not valid here, want a whole number of microseconds, or -1 for ever, -1 to 2147483647",
        ),
        (
            "\"runtime\" : -1",
            "f:1:35: tasks.t.runtime: -1 is not valid here, want a whole number of microseconds, 0 to 2147483647",
        ),
        (
            "\"sleep\" : 2147483648",
            "f:1:33: tasks.t.sleep: 2147483648 is not valid here, want a whole number of microseconds, 0 to 2147483647",
        ),
        (
            "\"sleep\" : 99999999999999999999",
            "f:1:33: tasks.t.sleep: 99999999999999999999 is not valid here, want a whole number of microseconds, 0 to 2147483647",
        ),
        ("\"mem\" : true", "f:1:31: tasks.t.mem: found true, want a whole number of bytes"),
        (
            "\"instance\" : 0, \"run\" : 1",
            "f:1:15: tasks.t.instance: 0 is not valid here, want at least 1; 0 is for a task that another one forks",
        ),
        (
            "\"instance\" : 100001, \"run\" : 1",
            "f:1:36: tasks.t.instance: 100001 is not valid here, want a number of threads, 0 to 100000",
        ),
        ("\"delay\" : null, \"run\" : 1", "f:1:33: tasks.t.delay: found null, want a whole number of microseconds"),
        (
            "\"loop\" : 0, \"run\" : 1",
            "f:1:32: tasks.t.loop: 0 is not valid here, want at least 1, or -1 for ever (rt-app takes 0 for that, too)",
        ),
        (
            "\"loop\" : -2, \"run\" : 1",
            "f:1:32: tasks.t.loop: -2 is not valid here, want a number of rounds or -1 for ever, -1 to 2147483647",
        ),
        (
            "\"loop\" : 3000000000, \"run\" : 1",
            "f:1:32: tasks.t.loop: 3000000000 is not valid here, want a number of rounds or -1 for ever, -1 to 2147483647",
        ),
        (
            "\"policy\" : \"SCHED_OTHR\", \"run\" : 1",
            "f:1:34: tasks.t.policy: \"SCHED_OTHR\" is not valid here, want SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_FIFO, SCHED_RR, SCHED_DEADLINE",
        ),
        ("\"policy\" : 1, \"run\" : 1", "f:1:34: tasks.t.policy: found 1, want a policy such as \"SCHED_OTHER\""),
        (
            "\"policy\" : \"SCHED_DEADLINE\", \"run\" : 1",
            "f:1:23: tasks.t.policy: not modelled: SCHED_DEADLINE; SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_FIFO and SCHED_RR are",
        ),
        (
            "\"priority\" : 20, \"run\" : 1",
            "f:1:23: tasks.t.priority: 20 is not valid here, want -20 to 19 under SCHED_OTHER",
        ),
        (
            "\"priority\" : -21, \"run\" : 1",
            "f:1:36: tasks.t.priority: -21 is not valid here, want a priority, -20 to 99",
        ),
        (
            "\"priority\" : 0, \"policy\" : \"SCHED_RR\", \"run\" : 1",
            "f:1:23: tasks.t.priority: 0 is not valid here, want 1 to 99 under SCHED_RR",
        ),
        (
            "\"phases\" : { \"p\" : { \"priority\" : 50, \"run\" : 1 } }",
            "f:1:44: tasks.t.phases.p.priority: 50 is not valid here, want -20 to 19 under SCHED_OTHER",
        ),
        (
            "\"phases\" : { \"p\" : { \"policy\" : \"SCHED_DEADLINE\", \"run\" : 1 } }",
            "f:1:44: tasks.t.phases.p.policy: not modelled: SCHED_DEADLINE; SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_FIFO and SCHED_RR are",
        ),
        (
            "\"cpus\" : [], \"run\" : 1",
            "f:1:23: tasks.t.cpus: [] is not valid here, want at least one CPU; without the key all are allowed",
        ),
        ("\"cpus\" : 1, \"run\" : 1", "f:1:32: tasks.t.cpus: found 1, want a list of CPU numbers such as [0, 2]"),
        (
            "\"cpus\" : [0, \"1\"], \"run\" : 1",
            "f:1:36: tasks.t.cpus: found \"1\", want a list of CPU numbers such as [0, 2]",
        ),
        (
            "\"cpus\" : [0, 4], \"run\" : 1",
            "f:1:23: tasks.t.cpus: CPU 4 is not valid here, want 0 to 3: the machine has 4 CPUs",
        ),
        (
            "\"phases\" : { \"p\" : { \"cpus\" : [9], \"run\" : 1 } }",
            "f:1:44: tasks.t.phases.p.cpus: CPU 9 is not valid here, want 0 to 3: the machine has 4 CPUs",
        ),
        (
            "\"util_min\" : 1025, \"run\" : 1",
            "f:1:36: tasks.t.util_min: 1025 is not valid here, want a utilization, 0 to 1024",
        ),
        ("\"taskgroup\" : 1, \"run\" : 1", "f:1:37: tasks.t.taskgroup: found 1, want the path of a task group"),
        ("\"dl-reclaim\" : 1, \"run\" : 1", "f:1:38: tasks.t.dl-reclaim: found 1, want true or false"),
        ("\"lock\" : 1", "f:1:32: tasks.t.lock: found 1, want the name of a mutex"),
        ("\"lock\" : \"\"", "f:1:32: tasks.t.lock: \"\" is not valid here, want the name of a mutex"),
        (
            "\"timer\" : 100",
            "f:1:33: tasks.t.timer: found 100, want an object such as { \"ref\": \"unique\", \"period\": 10000 }",
        ),
        (
            "\"timer\" : { \"ref\" : \"x\", \"period\" : 1, \"mode\" : \"fixed\" }",
            "f:1:71: tasks.t.timer.mode: \"fixed\" is not valid here, want \"relative\" or \"absolute\"",
        ),
        (
            "\"suspend\" : 1",
            "f:1:35: tasks.t.suspend: found 1, want the name under which the task waits, or \"\" for its own",
        ),
        ("\"phases\" : { \"p\" : 1 }", "f:1:42: tasks.t.phases.p: found 1, want an object: one phase"),
    ]);
    check_globals(&[
        (
            "\"duration\" : 0",
            "f:2:27: global.duration: 0 is not valid here, want at least 1 second, or -1 to run until all tasks have ended",
        ),
        (
            "\"duration\" : -2",
            "f:2:27: global.duration: -2 is not valid here, want a whole number of seconds or -1, -1 to 2147483647",
        ),
        ("\"duration\" : \"6\"", "f:2:27: global.duration: found \"6\", want a whole number of seconds or -1"),
        (
            "\"calibration\" : \"cpu\"",
            "f:2:30: global.calibration: \"cpu\" is not valid here, want \"CPU0\", \"CPU1\"...",
        ),
        ("\"calibration\" : 0", "f:2:30: global.calibration: 0 is not valid here, want ns per loop, 1 to 2147483647"),
        ("\"calibration\" : [ ]", "f:2:30: global.calibration: found an array, want \"CPU<n>\" or ns per loop"),
        (
            "\"default_policy\" : \"SCHED_DEADLINE\"",
            "f:2:14: global.default_policy: not modelled: SCHED_DEADLINE; SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_FIFO and SCHED_RR are",
        ),
        ("\"pi_enabled\" : 1", "f:2:29: global.pi_enabled: found 1, want true or false"),
        ("\"lock_pages\" : \"yes\"", "f:2:29: global.lock_pages: found \"yes\", want true or false"),
        (
            "\"log_size\" : \"big\"",
            "f:2:27: global.log_size: \"big\" is not valid here, want \"file\", \"disable\", \"auto\" or a number of MB",
        ),
        (
            "\"log_size\" : false",
            "f:2:27: global.log_size: found false, want \"file\", \"disable\", \"auto\" or a number of MB",
        ),
        (
            "\"ftrace\" : \"tsk\"",
            "f:2:25: global.ftrace: \"tsk\" is not valid here, want none, main, task, run, loop, event, stats",
        ),
        ("\"ftrace\" : 1", "f:2:25: global.ftrace: found 1, want true, false or a list such as \"task,loop\""),
        (
            "\"mem_buffer_size\" : 0",
            "f:2:34: global.mem_buffer_size: 0 is not valid here, want a whole number of bytes, 1 to 2147483647",
        ),
        ("\"io_device\" : \"\"", "f:2:28: global.io_device: \"\" is not valid here, want the path of a file"),
        ("\"logdir\" : 1", "f:2:25: global.logdir: found 1, want a text"),
    ]);
    check(&[(
        "{ \"tasks\" : { \"t\" : { \"run\" : 1 } }, \"resources\" : { \"m\" : 1 } }",
        "f:1:60: resources.m: found 1, want an object such as { \"type\": \"mutex\" }",
    )]);
    check(&[(
        "{ \"tasks\" : { \"a\" : { \"instance\" : 60000, \"run\" : 1 },\n\"b\" : { \"instance\" : 50000, \"run\" : 1 } } }",
        "f:2:1: tasks.b: 110000 tasks in all up to here is not valid here, want at most 100000",
    )]);
}

#[test]
fn sense() {
    check_tasks(&[
        ("\"unlock\" : \"m\"", "f:1:23: tasks.t.unlock: the task does not hold \"m\" here; \"lock\" it first"),
        (
            "\"lock\" : \"m\", \"run\" : 1",
            "f:1:23: tasks.t.lock: the task holds \"m\" here already (perhaps since the round before): it would wait for itself",
        ),
        (
            "\"loop\" : 1, \"lock\" : \"m\", \"lock1\" : \"m\"",
            "f:1:49: tasks.t.lock1: the task holds \"m\" here already (perhaps since the round before): it would wait for itself",
        ),
        (
            "\"loop\" : 1, \"wait\" : { \"ref\" : \"c\", \"mutex\" : \"m\" }",
            "f:1:35: tasks.t.wait: the task does not hold \"m\" here; \"lock\" it first",
        ),
        (
            "\"loop\" : 2, \"phases\" : { \"p\" : { \"sync\" : { \"ref\" : \"c\", \"mutex\" : \"m\" }, \"lock\" : \"m\" } }",
            "f:1:56: tasks.t.phases.p.sync: the task holds \"m\" here in some rounds and not in others; \"unlock\" what it locks",
        ),
        (
            "\"loop\" : 2, \"phases\" : { \"p\" : { \"loop\" : 3, \"lock\" : \"m\" } }",
            "f:1:68: tasks.t.phases.p.lock: the task holds \"m\" here already (perhaps since the round before): it would wait for itself",
        ),
        (
            "\"run\" : 0, \"sleep\" : 0",
            "f:1:15: tasks.t: loops for ever without letting time pass: no event takes more than 0 us",
        ),
        (
            "\"loop\" : 1, \"phases\" : { \"p\" : { \"loop\" : -1, \"run\" : 0 } }",
            "f:1:48: tasks.t.phases.p: loops for ever without letting time pass: no event takes more than 0 us",
        ),
        (
            "\"barrier\" : \"x\", \"run\" : 1, \"barrier1\" : \"x\"",
            "f:1:51: tasks.t.barrier1: the task names the barrier \"x\" on line 1 already; each barrier is one point, and with two rt-app waits for ever: give this one another name",
        ),
        ("\"fork\" : \"u\"", "f:1:23: tasks.t.fork: no task is named \"u\"; valid: t"),
        (
            "\"fork\" : \"t\", \"barrier\" : \"x\"",
            "f:1:23: tasks.t.fork: \"t\" waits at a barrier, whose users must be known: it cannot be forked",
        ),
        ("\"instance\" : 0, \"fork\" : \"t\"", "f:1:15: tasks: no task has an instance: nothing would start"),
    ]);
    // The same rounds, but sound.
    for body in [
        "\"loop\" : 1, \"lock\" : \"m\"",
        "\"phases\" : { \"a\" : { \"lock\" : \"m\" }, \"b\" : { \"unlock\" : \"m\" } }",
        "\"phases\" : { \"a\" : { \"loop\" : -1, \"run\" : 1 }, \"b\" : { \"unlock\" : \"m\" } }",
    ] {
        assert_eq!(message(&task(body)), "loads", "{body}");
    }
}

#[test]
fn notes_of_names_that_one_side_uses() {
    let notes = |body: &str| load(&task(body)).notes;
    let body = r#""loop" : 1, "phases" : { "p" : { "signal" : "c", "resume" : "x" } }"#;
    assert_eq!(
        notes(body),
        [
            "t.json:1: a task signals the condition variable \"c\", but none waits for it: no effect",
            "t.json:1: a task resumes \"x\", but none suspends under that name: no effect",
        ]
    );
    let body = r#""loop" : 1, "phases" : { "p" : { "suspend", "lock" : "m", "wait" : { "ref" : "c", "mutex" : "m" },
        "barrier" : "b" } }"#;
    assert_eq!(
        notes(body),
        [
            "t.json:2: the barrier \"b\" has one user, whom it never stops",
            "t.json:1: a task waits for the condition variable \"c\", but none signals it: it never wakes",
            "t.json:1: a task suspends as \"t\", but none resumes that name: it never wakes",
        ]
    );
    let body = r#""phases" : { "p" : { "loop" : -1, "run" : 1 }, "q" : { "run" : 1 } }"#;
    assert_eq!(
        notes(body),
        [
            "t.json:1: the phase \"q\" of \"t\" is never reached: the one before loops for ever",
            "t.json:1: \"t\" loops for ever and there is no \"duration\": the run ends only where its caller sets an end",
        ]
    );
    assert_eq!(
        notes(r#""run" : -1"#),
        ["t.json:1: \"t\" runs for ever and there is no \"duration\": the run ends only where its caller sets an end"]
    );
}

#[test]
fn other_json_is_named() {
    for (text, said) in [
        ("{ \"linux-perf-json-version\": 1, \"headers\": {} }", "this is perf's JSON"),
        ("{ \"traceEvents\": [] }", "this is a trace in Chrome's JSON"),
    ] {
        let error = parse(text, "p.json").expect_err("not of rt-app").to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn an_error_is_typed_too() {
    let RtAppError { file, pos, key, .. } =
        parse("{\n  \"tasks\" : { \"t\" : { \"runn\" : 1 } } }", "web.json").unwrap_err();
    assert_eq!((&*file, pos.line, pos.column, &*key), ("web.json", 2, 23, "tasks.t.runn"));
}
