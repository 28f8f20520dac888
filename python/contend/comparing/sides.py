"""What is compared: a scenario that is run under several seeds, or repeats that are stored already."""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contend import given, hypercube
from contend._core import ContendError, resolve, scenario_costs
from contend.result import Result, load

Comparable = str | os.PathLike[str] | Mapping[str, Any]
"""A stored result, a directory of repeats, a scenario's file, or a mapping with its keys."""

SPEED = "cpu.speed"
"""The cost that is estimated for each machine by itself."""

SEED_LAST = (1 << 63) - 1


@dataclass
class Side:
    """One of the things compared.

    `scenario` makes its runs; `given` are repeats by seed where they are stored: then nothing is run. `costs` are the
    machine's by seed, where they are drawn.
    """

    name: str
    scenario: str | Mapping[str, Any]
    seed: int
    given: dict[int, Result] = field(default_factory=dict)
    stored: Result | None = None
    costs: dict[int, dict[str, float]] = field(default_factory=dict)

    def command(self, seed: int) -> str | None:
        """What makes its run of a seed again; None for a mapping."""
        if not isinstance(self.scenario, str):
            return None
        sets = [word for key, value in self.costs.get(seed, {}).items() for word in ("--set", f"{key}={value}")]
        return shlex.join(["contend", "run", self.scenario, "--seed", str(seed), *sets])

    def vary(self, seeds: Sequence[int]) -> None:
        """Draw the uncertain costs of its machine for each seed but the first.

        Costs of one key and range are drawn alike for all sides; but how fast a machine computes is drawn for each.

        Raises ContendError where there is nothing to draw.
        """
        if self.given:
            raise ContendError(f"--vary-machine: {self.name} is a directory of results, which are taken as they are; "
                               "should be a result or a scenario")  # fmt: skip
        costs = json.loads(scenario_costs(**given.scenario(self.scenario)))
        ranges = hypercube.uncertain(costs)
        if not ranges:
            raise ContendError(f"--vary-machine: no cost of the machine of {self.name} has a range; `contend list "
                               "costs --machine M` shows those of a machine")  # fmt: skip
        # Two machines are not wrong about their speeds in the same direction.
        own = {f"machine.{c['name']}": json.dumps(c) for c in costs if c["name"] == SPEED}
        self.costs = dict(zip(seeds[1:], hypercube.draw(ranges, len(seeds) - 1, "compare", own), strict=True))


def read(what: Comparable, number: int) -> Side:
    """Find out what an argument is. `number` names a mapping, which has no name.

    Raises ContendError for what is none of these, and for repeats that differ in more than the seed.
    """
    if isinstance(what, Mapping):
        return Side(f"scenario {number}", what, _seed(resolve(json=given.scenario_json(what))))
    path = Path(given.path(f"scenario {number}", what, f"{given.PATH}, or a mapping"))
    # A result, or a recording of `contend record`.
    if path.is_dir() and not any((path / file).is_file() for file in ("scenario.toml", "recording.toml")):
        return _repeats(path)
    if (path / "summary.json").is_file():
        stored = load(path)
        return Side(str(path), str(path), stored.summary["seed"], stored=stored)
    return Side(str(path), str(path), _seed(resolve(path=path)))


def _seed(resolved: str) -> int:
    return int(tomllib.loads(resolved)["seed"])


def _repeats(path: Path) -> Side:
    found = sorted(d for d in path.iterdir() if (d / "summary.json").is_file())
    if not found:
        raise ContendError(
            f"{path}: found a directory without results; should be a result, a directory of results, or a scenario"
        )
    given: dict[int, Result] = {}
    first = found[0]
    for directory in found:
        result = load(directory)
        for file in ("scenario.toml", "machine.toml"):
            if _unseeded(directory / file) != _unseeded(first / file):
                raise ContendError(
                    f"{directory / file}: differs from {first / file} in more than the seed; the results in "
                    f"{path} should be repeats of one scenario"
                )
        seed = result.summary["seed"]
        if seed in given:
            raise ContendError(f"{directory}: seed = {seed} is in {given[seed].path} too; repeats need different seeds")
        given[seed] = result
    if len(given) == 1:
        return read(first, 0)
    return Side(str(path), str(first), min(given), given)


def _unseeded(file: Path) -> list[str]:
    """A file of a result without its comments and seed."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise ContendError(f"{file}: cannot be read: {e}") from e
    return [line.partition(" #")[0] for line in lines if not line.startswith(("#", "seed = "))]


def seeds_of(sides: Sequence[Side], number: int) -> dict[int, Sequence[int]]:
    """The seeds of each side, by its place: those of its repeats, else `number` from the baseline's own seed on."""
    first = min(sides[0].seed, SEED_LAST - number)
    runs = range(first, first + number)
    return {i: sorted(side.given) if side.given else runs for i, side in enumerate(sides)}
