"""Pages of reference that are made from the program at build time: what `contend list` says, the commands, the package.

Nothing here is written by hand but headings; a page changes with the program.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import contend
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

Item = dict[str, Any]


def cell(value: object) -> str:
    """A value as a cell of a table: text as it is, without what would end the cell or be taken for markup."""
    text = "" if value is None else str(value)
    return re.sub(r"([\\|*\[])", r"\\\1", text.replace("<", "&lt;").replace("\n", " "))


def code(value: object) -> str:
    """A value as code; nothing for nothing."""
    return "" if value is None or value == "" else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table; columns `right` are aligned to the right."""
    rule = ["---:" if i in right else "---" for i in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows]) + "\n"


def page(title: str, made_by: str, *parts: str) -> str:
    """A page that says where it comes from."""
    return "\n\n".join([f"# {title}", f"Made from the program: `{made_by}`.", *parts]) + "\n"


def wide(text: str) -> str:
    """A page whose table needs the columns beside it."""
    return f"---\nhide:\n  - navigation\n  - toc\n---\n\n{text}"


def workloads() -> str:
    """Every workload with its keys."""
    parts = ["Keys of `[workload]`, and of `--set workload.KEY=VALUE`. More: [What can run](../workloads.md)."]
    for w in contend.list_workloads():
        rows = [
            [code(k["name"]), code(k["default"]), cell(k["values"]), cell(k["unit"]), cell(k["doc"])] for k in w["keys"]
        ]
        parts += [f"## {w['name']}", cell(w["doc"])]
        if rows:
            parts.append(table(["key", "default", "values", "unit", "what it is"], rows))
    return page("All workloads", "contend list workloads --json", *parts)


def switches(title: str, what: str, about: str, items: list[Item]) -> str:
    """Switches with their values, as features and those of KVM are."""
    rows = [[code(s["name"]), code(s["value"]), cell(s["doc"]), cell(s["values"])] for s in items]
    return page(title, f"contend list {what} --json", about, table(["switch", "value", "what it is", "values"], rows))


def presets() -> str:
    """Every preset, and the features in which they differ."""
    found = contend.list_presets()
    policies = [[code(p["name"]), cell(p["doc"]), ", ".join(map(code, p["presets"]))] for p in contend.list_policies()]
    about = [[code(p["name"]), code(p["policy"]), cell(p["doc"])] for p in found]
    features = [f["name"] for f in contend.list_features() if len({p["features"][f["name"]] for p in found}) > 1]
    differing = [[code(f), *(code(p["features"][f]) for p in found)] for f in features]
    return page(
        "All presets",
        "contend list presets --json",
        "## Policies",
        table(["policy", "what it is", "presets"], policies),
        "## Presets",
        table(["preset", "policy", "what it is"], about),
        "## Features in which presets differ",
        "The others have one value in all presets: [All features](features.md).",
        table(["feature", *(p["name"] for p in found)], differing),
    )


def machines() -> str:
    """Every machine that ships."""
    sizes = ("cpus", "nodes", "llcs", "cores")
    rows = [
        [f"[{m['name']}](machines/{m['name']}.md)", *(f"{m[size]:,}" for size in sizes), cell(m["doc"])]
        for m in contend.list_machines()
    ]
    return page(
        "All machines and costs",
        "contend list machines --json",
        "A machine's page has all its costs. Also a file or a shape: [Machine files](../machines.md).",
        table(["machine", "CPUs", "nodes", "LLCs", "cores", "what it is"], rows, right=(1, 2, 3, 4)),
    )


def costs(machine: Item) -> str:
    """The costs of one machine, with ranges and sources."""
    rows = [
        [code(c["name"]), *(f"{c[k]:,}" for k in ("value", "lo", "hi")), cell(c["unit"]), cell(c["doc"])]
        for c in contend.list_costs(machine["name"])
    ]
    return page(
        machine["name"],
        f"contend list costs --machine {machine['name']} --json",
        cell(machine["doc"]),
        "CPUs {cpus}, cores {cores}, last-level caches {llcs}, nodes {nodes}.".format(**machine),
        "Short names of sources are explained in [Machine files](../../machines.md#sources). To change a cost: "
        "`--set machine.COST=VALUE`.",
        table(["cost", "value", "lo", "hi", "unit", "source"], rows, right=(1, 2, 3)),
    )


