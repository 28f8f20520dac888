"""What work runs do: the keys of their workloads, as their resolved scenarios have them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from contend.result import Result

KIND = ".kind"
FILES = (".file", ".sessions", ".recorded_on")
"""Keys that name files. The same file may have several names: recordings are told apart by what was read of them."""
HOW = (".group", ".nice", ".pin", ".sched")
"""Keys that say where and how urgently tasks run, not what they do."""


def same_work(*results: Result) -> bool:
    """Did all of them do the same work to its end?"""
    todo = [{k: v for k, v in _work(r).items() if not k.endswith(HOW)} for r in results]
    # Some of it is so much for each CPU.
    if any(key.endswith("_per_cpu") for key in todo[0]):
        todo = [{**work, "cpus": r.summary["cpus"]} for work, r in zip(todo, results, strict=True)]
    return all(r.outcome == "finished" for r in results) and all(work == todo[0] for work in todo[1:])


def changed(result: Result, baseline: Result) -> dict[str, list[str]]:
    """How the workloads and groups differ: key to both values, baseline first.

    Where a workload is of another kind, that is said elsewhere, and says all: its keys are others.
    """
    new, old = ({**_work(r), **dict(_flat("groups", _resolved(r).get("groups", {})))} for r in (result, baseline))
    differ = [key for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key)]
    others = tuple(key.removesuffix(KIND) + "." for key in differ if key.endswith(KIND))
    return {key: [str(old.get(key, "none")), str(new.get(key, "none"))] for key in differ if not key.startswith(others)}


def _work(r: Result) -> dict[str, Any]:
    resolved = _resolved(r)
    found = dict(_flat("workload", resolved.get("workload", {})))
    for guest in resolved.get("guest", []):
        found |= _flat(f"{guest['name']}.workload", guest.get("workload", {}))
    read = [text.partition(": ")[2].partition("\n")[0] for text in r.summary["recordings"]]
    if read:
        found = {key: value for key, value in found.items() if not key.endswith(FILES)}
        found |= {f"recording {i}": text for i, text in enumerate(read, 1)}
    return found


def _resolved(r: Result) -> dict[str, Any]:
    return tomllib.loads(r.scenario_toml)


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{path}.{key}", inner)
    elif isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        for i, inner in enumerate(value, 1):
            yield from _flat(f"{path}.{i}", inner)
    else:
        yield path, value
