use toml::de::DeTable;

use super::*;

fn parse(text: &str) -> Result<WorkloadSpec, SpecError> {
    let table = DeTable::parse(text).expect("valid TOML");
    WorkloadSpec::from_toml(&table.get_ref()["workload"])
}

/// The message, and the text that it points to.
fn error(text: &str) -> (String, String) {
    let e = parse(text).expect_err("not a workload");
    let span = e.span.clone().expect("a place");
    (e.to_string(), text[span].to_string())
}

#[track_caller]
fn says(text: &str, message: &str, at: &str) {
    let (said, place) = error(text);
    assert_eq!((said.as_str(), place.as_str()), (message, at));
}

#[test]
fn every_message() {
    says("workload = 3", "workload: found 3; should be a table with kind = \"...\"", "3");
    let (said, _) = error("[workload]\ngroups = 3");
    assert!(said.starts_with("workload.kind: missing; write kind = one of hackbench, schbench"), "{said}");
    let t = "[workload]\nkind = \"hackbenhc\"";
    let kinds = "hackbench, schbench, sembench, ping-pong, periodic, mmc, lock-loop, hogs, daemons, uperf, netperf, tbench, dbench, oltp, \
                 oltp-dedicated, kernel-build, guest-boot, ebizzy, iperf-client, iperf-server, rt-app, recording, model, mix";
    let message = format!("workload.kind: found \"hackbenhc\"; should be one of {kinds}; did you mean hackbench?");
    says(t, &message, "\"hackbenhc\"");
    let t = "[workload]\nkind = \"hackbench\"\ngruops = 3";
    says(t, "workload.gruops: unknown key; did you mean groups?", "gruops");
    let t = "[workload]\nkind = \"hackbench\"\nzzzzzzzz = 3";
    let all = "kind, groups, fds, loops, bytes, transport, work_ns, jitter_pct, working_set_kib";
    says(t, &format!("workload.zzzzzzzz: unknown key; keys here are {all}"), "zzzzzzzz");
    let t = "[workload]\nkind = \"hackbench\"\ngroups = 0";
    says(t, "workload.groups: found 0; should be a whole number from 1 to 25,000", "0");
    let t = "[workload]\nkind = \"hackbench\"\ngroups = \"many\"";
    says(t, "workload.groups: found \"many\"; should be a whole number from 1 to 25,000", "\"many\"");
    let t = "[workload]\nkind = \"hackbench\"\ngroups = 1000000000";
    says(t, "workload.groups: found 1000000000; should be a whole number from 1 to 25,000", "1000000000");
    let t = "[workload]\nkind = \"hackbench\"\ngroups = 25000\nfds = 100";
    let m = "workload.groups: found 5000000 tasks (groups x fds x 2); should be at most 1,000,000 tasks";
    says(t, m, "25000");
    let t = "[workload]\nkind = \"hackbench\"\ntransport = \"pipes\"";
    says(t, "workload.transport: found \"pipes\"; should be \"pipe\" or \"socket\"", "\"pipes\"");
    let t = "[workload]\nkind = \"mmc\"\nload = 1.5";
    says(t, "workload.load: found 1.5; should be a number from 0.001 to 0.999", "1.5");
    let t = "[workload]\nkind = \"mix\"\nparts = [{ kind = \"hogs\", nice = [0, 5], sched = \"batch\" }]";
    let m = "workload.parts.0.sched: found \"batch\" beside nice; should be one of the two; sched takes nice values, too: \
             normal:5, batch:5";
    says(t, m, "[{ kind = \"hogs\", nice = [0, 5], sched = \"batch\" }]");
    let t = "[workload]\nkind = \"hogs\"\nnice = [0, 20]";
    let m = "workload.nice: found an array; should be nice values from -20 to 19: one, or a list of up to 40";
    says(t, m, "[0, 20]");
    let t = "[workload]\nkind = \"hogs\"\npin = 1";
    says(t, "workload.pin: found 1; should be true or false", "1");
    let t = "[workload]\nkind = \"uperf\"\nbytes = 0";
    says(t, "workload.bytes: found 0; should be a whole number from 1 to 1,048,576", "0");
    let t = "[workload]\nkind = \"tbench\"\nclient = 3";
    says(t, "workload.client: unknown key; did you mean clients?", "client");
    let t = "[workload]\nkind = \"dbench\"\nclients = 0";
    says(t, "workload.clients: found 0; should be a whole number from 1 to 100,000", "0");
    let t = "[workload]\nkind = \"oltp\"\nlock_ns = -1";
    says(t, "workload.lock_ns: found -1; should be a whole number from 0 to 1,000,000", "-1");
    let t = "[workload]\nkind = \"oltp-dedicated\"\nusers = 1.5";
    says(t, "workload.users: found 1.5; should be a whole number from 1 to 100,000", "1.5");
    let t = "[workload]\nkind = \"kernel-build\"\nprocesses = 2";
    says(t, "workload.processes: found 2; should be a whole number from 3 to 64", "2");
    let t = "[workload]\nkind = \"kernel-build\"\njob = 2";
    says(t, "workload.job: unknown key; did you mean jobs?", "job");
    let t = "[workload]\nkind = \"guest-boot\"\nstep_us = 0";
    says(t, "workload.step_us: found 0; should be a whole number from 1 to 10,000,000", "0");
    let t = "[workload]\nkind = \"guest-boot\"\nbroadcast = 1";
    says(
        t,
        "workload.broadcast: unknown key; did you mean broadcasts or broadcast_us or broadcasts_per_cpu?",
        "broadcast",
    );
    let t = "[workload]\nkind = \"ebizzy\"\nchunk_kib = 3";
    says(t, "workload.chunk_kib: found 3; should be a whole number from 4 to 1,048,576", "3");
    let t = "[workload]\nkind = \"ebizzy\"\nthread = 1";
    says(t, "workload.thread: unknown key; did you mean threads?", "thread");
    let t = "[workload]\nkind = \"dbench\"\nfile_system = \"ext4\"";
    says(t, "workload.file_system: found \"ext4\"; should be \"journal\" or \"tmpfs\"", "\"ext4\"");
    let (said, _) = error("[workload]\nkind = \"recording\"");
    assert_eq!(said, "workload.file: missing; write file = \"PATH\"");
    let t = "[workload]\nkind = \"mix\"\nparts = [{ kind = \"hogs\" }, { kind = \"hogs\", tasks = 0 }]";
    says(t, "workload.parts.1.tasks: found 0; should be a whole number from 1 to 1,000,000", "0");
    let (said, _) = error("[workload]\nkind = \"mix\"\nparts = [{ kind = \"mix\", parts = [] }]");
    assert!(said.starts_with("workload.parts.0.kind: found \"mix\"; should be one of "), "{said}");
    let t = "[workload]\nkind = \"mix\"\nparts = []";
    says(t, "workload.parts: found an array; should be 1 to 64 tables with kind = \"...\"", "[]");
}

