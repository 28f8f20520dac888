//! The chosen chains as an exact model: numbered anew, what was done for others left out.

use super::chains::{Chain, Chains};
use super::filter::{Chosen, is_kernel};
use super::kernel_work::KernelWork;
use super::report::{RecordedTask, RecordingReport};
use crate::model::jobs::{self, Order};
use crate::model::step::{Step, What, Why};
use crate::model::{Exact, Source, Task};
use contend_sim::program::Sched;

/// Cut out the chosen tasks.
pub fn cut(chains: &Chains, chosen: &Chosen, source: Source, work: &KernelWork) -> (Exact, RecordingReport) {
    let mut number = vec![None; chains.tasks.len()];
    let included = || (0..chains.tasks.len()).filter(|&i| chosen.included[i]);
    for (n, i) in (0u32..).zip(included()) {
        number[i] = Some(n);
    }
    let start_of = |i: usize| match chosen.root {
        Some((task, at, ts)) if task as usize == i => (at, ts),
        _ => (0, chains.tasks[i].start_ts),
    };
    let begin = included().map(|i| start_of(i).1).min().unwrap_or(0);
    let tasks = included().count() as u64;
    let mut r = RecordingReport {
        file: source.recording.clone(),
        tasks,
        partners: chosen.partners.clone(),
        outside: chains.tasks.len() as u64 - tasks,
        kernel_threads: chosen.kernel_threads,
        span_ns: chains.last_ts.saturating_sub(begin),
        ..RecordingReport::default()
    };
    let mut model = Exact { source: Source { span_ns: r.span_ns, ..source }, ..Exact::default() };
    let tail = chains.tail.map_or(0, |ns| ns.saturating_sub(work.preempts));
    r.tail_ns = tail;
    let mut spawned = vec![false; chains.tasks.len()];
    for i in included() {
        for step in &chains.tasks[i].steps[start_of(i).0..] {
            if let What::Spawn(c) = step.what() {
                spawned[c as usize] = true;
            }
        }
    }
    for i in included() {
        let t = &chains.tasks[i];
        let (at, ts) = start_of(i);
        let from = model.steps.len();
        if !spawned[i] && ts > begin {
            model.steps.push(Step::new(What::Sleep(ts - begin, Why::Unseen)));
        }
        let cut = one(chains, t, at, (&number, work, tail), &mut model.steps, &mut r);
        let task = RecordedTask { number: i as u32, ..cut };
        let (name, pid, sched) = (t.name.to_string(), t.pid, Sched::of_kernel_prio(t.prio_at(at)));
        let to = model.steps.len();
        let (initial, session) = (!spawned[i], t.session);
        model.tasks.push(Task { name, pid, sched, session, from, to, initial, exited: t.exited });
        r.initial += u64::from(!spawned[i]);
        r.realtime += u64::from(model.scheds_of(model.tasks.len() - 1).any(|s| s.rt().is_some()));
        r.per_task.push(task);
    }
    r.steps = model.steps.len() as u64;
    let order: Vec<Order> = (chains.order.iter())
        .filter_map(|o| {
            Some(match *o {
                Order::Start(parent, child) => Order::Start(number[parent as usize]?, number[child as usize]?),
                Order::End(task) => Order::End(number[task as usize]?),
                Order::Sleep(task) => Order::Sleep(number[task as usize]?),
            })
        })
        .collect();
    (model.jobs, model.scripts) = jobs::find(&order);
    (model, r)
}

/// Writes down a chain's steps.
struct Tape<'a> {
    out: &'a mut Vec<Step>,
    /// Running, and not yet written down.
    run: u64,
    /// Kernel work that is still to be taken out of runs.
    owed: u64,
    /// Kernel work that was.
    taken: u64,
    /// How long a system call goes on after it woke somebody.
    tail: u64,
    /// All of that.
    tails: u64,
    /// The step before woke somebody.
    woke: bool,
    /// It does not leave the kernel before the next step.
    in_kernel: bool,
    /// The mark of the next step, which costs nothing: what that costs comes out of the run before both.
    mark: Option<What>,
}

impl Tape<'_> {
    /// A run ends in `step`, whose price is `price`.
    fn step(&mut self, step: What, price: u64) {
        self.owed += price;
        self.end_run();
        self.woke = matches!(step, What::Post(..));
        self.out.extend(self.mark.take().into_iter().chain([step]).map(Step::new));
    }

    fn end_run(&mut self) {
        let taken = self.owed.min(self.run);
        self.owed -= taken;
        self.taken += taken;
        let run = std::mem::take(&mut self.run) - taken;
        let blocks = std::mem::take(&mut self.in_kernel) && self.woke;
        let tail = match self.woke {
            true if blocks => run,
            true => run.min(self.tail),
            false => 0,
        };
        if tail > 0 || blocks {
            self.out.push(Step::new(What::Kernel(tail, blocks)));
            self.tails += tail;
        }
        let run = run - tail;
        if run > 0 {
            self.out.push(Step::new(What::Run(run)));
        }
    }
}

