//! A policy in a crate outside the workspace builds, runs, and does what it says: `examples/my-policy`.

use std::path::Path;
use std::process::Command;

#[test]
fn a_policy_outside_the_workspace() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/my-policy");
    // Offline and locked: its dependencies are among those of the workspace, in the same versions.
    let out = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline", "--locked"])
        .current_dir(example)
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("my-policy"))
        .env_remove("RUSTFLAGS")
        .envs([("CARGO_PROFILE_DEV_DEBUG", "0"), ("CARGO_INCREMENTAL", "0")])
        .output()
        .expect("cargo runs");
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
}