def xen() -> str:
    """Xen's switches with their values in each preset."""
    items = contend.list_xen()
    names = list(items[0]["presets"])
    rows = [
        [cell(s["patch"]), code(s["name"]), *(code(s["presets"][p]) for p in names), cell(s["doc"]), cell(s["values"])]
        for s in items
    ]
    return page(
        "Xen's switches",
        "contend list xen --json",
        "`--set xen.KEY=VALUE`; patches also by number, `--set xen.patches=1-7`. More: [Xen hosts](../xen.md).",
        table(["patch", "switch", *names, "what it is", "values"], rows, right=(0,)),
    )


def counters() -> str:
    """What is counted of virtual machines."""
    rows = [[code(c["name"]), cell(c["of"]), cell(c["doc"])] for c in contend.list_counters()]
    return page("Counters", "contend list counters --json", table(["counter", "of", "what it counts"], rows))


def studies() -> str:
    """The studies that ship."""
    rows = [
        [f"[{s['name']}](../source/studies/{s['name']}/README.md)", cell(s["doc"]), f"{s['rows']:,}", cell(s["source"])]
        for s in contend.list_studies()
    ]
    listed = table(["study", "what was changed", "rows", "source"], rows, right=(2,))
    return page("Studies", "contend list studies --json", listed)


def commands() -> str:
    """Every command with its options."""
    return page(
        "All commands",
        "contend COMMAND --help",
        "What they are for: [The command line](../cli.md).",
        "::: mkdocs-click\n    :module: contend.cli\n    :command: cli\n    :prog_name: contend\n    :depth: 1\n"
        "    :style: plain\n    :list_subcommands: true",
    )


def path_of(name: str) -> str:
    """Where a public name is defined, if the package has a module of the same name; else the package's own."""
    return f"contend.{name}.{name}" if f"contend.{name}" in sys.modules else f"contend.{name}"


def python() -> str:
    """The package's public names: functions, classes, exceptions, types."""
    groups: dict[str, list[str]] = {"Functions": [], "Classes": [], "Exceptions": [], "Types": []}
    for name in contend.__all__:
        value = getattr(contend, name)
        if isinstance(value, type):
            groups["Exceptions" if issubclass(value, BaseException) else "Classes"].append(name)
        elif inspect.isfunction(value):
            groups["Functions"].append(name)
        elif name != "__version__":
            groups["Types"].append(name)
    parts = ["# Python", "::: contend\n    options:\n      members: false\n      show_root_heading: false"]
    for title, names in groups.items():
        parts.append(f"## {title}")
        parts += [f"::: {path_of(name)}\n    options:\n      heading_level: 3" for name in names]
    # Not of the package's own names: it would be hidden by the module.
    parts += [
        "## Reports",
        "`from contend.report import report`",
        "::: contend.report.kinds.report\n    options:\n      heading_level: 3",
    ]
    return "\n\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    """Path and text of every page."""
    made = {
        "commands": commands(),
        "python": python(),
        "workloads": workloads(),
        "presets": presets(),
        "features": switches(
            "All features",
            "features",
            "`--set KEY=VALUE`, or a scenario's table `[set]`. Values are those of the newest preset. More: "
            "[Policies, presets, features](../presets.md).",
            contend.list_features(),
        ),
        "kvm": switches(
            "KVM's switches",
            "kvm",
            "`--set kvm.KEY=VALUE`. Values are the defaults. More: [Guests under KVM](../guests.md).",
            contend.list_kvm(),
        ),
        "xen": xen(),
        "counters": counters(),
        "machines": machines(),
        "studies": studies(),
    }
    made |= {f"machines/{m['name']}": wide(costs(m)) for m in contend.list_machines()}
    return {f"reference/{name}.md": text for name, text in made.items()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to those of the folder."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files
