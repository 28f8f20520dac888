//! Steps of single recordings: yields, classes, sessions, choices.

use super::*;

#[test]
fn a_small_recording_step_by_step() {
    let (w, r) = build(SMALL, &small()).expect("a recording");
    assert_eq!((r.tasks, r.initial, r.outside, r.kernel_threads, r.forks), (2, 1, 1, 1, 1));
    // By a task; by an interrupt of which nothing is said.
    assert_eq!((r.sleeps, r.posts, r.ambiguous), ([1, 0, 0, 0, 1, 0], 1, 0));
    let (parent, child) = (&r.per_task[0], &r.per_task[1]);
    assert_eq!((parent.run_ns, parent.bursts, parent.waits, parent.sleeps), (10_000 + 13_000, 2, 1, 0));
    assert_eq!((child.run_ns, child.bursts, child.waits, child.sleeps), (3_000 + 7_000 + 1_000, 2, 0, 1));
    assert!(parent.exited && child.exited);
    assert_eq!((child.switches, child.preempted), (3, 1));
    let s = simulated("2c", w);
    assert_eq!(s.outcome, Outcome::Finished);
    assert_eq!(user_ns(&s), 34_000);
    assert_eq!(
        s.tasks.iter().map(|t| (t.name.as_str(), t.sched.nice())).collect::<Vec<_>>(),
        [("cmd-10", 0), ("cmd-11", 5)]
    );
}

#[test]
fn without_flags_the_running_task_is_taken_for_the_waker() {
    let text = SMALL.replace(" ..... ", " ").replace(" d..2. ", " ").replace(" d.h2. ", " ");
    let (_, r) = build(&text, &small()).expect("a recording");
    assert_eq!((r.sleeps, r.ambiguous), ([2, 0, 0, 0, 0, 0], 3));
}

/// A task leaves CPU 0, runnable, for another.
fn switch(us: u32, from: u32, to: u32) -> String {
    format!(
        "cmd-{from} [000] d..2. 1.{us:06}: sched_switch: prev_comm=cmd prev_pid={from} prev_prio=120 prev_state=R ==> \
         next_comm=cmd next_pid={to} next_prio=120\n"
    )
}

/// A timer's interrupt there.
fn interrupt(us: u32, who: &str) -> String {
    format!(
        "{who} [000] d.h1. 1.{us:06}: hrtimer_expire_entry: hrtimer=0xff now=1 function=tick\n\
         {who} [000] d.h1. 1.{us:06}: hrtimer_expire_exit: hrtimer=0xff\n"
    )
}

/// A program is executed where the last call of execve before began; without calls in the recording where it had been.
#[test]
fn programs_are_executed_where_they_are_called() {
    let text = "\
sh-10 [000] ..... 1.000000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=sh next_pid=10 next_prio=120
sh-10 [000] ..... 1.000001: sched_process_exec: filename=/bin/sh pid=10 old_pid=10
sh-10 [000] ..... 1.000100: sys_enter_execve: filename: 0x55, argv: 0x55, envp: 0x55
sh-10 [000] ..... 1.000110: sys_exit_execve: 0xfffffffffffffffe
sh-10 [000] ..... 1.000300: sys_enter_execve: filename: 0x56, argv: 0x55, envp: 0x55
sh-10 [000] ..... 1.000700: sched_process_exec: filename=/bin/cmd pid=10 old_pid=10
cmd-10 [000] d..2. 1.001000: sched_switch: prev_comm=cmd prev_pid=10 prev_prio=120 prev_state=X ==> next_comm=swapper/0 next_pid=0 next_prio=120
";
    let of = |text: &str| {
        let spec = RecordingSpec { command: "sh".into(), ..small() };
        let (model, r) = spec.model(text.as_bytes().to_vec(), &|_| Ok(free())).expect("a recording");
        assert_eq!(r.execs, 1, "the command's own is not replayed");
        model.steps_of(0).filter(|s| matches!(s, What::Run(_) | What::Exec)).collect::<Vec<_>>()
    };
    assert_eq!(of(text), [What::Run(299_000), What::Exec, What::Run(700_000)]);
    let uncalled: String = text.lines().filter(|l| !l.contains("_execve")).map(|l| format!("{l}\n")).collect();
    assert_eq!(of(&uncalled), [What::Run(699_000), What::Exec, What::Run(300_000)]);
}

