"""`contend xen trace`: binary traces of Xen, as `xentrace` records them and simulations write them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Any

import click

from contend import _core
from contend._core import ContendError
from contend.working import EXIT_OK, Interrupted

HZ = 2_400_000_000
"""The frequency of the time stamps where none is given: xenalyze's."""

UNITS = {"k": 10**3, "M": 10**6, "G": 10**9}


def summary(path: str | PathLike[str], cpu_hz: int = HZ) -> dict[str, Any]:
    """What a trace says in all (docs/xentrace.md). `cpu_hz`: ticks of its time stamps a second."""
    said: dict[str, Any] = json.loads(_core.xen_trace_summary(path, cpu_hz))
    return said


def records(path: str | PathLike[str], cpu_hz: int = HZ) -> Iterator[dict[str, Any]]:
    """Every record in the order of time: ns since the first, tsc, the pCPU it is on, event, and the event's fields."""
    dump = _core.XenTraceDump(path, cpu_hz, json=True)
    while part := dump.part():
        yield from map(json.loads, part.splitlines())


def rewrite(path: str | PathLike[str], out: str | PathLike[str]) -> dict[str, Any]:
    """Write the records of a trace again, in the order of time and unpacked. What reading met."""
    met: dict[str, Any] = json.loads(_core.xen_trace_rewrite(path, out))
    return met


def hertz(text: str) -> int:
    """A frequency: 2599998000, 2599.998M or 2.6G."""
    number, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1)
    try:
        hz = round(float(number) * unit)
    except (ValueError, OverflowError):
        hz = -1
    if not 0 <= hz < 1 << 63:
        raise click.BadParameter(f"found '{text}'; should be a frequency such as 2.6G or 2599998000")
    return hz


cpu_hz_option = click.option(
    "--cpu-hz",
    metavar="HZ",
    callback=lambda _ctx, _param, text: None if text is None else hertz(text),
    help="Frequency of the time stamps, such as 2.6G or 2599998000 (2.4G).",
)


@click.command("trace")
@click.argument("file", type=click.Path())
@cpu_hz_option
@click.option("--dump", is_flag=True, help="Print every record, in the order of time.")
@click.option("--vcpu", metavar="D", help="Print one vCPU's histograms and where it ran, such as d1v0.")
@click.option("--write", metavar="OUT", help="Write the records again: unpacked, in order, without damage.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --dump one a line.")
def command(*, file: str, cpu_hz: int | None, dump: bool, vcpu: str | None, write: str | None, as_json: bool) -> int:
    """Read a binary trace that xentrace recorded (also .gz or .xz) or a simulation wrote.

    Says where each vCPU's time went, its dispatches, wake-ups and migrations, and each pCPU's tickles.
    """
    chosen = [name for name, given in (("--dump", dump), ("--vcpu", vcpu), ("--write", write)) if given]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} cannot be used together")
    try:
        if dump:
            _dump(file, cpu_hz or HZ, as_json=as_json)
        elif write:
            met = rewrite(file, write)
            click.echo(json.dumps(met, indent=2) if as_json else f"{met['text']}\nWritten to {write}.")
        else:
            _summary(file, cpu_hz, vcpu, as_json=as_json)
    except KeyboardInterrupt:
        raise Interrupted from None
    return EXIT_OK


def _dump(file: str, cpu_hz: int, *, as_json: bool) -> None:
    dump = _core.XenTraceDump(file, cpu_hz, as_json)
    while part := dump.part():
        sys.stdout.write(part)
    notes = _notes(json.loads(dump.reading()))
    if notes:
        sys.stdout.flush()
        click.echo("\n".join(f"note: {line}" for line in notes), err=True)


def _summary(file: str, cpu_hz: int | None, vcpu: str | None, *, as_json: bool) -> None:
    said = summary(file, HZ if cpu_hz is None else cpu_hz)
    if vcpu is not None:
        found = [v for v in said["vcpus"] if v["vcpu"] == vcpu]
        if not found:
            known = ", ".join(v["vcpu"] for v in said["vcpus"][:8] if not v["idle"]) or "none"
            raise ContendError(f"--vcpu: found '{vcpu}'; the trace has {known}{', ...' * (len(said['vcpus']) > 8)}")
        if as_json:
            click.echo(json.dumps(found[0], indent=2))
        else:
            _show_vcpu(found[0], said)
    elif as_json:
        click.echo(json.dumps(said, indent=2))
    else:
        _show(said, assumed=cpu_hz is None)


def _notes(reading: dict[str, Any]) -> list[str]:
    """What is odd about a file, one line each."""
    lines = [line.strip() for line in reading["text"].splitlines()[1:]]
    if reading["late"]:
        lines.append(f"records that came after later ones: {reading['late']:,}")
    return lines


def _share(ns: int, said: dict[str, Any]) -> str:
    return f"{100 * ns / (said['duration_ns'] or 1):.2f}"


