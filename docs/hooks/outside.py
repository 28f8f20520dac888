"""Files outside docs/ that pages link to (a study's README, a source file) become pages under source/.

In the repository such links are relative paths, which work where files are browsed. On the site they lead to pages
made here: Markdown as it is, anything else as a listing.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "source"
# Pages of the navigation that lie outside docs/.
ALWAYS = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "crates/locks/README.md",
    *(f"studies/{s.name}/README.md" for s in sorted((ROOT / "studies").iterdir())),
]
LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
LANGUAGES = {".rs": "rust", ".py": "python", ".toml": "toml", ".sh": "sh", ".json": "json"}


def uri_of(path: str) -> str:
    """Where the site has a file of the repository: both are paths with slashes."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"{FOLDER}/{path}" if path.endswith(".md") else f"{FOLDER}/{path}.md"


def path_of(uri: str) -> str:
    """The file of the repository that a page of the site was made from."""
    return uri.removeprefix(f"{FOLDER}/") if uri.startswith(f"{FOLDER}/") else f"docs/{uri}"


def linked(text: str, path: str) -> set[str]:
    """Files outside docs/ that the Markdown of a file links to."""
    here = posixpath.dirname(path)
    found = {posixpath.normpath(posixpath.join(here, m["path"])) for m in LINK.finditer(text)}
    return {f for f in found if not f.startswith("docs/") and (ROOT / f).is_file()}


def text_of(path: str) -> str:
    """A file as a page."""
    try:
        text = (ROOT / path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise PluginError(f"{path}: the docs site shows it, but it cannot be read: {e}") from e
    if path.endswith(".md"):
        return text
    return f"# {path}\n\n````{LANGUAGES.get(Path(path).suffix, 'text')}\n{text.rstrip()}\n````\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file that a page links to, and those that they link to."""
    todo = set(ALWAYS)
    for file in files.documentation_pages():
        if file.src_uri.endswith(".md") and file.generated_by is None:
            todo |= linked(file.content_string, path_of(file.src_uri))
    done: set[str] = set()
    while todo - done:
        path = min(todo - done)
        done.add(path)
        text = text_of(path)
        files.append(File.generated(config, uri_of(path), content=text))
        if path.endswith(".md"):
            todo |= linked(text, path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between docs/ and the rest of the repository lead to the site's pages."""
    path = path_of(page.file.src_uri)
    here = posixpath.dirname(path)

    def link(m: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, m["path"]))
        if path.startswith("docs/") and target.startswith("docs/"):
            return m[0]
        uri = uri_of(target)
        if files.get_file_from_path(uri) is None:
            return m[0]
        return posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".") + (m["anchor"] or "")

    return LINK.sub(link, markdown)
