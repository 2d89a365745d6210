"""The names of the package: its three lists of them agree, and they load on first use."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import dmq_fast as dmq


def imported_for_type_checkers():
    """Return the imports under TYPE_CHECKING in the package: the module of each name."""
    (block,) = (node for node in ast.parse(Path(dmq.__file__).read_text()).body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    return {alias.name: statement.module for statement in block.body for alias in statement.names}


def test_the_three_lists_of_names_agree():
    assert sorted(imported_for_type_checkers()) == sorted(dmq._HOMES) == sorted(dmq.__all__) == sorted(dir(dmq))


def test_what_loads_is_what_type_checkers_see():
    for name, module in imported_for_type_checkers().items():
        value = getattr(dmq, name)
        submodule = sys.modules.get(f"{module}.{name}")
        assert value is (submodule or getattr(import_module(module), name)), name


def test_names_load_on_first_use():
    code = "import dmq_fast, sys; assert 'numpy' not in sys.modules; dmq_fast.DMQ; assert 'numpy' in sys.modules"
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
