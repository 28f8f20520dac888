//! The locks on OS threads.

pub mod nodes;

pub use nodes::Global;
