//! The queue M/M/c: Poisson arrivals, exponential service, c servers, one first-come-first-served queue.
//!
//! Its mean waiting time has a closed form (Erlang C), so it tests wake-ups, timers and run times together:
//! a source sleeps until each arrival and posts a semaphore; a server takes the oldest job and computes.
//!
//! The logarithm is our own, so that a run is the same on every platform's mathematical library.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use contend_platform::{Nanos, Time};
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};
use rand::Rng;

use super::only;
use crate::spec::keys::spec;
use crate::spec::{Build, SpecError, SpecProblem, WorkloadError};

spec! {
    /// The queue M/M/c: one source, c server tasks, first come first served. Ends after the jobs.
    /// Counts: jobs (served). Latencies: wait (from arrival to start of service), service (from then to its end: longer than the
    /// demand where the server is preempted or its CPU slower), sojourn (both).
    pub struct Mmc = "mmc" {
        /// Servers. Default: no tool's.
        servers: u64 [1..=100_000] = 4, "tasks";
        /// Mean time of service. Default: no tool's; long against a wake-up.
        service_us: f64 [1.0..=1e8] = 1000.0, "us";
        /// Load of each server: arrival rate x service time / servers. Default: no tool's.
        load: f64 [0.001..=0.999] = 0.8, "";
        /// Jobs. Default: no tool's.
        jobs: u64 [1..=1_000_000_000] = 100_000, "jobs";
        /// The source on CPU 0 and server i on CPU i + 1, alone; the machine must have that many. Default: free to move.
        pin: bool [()] = false, "";
    }
}

/// ln x for x in (0, 1]: x = m 2^e with m in [sqrt 1/2, sqrt 2), and ln m = 2 artanh((m - 1) / (m + 1)), whose series
/// falls by s^2 < 0.03 a term: twelve terms are below a double's precision. IEEE sums and products are the same
/// everywhere; the C library's logarithm is not.
pub(crate) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut e = (bits >> 52) as i64 - 1023;
    let mut m = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if m > std::f64::consts::SQRT_2 {
        m /= 2.0;
        e += 1;
    }
    let s = (m - 1.0) / (m + 1.0);
    let (s2, mut sum) = (s * s, 0.0);
    for k in (0..12).rev() {
        sum = sum * s2 + 1.0 / f64::from(2 * k + 1);
    }
    2.0 * s * sum + e as f64 * std::f64::consts::LN_2
}

/// An exponentially distributed time.
fn exponential(rng: &mut impl Rng, mean_ns: f64) -> f64 {
    // In (0, 1]: 53 random bits, never 0.
    let u = ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    -ln(u) * mean_ns
}

#[derive(Default)]
struct Queue {
    arrived: VecDeque<Time>,
    closed: bool,
}

struct Source {
    queue: Arc<Mutex<Queue>>,
    doorbell: ObjId,
    servers: u32,
    mean_ns: f64,
    left: u64,
    /// Arrival of the next job, in fractions of a ns: rounding does not add up.
    at: f64,
    due: bool,
    closed: bool,
}

impl Program for Source {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if self.due {
            self.due = false;
            self.left -= 1;
            queue.arrived.push_back(self.at as Time);
            return Op::SemPost(self.doorbell, 1);
        }
        if self.left > 0 {
            self.due = true;
            self.at += exponential(cx.rng, self.mean_ns);
            return Op::SleepUntil(self.at as Time);
        }
        if self.closed {
            return Op::Exit;
        }
        self.closed = true;
        queue.closed = true;
        Op::SemPost(self.doorbell, self.servers)
    }
}

struct Server {
    queue: Arc<Mutex<Queue>>,
    doorbell: ObjId,
    mean_ns: f64,
    doing: Doing,
}

/// What a server does when its next step is asked for: that is done then.
enum Doing {
    Nothing,
    Waiting,
    /// It serves a job.
    Serving {
        arrived: Time,
        began: Time,
    },
}

impl Program for Server {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        if let Doing::Serving { arrived, began } = self.doing {
            cx.metrics.count("jobs", 1);
            cx.metrics.latency("service", cx.now.saturating_sub(began));
            cx.metrics.latency("sojourn", cx.now.saturating_sub(arrived));
        }
        if !matches!(self.doing, Doing::Waiting) {
            self.doing = Doing::Waiting;
            return Op::SemWait(self.doorbell);
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(arrived) = queue.arrived.pop_front() else {
            // The last posts, one a server, stand for no job.
            assert!(queue.closed, "a post without a job");
            return Op::Exit;
        };
        cx.metrics.latency("wait", cx.now.saturating_sub(arrived));
        self.doing = Doing::Serving { arrived, began: cx.now };
        Op::Run(exponential(cx.rng, self.mean_ns) as Nanos)
    }
}

impl Mmc {
    /// Mean waiting time in ns in the steady state, by Erlang C.
    pub fn wait_ns_mean(&self) -> f64 {
        let (c, service) = (self.servers as f64, self.service_us * 1000.0);
        let offered = self.load * c;
        // Erlang B by its recursion, then C from B.
        let mut b = 1.0;
        for k in 1..=self.servers {
            b = offered * b / (k as f64 + offered * b);
        }
        let waits = b / (1.0 - self.load * (1.0 - b));
        waits * service / (c * (1.0 - self.load))
    }
}

impl Build for Mmc {
    fn tasks(&self) -> u64 {
        self.servers + 1
    }

    fn build(&self, w: &mut Workload, nr_cpus: usize) -> Result<(), WorkloadError> {
        if self.pin && self.tasks() > nr_cpus as u64 {
            let found = format!("true with {} servers and a source on {nr_cpus} CPUs", self.servers);
            let problem = SpecProblem::Value { found, right: "false, or a machine with more CPUs".into() };
            return Err(SpecError { key: "workload.pin".into(), span: None, problem }.into());
        }
        let queue = Arc::new(Mutex::new(Queue::default()));
        let doorbell = w.object("mmc-queue", ObjectKind::Semaphore { initial: 0 });
        let service_ns = self.service_us * 1000.0;
        let mean_ns = service_ns / (self.load * self.servers as f64);
        let pinned = |mut task: TaskSpec, cpu: usize| {
            task.affinity = self.pin.then(|| only(cpu, nr_cpus));
            task
        };
        let source = Source {
            queue: Arc::clone(&queue),
            doorbell,
            servers: self.servers as u32,
            mean_ns,
            left: self.jobs,
            at: 0.0,
            due: false,
            closed: false,
        };
        for i in 0..self.servers {
            let server = Server { queue: Arc::clone(&queue), doorbell, mean_ns: service_ns, doing: Doing::Nothing };
            w.task(pinned(TaskSpec::new(format!("server{i}"), server), i as usize + 1));
        }
        w.task(pinned(TaskSpec::new("source", source), 0));
        Ok(())
    }
}
