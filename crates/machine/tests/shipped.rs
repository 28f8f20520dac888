//! The files in `machines/`: every one loads, is complete, and says where its costs come from.

use contend_machine::{Machine, keys};
use contend_platform::Work;

#[test]
fn all_load_and_every_cost_has_a_band_and_a_source() {
    for (name, text) in Machine::shipped() {
        let m = Machine::load(name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(m.name, *name);
        assert!(!m.description.trim().is_empty(), "{name}: no description");
        assert_eq!(Machine::parse(text, name).unwrap(), m);
        let mut costs = 0;
        for (key, entries) in m.costs.iter() {
            for c in entries {
                costs += 1;
                assert!(c.lo <= c.value && c.value <= c.hi, "{name}: {key:?}: {c:?}");
                assert!(c.source.len() >= 10, "{name}: {key:?}: \"{}\" names no source", c.source);
            }
        }
        // A machine of one node has no costs of others, one without clusters none of those: two keys each. One whose cores are alike has no
        // capacities.
        assert!(costs >= keys().count() - 5);
        assert!(m.costs.kernel_ns().iter().all(|&ns| ns > 0), "{name}: free kernel work");
        assert_eq!(m.costs.kernel_ns()[Work::Ns as usize], 1);
        assert_eq!(m.costs.kernel_ns()[Work::Policy as usize], 1);
        assert_eq!(m.costs.transfer_ns().len(), m.topology.nr_distances());
    }
}

/// Farther is never cheaper: values, and both ends of the bands.
#[test]
fn costs_grow_with_distance() {
    let synthetic = ["2n2l8c2t", "1c", "4n1l16c8t", "2n4k4c"].map(String::from);
    let names = Machine::shipped().iter().map(|(name, _)| name.to_string()).chain(synthetic);
    for name in names {
        let m = Machine::load(&name).unwrap();
        let l = &m.costs.lines;
        let mut lines = vec![&l.hit, &l.core];
        lines.extend(&l.cluster);
        lines.extend([&l.llc, &l.node]);
        lines.extend(&l.remote);
        let c = &m.costs.cache;
        let mut refill = vec![&c.refill_core_per_kib];
        refill.extend(&c.refill_cluster_per_kib);
        refill.extend([&c.refill_llc_per_kib, &c.refill_node_per_kib, &c.refill_remote_per_kib]);
        let mut memory = vec![&m.costs.memory.local];
        memory.extend(&m.costs.memory.remote);
        for w in lines.windows(2).chain(refill.windows(2)).chain(memory.windows(2)) {
            for (near, far) in [(w[0].value, w[1].value), (w[0].lo, w[1].lo), (w[0].hi, w[1].hi)] {
                assert!(near <= far, "{name}: {:?} is dearer than {:?}", w[0], w[1]);
            }
        }
        let i = &m.costs.interrupts;
        assert!(i.ipi_deliver.value <= i.ipi_deliver_remote.value, "{name}");
        for w in m.costs.cpu.smt_speed_pct.windows(2) {
            assert!(w[1].value <= w[0].value, "{name}: a thread speeds up in company");
        }
    }
}

#[test]
fn shapes_are_those_of_the_studies() {
    //                                nodes llcs cores cpus
    let shapes = [
        ("intel-2s-44c-88t", [2, 2, 44, 88]),
        ("sparc-2s-16c-128t", [2, 2, 16, 128]),
        ("x86_64-2cpu", [1, 1, 2, 2]),
        ("westmere-ex-4s-40c-80t", [4, 4, 40, 80]),
        ("westmere-ex-8s-32c", [8, 8, 32, 32]),
        ("haswell-ex-4s-32c", [4, 4, 32, 32]),
        ("xen-16pcpu-2node", [2, 2, 16, 16]),
        ("epyc-2vcpu", [1, 1, 2, 2]),
        ("kunpeng-920-2s-128c", [4, 4, 128, 128]),
        ("intel-2s-56c-112t", [2, 2, 56, 112]),
        ("zen3-2s-128c-256t", [2, 16, 128, 256]),
        ("kirin-960-8c", [1, 2, 8, 8]),
        ("alder-lake-16c-24t", [1, 1, 16, 24]),
    ];
    assert_eq!(shapes.len(), Machine::shipped().len());
    for (name, shape) in shapes {
        let t = Machine::load(name).unwrap().topology;
        assert_eq!([t.nr_nodes(), t.nr_llcs(), t.nr_cores(), t.nr_cpus()], shape, "{name}");
    }
}

#[test]
fn round_trip() {
    for (name, _) in Machine::shipped() {
        let m = Machine::load(name).unwrap();
        let text = m.to_toml();
        assert_eq!(Machine::parse(&text, "again.toml").unwrap_or_else(|e| panic!("{e}\n{text}")), m);
    }
}

/// A window of the hardware's default of 4,096 cycles is one to a few microseconds, and longer than a trip out and back.
#[test]
fn exits_are_shorter_than_the_windows_that_cause_them() {
    for (name, _) in Machine::shipped() {
        let v = Machine::load(name).unwrap().costs.virt;
        let window_ns = 4096 * 1000 / v.tsc_mhz.value;
        assert!((1_000..=4_000).contains(&window_ns), "{name}: {window_ns} ns");
        assert!(v.exit.value + v.entry.value < window_ns, "{name}");
    }
}
