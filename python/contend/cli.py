"""The command `contend`.

Heavy modules (polars, rich, matplotlib) are imported where they are used, so that the command starts in a few
hundredths of a second.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import click

from contend import _early, given, probing
from contend._core import ContendError, __version__, describe
from contend.bench import command as bench_command
from contend.comparing import command as compare_command
from contend.importing import machine as machine_commands
from contend.modelling import model as model_command
from contend.modelling import validate as validate_command
from contend.progress import RunProgress
from contend.record.command import command as record_command
from contend.report import command as report_command
from contend.study import command as study_command
from contend.sweeping import command as sweep_command
from contend.units import plain
from contend.working import EXIT_OK, Interrupted, working
from contend.xen import command as xen_command

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXIT_INPUT = 2
EXIT_BY_OUTCOME = {
    "finished": 0,
    "horizon": 0,
    "deadlock": 3,
    "livelock": 3,
    "stall": 4,
    "policy-error": 5,
    "corrupt-list": 5,
    "panic": 5,
}
EXIT_INTERRUPTED = _early.EXIT_INTERRUPTED
EXIT_PIPE = 141

LISTABLE = ["machines", "workloads", "policies", "features", "presets", "costs", "kvm", "xen", "counters", "studies"]
SHELLS = ["bash", "zsh", "fish"]


def _forget_output() -> None:
    """What is still to be printed goes nowhere: Python would try again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _quit_quietly() -> NoReturn:
    """Nobody reads any more: end without a word, as programs that die of SIGPIPE do."""
    _forget_output()
    sys.exit(EXIT_PIPE)


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Of a reader that went away click and rich would make exit code 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _quit_quietly()
        except SystemExit as e:
            if isinstance(e.__context__, BrokenPipeError):
                _quit_quietly()
            raise


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="contend", message="%(prog)s %(version)s")
def cli() -> None:
    """A wind tunnel for CPU schedulers and locks.

    Runs real scheduler algorithms over a simulated many-core host, and says what happened and why.
    """


def key_value(text: str) -> tuple[str, str]:
    """The two parts of KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.BadParameter(f"found '{text}'; should be KEY=VALUE, such as wake_path=remote-lock")
    return key.strip(), value.strip()


def seed_number(text: str | None) -> int | None:
    """A seed."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) >= 1 << 63:
        raise click.BadParameter(f"found '{text}'; should be a whole number from 0 to {(1 << 63) - 1}")
    return int(text)


