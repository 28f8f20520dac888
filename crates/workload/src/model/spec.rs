//! The workload `model`.

use contend_sim::program::Workload;

use super::play::{PlayOptions, play};
use super::{Model, ModelError, Source, fitted};
use crate::spec::TASKS_MAX;
use crate::spec::keys::spec;
use crate::speed::Rescaled;

spec! {
    /// A model, as `contend model` makes of a recording (docs/models.md): exact or fitted. Ends with the model's tasks.
    pub struct ModelSpec = "model" {
        /// The file, relative to the scenario.
        file: String [()] = String::new(), "path";
        /// How many times side by side. Default: once.
        copies: u64 [1..=100_000] = 1, "copies";
        /// Factor by which run times shrink: sleeps for timers and devices keep their length. Default: as recorded.
        speed: f64 [0.001..=1000.0] = 1.0, "";
        /// Jobs at once, where the model has job structure (make -j). Default: 0, as recorded.
        jobs: u64 [0..=100_000] = 0, "jobs";
    }
}

impl ModelSpec {
    /// Add the model's tasks to `w`, for a machine of such a `cpu.speed`; `bytes` is the file.
    ///
    /// # Errors
    /// Not a model; too many tasks; no job structure where jobs are asked for.
    pub fn build(&self, w: &mut Workload, speed: u64, bytes: &[u8]) -> Result<(Source, Rescaled), ModelError> {
        let model = Model::parse(bytes, &self.file)?;
        let wrong = |key: &str, what: String| ModelError {
            file: self.file.clone(),
            line: super::file::Line(0),
            key: format!(": {key}"),
            what,
        };
        let (tasks, jobs) = match &model {
            Model::Exact(m) => (m.tasks.len() as u64, m.jobs.is_some()),
            Model::Fitted(m) => {
                let tasks = m.roles.iter().map(|r| u64::from(r.tasks)).sum();
                (tasks, m.roles.iter().any(|r| r.starts.iter().any(|s| s.at_once > 1)))
            }
        };
        if tasks * self.copies > TASKS_MAX {
            let found = format!("{} tasks in {} copies", tasks * self.copies, self.copies);
            return Err(wrong("copies", format!("found {found}; should be at most {TASKS_MAX} tasks")));
        }
        if self.jobs > 0 && !jobs {
            let right = "0: no task in it starts others a few at a time, as make -j and xargs -P do; copies widens it";
            return Err(wrong("jobs", format!("found {}; should be {right}", self.jobs)));
        }
        let jobs = (self.jobs > 0).then_some(self.jobs as u32);
        let source = model.source().clone();
        let recorded = source.machine_speed;
        let rescaled = Rescaled { file: self.file.clone(), recorded, recorded_on: None, here: speed };
        let options = PlayOptions { copies: self.copies, speed: self.speed * rescaled.factor(), jobs };
        match model {
            Model::Exact(m) => play(m, w, options),
            Model::Fitted(m) => fitted::play(m, w, options),
        }
        Ok((source, rescaled))
    }
}
