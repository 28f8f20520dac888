//! The lock beside others, on CPUs of a simulated machine and on this one's: `cargo run --release [MACHINE]`.

use contend_bench::contenders::Contender;
use contend_bench::{Load, bare, native};
use contend_locks::algorithm::{MakeLock, RawLock};
use contend_machine::Machine;
use contend_platform::native::Threads;
use my_lock::Twa;
use std::pin::Pin;

/// A lock for the threads of this process.
struct Mine(Twa<Threads>);

impl Default for Mine {
    fn default() -> Self {
        Mine(Twa::new(&Threads, 64))
    }
}

impl Contender for Mine {
    fn with<R>(self: Pin<&Self>, f: impl FnOnce() -> R) -> R {
        self.0.lock(&Threads);
        let result = f();
        self.0.unlock(&Threads);
        result
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "intel-2s-44c-88t".into());
    let machine = Machine::load(&name)?;
    let load = |threads| Load { threads, duration_ns: 2_000_000, warmup_ns: 0, ..Load::default() };
    println!("Million acquisitions a second on {}\n\nCPUs   ticket   queued      mcs     mine", machine.name);
    let cpus = machine.topology.nr_cpus() as u32;
    for threads in std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < cpus).chain([cpus]) {
        let mut rows = Vec::new();
        for lock in ["ticket", "queued", "mcs"] {
            rows.push(bare::run(lock, &machine, &load(threads))?);
        }
        rows.push(bare::run_type::<Twa<_>>("mine", &machine, &load(threads))?);
        print!("{threads:>4}");
        rows.iter().for_each(|row| print!("  {:>7.2}", row.throughput / 1e6));
        println!();
    }
    let two = Load { threads: 2, duration_ns: 200_000_000, ..Load::default() };
    let [ticket, mine] = [native::run("ticket", &two, 0)?, native::run_type::<Mine>("mine", &two, 0)?];
    println!("\nTwo threads here: ticket {:.2}, mine {:.2}", ticket.throughput / 1e6, mine.throughput / 1e6);
    Ok(())
}
