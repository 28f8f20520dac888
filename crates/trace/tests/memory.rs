//! Memory stays bounded however long a recording is: the peak of what is allocated while 100 MB stream through.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use contend_trace::{At, Context, Reader, SchedSink, Task, TaskState, perfetto};

/// The system's allocator, which also keeps the peak.
struct Peak;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls go to the system's allocator as they come.
unsafe impl GlobalAlloc for Peak {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller's promise is that of `System::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Peak = Peak;

/// A piece, given again and again until so many bytes have been given.
struct Again {
    piece: Vec<u8>,
    at: usize,
    left: usize,
}

impl Read for Again {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = (self.piece.len() - self.at).min(buf.len()).min(self.left);
        buf[..n].copy_from_slice(&self.piece[self.at..self.at + n]);
        self.at = (self.at + n) % self.piece.len();
        self.left -= n;
        Ok(n)
    }
}

const STREAM_BYTES: usize = 100 << 20;

/// Bytes allocated at most beyond what was there, and events.
fn peak(piece: Vec<u8>) -> (usize, usize) {
    let left = STREAM_BYTES / piece.len() * piece.len();
    let source = Again { piece, at: 0, left };
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let mut reader = Reader::from_read("stream", source).expect("a trace");
    let events = (&mut reader).inspect(|event| assert!(event.is_ok())).count();
    assert_eq!((reader.report().unparsable.count, reader.report().truncated), (0, false), "{}", reader.report());
    (PEAK.load(Relaxed) - before, events)
}

/// One test, for others would allocate beside it.
#[test]
fn a_stream_of_100_mb_is_read_in_bounded_memory() {
    let text = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tracefs.txt")).unwrap();
    let (bytes, events) = peak(text);
    assert!(bytes < 4 << 20 && events > 500_000, "text: {bytes} bytes for {events} events");

    let mut out = perfetto::Writer::new(Vec::new()).unwrap();
    let task = Task { pid: 9, comm: "task", prio: 120 };
    for i in 0..10_000 {
        let at = At { ts: i, cpu: i as u32 % 8, pid: 9, comm: "task", context: Context::Task };
        out.switch(at, task, TaskState::RUNNABLE, task).unwrap();
    }
    let (bytes, events) = peak(out.finish().unwrap());
    assert!(bytes < 120 << 20 && events > 1_500_000, "Perfetto: {bytes} bytes for {events} events");
}
