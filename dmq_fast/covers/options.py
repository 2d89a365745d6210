"""Settings of Algorithms 1 to 3: options by variant, and parameters. The method `of` of each checks its arguments."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real

import numpy as np

from dmq_fast._support.checks import flag, one_of
from dmq_fast.engine.budget import as_trajectories
from dmq_fast.function_class import FunctionClass
from dmq_fast.kernels import as_positive
from dmq_fast.rewards import RewardModel
from dmq_fast.theory.bounds import FLOAT64_EPS_R

__all__ = ["VARIANTS", "Options", "RunParameters", "noisy_samples"]

MIXTURES = ("stratified", "multinomial")
ORACLES = ("decision", "value")
RATIO = 2.0
"""Default of R; a class with thresholds of its own need not have it."""

INITIAL = ("uniform", "fixed", "given")


@dataclass(frozen=True)
class Options:
    """Options of Algorithms 1 to 3, which distinguish the variants.

    ``dataclasses.replace(VARIANTS["sound"], memo=True)`` makes options of your own.

    Parameters
    ----------
    initial : {"uniform", "fixed", "given"}
        First policy of every cover: "uniform" (the paper), "fixed" (one random action sequence) or "given" by the
        argument `initial` of `DMQ`, which may be several.
    recheck : bool
        Repeat Algorithm 3 until a whole pass has no True, repeat Algorithm 2 on the first level until one run has none,
        and test the returned policy itself. The paper makes a single pass.
    accumulate : bool
        Add the M2 of each True to S_h' = sum over pi in Pi_h' of M_pi. The paper draws D_h' anew. With this option
        det(S_h' + eps_r I) grows by a factor of at least 1 + R each time, on every sample path, and |Pi_h'| never
        exceeds `theory.sure_cover_bound`.
    reuse : bool
        Use the trajectories that the last pass of Algorithm 3 on (h, a) draws, N of every pi_h^a with the greedy rules
        after level h, as the regression data of Algorithm 2, and their states of level h as D_h. The regression data
        are then not independent: which policies are added depends on trajectories that are fitted later. By a
        self-normalised bound, this costs at most a factor |Pi_h| in N.
    memo : bool
        Draw with no policy a second time: a policy that was checked before has the same distribution now, so test its
        earlier moments again. Policies are the same if their rules are, or where the sampler enumerates the states, if
        their actions in all states are. A noisy draw stays, so N must be large enough. Without `accumulate`, D_h' is
        drawn anew after a True, and the moments of that True too.
    oracle : {"value", "decision"}
        Compute and record the v of the paper, a top eigenvalue; or decide v >= eps_t by one factorisation alone. The
        answers are the same: where rounding of v could change the answer, the factorisation decides.
    mixture : {"multinomial", "stratified"}
        Regression data of N |Pi_h| policies drawn uniformly (the paper), or N trajectories of each policy.

    Raises
    ------
    TypeError, ValueError
        If an option is of a wrong type or unknown, or if `reuse` comes with the multinomial mixture.

    Examples
    --------
    >>> from dataclasses import replace
    >>> import dmq_fast as dmq
    >>> remembering = replace(dmq.VARIANTS["sound"], memo=True)
    >>> env = dmq.environments.combination_lock(horizon=5, n_actions=3, rng=0)
    >>> result = dmq.DMQ(env, n_samples=20, variant=remembering, rng=1).learn()
    >>> result.variant, result.options["memo"]
    ('custom', True)
    """

    initial: str
    recheck: bool
    accumulate: bool
    reuse: bool
    memo: bool
    oracle: str
    mixture: str

    def __post_init__(self) -> None:
        for name in ("recheck", "accumulate", "reuse", "memo"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        one_of("initial", self.initial, INITIAL)
        one_of("oracle", self.oracle, ORACLES)
        if one_of("mixture", self.mixture, MIXTURES) != "stratified" and self.reuse:
            raise ValueError(f"mixture: expected 'stratified', which reuse implies, got {self.mixture!r} with reuse")

    @classmethod
    def of(cls, variant: str | Options, *, in_float64: bool = True) -> tuple[str, Options]:
        """Return the name of a variant, "custom" of options that none has, and its options.

        Where numbers are no float64, "paper" stands for the limit as N grows, whose mixture is stratified.

        Raises
        ------
        TypeError, ValueError
            If there is no such variant.
        """
        if isinstance(variant, Options):
            return next((name for name, options in VARIANTS.items() if options == variant), "custom"), variant
        if not isinstance(variant, str):
            raise TypeError(f"variant: expected a name or Options, got {variant!r}")
        options = VARIANTS[one_of("variant", variant, VARIANTS)]
        return variant, options if in_float64 else replace(options, mixture="stratified")


VARIANTS = {
    "paper": Options(
        initial="uniform",
        recheck=False,
        accumulate=False,
        reuse=False,
        memo=False,
        oracle="value",
        mixture="multinomial",
    ),
    "sound": Options(
        initial="fixed",
        recheck=True,
        accumulate=False,
        reuse=False,
        memo=False,
        oracle="decision",
        mixture="stratified",
    ),
}
VARIANTS["frugal"] = replace(VARIANTS["sound"], accumulate=True, reuse=True, memo=True)


def noisy_samples(n_samples: int, rewards: RewardModel, horizon: int) -> int:
    """Return N (1 + 4 s^2 H), rounded up: the number of trajectories that noisy rewards take.

    s is the standard deviation of the noise of a reward, in units of the value range; a return in it has a variance of
    at most 1/4, and s^2 H is added to that. N stays where there is no noise, or the range is unknown.

    Examples
    --------
    >>> noisy_samples(100, RewardModel(np.array([[-20.0, 0.0]] * 4), noise=10.0), 4)
    500
    """
    if rewards.noise is None or not rewards.known:
        return n_samples
    more = 4.0 * rewards.in_units(rewards.noise) ** 2 * horizon
    return n_samples + math.ceil(n_samples * more)


@dataclass(frozen=True)
class RunParameters:
    """Parameters of a run: N, epsilon_s, epsilon_t, the regulariser of the oracle, and lambda_ridge."""

    n_samples: int
    eps_s: float
    eps_t: float
    eps_r: float
    ridge: float

    @property
    def ratio(self) -> float:
        """R = eps_t / eps_s; for a cone, decisions depend on the two through R only."""
        return self.eps_t / self.eps_s

    @classmethod
    def of(
        cls,
        *,
        n_samples: int,
        ratio: float | Decimal,
        eps_r: float | Decimal,
        ridge: float | Decimal,
        function_class: FunctionClass,
        in_float64: bool = True,
    ) -> RunParameters:
        """Return the parameters, checked and rounded to float64. The function class chooses the thresholds.

        Raises
        ------
        TypeError, ValueError
            If one is of a wrong type or out of range, if the class has no thresholds, or if `eps_r` is below the
            resolution of float64.
        """
        wanted = as_real("ratio", ratio)
        small, large = function_class.thresholds(wanted)
        if wanted != RATIO and not math.isclose(large / small, wanted):
            raise ValueError(f"ratio: expected {large / small:g}, which {function_class!r} has, got {wanted:g}")
        regulariser = as_real("eps_r", eps_r)
        if in_float64 and function_class.is_cone and regulariser < float(FLOAT64_EPS_R):
            # The oracle would take rounding errors for new directions, and return True without end.
            raise ValueError(
                f"eps_r: expected at least {FLOAT64_EPS_R:g}, the resolution of float64 beside S, got {regulariser:g}; "
                "on a FiniteMDP, ExactSampler(env, arithmetic=digits) takes less"
            )
        return cls(
            n_samples=as_trajectories("n_samples", n_samples, in_float64=in_float64),
            eps_s=small,
            eps_t=large,
            eps_r=regulariser,
            ridge=as_real("ridge", ridge),
        )


def as_real(name: str, value: float | Decimal) -> float:
    """Return a positive real number of any kind as float64."""
    if isinstance(value, Real | Decimal) and not isinstance(value, int | float | np.generic):
        value = float(value)
    return as_positive(name, value)
