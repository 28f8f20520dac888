//! Writes a small trace with everything that the Perfetto writer can write:
//! `cargo run -p contend-trace --example write_sample -- sample.pftrace`
//!
//! Two CPUs, one VM with two vCPU threads. vCPU 1 holds a lock while it is preempted; vCPU 2 waits for it.
//! `tests/test_perfetto_decode.py` decodes the file and knows what is in it.

use std::fs::File;
use std::io;

use contend_trace::perfetto::{Flow, Unit, Writer};
use contend_trace::{At, Context, Kind, SchedSink, Task, TaskState};

const US: u64 = 1_000;
const IDLE_0: Task<'_> = Task { pid: 0, comm: "swapper/0", prio: 120 };
const IDLE_1: Task<'_> = Task { pid: 0, comm: "swapper/1", prio: 120 };
const VCPU_1: Task<'_> = Task { pid: 101, comm: "vm0: vcpu1", prio: 120 };
const VCPU_2: Task<'_> = Task { pid: 102, comm: "vm0: vcpu2", prio: 120 };
const BUILD: Task<'_> = Task { pid: 200, comm: "make", prio: 120 };

fn at(us: u64, cpu: u32, current: Task<'static>) -> At<'static> {
    At { ts: us * US, cpu, pid: current.pid, comm: current.comm, context: Context::Unknown }
}

fn main() -> io::Result<()> {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: write_sample FILE.pftrace");
        std::process::exit(2);
    };
    let mut w = Writer::new(File::create(path)?)?;
    w.process(100, 1, "vm0")?;
    w.thread(101, 100, "vm0: vcpu1")?;
    w.thread(102, 100, "vm0: vcpu2")?;
    w.process(200, 1, "make")?;
    let running = w.counter_track("nr_running", Unit::Count, None)?;
    let locks = w.slice_track("locks", None)?;
    let lock = w.slice_track("rq lock 0", Some(locks))?;
    let vcpu_2 = w.thread_track(102, 100, "vm0: vcpu2")?;

    w.counter(running, 0, 0)?;
    w.fork(at(0, 1, IDLE_1), (1, "init"), (200, "init"))?;
    w.waking(at(1, 0, IDLE_0), VCPU_1, 0)?;
    w.wakeup(at(2, 0, IDLE_0), VCPU_1, 0)?;
    w.switch(at(3, 0, IDLE_0), IDLE_0, TaskState::RUNNABLE, VCPU_1)?;
    w.counter(running, 3 * US, 1)?;
    w.begin(lock, 10 * US, "held by vcpu1")?;
    w.waking(at(12, 0, VCPU_1), VCPU_2, 1)?;
    w.wakeup(at(13, 1, IDLE_1), VCPU_2, 1)?;
    w.switch(at(14, 1, IDLE_1), IDLE_1, TaskState::RUNNABLE, VCPU_2)?;
    w.counter(running, 14 * US, 2)?;
    w.wakeup_new(at(15, 0, VCPU_1), BUILD, 0)?;
    w.counter(running, 15 * US, 3)?;
    w.begin(vcpu_2, 16 * US, "lock wait")?;
    w.instant_with(vcpu_2, 23 * US, "waits on", Flow::To(7))?;
    w.switch(at(20, 0, VCPU_1), VCPU_1, TaskState::PREEMPTED, BUILD)?;
    w.exec(at(21, 0, BUILD), "/usr/bin/make", 200, 200)?;
    w.instant_with(lock, 22 * US, "holder preempted", Flow::From(7))?;
    w.exit(at(40, 0, BUILD), BUILD)?;
    w.switch(at(41, 0, BUILD), BUILD, TaskState::ZOMBIE, VCPU_1)?;
    w.counter(running, 41 * US, 2)?;
    w.end(lock, 45 * US)?;
    w.end(vcpu_2, 46 * US)?;
    w.migrate(at(50, 0, VCPU_1), VCPU_2, 1, 0)?;
    w.switch(at(60, 1, VCPU_2), VCPU_2, TaskState::UNINTERRUPTIBLE, IDLE_1)?;
    w.switch(at(61, 0, VCPU_1), VCPU_1, TaskState::SLEEPING, IDLE_0)?;
    w.counter(running, 61 * US, 0)?;
    let explaining = [
        Kind::Irq { irq: 36, entry: true },
        Kind::Irq { irq: 36, entry: false },
        Kind::Softirq { vec: 1, entry: true },
        Kind::Softirq { vec: 1, entry: false },
        Kind::Timer { hrtimer: true, entry: true },
        Kind::Timer { hrtimer: true, entry: false },
        Kind::Timer { hrtimer: false, entry: true },
        Kind::Timer { hrtimer: false, entry: false },
        Kind::Syscall { nr: 202, entry: true },
        Kind::Syscall { nr: 202, entry: false },
        Kind::ContentionBegin { lock: 0xffff_8000_0000_0040, flags: 1 },
        Kind::ContentionEnd { lock: 0xffff_8000_0000_0040, ret: 0 },
        Kind::KvmEntry { vcpu: 1 },
        Kind::KvmExit { vcpu: 1, reason: 12 },
    ];
    for (kind, us) in explaining.iter().zip(70..) {
        w.explain(At { context: Context::Hardirq, ..at(us, 0, IDLE_0) }, kind)?;
    }
    w.finish()?;
    Ok(())
}
