//! The models: small programs over the algorithms, generic over the platform.

pub mod lock;
pub mod pv;
pub mod wake_list;
pub mod wakeup;
