"""The pages of docs/: links and commands in them exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache

import click
import pytest
from conftest import ROOT
from contend.cli import cli

PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def test_links_of_the_repository_lead_somewhere() -> None:
    """Where files are browsed there are no pages that the build makes."""
    link = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
    broken = [
        f"{page.relative_to(ROOT)}: {to}"
        for page in PAGES
        for to in link.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / to).exists()
    ]
    assert not broken


def commands(group: click.Command, path: str = "contend") -> Iterator[tuple[str, click.Command]]:
    """All commands below one, with their words."""
    yield path, group
    if isinstance(group, click.Group):
        for name, command in group.commands.items():
            yield from commands(command, f"{path} {name}")


COMMAND = re.compile(r"^(?:\$ )?(?:sudo )?(?:\S*/)?contend (?=[a-z])")


def code_lines(text: str) -> Iterator[str]:
    """Lines of fenced and indented code."""
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced:
            yield line
        elif line.startswith("    "):
            yield line[4:]
        else:
            yield ""


def commands_in(text: str) -> list[str]:
    """Commands `contend ...` in the code of a page, each in one line."""
    found: list[str] = []
    open_ = False
    for line in code_lines(text):
        if COMMAND.match(line.strip()):
            found.append(COMMAND.sub("", line.strip()))
            open_ = True
        elif open_ and re.match(r"\s+[\[-]", line):
            found[-1] = f"{found[-1].rstrip(chr(92))} {line.strip()}"
        else:
            open_ = False
    return found


@cache
def known() -> dict[str, click.Command]:
    return dict(commands(cli))


def wrong(line: str, whole: bool = True) -> str | None:
    """What is wrong with a command of a page; of a synopsis (brackets, placeholders) only options are looked at.

    In sentences commands are not `whole`: what they need besides is left out.
    """
    words = re.split(r"\s+#\s|\s+(?:\||>|2>|&&|;)(?:\s|$)", line)[0]
    path = "contend"
    command: click.Command = cli
    rest = words.split()
    while rest and isinstance(command, click.Group):
        names = rest[0].split("|")
        unknown = [name for name in names if f"{path} {name}" not in known()]
        if unknown:
            return f"no command {path} {unknown[0]}"
        path = f"{path} {names[0]}"
        command = known()[path]
        rest.pop(0)
    options = {opt for param in command.params for opt in [*param.opts, *param.secondary_opts]} | {"-h", "--help"}
    ours = " ".join(rest).split(" -- ")[0]
    missing = [opt for opt in re.findall(r"(?<![\w-])--[a-z][a-z-]*", ours) if opt not in options]
    if missing:
        return f"{path} has no option {missing[0]}"
    if not whole or re.search(r"[\[\]|]|\.\.\.|\b[A-Z]+\b(?![./])", ours):
        return None
    try:
        command.make_context(path, shlex.split(" ".join(rest)))
    except click.ClickException as e:
        return e.format_message()
    return None


def test_commands_of_the_pages_exist() -> None:
    found = [(page, line) for page in PAGES for line in commands_in(page.read_text(encoding="utf-8"))]
    assert len(found) > 100
    bad = [f"{page.relative_to(ROOT)}: contend {line}: {why}" for page, line in found if (why := wrong(line))]
    assert not bad


def test_commands_in_sentences_exist() -> None:
    found = []
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        found += [(page, " ".join(m.split())) for m in re.findall(r"`contend ([a-z][^`]*)`", text)]
    assert len(found) > 100
    bad = [f"{page.relative_to(ROOT)}: contend {line}: {why}" for page, line in found if (why := wrong(line, False))]
    assert not bad


@pytest.mark.parametrize(
    "line",
    [
        "rnu a.toml",
        "run a.toml --polcy linux-6.18",
        "run",
        "run a.toml --seed x",
        "run SCENARIO [--machien M]",
        "xen trace|adit FILE",
    ],
)
def test_wrong_commands_are_found(line: str) -> None:
    assert wrong(line)
