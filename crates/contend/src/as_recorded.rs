//! How a kernel begins under which recordings are replayed, or models of them.

use contend_sched::features::{Features, Preset};
use contend_workload::model::{NewidlePulls, Source};

/// Its features, as of when the recordings begin that are of as many CPUs: newidle balancing has had the success that it has in them, unless the
/// features say another than the preset. What other machines would have learned is not known.
pub(crate) fn as_recorded(features: &Features, preset: &Preset, nr_cpus: usize, sources: &[Source]) -> Features {
    let mut features = features.clone();
    let mut newidle = NewidlePulls::default();
    sources.iter().filter(|s| s.cpus as usize == nr_cpus).for_each(|s| newidle.add(s.newidle));
    if newidle.chances > 0 && features.newidle_ratio == preset.features.newidle_ratio {
        features.newidle_ratio = newidle.ratio();
    }
    features
}
