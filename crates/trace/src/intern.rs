//! Names, each allocated once.
//!
//! A `comm` has at most 15 bytes, so it fits a 128-bit key: a lookup hashes two words and compares no memory. The
//! tables are emptied when they reach [`LIMIT`], which bounds memory on any input; names in use live on in their `Arc`s.

use rustc_hash::FxHashMap;

use crate::event::Comm;

/// Different names held at once, in each table.
const LIMIT: usize = 1 << 16;

#[derive(Default)]
pub(crate) struct Interner {
    short: FxHashMap<u128, Comm>,
    long: FxHashMap<Box<[u8]>, Comm>,
    idle: Vec<Comm>,
}

impl Interner {
    /// The shared string for these bytes; what is not UTF-8 is replaced.
    pub(crate) fn get(&mut self, name: &[u8]) -> Comm {
        if name.len() < 16 {
            let mut key = [0; 16];
            key[..name.len()].copy_from_slice(name);
            key[15] = name.len() as u8;
            let key = u128::from_le_bytes(key);
            if let Some(comm) = self.short.get(&key) {
                return comm.clone();
            }
            if self.short.len() == LIMIT {
                self.short.clear();
            }
            self.short.entry(key).insert_entry(String::from_utf8_lossy(name).into()).get().clone()
        } else {
            if let Some(comm) = self.long.get(name) {
                return comm.clone();
            }
            if self.long.len() == LIMIT {
                self.long.clear();
            }
            self.long.entry(name.into()).insert_entry(String::from_utf8_lossy(name).into()).get().clone()
        }
    }

    /// `swapper/N`.
    pub(crate) fn idle(&mut self, cpu: u32) -> Comm {
        while self.idle.len() <= cpu as usize {
            self.idle.push(format!("swapper/{}", self.idle.len()).into());
        }
        self.idle[cpu as usize].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_share_one_allocation() {
        let mut names = Interner::default();
        for name in ["", "a", "fifteen bytes..", "sixteen bytes...", "/usr/bin/something-long"] {
            let first = names.get(name.as_bytes());
            assert_eq!(&*first, name);
            assert!(Comm::ptr_eq(&first, &names.get(name.as_bytes())));
        }
        // A trailing NUL is another name, not padding.
        assert_ne!(names.get(b"a\0"), names.get(b"a"));
        assert_eq!(&*names.idle(3), "swapper/3");
    }

    #[test]
    fn memory_is_bounded() {
        let mut names = Interner::default();
        for i in 0..LIMIT + 10 {
            names.get(i.to_string().as_bytes());
        }
        assert!(names.short.len() <= LIMIT);
    }
}
