"""Running scenarios: conversion of Python's values to the compiled part's."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contend import _core, given
from contend.blame import naming
from contend.given import SetValue
from contend.result import Result

Progress = Callable[[int, "int | None", int, int], object]
"""Called some times a second with: virtual time in ns, end of the run in ns if it is known, tasks alive, dispatches."""


def run(
    scenario: str | os.PathLike[str] | Mapping[str, Any],
    *,
    machine: str | None = None,
    policy: str | None = None,
    set: Mapping[str, SetValue | Sequence[int]] | None = None,
    seed: int | None = None,
    horizon_s: float | None = None,
    warmup_s: float | None = None,
    trace: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Result:
    """Simulate a scenario.

    What is not None overrides what the scenario says, as the options of `contend run` do. The GIL is released for the
    whole run.

    Args:
        scenario: A path (scenario, rt-app file, recording, or a result's directory), or a mapping with a scenario's
            keys.
        machine: A shipped machine, a machine file, or a shape such as `2n2l8c2t`.
        policy: A preset.
        set: Features, costs, and keys of workload, hypervisor and guests, as `--set` takes them.
        seed: Of all random choices, 0 to 2^63 - 1.
        horizon_s: The run ends after so many virtual seconds if tasks live.
        warmup_s: What programs report in the first virtual seconds does not count.
        trace: A file to write the scheduling events to.
        out: A directory to store the result in.
        progress: Called some times a second.

    Returns:
        The result, whatever the outcome.

    Raises:
        ContendError: Something is refused; ScenarioInvalid if the scenario is to blame; Panicked if contend itself is.
        KeyboardInterrupt: Ctrl-C; nothing is written.
    """
    try:
        with naming(scenario):
            output = _core.run(
                **given.scenario(scenario),
                machine=given.text("machine", machine, given.MACHINE),
                policy=given.text("policy", policy, given.POLICY),
                set=given.sets(set),
                seed=given.seed(seed),
                horizon_s=given.number("horizon_s", horizon_s),
                warmup_s=given.number("warmup_s", warmup_s),
                trace=given.optional_path("trace", trace),
                out=given.optional_path("out", out),
                progress=progress,
            )
    except BaseException as e:
        # What happens inside the simulation is an outcome; a panic outside is an error of ours.
        if type(e).__name__ != "PanicException":
            raise
        raise Panicked(f"panic: an error of contend, please report it: {e}") from None
    return Result.of(output, None if out is None else Path(out))


class Panicked(_core.ContendError):
    """An error of contend itself: there is no result."""


def _list(what: str, of: str | None = None) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(_core.describe(what, given.text(what, of, "a name, as text")))
    return listed


def list_machines() -> list[dict[str, Any]]:
    """The machines that ship."""
    return _list("machines")


def list_workloads() -> list[dict[str, Any]]:
    """The workloads, each with its keys."""
    return _list("workloads")


def list_policies() -> list[dict[str, Any]]:
    """The scheduling algorithms."""
    return _list("policies")


def list_presets() -> list[dict[str, Any]]:
    """The presets (`policy=`), each with its features."""
    return _list("presets")


def list_features(policy: str | None = None) -> list[dict[str, Any]]:
    """The features (`set=`), with their values in a preset."""
    return _list("features", policy)


def list_kvm() -> list[dict[str, Any]]:
    """The hypervisor's switches (`set={"kvm.NAME": ...}`), with their defaults."""
    return _list("kvm")


def list_xen(preset: str | None = None) -> list[dict[str, Any]]:
    """Xen's switches (`set={"xen.NAME": ...}`), the 24 patches with their numbers, with their values in a preset."""
    return _list("xen", preset)


def list_counters() -> list[dict[str, Any]]:
    """What is counted of virtual machines: KVM's counters, the reasons of exits, and Xen's performance counters."""
    return _list("counters")


def list_costs(machine: str) -> list[dict[str, Any]]:
    """The costs of a machine (`set={"machine.NAME": ...}`), with their ranges and sources."""
    return _list("costs", machine)


def list_studies() -> list[dict[str, Any]]:
    """The studies that ship."""
    from contend.study.load import listed

    return listed()