/// One chain, from its step `at` on.
fn one(
    chains: &Chains,
    t: &Chain,
    at: usize,
    (number, work, tail): (&[Option<u32>], &KernelWork, u64),
    out: &mut Vec<Step>,
    r: &mut RecordingReport,
) -> RecordedTask {
    let mut task = RecordedTask {
        name: t.name.to_string(),
        pid: t.pid,
        exited: t.exited,
        switches: t.switches,
        preempted: t.preempted,
        ..RecordedTask::default()
    };
    // Preemptions are not among the steps: what they cost is spread over the runs.
    let all: u64 =
        t.steps[at..].iter().map(|s| if let What::Run(ns) | What::Kernel(ns, _) = s.what() { ns } else { 0 }).sum();
    let preemptions = (t.preempted * work.preempted).min(all);
    let mut ran = 0u64;
    let mut tape = Tape { out, run: 0, owed: 0, taken: 0, tail, tails: 0, woke: false, in_kernel: false, mark: None };
    let mut bursting = false;
    let mut steps = t.steps[at..].iter().map(|s| s.what()).peekable();
    while let Some(what) = steps.next() {
        let mut by = None;
        let step = match what {
            What::Run(ns) | What::Kernel(ns, _) => {
                // Not if a post to somebody who is left out stands before: there it ran in the program.
                tape.in_kernel = matches!(what, What::Kernel(..)) && tape.run == 0;
                let share = |ran: u64| (u128::from(preemptions) * u128::from(ran) / u128::from(all.max(1))) as u64;
                tape.owed += share(ran + ns) - share(ran);
                ran += ns;
                tape.run += ns;
                task.run_ns = task.run_ns.saturating_add(ns);
                task.bursts += u64::from(!bursting);
                bursting = true;
                continue;
            }
            What::Nop | What::By(_) | What::On(_) | What::Extra(_) => continue,
            What::Barrier(_) => {
                tape.mark = Some(what);
                continue;
            }
            What::Lock(..) | What::Locked | What::Unlock(_) => what,
            What::Exec => {
                r.execs += 1;
                what
            }
            What::Sched(_) => {
                r.reclassed += 1;
                what
            }
            What::Yield => {
                r.yields += 1;
                What::Yield
            }
            What::Post(who, sync) => match number[who as usize] {
                Some(n) => What::Post(n, sync),
                None => continue,
            },
            What::Spawn(who) => match number[who as usize] {
                Some(n) => What::Spawn(n),
                None => continue,
            },
            What::Sleep(ns, mut why) => {
                bursting = false;
                let waker = steps.next_if(|s| matches!(s, What::By(_)));
                let on = steps.next_if(|s| matches!(s, What::On(_)));
                match waker {
                    Some(What::By(who)) => match number[who as usize] {
                        Some(n) => by = Some(What::By(n)),
                        None if is_kernel(&chains.tasks[who as usize]) => (why, by) = (Why::Io, on),
                        None => why = Why::Outside,
                    },
                    _ => by = on,
                }
                r.sleeps[why as usize] += 1;
                match why {
                    Why::Task => task.waits += 1,
                    _ => task.sleeps += 1,
                }
                What::Sleep(ns, why)
            }
        };
        r.posts += u64::from(matches!(step, What::Post(..)));
        r.sync_posts += u64::from(matches!(step, What::Post(_, true)));
        r.forks += u64::from(matches!(step, What::Spawn(_)));
        let extra = match steps.next_if(|s| matches!(s, What::Extra(_))) {
            Some(What::Extra(ns)) => ns,
            _ => 0,
        };
        tape.step(step, work.price(step) + extra);
        tape.out.extend(by.map(Step::new));
    }
    if t.exited {
        tape.owed += work.exit;
    }
    tape.end_run();
    r.kernel_ns += tape.taken;
    r.tails_ns += tape.tails;
    r.idle_wakes += t.counts.idle_wakes;
    r.unseen += t.counts.unseen;
    r.unchained += t.counts.unchained;
    r.ambiguous += t.counts.ambiguous;
    r.interrupts_ns += t.counts.interrupts_ns;
    r.spun_ns += t.counts.spun_ns;
    r.bursts += task.bursts;
    r.run_ns = r.run_ns.saturating_add(task.run_ns);
    r.switches += task.switches;
    r.preempted += task.preempted;
    task
}
