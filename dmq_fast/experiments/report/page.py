"""Builds HTML pages that load no other file, from pictures, tables and tiles."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dmq_fast._support.html_text import escape
from dmq_fast._support.json_text import to_json
from dmq_fast.drawing import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Picture",
    "definitions",
    "formula",
    "gallery",
    "header",
    "html_table",
    "messages",
    "page",
    "parameters_text",
    "section",
    "svg",
    "tiles",
    "value_text",
]


class Picture(NamedTuple):
    """A figure with its title and caption, which may hold formulas, and what it leaves out, as text."""

    figure: Figure
    title: str
    caption: str
    left_out: str = ""


# The colours of pictures, and the CSS variables that replace them, so that pictures follow the theme of the page.
THEMED = {
    **{colour: f"series-{i}" for i, colour in enumerate(style.COLOURS)},
    # One of the series has the colour of text, so these come after the series.
    style.INK: "ink",
    style.MUTED: "muted",
    style.FAINT: "faint",
    "#ffffff": "paper",
}


LARGEST = 1.5
"""Largest factor by which a page may enlarge a picture."""


def svg(figure: Figure, prefix: str, label: str) -> str:
    """Return a figure as an SVG element; `prefix` begins its ids, and `label` describes it to screen readers."""
    file = io.StringIO()
    # Without a date, equal figures are equal texts.
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    source = file.getvalue()
    source = source[source.index("<svg") :]
    source = re.sub(r"<metadata>.*?</metadata>", "", source, flags=re.DOTALL)
    source = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', source)
    source = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", source)
    for colour, name in THEMED.items():
        source = re.sub(f"(fill|stroke): {colour}\\b", rf"\1: var(--{name})", source, flags=re.IGNORECASE)
    attributes = (
        f'role="img" aria-label="{escape(label)}" '
        f'style="width:100%;height:auto;max-width:{LARGEST * figure.get_figwidth():.2f}in"'
    )
    # Without these attributes the picture fills the width of its column.
    start, rest = source.split(">", 1)
    return re.sub(r' (width|height)="[^"]*"', "", start).replace("<svg", f"<svg {attributes}") + ">" + rest


def gallery(shown: Iterable[Picture]) -> str:
    """Return pictures with titles and captions, side by side if the page is wide enough."""
    figures = [
        f"<figure><h3>{escape(one.title)}</h3>{svg(one.figure, f'p{i}', one.title)}"
        f"<figcaption>{formula(one.caption)}{escape(one.left_out and f' {one.left_out}')}</figcaption></figure>"
        for i, one in enumerate(shown)
    ]
    return f'<div class="gallery">{"".join(figures)}</div>' if figures else "<p>There are none.</p>"


GREEK = {"lambda": "λ", "theta": "θ", "gamma": "γ", "epsilon": "ε", "eps": "ε", "phi": "φ", "Pi": "Π", "pi": "π"}


def formula(source: str) -> str:
    """Return a plain-text formula as HTML with Greek letters, subscripts and superscripts."""
    result = escape(source)
    result = re.sub(r"\b(" + "|".join(GREEK) + r")(?![a-z])", lambda found: GREEK[found.group(1)], result)
    result = result.replace("&lt;=", "≤").replace("!=", "≠").replace("sqrt", "√").replace("sum_", "Σ_")
    result = re.sub(r"(?<=\w)_(\w+)", r"<sub>\1</sub>", result)
    return re.sub(r"\^(\([^)]*\)|\w+|\*)", r"<sup>\1</sup>", result)


def value_text(value: Any) -> str:
    """Return the value of a parameter as text."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else to_json(value)


def parameters_text(parameters: Mapping[str, Any]) -> str:
    """Return parameters on one line."""
    return ", ".join(f"{name} = {value_text(value)}" for name, value in parameters.items())


def header(title: str, subtitle: str, parameters: Mapping[str, Any]) -> str:
    """Return the head of a page: subtitle, title and parameters."""
    below = f"<p>{escape(parameters_text(parameters))}</p>" if parameters else ""
    return f"<header><p>{escape(subtitle)}</p><h1>{escape(title)}</h1>{below}</header>"


def tiles(shown: Iterable[tuple[str, str, str]]) -> str:
    """Return large numbers, each with its label and a line below."""
    cells = "".join(
        f"<div><dt>{escape(label)}</dt><dd>{escape(value)}<small>{escape(below)}</small></dd></div>"
        for label, value, below in shown
    )
    return f'<dl class="tiles">{cells}</dl>'


def messages(kind: str, shown: Iterable[str]) -> str:
    """Return warnings or notes as paragraphs."""
    return "".join(f'<p class="{kind}"><strong>{kind.capitalize()}:</strong> {escape(one)}</p>' for one in shown)


def section(title: str, content: str) -> str:
    """Return a section with its heading."""
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def definitions(entries: Mapping[str, str]) -> str:
    """Return a list of names, in HTML, and values, in text."""
    lines = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in entries.items())
    return f'<dl class="list">{lines}</dl>'


def html_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = (), kind: str = ""
) -> str:
    """Return a table of cells in HTML; `numbers` are the indices of columns that are aligned to the right."""
    right = set(numbers)

    def cells(tag: str, row: Sequence[str]) -> str:
        scope = ' scope="col"' if tag == "th" else ""
        aligned = (' class="number"' if i in right else "" for i in range(len(row)))
        return "".join(f"<{tag}{scope}{kind}>{cell}</{tag}>" for kind, cell in zip(aligned, row, strict=True))

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f'<div class="wide" role="region" aria-label="table" tabindex="0"><table class="{kind}">'
        f"<thead><tr>{cells('th', heads)}</tr></thead>"
        f"<tbody>{lines}</tbody></table></div>"
    )


