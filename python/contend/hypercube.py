"""Joint draws of what is uncertain, for bands: a machine's costs within their sourced ranges, and what else varies."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

Range = tuple[float, float, bool]
"""From, to, and whether values are whole numbers."""


def uncertain(costs: Iterable[Mapping[str, Any]]) -> dict[str, Range]:
    """The costs that have a range, by the key that `--set` takes. `costs` as `contend list costs` gives them."""
    return {f"machine.{c['name']}": (float(c["lo"]), float(c["hi"]), True) for c in costs if c["lo"] < c["hi"]}


def draw(
    ranges: Mapping[str, Range], count: int, name: str, own: Mapping[str, str] | None = None
) -> list[dict[str, float]]:
    """A Latin hypercube: each range is cut into `count` parts that are equally wide in the logarithm (linearly where a
    range begins at 0), and each part is drawn from once. A key is drawn alike wherever `name`, range and count are; one
    that `own` has, where its text there is the same, too.
    """
    drawn: list[dict[str, float]] = [{} for _ in range(count)]
    for key, (lo, hi, whole) in ranges.items():
        rng = random.Random(" ".join([name, key, *([own[key]] if own and key in own else [])]))
        places = rng.sample(range(count), count)
        for settings, place in zip(drawn, places, strict=True):
            u = (place + rng.random()) / count
            value = lo * (hi / lo) ** u if lo > 0 else lo + (hi - lo) * u
            settings[key] = round(value) if whole else value
    return drawn
