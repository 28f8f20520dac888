//! The recorded kernel's own work, and what it does not record.

use super::*;

/// A task wakes another on its CPU, twelve times: by a pipe and by a futex in turns. The woken one comes 2 us later.
#[test]
fn what_follows_a_wake_up_and_which_are_synchronous() {
    let line = |us: u32, pid: u32, what: String| format!("cmd-{pid} [000] d..2. 1.{us:06}: {what}\n");
    let switch = |us: u32, from: u32, state: &str, to: u32| {
        let prev = format!("prev_comm=cmd prev_pid={from} prev_prio=120 prev_state={state}");
        line(us, from, format!("sched_switch: {prev} ==> next_comm=cmd next_pid={to} next_prio=120"))
    };
    let mut text = "\
sh-10 [000] ..... 1.000002: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=sh next_pid=10 next_prio=120
sh-10 [000] ..... 1.000009: sys_enter_execve: filename: 0x55, argv: 0x55, envp: 0x55
sh-10 [000] ..... 1.000010: sched_process_exec: filename=/bin/cmd pid=10 old_pid=10
cmd-10 [000] ..... 1.000015: sched_process_fork: comm=cmd pid=10 child_comm=cmd child_pid=11
cmd-10 [000] d..2. 1.000016: sched_wakeup_new: comm=cmd pid=11 prio=120 target_cpu=000
"
    .to_string();
    text += &switch(20, 10, "R", 11);
    for n in 0..12 {
        let us = 100 + 100 * n;
        let call = if n % 2 == 0 { 1 } else { 202 };
        text += &switch(us, 11, "S", 10);
        text += &line(us + 4, 10, format!("sys_enter: NR {call} (0, 0, 0, 0, 0, 0)"));
        text += &line(us + 5, 10, "sched_waking: comm=cmd pid=11 prio=120 target_cpu=000".into());
        text += &switch(us + 7, 10, "R", 11);
        text += &switch(us + 20, 11, "S", 10);
        text += &line(us + 21, 10, format!("sys_exit: NR {call} = 0"));
        text += &line(us + 30, 10, "sched_waking: comm=cmd pid=11 prio=120 target_cpu=000".into());
        text += &switch(us + 50, 10, "S", 11);
    }
    let of = |text: &str| {
        let (model, r) = small().model(text.as_bytes().to_vec(), &|_| Ok(free())).expect("a recording");
        let parent: Vec<What> = model.steps_of(0).collect();
        let posts = parent.windows(3).filter(|w| matches!(w[0], What::Post(..)));
        let posts: Vec<_> = posts.map(|w| (w[0], w[1], w[2])).take(4).collect();
        (r.tail_ns, r.sync_posts, posts)
    };
    let (tail, sync, posts) = of(&text);
    // Outside any call a post cannot be, so that it was not in futex says enough.
    assert_eq!((tail, sync), (2_000, 18));
    let after = |sync, ns| (What::Post(1, sync), What::Kernel(2_000, false), What::Run(ns));
    assert_eq!(posts, [after(true, 10_000), after(true, 18_000), after(false, 10_000), after(true, 18_000)]);
    // Without calls nothing is known of how they woke; with few preemptions, not how long a call goes on.
    let without = text.lines().filter(|l| !l.contains(": sys_")).collect::<Vec<_>>().join("\n");
    assert_eq!((of(&without).0, of(&without).1), (2_000, 0));
    let few = without.lines().take(60).collect::<Vec<_>>().join("\n");
    assert_eq!(of(&few).0, 0);
    let (w, _) = build(&text, &small()).expect("a recording");
    assert_eq!(simulated("1c", w).outcome, Outcome::Finished);
}

