"""Properties that hypothesis checks, tables of refusals, and what both need."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import twins
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

seeds = st.integers(0, 2**32)


def for_all(quick=40, slow=500, **strategies):
    """Run a test with `quick` drawn examples, and with `slow` of them under ``-m slow``."""

    def wrap(test):
        @pytest.mark.parametrize("examples", [quick, pytest.param(slow, marks=pytest.mark.slow)])
        def run(examples):
            settings(max_examples=examples)(given(**strategies)(test))()

        functools.update_wrapper(run, test)
        # pytest looks at the arguments of what a wrapper wraps.
        del run.__wrapped__
        return run

    return wrap


def refuses(table, state=lambda: None):
    """Check a table with `refused`, whose rows are (exception, pattern, function, *arguments)."""
    refused([(functools.partial(call, *arguments), error, text) for error, text, call, *arguments in table], state)


def misfits(call, *arguments):
    """Return rows for `refuses` that spoil one argument of a call at a time.

    An argument is (name, a value that fits, shapes that do not): it gets what is no number, what is not finite, and
    ones of each shape.
    """
    table = []
    for place, (name, value, shapes) in enumerate(arguments):
        bad = [(TypeError, "expected", entry) for entry in twins.no_numbers(value).values()]
        bad += [(ValueError, "expected finite", entry) for entry in twins.not_finite(value)]
        bad += [(ValueError, "expected shape", np.ones(shape)) for shape in shapes]
        given = [right for _, right, _ in arguments]
        for error, text, entry in bad:
            table.append((error, f"^{name}: {text}", call, *given[:place], entry, *given[place + 1 :]))
    return table


def everything(model):
    """Return the pickled state of an object, to the bit."""
    state = model.__reduce__()[2]
    return {name: part.tobytes() if isinstance(part, np.ndarray) else part for name, part in state.items()}
