"""From the files of a study to a checked `Study`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import os
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from contend import _core, given
from contend.quantity import check_expression
from contend.study.model import (
    AFTER,
    BEFORE,
    CHANGE,
    SEEDS_MAX,
    XEN,
    Assumption,
    Beyond,
    Metric,
    Parameter,
    Row,
    Settings,
    Study,
    Value,
    Variant,
    Workload,
    host_policy,
    machine_of,
    overlap,
)
from contend.study.rows import check_rows, read_rows, text_of_file
from contend.study.section import CONTROL, PLAIN, Section, StudyInvalid, close

SCHEMA = 1
FORMS = ["rate", "time_of", "latency", "normalized", "reduction", "value"]
OF_HOST = ("xen.scheduler", "xen.credit2_runqueue")
"""What tables of one study may differ in besides."""
OF_WORKLOAD = "a key of the workload or of the machine: features stand in [before] and [switch.NAME]"
OF_GUESTS = ("kvm", "xen", "guests", "groups")
"""Parts of a summary that a run has only with what they are of."""
SLICE_MS = 30.0
SLICE_MS_MAX = 1e9
"""As long as a horizon may be."""


def shipped_folder() -> Path:
    """Where the shipped studies lie: in the package, or in the checkout that it runs from."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "studies", package.parent.parent / "studies"):
        if folder.is_dir():
            return folder
    return package / "studies"


def names() -> list[str]:
    """The shipped studies."""
    folder = shipped_folder()
    return sorted(f.parent.name for f in folder.glob("*/study.toml"))


def listed() -> list[dict[str, Any]]:
    """The shipped studies: name, doc, source, number of rows, folder."""
    studies = [load(name) for name in names()]
    return [
        {"name": s.name, "doc": s.title, "source": s.source, "rows": len(s.rows), "folder": str(s.folder)}
        for s in studies
    ]


def find(study: str | os.PathLike[str]) -> Path:
    """The folder of a study: a path of a folder with study.toml, or a shipped study's name."""
    path = Path(given.path("study", study, f"a study's name, or {given.PATH}"))
    if path.name == "study.toml":
        path = path.parent
    if _is_file(path / "study.toml"):
        return path
    name = os.fspath(study)
    if name in names():
        return shipped_folder() / name
    if name and _is_folder(path):
        raise StudyInvalid(f"{name}: not a study (study.toml is missing)")
    right = close(name, names(), "`contend list studies` lists them; also the path of a folder with study.toml")
    raise StudyInvalid(f"{name}: no such study; {right}")


