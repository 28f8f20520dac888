"""The compiled part: conversion and errors only. Use the package `contend`, not this module."""

from collections.abc import Callable
from os import PathLike
from typing import final

__all__ = [
    "SCHEMA",
    "TABLES",
    "ContendError",
    "Output",
    "ScenarioInvalid",
    "XenTraceDump",
    "__version__",
    "bench_bare",
    "bench_locks",
    "bench_native",
    "bench_simulated",
    "describe",
    "machine_import",
    "model",
    "probe",
    "resolve",
    "run",
    "scenario_costs",
    "validate",
    "xen_listing",
    "xen_trace_audit",
    "xen_trace_replay",
    "xen_trace_rewrite",
    "xen_trace_summary",
]

__version__: str
SCHEMA: int
TABLES: list[str]

class ContendError(Exception): ...
class ScenarioInvalid(ContendError): ...

@final
class Output:
    @property
    def summary_json(self) -> str: ...
    @property
    def scenario_toml(self) -> str: ...
    @property
    def wall_s(self) -> float: ...
    @property
    def cpu_s(self) -> float: ...
    def table(self, name: str) -> bytes: ...
    def write(self, dir: str | PathLike[str]) -> None: ...

def run(
    *,
    path: str | PathLike[str] | None = None,
    json: str | None = None,
    machine: str | None = None,
    policy: str | None = None,
    set: list[tuple[str, str]] = ...,
    seed: int | None = None,
    horizon_s: float | None = None,
    warmup_s: float | None = None,
    trace: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    progress: Callable[[int, int | None, int, int], object] | None = None,
) -> Output: ...
def resolve(
    *,
    path: str | PathLike[str] | None = None,
    json: str | None = None,
    machine: str | None = None,
    policy: str | None = None,
    set: list[tuple[str, str]] = ...,
    seed: int | None = None,
    horizon_s: float | None = None,
    warmup_s: float | None = None,
) -> str: ...
def scenario_costs(*, path: str | PathLike[str] | None = None, json: str | None = None) -> str: ...
def describe(what: str, of: str | None = None) -> str: ...
def probe(
    *,
    quick: bool = False,
    name: str | None = None,
    budget_ms: int | None = None,
    progress: Callable[[float], object] | None = None,
) -> str: ...
def machine_import(
    *,
    sysfs: str | PathLike[str] | None = None,
    lstopo: str | PathLike[str] | None = None,
    slit: str | PathLike[str] | None = None,
    name: str | None = None,
) -> str: ...
def model(
    path: str | PathLike[str],
    *,
    command: str = "",
    all: bool = False,
    cpu_hz: int | None = None,
    out: str | PathLike[str] | None = None,
) -> str: ...
def validate(
    *,
    path: str | PathLike[str],
    machine: str | None = None,
    policy: str | None = None,
    set: list[tuple[str, str]] = ...,
    seed: int | None = None,
    progress: Callable[[int, int | None, int, int], object] | None = None,
) -> str: ...
def xen_listing(path: str | PathLike[str], at_s: float = 0.0, text: str | None = None) -> str: ...
def bench_locks() -> str: ...
def bench_native(lock: str, load: str, repeat: int = 0) -> str: ...
def bench_bare(lock: str, machine: str, load: str) -> str: ...
def bench_simulated(lock: str, machine: str, policy: str, load: str, repeat: int = 0) -> str: ...
def xen_trace_summary(path: str | PathLike[str], cpu_hz: int) -> str: ...
def xen_trace_audit(
    path: str | PathLike[str],
    cpu_hz: int,
    weights: list[tuple[int, int]],
    soft: list[tuple[int, list[int]]],
    ratelimit_us: int,
    machine: str | None,
) -> str: ...
def xen_trace_replay(
    path: str | PathLike[str],
    cpu_hz: int,
    scheduler: str,
    preset: str,
    machine: str | None,
    ratelimit_us: int,
    domains: list[tuple[int, int | None, int | None, list[int] | None, list[int] | None]],
    seed: int,
) -> str: ...
def xen_trace_rewrite(path: str | PathLike[str], out: str | PathLike[str]) -> str: ...

@final
class XenTraceDump:
    def __new__(cls, path: str | PathLike[str], cpu_hz: int, json: bool = False) -> XenTraceDump: ...
    def part(self) -> str: ...
    def reading(self) -> str: ...
