"""`contend xen sched-credit`, `sched-credit2`, `vcpu-list`: what an admin of Xen types, for the host of a scenario.

Without a change they list as `xl` does; a change becomes a table `[[at]]` at the end of the scenario's file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from contend import _core
from contend._core import ContendError, ScenarioInvalid
from contend.working import EXIT_OK
from contend.xen import report

COMMANDS = {"credit": "sched-credit", "credit2": "sched-credit2"}


def listing(scenario: str | os.PathLike[str], at_s: float = 0.0) -> dict[str, Any]:
    """The host of a scenario or result as `xl` would list it at a virtual time: scheduler, pools, domains, vCPUs."""
    said: dict[str, Any] | None = json.loads(_core.xen_listing(scenario, at_s))
    if said is None:
        raise ContendError(f"{os.fspath(scenario)}: the host is not Xen's: a table [xen] makes it so")
    return said


def change(scenario: str | os.PathLike[str], at_s: float, xl: str, *, dry_run: bool = False) -> str:
    """Append an `xl` command at a virtual time to a scenario's file, whole or not at all. Returns the table.

    Raises ScenarioInvalid, and leaves the file as it is, if the command cannot be carried out then.
    """
    path = Path(scenario)
    if path.suffix != ".toml" or path.is_dir():
        raise ContendError(f"{path}: should be a scenario's file (.toml) for a change")
    # A link stays a link.
    real = Path(os.path.realpath(path))
    try:
        text = real.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        # Says what is wrong with it.
        listing(path)
        raise
    seconds = repr(at_s).removesuffix(".0")
    entry = f"[[at]]\ns = {seconds}\nxl = {json.dumps(xl)}\n"
    changed = f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}\n{entry}"
    if _reads(text) and not _reads(changed):
        raise ContendError(f"{path}: at: found an inline array; should be tables [[at]] for a change to be appended")
    try:
        said = json.loads(_core.xen_listing(path, 0.0, changed))
    except ScenarioInvalid as e:
        # A line that is not in the file yet says nothing to who reads it.
        named = re.match(r"(.*?):(\d+): (?:at\.xl: )?", str(e))
        if named and named[1] == str(path) and int(named[2]) > len(text.splitlines()):
            raise ScenarioInvalid(f"{path}: {str(e)[named.end() :]}") from None
        raise
    if said is None:
        raise ContendError(f"{path}: the host is not Xen's: a table [xen] makes it so")
    if not dry_run:
        _write(real, changed)
    return entry


def _reads(text: str) -> bool:
    """Whether it is TOML."""
    import tomllib

    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _write(path: Path, text: str) -> None:
    """Replace a file in one step."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as f:
            try:
                f.write(text)
                f.close()
                shutil.copymode(path, f.name)
                Path(f.name).replace(path)
            except BaseException:
                Path(f.name).unlink(missing_ok=True)
                raise
    except OSError as e:
        raise ContendError(f"{path}: cannot be written: {e.strerror}") from e


