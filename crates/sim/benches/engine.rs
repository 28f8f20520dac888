//! Hot paths of the simulator, as CPU-bound loops: `cargo bench -p contend-sim` (or `make bench`).
//!
//! Each sample is one whole simulation; the counter says how many of its items (visible accesses, dispatches) a second
//! were done. Compare figures of one run only: these machines are noisy.

use contend_machine::Machine;
use contend_platform::{CpuId, Ordering, Platform};
use contend_sched::features::Preset;
use contend_sim::engine::{Engine, Stop};
use contend_sim::guest::Guests;
use contend_sim::host::{Limits, Setup, simulate};
use contend_sim::program::{Cx, Op, Program, TaskSpec, Workload};
use contend_sim::world::Sim;
use divan::counter::ItemsCount;
use std::rc::Rc;

fn main() {
    divan::main();
}

/// The engine alone: 64 CPUs do atomic increments on `lines` lines, each access visible to all. With few lines every
/// access is a queued transfer that lets another CPU go first: a stack switch and two queue operations.
#[divan::bench(args = [1, 16, 256], sample_count = 10)]
fn contended_lines(bencher: divan::Bencher, lines: usize) {
    const CPUS: u64 = 64;
    const ROUNDS: u64 = 10_000;
    bencher
        .counter(ItemsCount::new(CPUS * ROUNDS))
        .with_inputs(|| Machine::load("2n1l32c1t").expect("a synthetic machine"))
        .bench_values(|machine| {
            let engine = Engine::new(machine);
            let sim = Sim::new(Rc::clone(&engine), None);
            let words: Rc<Vec<_>> = Rc::new((0..lines).map(|_| sim.word(sim.line(), 0)).collect());
            let mut stacks = engine
                .boot(|_| {
                    let (sim, words) = (sim.clone(), Rc::clone(&words));
                    move |cpu: CpuId| {
                        for i in 0..ROUNDS as usize {
                            let word = &words[(i * 31 + cpu.index() * 7) % words.len()];
                            sim.fetch_add(word, 1, Ordering::AcqRel);
                        }
                    }
                })
                .expect("stacks");
            assert_eq!(engine.run(&mut stacks, u64::MAX, u64::MAX), Stop::Nothing);
            assert_eq!(words.iter().map(|w| sim.load(w, Ordering::Relaxed)).sum::<u64>(), CPUS * ROUNDS);
        });
}

struct Periodic {
    sleep: u64,
    run: bool,
}

impl Program for Periodic {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        self.run = !self.run;
        if self.run { Op::Run(3_000_000) } else { Op::Sleep(self.sleep) }
    }
}

fn dispatches(machine: &str, tasks: u64, seconds: u64, preset: &str) -> u64 {
    let machine = Machine::load(machine).expect("a synthetic machine");
    let preset = Preset::find(preset).expect("it ships");
    let mut workload = Workload { horizon: Some(seconds * 1_000_000_000), ..Workload::default() };
    for i in 0..tasks {
        workload.task(TaskSpec::new("t", Periodic { sleep: (1 + i % 7) * 1_000_000, run: false }));
    }
    let setup = Setup {
        machine,
        features: preset.features,
        workload,
        seed: 1,
        limits: Limits::default(),
        guests: Guests::default(),
    };
    simulate(preset.policy, setup, None, &mut |_| true).expect("stacks").dispatches
}

/// 64 CPUs, 256 tasks, each runs 3 ms and sleeps 1 + (i mod 7) ms; 20 virtual seconds.
#[divan::bench(args = ["linux-2.6.37", "linux-5.2", "linux-6.18", "fifo"], sample_count = 5)]
fn dispatches_64_cpus(bencher: divan::Bencher, preset: &str) {
    let n = dispatches("2n1l16c2t", 256, 20, preset);
    bencher.counter(ItemsCount::new(n)).bench(|| dispatches("2n1l16c2t", 256, 20, preset));
}

/// The same load a CPU on larger machines, 5 virtual seconds: what a dispatch costs as the machine grows.
#[divan::bench(args = [64, 128, 256, 512, 1024], sample_count = 3)]
fn dispatches_by_size(bencher: divan::Bencher, cpus: u64) {
    let machine = format!("{}n1l16c2t", cpus / 32);
    let n = dispatches(&machine, cpus * 4, 5, "linux-6.18");
    bencher.counter(ItemsCount::new(n)).bench(|| dispatches(&machine, cpus * 4, 5, "linux-6.18"));
}
