"""Data frames of pandas, which is imported where one is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["data_frame"]


def data_frame(columns: Mapping[str, Any]) -> Any:
    """Return columns of equal length as a `pandas.DataFrame`.

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
    return pandas.DataFrame(columns)
