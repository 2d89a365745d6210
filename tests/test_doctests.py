"""The examples in the docstrings of the package, of its compiled modules too, run and print what they claim."""

import doctest
import importlib.util
import pkgutil
from importlib import import_module

import pytest

import dmq_fast

# As in pyproject.toml, for ``pytest --doctest-modules dmq_fast``.
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def examples():
    """Return every docstring with examples, as a test of the standard library."""
    names = [module.name for module in pkgutil.walk_packages(dmq_fast.__path__, "dmq_fast.")]
    if importlib.util.find_spec("sklearn") is None:
        names.remove("dmq_fast.sklearn")
    modules = [import_module(name) for name in ["dmq_fast", *names] if name != "dmq_fast.__main__"]
    found = (test for module in modules for test in doctest.DocTestFinder().find(module, module.__name__))
    return [test for test in found if test.examples]


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_example(example):
    report = []
    results = doctest.DocTestRunner(optionflags=OPTIONS).run(example, out=report.append)
    assert results.failed == 0, "".join(report)
