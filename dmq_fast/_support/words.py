"""Numbers of things, lists of numbers and tables as text."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Sequence
from typing import Any

__all__ = ["four_digits", "level_names", "number_of", "ranges", "rounded", "table_lines"]


def number_of(n: int, thing: str) -> str:
    """Return a number with the noun that it counts, in the singular or the plural.

    >>> number_of(1, "run"), number_of(1200, "run"), number_of(0, "policy")
    ('1 run', '1,200 runs', '0 policies')
    """
    plural = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}s"
    return f"{n:,} {thing if n == 1 else plural}"


def four_digits(value: Any) -> str:
    """Return a number with four significant digits, an integer in full, None as a dash, and a text as it is."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return rounded(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def rounded(value: float, digits: int = 4) -> str:
    """Return a number with so many significant digits; of a size below 1 it is never shown as 1, nor as 0 if it is not.

    So a share that misses something is not shown as the whole.

    >>> rounded(0.99994), rounded(0.99996), rounded(1.00004), rounded(-0.9996, 3), rounded(1e-20)
    ('0.9999', '0.9999', '1', '-0.999', '1e-20')
    """
    text = f"{value:.{digits}g}"
    if abs(value) < 1.0 and text in ("1", "-1"):
        return text.replace("1", f"0.{'9' * digits}")
    return text


def level_names(levels: Sequence[int]) -> str:
    """Return ascending levels in words.

    >>> level_names([3]), level_names([0, 1, 2, 5])
    ('level 3', 'levels 0 to 2, 5')
    """
    return f"{'level' if len(levels) == 1 else 'levels'} {ranges(levels)}"


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text, with consecutive ones as a range.

    >>> ranges([0, 1, 2, 3, 7, 9, 10])
    '0 to 3, 7, 9, 10'
    """
    parts: list[str] = []
    for _, group in itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    return ", ".join(parts)


def table_lines(heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Container[int] = ()) -> Iterator[str]:
    r"""Yield the lines of a table; the columns with the indices `right` are aligned to the right.

    >>> print(*table_lines(["name", "n"], [["a", "5"], ["bc", "10"]], right=[1]), sep="\n")
    name   n
    a      5
    bc    10
    """
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = enumerate(zip(row, widths, strict=True))
        yield "  ".join(text.rjust(n) if i in right else text.ljust(n) for i, (text, n) in cells).rstrip()
