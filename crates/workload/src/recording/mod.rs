//! Recordings of a real kernel as workloads: what each task did, replayed step by step on any machine and policy.
//!
//! A recording says when tasks ran; a replay must say what they do and leave the when to the scheduler under test. So
//! each task becomes a chain of steps:
//!
//! * **run**: the time between two sleeps, preemptions cut out;
//! * **post, wait**: a wake-up by another replayed task. The waker posts the sleeper's semaphore at that point of its own
//!   run. Semaphores remember, so a sleeper that comes late does not sleep;
//! * **sleep**: one that a timer, an interrupt or a task outside the replay ended: as long as recorded;
//! * **spawn**: a fork; the child's chain starts there. The end of a chain is the task's exit.
//!
//! The stages, a module each: `interrupts` (what interrupts a CPU, and what a wake-up is to be taken for), `chains` (events
//! to chains of all tasks), `filter` (whose chains are replayed), `cut` (those as an exact model); `stats` (what is
//! compared of a recording and its replay); `locks` (waits for locks of the recorded kernel); `newidle` (how often its idle CPUs pulled). Memory is proportional to the
//! steps, 8 bytes each, three or four for a wait.
//! `docs/recordings.md` is the reference.

mod barriers;
mod build;
mod chains;
mod cut;
mod filter;
mod interrupts;
mod kernel_work;
mod locks;
mod mutexes;
mod newidle;
mod report;
mod sessions;
pub mod stats;

pub use locks::RecordedLock;
pub use report::{RecordedTask, RecordingError, RecordingReport};

use std::io::Cursor;
use std::sync::Arc;

use contend_machine::Machine;
use contend_sim::program::Workload;
use contend_trace::event::{Event, Kind};
use contend_trace::report::OutOfOrder;
use contend_trace::xentrace::Clock;
use contend_trace::{Damage, Format, ReadReport, Reader};
use rustc_hash::FxHashSet;

use self::chains::Chains;
use self::kernel_work::KernelWork;
use self::locks::Waits;
use self::newidle::Newidle;
use self::sessions::Sessions;
use crate::model::{Exact, NewidlePulls, PlayOptions, Source, play};
use crate::spec::keys::spec;
use crate::spec::{ReadFile, TASKS_MAX};
use crate::speed::{RecordedOn, Rescaled};

/// A recording of which more than one event in so many lies before an earlier one, and one of them by more than a second, is not one; if these are
/// many, by more than this part of all. (Buffers of several CPUs are mixed a little, and the time stamps of a short one may be damaged.)
const DISORDER_SHARE: u64 = 20;
const DISORDER_NS: u64 = 1_000_000_000;
const DISORDER_SPAN: u64 = 4;
const DISORDER_MANY: u64 = 100;
/// If there is no switch, more than one damaged line in so many may be why.
const DAMAGED_SHARE: u64 = 20;

spec! {
    /// A recording of a real kernel, replayed task by task (docs/recordings.md). Ends with the recording's tasks.
    pub struct RecordingSpec = "recording" {
        /// The file, relative to the scenario: any format of docs/traces.md; or a directory that `contend record` made.
        file: String [()] = String::new(), "path";
        /// The machine it was recorded on: a machine file, or a name. What the kernel did there for wake-ups, sleeps and forks is taken
        /// out of runs, since the simulated kernel does it itself. Default: empty, one with the default costs.
        recorded_on: String [()] = String::new(), "machine";
        /// A file that says in which session each task was: the sessions.toml of `contend record`. Where the kernel makes groups of
        /// sessions (feature autogroup), they are groups. Default: empty, not known.
        sessions: String [()] = String::new(), "path";
        /// Frequency of the time stamps of a binary trace of Xen, which does not say it; other recordings have ns. Default: 2.4 GHz, as
        /// xenalyze supposes.
        cpu_hz: u64 [1_000_000..=100_000_000_000] = Clock::DEFAULT_HZ, "Hz";
        /// How many times side by side. Default: as recorded.
        copies: u64 [1..=100_000] = 1, "copies";
        /// Factor by which run times shrink: sleeps for timers and devices keep their length. Default: as recorded.
        speed: f64 [0.001..=1000.0] = 1.0, "";
        /// Jobs at once, where the recording shows job structure (make -j). Default: 0, as recorded.
        jobs: u64 [0..=100_000] = 0, "jobs";
        /// Name of the command whose descendants are replayed, with those that they exchange wake-ups with. Default: empty, the
        /// first command that was executed (one that a recorder executed goes first).
        command: String [()] = String::new(), "name";
        /// Replay all tasks, those of the system too. Default: only the command's.
        all: bool [()] = false, "";
    }
}

