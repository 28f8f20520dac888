//! What an algorithm tells a checker about itself.

use crate::Line;

/// A fact that no access to memory shows, reported with [`crate::Platform::note`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// The calling CPU has taken its place among the waiters of a lock. From here on others may overtake it only as often
    /// as the lock promises. Reported right after the operation that took the place.
    Queued,
    /// It has given its place up, without the lock.
    Left,
    /// The calling CPU holds the lock. Reported by the caller of the lock.
    Acquired,
    /// What lies on `line` belongs to the queue node on the line `to`.
    Joined {
        /// Another line of the node.
        line: Line,
        /// The node's name.
        to: Line,
    },
    /// The calling CPU uses the queue node on this line: others may find it.
    Claimed(Line),
    /// It does so no more: nobody else changes the node from here to the next claim.
    Released(Line),
}
