"""`Aim`: what a self-stopping run promises, and the sizes of its tests."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmq_fast._support.checks import flag
from dmq_fast.kernels import as_positive

__all__ = ["Aim"]

# In quick mode: rewards and transitions rarer than this, at a single place, may be missed.
QUICK = 0.5


@dataclass(frozen=True)
class Aim:
    """The promise of a run: a policy within epsilon of the best with probability 1 - delta.

    Attributes
    ----------
    epsilon, delta : float
        In (0, 1).
    p_min : float
        Chance, at a single state and action, of the rarest outcome that is looked for off the returned policy. With
        epsilon, the strict mode, none that could matter is left out.
    log_confidence : float
        L such that after v visits an outcome of chance 1 - exp(-L / v) counts as excluded.
    """

    epsilon: float
    delta: float
    p_min: float
    log_confidence: float

    @classmethod
    def of(cls, epsilon: float = 0.05, delta: float = 0.05, *, strict: bool = True, p_min: float | None = None) -> Aim:
        """Return the aim of the strict mode, or of the quick one, or with another p_min.

        Raises
        ------
        TypeError, ValueError
            If an argument is of a wrong type, or epsilon or delta is not in (0, 1), or p_min not in (0, 1].
        """
        epsilon, delta, strict = below_one("epsilon", epsilon), below_one("delta", delta), flag("strict", strict)
        share = epsilon if strict else QUICK
        if p_min is not None:
            share = as_positive("p_min", p_min)
            if share > 1:
                raise ValueError(f"p_min: expected a number in (0, 1], got {p_min!r}")
        return cls(epsilon, delta, share, seen_once(delta) if strict else math.log(1 / delta))

    def test_size(self, test: int) -> int:
        """Return the number of fresh episodes of test 1, 2, ..., which errs with probability (1 - delta) delta^test.

        So often, at most, they all miss an event of mass epsilon; the sum over all tests is delta.

        Examples
        --------
        >>> aim = Aim.of(0.05, 0.05)
        >>> aim.test_size(1), aim.test_size(2)
        (61, 121)
        """
        return math.ceil(-(math.log1p(-self.delta) + test * math.log(self.delta)) / self.epsilon)


def below_one(name: str, value: float) -> float:
    """Return a number in (0, 1)."""
    number = as_positive(name, value)
    if number >= 1:
        raise ValueError(f"{name}: expected a number in (0, 1), got {value!r}")
    return number


def seen_once(delta: float) -> float:
    """Return the x that solves (1 + x) exp(-x) = delta, the 1 - delta quantile of Gamma(2).

    An outcome that was seen at most once in v visits has a chance below x / v, with probability 1 - delta; the
    bootstrap alone would take one seen once for as frequent as it was.
    """
    x = math.log(1 / delta)
    for _ in range(100):
        x = math.log((1 + x) / delta)
    return x
