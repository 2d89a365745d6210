"""HTML of objects in notebooks: small, escaped, and in the colours of the page, light or dark."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["card", "escape", "grid"]

BOX = (
    "display:inline-block;max-width:100%;overflow-x:auto;box-sizing:border-box;border:1px solid rgba(128,128,128,.45);"
    "border-radius:6px;padding:.5em .8em;color:inherit;background:none;line-height:1.4"
)
CELL = "padding:.1em 1.2em .1em 0;vertical-align:top;color:inherit;background:none;border:0;text-align:"


def escape(value: object) -> str:
    """Return a value as text that is safe in elements and quoted attributes."""
    return html.escape(str(value), quote=True)


def card(
    title: str, subtitle: str, entries: Mapping[str, object], *, notes: Iterable[str] = (), below: str = ""
) -> str:
    """Return a box with a title, a list of names and values, warnings, and further HTML `below` them.

    Title, subtitle, names, values and notes are text, and escaped here.
    """
    lines = "".join(
        f'<tr style="background:none"><td style="{CELL}left;opacity:.7">{escape(name)}</td>'
        f'<td style="{CELL}left">{escape(value)}</td></tr>'
        for name, value in entries.items()
    )
    table = f'<table style="margin:.3em 0 0;border-collapse:collapse">{lines}</table>' if lines else ""
    warnings = "".join(f'<div style="margin-top:.3em;max-width:46em">⚠ {escape(note)}</div>' for note in notes)
    head = f'<b>{escape(title)}</b> <span style="opacity:.7">{escape(subtitle)}</span>'
    return f'<div style="{BOX}"><div>{head}</div>{table}{warnings}{below}</div>'


def grid(heads: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Iterable[int] = ()) -> str:
    """Return a table; `numbers` are the indices of columns that are aligned to the right. All cells are escaped."""
    right = set(numbers)

    def cells(tag: str, row: Sequence[object], more: str) -> str:
        return "".join(
            f'<{tag} style="{CELL}{"right" if i in right else "left"};{more}">{escape(cell)}</{tag}>'
            for i, cell in enumerate(row)
        )

    lines = "".join(f'<tr style="background:none">{cells("td", row, "")}</tr>' for row in rows)
    return (
        '<table style="margin:.4em 0 0;border-collapse:collapse"><thead><tr>'
        f"{cells('th', heads, 'font-weight:normal;opacity:.7')}</tr></thead><tbody>{lines}</tbody></table>"
    )