#[test]
fn the_kind_is_not_set() {
    let error = WorkloadSpec::default().set("kind", "mmc").expect_err("refused").to_string();
    assert_eq!(
        error,
        "workload.kind: found \"mmc\"; should be set in the scenario: which keys there are depends on it"
    );
}

#[test]
fn set_changes_all_or_nothing() {
    let mut s = parse("[workload]\nkind = \"hackbench\"").expect("a workload");
    s.set("groups", "1_000").expect("a number");
    let before = s.clone();
    for (key, value, message) in [
        ("groups", "0", "workload.groups: found \"0\"; should be a whole number from 1 to 25,000"),
        ("group", "1", "workload.group: unknown key; did you mean groups?"),
        ("fds", "10000", "workload.groups: found 20000000 tasks (groups x fds x 2); should be at most 1,000,000 tasks"),
        ("transport", "tcp", "workload.transport: found \"tcp\"; should be \"pipe\" or \"socket\""),
    ] {
        let e = s.set(key, value).expect_err("not right");
        assert_eq!((e.to_string().as_str(), e.span), (message, None));
        assert_eq!(s, before);
    }
}

#[test]
fn what_is_written_is_read_back() {
    let mut all: Vec<String> = list()
        .into_iter()
        .filter(|w| w.name != MIX)
        .map(|w| {
            let file = if w.keys.iter().any(|k| k.key == "file") { "file = \"some/file\"\n" } else { "" };
            format!("[workload]\nkind = \"{}\"\n{file}", w.name)
        })
        .collect();
    all.push("[workload]\nkind = \"hogs\"\nnice = [-20, 19]\npin = true".into());
    all.push("[workload]\nkind = \"recording\"\nfile = \"a \\\"b\\\"\"\nspeed = 2\ncommand = \"make\"".into());
    all.push("[workload]\nkind = \"mix\"\nparts = [{ kind = \"hogs\" }, { kind = \"rt-app\", file = \"x\" }]".into());
    for text in all {
        let spec = parse(&text).unwrap_or_else(|e| panic!("{e}"));
        let mut root = toml::Table::new();
        root.insert("workload".into(), toml::Value::Table(spec.to_toml()));
        let written = toml::to_string(&root).expect("TOML");
        assert_eq!(parse(&written).unwrap_or_else(|e| panic!("{e}\n{written}")), spec, "{written}");
    }
}

