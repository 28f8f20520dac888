//! Every message in full: file, line, key, what was found, what would be right.

use contend_machine::{FILE_BYTES_MAX, Machine};

/// A small complete file.
fn base() -> String {
    [
        "name = \"m\"",                                                                                 // 1
        "hz = 250",                                                                                     // 2
        "defaults = [\"lines\", \"interrupts\", \"cpu\", \"cache\", \"memory\", \"virt\", \"kernel\"]", // 3
        "[topology]",                                                                                   // 4
        "nodes = 2",                                                                                    // 5
        "llcs_per_node = 1",                                                                            // 6
        "cores_per_llc = 4",                                                                            // 7
        "threads_per_core = 2",                                                                         // 8
        "numbering = \"cores-first\"",                                                                  // 9
        "slit = [[10, 21],",                                                                            // 10
        "        [21, 10]]",                                                                            // 11
        "[lines]",                                                                                      // 12
        "llc = { value = 45, lo = 35, hi = 60, source = \"a paper\" }",                                 // 13
        "remote = [{ value = 130, lo = 100, hi = 180, source = \"a paper\" }]",                         // 14
        "[cpu]",                                                                                        // 15
        "smt_speed_pct = [",                                                                            // 16
        "    { value = 100, lo = 100, hi = 100, source = \"by definition\" },",                         // 17
        "    { value = 62, lo = 55, hi = 70, source = \"a paper\" },",                                  // 18
        "]",                                                                                            // 19
        "",
    ]
    .join("\n")
}

fn message(text: &str) -> String {
    Machine::parse(text, "m.toml").expect_err("should be refused").to_string()
}

/// The message after one replacement in the small file.
fn edited(from: &str, to: &str) -> String {
    let base = base();
    assert_eq!(base.matches(from).count(), 1, "{from}");
    message(&base.replace(from, to))
}

const FORM: &str = "{ value = .., lo = .., hi = .., source = \"..\" }";

#[test]
fn the_small_file_is_good() {
    Machine::parse(&base(), "m.toml").unwrap();
}

#[test]
fn syntax_and_truncation() {
    let m = edited("llc = { value", "llc = value");
    assert!(m.starts_with("m.toml:13: not valid TOML: "), "{m}");
    let m = message(&base()[..base().find("hi = 60").unwrap()]);
    assert!(m.starts_with("m.toml:13: not valid TOML: "), "{m}");
    assert_eq!(message(""), "m.toml:1: name: missing; write name = \"...\"");
    assert_eq!(message("name = \"m\""), "m.toml:1: topology: missing; write a table [topology]");
    assert_eq!(
        edited(", \"kernel\"]", "]"),
        format!(
            "m.toml:20: kernel.syscall: missing; write syscall = {FORM}, or add \"kernel\" to the array `defaults`"
        )
    );
}

#[test]
fn unknown_keys() {
    assert_eq!(edited("hz =", "htz ="), "m.toml:2: htz: unknown key; did you mean hz?");
    assert_eq!(edited("llc = {", "lcc = {"), "m.toml:13: lines.lcc: unknown key; did you mean llc?");
    assert_eq!(
        edited("llc = {", "zzzzzz = {"),
        "m.toml:13: lines.zzzzzz: unknown key; keys here are hit, atomic, core, cluster, llc, node, remote"
    );
    assert_eq!(edited("hi = 60", "high = 60"), "m.toml:13: lines.llc.high: unknown key; did you mean hi?");
    assert_eq!(
        edited("hi = 60", "hi_of_all_runs = 60"),
        "m.toml:13: lines.llc.hi_of_all_runs: unknown key; keys here are value, lo, hi, source"
    );
    assert_eq!(edited("[cpu]", "[cpus]"), "m.toml:15: cpus: unknown key; did you mean cpu?");
    assert_eq!(
        edited("nodes =", "node ="),
        "m.toml:5: topology.node: unknown key; did you mean nodes or llcs_per_node?"
    );
}

