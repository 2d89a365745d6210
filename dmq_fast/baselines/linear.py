"""Baselines that learn a function linear in the features for every level and action; each returns a greedy `Policy`."""

from __future__ import annotations

from math import hypot
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import flag
from dmq_fast.baselines.base import Baseline, Estimates, register
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.homogeneity import AUTO, Homogeneous, is_auto
from dmq_fast.kernels import Episode, LeastSquaresLearner, LinearQLearner, SpanLearner, as_positive, transition_edges
from dmq_fast.policy import Policy

if TYPE_CHECKING:
    from dmq_fast._support.arrays import Sparse

__all__ = ["LSVIUCB", "OCP", "RLSVI", "LinearQ", "UniformLeastSquares"]

Environment = FiniteMDP | CompiledEnv


class Linear(Baseline):
    """A baseline that sees features; "auto" shares data in tables only."""

    def __init__(self, env: Environment, *, homogeneous: Homogeneous, **options: Any) -> None:
        if is_auto(homogeneous) and not isinstance(env, FiniteMDP):  # it may cost H times as much
            homogeneous = False
        super().__init__(env, homogeneous=homogeneous, **options)


class LeastSquares(Linear):
    """A baseline that returns the least-squares fit of its transitions, without noise or bonus."""

    def least_squares(self, episode: Episode, kind: str, ridge: float, scale: float) -> LeastSquaresLearner:
        """Return the compiled learner, with those of its options that the baseline has."""
        own = {name: self.own[name] for name in ("optimism", "clipped", "blocks") if name in self.own}
        return LeastSquaresLearner(episode, kind, ridge, scale, **own, groups=self.groups)

    def estimates(self, learner: Any) -> Estimates:
        """Return the least-squares fit, without noise or bonus."""
        theta = learner.fit()
        return Estimates(Policy.greedy(theta), theta=theta)

    def counts(self, learner: Any) -> dict[str, Any]:
        """Return the number of distinct observations of next states, by level; 0 at the first."""
        return {"observations": list(learner.n_observations)}


@register
class UniformLeastSquares(LeastSquares):
    """Uniform actions, then least squares from the last level to the first: the simplest control.

    Parameters
    ----------
    env : FiniteMDP or CompiledEnv
    ridge : float, default 1e-3
        > 0, added to the sums (not the means) of squares.
    blocks : bool, default False
        As of `LSVIUCB`.
    homogeneous : "auto", bool or sequence of int, default "auto"
        As of `LSVIUCB`.
    **options
        As of `Baseline`.
    """

    name = "uniform"

    def __init__(
        self,
        env: Environment,
        *,
        ridge: float = 1e-3,
        blocks: bool = False,
        homogeneous: Homogeneous = AUTO,
        **options: Any,
    ) -> None:
        super().__init__(env, ridge=ridge, blocks=flag("blocks", blocks), homogeneous=homogeneous, **options)

    def learner(self, episode: Episode) -> LeastSquaresLearner:
        """Return the compiled learner."""
        return self.least_squares(episode, "uniform", self.own["ridge"], 0.0)


@register
class LinearQ(Linear):
    """Epsilon-greedy Q-learning with linear functions, one step at a time.

    Parameters
    ----------
    env : FiniteMDP or CompiledEnv
    alpha : float, default 0.5
        Step size in [0, 1] of the first episode.
    alpha_decay : float, default 0.0
        >= 0: in episode e the step size is alpha / (1 + e alpha_decay). The paper's conditions (infinite sum, finite
        sum of squares) need it positive.
    epsilon : float, default 0.1
        Probability in [0, 1] of a uniform action; ties of the others are broken at random.
    epsilon_decay : float, default 0.0
        >= 0, as `alpha_decay`.
    homogeneous : "auto", bool or sequence of int, default "auto"
        As of `LSVIUCB`. A step then changes theta of all levels of its label, from the last to the first.
    **options
        As of `Baseline`.

    Notes
    -----
    A step costs O(K d), and O(H K d) where levels share data. Sharing is sound where Q-learning is, as on tables: it
    learns from steps of any policy, and those of other levels are such.

    Melo and Ribeiro (2007). Q-learning with linear function approximation. COLT.
    """

    name = "q-learning"

    def __init__(
        self,
        env: Environment,
        *,
        alpha: float = 0.5,
        alpha_decay: float = 0.0,
        epsilon: float = 0.1,
        epsilon_decay: float = 0.0,
        homogeneous: Homogeneous = AUTO,
        **options: Any,
    ) -> None:
        options |= {"alpha": alpha, "alpha_decay": alpha_decay, "epsilon": epsilon, "epsilon_decay": epsilon_decay}
        super().__init__(env, homogeneous=homogeneous, **options)

    def learner(self, episode: Episode) -> LinearQLearner:
        """Return the compiled learner."""
        return LinearQLearner(episode, **self.constants, groups=self.groups)

    def estimates(self, learner: Any) -> Estimates:
        """Return the weights of the Q functions."""
        theta = learner.weights
        return Estimates(Policy.greedy(theta), theta=theta)


