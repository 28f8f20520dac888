//! The machine at hand, whatever it is: the file loads, and the numbers are of the right size.
#![cfg(target_os = "linux")]

use std::time::Duration;

use contend_machine::Machine;
use contend_probe::{How, Options, ProbeError, probe};

fn quick() -> Options {
    Options { quick: true, name: Some("here".into()), budget: Some(Duration::from_millis(200)) }
}

#[test]
fn a_probe_gives_a_file_that_loads() {
    let mut shares = Vec::new();
    let report = probe(&quick(), &mut |done| {
        shares.push(done);
        true
    })
    .unwrap();
    assert!(shares.is_sorted() && shares.iter().all(|s| (0.0..=1.0).contains(s)));
    let m = Machine::parse(&report.toml, "here.toml").unwrap();
    assert_eq!((m.name.as_str(), m.hz), ("here", report.hz));
    let t = &m.topology;
    assert_eq!(report.counts, [t.nr_cpus(), t.nr_cores(), t.nr_llcs(), t.nr_nodes()]);
    for row in &report.rows {
        assert!(row.lo <= row.value && row.value <= row.hi, "{row:?}");
        assert!(row.source.len() >= 10, "{row:?}");
        assert_eq!(row.how == How::Measured, row.source.starts_with("measured by contend probe"), "{row:?}");
    }
    // Wide: a busy machine under a sanitizer or an emulator counts too.
    for (cost, from, to) in [
        ("lines.hit", 1, 1_000),
        ("lines.atomic", 1, 10_000),
        ("lines.node", 2, 1_000_000),
        ("kernel.clock_read", 1, 100_000),
        ("kernel.syscall", 5, 1_000_000),
        ("cpu.context_switch", 1, 10_000_000),
    ] {
        let row = report.rows.iter().find(|r| r.cost == cost).unwrap();
        assert!((from..=to).contains(&row.value), "{row:?}");
    }
    assert!(report.rows.iter().filter(|r| r.how != How::Estimate).count() > 10);
}

#[test]
fn it_stops_when_told() {
    let mut calls = 0;
    let stopped = probe(&quick(), &mut |_| {
        calls += 1;
        calls < 3
    });
    assert!(matches!(stopped, Err(ProbeError::Interrupted)), "{stopped:?}");
    assert_eq!(calls, 3);
}

#[test]
fn names_that_no_file_may_have() {
    for name in ["", "a\nb", &"x".repeat(65)] {
        let options = Options { name: Some(name.into()), ..quick() };
        assert!(matches!(probe(&options, &mut |_| true), Err(ProbeError::Name(_))));
    }
}
