"""`contend reproduce` and `contend fit` on a tiny study, and their promises."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import contend
import polars as pl
import pytest
import study_files
from conftest import Contend
from contend.study import beyond, fitting, load, plan, reproduction
from contend.study.plan import Options, Plan, Run
from contend.study.simulate import Measured, simulate
from study_files import TOML, published, write

ROW_KEYS = [
    "study",
    "table",
    "machine",
    "workload",
    "variant",
    "x",
    "metric",
    "published",
    "published_lo",
    "published_hi",
    "simulated",
    "kind",
]
EFFECT_KEYS = [
    "study",
    "table",
    "machine",
    "workload",
    "variant",
    "reference",
    "x",
    "metric",
    "published_pct",
    "noise_pct",
    "simulated_pct",
    "spread_pct",
    "band_lo_pct",
    "band_hi_pct",
    "kind",
    "sign_ok",
    "size_ok",
]
SUMMARY_KEYS = ["right_sign_share", "right_size_share", "median_error_pp", "worst_error_pp", "rows_judged"]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write(tmp_path / "tiny")


def test_json_has_the_keys_that_were_promised(contend: Contend, tiny: Path) -> None:
    done = contend("reproduce", tiny, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["rows"]) == 14
    assert len(found["effects"]) == 7
    for r in found["rows"]:
        assert set(ROW_KEYS) <= set(r)
        fitted = r["variant"] == "before" and r["x"] in (1, 2, 4)
        assert r["kind"] == ("fit" if fitted else "predicted")
        assert r["simulated"] > 0
        assert r["sliced"]
    for e in found["effects"]:
        assert set(EFFECT_KEYS) <= set(e)
        assert (e["kind"], e["reference"], e["variant"]) == ("predicted", "before", "after")
        assert e["band_lo_pct"] <= e["simulated_pct"] <= e["band_hi_pct"]
        assert e["undetermined"] == (e["band_lo_pct"] < 0 < e["band_hi_pct"])
    s = found["summary"]
    assert set(SUMMARY_KEYS) <= set(s)
    for name in ("zero", "plus_one"):
        assert set(SUMMARY_KEYS) <= set(s["baselines"][name])
    assert s["rows_judged"] + s["quiet_rows"] == s["rows_all"] == 7
    assert "slices of 2 ms" in s["slices"]
    assert found["failures"] == []


def test_effects_follow_from_the_rows(tiny: Path) -> None:
    found = contend.reproduce(tiny, quick=True)
    rows = {(r["table"], r["x"], r["variant"]): r["simulated"] for r in found.rows.iter_rows(named=True)}
    for e in found.effects.iter_rows(named=True):
        before, after = rows[(e["table"], e["x"], "before")], rows[(e["table"], e["x"], "after")]
        assert e["simulated_pct"] == pytest.approx(100 * (after / before - 1))
        assert (e["band_lo_pct"], e["band_hi_pct"], e["spread_pct"]) == (None, None, None)


def test_frames(tiny: Path) -> None:
    found = contend.reproduce(tiny, quick=True, ablate=True)
    assert isinstance(found.rows, pl.DataFrame)
    assert (found.rows.height, found.effects.height, found.summary.height) == (14, 7, 3)
    assert found.summary["predictor"].to_list() == ["model", "zero", "plus_one"]
    assert found.effects["judged"].dtype == pl.Boolean
    # Only the switch with two features: each alone, and without each, at three x.
    assert found.ablation.height == 12
    assert set(found.ablation["variant"]) == {
        "only sis_core", "without sis_core", "only wake_affine", "without wake_affine",
    }  # fmt: skip
    only = {a["x"]: a["simulated_pct"] for a in found.ablation_list if a["variant"] == "only sis_core"}
    rest = {a["x"]: a["simulated_pct"] for a in found.ablation_list if a["variant"] == "without wake_affine"}
    assert only == rest


def test_ablation_keeps_together_what_needs_each_other(tiny: Path) -> None:
    both = "sis_limit = true\nsis_next_cpu = true\nsis_rotate = true"
    write(tiny, toml=TOML.replace('sis_core = false\nwake_affine = "off"', both))
    notes = {a["variant"]: a["note"] for a in contend.reproduce(tiny, quick=True, ablate=True).ablation_list}
    assert notes == {
        "only sis_limit": "",
        "without sis_limit": "",
        "only sis_next_cpu": "",
        "without sis_next_cpu": "nor sis_rotate, which needs it",
        "only sis_rotate": "with sis_next_cpu, which it needs",
        "without sis_rotate": "",
    }


def test_the_same_twice(contend: Contend, tiny: Path) -> None:
    def once() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(contend("reproduce", tiny, "--json").stdout)
        for key in ("cpu_s", "wall_s"):
            del found["summary"][key]
        return found

    assert once() == once()


@pytest.mark.slow
def test_words_and_picture(contend: Contend, tiny: Path, tmp_path: Path) -> None:
    done = contend("reproduce", tiny, "--quick", "--ablate", "--plot", "p.svg")
    assert done.returncode == 0, done.stderr
    words = [
        "pairs/quick on 1n1l4c2t (1/s)",
        "fit",
        "Summary of tiny:",
        "+1 %",
        "slices of 1 ms",
        "Ablation: pairs/both",
    ]
    for word in words:
        assert word in done.stdout, word
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")
    refused = contend("reproduce", tiny, "--plot", "p.gif")
    assert refused.returncode == 2
    assert "--plot: found 'p.gif'" in refused.stderr


def test_beyond(contend: Contend, tiny: Path) -> None:
    done = contend("reproduce", tiny, "--beyond", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(r["at"]["machine"], r["variant"]) for r in found["beyond"]] == [
        ("4c", "old"), ("4c", "v3"), ("1n1l4c2t", "old"), ("1n1l4c2t", "v3"),
    ]  # fmt: skip
    assert all(r["values"]["rate.round_trips"] > 0 for r in found["beyond"])
    assert (found["rows"], found["effects"]) == ([], [])
    words = contend("reproduce", tiny, "--beyond", "--quick", "--plot", "b.svg").stdout
    assert "tiny: machines" in words
    assert "Figure in b.svg." in words


def test_beyond_at_the_points_named(tmp_path: Path) -> None:
    points = 'at = [{ machine = "4c", "workload.pairs" = 2 }, { machine = "1n1l4c2t", "workload.pairs" = 3 }]'
    vary = 'vary = { machine = ["4c", "1n1l4c2t"], "workload.pairs" = [2] }'
    assert vary in TOML
    study = load.load(write(tmp_path, toml=TOML.replace(vary, points + "\nseeds = 4")))
    assert [len(line.runs) for line in beyond.table(study, study.beyond[0], plan.Options(), plan.Plan()).lines] == [
        4
    ] * 4
    assert study.beyond[0].points == (
        {"machine": "4c", "workload.pairs": 2}, {"machine": "1n1l4c2t", "workload.pairs": 3},
    )  # fmt: skip


def test_before_is_simulated_once_for_all_tables(tiny: Path) -> None:
    study = load.load(tiny)
    # x = 1, 2, 4 under three settings and x = 6 under two: one run a seed and a draw each.
    assert len(reproduction.planned(study)) == 11 * (2 + 2)
    assert len(reproduction.planned(study, quick=True)) == 11
    assert len(reproduction.planned(study, seeds=5)) == 11 * (5 + 2)


def test_draws_vary_every_uncertain_cost_at_once(tiny: Path) -> None:
    study = load.load(tiny)
    drawn = plan.draws(study, study.workloads[0], 1, 8)
    costs = contend.list_costs(study_files.MACHINE)
    uncertain = {f"machine.{c['name']}": c for c in costs if c["lo"] < c["hi"]}
    assert all(set(d) == {*uncertain, "workload.bytes"} for d in drawn)
    for key, cost in uncertain.items():
        values = [d[key] for d in drawn]
        assert all(isinstance(v, int) and cost["lo"] <= v <= cost["hi"] for v in values)
        if cost["hi"] > 20 * max(cost["lo"], 1):
            assert len(set(values)) == 8
    assert drawn == plan.draws(study, study.workloads[0], 1, 8)


def test_a_metric_that_no_run_reports_is_a_mistake(contend: Contend, tiny: Path) -> None:
    write(tiny, toml=TOML.replace('rate = "round_trips"', 'rate = "round_trip"'))
    done = contend("reproduce", tiny, "--quick")
    assert done.returncode == 2
    assert "study.toml:18: metric: found rate.round_trip, which no run of pairs" in done.stderr


def test_a_study_named_twice_runs_once(tiny: Path, tmp_path: Path) -> None:
    assert len(contend.reproduce([tiny, tiny / "study.toml"], quick=True).effect_list) == 7
    other = write(tmp_path / "other")
    with pytest.raises(contend.StudyInvalid, match="found name = 'tiny', which"):
        contend.reproduce([tiny, other], quick=True)


def test_changes_that_a_post_prints_alone(tmp_path: Path) -> None:
    place = "tiny,pairs,1n1l4c2t,pairs,after-vs-before,pairs,4"
    rows = [
        study_files.HEADER,
        f"{place},waits,percent,higher,90,,,,\n",
        f"{place},time,percent,higher,,0.5,4,,printed as a range\n",
    ]
    toml = TOML.replace(
        'metric = { rate = "round_trips" }',
        'metrics.waits = { reduction = "lock_kinds.rq.acquisitions" }\nmetrics.time = { reduction = "virtual_s" }',
    )
    toml = toml.replace("fit_x = [1, 2, 4]\n", "")
    head, _, rest = toml.partition("[workload.fitted]")
    toml = head + rest[rest.index("[[assumption]]") :]
    toml = toml.replace('[switch.both]\nsis_core = false\nwake_affine = "off"\n', "")
    found = contend.reproduce(write(tmp_path / "tiny", toml=toml, rows="".join(rows)), quick=True)
    waits, time = found.effect_list
    assert (waits["published_pct"], waits["noise_pct"], waits["judged"]) == (90, 2, True)
    assert (time["published_pct"], time["judged"], time["simulated_pct"]) == (2.25, False, 0)
    assert [(r["published_lo"], r["published_hi"]) for r in found.row_list] == [(None, None), (0.5, 4)]
    assert found.row_list[0]["simulated"] == waits["simulated_pct"]


def test_a_change_of_a_rate_is_a_rise(tmp_path: Path) -> None:
    rows = study_files.HEADER
    for better, x in (("higher", 2), ("lower", 4)):
        rows += f"tiny,pairs/quick,1n1l4c2t,pairs,after-vs-before,pairs,{x},throughput,percent,{better},10,,,,\n"
    head, _, rest = TOML.replace("fit_x = [1, 2, 4]\n", "").partition("[workload.fitted]")
    toml = head + rest[rest.index("[[assumption]]") :]
    found = contend.reproduce(write(tmp_path / "tiny", toml=toml, rows=rows), quick=True)
    cases = plan.cases(found.studies[0], found.options, Plan())
    for case, row, effect, sign in zip(cases, found.row_list, found.effect_list, (1, -1), strict=True):
        (pair,) = case.seeds
        rates = simulate({r: {"rate.round_trips"} for r in (pair.before, pair.after)}).values()
        before, after = (m.values["rate.round_trips"] or 0 for m in rates)
        assert row["simulated"] == pytest.approx(100 * (after - before) / before)
        assert (effect["published_pct"], effect["simulated_pct"]) == (10 * sign, sign * row["simulated"])


def test_ctrl_c_stops_all_runs(tiny: Path) -> None:
    long = TOML.replace("slice_ms = 2\n", "slice_ms = 100_000\n")
    study = load.load(write(tiny, toml=long))

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    made = Plan()
    plan.cases(study, Options(), made)
    with pytest.raises(KeyboardInterrupt):
        simulate(made.runs, stop)


def test_ctrl_c_ends_the_command_and_writes_nothing(tiny: Path, tmp_path: Path) -> None:
    write(tiny, toml=TOML.replace("slice_ms = 2\n", "slice_ms = 10_000_000\n"))
    process = subprocess.Popen(
        [sys.executable, "-m", "contend", "reproduce", str(tiny), "--plot", "p.svg", "--progress"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    # The line of progress: the runs have begun.
    shown = os.read(process.stderr.fileno(), 200).decode()
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "0 of 44 runs" in shown
    assert error.endswith("interrupted: nothing was written\n")
    assert out == ""
    assert not list(tmp_path.glob("p*"))


def test_a_run_that_fails_is_named_with_its_replay(contend: Contend, tiny: Path) -> None:
    long = study_files.SCENARIO.replace("[workload]", "stall_s = 0.000001\n[workload]")
    write(tiny, scenario=long)
    done = contend("reproduce", tiny, "--quick", "--json")
    found = json.loads(done.stdout)
    if not found["failures"]:
        pytest.skip("nothing waited for a microsecond")
    assert done.returncode == 4
    assert "replay: contend run" in done.stderr
    replay = found["failures"][0]["replay"].split()[1:]
    assert json.loads(contend(*replay, "--json").stdout)["outcome"] == "stall"


# The fit is enforced, not promised.


class Spy:
    """Simulates, and remembers what."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def __call__(self, runs: dict[Run, set[str]]) -> dict[Run, Measured]:
        self.runs += runs
        return simulate(runs)


