//! The lock benchmark: N threads on one lock, each in a loop of lock, critical section, unlock, think.
//!
//! | module | |
//! |---|---|
//! | [`load`] | what the threads do: numbers only |
//! | [`row`] | what came of it: throughput, fairness, waits |
//! | [`contenders`] | the locks, ours and others', behind one small trait |
//! | [`native`] | the loop on OS threads |
//! | [`simulated`] | the same loop on a simulated machine |
//! | [`bare`] | the loop on bare CPUs of a simulated machine |

pub mod bare;
pub mod contenders;
pub mod load;
pub mod native;
pub mod row;
pub mod simulated;

pub use load::{Load, LoadError};
pub use row::Row;
