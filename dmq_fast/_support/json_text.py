"""JSON as the package writes it: always valid, with infinities and NaN as the texts ``float`` reads.

A text that would be taken for such a number begins with a backslash, which is removed when it is read.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Form", "check_form", "finite_json", "from_json", "not_too_deep", "plain", "to_json", "to_plain"]

NUMBERS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
"""The texts for numbers that JSON does not have, and the numbers."""


def to_json(value: Any, *, default: Callable[[Any], Any] | None = None, **layout: Any) -> str:
    r"""Return a value as JSON in which infinities and NaN are the texts "Infinity", "-Infinity" and "NaN".

    Texts that are equal to one of these, or to one after backslashes, get one more backslash at the beginning.
    `default` turns values of other types into such as JSON has, by default numbers and arrays of NumPy; `layout` is
    that of ``json.dumps``, such as `indent`.

    Raises
    ------
    TypeError
        If a value has another type.
    ValueError, RecursionError
        If a value contains itself.

    Examples
    --------
    >>> to_json([float("nan"), "NaN", "no NaN"])
    '["NaN", "\\\\NaN", "no NaN"]'
    """
    default = of_numpy if default is None else default
    try:
        text = json.dumps(value, default=default, allow_nan=False, **layout)
    except ValueError:  # some number is not finite, which is rare
        text = ""
    if text and not has_numbers(text):
        return text
    return json.dumps(spelled(value, default, escaped), allow_nan=False, **layout)


def to_plain(value: Any, *, default: Callable[[Any], Any] | None = None) -> Any:
    """Return a value as plain data to be compared, in which numbers that are not finite are texts; see `to_json`."""
    default = of_numpy if default is None else default
    return plain(json.dumps(spelled(value, default, str)))


def of_numpy(value: Any) -> Any:
    """Return a number or an array of NumPy as JSON can hold it; TypeError for all else."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"expected a value that JSON can hold, got {type(value).__name__}")


def finite_json(value: Any, **layout: Any) -> str:
    """Return a value without infinities and NaN as JSON, with all texts as they stand; `plain` reads it.

    ValueError if a number is not finite.
    """
    return json.dumps(value, allow_nan=False, **layout)


def has_numbers(text: str) -> bool:
    """Return whether JSON may hold a text that is translated."""
    return 'NaN"' in text or 'Infinity"' in text


def spelled(value: Any, default: Callable[[Any], Any], of_text: Callable[[str], str]) -> Any:
    """Return a value with texts in place of the numbers that JSON does not have, and `of_text` of each text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else spelling(value)
    if isinstance(value, str):
        return of_text(value)
    if isinstance(value, dict):
        return {
            spelling(key) if isinstance(key, float) and not math.isfinite(key) else key: spelled(one, default, of_text)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [spelled(one, default, of_text) for one in value]
    if value is None or isinstance(value, int):
        return value
    return spelled(default(value), default, of_text)


def escaped(text: str) -> str:
    """Return a text as `to_json` writes it: with a backslash before what is read as a number."""
    return f"\\{text}" if text.lstrip("\\") in NUMBERS else text


def spelling(number: float) -> str:
    """Return the text of a number that is not finite."""
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def from_json(text: str | bytes) -> Any:
    """Read JSON that `to_json` wrote: numbers and texts are what they were, keys are texts.

    Bare words of that kind, which Python's own writer makes, are read too. ValueError if the text is not JSON.
    """
    with not_too_deep():
        value = json.loads(text)
        return numbers(value) if isinstance(text, bytes) or has_numbers(text) else value


def numbers(value: Any) -> Any:
    """Return a value with numbers in place of their texts, and such texts without their backslash."""
    if isinstance(value, dict):
        return {key: numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [numbers(one) for one in value]
    if not isinstance(value, str):
        return value
    return value[1:] if value[:1] == "\\" and value.lstrip("\\") in NUMBERS else NUMBERS.get(value, value)


def plain(text: str | bytes) -> Any:
    """Read JSON as it stands, to be compared: a NaN is a text, which equals itself. ValueError if it is not JSON."""
    with not_too_deep():
        return json.loads(text, parse_constant=str)


@contextlib.contextmanager
def not_too_deep() -> Iterator[None]:
    """Turn a RecursionError into ValueError: no text of this package has lists or objects that nest so deep."""
    try:
        yield
    except RecursionError as error:
        raise ValueError("expected lists and objects that nest less deep") from error


Form = Any
"""The form that a value should have.

A type, or a union of types; a dict of forms by key, where the key `...` stands for all entries; or a list of one form,
which all elements have, or of the forms of the elements.
"""


def check_form(name: str, value: Any, form: Form) -> None:
    """Raise ValueError unless a value has a form; a `float` may be an integer, and a bool is neither.

    Examples
    --------
    >>> check_form("counts", {"trues": 2, "calls": 7}, {"trues": int, ...: int})
    >>> check_form("counts", {"trues": 2, "calls": "7"}, {"trues": int, ...: int})
    Traceback (most recent call last):
    ValueError: counts.calls: expected int, got '7'
    """
    if isinstance(form, dict):
        check_form(name, value, dict)
        for key, inner in form.items():
            if key is not ... and key not in value:
                raise ValueError(f"{name}: expected an entry {key}, got {', '.join(map(str, value)) or 'none'}")
            for own in value if key is ... else [key]:
                check_form(f"{name}.{own}", value[own], inner)
    elif isinstance(form, list):
        check_form(name, value, list)
        if len(form) > 1 and len(value) != len(form):
            raise ValueError(f"{name}: expected {len(form)} elements, got {len(value)}")
        if len(form) == 1 and isinstance(form[0], type) and set(map(type, value)) == {form[0]}:
            return  # a column of numbers, which may be long
        for i, element in enumerate(value):
            check_form(f"{name}[{i}]", element, form[i] if len(form) > 1 else form[0])
    elif not isinstance(value, form | int if form is float else form) or (isinstance(value, bool) and form is not bool):
        raise ValueError(f"{name}: expected {getattr(form, '__name__', form)}, got {value!r:.100}")
