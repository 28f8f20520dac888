"""`contend sweep`: points, keys, the data set, resuming, and a cluster."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import contend as package
import polars as pl
import pytest
from conftest import ROOT, Contend
from contend.sweeping import spec as specs
from contend.sweeping import store as stores
from contend.sweeping.effects import effects, levels
from contend.sweeping.scenarios import Tasks, points
from contend.sweeping.work import Row

SCENARIO: dict[str, Any] = {
    "machine": "4c",
    "workload": {"kind": "hackbench", "groups": 1, "fds": 4, "loops": 20},
}
GRID = """\
scenario = "small.toml"

[grid]
policy = ["linux-5.2", "linux-6.18"]
set.wake_path = ["remote-lock", "ttwu-queue-6.0"]
seed = { from = 1, to = 3 }
"""


@pytest.fixture
def grid(tmp_path: Path, small: Path) -> Path:
    """A sweep of twelve points of some milliseconds."""
    assert small.parent == tmp_path
    (tmp_path / "grid.toml").write_text(GRID)
    return tmp_path / "grid.toml"


def test_a_grid(contend: Contend, grid: Path, small: Path) -> None:
    done = contend("sweep", grid, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["points"], said["done"], said["ran"], said["complete"]) == (12, 12, 12, True)
    assert [a["key"] for a in said["axes"]] == ["policy", "set.wake_path", "seed"]
    table = pl.read_parquet(grid.parent / "grid.sweep" / "sweep.parquet")
    assert table.height == 12
    assert table["key"].n_unique() == 12
    for row in table.iter_rows(named=True):
        alone = package.run(small, policy=row["policy"], set={"wake_path": row["set.wake_path"]}, seed=row["seed"])
        assert row["virtual_s"] == alone.summary["virtual_s"]
        assert row["rate.messages"] == alone.summary["metrics"]["counts"]["messages"]["per_s"]
    assert said == {**json.loads((grid.parent / "grid.sweep" / "sweep.json").read_text()), **{
        k: said[k] for k in ("directory", "ran", "cpu_s", "effects")}}  # fmt: skip
    names = sorted(f.name for f in (grid.parent / "grid.sweep").rglob("*") if f.is_file())
    assert names == [".lock", "part-000000.parquet", "sweep.json", "sweep.parquet"]


@pytest.mark.slow
def test_what_is_there_is_not_run_again(contend: Contend, grid: Path) -> None:
    first = json.loads(contend("sweep", grid, "--json").stdout)
    again = json.loads(contend("sweep", grid, "--json").stdout)
    assert (first["ran"], again["ran"], again["done"]) == (12, 0, 12)
    grid.write_text(GRID.replace("to = 3", "to = 4") + 'machine = ["2n4c2t", "4c"]\n')
    more = json.loads(contend("sweep", grid, "--json").stdout)
    assert (more["points"], more["ran"]) == (32, 32 - 12), "the machine of the scenario is one of the two"
    assert more["effects"]["keys"][0]["key"] == "machine"
    said = contend("sweep", grid, "--dry-run").stdout
    assert "32 points, 32 different scenarios: 32 are there, 0 to run" in said


@pytest.mark.parametrize("file", sorted((ROOT / "scenarios").glob("sweep-*.toml")), ids=lambda f: f.stem)
def test_shipped_sweeps_are_right(contend: Contend, file: Path) -> None:
    listed = json.loads(contend("sweep", file, "--dry-run", "--json").stdout)["points"]
    assert len(listed) > 100
    assert all(p["error"] is None and not p["there"] for p in listed)


def test_equal_scenarios_run_once(tmp_path: Path) -> None:
    # Features at their presets' values are the same scenario, and so is a key that is not the first to say so.
    grid: dict[str, list[Any]] = {"set.wake_path": ["ttwu-queue-6.0", "remote-lock"], "set.idle_polling": [True, False]}
    preset = {f["name"]: f["value"] for f in package.list_features("linux-6.18")}
    assert preset["wake_path"] == "ttwu-queue-6.0"
    found = package.sweep(
        {"scenario": SCENARIO, "grid": {**grid, "policy": ["linux-6.18", "linux"]}}, out=tmp_path / "s"
    )
    assert (found.about["points"], found.about["scenarios"], found.ran) == (8, 4, 4)
    assert found.frame()["virtual_s"].null_count() == 0


def test_a_metric_that_no_run_has(contend: Contend, grid: Path) -> None:
    grid.write_text('metrics = ["rate.nothing", "virtual_s"]\n' + GRID)
    done = contend("sweep", grid)
    assert "No run has rate.nothing." in done.stdout
    assert "What virtual_s hangs on" in done.stdout


def test_random_samples(tmp_path: Path) -> None:
    sweep: dict[str, Any] = {
        "scenario": SCENARIO,
        "grid": {"policy": ["linux-5.2", "linux-6.18"]},
        "random": {
            "samples": 6,
            "seed": 3,
            "workload.groups": {"integers": [1, 3]},
            "machine.lines.llc": {"integers": [30, 50]},
            "workload.transport": {"choice": ["pipe", "socket"]},
        },
        "metrics": ["virtual_s", "engine.ipis / wakeups.made"],
    }
    found = package.sweep(sweep, out=tmp_path / "s")
    table = found.frame()
    assert table.height == 12
    drawn = [table.filter(pl.col("policy") == p).select("workload.groups", "machine.lines.llc", "workload.transport")
             for p in ("linux-5.2", "linux-6.18")]  # fmt: skip
    assert drawn[0].equals(drawn[1]), "each point of the grid gets the same draws"
    assert set(table["workload.groups"]) <= {1, 2, 3}
    assert table["engine.ipis / wakeups.made"].null_count() == 0
    more = {**sweep, "random": {**sweep["random"], "samples": 7}}
    assert package.sweep(more, out=tmp_path / "s").ran == 2, "more samples change no earlier one"


def drawn(of: dict[str, Any]) -> list[Any]:
    """Values of one random key."""
    sweep = specs.load({"scenario": SCENARIO, "random": {"samples": 2000, "workload.loops": of}})
    return [p["workload.loops"] for p in points(sweep)]


def test_distributions() -> None:
    uniform = drawn({"uniform": [2.0, 4.0]})
    assert 2 <= min(uniform) < 2.1
    assert 3.9 < max(uniform) <= 4
    assert sum(uniform) / 2000 == pytest.approx(3, abs=0.06)
    log = drawn({"log_uniform": [1, 10_000]})
    assert 900 < sum(v < 100 for v in log) < 1100
    assert set(drawn({"integers": [1, 3]})) == {1, 2, 3}
    assert set(drawn({"choice": [5, 7]})) == {5, 7}


def tasks(sweep: dict[str, Any]) -> list[Any]:
    """The resolved scenarios of a sweep's points."""
    read = specs.load(sweep)
    made = Tasks(read)
    return [json.loads(made.task(p).scenario) for p in points(read)]


