"""What is wrong in a study's files is named: file, line, key, what was found, what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Contend
from contend.study.load import load
from contend.study.reproduction import reproduce
from contend.study.section import StudyInvalid, line_of
from study_files import BEFORE, HEADER, MACHINE, TOML, published, row, write

TOMLS = {
    "no-toml": ("schema = 1", "schema = = 1", "study.toml: not valid TOML"),
    "schema": ("schema = 1", "schema = 2", "study.toml:1: schema: found 2; should be 1"),
    "unknown-key": ("seeds = 2", "seed = 2", "study.toml:5: seed: unknown key; did you mean seeds?"),
    "escape": (
        'title = "Pairs',
        'title = "\\u001b[31mPairs',
        "study.toml:3: title: found '\\x1b[31mPairs that play ping-pong'; should be text without control characters",
    ),
    "wrong-type": (
        "seeds = 2",
        'seeds = "2"',
        "study.toml:5: seeds: found '2'; should be a whole number from 1 to 1,000",
    ),
    "too-few-seeds": (
        "seeds = 2",
        "seeds = 0",
        "study.toml:5: seeds: found 0; should be a whole number from 1 to 1,000",
    ),
    "too-many-draws": (
        "draws = 2",
        "draws = 1_000_000_000",
        "study.toml:6: draws: found 1000000000; should be a whole",
    ),
    "long-number": ("seeds = 2", f"seeds = {'9' * 5000}", "study.toml: not valid TOML: "),
    "deep": ("seeds = 2", f"seeds = {'[' * 5000}", "study.toml: not valid TOML: nested too deeply"),
    "missing": ('title = "Pairs that play ping-pong"\n', "", "study.toml: title: missing; should be a text"),
    "policy": (
        'policy = "linux-5.2"\n\n',
        'policy = "linux-5.3"\n\n',
        "study.toml:9: before.policy: found 'linux-5.3'; did you mean",
    ),
    "feature": (
        "[switch.quick]\nsis_core",
        "[switch.quick]\nsis_cores",
        "study.toml:12: switch.quick.sis_cores: unknown feature; did you mean sis_core?",
    ),
    "policy-in-a-switch": (
        "[switch.quick]\nsis_core = false",
        '[switch.quick]\npolicy = "linux-6.6"',
        "study.toml:12: switch.quick.policy: a study compares switches of one policy",
    ),
    "cost-in-a-switch": (
        "[switch.quick]\nsis_core = false",
        "[switch.quick]\nmachine.lines.llc = 40",
        "study.toml:12: switch.quick.machine: a key of the machine, not a feature",
    ),
    "switch-value": ("sis_core = false", 'sis_core = "maybe"', "study.toml:11: switch.quick: `sis_core` = `maybe`"),
    "switch-name": ("[switch.quick]", "[switch.fast]", "published.csv:2: table: found 'pairs/quick'"),
    "workload-key": ("warmup_ms", "warm_up_ms", "warm_up_ms: unknown key; did you mean warmup_ms?"),
    "workload-name": (
        '[[workload]]\nname = "pairs"',
        '[[workload]]\nname = "pears"',
        "study.toml:19: workload[0].name: published.csv has no row of pears",
    ),
    "scenario-name": ("scenarios/pairs.toml", "s" * 300, "s: no such file"),
    "scenario": ("scenarios/pairs.toml", "scenarios/pear.toml", "pear.toml: no such file"),
    "x": ('x = "workload.pairs"', 'x = "workload.pear"', "study.toml:22: workload[0].x: workload.pear: unknown key"),
    "metric": ("{ rate =", "{ rates =", "rates: unknown key; did you mean rate?"),
    "slice": ("slice_ms = 2\n", "slice_ms = 0\n", "workload[0].slice_ms: found 0; should be a number above 0"),
    "endless-slice": ("slice_ms = 2\n", "slice_ms = inf\n", "slice_ms: found inf; should be a number above 0, at most"),
    "warm-up": ("warmup_ms = 0.5", "warmup_ms = -1", "warmup_ms: found -1; should be a number of at least 0, at most"),
    "scale": ('"round_trips" }', '"round_trips", scale = inf }', "metric.scale: found inf; should be a number above 0"),
    "set-feature": (
        'x = "workload.pairs"',
        'x = "workload.pairs"\nset = { sis_core = false }',
        "workload[0].set: found sis_core; should be a key of the workload or of the machine",
    ),
    "set-twice": (
        'x = "workload.pairs"',
        'x = "workload.pairs"\nset = { "workload.work_ns" = 3 }',
        "workload[0]: workload.work_ns is set twice; should be one of x, in `set`, and fitted",
    ),
    "fitted-x": (
        'x = "workload.pairs"',
        'x = "workload.work_ns"',
        "workload[0]: workload.work_ns is set twice",
    ),
    "fit-x-is-no-number": ("fit_x = [1, 2, 4]", "fit_x = [true, 2, 4]", "fit_x: found true; should be x of a row"),
    "fit-x": ("fit_x = [1, 2, 4]", "fit_x = [1, 3]", "workload[0].fit_x: found 3; should be x of a row of `before`"),
    "as-many-as-rows": (
        "fit_x = [1, 2, 4]",
        "fit_x = [1]",
        "workload[0].fit_x: found 1 rows for 1 parameters; should be more rows than parameters",
    ),
    "no-fit-x": ("fit_x = [1, 2, 4]\n", "", "workload[0].fit_x: missing"),
    "fitted-cost": (
        '"workload.work_ns"',
        '"machine.lines.llc"',
        "workload[0].fitted.machine.lines.llc: unknown key; should be a parameter of the workload",
    ),
    "fitted-no-parameter": ('"workload.work_ns"', '"workload.work"', "workload[0].fitted: workload.work: unknown key"),
    "fitted-feature": (
        '"workload.work_ns"',
        '"sis_core"',
        "workload[0].fitted.sis_core: unknown key; should be a parameter of the workload",
    ),
    "fitted-lo": ("lo = 0, hi = 10_000", "lo = 10_000, hi = 0", "should be 0 <= lo < hi"),
    "fitted-range": ("lo = 0, hi = 10_000", "lo = 3000, hi = 10_000", "found 2000; should be a value from lo to hi"),
    "assumption-key": ('"workload.bytes"', '"workload.byte"', "assumption[0].key: workload.byte: unknown key"),
    "assumption-lo": ("lo = 4\nhi = 64", "lo = 64\nhi = 4", "assumption[0].hi: found 4; should be above lo (64"),
    "assumption-fitted": (
        '"workload.bytes"',
        '"workload.work_ns"',
        "assumption[0].key: found 'workload.work_ns'; should be neither x, in `set`, nor fitted",
    ),
    "assumption-set": (
        'x = "workload.pairs"',
        'x = "workload.pairs"\nset = { "workload.bytes" = 8 }',
        "assumption[0].key: found 'workload.bytes'; should be neither x, in `set`, nor fitted",
    ),
    "assumption-of": (
        '[[assumption]]\nworkload = "pairs"',
        '[[assumption]]\nmachine = "sparc"',
        "assumption[0].machine: found 'sparc'",
    ),
    "beyond-twice": ("vary = {", 'at = [{ machine = "4c" }]\nvary = {', "vary: should not be given beside `at`"),
    "beyond-machine": (
        'workload = "pairs"\nvary',
        'workload = "pairs"\nmachine = "4c"\nvary',
        "beyond[0].machine: found '4c'; a machine of pairs: 1n1l4c2t",
    ),
    "beyond-column": (
        '"engine.ipis / dispatches"]',
        '"engine.ipi / dispatches"]',
        "study.toml:43: beyond[0].columns: found 'engine.ipi'; did you mean engine.ipis?",
    ),
    "beyond-no-column": ('"probes_per_search"', '""', "beyond[0].columns: found '', not a number of a run's summary"),
    "table": (
        'x = "workload.pairs"',
        'x = "workload.pairs"\ntable = "pairs/bots"',
        "study.toml:23: workload[0].table: found 'pairs/bots'; did you mean pairs/both?",
    ),
    "beyond-policy": ('policy = "2019-v3"', 'policy = "2019-v4"', "found '2019-v4'"),
}


@pytest.mark.parametrize("name", TOMLS)
def test_study_toml(tmp_path: Path, name: str) -> None:
    old, new, message = TOMLS[name]
    assert old in TOML
    folder = write(tmp_path, toml=TOML.replace(old, new, 1))
    with pytest.raises(StudyInvalid) as refused:
        load(folder)
    assert message in str(refused.value)
    assert str(folder) in str(refused.value)


FIRST = row("pairs/quick", "before", 1, BEFORE[1])
ROWS = {
    "no-column": (HEADER.replace(",note", ""), "published.csv:1: no column note; the columns are study,table"),
    "unknown-column": (HEADER.replace("note", "notes"), "published.csv:1: unknown column notes"),
    "no-rows": (HEADER, "published.csv: no rows"),
    "outside-its-range": (
        HEADER + FIRST.replace(",70000,,", ",70000,5,9"),
        "published.csv:2: value: found '70000'; should be from value_lo to value_hi (5 to 9)",
    ),
    "too-small": (HEADER + FIRST.replace("70000", "1e-300"), "published.csv:2: value: found '1e-300'; should be 0, or"),
    "too-large": (HEADER + FIRST.replace("70000", "1e308"), "value: found '1e308'; should be 0, or a number from"),
    "escape": (
        HEADER + FIRST.replace("pairs/quick", "\x1b[31m/quick"),
        "published.csv:2: found '\\x1b'; should be text without control characters",
    ),
    "short-row": (HEADER + "tiny,a\n", "published.csv:2: found 2 cells; should be 15"),
    "no-number": (HEADER + FIRST.replace("70000", "many"), "published.csv:2: value: found 'many'; should be a number"),
    "nan": (HEADER + FIRST.replace("70000", "nan"), "published.csv:2: value: found 'nan'; should be a number"),
    "no-x": (HEADER + FIRST.replace(",pairs,1,", ",pairs,,"), "published.csv:2: x: found ''; should be a number"),
    "no-value": (HEADER + FIRST.replace("70000", ""), "should be a number, or value_lo and value_hi"),
    "zero": (HEADER + FIRST.replace("70000", "0"), "published.csv:2: value: found '0'; should be above 0: effects and"),
    "below-zero": (
        HEADER + FIRST + row("pairs/quick", "after", 1, -1),
        "published.csv:3: value: found '-1'; should be at least 0",
    ),
    "variant": (HEADER + FIRST.replace("before", "old"), "variant: found 'old'; should be before, after or"),
    "better": (HEADER + FIRST.replace("higher", "up"), "better: found 'up'; should be lower or higher"),
    "study": (HEADER + FIRST.replace("tiny", "big"), "study: found 'big'; should be tiny"),
    "infinite-x": (HEADER + FIRST.replace(",pairs,1,", ",pairs,1e999,"), "x: found '1e999'; should be a number"),
    "x-of-a-fraction": (
        published() + row("pairs/both", "before", 1.5, 5),
        'workload[0].x: workload.pairs: found "1.5"; should be a whole number',
    ),
    "lo-above-hi": (
        HEADER + FIRST.replace(",70000,,", ",,10,5"),
        "published.csv:2: value_hi: found '5'; should be at least value_lo (10)",
    ),
    "stdev": (HEADER + FIRST.replace(",0.5,", ",-1,"), "published.csv:2: stdev_pct: found '-1'; should be at least 0"),
    "long-cell": (HEADER + FIRST.replace(",0.5,", f",0.5,{'x' * 200_000}"), "published.csv:2: field larger than"),
    "cut": (published()[:-30], "published.csv:15: found "),
    "two-directions": (
        published().replace("higher", "lower", 1),
        "published.csv:3: better: found 'higher'; should be 'lower', as in line 2",
    ),
    "too-many": (HEADER + FIRST * 100_001, "published.csv:100002: a study has at most 100,000 rows"),
    "twice": (published() + FIRST, "the same row as line 2; should be there once"),
    "no-before": (
        published() + row("pairs/both", "after", 6, 5).replace("pairs,6", "pairs,6"),
        "published.csv:16: no row of `before` to compare with",
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_published_csv(tmp_path: Path, name: str) -> None:
    rows, message = ROWS[name]
    with pytest.raises(StudyInvalid) as refused:
        load(write(tmp_path, rows=rows))
    assert message in str(refused.value)


def test_a_table_names_the_only_switch_or_none(tmp_path: Path) -> None:
    toml = TOML.replace('[switch.both]\nsis_core = false\nwake_affine = "off"\n', "")
    rows = "".join(line for line in published().splitlines(keepends=True) if "pairs/both" not in line)
    folder = write(tmp_path, toml=toml, rows=rows.replace("pairs/quick", "pairs"))
    assert load(folder).rows[0].table == "pairs"
    write(tmp_path, toml=toml, rows=rows.replace("pairs/quick", "pairs/quik"))
    with pytest.raises(StudyInvalid, match=r"published\.csv:2: table: found 'pairs/quik'.*; did you mean quick\?"):
        load(folder)


def test_a_machine_that_is_unknown(tmp_path: Path) -> None:
    folder = write(tmp_path, toml=TOML.replace(MACHINE, "1n1l4c2x"), rows=published().replace(MACHINE, "1n1l4c2x"))
    with pytest.raises(StudyInvalid, match=r"study\.toml:20: workload\[0\]\.machine: "):
        load(folder)


def test_a_column_that_no_run_reports(tmp_path: Path) -> None:
    folder = write(tmp_path, toml=TOML.replace('["rate.round_trips",', '["rate.round_trip",'))
    with pytest.raises(StudyInvalid, match=r"study\.toml:\d+: columns: found rate\.round_trip, which no run"):
        reproduce(folder, quick=True, beyond=True)


def test_upstream_csv(tmp_path: Path) -> None:
    folder = write(tmp_path)
    own = len(load(folder).rows)
    more = [row("later/both", "before", 6, 5), row("later/both", "after", 6, 7)]
    (folder / "upstream.csv").write_text(HEADER + "".join(more))
    assert [r.table for r in load(folder).rows[own:]] == ["later/both", "later/both"]
    (folder / "upstream.csv").write_text(HEADER + more[1])
    with pytest.raises(StudyInvalid, match=r"upstream\.csv:2: no row of `before` to compare with"):
        load(folder)


def test_files_that_spreadsheets_and_other_systems_write(tmp_path: Path) -> None:
    first = load(write(tmp_path / "tiny")).rows
    for prefix, end in (("\ufeff", "\n"), ("", "\r\n")):
        folder = write(tmp_path / "tiny", rows=prefix + published(), toml=prefix + TOML)
        for name in ("published.csv", "study.toml"):
            file = folder / name
            file.write_bytes(file.read_bytes().replace(b"\n", end.encode()))
        assert load(folder).rows == first


@pytest.mark.parametrize("name", ["study.toml", "published.csv", "upstream.csv", "scenarios/pairs.toml"])
def test_what_is_no_text_file(contend: Contend, tmp_path: Path, name: str) -> None:
    for i, kind in enumerate(("folder", "loop", "bytes")):
        folder = write(tmp_path / f"tiny{i}")
        file = folder / name
        file.unlink(missing_ok=True)
        if kind == "folder":
            file.mkdir()
        elif kind == "loop":
            file.symlink_to(file.name)
        else:
            file.write_bytes(bytes(range(256)))
        done = contend("reproduce", folder, "--quick")
        assert done.returncode == 2, (kind, done.stderr)
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert str(folder) in done.stderr


def test_names_that_no_file_can_have(contend: Contend) -> None:
    for name, said in (
        ("", "study: found ''; should be a study's name, or a path"),
        ("a" * 300, ": no such study; "),
        ("a/" * 3000, ": no such study; "),
    ):
        done = contend("reproduce", name)
        assert done.returncode == 2, done.stderr
        assert said in done.stderr


def test_missing_files(tmp_path: Path, contend: Contend) -> None:
    folder = write(tmp_path / "tiny")
    (folder / "published.csv").unlink()
    with pytest.raises(StudyInvalid, match=r"published\.csv: cannot be read: no such file"):
        load(folder)
    for words in (["reproduce", "nowhere"], ["fit", "nowhere"], ["reproduce", folder], ["reproduce", tmp_path]):
        done = contend(*words)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1


def test_scenario_that_is_not_right(tmp_path: Path) -> None:
    folder = write(tmp_path, scenario='machine = "4c"\n[workload]\nkind = "ping-pongs"\n')
    with pytest.raises(StudyInvalid, match=r"study\.toml:21: workload\[0\]\.scenario: .*pairs\.toml:3: "):
        load(folder)


def test_lines() -> None:
    text = '[a]\nx = 1\n[[w]]\nx = 2\n[w.f]\n"k.l" = 3\n[[w]]\nx = 4\nm = { r = 1 }\n'
    assert line_of(text, ("a",), "x") == 2
    assert line_of(text, ("w", 0), "x") == 4
    assert line_of(text, ("w", 1), "x") == 8
    assert line_of(text, ("w", 0, "f"), "k.l") == 6
    assert line_of(text, ("w", 1, "m"), "r") == 9
    assert line_of(text, ("nowhere",), "x") == 0
