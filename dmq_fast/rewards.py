"""`RewardModel`: the range and the noise of an environment's rewards, in the environment's own units (points).

Environments, samplers, policies' values and everything that a user sees are in points. Algorithms whose constants are
those of values in [0, 1] convert once, at their own border, to units of the range (docs/environments.md):

    r' = (r - [the episode ends] low) / (high - low)

The shift is paid once, where the episode ends, so values to go are shifted by -low at every level, and the range does
not grow with the horizon. After the end features are 0, and so is the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._support.checks import number

__all__ = ["SEEN", "RewardModel", "ValueRange"]

Floats = NDArray[np.float64]

SEEN = "seen"
"""The value range of an environment that declares none: that of the returns seen so far."""

ValueRange = ArrayLike | None
"""Type of the argument `value_range`: a pair, (H, 2) numbers, "seen", or None for what the environment declares."""

LARGEST = 1e100
SLACK = 1e-9


@dataclass(frozen=True, eq=False)
class RewardModel:
    """What is known of the rewards of an environment.

    Attributes
    ----------
    bounds : numpy.ndarray, shape (H, 2), or None
        Least and largest sum of the rewards from a level on that can be expected in any state, whatever policy follows;
        without noise, that any trajectory can have. None: unknown.
    noise : float or None
        Guess of the standard deviation of the noise around the mean of a reward, given state, action and next state.
        None: what a trajectory earns from a level on lies in the bounds, too.
    """

    bounds: Floats | None = None
    noise: float | None = None

    @classmethod
    def of(cls, source: Any, value_range: ValueRange = None, noise: float | None = None) -> RewardModel:
        """Return the model of an environment or sampler with a `horizon`.

        Parameters
        ----------
        source : object
            May declare attributes `value_range` and `noise`, in the forms of the arguments; a sampler, `rewards`.
        value_range : pair of float, array_like of shape (H, 2) or "seen", optional
            Instead of what the source declares.
        noise : float, optional
            > 0; instead of what the source declares.

        Raises
        ------
        TypeError, ValueError
            If a range or a noise is of another form; the message names it.

        Examples
        --------
        >>> import dmq_fast as dmq
        >>> env = dmq.environments.chain(horizon=3)
        >>> RewardModel.of(env).is_unit, RewardModel.of(env, value_range=(-20, 0), noise=0.5).width
        (True, 20.0)
        """
        known = getattr(source, "rewards", None)
        if not isinstance(known, RewardModel):
            spread = getattr(source, "noise", None)
            bounds = as_bounds(getattr(source, "value_range", None), source.horizon)
            known = cls(bounds, None if spread is None else as_noise(spread))
        if value_range is None and noise is None:
            return known
        bounds = known.bounds if value_range is None else as_bounds(value_range, source.horizon)
        return cls(bounds, known.noise if noise is None else as_noise(noise))

    @property
    def known(self) -> bool:
        """Whether a range is declared."""
        return self.bounds is not None

    @property
    def low(self) -> float:
        """The least of all bounds, in points."""
        return 0.0 if self.bounds is None else float(self.bounds[:, 0].min())

    @property
    def high(self) -> float:
        """The largest of all bounds, in points."""
        return 1.0 if self.bounds is None else float(self.bounds[:, 1].max())

    @property
    def width(self) -> float:
        """The size of a unit in points: high - low."""
        return self.high - self.low

    @property
    def tops(self) -> Floats:
        """The largest value to go from each level on, in units, shape (H,)."""
        assert self.bounds is not None
        tops: Floats = (self.bounds[:, 1] - self.low) / self.width
        return tops

    @property
    def is_unit(self) -> bool:
        """Whether points are units: the range is (0, 1) at every level, and nothing is noisy."""
        return self.bounds is not None and self.noise is None and bool((self.bounds == [0.0, 1.0]).all())

    def value(self, units: float) -> float:
        """Return a value in points.

        Examples
        --------
        >>> RewardModel(np.array([[-20.0, 0.0]])).value(0.25)
        -15.0
        """
        return units if (self.low, self.width) == (0.0, 1.0) else self.low + self.width * units

    def difference(self, units: float) -> float:
        """Return a difference of values in points."""
        return self.width * units

    def in_units(self, points: float) -> float:
        """Return a difference of values, given in points, in units."""
        return points / self.width

    @property
    def limits(self) -> Floats | None:
        """The bounds with room for rounding, (H, 2); None where unknown, or where noise may be in what was earned."""
        if self.bounds is None or self.noise is not None:
            return None
        slack = SLACK * max(1.0, self.width)
        limits: Floats = self.bounds + np.array([-slack, slack])
        return limits

    def outside(self, to_go: Floats, level: int) -> NDArray[np.intp]:
        """Return which sums of rewards from a level on, (n,), are outside of its bounds; none where noise may be in."""
        if (limits := self.limits) is None:
            return np.zeros(0, dtype=np.intp)
        low, high = limits[level]
        return np.flatnonzero(~((to_go >= low) & (to_go <= high)))

    def check(self, to_go: Floats, level: int, where: str) -> None:
        """Raise ValueError if any sum of rewards from a level on, (n,), is outside of its bounds; `where` begins it."""
        if (wrong := self.outside(to_go, level)).size:
            raise ValueError(f"{where}: {self.refusal(float(to_go[wrong[0]]), level)}")

    def refusal(self, to_go: float, level: int, seen: ArrayLike = ()) -> str:
        """Return what is wrong with a sum of rewards outside of the bounds, and a range that contains what was seen."""
        assert self.bounds is not None
        low, high = self.bounds[level]
        known = (*np.asarray(seen, dtype=np.float64).ravel().tolist(), float(low), float(high), to_go)
        wider = (min(known), max(known))
        return (
            f"an episode earned {to_go:.12g} from level {level} on, outside of value_range = ({low:g}, {high:g}): "
            f"declare what can be earned from a level on, such as value_range=({wider[0]:.9g}, {wider[1]:.9g}), or "
            "noise=, the standard deviation of rewards, if they are means plus noise"
        )

    def describe(self) -> dict[str, Any]:
        """Return range and noise as data that JSON can hold: a pair, or one a level where they differ.

        Examples
        --------
        >>> RewardModel(np.array([[0.0, 1.0], [0.0, 1.0]])).describe()
        {'value_range': [0.0, 1.0], 'noise': None}
        """
        bounds = None if self.bounds is None else self.bounds.tolist()
        if bounds is not None and all(pair == bounds[0] for pair in bounds):
            bounds = bounds[0]
        return {"value_range": bounds, "noise": self.noise}


def as_bounds(value: Any, horizon: int) -> Floats | None:
    """Return a range as (H, 2) bounds, read-only; None for "seen" and None."""
    if value is None or (isinstance(value, str) and value == SEEN):
        return None
    expected = f"value_range: expected (low, high), one such pair for each of {horizon} levels, or {SEEN!r}"
    try:
        given = np.array(value, dtype=np.float64) if not isinstance(value, str | bytes) else None
    except (TypeError, ValueError):
        given = None
    if given is None or np.iscomplexobj(value) or given.shape not in ((2,), (horizon, 2)):
        raise ValueError(f"{expected}, got {value!r}")
    bounds: Floats = np.broadcast_to(given, (horizon, 2)).copy()
    if not (np.abs(bounds) <= LARGEST).all():
        raise ValueError(f"{expected} of finite numbers, got {value!r}")
    if (bounds[:, 0] > bounds[:, 1]).any() or not bounds[:, 1].max() > bounds[:, 0].min():
        raise ValueError(f"{expected} with low < high, got {value!r}")
    bounds.flags.writeable = False
    return bounds


def as_noise(value: Any) -> float:
    """Return the noise, > 0."""
    try:
        noise = number("noise", value, -np.inf, np.inf)
    except ValueError:  # not a number
        noise = np.nan
    if not 0.0 < noise <= LARGEST:
        raise ValueError(f"noise: expected a number > 0, or none at all where rewards are not noisy, got {value!r}")
    return noise
