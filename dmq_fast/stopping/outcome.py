"""`Outcome`: what a self-stopping run returns, in numbers and in words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dmq_fast.homogeneity import Groups
from dmq_fast.results.history import Looks
from dmq_fast.stopping.levels import Difference
from dmq_fast.stopping.linearity import Disagreement

__all__ = ["CONTRADICTION", "Outcome", "interval"]

Floats = NDArray[np.float64]

CONTRADICTION = "contradiction"
"""Status of a run in which returns kept contradicting the estimates, or too many tests failed."""

PROMISE = "With probability 1 - delta the policy is within epsilon of the best, if Q* is linear in the features"
"""What a finished run promises, with the exceptions of its mode."""

WITHIN = " and no policy earns more or less than in ({:g}, {:g}) from a level on, the range of what was seen, widened"
"""The condition of a run without a declared range."""

EXCEPTIONS = {
    "strict": "; except for what the best policy gains on one path by many outcomes that no episode showed, each worth "
    "less than epsilon",
    "quick": "; except for what it gains by outcomes of a probability below p_min in some state and action, or on one "
    "path by many that no episode showed, each worth less than epsilon",
    "many": "",
}
"""What the promise of a mode leaves out."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of a self-stopping run.

    Attributes
    ----------
    theta : numpy.ndarray, shape (H, K, d)
        The returned policy is greedy on it.
    status : str
        "finished" only after a passed test; else the budget that ran out, "contradiction" or "interrupted".
    epsilon : float
        The aim, in points, as are all values here.
    share : float or None
        epsilon as a share of what the best policy gains over uniform play, if that was asked for.
    uniform : float
        Mean return of uniform play; NaN unless epsilon is a share.
    mode : str
        Name of the mode.
    counts : dict of str to int
        Episodes by purpose: explore, refine (the noise), test.
    tests_made : int
        Candidates that played at least one episode of a test.
    test_size : int
        Fresh episodes of the final test; 0 unless it was passed.
    mean_return : float
        Their mean return; NaN unless the test was passed.
    interval : tuple of two float
        Interval of confidence 1 - delta for the value of a policy that was fixed before these returns, from them alone;
        it is not corrected for the choice between several tests or duels.
    upsides : numpy.ndarray, shape (H,)
        W - F by level, on average over the states of the final test: what one unseen outcome may add from there on; NaN
        unless it was passed.
    largest : numpy.ndarray, shape (H,)
        Largest v of the DSEC oracle on one state of the final test, by level: the leverage of the state and action, one
        over the number of visits; NaN unless it was passed.
    loss_quantile : float
        1 - delta quantile of the loss that the bootstrap sees on these states; 0 where no residual showed noise.
    rare_transitions : float
        Z - F at the start: what may lie behind transitions that are as frequent as their visits allow.
    p_min : float
        Smallest probability of an outcome that was looked for in the end.
    rewards : dict
        The range and the noise that counted, and the least and largest return seen.
    rewarded : bool
        Whether any episode earned anything.
    alike : bool
        Whether all episodes, at least two, had the same return.
    contradictions, duels_won : int
        Tests whose returns differed from the predicted value, and policies that won by returns against the fits.
    disagreements : tuple of Disagreement
        Where returns differ from the fit on the path of the returned policy, by more than chance explains.
    doubts : tuple of str
        Warnings about the range of values.
    groups : tuple of int
        A label of each level in the end: levels of one label shared their data.
    differences : tuple of Difference
        Where levels that had shared their data turned out to differ.
    parted_at : int or None
        After how many episodes each level got data of its own, as too many rows were distinct.
    looks : Looks
        What the run knew over its episodes.
    units : numpy.ndarray, shape (H, 3)
        By level low, width and top: values in points are low + width times those of theta, clipped to [low, top].
    """

    theta: Floats
    status: str
    epsilon: float
    share: float | None
    uniform: float
    mode: str
    counts: dict[str, int]
    tests_made: int
    test_size: int
    mean_return: float
    interval: tuple[float, float]
    upsides: Floats
    largest: Floats
    loss_quantile: float
    rare_transitions: float
    p_min: float
    rewards: dict[str, Any]
    rewarded: bool
    alike: bool
    contradictions: int
    duels_won: int
    disagreements: tuple[Disagreement, ...]
    doubts: tuple[str, ...]
    groups: Groups
    differences: tuple[Difference, ...]
    parted_at: int | None
    looks: Looks
    units: Floats

    @property
    def n_episodes(self) -> int:
        """Number of episodes of all purposes."""
        return sum(self.counts.values())

    @property
    def passed(self) -> bool:
        """Whether the returned policy passed its test."""
        return self.test_size > 0

    @property
    def reason(self) -> str:
        """Why the run stopped, in a sentence."""
        if self.passed and self.duels_won:
            return (
                f"a policy found by returns earned more than the one that passed a test; on its {self.test_size} fresh "
                f"episodes, the gain by an outcome that was never seen was at most epsilon = {self.epsilon:g}"
            )
        if self.passed:
            return (
                f"test {self.tests_made} was passed: on {self.test_size} fresh episodes, the loss and the gain by an "
                f"outcome that was never seen were together at most epsilon = {self.epsilon:g}"
            )
        if self.status == CONTRADICTION:
            found = (
                "predicted values and returns do not agree, however much was explored: Q* may not be linear in the "
                "features"
                if self.contradictions or self.disagreements
                else f"none of {self.tests_made} tests was passed, as each showed something new; a larger "
                "tuning.most_tests lets a run go on"
            )
            return f"{found}; the policy is the one with the best returns among those tested"
        return f"no test was passed before the run ended ({self.status})"

    @property
    def binding(self) -> str | None:
        """The part of the promise with the largest limit: of upsides on the test, rare transitions, or noise."""
        if not self.passed:
            return None
        limits = {
            "unseen outcomes": float(self.upsides.max()),
            "rare transitions": self.rare_transitions,
            "noise": self.loss_quantile,
        }
        return max(limits, key=lambda name: limits[name])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the result."""
        found = []
        if not self.rewarded:
            # Costs may all be the same.
            paid, *_ = self.rewards["returns_seen"] or (0.0,)
            than, more = ("", "anything") if paid == 0.0 else (f"{paid:.6g} and ", f"anything but {paid:.6g}")
            found.append(
                f"no episode earned {more}: if any policy is worth more than {than}epsilon = {self.epsilon:g}, its "
                "rewards are rarer than this run looked for"
                if self.passed
                else f"no episode earned {more} so far"
            )
        elif self.passed and not self.alike and self.mean_return - self.rewards["returns_seen"][0] <= self.epsilon:
            low, high = self.rewards["returns_seen"]
            if high - low <= self.epsilon and low != 0.0:
                found.append(coarse(self.epsilon, low, high))
            elif low == 0.0:
                found.append(
                    f"the policy earns only {self.mean_return:.3g} <= epsilon = {self.epsilon:g}, so the promise is "
                    "void: a policy that earns nothing would keep it too; use a smaller epsilon"
                )
            else:
                found.append(
                    f"the policy earns only {self.mean_return:.6g}, within epsilon = {self.epsilon:g} of the least "
                    f"that an episode earned, so the promise is void: a policy that always earns {low:.6g} would keep "
                    "it too; use a smaller epsilon"
                )
        elif self.alike and not self.passed:
            found.append("all episodes had the same return: nothing shows which actions are better")
        if self.contradictions:
            found.append(
                "predicted value and mean return of a test differed by more than epsilon: Q* may not be linear in the "
                "features, or an outcome is rarer than p_min"
            )
        if self.duels_won:
            found.append(
                "a policy that the fits advised against earned more by over epsilon / 2: Q* is not linear in the "
                "features, and the loss may exceed epsilon"
            )
        if self.disagreements:
            worst = self.disagreements[0]
            found.append(
                f"returns differ from the fit, most clearly by {worst.difference:+.2g} (standard error "
                f"{worst.standard_error:.2g}, {worst.visits} visits) at level {worst.level}, action {worst.action}: "
                + (
                    "a direction of the features is so short that the ridge outweighs its data; multiply the features "
                    "by a larger unit, or set a smaller tuning.ridge"
                    if worst.drowned
                    else "Q* may not be linear in the features"
                )
            )
        found += [one.warning for one in self.differences[:1]]
        found += self.doubts
        if not self.passed:
            found.append("no test was passed: nothing is known about the returned policy")
        return tuple(found)

    def describe(self) -> dict[str, Any]:
        """Return what the run promises and why it stopped, as data that JSON can hold."""
        within = "" if self.rewards["declared"] else WITHIN.format(*self.rewards["value_range"])
        return {
            "promise": f"{PROMISE}{within}{EXCEPTIONS[self.mode]}.",
            "reason": self.reason,
            "tests_made": self.tests_made,
            "test_size": self.test_size,
            "mean_return": self.mean_return if self.passed else None,
            "interval": list(self.interval),
            "upsides": self.upsides.tolist() if self.passed else None,
            "largest_v": self.largest.tolist() if self.passed else None,
            "loss_quantile": self.loss_quantile,
            "rare_transitions": self.rare_transitions,
            "binding": self.binding,
            "p_min": self.p_min,
            "rewards": self.rewards,
            "share": self.share,
            "uniform": None if math.isnan(self.uniform) else self.uniform,
            "disagreements": [asdict(one) for one in self.disagreements],
            "homogeneous": {
                "groups": list(self.groups),
                "differences": [asdict(one) for one in self.differences],
                "parted_at": self.parted_at,
            },
        }


