"""`contend bench locks`."""

from __future__ import annotations

import json
from typing import Any

import click

from contend._core import ContendError
from contend.bench import locks as benching
from contend.progress import RunsProgress
from contend.working import EXIT_OK, working

DOUBLED = (1, 2, 4, 8, 16, 32, 64)
THREADS_MAX = 1024
REPEAT_MAX = 1000
NS_MAX = 1_000_000_000
WORLDS = ("native", "simulated", "bare")
MACHINE_SIMULATED = "epyc-2vcpu"
MACHINE_BARE = "8n8c8t"
POLICY = "linux-6.18"


def _whole(text: str, least: int, most: int) -> int:
    # Python refuses to read a number of thousands of digits.
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and least <= int(text) <= most):
        raise click.BadParameter(f"found '{text[:40]}'; should be a whole number from {least:,} to {most:,}")
    return int(text)


def _names(_ctx: click.Context, _param: click.Parameter, text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names):
        raise click.BadParameter(f"found '{text}'; should be names of locks with commas between, such as adaptive,std")
    return names


def _threads(_ctx: click.Context, _param: click.Parameter, text: str | None) -> list[int] | None:
    if text is None:
        return None
    return list(dict.fromkeys(_whole(part.strip(), 1, THREADS_MAX) for part in text.split(",")))


def _think(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[int, int]:
    first, comma, last = text.partition(",")
    lo = _whole(first.strip(), 0, NS_MAX)
    hi = _whole(last.strip(), 0, NS_MAX) if comma else lo
    if lo > hi:
        raise click.BadParameter(f"found '{text}'; should be the shortest and the longest, such as 250,750")
    return lo, hi


def _number(least: int, most: int) -> Any:
    return lambda _ctx, _param, text: None if text is None else _whole(text, least, most)


def _seconds(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    try:
        seconds = None if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if seconds is not None and not 0.001 <= seconds <= 100:
        raise click.BadParameter(f"found '{text}'; should be a number of seconds from 0.001 to 100")
    return seconds


def _complete_locks(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    before, _, last = begun.rpartition(",")
    names = dict.fromkeys(lock["name"] for world in WORLDS for lock in benching.known(world))
    return [f"{before},{name}" if before else name for name in names if name.startswith(last)]


@click.group()
def bench() -> None:
    """Benchmarks: measured on this machine, or simulated on others."""


@bench.command("locks")
@click.option("--locks", metavar="A,B", callback=_names, shell_complete=_complete_locks, help="Which; all if left out.")
@click.option("--threads", metavar="N,N", callback=_threads, help="Numbers of threads; 1 to 64, doubled, if left out.")
@click.option(
    "--critical-ns", metavar="NS", default="100", callback=_number(0, NS_MAX), help="Time with the lock held."
)
@click.option(
    "--think-ns", metavar="NS,NS", default="250,750", callback=_think, help="Time without it: shortest, longest."
)
@click.option("--hogs", metavar="N", default="0", callback=_number(0, THREADS_MAX), help="Computing threads beside.")
@click.option(
    "--repeat",
    metavar="N",
    callback=_number(1, REPEAT_MAX),
    help="Repetitions, for medians (3; simulated 1).",
)
@click.option("--seconds", metavar="S", callback=_seconds, help="Length of a run (1; simulated 0.3; bare 0.05).")
@click.option("--seed", metavar="N", default="1", callback=_number(0, 2**31), help="Seed of the think times.")
@click.option("--simulate", is_flag=True, help="Do not measure: simulate threads under a scheduler.")
@click.option("--bare", is_flag=True, help="With --simulate: on bare CPUs, interrupts off, nothing else running.")
@click.option(
    "--machine",
    "-m",
    metavar="M",
    help="With --simulate: a machine as for `contend run`, or a file of `contend probe`.",
)
@click.option("--policy", "-p", metavar="P", help=f"With --simulate: a preset ({POLICY}).")
@click.option("--plot", metavar="FILE", help="Draw throughput, fairness and waits (.png, .svg or .pdf).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, every repetition in it.")
@click.option("--progress", is_flag=True, help="Show progress even where stderr is no terminal.")
def command(
    *,
    locks: list[str] | None,
    threads: list[int] | None,
    critical_ns: int,
    think_ns: tuple[int, int],
    hogs: int,
    repeat: int | None,
    seconds: float | None,
    seed: int,
    simulate: bool,
    bare: bool,
    machine: str | None,
    policy: str | None,
    plot: str | None,
    as_json: bool,
    progress: bool,
) -> int:
    """N threads in a loop of lock, critical section, unlock, think: who gets the lock, how often, how soon.

    Measures this project's locks and others' on this machine. With --simulate it predicts that for a machine, with
    --simulate --bare it runs the same source on bare CPUs.
    """
    world = _world(simulate=simulate, bare=bare, machine=machine, policy=policy)
    if world == "simulated":
        policy = policy or POLICY
    if plot:
        from contend import plot as plotting

        # A file that cannot be drawn is refused before the work, not after it; and it is drawn last.
        plotting.pyplot(plot)
    repeats = repeat or (1 if simulate else 3)
    load = benching.Load(critical_ns=critical_ns, think_ns=think_ns, hogs=hogs, seconds=seconds, seed=seed)
    with working(RunsProgress(forced=progress)) as line:
        rows = _rows(world, locks, threads, machine=machine, policy=policy, load=load, repeat=repeats, line=line)
    said = {"world": world, "machine": rows[0].get("machine"), "policy": policy}
    said |= {"critical_ns": critical_ns, "think_ns": list(think_ns), "hogs": hogs, "repeat": repeats, "seed": seed}
    if as_json:
        click.echo(json.dumps({**said, "rows": rows}, indent=2))
    else:
        from contend.bench import show

        show.table(benching.medians(rows), said)
    if plot:
        from contend.bench import picture

        picture.draw(benching.medians(rows), said, plot)
        if not as_json:
            click.echo(f"Figure in {plot}.")
    return EXIT_OK


def _world(*, simulate: bool, bare: bool, machine: str | None, policy: str | None) -> str:
    for option, given in (("--bare", bare), ("--machine", machine), ("--policy", policy)):
        if given and not simulate:
            raise ContendError(f"{option}: this machine is measured; add --simulate")
    if bare and policy:
        raise ContendError("--policy: bare CPUs have no scheduler")
    return ("bare" if bare else "simulated") if simulate else "native"


def _rows(
    world: str,
    locks: list[str] | None,
    threads: list[int] | None,
    *,
    machine: str | None,
    policy: str | None,
    load: benching.Load,
    repeat: int,
    line: RunsProgress | None,
) -> list[benching.Row]:
    if world == "native":
        return benching.native(locks, threads or DOUBLED, load=load, repeat=repeat, progress=line)
    if world == "bare":
        on = machine or MACHINE_BARE
        return benching.bare(on, locks, threads or DOUBLED[1:], load=load, repeat=repeat, progress=line)
    on = machine or MACHINE_SIMULATED
    return benching.simulated(on, policy or POLICY, locks, threads or DOUBLED, load=load, repeat=repeat, progress=line)
