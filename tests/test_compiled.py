"""The kernels under test are the compiled ones."""

from __future__ import annotations

import importlib
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

import pytest

from dmq_fast import kernels

MODULES = sorted(source.stem for source in (Path(__file__).parents[1] / "src_pyx").glob("*/*.pyx"))
PLAIN = {"DsecResult", "dsec_rows"}  # of `_dsec_numpy`, where NumPy and SciPy do the work


@pytest.mark.parametrize("name", MODULES)
def test_kernel_module_is_an_extension(name):
    module = importlib.import_module(f"dmq_fast.kernels.{name}")
    assert isinstance(module.__spec__.loader, ExtensionFileLoader)


@pytest.mark.parametrize("name", [name for name in kernels.__all__ if name not in PLAIN])
def test_public_name_comes_from_an_extension(name):
    origin = importlib.import_module(getattr(kernels, name).__module__)
    assert isinstance(origin.__spec__.loader, ExtensionFileLoader)
