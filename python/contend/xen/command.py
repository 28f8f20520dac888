"""`contend xen`."""

from __future__ import annotations

import click

from contend.xen import hosts, trace


@click.group()
def xen() -> None:
    """Tools for Xen."""


xen.add_command(trace.command)
xen.add_command(hosts.sched_credit)
xen.add_command(hosts.sched_credit2)
xen.add_command(hosts.vcpu_list)
