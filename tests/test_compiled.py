"""The kernels under test are the compiled ones, they describe themselves, and the package imports them by one door."""

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
PYTHON = {"DsecResult", "dsec_rows", "heeding"}  # of `_dsec_numpy` and `_stop`
PUBLIC = {name: value for name in kernels.__all__ if callable(value := getattr(kernels, name))}


def compiled(name):
    return isinstance(importlib.import_module(name).__spec__.loader, ExtensionFileLoader)


def test_every_source_is_an_extension_and_public_names_come_from_them():
    sources = [source.stem for source in (ROOT / "src_pyx").glob("*/*.pyx")]
    assert len(sources) > 20
    for name in sources:
        assert compiled(f"dmq_fast.kernels.{name}"), name
    for name in PUBLIC.keys() - PYTHON:
        assert compiled(PUBLIC[name].__module__), name


def test_all_lists_what_the_door_imports():
    assert set(kernels.__all__) == {
        name for name, value in vars(kernels).items() if not (name.startswith("_") or inspect.ismodule(value))
    }


def members(value):
    """The public methods and attributes of a class."""
    for name in dir(value):
        if isinstance(value, type) and not name.startswith("_"):
            yield name, inspect.getattr_static(value, name)


def test_everything_public_has_a_docstring():
    """An attribute has the lines of the docstring of its class, from the section "Attributes" or "Parameters"."""
    for name, value in PUBLIC.items():
        assert inspect.getdoc(value), name
        for member, found in members(value):
            assert inspect.getdoc(getattr(value, member)) or inspect.getdoc(found), f"{name}.{member}"
    assert kernels.RidgeArms.dimension.__doc__ == "K and d." and "--" not in kernels.Ridge.__doc__.split("\n")[:4]


def stub_of(module):
    return ast.parse((PACKAGE / "kernels" / f"{module.rpartition('.')[2]}.pyi").read_text()).body


def parameters_of(node):
    """Names and defaults as a stub has them, without self or cls."""
    given = [*node.args.posonlyargs, *node.args.args]
    defaults = dict(zip([a.arg for a in given][::-1], node.args.defaults[::-1], strict=False))
    defaults |= {a.arg: d for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is not None}
    stars = [a.arg for a in (node.args.vararg, node.args.kwarg) if a is not None]
    names = [a.arg for a in (*given, *node.args.kwonlyargs) if a.arg not in ("self", "cls")] + stars
    return sorted(names), {name: ast.literal_eval(value) for name, value in defaults.items()}


def test_signatures_are_those_of_the_stubs():
    """So `inspect.signature` reads every public class and function, with the names and defaults that types have."""
    compared = 0
    for name, value in PUBLIC.items():
        signature = inspect.signature(value)
        if name in PYTHON:
            continue
        for node in stub_of(value.__module__):
            if getattr(node, "name", None) != name:
                continue
            if isinstance(node, ast.ClassDef):
                makers = [n for n in node.body if getattr(n, "name", "") in ("__new__", "__init__")]
                node = makers[0] if makers else None
            if node is None:
                continue
            names, defaults = parameters_of(node)
            assert sorted(signature.parameters) == names, name
            have = {k: p.default for k, p in signature.parameters.items() if p.default is not p.empty}
            assert have == defaults, name
            compared += 1
            break  # the first of several overloads has all defaults
    assert compared > 45
    assert str(inspect.signature(kernels.LeastSquaresLearner)).endswith(
        "*, optimism='flat', clipped=False, blocks=False, groups=None)"
    )


def test_signatures_of_methods_are_those_of_the_stubs():
    compared = 0
    for name, value in PUBLIC.items():
        bodies = [] if name in PYTHON else stub_of(value.__module__)
        nodes = {
            node.name: node
            for body in bodies
            if isinstance(body, ast.ClassDef) and body.name == name
            for node in reversed(body.body)  # the first of several overloads has all defaults
            if isinstance(node, ast.FunctionDef)
        }
        for member, _ in members(value):
            found = getattr(value, member)
            if not callable(found):
                continue
            signature = inspect.signature(found)
            if member in nodes:
                names, defaults = parameters_of(nodes[member])
                have = {k: p.default for k, p in signature.parameters.items() if p.default is not p.empty}
                assert sorted(set(signature.parameters) - {"self"}) == names, f"{name}.{member}"
                assert have == defaults, f"{name}.{member}"
                compared += 1
    assert compared > 100


def private_imports(source: str) -> list[str]:
    """Modules behind the door of `dmq_fast.kernels` that a piece of Python imports."""
    imported = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in imported if name.startswith("dmq_fast.kernels._")]


def test_the_package_imports_kernels_through_the_door():
    for line in (
        "from dmq_fast.kernels._env import VERSION",
        "from dmq_fast.kernels import _env",
        "import dmq_fast.kernels._env as env",
        "def late():\n    from dmq_fast.kernels._env import VERSION",
    ):
        assert private_imports(line)
    outside = [path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE / "kernels"]
    assert len(outside) > 100
    for source in outside:
        assert private_imports(source.read_text()) == [], source
