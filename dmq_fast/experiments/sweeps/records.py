"""The rows of a store as columns: one list for each column, and rows that look into them.

A row of a hundred thousand should not be a dict of its own. Equal texts are kept once, and what is JSON is read when a
row is asked for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from dmq_fast._support.json_text import from_json, plain

__all__ = ["FINITE", "STRUCTURED", "Record", "Records", "peek"]

FINITE = ("environment_parameters", "algorithm_parameters", "warnings")
"""Structured columns without numbers that are not finite: their texts stand for themselves."""

STRUCTURED = (*FINITE[:2], "counts", "timings", "warnings", "details")
"""Columns that hold JSON."""


def read(name: str, text: str) -> Any:
    """Return the value of a structured column."""
    return (plain if name in FINITE else from_json)(text)


class Records:
    """Columns of one length, by name; structured ones hold the texts of JSON."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.columns: dict[str, list[Any]] = {name: [] for name in names}
        self.known: dict[str, Any] = {}  # of equal texts of `FINITE`, such as the parameters of a cell

    def shared(self, name: str, text: str) -> Any:
        """Return the value of a column of `FINITE`, one for all rows with this text: it must not be changed."""
        if text not in self.known:
            self.known[text] = read(name, text)
        return self.known[text]


class Record(MutableMapping[str, Any]):
    """A row of a store, which acts like a dict of its own; ``dict(row)`` is one.

    Examples
    --------
    >>> records = Records(("seed", "counts"))
    >>> records.columns["seed"].append(3)
    >>> records.columns["counts"].append('{"trues":2}')
    >>> row = Record(records, 0)
    >>> row["counts"], row | {"seed": 4}
    ({'trues': 2}, {'seed': 4, 'counts': {'trues': 2}})
    """

    __slots__ = ("_index", "_own", "_records")

    def __init__(self, records: Records | None, index: int, own: dict[str, Any] | None = None) -> None:
        # Without records, `own` is the whole row; beside them, what was read of it.
        self._records, self._index, self._own = records, index, own

    def __getitem__(self, name: str) -> Any:
        own = self._own
        if own is not None and name in own:
            return own[name]
        if self._records is None:
            raise KeyError(name)
        value = self._records.columns[name][self._index]
        if name in STRUCTURED:
            value = read(name, value)
            self._own = {name: value} if own is None else own | {name: value}
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        self._whole()[name] = value

    def __delitem__(self, name: str) -> None:
        del self._whole()[name]

    def __iter__(self) -> Iterator[str]:
        return iter((self._own or {}) if self._records is None else self._records.columns)

    def __len__(self) -> int:
        return len((self._own or {}) if self._records is None else self._records.columns)

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self}

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[type[Record], tuple[None, int, dict[str, Any]]]:
        return Record, (None, 0, dict(self))

    def _whole(self) -> dict[str, Any]:
        """Return the row as a dict, which it is from then on."""
        if self._records is not None or self._own is None:
            self._records, self._own = None, dict(self)
        return self._own

    def peek(self, name: str) -> Any:
        """Return an entry, None if there is none, without keeping what is read of it; it must not be changed."""
        if self._records is None or (self._own is not None and name in self._own):
            return self.get(name)
        column = self._records.columns.get(name)
        if column is None or name not in STRUCTURED:
            return None if column is None else column[self._index]
        text = column[self._index]
        return self._records.shared(name, text) if name in FINITE else read(name, text)

    def text(self, name: str) -> str | None:
        """Return the JSON of a structured column as it is stored; None where the row may have been changed."""
        if self._records is None or (self._own is not None and name in self._own):
            return None
        text: str = self._records.columns[name][self._index]
        return text


def peek(row: Mapping[str, Any], name: str) -> Any:
    """Return an entry of any row, which must not be changed; None if it has none."""
    return row.peek(name) if isinstance(row, Record) else row.get(name)
