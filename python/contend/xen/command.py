"""`contend xen`."""

from __future__ import annotations

import click

from contend.xen import trace


@click.group()
def xen() -> None:
    """Tools for Xen."""


xen.add_command(trace.command)
