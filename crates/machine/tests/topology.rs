//! Topologies: `distance` against a naive definition, and the synthetic generator up to 4,096 CPUs.

use contend_machine::{Machine, MachineError, Topology};
use contend_platform::CpuId;
use proptest::prelude::*;

fn cpus(t: &Topology) -> impl Iterator<Item = CpuId> + Clone {
    (0..t.nr_cpus()).map(|c| CpuId(c as u16))
}

/// As the documentation of `Topology::distance` says it, by search.
fn naive(t: &Topology, a: CpuId, b: CpuId) -> usize {
    let together =
        |groups: usize, of: &dyn Fn(usize) -> Vec<CpuId>| (0..groups).any(|g| of(g).contains(&a) && of(g).contains(&b));
    if a == b {
        return 0;
    }
    if together(t.nr_cores(), &|g| t.core_cpus(g).to_vec()) {
        return 1;
    }
    if together(t.nr_clusters(), &|g| t.cluster_cpus(g).to_vec()) {
        return 2;
    }
    let llc = if t.has_clusters() { 3 } else { 2 };
    if together(t.nr_llcs(), &|g| t.llc_cpus(g).to_vec()) {
        return llc;
    }
    if together(t.nr_nodes(), &|g| t.node_cpus(g).to_vec()) {
        return llc + 1;
    }
    let nodes = t.nr_nodes();
    let mut far: Vec<u32> =
        (0..nodes * nodes).filter(|i| i / nodes != i % nodes).map(|i| t.node_distance(i / nodes, i % nodes)).collect();
    far.sort();
    far.dedup();
    let d = t.node_distance(t.node_of(a), t.node_of(b));
    llc + 2 + far.iter().position(|&x| x == d).unwrap()
}

/// Everything a topology promises, for all CPUs and for all pairs of a sample.
fn check(t: &Topology) {
    for (groups, members, of) in [
        (
            t.nr_cores(),
            (|t, g| Topology::core_cpus(t, g)) as fn(&Topology, usize) -> &[CpuId],
            Topology::core_of as fn(&Topology, CpuId) -> usize,
        ),
        (t.nr_llcs(), |t, g| t.llc_cpus(g), Topology::llc_of),
        (t.nr_nodes(), |t, g| t.node_cpus(g), Topology::node_of),
    ] {
        let mut seen = 0;
        for g in 0..groups {
            let m = members(t, g);
            assert!(!m.is_empty() && m.is_sorted_by(|a, b| a < b));
            assert!(m.iter().all(|&c| of(t, c) == g));
            seen += m.len();
        }
        assert_eq!(seen, t.nr_cpus());
    }
    let step = (t.nr_cpus() / 12).max(1);
    for a in cpus(t).step_by(step) {
        for b in cpus(t).step_by(step).chain([a, CpuId(t.nr_cpus() as u16 - 1)]) {
            let d = t.distance(a, b);
            assert_eq!(d, naive(t, a, b), "{a} to {b}");
            assert_eq!(d, t.distance(b, a));
            assert!(d < t.nr_distances());
            let others: Vec<CpuId> = cpus(t).step_by(step).filter(|c| *c != a).collect();
            if let Some((first, more)) = others.split_first() {
                let least = others.iter().map(|c| t.distance(a, *c)).min();
                assert_eq!(Some(t.nearest(a, *first, more.iter().copied())), least, "{a}");
            }
        }
    }
}

#[test]
fn shipped_machines() {
    for (name, _) in Machine::shipped() {
        let t = Machine::load(name).unwrap().topology;
        check(&t);
        for (a, b) in cpus(&t).flat_map(|a| cpus(&t).map(move |b| (a, b))) {
            assert_eq!(t.distance(a, b), naive(&t, a, b), "{name}: {a} to {b}");
        }
    }
}

#[test]
fn numbering() {
    let intel = Machine::load("intel-2s-44c-88t").unwrap().topology;
    assert_eq!(intel.core_cpus(3), [CpuId(3), CpuId(47)]);
    assert_eq!((intel.node_of(CpuId(21)), intel.node_of(CpuId(22)), intel.node_of(CpuId(44))), (0, 1, 0));
    let sparc = Machine::load("sparc-2s-16c-128t").unwrap().topology;
    assert_eq!(sparc.core_cpus(1), (8..16).map(CpuId).collect::<Vec<_>>());
    assert_eq!(sparc.node_cpus(1)[0], CpuId(64));
}

#[test]
fn names_and_classes() {
    let t = Machine::load("westmere-ex-8s-32c").unwrap().topology;
    let names: Vec<&str> = (0..t.nr_distances()).map(|d| t.distance_name(d)).collect();
    assert_eq!(names, ["cpu", "core", "llc", "node", "remote", "remote2"]);
    let of = |node: usize| t.distance(CpuId(0), t.node_cpus(node)[0]);
    assert_eq!([of(1), of(2), of(3), of(4), of(7)], [4, 5, 5, 4, 4]);
    assert_eq!(Machine::load("16c").unwrap().topology.nr_distances(), 4);
}

