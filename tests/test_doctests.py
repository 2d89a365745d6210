"""The examples in the docstrings of the package, of its compiled modules too, run and print what they claim."""

import doctest
import importlib.util
import pkgutil
from importlib import import_module

import dmq_fast

# As in pyproject.toml, for ``pytest --doctest-modules dmq_fast``.
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def modules():
    """Return the names of the modules of the package, compiled ones too."""
    names = [module.name for module in pkgutil.walk_packages(dmq_fast.__path__, "dmq_fast.")]
    if importlib.util.find_spec("sklearn") is None:
        names.remove("dmq_fast.sklearn")
    return ["dmq_fast", *(name for name in names if name != "dmq_fast.__main__")]


def test_the_examples_of_all_docstrings():
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    report = []
    for name in modules():
        for example in doctest.DocTestFinder().find(import_module(name), name):
            runner.run(example, out=report.append)
    assert runner.tries > 200
    assert not runner.failures, "".join(report)
