//! schbench: message threads that wake many workers at once, and the latency of those wake-ups.
//!
//! From the tool's README and the description in MMTests: a worker queues itself at its message thread, wakes it and
//! waits; the message thread sleeps for a while, notes the time, and wakes all workers that have queued up, one by one; a
//! worker that runs again records how long that took, works, and starts over. So a latency holds the worker's place in
//! the row: half of the row is woken before the median worker.

use std::sync::{Arc, Mutex, PoisonError};

use contend_platform::{Nanos, Time};
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};

use super::{DURATION_MS_MAX, NS_PER_MS, NS_PER_US, STEP_US_MAX, cached, up_to};
use crate::spec::keys::spec;
use crate::spec::{Build, WorkloadError};

spec! {
    /// Message threads and workers, after schbench as of 2016 to 2022. Runs until the duration is over.
    /// Counts: requests. Latencies: wakeup (from the beginning of a row of wake-ups to the worker's run), request (to the end of its work).
    pub struct Schbench = "schbench" {
        /// Message threads (-m). Default: the tool's, from memory.
        message_threads: u64 [1..=10_000] = 2, "tasks";
        /// Workers of each message thread (-t). Default: the tool's, from memory.
        workers: u64 [1..=1_000_000] = 16, "tasks";
        /// Sleep of a message thread before it wakes its workers (-s). Default: the tool's, from memory.
        sleep_us: u64 [0..=STEP_US_MAX] = 30_000, "us";
        /// Random addition to that sleep, from none to this. Default: an estimate; the tool is said to add a little.
        jitter_pct: u64 [0..=1000] = 25, "%";
        /// Work of a message thread for each worker that it wakes, besides the system call: its list, the worker's lines.
        /// Default: an estimate, two or three lines of other CPUs.
        wake_ns: u64 [0..=1_000_000] = 200, "ns";
        /// Work of each request (-c). Default: the tool's, from memory.
        think_us: u64 [0..=STEP_US_MAX] = 30_000, "us";
        /// Sleep within each request before its work, as the tool's later versions have it. Default: none, as before.
        request_sleep_us: u64 [0..=STEP_US_MAX] = 0, "us";
        /// Working set of a worker, fetched again after a migration. Default: an estimate, none.
        working_set_kib: u64 [0..=1_048_576] = 0, "KiB";
        /// How long (-r). Default: the tool's 30 s.
        duration_ms: u64 [1..=DURATION_MS_MAX] = 30_000, "ms";
    }
}

/// A message thread's list.
struct Board {
    /// Workers that wait, in order; indices into `woken`.
    queue: Vec<u32>,
    /// When the wake-up of each worker's row began.
    woken: Vec<Time>,
}

type Shared = Arc<Mutex<Board>>;

struct Messenger {
    board: Shared,
    bell: ObjId,
    /// The first worker's semaphore; the others follow.
    first: u32,
    sleep: Nanos,
    jitter: Nanos,
    wake: Nanos,
    /// Workers to be woken now, last first.
    batch: Vec<u32>,
    step: Message,
}

#[derive(Clone, Copy)]
enum Message {
    Wait,
    Sleep,
    Collect,
    Work,
    Wake,
}

impl Program for Messenger {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            match self.step {
                Message::Wait => {
                    self.step = Message::Sleep;
                    return Op::SemWait(self.bell);
                }
                Message::Sleep => {
                    self.step = Message::Collect;
                    let sleep = self.sleep + up_to(self.jitter, cx.rng);
                    if sleep > 0 {
                        return Op::Sleep(sleep);
                    }
                }
                Message::Collect => {
                    let mut board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
                    // The list keeps its memory: no allocation after the first rounds.
                    std::mem::swap(&mut self.batch, &mut board.queue);
                    self.batch.reverse();
                    self.batch.iter().for_each(|&w| board.woken[w as usize] = cx.now);
                    self.step = Message::Work;
                }
                Message::Work => {
                    self.step = Message::Wake;
                    if self.wake > 0 && !self.batch.is_empty() {
                        return Op::Run(self.wake);
                    }
                }
                Message::Wake => {
                    self.step = Message::Work;
                    let Some(worker) = self.batch.pop() else {
                        self.step = Message::Wait;
                        continue;
                    };
                    return Op::SemPost(ObjId(self.first + worker), 1);
                }
            }
        }
    }
}

struct Worker {
    board: Shared,
    bell: ObjId,
    own: ObjId,
    number: u32,
    think: Nanos,
    sleep: Nanos,
    woken: Time,
    step: Request,
}

#[derive(Clone, Copy)]
enum Request {
    Queue,
    Wait,
    Woken,
    Think,
    Done,
}

impl Program for Worker {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            match self.step {
                Request::Queue => {
                    self.step = Request::Wait;
                    let mut board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
                    board.queue.push(self.number);
                    return Op::SemPost(self.bell, 1);
                }
                Request::Wait => {
                    self.step = Request::Woken;
                    return Op::SemWait(self.own);
                }
                Request::Woken => {
                    self.woken = self.board.lock().unwrap_or_else(PoisonError::into_inner).woken[self.number as usize];
                    cx.metrics.latency("wakeup", cx.now.saturating_sub(self.woken));
                    self.step = Request::Think;
                    if self.sleep > 0 {
                        return Op::Sleep(self.sleep);
                    }
                }
                Request::Think => {
                    self.step = Request::Done;
                    return Op::Run(self.think);
                }
                Request::Done => {
                    cx.metrics.count("requests", 1);
                    cx.metrics.latency("request", cx.now.saturating_sub(self.woken));
                    self.step = Request::Queue;
                }
            }
        }
    }
}

impl Build for Schbench {
    fn tasks(&self) -> u64 {
        self.message_threads * (1 + self.workers)
    }

    fn build(&self, w: &mut Workload, _: usize) -> Result<(), WorkloadError> {
        let sleep = self.sleep_us * NS_PER_US;
        for m in 0..self.message_threads {
            let board = Arc::new(Mutex::new(Board { queue: Vec::new(), woken: vec![0; self.workers as usize] }));
            let semaphore = ObjectKind::Semaphore { initial: 0 };
            let bell = w.object(format!("message{m}"), semaphore.clone());
            let first = w.objects.len() as u32;
            let messenger = Messenger {
                board: Arc::clone(&board),
                bell,
                first,
                sleep,
                jitter: sleep / 100 * self.jitter_pct,
                wake: self.wake_ns,
                batch: Vec::new(),
                step: Message::Wait,
            };
            w.task(TaskSpec::new(format!("message{m}"), messenger));
            for i in 0..self.workers {
                let own = w.object(format!("worker{m}.{i}"), semaphore.clone());
                let worker = Worker {
                    board: Arc::clone(&board),
                    bell,
                    own,
                    number: i as u32,
                    think: self.think_us * NS_PER_US,
                    sleep: self.request_sleep_us * NS_PER_US,
                    woken: 0,
                    step: Request::Queue,
                };
                w.task(cached(format!("worker{m}.{i}"), worker, self.working_set_kib));
            }
        }
        w.horizon = Some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}
