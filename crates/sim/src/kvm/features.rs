//! Switches and tunables of KVM, by their upstream names (`contend list kvm`; `--set kvm.KEY=VALUE`).

use contend_platform::Nanos;
use contend_sched::yield_to::YieldTo;
use contend_sched::{switches, words};

words! {
    /// What a vCPU that has spun for long does for the others: `kvm_vcpu_on_spin` and `yield_to` by version.
    DirectedYield {
        /// No pause-loop exits at all (ple_gap = 0).
        PleOff = "ple-off",
        /// Linux 3.6: every candidate that is neither halted nor in guest mode, both run-queue locks first.
        V3_6 = "3.6",
        /// 3.6 with Theurer's check before the locks instead of under them.
        Theurer = "theurer",
        /// 3.6 and `dy_eligible`: a candidate that spins itself is skipped every other time (3.7).
        V3_7 = "3.7-eligible",
        /// 3.7 and the check that either run queue has a second task, three such failures end the search (3.9).
        V3_9 = "3.9-nr-running",
        /// 3.9 and only candidates that were preempted (3.10).
        V3_10 = "3.10-preempted",
        /// 3.10, preempted in kernel mode, or made ready by a wake-up (by 5.7).
        V5_7 = "5.7-ready",
        /// Linux 6.19.
        Today = "today",
        /// Theurer's, and a candidate whose run queue is in a directed yield already is skipped: the post's open question.
        SkipYieldingRq = "skip-yielding-rq",
        /// Theurer's, and a candidate whose CPU is not in guest mode is skipped: the post's other idea.
        SkipNotInGuest = "skip-not-in-guest",
        /// Theurer's, and run-queue locks are tried, not waited for.
        Trylock = "trylock",
    }
}

switches! {
    /// All switches and tunables of the hypervisor.
    KvmFeatures {
        /// kvm_vcpu_on_spin and yield_to by version.
        directed_yield: DirectedYield = DirectedYield::Today,
        /// Skip candidates in guest mode, where the version does (3.6 to 3.9). No version does without: to see what it is worth.
        on_spin_in_guest_filter: bool = true,
        /// Begin each search after the vCPU's own number, not after the one that was boosted last. No version does: to see what
        /// it is worth that all searches begin at one place.
        on_spin_own_start: bool = false,
        /// Cycles between two PAUSEs of one loop; 0: no pause-loop exits.
        ple_gap: u64 = 128,
        /// Cycles that a pause loop may last before it exits. 4096 from 2009 to today.
        ple_window: u64 = 4096,
        /// Growth of a vCPU's window at each pause-loop exit: below 1: back to ple_window; below ple_window: times; else plus (3.18).
        ple_window_grow: u64 = 2,
        /// Shrinking of the window when the vCPU is scheduled in: below 1: back to ple_window; below ple_window: divided; else minus.
        ple_window_shrink: u64 = 0,
        /// The window's maximum in cycles.
        ple_window_max: u64 = 4_294_967_295,
        /// Longest halt polling in ns; 0: none (before 4.0).
        halt_poll_ns: u64 = 200_000,
        /// Growth of a vCPU's polling time: times.
        halt_poll_ns_grow: u64 = 2,
        /// Its first value in ns.
        halt_poll_ns_grow_start: u64 = 10_000,
        /// Shrinking: divided; 0: to nothing.
        halt_poll_ns_shrink: u64 = 2,
        /// The pv kick yields to the vCPU that it wakes.
        pv_kick_yield: bool = true,
        /// Guests learn of preempted vCPUs (vcpu_is_preempted, 4.10).
        pv_preempted: bool = true,
        /// A guest that sends a reschedule interrupt to a preempted vCPU yields to it by hypercall (pv sched yield, 5.3).
        pv_sched_yield: bool = true,
    }
}

/// Which candidates `kvm_vcpu_on_spin` considers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OnSpin {
    /// Skip candidates whose task is in guest mode (3.6 to 3.9).
    pub skip_in_guest: bool,
    /// in_spin_loop and dy_eligible (3.7).
    pub eligible: bool,
    /// Failures of yield_to for want of a second task that end the search; 0: none ends it.
    pub tries: u32,
    /// Only candidates that were preempted (3.10).
    pub preempted: bool,
    /// `ready` counts as preempted (5.7).
    pub ready: bool,
    /// A preempted candidate must have been in kernel mode (by 5.2).
    pub kernel_mode: bool,
    /// A halted candidate with a pending interrupt is considered (by 4.4).
    pub halted_with_interrupt: bool,
    /// Skip candidates whose CPU is not in guest mode.
    pub skip_cpu_not_in_guest: bool,
    /// In 3.9 and 3.10 -ESRCH looked like success: the search ended and last_boosted moved.
    pub alone_is_success: bool,
}