def test_a_sweep_over_a_recording_takes_all_its_files(contend: Contend, tmp_path: Path) -> None:
    scenario = str(ROOT / "recordings/pgbench-c.rec")
    (tmp_path / "s.toml").write_text(
        f'scenario = "{scenario}"\n[grid]\nmachine = ["2c", "4c"]\nset.autogroup = [true, false]\n'
    )
    assert contend("sweep", "s.toml").returncode == 0
    table = pl.read_parquet(tmp_path / "s.sweep/sweep.parquet")
    assert table["outcome"].to_list() == ["finished"] * 4
    # The events, the machine they were recorded on, and the sessions: by their contents.
    (first, *_) = tasks({"scenario": scenario, "grid": {"machine": ["2c"]}})
    names = [first["workload"][key].rsplit("/", 1)[1] for key in ("file", "recorded_on", "sessions")]
    assert names == ["trace.dat.gz", "machine.toml", "sessions.toml"]
    assert all(first["workload"][key].startswith("inputs/") for key in ("file", "recorded_on", "sessions"))


def test_weights_of_groups_vary() -> None:
    scenario = str(ROOT / "scenarios/groups.toml")
    one, two = tasks({"scenario": scenario, "grid": {"groups./web": [50, 300]}})
    assert (one["groups"], two["groups"]) == ({"/web": 50}, {"/web": 300})


