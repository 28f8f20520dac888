//! Jobs of a command that starts others, and the slots that they run in.

use super::*;

/// `make -j2` with slots: two compilers at once, a third when one has ended, and the archive after all of them.
fn make(jobs: &[(u32, u64, u64)]) -> String {
    use std::fmt::Write;
    // (time, line), since events of the two CPUs interleave.
    let mut lines: Vec<(u64, String)> = Vec::new();
    let mut at = |us: u64, line: String| lines.push((us, line));
    at(0, "sh-10 [000] ..... TS: sched_process_exec: filename=/bin/make pid=10 old_pid=10".into());
    for &(pid, from, to) in jobs {
        at(
            from,
            format!("make-10 [000] ..... TS: sched_process_fork: comm=make pid=10 child_comm=make child_pid={pid}"),
        );
        at(from + 1, "make-10 [000] d..2. TS: sched_switch: prev_comm=make prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120".into());
        let cpu = pid % 2 + 1;
        at(
            from + 2,
            format!(
                "<idle>-0 [00{cpu}] d..2. TS: sched_switch: prev_comm=swapper/{cpu} prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=cc next_pid={pid} next_prio=120"
            ),
        );
        at(to, format!("cc-{pid} [00{cpu}] d..2. TS: sched_waking: comm=make pid=10 prio=120 target_cpu=000"));
        at(
            to + 1,
            format!(
                "cc-{pid} [00{cpu}] d..2. TS: sched_switch: prev_comm=cc prev_pid={pid} prev_prio=120 prev_state=Z ==> next_comm=swapper/{cpu} next_pid=0 next_prio=120"
            ),
        );
        at(to + 2, "<idle>-0 [000] d..2. TS: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=make next_pid=10 next_prio=120".into());
        at(to + 5, "make-10 [000] d..2. TS: sched_switch: prev_comm=make prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120".into());
    }
    let last = jobs.iter().map(|j| j.2).max().unwrap_or(0);
    at(last + 6, "make-10 [000] d..2. TS: sched_switch: prev_comm=make prev_pid=10 prev_prio=120 prev_state=Z ==> next_comm=swapper/0 next_pid=0 next_prio=120".into());
    lines.sort_by_key(|l| l.0);
    let mut text = String::new();
    for (us, line) in lines {
        writeln!(text, "{}", line.replace("TS", &format!("1.{us:06}"))).expect("a string");
    }
    text
}

#[test]
fn jobs_are_found_and_widened() {
    // Two at once; each next starts 3 us after an end; the last alone, after all.
    let text = make(&[
        (11, 100, 1100),
        (12, 110, 1300),
        (13, 1103, 2100),
        (14, 1303, 2300),
        (15, 2103, 3100),
        (16, 2303, 3300),
        (17, 3303, 3500),
    ]);
    let (model, _) = small().model(text.clone().into_bytes(), &|_| Ok(free())).expect("a recording");
    let jobs = model.jobs.as_ref().expect("jobs");
    let d = &jobs.dispatchers[0];
    assert_eq!((jobs.dispatchers.len(), d.limit, d.jobs.len()), (1, 2, 7));
    let starts: Vec<Start> = d.jobs.iter().map(|j| j.start).collect();
    assert_eq!(starts[..6], [Start::Slot; 6]);
    assert_eq!(starts[6], Start::AfterAll, "{text}");

    let time = |jobs: u64, machine: &str| {
        let (w, _) = build(&text, &RecordingSpec { jobs, ..small() }).expect("a recording");
        let r = simulated(machine, w);
        assert_eq!(r.outcome, Outcome::Finished);
        r.virtual_ns as f64 / 1e3
    };
    // As recorded; with two slots; with six: one round of compilers, then the archive. One slot: one after another.
    assert!((3300.0..4200.0).contains(&time(0, "8c")), "{}", time(0, "8c"));
    assert!((3000.0..4200.0).contains(&time(2, "8c")), "{}", time(2, "8c"));
    assert!((1200.0..2000.0).contains(&time(6, "8c")), "{}", time(6, "8c"));
    assert!((6000.0..7400.0).contains(&time(1, "8c")), "{}", time(1, "8c"));
    let (e, asked) = (build(SMALL, &RecordingSpec { jobs: 4, ..small() }), "make -j and xargs -P");
    assert!(e.err().expect("no jobs").to_string().contains(asked));
}

