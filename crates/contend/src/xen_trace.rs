//! Binary traces of Xen as `contend xen trace` shows them: a summary, every record, or the same trace again.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use contend_sched::xen::features::XenFeatures;
use contend_trace::TraceError;
use contend_trace::xentrace::XenEvent;
use contend_trace::xentrace::layout::{Field, fields};
use contend_trace::xentrace::{Clock, PcpuSummary, Record, RunState, Summarizer, TimeOrder, VcpuSummary, Writer, open};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::error::RunError;
use crate::target::OutFile;
use crate::trace::is_one;

/// Records between two questions whether to go on.
const LOOK: u64 = 1 << 18;

/// Bytes of a part of a dump, about.
const PART: usize = 64 << 10;

/// Why a trace is not shown.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum XenTraceError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A frequency out of range.
    #[error("--cpu-hz: found {0}; should be from {min} to {max}", min = Clock::HZ_RANGE.start(), max = Clock::HZ_RANGE.end())]
    Hz(u64),
    /// The new file cannot be written.
    #[error("{}: cannot be written: {}", path.display(), contend_machine::reason(source))]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else stands where the new file should be.
    #[error(transparent)]
    Target(#[from] Box<RunError>),
    /// The new file is the old one.
    #[error("{}: is the trace itself; give another file", .0.display())]
    Same(PathBuf),
    /// An option that cannot be.
    #[error("--{key}: {found}")]
    Option {
        /// The option.
        key: String,
        /// What is wrong with it.
        found: String,
    },
    /// A machine that cannot be.
    #[error(transparent)]
    Machine(#[from] contend_machine::MachineError),
    /// The caller does not want to go on.
    #[error("interrupted")]
    Interrupted,
}

pub(crate) fn clock(hz: u64) -> Result<Clock, XenTraceError> {
    Clock::new(hz).ok_or(XenTraceError::Hz(hz))
}

/// Refuses a rate limit that no host can have.
pub(crate) fn check_ratelimit(us: u64) -> Result<(), XenTraceError> {
    let check = XenFeatures { ratelimit_us: us, ..XenFeatures::default() }.check();
    check.map_err(|e| XenTraceError::Option { key: "ratelimit".into(), found: format!("found {us}; {}", e.expected) })
}

/// Gives every record, and asks at times whether to go on.
pub(crate) fn each<E: From<XenTraceError>>(
    order: &mut TimeOrder,
    go_on: &mut dyn FnMut() -> bool,
    mut take: impl FnMut(Record) -> Result<(), E>,
) -> Result<(), E> {
    for (record, count) in order.zip(1u64..) {
        take(record.map_err(XenTraceError::from)?)?;
        if count.is_multiple_of(LOOK) && !go_on() {
            return Err(XenTraceError::Interrupted.into());
        }
    }
    Ok(())
}

/// The summary of a trace whose time stamps are of this frequency, as a JSON object (`docs/xentrace.md`). `go_on` is asked now
/// and then.
///
/// # Errors
/// See [`XenTraceError`].
pub fn summary(path: &Path, hz: u64, go_on: &mut dyn FnMut() -> bool) -> Result<Value, XenTraceError> {
    let mut all = Summarizer::new(clock(hz)?);
    let mut order = open(path)?.in_time_order();
    each(&mut order, go_on, |record| {
        all.add(&record);
        Ok::<_, XenTraceError>(())
    })?;
    let s = all.finish();
    Ok(json!({
        "file": path.display().to_string(),
        "cpu_hz": hz,
        "duration_ns": s.duration_ns,
        "vcpus": s.vcpus.iter().map(vcpu).collect::<Value>(),
        "pcpus": s.pcpus.iter().map(pcpu).collect::<Value>(),
        "events": s.events,
        "unchained": s.unchained,
        "beyond": s.beyond,
        "reading": reading(&order),
    }))
}

fn vcpu(v: &VcpuSummary) -> Value {
    let on: Map<String, Value> = v.running_on_ns.iter().map(|(cpu, ns)| (cpu.to_string(), json!(ns))).collect();
    let [running, runnable, blocked, offline] = v.state_ns;
    json!({
        "vcpu": v.vcpu.to_string(),
        "dom": v.vcpu.dom,
        "idle": v.vcpu.is_idle(),
        "running_ns": running,
        "runnable_ns": runnable,
        "blocked_ns": blocked,
        "offline_ns": offline,
        "unknown_ns": v.unknown_ns,
        "running_on_ns": on,
        "dispatches": v.dispatches,
        "wakeups": v.wakeups,
        "migrations": v.migrations,
        "yields": v.yields,
        "preemptions": v.preemptions,
        "continued": v.continued,
        "run_us": histogram(&v.run_ns),
        "wake_to_run_us": histogram(&v.wake_to_run_ns),
    })
}

fn pcpu(p: &PcpuSummary) -> Value {
    json!({
        "pcpu": p.cpu,
        "idle_ns": p.idle_ns,
        "busy_ns": p.busy_ns,
        "other_ns": p.other_ns,
        "switches": p.switches,
        "passes": p.passes,
        "tickled_idle": p.tickled_idle,
        "tickled_busy": p.tickled_busy,
        "tickled_other": p.tickled_other,
        "records": p.records,
    })
}

/// Percentiles in us, and counts by powers of two: `[up to us, how many]`, without the empty ones.
fn histogram(h: &Histogram<u32>) -> Value {
    let us = |ns: u64| ns as f64 / 1000.0;
    let mut buckets: Vec<(f64, u64)> = Vec::new();
    for step in h.iter_log(1, 2.0) {
        if step.count_since_last_iteration() > 0 {
            buckets.push((us(step.value_iterated_to()), step.count_since_last_iteration()));
        }
    }
    json!({
        "count": h.len(),
        "mean": if h.is_empty() { 0.0 } else { h.mean() / 1000.0 },
        "p50": us(h.value_at_quantile(0.5)),
        "p90": us(h.value_at_quantile(0.9)),
        "p99": us(h.value_at_quantile(0.99)),
        "max": us(h.max()),
        "buckets": buckets,
    })
}

/// What reading met.
fn reading(order: &TimeOrder) -> Value {
    let r = &order.report();
    let by_id = |counts: &std::collections::BTreeMap<u32, u64>| -> Map<String, Value> {
        counts.iter().map(|(id, count)| (format!("{id:#07x}"), json!(count))).collect()
    };
    json!({
        "bytes": r.bytes,
        "windows": r.windows,
        "records": r.records,
        "first_tsc": r.first_tsc,
        "last_tsc": r.last_tsc,
        "unknown": by_id(&r.unknown),
        "odd": by_id(&r.odd),
        "untimed": r.untimed,
        "backwards": r.backwards.count,
        "backwards_worst_ticks": r.backwards.worst_ticks,
        "late": order.late(),
        "strays": order.strays(),
        "lost": r.lost.events,
        "gaps": r.lost.gaps,
        "padding_bytes": r.padding,
        "damaged": r.damage.count,
        "damaged_bytes": r.damage.bytes,
        "damaged_first": r.damage.first.as_ref().map(|(offset, what)| json!({ "offset": offset, "what": what })),
        "missing_bytes": r.missing,
        "text": r.to_string(),
    })
}

/// Every record of a trace in the order of time, as lines.
pub struct Dump {
    order: TimeOrder,
    clock: Clock,
    start: Option<u64>,
    json: bool,
}

impl Dump {
    /// Begins. `json`: a JSON object a line, otherwise text like `xenalyze --dump-all`.
    ///
    /// # Errors
    /// See [`XenTraceError`].
    pub fn open(path: &Path, hz: u64, json: bool) -> Result<Self, XenTraceError> {
        let clock = clock(hz)?;
        Ok(Self { order: open(path)?.in_time_order(), clock, start: None, json })
    }

    /// Some more lines; nothing at the end.
    ///
    /// # Errors
    /// The file cannot be read on.
    pub fn part(&mut self) -> Result<String, XenTraceError> {
        let mut part = String::with_capacity(PART + 1024);
        while part.len() < PART {
            let Some(record) = self.order.next() else { break };
            self.line(&mut part, &record?);
        }
        Ok(part)
    }

    /// What reading met, as in the summary.
    pub fn reading(&self) -> Value {
        reading(&self.order)
    }

    fn line(&mut self, to: &mut String, record: &Record) {
        use std::fmt::Write;
        let start = *self.start.get_or_insert(record.tsc);
        let ns = self.clock.ns(record.tsc.saturating_sub(start));
        let done = if self.json {
            writeln!(to, "{}", line_json(record, ns))
        } else {
            writeln!(to, "{:>4}.{:09} {:>4} {}", ns / 1_000_000_000, ns % 1_000_000_000, record.cpu.0, record.event)
        };
        done.expect("a string takes what is written");
    }
}

fn line_json(record: &Record, ns: u64) -> Value {
    let mut line = Map::new();
    line.insert("ns".into(), ns.into());
    line.insert("tsc".into(), record.tsc.into());
    line.insert("on".into(), record.cpu.0.into());
    line.insert("event".into(), record.event.name().into());
    if let XenEvent::Runstate { vcpu, old, new } = record.event {
        line.insert("vcpu".into(), vcpu.to_string().into());
        line.insert("old".into(), RunState::name(old).into());
        line.insert("new".into(), RunState::name(new).into());
        return line.into();
    }
    fields(&record.event, |name, field| {
        let value = match field {
            // Every number of an event has at most 64 bits.
            Field::Number(number) => u64::try_from(number).map_or_else(|_| json!(number as i64), |n| json!(n)),
            Field::Flag(flag) => flag.into(),
            Field::Vcpu(vcpu) => vcpu.to_string().into(),
            Field::None => Value::Null,
        };
        line.insert(name.into(), value);
    });
    line.into()
}

/// Writes the records of a trace again, in the order of time and without what is damaged: a file that `xenalyze` reads. Returns
/// what reading met.
///
/// # Errors
/// See [`XenTraceError`]; a file that was begun is removed.
pub fn rewrite(path: &Path, out: &Path, go_on: &mut dyn FnMut() -> bool) -> Result<Value, XenTraceError> {
    let failed = |source| XenTraceError::Write { path: out.into(), source };
    let mut order = open(path)?.in_time_order();
    if let (Ok(a), Ok(b)) = (path.canonicalize(), out.canonicalize())
        && a == b
    {
        return Err(XenTraceError::Same(out.into()));
    }
    let target = OutFile::check(out, [path], "a trace", is_one).map_err(Box::new)?;
    let partial = target.partial();
    let file = File::create(&partial.0).map_err(failed)?;
    let mut writer = Writer::new(io::BufWriter::new(file), Clock::default());
    each(&mut order, go_on, |record| writer.record(&record).map_err(failed))?;
    writer.finish().map_err(failed)?;
    target.publish(partial, out).map_err(Box::new)?;
    Ok(reading(&order))
}