def _is_file(path: Path) -> bool:
    """False also for names that are too long, and in folders that may not be searched."""
    try:
        return path.is_file()
    except OSError:
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def load(study: str | os.PathLike[str]) -> Study:
    """Read and check a study.

    Raises StudyInvalid: the message names file, line, key, what was found, and what would be right.
    """
    folder = find(study)
    file = folder / "study.toml"
    text = text_of_file(file)
    top = _top(file, text)
    schema = top.take("schema", int)
    if schema != SCHEMA:
        raise top.wrong("schema", schema, str(SCHEMA))
    name = top.take("name", str)
    title, source = top.take("title", str), top.take("source", str)
    seeds, draws = top.whole("seeds", 3, least=1, most=SEEDS_MAX), top.whole("draws", 8, least=0, most=SEEDS_MAX)
    before = top.sub("before", needed=True)
    assert before is not None
    policy = before.take("policy", str)
    _policy(before, policy)
    before_set = _features(before.sub("set"), policy)
    reference = before.take("variant", str, BEFORE)
    before.done()
    by_variant = "variant" in top.table
    kind = "variant" if by_variant else "switch"
    switches = _switches(top, kind, policy, reference)
    places = top.take("x", list, [], "a list of names")
    if not all(isinstance(p, str) and p for p in places) or len(set(places)) != len(places):
        raise top.wrong("x", places, "names, each once")
    files = [
        f
        for f in (folder / "published.csv", folder / "upstream.csv")
        if f.name != "upstream.csv" or f.exists() or f.is_symlink()
    ]
    variants = (reference, *(switches if by_variant else (AFTER, CHANGE)))
    tables = [read_rows(f, name, variants, places) for f in files]
    rows = tuple(row for rows in tables for row in rows)
    sections = top.subs("workload")
    groups = {s.take("name", str): s for s in top.subs("fit")}
    shared = {name: _parameters(s.sub("fitted", needed=True)) for name, s in groups.items()}
    for s in groups.values():
        s.done()
    workloads = tuple(_workload(s, folder, rows, reference, shared, places=places) for s in sections)
    for i, w in enumerate(workloads):
        if any((v.name, v.machine, v.table) == (w.name, w.machine, w.table) for v in workloads[:i]):
            raise sections[i].wrong("name", w.name, "a workload that stands here once for each machine")
    for name_of, s in groups.items():
        # Rows that several tables repeat count once, also where each has a workload of its own that is the same.
        fit = {(w.scenario_of(r.x), w.host, w.x, tuple(sorted(w.set.items())), w.times, r.x, r.metric)
               for r in rows for w in workloads if w.fit == name_of and _stands(w, r, workloads)
               and w.is_fit(r, reference)}  # fmt: skip
        _enough(s, list(fit), shared[name_of])
    for key, changed in switches.items():
        _try_switch(Section(file, text, {}, (kind, key)), workloads, policy, {**before_set, **changed})
    switched = {key for features in switches.values() for key in features}
    assumptions = tuple(_assumption(s, workloads, switched) for s in top.subs("assumption"))
    beyond = tuple(_beyond(s, folder, workloads) for s in top.subs("beyond"))
    top.done()
    loaded = Study(
        name, folder, title, source, seeds, draws, policy, before_set, switches, workloads, assumptions, beyond, rows,
        reference, by_variant,
    )  # fmt: skip
    for part, of in zip(tables, files, strict=True):
        check_rows(loaded, part, of, file)
    return loaded


def _top(file: Path, text: str) -> Section:
    try:
        table = tomllib.loads(text)
        _check_words(file, text, table)
    except StudyInvalid:
        raise
    except ValueError as e:
        # TOMLDecodeError, and what Python itself says of a number of thousands of digits.
        raise StudyInvalid(f"{file}: not valid TOML: {e}") from None
    except RecursionError:
        raise StudyInvalid(f"{file}: not valid TOML: nested too deeply") from None
    return Section(file, text, table)


def _check_words(file: Path, text: str, value: Any, path: tuple[str | int, ...] = ()) -> None:
    """Refuse what a terminal would obey."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_words(file, text, key, path)
            _check_words(file, text, inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            _check_words(file, text, inner, (*path, i))
    elif isinstance(value, str) and CONTROL.search(value):
        key = next((p for p in reversed(path) if isinstance(p, str)), None)
        above = path[: len(path) - 1 - path[::-1].index(key)] if key else ()
        raise Section(file, text, {}, above).wrong(key, value, PLAIN)


def _switches(top: Section, kind: str, policy: str, reference: str) -> dict[str, Settings]:
    """`[switch.NAME]` or `[variant.NAME]`."""
    switches = {}
    for key, features in top.take(kind, dict).items():
        if not isinstance(features, dict):
            raise top.wrong(kind, features, f"tables [{kind}.NAME]")
        switches[key] = _features(Section(top.file, top.text, features, (kind, key)), policy)
        if not switches[key]:
            raise StudyInvalid(f"{top.at(kind)}.{key}: empty; should set what the patch changes")
        if kind == "variant" and key == reference:
            raise StudyInvalid(f"{top.at(kind)}.{key}: is the unpatched system, which [before] sets")
    if not switches:
        raise StudyInvalid(f"{top.at(kind)}: empty; should have a table [{kind}.NAME]")
    return switches


def _stands(w: Workload, row: Row, workloads: tuple[Workload, ...]) -> bool:
    """Does the workload stand for the row, and none that names the row's table?"""
    if (w.name, w.machine) != (row.workload, row.machine) or w.table not in (None, row.table):
        return False
    return w.table is not None or not any(
        (v.name, v.machine, v.table) == (w.name, w.machine, row.table) for v in workloads
    )


@functools.cache
def _listed(what: str, of: str | None = None) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(_core.describe(what, of))
    return listed


