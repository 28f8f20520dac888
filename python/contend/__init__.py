"""contend: a wind tunnel for CPU schedulers and locks.

Examples:
    >>> import contend
    >>> result = contend.run({"machine": "4c", "horizon_s": 0.1, "workload": {"kind": "periodic", "tasks": 8}})
    >>> result.outcome
    'horizon'
    >>> result["ledger"].columns
    ['account', 'ns', 'share']

`run` simulates a scenario and returns a `Result`; `load` reads a stored one. `compare` says how results differ and
how sure that is, `sweep` runs grids and samples of scenarios. `model` turns a recording into a workload to edit and
share, `validate` says how true its replay is. `probe` measures the machine at hand. `reproduce` simulates a published
study and compares, `fit` derives its fitted parameters again. Simulations hold no GIL: run them in threads, side by
side. Whatever is refused raises `ContendError`; what happens inside a simulation (a deadlock, a stall, a policy that
errs) is no exception but the result's `outcome`.
"""

# ruff: noqa: E402
from contend import _early

_early.watch()

from typing import TYPE_CHECKING, Any

from contend._core import ContendError, ScenarioInvalid, __version__
from contend.result import Result, load
from contend.run import (
    Progress,
    list_costs,
    list_counters,
    list_features,
    list_kvm,
    list_machines,
    list_policies,
    list_presets,
    list_studies,
    list_workloads,
    list_xen,
    run,
)

if TYPE_CHECKING:
    from contend.comparing.comparison import Comparison, compare
    from contend.modelling.model import model
    from contend.modelling.validate import validate
    from contend.probing import probe
    from contend.study.fitting import Fit, fit
    from contend.study.reproduction import Reproduction, reproduce
    from contend.study.section import StudyInvalid
    from contend.sweeping.sweep import Incomplete, Sweep, sweep

__all__ = [
    "Comparison",
    "ContendError",
    "Fit",
    "Incomplete",
    "Progress",
    "Reproduction",
    "Result",
    "ScenarioInvalid",
    "StudyInvalid",
    "Sweep",
    "__version__",
    "compare",
    "fit",
    "list_costs",
    "list_counters",
    "list_features",
    "list_kvm",
    "list_machines",
    "list_policies",
    "list_presets",
    "list_studies",
    "list_workloads",
    "list_xen",
    "load",
    "model",
    "probe",
    "reproduce",
    "run",
    "sweep",
    "validate",
]

_LAZY = {
    "Comparison": "comparing.comparison",
    "Fit": "study.fitting",
    "Incomplete": "sweeping.sweep",
    "Reproduction": "study.reproduction",
    "StudyInvalid": "study.section",
    "Sweep": "sweeping.sweep",
    "compare": "comparing.comparison",
    "fit": "study.fitting",
    "model": "modelling.model",
    "probe": "probing",
    "reproduce": "study.reproduction",
    "sweep": "sweeping.sweep",
    "validate": "modelling.validate",
}


def __getattr__(name: str) -> Any:
    """Studies and the probe are imported when they are used: the package loads without them."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"contend.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
