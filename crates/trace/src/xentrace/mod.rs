//! Xen's binary traces: what `xentrace` records and `xenalyze` reads.
//!
//! A file is a row of windows, each the part of one pCPU's trace buffer that was read at one time; a window is a row of
//! records, each an event id, up to seven words and, mostly, a time stamp ([`record`]). [`Reader`] gives the records in
//! the order of the file, [`Reader::in_time_order`] in that of their time stamps; [`Writer`] makes a file of
//! [`XenEvent`]s; [`layout`] knows which words stand for which event. Formats and limits: `docs/xentrace.md`.
//!
//! ```
//! use contend_platform::CpuId;
//! use contend_sched::xen::event::{VcpuId, XenEvent};
//! use contend_trace::xentrace::{Clock, Reader, Writer};
//!
//! let mut out = Writer::new(Vec::new(), Clock::default());
//! out.event(1_000, CpuId(3), &XenEvent::Wake { vcpu: VcpuId::new(1, 0) })?;
//! let file = out.finish()?;
//! let mut reader = Reader::from_read("example", std::io::Cursor::new(file))?;
//! let record = reader.next().expect("a record")?;
//! assert_eq!((record.cpu, record.tsc, record.event.to_string().as_str()), (CpuId(3), 2_400, "vcpu_wake d1v0"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod audit;
pub mod layout;
mod order;
mod reader;
pub mod record;
mod report;
pub mod summary;
pub(crate) mod tasks;
mod writer;

pub use contend_sched::xen::event::{RunState, VcpuId, Words, XenEvent, XenSink};
pub use order::TimeOrder;
pub(crate) use reader::is_xentrace;
pub use reader::{Reader, open};
pub use record::{Clock, Record};
pub use report::{Backwards, Damage, XenReadReport};
pub use summary::{PcpuSummary, Summarizer, Summary, VcpuSummary};
pub use writer::Writer;