def test_every_kind_of_key() -> None:
    guests = {
        "machine": "8c",
        "guest": [
            {"name": "a", "vcpus": 2, "workload": {"kind": "dbench", "clients": 2}},
            {"name": "b", "vcpus": 2, "workload": {"kind": "hackbench"}},
        ],
    }
    (said,) = tasks({"scenario": guests, "grid": {
        "guest.b.vcpus": [4], "guest.a.workload.clients": [3], "guest.spinlock": ["ticket"], "kvm.ple_gap": [64],
        "machine.lines.llc": [41], "horizon_s": [0.5], "warmup_s": [0.1], "stall_s": [7],
    }})  # fmt: skip
    a, b = said["guest"]
    assert (a["vcpus"], b["vcpus"], a["workload"]["clients"]) == (2, 4, 3)
    assert a["set"]["spinlock"] == b["set"]["spinlock"] == "ticket"
    assert (said["set"]["kvm.ple_gap"], said["set"]["machine.lines.llc"]) == (64, "41")
    assert (said["horizon_ns"], said["warmup_s"], said["stall_s"]) == (500_000_000, 0.1, 7)
    one, two = tasks({"scenario": SCENARIO, "grid": {"workload": [{"kind": "hackbench"}, {"kind": "schbench"}]}})
    assert (one["workload"]["kind"], two["workload"]["kind"]) == ("hackbench", "schbench")


def test_files_are_part_of_a_scenario(tmp_path: Path) -> None:
    rtapp = '{ "tasks": { "a": { "loop": 20, "run": 900, "sleep": 1000, "instance": 5 } } }'
    (tmp_path / "load.json").write_text(rtapp)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "copy.json").write_text(rtapp)
    sweep = {"scenario": str(tmp_path / "load.json"), "grid": {"machine": ["2c", "4c"]}}
    found = package.sweep(sweep, out=tmp_path / "s")
    assert found.frame()["outcome"].to_list() == ["finished"] * 2
    expected = package.run(tmp_path / "load.json", machine="2c").summary["virtual_s"]
    assert found.frame()["virtual_s"][0] == expected
    # The same bytes are the same scenario wherever they lie; other bytes are another.
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.copy(tmp_path / "load.json", moved)
    assert package.sweep({**sweep, "scenario": str(moved / "load.json")}, out=tmp_path / "s").ran == 0
    (moved / "load.json").write_text(rtapp.replace("900", "901"))
    assert package.sweep({**sweep, "scenario": str(moved / "load.json")}, out=tmp_path / "s").ran == 2


def test_what_goes_wrong_is_a_row(tmp_path: Path) -> None:
    deadlock = '{ "tasks": { "a": { "loop": 1, "lock": "m", "run": 10, "wait": {"ref": "c", "mutex": "m"} } } }'
    (tmp_path / "d.json").write_text(deadlock)
    files = {"kind": "rt-app", "file": str(tmp_path / "d.json")}
    sweep = {
        "scenario": SCENARIO,
        "grid": {"workload": [SCENARIO["workload"], files], "policy": ["linux-6.18", "linux-9.99"]},
    }
    found = package.sweep(sweep, out=tmp_path / "s")
    assert found.frame()["outcome"].to_list() == ["finished", "invalid", "deadlock", "invalid"]
    errors = found.frame()["error"].to_list()
    assert errors[0] is None
    assert "linux-9.99" in errors[1]
    assert "waits" in errors[2]
    assert found.complete


