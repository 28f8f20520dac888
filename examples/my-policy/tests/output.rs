//! What the example prints is what it says: shares by weight.

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
}
