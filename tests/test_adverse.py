"""What stands in the way: foreign files, damaged results, closed streams, signals, narrow terminals."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unicodedata
from pathlib import Path
from typing import Any

import contend as package
import pytest
from conftest import ENDLESS, Contend, tree
from contend import text
from contend.comparing.show import _chance
from contend.explain import unread

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "contend"]


@pytest.fixture
def stored(small: Path, tmp_path: Path) -> Path:
    package.run(small, out=tmp_path / "r")
    return tmp_path / "r"


def test_a_trace_replaces_traces_only(contend: Contend, small: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "empty.pftrace").write_text("")
    os.mkfifo(tmp_path / "fifo")
    before = {p.name: p.read_bytes() for p in (small, tmp_path / "notes.txt")}
    for target, why in (
        (small.name, "it is read, too; name another file"),
        ("notes.txt", "a file of this name exists and is not a trace; name another or remove it"),
        ("fifo", "a device or pipe; name a file"),
        ("/dev/null", "a device or pipe; name a file"),
    ):
        done = contend("run", small, "-q", "--trace", target)
        assert (done.returncode, done.stderr) == (2, f"error: {target}: cannot be written: {why}\n")
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    assert (tmp_path / "fifo").is_fifo()
    for target in ("empty.pftrace", "empty.pftrace", "t.txt", "t.txt"):
        assert contend("run", small, "-q", "--trace", target).returncode == 0
    again = contend("run", "empty.pftrace", "-q", "--trace", "empty.pftrace")
    assert "it is read, too" in again.stderr


def test_a_trace_is_written_through_a_link(contend: Contend, small: Path, tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("")
    (tmp_path / "link.txt").symlink_to("real.txt")
    assert contend("run", small, "-q", "--trace", "link.txt").returncode == 0
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text().startswith("# tracer: nop")


@pytest.mark.parametrize("ending", ["toml", "arrow", "json"])
def test_a_model_replaces_models_only(contend: Contend, small: Path, tmp_path: Path, ending: str) -> None:
    assert contend("run", small, "-q", "--trace", "t.txt").returncode == 0
    for _ in range(2):
        assert contend("model", "t.txt", "--out", f"m.{ending}").returncode == 0
    (tmp_path / f"x.{ending}").write_text("{}")
    done = contend("model", "t.txt", "--out", f"x.{ending}")
    assert done.returncode == 2 and "exists and is not a model of contend" in done.stderr
    assert (tmp_path / f"x.{ending}").read_text() == "{}"


def test_a_figure_replaces_figures_only(contend: Contend, stored: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from contend import plot

    result = package.load(stored)
    for ending in ("png", "svg", "pdf"):
        (tmp_path / f"x.{ending}").write_bytes(b"mine")
        done = contend("explain", "r", "--plot", f"x.{ending}")
        assert done.returncode == 2 and "exists and is no figure of contend" in done.stderr
        (tmp_path / f"x.{ending}").unlink()
        for _ in range(2):
            plot.draw([result], str(tmp_path / f"x.{ending}"))
    assert not list(tmp_path.glob(".x.*"))


def test_a_figure_is_whole_or_not_there(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    from contend import plot

    def full(_self: Any, file: Path, **_: Any) -> None:
        file.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure.Figure, "savefig", full)
    with pytest.raises(package.ContendError, match="cannot be written: No space left on device"):
        plot.draw([package.load(stored)], str(tmp_path / "f.png"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r", "small.toml"]


@pytest.mark.parametrize("damage", [b"", b"ARROW1", "half"])
@pytest.mark.parametrize("command", ["explain", "report"])
def test_a_damaged_table(contend: Contend, stored: Path, command: str, damage: bytes | str) -> None:
    for file in stored.glob("*.arrow"):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2] if isinstance(damage, str) else damage)
    done = contend(command, "r")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: r"), done.stderr
    if command == "explain":
        assert done.stderr == "error: r/tasks.arrow: damaged: not a whole Arrow file\n"


def paths(of: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in JSON; of arrays the first, of long tables of numbers or words the first two."""
    inner: list[tuple[Any, Any]] = list(of.items()) if isinstance(of, dict) else []
    if isinstance(of, list):
        inner = list(enumerate(of[:1]))
    elif len(inner) > 12 and len({type(value) for _, value in inner}) == 1 and not isinstance(inner[0][1], dict):
        inner = inner[:2]
    return [at] * bool(at) + [p for key, value in inner for p in paths(value, (*at, key))]


