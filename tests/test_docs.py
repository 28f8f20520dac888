"""The docs site: it builds without a warning, its links lead somewhere, its commands exist, it asks for nothing."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import contend as package
import pytest
from conftest import ROOT
from contend.cli import cli

CHROMIUM = shutil.which("chromium")
PAGES = sorted((ROOT / "docs").rglob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    directory = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", directory],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return directory


class Page(HTMLParser):
    """What a page links to, loads, and can be linked to."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Sort its attributes."""
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and "href" in given:
            self.loads.append(given["href"])
        # mkdocs-jupyter leaves a script without an address for MathJax.
        self.loads += [given[key] for key in ("src", "srcset", "data-src") if given.get(key)]


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in sorted(site.rglob("*.html")) if file.name != "404.html"}


def test_every_link_leads_somewhere(pages: dict[Path, Page]) -> None:
    broken = []
    for file, page in pages.items():
        for link in page.links + page.loads:
            to = urlsplit(link)
            if to.scheme:
                continue
            target = (file.parent / unquote(to.path)).resolve() if to.path else file
            if not target.is_file() or (
                to.fragment and target in pages and unquote(to.fragment) not in pages[target].ids
            ):
                broken.append(f"{file.name}: {link}")
    assert not broken


def test_links_of_the_repository_lead_somewhere() -> None:
    """Where files are browsed there are no pages that the build makes."""
    link = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
    broken = [
        f"{page.relative_to(ROOT)}: {to}"
        for page in [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
        for to in link.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / to).exists()
    ]
    assert not broken


def test_pages_load_nothing_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    outside = [
        f"{file.name}: {to}" for file, page in pages.items() for to in page.loads if urlsplit(to).scheme or "//" in to
    ]
    outside = [o for o in outside if ": data:" not in o]
    assert not outside
    for file in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", file.read_text(encoding="utf-8")), file


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_search_works_in_pages_opened_from_disk(site: Path) -> None:
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    errors: list[str] = []
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((site / "index.html").as_uri())
        page.keyboard.press("/")
        page.keyboard.type("hackbench")
        page.wait_for_selector(".md-search-result__item, [class*=search] a[href*=hackbench], [class*=search] ol li a")
        page.goto((site / "notebooks" / "first-look.html").as_uri())
        assert page.locator(".jp-RenderedImage img").count() == 1
        browser.close()
    assert [url for url in asked if urlsplit(url).scheme not in ("file", "data", "blob", "about")] == []
    assert errors == []


def test_notebook_ran(site: Path) -> None:
    html = (site / "notebooks" / "first-look.html").read_text(encoding="utf-8")
    assert "contend.Result finished: hackbench" in unescape(html)
    assert "data:image/png;base64" in html
    assert "Traceback" not in html


def commands(group: click.Command, path: str = "contend") -> Iterator[tuple[str, click.Command]]:
    """All commands below one, with their words."""
    yield path, group
    if isinstance(group, click.Group):
        for name, command in group.commands.items():
            yield from commands(command, f"{path} {name}")


def text_of(file: Path) -> str:
    return unescape(re.sub(r"<[^>]*>", "", file.read_text(encoding="utf-8")))


def test_reference_has_every_command_and_option(site: Path) -> None:
    text = text_of(site / "reference" / "commands.html")
    for path, command in commands(cli):
        assert path in text
        for param in command.params:
            if isinstance(param, click.Option) and not param.hidden:
                assert max(param.opts, key=len) in text, f"{path} {param.opts}"


def test_reference_has_what_there_is(site: Path, pages: dict[Path, Page]) -> None:
    python = pages[site / "reference" / "python.html"].ids
    public = [name for name in package.__all__ if name != "__version__"]
    # `run` is also a module, in which it is defined.
    assert [name for name in public if not {f"contend.{name}", f"contend.{name}.{name}"} & python] == []
    listed = {
        "workloads": package.list_workloads(),
        "presets": [*package.list_presets(), *package.list_policies()],
        "features": package.list_features(),
        "machines": package.list_machines(),
        "kvm": package.list_kvm(),
        "xen": package.list_xen(),
        "counters": package.list_counters(),
        "studies": package.list_studies(),
    }
    for name, items in listed.items():
        text = text_of(site / "reference" / f"{name}.html")
        assert [item["name"] for item in items if item["name"] not in text] == []
    for machine in package.list_machines():
        text = text_of(site / "reference" / "machines" / f"{machine['name']}.html")
        assert [c["name"] for c in package.list_costs(machine["name"]) if c["name"] not in text] == []


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


def wrong(line: str) -> str | None:
    """What is wrong with a command of a page; of a synopsis (brackets, placeholders) only options are looked at."""
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
    if re.search(r"[\[\]|]|\.\.\.|\b[A-Z]+\b(?![./])", ours):
        return None
    try:
        command.make_context(path, shlex.split(" ".join(rest)))
    except click.ClickException as e:
        return e.format_message()
    return None


def test_commands_of_the_pages_exist() -> None:
    pages = [*PAGES, ROOT / "README.md"]
    found = [(page, line) for page in pages for line in commands_in(page.read_text(encoding="utf-8"))]
    assert len(found) > 100
    bad = [f"{page.relative_to(ROOT)}: contend {line}: {why}" for page, line in found if (why := wrong(line))]
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
