"""Options of `contend xen` that say what host a trace was recorded on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

DOMAINS_MAX = 0x7FF0
"""Domain numbers of Xen end before this one."""


def pcpus(text: str) -> list[int]:
    """pCPUs: 0-3,6."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        try:
            low, high = int(first), int(last or first)
        except ValueError:
            low, high = 0, -1
        if not 0 <= low <= high < 4096:
            raise click.BadParameter(f"found '{text}'; should be pCPUs such as 0-3,6")
        found.update(range(low, high + 1))
    return sorted(found)


def all_pcpus(text: str) -> list[int] | None:
    """pCPUs, or None for `all`."""
    return None if text == "all" else pcpus(text)


def number(low: int, high: int) -> Callable[[str], int]:
    """A whole number in a range."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise click.BadParameter(f"found '{text}'; should be from {low} to {high}")
        return int(text)

    return parse


def by_domain(parse: Callable[[str], Any], example: str) -> Callable[[Any, Any, tuple[str, ...]], dict[int, Any]]:
    """A callback for options `d1=...`, given once or more."""

    def callback(_ctx: Any, _param: Any, values: tuple[str, ...]) -> dict[int, Any]:
        found: dict[int, Any] = {}
        for value in values:
            name, equals, rest = value.partition("=")
            if not equals or not name.startswith("d") or not name[1:].isdecimal() or int(name[1:]) >= DOMAINS_MAX:
                raise click.BadParameter(f"found '{value}'; should be a domain and a value such as d1={example}")
            if int(name[1:]) in found:
                raise click.BadParameter(f"found {name} twice")
            found[int(name[1:])] = parse(rest)
        return found

    return callback


def weights(_ctx: Any, _param: Any, values: tuple[str, ...]) -> dict[int, int]:
    """A callback for weights, which may stand in a row: `d1=512,d2=256`."""
    parts = tuple(part for value in values for part in value.split(","))
    return by_domain(number(1, 65535), "512")(None, None, parts)


weights_option = click.option(
    "--weights", metavar="d1=512,...", multiple=True, callback=weights, help="Weights; 256 otherwise."
)
ratelimit_option = click.option(
    "--ratelimit", metavar="US", default=1000, type=click.IntRange(0, 500_000), help="In us (1000)."
)