def _known(section: Section, key: str, found: str, known: Iterable[str], where: str) -> None:
    known = list(known)
    if found not in known:
        raise StudyInvalid(f"{section.at(key)}: found '{found}'; {close(found, known, where)}")


def _policy(section: Section, policy: str) -> None:
    known = [*(p["name"] for p in _listed("presets")), XEN]
    _known(section, "policy", policy, known, "`contend list presets` lists them; xen where the host is Xen")


def _features(section: Section | None, policy: str) -> Settings:
    """A table of features, and of nothing else."""
    if section is None:
        return {}
    features = [f["name"] for f in _listed("features", host_policy(policy))]
    of_xen = ["scheduler", "preset", "patches", *(f["name"] for f in _listed("xen"))]
    out: Settings = {}
    for key in list(section.table):
        # `guest.KEY` is a feature of every guest's kernel, `kvm.KEY` and `xen.KEY` are the hypervisor's.
        of, _, _ = key.rpartition(".")
        known = [f"kvm.{f['name']}" for f in _listed("kvm")] if of == "kvm" else features
        known = [f"xen.{name}" for name in of_xen] if of == "xen" else known
        known = [f"guest.{f}" for f in known] if of == "guest" else known
        if key == "policy":
            raise StudyInvalid(
                f"{section.at(key)}: a study compares switches of one policy (`contend list features`); other policies "
                "stand in the variants of [[beyond]]"
            )
        owner = next((o for o in ("machine", "workload") if f"{key}.".removeprefix("guest.").startswith(f"{o}.")), None)
        if owner is not None:
            raise StudyInvalid(
                f"{section.at(key)}: a key of the {owner}, not a feature: it stands in the `set` or `vary` of a "
                "[[workload]] or [[beyond]], and is the same for all that is compared"
            )
        if key not in known:
            raise StudyInvalid(
                f"{section.at(key)}: unknown feature; {close(key, known, '`contend list features` lists them')}"
            )
        out[key] = section.take(key, (bool, int, str), right="true, false, a whole number or a word")
    return out


def _settings(section: Section | None) -> Settings:
    """Anything that `--set` takes: nested tables are dotted keys."""
    if section is None:
        return {}
    out: Settings = {}
    for key in list(section.table):
        if isinstance(section.table[key], dict):
            inner = section.sub(key)
            out |= {f"{key}.{k}": v for k, v in _settings(inner).items()}
        else:
            out[key] = section.take(key, (bool, int, float, str), right="a word, a number, true or false")
    return out


def _metrics(section: Section) -> dict[str, Metric]:
    """`metric` for all rows, or `metrics` by the CSV's metric."""
    one, many = section.sub("metric"), section.sub("metrics")
    if (one is None) == (many is None):
        raise StudyInvalid(f"{section.at('metric')}: should be given, or a table of them, `metrics`, but not both")
    if one is not None:
        return {"": _metric(one)}
    assert many is not None
    found = {}
    for key in list(many.table):
        inner = many.sub(key)
        assert inner is not None
        found[key] = _metric(inner)
    return found


def _metric(section: Section) -> Metric:
    form = [f for f in FORMS if f in section.table]
    if len(form) != 1:
        known = [*FORMS, "scale", "per_x", "per", "plus"]
        odd = next((k for k in section.table if k not in known), None)
        if odd:
            raise StudyInvalid(f"{section.at(odd)}: unknown key; {close(odd, known, f'should be one of {known}')}")
        raise StudyInvalid(f"{section.at()}: should have exactly one of {', '.join(FORMS)}")
    read = section.take(form[0], str)
    scale = float(section.number("scale", 1.0, above=0)) if form[0] in ("rate", "time_of", "value", "latency") else 1.0
    per_x = per = None
    plus = 0.0
    if form[0] == "time_of" and "per" in section.table:
        per = float(section.number("per", above=0))
    elif form[0] == "time_of":
        per_x = float(section.number("per_x", above=0))
    if form[0] == "time_of":
        plus = float(section.number("plus", 0, least=0))
    section.done()
    match form[0]:
        case "rate":
            return Metric("value", f"rate.{read}", scale)
        case "time_of":
            return Metric("time", f"rate.{read}", scale, per_x, per, plus)
        case "latency":
            return Metric("percentile", read, scale)
        case "normalized":
            return Metric("normalized", f"rate.{read}")
        case "value":
            return Metric("value", read, scale)
        case _:
            return Metric("reduction", read)


