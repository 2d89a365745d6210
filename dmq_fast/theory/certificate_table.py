"""A certificate as text: the table of ``dmq-fast run --certificate``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from dmq_fast._support.words import four_digits

__all__ = ["table"]

WIDTH = 76
"""Column width of a formula."""

MEASURES = {
    "error_cover": "error, cover",
    "error_checked": "error, checked",
    "error_returned": "error, returned",
    "suboptimal": "P[suboptimal]",
    "low_variance": "low variance",
}
"""Column heads of the exact measures of a level, by key of its record."""


def table(certificate: dict[str, Any]) -> str:
    """Return the text of a certificate that `dmq_fast.theory.certificate.certificate` returned."""
    return "\n".join(line.rstrip() for line in table_lines(certificate))


def table_lines(certificate: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of `table`."""
    yield f"{'Certificate':<{WIDTH}}{'left':<11} right"
    for statement in certificate["statements"]:
        verdict = "holds" if statement["holds"] else "FAILS"
        sides = f"{four_digits(statement['left']):<11} {four_digits(statement['right']):<11} {verdict}"
        yield f"{'  ' + statement['formula']:<{WIDTH}}{sides}"
        yield f"    {statement['name']}; {statement['source']}"
    for note in certificate.get("notes", ()):  # certificates of 0.2.0 have none
        yield f"  {note}"
    exact = certificate["exact"]
    if exact is not None:
        yield ""
        yield (
            f"V = {four_digits(exact['value'])}, V* = {four_digits(exact['optimal_value'])}, "
            f"gamma = {four_digits(exact['gap'])}, low variance of the policies checked: "
            f"{four_digits(exact['low_variance'])} (assumption 3.1)"
        )
        smallest = ", ".join(f"{name}: {four_digits(value)}" for name, value in exact["smallest_epsilon"].items())
        yield f"smallest epsilon that the errors allow: {smallest}"
    yield ""
    columns = level_columns(certificate)
    yield "".join(f"{label:<{max(len(label), 9) + 2}}" for label in columns)
    for row in level_groups(certificate):
        cells = zip(columns, row, strict=True)
        yield "".join(f"{cell:<{max(len(label), 9) + 2}}" for label, cell in cells)


def level_columns(certificate: dict[str, Any]) -> list[str]:
    """Return the column heads of the table by level."""
    columns = ["level", "|Pi_h|", "calls", "Trues", "least factor", "nearest False"]
    return columns + (list(MEASURES.values()) if certificate["exact"] is not None else [])


def level_groups(certificate: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the rows of the table by level; consecutive levels whose rows differ in the calls only share one."""
    measures = MEASURES if certificate["exact"] is not None else {}

    def cells(record: dict[str, Any]) -> list[str]:
        factors = [one["factor"] for one in record["raises"] if one["factor"] is not None]
        return [
            str(record["cover_size"]),
            str(record["trues"]),
            four_digits(min(factors, default=None)),
            four_digits(record["nearest_false"]),
            *(four_digits(record[name]) for name in measures),
        ]

    for (size, trues, *rest), group in itertools.groupby(certificate["levels"], key=cells):
        records = list(group)
        first, last = records[0]["level"], records[-1]["level"]
        calls = sum(record["oracle_calls"] for record in records)
        yield [str(first) if first == last else f"{first} to {last}", size, f"{calls:,}", trues, *rest]
