//! What scheduling events cannot say, as tracks of a Perfetto trace: what vCPUs do, what runs in guests, waits for
//! spinlocks, directed yields, and arrows from whoever woke a task to its next run.
//!
//! ```text
//! vm                     a guest
//!   vCPU 0               guest mode | PAUSE_INSTRUCTION | runnable, no CPU | host | guest mode | HLT | halted ...
//!   vCPU 0 runs          the guest's task on that CPU; in it, waits for spinlocks of the guest's kernel
//!   vCPU 1 ...
//! lock waits             of the host's kernel
//!   CPU 3                rq/7
//! ```
//! Memory is proportional to vCPUs, CPUs and tasks alive.

use std::collections::BTreeMap;
use std::io::{self, Write};

use contend_platform::{CpuId, Nanos, Time};
use contend_sched::yield_to::Yielded;
use contend_sim::trace::{GuestCpu, VcpuPhase, Waiter, Who};
use contend_trace::perfetto::{Flow, Track, Writer};
use contend_trace::sink::Task;
use rustc_hash::FxHashMap;

/// Shorter waits for spinlocks are not drawn: a line that comes from another CPU takes some 100 ns.
const WAITED_NS_MIN: Nanos = 1_000;

#[derive(Default)]
pub(super) struct Tracks {
    guests: BTreeMap<u16, Vec<VcpuTracks>>,
    waits: Option<Track>,
    waits_of_cpus: FxHashMap<CpuId, Track>,
    /// By thread id.
    threads: FxHashMap<u32, Track>,
    /// Arrows whose end has not come yet.
    wakes: FxHashMap<Sleeper, u64>,
    flows: u64,
    last: Time,
}

struct VcpuTracks {
    state: Track,
    runs: Track,
    in_state: bool,
    in_run: bool,
    /// An arrow of a directed yield that ends when it gets a CPU.
    boosted: Option<u64>,
}

/// A task that somebody has woken: a thread of the host, or a task of a guest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Sleeper {
    Thread(u32),
    OfGuest(u16, u64),
}

impl Tracks {
    pub fn guests<W: Write>(&mut self, out: &mut Writer<W>, guests: &[(u16, &str, usize)]) -> io::Result<()> {
        for (number, name, vcpus) in guests {
            let heading = out.slice_track(name, None)?;
            let mut track = |name: String| out.slice_track(&name, Some(heading));
            let vcpus = (0..*vcpus).map(|i| {
                let (state, runs) = (track(format!("vCPU {i}"))?, track(format!("vCPU {i} runs"))?);
                Ok(VcpuTracks { state, runs, in_state: false, in_run: false, boosted: None })
            });
            self.guests.insert(*number, vcpus.collect::<io::Result<_>>()?);
        }
        Ok(())
    }

    fn of(&mut self, vcpu: GuestCpu) -> &mut VcpuTracks {
        let vcpus = self.guests.get_mut(&vcpu.guest).expect("guests are told before what they do");
        &mut vcpus[vcpu.cpu.index()]
    }

    fn flow(&mut self) -> u64 {
        self.flows += 1;
        self.flows
    }

    pub fn vcpu<W: Write>(
        &mut self,
        out: &mut Writer<W>,
        now: Time,
        vcpu: GuestCpu,
        phase: VcpuPhase,
    ) -> io::Result<()> {
        self.last = self.last.max(now);
        let v = self.of(vcpu);
        if std::mem::replace(&mut v.in_state, true) {
            out.end(v.state, now)?;
        }
        let runs = matches!(phase, VcpuPhase::Host | VcpuPhase::Guest);
        let flow = if runs { v.boosted.take() } else { None };
        out.begin_with(v.state, now, phase.name(), flow.map_or(Flow::None, Flow::To))
    }

    pub fn guest_switch<W: Write>(
        &mut self,
        out: &mut Writer<W>,
        now: Time,
        vcpu: GuestCpu,
        next: Option<Who<'_>>,
    ) -> io::Result<()> {
        self.last = self.last.max(now);
        let flow = next.and_then(|next| self.wakes.remove(&Sleeper::OfGuest(vcpu.guest, next.id)));
        let v = self.of(vcpu);
        if std::mem::replace(&mut v.in_run, next.is_some()) {
            out.end(v.runs, now)?;
        }
        match next {
            Some(next) => out.begin_with(v.runs, now, next.name, flow.map_or(Flow::None, Flow::To)),
            None => Ok(()),
        }
    }

