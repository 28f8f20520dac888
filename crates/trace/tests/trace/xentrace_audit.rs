//! Credit2's decisions on real traces (`docs/xen-decisions.md`).

use std::path::{Path, PathBuf};

use contend_platform::CpuId;
use contend_trace::xentrace::audit::{Audit, Host, Kind, audit};
use contend_trace::xentrace::{Clock, open};

/// Holds the traces that are too large for the test data: `credit2-weights.bin.xz`, `credit2-softaffinity.bin.xz`.
const TRACES: &str = "CONTEND_XEN_TRACES";

fn host() -> Host {
    Host { clock: Clock::new(2_599_998_000).expect("a frequency"), ..Host::default() }
}

/// Coverage and agreement of all decisions, in %.
fn shares(of: &Audit) -> (f64, f64) {
    let sum = of.sum();
    (100.0 * sum.known as f64 / sum.total as f64, 100.0 * sum.agree as f64 / sum.known as f64)
}

/// Kinds without a single disagreement.
fn alike(of: &Audit, kinds: &[Kind]) {
    for kind in kinds {
        let tally = &of.kinds[kind];
        let cases: Vec<_> = of.cases.iter().filter(|case| case.kind == *kind).collect();
        assert!(tally.known > 0 && tally.agree == tally.known, "{kind:?}: {tally:?}, {cases:?}");
    }
}

fn whole(path: impl AsRef<Path>, host: &Host) -> Audit {
    let all = audit(open(path.as_ref()).expect("the trace"), host, &mut || true);
    all.expect("an audit").expect("nobody stopped it")
}

const EXACT: [Kind; 8] =
    [Kind::Burn, Kind::Candidate, Kind::Reset, Kind::ResetAmount, Kind::Slice, Kind::Insert, Kind::Score, Kind::Tickle];

#[test]
fn a_light_load_is_decided_alike() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xentrace/credit2-mixed.bin.gz");
    let of = whole(path, &host());
    let (known, agree) = shares(&of);
    assert!(known > 91.0 && agree > 99.8, "{known} {agree}");
    alike(&of, &EXACT);
    alike(&of, &[Kind::Masks, Kind::Preemptable]);
}

fn large(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os(TRACES).map(|dir| Path::new(&dir).join(name));
    if path.is_none() {
        eprintln!("SKIPPED: {name}: set {TRACES} to the directory that holds it");
    }
    path
}

#[test]
fn weights_are_decided_alike() {
    let Some(path) = large("credit2-weights.bin.xz") else { return };
    let host = Host { weights: [(1, 512)].into(), ..host() };
    let of = whole(path, &host);
    let (known, agree) = shares(&of);
    assert!(known > 95.0 && agree > 99.9, "{known} {agree}");
    alike(&of, &EXACT[..7]);
    alike(&of, &[Kind::Masks, Kind::BalanceCheck, Kind::Moves]);
}

#[test]
fn soft_affinities_are_decided_alike() {
    let Some(path) = large("credit2-softaffinity.bin.xz") else { return };
    let cpus = |range: std::ops::Range<u16>| range.map(CpuId).collect();
    let host = Host { soft: [(1, cpus(0..2)), (2, cpus(2..4))].into(), ..host() };
    let of = whole(path, &host);
    let (known, agree) = shares(&of);
    assert!(known > 93.0 && agree > 99.9, "{known} {agree}");
    alike(&of, &EXACT[..7]);
    alike(&of, &[Kind::Masks, Kind::BalanceCheck, Kind::Balance, Kind::Moves, Kind::Weight]);
}

#[test]
fn a_wrong_fact_of_the_host_shows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xentrace/credit2-mixed.bin.gz");
    let host = Host { weights: [(0, 512)].into(), ratelimit_us: 5000, ..host() };
    let of = whole(path, &host);
    let differ = |kind| of.kinds[&kind].known - of.kinds[&kind].agree;
    assert!(differ(Kind::Candidate) + differ(Kind::Slice) > 0, "{:?}", of.kinds);
    assert!(!of.cases.is_empty());
}

#[test]
fn a_trace_of_credit_is_refused() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xentrace/credit-mixed.bin.gz");
    let error = audit(open(path).expect("the trace"), &host(), &mut || true).expect_err("no Credit2").to_string();
    assert!(error.contains("no record of Credit2"), "{error}");
}

#[test]
fn an_audit_stops_when_it_is_told_to() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xentrace/credit2-mixed.bin.gz");
    assert!(audit(open(path).expect("the trace"), &host(), &mut || false).expect("an audit").is_none());
}
