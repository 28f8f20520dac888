//! Lists of CPUs, as taskset(1) takes them.

use super::value::Bad;
use contend_machine::{ends_of, write_list};
use contend_platform::CpuId;
use fixedbitset::FixedBitSet;

/// CPUs that tasks may run on, at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuList(FixedBitSet);

impl CpuList {
    /// What is right, in words.
    pub(super) const RIGHT: &str = "CPUs such as \"0-7\" or \"0,2,8-11\"";

    /// From text.
    pub(super) fn parse(text: &str) -> Result<Self, Bad> {
        let mut set = FixedBitSet::with_capacity(CpuId::MAX_CPUS);
        for part in text.split(',') {
            let ends = ends_of(part.trim()).filter(|(from, to)| from <= to && *to < CpuId::MAX_CPUS);
            let (from, to) = ends.ok_or_else(|| Bad { found: format!("\"{text}\""), right: Self::RIGHT.into() })?;
            set.insert_range(from..to + 1);
        }
        Ok(CpuList(set))
    }

    /// As a task's affinity on a machine of so many CPUs; the last CPU of the list, if there is no such.
    pub(super) fn affinity(&self, nr_cpus: usize) -> Result<FixedBitSet, usize> {
        match self.0.maximum() {
            Some(last) if last >= nr_cpus => Err(last),
            _ => Ok(self.0.ones().collect()),
        }
    }
}

impl std::fmt::Display for CpuList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write_list(f, self.0.ones())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_shown() {
        for (text, shown) in [("0-7", "0-7"), ("3", "3"), ("8-11, 0,2,1", "0-2,8-11"), ("5-5,6", "5-6")] {
            let list = CpuList::parse(text).unwrap_or_else(|bad| panic!("{text}: {}", bad.right));
            assert_eq!(list.to_string(), shown);
            assert_eq!(CpuList::parse(shown).unwrap_or_else(|bad| panic!("{shown}: {}", bad.right)), list);
        }
        for wrong in ["", "x", "3-1", "0,,1", "-1", "1-", "+1", "4096", "0-99999999999999999999"] {
            assert!(CpuList::parse(wrong).is_err(), "{wrong}");
        }
        let list = CpuList::parse("0,8-11").unwrap_or_else(|bad| panic!("{}", bad.right));
        assert_eq!(list.affinity(11), Err(11));
        assert_eq!(list.affinity(12).map(|set| set.ones().collect::<Vec<_>>()), Ok(vec![0, 8, 9, 10, 11]));
    }
}
