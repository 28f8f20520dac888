"""One HTML file: sections, tables and figures, with everything that they need inside."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from contend._core import ContendError, __version__

Cell = str | tuple[str, float]
"""What a table shows, or that and the number it is sorted by."""

Column = tuple[str, str]
"""Heading, and `n` (number), `fold` (prose) or empty."""


@dataclass(frozen=True)
class Markup:
    """HTML that is not escaped again."""

    html: str


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[Cell | Markup]],
    *,
    caption: str = "",
    sortable: bool = False,
    tall: bool = False,
) -> str:
    """A table in a frame that scrolls if the window is narrow, and if it is `tall`, downwards too."""

    def cell(value: Cell | Markup, kind: str) -> str:
        if isinstance(value, Markup):
            return f"<td>{value.html}</td>"
        shown, key = value if isinstance(value, tuple) else (value, None)
        data = f' data-v="{key:.12g}"' if key is not None else ""
        css = f' class="{kind}"' if kind else ""
        return f"<td{css}{data}>{escape(shown)}</td>"

    def head(heading: str, kind: str) -> str:
        inner = f'<button type="button">{escape(heading)}</button>' if sortable and heading else escape(heading)
        css = f' class="{kind}"' if kind else ""
        return f'<th scope="col"{css}>{inner}</th>'

    body = "\n".join(
        f"<tr>{''.join(cell(c, kind) for c, (_, kind) in zip(row, columns, strict=True))}</tr>" for row in rows
    )
    label = escape(caption or "Table", quote=True)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="wide{" tall" if tall else ""}" tabindex="0" role="region" aria-label="{label}"><table>{title}'
        f"<thead><tr>{''.join(head(*c) for c in columns)}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what they are."""
    items = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in pairs if v)
    return f'<dl class="facts">{items}</dl>'


def keys(pairs: Iterable[tuple[str, str]]) -> str:
    """A strip of key figures."""
    items = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in pairs)
    return f'<dl class="keys">{items}</dl>'


def paragraph(text: str, css: str = "") -> str:
    """A paragraph of plain words."""
    kind = f' class="{css}"' if css else ""
    return f"<p{kind}>{escape(text)}</p>"


def folded(summary: str, html: str) -> str:
    """Details that are shown on request."""
    return f"<details><summary>{escape(summary)}</summary>{html}</details>"


@dataclass
class Figure:
    """A figure of plotly's (`data` and `layout`), its words, and its numbers as a table behind it."""

    title: str
    caption: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    numbers: str
    height: int = 320
    choices: list[tuple[str, list[int]]] = field(default_factory=list)
    """Which traces each choice shows."""
    choice_label: str = "Show"

    def html(self, name: str) -> str:
        """The figure as `page.js` draws it."""
        layout = {
            "margin": {"l": 64, "r": 12, "t": 16, "b": 44},
            "height": self.height,
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
            "dragmode": "zoom",
            **self.layout,
        }
        select = ""
        if self.choices:
            options = "".join(
                f"<option value='{json.dumps(at)}'>{escape(label)}</option>" for label, at in self.choices
            )
            select = f"<label>{escape(self.choice_label)} <select>{options}</select></label>"
        # `</` would end the element that holds the text.
        text = json.dumps({"data": self.data, "layout": layout}, separators=(",", ":")).replace("</", "<\\/")
        of = escape(self.title, quote=True)
        buttons = "".join(
            f'<button type="button" data-zoom="{how}" aria-label="{what}: {of}">{sign}</button>'
            for how, what, sign in (
                ("0.5", "Zoom in", "+"),
                ("2", "Zoom out", "\N{MINUS SIGN}"),
                ("reset", "Reset zoom", "Reset"),
            )
        )
        return (
            f'<figure id="{name}" data-figure><div class="bar"><span>{select}</span><span>{buttons}</span></div>'
            f'<div class="plot waiting" role="img" aria-label="{of}. {escape(self.caption, quote=True)} '
            f'The numbers are in the table below." style="height:{self.height}px"></div>'
            f'<script type="application/json">{text}</script>'
            f"<figcaption><b>{escape(self.title)}.</b> {escape(self.caption)}</figcaption>"
            f"{folded('The numbers', self.numbers)}</figure>"
        )


@dataclass
class Page:
    """A report in the making."""

    kind: str
    title: str
    lead: str = ""
    """HTML below the title."""
    footer: str = ""
    sections: list[tuple[str, str, str]] = field(default_factory=list)
    figures: int = 0

    def section(self, name: str, heading: str, *parts: str | Figure) -> None:
        """Add a section; one of nothing is left out."""
        html = []
        for part in parts:
            if isinstance(part, Figure):
                self.figures += 1
                html.append(part.html(f"figure-{self.figures}"))
            elif part:
                html.append(part)
        if html:
            self.sections.append((name, heading, "\n".join(html)))

    def html(self) -> str:
        """The whole file."""
        contents = "\n".join(f'<li><a href="#{name}">{escape(heading)}</a></li>' for name, heading, _ in self.sections)
        sections = "\n".join(
            f'<section id="{name}" aria-labelledby="{name}-h"><h2 '
            f'id="{name}-h">{escape(heading)}</h2>\n{html}\n</section>'
            for name, heading, html in self.sections
        )
        return Template(_part("page.html")).substitute(
            version=__version__,
            title=escape(f"{self.title} · contend"),
            css=_part("page.css"),
            kind=escape(self.kind),
            heading=escape(self.title),
            lead=self.lead,
            contents=contents,
            sections=sections,
            footer=self.footer,
            plotly=_plotly(),
            js=_part("page.js"),
        )


def _part(name: str) -> str:
    return resources.files("contend.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).replace("</script", "<\\/script")


def write(html: str, out: Path) -> None:
    """Write the file; it appears whole or not at all."""
    partial = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        partial.write_text(html, encoding="utf-8")
        partial.replace(out)
    except OSError as e:
        raise ContendError(f"{out}: cannot be written: {e.strerror}") from e
    finally:
        # Where it cannot be removed it could not be made either.
        with suppress(OSError):
            partial.unlink(missing_ok=True)
