//! Which pCPUs share a runqueue.

use super::super::partition::partition;
use super::*;
use proptest::prelude::*;

/// pCPUs of each runqueue.
fn queues(topo: &Topology, how: &str, max: &str, within: &CpuMask) -> Vec<CpuMask> {
    let conf = Conf::new(&features("base", &[("credit2_runqueue", how), ("credit2_max_cpus_runqueue", max)]));
    let of = partition(&conf, topo, within);
    let mut out: Vec<CpuMask> = Vec::new();
    for cpu in within.iter() {
        let rq = of[cpu.index()].index();
        out.resize(out.len().max(rq + 1), CpuMask::NONE);
        out[rq].insert(cpu);
    }
    out
}

fn sizes(topo: &Topology, how: &str, max: &str) -> Vec<usize> {
    queues(topo, how, max, &CpuMask::first_n(topo.nr_cpus())).iter().map(CpuMask::len).collect()
}

#[test]
fn by_cpu_core_socket_node_and_all() {
    let t = topo("2n2l3c2t");
    assert_eq!(sizes(&t, "cpu", "0"), [1; 24]);
    assert_eq!(sizes(&t, "core", "0"), [2; 12]);
    assert_eq!(sizes(&t, "socket", "0"), [12, 12]);
    assert_eq!(sizes(&t, "node", "0"), [12, 12]);
    assert_eq!(sizes(&t, "all", "0"), [24]);
    let cores = queues(&t, "core", "0", &CpuMask::first_n(24));
    assert!(cores.iter().all(|q| t.core_of(q.first().unwrap()) == t.core_of(q.iter().last().unwrap())));
    // A core of more threads than the limit does not keep the others apart.
    let wide = cpus("0,5,10,15,20,25,30,35,1-4");
    assert_eq!(queues(&topo("1n1l5c8t"), "all", "4", &wide).iter().map(CpuMask::len).collect::<Vec<_>>(), [8, 4]);
    // A pool of part of the machine.
    assert_eq!(queues(&t, "socket", "0", &cpus("0-2")).len(), 1);
}

#[test]
fn at_most_16_sizes_even() {
    assert_eq!(sizes(&topo("2n1l11c2t"), "socket", "16"), [10, 12, 10, 12].map(|n| n));
    assert_eq!(sizes(&topo("1n1l22c2t"), "socket", "16"), [14, 16, 14]);
    assert_eq!(sizes(&topo("1n1l16c1t"), "all", "16"), [16]);
    assert_eq!(sizes(&topo("1n1l17c1t"), "all", "16"), [8, 9]);
    assert_eq!(sizes(&topo("2n1l64c2t"), "all", "16"), [16; 16]);
    assert_eq!(sizes(&topo("1n1l2c8t"), "all", "4"), [8, 8], "siblings stay together");
}

proptest! {
    #[test]
    fn partitions_are_partitions(
        nodes in 1usize..3, cores in 1usize..24, threads in 1usize..5, max in 1usize..20, bits in any::<[u64; 4]>(),
    ) {
        let t = topo(&format!("{nodes}n1l{cores}c{threads}t"));
        let all = CpuMask::first_n(t.nr_cpus());
        let within = CpuMask::from_words(bits.into_iter()) & all;
        prop_assume!(!within.is_empty());
        for how in ["cpu", "core", "socket", "node", "all"] {
            let queues = queues(&t, how, &max.to_string(), &within);
            prop_assert_eq!(queues.iter().fold(CpuMask::NONE, |a, b| a | *b), within);
            prop_assert_eq!(queues.iter().map(CpuMask::len).sum::<usize>(), within.len());
            for q in &queues {
                prop_assert!(!q.is_empty() && q.len() <= max.max(threads), "{} {:?}", how, q);
                let whole = q.iter().all(|c| {
                    let core: CpuMask = t.core_cpus(t.core_of(c)).iter().copied().collect();
                    (core & within).is_subset(q)
                });
                prop_assert!(how == "cpu" || whole, "siblings share a queue: {:?}", q);
            }
        }
    }
}
