//! Words of user space that tasks wait on with `futex`: mutexes and barriers are played as such.

use super::*;

/// What a task does on CPU 0.
fn line(us: u32, pid: u32, what: &str) -> String {
    format!("cmd-{pid} [000] d..2. 1.{us:06}: {what}\n")
}

fn switch(us: u32, from: u32, state: &str, to: u32) -> String {
    let prev = format!("prev_comm=cmd prev_pid={from} prev_prio=120 prev_state={state}");
    line(us, from, &format!("sched_switch: {prev} ==> next_comm=cmd next_pid={to} next_prio=120"))
}

/// It calls futex.
fn calls(us: u32, pid: u32, args: &str) -> String {
    line(us, pid, &format!("sys_enter_futex: __syscall_nr=202 {args}"))
}

fn returns(us: u32, pid: u32) -> String {
    line(us, pid, "sys_exit_futex: __syscall_nr=202, ret=0x0")
}

fn wakes(us: u32, pid: u32, whom: u32) -> String {
    line(us, pid, &format!("sched_waking: comm=cmd pid={whom} prio=120 target_cpu=000"))
}

/// A command that is executed at 10 us and starts so many threads.
fn command(threads: u32) -> String {
    let mut text = "\
sh-10 [000] ..... 1.000002: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=sh next_pid=10 next_prio=120
sh-10 [000] ..... 1.000010: sched_process_exec: filename=/bin/cmd pid=10 old_pid=10
"
    .to_string();
    for child in 11..11 + threads {
        text += &line(15, 10, &format!("sched_process_fork: comm=cmd pid=10 child_comm=cmd child_pid={child}"));
        text += &line(16, 10, &format!("sched_wakeup_new: comm=cmd pid={child} prio=120 target_cpu=000"));
    }
    text
}

/// Two threads on one CPU share a mutex. The first holds it, which nothing says, and is preempted; the second waits for it (the number of
/// that operation of futex), is faster than the first once it is free, and unlocks it.
fn mutex(wait: &str) -> String {
    let wait = |us, pid| calls(us, pid, &format!("uaddr=0x55c0 op={wait} val=0x2"));
    let wake = |us, pid| calls(us, pid, "uaddr=0x55c0 op=0x81 val=0x1");
    let mut text = command(1);
    // A first round tells that they use it.
    for at in [0, 1_000] {
        text += &switch(at + 100, 10, "R", 11);
        text += &wait(at + 110, 11);
        text += &switch(at + 112, 11, "S", 10);
        text += &wake(at + 120, 10);
        text += &wakes(at + 121, 10, 11);
        text += &returns(at + 122, 10);
        text += &switch(at + 123, 10, "R", 11);
        text += &returns(at + 125, 11);
        text += &wake(at + 140, 11);
        text += &returns(at + 142, 11);
        text += &switch(at + 160, 11, "R", 10);
    }
    text
}

fn steps_of(model: &Exact, task: usize) -> Vec<What> {
    model.steps_of(task).filter(|s| !matches!(s, What::Nop)).collect()
}

/// What a model's file says is what it was written from.
fn survives(model: &Exact) {
    let bytes = Model::Exact(model.clone()).to_bytes();
    let Model::Exact(again) = Model::parse(&bytes, "m").expect("a model") else { panic!("exact") };
    assert!((0..model.tasks.len()).all(|t| again.steps_of(t).eq(steps_of(model, t))));
}

#[test]
fn mutexes_of_user_space_are_locked_again() {
    // A C library's, and Rust's.
    for wait in ["0x80", "0x89"] {
        let text = mutex(wait);
        let (model, _) = small().model(text.clone().into_bytes(), &|_| Ok(free())).expect("a recording");
        let section = [What::Lock(0, false), What::Run(8_000), What::Unlock(0)];
        let steps = steps_of(&model, 0);
        assert!(steps.windows(3).any(|w| w == section), "{steps:?}");
        let sleep = What::Sleep(9_000, Why::Task);
        let section = [
            What::Lock(0, true),
            What::Run(2_000),
            sleep,
            What::By(0),
            What::Run(2_000),
            What::Locked,
            What::Run(15_000),
        ];
        let steps = steps_of(&model, 1);
        assert!(steps.windows(7).any(|w| w == section), "{steps:?}");
        survives(&model);
        // Whatever the machine, they get through.
        for machine in ["1c", "2c", "4c"] {
            let (w, _) = build(&text, &small()).expect("a recording");
            assert_eq!(w.objects[0].name, "mutex/0");
            assert_eq!(simulated(machine, w).outcome, Outcome::Finished);
        }
    }
}

