"""Properties that hypothesis checks, tables of refusals, and what both need."""

from __future__ import annotations

import functools

import numpy as np
import pytest
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


def everything(model):
    """Return the pickled state of an object, to the bit."""
    state = model.__reduce__()[2]
    return {name: part.tobytes() if isinstance(part, np.ndarray) else part for name, part in state.items()}