def seconds_number(text: str | None) -> float | None:
    """A number of seconds."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"found '{text}'; should be a number of seconds, such as 20 or 0.5") from None


def completing(what: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Names to complete an option's value with."""

    def names(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
        return [item["name"] for item in json.loads(describe(what)) if item["name"].startswith(begun)]

    return names


SETTABLE = [("features", ""), ("costs", "machine."), ("kvm", "kvm."), ("xen", "xen."), ("workloads", "workload.")]


def _keys(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Keys to complete `--set KEY=VALUE` with."""
    from click.shell_completion import CompletionItem

    found: dict[str, str] = {}
    for what, prefix in SETTABLE:
        if not (begun.startswith(prefix) or prefix.startswith(begun)):
            continue
        for item in json.loads(describe(what)):
            for key in item.get("keys", [item]):
                found.setdefault(prefix + key["name"], key["doc"])
    return [CompletionItem(f"{key}=", help=doc) for key, doc in found.items() if key.startswith(begun)]


def replay_command(
    scenario: str,
    *,
    machine: str | None,
    policy: str | None,
    sets: tuple[tuple[str, str], ...],
    seed: int | None,
    horizon: float | None,
    warmup: float | None = None,
) -> str:
    """The one command that runs the same again."""
    words = ["contend", "run", scenario]
    if machine is not None:
        words += ["--machine", machine]
    if policy is not None:
        words += ["--policy", policy]
    for key, value in sets:
        words += ["--set", f"{key}={value}"]
    if horizon is not None:
        words += ["--horizon", repr(horizon).removesuffix(".0")]
    if warmup is not None:
        words += ["--warmup", repr(warmup).removesuffix(".0")]
    if seed is not None:
        words += ["--seed", str(seed)]
    return shlex.join(words)


@contextmanager
def _named(options: dict[str, str]) -> Iterator[None]:
    """Errors of keys that options of their own stand for name the option."""
    try:
        yield
    except ContendError as e:
        for option, key in options.items():
            _, begins, rest = str(e).partition(f"--set: {key}: ")
            if begins:
                raise ContendError(f"{option}: {rest}") from None
        raise


@cli.command()
@click.argument("scenario", type=click.Path())
@click.option(
    "--machine",
    "-m",
    metavar="M",
    shell_complete=completing("machines"),
    help="A machine's name, its file (.toml), or a shape such as 2n2l8c2t.",
)
@click.option(
    "--policy", "-p", metavar="P", shell_complete=completing("presets"), help="A preset; `contend list presets`."
)
@click.option(
    "--set",
    "sets",
    metavar="KEY=VALUE",
    multiple=True,
    callback=lambda _ctx, _param, given: tuple(key_value(g) for g in given),
    shell_complete=_keys,
    help="A feature, machine.COST, or {workload,kvm,xen,guest}.KEY. May be repeated; `contend list features`.",
)
@click.option(
    "--seed", metavar="N", callback=lambda _ctx, _param, text: seed_number(text), help="Seed of all random choices."
)
@click.option(
    "--horizon",
    metavar="S",
    callback=lambda _ctx, _param, text: seconds_number(text),
    help="End the run after this many virtual seconds.",
)
@click.option(
    "--warmup",
    metavar="S",
    callback=lambda _ctx, _param, text: seconds_number(text),
    help="What programs report in the first S virtual seconds does not count.",
)
@click.option("--copies", metavar="N", help="So many of a recording or model side by side: workload.copies.")
@click.option("--speed", metavar="X", help="A recording's or model's run times, divided by X: workload.speed.")
@click.option("--jobs", metavar="N", help="Jobs at once, where the recording or model shows jobs: workload.jobs.")
@click.option("--out", metavar="DIR", help="Store the result here.")
@click.option("--trace", metavar="FILE", help="Write scheduling events: Perfetto's format, or ftrace text (.txt).")
@click.option("--json", "as_json", is_flag=True, help="Print the result's summary as one JSON object.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")
@click.option("--progress", is_flag=True, help="Show progress even where stderr is no terminal.")
def run(
    *,
    scenario: str,
    machine: str | None,
    policy: str | None,
    sets: tuple[tuple[str, str], ...],
    seed: int | None,
    horizon: float | None,
    warmup: float | None,
    copies: str | None,
    speed: str | None,
    jobs: str | None,
    out: str | None,
    trace: str | None,
    as_json: bool,
    quiet: bool,
    progress: bool,
) -> int:
    """Simulate SCENARIO: a scenario (.toml), an rt-app file (.json), a recording, a model, or a result's directory.

    \b
    Exit codes: 0 finished or horizon reached, 2 wrong input, 3 deadlock or
    livelock, 4 stall, 5 policy error, corrupted list or panic, 130 Ctrl-C.
    """
    from contend.run import Panicked
    from contend.run import run as simulate

    given = {"--copies": copies, "--speed": speed, "--jobs": jobs}
    scale = {option: f"workload.{option[2:]}" for option, value in given.items() if value is not None}
    sets += tuple((key, str(given[option])) for option, key in scale.items())

    def replay_with(seed: int | None) -> str:
        return replay_command(
            scenario, machine=machine, policy=policy, sets=sets, seed=seed, horizon=horizon, warmup=warmup
        )

    try:
        with working(shown := RunProgress(forced=progress), quiet=quiet) as line, _named(scale):
            # A later --set of the same key wins, as on other command lines.
            result = simulate(
                scenario,
                machine=machine,
                policy=policy,
                set=dict(sets),
                seed=seed,
                horizon_s=horizon,
                warmup_s=warmup,
                out=out,
                trace=trace,
                progress=line,
            )
    except Interrupted:
        if not shown.endless:
            raise
        advice = "the run goes on until its tasks end: `--horizon 10` ends it after 10 virtual seconds"
        raise Interrupted(f"nothing was written; {advice}") from None
    except Panicked as e:
        click.echo(f"error: {e}\n  scenario: {scenario}\n  replay: {replay_with(seed)}", err=True)
        return EXIT_BY_OUTCOME["panic"]
    summary = result.to_dict()
    replay = replay_with(summary["seed"])
    if not quiet:
        from contend.explain import unread

        for said in unread(summary):
            click.echo(f"warning: {said}", err=True)
    if as_json:
        click.echo(json.dumps({**summary, "replay": replay}, indent=2))
    elif not quiet:
        from contend import text

        console = text.console()
        text.run_report(summary, console)
        if out:
            click.echo(f"Stored in {out}; `{shlex.join(['contend', 'explain', out])}` says why.")
        if trace:
            click.echo(f"Trace in {trace}.")
    if not result.ok:
        click.echo(
            plain(
                f"error: {result.outcome}: {summary['outcome_detail']}\n"
                f"  scenario: {scenario}\n  seed: {summary['seed']}\n  replay: {replay}"
            ),
            err=True,
        )
    return EXIT_BY_OUTCOME[result.outcome]


cli.add_command(compare_command.compare)
cli.add_command(sweep_command.sweep)
cli.add_command(study_command.reproduce)
cli.add_command(study_command.fit)
cli.add_command(report_command.report)
cli.add_command(probing.command)
cli.add_command(record_command)
cli.add_command(model_command.command)
cli.add_command(validate_command.command)
cli.add_command(machine_commands)
cli.add_command(bench_command.bench)
cli.add_command(xen_command.xen)


@cli.command("list")
@click.argument("what", type=click.Choice(LISTABLE))
@click.option("--policy", "-p", metavar="P", help="For features and xen: show their values in this preset.")
@click.option("--machine", "-m", metavar="M", shell_complete=completing("machines"), help="For costs: whose.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of objects.")
def list_(*, what: str, policy: str | None, machine: str | None, as_json: bool) -> int:
    """What there is: machines, workloads, policies, features, presets, a machine's costs, KVM, Xen, or studies."""
    _check_read(what, policy=policy, machine=machine)
    if what == "studies":
        from contend.run import list_studies

        items = list_studies()
    else:
        items = json.loads(describe(what, machine if what == "costs" else policy))
    if as_json:
        click.echo(json.dumps(items, indent=2))
        return EXIT_OK
    from rich.markup import escape

    from contend import text

    out = text.console()
    if what == "machines":
        columns = [("name", "left"), ("CPUs", "right"), ("nodes", "right"), ("cores", "right"), ("about", "fold")]
        rows = [[m["name"], str(m["cpus"]), str(m["nodes"]), str(m["cores"]), m["doc"]] for m in items]
        out.print(text.table("", columns, rows))
        click.echo("Also a machine file (.toml), or a shape: 2n2l8c2t is 2 nodes of 2 LLCs of 8 cores of 2 threads.")
    elif what == "workloads":
        for w in items:
            out.print(f"[bold]{w['name']}[/bold]: {escape(w['doc'])}")
            columns = [("key", "left"), ("default", "left"), ("values", "fold"), ("what it is", "fold")]
            rows = [
                [k["name"], "" if k["default"] is None else json.dumps(k["default"]), k["values"], k["doc"]]
                for k in w["keys"]
            ]
            out.print(text.table("", columns, rows))
    elif what == "xen":
        _show_xen(items)
    elif what in ("features", "kvm", "counters"):
        _show_switches(what, items)
    elif what == "costs":
        columns = [("cost", "left"), ("value", "right"), ("lo", "right"), ("hi", "right"), ("unit", "left"),
                   ("source", "fold")]  # fmt: skip
        out.print(
            text.table(
                "",
                columns,
                [[c["name"], *(f"{c[k]:,}" for k in ("value", "lo", "hi")), c["unit"], c["doc"]] for c in items],
            )
        )
        click.echo("Of another machine: --machine M. To change one: contend run ... --set machine.COST=VALUE.")
    elif what == "studies":
        columns = [("study", "left"), ("about", "fold"), ("rows", "right"), ("source", "fold")]
        out.print(text.table("", columns, [[s["name"], s["doc"], f"{s['rows']:,}", s["source"]] for s in items]))
        click.echo("`contend reproduce STUDY` simulates one. Also the path of a folder with study.toml.")
    elif what == "policies":
        columns = [("policy", "left"), ("about", "fold"), ("presets", "fold")]
        out.print(text.table("", columns, [[p["name"], p["doc"], ", ".join(p["presets"])] for p in items]))
    else:
        columns = [("preset", "left"), ("policy", "left"), ("about", "fold")]
        out.print(text.table("", columns, [[p["name"], p["policy"], p["doc"]] for p in items]))
        click.echo("`cfs`, `eevdf` and `linux` stand for the newest preset of each and of all.")
    return EXIT_OK


def _check_read(what: str, *, policy: str | None, machine: str | None) -> None:
    if policy is not None and what not in ("features", "xen"):
        raise ContendError(f"--policy: found with `list {what}`; should be left out: features and xen read it")
    if machine is not None and what != "costs":
        raise ContendError(f"--machine: found with `list {what}`; should be left out: costs read it")


def _unread(feature: dict[str, Any]) -> str:
    """Whether the preset's policy reads a feature."""
    return "" if feature.get("read", True) else f" Does nothing here: only {feature['only']} reads it."


def _show_switches(what: str, items: list[dict[str, str]]) -> None:
    from contend import text

    if what == "counters":
        columns = [("counter", "left"), ("of", "left"), ("what it counts", "fold")]
        rows = [[c["name"], c["of"], c["doc"]] for c in items]
    else:
        columns = [("feature", "left"), ("value", "left"), ("what it is", "fold"), ("values", "fold")]
        rows = [[f["name"], f["value"], f["doc"] + _unread(f), f["values"]] for f in items]
    text.console().print(text.table("", columns, rows))
    if what == "kvm":
        click.echo("To change one: contend run ... --set kvm.FEATURE=VALUE.")


def _show_xen(items: list[dict[str, Any]]) -> None:
    from contend import text

    presets = list(items[0]["presets"])
    columns = [("#", "right"), ("switch", "left"), *((p, "left") for p in presets), ("what it is", "fold")]
    rows = [
        ["" if f["patch"] is None else str(f["patch"]), f["name"], *(f["presets"][p] for p in presets),
         f["doc"].removeprefix(f"Patch {f['patch']}, ").removeprefix(f"Patch {f['patch']}: ")]
        for f in items
    ]  # fmt: skip
    text.console().print(text.table("", columns, rows))
    click.echo(
        "To change one: contend run ... --set xen.SWITCH=VALUE. All patches: --set xen.patches=1-7; a preset: "
        "--set xen.preset=patched; the scheduler: --set xen.scheduler=credit. Counters: contend list counters."
    )


@cli.command()
@click.argument("result", type=click.Path())
@click.option("--plot", metavar="FILE", help="Draw the ledger, the latencies and the placement (.png, .svg or .pdf).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain(*, result: str, plot: str | None, as_json: bool) -> int:
    """What the stored RESULT says and why: ledger, locks, wake-ups, latencies, longest waits."""
    from contend import explain as explaining
    from contend.result import load, reading

    with reading(result):
        loaded = load(result)
        said = explaining.explain(loaded)
        if plot:
            from contend.plot import draw

            draw([loaded], plot)
        if as_json:
            click.echo(json.dumps(said, indent=2))
            return EXIT_OK
        from contend import text

        text.explained(said, text.console())
    if plot:
        click.echo(f"Figure in {plot}.")
    return EXIT_OK


@cli.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(*, shell: str) -> int:
    """Print the completion script of SHELL; for bash: eval "$(contend completion bash)"."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "contend", "_CONTEND_COMPLETE").source())
    return EXIT_OK


def _close(word: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _usage(e: click.UsageError) -> str:
    """What is wrong with the command line, in one line that says what to type."""
    message = e.format_message().rstrip(".")
    command = e.ctx.command_path if e.ctx else "contend"
    if isinstance(e, click.NoSuchOption):
        known = [name for p in (e.ctx.command.params if e.ctx else []) for name in p.opts]
        return f"no such option: {e.option_name}{_close(e.option_name, known)} (`{command} --help` lists them)"
    if isinstance(e, click.MissingParameter) and e.param is not None:
        return f"{e.param.human_readable_name.upper()} is missing (`{command} --help` says more)"
    if isinstance(e, click.BadParameter) and e.param is not None:
        name = e.param.opts[0] if isinstance(e.param, click.Option) else e.param.human_readable_name.upper()
        return f"{name}: {e.message.rstrip('.')}"
    extra = re.fullmatch(r"Got unexpected extra arguments? \((.*)\)", message)
    params = e.ctx.command.params if e.ctx else []
    files = [p for p in params if isinstance(p, click.Option) and isinstance(p.type, click.Path) and p.name != "out"]
    if extra and files and not any(isinstance(p, click.Argument) for p in params):
        options = " or ".join(f"{p.opts[0]} {p.metavar}" for p in files)
        return f"{extra[1]}: {command} must be told what it is: {options} (`{command} --help` says more)"
    return f"{message} (`{command} --help` says more)"


class Ended(KeyboardInterrupt):
    """SIGTERM or SIGHUP: what Ctrl-C cleans up these do, too."""

    signal: int | None = None

    @classmethod
    def by(cls, number: int, _frame: object) -> NoReturn:
        """The handler."""
        cls.signal = number
        raise cls

    @classmethod
    def watch(cls) -> None:
        """Take the signals that would end the process; those that it was told to ignore (nohup) stay so."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, cls.by)


def _open_streams() -> None:
    """Standard streams, whatever was closed: a file that is opened later must not become one of them."""
    # Opened to read, so that writing to it fails.
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if fd == 2 else os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    # Names of files need not be UTF-8.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    _early.release()
    code: object = EXIT_INPUT
    try:
        Ended.watch()
        _open_streams()
        code = cli.main(args, prog_name="contend", standalone_mode=False)
        sys.stdout.flush()
    except ContendError as e:
        click.echo(plain(f"error: {e}"), err=True)
        code = EXIT_INPUT
    except click.exceptions.NoArgsIsHelpError as e:
        click.echo(e.format_message(), err=True)
        code = EXIT_INPUT
    except click.UsageError as e:
        click.echo(f"error: {_usage(e)}", err=True)
        code = EXIT_INPUT
    except (Interrupted, click.Abort, KeyboardInterrupt) as e:
        click.echo(f"interrupted: {e if str(e) else 'nothing was written'}", err=True)
        code = 128 + Ended.signal if Ended.signal else EXIT_INTERRUPTED
    except BrokenPipeError:
        _quit_quietly()
    except UnicodeEncodeError as e:
        # Only what came from the command line as bytes cannot be encoded.
        found = given.undecoded(e.object) if isinstance(e.object, str) else "it"
        click.echo(f"error: found {found}; should be UTF-8", err=True)
    except OSError as e:
        what = f"{e.filename}: cannot be used" if e.filename else "output cannot be written"
        click.echo(f"error: {what}: {e.strerror or e}", err=True)
        _forget_output()
    sys.exit(code if isinstance(code, int) else EXIT_OK)
