//! Compression inside a binary recording.

use std::io::{self, ErrorKind, Read};

use flate2::read::ZlibDecoder;
use ruzstd::decoding::StreamingDecoder;

/// How a part of a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    None,
    Zlib,
    Zstd,
}

impl Packing {
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "none" | "" => Some(Packing::None),
            "zlib" => Some(Packing::Zlib),
            "zstd" => Some(Packing::Zstd),
            _ => None,
        }
    }

    /// Unpacks a whole; it must be of exactly `len` bytes.
    pub(crate) fn unpack(self, packed: &[u8], len: usize) -> io::Result<Vec<u8>> {
        let unpacked = self.unpack_all(packed, len as u64)?;
        if unpacked.len() != len {
            return Err(bad("compressed data of another size than is said".into()));
        }
        Ok(unpacked)
    }

    /// Unpacks a whole of at most `len_max` bytes.
    pub(crate) fn unpack_all(self, packed: &[u8], len_max: u64) -> io::Result<Vec<u8>> {
        let source: Box<dyn Read + '_> = match self {
            Packing::None => return Err(bad("compressed data in a file without compression".into())),
            Packing::Zlib => Box::new(ZlibDecoder::new(packed)),
            Packing::Zstd => Box::new(StreamingDecoder::new(packed).map_err(|e| bad(format!("zstd: {e}")))?),
        };
        let mut unpacked = Vec::new();
        let read = source.take(len_max + 1).read_to_end(&mut unpacked);
        read.map_err(|e| bad(format!("damaged compressed data ({e})")))?;
        if unpacked.len() as u64 > len_max {
            return Err(bad(format!("compressed data of more than {len_max} bytes")));
        }
        Ok(unpacked)
    }
}

fn bad(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
