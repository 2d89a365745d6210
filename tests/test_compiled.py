"""The kernels under test are the compiled ones, and the package imports them through one door."""

from __future__ import annotations

import ast
import importlib
import inspect
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

import pytest

import dmq_fast
from dmq_fast import kernels

pytestmark = pytest.mark.kernels

ROOT = Path(__file__).parents[1]
PACKAGE = Path(dmq_fast.__file__).parent
MODULES = sorted(source.stem for source in (ROOT / "src_pyx").glob("*/*.pyx"))
PYTHON = {"DsecResult", "dsec_rows", "heeding"}  # of `_dsec_numpy` and `_stop`
NUMBERS = {"ENVIRONMENT_SIZE", "ENVIRONMENT_VERSION"}


@pytest.mark.parametrize("name", MODULES)
def test_kernel_module_is_an_extension(name):
    module = importlib.import_module(f"dmq_fast.kernels.{name}")
    assert isinstance(module.__spec__.loader, ExtensionFileLoader)


@pytest.mark.parametrize("name", [name for name in kernels.__all__ if name not in PYTHON | NUMBERS])
def test_public_name_comes_from_an_extension(name):
    origin = importlib.import_module(getattr(kernels, name).__module__)
    assert isinstance(origin.__spec__.loader, ExtensionFileLoader)


def test_all_lists_what_the_door_imports():
    assert set(kernels.__all__) == {
        name for name, value in vars(kernels).items() if not (name.startswith("_") or inspect.ismodule(value))
    }


def private_imports(source: str) -> list[str]:
    """Modules behind the door of `dmq_fast.kernels` that a piece of Python imports."""
    imported = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in imported if name.startswith("dmq_fast.kernels._")]


@pytest.mark.parametrize(
    "line",
    [
        "from dmq_fast.kernels._env import VERSION",
        "from dmq_fast.kernels import _env",
        "import dmq_fast.kernels._env as env",
        "def late():\n    from dmq_fast.kernels._env import VERSION",
    ],
)
def test_an_import_past_the_door_is_found(line):
    assert private_imports(line)


OUTSIDE = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE / "kernels")


@pytest.mark.parametrize("source", OUTSIDE, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_the_package_imports_kernels_through_the_door(source):
    assert private_imports(source.read_text()) == []
