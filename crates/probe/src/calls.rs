//! Experiments with system calls: what they cost while nobody waits.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use crate::pair::on;
use crate::sys::{self, Timer};

fn timed(cpu: usize, n: usize, mut f: impl FnMut() + Send) -> Option<f64> {
    on(cpu, || {
        f();
        let began = Instant::now();
        for _ in 0..n {
            f();
        }
        Some(began.elapsed().as_nanos() as f64 / n as f64)
    })
}

/// `getppid`.
pub fn getppid(cpu: usize) -> Option<f64> {
    timed(cpu, 500, sys::getppid)
}

/// `sched_yield` with nobody to yield to.
pub fn sched_yield(cpu: usize) -> Option<f64> {
    timed(cpu, 300, sys::sched_yield)
}

/// FUTEX_WAIT on a word that has another value: the hash, the bucket's lock, the comparison, and back.
pub fn futex_mismatch(cpu: usize) -> Option<f64> {
    let word = AtomicU32::new(1);
    timed(cpu, 300, || sys::futex_wait(&word, 0))
}

/// One `write` and one `read` of so many bytes through a pipe that the caller holds both ends of.
pub fn pipe(cpu: usize, bytes: usize) -> Option<f64> {
    let (mut read, mut write) = std::io::pipe().ok()?;
    let mut buffer = vec![1u8; bytes];
    timed(cpu, 200, || {
        let done = write.write(&buffer).is_ok() && read.read(&mut buffer).is_ok();
        assert!(done, "an empty pipe takes {bytes} bytes");
    })
}

/// The same through a connected pair of local stream sockets.
pub fn socket(cpu: usize, bytes: usize) -> Option<f64> {
    let (mut read, mut write) = UnixStream::pair().ok()?;
    let mut buffer = vec![1u8; bytes];
    timed(cpu, 200, || {
        let done = write.write(&buffer).is_ok() && read.read(&mut buffer).is_ok();
        assert!(done, "an empty socket takes {bytes} bytes");
    })
}

/// Arm a timer that becomes the CPU's next one, and disarm it: two programmings of the hardware.
pub fn timer_program(cpu: usize) -> Option<f64> {
    let timer = Timer::new()?;
    timed(cpu, 100, || {
        timer.arm(100_000);
        timer.arm(0);
    })
}