#[test]
fn types_and_ranges() {
    assert_eq!(edited("hz = 250", "hz = \"250\""), "m.toml:2: hz: found \"250\"; should be a whole number");
    assert_eq!(edited("hz = 250", "hz = 20"), "m.toml:2: hz: found 20; should be 24 to 10000");
    assert_eq!(
        edited("hz = 250", "hz = 250\nsteal_time = 1"),
        "m.toml:3: steal_time: found 1; should be true or false"
    );
    assert_eq!(
        edited("llc = { value = 45, lo = 35, hi = 60, source = \"a paper\" }", "llc = 45"),
        format!("m.toml:13: lines.llc: found 45; should be {FORM}")
    );
    assert_eq!(edited("value = 45", "value = 4.5"), "m.toml:13: lines.llc.value: found 4.5; should be a whole number");
    assert_eq!(edited("lo = 35", "lo = -35"), "m.toml:13: lines.llc.lo: found -35; should be 0 to 1000000000");
    assert_eq!(
        edited("hi = 60", "hi = 99999999999999999999999"),
        "m.toml:13: lines.llc.hi: found 99999999999999999999999; should be 0 to 1000000000"
    );
    assert_eq!(edited("lo = 35, ", ""), format!("m.toml:13: lines.llc.lo: missing; write {FORM}"));
    assert_eq!(edited("[lines]", "lines = 3\n[cpu2]"), "m.toml:13: cpu2: unknown key; did you mean cpu?");
    assert_eq!(
        edited("\"cores-first\"", "\"cores_first\""),
        "m.toml:9: topology.numbering: found \"cores_first\"; should be \"cores-first\" or \"threads-first\""
    );
    assert_eq!(
        edited("\"kernel\"]", "\"kernels\"]"),
        "m.toml:3: defaults: found \"kernels\"; should be one of lines, interrupts, cpu, cache, memory, virt, kernel"
    );
    assert_eq!(edited("name = \"m\"", "name = \"\""), "m.toml:1: name: found \"\"; should be 1 to 64 characters");
}

#[test]
fn bands_and_sources() {
    assert_eq!(
        edited("lo = 35", "lo = 50"),
        "m.toml:13: lines.llc: found lo = 50, value = 45, hi = 60; should be lo <= value <= hi"
    );
    assert_eq!(
        edited("hi = 60", "hi = 44"),
        "m.toml:13: lines.llc: found lo = 35, value = 45, hi = 44; should be lo <= value <= hi"
    );
    assert_eq!(
        edited("hi = 60, source = \"a paper\"", "hi = 60, source = \" \""),
        "m.toml:13: lines.llc.source: found nothing; should be a paper, a manual, a measurement, or \"estimate: ...\""
    );
}

#[test]
fn lists() {
    assert_eq!(
        edited("    { value = 62, lo = 55, hi = 70, source = \"a paper\" },\n", ""),
        "m.toml:16: cpu.smt_speed_pct: found 1 entries; should be 2: one for each number of busy threads in a core, \
         from 1, the machine has 2"
    );
    assert_eq!(edited("hi = 70", "hi = 101"), "m.toml:18: cpu.smt_speed_pct.1.hi: found 101; should be 1 to 100");
    assert_eq!(edited("lo = 55", "lo = 0"), "m.toml:18: cpu.smt_speed_pct.1.lo: found 0; should be 1 to 100");
    assert_eq!(
        edited("value = 100, lo = 100", "value = 90, lo = 90"),
        "m.toml:17: cpu.smt_speed_pct.0.value: found 90; should be 100: a lone thread runs at full speed"
    );
    assert_eq!(
        edited("[{ value = 130, lo = 100, hi = 180, source = \"a paper\" }]", "[]"),
        "m.toml:14: lines.remote: found 0 entries; should be 1: one for each different remote distance of \
         topology.slit, ascending, the machine has 1"
    );
}

#[test]
fn sizes() {
    assert_eq!(edited("nodes = 2", "nodes = 0"), "m.toml:5: topology.nodes: found 0; should be 1 to 4096");
    assert_eq!(
        edited("cores_per_llc = 4", "cores_per_llc = 2000"),
        "m.toml:4: topology: found 8000 CPUs; should be 1 to 4096 CPUs"
    );
    assert_eq!(
        edited("nodes = 2\n", ""),
        "m.toml:4: topology.nodes: missing; write a number from 1, or list the CPUs in [[topology.cpu]]"
    );
    let huge = "#".repeat(FILE_BYTES_MAX as usize + 1);
    assert_eq!(message(&huge), "m.toml: larger than 1048576 bytes, the most a machine file may have");
}