    pub fn guest_waking<W: Write>(
        &mut self,
        out: &mut Writer<W>,
        now: Time,
        vcpu: GuestCpu,
        by: Option<Who<'_>>,
        task: Who<'_>,
    ) -> io::Result<()> {
        let sleeper = Sleeper::OfGuest(vcpu.guest, task.id);
        if by.is_none() || self.wakes.contains_key(&sleeper) {
            return Ok(());
        }
        let flow = self.flow();
        self.wakes.insert(sleeper, flow);
        let track = self.of(vcpu).runs;
        out.instant_with(track, now, "wakes", Flow::From(flow))
    }

    pub fn yield_to<W: Write>(
        &mut self,
        out: &mut Writer<W>,
        now: Time,
        from: GuestCpu,
        to: CpuId,
        end: Yielded,
    ) -> io::Result<()> {
        let why = match end {
            Yielded::Yes => "",
            Yielded::Running => ": it runs or sleeps",
            Yielded::NotQueued => ": on no run queue",
            Yielded::Alone => ": neither has a second task",
            Yielded::Busy => ": a run queue is taken",
            Yielded::Refused => ": the policy knows none",
        };
        let flow = match end {
            // Of several before it gets a CPU, the first.
            Yielded::Yes if self.of(GuestCpu { cpu: to, ..from }).boosted.is_none() => {
                let flow = self.flow();
                self.of(GuestCpu { cpu: to, ..from }).boosted = Some(flow);
                Flow::From(flow)
            }
            _ => Flow::None,
        };
        let track = self.of(from).state;
        out.instant_with(track, now, &format!("yield_to vCPU {}{why}", to.index()), flow)
    }

    /// A wait for a spinlock is over.
    pub fn waited<W: Write>(
        &mut self,
        out: &mut Writer<W>,
        now: Time,
        waiter: Waiter,
        lock: &str,
        since: Time,
    ) -> io::Result<()> {
        if now - since < WAITED_NS_MIN {
            return Ok(());
        }
        let track = match waiter {
            Waiter::Vcpu(vcpu) => self.of(vcpu).runs,
            Waiter::Cpu(cpu) => match self.waits_of_cpus.get(&cpu) {
                Some(track) => *track,
                None => {
                    let heading = match self.waits {
                        Some(heading) => heading,
                        None => *self.waits.insert(out.slice_track("lock waits", None)?),
                    };
                    let track = out.slice_track(&format!("CPU {}", cpu.index()), Some(heading))?;
                    *self.waits_of_cpus.entry(cpu).or_insert(track)
                }
            },
        };
        out.begin(track, since, lock)?;
        out.end(track, now)
    }

    fn thread<W: Write>(&mut self, out: &mut Writer<W>, task: Task<'_>) -> io::Result<Track> {
        if let Some(track) = self.threads.get(&task.pid) {
            return Ok(*track);
        }
        let track = out.thread_track(task.pid, task.pid, task.comm)?;
        self.threads.insert(task.pid, track);
        Ok(track)
    }

    /// A thread wakes another: an arrow begins.
    pub fn waking<W: Write>(&mut self, out: &mut Writer<W>, now: Time, by: Task<'_>, task: Task<'_>) -> io::Result<()> {
        if self.wakes.contains_key(&Sleeper::Thread(task.pid)) {
            return Ok(());
        }
        let flow = self.flow();
        self.wakes.insert(Sleeper::Thread(task.pid), flow);
        let track = self.thread(out, by)?;
        out.instant_with(track, now, "wakes", Flow::From(flow))
    }

    /// A thread runs: the arrow ends.
    pub fn runs<W: Write>(&mut self, out: &mut Writer<W>, now: Time, task: Task<'_>) -> io::Result<()> {
        let Some(flow) = self.wakes.remove(&Sleeper::Thread(task.pid)) else { return Ok(()) };
        let track = self.thread(out, task)?;
        out.instant_with(track, now, "woken", Flow::To(flow))
    }

    /// A thread is no more.
    pub fn exits(&mut self, pid: u32) {
        self.threads.remove(&pid);
    }

    /// Closes what is open.
    pub fn finish<W: Write>(&mut self, out: &mut Writer<W>, now: Time) -> io::Result<()> {
        let end = now.max(self.last);
        for v in self.guests.values().flatten() {
            if v.in_state {
                out.end(v.state, end)?;
            }
            if v.in_run {
                out.end(v.runs, end)?;
            }
        }
        Ok(())
    }
}