def derived(folder: Path) -> tuple[dict[str, float], list[Run]]:
    study = load.load(folder)
    w = study.workloads[0]
    spy = Spy()
    before = fitting.Before(study.before_policy, study.before_set)
    values, _, _ = fitting.derive([(w, r) for r in fitting.fit_rows(study, w)], before, spy)
    return values, spy.runs


def changed(variant: str, x: int) -> str:
    """The rows with every published value of a variant at x (all x if 0) tripled."""
    lines = published().splitlines(keepends=True)
    out = [lines[0]]
    for line in lines[1:]:
        cells = line.split(",")
        if cells[4] == variant and x in (0, int(cells[6])):
            cells[10] = str(3 * float(cells[10]))
        out.append(",".join(cells))
    assert out != lines
    return "".join(out)


def test_a_patched_value_changes_no_parameter_and_no_simulated_value(tiny: Path) -> None:
    def all_of_it() -> tuple[Any, ...]:
        found = contend.reproduce(tiny, seeds=1)
        simulated = [r["simulated"] for r in found.row_list]
        effects = [(e["simulated_pct"], e["band_lo_pct"], e["band_hi_pct"]) for e in found.effect_list]
        runs = [r.resolved() for r in reproduction.planned(load.load(tiny))]
        return simulated, effects, runs, derived(tiny)

    first = all_of_it()
    write(tiny, rows=changed("after", 0))
    assert all_of_it() == first