#[test]
fn slit() {
    assert_eq!(
        edited("        [21, 10]]", "]"),
        "m.toml:10: topology.slit: contradictory: found 1 rows; one row for each of the 2 nodes"
    );
    assert_eq!(
        edited("[21, 10]]", "[21, 10, 21]]"),
        "m.toml:11: topology.slit: contradictory: found 3 columns in row 1; the table is square: 2 columns"
    );
    assert_eq!(
        edited("[21, 10]]", "[22, 10]]"),
        "m.toml:10: topology.slit: contradictory: found 21 from node 0 to node 1 but 22 back; the table is symmetric"
    );
    assert_eq!(
        edited("[21, 10]]", "[21, 11]]"),
        "m.toml:11: topology.slit: contradictory: found 11 from node 1 to node 1; a node is 10 from itself"
    );
    assert_eq!(
        edited("[10, 21]", "[10, 10]"),
        "m.toml:10: topology.slit: contradictory: found 10 from node 0 to node 1; other nodes are 11 to 254 away"
    );
    assert_eq!(
        edited("[10, 21]", "[10, \"far\"]"),
        "m.toml:10: topology.slit: found \"far\"; should be a whole number"
    );
}

fn listed(cpus: &[[usize; 4]]) -> String {
    let mut text =
        "name = \"m\"\ndefaults = [\"lines\", \"interrupts\", \"cpu\", \"cache\", \"memory\", \"virt\", \"kernel\"]\n[topology]\ncpu = [\n"
            .to_string();
    for [id, core, llc, node] in cpus {
        text += &format!("{{ id = {id}, core = {core}, llc = {llc}, node = {node} }},\n");
    }
    text + "]\n"
}

#[test]
fn contradictory_lists() {
    Machine::parse(&listed(&[[0, 0, 0, 0], [1, 1, 1, 1]]), "m.toml").unwrap();
    assert_eq!(
        message(&listed(&[[1, 0, 1, 0], [0, 0, 0, 0]])),
        "m.toml:5: topology.cpu: contradictory: found core 0 in llc 0 and in llc 1; all CPUs of a core share one llc"
    );
    assert_eq!(
        message(&listed(&[[0, 0, 0, 0], [1, 1, 0, 1]])),
        "m.toml:6: topology.cpu: contradictory: found llc 0 in node 0 and in node 1; all CPUs of an llc lie in one node"
    );
    assert_eq!(
        message(&listed(&[[0, 0, 0, 0], [0, 1, 0, 0]])),
        "m.toml:6: topology.cpu.id: contradictory: found CPU 0 twice; each CPU has one entry"
    );
    assert_eq!(message(&listed(&[[0, 0, 0, 0], [2, 1, 0, 0]])), "m.toml:6: topology.cpu.id: found 2; should be 0 to 1");
    assert_eq!(
        message(&listed(&[[0, 0, 0, 0], [1, 2, 0, 0]])),
        "m.toml:4: topology.cpu: contradictory: found core 2 but no core 1; core numbers run from 0 without gaps"
    );
    assert_eq!(
        message(&listed(&[[0, 0, 0, 0], [1, 1, 1, 300]])),
        "m.toml:6: topology.cpu: contradictory: found node 300; node numbers run from 0 to at most 255"
    );
    assert_eq!(message(&listed(&[])), "m.toml:4: topology.cpu: found 0 CPUs; should be 1 to 4096 CPUs");
    assert_eq!(
        message(&listed(&[[0, 0, 0, 0]]).replace("[topology]", "[topology]\nnodes = 1")),
        "m.toml:4: topology.nodes: contradictory: found nodes and [[topology.cpu]]; \
         a topology is regular or lists its CPUs, not both"
    );
}

