//! A driver without an operating system: its state is in a static, and cores that want it spin.
//!
//! The module `driver` uses nothing of `std`. With
//!
//! ```toml
//! contend-locks = { version = "0.1", default-features = false, features = ["lock_api"] }
//! ```
//!
//! it would run on bare metal as it stands: no allocator, no thread numbers, no clock. In `main`, threads play the cores.
//! (Code that interrupts its own core must not want a lock that the core may hold: mask the interrupt around it.)

mod driver {
    use contend_locks::ticket::SpinMutex;

    const SIZE: usize = 16;

    struct Ring {
        bytes: [u8; SIZE],
        used: usize,
    }

    /// First come, first served: no core is kept out for ever.
    static RING: SpinMutex<Ring> = SpinMutex::new(Ring { bytes: [0; SIZE], used: 0 });

    /// Queue a byte; `Err` gives it back when the ring is full.
    pub fn send(byte: u8) -> Result<(), u8> {
        let mut ring = RING.lock();
        let used = ring.used;
        let place = ring.bytes.get_mut(used).ok_or(byte)?;
        *place = byte;
        ring.used += 1;
        Ok(())
    }

    /// Hand what is queued to the device.
    pub fn flush(mut device: impl FnMut(&[u8])) {
        let mut ring = RING.lock();
        device(&ring.bytes[..ring.used]);
        ring.used = 0;
    }
}

fn main() {
    let mut sent = [0u32; 256];
    let mut device = |bytes: &[u8]| bytes.iter().for_each(|&b| sent[usize::from(b)] += 1);
    std::thread::scope(|s| {
        let cores: Vec<_> = [b'a', b'b']
            .map(|byte| {
                s.spawn(move || {
                    for _ in 0..1_000 {
                        while driver::send(byte).is_err() {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .into();
        while !cores.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            driver::flush(&mut device);
            std::thread::yield_now();
        }
    });
    driver::flush(&mut device);
    assert_eq!((sent[usize::from(b'a')], sent[usize::from(b'b')]), (1_000, 1_000));
    println!("the device got every byte of both cores once");
}
