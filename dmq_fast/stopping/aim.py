"""`Aim`: what a self-stopping run promises, and the sizes of its tests."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dmq_fast._support.checks import number, one_of
from dmq_fast.kernels import as_positive

__all__ = ["MODES", "TESTED", "Aim"]

TESTED = "tested"
"""The mode of a run by returns, which promises an interval for the value of its policy and nothing else."""

MODES = ("strict", "quick", "many", TESTED)
"""The names of the modes; see `Aim.of`."""

# p_min of the quick mode; and where several levels share their data, as then one miss counts for all of them.
QUICK, QUICK_POOLED = 0.5, 0.1

# The largest epsilon in units, where the range of what was seen is not much larger than epsilon.
COARSEST = 0.5


@dataclass(frozen=True)
class Aim:
    """The promise of a run: a policy within epsilon of the best with probability 1 - delta.

    Attributes
    ----------
    points : float
        epsilon, in points, > 0.
    delta : float
        In (0, 1).
    mode : str
        "strict", "quick", "many" or "tested".
    log_confidence : float
        L such that after v visits an outcome of chance 1 - exp(-L / v) counts as excluded: ln(2 / delta) in the strict
        mode, where half of delta is for outcomes never seen and half for frequencies of those seen; ln(1 / delta) in
        the quick one.
    smallest : float or None
        p_min, if it was given.
    width : float
        Points of a unit: the size of the value range.
    share : float or None
        epsilon as a share of the span between uniform play and the best policy found, if that was asked for. Then
        `points` are an estimate, which falls while a run learns what the span is.
    repeats : int
        The most levels that share their data: how often an episode can meet a pair.
    """

    points: float
    delta: float
    mode: str
    log_confidence: float
    smallest: float | None = None
    width: float = 1.0
    share: float | None = None
    repeats: int = 1

    @classmethod
    def of(
        cls,
        epsilon: float | str = 0.05,
        delta: float = 0.05,
        *,
        mode: str = "strict",
        p_min: float | None = None,
        width: float | None = 1.0,
    ) -> Aim:
        """Return the aim of a mode, possibly with another p_min.

        Parameters
        ----------
        epsilon : float or str, default 0.05
            In points, > 0 and less than `width`; or a text such as "5%", a share.
        delta : float, default 0.05
            In (0, 1).
        mode : {"strict", "quick", "many", "tested"}
            "quick" ignores outcomes that have a probability below 1/2 in some state and action, or 1/10 where levels
            share their data, and counts an outcome as excluded by fewer visits. "many" covers many small outcomes on
            one path, too, which the others do not. "tested" is for features in which Q* need not be linear: epsilon
            gives the size of the test.
        p_min : float, optional
            In (0, 1]; by default epsilon in units over `repeats`, and 1/2 or 1/10 in the quick mode.
        width : float or None
            Points of a unit; None if they are not known yet.

        Raises
        ------
        TypeError, ValueError
            If an argument is of a wrong type or out of range.
        """
        share = as_share(epsilon) if isinstance(epsilon, str) else None
        points = share * (width or 1.0) if share is not None else as_positive("epsilon", epsilon)
        if width is not None and points >= width:
            raise ValueError(
                f"epsilon: expected a number in (0, {width:g}), the width of the value range, got {epsilon!r}"
            )
        delta, mode = below_one("delta", delta), one_of("mode", mode, MODES)
        if p_min is not None:
            p_min = as_positive("p_min", p_min)
            if p_min > 1:
                raise ValueError(f"p_min: expected a number in (0, 1], got {p_min!r}")
        confidence = math.log((1 if mode in ("quick", TESTED) else 2) / delta)
        return cls(points, delta, mode, confidence, p_min, width or 1.0, share)

    def in_units_of(self, width: float) -> Aim:
        """Return the same aim where a unit has so many points; a share is one of the whole range."""
        return replace(self, width=width, points=self.points if self.share is None else self.share * width)

    def repeated(self, repeats: int) -> Aim:
        """Return the aim where an episode can meet a pair so often."""
        return replace(self, repeats=repeats)

    def tightened(self, points: float) -> Aim:
        """Return the aim with another epsilon, in points."""
        return replace(self, points=points)

    @property
    def epsilon(self) -> float:
        """Epsilon in units."""
        units = self.points / self.width
        return units if self.width == 1.0 and units < 1.0 else min(units, COARSEST)

    @property
    def p_min(self) -> float:
        """Smallest probability, at a single state and action, of an outcome that is looked for off the returned policy.

        With epsilon in units, that of the strict mode, none that could matter is left out; where an episode can meet
        a pair n times, with epsilon / n.
        """
        if self.smallest is not None:
            return self.smallest
        if self.mode == TESTED:
            return 1.0 - self.delta  # one visit excludes outcomes that are likelier
        if self.mode == "quick":
            return QUICK if self.repeats == 1 else QUICK_POOLED
        return self.epsilon / self.repeats

    def numbers(self) -> dict[str, float]:
        """Return the numbers, which determine the mode, as journals and result files hold them."""
        numbers = {
            "epsilon": self.points,
            "delta": self.delta,
            "p_min": self.p_min,
            "log_confidence": self.log_confidence,
        }
        numbers |= {} if self.share is None else {"share": self.share}
        numbers |= {TESTED: 1.0} if self.mode == TESTED else {}
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


def as_share(text: str) -> float:
    """Return the share that a text such as "5%" stands for.

    Examples
    --------
    >>> as_share("5%")
    0.05
    """
    try:
        percent = float(text.removesuffix("%")) if text.endswith("%") else math.nan
    except ValueError:
        percent = math.nan
    if not 0.0 < percent < 100.0:
        raise ValueError(f"epsilon: expected a number of points, or a share such as '5%', got {text!r}")
    return number("epsilon", percent / 100)


def below_one(name: str, value: float) -> float:
    """Return a number in (0, 1)."""
    number = as_positive(name, value)
    if number >= 1:
        raise ValueError(f"{name}: expected a number in (0, 1), got {value!r}")
    return number