#[test]
fn contradictory_clusters() {
    let text = |cpus: &[[usize; 5]]| {
        let line = |[id, core, cluster, llc, node]: &[usize; 5]| {
            format!("{{ id = {id}, core = {core}, cluster = {cluster}, llc = {llc}, node = {node} }},\n")
        };
        listed(&[]).strip_suffix("]\n").unwrap().to_owned() + &cpus.iter().map(line).collect::<String>() + "]\n"
    };
    let four = [[0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [2, 2, 1, 0, 0], [3, 3, 1, 0, 0]];
    assert!(Machine::parse(&text(&four), "m.toml").unwrap().topology.has_clusters());
    let wrong = |at: usize, cpu: [usize; 5]| {
        let mut cpus = four;
        cpus[at] = cpu;
        message(&text(&cpus))
    };
    let of = "m.toml:8: topology.cpu: contradictory: found";
    assert_eq!(
        wrong(3, [3, 2, 0, 0, 0]),
        format!("{of} core 2 in cluster 1 and in cluster 0; all CPUs of a core share one cluster")
    );
    assert_eq!(
        wrong(3, [3, 3, 1, 1, 0]),
        format!("{of} cluster 1 in llc 0 and in llc 1; all CPUs of a cluster share one llc")
    );
    assert_eq!(
        message(&text(&four).replace("core = 3, cluster = 1", "core = 3")),
        format!("{of} CPU 0 in a cluster, CPU 3 in none; all CPUs of a machine are in clusters, or none is")
    );
    let shape = |cluster: usize| {
        format!(
            "name = \"m\"\ndefaults = [\"lines\", \"interrupts\", \"cpu\", \"cache\", \"memory\", \"virt\", \"kernel\"]\n[topology]\n\
             nodes = 1\nllcs_per_node = 1\ncores_per_llc = 8\ncores_per_cluster = {cluster}\nthreads_per_core = 1\n"
        )
    };
    assert!(Machine::parse(&shape(4), "m.toml").unwrap().topology.has_clusters());
    // As large as the cache: that says nothing.
    assert!(!Machine::parse(&shape(8), "m.toml").unwrap().topology.has_clusters());
    assert_eq!(
        message(&shape(3)),
        "m.toml:7: topology.cores_per_cluster: contradictory: found 3; a divisor of cores_per_llc, which is 8"
    );
    let cost = "[lines]\ncluster = { value = 9, lo = 9, hi = 9, source = \"s\" }\n";
    assert_eq!(
        message(&(shape(8) + cost)),
        "m.toml:10: lines.cluster: contradictory: found cluster on a machine without clusters; \
         remove it, or say which cores form clusters (topology.cores_per_cluster)"
    );
}

fn load(what: &str) -> String {
    Machine::load(what).expect_err("should be refused").to_string()
}

#[test]
fn names() {
    let rest = "`contend list machines` lists all; a path ends in .toml; a synthetic machine is written like 2n2l8c2t";
    assert_eq!(
        load("intel-2s"),
        format!("unknown machine \"intel-2s\": did you mean intel-2s-44c-88t or intel-2s-56c-112t? {rest}")
    );
    assert_eq!(
        load("haswel-ex-4s-32c"),
        format!("unknown machine \"haswel-ex-4s-32c\": did you mean haswell-ex-4s-32c? {rest}")
    );
    assert_eq!(load("toaster"), format!("unknown machine \"toaster\": {rest}"));
    assert_eq!(load("no/such.toml"), "no/such.toml: cannot be read: No such file or directory");
}

#[test]
fn synthetic() {
    let form = "should be numbers with n (nodes), l (LLCs per node), k (clusters per LLC), c (cores per cluster, or per \
                LLC), t (threads per core), in this order, such as 2n2l8c2t, 2n8k4c or 16c";
    for bad in ["8c2n", "2n2n", "12", "2n8"] {
        assert_eq!(load(bad), format!("synthetic machine \"{bad}\": {form}"));
    }
    assert_eq!(Machine::synthetic("").unwrap_err().to_string(), format!("synthetic machine \"\": {form}"));
    assert_eq!(load("0c"), "synthetic machine \"0c\": found 0c; should be 1 to 4096");
    assert_eq!(
        load("99999999999999999999c"),
        "synthetic machine \"99999999999999999999c\": found 99999999999999999999c; should be 1 to 4096"
    );
    assert_eq!(load("4096c2t"), "synthetic machine \"4096c2t\": found 8192 CPUs; should be 1 to 4096");
    assert_eq!(load("300n1c"), "synthetic machine \"300n1c\": found node 256; node numbers run from 0 to at most 255");
    assert_eq!(
        load("1c16t"),
        "synthetic machine \"1c16t\": defaults.toml: cpu.smt_speed_pct: missing; the defaults have 8 entries, \
         one for each number of busy threads in a core, from 1, the machine needs 16"
    );
}

#[test]
fn set() {
    let mut m = Machine::load("westmere-ex-8s-32c").unwrap();
    m.set("lines.llc", "40").unwrap();
    let c = &m.costs.lines.llc;
    assert_eq!((c.value, c.lo, c.hi, c.source.as_str()), (40, 40, 40, "set by hand; was 53"));
    m.set("lines.remote", "100, 200").unwrap();
    m.set("lines.remote.1", "300").unwrap();
    assert_eq!(m.costs.transfer_ns()[4..], [100, 300]);
    m.set("lines.remote", "150").unwrap();
    assert_eq!(m.costs.transfer_ns()[4..], [150, 150]);
    m.set("kernel.ttwu", "1").unwrap();
    m.set("hz", "1000").unwrap();
    assert_eq!((m.costs.kernel[contend_platform::Work::Ttwu].value, m.hz), (1, 1000));
    m.set("steal_time", "true").unwrap();
    m.set("vcpu_pack", "true").unwrap();
    m.set("idle_halts", "true").unwrap();
    assert!(m.flags.steal_time && m.flags.vcpu_pack && m.flags.idle_halts);
    assert!(m.to_toml().contains("\nidle_halts = true\n"));
    assert!(m.to_toml().contains("\nvcpu_pack = true\n"));
    assert_eq!(Machine::parse(&m.to_toml(), "again.toml").unwrap(), m);

    let before = m.clone();
    let mut refused = |key: &str, value: &str, message: &str| {
        assert_eq!(m.set(key, value).unwrap_err().to_string(), message);
    };
    refused("lines.lc", "1", "--set: lines.lc: unknown key; did you mean lines.llc?");
    refused(
        "topology.nodes",
        "1",
        "--set: topology.nodes: unknown key; only hz, steal_time, vcpu_pack, idle_halts, asym_packing and the costs of lines, interrupts, cpu, cache, memory, virt, kernel can be set",
    );
    refused("lines.llc", "fast", "--set: lines.llc: found \"fast\"; should be a whole number, 0 or more");
    refused("lines.llc", "1,2", "--set: lines.llc: found 2 entries; should be one number");
    refused("lines.llc", "1000000001", "--set: lines.llc: found 1000000001; should be 0 to 1000000000 ns");
    refused("lines.remote", "1,2,3", "--set: lines.remote: found 3 entries; should be one number for all, or 2");
    refused("lines.remote.2", "1", "--set: lines.remote.2: found 2; should be an index from 0 to 1");
    refused("cpu.smt_speed_pct", "0", "--set: cpu.smt_speed_pct: found 0; should be 1 to 100 %");
    refused("hz", "1", "--set: hz: found 1; should be 24 to 10000");
    for key in ["steal_time", "vcpu_pack"] {
        refused(key, "yes", &format!("--set: {key}: found \"yes\"; should be true or false"));
    }
    // Nanoseconds have no price.
    let message = m.set("kernel.ns", "2").unwrap_err().to_string();
    assert!(message.starts_with("--set: kernel.ns: unknown key; keys of kernel are syscall, ttwu, "), "{message}");
    assert_eq!(m, before);
}

#[test]
fn kinds() {
    let kinds = |list: &str| edited("slit = [[10, 21],", &format!("kinds = {list}\nslit = [[10, 21],"));
    let form = "an array of { name = \"..\", cpus = \"0-3\" }";
    for (list, said) in [
        ("\"0-7\"", format!("topology.kinds: found \"0-7\"; should be {form}")),
        ("[]", format!("topology.kinds: found an array; should be {form}")),
        ("[\"0-7\"]", format!("topology.kinds: found \"0-7\"; should be {form}")),
        ("[{ name = \"a\" }]", format!("topology.kinds.cpus: missing; write {form}")),
        ("[{ name = \"a\", cpu = \"0-7\" }]", "topology.kinds.cpu: unknown key; did you mean cpus?".into()),
        (
            "[{ name = \"a b\", cpus = \"0-7\" }]",
            "topology.kinds.name: found \"a b\"; should be 1 to 16 letters, digits and hyphens".into(),
        ),
        (
            "[{ name = \"a\", cpus = \"0-15\" }]",
            "topology.kinds: contradictory: found 1 kinds; 2 to 16 kinds, or no `kinds` where all cores are alike".into(),
        ),
        (
            "[{ name = \"a\", cpus = \"0-7\" }, { name = \"b\", cpus = \"8-16\" }]",
            "topology.kinds: contradictory: found cpus = \"8-16\"; CPUs from 0 to 15, such as \"0-3,8\"".into(),
        ),
        (
            "[{ name = \"a\", cpus = \"\" }, { name = \"b\", cpus = \"0-15\" }]",
            "topology.kinds: contradictory: found cpus = \"\"; CPUs from 0 to 15, such as \"0-3,8\"".into(),
        ),
        (
            "[{ name = \"a\", cpus = \"0-8\" }, { name = \"b\", cpus = \"8-15\" }]",
            "topology.kinds: contradictory: found CPU 8 of \"a\" and of \"b\"; each CPU is of one kind".into(),
        ),
        (
            "[{ name = \"a\", cpus = \"0-7\" }, { name = \"b\", cpus = \"9-15\" }]",
            "topology.kinds: contradictory: found CPU 8 of no kind; each CPU is of one kind".into(),
        ),
        (
            "[{ name = \"a\", cpus = \"0-7\" }, { name = \"a\", cpus = \"8-15\" }]",
            "topology.kinds: contradictory: found kind \"a\" twice, as number 0 and 1; a name for each kind".into(),
        ),
        // Cores-first: CPUs 0 and 8 are the threads of core 0.
        (
            "[{ name = \"a\", cpus = \"0-7\" }, { name = \"b\", cpus = \"8-15\" }]",
            "topology: contradictory: found CPUs 0 and 8 of two kinds, both threads of core 0; all threads of a core are of one kind"
                .into(),
        ),
    ] {
        let m = kinds(list).replace("topology.kinds: contradictory", "topology: contradictory");
        let said = said.replace("topology.kinds: contradictory", "topology: contradictory");
        assert_eq!(m, format!("m.toml:10: {said}"), "{list}");
    }
    let good = "[{ name = \"a\", cpus = \"0-3,8-11\" }, { name = \"b\", cpus = \"4-7,12-15\" }]";
    assert_eq!(
        kinds(good),
        "m.toml:16: cpu.capacity: missing; write capacity = [..]: one for each kind of topology.kinds"
    );
    let with = |capacity: &str| {
        let text = base().replace("slit = [[10, 21],", &format!("kinds = {good}\nslit = [[10, 21],"));
        Machine::parse(&text.replace("[cpu]\n", &format!("[cpu]\ncapacity = {capacity}\n")), "m.toml")
    };
    let cost = |v: u64| format!("{{ value = {v}, lo = {v}, hi = {v}, source = \"a test\" }}");
    let m = with(&format!("[{}, {}]", cost(512), cost(1024))).expect("a machine of two kinds");
    assert_eq!(Machine::parse(&m.to_toml(), "again.toml").expect("as written"), m);
    assert_eq!(m.capacities().iter().sum::<u64>(), 8 * 512 + 8 * 1024);
    let refused = |capacity: String| with(&capacity).expect_err("refused").to_string();
    assert_eq!(
        refused(format!("[{}]", cost(1024))),
        "m.toml:17: cpu.capacity: found 1 entries; should be 2: one for each kind of topology.kinds, in that order, the machine has 2"
    );
    assert_eq!(
        refused(format!("[{}, {}]", cost(512), cost(1025))),
        "m.toml:17: cpu.capacity.1.value: found 1025; should be 1 to 1024"
    );
    let fastest = "1024, with lo = 1024, for the fastest kind: it is what the others are compared with";
    assert_eq!(
        refused(format!("[{}, {}]", cost(512), cost(900))),
        format!("m.toml:17: cpu.capacity: found 900 as the largest; should be {fastest}")
    );
    let mut m = m;
    let e = m.set("cpu.capacity.1", "800").expect_err("refused").to_string();
    assert_eq!(e, format!("--set: cpu.capacity.1: found 800 as the largest; should be {fastest}"));
    assert_eq!(m.capacities().iter().max(), Some(&1024), "nothing was changed");
    m.set("cpu.capacity.0", "300").expect("another speed");
    assert_eq!(m.capacities().iter().min(), Some(&300));
}