/// Two tasks pass one CPU to and fro: what nothing but the task itself can have caused is a yield.
#[test]
fn yields_are_told_from_preemptions() {
    let first = "\
sh-10 [000] ..... 1.000002: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=sh next_pid=10 next_prio=120
sh-10 [000] ..... 1.000010: sched_process_exec: filename=/bin/cmd pid=10 old_pid=10
cmd-10 [000] ..... 1.000015: sched_process_fork: comm=cmd pid=10 child_comm=cmd child_pid=11
cmd-10 [000] d..2. 1.000016: sched_wakeup_new: comm=cmd pid=11 prio=120 target_cpu=000
";
    let tasks = first.to_string()
        + &switch(100, 10, 11) // 11 is new: it may have preempted
        + &switch(110, 11, 10) // 10 had waited before 11 came: a yield
        + &switch(120, 10, 11); // again
    let last = interrupt(125, "cmd-11") + &switch(130, 11, 10); // the tick was just there
    let of = |text: String| {
        let (w, r) = build(&text, &small()).expect("a recording");
        (r.yields, r.preempted, simulated("1c", w).outcome)
    };
    let before = interrupt(1, "<idle>-0");
    assert_eq!(of(before.clone() + &tasks + &last), (2, 2, Outcome::Finished));
    // A kernel that says "preempted" means it.
    let said = tasks.replace("prev_state=R ==> next_comm=cmd", "prev_state=R+ ==> next_comm=cmd");
    assert_eq!(of(before.clone() + &said), (0, 3, Outcome::Finished));
    // A wake-up has the kernel choose anew, and it may choose a third: by the task itself, or here by another; not elsewhere.
    let wakes = |who: &str, cpu: u32| {
        let woken = format!("{who} d..2. 1.000108: sched_waking: comm=kworker/1:0 pid=5 prio=120 target_cpu=00{cpu}\n");
        let (until, from) = tasks.split_at(tasks.find("cmd-11 [000] d..2. 1.000110").expect("the first yield"));
        of(before.clone() + until + &woken + from + &last)
    };
    assert_eq!(wakes("cmd-11 [000]", 1), (1, 3, Outcome::Finished));
    assert_eq!(wakes("<idle>-0 [001]", 0), (1, 3, Outcome::Finished));
    assert_eq!(wakes("<idle>-0 [001]", 1), (2, 2, Outcome::Finished));
    // A call that is left with no switch due has not brought one about.
    let left = |flags: &str| {
        let woken = "cmd-11 [000] d..2. 1.000107: sched_waking: comm=kworker/1:0 pid=5 prio=120 target_cpu=001\n";
        let left = format!("cmd-11 [000] {flags} 1.000108: sys_exit: NR 1 = 1\n");
        let (until, from) = tasks.split_at(tasks.find("cmd-11 [000] d..2. 1.000110").expect("the first yield"));
        let due = "<idle>-0 [001] dN.2. 1.000001: sys_exit: NR 1 = 1\n";
        of(before.clone() + due + until + woken + &left + from + &last)
    };
    assert_eq!(left("....."), (2, 2, Outcome::Finished));
    assert_eq!(left(".N..."), (1, 3, Outcome::Finished));
    // Without interrupts in the recording nobody knows.
    assert_eq!(of(tasks), (0, 3, Outcome::Finished));
}

/// Where all system calls are recorded, they say who yields; where no wake-up is, nothing does.
#[test]
fn yields_are_not_made_up() {
    let woken = "<idle>-0 [000] d..2. 1.000002: sched_waking: comm=cmd pid=10 prio=120 target_cpu=000\n";
    let call = |us: u32, nr: u32| format!("cmd-11 [000] ..... 1.{us:06}: sys_enter: NR {nr} (0, 0, 0, 0, 0, 0)\n");
    let yields = |woken: &str, call: &str| {
        let text =
            interrupt(1, "<idle>-0") + woken + &switch(50, 0, 10) + &switch(100, 10, 11) + call + &switch(110, 11, 10);
        build(&text, &RecordingSpec { all: true, ..small() }).expect("a recording").1.yields
    };
    assert_eq!(yields(woken, ""), 1);
    assert_eq!(yields("", ""), 0, "the wake-up that preempted may not be recorded");
    assert_eq!(yields(woken, &call(105, 24)), 1);
    assert_eq!(yields(woken, &call(105, 39)), 0, "it was in another call");
}