#[test]
fn contended_locks_of_the_recorded_kernel() {
    let waits = [
        ("000011", "cmd-10 [000] d..1.", "contention_begin: 0xffff888100000010 (flags=SPIN)"),
        ("000013", "cmd-10 [000] d..1.", "contention_end: 0xffff888100000010 (ret=0)"),
        ("000013", "cmd-10 [000] d..1.", "contention_begin: 0xffff888100000010 (flags=SPIN)"),
        ("000014", "cmd-10 [000] d..1.", "contention_end: 0xffff888100000010 (ret=0)"),
        // Spins, sleeps, and is preempted meanwhile: one wait.
        ("000019", "cmd-11 [001] .....", "contention_begin: 0xffff888100000020 (flags=SPIN|MUTEX)"),
        ("000020", "cmd-11 [001] .....", "contention_begin: 0xffff888100000020 (flags=MUTEX)"),
        ("000022", "kworker/1:0-5 [001] .....", "contention_begin: 0xffff888100000010 (flags=SPIN)"),
        ("000023", "kworker/1:0-5 [001] .....", "contention_end: 0xffff888100000010 (ret=0)"),
        ("000027", "cmd-11 [001] .....", "contention_end: 0xffff888100000020 (ret=0)"),
        // Readers and writers; the end of the first wait is lost, the last does not end.
        ("000032", "cmd-10 [000] .....", "contention_begin: 0xffff888100000030 (flags=READ)"),
        ("000034", "cmd-10 [000] .....", "contention_begin: 0xffff888100000030 (flags=READ)"),
        ("000035", "cmd-10 [000] .....", "contention_end: 0xffff888100000030 (ret=0)"),
        ("000036", "cmd-10 [000] .....", "contention_begin: 0xffff888100000030 (flags=WRITE)"),
        ("000038", "cmd-10 [000] .....", "contention_end: 0xffff888100000030 (ret=0)"),
        ("000039", "cmd-10 [000] .....", "contention_begin: 0xffff888100000040 (flags=)"),
    ];
    let mut lines: Vec<String> = SMALL.lines().map(Into::into).collect();
    lines.extend(waits.map(|(us, who, what)| format!("{who} 1.{us}: {what}")));
    let time = |line: &String| line.find(" 1.0000").map(|at| line[at..at + 9].to_string());
    lines.sort_by_key(time);
    let text = lines.join("\n");
    let of = |all| {
        let (_, r) = build(&text, &RecordingSpec { all, ..small() }).expect("a recording");
        let said = r.to_string();
        let rows = r.locks.iter().map(|l| (l.number, l.address & 0xff, l.kind, l.contended, l.wait_ns, l.wait_max_ns));
        (rows.collect::<Vec<_>>(), said)
    };
    let (own, said) = of(false);
    let expected = [
        (1, 0x20, "mutex", 1, 8_000, 8_000),
        (2, 0x10, "spinlock", 2, 3_000, 2_000),
        (3, 0x30, "rwsem:W", 1, 2_000, 2_000),
        (3, 0x30, "rwsem:R", 1, 1_000, 1_000),
    ];
    assert_eq!(own, expected);
    assert!(said.contains("contended kernel locks: 5 waits of 0.014 ms in all"), "{said}");
    let (everybody, _) = of(true);
    assert_eq!(everybody[1], (2, 0x10, "spinlock", 3, 4_000, 2_000));
}

/// An interrupt wakes a task on its idle CPU, and the kernel does not record that the CPU goes on to it: its run is without the way
/// from idle, which the simulated kernel takes itself, and neither its begin nor the wait for it is counted.
#[test]
fn arrivals_that_are_not_recorded() {
    let mut text = "\
sh-10 [000] ..... 1.000000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=sh next_pid=10 next_prio=120
sh-10 [000] ..... 1.000010: sched_process_exec: filename=/bin/cmd pid=10 old_pid=10
cmd-10 [000] d..2. 1.000020: sched_switch: prev_comm=cmd prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
"
    .to_string();
    for us in [100, 300, 500] {
        text += &format!("<idle>-0 [000] d.h2. 1.000{us}: sched_waking: comm=cmd pid=10 prio=120 target_cpu=000\n");
        let left =
            "prev_comm=cmd prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120";
        text += &format!("cmd-10 [000] d..2. 1.000{}: sched_switch: {left}\n", us + 50);
    }
    let run_ns = |way: &str| {
        let mut machine = Machine::parse(&String::from_utf8(free()).expect("text"), "free").expect("a machine");
        machine.set("interrupts.tick_restart", way).expect("a cost");
        let mut w = Workload::default();
        let r = small().build(&mut w, 0, text.clone().into_bytes(), &|_| Ok(machine.to_toml().into_bytes()));
        r.expect("a recording").0.run_ns
    };
    assert_eq!(run_ns("0"), 160_000);
    assert_eq!(run_ns("9000"), 133_000);
    let mut kept = Kept::default();
    let read = small().read(text.into_bytes(), &|_| Ok(free()), &mut |e, task_of| kept.event(e, task_of));
    drop(read.expect("a recording"));
    let stats = kept.stats(|number| (number == 0).then_some("cmd"));
    assert_eq!(stats.from_idle.unseen(), 3);
    let all = &stats.all;
    // One run of 20 us is in the recording whole; of three of 50 us the beginning is not.
    assert_eq!((all.switches, all.wakeup_latency.len(), all.runs.len(), all.run_ns), (4, 0, 1, 170_000));
}

