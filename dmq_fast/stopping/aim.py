"""`Aim`: what a self-stopping run promises, and the sizes of its tests."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from dmq_fast._support.checks import one_of
from dmq_fast.kernels import as_positive

__all__ = ["MODES", "Aim"]

MODES = ("strict", "quick", "many")
"""The names of the modes; see `Aim.of`."""

# p_min of the quick mode.
QUICK = 0.5


@dataclass(frozen=True)
class Aim:
    """The promise of a run: a policy within epsilon of the best with probability 1 - delta.

    Attributes
    ----------
    epsilon, delta : float
        In (0, 1).
    mode : str
        "strict", "quick" or "many".
    p_min : float
        Smallest probability, at a single state and action, of an outcome that is looked for off the returned policy.
        With epsilon, that of the strict mode, none that could matter is left out.
    log_confidence : float
        L such that after v visits an outcome of chance 1 - exp(-L / v) counts as excluded: ln(2 / delta) in the strict
        mode, where half of delta is for outcomes never seen and half for frequencies of those seen; ln(1 / delta) in
        the quick one.
    """

    epsilon: float
    delta: float
    mode: str
    p_min: float
    log_confidence: float

    @classmethod
    def of(cls, epsilon: float = 0.05, delta: float = 0.05, *, mode: str = "strict", p_min: float | None = None) -> Aim:
        """Return the aim of a mode, possibly with another p_min.

        Parameters
        ----------
        epsilon, delta : float, default 0.05
            In (0, 1).
        mode : {"strict", "quick", "many"}
            "quick" ignores outcomes that have a probability below 1/2 in some state and action, and counts an outcome
            as excluded by fewer visits. "many" covers many small outcomes on one path, too, which the others do not.
        p_min : float, optional
            In (0, 1]; by default epsilon, and 1/2 in the quick mode.

        Raises
        ------
        TypeError, ValueError
            If an argument is of a wrong type or out of range.
        """
        epsilon, delta, mode = below_one("epsilon", epsilon), below_one("delta", delta), one_of("mode", mode, MODES)
        strict = mode != "quick"
        share = epsilon if strict else QUICK
        if p_min is not None:
            share = as_positive("p_min", p_min)
            if share > 1:
                raise ValueError(f"p_min: expected a number in (0, 1], got {p_min!r}")
        return cls(epsilon, delta, mode, share, math.log((2 if strict else 1) / delta))

    def numbers(self) -> dict[str, float]:
        """Return the numbers, which determine the mode, as journals and result files hold them."""
        numbers = {name: value for name, value in asdict(self).items() if name != "mode"}
        return numbers | ({"imagined": 1.0} if self.imagines else {})

    @property
    def imagines(self) -> bool:
        """Whether refits imagine a visit of every pair that pays all that can still be earned."""
        return self.mode == "many"

    def test_size(self, test: int) -> int:
        """Return the number of fresh episodes of test 1, 2, ..., which errs with probability (1 - delta) delta^test.

        If the policy meets some event with probability epsilon, all episodes of the test miss it with at most this
        probability. Summed over all tests this is delta.

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