def test_a_damaged_summary(stored: Path) -> None:
    from contend import explain
    from contend.result import reading

    file = stored / "summary.json"
    whole = file.read_text()
    damages: tuple[Any, ...] = (None, "x", [], {})
    for path in paths(json.loads(whole)):
        for damage in damages:
            summary = json.loads(whole)
            place = summary
            for key in path[:-1]:
                place = place[key]
            if damage is None:
                del place[path[-1]]
            else:
                place[path[-1]] = damage
            file.write_text(json.dumps(summary))
            try:
                with reading(stored):
                    said = explain.explain(package.load(stored))
                    text.explained(said, text.console(io.StringIO()))
            except package.ContendError as e:
                assert "damaged" in str(e) or "found schema" in str(e), (path, damage)


def test_a_damaged_summary_names_the_key(contend: Contend, stored: Path) -> None:
    file = stored / "summary.json"
    summary = json.loads(file.read_text())
    file.write_text(json.dumps({**summary, "tasks": {**summary["tasks"], "count": "many"}}))
    done = contend("explain", "r")
    assert done.stderr == 'error: r/summary.json: damaged: tasks.count: found "many"; should be a whole number\n'
    file.write_text(json.dumps({k: v for k, v in summary.items() if k != "ledger_ns"}))
    assert contend("report", "r").stderr == "error: r/summary.json: damaged: ledger_ns is missing\n"
    # Deeper than is checked at once.
    file.write_text(json.dumps({**summary, "locks": [{}]}))
    assert contend("explain", "r").stderr == "error: r: damaged: contended is missing\n"


