//! Small traces, whole, in `snapshots/`: a change of any policy or path shows here as lines one can read.

use crate::common::{MS, cpus, hog, machine, preset, script, traced};
use contend_sim::host::RunResult;
use contend_sim::program::{ObjectKind, Op, Sched, TaskSpec, Workload};

/// Two hogs, a sleeper and a pair that passes a token, on two CPUs.
fn small() -> Workload {
    let mut w = Workload::default();
    let ping = w.object("ping", ObjectKind::Pipe { capacity: 4096 });
    let pong = w.object("pong", ObjectKind::Pipe { capacity: 4096 });
    w.task(hog("hog", 9 * MS));
    w.task(TaskSpec { sched: Some(Sched::normal(5)), ..hog("nice", 9 * MS) });
    w.task(script("nap", vec![Op::Run(MS), Op::Sleep(5 * MS), Op::Run(MS)]));
    let a = vec![Op::Write(ping, 1), Op::Read(pong, 1), Op::Run(MS / 2), Op::Write(ping, 1)];
    let b = vec![Op::Read(ping, 1), Op::Run(MS / 2), Op::Write(pong, 1), Op::Read(ping, 1)];
    w.task(script("a", a));
    w.task(TaskSpec { affinity: Some(cpus(&[1])), ..script("b", b) });
    w
}

/// The same work in two groups, one of a quarter of the other's weight.
fn grouped() -> Workload {
    let mut w = small();
    let (web, batch) = (w.groups.at("/web").expect("a path"), w.groups.at("/batch").expect("a path"));
    w.groups.set_weight(batch, 25);
    for t in &mut w.tasks {
        t.group = Some(if ["hog", "nice"].contains(&t.name.as_str()) { batch } else { web });
    }
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
    ($($test:ident: $preset:literal, $workload:ident;)*) => {
        $(#[test] fn $test() {
            let p = preset($preset);
            insta::assert_snapshot!(text(traced(machine("x86_64-2cpu"), p.policy, p.features, $workload(), 1000 * MS)));
        })*
    };
}

golden! {
    fifo: "fifo", small;
    cfs_2_6_37: "linux-2.6.37", small;
    cfs_2_6_37_rowand: "linux-2.6.37-rowand", small;
    cfs_3_6: "linux-3.6", small;
    cfs_6_0: "linux-6.0", small;
    eevdf_6_18: "linux-6.18", small;
    cfs_6_0_groups: "linux-6.0", grouped;
    eevdf_6_18_groups: "linux-6.18", grouped;
}
