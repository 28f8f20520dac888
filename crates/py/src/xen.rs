//! Binary traces of Xen.

use std::path::PathBuf;
use std::sync::Mutex;

use contend::xen_audit::{self, Recorded};
use contend::xen_replay::{self, Given, Replay};
use contend::xen_trace::{self, XenTraceError};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use super::ContendError;

/// Runs `work` without the GIL. It asks now and then whether to go on, which Ctrl-C denies.
fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<T, XenTraceError> + Send,
) -> PyResult<T> {
    let mut stopped = None;
    let mut look = || {
        stopped = Python::attach(|py| py.check_signals()).err();
        stopped.is_none()
    };
    let result = py.detach(|| work(&mut look));
    if let Some(e) = stopped {
        return Err(e);
    }
    py.check_signals()?;
    result.map_err(error)
}

fn error(e: XenTraceError) -> PyErr {
    match e {
        XenTraceError::Interrupted => PyKeyboardInterrupt::new_err(()),
        e => ContendError::new_err(e.to_string()),
    }
}

/// The summary of a binary trace of Xen whose TSC runs at `cpu_hz`, as one JSON object.
#[pyfunction]
fn xen_trace_summary(py: Python<'_>, path: PathBuf, cpu_hz: u64) -> PyResult<String> {
    Ok(interruptible(py, |go_on| xen_trace::summary(&path, cpu_hz, go_on))?.to_string())
}

/// Writes the records of a binary trace of Xen again, in the order of time; what reading met, as one JSON object.
#[pyfunction]
fn xen_trace_rewrite(py: Python<'_>, path: PathBuf, out: PathBuf) -> PyResult<String> {
    Ok(interruptible(py, |go_on| xen_trace::rewrite(&path, &out, go_on))?.to_string())
}

/// Credit2's decisions in a binary trace of Xen against ours, as one JSON object.
#[pyfunction]
fn xen_trace_audit(
    py: Python<'_>,
    path: PathBuf,
    cpu_hz: u64,
    weights: Vec<(u16, u16)>,
    soft: Vec<(u16, Vec<u16>)>,
    ratelimit_us: u64,
    machine: Option<String>,
) -> PyResult<String> {
    let recorded = Recorded { cpu_hz, weights, soft, ratelimit_us, machine };
    Ok(interruptible(py, |go_on| xen_audit::run(&path, &recorded, go_on))?.to_string())
}

/// A domain by number: weight, cap, pCPUs that its vCPUs may use and prefer.
type Domain = (u16, Option<u16>, Option<u16>, Option<Vec<u16>>, Option<Vec<u16>>);

/// The load of a binary trace of Xen on a simulated host, as one JSON object.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "named in Python")]
fn xen_trace_replay(
    py: Python<'_>,
    path: PathBuf,
    cpu_hz: u64,
    scheduler: String,
    preset: String,
    machine: Option<String>,
    ratelimit_us: u64,
    domains: Vec<Domain>,
    seed: u64,
) -> PyResult<String> {
    let given = |(dom, weight, cap, hard, soft)| (dom, Given { weight, cap, hard, soft });
    let domains = domains.into_iter().map(given).collect();
    let replay = Replay { cpu_hz, scheduler, preset, machine, ratelimit_us, domains, seed };
    Ok(interruptible(py, |go_on| xen_replay::run(&path, &replay, go_on))?.to_string())
}

/// The records of a binary trace of Xen in the order of time, as lines of text or JSON.
#[pyclass(frozen, module = "contend._core")]
struct XenTraceDump(Mutex<xen_trace::Dump>);

#[pymethods]
impl XenTraceDump {
    #[new]
    #[pyo3(signature = (path, cpu_hz, json=false))]
    fn new(path: PathBuf, cpu_hz: u64, json: bool) -> PyResult<Self> {
        Ok(Self(Mutex::new(xen_trace::Dump::open(&path, cpu_hz, json).map_err(error)?)))
    }
    /// Some more lines; "" at the end.
    fn part(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.lock().expect("no panic while it was held").part()).map_err(error)
    }
    /// What reading has met, as one JSON object.
    fn reading(&self) -> String {
        self.0.lock().expect("no panic while it was held").reading().to_string()
    }
}

/// What xl would list of the Xen host of a scenario at a virtual time, as one JSON object; "null" if the host is not Xen's.
/// The scenario's text is checked as if it stood in the file `path`.
#[pyfunction]
#[pyo3(signature = (path, at_s=0.0, text=None))]
fn xen_listing(path: PathBuf, at_s: f64, text: Option<&str>) -> PyResult<String> {
    let scenario = match text {
        None => contend::Scenario::from_path(&path),
        Some(text) => {
            let base = path.parent().unwrap_or(std::path::Path::new(""));
            contend::Scenario::parse(text, &path.display().to_string(), base)
        }
    };
    let plan = scenario.and_then(|s| s.plan()).map_err(super::scenario_error)?;
    let listing = plan.xen_listing((at_s * 1e9).round() as u64);
    Ok(listing.map_or("null".into(), |v| v.to_string()))
}

/// Adds what is here to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<XenTraceDump>()?;
    m.add_function(wrap_pyfunction!(xen_listing, m)?)?;
    m.add_function(wrap_pyfunction!(xen_trace_summary, m)?)?;
    m.add_function(wrap_pyfunction!(xen_trace_audit, m)?)?;
    m.add_function(wrap_pyfunction!(xen_trace_replay, m)?)?;
    m.add_function(wrap_pyfunction!(xen_trace_rewrite, m)?)
}
