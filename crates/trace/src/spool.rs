//! Streams as they come: decompressed, cut off gently, and made seekable where a format needs it.

use std::io::{self, BufReader, ErrorKind, Read, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use tempfile::SpooledTempFile;

/// Bytes of a stream that are held in memory when it must be seekable; a longer one goes to an unnamed temporary file.
const MEMORY_BYTES: usize = 64 << 20;

/// Longest stream that is made seekable, uncompressed.
const SPOOL_BYTES_MAX: u64 = 64 << 30;

/// How an xz stream begins.
pub(crate) const XZ_MAGIC: &[u8] = b"\xfd7zXZ\0";

/// Memory that unpacking an `.xz` file may take, in KiB: four times what `xz -9` needs.
const XZ_MEMORY_KIB: u32 = 256 << 10;

/// What a format that is read here and there reads from.
pub(crate) trait ReadSeek: Read + Seek + Send {}
impl<T: Read + Seek + Send> ReadSeek for T {}

/// A gzip stream; where the file ends too early, the stream ends, and says so.
pub(crate) struct Gunzip<R> {
    inner: MultiGzDecoder<BufReader<R>>,
    cut: Arc<AtomicBool>,
}

impl<R: Read> Gunzip<R> {
    /// Also returns what is true once the stream was found to be cut.
    pub(crate) fn new(source: R) -> (Self, Arc<AtomicBool>) {
        let cut = Arc::new(AtomicBool::new(false));
        let inner = MultiGzDecoder::new(BufReader::with_capacity(64 << 10, source));
        (Self { inner, cut: cut.clone() }, cut)
    }
}

impl<R: Read> Read for Gunzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buf) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                self.cut.store(true, Ordering::Relaxed);
                Ok(0)
            }
            other => other,
        }
    }
}

/// An xz stream.
pub(crate) struct Unxz<R: Read>(XzReader<BufReader<R>>);

impl<R: Read> Unxz<R> {
    pub(crate) fn new(source: R) -> Self {
        Self(XzReader::new_mem_limit(BufReader::with_capacity(64 << 10, source), true, XZ_MEMORY_KIB))
    }
}

impl<R: Read> Read for Unxz<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => io::Error::new(e.kind(), "the xz stream is cut off"),
            ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::Other => {
                io::Error::new(e.kind(), format!("damaged xz stream: {e}"))
            }
            _ => e,
        })
    }
}

/// Makes a stream seekable.
pub(crate) fn spool(source: impl Read) -> io::Result<SpooledTempFile> {
    spool_at_most(source, SPOOL_BYTES_MAX)
}

fn spool_at_most(source: impl Read, bytes_max: u64) -> io::Result<SpooledTempFile> {
    let mut file = SpooledTempFile::new(MEMORY_BYTES);
    if io::copy(&mut source.take(bytes_max + 1), &mut file)? > bytes_max {
        let what = format!("the stream is longer than {bytes_max} bytes uncompressed: decompress it to a file first");
        return Err(io::Error::new(ErrorKind::FileTooLarge, what));
    }
    file.flush()?;
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_is_too_long_is_refused() {
        assert!(spool_at_most(io::repeat(7), 1000).is_err());
        let mut back = Vec::new();
        spool_at_most(io::repeat(7).take(1000), 1000).unwrap().read_to_end(&mut back).unwrap();
        assert_eq!(back, [7; 1000]);
    }
}