/// The list is what the parser knows: each key can be set to its default.
#[test]
fn the_list_is_complete() {
    for w in list() {
        assert!(!w.doc.is_empty() && w.doc.ends_with('.'), "{}", w.name);
        for k in &w.keys {
            assert!(!k.doc.is_empty() && k.doc.ends_with('.'), "{}.{}: {}", w.name, k.key, k.doc);
            assert!(!k.allowed.is_empty());
            let Some(mut spec) = WorkloadSpec::default_of(w.name) else { continue };
            assert!(spec.to_toml().get(k.key).is_some(), "{}.{}", w.name, k.key);
            if let Some(d) = &k.default {
                let text = d.as_str().map_or(d.to_string(), ToString::to_string);
                let before = spec.clone();
                assert!(matches!(spec.set_text(k.key, &text), Some(Ok(()))), "{}.{} = {text}", w.name, k.key);
                assert_eq!(spec, before);
            }
        }
    }
}

#[test]
fn a_cpu_too_few_is_an_error_with_its_key() {
    let none = |_: &str| Err(std::io::Error::other("no files"));
    let mut s = WorkloadSpec::Mmc(Mmc::default());
    s.set("pin", "true").expect("a key");
    let e = s.build(4, &none).err().expect("five are needed").to_string();
    assert_eq!(
        e,
        "workload.pin: found true with 4 servers and a source on 4 CPUs; should be false, or a machine with more CPUs"
    );
    let s = parse("[workload]\nkind = \"recording\"\nfile = \"x.txt\"").expect("a workload");
    assert_eq!(s.build(1, &none).err().expect("no file").to_string(), "x.txt: cannot be read: no files");
}

#[test]
fn the_documentation_lists_every_key() {
    let docs = include_str!("../../../../docs/workloads.md");
    for w in list() {
        assert!(docs.contains(&format!("### {}\n\n{}\n", w.name, w.doc)), "{}: run the example keys", w.name);
        for k in w.keys {
            assert!(docs.contains(&format!(" | {} |\n", k.doc)), "{}.{}: run the example keys", w.name, k.key);
        }
    }
}

#[test]
fn parts_may_have_cpus_of_their_own() {
    let t =
        "[workload]\nkind = \"mix\"\nparts = [{ kind = \"hogs\", tasks = 2, cpus = \"2-3,0\" }, { kind = \"hogs\" }]";
    let mut s = parse(t).expect("a mix");
    let none = |_: &str| Err(std::io::Error::other("no files"));
    let cpus = |s: &WorkloadSpec| -> Vec<Option<Vec<usize>>> {
        let w = s.build(4, &none).expect("four CPUs");
        w.tasks.iter().map(|t| t.affinity.as_ref().map(|set| set.ones().collect())).collect()
    };
    assert_eq!(cpus(&s)[..3], [Some(vec![0, 2, 3]), Some(vec![0, 2, 3]), None]);
    let said = s.build(3, &none).err().expect("CPU 3 is not there").to_string();
    assert_eq!(said, "workload.parts.0.cpus: found \"0,2-3\" with CPU 3; should be CPUs of the machine, 0 to 2");
    assert_eq!(toml::Value::Table(s.to_toml())["parts"][0]["cpus"].as_str(), Some("0,2-3"));
    s.set("parts.1.cpus", "1").expect("a list");
    assert_eq!(cpus(&s)[2], Some(vec![1]));
    let wrong = s.set("parts.1.cpus", "one").expect_err("no list").to_string();
    assert_eq!(wrong, "workload.parts.1.cpus: found \"one\"; should be CPUs such as \"0-7\" or \"0,2,8-11\"");
}