def test_a_report_that_cannot_be_written(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from contend.report import page

    def read_only(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "write_text", read_only)
    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(package.ContendError, match="cannot be written: Read-only file system"):
        page.write("", tmp_path / "r.html")


def shell(script: str, tmp_path: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["sh", "-c", script, *COMMAND], cwd=tmp_path, capture_output=True, check=False, timeout=60)


def test_output_that_cannot_be_written(small: Path, tmp_path: Path) -> None:
    run = '"$0" "$@" run small.toml'
    for words, code, error in (
        (f"{run} >&-", 2, b"error: output cannot be written: Bad file descriptor\n"),
        (f"{run} -q >&-", 0, b""),
        (f"{run} >/dev/full", 2, b"error: output cannot be written: No space left on device\n"),
        (f"{run} --json >/dev/full", 2, b"error: output cannot be written: No space left on device\n"),
        (f"{run} --seed x 2>&-", 2, b""),
        (f"{run} -q --trace t.txt <&- >&- 2>&-", 0, b""),
    ):
        done = shell(words, tmp_path)
        assert (done.returncode, done.stderr) == (code, error), words
    assert (tmp_path / "t.txt").read_bytes().startswith(b"# tracer: nop")


def test_arguments_that_are_not_utf8(small: Path, tmp_path: Path) -> None:
    for words in ([b"--machine", b"\xff"], [b"--set", b"a\xff=1"], [b"--policy", b"\xff"]):
        done = subprocess.run([*COMMAND, "run", small, *words], capture_output=True, check=False, timeout=60)
        assert done.returncode == 2 and done.stderr.endswith(b"\\xff'; should be UTF-8\n"), done.stderr
    named = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.toml"))
    shutil.copy(small, named)
    assert subprocess.run([*COMMAND, "run", named], capture_output=True, check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(("kind", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_clean_up_as_ctrl_c_does(tmp_path: Path, kind: signal.Signals, code: int) -> None:
    (tmp_path / "e.toml").write_text(ENDLESS)
    before = tree(tmp_path)
    # Also where these tests themselves run under nohup.
    words = ["env", f"--default-signal={kind.name}", *COMMAND, "run", "e.toml", "--out", "r", "--trace", "t.pftrace"]
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob(".t.pftrace.partial*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(kind)
    _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (code, "interrupted: nothing was written\n")
    assert tree(tmp_path) == before


def test_ctrl_c_while_the_command_starts() -> None:
    # The signal comes in the middle of the package's own imports.
    script = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)
wanted, sys.argv = sys.argv[1], ["contend", "list", "presets"]
sys.meta_path.insert(0, Finder())
from contend.cli import main
main()
"""
    for module in ("contend._core", "contend.result", "click", "contend.study.command", "rich.markup"):
        done = subprocess.run(
            [sys.executable, "-c", script, module], capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr.strip()) == (130, "interrupted: nothing was written"), module


def test_an_address_without_a_port(contend: Contend, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "s.toml").write_text(
        '[scenario]\nmachine = "4c"\n[scenario.workload]\nkind = "ping-pong"\nround_trips = 10\n[grid]\nseed = [1, 2]\n'
    )
    began = time.monotonic()
    done = contend("sweep", "s.toml", "--cluster", "x")
    assert done.returncode == 2 and time.monotonic() - began < 15
    assert "error: --cluster: found 'x'; should be tcp://HOST:PORT or a scheduler's file" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_tables_are_whole_at_any_width(width: int) -> None:
    columns = [("what it is", "left"), *((f"a heading of {i}", "right") for i in range(12)), ("prose", "fold")]
    rows = [[f"row {r}", *(f"{r},{i:03},000.00 ms" for i in range(12)), "some words " * 9] for r in range(3)]
    out = io.StringIO()
    console = text.Whole(file=out, width=width, highlight=False)
    console.print(text.table("Title", columns, rows))
    shown = out.getvalue()
    for r in range(3):
        for i in range(12):
            assert f"{r},{i:03},000.00 ms" in shown
    assert " ".join(shown.split()).count("some words") or width < 60
    assert max(map(len, shown.splitlines())) <= max(width, 40)


def test_names_do_nothing_to_a_terminal(contend: Contend, tmp_path: Path) -> None:
    task = {"loop": 3, "run": 900, "sleep": 1000}
    (tmp_path / "a.json").write_text(json.dumps({"tasks": {"\x1b[2Jnew\nline\x9b": task, "b": task}}))
    assert contend("run", "a.json", "--machine", "1c", "--out", "r", "-q").returncode == 0
    shown = contend("explain", "r").stdout
    assert "?[2Jnew?line?" in shown
    assert not [c for c in shown if c != "\n" and unicodedata.category(c) == "Cc"]
    waits = json.loads(contend("explain", "r", "--json").stdout)["longest_waits"]
    assert any("\x1b[2Jnew\nline\x9b" in task["name"] for task in waits)
    out = io.StringIO()
    text.console(out).print("\x1b]0;a title\x07 of\ntwo lines")
    assert out.getvalue() == "?]0;a title? of\ntwo lines\n"


def test_chance_in_words() -> None:
    assert _chance(1) == "The interval holds with 95 %."
    assert "a probability of up to 14 %" in _chance(3)
    assert "of 40 numbers about 2 would" in _chance(40)


def test_compare_says_which_seed_is_not_used(contend: Contend, small: Path, tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    (tmp_path / "b.toml").write_text(small.read_text().replace("seed = 7", "seed = 90"))
    done = contend("compare", small, "b.toml", "--seeds", "2", "--no-divergence")
    assert "Its own seed, 90, was not used: both sides run under the baseline's seeds." in done.stdout
    same = contend("compare", small, small, "--seeds", "2", "--no-divergence")
    assert "own seed" not in same.stdout


def test_new_tasks_count_as_wake_ups_and_both_say_so(contend: Contend, tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('{"tasks": {"t": {"loop": 1, "run": 1000}}}')
    ran = contend("run", "one.json", "--out", "r")
    assert "Wake-ups and new tasks: 1, latency" in ran.stdout
    assert "No task was woken; 1 new tasks came to run." in contend("explain", "r").stdout


def test_options_are_named_as_they_were_given(contend: Contend, small: Path, tmp_path: Path) -> None:
    for option in ("--copies", "--speed", "--jobs"):
        assert contend("run", small, option, "2").stderr.startswith(f"error: {option}: unknown key")
    assert "error: --set: workload.copies" in contend("run", small, "--set", "workload.copies=2").stderr
    (tmp_path / "rt.toml").write_text('machine = "4c"\n[workload]\nkind = "rt-app"\nfile = "nope.json"\n')
    done = contend("run", "rt.toml")
    assert done.stderr == "error: rt.toml:4: workload.file: nope.json: cannot be read: No such file or directory\n"
    done = contend("xen", "replay", "x", "--weights", "d1:512")
    assert "should be a domain and a value such as d1=512" in done.stderr


def test_features_that_the_policy_does_not_read(contend: Contend, small: Path) -> None:
    done = contend("run", small, "--set", "latency_ns=24000000", "--out", "r")
    said = "latency_ns does nothing under linux-6.18: only cfs reads it, and this is eevdf"
    assert (done.returncode, done.stderr) == (0, f"warning: {said}\n")
    assert said in " ".join(contend("explain", "r").stdout.split())
    assert json.loads(contend("explain", "r", "--json").stdout)["warnings"] == [said]
    done = contend("run", small, "--policy", "linux-5.2", "--set", "latency_ns=24000000")
    assert done.stderr == ""
    done = contend("run", small, "--set", "asym_capacity=off")
    assert done.stderr == "warning: asym_capacity does nothing: all CPUs of this machine are alike\n"
    done = contend("run", small, "--machine", "kirin-960-8c", "--set", "asym_capacity=off")
    assert done.stderr == ""
    guest = {"name": "vm", "vcpus": 1, "workload": {"kind": "hogs", "duration_ms": 5}}
    scenario = {"machine": "4c", "guest": [guest], "horizon_s": 0.01}

    def warned(**of: object) -> list[str]:
        return unread(package.run({**scenario, **of}).summary)

    assert warned(set={"guest.latency_ns": 24_000_000}) == [
        "latency_ns does nothing in guest vm under linux-6.18: only cfs reads it, and this is eevdf"
    ]
    assert warned(set={"kvm.directed_yield": "ple-off", "kvm.ple_window": 100}) == [
        "kvm.ple_window does nothing under kvm.directed_yield = ple-off: there are no pause-loop exits"
    ]
    ours = {"xen.tslice_ms": 10, "xen.c1_2017": "true", "xen.c2_yield": "true"}
    for scheduler, keys in (("credit2", ["xen.c1_2017", "xen.tslice_ms"]), ("credit", ["xen.c2_yield"])):
        other = "credit" if scheduler == "credit2" else "credit2"
        assert warned(xen={"scheduler": scheduler}, set=ours) == [
            f"{key} does nothing under {scheduler}: only {other} reads it" for key in keys
        ]
    listed = {f["name"]: f for f in package.list_features("linux-5.2")}
    assert (listed["base_slice_ns"]["only"], listed["base_slice_ns"]["read"]) == ("eevdf", False)
    assert "only eevdf reads it" in " ".join(contend("list", "features", "-p", "linux-5.2").stdout.split())