#[test]
fn a_word_that_counts_is_no_mutex() {
    let text = mutex("0x80") + &calls(3_000, 10, "uaddr=0x55c0 op=0x80 val=0x3") + &returns(3_001, 10);
    let (model, _) = small().model(text.into_bytes(), &|_| Ok(free())).expect("a recording");
    let of_mutexes = |s: &What| matches!(s, What::Lock(..) | What::Unlock(_));
    assert!(!(0..2).any(|t| steps_of(&model, t).iter().any(of_mutexes)));
}

/// Three threads on one CPU meet so often at a barrier, at which each comes last in turn.
fn barrier(rounds: u32) -> String {
    let mut text = command(2);
    let [mut first, mut second, mut last] = [10, 11, 12];
    for round in 0..rounds {
        let at = 100 + 100 * round;
        let wait = |us, pid| calls(us, pid, &format!("uaddr=0x77c0 op=0x80 val={:#x}", 3 * round));
        let come = |us, pid| if round > 0 { returns(us, pid) } else { String::new() };
        text += &wait(at + 10, first);
        text += &switch(at + 12, first, "S", second);
        text += &come(at + 13, second);
        text += &wait(at + 22, second);
        text += &switch(at + 24, second, "S", last);
        text += &come(at + 25, last);
        text += &calls(at + 34, last, "uaddr=0x77c0 op=0x81 val=0x7fffffff");
        text += &wakes(at + 35, last, first);
        text += &wakes(at + 36, last, second);
        text += &returns(at + 38, last);
        (first, second, last) = (last, first, second);
    }
    text
}

#[test]
fn recorded_barriers_are_marked() {
    let text = barrier(24);
    let (model, _) = small().model(text.clone().into_bytes(), &|_| Ok(free())).expect("a recording");
    // The third thread comes last to the first round, and first to the second.
    let round = [
        What::Barrier(0),
        What::Post(0, false),
        What::Run(1_000),
        What::Post(1, false),
        What::Run(76_000),
        What::Barrier(0),
        What::Sleep(23_000, Why::Task),
        What::By(1),
    ];
    let steps = steps_of(&model, 2);
    assert!(steps.windows(round.len()).any(|w| w == round), "{steps:?}");
    survives(&model);
    for machine in ["1c", "2c", "4c"] {
        let (w, _) = build(&text, &small()).expect("a recording");
        assert_eq!(simulated(machine, w).outcome, Outcome::Finished);
    }
}