def interval(mean: float, n: int, confidence_left: float) -> tuple[float, float]:
    """Return the Chernoff interval for the mean of n numbers in [0, 1]: all mu with n kl(mean, mu) <= log(2 / delta).

    Examples
    --------
    >>> low, high = interval(0.7, 61, 0.05)
    >>> round(low, 3), round(high, 3)
    (0.529, 0.84)
    """
    if n == 0:
        return 0.0, 1.0
    mean, most = min(max(mean, 0.0), 1.0), math.log(2 / confidence_left) / n

    def end(wrong: float) -> float:
        right = mean
        for _ in range(60):
            middle = (right + wrong) / 2
            right, wrong = (middle, wrong) if divergence(mean, middle) <= most else (right, middle)
        return right

    return end(0.0), end(1.0)


def mean_interval(returns: Floats, confidence_left: float) -> tuple[float, float]:
    """Return Student's interval for the mean of noisy numbers, asymptotic unless they are normal.

    Examples
    --------
    >>> low, high = mean_interval(np.array([1.0, 2.0, 3.0]), 0.05)
    >>> round(low, 2), round(high, 2)
    (-0.48, 4.48)
    """
    if len(returns) < 2:
        return -math.inf, math.inf
    error = float(returns.std(ddof=1)) / math.sqrt(len(returns))
    reach = float(stdtrit(len(returns) - 1, 1 - confidence_left / 2)) * error
    return float(returns.mean()) - reach, float(returns.mean()) + reach


def coarse(epsilon: float, low: float, high: float) -> str:
    """Return that an epsilon does not tell policies apart whose returns lie between `low` and `high`."""
    return (
        f"returns lie between {low:.6g} and {high:.6g}, within epsilon = {epsilon:g} of each other, so any policy that "
        f"was played would keep the promise; epsilon = {float(f'{(high - low) / 20:.1g}'):g} would tell them apart"
    )


def divergence(p: float, q: float) -> float:
    """Return kl(p, q) of two Bernoulli laws."""
    return sum(x * math.log(x / y) if y else math.inf for x, y in ((p, q), (1 - p, 1 - q)) if x)
