//! Workloads: what runs on the simulated machine.

pub mod rtapp;
