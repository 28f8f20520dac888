"""The shipped studies: their files are right, and quick slices of all of them run."""

from __future__ import annotations

import csv
import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Contend
from contend import list_xen
from contend.study import fitting, load, plan, reproduction

NAMES = sorted(f.parent.name for f in (ROOT / "studies").glob("*/study.toml"))
MINUTES = re.findall(r"^SLOW_FITS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split()
"""Their fits take minutes: `make slow-fits` (and with it `.ci/run`) checks those."""


def test_the_package_carries_the_studies() -> None:
    assert load.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_files(name: str) -> None:
    study = load.load(ROOT / "studies" / name)
    assert study.name == name
    assert (study.folder / "README.md").is_file()
    assert study.workloads


def test_list_and_completion(contend: Contend) -> None:
    listed = json.loads(contend("list", "studies", "--json").stdout)
    assert [s["name"] for s in listed] == NAMES
    assert all(s["doc"] and s["rows"] for s in listed)
    env = {"_CONTEND_COMPLETE": "bash_complete", "COMP_WORDS": "contend reproduce idle", "COMP_CWORD": "2"}
    assert "idle-cpu-search-2019" in contend(env=env).stdout


def features(scenario: dict[str, Any]) -> dict[str, object]:
    """Takes the features out of a scenario: the host's, the hypervisor's, and those of the guests' kernels."""
    found = dict(flat(scenario.pop("set", {})))
    for guest in scenario.get("guest", []):
        found |= {f"guest.{key}": value for key, value in flat(guest.pop("set", {}))}
    return found


def flat(table: dict[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{above}{key}.")
        else:
            yield above + key, value


@pytest.mark.parametrize("name", NAMES)
def test_pairs_differ_in_the_switch_alone(name: str) -> None:
    study = load.load(name)
    seen = set()
    for case in plan.cases(study, plan.Options(seeds=1), plan.Plan()):
        switch = study.switches[study.switch_name(case.after)]
        for pair in (*case.seeds, *case.draws[:1]):
            if pair in seen:
                continue
            seen.add(pair)
            before, after = (tomllib.loads(r.resolved()) for r in (pair.before, pair.after))
            sets = features(before), features(after)
            assert before == after
            differ = {k for k in {*sets[0], *sets[1]} if sets[0].get(k) != sets[1].get(k)}
            named = set(switch)
            if "xen.patches" in switch:
                named |= {f"xen.{f['name']}" for f in list_xen() if f.get("patch")}
            assert differ <= named
            assert differ


@pytest.mark.parametrize("name", NAMES)
def test_features_and_costs_are_the_policys_and_the_machines(name: str) -> None:
    """No scenario and no workload's `set` tunes on the quiet what is neither declared as fitted nor as assumed."""
    study = load.load(name)
    for w in study.workloads:
        keys = (*w.set, *w.parameters, w.x or "workload.")
        assert all(key.startswith(("workload.", "guest.workload.")) or key in load.OF_HOST for key in keys)
    for file in (study.folder / "scenarios").glob("*.toml"):
        found = tomllib.loads(file.read_text())
        of_xen = {"machine", "xen", "set", "guest"}
        known = ({"machine", "workload"}, {"machine", "set", "workload"}, {"machine", "guest"}, of_xen)
        assert set(found) in known, file
        assumed = {a.key for a in study.assumptions}
        assert set(dict(flat(found.get("set", {})))) <= {*load.OF_HOST, *assumed}, file
        keys_of_guests = {"name", "copies", "vcpus", "topology", "pin", "policy", "set", "workload"}
        if set(found) == of_xen:
            keys_of_guests |= {"cpus_soft", "memory_node", "memory_stall_pct"}
        for guest in found.get("guest", []):
            assert set(guest) <= keys_of_guests, file


@pytest.mark.parametrize("name", NAMES)
def test_no_run_and_no_fit_depends_on_a_patched_value(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(ROOT / "studies" / name, folder)
    first = load.load(folder)
    for file in (f for f in (folder / "published.csv", folder / "upstream.csv") if f.exists()):
        with file.open(newline="") as f:
            rows = list(csv.DictReader(f))
        for row in rows:
            if row["variant"] != first.reference:
                row.update(
                    {k: str(3 * float(row[k])) for k in ("value", "value_lo", "value_hi", "stdev_pct") if row[k]}
                )
        with file.open("w", newline="") as f:
            writer = csv.DictWriter(f, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    second = load.load(folder)
    for a, b in zip(first.rows, second.rows, strict=True):
        assert (a.published == b.published) == (a.variant == first.reference)
    assert reproduction.planned(first) == reproduction.planned(second)
    for w in first.workloads:
        assert fitting.fit_rows(first, w) == fitting.fit_rows(second, w)


def test_rows_of_two_files_are_all_there(contend: Contend) -> None:
    found = json.loads(contend("reproduce", "remote-wakeup-queue-2010", "--quick", "--json").stdout)
    assert len(found["rows"]) == 9
    effects = {(e["metric"], e["x"]): e["simulated_pct"] for e in found["effects"]}
    assert len(effects) == 6
    assert effects["rq_lock_contention_count_reduction", 2] >= 85
    assert effects["rq_lock_wait_time_reduction", 2] >= 80
    assert abs(effects["test_duration_reduction", 2]) <= 5


@pytest.mark.slow
@pytest.mark.long(50)
def test_quick_slices_of_every_study(contend: Contend, tmp_path: Path) -> None:
    done = contend("reproduce", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [s["name"] for s in found["studies"]] == NAMES
    assert found["failures"] == []
    for name in NAMES:
        study = load.load(name)
        assert len([r for r in found["rows"] if r["study"] == name]) == len(study.rows)
        for r in found["rows"]:
            if r["study"] == name and study.workload(r["workload"], r["machine"]) is not None:
                assert r["simulated"] is not None, r
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [n for n in NAMES if n not in MINUTES])
def test_every_fitted_value_follows_from_the_rows_it_names(contend: Contend, name: str) -> None:
    done = contend("fit", name, "--check", timeout=1700)
    assert done.returncode == 0, done.stdout + done.stderr