def _scenario(section: Section, folder: Path, key: str = "scenario") -> Path:
    name = section.take(key, str)
    file = folder / str(name)
    if not _is_file(file):
        raise StudyInvalid(f"{section.at(key)}: {file}: no such file")
    return file


def _fit(
    section: Section,
    mine: list[Row],
    reference: str,
    shared: tuple[Parameter, ...] | None,
    places: Sequence[str] = (),
) -> tuple[tuple[float, ...], tuple[str, ...], tuple[Parameter, ...]]:
    """`fit_x`, `fit_metrics` and `fitted`: which rows were fitted to, and what."""
    fit_x = section.take("fit_x", list, [], "a list of values of x")
    fit_x = [float(places.index(x)) if x in places else x for x in fit_x]
    published = {r.x for r in mine if r.variant == reference}
    for value in fit_x:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value not in published:
            shown = ", ".join(f"{p:g}" for p in sorted(published)) or "no row: nothing can be fitted"
            raise section.wrong("fit_x", value, f"x of a row of `{reference}`: {shown}")
    if len(set(fit_x)) != len(fit_x):
        raise section.wrong("fit_x", fit_x, "each value once")
    metrics = section.take("fit_metrics", list, [], "a list of metrics")
    for metric in metrics:
        _known(section, "fit_metrics", str(metric), {r.metric for r in mine}, "the name of a metric in published.csv")
    fitted = section.sub("fitted")
    parameters = _parameters(fitted) if shared is None else shared
    if shared is not None and fitted is not None:
        raise StudyInvalid(f"{section.at('fitted')}: should not be given beside `fit`")
    if parameters and not fit_x and shared is None:
        raise StudyInvalid(f"{section.at('fit_x')}: missing; should list the rows of `before` that it was fitted to")
    if fit_x and not parameters:
        raise section.wrong("fit_x", fit_x, "left out: no parameter is fitted ([workload.fitted])")
    if shared is None and parameters:
        # Rows that several tables repeat count once.
        fit = {(r.x, r.metric) for r in mine
               if r.variant == reference and r.x in fit_x and r.metric in (metrics or (r.metric,))}  # fmt: skip
        _enough(section, list(fit), parameters)
    return tuple(map(float, fit_x)), tuple(metrics), parameters


def _enough(section: Section, rows: Sequence[object], parameters: tuple[Parameter, ...]) -> None:
    if len(parameters) >= len(rows):
        found = f"{len(rows)} rows for {len(parameters)} parameters"
        raise StudyInvalid(f"{section.at('fit_x')}: found {found}; should be more rows than parameters")


def _parameters(fitted: Section | None) -> tuple[Parameter, ...]:
    return tuple(_parameter(fitted, key) for key in list(fitted.table)) if fitted else ()


