"""Where a study's settings hold: costs that are no longer uncertain, features in scenarios, machines of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from contend.study import beyond, fitting, load, plan, reproduction
from contend.study.plan import Options, Plan, Run
from contend.study.section import StudyInvalid
from contend.study.simulate import Measured, Progress, simulate
from study_files import BEFORE, HEADER, MACHINE, SCENARIO, TOML, published, row, write

X = 'x = "workload.pairs"'
METRIC = 'metric = { rate = "round_trips" }'
VARY = 'vary = { machine = ["4c", "1n1l4c2t"], "workload.pairs" = [2] }'
MACHINES = Path(__file__).parent.parent / "machines"


def drawn(folder: Path, x: float = 1) -> set[str]:
    study = load.load(folder)
    (first, *_) = plan.draws(study, study.workloads[0], x, 2)
    return set(first)


def with_set(line: str) -> str:
    return SCENARIO.replace("[workload]", f"[set]\n{line}\n\n[workload]")


def test_costs_that_a_study_sets_are_not_drawn(tmp_path: Path) -> None:
    every = drawn(write(tmp_path))
    assert {"machine.lines.llc", "machine.lines.node", "workload.bytes"} <= every
    known = every - {"machine.lines.llc"}
    assert drawn(write(tmp_path, toml=TOML.replace(X, X + '\nset = { "machine.lines.llc" = 1000 }'))) == known
    by_x = TOML.replace(X, 'x = "machine.lines.llc"\nset = { "workload.pairs" = 2 }')
    assert drawn(write(tmp_path, toml=by_x)) == known
    assert drawn(write(tmp_path, scenario=with_set("machine.lines.llc = 1000"))) == known
    assert drawn(write(tmp_path, scenario=with_set('"machine.lines.llc" = 1000'))) == known


def test_an_array_of_costs_that_is_set_is_not_drawn(tmp_path: Path) -> None:
    toml, rows = TOML.replace(MACHINE, "4n2c"), published().replace(MACHINE, "4n2c")
    assert "machine.lines.remote.0" in drawn(write(tmp_path, toml=toml, rows=rows))
    toml = toml.replace(X, X + '\nset = { "machine.lines.remote" = 200 }')
    assert not any(k.startswith("machine.lines.remote") for k in drawn(write(tmp_path, toml=toml, rows=rows)))


def test_each_scenario_of_a_workload_has_its_own(tmp_path: Path) -> None:
    at_x = 'scenarios = { 1 = "scenarios/pairs.toml", 2 = "scenarios/slow.toml", 4 = "scenarios/pairs.toml", 6 = '
    toml = TOML.replace(f'scenario = "scenarios/pairs.toml"\n{X}\n', at_x + '"scenarios/pairs.toml" }\n')
    assert toml != TOML
    folder = write(tmp_path, toml=TOML)
    (folder / "scenarios" / "slow.toml").write_text(with_set("machine.lines.llc = 1000"))
    (folder / "study.toml").write_text(toml)
    assert "machine.lines.llc" in drawn(folder, 1)
    assert "machine.lines.llc" not in drawn(folder, 2)


def test_an_assumption_stands_for_a_cost_that_the_scenario_sets(tmp_path: Path) -> None:
    toml = TOML.replace('"workload.bytes"', '"machine.lines.llc"')
    folder = write(tmp_path, toml=toml, scenario=with_set("machine.lines.llc = 50"))
    study = load.load(folder)
    assert all(d["machine.lines.llc"] in range(4, 65) for d in plan.draws(study, study.workloads[0], 1, 8))


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('spinlock = "queued"', "spinlock"),
        ('"kvm.directed_yield" = "theurer"', "kvm.directed_yield"),
        ('kvm.directed_yield = "theurer"', "kvm.directed_yield"),
        ('guest.spinlock = "queued"', "guest.spinlock"),
    ],
)
def test_features_stand_in_no_scenario(tmp_path: Path, line: str, key: str) -> None:
    guest = with_set(line).replace("[workload]", "[[guest]]\nvcpus = 4\n\n[guest.workload]")
    folder = write(tmp_path, scenario=with_set(line) if key == "spinlock" else guest)
    with pytest.raises(StudyInvalid) as refused:
        load.load(folder)
    file = folder / "scenarios" / "pairs.toml"
    said = str(refused.value)
    assert said.startswith(f"{folder / 'study.toml'}:21: workload[0].scenario: {file}:")
    assert f"set.{key}: found {key}; should be a key of the workload or of the machine: features stand in " in said


def test_scenarios_of_tables_beyond_may_set_features(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "scenarios" / "other.toml").write_text(with_set('spinlock = "queued"'))
    toml = TOML.replace('workload = "pairs"\nvary', 'scenario = "scenarios/other.toml"\nvary')
    (folder / "study.toml").write_text(toml)
    assert load.load(folder).beyond[0].machine is None


@pytest.mark.skipif(sys.version_info >= (3, 15), reason="tomllib reads TOML 1.1")
def test_a_scenario_that_only_the_simulator_reads(tmp_path: Path) -> None:
    folder = write(tmp_path, scenario=f'machine = "{MACHINE}"\nworkload = {{\n  kind = "ping-pong",\n}}\n')
    with pytest.raises(StudyInvalid, match=r"workload\[0\]\.scenario: .*pairs\.toml: not valid TOML 1\.0: "):
        load.load(folder)


def lines(folder: Path) -> list[str | None]:
    study = load.load(folder)
    table = beyond.table(study, study.beyond[0], Options(quick=True), Plan())
    return list(dict.fromkeys(r.machine for line in table.lines for r in line.runs))


def test_beyond_runs_on_the_machine_of_its_workload(tmp_path: Path) -> None:
    other = SCENARIO.replace(MACHINE, "1c")
    assert lines(write(tmp_path, scenario=other)) == ["4c", MACHINE]
    toml = TOML.replace(VARY, 'vary = { "workload.pairs" = [2] }')
    assert lines(write(tmp_path, toml=toml, scenario=other)) == [MACHINE]


def test_beyond_names_one_of_several_machines(tmp_path: Path) -> None:
    (workload,) = [p for p in TOML.split("\n\n") if p.startswith("[[workload]]")]
    second = workload.replace(MACHINE, "4c").replace("fit_x = [1, 2, 4]", 'set = { "workload.work_ns" = 5 }')
    toml = TOML.replace("[[assumption]]", f"{second}\n\n[[assumption]]")
    rows = published() + published().removeprefix(HEADER).replace(MACHINE, "4c")
    with pytest.raises(StudyInvalid, match=rf"beyond\[0\]\.machine: missing; pairs runs on {MACHINE} and 4c"):
        load.load(write(tmp_path, toml=toml, rows=rows))
    for machine, work in ((MACHINE, 2000), ("4c", 5)):
        named = toml.replace(VARY, f'machine = "{machine}"\nvary = {{ "workload.pairs" = [2] }}')
        folder = write(tmp_path, toml=named, rows=rows)
        assert lines(folder) == [machine]
        assert load.load(folder).beyond[0].set == {"workload.work_ns": work}


def test_a_machine_file_is_relative_to_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "../host.toml"
    toml = TOML.replace(MACHINE, name)
    folder = write(tmp_path / "tiny", toml=toml, rows=published().replace(MACHINE, name))
    (tmp_path / "host.toml").write_bytes((MACHINES / "westmere-ex-8s-32c.toml").read_bytes())
    found = []
    for here, study in ((tmp_path, "tiny"), (folder, "."), (Path("/"), os.fspath(folder))):
        monkeypatch.chdir(here)
        found.append(reproduction.reproduce(study, quick=True))
        assert drawn(Path(study))
    assert found[0].row_list == found[1].row_list == found[2].row_list
    assert {r["machine"] for r in found[0].row_list} == {name}
    assert all(r["simulated"] for r in found[0].row_list)
    (folder / "study.toml").write_text(toml.replace('"4c", ', ""))
    tables = reproduction.reproduce(folder, quick=True, beyond=True).beyond_list
    assert {r["at"]["machine"] for r in tables} == {name}


def test_nothing_is_left_after_the_patch(tmp_path: Path) -> None:
    rows = HEADER + row("pairs/quick", "before", 1, BEFORE[1]) + row("pairs/quick", "after", 1, 0)
    toml = TOML.replace("fit_x = [1, 2, 4]", "").replace("[workload.fitted]", "[workload.set]")
    toml = toml.replace("{ value = 2000, lo = 0, hi = 10_000 }", "2000")
    (effect,) = reproduction.reproduce(write(tmp_path, toml=toml, rows=rows), quick=True).effect_list
    assert effect["published_pct"] == -100
    (effect,) = reproduction.reproduce(
        write(tmp_path, rows=rows.replace("higher", "lower"), toml=toml), quick=True
    ).effect_list
    assert effect["published_pct"] == 100


def test_other_metrics_than_those_of_the_fit_may_be_ratios(tmp_path: Path) -> None:
    both = 'metrics = { throughput = { rate = "round_trips" }, ratio = { normalized = "round_trips" } }'
    rows = published() + published().removeprefix(HEADER).replace("throughput", "ratio")
    toml = TOML.replace(METRIC, both)
    with pytest.raises(StudyInvalid, match="only a rate, a time, a value or a latency can be fitted"):
        load.load(write(tmp_path, toml=toml, rows=rows))
    toml = toml.replace("fit_x =", 'fit_metrics = ["throughput"]\nfit_x =')
    study = load.load(write(tmp_path, toml=toml, rows=rows))
    assert {r.metric for r in fitting.fit_rows(study, study.workloads[0])} == {"throughput"}
    with pytest.raises(StudyInvalid, match="only a rate, a time, a value or a latency can be fitted"):
        load.load(write(tmp_path, toml=toml.replace('["throughput"]', '["ratio"]'), rows=rows))


def test_rows_that_tables_repeat_count_once_for_a_shared_fit(tmp_path: Path) -> None:
    shared = TOML.replace("[workload.fitted]", '[[fit]]\nname = "all"\n[fit.fitted]')
    shared = shared.replace("fit_x = [1, 2, 4]", 'fit = "all"\nfit_x = [1, 2]')
    load.load(write(tmp_path, toml=shared))
    with pytest.raises(StudyInvalid, match=r"fit\[0\]\.fit_x: found 1 rows for 1 parameters; should be more rows"):
        load.load(write(tmp_path, toml=shared.replace("fit_x = [1, 2]", "fit_x = [1]")))
    # Nor do two workloads that are the same.
    (workload,) = [p for p in shared.split("\n\n") if p.startswith("[[workload]]")]
    by_table = [workload.replace(X, f'{X}\ntable = "pairs/{t}"').replace("[1, 2]", "[1]") for t in ("quick", "both")]
    with pytest.raises(StudyInvalid, match=r"fit\[0\]\.fit_x: found 1 rows for 1 parameters; should be more rows"):
        load.load(write(tmp_path, toml=shared.replace(workload, "\n\n".join(by_table))))


def counting(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    ran: list[Run] = []

    def count(runs: dict[Run, set[str]], progress: Progress | None = None) -> dict[Run, Measured]:
        ran.extend(runs)
        return simulate(runs, progress)

    monkeypatch.setattr(reproduction, "simulate", count)
    return ran


def test_a_mistyped_metric_is_found_before_the_rest_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = counting(monkeypatch)
    folder = write(tmp_path, toml=TOML.replace('rate = "round_trips"', 'rate = "round_trip"'))
    with pytest.raises(StudyInvalid, match=r"metric: found rate\.round_trip, which no run of pairs"):
        reproduction.reproduce(folder)
    # Those of the first seed, without draws.
    assert len(ran) == 11
    assert {r.seed for r in ran} == {1}


def test_no_run_is_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = counting(monkeypatch)
    looks: list[tuple[int, int]] = []
    found = reproduction.reproduce(write(tmp_path), progress=lambda done, of: looks.append((done, of)))
    assert len(ran) == len(set(ran)) == found.runs == 44
    assert looks == sorted(looks)
    assert {of for _, of in looks} == {44}
    assert looks[-1] == (44, 44)


def test_a_metric_that_only_later_runs_have_is_no_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def first_lacks(runs: dict[Run, set[str]], progress: Progress | None = None) -> dict[Run, Measured]:
        measured = simulate(runs, progress)
        for run, m in measured.items():
            if ("workload.pairs", "1") in run.set:
                m.values.update(dict.fromkeys(m.values))
        return measured

    monkeypatch.setattr(reproduction, "simulate", first_lacks)
    found = reproduction.reproduce(write(tmp_path), quick=True)
    assert {r["x"] for r in found.row_list if r["simulated"] is None} == {1}
