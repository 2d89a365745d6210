"""Data frames of pandas, which is imported where one is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmq_fast._support.files import writable

__all__ = ["data_frame"]


def data_frame(columns: Mapping[str, Any]) -> Any:
    """Return columns of equal length as a `pandas.DataFrame`; lone surrogates in texts are escaped.

    Some forms of pandas' texts cannot hold them, and names of files may have them.

    Raises
    ------
    ImportError
        If pandas is not installed; the message says how to install it.
    """
    try:
        import pandas
    except ModuleNotFoundError as error:
        message = 'to_dataframe: expected pandas: pip install "dmq-fast[dataframe]"'
        raise ModuleNotFoundError(message, name="pandas") from error
    return pandas.DataFrame({name: escaped(column) for name, column in columns.items()})


def escaped(column: Any) -> Any:
    """Return a list with its texts as UTF-8 can encode them, and any other column as it is."""
    if not isinstance(column, list):
        return column
    return [writable(one) if isinstance(one, str) else one for one in column]