def test_files_that_are_wrong_make_no_data_set(tmp_path: Path) -> None:
    # The scenarios are right, but none can be built: nobody knows before they run.
    (tmp_path / "no.json").write_text('{ "tasks": { "a": { "loop": 1, "rum": 10 } } }')
    sweep = {"scenario": str(tmp_path / "no.json"), "grid": {"seed": [1, 2]}}
    with pytest.raises(package.ScenarioInvalid, match=r"no scenario of this sweep is possible: .*no\.json.*rum"):
        package.sweep(sweep, out=tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_one_writer(tmp_path: Path) -> None:
    sweep = {"scenario": SCENARIO, "grid": {"seed": [1]}}
    row = Row("k", "finished", None, "0", 0.0, 0.0, "{}")
    with stores.Store(tmp_path / "s") as one:
        one.add(row)
        one.flush()
        with pytest.raises(package.ContendError, match="another sweep writes here"):
            package.sweep(sweep, out=tmp_path / "s")
    package.sweep(sweep, out=tmp_path / "s")


def test_parts_are_whole_and_merged(tmp_path: Path) -> None:
    directory = tmp_path / "s"
    with stores.Store(directory) as store:
        for i in range(3):
            store.add(Row(f"k{i}", "finished", None, "0", 1.0, 1.0, "{}"))
            store.flush()
        store.add(Row("bad", "error", "memory", "0", 0.0, 0.0, None))
    assert len(list(directory.glob("results/*"))) == 3
    # A sweep that was killed while it wrote leaves a part that nobody reads, and the next one removes.
    (directory / "results" / "part-000003.parquet.partial").write_bytes(b"half")
    # One that was killed between merging and removing leaves rows twice.
    shutil.copy(directory / "results" / "part-000000.parquet", directory / "results" / "part-000004.parquet")
    with stores.Store(directory) as store:
        assert store.known == {f"k{i}": "finished" for i in range(3)}, "what may pass is not kept"
        assert sorted(r["key"] for r in store.rows({"k0", "k1", "k2"})) == ["k0", "k1", "k2"]
        store.compact()
    assert len(list(directory.glob("results/*"))) == 1
    with stores.Store(directory) as store:
        assert sorted(r["key"] for r in store.rows({"k0", "k2"})) == ["k0", "k2"]
    (directory / "results" / "part-000005.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(package.ContendError, match=r"part-000005.parquet: damaged"):
        stores.Store(directory)


def test_effects_are_found() -> None:
    rows = [(a, b, 10 * a + 0.1 * ((a * 7 + b * 3) % 5)) for a in (1, 2, 3) for b in range(8)]
    table = pl.DataFrame(rows, schema=["a", "b", "y"], orient="row")
    found = effects(table, {"axes": [{"key": "b", "kind": "grid"}, {"key": "a", "kind": "grid"}]}, "y")
    assert [e.key for e in found] == ["a", "b"]
    assert found[0].share is not None and found[0].share > 0.99
    assert (found[0].lowest[0], found[0].highest[0], found[1].share) == ("1", "3", 0)
    assert len(set(levels([i / 7 for i in range(100)]))) == 5


def test_a_random_key_has_as_many_values_as_samples() -> None:
    """Run at sixteen points of a grid, a key that does nothing explains nothing, and one that does what it does."""
    shares: dict[str, list[float]] = {"does": [], "nothing": []}
    axes = [{"key": "at", "kind": "grid"}, *({"key": key, "kind": "random"} for key in shares)]
    for seed in range(40):
        stream = random.Random(seed)
        samples = [(stream.uniform(0, 1), stream.randint(20, 40)) for _ in range(12)]
        rows = [(at, a, b, a + 0.1 * at) for at in range(16) for a, b in samples]
        table = pl.DataFrame(rows, schema=["at", *shares, "y"], orient="row")
        for effect in effects(table, {"axes": axes}, "y"):
            if effect.key in shares:
                assert effect.share is not None
                shares[effect.key].append(effect.share)
    assert fmean(shares["nothing"]) < 0.05
    assert fmean(shares["does"]) > 0.1
    few = pl.DataFrame(
        [(1, 0.1, 20, 1.0), (1, 0.5, 30, 2.0), (1, 0.9, 40, 3.0)], schema=["at", *shares, "y"], orient="row"
    )
    assert all(e.share is None or e.share < 1 for e in effects(few, {"axes": axes}, "y"))


def test_one_run_a_value_explains_nothing_and_it_is_said() -> None:
    table = pl.DataFrame([(1, 10.0), (2, 20.0), (4, 40.0)], schema=["groups", "y"], orient="row")
    (effect,) = effects(table, {"axes": [{"key": "groups", "kind": "grid"}]}, "y")
    assert (effect.share, effect.explains) == (None, "one run a value")
    assert (effect.lowest[0], effect.highest[0]) == ("1", "4")


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done(tmp_path: Path, contend: Contend) -> None:
    (tmp_path / "s.toml").write_text("""\
[scenario]
machine = "4c"
workload = { kind = "hackbench", groups = 2, loops = 100 }
[grid]
seed = { from = 1, to = 5000 }
""")
    process = subprocess.Popen(
        [sys.executable, "-m", "contend", "sweep", "s.toml", "--progress"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not list(tmp_path.glob("s.sweep/results/*.parquet")):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    last = err.splitlines()[-1].rpartition("\r")[2]
    assert last.startswith("interrupted: ")
    assert last.endswith("of 5,000 points are in s.sweep; `contend sweep s.toml` goes on")
    assert "scenarios" in err
    about = json.loads((tmp_path / "s.sweep/sweep.json").read_text())
    assert 0 < about["done"] < 5000
    assert not about["complete"]
    text = (tmp_path / "s.toml").read_text().replace("to = 5000", f"to = {about['done'] + 5}")
    (tmp_path / "s.toml").write_text(text)
    rest = json.loads(contend("sweep", "s.toml", "--json").stdout)
    assert rest["ran"] < 10
    assert rest["complete"]


def test_ctrl_c_before_the_first_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    sweep = {"scenario": SCENARIO, "grid": {"seed": {"from": 1, "to": 30}}}
    monkeypatch.setattr("contend.sweeping.sweep.execute", lambda *_: time.sleep(0.5))
    with pytest.raises(package.Incomplete) as stopped:
        package.sweep(sweep, out=tmp_path / "s", progress=pressed)
    assert stopped.value.sweep.table.height == 0
    assert not (tmp_path / "s").exists()


def test_jobs_that_are_no_number(tmp_path: Path) -> None:
    for jobs in (-1, 0, 1.5, True):
        with pytest.raises(package.ContendError, match=r"--jobs: found .*; should be a whole number, 1 or more"):
            package.sweep({"scenario": SCENARIO, "grid": {"seed": [1]}}, out=tmp_path / "s", jobs=jobs)  # type: ignore[arg-type]


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_space = "No space left on device"
    for error in (OSError(28, no_space), pl.exceptions.ComputeError(f"underlying IO error: {no_space}")):

        def full(_frame: object, to: Path, error: Exception = error) -> None:
            to.write_bytes(b"half")
            raise error

        monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
        with pytest.raises(package.ContendError, match=rf"part-000000\.parquet: cannot be written: {no_space}$"):
            package.sweep({"scenario": SCENARIO, "grid": {"seed": [1]}}, out=tmp_path / "s")
        assert not list(tmp_path.rglob("*.partial"))


WRONG = [
    ('scenaro = "x"', "s.toml:1: scenaro: unknown key; keys of a sweep are scenario, grid, random, metrics"),
    ("[grid]\nseed = [1]", "s.toml: scenario: found nothing; should be scenario = "),
    ('scenario = "no.toml"\n[grid]\nseed = [1]', "no.toml: cannot be read: no such file"),
    ('scenario = "small.toml"', "s.toml: grid: found nothing that varies"),
    ('scenario = "small.toml"\n[grid]\nseed = []', "s.toml:3: seed: found []; should be a list of values"),
    ('scenario = "small.toml"\n[grid]\nseed = [1, 1]', "s.toml:3: seed: found a value twice"),
    (
        'scenario = "small.toml"\n[grid]\n"workload.loops" = [1]\nworkload.loops = [2]',
        "workload.loops: found a key twice",
    ),
    ('scenario = "small.toml"\n[grid]\nseed = { from = 2, to = 1 }', "s.toml:3: seed: found {"),
    ('scenario = "small.toml"\n[grid]\nseeds = [1]', "s.toml:3: seeds: unknown key; keys that vary begin with machine"),
    ('scenario = "small.toml"\n[grid]\nset.wake_pth = [1, 2]', "s.toml:3: set.wake_pth: no value is possible: --set: "),
    (
        'scenario = "small.toml"\n[grid]\n"workload.grups" = [1]',
        "s.toml:3: workload.grups: no value is possible: --set",
    ),
    ('scenario = "small.toml"\n[random]\n"workload.groups" = { integers = [1, 2] }', "samples: found nothing"),
    ('scenario = "small.toml"\n[random]\nsamples = 2', "s.toml:2: random: found no keys"),
    (
        'scenario = "small.toml"\n[random]\nsamples = 2\n"workload.groups" = { normal = [1, 2] }',
        "should be a distribution",
    ),
    (
        'scenario = "small.toml"\n[random]\nsamples = 2\n"machine.lines.llc" = { log_uniform = [0, 2] }',
        "{ log_uniform = [LOW, HIGH] } above 0",
    ),
    ('scenario = "small.toml"\nmetrics = ["virtual"]\n[grid]\nseed = [1]', "s.toml:2: metrics: found 'virtual'"),
    ('scenario = "bad.toml"\n[grid]\nseed = [1]', "bad.toml:3: polcy: unknown key; did you mean policy?"),
    ('scenario = "small.toml"\n[grid]\nseed = { from = 1, to = 300000 }', "at most 200,000"),
    ("scenario = ", "s.toml: not valid TOML"),
    (
        'scenario = "small.toml"\n[grid]\nseed = [1]\n[random]\nseed = -1\n"workload.fds" = { choice = [1] }',
        "s.toml:5: seed: found -1",
    ),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[m for _, m in WRONG])
def test_wrong_input(contend: Contend, small: Path, text: str, message: str) -> None:
    folder = small.parent
    (folder / "s.toml").write_text(text + "\n")
    (folder / "bad.toml").write_text(small.read_text().replace("\nseed", "\npolcy = 1\nseed", 1))
    done = contend("sweep", "s.toml")
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (folder / "s.sweep").exists()


def test_wrong_places(contend: Contend, grid: Path) -> None:
    (grid.parent / "full").mkdir()
    (grid.parent / "full" / "letter.txt").write_text("dear")
    assert "no sweep; name another with --out" in contend("sweep", grid, "--out", "full").stderr
    both = contend("sweep", grid, "--cluster", "tcp://127.0.0.1:1", "--jobs", "2")
    assert (both.returncode, "--jobs: found with --cluster" in both.stderr) == (2, True)


# ---- a cluster -------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A Dask scheduler and two workers of one thread, as processes, without a file system in common with the sweep."""
    pytest.importorskip("distributed")
    file = tmp_path / "scheduler.json"
    env = {**os.environ, "DASK_DISTRIBUTED__DASHBOARD__LINK": "", "PYTHONWARNINGS": "default"}
    host = ["--host", "127.0.0.1", "--no-dashboard"]
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "dask", "scheduler", *host, "--port", "0", "--scheduler-file", str(file)],
        env=env, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    processes = [scheduler]
    try:
        for i in range(2):
            home = tmp_path / f"worker{i}"
            home.mkdir()
            words = ["worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny", "--no-dashboard"]
            worker = subprocess.Popen(
                [sys.executable, "-m", "dask", *words],
                env={**env, "TMPDIR": str(home)}, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            processes.append(worker)
        from distributed import Client

        while not file.exists():
            assert scheduler.poll() is None
            time.sleep(0.1)
        with Client(scheduler_file=str(file), set_as_default=False, timeout=60) as client:  # type: ignore[no-untyped-call]
            client.wait_for_workers(2, timeout=60)
        yield str(file), processes[1:]
    finally:
        for p in processes:
            p.kill()
        for p in processes:
            p.wait()


def on_cluster(
    tmp_path: Path, cluster: tuple[str, list[subprocess.Popen[bytes]]], number: int, kill_at: int | None
) -> tuple[package.Sweep, int]:
    """A sweep of so many scenarios, of which a worker dies after some are done: the sweep, and when that was."""
    address, workers = cluster
    (tmp_path / "load.json").write_text(
        '{ "tasks": { "a": { "loop": 300, "run": 900, "sleep": 1000, "instance": 8 } } }'
    )
    killed = 0

    def progress(done: int, total: int, what: str) -> None:
        nonlocal killed
        if kill_at is not None and done >= kill_at and not killed:
            workers[0].kill()
            killed = done

    files = {"kind": "rt-app", "file": str(tmp_path / "load.json")}
    sweep = {
        "scenario": {"machine": "4c", "workload": files, "horizon_s": 0.3},
        "grid": {"seed": {"from": 1, "to": number}},
        "metrics": ["virtual_s"],
    }
    return package.sweep(sweep, out=tmp_path / "s", cluster=address, progress=progress), killed


def check(tmp_path: Path, found: package.Sweep, number: int) -> None:
    """Every scenario is there, none twice."""
    rows = pl.read_parquet(str(tmp_path / "s/results/*.parquet"))
    assert rows["key"].n_unique() == rows.height == number
    assert set(rows["outcome"]) <= {"finished", "horizon"}
    assert found.complete
    assert found.frame().height == number


@pytest.mark.slow
def test_a_cluster_whose_worker_dies(tmp_path: Path, cluster: tuple[str, list[subprocess.Popen[bytes]]]) -> None:
    found, killed = on_cluster(tmp_path, cluster, 60, 20)
    assert 20 <= killed < 60, "it died midway"
    assert found.ran == 60
    check(tmp_path, found, 60)
    # A thing in the data set is not sent again.
    again, _ = on_cluster(tmp_path, (cluster[0], []), 60, None)
    assert again.ran == 0


@pytest.mark.slow
def test_a_larger_sweep_whose_worker_dies(tmp_path: Path, cluster: tuple[str, list[subprocess.Popen[bytes]]]) -> None:
    found, killed = on_cluster(tmp_path, cluster, 300, 150)
    assert 150 <= killed < 300
    assert found.ran == 300
    check(tmp_path, found, 300)


@pytest.mark.slow
def test_workers_of_another_build_are_refused(
    grid: Path, cluster: tuple[str, list[subprocess.Popen[bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from contend.sweeping import cluster as clusters

    monkeypatch.setattr(clusters, "build", lambda: "0.0.0-other")
    with pytest.raises(package.ContendError, match=r"found contend .*; should be 0\.0\.0-other, as here"):
        package.sweep(grid, cluster=cluster[0], out=grid.parent / "c")


@pytest.mark.slow
@pytest.mark.long(50)
def test_many_scenarios_leave_little_beside_simulation(tmp_path: Path) -> None:
    import resource

    def used() -> float:
        r = resource.getrusage(resource.RUSAGE_SELF)
        return r.ru_utime + r.ru_stime

    scenario = {"machine": "2n4c2t", "workload": {"kind": "hackbench", "groups": 2, "loops": 100}}
    began = used()
    found = package.sweep({"scenario": scenario, "grid": {"seed": {"from": 1, "to": 250}}}, out=tmp_path / "s")
    assert found.about["outcomes"] == {"finished": 250}
    assert found.cpu_s > 0.9 * (used() - began)


@pytest.mark.slow
def test_no_cluster(contend: Contend, grid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    from contend.sweeping import cluster as clusters

    monkeypatch.setattr(clusters, "CONNECT_S", 1)
    with pytest.raises(package.ContendError, match="no Dask scheduler answers"):
        package.sweep(grid, cluster="tcp://127.0.0.1:1", out=grid.parent / "c")
    assert not (grid.parent / "c").exists()