def _workload(
    section: Section, folder: Path, rows: tuple[Row, ...], reference: str,
    groups: dict[str, tuple[Parameter, ...]], *, places: Sequence[str],
) -> Workload:  # fmt: skip
    name, machine, table = section.take("name", str), section.take("machine", str), section.take("table", str, None)
    of = [r for r in rows if (r.workload, r.machine) == (name, machine)]
    mine = [r for r in of if table in (None, r.table)]
    if of and table is not None:
        _known(section, "table", table, sorted({r.table for r in of}), "should be the table of a row of the workload")
    if not mine:
        known = sorted({f"{r.workload} on {r.machine}" for r in rows})
        right = close(f"{name} on {machine}", known, f"published.csv has {'; '.join(known)}")
        raise StudyInvalid(f"{section.at('name')}: published.csv has no row of {name} on {machine}; {right}")
    at_x = _scenario_at(section, folder, {r.x for r in mine}, places)
    scenario = at_x[0][1] if at_x else _scenario(section, folder)
    x = section.take("x", str, None)
    group = section.take("fit", str, None)
    if group is not None:
        _known(section, "fit", group, groups, "should be the name of a [[fit]]")
    metrics = _metrics(section)
    for m in metrics:
        _known(section, "metrics", m, ["", *(r.metric for r in mine)], "the name of a metric in published.csv")
    slice_ms = float(section.number("slice_ms", SLICE_MS, above=0, most=SLICE_MS_MAX))
    quick_ms = float(section.number("quick_slice_ms", slice_ms, above=0, most=SLICE_MS_MAX))
    warmup_ms = float(section.number("warmup_ms", 0, least=0, most=SLICE_MS_MAX))
    quick_warmup_ms = float(section.number("quick_warmup_ms", warmup_ms, least=0, most=SLICE_MS_MAX))
    times = section.take("times", dict, {})
    share = float(section.number("share", 1.0, above=0, most=1))
    fit_x, fit_metrics, parameters = _fit(section, mine, reference, None if group is None else groups[group], places)
    fit_to = [metrics.get(m, metrics.get("")) for m in fit_metrics] if fit_metrics else list(metrics.values())
    if parameters and any(m is not None and m.form not in ("value", "time", "percentile") for m in fit_to):
        only = "only a rate, a time, a value or a latency can be fitted (`fit_metrics` names those that are)"
        raise StudyInvalid(f"{section.at('metric')}: {only}")
    settings = _settings(section.sub("set"))
    _check_settings(section, x, settings, [p.key for p in parameters])
    section.done()
    done = Workload(
        name, machine, scenario, x, metrics, slice_ms, quick_ms, warmup_ms, quick_warmup_ms,
        fit_x, fit_metrics, parameters, settings, _line(section), table, at_x, share,
        _factors(section, times, parameters), group, machine_of(folder, machine),
    )  # fmt: skip
    _try(section, "scenario", done)
    own = tuple((p, _own_sets(section, "scenarios" if at_x else "scenario", p)) for p in done.scenarios)
    done = dataclasses.replace(done, scenario_sets=own)
    for p in parameters:
        _try(section, "fitted", done, {p.key: done.parameters[p.key]})
    if x is not None:
        for value in sorted({r.x for r in mine}):
            _try(section, "x", done, {x: number(value)})
    return done


def _own_sets(section: Section, key: str, scenario: Path) -> tuple[str, ...]:
    """The keys of a scenario's own [set]: those that a workload's `set` may have."""
    text = text_of_file(scenario)
    try:
        table = tomllib.loads(text).get("set", {})
    except ValueError as e:
        # The simulator reads TOML 1.1, too.
        raise StudyInvalid(f"{section.at(key)}: {scenario}: not valid TOML 1.0: {e}") from None
    top = Section(scenario, text, {}, ("set",))
    keys = _dotted(table)
    for name in keys:
        # Weights and limits of groups are the load's.
        if not _of_workload(name) and not name.startswith("groups."):
            raise StudyInvalid(f"{section.at(key)}: {top.at(name)}: found {name}; should be {OF_WORKLOAD}")
    return tuple(keys)


def _dotted(table: dict[str, Any]) -> list[str]:
    found = []
    for key, value in table.items():
        found += [f"{key}.{k}" for k in _dotted(value)] if isinstance(value, dict) else [key]
    return found


def _factors(
    section: Section, times: dict[str, Any], parameters: tuple[Parameter, ...]
) -> tuple[tuple[str, float], ...]:
    """`times`: factors on fitted values."""
    for key, factor in times.items():
        known = [p.key for p in parameters]
        if key not in known:
            right = close(key, known, "should be a fitted parameter")
            raise StudyInvalid(f"{section.at('times')}: found {key}; {right}")
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor < 1000:
            raise section.wrong("times", factor, "a number above 0, below 1000")
    return tuple((k, float(v)) for k, v in times.items())


