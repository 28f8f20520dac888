//! Scheduling events of a simulation, written to a file: Perfetto's protobuf, or ftrace text where its name ends in
//! `.txt`; of a Xen host also Xen's own records ([`is_xentrace`]).
//!
//! Perfetto's also has what scheduling events cannot say ([`tracks`]).
//!
//! Task `i` of the run has the thread id `i + 1` (0 is idle). The events carry no error back into the simulation: the
//! first error of writing is kept and comes out at the end.

mod tracks;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use contend_platform::{CpuId, Time};
use contend_sched::class::Sched;
use contend_sched::yield_to::Yielded;
use contend_sim::host::{EventSink, Who};
use contend_sim::trace::{GuestCpu, VcpuPhase, Waiter};
use contend_sim::xen::RecordSink;
use contend_trace::sink::{At, SchedSink, Task};
use contend_trace::xentrace::{self, Clock};
use contend_trace::{Context, TaskState, ftrace, perfetto};

use crate::target::beginning;
use tracks::Tracks;

type Out = BufWriter<File>;

enum Format {
    Perfetto(Box<perfetto::Writer<Out>>, Box<Tracks>),
    Text(ftrace::TextWriter<Out>),
}

/// Is a trace of this name one of Xen's records, as `xentrace` writes them? It ends in `.xentrace` or `.bin`.
pub fn is_xentrace(named: &Path) -> bool {
    named.extension().is_some_and(|e| e == "xentrace" || e == "bin")
}

/// Is an existing file a trace as a run writes it? Then another may replace it.
pub(crate) fn is_one(file: &mut File) -> bool {
    let head = beginning(file, 256 << 10);
    if head.starts_with(b"# tracer: nop") {
        return true;
    }
    match contend_trace::Reader::from_read("", io::Cursor::new(head)) {
        Ok(reader) => matches!(reader.format(), contend_trace::Format::Perfetto | contend_trace::Format::Xentrace),
        Err(_) => false,
    }
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
    /// On whose behalf each CPU runs; not known of Xen's pCPUs.
    contexts: Vec<Context>,
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
            Format::Perfetto(Box::new(perfetto::Writer::new(out)?), Box::default())
        };
        let idle = (0..cpus).map(|c| format!("swapper/{c}").into()).collect();
        let contexts = vec![Context::Unknown; cpus];
        Ok(TraceFile { format: Some(format), idle, contexts, failed: Ok(()) })
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
            Some(Format::Perfetto(w, _)) => &mut **w,
            Some(Format::Text(w)) => w,
            None => return,
        };
        let idle = Task { pid: 0, comm: &self.idle[cpu.index()], prio: Sched::default().kernel_prio() };
        let by = by.map_or(idle, task);
        let context = self.contexts[cpu.index()];
        let at = At { ts, cpu: cpu.index() as u32, pid: by.pid, comm: by.comm, context };
        self.failed = f(out, at, idle);
    }
}

impl TraceFile {
    /// Draw something, if the format has tracks.
    fn draw(&mut self, f: impl FnOnce(&mut Tracks, &mut perfetto::Writer<Out>) -> io::Result<()>) {
        if let (Ok(()), Some(Format::Perfetto(w, tracks))) = (&self.failed, &mut self.format) {
            self.failed = f(tracks, w);
        }
    }
}

fn task(who: Who<'_>) -> Task<'_> {
    // At most 2^20 tasks live at once, but a run may create more than 2^32: the number then wraps, as pids do.
    Task { pid: (who.id % 0x7fff_fffe) as u32 + 1, comm: who.name, prio: who.sched.kernel_prio() }
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
        self.draw(|tracks, out| {
            if let Some(prev) = prev.filter(|_| state.is_dead()) {
                tracks.exits(task(prev).pid);
            }
            next.map_or(Ok(()), |next| tracks.runs(out, now, task(next)))
        });
    }

    fn waking(&mut self, now: Time, cpu: CpuId, by: Option<Who<'_>>, who: Who<'_>, target: CpuId) {
        self.write(now, cpu, by, |out, at, _| out.waking(at, task(who), target.index() as u32));
        if let Some(by) = by.filter(|_| self.contexts[cpu.index()] != Context::Hardirq) {
            self.draw(|tracks, out| tracks.waking(out, now, task(by), task(who)));
        }
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

    fn interrupt(&mut self, _now: Time, cpu: CpuId, begin: bool) {
        self.contexts[cpu.index()] = if begin { Context::Hardirq } else { Context::Task };
    }

    fn guests(&mut self, guests: &[(u16, &str, usize)]) {
        self.draw(|tracks, out| tracks.guests(out, guests));
    }

    fn waited(&mut self, now: Time, waiter: Waiter, lock: &str, since: Time) {
        self.draw(|tracks, out| tracks.waited(out, now, waiter, lock, since));
    }

    fn vcpu(&mut self, now: Time, vcpu: GuestCpu, phase: VcpuPhase) {
        self.draw(|tracks, out| tracks.vcpu(out, now, vcpu, phase));
    }

    fn guest_switch(&mut self, now: Time, vcpu: GuestCpu, next: Option<Who<'_>>) {
        self.draw(|tracks, out| tracks.guest_switch(out, now, vcpu, next));
    }

    fn guest_waking(&mut self, now: Time, vcpu: GuestCpu, by: Option<Who<'_>>, task: Who<'_>) {
        self.draw(|tracks, out| tracks.guest_waking(out, now, vcpu, by, task));
    }

    fn yield_to(&mut self, now: Time, from: GuestCpu, to: CpuId, end: Yielded) {
        self.draw(|tracks, out| tracks.yield_to(out, now, from, to, end));
    }

    fn finish(&mut self, now: Time) -> io::Result<()> {
        self.draw(|tracks, out| tracks.finish(out, now));
        std::mem::replace(&mut self.failed, Ok(()))?;
        match self.format.take() {
            Some(Format::Perfetto(w, _)) => w.finish()?.flush(),
            Some(Format::Text(w)) => w.finish()?.flush(),
            None => Ok(()),
        }
    }
}
