//! How a kernel begins under which recordings are replayed.

use contend_sched::features::{Features, Preset};
use contend_workload::recording::{NewidlePulls, RecordingReport};

/// A kernel's features as of when recordings begin that are replayed under it on as many CPUs as they are of: newidle balancing has had the
/// success that it has in them, unless the features say another than the preset. What other machines would have learned is not known.
pub(crate) fn as_recorded(
    features: &Features,
    preset: &Preset,
    nr_cpus: usize,
    recordings: &[RecordingReport],
) -> Features {
    let mut features = features.clone();
    let mut newidle = NewidlePulls::default();
    let of_as_many = |r: &&RecordingReport| r.read.as_ref().is_some_and(|read| read.cpus.len() == nr_cpus);
    recordings.iter().filter(of_as_many).for_each(|r| newidle.add(r.newidle));
    if newidle.chances > 0 && features.newidle_ratio == preset.features.newidle_ratio {
        features.newidle_ratio = newidle.ratio();
    }
    features
}