def _scenario_at(
    section: Section, folder: Path, xs: set[float], places: Sequence[str] = ()
) -> tuple[tuple[float, Path], ...]:
    """`scenarios`: a scenario for each x, where more than one key depends on it."""
    table = section.sub("scenarios")
    if table is None:
        return ()
    found = {}
    for key in list(table.table):
        at = str(places.index(key)) if key in places else key
        if not at.replace(".", "", 1).isdigit() or float(at) not in xs:
            shown = ", ".join(f"{x:g}" for x in sorted(xs))
            raise StudyInvalid(f"{table.at(key)}: unknown key; should be x of a row: {shown}")
        found[float(at)] = _scenario(table, folder, key)
    absent = xs - set(found)
    if absent:
        raise StudyInvalid(f"{section.at('scenarios')}: missing {min(absent):g}; should have a scenario for each x")
    return tuple(sorted(found.items()))


def _check_settings(section: Section, x: str | None, settings: Settings, fitted: list[str]) -> None:
    for key in settings:
        if not _of_workload(key):
            raise StudyInvalid(f"{section.at('set')}: found {key}; should be {OF_WORKLOAD}")
    for key in (*([] if x is None else [x]), *fitted):
        if key in settings or (key == x and key in fitted):
            raise StudyInvalid(f"{section.at()}: {key} is set twice; should be one of x, in `set`, and fitted")


def _of_workload(key: str) -> bool:
    return key.startswith(("workload.", "machine.", "guest.workload.")) or key in OF_HOST


def _line(section: Section) -> int:
    from contend.study.section import line_of

    return line_of(section.text, section.path)


def number(value: float) -> int | float:
    """1 and not 1.0."""
    return int(value) if float(value).is_integer() else value


def _try(section: Section, key: str, w: Workload, settings: Settings | None = None) -> None:
    """Would the scenario be accepted?"""
    from contend.given import text_of

    try:
        for path in w.scenarios:
            _core.resolve(
                path=path,
                machine=w.host,
                set=[(k, text_of(v)) for k, v in {**w.set, **(settings or {})}.items()],
            )
    except _core.ContendError as e:
        said = str(e)
        if said.startswith("--machine: "):
            key = "machine"
        raise StudyInvalid(f"{section.at(key)}: {said.removeprefix('--machine: ').removeprefix('--set: ')}") from None


def _try_switch(section: Section, workloads: tuple[Workload, ...], policy: str, features: Settings) -> None:
    """Would the patched system be accepted? One workload tells for all."""
    from contend.given import text_of

    for w in workloads[:1]:
        sets = [(k, text_of(v)) for k, v in features.items()]
        try:
            _core.resolve(path=w.scenario, machine=w.host, policy=host_policy(policy), set=sets)
        except _core.ContendError as e:
            raise StudyInvalid(f"{section.at()}: {str(e).removeprefix('--set: ')}") from None


def _parameter(fitted: Section, key: str) -> Parameter:
    if not key.startswith(("workload.", "guest.workload.")):
        raise StudyInvalid(
            f"{fitted.at(key)}: unknown key; should be a parameter of the workload, such as workload.work_ns: "
            "nothing else may be fitted"
        )
    section = fitted.sub(key)
    assert section is not None
    given = [section.number(k) for k in ("value", "lo", "hi")]
    section.done()
    value, lo, hi = given
    if not (0 <= lo < hi < math.inf):
        raise fitted.wrong(key, {"lo": lo, "hi": hi}, "0 <= lo < hi")
    if not lo <= value <= hi:
        raise fitted.wrong(key, value, f"a value from lo to hi ({lo:g} to {hi:g})")
    return Parameter(key, float(value), float(lo), float(hi), all(isinstance(v, int) for v in given))


def _assumption(section: Section, workloads: tuple[Workload, ...], switched: set[str]) -> Assumption:
    machine, workload = section.take("machine", str, None), section.take("workload", str, None)
    if (machine is None) == (workload is None):
        raise StudyInvalid(f"{section.at()}: should name a machine or a workload, and not both")
    if machine is not None:
        _known(section, "machine", machine, {w.machine for w in workloads}, "the machine of a workload")
    if workload is not None:
        _known(section, "workload", workload, {w.name for w in workloads}, "the name of a workload")
    key, why = section.take("key", str), section.take("why", str)
    lo, hi = section.number("lo"), section.number("hi")
    section.done()
    if key in switched:
        raise section.wrong("key", key, "what no variant sets: it would be the same for all")
    if not 0 <= lo < hi:
        raise section.wrong("hi", hi, f"above lo ({lo:g}, which is at least 0)")
    done = Assumption(key, float(lo), float(hi), isinstance(lo, int) and isinstance(hi, int), why, machine, workload)
    for w in workloads:
        if machine in (None, w.machine) and workload in (None, w.name):
            if any(overlap(key, k) for k in (w.x, *w.set, *w.parameters) if k is not None):
                raise section.wrong("key", key, f"neither x, in `set`, nor fitted: {w.name} on {w.machine} sets it")
            for value in (lo, hi):
                _try(section, "key", w, {key: value})
    return done


