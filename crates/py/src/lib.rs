//! Python bindings: conversion and errors only; `python/contend/_core.pyi` is the interface.
//!
//! A run holds no GIL: it takes it back some times a second, to report progress and to look for Ctrl-C.

mod model;
mod xen;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use contend::{Outcome, Plan, RunError, RunOptions, Scenario, ScenarioError, Status};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyError, PyKeyboardInterrupt};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

create_exception!(contend._core, ContendError, PyException, "Whatever contend refuses, and why.");
create_exception!(contend._core, ScenarioInvalid, ContendError, "A scenario, or a file it names, is not right.");

/// Time between two looks at Python.
const LOOK: Duration = Duration::from_millis(100);

fn scenario_error(e: ScenarioError) -> PyErr {
    ScenarioInvalid::new_err(e.to_string())
}

fn run_error(e: RunError) -> PyErr {
    match e {
        RunError::Scenario(e) => scenario_error(e),
        e => ContendError::new_err(e.to_string()),
    }
}

/// A finished run.
#[pyclass(frozen, module = "contend._core")]
struct Output(contend::Output);

#[pymethods]
impl Output {
    #[getter]
    fn summary_json(&self) -> String {
        self.0.summary_json()
    }
    #[getter]
    fn scenario_toml(&self) -> &str {
        self.0.scenario_toml()
    }
    #[getter]
    fn wall_s(&self) -> f64 {
        self.0.wall_s
    }
    #[getter]
    fn cpu_s(&self) -> f64 {
        self.0.cpu_s
    }
    fn table<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyBytes>> {
        let table = self.0.tables.iter().find(|(n, _)| *n == name);
        let (_, bytes) = table.ok_or_else(|| PyKeyError::new_err(name.to_string()))?;
        Ok(PyBytes::new(py, bytes))
    }
    fn write(&self, py: Python<'_>, dir: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.write(&dir)).map_err(run_error)
    }
}

/// A scenario, a file or a JSON object, with overrides.
#[derive(Default)]
struct Asked {
    path: Option<PathBuf>,
    json: Option<String>,
    machine: Option<String>,
    policy: Option<String>,
    set: Vec<(String, String)>,
    seed: Option<u64>,
    horizon_s: Option<f64>,
    warmup_s: Option<f64>,
}

impl Asked {
    fn plan(&self) -> Result<Plan, ScenarioError> {
        let mut scenario = match (&self.path, &self.json) {
            (Some(path), None) => Scenario::from_path(path)?,
            (None, Some(json)) => Scenario::from_json(json, Path::new(""))?,
            _ => unreachable!("python/contend gives one of them"),
        };
        self.machine.iter().for_each(|m| scenario.set_machine(m));
        self.policy.iter().for_each(|p| scenario.set_policy(p));
        self.seed.iter().for_each(|s| scenario.set_seed(*s));
        self.horizon_s.map_or(Ok(()), |s| scenario.set_horizon_s(s))?;
        self.warmup_s.map_or(Ok(()), |s| scenario.set_warmup_s(s))?;
        self.set.iter().try_for_each(|(key, value)| scenario.set(key, value))?;
        scenario.plan()
    }
}

/// What a simulation asks now and then whether to go on: reports progress, and looks for Ctrl-C. What Python raises is left in
/// `stopped`.
fn looking<'a>(
    progress: Option<&'a Py<PyAny>>,
    stopped: &'a mut Option<PyErr>,
) -> impl FnMut(Status) -> bool + Send + 'a {
    let mut looked = Instant::now();
    move |status: Status| {
        if looked.elapsed() < LOOK {
            return true;
        }
        let answer = Python::attach(|py| {
            py.check_signals()?;
            let Some(f) = progress else { return Ok(()) };
            f.call1(py, (status.now, status.horizon, status.alive, status.dispatches)).map(drop)
        });
        looked = Instant::now();
        *stopped = answer.err();
        stopped.is_none()
    }
}

/// Run a scenario: a file (`path`) or a JSON object (`json`), with overrides.
#[pyfunction]
#[pyo3(signature = (*, path=None, json=None, machine=None, policy=None, set=vec![], seed=None, horizon_s=None,
                    warmup_s=None, trace=None, out=None, progress=None))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
