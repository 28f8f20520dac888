//! The real-time class: `SCHED_FIFO` and `SCHED_RR`, above whatever policy runs.
//!
//! [`queue`] is what one CPU holds under its run queue's lock, [`push_pull`] what CPUs do for one another. What is
//! modelled and what is not: `docs/internals/classes.md`.

pub mod push_pull;
pub mod queue;
