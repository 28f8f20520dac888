//! Scenarios under a policy of a program's: results as of any run, that say whose they are.

use contend::{RunOptions, Scenario, run, run_with};
use contend_sched::features::Features;
use contend_sched::policy::fifo::Fifo;
use std::path::Path;

const TEXT: &str = "machine = \"4c\"\nseed = 3\n[set]\nbalance = \"off\"\n[workload]\nkind = \"hackbench\"\ngroups = 3\nfds = 4\nloops = 20\n";

fn plan(text: &str) -> contend::Plan {
    Scenario::parse(text, "x.toml", Path::new("")).expect("it is right").plan().expect("it is complete")
}

/// FIFO with a slice of 1 ms, which no preset is.
fn mine(f: &Features) -> Fifo {
    Fifo::new(&Features { fifo_slice_ns: 1_000_000, ..f.clone() })
}

fn refused(text: &str, name: &str) -> String {
    let options = RunOptions::default();
    run_with(&plan(text), name, |setup| mine(&setup.features), options).expect_err("it is refused").to_string()
}

#[test]
fn a_result_says_whose_policy_it_was_and_the_program_makes_it_again() {
    let out = run_with(&plan(TEXT), "mine", |s| mine(&s.features), RunOptions::default()).expect("it runs");
    assert_eq!(
        (out.summary.outcome, out.summary.policy.as_str(), out.summary.algorithm.as_str()),
        ("finished", "mine", "mine")
    );
    assert_eq!(out.summary.set["balance"], "off");
    let eevdf = run(&plan(TEXT), RunOptions::default()).expect("it runs");
    assert_ne!(out.summary.trace_hash, eevdf.summary.trace_hash);

    let dir = tempfile::tempdir().expect("a directory");
    let (first, again) = (dir.path().join("first"), dir.path().join("again"));
    out.write(&first).expect("it is written");
    let stored = Scenario::from_path(first.join("scenario.toml")).expect("it is right").plan().expect("it is complete");
    run_with(&stored, "mine", |s| mine(&s.features), RunOptions::default())
        .expect("it runs")
        .write(&again)
        .expect("it is written");
    for file in std::fs::read_dir(&first).expect("a directory") {
        let name = file.expect("a file").file_name();
        let bytes = |of: &Path| std::fs::read(of.join(&name)).expect("a file");
        assert!(bytes(&first) == bytes(&again), "{name:?}");
    }
    // The tool has no such policy, and says so instead of running the preset's.
    let error = run(&stored, RunOptions::default()).expect_err("it has it not").to_string();
    let right = "left out, or run by the program that made this scenario and has that policy: contend has it not";
    assert!(error.ends_with(&format!("scenario.toml: own_policy: found \"mine\"; should be {right}")), "{error}");
    let other =
        run_with(&stored, "other", |s| mine(&s.features), RunOptions::default()).expect_err("another").to_string();
    assert!(other.ends_with("own_policy: found \"mine\"; should be \"other\", the policy of this program"), "{other}");
}

#[test]
fn what_cannot_be_is_refused() {
    for name in ["", "linux-6.18", "a b", "m\u{1b}"] {
        let right = "should be a name of ASCII letters, digits, -, _ and . that no preset has";
        assert_eq!(refused(TEXT, name), format!("x.toml: own_policy: found \"{name}\"; {right}"));
    }
    let grouped = TEXT.replace("[set]", "[groups.\"/a\"]\nweight = 7\n[set]");
    let said = refused(&grouped, "mine");
    assert_eq!(said, "x.toml: policy: found \"mine\" with the group /a; should be a fair policy such as linux-6.18");
    let xen = "machine = \"4c\"\n[xen]\n[[guest]]\nname = \"a\"\nvcpus = 1\n[guest.workload]\nkind = \"hogs\"\nduration_ms = 1\n";
    assert!(refused(xen, "mine").ends_with("left out: the host is Xen, and programs bring policies for Linux hosts"));
    let both = xen.replace("[xen]", "own_policy = \"mine\"\n[xen]");
    let error = Scenario::parse(&both, "x.toml", Path::new("")).expect("keys").plan().expect_err("xen").to_string();
    assert!(error.starts_with("x.toml:2: own_policy: found \"mine\"; should be left out"), "{error}");
}