fn run(
    py: Python<'_>,
    path: Option<PathBuf>,
    json: Option<String>,
    machine: Option<String>,
    policy: Option<String>,
    set: Vec<(String, String)>,
    seed: Option<u64>,
    horizon_s: Option<f64>,
    warmup_s: Option<f64>,
    trace: Option<PathBuf>,
    out: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Output> {
    let asked = Asked { path, json, machine, policy, set, seed, horizon_s, warmup_s };
    let mut stopped = None;
    let mut look = looking(progress.as_ref(), &mut stopped);
    let result = py.detach(|| {
        let plan = asked.plan()?;
        out.as_deref().map_or(Ok(()), contend::result::check_target)?;
        contend::run(&plan, RunOptions { trace: trace.as_deref(), progress: Some(&mut look) })
    });
    drop(look);
    if let Some(e) = stopped {
        return Err(e);
    }
    let output = result.map_err(run_error)?;
    // A signal that came after the last look.
    py.check_signals()?;
    if output.outcome == Outcome::Interrupted {
        return Err(PyKeyboardInterrupt::new_err(()));
    }
    if let Some(out) = out {
        py.detach(|| output.write(&out)).map_err(run_error)?;
    }
    Ok(Output(output))
}

/// The complete scenario that `run` would simulate, as TOML; nothing runs. Files that it names keep their names.
#[pyfunction]
#[pyo3(signature = (*, path=None, json=None, machine=None, policy=None, set=vec![], seed=None, horizon_s=None,
                    warmup_s=None))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
fn resolve(
    path: Option<PathBuf>,
    json: Option<String>,
    machine: Option<String>,
    policy: Option<String>,
    set: Vec<(String, String)>,
    seed: Option<u64>,
    horizon_s: Option<f64>,
    warmup_s: Option<f64>,
) -> PyResult<String> {
    let plan = Asked { path, json, machine, policy, set, seed, horizon_s, warmup_s }.plan().map_err(scenario_error)?;
    Ok(plan.resolved_toml(&BTreeMap::new()))
}

/// The costs of a scenario's machine, as `describe("costs")` gives them; one that the scenario sets has no range, nor its speed where only
/// its own speed decides.
#[pyfunction]
#[pyo3(signature = (*, path=None, json=None))]
fn scenario_costs(path: Option<PathBuf>, json: Option<String>) -> PyResult<String> {
    let asked = Asked { path, json, ..Asked::default() };
    let plan = asked.plan().map_err(scenario_error)?;
    let machine = contend::uncertain_machine(&plan).map_err(scenario_error)?;
    Ok(contend::describe::costs_of(&machine).to_string())
}

/// What there is, as a JSON array of objects: machines, workloads, policies, features, presets, costs, kvm or counters.
#[pyfunction]
#[pyo3(signature = (what, of=None))]
fn describe(what: &str, of: Option<&str>) -> PyResult<String> {
    contend::describe::list(what, of).map(|v| v.to_string()).map_err(scenario_error)
}

/// Measures the machine at hand: a report as one JSON object, with the machine file as its `toml`. `progress` is called
/// with the share of the work that is done.
#[pyfunction]
#[pyo3(signature = (*, quick=false, name=None, budget_ms=None, progress=None))]
fn probe(
    py: Python<'_>,
    quick: bool,
    name: Option<String>,
    budget_ms: Option<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut stopped = None;
    let mut looked = Instant::now();
    let mut look = |done: f64| {
        if looked.elapsed() < LOOK {
            return true;
        }
        let answer = Python::attach(|py| {
            py.check_signals()?;
            let Some(f) = &progress else { return Ok(()) };
            f.call1(py, (done,)).map(drop)
        });
        looked = Instant::now();
        stopped = answer.err();
        stopped.is_none()
    };
    let budget = budget_ms.map(Duration::from_millis);
    let options = contend_probe::Options { quick, name, budget };
    let result = py.detach(|| contend_probe::probe(&options, &mut look));
    if let Some(e) = stopped {
        return Err(e);
    }
    py.check_signals()?;
    let report = result.map_err(|e| ContendError::new_err(e.to_string()))?;
    serde_json::to_string(&report).map_err(|e| ContendError::new_err(e.to_string()))
}

/// Makes a machine file without measuring: of this machine, a copied sysfs tree, or hwloc's XML; a report as one JSON
/// object, with the machine file as its `toml`.
#[pyfunction]
#[pyo3(signature = (*, sysfs=None, lstopo=None, slit=None, name=None))]
fn machine_import(
    py: Python<'_>,
    sysfs: Option<PathBuf>,
    lstopo: Option<PathBuf>,
    slit: Option<PathBuf>,
    name: Option<String>,
) -> PyResult<String> {
    let from = contend_probe::import::From { sysfs, lstopo, slit, name };
    let made = py.detach(|| contend_probe::import::import(&from)).map_err(|e| ContendError::new_err(e.to_string()))?;
    serde_json::to_string(&made).map_err(|e| ContendError::new_err(e.to_string()))
}