@register
class RLSVI(LeastSquares):
    """Randomized least-squares value iteration.

    Before every episode theta_h^a is drawn from N(mean, (sigma top_h)² V^{-1}), V = sigma² precision I + sum phi phi^T,
    with targets that are the largest values phi^T theta under the theta drawn for the next level; the episode is greedy
    on them. The policy returned is greedy on the fit of the same transitions without noise.

    Parameters
    ----------
    env : FiniteMDP or CompiledEnv
    sigma : float, default 0.1
        > 0. Deviation of targets, in units of top_h and of the range, so for values of at most 1. Noise s, in units of
        the range, makes it sqrt(sigma² + s²).
    precision : float, default 1.0
        > 0. The paper's lambda: an unseen direction of theta has variance top_h² / precision.
    optimism : {"flat", "steps"}
        The unit of the noise at level h = 0, ..., H - 1, top_h: 1, or H - h, as of `LSVIUCB`.
    clipped : bool, default False
        Clip the values phi^T theta^a that were drawn to [0, top_h].
    blocks : bool, default False
        As of `LSVIUCB`.
    homogeneous : "auto", bool or sequence of int, default "auto"
        As of `LSVIUCB`; z is drawn for each level.
    **options
        As of `Baseline`.

    Notes
    -----
    For m distinct observations at a level (at most one an episode) an episode costs O(H (m K d + K d²)). Where levels
    share data, m counts the observations of all of them.

    Sharing is sound: theta_h is drawn from the posterior of a regression on more rows, all with the same mean and the
    same noise.

    Osband, Van Roy and Wen (2016). Generalization and exploration via randomized value functions. ICML. Algorithm 1,
    with one block of features an action.
    """

    name = "rlsvi"

    def __init__(
        self,
        env: Environment,
        *,
        sigma: float = 0.1,
        precision: float = 1.0,
        optimism: str = "flat",
        clipped: bool = False,
        blocks: bool = False,
        homogeneous: Homogeneous = AUTO,
        **options: Any,
    ) -> None:
        options |= {"optimism": optimism, "clipped": flag("clipped", clipped), "blocks": flag("blocks", blocks)}
        super().__init__(env, sigma=sigma, precision=precision, homogeneous=homogeneous, **options)

    def learner(self, episode: Episode) -> LeastSquaresLearner:
        """Return the compiled learner."""
        sigma, precision = as_positive("sigma", self.own["sigma"]), as_positive("precision", self.own["precision"])
        sigma = hypot(sigma, self.noise) if self.noise > 0.0 else sigma
        if sigma**2 * precision == 0.0:
            raise ValueError(f"sigma: expected sigma² precision > 0, got {sigma:g} and {precision:g}")
        return self.least_squares(episode, "randomized", sigma**2 * precision, sigma)


@register
class LSVIUCB(LeastSquares):
    """Least-squares value iteration with upper confidence bounds.

    Before every episode theta is fitted backward to the values of

        min(top_h, phi^T theta^a + beta top_h sqrt(phi^T V^{-1} phi)),    V = ridge I + sum phi phi^T;

    the episode is greedy on these. The policy returned is greedy on the fit of the same transitions without bonus.

    Parameters
    ----------
    env : FiniteMDP or CompiledEnv
    beta : float, default 0.1
        >= 0. With values of at most 1, as in units of the range, the theorem's is c K d sqrt(log(2 K d T / p)), which
        is far too cautious in practice: tune it. It multiplies how far targets scatter; noise s, in units of the range,
        makes it beta (1 + s).
    ridge : float, default 1.0
        > 0, the paper's lambda.
    optimism : {"flat", "steps"}
        The largest value hoped for at level h = 0, ..., H - 1, top_h. As values are at most 1, "flat" has top_h = 1 in
        the place of the paper's H. "steps" has top_h = H - h: each step may earn 1, so that many unknown steps beat
        one. It needs a small beta, and ridge <= beta^2, where unit features that were never seen have the value top_h.
    clipped : bool, default False
        Clip the fit phi^T theta^a to [0, top_h] before the bonus is added: a fit that extrapolates to less than 0 then
        does not outweigh the bonus.
    blocks : bool, default False
        Learn one theta for all actions, as the paper does. The features are K blocks (phi(s, 1), ..., phi(s, K)), as
        `features.action_blocks` and `linear_mdp` make them; ValueError if their number is no multiple of K. In the
        result, this theta stands in block a of action a, beside zeros.
    homogeneous : "auto", bool or sequence of int, default "auto"
        Whether transitions, rewards and features are the same at every level, so that a step at one is data for all; or
        H labels: levels of one label are the same. They share one V and one set of rows, and each has a regression on
        its own targets. "auto": what a table declares, and False for other environments, whose observations may never
        repeat: an episode would then cost H times as much. Nothing tests it during the run. What follows the last
        step is not shown, so the last level learns from all steps, and the others from all but the last.
    **options
        As of `Baseline`.

    Notes
    -----
    V has a block for every action; its factors are updated by the episode's rows, and so are the quadratic forms of
    the m distinct observations of a level (at most one an episode). So an episode costs O(H (m K d + K d²)): it grows
    with the number of episodes only where every observation is new. Where levels share data, m counts the observations
    of all of them.

    Sharing is sound: given the past, the next state of a row has the same distribution at all levels of a label, so the
    self-normalised bound of the paper's lemma B.3 holds for the rows of all levels, with the values of level h + 1 as
    targets; T steps take the place of T / H episodes in its logarithm.

    Jin, Yang, Wang and Jordan (2020). Provably efficient reinforcement learning with linear function approximation.
    COLT. Algorithm 1.
    """

    name = "lsvi-ucb"

    def __init__(
        self,
        env: Environment,
        *,
        beta: float = 0.1,
        ridge: float = 1.0,
        optimism: str = "flat",
        clipped: bool = False,
        blocks: bool = False,
        homogeneous: Homogeneous = AUTO,
        **options: Any,
    ) -> None:
        options |= {"optimism": optimism, "clipped": flag("clipped", clipped), "blocks": flag("blocks", blocks)}
        super().__init__(env, beta=beta, ridge=ridge, homogeneous=homogeneous, **options)

    def learner(self, episode: Episode) -> LeastSquaresLearner:
        """Return the compiled learner."""
        beta = as_positive("beta", self.own["beta"], zero=True)
        return self.least_squares(episode, "confident", self.own["ridge"], beta * (1.0 + self.noise))