/// A task becomes a real-time one, sleeps twice, and is an ordinary one again when it exits.
#[test]
fn classes_change_where_they_did() {
    let text = "\
sh-10 [000] ..... 1.000002: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=sh next_pid=10 next_prio=120
sh-10 [000] ..... 1.000010: sched_process_exec: filename=/bin/cmd pid=10 old_pid=10
cmd-10 [000] d..2. 1.000100: sched_switch: prev_comm=cmd prev_pid=10 prev_prio=19 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
<idle>-0 [000] d.h2. 1.000200: sched_waking: comm=cmd pid=10 prio=19 target_cpu=000
<idle>-0 [000] d..2. 1.000202: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=cmd next_pid=10 next_prio=19
cmd-10 [000] d..2. 1.000300: sched_switch: prev_comm=cmd prev_pid=10 prev_prio=19 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
<idle>-0 [000] d.h2. 1.000400: sched_waking: comm=cmd pid=10 prio=19 target_cpu=000
<idle>-0 [000] d..2. 1.000402: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=cmd next_pid=10 next_prio=19
cmd-10 [000] d..2. 1.000500: sched_switch: prev_comm=cmd prev_pid=10 prev_prio=125 prev_state=X ==> next_comm=swapper/0 next_pid=0 next_prio=120
";
    let spec = small();
    let (model, r) = spec.model(text.into(), &|_| Ok(free())).expect("a recording");
    let (fifo, nice) = (Sched::Fifo(80), Sched::normal(5));
    assert_eq!(model.scheds_of(0).collect::<Vec<_>>(), [Sched::normal(0), fifo, nice]);
    assert_eq!((r.realtime, r.reclassed, model.main_sched(0)), (1, 2, fifo));
    let told: Vec<What> = model.steps_of(0).filter(|s| matches!(s, What::Run(_) | What::Sched(_))).collect();
    // What it became in the run in which it executed a program it was from there on, as with chrt; elsewhere after the run.
    assert!(matches!(told[..], [What::Sched(_), What::Run(_), What::Run(_), What::Run(_), What::Sched(_)]), "{told:?}");
    let unexecuted = text.replace(
        "sched_process_exec: filename=/bin/cmd pid=10 old_pid=10",
        "sched_wakeup: comm=sh pid=10 prio=120 target_cpu=000",
    );
    let (other, _) =
        RecordingSpec { all: true, ..spec.clone() }.model(unexecuted.into(), &|_| Ok(free())).expect("a recording");
    let told: Vec<What> = other.steps_of(0).filter(|s| matches!(s, What::Run(_) | What::Sched(_))).collect();
    assert!(matches!(told[..], [What::Run(_), What::Sched(_), What::Run(_), What::Run(_), What::Sched(_)]), "{told:?}");
    // Through a file.
    let again = Model::parse(&Model::Exact(model.clone()).to_bytes(), "m").expect("a model");
    assert!(matches!(again, Model::Exact(again) if again.steps == model.steps));
    let task = |w: Workload| simulated("1c", w).tasks[0].sched;
    assert_eq!(task(build(text, &spec).expect("a recording").0), nice);
}

#[test]
fn what_does_not_say_who_ran_when_is_refused() {
    let lines = |of: &dyn Fn(usize, &str) -> bool| {
        SMALL.lines().enumerate().filter(|(i, l)| of(*i, l)).fold(String::new(), |all, (_, l)| all + l + "\n")
    };
    let refused = |text: &str| build(text, &small()).map(|_| ()).expect_err("no recording").to_string();
    let woken = lines(&|_, l| l.contains("sched_wak"));
    assert!(refused(&woken).contains("small: no sched_switch among its 4 events"), "{}", refused(&woken));
    let earlier = SMALL.replace(" 1.0", " 8.0") + SMALL;
    assert!(refused(&earlier).contains("events go back in time, by up to 7.000 s"), "{}", refused(&earlier));
    // So are short ones.
    let late = SMALL.repeat(10).replace(" 1.0", " 1.1") + &SMALL.repeat(10);
    assert!(refused(&late).contains("events go back in time, by up to 0.1"), "{}", refused(&late));
    // Most of it is no event.
    let damaged = lines(&|_, l| !l.is_empty()).replace("[000] d..2.", "d..2.").replace("[001] d..2.", "d..2.");
    let text = damaged + SMALL.lines().next().expect("a line") + "\n";
    assert!(refused(&text).starts_with("small:4: found \"cmd-10 d..2. 1.000016"), "{}", refused(&text));
    // A stamp that cannot be is one event's damage.
    let whole = build(SMALL, &small()).expect("a recording").1;
    let stray = lines(&|i, _| i < 5)
        + "sh-10 [000] d..2. 2000000000.000010: sched_waking: comm=a pid=77 prio=120 target_cpu=000\n"
        + &lines(&|i, _| i >= 5);
    let r = build(&stray, &small()).expect("a recording").1;
    assert_eq!((r.span_ns, r.steps), (whole.span_ns, whole.steps));
    assert_eq!(r.read.expect("counts").strays, 1);
}