fn bench_error(e: impl std::fmt::Display) -> PyErr {
    ContendError::new_err(e.to_string())
}

fn bench_load(json: &str) -> PyResult<contend_bench::Load> {
    serde_json::from_str(json).map_err(|e| bench_error(format!("load: {e}")))
}

/// The locks of the benchmark, as a JSON object of three arrays: `native`, `simulated` and `bare`, each of objects with
/// `name` and `doc`.
#[pyfunction]
fn bench_locks() -> String {
    use contend_bench::{bare, contenders, simulated};
    let list = |names: &[&str], describe: fn(&str) -> Option<&'static str>| -> serde_json::Value {
        names.iter().map(|n| serde_json::json!({ "name": n, "doc": describe(n) })).collect()
    };
    let (native, bare) = (list(contenders::NAMES, contenders::describe), list(bare::NAMES, bare::describe));
    let simulated = list(simulated::NAMES, bare::describe);
    serde_json::json!({ "native": native, "simulated": simulated, "bare": bare }).to_string()
}

/// Runs one lock on OS threads once, under a load (a JSON object): a row as one JSON object.
#[pyfunction]
#[pyo3(signature = (lock, load, repeat=0))]
fn bench_native(py: Python<'_>, lock: &str, load: &str, repeat: u32) -> PyResult<String> {
    let load = bench_load(load)?;
    let row = py.detach(|| contend_bench::native::run(lock, &load, repeat)).map_err(bench_error)?;
    serde_json::to_string(&row).map_err(bench_error)
}

/// Runs one lock on threads of a simulated machine under a policy, with a load (a JSON object): a row as one JSON object.
#[pyfunction]
#[pyo3(signature = (lock, machine, policy, load, repeat=0))]
fn bench_simulated(
    py: Python<'_>,
    lock: &str,
    machine: &str,
    policy: &str,
    load: &str,
    repeat: u32,
) -> PyResult<String> {
    use contend_bench::simulated::{On, run};
    let load = bench_load(load)?;
    let machine = contend_machine::Machine::load(machine).map_err(bench_error)?;
    let unknown = || bench_error(format!("policy: found \"{policy}\"; `contend list presets` lists all"));
    let preset = contend::Preset::find(policy).ok_or_else(unknown)?;
    let row = py.detach(|| run(lock, &load, repeat, &On { machine: &machine, preset: &preset }));
    serde_json::to_string(&row.map_err(bench_error)?).map_err(bench_error)
}

/// Runs one lock on bare CPUs of a simulated machine, under a load (a JSON object): a row as one JSON object.
#[pyfunction]
fn bench_bare(py: Python<'_>, lock: &str, machine: &str, load: &str) -> PyResult<String> {
    let load = bench_load(load)?;
    let machine = contend_machine::Machine::load(machine).map_err(bench_error)?;
    let row = py.detach(|| contend_bench::bare::run(lock, &machine, &load)).map_err(bench_error)?;
    serde_json::to_string(&row).map_err(bench_error)
}

#[pymodule]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add("SCHEMA", contend::result::SCHEMA)?;
    m.add("TABLES", contend::result::TABLES.to_vec())?;
    m.add("ContendError", m.py().get_type::<ContendError>())?;
    m.add("ScenarioInvalid", m.py().get_type::<ScenarioInvalid>())?;
    m.add_class::<Output>()?;
    m.add_function(wrap_pyfunction!(run, m)?)?;
    m.add_function(wrap_pyfunction!(resolve, m)?)?;
    m.add_function(wrap_pyfunction!(describe, m)?)?;
    m.add_function(wrap_pyfunction!(scenario_costs, m)?)?;
    m.add_function(wrap_pyfunction!(probe, m)?)?;
    m.add_function(wrap_pyfunction!(machine_import, m)?)?;
    m.add_function(wrap_pyfunction!(bench_locks, m)?)?;
    m.add_function(wrap_pyfunction!(bench_native, m)?)?;
    m.add_function(wrap_pyfunction!(bench_simulated, m)?)?;
    m.add_function(wrap_pyfunction!(bench_bare, m)?)?;
    m.add_function(wrap_pyfunction!(model::model, m)?)?;
    m.add_function(wrap_pyfunction!(model::validate, m)?)?;
    xen::register(m)
}
