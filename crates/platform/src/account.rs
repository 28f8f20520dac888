//! Names for where CPU time goes ([`Account`]) and for the kinds of private work kernel code reports ([`Work`]).

macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[$vm:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name { $($(#[$vm])* $variant,)* }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();
            /// The name in files and reports.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

named! {
    /// Every CPU-nanosecond of a run is booked to exactly one of these.
    Account {
        /// Tasks' own computing.
        User = "user",
        /// System calls of tasks: pipes, futexes, copying.
        Syscall = "syscall",
        /// Refilling caches after a migration.
        ColdCache = "cold_cache",
        /// try_to_wake_up but for the two below.
        Wakeup = "wakeup",
        /// select_task_rq: where should the wakee go.
        IdleSearch = "idle_search",
        /// schedule() and the context switch.
        Switch = "switch",
        /// Load balancing, newidle, periodic and nohz.
        Balance = "balance",
        /// Interrupt entry and exit, tick and timer handlers.
        Interrupt = "interrupt",
        /// Waiting for a run-queue lock.
        RqLock = "rq_lock_wait",
        /// Waiting for another kernel spinlock.
        SpinLock = "spin_lock_wait",
        /// Waiting until the wakee's old CPU has switched away from it (`on_cpu`).
        OnCpu = "on_cpu_wait",
        /// Tasks' spinning in user mode, at locks of their own.
        UserSpin = "user_spin_wait",
        /// Guest mode: tasks of a guest.
        GuestUser = "guest_user",
        /// Guest mode: a guest's kernel.
        GuestKernel = "guest_kernel",
        /// Guest mode: a guest's kernel spins.
        GuestSpin = "guest_spin",
        /// Leaving and entering guest mode, and serving exits but for the two below.
        VmExit = "vm_exit",
        /// The pause-loop handler (kvm_vcpu_on_spin) and yield_to, without waiting for run-queue locks.
        Ple = "ple",
        /// Polling for a wake-up before a halted vCPU blocks.
        HaltPoll = "halt_poll",
        /// Nothing to run.
        Idle = "idle",
    }
}

named! {
    /// A unit of private kernel work; the machine file's `[kernel]` table gives its cost in ns.
    Work {
        /// A plain number of nanoseconds at reference speed.
        Ns = "ns",
        /// Entering and leaving the kernel by a system call.
        Syscall = "syscall",
        /// try_to_wake_up's own instructions.
        Ttwu = "ttwu",
        /// Enqueue of one entity.
        Enqueue = "enqueue",
        /// Dequeue of one entity.
        Dequeue = "dequeue",
        /// pick_next and put_prev.
        Pick = "pick",
        /// select_task_rq's outer decision.
        SelectCpu = "select_cpu",
        /// The instructions of one step of an idle search (the line miss comes on top).
        Probe = "probe",
        /// Looking at one run queue in load balancing (misses on top).
        BalanceQueue = "balance_queue",
        /// Looking at one task in load balancing.
        BalanceTask = "balance_task",
        /// The tick handler.
        Tick = "tick",
        /// A timer interrupt's handler.
        Timer = "timer",
        /// Programming a one-shot timer.
        TimerProgram = "timer_program",
        /// One call to read the clock (sched_clock).
        ClockRead = "clock_read",
        /// Counting the hardware threads of a core from its mask (cpumask_weight of the sibling mask).
        MaskWeight = "mask_weight",
        /// One pipe read or write, without copying and waking.
        PipeOp = "pipe_op",
        /// One socket send or receive, without copying and waking.
        SocketOp = "socket_op",
        /// One futex (mutex, condition variable, barrier, semaphore) system call, without waking.
        FutexOp = "futex_op",
        /// Copying one KiB between user and kernel memory.
        CopyKib = "copy_kib",
        /// Creating a task (fork or clone).
        Fork = "fork",
        /// Tearing a task down (exit).
        Exit = "exit",
        /// One unit (ns at reference speed) that a policy reports for a decision.
        Policy = "policy",
    }
}
