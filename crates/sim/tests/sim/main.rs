//! What the simulated scheduler, hosts and guests do: one program, since most of the time to build it is what all tests share.

mod balance;
mod bandwidth;
mod classes;
mod common;
mod conformance;
mod conservation;
mod cross_cpu;
mod golden;
mod groups;
mod guests;
mod idle_search;
mod idlest;
mod machine;
mod outcomes;
mod placing;
mod preempt;
mod remote_wakeups;
mod rowand;
mod scale;
mod spinlocks;
mod threads;
mod timeline;
mod vcpu_pack;
mod wakeup;
mod xen;
mod yield_to;
