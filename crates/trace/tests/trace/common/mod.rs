//! What tests of several formats share: reading whole recordings, and damaging them.

pub mod dat;

use std::io::Cursor;
use std::path::{Path, PathBuf};

use contend_trace::{Event, ReadReport, Reader, open};
use proptest::prelude::*;

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// All events of a recording that holds nothing but events.
pub fn finish(mut reader: Reader) -> (Vec<Event>, ReadReport) {
    let events: Vec<_> = (&mut reader).map(|e| e.expect("an event")).collect();
    assert!(reader.next().is_none());
    (events, reader.report())
}

pub fn read(file: Vec<u8>) -> (Vec<Event>, ReadReport) {
    finish(Reader::from_read("file", Cursor::new(file)).expect("a recording"))
}

pub fn read_file(name: &str) -> (Vec<Event>, ReadReport) {
    finish(open(data(name)).expect("a recording"))
}

/// Bytes changed anywhere, a piece left out, the end cut off.
#[derive(Clone, Debug)]
pub struct Damage {
    changes: Vec<(prop::sample::Index, u8)>,
    hole: Option<(prop::sample::Index, usize)>,
    cut: Option<prop::sample::Index>,
}

pub fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    let changes = prop::collection::vec((at(), any::<u8>()), 0..40);
    let hole = prop::option::weighted(1.0 / 3.0, (at(), 0..500usize));
    (changes, hole, prop::option::of(at())).prop_map(|(changes, hole, cut)| Damage { changes, hole, cut })
}

impl Damage {
    /// The damaged file is read or refused, and what is read is counted. A hole may be all of a small file.
    pub fn survives(self, mut file: Vec<u8>) -> Result<(), TestCaseError> {
        for (at, byte) in self.changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Some((from, bytes)) = self.hole {
            let from = from.index(file.len());
            file.drain(from..(from + bytes).min(file.len()));
        }
        if let Some(cut) = self.cut {
            file.truncate(cut.index(file.len() + 1));
        }
        if let Ok(mut reader) = Reader::from_read("mutated", Cursor::new(file)) {
            let events = (&mut reader).filter(Result::is_ok).count() as u64;
            prop_assert_eq!(reader.report().events, events);
        }
        Ok(())
    }
}