impl KvmFeatures {
    /// `kvm_vcpu_on_spin` of the version.
    pub(crate) fn on_spin(&self) -> OnSpin {
        let v3_6 = OnSpin {
            skip_in_guest: self.on_spin_in_guest_filter,
            eligible: false,
            tries: 0,
            preempted: false,
            ready: false,
            kernel_mode: false,
            halted_with_interrupt: false,
            skip_cpu_not_in_guest: false,
            alone_is_success: false,
        };
        let v3_9 = OnSpin { eligible: true, tries: 3, alone_is_success: true, ..v3_6 };
        let v3_10 = OnSpin { preempted: true, ..v3_9 };
        let v5_7 = OnSpin {
            skip_in_guest: false,
            ready: true,
            kernel_mode: true,
            halted_with_interrupt: true,
            alone_is_success: false,
            ..v3_10
        };
        match self.directed_yield {
            DirectedYield::PleOff
            | DirectedYield::V3_6
            | DirectedYield::Theurer
            | DirectedYield::SkipYieldingRq
            | DirectedYield::Trylock => v3_6,
            DirectedYield::SkipNotInGuest => OnSpin { skip_cpu_not_in_guest: true, ..v3_6 },
            DirectedYield::V3_7 => OnSpin { eligible: true, ..v3_6 },
            DirectedYield::V3_9 => v3_9,
            DirectedYield::V3_10 => v3_10,
            DirectedYield::V5_7 | DirectedYield::Today => v5_7,
        }
    }

    /// `yield_to` of the version.
    pub(crate) fn yield_to(&self) -> YieldTo {
        let v3_6 = YieldTo { locked_check: true, ..YieldTo::default() };
        let theurer = YieldTo { unlocked_check: true, ..YieldTo::default() };
        let v3_9 = YieldTo { nr_running_check: true, ..v3_6 };
        match self.directed_yield {
            DirectedYield::PleOff | DirectedYield::V3_6 | DirectedYield::V3_7 => v3_6,
            DirectedYield::Theurer | DirectedYield::SkipNotInGuest => theurer,
            DirectedYield::SkipYieldingRq => YieldTo { skip_yielding_rq: true, ..theurer },
            DirectedYield::Trylock => YieldTo { trylock: true, ..theurer },
            DirectedYield::V3_9 | DirectedYield::V3_10 | DirectedYield::V5_7 => v3_9,
            DirectedYield::Today => YieldTo { pi_lock: true, ..v3_9 },
        }
    }

    /// Does the hardware's pause-loop exiting run?
    pub(crate) fn pause_exits(&self) -> bool {
        self.directed_yield != DirectedYield::PleOff && self.ple_gap > 0
    }

    /// A vCPU's window in cycles after a pause-loop exit.
    pub(crate) fn grown_window(&self, window: u64) -> u64 {
        let grown = match self.ple_window_grow {
            0 => self.ple_window,
            grow if grow < self.ple_window => window.saturating_mul(grow),
            grow => window.saturating_add(grow),
        };
        grown.min(self.ple_window_max).max(self.ple_window)
    }

    /// The window when the vCPU is scheduled in.
    pub(crate) fn shrunk_window(&self, window: u64) -> u64 {
        let shrunk = match self.ple_window_shrink {
            0 => self.ple_window,
            shrink if shrink < self.ple_window => window / shrink,
            shrink => window.saturating_sub(shrink),
        };
        shrunk.max(self.ple_window)
    }

    /// Halt polling's window after a halt of `slept` ns that began with the window `now_ns` (mechanisms D.4).
    pub(crate) fn next_poll_ns(&self, window: Nanos, slept: Nanos, valid: bool) -> Nanos {
        let shrunk = || {
            let to = window.checked_div(self.halt_poll_ns_shrink).unwrap_or(0);
            if to < self.halt_poll_ns_grow_start { 0 } else { to }
        };
        if self.halt_poll_ns == 0 {
            0
        } else if !valid {
            shrunk()
        } else if slept <= window {
            window
        } else if window > 0 && slept > self.halt_poll_ns {
            shrunk()
        } else if window < self.halt_poll_ns && slept < self.halt_poll_ns {
            (window * self.halt_poll_ns_grow).max(self.halt_poll_ns_grow_start).min(self.halt_poll_ns)
        } else {
            window
        }
    }
}
