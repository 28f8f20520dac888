"""The shipped studies: their files are right, and quick slices of all of them run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import ROOT, Contend
from contend.study import load

NAMES = sorted(f.parent.name for f in (ROOT / "studies").glob("*/study.toml"))


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


@pytest.mark.slow
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
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_every_fitted_value_follows_from_the_rows_it_names(contend: Contend, name: str) -> None:
    done = contend("fit", name, "--check", timeout=1700)
    assert done.returncode == 0, done.stdout + done.stderr
