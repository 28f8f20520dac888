"""The docs site: it builds without a warning, its links lead somewhere, it asks for nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import contend as package
import pytest
from conftest import ROOT
from contend.cli import cli
from test_docs import commands

CHROMIUM = shutil.which("chromium")

pytestmark = pytest.mark.slow


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
        page.wait_for_selector(".md-search-result__item")
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
