//! Files that are written: whole or not at all, and never over what somebody else made.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::RunError;

pub(crate) fn write_error(path: &Path, e: &io::Error) -> RunError {
    refused(path, contend_machine::reason(e))
}

fn refused(path: &Path, why: String) -> RunError {
    RunError::Write { file: path.display().to_string(), why }
}

/// Where a file will stand, once it was looked at what stands there now.
#[derive(Debug)]
pub(crate) struct OutFile(PathBuf);

impl OutFile {
    /// Nothing may stand there, or an empty file, or one that `replaceable` says may be replaced, which is named `what` (`a trace`); none of `inputs`.
    ///
    /// # Errors
    /// Something else stands there.
    pub fn check<P: AsRef<Path>>(
        path: &Path,
        inputs: impl IntoIterator<Item = P>,
        what: &str,
        replaceable: impl FnOnce(&mut File) -> bool,
    ) -> Result<Self, RunError> {
        let here = match std::fs::metadata(path) {
            Ok(here) => here,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(OutFile(path.into())),
            Err(e) => return Err(write_error(path, &e)),
        };
        if here.is_dir() {
            return Err(refused(path, "a directory of this name exists; name a file".into()));
        }
        if !here.is_file() {
            return Err(refused(path, "a device or pipe; name a file".into()));
        }
        let same = |other: &Metadata| (other.dev(), other.ino()) == (here.dev(), here.ino());
        if inputs.into_iter().any(|input| std::fs::metadata(input).is_ok_and(|m| same(&m))) {
            return Err(refused(path, "it is read, too; name another file".into()));
        }
        let mut file = File::open(path).map_err(|e| write_error(path, &e))?;
        if here.len() > 0 && !replaceable(&mut file) {
            return Err(refused(
                path,
                format!("a file of this name exists and is not {what}; name another or remove it"),
            ));
        }
        // A link stays one.
        path.canonicalize().map(OutFile).map_err(|e| write_error(path, &e))
    }

    /// The file in the making.
    pub fn partial(&self) -> Partial {
        Partial::beside(&self.0)
    }

    /// Put it in its place in one step; errors name it `named`.
    pub fn publish(&self, partial: Partial, named: &Path) -> Result<(), RunError> {
        std::fs::rename(&partial.0, &self.0).map_err(|e| write_error(named, &e))
    }
}

/// The first `n` bytes of a file, or all.
pub(crate) fn beginning(file: &mut File, n: u64) -> Vec<u8> {
    let mut head = Vec::new();
    // What cannot be read is nothing known.
    let _ = file.take(n).read_to_end(&mut head);
    head
}

/// A file or directory in the making, beside the place where it will stand; removed unless published.
pub(crate) struct Partial(pub PathBuf);

impl Partial {
    pub fn beside(target: &Path) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = target.file_name().map_or("result".into(), |n| n.to_string_lossy().into_owned());
        Partial(target.with_file_name(format!(".{own}.partial-{}-{n}", std::process::id())))
    }

    /// Put it in its place in one step.
    pub fn publish(self, target: &Path) -> Result<(), RunError> {
        std::fs::rename(&self.0, target).map_err(|e| write_error(target, &e))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.0.is_dir() {
            let _ = std::fs::remove_dir_all(&self.0);
        } else {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ones_own_is_not_replaced() {
        let dir = std::env::temp_dir().join(format!("contend-target-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let at = |name: &str| dir.join(name);
        let ours = |f: &mut File| beginning(f, 4) == b"ours";
        let check = |name: &str, input: &str| {
            OutFile::check(&at(name), [at(input)], "one of ours", ours).map_err(|e| e.to_string())
        };
        std::fs::write(at("ours"), "ours, too").expect("written");
        std::fs::write(at("foreign"), "foreign").expect("written");
        std::fs::write(at("empty"), "").expect("written");
        std::os::unix::fs::symlink("ours", at("link")).expect("a link");
        for good in ["new", "ours", "empty"] {
            assert_eq!(check(good, "none").expect(good).0, at(good).canonicalize().unwrap_or(at(good)));
        }
        assert_eq!(check("link", "none").expect("a link").0, at("ours").canonicalize().expect("is there"));
        assert!(check("foreign", "none").expect_err("foreign").contains("exists and is not one of ours"));
        assert!(check("link", "ours").expect_err("an input").contains("it is read, too"));
        let device = OutFile::check(Path::new("/dev/null"), [""; 0], "one of ours", ours);
        assert!(device.expect_err("a device").to_string().contains("a device or pipe"));
        std::fs::remove_dir_all(dir).expect("removed");
    }
}