def _show(said: dict[str, Any], *, assumed: bool) -> None:
    from rich.markup import escape

    from contend import text
    from contend.units import seconds

    out = text.console()
    vcpus = [v for v in said["vcpus"] if not v["idle"]]
    count = f"{said['reading']['records']:,} records of {len(said['pcpus'])} pCPUs and {len(vcpus)} vCPUs"
    hz = f"{said['cpu_hz'] / 1e9:.9g} GHz{' (assumed; --cpu-hz)' * assumed}"
    over = seconds(said["duration_ns"] / 1e9)
    out.print(escape(f"{said['file']}: {count} over {over}, time stamps at {hz}."), soft_wrap=True)
    for line in _notes(said["reading"]):
        out.print(escape(f"note: {line}"), soft_wrap=True)
    if said["unchained"]:
        out.print(f"note: changes of run state that do not follow from the one before: {said['unchained']:,}")
    if said["beyond"]:
        out.print(f"note: records about more vCPUs than are kept apart: {said['beyond']:,}")
    out.print(text.table("Domains, % of the trace's length", *_domains(vcpus, said)))
    out.print(text.table("vCPUs, % of the trace's length", *_vcpus(vcpus, said)))
    out.print(text.table("pCPUs, % of the trace's length", *_pcpus(said)))
    rows = [[name, f"{count:,}"] for name, count in sorted(said["events"].items(), key=lambda e: (-e[1], e[0]))]
    out.print(text.table("Events", [("event", "left"), ("records", "right")], rows))


Columns = list[tuple[str, str]]


def _headed(names: Iterable[str]) -> Columns:
    return [(name, "right" if i else "left") for i, name in enumerate(names)]


def _domains(vcpus: list[dict[str, Any]], said: dict[str, Any]) -> tuple[Columns, list[list[str]]]:
    states = ("running", "runnable", "blocked", "offline", "unknown")
    rows = []
    for dom in sorted({v["dom"] for v in vcpus}):
        of = [v for v in vcpus if v["dom"] == dom]
        rows.append([f"d{dom}", str(len(of)), *(_share(sum(v[f"{s}_ns"] for v in of), said) for s in states)])
    return _headed(("domain", "vCPUs", *states)), rows


def _vcpus(vcpus: list[dict[str, Any]], said: dict[str, Any]) -> tuple[Columns, list[list[str]]]:
    from contend.units import duration_us

    counts = {"dispatches": "runs", "wakeups": "woken", "migrations": "moves", "preemptions": "preempted"}
    if any(v["yields"] for v in vcpus):
        counts["yields"] = "yields"
    states = ["running", "runnable", "blocked"]
    states += [s for s in ("offline", "unknown") if any(v[f"{s}_ns"] for v in vcpus)]
    rows = []
    for v in vcpus:
        run, wake = v["run_us"], v["wake_to_run_us"]
        row = [v["vcpu"], *(_share(v[f"{s}_ns"], said) for s in states), *(f"{v[c]:,}" for c in counts)]
        row += [duration_us(run["p50"]) if run["count"] else ""]
        row += [duration_us(wake[p]) if wake["count"] else "" for p in ("p50", "p99", "max")]
        rows.append(row)
    return _headed(("vCPU", *states, *counts.values(), "run p50", "wait p50", "p99", "max")), rows


def _pcpus(said: dict[str, Any]) -> tuple[Columns, list[list[str]]]:
    shares = ("busy_ns", "idle_ns", "other_ns")
    counts = ("switches", "passes", "tickled_idle", "tickled_busy", "tickled_other")
    heads = ("pCPU", "busy", "idle", "other", "switches", "passes", "tickled idle", "busy", "other")
    rows = [
        [str(p["pcpu"]), *(_share(p[s], said) for s in shares), *(f"{p[c]:,}" for c in counts)] for p in said["pcpus"]
    ]
    return _headed(heads), rows


def _show_vcpu(v: dict[str, Any], said: dict[str, Any]) -> None:
    from contend import text
    from contend.units import duration_us

    out = text.console()
    out.print(text.table("", *_vcpus([v], said)))
    running = v["running_ns"] or 1
    on = sorted(v["running_on_ns"].items(), key=lambda e: int(e[0]))
    rows = [[cpu, _share(ns, said), f"{100 * ns / running:.2f}"] for cpu, ns in on]
    out.print(text.table("Where it ran", _headed(("pCPU", "% of the trace", "% of its running")), rows))
    for key, title in (("run_us", "Length of runs"), ("wake_to_run_us", "From wake-up to running")):
        buckets = v[key]["buckets"]
        most = max((count for _, count in buckets), default=1)
        rows = [[duration_us(upto), f"{count:,}", "#" * round(40 * count / most)] for upto, count in buckets]
        out.print(text.table(title, [("up to", "right"), ("how many", "right"), ("", "left")], rows))
