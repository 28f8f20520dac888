//! The scheduler: mechanism here, policies in [`policy`].
//!
//! [`kernel::Kernel`] is the mechanism of one machine, generic over the world ([`contend_platform::SchedPlatform`]) and the
//! [`policy::Policy`]. It names neither: the simulator, OS threads and the model checkers run the same code.

mod balance;
pub mod bandwidth;
pub mod capacity;
pub mod class;
pub mod cpuset;
pub mod domains;
pub mod features;
mod idle_search;
pub mod kernel;
mod looks;
pub mod pelt;
pub mod policy;
pub mod rq;
pub mod rq_lock;
pub mod rt;
mod select;
pub mod switches;
pub mod task;
mod vcpu_pack;
pub mod wake_list;
pub mod wake_protocol;
pub mod wakeup;
pub mod xen;
pub mod yield_to;