def test_an_unpatched_value_outside_the_fit_changes_no_parameter(tiny: Path) -> None:
    first = derived(tiny)
    write(tiny, rows=changed("before", 6))
    assert derived(tiny) == first
    write(tiny, rows=changed("before", 4))
    assert derived(tiny) != first


def test_the_fit_sees_the_declared_unpatched_rows_alone(tiny: Path) -> None:
    study = load.load(tiny)
    rows = fitting.fit_rows(study, study.workloads[0])
    assert rows == tuple(fitting.FitRow(float(x), "throughput", float(study_files.BEFORE[x])) for x in (1, 2, 4))
    _, runs = derived(tiny)
    for run in runs:
        features = {k for k, _ in run.set if not k.startswith("workload.")}
        assert (features, run.policy, run.seed) == (set(), "linux-5.2", fitting.SEED)
        assert dict(run.set)["workload.pairs"] in ("1", "2", "4")


def test_a_pair_differs_in_the_switch_alone(tiny: Path) -> None:
    study = load.load(tiny)
    for case in plan.cases(study, Options(), Plan()):
        switch = study.switches[study.switch_name(case.after)]
        for pair in (*case.seeds, *case.draws):
            before, after = (tomllib.loads(r.resolved()) for r in (pair.before, pair.after))
            sets = before.pop("set", {}), after.pop("set")
            assert before == after
            differ = {k for k in {*sets[0], *sets[1]} if sets[0].get(k) != sets[1].get(k)}
            assert differ == set(switch)


