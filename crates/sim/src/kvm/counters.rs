//! What KVM counts, by upstream's names, and why vCPUs exit.

macro_rules! counted {
    ($(#[$meta:meta])* $name:ident { $($(#[doc = $doc:literal])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name { $($(#[doc = $doc])* $variant,)* }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();
            /// The name in files and reports.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
            /// What it means.
            pub fn describe(self) -> &'static str {
                match self { $($name::$variant => concat!($($doc),*).trim_ascii(),)* }
            }
        }
    };
}

counted! {
    /// Why a vCPU left guest mode: the names of Intel's exit reasons as `perf kvm stat` shows them.
    Exit {
        /// An interrupt of the physical CPU.
        ExternalInterrupt = "EXTERNAL_INTERRUPT",
        /// The guest has halted.
        Hlt = "HLT",
        /// A pause loop lasted for ple_window.
        Pause = "PAUSE_INSTRUCTION",
        /// The guest sent an interrupt to a vCPU (a write to the interrupt command register).
        Icr = "APIC_WRITE_ICR",
        /// The guest armed its timer.
        Timer = "MSR_WRITE_TIMER",
        /// The guest's own timer came due while it ran.
        PreemptionTimer = "PREEMPTION_TIMER",
        /// A hypercall: a pv kick, or a pv yield.
        Vmcall = "VMCALL",
    }
}

counted! {
    /// KVM's counters.
    Kvm {
        /// Calls of yield_to by the pause-loop handler and by hypercalls.
        YieldTo = "yield_to_attempted",
        /// Successes: a stock kernel's yld_count counts these; the post's "passed".
        YieldToSucceeded = "yield_to_succeeded",
        /// Failures because the target was running or slept: the post's other counter.
        YieldToRunning = "yield_to_failed_target_running",
        /// Of these, found without a lock.
        YieldToRunningUnlocked = "yield_to_failed_unlocked",
        /// Failures because neither run queue had a second task (-ESRCH).
        YieldToAlone = "yield_to_failed_alone",
        /// Failures because a run queue was locked or in a directed yield.
        YieldToBusy = "yield_to_failed_busy",
        /// Failures because the target was not queued.
        YieldToNotQueued = "yield_to_failed_not_queued",
        /// Pause-loop handlers entered.
        OnSpin = "kvm_vcpu_on_spin",
        /// Candidates looked at by them.
        Candidates = "on_spin_candidates",
        /// Of these, halted.
        SkippedHalted = "on_spin_skipped_halted",
        /// Of these, in guest mode.
        SkippedInGuest = "on_spin_skipped_in_guest",
        /// Of these, not eligible, not preempted, not ready, or in user mode.
        SkippedFiltered = "on_spin_skipped_filtered",
        /// Directed yields by hypercall.
        DirectedYieldAttempted = "directed_yield_attempted",
        /// Of these, successful.
        DirectedYieldSuccessful = "directed_yield_successful",
        /// Halts that polled.
        HaltAttemptedPoll = "halt_attempted_poll",
        /// Of these, woken while they polled.
        HaltSuccessfulPoll = "halt_successful_poll",
        /// ns that successful polls polled, without interrupts and other threads meanwhile.
        HaltPollSuccessNs = "halt_poll_success_ns",
        /// ns that polls in vain polled, likewise.
        HaltPollFailNs = "halt_poll_fail_ns",
        /// ns of blocked halts.
        HaltWaitNs = "halt_wait_ns",
        /// Halts that blocked and were woken.
        HaltWakeup = "halt_wakeup",
        /// Interrupts between vCPUs that were sent.
        IpisSent = "ipis_sent",
        /// Of these, delivered: each once.
        IpisDelivered = "ipis_delivered",
        /// pv kicks.
        PvKicks = "pv_kicks",
        /// Physical interrupts sent to pull a vCPU out of guest mode for an interrupt of its own.
        Kicked = "vcpu_kicks",
    }
}
