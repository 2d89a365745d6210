"""A certificate laid out for a person: ``dmq-fast run --certificate``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

__all__ = ["level_columns", "level_groups", "number", "table"]

WIDTH = 76
"""Of a formula in the table."""

MEASURES = {
    "error_cover": "error, cover",
    "error_checked": "error, checked",
    "error_returned": "error, returned",
    "suboptimal": "P[suboptimal]",
    "low_variance": "low variance",
}


def table(certificate: dict[str, Any]) -> str:
    """Return the text for what `dmq_fast.theory.certificate.certificate` returned."""
    return "\n".join(line.rstrip() for line in lines(certificate))


def lines(certificate: dict[str, Any]) -> Iterator[str]:
    """The lines of `table`."""
    yield f"{'Certificate':<{WIDTH}}{'left':<11} right"
    for statement in certificate["statements"]:
        verdict = "holds" if statement["holds"] else "FAILS"
        sides = f"{number(statement['left']):<11} {number(statement['right']):<11} {verdict}"
        yield f"{'  ' + statement['formula']:<{WIDTH}}{sides}"
        yield f"    {statement['name']}; {statement['source']}"
    exact = certificate["exact"]
    if exact is not None:
        yield ""
        yield (
            f"V = {number(exact['value'])}, V* = {number(exact['optimal_value'])}, gamma = {number(exact['gap'])}, "
            f"low variance of the policies checked: {number(exact['low_variance'])} (assumption 3.1)"
        )
        smallest = ", ".join(f"{name} {number(value)}" for name, value in exact["smallest_epsilon"].items())
        yield f"smallest epsilon that the errors allow: {smallest}"
    yield ""
    columns = level_columns(certificate)
    yield "".join(f"{label:<{max(len(label), 9) + 2}}" for label in columns)
    for row in level_groups(certificate):
        cells = zip(columns, row, strict=True)
        yield "".join(f"{cell:<{max(len(label), 9) + 2}}" for label, cell in cells)


def level_columns(certificate: dict[str, Any]) -> list[str]:
    """Return the heads of the table by level."""
    columns = ["level", "|Pi_h|", "calls", "Trues", "least factor", "nearest False"]
    return columns + (list(MEASURES.values()) if certificate["exact"] is not None else [])


def level_groups(certificate: dict[str, Any]) -> Iterator[list[str]]:
    """The rows of the table by level; consecutive levels of equal rows, calls apart, are one."""
    measures = MEASURES if certificate["exact"] is not None else {}

    def cells(record: dict[str, Any]) -> list[str]:
        factors = [one["factor"] for one in record["raises"] if one["factor"] is not None]
        return [
            str(record["cover_size"]),
            str(record["trues"]),
            number(min(factors, default=None)),
            number(record["nearest_false"]),
            *(number(record[name]) for name in measures),
        ]

    for (size, trues, *rest), group in itertools.groupby(certificate["levels"], key=cells):
        records = list(group)
        first, last = records[0]["level"], records[-1]["level"]
        calls = sum(record["oracle_calls"] for record in records)
        yield [str(first) if first == last else f"{first} to {last}", size, f"{calls:,}", trues, *rest]


def number(value: float | None) -> str:
    """Spell a number out in four digits, an integer in full; a dash for None."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