impl RecordingSpec {
    /// Add the recording's tasks to `w`, for a machine of such a `cpu.speed`; `bytes` is the file, `read` reads the recorded machine's.
    ///
    /// # Errors
    /// Not a recording; one with nothing to replay; too many tasks; no job structure where jobs are asked for.
    pub fn build(
        &self,
        w: &mut Workload,
        speed: u64,
        bytes: Vec<u8>,
        read: ReadFile<'_>,
    ) -> Result<(RecordingReport, Source, Rescaled), RecordingError> {
        let recorded = self.read(bytes, read, &mut |_, _| {})?;
        let (model, report) = recorded.model(&self.command, self.all)?;
        let (source, rescaled) = (model.source.clone(), recorded.rescaled(speed));
        self.play(model, w, rescaled.factor())?;
        Ok((RecordingReport { copies: self.copies, ..report }, source, rescaled))
    }

    /// Add the tasks of a model of this recording to `w`, scaled as asked for, and run times divided by `factor` besides.
    ///
    /// # Errors
    /// Too many tasks; no job structure where jobs are asked for.
    pub fn play(&self, model: Exact, w: &mut Workload, factor: f64) -> Result<(), RecordingError> {
        let tasks = model.tasks.len() as u64 * self.copies;
        if tasks > TASKS_MAX {
            return Err(RecordingError::TooManyTasks { file: self.file.clone(), tasks, copies: self.copies });
        }
        let jobs = (self.jobs > 0).then_some(self.jobs as u32);
        if jobs.is_some() && model.jobs.is_none() {
            return Err(RecordingError::NoJobs { file: self.file.clone() });
        }
        play(model, w, PlayOptions { copies: self.copies, speed: self.speed * factor, jobs });
        Ok(())
    }

    /// The recording's exact model, unscaled; `bytes` is the file, `read` reads the machine's.
    ///
    /// # Errors
    /// Not a recording; one with nothing to replay; the machine cannot be read.
    pub fn model(&self, bytes: Vec<u8>, read: ReadFile<'_>) -> Result<(Exact, RecordingReport), RecordingError> {
        self.read(bytes, read, &mut |_, _| {})?.model(&self.command, self.all)
    }

    /// Read the recording: [`Recorded::model`] cuts models out of it. `each` sees all events, and who has a pid then.
    ///
    /// # Errors
    /// Not a recording; the machine cannot be read.
    pub fn read(&self, bytes: Vec<u8>, read: ReadFile<'_>, each: Each<'_>) -> Result<Recorded, RecordingError> {
        let machine = match self.recorded_on.as_str() {
            "" => Machine::synthetic("1n1l1c1t")?,
            file if Machine::names_file(file) => {
                let text = read(file).map_err(|source| RecordingError::Read { file: file.into(), source })?;
                Machine::parse(&String::from_utf8_lossy(&text), file)?
            }
            name => Machine::load(name)?,
        };
        let bytes = Bytes(Arc::new(bytes));
        let mut reader = Reader::from_read(&self.file, Cursor::new(bytes.clone()))?;
        reader.set_xen_clock(Clock::new(self.cpu_hz).unwrap_or_default());
        if self.cpu_hz != Clock::DEFAULT_HZ && reader.format() != Format::Xentrace {
            let format = reader.format();
            return Err(RecordingError::CpuHz { file: self.file.clone(), hz: self.cpu_hz, format });
        }
        let sessions = match self.sessions.as_str() {
            "" => Sessions::default(),
            file => {
                let text = read(file).map_err(|source| RecordingError::Read { file: file.into(), source })?;
                sessions::parse(&text, file)?
            }
        };
        let work = match reader.format() {
            // Runs of virtual CPUs have nothing of the host's kernel in them.
            Format::Xentrace => KernelWork::default(),
            _ => KernelWork::of(&machine),
        };
        let mut chains = build::Builder::new(sessions, work, machine.capacities());
        let mut waits = Waits::default();
        let mut newidle = Newidle::default();
        let xen = reader.format() == Format::Xentrace;
        let no_waking = !xen && !has_waking(Reader::from_read(&self.file, Cursor::new(bytes))?);
        for event in &mut reader {
            let mut event = event?;
            if let Kind::Wakeup { task, target_cpu } = &event.kind
                && no_waking
            {
                event.kind = Kind::Waking { task: task.clone(), target_cpu: *target_cpu };
            }
            chains.event(&event);
            waits.event(&event);
            newidle.event(&event);
            each(&event, &|pid| chains.task_of(pid));
        }
        let (chains, report) = (chains.finish(), reader.report());
        let file = || self.file.clone();
        let events = report.events;
        let (damaged, first) = (report.unparsable.count, report.unparsable.first.clone());
        if let Some((line, found)) = first.filter(|_| report.format.is_text())
            && (damaged > events || (chains.switches == 0 && damaged > events / DAMAGED_SHARE))
        {
            return Err(RecordingError::Damaged { file: file(), line, found, damaged, events });
        }
        if chains.switches == 0 {
            return Err(RecordingError::NoSwitches { file: file(), events });
        }
        let OutOfOrder { count, worst_ns } = report.out_of_order;
        let span = report.last_ts.zip(report.first_ts).map_or(0, |(last, first)| last - first);
        let far = if count > DISORDER_MANY { DISORDER_NS.min(span / DISORDER_SPAN) } else { DISORDER_NS };
        if count > events / DISORDER_SHARE && worst_ns > far {
            return Err(RecordingError::OutOfOrder { file: file(), count, events, worst_ns });
        }
        Ok(Recorded {
            file: file(),
            chains,
            waits,
            // What a Linux kernel has learned is in no trace of Xen.
            newidle: if xen { NewidlePulls::default() } else { newidle.finish() },
            report,
            work,
            recorded_on: RecordedOn { name: machine.name, speed: machine.costs.cpu.speed },
            cpu_hz: self.cpu_hz,
            no_waking,
        })
    }
}

