"""Columns as a data frame of pandas, which is imported only then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["data_frame"]


def data_frame(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return columns of one length as a `pandas.DataFrame`.

    Raises
    ------
    ImportError
        If pandas is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'to_dataframe: expected pandas: pip install "dmq-fast[dataframe]"', name="pandas"
        ) from error
    return pandas.DataFrame(dict(columns))
