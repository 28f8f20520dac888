"""From a sweep to scenarios: the points, and for each a task that says everything that determines its result.

A task's key is a hash over the resolved scenario with the contents of its files, and over the build of contend. Equal
keys are equal results.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contend import _core
from contend._core import ContendError, ScenarioInvalid
from contend.given import text_of
from contend.sweeping.spec import Spec, absolute, names_file

Point = dict[str, Any]
"""A value for each key that varies."""

ARGUMENTS = ("machine", "policy", "seed", "horizon_s", "warmup_s")
"""Keys that override as an argument of `contend.run` does."""
TABLES = ("stall_s", "workload", "guest", "xen", "at")
"""Keys that are replaced in the scenario."""


@dataclass(frozen=True)
class Task:
    """A scenario to run: its text, whose files are named by their contents, and those files' digests by name.

    `machine` is a shipped machine or a shape; None: the machine is the file `machine.toml` among `files`.
    """

    key: str
    scenario: str
    machine: str | None
    files: tuple[tuple[str, str], ...] = ()


@functools.cache
def build() -> str:
    """What tells this contend from others: its version, and a hash of the compiled part."""
    return f"{_core.__version__}-{_digest(Path(_core.__file__))[:16]}"


def _digest(file: Path) -> str:
    with file.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def points(spec: Spec) -> Iterator[Point]:
    """All points: each random sample at each point of the grid, so that those are compared under equal draws."""
    drawn = [axis.draw(spec.seed, spec.samples) for axis in spec.random]
    samples: list[Point] = [{}]
    if drawn:
        samples = [{a.key: v for a, v in zip(spec.random, row, strict=True)} for row in zip(*drawn, strict=True)]
    for values in itertools.product(*(a.values for a in spec.grid)):
        at = {a.key: v for a, v in zip(spec.grid, values, strict=True)}
        for sample in samples:
            yield {**at, **sample}


@dataclass
class Tasks:
    """Makes tasks of a sweep's points. `inputs` are the files that they need, by digest."""

    spec: Spec
    inputs: dict[str, Path] = field(default_factory=dict)
    _digests: dict[Path, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scenario = self.spec.scenario
        self.base = self._base(Path(scenario)) if isinstance(scenario, str) else scenario

    def _base(self, path: Path) -> dict[str, Any]:
        """A scenario's file as a mapping with absolute names."""
        file = path / "scenario.toml" if (path / "scenario.toml").is_file() else path
        if file.suffix == ".toml":
            try:
                data = tomllib.loads(file.read_text(encoding="utf-8"))
            except OSError as e:
                where = self.spec.where("scenario")
                raise ScenarioInvalid(f"{where}: {path}: cannot be read: {(e.strerror or str(e)).lower()}") from e
            except (UnicodeDecodeError, tomllib.TOMLDecodeError):
                _core.resolve(path=path)  # says what is wrong, and in which line
                raise
            if {"workload", "guest", "xen"} & set(data) or not data:
                return absolute(data, file.parent)
        # rt-app files, recordings, models: scenarios of their own. The resolved text names the machine in a comment.
        machine = next((a.values[0] for a in self.spec.grid if a.key == "machine"), None)
        text = _core.resolve(path=path, machine=machine)
        data = tomllib.loads(text)
        base = path if path.is_dir() else path.parent
        named = re.search(r'^machine = "machine\.toml" # (.+)$', text, re.M)
        if machine is not None:
            del data["machine"]
        elif named and not (base / "machine.toml").is_file():
            data["machine"] = named[1]
        return absolute(data, base)

    def resolve(self, point: Point) -> tuple[str, str | None]:
        """The complete scenario of a point, and its machine if it is given by name. Raises ScenarioInvalid."""
        data = self.base
        arguments: dict[str, Any] = {}
        sets: list[tuple[str, str]] = []
        for key, value in point.items():
            head, _, rest = key.partition(".")
            named = rest.partition(".")
            if key in ARGUMENTS:
                arguments[key] = value
            elif key in TABLES or isinstance(value, dict):
                data = {**data, key: value}
            elif head == "guest" and named[2] and any(g.get("name") == named[0] for g in data.get("guest", [])):
                data = _in_guest(data, named[0], named[2], value)
            else:
                sets.append((rest if head == "set" else key, text_of(value)))
        for key in ("horizon_s", "warmup_s"):
            if key in arguments:
                arguments[key] = _number(key, arguments[key])
        if "seed" in arguments and not isinstance(arguments["seed"], int):
            raise ScenarioInvalid(f"seed: found {arguments['seed']!r}; should be a whole number")
        for key in ("machine", "policy"):
            if key in arguments and not isinstance(arguments[key], str):
                raise ScenarioInvalid(f"{key}: found {arguments[key]!r}; should be a name")
        try:
            text = _core.resolve(json=json.dumps(data), set=sets, **arguments)
        except OverflowError as e:
            raise ScenarioInvalid(f"seed: found {arguments['seed']}; should be from 0 to {(1 << 63) - 1}") from e
        machine = arguments.get("machine", data.get("machine"))
        return text, machine

    def task(self, point: Point) -> Task:
        """The task of a point. Raises ScenarioInvalid if the scenario is not right, or a file is missing."""
        text, machine = self.resolve(point)
        data = tomllib.loads(text)
        files: dict[str, str] = {}

        def own(file: str) -> str:
            digest = self._input(Path(file))
            name = f"inputs/{digest[:16]}/{Path(file).name}"
            files[name] = digest
            return name

        for owner in [data, *data.get("guest", [])]:
            if "workload" in owner:
                owner["workload"] = renamed(owner["workload"], own)
        of_file = machine is not None and machine.endswith(".toml")
        if of_file:
            files["machine.toml"] = self._input(Path(machine or ""))
        named = None if of_file else machine
        scenario = json.dumps(data, sort_keys=True)
        what = json.dumps([build(), scenario, named, sorted(files.items())])
        return Task(hashlib.sha256(what.encode()).hexdigest()[:32], scenario, named, tuple(sorted(files.items())))

    def _input(self, path: Path) -> str:
        if path not in self._digests:
            try:
                self._digests[path] = _digest(path)
            except OSError as e:
                raise ScenarioInvalid(f"{path}: cannot be read: {(e.strerror or str(e)).lower()}") from e
            self.inputs[self._digests[path]] = path
        return self._digests[path]

    def check(self) -> None:
        """Refuse a sweep without one valid scenario, naming the key that makes all of them invalid if one does."""
        first: ContendError | None = None
        for point in points(self.spec):
            try:
                self.task(point)
                return
            except ScenarioInvalid as e:
                first = first or e
        assert first is not None
        for axis in self.spec.axes:
            values = axis.values or axis.draw(self.spec.seed, self.spec.samples)
            whole = next(iter(points(self.spec)))
            rest = {k: v for k, v in whole.items() if k != axis.key}
            try:
                self.resolve(rest)
            except ScenarioInvalid:
                continue
            for value in values[:100]:
                try:
                    self.resolve({**rest, axis.key: value})
                except ScenarioInvalid as e:
                    kind = (axis.distribution or ("",))[0]
                    fits = kind.replace("uniform", "integers") if "a whole number" in str(e) else kind
                    advice = f"; {fits} draws such, not {kind}" if fits != kind else ""
                    raise ScenarioInvalid(f"{self.spec.where(axis.key)}: no value is possible: {e}{advice}") from e
        if isinstance(self.spec.scenario, str) and not Path(self.spec.scenario).is_dir():
            # The file's own message names the line.
            needed = {k: v for k, v in next(iter(points(self.spec))).items() if k in ("machine", "policy")}
            _core.resolve(path=self.spec.scenario, **needed)
        raise ScenarioInvalid(f"{self.spec.file}: no scenario of this sweep is possible: {first}") from first


def renamed(workload: Any, name: Any) -> Any:
    """A workload with its files renamed."""
    if isinstance(workload, dict):
        return {k: name(v) if names_file(k, v) else renamed(v, name) for k, v in workload.items()}
    return [renamed(v, name) for v in workload] if isinstance(workload, list) else workload


def _number(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ScenarioInvalid(f"{key}: found {value!r}; should be a number of seconds")
    return float(value)


def _in_guest(data: dict[str, Any], name: str, key: str, value: Any) -> dict[str, Any]:
    """A scenario with a key of one guest changed."""
    data = copy.deepcopy(data)
    for guest in data["guest"]:
        if guest.get("name") == name:
            *path, last = key.split(".")
            for part in path:
                guest = guest.setdefault(part, {})  # noqa: PLW2901
            guest[last] = value
    return data
