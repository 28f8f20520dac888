//! The scheduler: mechanism and policies, generic over the platform.

pub mod wake_list;
pub mod wake_protocol;
