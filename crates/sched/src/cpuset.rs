//! Sets of CPUs, for affinities.

use contend_platform::CpuId;
use fixedbitset::FixedBitSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where a task may run. `None` inside means everywhere, the common case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity(Option<Arc<FixedBitSet>>);

impl Affinity {
    /// Every CPU.
    pub const ALL: Affinity = Affinity(None);

    /// These CPUs.
    pub fn only(set: FixedBitSet) -> Self {
        Affinity(Some(Arc::new(set)))
    }
    /// May the task run on `cpu`?
    #[inline]
    pub fn allows(&self, cpu: CpuId) -> bool {
        self.0.as_ref().is_none_or(|s| s.contains(cpu.index()))
    }
    /// Is more than one CPU allowed?
    pub fn is_movable(&self) -> bool {
        self.0.as_ref().is_none_or(|s| s.count_ones(..) > 1)
    }
    /// The lowest allowed CPU of a machine with `n` CPUs.
    pub fn first(&self, n: usize) -> Option<CpuId> {
        (0..n).map(|c| CpuId(c as u16)).find(|c| self.allows(*c))
    }
    /// `cpu` if it is allowed, else the lowest allowed CPU of a machine with `n` CPUs.
    ///
    /// # Panics
    /// None is allowed: who sets affinities refuses that.
    pub fn or_first(&self, cpu: CpuId, n: usize) -> CpuId {
        if self.allows(cpu) { cpu } else { self.first(n).expect("set_affinity refuses an empty set") }
    }
}

/// A set of CPUs that all change and read without a lock: an observer's, without simulated cost.
pub(crate) struct CpuMask(Vec<AtomicU64>);

impl CpuMask {
    /// Of so many CPUs, empty.
    pub(crate) fn new(cpus: usize) -> Self {
        CpuMask((0..cpus.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }
    pub(crate) fn set(&self, cpu: CpuId, on: bool) {
        let (word, bit) = (&self.0[cpu.index() / 64], 1 << (cpu.0 % 64));
        if on {
            word.fetch_or(bit, Relaxed);
        } else {
            word.fetch_and(!bit, Relaxed);
        }
    }
    pub(crate) fn has(&self, cpu: CpuId) -> bool {
        self.0[cpu.index() / 64].load(Relaxed) >> (cpu.0 % 64) & 1 != 0
    }
    /// Ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.0.iter().enumerate().flat_map(|(i, word)| {
            let mut left = word.load(Relaxed);
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.wrapping_sub(1);
                (bit < 64).then(|| CpuId((i * 64) as u16 + bit as u16))
            })
        })
    }
}