/// Three tasks that meet so often, as recorded: the last one of each round runs least on the machine of the replay.
fn meeting(rounds: u32, last: impl Fn(u32) -> u32, marked: bool) -> [(&'static str, Vec<What>); 3] {
    let mut tasks = ["a", "b", "c"].map(|name| (name, Vec::new()));
    for round in 0..rounds {
        for i in 0..3 {
            let steps = &mut tasks[i as usize].1;
            let long = i == (last(round) + 1 + round % 2) % 3;
            steps.push(What::Run(if long { 500_000 } else { 50_000 }));
            steps.extend(marked.then_some(What::Barrier(7)));
            if i == last(round) {
                steps.extend((0..3).filter(|&other| other != i).map(|other| What::Post(other, false)));
            } else {
                steps.extend([What::Sleep(1_000, Why::Task), What::By(last(round))]);
            }
        }
    }
    tasks
}

#[test]
fn whoever_comes_last_lets_the_others_go_on() {
    let ns = |last: fn(u32) -> u32, marked| {
        let s = simulated("4c", played(meeting(30, last, marked)));
        assert_eq!(s.outcome, Outcome::Finished);
        s.virtual_ns
    };
    // In each round all wait for the one that runs long.
    let in_turn = |round| round % 3;
    assert!(ns(in_turn, true) > 30 * 500_000, "{}", ns(in_turn, true));
    // As waits for who came last in the recording they would not.
    assert!(ns(in_turn, false) < 30 * 400_000, "{}", ns(in_turn, false));
    // One that always lets the others go waits for nobody.
    assert_eq!(ns(|_| 0, true), ns(|_| 0, false));
}

/// Arrivals that are in no recording: those rounds have fewer, and all get through.
#[test]
fn rounds_with_some_missing_end() {
    let mut rng = Pcg64Mcg::new(5);
    for round in 0..60 {
        let mut tasks = meeting(30, |round| round % 3, true);
        for (_, steps) in &mut tasks {
            steps.retain(|s| !matches!(s, What::Barrier(_)) || !rng.next_u64().is_multiple_of(4 + round % 8));
        }
        for machine in ["1c", "2c", "4c"] {
            assert_eq!(simulated(machine, played(tasks.clone())).outcome, Outcome::Finished, "{round} {machine}");
        }
    }
}

/// A barrier of a mutex and a condition variable: whoever comes last has the mutex while it wakes the others, and those lock it again.
#[test]
fn who_goes_on_from_a_condition_variable_has_its_mutex() {
    let rounds = 30;
    let made = |section: bool| {
        let mut tasks = meeting(rounds, |round| round % 3, true);
        for (_, steps) in tasks.iter_mut().filter(|_| section) {
            let runs: Vec<usize> = (0..steps.len()).filter(|&i| matches!(steps[i], What::Run(_))).skip(1).collect();
            for at in runs.into_iter().rev() {
                steps.splice(at..at, [What::Run(20_000), What::Unlock(0)]);
            }
        }
        let s = simulated("4c", played(tasks));
        assert_eq!(s.outcome, Outcome::Finished);
        s.tasks.iter().map(|t| t.wake.nr_wakeups).sum::<u64>()
    };
    // Two are woken in each round without it, and wait for the third or for each other with it.
    let (without, with) = (made(false), made(true));
    assert!(without <= 2 * u64::from(rounds), "{without}");
    assert!(with >= without + u64::from(rounds) / 2, "{with} {without}");
}

/// The model of this as roles, played; and what came of it.
fn as_roles(model: &Exact, change: impl FnOnce(&mut fitted::Fitted)) -> contend_sim::host::RunResult {
    let mut roles = fitted::fit(model);
    change(&mut roles);
    let mut w = Workload::default();
    let spec = ModelSpec { file: "m".into(), ..ModelSpec::default() };
    spec.build(&mut w, 0, &Model::Fitted(roles).to_bytes()).expect("a model");
    w.horizon = Some(60_000_000_000);
    simulated("4c", w)
}

#[test]
fn roles_meet_at_their_barrier() {
    let text = barrier(24);
    let (model, _) = small().model(text.clone().into_bytes(), &|_| Ok(free())).expect("a recording");
    let (w, _) = build(&text, &small()).expect("a recording");
    let exact = simulated("4c", w).virtual_ns;
    let s = as_roles(&model, |roles| {
        let ends = roles.roles.iter().flat_map(|r| &r.ends).filter(|e| e.by == "barrier");
        assert_eq!(ends.map(|e| e.parties).collect::<Vec<_>>(), [3, 3]);
    });
    assert_eq!(s.outcome, Outcome::Finished);
    // Each waits for who runs longest of its round, which are dealt out otherwise.
    assert!((exact * 8 / 10..exact * 14 / 10).contains(&s.virtual_ns), "{} {exact}", s.virtual_ns);
    // Started one after another they never meet, and go on when nobody comes.
    let s = as_roles(&model, |roles| roles.roles[0].starts[0].at_once = 1);
    assert_eq!(s.outcome, Outcome::Finished);
}

/// Damage to a barrier's recording does not hang its replay.
#[test]
fn damaged_barriers_do_not_deadlock() {
    let text = barrier(40);
    let whole: Vec<&str> = text.lines().collect();
    let mut rng = Pcg64Mcg::new(11);
    let mut replayed = 0;
    for round in 0..200 {
        let mut lines = whole.clone();
        for _ in 0..1 + rng.next_u64() % 4 {
            let [at, other] = [0, 1].map(|_| (rng.next_u64() % lines.len() as u64) as usize);
            match rng.next_u64() % 3 {
                0 => drop(lines.remove(at)),
                1 => lines.insert(other, lines[at]),
                _ => lines.swap(at, other),
            }
        }
        let text = lines.join("\n");
        let Ok((mut w, _)) = build(&text, &RecordingSpec { all: true, ..small() }) else { continue };
        w.horizon = Some(2_000_000_000);
        let r = simulated("2c", w);
        assert!(matches!(r.outcome, Outcome::Finished | Outcome::Horizon), "round {round}: {:?}\n{text}", r.outcome);
        replayed += 1;
    }
    assert!(replayed > 60, "{replayed}");
}
