"""`contend record`: what the kernel's scheduler did while a command ran, stored with the machine it ran on.

`tracefs` holds a private trace instance, `drain` empties its buffers while the command runs, `pages` reads and
changes what they hold, `tracedat` writes it in trace-cmd's format; `perf` stands in where tracefs is not allowed.
`child` runs the command, `kernel` says what runs here, `store` puts a directory in place, whole or not at all.
"""