#[test]
fn clusters() {
    let m = Machine::load("2n1l8k4c2t").unwrap();
    let t = &m.topology;
    assert_eq!(m.name, "2n1l8k4c2t");
    assert_eq!([t.nr_nodes(), t.nr_llcs(), t.nr_clusters(), t.nr_cores(), t.nr_cpus()], [2, 2, 16, 64, 128]);
    assert_eq!(t.cluster_cpus(1)[..5], [4, 5, 6, 7, 68].map(CpuId));
    assert_eq!(t.cluster_of(CpuId(70)), Some(1));
    let names: Vec<&str> = (0..t.nr_distances()).map(|d| t.distance_name(d)).collect();
    assert_eq!(names, ["cpu", "core", "cluster", "llc", "node", "remote"]);
    assert_eq!([64, 1, 4, 32].map(|c| t.distance(CpuId(0), CpuId(c))), [1, 2, 3, 5]);
    assert_eq!(m.costs.transfer_ns().len(), t.nr_distances());
    check(t);
    // Clusters of one core, and one cluster in a cache, are none.
    for none in ["8k1c2t", "2l1k4c", "8c"] {
        let m = Machine::load(none).unwrap();
        assert_eq!((m.topology.nr_clusters(), m.costs.lines.cluster.len()), (0, 0), "{none}");
        assert_eq!(Machine::parse(&m.to_toml(), "again.toml").unwrap(), m);
    }
}

#[test]
fn synthetic_specs() {
    let m = Machine::load("2n2l8c2t").unwrap();
    let t = &m.topology;
    assert_eq!([t.nr_nodes(), t.nr_llcs(), t.nr_cores(), t.nr_cpus()], [2, 4, 32, 64]);
    assert_eq!(Machine::synthetic("16c").unwrap().name, "1n1l16c1t");
    assert_eq!(Machine::synthetic("4096c").unwrap().topology.nr_cpus(), 4096);
    check(&Machine::synthetic("256n1l16c1t").unwrap().topology);
}

#[test]
fn irregular() {
    // Two nodes of different size; a core of two threads and one of one; CPU numbers in no order.
    let text = "name = \"odd\"\ndefaults = [\"lines\", \"interrupts\", \"cpu\", \"cache\", \"memory\", \"virt\", \"kernel\"]\n\
        [topology]\nslit = [[10, 30], [30, 10]]\n\
        [[topology.cpu]]\nid = 3\ncore = 0\nllc = 0\nnode = 0\n\
        [[topology.cpu]]\nid = 0\ncore = 0\nllc = 0\nnode = 0\n\
        [[topology.cpu]]\nid = 1\ncore = 1\nllc = 1\nnode = 0\n\
        [[topology.cpu]]\nid = 2\ncore = 2\nllc = 2\nnode = 1\n";
    let m = Machine::parse(text, "odd.toml").unwrap();
    check(&m.topology);
    assert_eq!(m.topology.core_cpus(0), [CpuId(0), CpuId(3)]);
    assert_eq!(m.costs.cpu.smt_speed_pct.len(), 2);
    assert_eq!(Machine::parse(&m.to_toml(), "again.toml").unwrap(), m);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn synthetic(n in 1usize..=300, l in 1usize..=16, k in 0usize..=6, c in 1usize..=40, t in 1usize..=10) {
        let spec = if k == 0 { format!("{n}n{l}l{c}c{t}t") } else { format!("{n}n{l}l{k}k{c}c{t}t") };
        let c = k.max(1) * c;
        match Machine::synthetic(&spec) {
            Ok(m) => {
                prop_assert_eq!(&m.name, &spec);
                let x = &m.topology;
                prop_assert_eq!([x.nr_nodes(), x.nr_llcs(), x.nr_cores(), x.nr_cpus()],
                    [n, n * l, n * l * c, n * l * c * t]);
                check(x);
                prop_assert_eq!(m.costs.lines.remote.len(), x.nr_remote());
                prop_assert_eq!(m.costs.cpu.smt_speed_pct.len(), t);
                prop_assert_eq!(&Machine::parse(&m.to_toml(), "again.toml").unwrap(), &m);
            }
            Err(e) => {
                prop_assert!(n * l * c * t > 4096 || n > 256 || t > 8, "{}", e);
                prop_assert!(matches!(e, MachineError::Synthetic { .. }), "{}", e);
            }
        }
    }

    /// Any text is refused or read, never a panic.
    #[test]
    fn no_spec_panics(spec in "[0-9nlkctx]{0,12}") {
        let _ = Machine::load(&spec);
    }

    /// A file cut anywhere: an error with file and line, or, when only comments are lost, the same machine.
    #[test]
    fn truncated(which in 0usize..7, at in 0.0f64..1.0) {
        let (name, _) = Machine::shipped()[which];
        let whole = Machine::load(name).unwrap();
        let text = whole.to_toml();
        let mut cut = (text.len() as f64 * at) as usize;
        while !text.is_char_boundary(cut) { cut -= 1; }
        match Machine::parse(&text[..cut], "cut.toml") {
            Ok(m) => prop_assert_eq!(m, whole),
            Err(e) => prop_assert!(e.to_string().starts_with("cut.toml:"), "{}", e),
        }
    }

    /// Random edits of a file never panic the parser.
    #[test]
    fn damaged(at in 0.0f64..1.0, byte in 0u8..128) {
        let mut text = Machine::load("westmere-ex-8s-32c").unwrap().to_toml().into_bytes();
        let i = (text.len() as f64 * at) as usize;
        text[i] = byte;
        if let Ok(text) = String::from_utf8(text) {
            let _ = Machine::parse(&text, "damaged.toml");
        }
    }
}
