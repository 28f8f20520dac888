//! Scheduling events of a simulation, written to a file: Perfetto's protobuf, or ftrace text where its name ends in
//! `.txt`; of a Xen host also Xen's own records ([`is_xentrace`]).
//!
//! Task `i` of the run has the thread id `i + 1` (0 is idle). The events carry no error back into the simulation: the
//! first error of writing is kept and comes out at the end.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use contend_platform::{CpuId, Time};
use contend_sim::host::{EventSink, Who};
use contend_sim::xen::RecordSink;
use contend_trace::sink::{At, SchedSink, Task};
use contend_trace::xentrace::{self, Clock};
use contend_trace::{Context, TaskState, ftrace, perfetto};

type Out = BufWriter<File>;

enum Format {
    Perfetto(perfetto::Writer<Out>),
    Text(ftrace::TextWriter<Out>),
}

/// Is a trace of this name one of Xen's records, as `xentrace` writes them? It ends in `.xentrace` or `.bin`.
pub fn is_xentrace(named: &Path) -> bool {
    named.extension().is_some_and(|e| e == "xentrace" || e == "bin")
}

/// Begins a trace of a Xen host's records in the file `at`, with the time stamps of a 2.4 GHz TSC: what `xenalyze` assumes.
///
/// # Errors
/// The file cannot be created.
pub fn create_xentrace(at: &Path) -> io::Result<Box<dyn RecordSink>> {
    let out = BufWriter::with_capacity(1 << 20, File::create(at)?);
    Ok(Box::new(xentrace::Writer::new(out, Clock::default())))
}

/// A trace file in the making.
pub struct TraceFile {
    format: Option<Format>,
    /// The idle tasks' names, by CPU.
    idle: Vec<Box<str>>,
    failed: io::Result<()>,
}

impl TraceFile {
    /// Begins a trace of a machine with `cpus` CPUs in the file `at`, in the format that the name `named` says.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(at: &Path, named: &Path, cpus: usize) -> io::Result<Self> {
        let out = BufWriter::with_capacity(1 << 20, File::create(at)?);
        let format = if named.extension().is_some_and(|e| e == "txt") {
            Format::Text(ftrace::TextWriter::new(out, cpus as u32))
        } else {
            Format::Perfetto(perfetto::Writer::new(out)?)
        };
        let idle = (0..cpus).map(|c| format!("swapper/{c}").into()).collect();
        Ok(TraceFile { format: Some(format), idle, failed: Ok(()) })
    }

    /// Write one event of `cpu`, where `by` runs.
    fn write(
        &mut self,
        ts: Time,
        cpu: CpuId,
        by: Option<Who<'_>>,
        f: impl FnOnce(&mut dyn SchedSink, At<'_>, Task<'_>) -> io::Result<()>,
    ) {
        if self.failed.is_err() {
            return;
        }
        let out: &mut dyn SchedSink = match &mut self.format {
            Some(Format::Perfetto(w)) => w,
            Some(Format::Text(w)) => w,
            None => return,
        };
        let idle = Task { pid: 0, comm: &self.idle[cpu.index()], prio: NICE_0 };
        let by = by.map_or(idle, task);
        // The simulation does not say whether an interrupt's handler or the task did it.
        let at = At { ts, cpu: cpu.index() as u32, pid: by.pid, comm: by.comm, context: Context::Unknown };
        self.failed = f(out, at, idle);
    }
}

/// Kernel priority of nice 0.
const NICE_0: i32 = 120;

fn task(who: Who<'_>) -> Task<'_> {
    // At most 2^20 tasks live at once, but a run may create more than 2^32: the number then wraps, as pids do.
    Task { pid: (who.id % 0x7fff_fffe) as u32 + 1, comm: who.name, prio: NICE_0 + i32::from(who.nice) }
}

impl EventSink for TraceFile {
    fn switch(&mut self, now: Time, cpu: CpuId, prev: Option<Who<'_>>, prev_state: u64, next: Option<Who<'_>>) {
        let state = match prev {
            Some(_) => TaskState::from_prev_state(prev_state as i64).unwrap_or(TaskState::UNINTERRUPTIBLE),
            None => TaskState::RUNNABLE,
        };
        self.write(now, cpu, prev, |out, at, idle| {
            out.switch(at, prev.map_or(idle, task), state, next.map_or(idle, task))
        });
    }

    fn waking(&mut self, now: Time, cpu: CpuId, by: Option<Who<'_>>, who: Who<'_>, target: CpuId) {
        self.write(now, cpu, by, |out, at, _| out.waking(at, task(who), target.index() as u32));
    }

    fn wakeup(&mut self, now: Time, cpu: CpuId, by: Option<Who<'_>>, who: Who<'_>, target: CpuId, new: bool) {
        let target = target.index() as u32;
        self.write(now, cpu, by, |out, at, _| {
            if new { out.wakeup_new(at, task(who), target) } else { out.wakeup(at, task(who), target) }
        });
    }

    fn migrate(&mut self, now: Time, cpu: CpuId, by: Option<Who<'_>>, who: Who<'_>, from: CpuId, to: CpuId) {
        let (from, to) = (from.index() as u32, to.index() as u32);
        self.write(now, cpu, by, |out, at, _| out.migrate(at, task(who), from, to));
    }

    fn finish(&mut self, _now: Time) -> io::Result<()> {
        std::mem::replace(&mut self.failed, Ok(()))?;
        match self.format.take() {
            Some(Format::Perfetto(w)) => w.finish()?.flush(),
            Some(Format::Text(w)) => w.finish()?.flush(),
            None => Ok(()),
        }
    }
}