/// Compilers of two jobs wake each other, and the dispatcher one of them after it has started the next: with one slot each
/// of these wake-ups would come too late.
#[test]
fn jobs_that_wait_for_each_other_run_one_after_another() {
    let idle = |pid: u32, us: u32, leaves: bool| {
        let cpu = pid % 2 + 1;
        let task = format!("comm=cc PREV_pid={pid} PREV_prio=120");
        let (prev, next) = (task.replace("PREV", "prev").replace("comm", "prev_comm"), task.replace("PREV", "next"));
        let next = next.replace("comm=cc", "next_comm=cc");
        let switch = match leaves {
            true => format!("{prev} prev_state=S ==> next_comm=swapper/{cpu} next_pid=0 next_prio=120"),
            false => format!("prev_comm=swapper/{cpu} prev_pid=0 prev_prio=120 prev_state=R ==> {next}"),
        };
        let who = if leaves { format!("cc-{pid}") } else { "<idle>-0".into() };
        format!("{who} [00{cpu}] d..2. 1.{us:06}: sched_switch: {switch}")
    };
    let wakes = |who: &str, us: u32, pid: u32| {
        format!("{who} d..2. 1.{us:06}: sched_waking: comm=cc pid={pid} prio=120 target_cpu=00{}", pid % 2 + 1)
    };
    let jobs =
        [(11, 100, 1100), (12, 110, 1300), (13, 1103, 2100), (14, 1303, 2300), (15, 2103, 3100), (16, 2303, 3300)];
    let mut lines: Vec<String> = make(&jobs).lines().map(Into::into).collect();
    lines.extend([idle(11, 500, true), wakes("cc-12 [001]", 510, 11), idle(11, 512, false)]);
    lines.extend([idle(12, 600, true), wakes("cc-11 [002]", 610, 12), idle(12, 612, false)]);
    lines.extend([idle(12, 1000, true), wakes("make-10 [000]", 1103, 12), idle(12, 1110, false)]);
    lines.sort_by_key(|l| l.split(": ").next().and_then(|l| l.rsplit(' ').next().map(String::from)));
    let text = lines.join("\n");
    let (_, r) = build(&text, &small()).expect("a recording");
    assert_eq!(r.posts, 6 + 3, "of ends, and these");
    for (jobs, us) in [(0, 3300.0..4200.0), (1, 6000.0..7400.0), (2, 3000.0..4200.0), (6, 1000.0..2000.0)] {
        let (w, _) = build(&text, &RecordingSpec { jobs, ..small() }).expect("a recording");
        let r = simulated("8c", w);
        assert_eq!(r.outcome, Outcome::Finished, "{jobs} slots");
        assert!(us.contains(&(r.virtual_ns as f64 / 1e3)), "{jobs} slots: {}", r.virtual_ns);
    }
}

/// A script's children run one after another, wherever it runs; `--jobs` is not for it.
#[test]
fn a_fitted_script_stays_in_turn() {
    let text = make(&[(11, 100, 1100), (12, 1103, 2100), (13, 2103, 3100), (14, 3103, 4100)]);
    let (model, _) = small().model(text.into_bytes(), &|_| Ok(free())).expect("a recording");
    assert!(model.jobs.is_none());
    assert_eq!(model.scripts.len(), 1);
    // The exact form says so in its file, too.
    let Ok(Model::Exact(model)) = Model::parse(&Model::Exact(model).to_bytes(), "m") else { panic!("an exact model") };
    let model = fitted::fit(&model);
    let starts: Vec<_> = model.roles.iter().flat_map(|r| &r.starts).map(|s| (s.role.as_str(), s.at_once)).collect();
    assert_eq!(starts, [("cc", 1)]);

    let text = Model::Fitted(model).to_bytes();
    let mut w = Workload::default();
    let spec = ModelSpec { file: "m".into(), copies: 2, ..ModelSpec::default() };
    spec.build(&mut w, 0, &text).expect("a model");
    let s = simulated("8c", w);
    assert_eq!(s.outcome, Outcome::Finished);
    assert!((3900.0..4400.0).contains(&(s.virtual_ns as f64 / 1e3)), "{}", s.virtual_ns);
    let refused = ModelSpec { jobs: 4, ..spec }.build(&mut Workload::default(), 0, &text);
    assert!(refused.expect_err("no jobs").to_string().contains("make -j and xargs -P"));
}

/// Slots are a task's own, and all that it starts under a limit share them.
#[test]
fn slots_are_of_one_task_for_all_that_it_starts() {
    let model = |makes: u32, at_once: u32| {
        format!(
            "schema = 1\nform = \"fitted\"\n[source]\nrecording = \"x\"\ncpus = 2\nspan_ns = 1\n\
             [[role]]\nname = \"make\"\ntasks = {makes}\nturns = [1]\nrun_us = [200]\n\
             starts = [{{ role = \"cc\", per_life = 4.0, at_once = {at_once} }}, {{ role = \"ld\", per_life = 4.0, at_once = {at_once} }}]\n\
             [[role]]\nname = \"cc\"\ntasks = 0\nturns = [1]\nrun_us = [1000]\n\
             [[role]]\nname = \"ld\"\ntasks = 0\nturns = [1]\nrun_us = [1000]\n"
        )
    };
    // Eight of 1 ms each, for each make; new tasks may share a CPU for a moment.
    for (makes, at_once, jobs, ms) in
        [(1, 1, 0, 8), (1, 2, 0, 4), (1, 2, 1, 8), (1, 2, 4, 2), (4, 2, 0, 4), (1, 0, 0, 1)]
    {
        let mut w = Workload::default();
        let spec = ModelSpec { file: "m".into(), jobs, ..ModelSpec::default() };
        spec.build(&mut w, 0, model(makes, at_once).as_bytes()).expect("a model");
        let s = simulated("32c", w);
        assert_eq!(s.outcome, Outcome::Finished);
        let found = s.virtual_ns as f64 / 1e6;
        assert!((f64::from(ms)..f64::from(ms) * 1.5).contains(&found), "{makes}, {at_once}, {jobs}: {found}");
    }
}
