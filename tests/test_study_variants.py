"""Studies that compare several variants in one table, fit workloads together, and publish more than effects."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from conftest import Contend
from contend.study import fitting, load, model, plan, reproduction, show, values
from contend.study.section import StudyInvalid
from contend.study.simulate import Measured
from rich.console import Console
from study_files import HEADER, MACHINE, SCENARIO

OTHER = "4c"
TOML = f"""\
schema = 1
name = "tiny"
title = "Pairs under three kernels"
source = "nobody"
seeds = 2
draws = 2

[before]
policy = "linux-5.2"
variant = "stock"

[variant.far]
sis_core = false

[variant.off]
wake_affine = "off"

[[fit]]
name = "pairs"
[fit.fitted]
"workload.work_ns" = {{ value = 2000, lo = 0, hi = 10_000 }}

[[workload]]
name = "pairs"
machine = "{MACHINE}"
scenarios = {{ 1 = "scenarios/pairs-1.toml", 2 = "scenarios/pairs-2.toml" }}
fit = "pairs"
fit_x = [2]
fit_metrics = ["throughput"]
warmup_ms = 0.5
slice_ms = 2
quick_slice_ms = 1
[workload.metrics]
throughput = {{ rate = "round_trips" }}
host_cpu = {{ value = "host_pct" }}
dispatches = {{ value = "dispatches" }}

[[workload]]
name = "pairs"
machine = "{OTHER}"
times = {{ "workload.work_ns" = 1.5 }}
scenario = "scenarios/pairs-2.toml"
fit = "pairs"
fit_x = [2]
metric = {{ rate = "round_trips" }}
slice_ms = 2

