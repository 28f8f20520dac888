//! What locks of OS threads need besides their platform: the queue nodes of a process's threads, and identities.

pub mod nodes;
pub mod parked;
pub mod pv;
mod thread_id;

pub use nodes::Global;
pub use parked::Parked;
pub use thread_id::RawThreadId;
