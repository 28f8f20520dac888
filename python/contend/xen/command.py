"""`contend xen`."""

from __future__ import annotations

import click

from contend.xen import audit, hosts, replay, trace


@click.group()
def xen() -> None:
    """Tools for Xen."""


for command in (
    trace.command,
    audit.command,
    replay.command,
    hosts.sched_credit,
    hosts.sched_credit2,
    hosts.vcpu_list,
):
    xen.add_command(command)