/// What the recorded kernel did beyond the price of a step's kind: it set the hardware's timer where the sleep's timer was the CPU's next, and it
/// sent an interrupt where the woken task's CPU idled and halts. That is taken out of runs, too.
#[test]
fn prices_that_the_recording_tells() {
    let idle = "next_comm=swapper/0 next_pid=0 next_prio=120";
    let cmd = "prev_comm=cmd prev_pid=10 prev_prio=120 prev_state=S";
    let taken = |between: &str, timer: &str| {
        // `cmd` forks `kid`, which sleeps on CPU 1; runs 100 us, wakes it, sleeps, is woken by a timer.
        let text = EXEC.to_string()
            + "\
cmd-10 [000] ..... 1.000020: sched_process_fork: comm=cmd pid=10 child_comm=kid child_pid=11
<idle>-0 [001] d..2. 1.000030: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=kid next_pid=11 next_prio=120
kid-11 [001] d..2. 1.000040: sched_switch: prev_comm=kid prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
cmd-10 [000] d..2. 1.000120: sched_waking: comm=kid pid=11 prio=120 target_cpu=001
<idle>-0 [001] d..2. 1.000140: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=kid next_pid=11 next_prio=120
kid-11 [001] d..2. 1.000150: sched_switch: prev_comm=kid prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
"
            + &format!("cmd-10 [000] d..2. 1.000220: sched_switch: {cmd} ==> {idle}\n")
            + between
            + &format!("<idle>-0 [000] d.h1. 1.000400: {timer}_expire_entry: {timer}=0xff now=1 function=wake\n")
            + "\
<idle>-0 [000] d.h2. 1.000401: sched_waking: comm=cmd pid=10 prio=120 target_cpu=000
"
            + &format!("<idle>-0 [000] d.h1. 1.000402: {timer}_expire_exit: {timer}=0xff\n")
            + "\
<idle>-0 [000] d..2. 1.000410: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=cmd next_pid=10 next_prio=120
cmd-10 [000] d..2. 1.000500: sched_switch: prev_comm=cmd prev_pid=10 prev_prio=120 prev_state=X ==> next_comm=swapper/0 next_pid=0 next_prio=120
";
        let mut machine = Machine::parse(&String::from_utf8(free()).expect("text"), "free").expect("a machine");
        for (key, value) in
            [("idle_halts", "true"), ("interrupts.ipi_send", "3000"), ("interrupts.timer_write", "5000")]
        {
            machine.set(key, value).expect("a key");
        }
        let mut w = Workload::default();
        let r = small().build(&mut w, 0, text.into_bytes(), &|_| Ok(machine.to_toml().into_bytes()));
        r.expect("a recording").0.kernel_ns
    };
    let other = "\
<idle>-0 [000] d.h1. 1.000300: hrtimer_expire_entry: hrtimer=0xee now=1 function=tick
<idle>-0 [000] d.h1. 1.000301: hrtimer_expire_exit: hrtimer=0xee
";
    assert_eq!(taken("", "hrtimer"), 8_000);
    assert_eq!(taken(other, "hrtimer"), 3_000, "another timer was to expire before");
    assert_eq!(taken("", "timer"), 3_000, "not the hardware's");
}