@register
class OCP(Linear):
    """Optimistic constraint propagation, for deterministic systems whose Q* is linear in the features.

    Each transition gives an exact equation for Q_h(., a). Where features are no linear combination of those with an
    equation, Q is unbounded and the action is tried. Every episode that is not optimal adds an equation, so there are
    at most as many as the sum of the dimensions of the spans, the eluder dimension of the class.

    Parameters
    ----------
    env : FiniteMDP or CompiledEnv
        Deterministic but for the start.
    tolerance : float, default 1e-6
        > 0. Largest distance from the span of the equations at which features count as part of it.
    homogeneous : "auto", bool or sequence of int, default "auto"
        As of `LSVIUCB`. A step then gives an equation at each level of its label at which the value of the next state
        is known.
    **options
        As of `Baseline`.

    Raises
    ------
    ValueError
        If steps or observations of the environment depend on chance, or rewards are noisy.

    Notes
    -----
    Constraints that are no equations are dropped: without a bound on theta, they imply nothing for other features. The
    equations of an episode are found from its last level to its first, each with those of the levels after it. An
    episode costs O(H K d²), however many came before, and O(H² K d²) where levels share data.

    Sharing is sound: equations are exact at every level, and an episode that is not optimal still adds one.

    Wen and Van Roy (2013). Efficient exploration and value function generalization in deterministic systems. NIPS.
    Algorithm 1 for the coherent case.
    """

    name = "ocp"

    def __init__(
        self, env: Environment, *, tolerance: float = 1e-6, homogeneous: Homogeneous = AUTO, **options: Any
    ) -> None:
        super().__init__(env, tolerance=tolerance, homogeneous=homogeneous, **options)

    def learner(self, episode: Episode) -> SpanLearner:
        """Return the compiled learner."""
        refuse_chance(self.env)
        if self.rewards.noise is not None:
            raise ValueError(f"noise: expected none, as ocp learns from exact equations, got {self.rewards.noise:g}")
        return SpanLearner(episode, self.own["tolerance"], groups=self.groups)

    def estimates(self, learner: Any) -> Estimates:
        """Return the weights of least norm: 0 in directions without an equation."""
        theta = learner.weights
        return Estimates(Policy.greedy(theta), theta=theta)

    def counts(self, learner: Any) -> dict[str, Any]:
        """Return the number of equations."""
        return {"equations": int(learner.ranks.sum())}

    def warnings(self, learner: Any) -> list[str]:
        """Return a warning if equations contradict each other."""
        if learner.n_conflicts == 0:
            return []
        return ["equations contradict earlier ones: Q* is not linear in the features"]


def is_certain(transitions: NDArray[np.float64] | Sparse) -> bool:
    """Return whether every action has one next state."""
    return bool((transition_edges(transitions)[2] == 1.0).all())


def refuse_chance(env: Environment) -> None:
    """Raise ValueError for an environment whose steps or observations are random."""
    if isinstance(env, FiniteMDP):
        fixed = all(map(is_certain, env.P[: env.horizon - 1])) and all(
            cap == 0.0 or np.isin(R, (0.0, cap)).all() for R, cap in zip(env.R, env.caps, strict=True)
        )
        fixed = fixed and (env.R[-1].ndim == 2 or is_certain(env.P[-1]))
    else:
        fixed = not any(env.handle.step_uniforms) and not any(env.handle.feature_uniforms)
    if not fixed:
        raise ValueError(f"env: expected a deterministic environment, got {env!r}, whose steps depend on chance")
