"""contend: a wind tunnel for CPU schedulers and locks.

>>> import contend
>>> result = contend.run({"machine": "4c", "horizon_s": 0.1, "workload": {"kind": "periodic", "tasks": 8}})
>>> result.outcome
'horizon'
>>> result["ledger"].columns
['account', 'ns', 'share']

`run` simulates a scenario and returns a `Result`; `load` reads a stored one. Simulations hold no GIL: run them in
threads, side by side. Whatever is refused raises `ContendError`; what happens inside a simulation (a deadlock, a stall,
a policy that errs) is no exception but the result's `outcome`.
"""

from contend._core import ContendError, ScenarioInvalid, __version__
from contend.result import Result, load
from contend.run import (
    Progress,
    list_features,
    list_machines,
    list_policies,
    list_presets,
    list_workloads,
    run,
)

__all__ = [
    "ContendError",
    "Progress",
    "Result",
    "ScenarioInvalid",
    "__version__",
    "list_features",
    "list_machines",
    "list_policies",
    "list_presets",
    "list_workloads",
    "load",
    "run",
]
