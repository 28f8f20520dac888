//! What the example prints is what it says: shares by weight, and work that finds its way to idle CPUs.

use std::process::Command;

#[test]
fn turns_are_by_weight() {
    let out = Command::new(env!("CARGO_BIN_EXE_my-policy")).output().expect("it runs");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
    // task, nice, ms under fifo, ms under the example's policy
    let row = |name: &str| -> Vec<f64> {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{text}"));
        line.split_whitespace().skip(1).map(|n| n.parse().expect("a number")).collect()
    };
    let (plain, nice) = (row("hog0"), row("hog2"));
    assert!((0.95..1.05).contains(&(plain[1] / nice[1])), "fifo ignores nice: {text}");
    assert!((2.8..3.3).contains(&(plain[2] / nice[2])), "turns by weight, 1024 to 335: {text}");
    assert!(text.contains("mine: horizon"), "{text}");
    let took = |policy: &str| -> f64 {
        let line = text.lines().find(|l| l.starts_with(policy)).unwrap_or_else(|| panic!("no {policy} in\n{text}"));
        line[policy.len()..].split_whitespace().next().expect("ms").parse().expect("a number")
    };
    // 960 ms of work, on one CPU or on eight.
    assert!((960.0..980.0).contains(&took("fifo, no placement")), "{text}");
    assert!((120.0..135.0).contains(&took("work stealing")), "{text}");
}

#[test]
fn a_scenario_runs_under_it_and_is_stored() {
    let dir = std::env::temp_dir().join(format!("my-policy-{}", std::process::id()));
    std::fs::create_dir(&dir).expect("a directory");
    let scenario = dir.join("x.toml");
    std::fs::write(&scenario, "machine = \"4c\"\n[workload]\nkind = \"hackbench\"\ngroups = 1\nloops = 5\n")
        .expect("written");
    let run = |scenario: &std::path::Path| {
        Command::new(env!("CARGO_BIN_EXE_run-scenario"))
            .args([scenario, &dir.join("out")])
            .arg("2")
            .output()
            .expect("it runs")
    };
    let out = run(&scenario);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    for seed in ["1", "2"] {
        let summary = std::fs::read_to_string(dir.join("out").join(seed).join("summary.json")).expect("a result");
        assert!(summary.contains("\"policy\": \"work-stealing\""), "{summary}");
    }
    let none = run(&dir.join("none.toml"));
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("none.toml: cannot be read"), "{none:?}");
    std::fs::remove_dir_all(&dir).expect("removed");
}