/// Called with each event of a recording, and with what tells a task's number by the pid it has then.
pub type Each<'a> = &'a mut dyn FnMut(&Event, &dyn Fn(u32) -> Option<u32>);

/// A file, for two readers.
#[derive(Clone)]
struct Bytes(Arc<Vec<u8>>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Does a recording have `sched_waking`? One that has tells soon. Kernels before 4.3 have none, and who asks for `sched_wakeup` alone gets none.
fn has_waking(reader: Reader) -> bool {
    reader.map_while(Result::ok).any(|e| matches!(e.kind, Kind::Waking { .. }))
}

/// A recording that has been read: what all its tasks did.
pub struct Recorded {
    file: String,
    chains: Chains,
    waits: Waits,
    newidle: NewidlePulls,
    report: ReadReport,
    work: KernelWork,
    recorded_on: RecordedOn,
    cpu_hz: u64,
    no_waking: bool,
}

impl Recorded {
    /// What becomes of its run times on a machine of such a `cpu.speed`.
    pub fn rescaled(&self, here: u64) -> Rescaled {
        let recorded_on = Some(self.recorded_on.clone());
        Rescaled { file: self.file.clone(), recorded: self.recorded_on.speed.value, recorded_on, here }
    }

    /// The exact model of the tasks that `command` and `all` choose, as in [`RecordingSpec`].
    ///
    /// # Errors
    /// There is no such task.
    pub fn model(&self, command: &str, all: bool) -> Result<(Exact, RecordingReport), RecordingError> {
        let Recorded { file, chains, waits, newidle, report: read, work, recorded_on, cpu_hz, no_waking } = self;
        if all && !command.is_empty() {
            return Err(RecordingError::Both { file: file.clone(), command: command.into() });
        }
        let chosen = filter::choose(chains, command, all);
        if chosen.included.iter().all(|i| !i) {
            let (file, command) = (file.clone(), command.to_string());
            return Err(if command.is_empty() {
                RecordingError::NoTasks { file }
            } else {
                match chains.executed() {
                    executed if executed.is_empty() => RecordingError::NoTask { file, command, tasks: chains.names() },
                    executed => RecordingError::NoCommand { file, command, executed },
                }
            });
        }
        let command = chosen.root.map_or(String::new(), |(task, ..)| chains.tasks[task as usize].name.to_string());
        let source = Source {
            recording: file.clone(),
            command,
            cpus: read.cpus.len() as u32,
            span_ns: 0,
            machine_speed: recorded_on.speed.value,
            newidle: *newidle,
        };
        let (model, mut report) = cut::cut(chains, &chosen, source, work);
        report.assumed_hz = Some(*cpu_hz).filter(|hz| read.format == Format::Xentrace && *hz == Clock::DEFAULT_HZ);
        report.read = Some(read.clone());
        report.copies = 1;
        report.no_waking = *no_waking;
        report.newidle = *newidle;
        if report.run_ns == 0 && report.bursts == 0 {
            let damage = Damage(read).to_string();
            return Err(RecordingError::NoRuns { file: file.clone(), tasks: report.per_task.len(), damage });
        }
        let pids: FxHashSet<u32> = report.per_task.iter().map(|t| t.pid).collect();
        report.locks = waits.of(|pid| all || pids.contains(&pid));
        Ok((model, report))
    }
}