/// A task's last switch to idle is missing: it ran until its CPU was last seen with it, not until the recording's end.
#[test]
fn departures_that_are_not_recorded() {
    let text = EXEC.to_string()
        + "\
cmd-10 [000] d.h1. 1.000030: hrtimer_expire_entry: hrtimer=0xff now=1 function=tick
cmd-10 [000] d.h1. 1.000030: hrtimer_expire_exit: hrtimer=0xff
<idle>-0 [000] d..2. 1.000400: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=other next_pid=12 next_prio=120
other-12 [000] d..2. 1.900000: sched_switch: prev_comm=other prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
";
    let (w, r) = build(&text, &small()).expect("a recording");
    assert_eq!((r.run_ns, r.unchained), (20_000, 1));
    assert_eq!(simulated("1c", w).outcome, Outcome::Finished);
}

/// Who wakes another and then blocks uninterruptibly or exits, soon, has not left the kernel in between: the other does not come to its CPU
/// before.
#[test]
fn one_system_call_wakes_and_blocks() {
    let wakes = |us: u32, gap: u32, state: &str, run: u32| {
        let end = us + gap;
        let back = end + run;
        format!(
            "\
cmd-10 [000] d..2. 1.{us:06}: sched_waking: comm=kworker/0:1H pid=54 prio=100 target_cpu=000
cmd-10 [000] d..2. 1.{end:06}: sched_switch: prev_comm=cmd prev_pid=10 prev_prio=120 prev_state={state} ==> next_comm=kworker/0:1H next_pid=54 next_prio=100
kworker/0:1H-54 [000] d..2. 1.{back:06}: sched_waking: comm=helper pid=12 prio=120 target_cpu=000
kworker/0:1H-54 [000] d..2. 1.{:06}: sched_switch: prev_comm=kworker/0:1H prev_pid=54 prev_prio=100 prev_state=S ==> next_comm=helper next_pid=12 next_prio=120
helper-12 [000] d.h2. 1.{:06}: sched_waking: comm=cmd pid=10 prio=120 target_cpu=000
helper-12 [000] d..2. 1.{:06}: sched_switch: prev_comm=helper prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=cmd next_pid=10 next_prio=120
",
            back + 4,
            back + 5,
            back + 6
        )
    };
    let text = EXEC.to_string()
        + &wakes(100, 3, "D", 10)
        + &wakes(200, 3, "S", 10)
        + &wakes(300, 60, "D", 10)
        + &wakes(500, 30, "X", 10);
    let spec = RecordingSpec { all: true, ..small() };
    let (model, _) = spec.model(text.clone().into_bytes(), &|_| Ok(free())).expect("a recording");
    let after_posts = |task| {
        let steps: Vec<What> = model.steps_of(task).collect();
        let posts = steps.windows(2).filter(|w| matches!(w[0], What::Post(..))).map(|w| w[1]);
        posts.collect::<Vec<_>>()
    };
    let blocks = |ns| What::Kernel(ns, true);
    assert_eq!(after_posts(0), [blocks(3_000), What::Run(3_000), What::Run(60_000), blocks(30_000)]);
    // A thread of the kernel is there all the time.
    assert_eq!(after_posts(1), [blocks(4_000); 4]);
    let Model::Exact(again) = Model::parse(&Model::Exact(model.clone()).to_bytes(), "model").expect("a model") else {
        panic!("it is exact")
    };
    assert!((0..2).all(|task| again.steps_of(task).eq(model.steps_of(task))));
    let preempted = |state: &str| {
        let text = EXEC.to_string() + &(1..9).map(|n| wakes(100 * n, 3, state, 10)).collect::<String>();
        let (w, _) = build(&text, &spec).expect("a recording");
        let result = simulated("1c", w);
        assert_eq!(result.outcome, Outcome::Finished);
        result.tasks.iter().find(|t| t.name.starts_with("cmd")).expect("it is there").run.preempted
    };
    assert_eq!(preempted("D"), 0);
    assert!(preempted("S") > 0);
}
