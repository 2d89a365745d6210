"""The interface of an arithmetic, and the default one: float64 and compiled kernels."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmq_fast.function_class import FunctionClass, Solver
from dmq_fast.kernels import Greedy, Rule

__all__ = ["FLOAT64", "Arithmetic", "Float64"]


class Arithmetic(Protocol):
    """Interface of an arithmetic, as `DMQ` uses it.

    Attributes
    ----------
    name : str or int
        Argument with which `as_arithmetic` returns this arithmetic.
    is_float64 : bool
        Whether its arrays are of float64. Otherwise N may be any integer, since moments are computed and not drawn, and
        a run has no journal.
    """

    @property
    def name(self) -> str | int:
        """Argument with which `as_arithmetic` returns this arithmetic."""

    @property
    def is_float64(self) -> bool:
        """Whether its arrays are of float64."""

    def zeros(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return an array of zeros."""

    def greedy(self, theta: NDArray[Any]) -> Rule:
        """Return the rule that is greedy on theta, shape (K, d)."""

    def solver(self, function_class: FunctionClass, dimension: int, **parameters: Any) -> Solver:
        """Return a new solver of the class, with the parameters of `FunctionClass.solver`."""


class Float64:
    """Arithmetic of float64 and compiled kernels."""

    name = "float64"
    is_float64 = True

    def zeros(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Return an array of zeros."""
        return np.zeros(shape)

    def greedy(self, theta: NDArray[np.float64]) -> Greedy:
        """Return the rule that is greedy on theta, shape (K, d)."""
        return Greedy(theta)

    def solver(self, function_class: FunctionClass, dimension: int, **parameters: Any) -> Solver:
        """Return a new solver of the class, with the parameters of `FunctionClass.solver`."""
        return function_class.solver(dimension, **parameters)


FLOAT64 = Float64()