@pytest.mark.slow
def test_fit_check_accepts_what_it_derived_and_refuses_what_was_tampered_with(contend: Contend, tiny: Path) -> None:
    done = contend("fit", tiny, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (parameter,) = found["parameters"]
    value = parameter["derived"]
    assert 0 < value < 10_000
    assert isinstance(value, int)
    assert [r["x"] for r in found["rows"]] == [1, 2, 4]

    write(tiny, toml=TOML.replace("value = 2000", f"value = {value}"))
    accepted = contend("fit", tiny, "--check")
    assert (accepted.returncode, accepted.stderr) == (0, "")

    write(tiny, toml=TOML.replace("value = 2000", f"value = {2 * value}"))
    refused = contend("fit", tiny, "--check")
    assert refused.returncode == 1
    assert f"workload.work_ns: found {2 * value}; should be {value:g}, derived from 3 rows (misfit" in refused.stderr


@pytest.mark.slow
def test_several_parameters(tiny: Path) -> None:
    toml = TOML.replace("bytes", "round_trips")
    toml = toml.replace("hi = 10_000 }", 'hi = 10_000 }\n"workload.bytes" = { value = 64, lo = 1, hi = 4096 }')
    values, runs = derived(write(tiny, toml=toml))
    assert set(values) == {"workload.work_ns", "workload.bytes"}
    assert len(runs) <= 3 * (2 * 2 * fitting.EVALUATIONS_PER_PARAMETER + fitting.GRID_OF_SEVERAL**2)
    assert derived(tiny)[0] == values


class Falling:
    """Counts that fall with the work, without a simulation."""

    def __call__(self, runs: dict[Run, set[str]]) -> dict[Run, Measured]:
        return {
            r: Measured("horizon", "", dict.fromkeys(e, 1e9 / (5000 + int(dict(r.set)["workload.work_ns"]))), 0)
            for r, e in runs.items()
        }


@pytest.mark.parametrize("truth", [0, 1234, 10_000])
def test_a_fit_finds_what_lies_at_an_end_too(tiny: Path, truth: int) -> None:
    (w,) = load.load(tiny).workloads
    rows = [(w, fitting.FitRow(x, "throughput", 1e9 / (5000 + truth))) for x in (1, 2)]
    values, _, runs = fitting.derive(rows, fitting.Before("linux-5.2", {}), Falling())
    assert values["workload.work_ns"] == pytest.approx(truth, abs=10)
    assert runs <= 2 * (2 * fitting.EVALUATIONS_PER_PARAMETER + fitting.GRID)


def test_a_declared_value_that_fits_no_worse_agrees(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Published are the values at the declared one; the search is led elsewhere."""
    (w,) = load.load(tiny).workloads
    fit = [(w, r) for r in fitting.fit_rows(load.load(tiny), w)]
    (at,) = fitting.simulated(fit, fitting.Before("linux-5.2", {}), [{"workload.work_ns": 2000}], simulate)
    rows = published()
    for x, value in zip((1, 2, 4), at, strict=True):
        rows = rows.replace(f",{study_files.BEFORE[x]},", f",{value},")
    write(tiny, rows=rows)
    monkeypatch.setattr(fitting, "derive", lambda rows, before, run: (
        {"workload.work_ns": 7000.0},
        fitting.simulated(rows, before, [{"workload.work_ns": 7000.0}], run)[0], 0))  # fmt: skip
    found = fitting.fit(tiny)
    (line,) = found.lines
    assert (line["agrees"], line["derived"], line["misfit_study"]) == (True, 7000, 0)
    assert line["misfit"] > 0.01
    write(tiny, rows=rows, toml=TOML.replace("value = 2000", "value = 10_000"))
    (said,) = fitting.fit(tiny).differing
    assert "found 10000; should be 7000, derived from 3 rows (misfit" in said


def test_near_keeps_what_nothing_close_betters_and_derives_the_others(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "simulate", lambda runs, _progress: Falling()(runs))
    searched = []
    derive = fitting.derive

    def noted(rows: fitting.Rows, *how: Any) -> Any:
        searched.append(rows)
        return derive(rows, *how)

    monkeypatch.setattr(fitting, "derive", noted)
    rows = published()
    for x in (1, 2, 4):
        rows = rows.replace(f",{study_files.BEFORE[x]},", f",{1e9 / 7000},")
    for value, found, confirmed in ((2000, 2000, True), (2010, 2010, True), (2400, pytest.approx(2000, abs=10), False)):
        write(tiny, rows=rows, toml=TOML.replace("value = 2000", f"value = {value}"))
        searched.clear()
        fit = fitting.fit(tiny, near=True)
        (line,) = fit.lines
        assert (line["derived"], line["confirmed"], line["agrees"]) == (found, confirmed, confirmed)
        assert bool(searched) != confirmed
        if confirmed:
            assert fit.runs == 3 * 3
    assert not fitting.fit(tiny).lines[0]["confirmed"]


def test_runs_that_stall_are_named_by_fit(contend: Contend, tiny: Path) -> None:
    stalling = study_files.SCENARIO.replace("[workload]", "stall_s = 0.00000001\n[workload]")
    write(tiny, toml=TOML.replace("lo = 0, hi = 10_000", "lo = 1999, hi = 2001"), scenario=stalling)
    done = contend("fit", tiny, "--check", "--json")
    assert done.returncode == 4
    found = json.loads(done.stdout)
    (line,) = found["parameters"]
    assert (line["derived"], line["misfit"], line["agrees"]) == (None, None, False)
    assert line["rows"] == 3 - len(found["failures"])
    assert found["failures"]
    assert all(f"error: stall: {f['detail']}\n  replay: {f['replay']}" in done.stderr for f in found["failures"])
