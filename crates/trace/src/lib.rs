//! Scheduler traces: ftrace text, `perf script`, trace.dat and Perfetto in, Perfetto and ftrace text out; Xen's binary traces ([`xentrace`]),
//! which have an event model of their own, in and out.
//!
//! One event model ([`event`]) stands between the two sides. [`open`] detects what a file is and streams its events
//! in bounded memory; [`SchedSink`] is what a simulation (or a recording, [`SchedSink::event`]) writes to, and has
//! two implementations: [`perfetto::Writer`] and [`ftrace::TextWriter`]. Formats and commands: `docs/traces.md`.
//!
//! ```
//! use contend_trace::{Reader, SchedSink, perfetto};
//!
//! let text = "bash-7 [001] d..2. 5.000100: sched_waking: comm=tmux: server pid=9 prio=120 target_cpu=000\n";
//! let mut reader = Reader::from_read("example", text.as_bytes())?;
//! let mut out = perfetto::Writer::new(Vec::new())?;
//! for event in &mut reader {
//!     out.event(&event?)?;
//! }
//! assert_eq!(reader.report().events, 1);
//! assert!(!out.finish()?.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
mod detect;
pub mod error;
pub mod event;
pub mod ftrace;
mod intern;
mod lines;
mod pack;
pub mod perfetto;
pub mod reader;
pub mod report;
pub mod sink;
mod spool;
mod strays;
mod tally;
mod text;
mod tracedat;
mod who;
pub mod xentrace;

pub use detect::EXPECTED;
pub use error::TraceError;
pub use event::{Comm, Context, Event, Kind, Nanos, TaskRef, TaskState};
pub use reader::{Format, Reader, open};
pub use report::{Damage, ReadReport};
pub use sink::{At, SchedSink, Task};
