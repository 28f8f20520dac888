//! Sets of CPUs, for affinities.

use contend_platform::CpuId;
use fixedbitset::FixedBitSet;
use std::sync::Arc;

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
}