def page(title: str, body: Iterable[str]) -> str:
    """Return the whole page."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


CSS = """\
:root {
  --paper: #ffffff; --panel: #f6f6f4; --ink: #1a1a1a; --muted: #5f5f5f; --faint: #e4e4e4; --rule: #d8d8d4;
  --good: #00664a; --bad: #a33f00;
  --series-0: #0072b2; --series-1: #d55e00; --series-2: #009e73; --series-3: #cc79a7; --series-4: #56b4e9;
  --series-5: #e69f00; --series-7: #882255; --series-8: #999933;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #16181b; --panel: #1f2226; --ink: #ececea; --muted: #a3a6aa; --faint: #33373c; --rule: #3a3e44;
    --good: #4fd1a5; --bad: #ff9a5c;
    --series-0: #4aa8e0; --series-1: #f0803c; --series-2: #2fc79c; --series-3: #dc93bd; --series-4: #7cc9f5;
    --series-5: #f2b53a; --series-7: #c8588c; --series-8: #b9b955;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
header p { margin: 0; color: var(--muted); overflow-wrap: anywhere; }
h1 { margin: 0.1rem 0 0.2rem; font-size: 1.9rem; line-height: 1.2; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { margin: 2.75rem 0 0.75rem; font-size: 1.25rem; border-bottom: 1px solid var(--rule); padding-bottom: 0.3rem; }
h3 { margin: 1.25rem 0 0.5rem; font-size: 1rem; }
section > p { max-width: 46rem; }
small { display: block; color: var(--muted); font-size: 0.8rem; font-weight: 400; line-height: 1.35; }
sub, sup { font-size: 0.72em; line-height: 0; }
dl, dd, dt { margin: 0; }
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 0.75rem; margin: 1.5rem 0;
}
.tiles div { background: var(--panel); border-radius: 8px; padding: 0.75rem 0.9rem; }
.tiles dt { color: var(--muted); font-size: 0.82rem; }
.tiles dd { font-size: 1.5rem; font-weight: 600; line-height: 1.3; font-variant-numeric: tabular-nums; }
.warning, .note {
  border-left: 3px solid var(--bad); padding: 0.3rem 0.8rem; margin: 0.5rem 0; background: var(--panel);
  overflow-wrap: anywhere;
}
.note { border-color: var(--series-0); }
.gallery { columns: 24rem 2; column-gap: 2.5rem; }
figure { margin: 0 0 1.75rem; min-width: 0; break-inside: avoid; }
figure h3 { margin-top: 0; }
figure svg { display: block; }
figcaption { color: var(--muted); font-size: 0.86rem; margin-top: 0.4rem; max-width: 34rem; }
.wide { overflow-x: auto; margin: 0.75rem 0; }
table { border-collapse: collapse; width: 100%; font-size: 0.88rem; }
th, td {
  padding: 0.4rem 0.75rem 0.4rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--rule);
}
th { color: var(--muted); font-weight: 500; white-space: nowrap; vertical-align: bottom; }
td { font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
.number { text-align: right; }
.good { color: var(--good); }
.bad { color: var(--bad); font-weight: 600; }
.rate {
  display: inline-block; width: 3.2rem; height: 0.55rem; background: var(--faint); border-radius: 3px;
  overflow: hidden;
}
.percent { display: inline-block; min-width: 2.9rem; }
.rate i { display: block; height: 100%; background: var(--series-0); }
.list { font-size: 0.9rem; margin: 0.75rem 0; }
.list div {
  display: flex; justify-content: space-between; gap: 1.25rem; padding: 0.3rem 0;
  border-bottom: 1px solid var(--rule);
}
.list dt { color: var(--muted); }
.list dd { text-align: right; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 0 2.5rem; }
pre {
  background: var(--panel); border-radius: 8px; padding: 0.75rem 0.9rem; overflow-x: auto; font-size: 0.85rem;
  white-space: pre-wrap; overflow-wrap: anywhere;
}
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
@media (max-width: 34rem) {
  main { padding: 1rem 0.9rem 3rem; }
  h1 { font-size: 1.5rem; }
  .tiles { grid-template-columns: 1fr 1fr; gap: 0.5rem; }
  .tiles dd { font-size: 1.2rem; }
  table { font-size: 0.8rem; }
  th, td { padding-right: 0.4rem; }
  .rate { display: none; }
  th:nth-child(n + 5) { white-space: normal; }
  .statements thead { display: none; }
  .statements tr {
    display: grid; grid-template-columns: 1fr 1fr auto; padding: 0.4rem 0; border-bottom: 1px solid var(--rule);
  }
  .statements td { border: 0; padding: 0.1rem 0; text-align: left; }
  .statements td:first-child { grid-column: 1 / -1; }
  .statements td:nth-child(2)::before { content: "left "; color: var(--muted); }
  .statements td:nth-child(3)::before { content: "right "; color: var(--muted); }
}
@media print {
  main { max-width: none; padding: 0; }
  body { font-size: 10pt; }
  figure, tr, .tiles div { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .tiles div, pre, .warning, .note { border: 1px solid var(--rule); }
  .wide { overflow: visible; }
}
@page { margin: 16mm; }
"""