#[test]
fn other_choices() {
    let both = RecordingSpec { all: true, command: "sh".into(), ..small() };
    let said = build(SMALL, &both).map(|_| ()).expect_err("contradictory").to_string();
    assert_eq!(
        said,
        "small: command = \"sh\" and all = true: should be one of them; all takes the command's tasks, too"
    );
    let of = |f: fn(&mut RecordingSpec)| {
        let mut s = small();
        f(&mut s);
        build(SMALL, &s)
    };
    let (w, r) = of(|s| s.all = true).expect("a recording");
    assert_eq!(r.tasks, 3);
    assert_eq!(simulated("2c", w).outcome, Outcome::Finished);
    let (w, r) = of(|s| s.copies = 3).expect("a recording");
    assert_eq!((r.tasks, r.copies, w.tasks.len(), w.objects.len()), (2, 3, 3, 6));
    assert_eq!(user_ns(&simulated("2c", w)), 3 * 34_000);
    let (w, r) = of(|s| s.speed = 2.0).expect("a recording");
    assert_eq!(r.run_ns, 34_000, "the report is of the recording");
    assert_eq!(user_ns(&simulated("2c", w)), 17_000);
    let e = of(|s| s.command = "mc".into()).err().expect("no such command").to_string();
    assert_eq!(e, "small: \"mc\" was not executed in it; executed were cmd");
    let nothing_executed: Vec<&str> = SMALL.lines().filter(|l| !l.contains("sched_process_exec")).collect();
    let e = build(&nothing_executed.join("\n"), &RecordingSpec { command: "mc".into(), ..small() })
        .err()
        .expect("no such task")
        .to_string();
    assert!(e.starts_with("small: no task in it is called \"mc\"; tasks are "), "{e}");
    let e = of(|s| s.copies = 100_000).map(|(_, r)| r.tasks);
    assert_eq!(e.expect("200,000 tasks are allowed"), 2);
}

/// The first task was in a session; its child begins one of its own.
#[test]
fn sessions_are_inherited_and_begun() {
    let fork = SMALL.find("cmd-10 [000] d..2. 1.000020").expect("the line");
    let began = "cmd-11 [001] ..... 1.000019: sys_exit_setsid: 0xb\n";
    let failed = "cmd-11 [001] ..... 1.000019: sys_exit_setsid: 0xffffffffffffffff\n";
    let of = |between: &str, copies: u64| {
        let text = format!("{}{between}{}", &SMALL[..fork], &SMALL[fork..]);
        let s = RecordingSpec { sessions: "s.toml".into(), copies, ..small() };
        let read = |file: &str| Ok(if file == "s.toml" { b"[sessions]\n37 = [10]\n".to_vec() } else { free() });
        let mut w = Workload::default();
        s.build(&mut w, 0, text.into_bytes(), &read).expect("a recording");
        let names: Vec<String> = w.groups.iter().map(|(_, g)| g.name.clone()).collect();
        assert!(w.groups.iter().all(|(_, g)| g.session && g.shares == 1024));
        let p = Preset::find("linux-6.18").expect("a preset");
        let features = contend_sched::features::Features { autogroup: true, ..p.features };
        let machine = Machine::load("2c").expect("a machine");
        let (limits, guests) = (Limits::default(), Guests::default());
        let setup = Setup { machine, features, workload: w, seed: 1, limits, guests };
        let r = simulate(p.policy, setup, None, &mut |_| true).expect("stacks");
        let groups: Vec<String> = r.tasks.iter().map(|t| r.groups.path_of(t.group).to_string()).collect();
        (names, groups)
    };
    let [a, b] = ["/autogroup-37", "/autogroup-38"].map(String::from);
    assert_eq!(of("", 1), (vec![a.clone()], vec![a.clone(), a.clone()]));
    assert_eq!(of(failed, 1), (vec![a.clone()], vec![a.clone(), a.clone()]));
    assert_eq!(of(began, 1), (vec![a.clone(), b.clone()], vec![a, b]));
    let (names, groups) = of(began, 2);
    assert_eq!(names, ["/autogroup-37+0", "/autogroup-38+0", "/autogroup-37+1", "/autogroup-38+1"]);
    assert_eq!(groups.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{groups:?}");
}

/// `cmd` wakes `kid0`, which exits; `kid1` gets its pid.
const KIDS: &str = "\
sh-10 [000] ..... 1.000010: sched_process_exec: filename=/bin/cmd pid=10 old_pid=10
cmd-10 [000] ..... 1.000020: sched_process_fork: comm=cmd pid=10 child_comm=kid0 child_pid=11
<idle>-0 [001] d..2. 1.000030: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=kid0 next_pid=11 next_prio=120
kid0-11 [001] d..2. 1.000040: sched_switch: prev_comm=kid0 prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
cmd-10 [000] d..2. 1.000120: sched_waking: comm=kid0 pid=11 prio=120 target_cpu=001
<idle>-0 [001] d..2. 1.000140: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=kid0 next_pid=11 next_prio=120
kid0-11 [001] d..2. 1.000150: sched_switch: prev_comm=kid0 prev_pid=11 prev_prio=120 prev_state=X ==> next_comm=swapper/1 next_pid=0 next_prio=120
cmd-10 [000] ..... 1.000160: sched_process_fork: comm=cmd pid=10 child_comm=kid1 child_pid=11
<idle>-0 [001] d..2. 1.000170: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=kid1 next_pid=11 next_prio=120
kid1-11 [001] d..2. 1.000190: sched_switch: prev_comm=kid1 prev_pid=11 prev_prio=120 prev_state=X ==> next_comm=swapper/1 next_pid=0 next_prio=120
cmd-10 [000] d..2. 1.000200: sched_switch: prev_comm=cmd prev_pid=10 prev_prio=120 prev_state=X ==> next_comm=swapper/0 next_pid=0 next_prio=120
";

#[test]
fn a_pid_that_comes_again_is_another_task() {
    let mut kept = Kept::default();
    let read = small().read(KIDS.into(), &|_| Ok(free()), &mut |e, task_of| kept.event(e, task_of));
    let (_, r) = read.expect("a recording").model("", false).expect("tasks");
    let numbers: Vec<_> = r.per_task.iter().map(|t| (t.name.as_str(), t.pid, t.number)).collect();
    assert_eq!(numbers, [("cmd", 10, 0), ("kid0", 11, 1), ("kid1", 11, 2)]);
    let stats = kept.stats(|number| r.per_task.iter().find(|t| t.number == number).map(|t| t.name.as_str()));
    let of = |name: &str| (stats.by_name[name].switches, stats.by_name[name].run_ns);
    assert_eq!((of("kid0"), of("kid1"), of("cmd").0), ((2, 20_000), (1, 20_000), 1));
}

/// Who records `sched_wakeup` alone, or has a kernel before 4.3, still has who woke whom where the wake-up was the waker's own.
#[test]
fn wakeups_stand_in_where_there_is_no_waking() {
    let posts = |text: &str| {
        let (_, r) = build(text, &small()).expect("a recording");
        (r.posts, r.sleeps[Why::Task as usize], r.no_waking, r.to_string().contains("no sched_waking in it"))
    };
    assert_eq!(posts(KIDS), (1, 1, false, false));
    let alone = KIDS.replace("sched_waking", "sched_wakeup");
    assert_eq!(posts(&alone), (1, 1, true, true));
    // One made by an interrupt on the other CPU names nobody.
    let queued =
        alone.replace("cmd-10 [000] d..2. 1.000120: sched_wakeup", "<idle>-0 [001] d.h2. 1.000120: sched_wakeup");
    assert_eq!(posts(&queued), (0, 0, true, true));
}

/// Whose run lasted a slice may have been stopped by the kernel, which finds that out in a call that reads a clock of CPU time.
#[test]
fn who_ran_for_a_slice_did_not_yield() {
    let woken = "<idle>-0 [000] d..2. 1.000002: sched_waking: comm=cmd pid=11 prio=120 target_cpu=000\n";
    let yields = |us: u32| {
        let text = interrupt(1, "cmd-10") + woken + &switch(100, 10, 11) + &switch(100 + us, 11, 10);
        build(&text, &RecordingSpec { all: true, ..small() }).expect("a recording").1.yields
    };
    assert_eq!((yields(300), yields(1400)), (1, 0));
}