def _seconds(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        at = float(text)
    except ValueError:
        at = -1.0
    if not 0 < at <= 1e6:
        raise click.BadParameter(f"found '{text}'; should be virtual seconds above 0, such as 2 or 0.5")
    return at


def _time_of(scenario: str, at_s: float | None) -> float:
    """The virtual time of a listing, in seconds: as asked, or of a result its end, of a scenario its beginning."""
    if at_s is not None:
        return at_s
    if not Path(scenario).is_dir():
        return 0.0
    from contend.result import load

    return float(load(scenario).summary["virtual_ns"]) / 1e9


def _pool_line(pool: dict[str, Any], scheduler: str) -> str:
    if scheduler == "credit":
        times = f"ratelimit={pool['ratelimit_us']}us migration-delay={pool['migration_delay_us']}us"
        return f"Cpupool {pool['name']}: tslice={pool['tslice_ms']}ms {times}"
    return f"Cpupool {pool['name']}: ratelimit={pool['ratelimit_us']}us"


def _domain_lines(domains: list[dict[str, Any]]) -> list[str]:
    rows = [f"{'Name':<33} {'ID':>4} {'Weight':>6} {'Cap':>4}"]
    return rows + [f"{d['name']:<33} {d['id']:>4} {d['weight']:>6} {d['cap']:>4}" for d in domains]


def _domain(host: dict[str, Any], named: str) -> dict[str, Any]:
    for d in host["domains"]:
        if named in (d["name"], str(d["id"])):
            return dict(d)
    known = ", ".join(f"{d['name']} ({d['id']})" for d in host["domains"])
    raise ContendError(f"there is no domain {named}; there are {known}")


def _pools(host: dict[str, Any], named: str | None) -> list[dict[str, Any]]:
    pools: list[dict[str, Any]] = [p for p in host["pools"] if named in (None, p["name"])]
    if not pools:
        raise ContendError(f"there is no cpupool {named}; there are {', '.join(p['name'] for p in host['pools'])}")
    return pools


def _list(host: dict[str, Any], domain: str | None, pool: str | None, *, schedparam: bool) -> list[str]:
    """What `xl` lists for these options."""
    if domain is not None:
        if pool is not None or schedparam:
            raise ContendError("-d does not go with -p or -s: a domain is in one cpupool")
        return _domain_lines([_domain(host, domain)])
    lines = []
    for p in _pools(host, pool) if pool or not schedparam else host["pools"][:1]:
        lines.append(_pool_line(p, host["scheduler"]))
        if not schedparam:
            lines += _domain_lines([d for d in host["domains"] if d["pool"] == p["name"]])
    return lines


Options = Callable[[Callable[..., int]], click.Command]


def _sched(scheduler: str) -> click.Command:
    """`sched-credit` or `sched-credit2`."""
    name = COMMANDS[scheduler]

    def run(scenario: str, at_s: float | None, *, dry_run: bool, **given: Any) -> int:
        letters = {"domain": "-d", "weight": "-w", "cap": "-c", "schedparam": "-s", "tslice": "-t", "ratelimit": "-r",
                   "pool": "-p"}  # fmt: skip
        asked = [key for key in ("weight", "cap", "tslice", "ratelimit") if given.get(key) is not None]
        host = listing(scenario, 0.0 if asked else _time_of(scenario, at_s))
        if host["scheduler"] != scheduler:
            right = COMMANDS.get(host["scheduler"])
            right = f"`contend xen {right}`" if right else "it has no parameters"
            raise ContendError(f"{scenario}: the scheduler of this host is {host['scheduler']}: {right}")
        if not asked:
            for line in _list(host, given["domain"], given["pool"], schedparam=given["schedparam"]):
                click.echo(line)
            return EXIT_OK
        words = [name]
        for key, letter in letters.items():
            value = given.get(key)
            if value is True:
                words.append(letter)
            elif value is not None and value is not False:
                words += [letter, str(value)]
        if at_s is None:
            raise ContendError("--at is missing: the virtual second at which the change happens, such as --at 2")
        entry = change(scenario, at_s, " ".join(words), dry_run=dry_run)
        click.echo(entry if dry_run else f"{scenario}: at {at_s:g} s: xl {' '.join(words)}", nl=not dry_run)
        return EXIT_OK

    command = click.command(name, help=f"""List or change parameters as `xl {name}` does, for the host of SCENARIO.

Without -w, -c{", -t" if scheduler == "credit" else ""} and -r it lists, of a result's directory
as at its end; with one of them the change is appended to the scenario's file as a table [[at]]
that makes it at a virtual time, --at.""")  # fmt: skip
    options = [
        click.argument("scenario", type=click.Path()),
        click.option("-d", "--domain", metavar="DOM", help="The domain, by name or number."),
        click.option("-w", "--weight", metavar="N", help="Its weight, 1 to 65535."),
        click.option("-c", "--cap", metavar="N", help="Its cap in per cent of one pCPU; 0: none."),
        click.option("-s", "--schedparam", is_flag=True, help="Parameters of a cpupool."),
        click.option("-r", "--ratelimit_us", "ratelimit", metavar="US", help="Its rate limit, 0 or 100 to 500000 us."),
        click.option("-p", "--cpupool", "pool", metavar="POOL", help="The cpupool; the first if left out."),
        click.option("--at", "at_s", metavar="SECONDS", callback=_seconds, help="Virtual time of the change, or of the "
                     "listing."),
        click.option("--dry-run", is_flag=True, help="Print what would be appended, and leave the file alone."),
    ]  # fmt: skip
    if scheduler == "credit":
        options.append(click.option("-t", "--tslice_ms", "tslice", metavar="MS", help="Its time slice, 1 to 1000 ms."))
    function: Any = run
    for option in reversed(options):
        function = option(function)
    return command(function)


sched_credit = _sched("credit")
sched_credit2 = _sched("credit2")


@click.command("vcpu-list")
@click.argument("scenario", type=click.Path())
@click.argument("domains", nargs=-1)
@click.option("--at", "at_s", metavar="SECONDS", callback=_seconds, help="Affinities as they are at this virtual time.")
def vcpu_list(*, scenario: str, domains: tuple[str, ...], at_s: float | None) -> int:
    """List vCPUs with their affinities as `xl vcpu-list` does; of a result's directory as at its end, with the time
    they ran."""
    ran: dict[tuple[int, int], int] = {}
    if Path(scenario).is_dir():
        from contend.result import load

        result = load(scenario)
        columns = ("domain", "vcpu", "run_ns")
        if report.is_xen(result.summary):
            ran = {(d, v): ns for d, v, ns in result["xen_vcpus"].select(columns).iter_rows()}
    host = listing(scenario, _time_of(scenario, at_s))
    chosen = [_domain(host, d) for d in domains] or host["domains"]
    click.echo(f"{'Name':<32} {'ID':>5} {'VCPU':>5} {'CPU':>5} State   Time(s) Affinity (Hard / Soft)")
    for d in chosen:
        for v in d["vcpus"]:
            time = ran.get((d["id"], v["vcpu"]), 0) / 1e9
            click.echo(
                f"{d['name']:<32} {d['id']:>5} {v['vcpu']:>5} {'-':>4}   --- {time:>9.1f}  {v['hard']} / {v['soft']}"
            )
    return EXIT_OK
