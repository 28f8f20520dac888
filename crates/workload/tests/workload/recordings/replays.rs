//! Whole replays: what was recorded comes out, on other machines, too; damage neither panics nor deadlocks.

use super::*;

/// A writer that is ahead of its reader, as on another CPU it is. The reader sleeps as often as it did.
#[test]
fn a_stream_keeps_its_sleeps() {
    let sleeps = |rounds: usize| {
        let mut tasks: [(&str, Vec<What>); 2] = [("writer", vec![]), ("reader", vec![])];
        for _ in 0..rounds {
            let kernel = What::Kernel(1_000, false);
            tasks[0].1.extend([What::Post(1, false), kernel, What::Run(20_000)]);
            tasks[1].1.extend([What::Sleep(1_000, Why::Task), What::By(0), What::Run(100_000)]);
        }
        tasks[0].1.push(What::Run(1_000_000_000));
        let s = simulated("2c", played(tasks));
        assert_eq!(s.outcome, Outcome::Finished);
        s.observed.wakeups_from_prev.iter().sum::<u64>()
    };
    assert!(sleeps(40) >= 38, "{}", sleeps(40));
    // Few are no stream: what has come is there.
    assert!(sleeps(9) <= 5, "{}", sleeps(9));
}

/// A reader that has had more than its share does not preempt its writer. That goes one message ahead and waits; readers of several, too.
#[test]
fn writers_do_not_run_away() {
    for readers in [1, 3] {
        let mut tasks = ["a", "b", "c", "d"].map(|name| (name, Vec::new()));
        for _ in 0..60 {
            for reader in 1..=readers {
                tasks[0].1.extend([What::Post(reader, false), What::Kernel(1_000, false), What::Run(4_000)]);
                tasks[reader as usize].1.extend([What::Sleep(1_000, Why::Task), What::By(0), What::Run(12_000)]);
            }
        }
        for machine in ["1c", "2c"] {
            let s = simulated(machine, played(tasks.clone()));
            assert_eq!(s.outcome, Outcome::Finished);
            let woken: u64 = s.tasks.iter().filter(|t| !t.name.starts_with("a-")).map(|t| t.wake.nr_wakeups).sum();
            let most = u64::from(60 * readers);
            assert!((most * 9 / 10..=most).contains(&woken), "{machine}: {woken} of {most}");
        }
    }
}

#[test]
fn the_shipped_recording_does_its_recorded_work() {
    let s = spec("recording", &[("file", SHIPPED)]);
    let target = Target { nr_cpus: 2, speed: 0, capacity: &[] };
    let (_, origins) = s.build_in(Default::default(), target, &|f| std::fs::read(f)).expect("a recording");
    let r = &origins.recordings[0];
    assert_eq!((r.tasks, r.initial, r.forks), (81, 1, 80), "{r}");
    // Machines without SMT: there work takes its recorded time.
    for machine in ["x86_64-2cpu", "1n1l2c1t", "2n22c"] {
        for preset in ["linux-2.6.37", "linux-6.0", "linux-6.18"] {
            let sim = run(machine, preset, &s);
            assert_eq!(sim.outcome, Outcome::Finished, "{machine} {preset}");
            assert_eq!(sim.tasks.len(), 81);
            let work = r.run_ns - r.kernel_ns - r.tails_ns;
            // The rest of a call in which a post is made late is taken out of a run.
            let done = user_ns(&sim);
            assert!(done <= work && done > work * 98 / 100, "{machine} {preset}: {done} ns of work, recorded {work}");
        }
    }
    // One by one: a task runs its recorded time and what the kernel adds.
    let sim = run("x86_64-2cpu", "linux-6.18", &s);
    for t in &r.per_task {
        let name = format!("{}-{}", t.name, t.pid);
        let ran = sim.tasks.iter().find(|s| s.name == name).expect("the task").run.sum_exec;
        // Switches and wake-ups, taken out and done again; the first task forks the other 80.
        let forks = if t.pid == r.per_task[0].pid { r.forks } else { 0 };
        let kernel = 20_000 * (t.bursts + t.switches + 10) + 100_000 * forks;
        assert!(ran.abs_diff(t.run_ns) <= kernel, "{name}: {ran} of {}", t.run_ns);
    }
    // The length of the run on the machine it was recorded on, within a quarter.
    let ratio = sim.virtual_ns as f64 / r.span_ns as f64;
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
}

