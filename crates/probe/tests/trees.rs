//! Made-up machines: trees as below `/sys/devices/system`, and what is made of them.

use std::fs;
use std::path::Path;

use contend_probe::layout::{Layout, Sizes, layout};
use contend_probe::sysfs::{CpuSet, Raw, read};
use tempfile::TempDir;

/// A tree of files.
struct Tree(TempDir);

impl Tree {
    fn new() -> Tree {
        Tree(TempDir::new().unwrap())
    }

    fn put(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) -> &Tree {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn online(&self, list: &str) -> &Tree {
        self.put("cpu/online", format!("{list}\n"))
    }

    /// A CPU with its siblings; L1 and L2 are theirs, an L3 is of `llc`.
    fn cpu(&self, id: usize, package: i32, siblings: &str, llc: &str) -> &Tree {
        self.bare(id, package, siblings);
        self.cache(id, 0, 1, "Data", "48K", siblings);
        self.cache(id, 1, 1, "Instruction", "32K", siblings);
        self.cache(id, 2, 2, "Unified", "1024K", siblings);
        self.cache(id, 3, 3, "Unified", "32M", llc)
    }

    fn bare(&self, id: usize, package: i32, siblings: &str) -> &Tree {
        self.put(format!("cpu/cpu{id}/topology/physical_package_id"), format!("{package}\n"));
        self.put(format!("cpu/cpu{id}/topology/thread_siblings_list"), format!("{siblings}\n"))
    }

    fn cache(&self, id: usize, index: usize, level: u32, kind: &str, size: &str, shared: &str) -> &Tree {
        let dir = format!("cpu/cpu{id}/cache/index{index}");
        self.put(format!("{dir}/level"), format!("{level}\n"));
        self.put(format!("{dir}/type"), format!("{kind}\n"));
        self.put(format!("{dir}/size"), format!("{size}\n"));
        self.put(format!("{dir}/shared_cpu_list"), format!("{shared}\n"))
    }

    fn node(&self, id: usize, cpus: &str, distances: &str) -> &Tree {
        self.put(format!("node/node{id}/cpulist"), format!("{cpus}\n"));
        self.put(format!("node/node{id}/distance"), format!("{distances}\n"))
    }

    fn raw(&self) -> Raw {
        read(self.0.path(), &CpuSet::from([0, 1]))
    }

    fn layout(&self) -> Layout {
        layout(&self.raw()).unwrap()
    }
}

fn numbers(l: &Layout, of: impl Fn(&contend_machine::Place) -> usize) -> Vec<usize> {
    l.places.iter().map(of).collect()
}

fn noted(l: &Layout, words: &str) {
    assert!(l.notes.iter().any(|n| n.contains(words)), "no note of {words:?} in {:?}", l.notes);
}

/// Two sockets of two cores of two threads, as Intel's are numbered.
fn two_sockets() -> Tree {
    let t = Tree::new();
    t.online("0-7").put("cpu/present", "0-7\n");
    for id in 0..8 {
        let socket = id % 4 / 2;
        let llc = ["0-1,4-5", "2-3,6-7"][socket];
        t.cpu(id, socket as i32, &format!("{},{}", id % 4, id % 4 + 4), llc);
    }
    t.node(0, "0-1,4-5", "10 21").node(1, "2-3,6-7", "21 10");
    t
}

#[test]
fn two_sockets_with_siblings() {
    let l = two_sockets().layout();
    assert_eq!(numbers(&l, |p| p.core), [0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!(numbers(&l, |p| p.llc), [0, 0, 1, 1, 0, 0, 1, 1]);
    assert_eq!(numbers(&l, |p| p.node), [0, 0, 1, 1, 0, 0, 1, 1]);
    assert_eq!(l.slit, [[10, 21], [21, 10]]);
    assert_eq!(l.private_kib, Some(Sizes { value: 1024, lo: 1024, hi: 1024 }));
    assert_eq!(l.llc_kib.unwrap().value, 32768);
    assert_eq!(l.notes, [] as [&str; 0]);
}

#[test]
fn offline_cpus_leave_holes_that_are_closed() {
    let t = two_sockets();
    t.online("0,2-3,6-7");
    let l = t.layout();
    assert_eq!(l.kernel_cpu, [0, 2, 3, 6, 7]);
    assert_eq!(numbers(&l, |p| p.core), [0, 1, 2, 1, 2]);
    assert_eq!(numbers(&l, |p| p.node), [0, 1, 1, 1, 1]);
    noted(&l, "3 CPUs are offline");
    noted(&l, "run to 7 with gaps");
}

#[test]
fn a_node_that_lost_its_cpus_is_left_out() {
    let t = two_sockets();
    t.online("2-3,6-7").node(2, "", "30 30 10").node(0, "0-1,4-5", "10 21 30").node(1, "2-3,6-7", "21 10 30");
    let l = t.layout();
    assert_eq!(numbers(&l, |p| p.node), [0, 0, 0, 0]);
    assert_eq!(l.slit, [[10]]);
    noted(&l, "2 nodes without CPUs");
}

#[test]
fn irregular_caches() {
    let t = Tree::new();
    t.online("0-5");
    for id in 0..6 {
        t.cpu(id, 0, &id.to_string(), if id < 4 { "0-3" } else { "4-5" });
    }
    t.node(0, "0-5", "10");
    // One CPU has a larger cache of its own.
    t.cache(0, 2, 2, "Unified", "2M", "0");
    let l = t.layout();
    assert_eq!(numbers(&l, |p| p.llc), [0, 0, 0, 0, 1, 1]);
    assert_eq!(l.private_kib, Some(Sizes { value: 1024, lo: 1024, hi: 2048 }));
}

#[test]
fn without_cache_information_a_package_is_a_cache_or_else_a_node() {
    let t = Tree::new();
    t.online("0-3");
    for id in 0..4 {
        t.bare(id, id as i32 / 2, &id.to_string());
    }
    let l = t.layout();
    assert_eq!(numbers(&l, |p| p.llc), [0, 0, 1, 1]);
    assert_eq!((l.private_kib, l.llc_kib), (None, None));
    noted(&l, "each package counts");
    for id in 0..4 {
        t.put(format!("cpu/cpu{id}/topology/physical_package_id"), "-1\n");
    }
    let l = t.layout();
    assert_eq!(numbers(&l, |p| p.llc), [0, 0, 0, 0]);
    noted(&l, "each node counts");
}

#[test]
fn cpus_without_cache_information_keep_together_beside_others_that_have_it() {
    let t = Tree::new();
    t.online("0-7").node(0, "0-7", "10");
    for id in 0..4 {
        t.cpu(id, 0, &id.to_string(), "0-3");
    }
    for (id, siblings) in [(4, "4-5"), (5, "4-5"), (6, "6-7"), (7, "6-7")] {
        t.bare(id, 0, siblings);
    }
    let l = t.layout();
    assert_eq!(numbers(&l, |p| p.llc), [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(numbers(&l, |p| p.core), [0, 1, 2, 3, 4, 4, 5, 5]);
    noted(&l, "4 CPUs, 4 the first, have no cache information: those of a package");
    assert_eq!(l.notes.len(), 1, "{:?}", l.notes);
}

#[test]
fn nothing_at_all() {
    let t = Tree::new();
    let l = t.layout();
    assert_eq!(l.kernel_cpu, [0, 1], "those that the process may use");
    assert_eq!(numbers(&l, |p| p.core), [0, 1]);
    assert_eq!(numbers(&l, |p| p.llc), [0, 0]);
    assert_eq!(l.slit, [[10]]);
    noted(&l, "not known");
}

#[test]
fn garbage_counts_as_missing_and_is_noted() {
    let t = two_sockets();
    for path in [
        "cpu/cpu0/topology/thread_siblings_list",
        "cpu/cpu1/cache/index3/shared_cpu_list",
        "cpu/cpu2/cache/index2/size",
        "cpu/cpu3/cache/index3/level",
        "node/node0/distance",
        "node/node1/cpulist",
    ] {
        t.put(path, b"\xff\xfe 7-3;x\0".as_slice());
    }
    let l = t.layout();
    assert_eq!(l.places.len(), 8);
    assert_eq!(l.notes.iter().filter(|n| n.contains("is not understood")).count(), 6, "{:?}", l.notes);
    t.put("cpu/online", "all of them").put("cpu/cpu0/topology/physical_package_id", "0x1");
    assert_eq!(t.layout().kernel_cpu, [0, 1]);
}

#[test]
fn contradictory_sibling_lists() {
    // A circle: 0 names 1, 1 names 2, 2 names 0. And 3 does not name itself.
    let t = two_sockets();
    t.bare(0, 0, "0-1").bare(1, 0, "1-2").bare(2, 0, "0,2").bare(3, 0, "7");
    let l = t.layout();
    assert_eq!(numbers(&l, |p| p.core), [0, 1, 2, 3, 4, 5, 6, 7]);
    noted(&l, "contradict one another");
}

#[test]
fn caches_over_nodes_and_cores_over_caches_are_cut() {
    let t = Tree::new();
    t.online("0-3");
    for id in 0..4 {
        t.cpu(id, 0, "0-3", "0-3");
    }
    t.node(0, "0-1", "10 12").node(1, "2-3", "12 10");
    let l = t.layout();
    assert_eq!(numbers(&l, |p| p.node), [0, 0, 1, 1]);
    assert_eq!(numbers(&l, |p| p.llc), [0, 0, 1, 1]);
    assert_eq!(numbers(&l, |p| p.core), [0, 0, 1, 1]);
    noted(&l, "cache spans nodes");
    noted(&l, "core spans");
}

#[test]
fn distances_become_a_table_that_a_file_may_have() {
    let t = two_sockets();
    t.node(0, "0-1,4-5", "11 255").node(1, "2-3,6-7", "5 10");
    let l = t.layout();
    assert_eq!(l.slit, [[10, 254], [254, 10]]);
    noted(&l, "were corrected");
    t.node(0, "0-1,4-5", "10").node(1, "2-3,6-7", "");
    assert_eq!(t.layout().slit, [[10, 20], [20, 10]]);

    let t = Tree::new();
    let n = 30;
    t.online(&format!("0-{}", n - 1));
    for id in 0..n {
        t.bare(id, id as i32, &id.to_string());
        let row: Vec<String> = (0..n).map(|b| (10 + 3 * id.abs_diff(b)).to_string()).collect();
        t.node(id, &id.to_string(), &row.join(" "));
    }
    let l = t.layout();
    let mut far: Vec<u32> = l.slit.concat();
    far.sort_unstable();
    far.dedup();
    assert_eq!(far.len(), 17, "16, and 10");
    noted(&l, "close ones are joined");
    // 29 distances 3 apart: classes of one and of two.
    for (real, shown) in (0..n).flat_map(|b| (0..n).map(move |a| (a, b))).zip(l.slit.concat()) {
        let real = 10 + 3 * real.0.abs_diff(real.1) as u32;
        assert!(real.abs_diff(shown) <= 2, "{real} became {shown}");
    }
}

#[test]
fn cpus_in_no_node_and_in_two() {
    let t = two_sockets();
    t.node(0, "0-1,4", "10 21").node(1, "1-3,6-7", "21 10");
    let l = t.layout();
    assert_eq!(numbers(&l, |p| p.node), [0, 0, 1, 1, 0, 0, 1, 1]);
    noted(&l, "1 CPUs are in no node");
    noted(&l, "1 CPUs are in several nodes");
}

#[test]
fn too_large_a_machine_is_refused() {
    let t = Tree::new();
    t.online("0-4096");
    let e = layout(&t.raw()).unwrap_err().to_string();
    assert!(e.contains("found 4097 CPUs; a machine has 1 to 4096"), "{e}");
}

#[test]
fn idle_states() {
    let t = two_sockets();
    for (i, (name, us)) in [("POLL", 0), ("C1", 2), ("C6", 600)].into_iter().enumerate() {
        t.put(format!("cpu/cpu0/cpuidle/state{i}/name"), name);
        t.put(format!("cpu/cpu0/cpuidle/state{i}/residency"), us.to_string());
    }
    t.put("cpu/cpu0/cpuidle/state1/disable", "1\n");
    let states: Vec<(String, u64)> = t.raw().idle_states.into_iter().map(|s| (s.name, s.residency_ns)).collect();
    assert_eq!(states, [("POLL".into(), 0), ("C6".into(), 600_000)]);
}

/// Two caches of two clusters of two cores.
fn clusters() -> Tree {
    let t = Tree::new();
    t.online("0-7").node(0, "0-7", "10");
    for id in 0..8 {
        t.bare(id, 0, &id.to_string());
        t.cache(id, 0, 1, "Data", "64K", &id.to_string());
        let (pair, four) = (id / 2 * 2, id / 4 * 4);
        t.cache(id, 2, 2, "Unified", "2048K", &format!("{pair}-{}", pair + 1));
        t.cache(id, 3, 3, "Unified", "32M", &format!("{four}-{}", four + 3));
    }
    t
}

#[test]
fn cores_that_share_a_cache_below_the_last_are_a_cluster() {
    let of = |l: &Layout| l.places.iter().map(|p| p.cluster).collect::<Vec<_>>();
    let pairs = [0, 0, 1, 1, 2, 2, 3, 3].map(Some).to_vec();
    assert_eq!(of(&clusters().layout()), pairs);
    // What the kernel says goes before: private caches, shared tags.
    let t = two_sockets();
    for id in 0..8 {
        t.put(format!("cpu/cpu{id}/topology/cluster_cpus_list"), format!("{},{}", id % 4, id % 4 + 4));
    }
    assert_eq!(of(&t.layout()), [None; 8], "a core is no cluster");
    let t = clusters();
    for id in 0..8 {
        t.put(format!("cpu/cpu{id}/topology/cluster_cpus_list"), format!("{id}"));
    }
    assert_eq!(of(&t.layout()), [None; 8], "the kernel sees none");
    for id in 4..8 {
        t.put(format!("cpu/cpu{id}/topology/cluster_cpus_list"), ["4-5", "6-7"][id / 6]);
    }
    assert_eq!(of(&t.layout()), [0, 1, 2, 3, 4, 4, 5, 5].map(Some), "clusters in one cache alone");
    // Threads of a core in two clusters.
    let t = two_sockets();
    for id in 0..8 {
        let four = id / 4 * 4;
        t.put(format!("cpu/cpu{id}/topology/cluster_cpus_list"), format!("{four}-{}", four + 3));
    }
    assert_eq!(of(&t.layout()), [None; 8]);
    noted(&t.layout(), "clusters cut cores");
}
