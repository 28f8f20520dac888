//! Every format that is read or written, from small files in `tests/data` and from what the tests make themselves.

mod common;
mod formats;
mod perfetto;
mod perfetto_read;
mod recordings;
mod tracedat;
mod xentrace;
mod xentrace_audit;
mod xentrace_summary;
