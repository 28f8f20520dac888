//! Recordings as models, and recordings against their replays.

use std::path::PathBuf;

use contend::RunError;
use contend::model::Which;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use super::{Asked, looking, run_error};

/// What a recording or a model holds, as one JSON object; written to `out` as a model, if that is given.
#[pyfunction]
#[pyo3(signature = (path, *, command="", all=false, cpu_hz=None, out=None))]
pub fn model(
    py: Python<'_>,
    path: PathBuf,
    command: &str,
    all: bool,
    cpu_hz: Option<u64>,
    out: Option<PathBuf>,
) -> PyResult<String> {
    let which = Which { command: command.into(), all, cpu_hz };
    let said = py.detach(|| contend::model::model(&path, &which, out.as_deref())).map_err(run_error)?;
    py.check_signals()?;
    Ok(said.to_string())
}

/// A recording and its replay, compared: one JSON object.
#[pyfunction]
#[pyo3(signature = (*, path, machine=None, policy=None, set=vec![], seed=None, progress=None))]
pub fn validate(
    py: Python<'_>,
    path: PathBuf,
    machine: Option<String>,
    policy: Option<String>,
    set: Vec<(String, String)>,
    seed: Option<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let asked = Asked { path: Some(path), json: None, machine, policy, set, seed, horizon_s: None, warmup_s: None };
    let mut stopped = None;
    let mut look = looking(progress.as_ref(), &mut stopped);
    let result = py.detach(|| {
        let plan = asked.plan().map_err(RunError::from)?;
        contend::validate::validate(&plan, &mut look)
    });
    drop(look);
    if let Some(e) = stopped {
        return Err(e);
    }
    let said = result.map_err(run_error)?;
    py.check_signals()?;
    if said.outcome == "interrupted" {
        return Err(PyKeyboardInterrupt::new_err(()));
    }
    Ok(serde_json::to_string(&said).expect("plain values"))
}
