"""JSON as the package writes it: always valid, with infinities and NaN as the texts ``float`` reads."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Form", "check_form", "from_json", "not_too_deep", "plain", "to_json"]

NUMBERS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
"""The texts for numbers that JSON does not have, and the numbers."""


def to_json(value: Any, *, default: Callable[[Any], Any] | None = None, **layout: Any) -> str:
    """Return a value as JSON in which infinities and NaN are the texts "Infinity", "-Infinity" and "NaN".

    `default` turns values of other types into such as JSON has; `layout` is that of ``json.dumps``, such as `indent`.

    Raises
    ------
    TypeError
        If a value has another type, and there is no `default`.
    ValueError, RecursionError
        If a value contains itself.
    """
    try:
        return json.dumps(value, default=default, allow_nan=False, **layout)
    except ValueError:  # some number is not finite, which is rare
        return json.dumps(spelled(value, default), default=default, allow_nan=False, **layout)


def spelled(value: Any, default: Callable[[Any], Any] | None) -> Any:
    """Return a value with texts in place of the numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else spelling(value)
    if isinstance(value, dict):
        return {
            spelling(key) if isinstance(key, float) and not math.isfinite(key) else key: spelled(one, default)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [spelled(one, default) for one in value]
    if value is None or isinstance(value, str | int) or default is None:
        return value
    return spelled(default(value), default)


def spelling(number: float) -> str:
    """Return the text of a number that is not finite."""
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def from_json(text: str | bytes) -> Any:
    """Read JSON that `to_json` wrote: the texts "Infinity", "-Infinity" and "NaN" are numbers again, except as keys.

    Bare words of that kind, which Python's own writer makes, are read too. ValueError if the text is not JSON.
    """
    with not_too_deep():
        return numbers(json.loads(text))


def numbers(value: Any) -> Any:
    """Return a value with numbers in place of their texts."""
    if isinstance(value, dict):
        return {key: numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [numbers(one) for one in value]
    return NUMBERS.get(value, value) if isinstance(value, str) else value


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