def _beyond(section: Section, folder: Path, workloads: tuple[Workload, ...]) -> Beyond:
    name, title = section.take("name", str), section.take("title", str, "")
    of = section.take("workload", str, None)
    settings: Settings = {}
    defaults: tuple[float | None, float | None, float] = (None, None, 0.0)
    machine: str | None = None
    if of is not None:
        w = _workload_of(section, of, workloads)
        machine = w.host
        scenario, settings = w.scenario, {**w.set, **w.parameters}
        defaults = (w.slice_ms, w.quick_slice_ms, w.warmup_ms)
    else:
        scenario = _scenario(section, folder)
    settings |= _settings(section.sub("set"))
    points = _points(section)
    variants = []
    for v in section.subs("variants"):
        policy = v.take("policy", str)
        _policy(v, policy)
        variants.append(Variant(v.take("name", str), policy, _features(v.sub("set"), policy)))
        v.done()
    columns = section.take("columns", list)
    if not variants or not columns or not all(isinstance(c, str) for c in columns):
        key = "columns" if variants else "variants"
        raise StudyInvalid(f"{section.at(key)}: should have at least one entry")
    for column in columns:
        _check_column(column, section.at("columns"))
    slice_ms = section.number("slice_ms", defaults[0], above=0, most=SLICE_MS_MAX)
    quick_ms = section.number("quick_slice_ms", defaults[1] or slice_ms, above=0, most=SLICE_MS_MAX)
    warmup_ms = float(section.number("warmup_ms", defaults[2], least=0, most=SLICE_MS_MAX))
    seeds = section.whole("seeds", 0, least=1, most=SEEDS_MAX) if "seeds" in section.table else None
    section.done()
    return Beyond(
        name, title, scenario, machine, settings, points, tuple(variants), tuple(columns), slice_ms, quick_ms,
        warmup_ms, seeds, _line(section),
    )  # fmt: skip


def _workload_of(section: Section, name: str, workloads: tuple[Workload, ...]) -> Workload:
    """`workload`, and `machine` where it stands for several."""
    _known(section, "workload", name, {w.name for w in workloads}, "the name of a workload")
    machines = list(dict.fromkeys(w.machine for w in workloads if w.name == name))
    machine = section.take("machine", str, machines[0] if len(machines) == 1 else None)
    if machine is None:
        raise StudyInvalid(f"{section.at('machine')}: missing; {name} runs on {' and '.join(machines)}")
    _known(section, "machine", machine, machines, f"a machine of {name}: {', '.join(machines)}")
    return next(w for w in workloads if (w.name, w.machine) == (name, machine))


def _check_column(column: str, where: str) -> None:
    for part in column.split(" / "):
        if part.partition(".")[0] in OF_GUESTS and "." in part:
            continue
        try:
            check_expression(part, where)
        except _core.ContendError as e:
            raise StudyInvalid(str(e)) from None


def _points(section: Section) -> tuple[Settings, ...]:
    """`vary`, of which every combination is a point, or `at`, the points one by one."""
    listed = section.subs("at")
    if listed and "vary" in section.table:
        raise StudyInvalid(f"{section.at('vary')}: should not be given beside `at`")
    if listed:
        return tuple(_settings(point) for point in listed)
    vary: dict[str, list[Value]] = {}
    for key, values in section.take("vary", dict, {}).items():
        if not isinstance(values, list) or not values:
            raise section.wrong("vary", values, f"a list of values of {key}")
        vary[key] = values
    return tuple(dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values()))
