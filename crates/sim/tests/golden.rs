//! Small traces, whole, in `snapshots/`: a change of any policy or path shows here as lines one can read.

mod common;

use common::{MS, cpus, hog, machine, preset, script, traced};
use contend_sim::host::RunResult;
use contend_sim::program::{ObjectKind, Op, TaskSpec, Workload};

/// Two hogs, a sleeper and a pair that passes a token, on two CPUs.
fn small() -> Workload {
    let mut w = Workload::default();
    let ping = w.object("ping", ObjectKind::Pipe { capacity: 4096 });
    let pong = w.object("pong", ObjectKind::Pipe { capacity: 4096 });
    w.task(hog("hog", 9 * MS));
    w.task(TaskSpec { nice: 5, ..hog("nice", 9 * MS) });
    w.task(script("nap", vec![Op::Run(MS), Op::Sleep(5 * MS), Op::Run(MS)]));
    let a = vec![Op::Write(ping, 1), Op::Read(pong, 1), Op::Run(MS / 2), Op::Write(ping, 1)];
    let b = vec![Op::Read(ping, 1), Op::Run(MS / 2), Op::Write(pong, 1), Op::Read(ping, 1)];
    w.task(script("a", a));
    w.task(TaskSpec { affinity: Some(cpus(&[1])), ..script("b", b) });
    w
}

fn text((r, lines): (RunResult, Vec<String>)) -> String {
    let mut out = lines.join("\n");
    out.push_str(&format!(
        "\n{} at {:.1} us, {} dispatches\n",
        r.outcome.name(),
        r.virtual_ns as f64 / 1e3,
        r.dispatches
    ));
    out
}

macro_rules! golden {
    ($($test:ident: $preset:literal,)*) => {
        $(#[test] fn $test() {
            let p = preset($preset);
            insta::assert_snapshot!(text(traced(machine("x86_64-2cpu"), p.policy, p.features, small(), 1000 * MS)));
        })*
    };
}

golden! {
    fifo: "fifo",
    cfs_2_6_37: "linux-2.6.37",
    cfs_2_6_37_rowand: "linux-2.6.37-rowand",
    cfs_3_6: "linux-3.6",
    cfs_6_0: "linux-6.0",
    eevdf_6_18: "linux-6.18",
}
