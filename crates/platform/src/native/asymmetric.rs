//! A pair of fences of which one costs nothing: `membarrier` makes all running threads of the process pass a full barrier
//! on behalf of the caller (Linux 4.14 and later, no privilege needed). Elsewhere both are ordinary fences; so they are under Miri,
//! which does not know the call.
//!
//! Which of the two it is, is decided once per process, by the first fence of either kind. While it is not, light fences are ordinary
//! ones, so it does not matter who learns of the decision when: a heavy fence goes by the decision and is
//! complete with either kind of light ones.
//!
//! A process that forbids itself the call after that (seccomp) has light fences that no heavy one can complete any more: all say so
//! from then on.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, compiler_fence, fence};

/// Nobody has asked yet.
const UNDECIDED: u8 = 0;
/// Light fences are the compiler's only.
const ASYMMETRIC: u8 = 1;
/// The call is missing or refused.
const SYMMETRIC: u8 = 2;

static KIND: AtomicU8 = AtomicU8::new(UNDECIDED);
/// The call was there and is refused now, for good.
static LOST: AtomicBool = AtomicBool::new(false);

#[inline]
pub(super) fn light() {
    if KIND.load(Ordering::Relaxed) == ASYMMETRIC {
        compiler_fence(Ordering::SeqCst);
    } else {
        ordinary();
    }
}

#[cold]
fn ordinary() {
    kind();
    fence(Ordering::SeqCst);
}

/// The decision.
fn kind() -> u8 {
    match KIND.load(Ordering::Relaxed) {
        UNDECIDED => {
            let kind = if barrier::register() { ASYMMETRIC } else { SYMMETRIC };
            // The first one counts: all must go by the same.
            KIND.compare_exchange(UNDECIDED, kind, Ordering::SeqCst, Ordering::SeqCst)
                .map_or_else(|kind| kind, |_| kind)
        }
        kind => kind,
    }
}

/// False: refused; other threads have been let run.
pub(super) fn heavy() -> bool {
    // It orders the caller, too, where the call does nothing because no other thread runs.
    fence(Ordering::SeqCst);
    if kind() != ASYMMETRIC {
        return true;
    }
    // A checkpoint may have lost the registration.
    let passed =
        !LOST.load(Ordering::Relaxed) && (barrier::all_threads() || barrier::register() && barrier::all_threads());
    if passed {
        fence(Ordering::SeqCst);
    } else {
        // It can lack memory, which passes.
        if !barrier::lacks_memory() {
            LOST.store(true, Ordering::Relaxed);
        }
        std::thread::yield_now();
    }
    passed
}

#[cfg(all(target_os = "linux", not(miri)))]
mod barrier {
    use libc::{MEMBARRIER_CMD_PRIVATE_EXPEDITED, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED};

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: the call takes no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    pub(super) fn register() -> bool {
        membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
    }

    pub(super) fn all_threads() -> bool {
        membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }

    /// Is that why the last call failed?
    pub(super) fn lacks_memory() -> bool {
        std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM)
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod barrier {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn all_threads() -> bool {
        true
    }

    pub(super) fn lacks_memory() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{heavy, light};
    use crate::Padded;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

    /// Each writes its word and reads the other's: at least one sees the other's write. With two light ones this fails on
    /// x86 in the first few thousand rounds.
    #[test]
    fn one_of_two_sees_the_other() {
        let rounds = if cfg!(miri) { 20 } else { 50_000 };
        let [words, seen, here] = [(); 3].map(|()| [(); 2].map(|()| Padded(AtomicU64::new(0))));
        // Both spin, so that they go on at the same time; where they share a CPU, they give it up.
        let meet = |me: usize, phase| {
            here[me].store(phase, SeqCst);
            let mut spins = 0u32;
            while here[1 - me].load(SeqCst) < phase {
                spins += 1;
                if spins > 1 << 12 { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
        };
        let side = |me: usize, fence: fn()| {
            for round in 1..=rounds {
                meet(me, 2 * round);
                words[me].store(round, Relaxed);
                fence();
                seen[me].store(words[1 - me].load(Relaxed), Relaxed);
                meet(me, 2 * round + 1);
                assert!(seen.iter().any(|s| s.load(Relaxed) == round), "round {round}: neither saw the other");
            }
        };
        std::thread::scope(|s| {
            s.spawn(|| side(0, light));
            s.spawn(|| side(1, || assert!(heavy(), "nothing forbids it")));
        });
    }
}
