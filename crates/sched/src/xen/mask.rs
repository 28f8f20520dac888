//! Sets of pCPUs, small enough to copy.

use contend_platform::CpuId;

/// Most pCPUs of a Xen host here. (Xen's own limit on x86 was 256 by default in 2016.)
pub const PCPUS_MAX: usize = 512;

const WORDS: usize = PCPUS_MAX / 64;

/// A set of pCPUs.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuMask([u64; WORDS]);

impl CpuMask {
    /// No pCPU.
    pub const NONE: CpuMask = CpuMask([0; WORDS]);

    /// pCPUs 0 to `n` - 1.
    pub fn first_n(n: usize) -> Self {
        (0..n).map(|c| CpuId(c as u16)).collect()
    }
    /// One pCPU.
    pub fn only(cpu: CpuId) -> Self {
        std::iter::once(cpu).collect()
    }
    /// From words of 64 pCPUs, the lowest first.
    pub fn from_words(words: impl Iterator<Item = u64>) -> Self {
        let mut mask = Self::NONE;
        std::iter::zip(&mut mask.0, words).for_each(|(to, from)| *to = from);
        mask
    }
    /// Is `cpu` in the set?
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0[cpu.index() / 64] >> (cpu.0 % 64) & 1 != 0
    }
    /// Add `cpu`.
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) {
        self.0[cpu.index() / 64] |= 1 << (cpu.0 % 64);
    }
    /// Remove `cpu`.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) {
        self.0[cpu.index() / 64] &= !(1 << (cpu.0 % 64));
    }
    /// Is it empty?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }
    /// How many pCPUs are in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }
    /// Have they a pCPU in common?
    #[inline]
    pub fn intersects(&self, other: &CpuMask) -> bool {
        std::iter::zip(self.0, other.0).any(|(a, b)| a & b != 0)
    }
    /// Is all of it in `other`?
    #[inline]
    pub fn is_subset(&self, other: &CpuMask) -> bool {
        std::iter::zip(self.0, other.0).all(|(a, b)| a & !b == 0)
    }
    /// The pCPUs, ascending.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + use<> {
        let mut left = self.0;
        let mut at = 0;
        std::iter::from_fn(move || {
            while left[at] == 0 {
                at += 1;
                if at == WORDS {
                    // Again the next time.
                    at = WORDS - 1;
                    return None;
                }
            }
            let bit = left[at].trailing_zeros();
            left[at] &= left[at] - 1;
            Some(CpuId((at * 64) as u16 + bit as u16))
        })
    }
    /// The lowest pCPU.
    #[inline]
    pub fn first(&self) -> Option<CpuId> {
        self.from(0)
    }
    /// The next pCPU after `cpu`, round again from the lowest (which may be `cpu` itself).
    #[inline]
    pub fn cycle(&self, cpu: CpuId) -> Option<CpuId> {
        self.from(cpu.index() + 1).or_else(|| self.from(0))
    }
    fn from(&self, at: usize) -> Option<CpuId> {
        let mut i = at / 64;
        if i >= WORDS {
            return None;
        }
        let mut word = self.0[i] & (!0 << (at % 64));
        loop {
            if word != 0 {
                return Some(CpuId((i * 64) as u16 + word.trailing_zeros() as u16));
            }
            i += 1;
            word = *self.0.get(i)?;
        }
    }
}

impl FromIterator<CpuId> for CpuMask {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut mask = Self::NONE;
        cpus.into_iter().for_each(|c| mask.insert(c));
        mask
    }
}

impl std::ops::BitAnd for CpuMask {
    type Output = CpuMask;
    #[inline]
    fn bitand(self, other: CpuMask) -> CpuMask {
        CpuMask(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }
}

impl std::ops::BitOr for CpuMask {
    type Output = CpuMask;
    #[inline]
    fn bitor(self, other: CpuMask) -> CpuMask {
        CpuMask(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }
}

/// What is in the first and not in the second.
impl std::ops::Sub for CpuMask {
    type Output = CpuMask;
    #[inline]
    fn sub(self, other: CpuMask) -> CpuMask {
        CpuMask(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }
}

/// As `xl vcpu-list` writes it: `0-3,8`.
impl std::fmt::Debug for CpuMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        contend_machine::write_list(f, self.iter().map(CpuId::index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_ranges_and_cycles() {
        let mask: CpuMask = [0, 1, 2, 5, 64, 65, 300].into_iter().map(CpuId).collect();
        assert_eq!(format!("{mask:?}"), "0-2,5,64-65,300");
        assert_eq!(mask.len(), 7);
        assert_eq!(mask.cycle(CpuId(5)), Some(CpuId(64)));
        assert_eq!(mask.cycle(CpuId(300)), Some(CpuId(0)));
        assert_eq!(CpuMask::only(CpuId(7)).cycle(CpuId(7)), Some(CpuId(7)));
        assert_eq!(CpuMask::NONE.cycle(CpuId(511)), None);
        assert_eq!(mask.iter().count(), 7);
        assert_eq!((mask - CpuMask::first_n(64)).first(), Some(CpuId(64)));
        assert!(CpuMask::only(CpuId(5)).is_subset(&mask) && !mask.is_subset(&CpuMask::first_n(300)));
    }
}
