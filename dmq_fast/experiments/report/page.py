"""Builds HTML pages that load no other file, from pictures, tables and tiles."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dmq_fast._support.json_text import to_json
from dmq_fast._support.words import rounded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Picture",
    "code",
    "definitions",
    "gallery",
    "grid",
    "header",
    "image",
    "messages",
    "page",
    "parameters_text",
    "section",
    "value_text",
]


class Picture(NamedTuple):
    """A figure with its title and caption."""

    figure: Figure
    title: str
    caption: str


LARGEST = 1.5
"""Largest factor by which a page may enlarge a picture."""


def escape(value: object) -> str:
    """Return a value as text that is safe in elements and quoted attributes."""
    return html.escape(str(value), quote=True)


def image(figure: Figure, label: str) -> str:
    """Return a figure as an SVG image within the page, on white paper; `label` describes it to screen readers."""
    file = io.BytesIO()
    # Without a date, equal figures are equal texts.
    figure.savefig(file, format="svg", metadata={"Date": None})
    data = base64.b64encode(file.getvalue()).decode()
    width = LARGEST * figure.get_figwidth()
    return f'<img alt="{escape(label)}" style="max-width:{width:.2f}in" src="data:image/svg+xml;base64,{data}">'


def gallery(shown: Iterable[Picture]) -> str:
    """Return pictures with titles and captions, side by side if the page is wide enough."""
    figures = [
        f"<figure><h3>{escape(one.title)}</h3>{image(one.figure, one.title)}"
        f"<figcaption>{escape(one.caption)}</figcaption></figure>"
        for one in shown
    ]
    return f'<div class="gallery">{"".join(figures)}</div>' if figures else "<p>There are none.</p>"


def value_text(value: Any) -> str:
    """Return the value of a parameter as text."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return rounded(value, 6)
    return value if isinstance(value, str) else to_json(value)


def parameters_text(parameters: Mapping[str, Any]) -> str:
    """Return parameters on one line."""
    return ", ".join(f"{name} = {value_text(value)}" for name, value in parameters.items())


def header(title: str, subtitle: str) -> str:
    """Return the head of a page: subtitle and title."""
    return f"<header><p>{escape(subtitle)}</p><h1>{escape(title)}</h1></header>"


def messages(kind: str, shown: Iterable[str]) -> str:
    """Return warnings or notes as paragraphs."""
    return "".join(f'<p class="{kind}"><strong>{kind.capitalize()}:</strong> {escape(one)}</p>' for one in shown)


def section(title: str, content: str) -> str:
    """Return a section with its heading."""
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def definitions(entries: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and values."""
    lines = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in entries)
    return f'<dl class="list">{lines}</dl>'


def code(text: str) -> str:
    """Return a text as it stands, in letters of one width."""
    return f"<pre><code>{escape(text)}</code></pre>"


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: Container[int] = ()) -> str:
    """Return a table; the columns with the indices `right` are aligned to the right."""

    def line(tag: str, row: Sequence[str]) -> str:
        aligned = (' class="number"' if i in right else "" for i in range(len(row)))
        return "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(aligned, row, strict=True))

    lines = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{line("th", heads)}</tr></thead><tbody>{lines}</tbody></table></div>'


def page(title: str, body: Iterable[str]) -> str:
    """Return the whole page."""
    css = Path(__file__).with_name("page.css").read_text()
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{css}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )
