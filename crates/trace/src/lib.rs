//! Scheduler traces: ftrace text and perf script in, Perfetto out.
pub mod event;
