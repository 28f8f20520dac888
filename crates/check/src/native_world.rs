//! The same models on OS threads.

use crate::Model;
use contend_platform::CpuId;
use contend_platform::native::Native;
use std::time::Instant;

/// Run `model` once, one thread a CPU. A failed check panics.
pub fn run_native<M>(model: &M)
where
    M: Model<Native>,
    M::Shared: Sync,
{
    let epoch = Instant::now();
    // SAFETY: it is used before the threads begin and after they end.
    let main = unsafe { Native::new(CpuId(0), epoch) };
    let shared = model.setup(&main);
    std::thread::scope(|scope| {
        for cpu in 0..model.cpus() {
            let (shared, model) = (&shared, model);
            scope.spawn(move || {
                // SAFETY: a number for each of the threads.
                let p = unsafe { Native::new(CpuId(cpu as u16), epoch) };
                model.run(&p, shared);
            });
        }
    });
    model.finish(&main, &shared);
}