[[workload]]
name = "pairs"
machine = "{OTHER}"
table = "near"
scenario = "scenarios/near.toml"
fit = "pairs"
metric = {{ rate = "round_trips" }}
slice_ms = 2
"""
ROWS = f"""\
tiny,apart,{MACHINE},pairs,stock,pairs,1,throughput,1/s,higher,70000,,,,
tiny,apart,{MACHINE},pairs,stock,pairs,2,throughput,1/s,higher,140000,,,0.5,
tiny,apart,{MACHINE},pairs,far,pairs,1,throughput,1/s,higher,71000,,,,
tiny,apart,{MACHINE},pairs,far,pairs,2,throughput,1/s,higher,150000,,,0.5,
tiny,apart,{MACHINE},pairs,off,pairs,2,throughput,1/s,higher,100000,,,0.5,
tiny,apart,{MACHINE},pairs,stock,pairs,2,host_cpu,percent,lower,,30,40,,
tiny,apart,{MACHINE},pairs,far,pairs,2,host_cpu,percent,lower,,20,30,,
tiny,apart,{MACHINE},pairs,stock,pairs,2,dispatches,count,,1000,,,,
tiny,apart,{OTHER},pairs,stock,pairs,2,throughput,1/s,higher,150000,,,,
tiny,apart,{OTHER},pairs,off,pairs,2,throughput,1/s,higher,150000,,,,
tiny,near,{OTHER},pairs,stock,pairs,2,throughput,1/s,higher,160000,,,,
tiny,near,{OTHER},pairs,off,pairs,2,throughput,1/s,higher,160000,,,,
"""


def write(folder: Path, *, toml: str = TOML, rows: str = ROWS) -> Path:
    (folder / "scenarios").mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(toml)
    (folder / "published.csv").write_text(HEADER + rows)
    for name, lines in {"pairs-1": "pairs = 1", "pairs-2": "pairs = 2", "near": 'pairs = 2\npin = "near"'}.items():
        (folder / "scenarios" / f"{name}.toml").write_text(f"{SCENARIO}{lines}\n")
    return folder


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write(tmp_path / "tiny")


def test_every_variant_is_compared_with_the_reference(tiny: Path) -> None:
    found = reproduction.reproduce(tiny, quick=True)
    effects = {(e["table"], e["machine"], e["variant"], e["x"], e["metric"]): e for e in found.effect_list}
    assert len(effects) == 6
    assert {e["reference"] for e in effects.values()} == {"stock"}
    assert effects["apart", MACHINE, "far", 2, "throughput"]["published_pct"] == pytest.approx(100 * 10 / 140)
    assert effects["apart", MACHINE, "off", 2, "throughput"]["published_pct"] == pytest.approx(-100 * 40 / 140)
    # Ranges: their middles are compared, and lower is better.
    assert effects["apart", MACHINE, "far", 2, "host_cpu"]["published_pct"] == pytest.approx(100 * 10 / 35)
    assert all(e["simulated_pct"] is not None for e in effects.values())


def test_each_variant_sets_its_own_features(tiny: Path) -> None:
    study = load.load(tiny)
    made = plan.cases(study, plan.Options(quick=True), plan.Plan())
    for case in made:
        (pair,) = case.seeds
        before, after = dict(pair.before.set), dict(pair.after.set)
        changed = {k: v for k, v in after.items() if before.get(k) != v}
        expected = {"far": {"sis_core": "false"}, "off": {"wake_affine": "off"}}[case.after.variant]
        assert changed == expected
        assert set(before) <= set(after)


def test_a_row_that_nothing_is_compared_with_is_simulated_and_shown(contend: Contend, tiny: Path) -> None:
    found = reproduction.reproduce(tiny, quick=True)
    (row,) = [r for r in found.row_list if r["metric"] == "dispatches"]
    assert row["simulated"] and row["kind"] == "predicted"
    shown = contend("reproduce", tiny, "--quick").stdout
    assert "Values that no other variant has" in shown
    assert "stock" in shown and "far" in shown


def test_the_table_and_x_choose_the_scenario(tiny: Path) -> None:
    study = load.load(tiny)
    files = {
        (c.after.table, c.after.machine, c.after.x): c.seeds[0].before.scenario.name
        for c in plan.cases(study, plan.Options(quick=True), plan.Plan())
    }
    assert files == {
        ("apart", MACHINE, 1): "pairs-1.toml",
        ("apart", MACHINE, 2): "pairs-2.toml",
        ("apart", OTHER, 2): "pairs-2.toml",
        ("near", OTHER, 2): "near.toml",
    }


def test_workloads_of_a_fit_share_one_value_from_the_rows_of_all(tiny: Path) -> None:
    study = load.load(tiny)
    (group,) = fitting.groups(study)
    rows = [(w.machine, w.table, r) for w in group for r in fitting.fit_rows(study, w)]
    assert rows == [
        (MACHINE, None, fitting.FitRow(2, "throughput", 140_000)),
        (OTHER, None, fitting.FitRow(2, "throughput", 150_000)),
    ]
    kinds = {(r.table, r.machine, r.variant, r.x, r.metric) for r in study.rows if is_fit(study, r)}
    assert kinds == {("apart", MACHINE, "stock", 2, "throughput"), ("apart", OTHER, "stock", 2, "throughput")}
    assert {r["kind"] for r in reproduction.reproduce(tiny, quick=True).row_list} == {"fit", "predicted"}


def test_a_machine_has_a_factor_on_what_it_shares(tiny: Path) -> None:
    study = load.load(tiny)
    set_to = [w.parameters["workload.work_ns"] for w in study.workloads]
    assert set_to == [2000, 3000, 2000]
    asked: list[plan.Run] = []

    def spy(runs: dict[plan.Run, set[str]]) -> dict[plan.Run, Measured]:
        asked.extend(runs)
        return {r: Measured("horizon", "", dict.fromkeys(reads, 100_000.0), 0) for r, reads in runs.items()}

    rows = [(w, r) for w in study.workloads for r in fitting.fit_rows(study, w)]
    (value,) = fitting.derive(rows, fitting.Before("linux-5.2", {}), spy)[0].values()
    work = {(r.machine, dict(r.set)["workload.work_ns"]) for r in asked}
    assert (MACHINE, f"{value:.0f}") in work
    assert (OTHER, f"{round(1.5 * value)}") in work


def test_ablation_names_the_variant(tmp_path: Path) -> None:
    toml = TOML.replace("[variant.off]\n", "[variant.off]\nsis_core = false\n").replace(
        "[variant.far]\n", "[variant.far]\nnr_migrate = 8\n"
    )
    found = reproduction.reproduce(write(tmp_path, toml=toml), quick=True, ablate=True)
    assert {(a["switch"], a["variant"]) for a in found.ablation_list} >= {
        ("far", "only nr_migrate"), ("far", "only sis_core"), ("off", "only sis_core"), ("off", "only wake_affine")
    }  # fmt: skip
    assert found.ablation["switch"].unique().sort().to_list() == ["far", "off"]
    out = io.StringIO()
    show.reproduction(found, Console(file=out, width=200))
    shown = " ".join(out.getvalue().split())
    for variant in ("far", "off"):
        assert shown.count(f"Ablation: apart on {MACHINE}, throughput, {variant} ") == 1


def test_times_of_a_fixed_amount_of_work() -> None:
    metric = model.Metric("time", "rate.units", per=600, plus=7)
    assert metric.value(200, 32) == metric.value(200, 60) == 10
    assert metric.value(0, 32) is None


def test_a_run_of_a_share_of_the_work_counts_only_if_it_ends(tmp_path: Path) -> None:
    toml = TOML.replace(
        'metric = { rate = "round_trips" }', 'metric = { value = "virtual_s", scale = 1000 }\nshare = 0.001'
    ).replace("slice_ms = 2\n", "slice_ms = 50\n")
    for round_trips, ends in ((100, True), (1_000_000, False)):
        folder = write(tmp_path / str(round_trips), toml=toml)
        for file in (folder / "scenarios").iterdir():
            file.write_text(file.read_text().replace("1_000_000", str(round_trips)))
        found = reproduction.reproduce(folder, quick=True)
        rows = [r for r in found.row_list if r["machine"] == OTHER]
        assert [r["simulated"] is not None for r in rows] == [ends] * 4
        assert [r["sliced"] for r in rows if ends] == [True] * 4 * ends
        assert "0.1 % of the work" in found.of("tiny")["slices"] or not ends


def test_an_assumption_may_set_a_feature_that_no_variant_sets(tmp_path: Path) -> None:
    more = '\n[[assumption]]\nworkload = "pairs"\nkey = "nr_migrate"\nlo = 8\nhi = 64\nwhy = "nobody says"\n'
    toml = TOML.replace('variant = "stock"', 'variant = "stock"\nset = { nr_migrate = 32 }') + more
    study = load.load(write(tmp_path / "tiny", toml=toml))
    case = plan.cases(study, plan.Options(), plan.Plan())[0]
    for pair in case.draws:
        drawn = {dict(r.set)["nr_migrate"] for r in (pair.before, pair.after)}
        assert len(drawn) == 1
        assert drawn != {"32"}
    with pytest.raises(StudyInvalid, match="what no variant sets"):
        load.load(write(tmp_path / "wrong", toml=toml.replace('"nr_migrate"', '"sis_core"')))


def is_fit(study: model.Study, row: model.Row) -> bool:
    w = study.workload_of(row)
    return w is not None and w.is_fit(row, study.reference)


def test_no_value_of_a_predicted_row_changes_a_run_or_the_rows_of_the_fit(tiny: Path, tmp_path: Path) -> None:
    first = load.load(tiny)
    fit_lines = {r.line for r in first.rows if is_fit(first, r)}
    with (tiny / "published.csv").open(newline="") as f:
        rows = list(csv.DictReader(f))
    for line, row in enumerate(rows, 2):
        if line not in fit_lines:
            row.update({k: str(3 * float(row[k])) for k in ("value", "value_lo", "value_hi") if row[k]})
    with (tiny / "published.csv").open("w", newline="") as f:
        writer = csv.DictWriter(f, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    second = load.load(tiny)
    assert reproduction.planned(first) == reproduction.planned(second)
    for w in first.workloads:
        assert fitting.fit_rows(first, w) == fitting.fit_rows(second, w)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[variant.off]", "[variant.stock]", "variant.stock: is the unpatched system"),
        ('wake_affine = "off"', '"guest.spin" = "off"', "guest.spin: unknown feature"),
        ('fit = "pairs"', 'fit = "pears"', "did you mean pairs?"),
        ('fit_metrics = ["throughput"]', 'fit_metrics = ["through"]', "did you mean throughput?"),
        ('"workload.work_ns" = 1.5', '"workload.work" = 1.5', "times: found workload.work; did you mean"),
        ('"workload.work_ns" = 1.5', '"workload.work_ns" = 0', "found 0; should be a number above 0"),
        (', 2 = "scenarios/pairs-2.toml"', "", "missing 2; should have a scenario for each x"),
        ("{ 1 = ", "{ 3 = ", "3: unknown key; should be x of a row: 1, 2"),
        ('table = "near"', "", "a workload that stands here once for each machine"),
        (
            '"workload.work_ns" = { value = 2000, lo = 0, hi = 10_000 }',
            '"workload.work_ns" = { value = 1, lo = 0, hi = 9 }\n"workload.bytes" = { value = 5, lo = 1, hi = 9 }',
            "found 2 rows for 2 parameters; should be more rows than parameters",
        ),
        ('"workload.work_ns"', '"machine.lines.llc"', "nothing else may be fitted"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    toml = TOML.replace(old, new, 1)
    assert toml != TOML
    with pytest.raises(StudyInvalid) as e:
        load.load(write(tmp_path / "tiny", toml=toml))
    assert message in str(e.value)
    assert "study.toml:" in str(e.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",far,pairs,1,", ",fat,pairs,1,", "variant: found 'fat'; should be stock, far or off"),
        (",stock,pairs,1,", ",far,pairs,3,", "no row of `stock` to compare with"),
        ("far,pairs,1,throughput,1/s,higher", "far,pairs,1,throughput,1/s,", "better: found ''"),
    ],
)
def test_what_is_wrong_in_the_rows_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in ROWS
    toml = TOML.replace("{ 1 = ", "{ 3 = 'scenarios/pairs-1.toml', 1 = ") if ",3," in new else TOML
    with pytest.raises(StudyInvalid) as e:
        load.load(write(tmp_path / "tiny", toml=toml, rows=ROWS.replace(old, new, 1)))
    assert message in str(e.value)


def test_shares_of_guest_mode_and_of_the_hosts_kernel() -> None:
    ledger = {"guest_user": 30, "guest_spin": 10, "ple": 20, "rq_lock_wait": 30, "user": 10, "idle": 900}
    assert values.read({"ledger_ns": ledger}, "guest_pct") == 40
    assert values.read({"ledger_ns": ledger}, "host_pct") == 50
    assert values.read({"ledger_ns": {"idle": 5}}, "host_pct") is None


def test_hypervisor_counters_and_guests_are_read_by_path() -> None:
    summary = {
        "kvm": {"yield_to_attempted": 2000, "yield_to_succeeded": 3},
        "guests": [{"name": "vm0", "steal_pct": 5}, {"name": "vm1", "steal_pct": 7}],
    }
    assert values.read(summary, "kvm.yield_to_succeeded / kvm.yield_to_attempted") == 0.0015
    assert values.read(summary, "guests.vm1.steal_pct") == 7
    assert values.read(summary, "kvm.no_such_counter") is None