/// A machine of half the speed runs twice as long for the same work, of a recording and of either form of its model; where one of the
/// two speeds is not known run times stay.
#[test]
fn run_times_are_those_of_the_machine_that_runs() {
    let recorded = |speed: u64| {
        let mut machine = Machine::parse(&String::from_utf8(free()).unwrap(), "free.toml").expect("a machine");
        machine.set("cpu.speed", &speed.to_string()).expect("a cost");
        machine.to_toml().into_bytes()
    };
    let run = |model: Option<&[u8]>, recorded_on: u64, here: u64| {
        let mut w = Workload::default();
        let rescaled = match model {
            None => {
                let built = small().build(&mut w, here, SMALL.as_bytes().to_vec(), &|_| Ok(recorded(recorded_on)));
                built.expect("a recording").2
            }
            Some(bytes) => {
                let spec = ModelSpec { file: "m".into(), ..ModelSpec::default() };
                spec.build(&mut w, here, bytes).expect("a model").1
            }
        };
        let ran = simulated("2c", w);
        (user_ns(&ran), rescaled.to_string())
    };
    let (exact, _) = small().model(SMALL.as_bytes().to_vec(), &|_| Ok(recorded(600))).expect("a recording");
    assert_eq!(exact.source.machine_speed, 600);
    let fitted = Model::Fitted(fitted::fit(&exact)).to_bytes();
    let exact = Model::Exact(exact).to_bytes();
    for (model, file) in [(None, "small"), (Some(&exact[..]), "m"), (Some(&fitted), "m")] {
        let (as_recorded, said) = run(model, 600, 600);
        assert_eq!(said, format!("{file}: run times x1.00: cpu.speed is 600 where it was recorded, 600 here"));
        let (slower, said) = run(model, 600, 300);
        assert!(slower.abs_diff(2 * as_recorded) <= 100, "{slower} {as_recorded}: rounding, a step");
        assert_eq!(said, format!("{file}: run times x2.00: cpu.speed is 600 where it was recorded, 300 here"));
        let (not_known, said) = run(model, 600, 0);
        assert_eq!(not_known, as_recorded);
        assert_eq!(said, format!("{file}: run times as recorded: this machine has no cpu.speed"));
    }
    let (not_known, said) = run(None, 0, 300);
    assert_eq!(not_known, run(None, 600, 600).0);
    assert_eq!(said, "small: run times as recorded: the recorded machine has no cpu.speed");
}

/// What a slow core took longer for is the same work: of 34 us of runs 23 were on CPU 0.
#[test]
fn runs_on_slow_cores_count_by_their_capacity() {
    let text = String::from_utf8(free()).expect("text");
    let cost = |v: u64| format!("{{ value = {v}, lo = {v}, hi = {v}, source = \"a test\" }}");
    let kinds = "kinds = [{ name = \"slow\", cpus = \"0\" }, { name = \"fast\", cpus = \"1\" }]\n\n[lines]";
    let two = text.replacen("\n[lines]", kinds, 1);
    let two = two.replacen("[cpu]\n", &format!("[cpu]\ncapacity = [{}, {}]\n", cost(512), cost(1024)), 1);
    assert_eq!(Machine::parse(&two, "two.toml").expect("a machine").capacities(), [512, 1024]);
    let ran = |machine: &str| {
        let mut w = Workload::default();
        small().build(&mut w, 0, SMALL.as_bytes().to_vec(), &|_| Ok(machine.into())).expect("a recording");
        user_ns(&simulated("2c", w))
    };
    let (alike, of_kinds) = (ran(&text), ran(&two));
    assert!((alike - of_kinds).abs_diff(23_000 / 2) <= 100, "{alike} and {of_kinds} ns");
}

