//! Model checking: the locks, the wake list and the run-queue protocol under loom, shuttle, in the simulator and on threads.

mod adaptive;
mod exhaustive;
mod lock_events;
mod lock_mutants;
mod locks;
mod logic_mutants;
mod pv_mutants;
mod saturated;
mod wake_list;
mod wake_mutants;
mod wakeup;
mod watched;
mod worlds;
