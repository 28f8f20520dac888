"""Which events are recorded."""

from __future__ import annotations

SCHED = [
    "sched:sched_switch",
    "sched:sched_waking",
    "sched:sched_wakeup_new",
    "sched:sched_migrate_task",
    "sched:sched_process_fork",
    "sched:sched_process_exec",
    "sched:sched_process_exit",
]
"""Without these there is no recording."""

INTERRUPTS = [
    "irq:irq_handler_entry",
    "irq:irq_handler_exit",
    "irq:softirq_entry",
    "irq:softirq_exit",
    "timer:hrtimer_expire_entry",
    "timer:hrtimer_expire_exit",
    "timer:timer_expire_entry",
    "timer:timer_expire_exit",
]
"""What ends sleeps, and takes time out of runs."""

WHERE_THERE = ["lock:contention_begin", "lock:contention_end", "kvm:kvm_entry", "kvm:kvm_exit"]
"""Contended locks of the kernel (Linux 5.19 and later), and guests, on hosts."""

CALLS = [
    "syscalls:sys_enter_execve",
    "syscalls:sys_enter_futex",
    "syscalls:sys_exit_futex",
    "syscalls:sys_exit_setsid",
]
"""Wake-ups of futex are not synchronous, those of other system calls are taken to be. An exec, of which there
is one, says that calls are recorded. Who begins a session is in a group of its own where the kernel has autogroup."""

SYSCALLS = ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"]


def wanted(*, interrupts: bool, syscalls: bool, more: list[str]) -> tuple[list[str], list[str]]:
    """The events that must be there, and those that are recorded if they are."""
    must = SCHED + (SYSCALLS if syscalls else []) + more
    may = (INTERRUPTS if interrupts else []) + WHERE_THERE + ([] if syscalls else CALLS)
    return list(dict.fromkeys(must)), [e for e in may if e not in must]


def parse(text: str) -> list[str]:
    """`sched:sched_stat_wait,irq/softirq_raise` as a list of `system:event`."""
    from contend._core import ContendError

    names = []
    for part in text.split(","):
        name = part.strip().replace("/", ":")
        system, colon, event = name.partition(":")
        if not (colon and system and event) or not all(w.isidentifier() for w in (system, event)):
            raise ContendError(f"--events: found '{part.strip()}'; should be SYSTEM:EVENT, such as irq:softirq_raise")
        names.append(name)
    return names
