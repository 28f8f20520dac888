//! Writes binary traces that `xenalyze` reads.
//!
//! As `xentrace` does, all pCPUs' buffers are written in turn, each as a window; here, whenever one of them is full. So
//! a window of a pCPU never holds anything later than what the next round begins with, and readers need hold no more
//! than two rounds.

use std::io::{self, Write};

use contend_platform::{CpuId, Time};

use super::layout::{Encoded, encode};
use super::record::{CPU_CHANGE_HEADER, Clock, Record, push};
use super::{XenEvent, XenSink};

/// A pCPU's buffer is full from here on, in bytes.
const FULL: usize = 32 << 10;

/// Takes events or records, writes a file.
///
/// Time stamps of events are `ns * hz / 10^9`, but each is at least one tick after the one before on its pCPU, and after
/// the one before on any pCPU unless the event itself is earlier: so events of the same ns keep their order in readers,
/// which go by time stamps. The shift is a few ticks where many events share a ns.
pub struct Writer<W: Write> {
    out: W,
    clock: Clock,
    /// By pCPU: records not yet written, and the latest time stamp.
    cpus: Vec<(Vec<u8>, u64)>,
    /// Time and time stamp of the latest event.
    last: Option<(Time, u64)>,
    /// The first failure of writing an event as a [`XenSink`].
    failed: Option<io::Error>,
}

impl<W: Write> Writer<W> {
    /// Writes to `out`, which should be buffered or a file: writes are of many KiB.
    pub fn new(out: W, clock: Clock) -> Self {
        Self { out, clock, cpus: Vec::new(), last: None, failed: None }
    }

    /// Writes an event that `cpu` reports at `now` (ns). Time should not fall on one pCPU, and best not over all.
    ///
    /// # Errors
    /// Those of writing.
    pub fn event(&mut self, now: Time, cpu: CpuId, event: &XenEvent) -> io::Result<()> {
        let mut tsc = self.clock.ticks(now);
        if let Some((latest, ticks)) = self.last
            && now >= latest
        {
            tsc = tsc.max(ticks + 1);
        }
        let (_, last) = self.buffer(cpu);
        tsc = tsc.max(*last + 1);
        if self.last.is_none_or(|(latest, _)| now >= latest) {
            self.last = Some((now, tsc));
        }
        self.push(cpu, Some(tsc), &encode(event))
    }

    /// Writes a record as it stands, time stamp and padding included.
    ///
    /// # Errors
    /// Those of writing.
    pub fn record(&mut self, record: &Record) -> io::Result<()> {
        let encoded = super::layout::encode_padded(&record.event, record.pad);
        self.push(record.cpu, record.timed.then_some(record.tsc), &encoded)
    }

    /// Ends the file and gives what it was written to.
    ///
    /// # Errors
    /// As [`Self::end`].
    pub fn finish(mut self) -> io::Result<W> {
        self.end()?;
        Ok(self.out)
    }

    /// Writes out what is held back.
    ///
    /// # Errors
    /// Those of writing, now or, for events that came through [`XenSink`], before.
    pub fn end(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)?;
        self.round()?;
        self.out.flush()
    }

    fn buffer(&mut self, cpu: CpuId) -> &mut (Vec<u8>, u64) {
        let index = usize::from(cpu.0);
        if self.cpus.len() <= index {
            self.cpus.resize_with(index + 1, || (Vec::new(), 0));
        }
        &mut self.cpus[index]
    }

    fn push(&mut self, cpu: CpuId, tsc: Option<u64>, record: &Encoded) -> io::Result<()> {
        let (bytes, last) = self.buffer(cpu);
        *last = tsc.unwrap_or(*last);
        push(bytes, tsc, record);
        if bytes.len() >= FULL { self.round() } else { Ok(()) }
    }

    /// Writes all buffers that hold something.
    fn round(&mut self) -> io::Result<()> {
        for ((bytes, _), cpu) in self.cpus.iter_mut().zip(0u32..) {
            if bytes.is_empty() {
                continue;
            }
            for word in [CPU_CHANGE_HEADER, cpu, bytes.len() as u32] {
                self.out.write_all(&word.to_le_bytes())?;
            }
            self.out.write_all(bytes)?;
            bytes.clear();
        }
        Ok(())
    }
}

impl<W: Write> XenSink for Writer<W> {
    fn event(&mut self, now: Time, cpu: CpuId, event: &XenEvent) {
        if self.failed.is_none() {
            self.failed = Writer::event(self, now, cpu, event).err();
        }
    }
}