/// What is wrong in a model's text is said with its line, or its key.
#[test]
fn a_wrong_model_is_refused_where_it_is_wrong() {
    let (exact, _) = small().model(SMALL.as_bytes().to_vec(), &|_| Ok(free())).expect("a recording");
    let text = String::from_utf8(Model::Fitted(fitted::fit(&exact)).to_bytes()).expect("text");
    let with = |line: &str| text.replacen("cpus = ", &format!("{line}\ncpus = "), 1);
    let at = 1 + text.lines().position(|l| l.starts_with("cpus = ")).expect("a line");
    for (text, said) in [
        (with("machine_speed = -5"), format!("m.toml:{at}: invalid value: integer `-5`, expected u64")),
        (
            with("machine_speed = 1000001"),
            format!("m.toml:{at}: source.machine_speed: found 1000001; should be 0 to 1000000"),
        ),
        (
            with("newidle = { chances = 3, pulled = 4 }"),
            format!("m.toml:{at}: source.newidle: found 4 pulled of 3 chances; should be at most as many"),
        ),
        // What is missing in the whole stands in no line.
        ("# c\nschema = 1\nform = \"fitted\"\n".into(), "m.toml: missing field `source`".into()),
        (with("bogus = 1"), format!("m.toml:{at}: unknown field `bogus`, expected one of")),
    ] {
        let error = Model::parse(text.as_bytes(), "m.toml").expect_err("wrong").to_string();
        assert!(error.starts_with(&said), "{error}");
    }
}

/// Lines and digits of real recordings are removed, doubled, swapped and changed: whatever can be read can be replayed,
/// and no replay deadlocks.
#[test]
fn damaged_recordings_neither_panic_nor_deadlock() {
    let mut text = String::new();
    let bytes = std::fs::read(SHIPPED).expect("the recording");
    flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("text");
    let shipped: Vec<&str> = text.lines().take(3000).collect();
    let made: Vec<&str> = SMALL.lines().collect();
    let mut rng = Pcg64Mcg::new(7);
    let mut replayed = 0;
    for round in 0..400 {
        let source = if round % 4 == 0 { &shipped } else { &made };
        let mut lines: Vec<String> = source.iter().map(ToString::to_string).collect();
        for _ in 0..1 + rng.next_u64() % if round % 4 == 0 { 200 } else { 5 } {
            let at = (rng.next_u64() % lines.len() as u64) as usize;
            let other = (rng.next_u64() % lines.len() as u64) as usize;
            match rng.next_u64() % 4 {
                0 if lines.len() > 1 => drop(lines.remove(at)),
                1 => lines.insert(other, lines[at].clone()),
                2 => lines.swap(at, other),
                _ => {
                    // A digit that is not of the seconds: times stay in the same hour.
                    let mut line = lines[at].clone().into_bytes();
                    let digits: Vec<usize> = (0..line.len()).filter(|&i| line[i].is_ascii_digit()).collect();
                    if let Some(&i) = digits.get((rng.next_u64() % digits.len().max(1) as u64) as usize) {
                        line[i] = b'0' + (rng.next_u64() % 10) as u8;
                    }
                    lines[at] = String::from_utf8(line).expect("ASCII");
                }
            }
        }
        let text = lines.join("\n");
        let s = RecordingSpec { all: round % 2 == 0, ..small() };
        let Ok((mut w, _)) = build(&text, &s) else { continue };
        w.horizon = Some(2_000_000_000);
        let r = simulated("2c", w);
        assert!(matches!(r.outcome, Outcome::Finished | Outcome::Horizon), "round {round}: {:?}\n{text}", r.outcome);
        replayed += 1;
    }
    // The others are refused.
    assert!(replayed > 280, "{replayed}");
}

/// Bytes of any kind.
#[test]
fn garbage_is_refused() {
    let mut rng = Pcg64Mcg::new(9);
    for _ in 0..300 {
        let n = (rng.next_u64() % 400) as usize;
        let mut bytes: Vec<u8> = (0..n).map(|_| (rng.next_u64() % 256) as u8).collect();
        if rng.next_u64().is_multiple_of(2) {
            let at = (rng.next_u64() % SMALL.len() as u64) as usize;
            bytes.splice(0..0, SMALL.as_bytes()[..at].iter().copied());
        }
        let mut w = Workload::default();
        // Only that it returns.
        drop(small().build(&mut w, 0, bytes, &|_| Ok(free())));
    }
}
