//! The same models in the simulator, where CPUs may be many.

use crate::Model;
use contend_machine::Machine;
use contend_platform::{CpuId, NEVER, Platform, Time};
use contend_sim::engine::{Engine, Stop};
use contend_sim::world::Sim;
use std::cell::Cell;
use std::rc::Rc;

/// What a simulated run of a model came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulated {
    /// Virtual time at the end, in ns.
    pub end: Time,
    /// Cache-line transfers by distance class.
    pub transfers: Vec<u64>,
}

/// Events after which a run counts as endless.
const EVENTS_MAX: u64 = 100_000_000;

/// Run `model` once on the first CPUs of a simulated machine, which start together. A failed check panics, and so do
/// CPUs that wait for ever.
pub fn run_sim<M>(machine: Machine, model: &M) -> Simulated
where
    M: Model<Sim>,
    M::Shared: 'static,
{
    run_sim_as(machine, model, |sim| sim)
}

/// Run `model` on a handle that `wrap` makes of the simulator's.
pub fn run_sim_as<P, M>(machine: Machine, model: &M, wrap: impl Fn(Sim) -> P) -> Simulated
where
    P: Platform + Clone + 'static,
    M: Model<P>,
    M::Shared: 'static,
{
    let cpus = model.cpus();
    assert!(cpus <= machine.topology.nr_cpus(), "{cpus} CPUs on {}", machine.name);
    let engine = Engine::new(machine);
    let sim = wrap(Sim::new(Rc::clone(&engine), None));
    let shared = Rc::new(model.setup(&sim));
    let left = Rc::new(Cell::new(cpus));
    let mut stacks = engine
        .boot(|_| {
            let (sim, model, shared, left) = (sim.clone(), model.clone(), Rc::clone(&shared), Rc::clone(&left));
            move |cpu: CpuId| {
                if cpu.index() >= cpus {
                    return;
                }
                model.run(&sim, &shared);
                left.set(left.get() - 1);
                // Platform operations need a CPU's stack: the last CPU looks at the end.
                if left.get() == 0 {
                    model.finish(&sim, &shared);
                }
            }
        })
        .expect("the system refused memory for the CPUs' stacks");
    let stop = engine.run(&mut stacks, NEVER - 1, EVENTS_MAX);
    assert_ne!(stop, Stop::Budget, "no end after {EVENTS_MAX} events");
    assert_eq!(left.get(), 0, "CPUs that have not ended: {:?}", engine.waiting());
    Simulated { end: engine.settled_now(), transfers: engine.transfers() }
}
