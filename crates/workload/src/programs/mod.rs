//! Workload programs: small state machines over the system-call-like interface of `contend_sim::program`, a file each.
//!
//! A program's parameters are the keys of its workload in a scenario file. Each default names its source. Programs
//! count and sample under fixed names (`docs/workloads.md`): `next()` runs for every system call of the run, so it
//! neither allocates nor hashes, and counts in bulk where its steps are short.

mod daemons;
mod dbench;
mod ebizzy;
mod echo;
mod guest_boot;
mod hackbench;
mod hogs;
mod iperf;
mod kernel_build;
mod lock_loop;
mod mmc;
mod netbench;
mod netperf;
mod oltp;
mod oltp_dedicated;
mod periodic;
mod ping_pong;
mod schbench;
mod sembench;
mod starting;
mod tbench;
mod uperf;

pub use daemons::Daemons;
pub use dbench::Dbench;
pub use ebizzy::Ebizzy;
pub use guest_boot::GuestBoot;
pub use hackbench::{Hackbench, Transport};
pub use hogs::Hogs;
pub use iperf::{IperfClient, IperfServer};
pub use kernel_build::KernelBuild;
pub use lock_loop::{LockKind, LockLoop};
pub use mmc::Mmc;
pub use netperf::Netperf;
pub use oltp::Oltp;
pub use oltp_dedicated::OltpDedicated;
pub use periodic::Periodic;
pub use ping_pong::{Channel, Pin, PingPong};
pub use schbench::Schbench;
pub use sembench::{Sembench, SembenchOp};
pub use tbench::{Start, Tbench};
pub use uperf::Uperf;

use contend_platform::Nanos;
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};
use fixedbitset::FixedBitSet;
use rand::Rng;

pub(crate) const NS_PER_US: Nanos = 1_000;
pub(crate) const NS_PER_MS: Nanos = 1_000_000;
/// Longest duration that a key takes: a day.
pub(crate) const DURATION_MS_MAX: u64 = 86_400_000;
/// Longest single step that a key takes: 100 s.
pub(crate) const STEP_US_MAX: u64 = 100_000_000;

/// Buffer of a pipe, from pipe(7): 16 pages of 4 KiB.
pub(crate) const PIPE_BYTES: u32 = 65_536;
/// Buffer of a TCP connection: the limit to which the kernel tunes it by itself, from tcp(7): 4 MiB.
const TCP_BYTES: u32 = 4_194_304;

/// A TCP connection's way in one direction, whose state is so many cache lines.
fn tcp(w: &mut Workload, name: String, lines: u64) -> ObjId {
    w.object(name, ObjectKind::Socket { capacity: TCP_BYTES, lines: lines as u32 })
}

/// Just this CPU.
pub(crate) fn only(cpu: usize, nr_cpus: usize) -> FixedBitSet {
    let mut set = FixedBitSet::with_capacity(nr_cpus);
    set.insert(cpu);
    set
}

/// A random time from none to `most`; draws no number if that is none.
pub(crate) fn up_to(most: Nanos, rng: &mut impl Rng) -> Nanos {
    if most > 0 { rng.next_u64() % (most + 1) } else { 0 }
}

/// A program whose tasks have a working set.
struct Cached<P> {
    program: P,
    working_set_kib: u32,
}

impl<P: Program> Program for Cached<P> {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        self.program.next(cx)
    }
    fn working_set_kib(&self) -> u32 {
        self.working_set_kib
    }
}

/// A task whose working set is fetched again after a migration.
pub(crate) fn cached(name: String, program: impl Program + 'static, working_set_kib: u64) -> TaskSpec {
    TaskSpec::new(name, Cached { program, working_set_kib: working_set_kib as u32 })
}
